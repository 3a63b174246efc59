//! Tests of programs that fail with an XID: their job stops with them, or goes on.

use super::*;

const FAILED: &[(usize, u32, u32)] = &[(1, 2, 31)];

/// The GPUs that are told to have failed once XIDs were reported and the job did this for so long.
fn told(xids: &'static [(usize, u32, u32)], seconds: i64, does: Shown) -> (Job, Vec<String>) {
    let mut job = Job::at_work();
    job.run(5, Shown { xids, ..WORKS }).run(seconds, Shown { xids, ..does });
    let open = job.fixture.judge.open_findings();
    let failed = open.iter().filter(|finding| finding.id.starts_with("gpu_failed"));
    let ids = failed.map(|finding| finding.id.clone()).collect();
    (job, ids)
}

#[test]
fn gpu_on_which_a_program_failed_is_told_once_its_job_stops() {
    for stopped in [GONE, LOADS] {
        let (mut job, failed) = told(FAILED, 40, stopped);
        assert_eq!(failed, ["gpu_failed/birch/2"]);
        let found = job.finding("gpu_failed/birch/2").unwrap();
        assert_eq!(found.severity, Severity::Warning, "usually an error of the application");
        assert!(
            found.summary.starts_with("A program on birch · GPU 2 failed with XID 31"),
            "{found:?}"
        );
        job.run(120, Shown { xids: FAILED, ..WORKS });
        assert!(job.finding("gpu_failed/birch/2").is_none(), "its job was started again");
    }
}

#[test]
fn program_that_fails_while_its_job_goes_on_or_stops_later_is_told_of_no_gpu() {
    assert!(told(FAILED, 300, WORKS).1.is_empty());
    let (mut job, _) = told(FAILED, 130, WORKS);
    job.run(60, Shown { xids: FAILED, ..GONE });
    assert!(job.finding("gpu_failed/birch/2").is_none());
}

#[test]
fn of_a_job_of_which_most_programs_fail_no_gpu_is_told_and_of_two_the_first() {
    const MOST: &[(usize, u32, u32)] =
        &[(0, 0, 13), (0, 1, 13), (0, 2, 13), (1, 1, 13), (1, 3, 13)];
    assert!(told(MOST, 40, GONE).1.is_empty());
    let mut job = Job::at_work();
    job.run(5, Shown { xids: FAILED, ..WORKS });
    job.run(40, Shown { xids: &[(1, 2, 31), (0, 0, 43)], ..GONE });
    assert!(job.finding("gpu_failed/birch/2").is_some());
    assert!(job.finding("gpu_failed/ash/0").is_none(), "it was cleaned up after the first one");
}
