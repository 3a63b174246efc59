//! Memory under churn: jobs, nodes and series that come and go for simulated weeks leave nothing behind. What grows at first
//! is the history, until its oldest points are dropped, and the totals of an hour.

use std::{fs, time::Duration};

use gaunt_schema::{
    Batch, Delivery, Device, Dialect, Reading, RejectionCounts, Report, SanitizedText,
    ScrapeTarget, ScrapedPage, TargetId, UnixMs,
    catalogue::{gpu, host, port},
};

use super::{Engine, EngineOptions};

const START: UnixMs = UnixMs(1_700_000_000_000);

const NODES: u32 = 4;

const GPUS: u32 = 4;

/// Ticks of a job, of a node's name and address, and of a port's name.
const JOB: u32 = 20;
const NODE: u32 = 360;
const PORT: u32 = 720;

/// What may be resident more at the end than after the first part, in bytes: thousands of jobs and hundreds of nodes came
/// and went, and the maps in which they were kept do not shrink.
const GROWTH: u64 = 2 << 20;

/// The number of a node's machine at this tick: each node is replaced now and then, not all at once.
fn machine_number(node: u32, tick: u32) -> u32 {
    node + NODES * ((tick + node * NODE / NODES) / NODE)
}

fn build_page(node: u32, tick: u32) -> Report {
    let machine = machine_number(node, tick);
    let mut report =
        Report { node: Some(SanitizedText::new(&format!("m{machine}"))), ..Report::default() };
    let host = report.ensure_device(Device::new_node());
    report.push(host, host::CPUS, Reading::of(64.0));
    report.push(host, host::LOAD, Reading::of(3.0));
    for number in 0..GPUS {
        let device = report.ensure_device(Device::new_gpu(number));
        let wobble = f64::from((tick + number) % 11);
        report.push(device, gpu::UTILIZATION, Reading::of(0.9 + 0.001 * wobble));
        report.push(device, gpu::POWER, Reading::of(600.0 + wobble));
        let job = format!("job-{node}-{}", (tick + node) / JOB);
        report.add_info(device, gpu::JOB_INFO, &[("job", &job)]);
    }
    let name = format!("mlx5_{}", (tick + node) / PORT);
    let device = report.ensure_device(Device::new_port(&name, "1"));
    report.push(device, port::STATE, Reading::of(4.0));
    report.push(device, port::TRANSMIT_BYTES, Reading::of(1e9 * f64::from(tick)));
    report
}

fn list_targets(tick: u32) -> Vec<ScrapeTarget> {
    let target = |node| {
        let machine = machine_number(node, tick);
        ScrapeTarget {
            id: TargetId(machine),
            address: format!("10.0.{}.{}:9770", machine / 250, machine % 250).into(),
            node: None,
            origin: "test".into(),
        }
    };
    (0..NODES).map(target).collect()
}

/// Resident bytes of this process.
fn resident_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

/// Runs so many parts of `length` ticks; nothing may grow after the first.
fn check_growth(period: Duration, parts: u32, length: u32) {
    let mut engine = Engine::new(EngineOptions { period, ..EngineOptions::default() });
    engine.run_tick(START);
    let (mut machines, mut resident) = (Vec::new(), Vec::new());
    for tick in 0..parts * length {
        let at = START + period * (tick + 1);
        let now: Vec<u32> = (0..NODES).map(|node| machine_number(node, tick)).collect();
        if now != machines {
            engine.ingest_delivery(Delivery::Targets(list_targets(tick)));
            machines = now;
        }
        for node in 0..NODES {
            let page = ScrapedPage {
                report: build_page(node, tick),
                dialect: Dialect::Gaunt,
                bytes: 1,
                rejected: RejectionCounts::default(),
            };
            engine.ingest_delivery(Delivery::Batch(Batch {
                target: TargetId(machine_number(node, tick)),
                at,
                duration_ms: 1.0,
                outcome: Ok(page),
            }));
        }
        engine.run_tick(at);
        if tick % length == length - 1 {
            resident.push(resident_bytes());
        }
    }
    let growth = resident[resident.len() - 1].saturating_sub(resident[0]);
    println!("{growth} bytes of growth after the first of {parts} parts: {resident:?}");
    assert!(growth < GROWTH);
}

#[test]
#[ignore = "30 simulated days take a minute, and no other test may run beside it"]
fn memory_is_flat_under_churn_for_30_days() {
    check_growth(Duration::from_mins(1), 30, 24 * 60);
}

#[test]
#[ignore = "10 simulated hours take a minute, and no other test may run beside it"]
fn memory_is_flat_under_churn_after_two_hours_of_seconds() {
    check_growth(Duration::from_secs(1), 5, 2 * 3_600);
}
