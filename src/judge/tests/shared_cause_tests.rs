//! Tests of causes that several devices or a whole job share.

use gaunt_schema::{
    Device, Dialect, MetricId, Report, Severity,
    catalogue::{gpu, host, port},
};

use super::{
    BUSY, JobFixture, WAITING,
    telemetry_tests::{TargetFixture, evidence_of, node_report, push_reading},
};

const GPUS: u32 = 4;

/// A page of four busy GPUs of one job at these SM clocks, which do as much work as these allow.
fn page_of_clocks(second: i64, node: usize, clock: impl Fn(u32) -> f64) -> Report {
    let mut report = Report {
        node: Some(format!("gpu{node:03}").as_str().into()),
        node_time: Some(gaunt_schema::UnixMs(second * 1_000)),
        ..Report::default()
    };
    for index in 0..GPUS {
        let device = report.ensure_device(Device::new_gpu(index));
        report.push(device, gpu::UTILIZATION, 1.0);
        report.push(device, gpu::SM_CLOCK, clock(index));
        report.push(device, gpu::POWER, 600.0);
        report.push(device, gpu::TENSOR_ACTIVE, 0.4 * clock(index) / 1_980e6);
        report.add_info(device, gpu::JOB_INFO, &[("job", "8812")]);
    }
    report
}

/// Returns the findings after these GPUs of the node `gpu002` have been slow for a while.
fn found_with_slow(slow: &[u32]) -> Vec<String> {
    found_with_clocks(
        |node, index| {
            if node == 2 && slow.contains(&index) { 600e6 } else { 1_980e6 }
        },
    )
}

/// Returns the findings of a job on four nodes after its GPUs have had these clocks for a while.
fn found_with_clocks(clock: impl Fn(usize, u32) -> f64) -> Vec<String> {
    let addresses: Vec<String> = (0..4).map(|node| format!("10.0.0.{node}:9770")).collect();
    let targets: Vec<(&str, Dialect)> =
        addresses.iter().map(|address| (address.as_str(), Dialect::Gaunt)).collect();
    let mut fixture = TargetFixture::new(&targets);
    fixture.run(240, |second, node| {
        page_of_clocks(
            second,
            node,
            |index| if second < 180 { 1_980e6 } else { clock(node, index) },
        )
    });
    let open = fixture.judge.open_findings();
    let mut found: Vec<String> = open.into_iter().map(|finding| finding.id.clone()).collect();
    found.sort();
    found
}

#[test]
fn slow_gpus_of_one_node_are_one_finding_and_a_single_one_is_its_own() {
    assert_eq!(found_with_slow(&[0, 1, 2, 3]), ["compute_straggler/gpu002"]);
    assert_eq!(found_with_slow(&[1]), ["compute_straggler/gpu002/1"]);
}

#[test]
fn straggler_that_its_power_cap_holds_says_so() {
    let cases = [
        (0.0, "no throttle reason reported.", Severity::Warning),
        (1.0, "no throttle reason reported but its power cap.", Severity::Info),
    ];
    for (cap, reason, severity) in cases {
        let addresses = ["10.0.0.0:9770", "10.0.0.1:9770"].map(|address| (address, Dialect::Gaunt));
        let mut fixture = TargetFixture::new(&addresses);
        fixture.run(240, |second, node| {
            let is_slow = |index| second >= 180 && node == 1 && index == 1;
            let mut page =
                page_of_clocks(second, node, |index| if is_slow(index) { 600e6 } else { 1_980e6 });
            let active = if is_slow(1) { cap } else { 0.0 };
            push_reading(&mut page, Device::new_gpu(1), gpu::CLOCK_EVENT_SW_POWER_CAP, active);
            page
        });
        let open = fixture.judge.open_findings();
        let [found] = open[..] else { panic!("{open:?}") };
        assert!(found.summary.contains(reason), "{}", found.summary);
        assert_eq!(found.severity, severity, "its job loses nothing");
        let shown = evidence_of(found, "SW power cap").unwrap();
        assert_eq!(shown.note.as_str(), if cap > 0.0 { "active" } else { "not active" });
    }
}

#[test]
fn job_that_waits_for_the_low_clocks_of_some_of_its_nodes_is_not_capped() {
    let found = |low: &[usize]| {
        let clock = |node, _| if low.contains(&node) { 1_540e6 } else { 1_980e6 };
        let found = found_with_clocks(clock).into_iter();
        found.filter(|id| id.starts_with("compute_straggler")).collect::<Vec<_>>()
    };
    assert_eq!(found(&[1, 2]), ["compute_straggler/gpu001", "compute_straggler/gpu002"]);
    assert_eq!(found(&[1, 2, 3]), [""; 0], "most of it is limited, on purpose or by what feeds it");
}

#[test]
fn board_that_a_power_cap_slows_a_little_more_than_the_others_is_no_straggler() {
    let mut fixture = TargetFixture::new(&[("10.0.0.1:9770", Dialect::Gaunt)]);
    fixture.run(400, |second, node| {
        page_of_clocks(second, node, |index| match (second < 240, index) {
            (true, _) => 1_980e6,
            (false, 0) => 1_980e6 * 0.81,
            (false, _) => 1_980e6 * 0.86,
        })
    });
    assert_eq!(fixture.open_ids(), [""; 0]);
}

#[test]
fn busy_gpu_far_below_the_clocks_of_its_model_is_slow_since_the_first_look() {
    let found = |clock: f64, busy: f64, model: &str| {
        let mut fixture = TargetFixture::new(&[("ash:9770", Dialect::Gaunt)]);
        fixture.run(90, |_, _| {
            let mut page = node_report("ash");
            for number in 0..4 {
                let device = Device::new_gpu(number);
                let row = page.ensure_device(device.clone());
                page.add_info(row, gpu::INFO, &[("model", model)]);
                push_reading(&mut page, device.clone(), gpu::UTILIZATION, busy);
                push_reading(&mut page, device, gpu::SM_CLOCK, clock);
            }
            page
        });
        fixture.open_ids().into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    let h100 = "NVIDIA H100 80GB HBM3";
    assert_eq!(found(270e6, 1.0, h100), ["compute_straggler/ash"]);
    assert_eq!(found(270e6, 0.2, h100), [""; 0], "it has little to do");
    assert_eq!(found(990e6, 1.0, h100), [""; 0], "a power limit may do that");
    assert_eq!(found(270e6, 1.0, "a board of tomorrow"), [""; 0]);
}

#[test]
fn node_that_stops_reporting_is_the_cause_of_the_hang_of_its_job() {
    let mut fixture = JobFixture::of(3);
    fixture.run(120, [Some(BUSY); 3]);
    fixture.run(100, [None, Some(WAITING), Some(WAITING)]);
    assert_eq!(fixture.open_ids(), ["target_down/gpu001"]);
    let finding = fixture.finding_by_id("target_down/gpu001");
    assert_eq!(finding.severity, Severity::Critical);
    assert!(finding.summary.ends_with("Job 8812 hangs."), "{}", finding.summary);
}

/// A page of a node of a job, which hangs from some second on; its port may be down by then.
fn page_of_hang(second: i64, node: usize, job: Option<&str>, is_down: bool) -> Report {
    let mut page = node_report(["ash", "birch", "cedar"][node]);
    let hangs = second >= HANGS_FROM;
    for number in 0..4 {
        if let Some(job) = job {
            let row = page.ensure_device(Device::new_gpu(number));
            page.add_info(row, gpu::JOB_INFO, &[("job", job)]);
        }
        for (metric, value) in [
            (gpu::UTILIZATION, 1.0),
            (gpu::TENSOR_ACTIVE, if hangs { 0.0 } else { 0.4 }),
            (gpu::SM_ACTIVE, if hangs { 0.1 } else { 0.7 }),
            (gpu::POWER, if hangs { 200.0 } else { 600.0 }),
            (gpu::POWER_LIMIT, 700.0),
        ] {
            push_reading(&mut page, Device::new_gpu(number), metric, value);
        }
    }
    let port = || Device::new_port("mlx5_0", "1");
    let sent = second.min(HANGS_FROM) as f64 * 5e9;
    let state = if hangs && is_down { [1.0, 2.0] } else { [4.0, 5.0] };
    push_reading(&mut page, port(), port::STATE, state[0]);
    push_reading(&mut page, port(), port::PHYSICAL_STATE, state[1]);
    push_reading(&mut page, port(), port::RATE, 50e9);
    push_reading(&mut page, port(), port::RECEIVE_BYTES, sent);
    push_reading(&mut page, port(), port::TRANSMIT_BYTES, sent);
    page
}

/// The second at which the job of [`page_of_hang`] hangs.
const HANGS_FROM: i64 = 300;

#[test]
fn port_that_goes_down_is_the_cause_of_the_hang_of_its_job() {
    let nodes = ["ash:9770", "birch:9770", "cedar:9770"];
    let found = |job: Option<&str>, down: &[usize]| {
        let mut fixture = TargetFixture::new(&nodes.map(|node| (node, Dialect::Gaunt)));
        fixture.run(700, |second, node| page_of_hang(second, node, job, down.contains(&node)));
        let open = fixture.judge.open_findings().into_iter();
        let open = open.map(|it| (it.id.clone(), it.severity, it.summary.contains("hangs")));
        open.collect::<Vec<_>>()
    };
    let page = |id: &str, hangs| (id.to_owned(), Severity::Critical, hangs);
    for (job, hang) in [(None, "collective_hang/ash"), (Some("8812"), "collective_hang/8812")] {
        assert_eq!(found(job, &[]), [page(hang, true)]);
        assert_eq!(found(job, &[0]), [page("port_down/ash/mlx5_0/1", true)], "{job:?}");
    }
    // One of two says so.
    let [ash, cedar] = ["port_down/ash/mlx5_0/1", "port_down/cedar/mlx5_0/1"];
    assert_eq!(found(Some("8812"), &[0, 2]), [page(ash, true), page(cedar, false)]);
}

#[test]
fn node_that_stops_reporting_after_the_hang_is_not_its_cause() {
    let mut fixture = JobFixture::of(3);
    fixture.run(120, [Some(BUSY); 3]);
    fixture.run(100, [Some(WAITING); 3]);
    fixture.run(30, [None, Some(WAITING), Some(WAITING)]);
    assert!(fixture.open_ids().contains(&"collective_hang/8812"), "{:?}", fixture.open_ids());
}

/// Runs three nodes of a job, from second 200 on at this pace, while their hosts wait for something half of the time.
fn found_with_hosts_waiting(metric: MetricId, pace: f64) -> Vec<(String, Severity, String)> {
    found_with_waits(metric, pace, [0.5; 3], 330)
}

/// The same with this share of the time on each host, after so many seconds.
fn found_with_waits(
    metric: MetricId,
    pace: f64,
    shares: [f64; 3],
    seconds: i64,
) -> Vec<(String, Severity, String)> {
    let fixture = run_with_waits(metric, (pace, 0.98), shares, seconds);
    let open = fixture.judge.open_findings().into_iter();
    let warned = open.filter(|finding| finding.severity > Severity::Info);
    warned.map(|it| (it.id.clone(), it.severity, it.summary.clone())).collect()
}

/// The same with GPUs that are as busy as this from second 200 on.
fn run_with_waits(
    metric: MetricId,
    (pace, busy): (f64, f64),
    shares: [f64; 3],
    seconds: i64,
) -> TargetFixture {
    let nodes = ["ash:9770", "birch:9770", "cedar:9770"];
    let targets: Vec<(&str, Dialect)> = nodes.iter().map(|node| (*node, Dialect::Gaunt)).collect();
    let mut fixture = TargetFixture::new(&targets);
    fixture.run(seconds, |second, index| {
        let since = (second - 200).max(0) as f64;
        let mut report = node_report(["ash", "birch", "cedar"][index]);
        for number in 0..4 {
            let device = Device::new_gpu(number);
            let row = report.ensure_device(device.clone());
            report.add_info(row, gpu::JOB_INFO, &[("job", "8812")]);
            let (now, busy) = if since > 0.0 { (pace, busy) } else { (1.0, 0.98) };
            push_reading(&mut report, device.clone(), gpu::UTILIZATION, busy);
            push_reading(&mut report, device.clone(), gpu::TENSOR_ACTIVE, 0.4 * now);
            push_reading(&mut report, device, gpu::POWER, 200.0 + 400.0 * now);
        }
        if metric == host::CPU_BUSIEST {
            let busiest = 0.45 + if since > 0.0 { shares[index] } else { 0.0 };
            push_reading(&mut report, Device::new_node(), metric, busiest);
            return report;
        }
        let chores = 0.005 * second as f64 + 0.01 * f64::from((second % 7) as i32);
        push_reading(&mut report, Device::new_node(), metric, 1e3 + chores + shares[index] * since);
        report
    });
    fixture
}

#[test]
fn hosts_of_a_slower_job_that_wait_for_cpus_together_starve_it() {
    let found = found_with_hosts_waiting(host::CPU_PRESSURE, 0.6);
    let [(id, severity, summary)] = &found[..] else { panic!("{found:?}") };
    assert_eq!((id.as_str(), *severity), ("data_starved/8812", Severity::Warning));
    assert!(summary.contains("3 of its 3 hosts wait for CPUs together"), "{summary}");
    assert_eq!(found_with_hosts_waiting(host::CPU_PRESSURE, 1.0), [], "it costs nothing");
}

#[test]
fn no_host_starves_its_job_alone_while_all_wait_for_cpus() {
    let told = |shares: [f64; 3]| {
        let fixture = run_with_waits(host::CPU_PRESSURE, (0.6, 0.6), shares, 330);
        fixture.open_ids().into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(told([0.5; 3]), ["data_starved/8812"]);
    assert_eq!(told([0.5, 0.0, 0.0]), ["data_starved/ash"]);
}

#[test]
fn hosts_of_a_slower_job_whose_cpus_are_far_busier_starve_it() {
    let told = |shares: [f64; 3]| {
        let fixture = run_with_waits(host::CPU_BUSIEST, (0.6, 0.6), shares, 330);
        let open = fixture.judge.open_findings().into_iter();
        open.map(|finding| (finding.id.clone(), finding.summary.clone())).collect::<Vec<_>>()
    };
    let found = told([0.37; 3]);
    let [(id, summary)] = &found[..] else { panic!("{found:?}") };
    assert_eq!(id, "data_starved/8812");
    let says = "3 of its 3 hosts have far busier CPUs than before (busiest CPU 82 %, before 45 %)";
    assert!(summary.contains(says), "{summary}");
    let of_one = told([0.5, 0.0, 0.0]);
    assert!(of_one.iter().all(|(id, _)| id != "data_starved/8812"), "{of_one:?}");
    let idle_half = told([0.2; 3]);
    assert!(idle_half.iter().all(|(id, _)| id != "data_starved/8812"), "{idle_half:?}");
}

#[test]
fn hosts_of_a_slower_job_that_wait_for_io_together_have_slow_storage() {
    let found = found_with_hosts_waiting(host::IO_PRESSURE, 0.9);
    let [(id, ..)] = &found[..] else { panic!("{found:?}") };
    assert_eq!(id, "storage_slow");
    assert_eq!(found_with_hosts_waiting(host::IO_PRESSURE, 1.0), [], "it costs nothing");
}

#[test]
fn little_io_pressure_of_a_slower_job_never_pages() {
    let severities = |share: f64| {
        let found = found_with_waits(host::IO_PRESSURE, 0.6, [share; 3], 330);
        let storage = found.into_iter().filter(|(id, ..)| id == "storage_slow");
        storage.map(|(_, severity, _)| severity).collect::<Vec<_>>()
    };
    assert_eq!(severities(0.5), [Severity::Critical]);
    assert_eq!(severities(0.15), [Severity::Warning]);
}

#[test]
fn host_that_waits_for_a_shorter_time_than_its_job_lost_does_not_explain_the_loss() {
    let found = |share: f64| found_with_waits(host::CPU_PRESSURE, 0.6, [share, 0.0, 0.0], 330);
    let ids = |share: f64| found(share).into_iter().map(|(id, ..)| id).collect::<Vec<_>>();
    assert_eq!(ids(0.6), ["data_starved/ash"]);
    assert_eq!(ids(0.12), ["unexplained_slowdown/8812"]);
}
