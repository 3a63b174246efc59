//! Tests of jobs whose hosts wait for IO all the time, and whose GPUs are busy with it.

use super::{RankShown, SlowedJob, USUAL, at_pace};

const STANDING: f64 = 0.6;

fn job_that_reads_all_the_time() -> SlowedJob {
    let mut job = SlowedJob::on_nodes(&["ash:9770", "birch:9770", "cedar:9770", "elm:9770"]);
    job.run(240, RankShown { io: STANDING, ..USUAL });
    job
}

fn storage_is_told(job: &SlowedJob) -> bool {
    job.open_ids().iter().any(|id| id.starts_with("storage_slow"))
}

#[test]
fn io_pressure_with_which_gpus_are_busy_is_not_what_a_slower_job_waits_for() {
    let mut job = job_that_reads_all_the_time();
    for second in 0..120 {
        job.run(1, RankShown { utilization: 0.7, io: STANDING, ..at_pace(0.7) });
        assert!(!storage_is_told(&job), "second {second} of an evaluation");
    }
    job.run(60, RankShown { utilization: 0.7, io: 0.75, ..at_pace(0.7) });
    assert!(!storage_is_told(&job), "a quarter more than usual is little");
    job.run(90, RankShown { utilization: 0.7, io: 0.95, ..at_pace(0.7) });
    assert!(storage_is_told(&job), "little of the time is left in which nobody waits");
}

#[test]
fn io_pressure_that_came_with_the_slowdown_is() {
    let mut job = SlowedJob::on_nodes(&["ash:9770", "birch:9770", "cedar:9770", "elm:9770"]);
    job.run(240, RankShown { io: 0.05, ..USUAL });
    job.run(120, RankShown { utilization: 0.7, io: STANDING, ..at_pace(0.7) });
    assert!(storage_is_told(&job));
}

#[test]
fn pause_in_which_hosts_read_nothing_does_not_lower_what_is_usual() {
    let mut job = job_that_reads_all_the_time();
    job.run(60, RankShown { utilization: 0.0, ..at_pace(0.0) });
    for second in 0..300 {
        job.run(1, RankShown { io: STANDING, ..at_pace(0.9) });
        assert!(!storage_is_told(&job), "second {second} after the pause");
    }
}
