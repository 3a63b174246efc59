//! Tests of small jobs: of two nodes, where a whole node is half of everything, and of one, which has only its own past.

use gaunt_schema::{
    Device, Dialect, Report, Severity,
    catalogue::{gpu, host, port},
};

use super::telemetry_tests::{TargetFixture, node_report, push_reading};

const GPUS: u32 = 8;

/// What one GPU shows.
#[derive(Clone, Copy)]
struct Shown {
    utilization: f64,
    sm: f64,
    tensor: f64,
    /// Of a limit of 700 W.
    watts: f64,
    clock_hertz: f64,
    memory_bytes: f64,
}

const WORKS: Shown = Shown {
    utilization: 0.98,
    sm: 0.7,
    tensor: 0.3,
    watts: 600.0,
    clock_hertz: 1.7e9,
    memory_bytes: 60e9,
};

/// A node of a job with profiling counters; `sent` bytes have gone over its port.
fn job_page(node: usize, shown: impl Fn(u32) -> Shown, sent: f64) -> Report {
    let mut page = node_report(["gpu001", "gpu002"][node]);
    push_reading(&mut page, Device::new_node(), host::IO_PRESSURE, 1e6);
    push_reading(&mut page, Device::new_node(), host::CPU_BUSIEST, 0.3);
    for index in 0..GPUS {
        let device = page.ensure_device(Device::new_gpu(index));
        page.add_info(device, gpu::JOB_INFO, &[("job", "8812")]);
        let shown = shown(index);
        for (metric, value) in [
            (gpu::UTILIZATION, shown.utilization),
            (gpu::SM_ACTIVE, shown.sm),
            (gpu::TENSOR_ACTIVE, shown.tensor),
            (gpu::DRAM_ACTIVE, shown.tensor),
            (gpu::POWER, shown.watts),
            (gpu::POWER_LIMIT, 700.0),
            (gpu::SM_CLOCK, shown.clock_hertz),
            (gpu::MEMORY_USED, shown.memory_bytes),
            (gpu::MEMORY_TOTAL, 80e9),
        ] {
            push_reading(&mut page, Device::new_gpu(index), metric, value);
        }
    }
    let values = [(port::STATE, 4.0), (port::RATE, 5e10)];
    for (metric, value) in
        values.into_iter().chain([(port::RECEIVE_BYTES, sent), (port::TRANSMIT_BYTES, sent)])
    {
        push_reading(&mut page, Device::new_port("mlx5_0", "1"), metric, value);
    }
    page
}

fn two_nodes() -> TargetFixture {
    TargetFixture::new(&[("gpu001:9770", Dialect::Gaunt), ("gpu002:9770", Dialect::Gaunt)])
}

/// Returns the findings that are open, with their severities.
fn open(fixture: &TargetFixture) -> Vec<(String, Severity)> {
    let open = fixture.judge.open_findings().into_iter();
    open.map(|finding| (finding.id.clone(), finding.severity)).collect()
}

/// Runs a job whose processes begin at second 30; its ranks busy-wait on one node and idle on the other until `works_from`.
fn run_start(seconds: i64, works_from: i64) -> TargetFixture {
    let mut fixture = two_nodes();
    fixture.run(seconds, |second, node| {
        let idle = Shown { utilization: 0.0, sm: 0.0, tensor: 0.0, watts: 80.0, ..WORKS };
        let spins = Shown { sm: 0.1, tensor: 0.0, watts: 240.0, ..WORKS };
        let shown = match second {
            _ if second >= works_from => WORKS,
            ..30 => Shown { memory_bytes: 4e6, ..idle },
            _ if node == 0 => spins,
            _ => idle,
        };
        job_page(node, |_| shown, (second - works_from).max(0) as f64 * 20e9)
    });
    fixture
}

#[test]
fn job_that_never_begins_to_work_hangs_and_one_that_does_so_late_does_not() {
    let hangs = [("collective_hang/8812".to_owned(), Severity::Warning)];
    assert_eq!(open(&run_start(330, i64::MAX)), [], "it may load");
    let fixture = run_start(700, i64::MAX);
    assert_eq!(open(&fixture), hangs);
    let summary = fixture.judge.open_findings()[0].summary.clone();
    assert!(
        summary.contains("8 GPUs busy-wait in a collective without progress, 8 do nothing and have done no work since their processes began"),
        "{summary}"
    );
    assert_eq!(open(&run_start(700, 250)), []);
}

#[test]
fn node_whose_clocks_fall_is_told_in_a_job_of_two_and_both_are_not() {
    let run = |slow: fn(usize) -> bool| {
        let mut fixture = two_nodes();
        fixture.run(260, |second, node| {
            let falls = second >= 180 && slow(node);
            let fallen = Shown { clock_hertz: 0.6e9, watts: 200.0, sm: 0.8, tensor: 0.15, ..WORKS };
            job_page(node, |_| if falls { fallen } else { WORKS }, second as f64 * 20e9)
        });
        open(&fixture).into_iter().map(|(id, _)| id).collect::<Vec<_>>()
    };
    assert_eq!(run(|node| node == 1), ["compute_straggler/gpu002"]);
    let both = run(|_| true);
    assert!(!both.iter().any(|id| id.starts_with("compute_straggler")), "{both:?}");
}

#[test]
fn gpu_that_takes_longer_for_the_same_work_is_told_whatever_the_phase_of_its_samples() {
    let mut fixture = two_nodes();
    let page = |second: i64, node: usize| {
        // The nodes are sampled in other phases of a step: what the others compute swings by a fifth.
        let swing = if (second / 7 + node as i64) % 2 == 0 { 1.1 } else { 0.9 };
        let shown = |index: u32| {
            if second >= 180 && node == 0 && index == 0 {
                Shown { sm: 0.8, tensor: 0.175, watts: 450.0, ..WORKS }
            } else if second >= 180 {
                Shown { sm: 0.52 * swing, tensor: 0.17 * swing, watts: 450.0, ..WORKS }
            } else {
                WORKS
            }
        };
        job_page(node, shown, second as f64 * 20e9)
    };
    fixture.run(300, page);
    for _ in 0..10 {
        fixture.run(10, page);
        assert!(fixture.open_ids().contains(&"compute_straggler/gpu001/0"));
    }
}

#[test]
fn job_on_one_node_is_told_by_its_past_alone_and_a_heavier_load_is_not() {
    let run = |later: Shown| {
        let mut fixture = TargetFixture::new(&[("gpu001:9770", Dialect::Gaunt)]);
        let light = Shown { utilization: 0.3, sm: 0.2, tensor: 0.1, watts: 100.0, ..WORKS };
        fixture.run(420, |second, node| {
            let shown = if second >= 180 { later } else { Shown { clock_hertz: 2.4e9, ..light } };
            job_page(node, |_| shown, 0.0)
        });
        open(&fixture)
    };
    let capped = Shown { utilization: 0.6, sm: 0.4, tensor: 0.1, watts: 80.0, ..WORKS };
    let told = [("compute_straggler/gpu001".to_owned(), Severity::Warning)];
    assert_eq!(run(Shown { clock_hertz: 1.05e9, ..capped }), told);
    assert_eq!(run(WORKS), [], "it draws more, and its clock yields to that");
}

#[test]
fn hot_gpu_that_has_its_job_alone_is_told_whatever_its_load_is() {
    let run = |celsius: f64| {
        let mut fixture = TargetFixture::new(&[("gpu001:9770", Dialect::Gaunt)]);
        fixture.run(420, |second, _| {
            let is_late = second >= 180;
            let busy = if is_late && second / 60 % 2 == 0 { 0.4 } else { 0.98 };
            let mut page = node_report("gpu001");
            let device = page.ensure_device(Device::new_gpu(0));
            page.add_info(device, gpu::JOB_INFO, &[("job", "8812")]);
            for (metric, value) in [
                (gpu::UTILIZATION, busy),
                (gpu::POWER, if is_late { 500.0 } else { 600.0 } * busy),
                (gpu::POWER_LIMIT, 700.0),
                (gpu::SM_CLOCK, if is_late { 1.3e9 } else { 1.7e9 }),
                (gpu::TEMPERATURE, if is_late { celsius } else { 55.0 }),
            ] {
                push_reading(&mut page, Device::new_gpu(0), metric, value);
            }
            page
        });
        open(&fixture)
    };
    assert_eq!(run(90.0), [("throttled/gpu001/0".to_owned(), Severity::Warning)]);
    assert_eq!(run(60.0), []);
}

#[test]
fn clock_far_below_what_its_model_reaches_is_explained_by_heat_from_the_first_look_on() {
    let run = |celsius: f64, clock: f64| {
        let mut fixture = TargetFixture::new(&[("gpu001:9770", Dialect::Gaunt)]);
        fixture.run(60, |_, _| {
            let mut page = node_report("gpu001");
            let device = page.ensure_device(Device::new_gpu(0));
            page.add_info(device, gpu::JOB_INFO, &[("job", "8812")]);
            for (metric, value) in [
                (gpu::UTILIZATION, 0.98),
                (gpu::SM_CLOCK, clock),
                (gpu::SM_CLOCK_MAX, 1.98e9),
                (gpu::TEMPERATURE, celsius),
            ] {
                push_reading(&mut page, Device::new_gpu(0), metric, value);
            }
            page
        });
        open(&fixture)
    };
    assert_eq!(run(96.0, 0.9e9), [("throttled/gpu001/0".to_owned(), Severity::Critical)]);
    assert_eq!(run(60.0, 0.9e9), [], "its load or a power limit may need no more");
    assert_eq!(run(96.0, 1.5e9), [], "hot, and as fast as many");
    assert_eq!(run(60.0, 0.5e9), [("compute_straggler/gpu001/0".to_owned(), Severity::Critical)]);
}

#[test]
fn job_on_one_node_that_waits_for_longer_between_the_same_work_is_told_unless_its_load_varies() {
    let id = ("unexplained_slowdown/8812".to_owned(), Severity::Warning);
    let works_for = |share: f64| Shown {
        utilization: 0.95 * share,
        sm: 0.7 * share,
        tensor: 0.3 * share,
        watts: 100.0 + 500.0 * share,
        ..WORKS
    };
    let run = |usual: fn(i64) -> f64, later: f64| {
        let mut fixture = TargetFixture::new(&[("gpu001:9770", Dialect::Gaunt)]);
        fixture.run(600, |second, _| {
            let share = if second < 480 { usual(second) } else { later };
            job_page(0, |_| works_for(share), 0.0)
        });
        open(&fixture)
    };
    assert_eq!(run(|_| 1.0, 0.5), std::slice::from_ref(&id));
    // A service whose requests come in waves, and one that always has time left.
    assert_eq!(run(|second| 0.85 + 0.15 * (second as f64 / 40.0).sin(), 0.5), []);
    assert_eq!(run(|_| 0.7, 0.5), []);
    // What varies a little has lost much more than that varies, or not.
    let varies = |second: i64| 0.97 + 0.03 * (second as f64 / 40.0).sin();
    assert_eq!(run(varies, 0.3), [id]);
    assert_eq!(run(varies, 0.75), []);
}

#[test]
fn worker_that_does_nothing_while_the_others_go_on_is_told() {
    let stops = |others: Shown| {
        let still = Shown { utilization: 0.0, sm: 0.0, tensor: 0.0, watts: 90.0, ..WORKS };
        let mut fixture = TargetFixture::new(&[("gpu001:9770", Dialect::Gaunt)]);
        fixture.run(400, |second, _| {
            let of_gpu = |index| match (second < 200, index) {
                (true, _) => WORKS,
                (false, 2) => still,
                (false, _) => others,
            };
            job_page(0, of_gpu, 0.0)
        });
        open(&fixture)
    };
    assert_eq!(stops(WORKS), [("idle_allocated/8812".to_owned(), Severity::Warning)]);
    // Ranks that wait for it hang.
    let waits = Shown { utilization: 1.0, sm: 0.05, tensor: 0.0, watts: 300.0, ..WORKS };
    assert!(stops(waits).iter().all(|(id, _)| !id.starts_with("idle_allocated")));
}
