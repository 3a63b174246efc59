//! What the exporter costs on a real GPU: each driver call, its CPU time, and what it takes from a load.

use std::{
    fs,
    io::{self, Write},
    thread,
    time::Duration,
};

use super::{
    load::{Load, Rhythm},
    node,
};

/// For how long everything is measured.
const MEASURED: Duration = Duration::from_secs(20);

/// The periods at which it is measured.
const PERIODS: [&str; 2] = ["1s", "100ms"];

/// The most of a load that the exporter may take, as a share: more than chance does between two runs.
const MAX_SLOWED: f64 = 0.02;

/// The kernel counts CPU time in hundredths of a second.
const TICKS_PER_SECOND: f64 = 100.0;

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn what_every_driver_call_costs() {
    for period in PERIODS {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("costs.csv");
        let mut node = node(period, Some(&file));
        let own = [node.id().to_string()];
        let processes: Vec<String> = own.into_iter().chain(node.workers()).collect();
        assert!(processes.len() > 1, "the worker runs");
        let before: Vec<_> = processes.iter().map(|id| cpu_seconds(id)).collect();
        thread::park_timeout(MEASURED);
        let mut out = io::stdout().lock();
        for (id, before) in processes.iter().zip(before) {
            let percent = (cpu_seconds(id) - before) / MEASURED.as_secs_f64() * 100.0;
            writeln!(out, "period {period}, process {id}: {percent:.2} % of a CPU").unwrap();
        }
        node.stop();
        let costs = fs::read_to_string(&file).unwrap();
        writeln!(out, "{costs}").unwrap();
        assert!(costs.lines().count() > 20, "{costs}");
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn a_load_is_as_fast_beside_the_exporter_as_alone() {
    let rhythm = Rhythm { works: Duration::from_secs(1), waits: Duration::ZERO };
    let load = match Load::start(rhythm) {
        Ok(load) => load,
        Err(why) => panic!("no load can be made without CUDA's driver: {why}"),
    };
    let speed = || {
        let before = load.launches();
        thread::park_timeout(MEASURED);
        (load.launches() - before) as f64 / MEASURED.as_secs_f64()
    };
    for period in PERIODS {
        // The GPU warms up and its clocks settle: what is alone is measured before and after.
        let before = speed();
        let mut node = node(period, None);
        let beside = speed();
        node.stop();
        let alone = f64::midpoint(before, speed());
        let slowed = 1.0 - beside / alone;
        writeln!(
            io::stdout().lock(),
            "period {period}: {alone:.1} launches/s alone, {beside:.1} beside: {:.2} % slower",
            slowed * 100.0
        )
        .unwrap();
        assert!(slowed <= MAX_SLOWED, "{slowed} of the load is lost at {period}");
    }
}

/// The CPU time that a process has had.
fn cpu_seconds(id: &str) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap();
    let fields = stat.rsplit_once(") ").unwrap().1.split(' ');
    fields.skip(11).take(2).map(|ticks| ticks.parse::<f64>().unwrap()).sum::<f64>()
        / TICKS_PER_SECOND
}
