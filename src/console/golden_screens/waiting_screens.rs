//! Screens of nodes, GPUs and jobs that wait for something else: they name the finding about it.

use super::*;
use crate::screen::JobScreen;
use gaunt_api::Finding;
use gaunt_schema::{Entity, GpuState, Severity};

/// A finding about another node, which gpu003 waits for.
fn finding_elsewhere() -> Finding {
    Finding {
        victims: vec![Entity::new_node(&"gpu003".into())],
        summary: "gpu019 is data-starved".into(),
        ..Finding::new(
            FindingKind::DataStarved,
            Severity::Critical,
            Entity::new_node(&"gpu019".into()),
        )
    }
}

fn console_showing(screen: impl Into<Screen>) -> GoldenConsole {
    let mut console = GoldenConsole::with_overview(sample_answers::two_faults_overview(32));
    console.state.screen = screen.into();
    console
}

#[test]
fn node_and_gpu_that_wait_name_the_finding_elsewhere() {
    let mut detail = sample_answers::node_detail("gpu003");
    detail.findings = vec![finding_elsewhere()];
    detail.devices.iter_mut().for_each(|device| device.state = Some(GpuState::Waiting));
    let mut console = console_showing(NodeScreen("gpu003".into()));
    console.deliver_answer(Answer::Node(Arc::new(detail)));
    for screen in ["node", "GPU"] {
        let drawn = console.draw(80, 24).join("\n");
        assert!(drawn.contains(" ← data_starved  gpu019  since"), "{screen}: {drawn}");
        assert!(drawn.contains("   gpu019 is data-starved"), "{screen}: {drawn}");
        console.press_keys(&[KeyPress::Enter]);
    }
}

#[test]
fn nodes_of_a_job_name_the_finding_that_they_wait_for_below_the_blamed_ones() {
    let mut job = sample_answers::job_detail();
    job.findings = vec![finding_elsewhere()];
    job.past.strips.clear();
    job.gpus = sample_answers::build_table(
        Subject::Gpus,
        vec![
            ("node", sample_answers::text_cells(&["gpu003", "gpu019"])),
            ("finding", sample_answers::text_cells(&["data_starved", "data_starved"])),
        ],
    );
    let mut console = console_showing(JobScreen("8812".into()));
    console.deliver_answer(Answer::Job(Arc::new(job)));
    let drawn = console.draw(80, 24);
    let row = |name: &str| drawn.iter().position(|line| line.starts_with(&format!(" {name} ")));
    let (blamed, waits) = (row("gpu019").unwrap(), row("gpu003").unwrap());
    assert!(drawn[blamed].contains("  data_starved"), "{}", drawn[blamed]);
    assert!(drawn[waits].contains("← data_starved"), "{}", drawn[waits]);
    assert!(blamed < waits, "{drawn:#?}");
}
