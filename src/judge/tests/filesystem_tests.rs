//! Tests of full file systems: information by themselves, and the cause where a job stops as one becomes full.

use gaunt_schema::{
    Device, Dialect, Finding, FindingKind, Report, Severity,
    catalogue::{gpu, hardware, host},
};

use super::telemetry_tests::{TargetFixture, evidence_of, node_report, push_reading};

/// A file system as a page shows it.
#[derive(Clone, Copy)]
struct ShownMount {
    folder: &'static str,
    kind: &'static str,
    source: &'static str,
    /// Shares of its space and of its inodes that are left.
    free: f64,
    free_inodes: f64,
    read_only: f64,
}

const SCRATCH: ShownMount = ShownMount {
    folder: "/scratch",
    kind: "xfs",
    source: "/dev/nvme1n1",
    free: 0.5,
    free_inodes: 0.5,
    read_only: 0.0,
};

const DATA: ShownMount =
    ShownMount { folder: "/data", kind: "nfs4", source: "10.0.0.5:/data", ..SCRATCH };

/// A node with a job on four GPUs that work for this share of their time, and keep their memory.
fn page(node: usize, second: i64, busy: f64, mounts: &[ShownMount]) -> Report {
    let mut page = node_report(["gpu001", "gpu002"][node]);
    push_reading(&mut page, Device::new_node(), host::IO_PRESSURE, 1e6);
    for index in 0..4 {
        let device = page.ensure_device(Device::new_gpu(index));
        page.add_info(device, gpu::JOB_INFO, &[("job", ["8812", "8813"][node])]);
        // Work varies a little, as measured.
        let wobble = (second * 7 % 5) as f64 * 0.004;
        for (metric, value) in [
            (gpu::UTILIZATION, busy * (0.97 - wobble)),
            (gpu::SM_ACTIVE, busy * (0.7 - wobble)),
            (gpu::TENSOR_ACTIVE, busy * (0.3 - wobble)),
            (gpu::POWER, 90.0 + busy * (510.0 - wobble * 100.0)),
            (gpu::POWER_LIMIT, 700.0),
            (gpu::MEMORY_USED, 60e9),
            (gpu::MEMORY_TOTAL, 80e9),
        ] {
            push_reading(&mut page, Device::new_gpu(index), metric, value);
        }
    }
    for shown in mounts {
        let mount = page.ensure_device(Device::new_mount(shown.folder));
        let labels = [("kind", shown.kind), ("source", shown.source)];
        page.add_info(mount, hardware::MOUNT_INFO, &labels);
        for (metric, value) in [
            (hardware::MOUNT_SIZE, 1.6e12),
            (hardware::MOUNT_AVAILABLE, 1.6e12 * shown.free),
            (hardware::MOUNT_INODES, 1e9),
            (hardware::MOUNT_FREE_INODES, 1e9 * shown.free_inodes),
            (hardware::MOUNT_READ_ONLY, shown.read_only),
        ] {
            page.push(mount, metric, value);
        }
    }
    page
}

fn two_nodes() -> TargetFixture {
    TargetFixture::new(&[("gpu001:9770", Dialect::Gaunt), ("gpu002:9770", Dialect::Gaunt)])
}

/// The findings about full file systems.
fn full(fixture: &TargetFixture) -> Vec<&Finding> {
    let open = fixture.judge.open_findings().into_iter();
    open.filter(|finding| finding.kind == FindingKind::FilesystemFull).collect()
}

#[test]
fn full_file_system_is_information_while_jobs_go_on() {
    let mut fixture = two_nodes();
    let run = |fixture: &mut TargetFixture, shown: ShownMount| {
        fixture.run(60, move |second, node| page(node, second, 1.0, &[shown][node..]));
        full(fixture).iter().map(|it| (it.entity.to_string(), it.severity)).collect::<Vec<_>>()
    };
    assert_eq!(run(&mut fixture, SCRATCH), []);
    let information = [("gpu001".to_owned(), Severity::Info)];
    assert_eq!(run(&mut fixture, ShownMount { free: 0.0, ..SCRATCH }), information);
    let [finding] = full(&fixture)[..] else { panic!() };
    let space = evidence_of(finding, "free share of the space of /scratch").unwrap();
    assert_eq!((space.value, space.limit), (Some(0.0), Some(0.001)));
    assert_eq!(run(&mut fixture, SCRATCH), []);
    // None left of its inodes; and what nobody can write to is not full.
    assert_eq!(run(&mut fixture, ShownMount { free_inodes: 0.0, ..SCRATCH }), information);
    let image = ShownMount { free: 0.0, read_only: 1.0, ..SCRATCH };
    assert_eq!(run(&mut fixture, image), []);
}

#[test]
fn job_that_stops_as_a_file_system_becomes_full_is_paged_about_its_node() {
    let mut fixture = two_nodes();
    fixture.run(240, |second, node| page(node, second, 1.0, &[SCRATCH]));
    let filled = |node: usize| ShownMount { free: if node == 0 { 0.0 } else { 0.5 }, ..SCRATCH };
    fixture.run(40, |second, node| page(node, second, node as f64, &[filled(node)]));
    let [finding] = full(&fixture)[..] else { panic!("{:?}", fixture.open_ids()) };
    assert_eq!(finding.severity, Severity::Warning, "it may write a checkpoint");
    fixture.run(200, |second, node| page(node, second, node as f64, &[filled(node)]));
    let [finding] = full(&fixture)[..] else { panic!("{:?}", fixture.open_ids()) };
    assert_eq!(
        (finding.entity.to_string().as_str(), finding.severity),
        ("gpu001", Severity::Critical)
    );
    let summary =
        "/scratch on gpu001 is full: nothing more can be written there. Job 8812 stands still.";
    assert_eq!(finding.summary, summary);
    assert!(finding.lost_gpus > 3.5, "{}", finding.lost_gpus);
    assert_eq!(fixture.open_ids(), ["filesystem_full/gpu001"], "nothing else is to blame");
    // Space is freed, and the job goes on.
    fixture.run(240, |second, node| page(node, second, 1.0, &[SCRATCH]));
    assert_eq!(fixture.open_ids(), <[&str; 0]>::default());
}

#[test]
fn file_system_that_was_full_while_a_job_ran_does_not_explain_why_it_stops() {
    let mut fixture = two_nodes();
    let old = ShownMount { free: 0.0, ..SCRATCH };
    fixture.run(420, |second, node| page(node, second, 1.0, &[old][node..]));
    fixture.run(120, |second, node| page(node, second, node as f64, &[old][node..]));
    let severities: Vec<Severity> = full(&fixture).iter().map(|it| it.severity).collect();
    assert_eq!(severities, [Severity::Info]);
}

#[test]
fn job_that_is_slower_since_a_file_system_is_full_is_a_warning_with_that_cause() {
    let mut fixture = two_nodes();
    fixture.run(300, |second, node| page(node, second, 1.0, &[SCRATCH]));
    let filled = |node: usize| ShownMount { free: if node == 0 { 0.0 } else { 0.5 }, ..SCRATCH };
    let busy = |node: usize| if node == 0 { 0.6 } else { 1.0 };
    fixture.run(300, |second, node| page(node, second, busy(node), &[filled(node)]));
    let [finding] = full(&fixture)[..] else { panic!("{:?}", fixture.open_ids()) };
    assert_eq!(finding.severity, Severity::Warning, "{}", finding.summary);
    assert!(finding.summary.ends_with("Job 8812 is slower."), "{}", finding.summary);
    assert_eq!(fixture.open_ids(), ["filesystem_full/gpu001"]);
}

#[test]
fn full_storage_of_several_nodes_is_one_finding() {
    let mut fixture = two_nodes();
    fixture.run(240, |second, node| page(node, second, 1.0, &[DATA]));
    let shown = ShownMount { free: 1e-6, ..DATA };
    fixture.run(240, |second, node| page(node, second, 0.0, &[shown]));
    let [finding] = full(&fixture)[..] else { panic!("{:?}", fixture.open_ids()) };
    assert_eq!(
        (finding.entity.to_string().as_str(), finding.severity),
        ("storage", Severity::Critical)
    );
    assert!(finding.summary.contains("10.0.0.5:/data is full"), "{}", finding.summary);
    assert!(finding.lost_gpus > 7.0, "{}", finding.lost_gpus);
    assert_eq!(fixture.open_ids().len(), 1, "{:?}", fixture.open_ids());
}
