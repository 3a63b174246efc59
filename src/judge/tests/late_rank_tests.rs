//! Tests of late ranks: the one with the shortest time in a collective is the one for which the others wait.

use gaunt_schema::{
    Device, DeviceClass, Dialect, Finding, Report, SanitizedText, Severity,
    catalogue::{collective, gpu, host},
};

use super::telemetry_tests::{TargetFixture, evidence_of, node_report, push_reading};

const NODES: [&str; 4] = ["ash", "birch", "cedar", "elm"];

/// The third node, whose ranks are late in these tests, and the job of all nodes.
const LATE_NODE: usize = 2;
const JOB: &str = "8812";

/// The time of each rank in one collective, in seconds, and the collective's labels.
#[derive(Clone, Copy)]
struct CollectiveShown<'a> {
    communicator: &'a str,
    operation: &'a str,
    ranks: &'a str,
    nodes: &'a str,
    job: &'a str,
    /// Named by the UUIDs of the GPUs; all are number 0 as well.
    by_uuid: bool,
    /// With the number of each rank in the communicator, as logs state it.
    has_rank: bool,
    seconds: [f64; 8],
}

const ALL_REDUCE: CollectiveShown<'_> = CollectiveShown {
    communicator: "dp",
    operation: "AllReduce",
    ranks: "8",
    nodes: "4",
    job: JOB,
    by_uuid: false,
    has_rank: false,
    seconds: [5e-3; 8],
};

/// The second rank of the third node comes last.
const LATE_RANK: CollectiveShown<'_> = CollectiveShown {
    seconds: [5.0e-3, 5.1e-3, 4.9e-3, 5.2e-3, 5e-3, 2e-3, 5e-3, 4.8e-3],
    ..ALL_REDUCE
};

/// What the GPUs of a node show beside their collectives.
#[derive(Clone, Copy)]
struct WorkShown {
    utilization: f64,
    tensor: f64,
    sm: f64,
    clock: f64,
}

const BUSY: WorkShown = WorkShown { utilization: 1.0, tensor: 0.4, sm: 0.6, clock: 1.98e9 };
const WAITING: WorkShown = WorkShown { tensor: 0.2, sm: 0.3, ..BUSY };

fn node_page(
    node: usize,
    second: i64,
    works: [WorkShown; 2],
    collectives: &[CollectiveShown<'_>],
) -> Report {
    let mut page = node_report(NODES[node]);
    push_reading(&mut page, Device::new_node(), host::CPU_BUSIEST, 0.5);
    for (number, work) in (0..2).zip(works) {
        let rank = node * 2 + number as usize;
        let gpu_device = Device::new_gpu(number);
        let device = page.ensure_device(gpu_device.clone());
        page.add_info(device, gpu::JOB_INFO, &[("job", JOB), ("rank", &rank.to_string())]);
        let uuid = format!("GPU-{rank}");
        page.add_info(device, gpu::INFO, &[("uuid", &uuid)]);
        for (metric, value) in [
            (gpu::UTILIZATION, work.utilization),
            (gpu::TENSOR_ACTIVE, work.tensor),
            (gpu::SM_ACTIVE, work.sm),
            (gpu::SM_CLOCK, work.clock),
            (gpu::PROCESSES, 1.0),
        ] {
            push_reading(&mut page, gpu_device.clone(), metric, value);
        }
        for shown in collectives {
            // A new window every half a minute varies a little; a file that nobody writes does not.
            let window = if shown.job == ENDED { 0 } else { second / 30 };
            let seconds = shown.seconds[rank] * (1.0 + 1e-3 * (window % 7) as f64);
            if shown.by_uuid {
                add_collective(&mut page, &uuid, shown, seconds);
                add_collective(&mut page, "0", shown, seconds);
            } else {
                add_collective(&mut page, &number.to_string(), shown, seconds);
            }
            if shown.has_rank {
                let info = page.infos.last_mut().expect("that of the collective");
                info.labels.push(("rank".into(), rank.to_string().as_str().into()));
            }
        }
    }
    page
}

/// The job label of a file that is not renewed.
const ENDED: &str = "unknown";

fn add_collective(page: &mut Report, gpu: &str, shown: &CollectiveShown<'_>, seconds: f64) {
    if seconds <= 0.0 {
        return;
    }
    let name = format!("{} {} 4-5MB RING_LL {}", shown.communicator, shown.operation, shown.ranks);
    let key = vec![SanitizedText::new(gpu), SanitizedText::new(&name)];
    let device = page.ensure_device(Device { class: DeviceClass::Collective, key: key.into() });
    page.add_info(
        device,
        collective::INFO,
        &[
            ("communicator", shown.communicator),
            ("operation", shown.operation),
            ("message_size", "4-5MB"),
            ("algorithm", "RING_LL"),
            ("ranks", shown.ranks),
            ("nodes", shown.nodes),
            ("job", shown.job),
        ],
    );
    page.push(device, collective::DURATION, seconds);
}

fn start_fixture() -> TargetFixture {
    TargetFixture::new(&NODES.map(|node| (node, Dialect::Gaunt)))
}

/// What is told of the ranks that a job waits for which has become slower without a cause.
fn find_late(collectives: &[CollectiveShown<'_>]) -> Option<String> {
    let mut fixture = start_fixture();
    fixture.run(120, |second, node| node_page(node, second, [BUSY; 2], &[ALL_REDUCE]));
    fixture.run(200, |second, node| node_page(node, second, [WAITING; 2], collectives));
    assert_eq!(fixture.open_ids(), ["unexplained_slowdown/8812"]);
    let (_, late) = fixture.judge.open_findings()[0].summary.rsplit_once("; ")?;
    late.contains(" last to ").then(|| late.to_owned())
}

#[test]
fn rank_with_the_shortest_time_is_late() {
    assert_eq!(find_late(&[ALL_REDUCE]), None);
    let late = find_late(&[LATE_RANK]).unwrap();
    assert_eq!(
        late,
        "cedar/1 (rank 5) comes last to AllReduce of communicator dp (2.01 ms, others 5.01 ms)."
    );
    // Processes that see only their own GPU all call it number 0.
    let by_uuid = CollectiveShown { by_uuid: true, ..LATE_RANK };
    assert_eq!(find_late(&[by_uuid]), Some(late));
    // Both ranks of a node: half of what is known may be late.
    let node = CollectiveShown {
        seconds: [5e-3, 5e-3, 5e-3, 5e-3, 2e-3, 2.2e-3, 5e-3, 5e-3],
        ..ALL_REDUCE
    };
    let late = find_late(&[node]).unwrap();
    assert!(late.starts_with("2 GPUs of cedar come last to AllReduce of"), "{late}");
}

#[test]
fn rank_that_waits_in_another_communicator_is_not_late() {
    // Rank 4 waits for rank 5 in their own communicator, and both come late to the others.
    let outer =
        CollectiveShown { seconds: [5e-3, 5e-3, 5e-3, 5e-3, 2e-3, 2e-3, 5e-3, 5e-3], ..ALL_REDUCE };
    let inner = |seconds| CollectiveShown {
        communicator: "tp",
        ranks: "3",
        nodes: "2",
        seconds,
        ..ALL_REDUCE
    };
    let inner = inner([0.0, 0.0, 0.0, 9e-3, 9e-3, 3e-3, 0.0, 0.0]);
    let late = find_late(&[outer, inner]).unwrap();
    assert!(late.starts_with("cedar/1 "), "{late}");
}

#[test]
fn unclear_times_name_no_rank() {
    let with = |shown: CollectiveShown<'static>| find_late(&[shown]);
    // Ranks of two nodes are late alike.
    let two = [5e-3, 5e-3, 2e-3, 5e-3, 5e-3, 2e-3, 5e-3, 5e-3];
    assert_eq!(with(CollectiveShown { seconds: two, ..ALL_REDUCE }), None);
    // The root of a broadcast is faster by its part.
    assert_eq!(with(CollectiveShown { operation: "Broadcast", ..LATE_RANK }), None);
    // Most ranks of the communicator are not known, or it is several of one name.
    assert_eq!(with(CollectiveShown { ranks: "32", ..LATE_RANK }), None);
    assert_eq!(with(CollectiveShown { ranks: "2", ..LATE_RANK }), None);
    // Communicators within nodes: two ranks each.
    assert_eq!(with(CollectiveShown { nodes: "1", ranks: "2", ..LATE_RANK }), None);
    // Another job's, and a file that nobody renews.
    assert_eq!(with(CollectiveShown { job: "7", ..LATE_RANK }), None);
    assert_eq!(with(CollectiveShown { job: ENDED, ..LATE_RANK }), None);
    // Launches differ by a few microseconds.
    let short = LATE_RANK.seconds.map(|seconds| seconds * 1e-3);
    assert_eq!(with(CollectiveShown { seconds: short, ..LATE_RANK }), None);
}

/// The only open finding of a job of which one GPU slowed down; `sm` is its SM activity.
fn straggler_finding(sm: f64, collectives: &[CollectiveShown<'_>]) -> Finding {
    let mut fixture = start_fixture();
    fixture.run(120, |second, node| node_page(node, second, [BUSY; 2], &[ALL_REDUCE]));
    let slow = WorkShown { clock: 1.2e9, sm, ..BUSY };
    fixture.run(120, |second, node| {
        let works = if node == LATE_NODE { [WAITING, slow] } else { [WAITING; 2] };
        node_page(node, second, works, collectives)
    });
    let findings = fixture.judge.open_findings();
    assert_eq!(findings.len(), 1, "{findings:?}");
    findings[0].clone()
}

#[test]
fn straggler_that_comes_last_is_named_with_rank_and_communicator() {
    let finding = straggler_finding(0.6, &[LATE_RANK]);
    assert_eq!(finding.id, "compute_straggler/cedar/1");
    let expected = "; cedar/1 (rank 5) comes last to AllReduce of communicator dp (2.0";
    assert!(finding.summary.contains(expected), "{}", finding.summary);
    let times = evidence_of(&finding, "collective time of the last rank / others").unwrap();
    assert_eq!((times.limit, times.passes_limit()), (Some(0.7), Some(true)), "{times:?}");
    assert!(times.note.starts_with("AllReduce of 4-5MB, communicator dp: 2.0"), "{}", times.note);
    let activity = evidence_of(&finding, "SM activity").unwrap();
    assert_eq!(activity.note, "job median 30 %");
    assert_eq!((finding.severity, finding.evidence_fault()), (Severity::Critical, None));
}

#[test]
fn late_rank_counts_as_proof_only_with_another_sm_activity() {
    let without = straggler_finding(0.6, &[ALL_REDUCE]);
    assert!(!without.summary.contains("comes last"), "{}", without.summary);
    let unconfirmed = straggler_finding(0.3, &[LATE_RANK]);
    assert!(unconfirmed.summary.contains("comes last"), "{}", unconfirmed.summary);
    let times = evidence_of(&unconfirmed, "collective time of the last rank / others").unwrap();
    assert_eq!(times.role, gaunt_schema::EvidenceRole::Context);
    let confirmed = straggler_finding(0.6, &[LATE_RANK]);
    assert!(confirmed.confidence > unconfirmed.confidence, "{confirmed:?}");
}

#[test]
fn slowdown_without_a_cause_names_the_late_rank() {
    let mut fixture = start_fixture();
    fixture.run(120, |second, node| node_page(node, second, [BUSY; 2], &[ALL_REDUCE]));
    let logged = CollectiveShown { has_rank: true, ..LATE_RANK };
    fixture.run(200, |second, node| node_page(node, second, [WAITING; 2], &[logged]));
    assert_eq!(fixture.open_ids(), ["unexplained_slowdown/8812"]);
    let finding = fixture.judge.open_findings()[0];
    let expected = "; cedar/1 (rank 5) comes last to AllReduce as rank 5 of communicator dp (";
    assert!(finding.summary.contains(expected), "{}", finding.summary);
    assert_eq!((finding.severity, finding.evidence_fault()), (Severity::Warning, None));
}
