//! Tests of slowdowns that no finding explains: a whole job at a fraction of its speed, with usual hosts and ports.

use gaunt_schema::{
    Device, Dialect, Finding, Report, Severity,
    catalogue::{gpu, host, port},
};

use super::telemetry_tests::{TargetFixture, node_report, push_active_port, push_reading};

mod episode_tests;
mod few_errors_tests;
mod full_port_tests;
mod network_tests;
mod real_gpu_tests;
mod standing_io_tests;

const ID: &str = "unexplained_slowdown/8812";

/// What each node of the job reports in a second.
#[derive(Clone, Copy)]
struct RankShown {
    /// The pace of its GPUs, and of what they send.
    pace: f64,
    traffic: f64,
    utilization: f64,
    clock: f64,
    /// The share of the time in which tasks of the host wait for IO.
    io: f64,
    /// The share of the time in which the memory of its GPUs is busy, where they report that.
    dram: Option<f64>,
}

const USUAL: RankShown =
    RankShown { pace: 1.0, traffic: 1.0, utilization: 0.97, clock: 1.0, io: 0.0, dram: None };

const fn at_pace(pace: f64) -> RankShown {
    RankShown { pace, traffic: pace, ..USUAL }
}

/// Four nodes of a job with two GPUs and a port each; counters are sums of what was reported each second.
struct SlowedJob {
    fixture: TargetFixture,
    second: i64,
    sent: f64,
    waited: f64,
    /// Whether one of two ports of the first node is down, since before the first sample.
    has_dead_port: bool,
    /// Ticks that the port of the second node has waited for credits, where ports count those.
    wait_ticks: Option<f64>,
}

impl SlowedJob {
    /// A job that ran at its usual speed for long enough to have a baseline.
    fn at_baseline() -> Self {
        let mut job = Self::on_nodes(&["ash:9770", "birch:9770", "cedar:9770", "elm:9770"]);
        job.run(120, USUAL);
        job
    }

    fn on_nodes(nodes: &[&str]) -> Self {
        let targets: Vec<(&str, Dialect)> =
            nodes.iter().map(|node| (*node, Dialect::Gaunt)).collect();
        Self {
            fixture: TargetFixture::new(&targets),
            second: 0,
            sent: 0.0,
            waited: 0.0,
            has_dead_port: false,
            wait_ticks: None,
        }
    }

    /// Runs with a pace that is up to `swing` below or above the given one, another one each time.
    fn run_unsteady(&mut self, seconds: i64, pace: f64, swing: f64) -> &mut Self {
        for _ in 0..seconds {
            self.second += 1;
            let wave = (self.second as f64 / 7.0).sin();
            self.run(1, at_pace((pace + swing * wave).max(0.05)));
        }
        self
    }

    fn run(&mut self, seconds: i64, shown: RankShown) -> &mut Self {
        for _ in 0..seconds {
            self.sent += 10e9 * shown.traffic;
            self.waited += shown.io;
            let (sent, waited, has_dead_port) = (self.sent, self.waited, self.has_dead_port);
            let ticks = self.wait_ticks;
            self.fixture.run(1, |_, index| {
                let mut page = rank_report(index, shown, sent, waited);
                if let Some(ticks) = ticks {
                    let ticks = if index == 1 { ticks } else { 0.0 };
                    let device = Device::new_port("mlx5_0", "1");
                    push_reading(&mut page, device, port::TRANSMIT_WAIT, ticks);
                }
                if has_dead_port {
                    add_second_port(&mut page, index > 0);
                }
                page
            });
        }
        self
    }

    /// Runs at its usual speed with one node that works more than the others, another one every two minutes.
    fn run_in_turns(&mut self, seconds: i64) -> &mut Self {
        for _ in 0..seconds {
            self.second += 1;
            self.sent += 10e9;
            let (sent, turn) = (self.sent, (self.second / 120 % 4) as usize);
            self.fixture.run(1, |_, index| {
                let pace = if index == turn { 1.0 } else { 0.7 };
                rank_report(index, at_pace(pace), sent, 0.0)
            });
        }
        self
    }

    fn open_ids(&self) -> Vec<&str> {
        self.fixture.open_ids()
    }

    fn finding(&self) -> &Finding {
        self.fixture.judge.open_findings().into_iter().find(|it| it.id == ID).unwrap()
    }
}

fn rank_report(index: usize, shown: RankShown, sent: f64, waited: f64) -> Report {
    let mut page = node_report(["ash", "birch", "cedar", "elm"][index]);
    for number in 0..2 {
        let gpu_device = Device::new_gpu(number);
        let device = page.ensure_device(gpu_device.clone());
        page.add_info(device, gpu::JOB_INFO, &[("job", "8812")]);
        let mut say =
            |metric, value: f64| push_reading(&mut page, gpu_device.clone(), metric, value);
        say(gpu::UTILIZATION, shown.utilization);
        say(gpu::TENSOR_ACTIVE, 0.4 * shown.pace);
        if let Some(dram) = shown.dram {
            say(gpu::DRAM_ACTIVE, dram);
        }
        say(gpu::SM_CLOCK, 1.98e9 * shown.clock);
        say(gpu::PROCESSES, 1.0);
    }
    push_active_port(&mut page, sent);
    push_reading(&mut page, Device::new_node(), host::IO_PRESSURE, 1e3 + waited);
    page
}

fn add_second_port(page: &mut Report, is_up: bool) {
    let device = Device::new_port("mlx5_1", "1");
    let (state, physical) = if is_up { (4.0, 5.0) } else { (1.0, 2.0) };
    push_reading(page, device.clone(), port::STATE, state);
    push_reading(page, device, port::PHYSICAL_STATE, physical);
}

#[test]
fn job_beside_a_port_that_is_down_for_ever_is_judged_like_others() {
    let mut job = SlowedJob::on_nodes(&["ash:9770", "birch:9770", "cedar:9770", "elm:9770"]);
    job.has_dead_port = true;
    job.run(180, USUAL);
    let dead = "port_down/ash/mlx5_1/1";
    assert_eq!(job.open_ids(), [dead]);
    job.run(100, at_pace(0.6));
    assert!(job.open_ids().contains(&ID), "{:?}", job.open_ids());
    // The job went on for minutes after the port was found: it did not stop because of that.
    job.run(200, USUAL).run(150, RankShown { utilization: 1.0, ..at_pace(0.0) });
    assert!(job.open_ids().contains(&"collective_hang/8812"), "{:?}", job.open_ids());
    job.run(120, USUAL);
    assert_eq!(job.open_ids(), [dead]);
}

#[test]
fn slowdown_of_all_ranks_with_usual_hosts_and_ports_is_unexplained() {
    let mut job = SlowedJob::at_baseline();
    assert_eq!(job.run(20, at_pace(0.6)).open_ids(), [""; 0], "a cause has time to show");
    assert_eq!(job.run(80, at_pace(0.6)).open_ids(), [ID]);
    let finding = job.finding();
    assert_eq!(finding.severity, Severity::Warning);
    assert!((finding.lost_gpus - 3.2).abs() < 0.1, "{}", finding.lost_gpus);
    assert!(
        finding.summary.starts_with("Job 8812 has lost 40 % of its speed (3.2 GPUs) since 00:02:"),
        "{}",
        finding.summary
    );
    assert!(
        finding.summary.ends_with("; usual: SM clocks, storage (IO pressure); all ranks alike."),
        "{}",
        finding.summary
    );
    assert!(finding.next.contains("NFS statistics"), "{}", finding.next);
    assert!(finding.missing.iter().any(|it| it.starts_with("no clock-event")), "{finding:?}");
    assert!(
        finding.evidence.iter().all(|number| number.passes_limit() == Some(true)),
        "{:#?}",
        finding.evidence
    );
    job.run(120, USUAL);
    assert_eq!(job.open_ids(), [""; 0]);
}

#[test]
fn what_is_unusual_on_one_node_is_said_with_its_name() {
    let mut job = SlowedJob::on_nodes(&["ash:9770", "birch:9770", "cedar:9770", "elm:9770"]);
    job.wait_ticks = Some(0.0);
    job.run(120, USUAL);
    for _ in 0..120 {
        job.wait_ticks = job.wait_ticks.map(|ticks| ticks + 1e9);
        job.run(1, at_pace(0.6));
    }
    assert_eq!(job.open_ids(), [ID]);
    let summary = &job.finding().summary;
    assert!(summary.contains("; unusual: transmit wait on birch; "), "{summary}");
}

#[test]
fn steady_job_on_one_node_is_told_as_well_and_one_that_follows_its_demand_is_not() {
    let mut job = SlowedJob::on_nodes(&["ash:9770"]);
    job.run(150, USUAL);
    assert_eq!(job.run(90, at_pace(0.5)).open_ids(), [ID]);
    let mut server = SlowedJob::on_nodes(&["ash:9770"]);
    server.run_unsteady(300, 0.7, 0.3);
    assert_eq!(server.run_unsteady(200, 0.4, 0.3).open_ids(), [""; 0]);
}

#[test]
fn nodes_of_a_job_that_send_each_other_nothing_follow_their_demand() {
    let run = |sent: f64| {
        let mut job = SlowedJob::on_nodes(&["ash:9770", "birch:9770", "cedar:9770", "elm:9770"]);
        for second in 0..700 {
            let swing = 0.2 * (f64::from(second) / 7.0).sin();
            let pace = if second < 400 { 0.7 } else { 0.35 } + swing;
            job.run(1, RankShown { traffic: pace * sent, ..at_pace(pace) });
        }
        job.open_ids().into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(run(1.0), [ID], "a job whose pace swings");
    assert_eq!(run(1e-5), [""; 0], "servers with fewer requests");
}

/// The averages of a job contain its checkpoint for some seconds after it: little work, and hosts that waited for IO.
#[test]
fn job_whose_steps_are_longer_than_averages_reach_back_is_told_with_its_mean_loss() {
    // A step computes for twenty seconds, and then exchanges.
    let run_steps = |job: &mut SlowedJob, seconds: i64, step: i64| {
        for _ in 0..seconds {
            job.second += 1;
            let pace = if job.second % step < 20 { 1.0 } else { 0.1 };
            job.run(1, at_pace(pace));
        }
    };
    let mut job = SlowedJob::on_nodes(&["ash:9770", "birch:9770", "cedar:9770", "elm:9770"]);
    run_steps(&mut job, 1_500, 25);
    assert_eq!(job.open_ids(), [""; 0]);
    run_steps(&mut job, 480, 50);
    assert_eq!(job.open_ids(), [ID]);
    let lost = job.finding().evidence[0].value.unwrap();
    assert!((0.35..0.6).contains(&lost), "{lost}");
}

#[test]
fn end_of_a_checkpoint_is_no_slow_storage() {
    let mut job = SlowedJob::at_baseline();
    job.run(180, USUAL);
    for checkpoint in 0..3 {
        for second in 0..62 {
            job.run(1, RankShown { utilization: 0.0, io: 0.35, ..at_pace(0.0) });
            assert_eq!(job.open_ids(), [""; 0], "second {second} of checkpoint {checkpoint}");
        }
        for second in 0..300 {
            // Its steps send most in their last third.
            let traffic = if second % 18 < 12 { 0.4 } else { 2.2 };
            job.run(1, RankShown { traffic, ..USUAL });
            assert_eq!(job.open_ids(), [""; 0], "second {second} after checkpoint {checkpoint}");
        }
    }
}

/// As on an H200 that went from matrix products to copies at nine tenths of its memory bandwidth.
#[test]
fn job_whose_memory_becomes_busy_does_other_work_and_has_lost_no_speed() {
    for (pace, dram, is_lost) in [(0.0, 0.89, false), (0.5, 0.09, true)] {
        let mut job = SlowedJob::on_nodes(&["ash:9770"]);
        job.run(150, RankShown { dram: Some(0.18), ..USUAL });
        let other = RankShown { dram: Some(dram), ..at_pace(pace) };
        job.run(90, other);
        let totals = job.fixture.judge.loss().totals;
        let lost = totals.findings + totals.unexplained;
        assert_eq!(lost > 0, is_lost, "{lost} at {dram}");
        assert_eq!(job.open_ids().contains(&ID), is_lost, "{:?} at {dram}", job.open_ids());
    }
}

#[test]
fn job_that_begins_to_work_after_a_long_rest_has_lost_no_speed() {
    // Its GPUs draw as much as GPUs that do nothing do, and later a little less than in their busiest moments.
    let mut job = SlowedJob::on_nodes(&["ash:9770", "birch:9770", "cedar:9770", "elm:9770"]);
    job.run(240, RankShown { utilization: 0.0, ..USUAL });
    for second in 0..400 {
        let more = f64::from(second.min(80)) / 100.0;
        job.run(1, RankShown { utilization: more, ..at_pace(0.8) });
        assert!(!job.open_ids().contains(&ID), "{second}");
    }
}

#[test]
fn suspicion_that_never_becomes_a_finding_does_not_hold_back_what_is_lost() {
    let mut job = SlowedJob::at_baseline();
    for _ in 0..20 {
        // Storage that seems slow for a moment now and then.
        job.run(1, RankShown { io: 0.9, ..at_pace(0.6) });
        job.run(14, at_pace(0.6));
    }
    assert!(job.open_ids().contains(&ID), "{:?}", job.open_ids());
}

#[test]
fn slowdown_below_the_limit_is_not_told() {
    let mut job = SlowedJob::at_baseline();
    job.run(240, at_pace(0.8));
    assert_eq!(job.open_ids(), [ID]);
    assert_eq!(job.finding().severity, Severity::Warning);
    let mut job = SlowedJob::at_baseline();
    job.run(240, at_pace(0.92));
    assert!(!job.open_ids().contains(&ID), "{:?}", job.open_ids());
}

#[test]
fn cap_of_all_clocks_does_not_end_a_slowdown_that_began_before() {
    let mut job = SlowedJob::at_baseline();
    job.run(150, at_pace(0.7));
    assert_eq!(job.open_ids(), [ID]);
    job.run(300, RankShown { clock: 0.75, ..at_pace(0.7) });
    assert_eq!(job.open_ids(), [ID], "it is still slower");
    job.run(150, USUAL);
    assert_eq!(job.open_ids(), [""; 0]);
    let mut capped = SlowedJob::at_baseline();
    capped.run(300, RankShown { clock: 0.75, ..at_pace(0.75) });
    assert_eq!(capped.open_ids(), [""; 0], "the cap explains it");
}

#[test]
fn job_of_which_one_node_no_longer_reports_is_judged_by_the_others() {
    let mut job = SlowedJob::on_nodes(&["ash:9770", "birch:9770", "cedar:9770"]);
    job.run(120, USUAL);
    let mut sent = job.sent;
    for second in 0..400 {
        let shown = if second < 200 { USUAL } else { at_pace(0.7) };
        sent += 10e9 * shown.traffic;
        job.fixture.run_without(1, &[2], |_, index| rank_report(index, shown, sent, 0.0));
    }
    assert!(job.open_ids().contains(&ID), "{:?}", job.open_ids());
}

#[test]
fn cause_that_appears_closes_an_unexplained_slowdown() {
    let mut job = SlowedJob::at_baseline();
    job.run(140, at_pace(0.6));
    assert_eq!(job.open_ids(), [ID]);
    let starved = RankShown { utilization: 0.6, io: 0.6, ..at_pace(0.6) };
    job.run(60, starved);
    assert_eq!(job.open_ids(), ["storage_slow", ID], "a checkpoint may look like that");
    job.run(120, starved);
    assert_eq!(job.open_ids(), ["storage_slow"]);
    let records = job.fixture.judge.closed_records();
    let closed = records.iter().find(|record| record.finding.id == ID).unwrap();
    let last = closed.finding.life.changes.last().unwrap();
    assert_eq!(last.to.as_str(), "explained by storage_slow");
}

#[test]
fn cause_that_is_known_leaves_nothing_unexplained() {
    let mut job = SlowedJob::at_baseline();
    let starved = RankShown { utilization: 0.6, io: 0.6, ..at_pace(0.6) };
    for _ in 0..240 {
        job.run(1, starved);
        assert!(!job.open_ids().contains(&ID));
    }
}

#[test]
fn checkpoint_evaluation_and_end_of_a_job_are_no_unexplained_slowdown() {
    let checkpoint = RankShown { traffic: 0.0, ..at_pace(0.02) };
    let evaluation = RankShown { traffic: 0.02, utilization: 0.9, ..at_pace(0.7) };
    let end = RankShown { pace: 0.0, traffic: 0.0, utilization: 0.0, ..USUAL };
    let capped = RankShown { clock: 0.8, ..at_pace(0.75) };
    for (what, shown, seconds) in [
        ("checkpoint", checkpoint, 150),
        ("evaluation", evaluation, 400),
        ("end", end, 400),
        ("cap", capped, 400),
    ] {
        let mut job = SlowedJob::at_baseline();
        for _ in 0..seconds {
            assert!(!job.run(1, shown).open_ids().contains(&ID), "{what}");
        }
        for _ in 0..240 {
            assert!(!job.run(1, USUAL).open_ids().contains(&ID), "after {what}");
        }
    }
}

#[test]
fn repeated_short_checkpoints_are_no_unexplained_slowdown() {
    let mut job = SlowedJob::at_baseline();
    for _ in 0..8 {
        job.run(20, RankShown { traffic: 0.0, ..at_pace(0.02) });
        assert!(!job.open_ids().contains(&ID));
        job.run(100, USUAL);
        assert!(!job.open_ids().contains(&ID));
    }
}

/// Some node works more than the others at any time: that says nothing about a job that is as fast as ever.
#[test]
fn node_that_works_more_than_the_others_for_a_while_is_no_overloaded_stage() {
    let mut job = SlowedJob::on_nodes(&["ash:9770", "birch:9770", "cedar:9770", "elm:9770"]);
    job.run_in_turns(480);
    for _ in 0..48 {
        job.run_in_turns(20);
        let ids = job.open_ids();
        let is_uneven =
            |id: &&str| id.starts_with("stage_imbalance") || id.starts_with("data_skew");
        assert!(!ids.iter().any(is_uneven), "{ids:?} after {} s", job.second);
    }
}
