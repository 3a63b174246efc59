//! Tests of scrape periods at which an average contains several steps of a job.

use gaunt_schema::{FindingKind, Severity};
use gaunt_sim::Scenario;

use super::EngineTestRun;

/// A host takes nineteen twentieths of its job's speed: what is left is less than a checkpoint may send.
#[test]
fn job_that_nearly_stands_still_is_told_at_each_scrape_period() {
    for period in [5, 10, 30] {
        let begins = 45 * period;
        let mut scenario = Scenario::from_name("data_starved").unwrap();
        scenario.faults.iter_mut().for_each(|fault| fault.onset_s += begins as f64);
        let mut run = EngineTestRun::of_scenario(period, scenario, 8, 1);
        while run.second < (begins + 330) as i64 {
            run.step_period();
            assert!(run.second > begins as i64 || run.open_findings().is_empty(), "{period} s");
        }
        let found: Vec<_> = run.open_findings().iter().map(|it| (it.kind, it.severity)).collect();
        assert_eq!(found, [(FindingKind::DataStarved, Severity::Critical)], "{period} s");
    }
}
