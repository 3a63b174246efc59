//! What nobody says and the judge learns: leaves from who is congested together, roles from what is usual, a slow decline;
//! and what it says was missing.

use gaunt_schema::{
    Device, Dialect, Entity, EntityKind, Report, Severity,
    catalogue::{gpu, host, port},
};

use super::pages::{Stage, report, say};
use crate::judge::Finding;

/// So many nodes of one job, with names that say nothing of their place.
const NODES: [(&str, Dialect); 8] = [
    ("ash", Dialect::Gaunt),
    ("birch", Dialect::Gaunt),
    ("cedar", Dialect::Gaunt),
    ("elm", Dialect::Gaunt),
    ("fir", Dialect::Gaunt),
    ("hazel", Dialect::Gaunt),
    ("larch", Dialect::Gaunt),
    ("oak", Dialect::Gaunt),
];

const DEVICES: [&str; 2] = ["bond0", "bond1"];

/// A node whose two ports carry half of what they could; `marked` is the share of packets that queued on their way.
fn networked(place: usize, second: i64, marked: [f64; 2], leaf: Option<&str>) -> Report {
    let mut page = report(NODES[place].0);
    for (name, marked) in DEVICES.into_iter().zip(marked) {
        let device = page.device(Device::port(name, "1"));
        if let Some(leaf) = leaf {
            page.info(device, port::INFO, &[("leaf", leaf), ("rail", &name[4..])]);
        }
        let seconds = second as f64;
        for (metric, value) in [
            (port::STATE, 4.0),
            (port::RATE, 5e10),
            (port::RECEIVE_BYTES, 1e12 + 2.5e10 * seconds),
            (port::TRANSMIT_BYTES, 1e12 + 2.5e10 * seconds),
            (port::RECEIVE_PACKETS, 1e9 + 6e6 * seconds),
            (port::ECN_MARKED, 1e6 + 6e6 * marked * (seconds - 60.0).max(0.0)),
        ] {
            say(&mut page, Device::port(name, "1"), metric, value);
        }
    }
    page
}

fn finding<'a>(stage: &'a Stage, id: &str) -> &'a Finding {
    stage.judge.findings().into_iter().find(|finding| finding.id == id).unwrap()
}

fn missing<'a>(stage: &'a Stage, id: &str) -> &'a [String] {
    let told = stage.judge.open().into_iter().find(|told| told.finding.id == id).unwrap();
    &told.chain.as_ref().unwrap().missing
}

#[test]
fn ports_that_are_congested_together_are_taken_for_a_leaf_that_nobody_names() {
    // Of eight nodes three suffer on one rail.
    let page = |second: i64, place: usize| {
        networked(place, second, [if place % 3 == 1 { 0.05 } else { 0.0 }, 0.0], None)
    };
    let mut stage = Stage::new(&NODES);
    assert_eq!(stage.run(65, page).open(), [""; 0]);
    assert_eq!(stage.run(30, page).open(), ["leaf_congested/0"]);
    let learned = finding(&stage, "leaf_congested/0");
    assert_eq!(learned.severity, Severity::Warning, "what is learned wakes nobody");
    assert!(learned.confidence <= 0.5);
    let rail = Entity { rail: Some("0".into()), ..Entity::new(EntityKind::Rail) };
    assert_eq!(learned.entity, rail, "no switch is invented");
    assert_eq!(
        learned.summary,
        "3 ports of 8 on rail 0 are congested together, those of birch, fir, oak: probably they share a leaf switch, which nobody names."
    );
    let lacks = missing(&stage, "leaf_congested/0");
    assert!(lacks.iter().any(|lack| lack.starts_with("nobody names its leaf")), "{lacks:?}");
}

#[test]
fn a_leaf_that_is_named_is_never_guessed() {
    let page = |second: i64, place: usize| {
        let marked = if place % 3 == 1 { 0.05 } else { 0.0 };
        let leaf = if place % 3 == 1 { "north" } else { "south" };
        networked(place, second, [marked, 0.0], Some(leaf))
    };
    let mut stage = Stage::new(&NODES);
    assert_eq!(stage.run(95, page).open(), ["leaf_congested/north"]);
    let lacks = missing(&stage, "leaf_congested/north");
    assert!(lacks.iter().all(|lack| !lack.starts_with("nobody names its leaf")), "{lacks:?}");
    assert!(lacks.iter().any(|lack| lack.starts_with("its switch is not read")), "{lacks:?}");
}

#[test]
fn who_is_congested_on_all_rails_shares_its_work_and_no_switch() {
    let page = |second: i64, place: usize| {
        let marked = if place < 3 { 0.05 } else { 0.0 };
        networked(place, second, [marked, marked], None)
    };
    assert_eq!(Stage::new(&NODES).run(120, page).open(), [""; 0]);
}

/// A node with four GPUs of one job that do this: power over 700 W and clock in GHz of each.
fn pulling(place: usize, gpus: [(f64, f64); 4]) -> Report {
    let mut page = report(NODES[place].0);
    for (index, (power, clock)) in (0..).zip(gpus) {
        let device = page.device(Device::gpu(index));
        page.info(device, gpu::JOB_INFO, &[("job", "train")]);
        page.info(device, gpu::INFO, &[("model", "a board")]);
        for (metric, value) in [
            (gpu::UTILIZATION, 1.0),
            (gpu::TENSOR_ACTIVE, 0.4),
            (gpu::POWER, power * 700.0),
            (gpu::POWER_LIMIT, 700.0),
            (gpu::SM_CLOCK, clock * 1e9),
        ] {
            say(&mut page, Device::gpu(index), metric, value);
        }
    }
    page
}

#[test]
fn a_gpu_is_compared_with_those_that_do_the_same_part() {
    // Half of the job's nodes compute more, at a lower clock, and always did.
    let page = |slow_from: i64| {
        move |second: i64, place: usize| {
            let usual = if place.is_multiple_of(2) { (0.9, 1.3) } else { (0.5, 1.9) };
            let mut gpus = [usual; 4];
            if place == 3 && second >= slow_from {
                gpus[2].1 = 1.45;
            }
            pulling(place, gpus)
        }
    };
    let mut stage = Stage::new(&NODES[..4]);
    assert_eq!(stage.run(90, page(91)).open(), [""; 0], "stages that differ are no fault");
    assert_eq!(stage.run(30, page(91)).open(), ["compute_straggler/elm/2"]);
    let slow = finding(&stage, "compute_straggler/elm/2");
    assert!(slow.summary.contains("at 76 % of its peers' clock"), "{}", slow.summary);
    let told = stage.judge.open()[0].chain.as_ref().unwrap();
    assert!(told.peers.contains("clocks within 2 roles"), "{}", told.peers);
}

#[test]
fn a_gpu_that_grows_slower_little_by_little_is_found_and_a_warm_room_is_not() {
    // A hundredth in three minutes, of one or of all.
    let page = |all: bool| {
        move |second: i64, place: usize| {
            let lost = (second - 600).max(0) as f64 / 18_000.0;
            let mut gpus = [(0.8, 1.6); 4];
            for (at, gpu) in gpus.iter_mut().enumerate() {
                if all || (place == 1 && at == 3) {
                    gpu.1 *= 1.0 - lost.min(0.12);
                }
            }
            pulling(place, gpus)
        }
    };
    let mut stage = Stage::new(&NODES[..2]);
    assert_eq!(stage.run(1_200, page(false)).open(), [""; 0]);
    assert_eq!(stage.run(1_800, page(false)).open(), ["compute_straggler/birch/3"]);
    let slow = finding(&stage, "compute_straggler/birch/3");
    assert_eq!(slow.severity, Severity::Warning);
    assert!(slow.summary.contains("has grown slower little by little"), "{}", slow.summary);
    assert_eq!(Stage::new(&NODES[..2]).run(3_000, page(true)).open(), [""; 0]);
}

#[test]
fn a_hang_of_a_job_that_nobody_names_is_said_at_once_and_wakes_later() {
    let page = |second: i64, place: usize| {
        let mut page = report(NODES[place].0);
        for index in 0..4 {
            let hangs = second > 90;
            say(&mut page, Device::gpu(index), gpu::UTILIZATION, 1.0);
            say(&mut page, Device::gpu(index), gpu::TENSOR_ACTIVE, if hangs { 0.0 } else { 0.4 });
            say(&mut page, Device::gpu(index), gpu::POWER, if hangs { 200.0 } else { 600.0 });
            say(&mut page, Device::gpu(index), gpu::POWER_LIMIT, 700.0);
            say(&mut page, Device::gpu(index), gpu::PROCESSES, 1.0);
        }
        let waited = 1e3 + 0.001 * second as f64;
        say(&mut page, Device::node(), host::IO_PRESSURE, waited);
        page
    };
    let mut stage = Stage::new(&NODES[..2]);
    assert_eq!(stage.run(150, page).open(), [""; 0]);
    assert_eq!(stage.run(60, page).open(), ["collective_hang/ash"]);
    assert_eq!(finding(&stage, "collective_hang/ash").severity, Severity::Warning);
    assert_eq!(stage.run(120, page).open(), ["collective_hang/ash"]);
    assert_eq!(finding(&stage, "collective_hang/ash").severity, Severity::Critical);
}

#[test]
fn a_finding_says_what_was_missing() {
    // Neither profiling counters nor ports, nor a job's name; only one node has a pressure.
    let page = |second: i64, place: usize| {
        let mut page = report(NODES[place].0);
        let starves = place == 0 && second > 90;
        for index in 0..4 {
            let busy = if starves { 0.4 } else { 1.0 };
            say(&mut page, Device::gpu(index), gpu::UTILIZATION, busy);
            say(&mut page, Device::gpu(index), gpu::POWER, 600.0 * busy);
            say(&mut page, Device::gpu(index), gpu::POWER_LIMIT, 700.0);
            say(&mut page, Device::gpu(index), gpu::PROCESSES, 1.0);
        }
        let waited = 1e3 + 0.5 * (second - 90).max(0) as f64;
        say(&mut page, Device::node(), host::IO_PRESSURE, if place == 0 { waited } else { 1e3 });
        page
    };
    let mut stage = Stage::new(&NODES[..2]);
    assert_eq!(stage.run(130, page).open(), ["data_starved/ash"]);
    let lacks = missing(&stage, "data_starved/ash");
    for lack in [
        "no profiling counters",
        "nobody names the jobs",
        "no PCIe traffic is told",
        "no port of the node is told",
    ] {
        assert!(lacks.iter().any(|said| said.starts_with(lack)), "{lack} is not in {lacks:?}");
    }
    assert!(!lacks.iter().any(|said| said.starts_with("no pressure")), "{lacks:?}");
}
