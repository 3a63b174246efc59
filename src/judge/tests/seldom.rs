//! What is judged where pages come seldom, and GPUs are known from single instants only.

use std::time::Duration;

use gaunt_schema::{
    Batch, Delivery, Device, Dialect, Page, Rejected, Report, Target, TargetId, UnixMs,
    catalogue::{gpu, host},
};

use super::pages::{report, say};
use crate::{
    cluster::Cluster,
    judge::{Judge, Thresholds},
};

const NODES: [&str; 4] = ["ash", "birch", "cedar", "elm"];

/// Seconds from one page to the next, which is more than some exporters take to look again.
const PERIOD_S: i64 = 15;

/// When something begins.
const ONSET_S: i64 = 600;

/// What happens from then on.
#[derive(Clone, Copy)]
struct Trouble {
    /// What the GPUs of `birch` are seen to do at this look; none for as much as ever.
    busy: fn(look: i64) -> Option<f64>,
    /// Share of the time in which its tasks wait for input.
    io: f64,
    /// How fast the job is.
    pace: f64,
}

/// Two GPUs of a job on a host, at an instant of which no counter tells what was between.
fn page(node: &str, second: i64, trouble: Trouble) -> Report {
    let since = (second - ONSET_S).max(0);
    let struck = node == "birch" && since > 0;
    let seen = (trouble.busy)(second / PERIOD_S).filter(|_| struck).unwrap_or(0.97);
    let speed = if since > 0 { trouble.pace } else { 1.0 };
    let mut page = report(node);
    for index in 0..2 {
        let device = page.device(Device::gpu(index));
        page.info(device, gpu::JOB_INFO, &[("job", "8812")]);
        say(&mut page, Device::gpu(index), gpu::UTILIZATION, seen);
        say(&mut page, Device::gpu(index), gpu::TENSOR_ACTIVE, 0.4 * speed);
    }
    let more = if node == "birch" { trouble.io * since as f64 } else { 0.0 };
    say(&mut page, Device::node(), host::IO_PRESSURE, 0.01 * second as f64 + more);
    page
}

/// The second after the onset at which something wakes somebody, and what that is.
fn wakes(seconds: i64, trouble: Trouble) -> Option<(i64, String)> {
    let mut cluster = Cluster::new(Duration::from_secs(PERIOD_S as u64), 10);
    let target = |(id, node): (u32, &str)| Target {
        id: TargetId(id),
        address: node.into(),
        node: None,
        origin: "test".into(),
    };
    cluster.accept(Delivery::Targets((0..).zip(NODES).map(target).collect()));
    let mut judge = Judge::new(Thresholds::default());
    for second in 1..=ONSET_S + seconds {
        let at = UnixMs(second * 1_000);
        for (place, node) in (0..).zip(NODES) {
            if second % PERIOD_S != place {
                continue;
            }
            let page = Page {
                report: page(node, second, trouble),
                dialect: Dialect::Gaunt,
                bytes: 1,
                rejected: Rejected::default(),
            };
            let target = TargetId(place as u32);
            let batch = Batch { target, at, duration_ms: 1.0, outcome: Ok(page) };
            cluster.accept(Delivery::Batch(batch));
        }
        cluster.advance(at);
        judge.step(&cluster);
        if let Some(finding) = judge.findings().first() {
            return Some((second - ONSET_S, finding.id.clone()));
        }
    }
    None
}

/// Each fourth look catches it at doing less.
fn caught(look: i64) -> Option<f64> {
    (look % 4 == 0).then_some(0.4)
}

#[test]
fn a_host_that_starves_is_held_on_to_between_looks() {
    let (after, id) = wakes(600, Trouble { busy: caught, io: 0.3, pace: 0.6 }).unwrap();
    assert_eq!(id, "data_starved/birch");
    assert!(after <= 120, "after {after} s");
}

#[test]
fn who_is_never_seen_to_starve_is_not_said_to() {
    assert_eq!(wakes(600, Trouble { busy: |_| None, io: 0.3, pace: 0.6 }), None);
}

#[test]
fn a_job_that_is_as_fast_as_ever_has_a_host_that_only_reads_much() {
    assert_eq!(wakes(600, Trouble { busy: caught, io: 0.3, pace: 1.0 }), None);
}
