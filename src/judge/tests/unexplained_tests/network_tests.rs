//! Tests of jobs that wait for their network, beside what is unusual but not the cause.

use gaunt_schema::{
    Device,
    catalogue::{gpu, port},
};

use super::{ID, SlowedJob, at_pace, rank_report};
use crate::telemetry_tests::{node_report, push_active_port, push_reading};

const NODES: [&str; 4] = ["ash:9770", "birch:9770", "cedar:9770", "elm:9770"];

/// What is told of a job that is slower from the 120th second on, while tasks of one host wait for IO and its port, or no
/// port, waits to send.
fn told(port_waits: bool) -> Vec<String> {
    let mut job = SlowedJob::on_nodes(&NODES);
    let (mut ticks, mut waited) = (0.0, 0.0);
    for second in 0..360 {
        let slow = second >= 120;
        let pace = if slow { 0.8 } else { 1.0 };
        job.sent += 10e9 * pace;
        ticks += if slow && port_waits { 1e9 } else { 1e5 };
        waited += if slow { 0.3 } else { 0.0 };
        let sent = job.sent;
        job.fixture.run(1, |_, index| {
            let is_one = index == 1;
            let waited = if is_one { waited } else { 0.0 };
            let mut report = rank_report(index, at_pace(pace), sent, waited);
            let ticks = if is_one { ticks } else { 1e5 * f64::from(second) };
            push_reading(&mut report, Device::new_port("mlx5_0", "1"), port::TRANSMIT_WAIT, ticks);
            report
        });
    }
    let told = job.fixture.judge.open_findings().into_iter();
    told.map(|finding| format!("{}: {}", finding.id, finding.summary)).collect()
}

#[test]
fn host_is_not_blamed_while_its_port_alone_waits_to_send() {
    let found = told(false);
    assert!(found.len() == 1 && found[0].starts_with("data_starved/birch"), "{found:?}");
    let found = told(true);
    assert!(found.len() == 1 && found[0].starts_with(ID), "{found:?}");
    assert!(found[0].contains("transmit wait on birch"), "{found:?}");
}

#[test]
fn slightly_lower_clock_of_a_job_whose_traffic_tells_its_pace_is_no_cap() {
    let mut job = SlowedJob::on_nodes(&NODES);
    for second in 0..600 {
        let (pace, clock) = if second < 300 { (1.0, 1.98e9) } else { (0.84, 1.84e9) };
        job.sent += 10e9 * pace;
        let sent = job.sent;
        job.fixture.run(1, |_, index| {
            let mut report = node_report(["ash", "birch", "cedar", "elm"][index]);
            for number in 0..2 {
                let row = report.ensure_device(Device::new_gpu(number));
                report.add_info(row, gpu::JOB_INFO, &[("job", "8812")]);
                // Without profiling counters, and with a power that swings.
                let swing = 0.1 * (f64::from(second) / 7.0).sin();
                for (metric, value) in [
                    (gpu::UTILIZATION, 0.97),
                    (gpu::SM_CLOCK, clock),
                    (gpu::POWER, 600.0 * pace * (1.0 + swing)),
                    (gpu::PROCESSES, 1.0),
                ] {
                    push_reading(&mut report, Device::new_gpu(number), metric, value);
                }
            }
            push_active_port(&mut report, sent);
            report
        });
    }
    assert_eq!(job.open_ids(), [ID]);
}
