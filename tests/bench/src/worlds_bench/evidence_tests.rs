//! Shown evidence passes its shown limit: after every tick of worlds of several families, the numbers of each open
//! warning prove it.

use std::cell::{Cell, RefCell};

use gaunt::command::judge_command::VirtualRun;
use gaunt_api::{Answer, Question};
use gaunt_schema::Severity;
use gaunt_worlds::draw::{WorldCase, draw_world};

use super::played_world::{WorldChange, run_world};

/// Most faults that are listed.
const LISTED: usize = 20;

/// The world as it is, with what was wrong with the evidence of its warnings.
#[derive(Default)]
struct CheckedEvidence {
    warnings: Cell<usize>,
    faults: RefCell<Vec<String>>,
}

impl WorldChange for CheckedEvidence {
    fn observe_tick(&self, run: &mut VirtualRun) {
        let Answer::Findings(list) = run.answer_question(&Question::Findings) else {
            panic!("no list")
        };
        for finding in list.findings.iter().filter(|it| it.severity > Severity::Info) {
            self.warnings.update(|warnings| warnings + 1);
            self.faults.borrow_mut().extend(finding.evidence_fault());
        }
    }
}

#[track_caller]
fn check_evidence(worlds: &[(&str, u64)]) {
    for &(family, seed) in worlds {
        let case = WorldCase::Fault { kind: None, loss: None, course: None, second: false };
        let world = draw_world(family, seed, case).unwrap();
        let checked = CheckedEvidence::default();
        run_world(&world, seed, &checked).unwrap();
        let faults = checked.faults.take();
        let listed = faults.iter().take(LISTED).map(String::as_str).collect::<Vec<_>>().join("\n");
        assert!(faults.is_empty(), "{family} {seed}, {} times:\n{listed}", faults.len());
        assert!(checked.warnings.get() > 0, "{family} {seed} has no warning");
    }
}

#[test]
fn evidence_of_quiet_networks_passes_its_limits() {
    check_evidence(&[
        ("ib_tree", 20_005),
        ("roce_quiet", 10_001),
        ("roce_loud", 20_001),
        ("other_ports", 30_005),
        ("device_names", 60_002),
        ("slow_cadence", 50_006),
        ("fast_cadence", 210_006),
        ("gaunt_node", 290_005),
    ]);
}

#[test]
fn evidence_of_noisy_hosts_and_mixed_jobs_passes_its_limits() {
    check_evidence(&[
        ("minimal_metrics", 220_002),
        ("bare_hosts", 230_007),
        ("host_noise", 240_005),
        ("gpu_mix", 250_006),
        ("deep_jobs", 260_006),
        ("input_bound", 270_008),
        ("serving_mix", 280_007),
    ]);
}
