//! Tests of the cluster state after sequences of pages, in virtual time.

use std::{fmt::Write as _, time::Duration};

use gaunt_schema::{
    AbsenceReason, Batch, Delivery, Device, DeviceClass, Dialect, FieldCounts, MetricId, Reading,
    RejectionCounts, Report, SanitizedText, ScrapeFailure, ScrapeTarget, ScrapedPage, TargetId,
    UnixMs,
    catalogue::{gpu, host, port},
};

use super::{Cluster, NodeFreshness, TargetHealth};

const PERIOD: Duration = Duration::from_secs(1);

pub(super) fn new_cluster(targets: &[(u32, &str, Option<&str>)]) -> Cluster {
    let mut cluster = Cluster::new(PERIOD, 10);
    cluster.ingest_delivery(Delivery::Targets(new_targets(targets)));
    cluster.advance_to(UnixMs(0));
    cluster
}

pub(super) fn new_targets(targets: &[(u32, &str, Option<&str>)]) -> Vec<ScrapeTarget> {
    let target = |(id, address, node): &(u32, &str, Option<&str>)| ScrapeTarget {
        id: TargetId(*id),
        address: (*address).into(),
        node: node.map(SanitizedText::new),
        origin: "test".into(),
    };
    targets.iter().map(target).collect()
}

/// A page of `node` sampled at `time` milliseconds by its own clock.
pub(super) fn node_report(
    node: &str,
    time: Option<i64>,
    samples: &[(Device, MetricId, Reading)],
) -> Report {
    let mut report =
        Report { node: Some(node.into()), node_time: time.map(UnixMs), ..Report::default() };
    for (device, metric, reading) in samples {
        let index = report.ensure_device(device.clone());
        report.push(index, *metric, *reading);
    }
    report
}

pub(super) fn send_page(cluster: &mut Cluster, id: u32, at: i64, dialect: Dialect, report: Report) {
    let page = ScrapedPage { report, dialect, bytes: 100, rejected: RejectionCounts::default() };
    let (target, at) = (TargetId(id), UnixMs(at));
    cluster.ingest_delivery(Delivery::Batch(Batch {
        target,
        at,
        duration_ms: 1.0,
        outcome: Ok(page),
    }));
    cluster.advance_to(at);
}

fn send_failure(cluster: &mut Cluster, id: u32, at: i64) {
    let outcome = Err(ScrapeFailure::Connect("connection refused".into()));
    let (target, at) = (TargetId(id), UnixMs(at));
    cluster.ingest_delivery(Delivery::Batch(Batch { target, at, duration_ms: 1.0, outcome }));
    cluster.advance_to(at);
}

pub(super) fn row_of(cluster: &Cluster, node: &str, device: &Device) -> u32 {
    let (_, node) = cluster.node_by_name(node).unwrap();
    let rows = node.device_rows(device.class);
    *rows
        .iter()
        .find(|row| cluster.device_at(device.class, **row).unwrap().device == *device)
        .unwrap()
}

/// Sends `pages` of one counter, (arrival, node clock, value), and returns the rate after each.
fn compute_rates(metric: MetricId, pages: &[(i64, Option<i64>, f64)]) -> Vec<Option<f64>> {
    let mut cluster = new_cluster(&[(1, "a:1", None)]);
    let device = match metric.catalogue_row().class {
        DeviceClass::Port => Device::new_port("mlx5_0", "1"),
        _ => Device::new_node(),
    };
    let step = |(at, time, value): &(i64, Option<i64>, f64)| {
        let page = node_report("a", *time, &[(device.clone(), metric, Reading::of(*value))]);
        send_page(&mut cluster, 1, *at, Dialect::Gaunt, page);
        cluster.current_rate(metric, row_of(&cluster, "a", &device))
    };
    pages.iter().map(step).collect()
}

#[test]
fn history_of_every_metric_is_kept_if_requested() {
    let (metric, device) = (host::NETDEV_SPEED, Device::new_netdev("eth0"));
    assert!(!metric.catalogue_row().history, "one that nobody looks back at");
    for full_history in [false, true] {
        let cluster = Cluster::new(PERIOD, 10);
        let mut cluster = if full_history { cluster.with_full_history(10) } else { cluster };
        cluster.ingest_delivery(Delivery::Targets(new_targets(&[(1, "a:1", None)])));
        for second in 1..=3_i64 {
            let samples = [(device.clone(), metric, Reading::Value(second as f64))];
            let report = node_report("a", Some(second * 1_000), &samples);
            send_page(&mut cluster, 1, second * 1_000, Dialect::Gaunt, report);
        }
        let (_, node) = cluster.node_by_name("a").unwrap();
        let past = cluster.recent_points(metric, node, 0, 3);
        assert_eq!(past, full_history.then(|| vec![Some(1.0), Some(2.0), Some(3.0)]));
        assert_eq!(cluster.has_history(metric), full_history);
    }
}

#[test]
fn rates_follow_the_nodes_clock_and_handle_resets_gaps_and_wraps() {
    let io = host::IO_PRESSURE;
    let node_clock = [(0, Some(5_000), 1.0), (1_400, Some(6_000), 1.5), (2_000, Some(7_000), 1.5)];
    assert_eq!(compute_rates(io, &node_clock), [None, Some(0.5), Some(0.0)]);
    let engine_clock = [(0, None, 1.0), (2_000, None, 2.0)];
    assert_eq!(compute_rates(io, &engine_clock), [None, Some(0.5)]);
    let reset = [(0, None, 9.0), (1_000, None, 1.0), (2_000, None, 2.0)];
    assert_eq!(compute_rates(io, &reset), [None, None, Some(1.0)]);
    let gap = [(0, None, 1.0), (3_001, None, 2.0), (4_001, None, 3.0)];
    assert_eq!(compute_rates(io, &gap), [None, None, Some(1.0)]);
    let repeated = [
        (0, Some(0), 1.0),
        (1_000, Some(1_000), 2.0),
        (2_000, Some(1_000), 9.0),
        (3_000, Some(3_000), 4.0),
    ];
    assert_eq!(compute_rates(io, &repeated), [None, Some(1.0), Some(1.0), Some(1.0)]);
    let clock_set_back =
        [(0, Some(9_000), 1.0), (1_000, Some(2_000), 2.0), (2_000, Some(3_000), 4.0)];
    assert_eq!(compute_rates(io, &clock_set_back), [None, None, Some(2.0)]);
    let clock_jump =
        [(0, Some(0), 1.0), (1_000, Some(3_600_000), 2.0), (2_000, Some(3_601_000), 4.0)];
    assert_eq!(compute_rates(io, &clock_jump), [None, None, Some(2.0)]);
    let other_clock = [(0, None, 1.0), (1_000, Some(1_100), 2.0), (2_000, Some(2_100), 4.0)];
    assert_eq!(compute_rates(io, &other_clock), [None, None, Some(2.0)]);
    let wrap = [(0, None, 4_294_967_290.0), (1_000, None, 4.0)];
    assert_eq!(compute_rates(port::OUT_OF_SEQUENCE, &wrap), [None, Some(10.0)]);
    let saturated =
        [(0, None, 254.0), (1_000, None, 255.0), (2_000, None, 255.0), (3_000, None, 3.0)];
    assert_eq!(compute_rates(port::LINK_DOWNED, &saturated), [None; 4]);
}

#[test]
fn counter_at_its_maximum_is_saturated_and_absent_is_never_zero() {
    let mut cluster = new_cluster(&[(1, "a:1", None)]);
    let port = Device::new_port("mlx5_0", "1");
    let page = node_report(
        "a",
        None,
        &[
            (port.clone(), port::SYMBOL_ERRORS, 65_535.0.into()),
            (port.clone(), port::STATE, AbsenceReason::NoPermission.into()),
            (port.clone(), port::LINK_DOWNED, 7.0.into()),
        ],
    );
    send_page(&mut cluster, 1, 1_000, Dialect::Gaunt, page);
    let row = row_of(&cluster, "a", &port);
    assert_eq!(
        cluster.current_reading(port::SYMBOL_ERRORS, row),
        Some(AbsenceReason::Saturated.into())
    );
    assert_eq!(cluster.current_reading(port::STATE, row), Some(AbsenceReason::NoPermission.into()));
    assert_eq!(cluster.current_reading(port::RATE, row), None, "never named");
    assert_eq!(cluster.current_value(port::LINK_DOWNED, row), Some(7.0));
    assert_eq!(cluster.current_rate(port::LINK_DOWNED, row), None, "one sample makes no rate");
    cluster.advance_to(UnixMs(4_000));
    assert_eq!(cluster.current_value(port::LINK_DOWNED, row), Some(7.0));
    cluster.advance_to(UnixMs(4_001));
    assert_eq!(cluster.current_reading(port::LINK_DOWNED, row), Some(AbsenceReason::Stale.into()));
    assert_eq!(cluster.last_value(port::LINK_DOWNED, row), Some(7.0));
}

#[test]
fn dialects_of_one_node_merge_and_the_native_one_wins_per_class() {
    let mut cluster = new_cluster(&[(1, "a:9100", None), (2, "a:9400", None), (3, "a:9770", None)]);
    let pressure = |value: f64| (Device::new_node(), host::MEMORY_AVAILABLE, Reading::of(value));
    let load = |value: f64| (Device::new_gpu(0), gpu::UTILIZATION, Reading::of(value));
    send_page(
        &mut cluster,
        1,
        1_000,
        Dialect::NodeExporter,
        node_report("a", None, &[pressure(1.0)]),
    );
    send_page(&mut cluster, 2, 1_100, Dialect::Dcgm, node_report("a", None, &[load(0.1)]));
    assert_eq!(cluster.sorted_nodes().count(), 1);
    let (node, gpu) =
        (row_of(&cluster, "a", &Device::new_node()), row_of(&cluster, "a", &Device::new_gpu(0)));
    send_page(&mut cluster, 3, 1_200, Dialect::Gaunt, node_report("a", None, &[load(0.9)]));
    send_page(&mut cluster, 2, 1_300, Dialect::Dcgm, node_report("a", None, &[load(0.2)]));
    assert_eq!(cluster.current_value(gpu::UTILIZATION, gpu), Some(0.9), "dcgm is shadowed");
    assert_eq!(cluster.current_value(host::MEMORY_AVAILABLE, node), Some(1.0));
    send_page(&mut cluster, 2, 5_000, Dialect::Dcgm, node_report("a", None, &[load(0.3)]));
    assert_eq!(
        cluster.current_value(gpu::UTILIZATION, gpu),
        Some(0.3),
        "the native one fell silent"
    );
    assert!(cluster.tracked_targets().iter().all(|target| target.flag.is_none()));
}

#[test]
fn two_targets_of_one_dialect_never_merge() {
    let mut cluster = new_cluster(&[(1, "a:1", None), (2, "b:1", None)]);
    let load = |value: f64| [(Device::new_gpu(0), gpu::UTILIZATION, Reading::of(value))];
    send_page(&mut cluster, 1, 1_000, Dialect::Gaunt, node_report("box", None, &load(0.5)));
    send_page(&mut cluster, 2, 1_100, Dialect::Gaunt, node_report("box", None, &load(0.9)));
    let gpu = row_of(&cluster, "box", &Device::new_gpu(0));
    assert_eq!(cluster.current_value(gpu::UTILIZATION, gpu), Some(0.5));
    let flag = cluster.tracked_targets()[1].flag.as_ref().unwrap();
    assert_eq!(
        flag.as_str(),
        "a:1 and b:1 both report node box; only the first is used: remove one, or name them \
         differently with NODE=ADDRESS"
    );
    assert_eq!(cluster.tracked_targets()[1].node, None);
    send_page(&mut cluster, 2, 2_100, Dialect::Gaunt, node_report("b", None, &load(0.9)));
    assert!(cluster.tracked_targets()[1].flag.is_none());
    assert_eq!(
        cluster.sorted_nodes().map(|(_, n)| n.name.as_str()).collect::<Vec<_>>(),
        ["b", "box"]
    );
}

#[test]
fn renamed_target_leaves_its_old_node_stale() {
    let mut cluster = new_cluster(&[(1, "a:1", None)]);
    let load = [(Device::new_gpu(0), gpu::UTILIZATION, Reading::of(0.5))];
    send_page(&mut cluster, 1, 1_000, Dialect::Gaunt, node_report("old", None, &load));
    for at in 2..6 {
        send_page(&mut cluster, 1, at * 1_000, Dialect::Gaunt, node_report("new", None, &load));
    }
    let freshness = |name: &str| cluster.node_freshness(cluster.node_by_name(name).unwrap().1);
    assert_eq!((freshness("old"), freshness("new")), (NodeFreshness::Stale, NodeFreshness::Live));
    let old = row_of(&cluster, "old", &Device::new_gpu(0));
    assert_eq!(cluster.current_reading(gpu::UTILIZATION, old), Some(AbsenceReason::Stale.into()));
}

/// A target in backoff is neither attempted nor missed: the result of its last attempt stays.
#[test]
fn target_in_backoff_counts_neither_as_tried_nor_as_missed() {
    let mut cluster = new_cluster(&[(1, "a:1", None)]);
    send_failure(&mut cluster, 1, 1_000);
    for at in [2_000, 3_000, 4_000, 5_000, 6_000] {
        let last = Box::new(ScrapeFailure::Connect("connection refused".into()));
        let outcome = Err(ScrapeFailure::Resting(last));
        let batch = Batch { target: TargetId(1), at: UnixMs(at), duration_ms: 0.0, outcome };
        cluster.ingest_delivery(Delivery::Batch(batch));
        cluster.advance_to(UnixMs(at));
    }
    let target = cluster.target_by_id(TargetId(1)).unwrap();
    assert_eq!((target.health, target.failures, target.missed), (TargetHealth::Down, 1, 0));
    assert_eq!(target.failure, Some(ScrapeFailure::Connect("connection refused".into())));
    assert_eq!(target.last_attempt, Some(UnixMs(1_000)));
}

#[test]
fn target_without_a_batch_is_missed_each_period_and_down() {
    let mut cluster = new_cluster(&[(1, "a:1", None)]);
    let health_and_missed = |cluster: &Cluster| {
        (cluster.tracked_targets()[0].health, cluster.tracked_targets()[0].missed)
    };
    cluster.advance_to(UnixMs(2_700));
    assert_eq!(health_and_missed(&cluster), (TargetHealth::Pending, 0));
    cluster.advance_to(UnixMs(2_800));
    assert_eq!(health_and_missed(&cluster), (TargetHealth::Down, 1));
    cluster.advance_to(UnixMs(6_800));
    assert_eq!(health_and_missed(&cluster), (TargetHealth::Down, 5));
    send_page(&mut cluster, 1, 7_000, Dialect::Gaunt, node_report("a", None, &[]));
    cluster.advance_to(UnixMs(9_200));
    assert_eq!(health_and_missed(&cluster), (TargetHealth::Live, 5));
    send_failure(&mut cluster, 1, 9_250);
    assert_eq!(health_and_missed(&cluster), (TargetHealth::Down, 5));
    send_failure(&mut cluster, 1, 10_250);
    assert_eq!(cluster.node_freshness(cluster.node_by_name("a").unwrap().1), NodeFreshness::Down);
}

#[test]
fn page_with_an_unchanged_clock_is_not_a_new_sample() {
    let mut cluster = new_cluster(&[(1, "a:1", None)]);
    let load = |value: f64| [(Device::new_gpu(0), gpu::UTILIZATION, Reading::of(value))];
    for at in 1..7 {
        send_page(
            &mut cluster,
            1,
            at * 1_000,
            Dialect::Gaunt,
            node_report("a", Some(77), &load(0.1 * at as f64)),
        );
    }
    assert_eq!(cluster.tracked_targets()[0].health, TargetHealth::Live);
    assert_eq!(cluster.node_freshness(cluster.node_by_name("a").unwrap().1), NodeFreshness::Stale);
    let gpu = row_of(&cluster, "a", &Device::new_gpu(0));
    assert_eq!(cluster.last_value(gpu::UTILIZATION, gpu), Some(0.1));
    let flag = cluster.tracked_targets()[0].flag.as_ref().unwrap();
    assert!(flag.starts_with("a:1: scraped, but"), "{flag}");
}

#[test]
fn page_without_a_known_metric_is_flagged_and_makes_no_node() {
    let mut cluster = new_cluster(&[(1, "a:1", None)]);
    send_page(&mut cluster, 1, 1_000, Dialect::Unknown, Report::default());
    assert_eq!(cluster.sorted_nodes().count(), 0);
    assert_eq!(cluster.tracked_targets()[0].health, TargetHealth::Live);
    let flag = cluster.tracked_targets()[0].flag.as_ref().unwrap();
    assert!(flag.contains("no known metric; "), "{flag}");
    let names = ["b", "c", "d", "e", "f"].map(SanitizedText::new).into();
    let rejected = RejectionCounts {
        fields: FieldCounts { known: 0, unknown: 5, names },
        ..RejectionCounts::default()
    };
    let dialect = Dialect::Unknown;
    let page = ScrapedPage { report: Report::default(), dialect, bytes: 1, rejected };
    let (target, at, duration_ms) = (TargetId(1), UnixMs(2_000), 1.0);
    cluster.ingest_delivery(Delivery::Batch(Batch { target, at, duration_ms, outcome: Ok(page) }));
    let flag = cluster.tracked_targets()[0].flag.as_ref().unwrap();
    assert!(flag.contains("no known metric (b, c, d, e, …); "), "{flag}");
}

#[test]
fn page_of_an_aggregator_is_flagged_and_makes_no_node() {
    let mut cluster = new_cluster(&[(1, "a:1", None)]);
    send_page(&mut cluster, 1, 1_000, Dialect::Gaunt, Report::default());
    assert_eq!(cluster.sorted_nodes().count(), 0);
    let flag = cluster.tracked_targets()[0].flag.as_ref().unwrap();
    assert!(flag.contains("this is an aggregator"), "{flag}");
}

#[test]
fn samples_of_unknown_devices_and_metrics_are_skipped() {
    let mut cluster = new_cluster(&[(1, "a:1", None)]);
    let mut page =
        node_report("a", Some(i64::MAX), &[(Device::new_gpu(0), gpu::UTILIZATION, 0.5.into())]);
    page.push(99, gpu::UTILIZATION, 0.7);
    page.push(0, host::CPU_BUSIEST, 0.7);
    page.push(0, MetricId(u16::MAX), 0.7);
    page.push(0, gpu::INFO, 1.0);
    send_page(&mut cluster, 1, 1_000, Dialect::Gaunt, page);
    let gpu = row_of(&cluster, "a", &Device::new_gpu(0));
    assert_eq!(cluster.current_value(gpu::UTILIZATION, gpu), Some(0.5));
    assert_eq!(cluster.node_by_name("a").unwrap().1.own_row(), None);
}

#[test]
fn devices_of_one_node_are_bounded() {
    let mut cluster = new_cluster(&[(1, "a:1", None)]);
    let devices = (0..2_000).map(|index| Device::new_netdev(&format!("veth{index}")));
    let samples: Vec<_> =
        devices.map(|device| (device, host::NETDEV_CARRIER, Reading::of(1.0))).collect();
    send_page(&mut cluster, 1, 1_000, Dialect::Gaunt, node_report("a", None, &samples));
    let (_, node) = cluster.node_by_name("a").unwrap();
    assert_eq!(node.device_rows(DeviceClass::Netdev).len(), 1_024);
    let later = 1_000 + 11 * 60_000;
    send_page(
        &mut cluster,
        1,
        later,
        Dialect::Gaunt,
        node_report("a", None, &samples[1_500..1_501]),
    );
    cluster.advance_to(UnixMs(later + 60_000));
    send_page(
        &mut cluster,
        1,
        later + 61_000,
        Dialect::Gaunt,
        node_report("a", None, &samples[1_500..1_501]),
    );
    let (_, node) = cluster.node_by_name("a").unwrap();
    assert_eq!(node.device_rows(DeviceClass::Netdev).len(), 1, "what no page names is forgotten");
    let row = node.device_rows(DeviceClass::Netdev)[0];
    assert_eq!(
        cluster.device_at(DeviceClass::Netdev, row).unwrap().device,
        Device::new_netdev("veth1500")
    );
    assert_eq!(cluster.current_value(host::NETDEV_CARRIER, row), Some(1.0));
}

#[test]
fn removed_targets_remove_their_nodes_and_clear_the_rows() {
    let mut cluster = new_cluster(&[(1, "a:1", None), (2, "b:1", None)]);
    let load = |value: f64| [(Device::new_gpu(0), gpu::UTILIZATION, Reading::of(value))];
    send_page(&mut cluster, 1, 1_000, Dialect::Gaunt, node_report("a", None, &load(0.5)));
    send_page(&mut cluster, 2, 1_000, Dialect::Gaunt, node_report("b", None, &load(0.6)));
    cluster.ingest_delivery(Delivery::Targets(new_targets(&[(2, "b:1", None), (3, "c:1", None)])));
    assert!(cluster.node_by_name("a").is_none());
    let quiet = [(Device::new_gpu(0), gpu::PROCESSES, Reading::of(0.0))];
    send_page(&mut cluster, 3, 2_000, Dialect::Gaunt, node_report("c", None, &quiet));
    send_page(&mut cluster, 1, 2_000, Dialect::Gaunt, node_report("a", None, &load(0.9)));
    assert!(cluster.node_by_name("a").is_none(), "a batch of a retired target is not taken");
    let (b, c) =
        (row_of(&cluster, "b", &Device::new_gpu(0)), row_of(&cluster, "c", &Device::new_gpu(0)));
    assert_eq!(cluster.current_value(gpu::UTILIZATION, b), Some(0.6));
    assert_eq!(cluster.current_reading(gpu::UTILIZATION, c), None);
    let (_, node) = cluster.node_by_name("c").unwrap();
    assert_eq!(cluster.recent_points(gpu::UTILIZATION, node, c, 10), None);
}

/// Baselines go on where a GPU gets the row that it had before: which rows are free first must not be a matter of chance.
#[test]
fn rows_of_removed_nodes_are_given_again_in_one_order() {
    let targets = |first: u32| -> Vec<ScrapeTarget> {
        let target = |number| {
            let address = format!("n{number:02}:1");
            new_targets(&[(first + number, &address, None)])
        };
        (0..20).flat_map(target).collect()
    };
    let rows_after_renewal = || -> Vec<u32> {
        let mut cluster = new_cluster(&[]);
        for first in [0, 100] {
            cluster.ingest_delivery(Delivery::Targets(targets(first)));
            for number in 0..20 {
                let busy = [(Device::new_gpu(0), gpu::UTILIZATION, Reading::Value(0.5))];
                let report = node_report(&format!("n{number:02}"), None, &busy);
                send_page(&mut cluster, first + number, 1_000, Dialect::Gaunt, report);
            }
        }
        let rows =
            (0..20).map(|number| row_of(&cluster, &format!("n{number:02}"), &Device::new_gpu(0)));
        rows.collect()
    };
    let rows = rows_after_renewal();
    assert!(rows.iter().all(|row| *row < 20), "{rows:?}");
    assert_eq!(rows_after_renewal(), rows);
}

#[test]
fn jobs_come_and_go_with_their_info_series() {
    let mut cluster = new_cluster(&[(1, "a:1", None)]);
    let load = [(Device::new_gpu(0), gpu::UTILIZATION, Reading::of(0.5))];
    let mut page = node_report("a", None, &load);
    page.add_info(0, gpu::JOB_INFO, &[("job", "8812"), ("user", "alice")]);
    send_page(&mut cluster, 1, 1_000, Dialect::Gaunt, page);
    let gpu = row_of(&cluster, "a", &Device::new_gpu(0));
    assert_eq!(cluster.job_of_gpu(gpu).unwrap(), &"8812");
    assert_eq!(cluster.gpus_by_job().get("8812"), Some(&vec![gpu]));
    send_page(&mut cluster, 1, 2_000, Dialect::Gaunt, node_report("a", None, &load));
    assert_eq!(cluster.job_of_gpu(gpu), None);
    assert!(cluster.gpus_by_job().is_empty());
}

#[test]
fn history_stays_within_its_limit_and_the_newest_is_kept() {
    let mut cluster = Cluster::new(Duration::from_secs(1), 900).with_history_limit(50_000);
    cluster.ingest_delivery(Delivery::Targets(new_targets(&[(0, "a:1", None)])));
    let (mut random, mut max_bytes) = (7_u32, 0);
    for second in 1..900_i64 {
        let mut page = String::from("gaunt_node_info{node=\"a\"} 1\n");
        for gpu in 0..64 {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let watts = f64::from(random >> 8) / 1e5;
            writeln!(page, "gaunt_gpu_power_watts{{gpu=\"{gpu}\"}} {watts}").unwrap();
        }
        let at = UnixMs(second * 1_000);
        let outcome = gaunt_schema::text::decode_page(
            page.as_bytes(),
            &gaunt_schema::text::PageLimits::default(),
        );
        cluster.ingest_delivery(Delivery::Batch(Batch {
            target: TargetId(0),
            at,
            duration_ms: 1.0,
            outcome,
        }));
        cluster.advance_to(at);
        max_bytes = max_bytes.max(cluster.history_bytes());
    }
    assert!(max_bytes <= 50_000 && max_bytes > 30_000, "{max_bytes}");
    let (_, node) = cluster.node_by_name("a").unwrap();
    let past = cluster.recent_points(gpu::POWER, node, 0, usize::MAX).unwrap();
    let points = past.iter().flatten().count();
    assert!(
        (100..899).contains(&points) && past[900 - points..].iter().all(Option::is_some),
        "{points}"
    );
}
