//! Tests with readings of a real GPU: a training on one H200, whose loader was made slow. Jobs of several ranks on it, one of
//! which left out a collective, gave the readings of GPUs that busy-wait.

use gaunt_judge::{AttributedCause, gpus_of_parts};
use gaunt_schema::{
    Device, DeviceClass, Dialect, GpuState, Report, Severity,
    catalogue::{gpu, host},
};

use crate::telemetry_tests::{TargetFixture, node_report, push_active_port, push_reading};

const READINGS: &str = include_str!("../../../../tests/fixtures/gpu_readings/h200_training.csv");

/// The second after which the loader is slow.
const ONSET: usize = 300;

/// The values of one second, in the order of the file.
type Row = [f64; 12];

/// What the ranks of a job show that wait for one which does not come.
const BUSY_WAITING: Row = [1.0, 0.0076, 0.0, 5e-6, 1.0, 123.5, 1.98e9, 6.6e7, 1.0, 6.3, 1e-3, 1e-5];

/// What the training shows with a loader that takes a second for four steps: the driver's samples fall between them.
const BARELY_FED: Row =
    [0.0, 0.0732, 0.0656, 0.0227, 0.1, 190.0, 1.98e9, 1.48e8, 0.06, 0.3, 1e-3, 1e-6];

/// The rows of one phase.
fn rows_of(phase: &str) -> Vec<Row> {
    let lines = READINGS.lines().filter_map(|line| line.strip_prefix(phase)?.strip_prefix(','));
    let row = |line: &str| {
        let values: Vec<f64> = line.split(',').map(|value| value.parse().unwrap()).collect();
        Row::try_from(values).unwrap()
    };
    let rows: Vec<Row> = lines.map(row).collect();
    assert!(rows.len() > 40, "{phase}: {} rows", rows.len());
    rows
}

/// The rows of a healthy training, and of what follows it, each repeated, with the sums of what is counted.
fn timeline(then: &[Row], seconds: usize) -> Vec<(Row, Row)> {
    let healthy = rows_of("healthy");
    let rows = healthy.iter().cycle().take(ONSET).chain(then.iter().cycle().take(seconds));
    let mut sums = [1e3; 12];
    let add = |row: &Row| {
        sums = std::array::from_fn(|at| sums[at] + row[at]);
        (*row, sums)
    };
    rows.map(add).collect()
}

fn page(node: &str, gpus: u32, (now, sums): (Row, Row)) -> Report {
    let mut page = node_report(node);
    for index in 0..gpus {
        let device = page.ensure_device(Device::new_gpu(index));
        page.add_info(device, gpu::JOB_INFO, &[("job", "4711")]);
        page.add_info(device, gpu::INFO, &[("model", "NVIDIA H200")]);
        for (metric, value) in [
            (gpu::UTILIZATION, now[0]),
            (gpu::UTILIZATION_SECONDS, sums[0]),
            (gpu::SM_ACTIVE, now[1]),
            (gpu::SM_ACTIVE_SECONDS, sums[1]),
            (gpu::TENSOR_ACTIVE, now[2]),
            (gpu::TENSOR_ACTIVE_SECONDS, sums[2]),
            (gpu::DRAM_ACTIVE, now[3]),
            (gpu::DRAM_ACTIVE_SECONDS, sums[3]),
            (gpu::GRAPHICS_ACTIVE, now[4]),
            (gpu::GRAPHICS_ACTIVE_SECONDS, sums[4]),
            (gpu::POWER, now[5]),
            (gpu::ENERGY, sums[5]),
            (gpu::POWER_LIMIT, 700.0),
            (gpu::SM_CLOCK, now[6]),
            (gpu::SM_CLOCK_MAX, 1.98e9),
            (gpu::PCIE_RECEIVE, sums[7]),
            (gpu::PROCESSES, 1.0),
        ] {
            push_reading(&mut page, Device::new_gpu(index), metric, value);
        }
    }
    for (metric, value) in [
        (host::CPUS, 16.0),
        (host::CPU_BUSIEST, now[8]),
        (host::CPU_BUSY, sums[9]),
        (host::CPU_PRESSURE, sums[10]),
        (host::IO_PRESSURE, sums[11]),
    ] {
        push_reading(&mut page, Device::new_node(), metric, value);
    }
    page
}

#[test]
fn training_whose_loader_is_slow_is_slowed_and_told_within_two_minutes() {
    let timeline = timeline(&rows_of("slow_loader"), 120);
    let mut fixture = TargetFixture::new(&[("vm", Dialect::Gaunt)]);
    let mut run = |seconds: usize| {
        let from = fixture.second as usize;
        let page = |second: i64, _| page("vm", 1, timeline[second as usize - 1]);
        fixture.run(seconds as i64, page);
        let gpu = fixture.judge.loss().gpus[0];
        let told: Vec<(String, Severity)> = fixture
            .judge
            .open_findings()
            .iter()
            .map(|finding| (finding.id.clone(), finding.severity))
            .collect();
        (from + seconds, gpu.shown_state(), gpus_of_parts(gpu.lost_parts().into()), told)
    };
    assert_eq!(run(ONSET), (ONSET, GpuState::Computing, 0.0, vec![]));
    // Its step takes 81 ms in place of 26: it has lost 68 %. The driver's utilization is 0 % at times.
    let (_, state, lost, _) = run(60);
    assert_eq!(state, GpuState::Slowed);
    assert!((0.6..0.8).contains(&lost), "{lost}");
    let (_, _, _, told) = run(60);
    assert_eq!(told, [("unexplained_slowdown/4711".to_owned(), Severity::Warning)]);
}

#[test]
fn training_that_works_between_the_samples_of_the_driver_is_not_idle() {
    let timeline = timeline(&[BARELY_FED], 60);
    let mut fixture = TargetFixture::new(&[("vm", Dialect::Gaunt)]);
    fixture.run(timeline.len() as i64, |second, _| page("vm", 1, timeline[second as usize - 1]));
    let gpu = fixture.judge.loss().gpus[0];
    assert_eq!(gpu.shown_state(), GpuState::Slowed);
    // Its step takes 250 ms in place of 26.
    let lost = gpus_of_parts(gpu.lost_parts().into());
    assert!((0.85..0.95).contains(&lost), "{lost}");
}

#[test]
fn ranks_that_busy_wait_in_a_collective_hang() {
    let timeline = timeline(&[BUSY_WAITING], 120);
    let nodes = ["ash", "birch"];
    let mut fixture = TargetFixture::new(&nodes.map(|name| (name, Dialect::Gaunt)));
    fixture.run(timeline.len() as i64, |second, node| {
        let second = second as usize;
        let mut page = page(nodes[node], 4, timeline[second - 1]);
        push_active_port(&mut page, 5e9 * second.min(ONSET) as f64);
        page
    });
    assert_eq!(fixture.open_ids(), ["collective_hang/4711"]);
    let rows = fixture.cluster.row_count(DeviceClass::Gpu);
    let loss = fixture.judge.loss();
    for gpu in &loss.gpus[..rows] {
        let share = gpus_of_parts(gpu.lost_parts().into());
        assert!(share > 0.99, "{share}");
        let cause = loss.causes.attributed_parts(*gpu).next().map(|(cause, _)| cause);
        assert!(matches!(cause, Some(AttributedCause::Finding(_))), "{cause:?}");
    }
}
