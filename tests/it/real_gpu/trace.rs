//! What the GPU's own counters say of a busy and of a starved loop, kept as a file from which a simulator can learn.

use std::{
    env, fs,
    io::{self, Write},
    time::{Duration, Instant},
};

use gaunt_schema::{
    Absent, Device, Report, UnixMs,
    catalogue::gpu::{
        DRAM_ACTIVE, FP32_ACTIVE, POWER, POWER_MIN, SM_ACTIVE, SM_ACTIVE_MIN, SM_BELOW_5,
        SM_OCCUPANCY, UTILIZATION,
    },
};

use super::{
    load::{Load, Rhythm},
    node,
};

/// Where the traces are kept, if somebody wants them.
const KEEP: &str = "GAUNT_TRACES";

/// How long each loop runs.
const TRACED: Duration = Duration::from_secs(30);

/// What is traced.
const COLUMNS: [gaunt_schema::MetricId; 9] = [
    SM_ACTIVE,
    SM_ACTIVE_MIN,
    SM_BELOW_5,
    SM_OCCUPANCY,
    DRAM_ACTIVE,
    FP32_ACTIVE,
    UTILIZATION,
    POWER,
    POWER_MIN,
];

#[test]
#[ignore = "needs an NVIDIA GPU with counters of its own: Hopper and newer"]
fn a_starved_loop_is_told_from_a_busy_one() {
    let busy = Rhythm { works: Duration::from_secs(1), waits: Duration::ZERO };
    // A loader that stalls: 700 ms of steps, and 300 ms in which nothing is there to compute.
    let starved = Rhythm { works: Duration::from_millis(700), waits: Duration::from_millis(300) };
    let [busy, starved] =
        [("busy", busy), ("starved", starved)].map(|(name, rhythm)| trace(name, rhythm));
    let of = |rows: &[Report], metric| {
        let last = rows.last().and_then(|row| row.reading(&Device::gpu(0), metric));
        last.and_then(gaunt_schema::Reading::value)
            .unwrap_or_else(|| panic!("no {}", MetricName(metric)))
    };
    assert!(of(&busy, SM_ACTIVE_MIN) > 0.5, "a busy loop never rests");
    assert!(of(&starved, SM_ACTIVE_MIN) < 0.3, "a stall of 300 ms is seen in a period of a second");
    let below = |rows: &[Report]| of(rows, SM_BELOW_5) - of(&rows[..1], SM_BELOW_5);
    assert!(below(&starved) > below(&busy) + 1.0, "{} beside {}", below(&starved), below(&busy));
}

struct MetricName(gaunt_schema::MetricId);

impl std::fmt::Display for MetricName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0.key())
    }
}

/// Runs a loop, and says what the exporter said of GPU 0 each second of it.
fn trace(name: &str, rhythm: Rhythm) -> Vec<Report> {
    let _load = match Load::start(rhythm) {
        Ok(load) => load,
        Err(why) => panic!("no load can be made without CUDA's driver: {why}"),
    };
    let node = node("1s", None);
    let (mut rows, mut last) = (Vec::new(), UnixMs::default());
    let device = Device::gpu(0);
    let end = Instant::now() + TRACED;
    while Instant::now() < end {
        let report = node.page();
        let Some(at) = report.node_time.filter(|at| *at > last) else {
            std::thread::park_timeout(Duration::from_millis(50));
            continue;
        };
        last = at;
        let active = report.reading(&device, SM_ACTIVE);
        let unsupported =
            active.and_then(gaunt_schema::Reading::reason) == Some(Absent::Unsupported);
        assert!(!unsupported, "this GPU has no counters of its own");
        if report.reading(&device, SM_ACTIVE_MIN).is_some() {
            rows.push(report);
        }
    }
    assert!(rows.len() > 15, "{} reports in {TRACED:?}", rows.len());
    let text = table(&rows);
    writeln!(io::stdout().lock(), "{name}\n{text}").unwrap();
    if let Some(folder) = env::var_os(KEEP) {
        fs::write(std::path::Path::new(&folder).join(format!("{name}.csv")), text).unwrap();
    }
    rows
}

/// One line for each report, one column for each metric; what is absent is empty.
fn table(rows: &[Report]) -> String {
    let names = COLUMNS.map(|metric| metric.row().name).join(",");
    let first = rows[0].node_time.unwrap_or_default();
    rows.iter().fold(format!("seconds,{names}\n"), |text, row| {
        let seconds = row.node_time.unwrap_or_default().since(first).as_secs_f64();
        let value = |metric| row.reading(&Device::gpu(0), metric)?.value();
        let cells =
            COLUMNS.map(|metric| value(metric).map_or(String::new(), |value| value.to_string()));
        text + &format!("{seconds:.3},{}\n", cells.join(","))
    })
}
