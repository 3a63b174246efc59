//! Tests of slowdowns that come and go, and of jobs that end meanwhile.

use super::{ID, SlowedJob, USUAL, at_pace, rank_report};

#[test]
fn slowdown_that_went_by_itself_is_told_again_only_if_it_lasts_longer() {
    let mut job = SlowedJob::at_baseline();
    let mut told = |slow_s: i64| {
        let mut was_open = false;
        for second in 0..slow_s + 300 {
            job.run(1, if second < slow_s { at_pace(0.6) } else { USUAL });
            was_open |= job.open_ids().contains(&ID);
        }
        assert!(!job.open_ids().contains(&ID), "it is over");
        was_open
    };
    assert!(told(90), "the first time");
    assert!(!told(90), "the same again");
    assert!(told(500), "a longer one");
}

#[test]
fn slowdown_of_a_job_that_ended_while_it_came_and_went_is_closed() {
    let mut job = SlowedJob::at_baseline();
    // Each spell is longer than the one before, so that each is told.
    for slow_s in [90, 260, 500] {
        job.run(slow_s, at_pace(0.6));
        assert!(job.open_ids().contains(&ID), "{slow_s}");
        job.run(90, USUAL);
    }
    let sent = job.sent;
    job.fixture.run(150, |_, index| {
        let mut page = rank_report(index, USUAL, sent, 0.0);
        page.infos.clear();
        page
    });
    assert!(!job.open_ids().contains(&ID), "{:?}", job.open_ids());
}
