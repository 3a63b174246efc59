//! Tests of hung jobs whose lagging rank NCCL's RAS names.

use gaunt_schema::{
    Device, Dialect, Entity, Finding, FindingEvent, Report, Severity,
    catalogue::{gpu, gpu_parts, host, nccl_ras},
};

use super::telemetry_tests::{TargetFixture, evidence_of, node_report, push_reading};

/// Two nodes; RAS names them by address.
const NODES: [(&str, &str); 2] = [("ash", "10.1.0.1"), ("birch", "10.1.0.2")];

/// When the job hangs.
const HANGS_FROM: i64 = 120;

/// A rank as a node's page shows it.
#[derive(Clone, Copy)]
struct RankShown {
    host: &'static str,
    pid: &'static str,
    gpu: &'static str,
    reason: &'static str,
    counts: Option<[f64; 2]>,
}

const BEHIND: RankShown = RankShown {
    host: "10.1.0.2",
    pid: "1003",
    gpu: "1",
    reason: "behind",
    counts: Some([41.0, 42.0]),
};

/// The GPU of a rank as the culprit of the hang of its job.
fn culprit_gpu(node: &str, gpu: &str) -> Entity {
    Entity { job: Some("8812".into()), ..Entity::new_gpu(&node.into(), &gpu.into()) }
}

/// A node of two GPUs of one job, which busy-waits from `HANGS_FROM` on. RAS answers on both; `compared` is when the first
/// node compared two states.
fn job_page(second: i64, node: usize, compared: Option<i64>, ranks: &[RankShown]) -> Report {
    let (name, address) = NODES[node];
    let mut page = node_report(name);
    let own = page.ensure_device(Device::new_node());
    page.add_info(
        own,
        nccl_ras::INFO,
        &[("service", ""), ("addresses", &format!("fd00::9 {address}"))],
    );
    push_reading(&mut page, Device::new_node(), host::CPU_BUSIEST, 0.3);
    push_reading(&mut page, Device::new_node(), nccl_ras::CONNECTED, 1.0);
    let tensor = if second >= HANGS_FROM { 0.0 } else { 0.4 };
    for index in 0..2 {
        let device = page.ensure_device(Device::new_gpu(index));
        page.add_info(device, gpu::JOB_INFO, &[("job", "8812")]);
        for (metric, value) in
            [(gpu::UTILIZATION, 1.0), (gpu::TENSOR_ACTIVE, tensor), (gpu::SM_ACTIVE, tensor)]
        {
            push_reading(&mut page, Device::new_gpu(index), metric, value);
        }
    }
    let process =
        Device::new_gpu_part(gaunt_schema::DeviceClass::Process, 1, 1_001 + 2 * node as u32);
    push_reading(&mut page, process, gpu_parts::PROCESS_MEMORY, 1e9);
    if node == 0
        && let Some(compared) = compared
    {
        push_reading(&mut page, Device::new_node(), nccl_ras::COMPARED_TIME, compared as f64);
        for (rank, shown) in ranks.iter().enumerate() {
            add_rank(&mut page, rank as u32, shown);
        }
    }
    page
}

fn add_rank(page: &mut Report, rank: u32, shown: &RankShown) {
    let rank = Device::new_rank(&"0xab".into(), rank);
    let device = page.ensure_device(rank.clone());
    let labels = [
        ("host", shown.host),
        ("pid", shown.pid),
        ("gpu", shown.gpu),
        ("reason", shown.reason),
        ("operation", if shown.counts.is_some() { "AllReduce" } else { "" }),
    ];
    page.add_info(device, nccl_ras::RANK_INFO, &labels);
    if let Some([own, most]) = shown.counts {
        push_reading(page, rank.clone(), nccl_ras::LAUNCHED, own);
        push_reading(page, rank.clone(), nccl_ras::EXPECTED, most);
    }
    push_reading(page, rank, nccl_ras::WAITING, 3.0);
}

fn start_fixture() -> TargetFixture {
    TargetFixture::new(&NODES.map(|(node, _)| (node, Dialect::Gaunt)))
}

/// The only open finding, about a hung job for which RAS states these ranks.
fn hang_finding(ranks: &[RankShown]) -> Finding {
    let mut fixture = start_fixture();
    fixture.run(HANGS_FROM + 100, |second, node| {
        let compared = (second >= HANGS_FROM + 20).then_some(second);
        job_page(second, node, compared, ranks)
    });
    let findings = fixture.judge.open_findings();
    let [finding] = findings.as_slice() else { panic!("{findings:?}") };
    (*finding).clone()
}

#[test]
fn hung_job_names_the_rank_that_is_behind_with_its_gpu() {
    let finding = hang_finding(&[BEHIND]);
    assert_eq!(
        (finding.id.as_str(), finding.severity),
        ("collective_hang/8812", Severity::Critical)
    );
    assert_eq!(finding.entity, culprit_gpu("birch", "1"));
    let expected = "; rank 0 of communicator 0xab on birch · GPU 1 launched 41 of 42 AllReduce, 3 ranks waiting.";
    assert!(finding.summary.ends_with(expected), "{}", finding.summary);
    assert!(finding.next.starts_with("Inspect process 1003 of birch · GPU 1"), "{}", finding.next);
    let item = evidence_of(&finding, "operations launched by the lagging rank").unwrap();
    assert_eq!((item.value, item.limit), (Some(41.0), Some(42.0)));
    let note = "AllReduce, rank 0 of communicator 0xab: birch · GPU 1, host 10.1.0.2, process 1003; 3 ranks waiting; limit: the rank that is furthest";
    assert_eq!(item.note, note);
    assert_eq!(finding.evidence_fault(), None);
    // Without RAS, the same hang names nobody, and is less certain.
    let without = hang_finding(&[]);
    assert!(
        without.confidence < finding.confidence,
        "{} {}",
        without.confidence,
        finding.confidence
    );
    assert!(!without.summary.contains("communicator"), "{}", without.summary);
    assert_eq!(without.entity.to_string(), "job 8812");
}

/// Ranks that are equally certain blame what they have in common.
#[test]
fn several_lagging_ranks_blame_their_gpu_their_node_or_the_job() {
    let entity = |ranks: &[RankShown]| hang_finding(ranks).entity;
    assert_eq!(entity(&[BEHIND, BEHIND]), culprit_gpu("birch", "1"));
    let other_gpu = RankShown { gpu: "0", ..BEHIND };
    let node = Entity { job: Some("8812".into()), ..Entity::new_node(&"birch".into()) };
    assert_eq!(entity(&[BEHIND, other_gpu]), node);
    let other_node = RankShown { host: "10.1.0.1", ..BEHIND };
    assert_eq!(entity(&[BEHIND, other_node]).to_string(), "job 8812");
    let unknown = RankShown { host: "192.168.9.9", pid: "7", ..BEHIND };
    assert_eq!(entity(&[BEHIND, unknown]).to_string(), "job 8812");
    let dead = RankShown { host: "10.1.0.1", reason: "dead", counts: None, ..BEHIND };
    assert_eq!(
        entity(&[BEHIND, dead]),
        culprit_gpu("ash", "1"),
        "the others wait for the dead one"
    );
}

/// The finding opens about the job, and keeps its id and acknowledgement when RAS answers.
#[test]
fn blame_moves_to_the_gpu_when_ras_answers_after_the_finding_opened() {
    let mut fixture = start_fixture();
    fixture.run(HANGS_FROM + 100, |second, node| job_page(second, node, None, &[]));
    assert_eq!(fixture.judge.open_findings()[0].entity.to_string(), "job 8812");
    fixture.run(5, |second, node| job_page(second, node, Some(second), &[BEHIND]));
    let findings = fixture.judge.open_findings();
    let [finding] = findings.as_slice() else { panic!("{findings:?}") };
    assert_eq!(finding.id, "collective_hang/8812");
    assert_eq!(finding.entity, culprit_gpu("birch", "1"));
    let mut changes = finding.life.changes.iter();
    let blame = changes.find(|change| change.what == FindingEvent::Blame).unwrap();
    assert_eq!((blame.from.as_str(), blame.to.as_str()), ("job 8812", "job 8812 · birch · GPU 1"));
}

#[test]
fn dead_rank_comes_before_one_that_is_behind() {
    let dead = RankShown { host: "10.1.0.1", pid: "1001", reason: "dead", counts: None, ..BEHIND };
    let finding = hang_finding(&[BEHIND, dead]);
    let expected =
        "; rank 1 of communicator 0xab on ash · GPU 1 is dead, 3 ranks waiting, and 1 more lag.";
    assert!(finding.summary.ends_with(expected), "{}", finding.summary);
    let item = evidence_of(&finding, "ranks that NCCL RAS does not reach").unwrap();
    assert_eq!(item.value, Some(1.0));
}

#[test]
fn rank_without_a_known_address_is_found_by_its_process() {
    let summary = |host, pid| hang_finding(&[RankShown { host, pid, ..BEHIND }]).summary;
    assert!(summary("192.168.9.9", "1003").contains("on birch · GPU 1 launched"));
    let unknown = summary("192.168.9.9", "7");
    assert!(unknown.contains("on GPU 1 of 192.168.9.9 launched"), "{unknown}");
}

#[test]
fn one_node_is_asked_while_a_job_seems_to_hang_and_again_after_a_minute() {
    let mut fixture = start_fixture();
    let asked = |fixture: &TargetFixture| -> Vec<String> {
        let nodes = fixture.judge.nodes_to_ask().iter();
        nodes.map(|id| fixture.cluster.node_by_id(*id).unwrap().name.to_string()).collect()
    };
    fixture.run(HANGS_FROM - 1, |second, node| job_page(second, node, None, &[]));
    assert_eq!(asked(&fixture), [""; 0]);
    fixture.run(30, |second, node| job_page(second, node, None, &[]));
    assert_eq!(fixture.open_ids(), [""; 0], "it is asked before the finding opens");
    assert_eq!(asked(&fixture), ["ash"]);
    let compared = HANGS_FROM + 30;
    let page = |second, node| job_page(second, node, Some(compared), &[BEHIND]);
    fixture.run(50, page);
    assert_eq!(asked(&fixture), [""; 0]);
    fixture.run(20, page);
    assert_eq!(fixture.open_ids(), ["collective_hang/8812"]);
    assert_eq!(asked(&fixture), ["ash"]);
    // Nobody is asked where RAS does not answer.
    fixture.run(30, |second, node| {
        let mut page = job_page(second, node, None, &[]);
        page.samples.retain(|sample| sample.metric != nccl_ras::CONNECTED);
        page
    });
    assert_eq!(asked(&fixture), [""; 0]);
}
