//! Changes of the fleet, and contexts of findings: owners, cost, and what changed near their start.

use gaunt_api::{FindingContext, FleetChange, FleetChangeKind, VictimJob};
use gaunt_schema::{
    Device, JobAllocation, JobList, RejectionCounts, Report, SchedulerJob,
    catalogue::{gpu, host},
};

use super::*;

impl EngineTestRun {
    /// Steps some periods; `edit` changes each node's report.
    fn step_edited(&mut self, periods: u32, edit: impl Fn(usize, &mut Report)) {
        for _ in 0..periods {
            self.step_with(|fleet, node| {
                let (mut report, rejected) = (fleet.node_report(node), RejectionCounts::default());
                edit(node, &mut report);
                Ok(ScrapedPage { report, dialect: Dialect::Gaunt, bytes: 0, rejected })
            });
        }
    }

    fn changes(&mut self) -> Vec<FleetChange> {
        self.fetch_overview().changes.clone()
    }
}

fn scheduler_jobs(jobs: &[&str], started: Option<UnixMs>) -> Delivery {
    let jobs = jobs.iter().map(|id| SchedulerJob {
        id: SanitizedText::new(id),
        name: Some("llama-pt".into()),
        user: Some("alice".into()),
        started,
        holds: vec![JobAllocation { node: "gpu002".into(), gpus: None, whole: true }],
        ..SchedulerJob::default()
    });
    Delivery::Jobs(JobList { source: "squeue".into(), jobs: jobs.collect() })
}

#[test]
fn driver_and_reboot_of_many_nodes_are_one_change_each() {
    let mut run = EngineTestRun::new("healthy", 4, 3);
    run.step_period();
    run.step_edited(40, |_, _| {});
    assert_eq!(run.changes(), [], "what was there at first is no change");
    run.step_edited(12, |node, report| {
        if node < 3 {
            let device = report.ensure_device(Device::new_gpu(0));
            report.add_info(device, gpu::INFO, &[("driver", "590.10")]);
        }
        if node == 3 {
            let device = report.ensure_device(Device::new_node());
            report.push(device, host::CPU_BUSY, 1.5);
        }
    });
    let changes = run.changes();
    let kinds: Vec<_> = changes.iter().map(|change| (change.kind, change.node_count)).collect();
    assert!(kinds.contains(&(FleetChangeKind::DriverChanged, 3)), "{changes:?}");
    assert!(kinds.contains(&(FleetChangeKind::Rebooted, 1)), "{changes:?}");
    assert_eq!(changes.len(), 2, "each is reported once: {changes:?}");
    let driver = changes.iter().find(|c| c.kind == FleetChangeKind::DriverChanged).unwrap();
    assert!(driver.what.ends_with(" → 590.10"), "{driver:?}");
    run.step_edited(10, |_, report| report_without_driver(report));
    assert_eq!(run.changes().len(), 2, "an absent driver is not a change");
}

fn report_without_driver(report: &mut Report) {
    *report = Report::default();
    report.ensure_device(Device::new_node());
}

#[test]
fn job_starts_when_its_scheduler_says_or_when_it_appears() {
    let mut run = EngineTestRun::new("healthy", 3, 3);
    run.step_edited(40, |_, _| {});
    let before = run.changes();
    assert!(before.is_empty(), "jobs of the first pages did not start: {before:?}");
    let started = START + Duration::from_secs(38);
    run.step_edited(6, |node, report| {
        if node == 0 {
            let device = report.ensure_device(Device::new_gpu(0));
            report.add_info(device, gpu::JOB_INFO, &[("job", "9001"), ("user", "carol")]);
        }
    });
    let appeared: Vec<_> =
        run.changes().into_iter().filter(|c| c.job == Some("9001".into())).collect();
    assert_eq!(appeared.len(), 1, "{appeared:?}");
    assert_eq!(appeared[0].kind, FleetChangeKind::JobStarted);
    run.engine.ingest_delivery(scheduler_jobs(&["9002"], Some(started)));
    run.step_edited(6, |_, _| {});
    let changes = run.changes();
    let ended = changes.iter().find(|change| change.kind == FleetChangeKind::JobEnded);
    assert_eq!(ended.and_then(|change| change.job.clone()), Some("9001".into()));
    if let Some(stated) = changes.iter().find(|change| change.job == Some("9002".into())) {
        assert_eq!(stated.at, started);
    } else {
        assert!(run.engine.cluster.gpus_by_job().get("9002").is_none(), "{changes:?}");
    }
}

#[test]
fn finding_has_owner_cost_and_the_change_near_its_start() {
    let mut run = EngineTestRun::new("demo", 32, 7);
    run.step_edited(90, |_, _| {});
    let list = run.engine.findings.clone();
    assert_eq!(list.contexts.len(), list.findings.len());
    for (finding, context) in list.findings.iter().zip(&list.contexts) {
        let FindingContext { id, jobs, job_count, cost_per_hour, .. } = context;
        assert_eq!(*id, finding.id);
        assert_eq!((jobs.len(), *job_count), (1, 1), "{context:?}");
        let VictimJob { user, gpus, .. } = &jobs[0];
        assert!(user.is_some() && *gpus >= 8, "{context:?}");
        assert_eq!(*cost_per_hour, Some(finding.lost_gpus * 2.0));
    }
    let id = list.findings[0].id.clone();
    let Answer::Finding(explained) = run.engine.answer_question(&Question::Finding(id)) else {
        panic!("no explanation")
    };
    assert_eq!(explained.context.as_ref(), list.contexts.first());
    assert_eq!(run.fetch_overview().contexts.len(), list.contexts.len());
}

#[test]
fn deploy_is_a_change_of_the_pod_template_and_a_restarted_pod_is_none() {
    let mut run = EngineTestRun::new("healthy", 4, 3);
    let mut step = |pods: [&str; 2], periods| {
        run.step_edited(periods, |node, report| {
            if let Some(pod) = pods.get(node).filter(|pod| !pod.is_empty()) {
                let device = report.ensure_device(Device::new_gpu(0));
                report.add_info(device, gpu::JOB_INFO, &[("job", "ml/vllm"), ("pod", pod)]);
            }
        });
        let is_deploy = |change: &FleetChange| {
            change.kind == FleetChangeKind::JobStarted && !change.what.is_empty()
        };
        let changes = run.changes().into_iter().filter(is_deploy);
        changes.map(|change| change.describe()).collect::<Vec<_>>()
    };
    let [first, second] = ["vllm-7d4b9c8f5-x2k7q", "vllm-7d4b9c8f5-bcdfg"];
    assert_eq!(step([first, second], 50), [""; 0], "what was there at first is no deploy");
    assert_eq!(step(["vllm-7d4b9c8f5-zzzzz", second], 6), [""; 0], "a pod was restarted");
    let deployed = "job ml/vllm deployed on 1 node: pod template 7d4b9c8f5 → 5f6c9d7b4";
    assert_eq!(step(["vllm-5f6c9d7b4-q2w4z", second], 6), [deployed]);
    let rest = ["vllm-5f6c9d7b4-q2w4z", "vllm-5f6c9d7b4-vwxz2"];
    assert_eq!(step(rest, 6), [deployed], "the rest of the rollout is the same deploy");
    assert_eq!(step([rest[0], second], 6), [deployed], "a page that was late is no deploy");
    assert_eq!(step(rest, 130), [deployed]);
    let back = "job ml/vllm deployed on 1 node: pod template 5f6c9d7b4 → 7d4b9c8f5";
    assert_eq!(step([rest[0], first], 6), [deployed, back], "a rollback is a deploy");
}
