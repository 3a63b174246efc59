//! Tests: invariants of a fleet, and that its faults are visible in its signals alone.

#![expect(clippy::float_cmp, reason = "counters and codes are whole numbers")]

use std::{collections::HashMap, ops::Range};

use gaunt_schema::{
    Device, Dialect, EntityKind, MetricId, MetricSample, Reading,
    catalogue::{gpu, host, port},
    text,
    unit::{CounterWidth, MetricKind},
};

use super::*;
use crate::GPUS_PER_NODE;

const START: UnixMs = UnixMs(1_790_000_000_000);

fn named_fleet(scenario: &str, nodes: usize, seed: u64) -> SimFleet {
    SimFleet::new(Scenario::from_name(scenario).unwrap(), nodes, seed, START)
}

fn after_start(seconds: f64) -> UnixMs {
    START + Duration::from_secs_f64(seconds)
}

fn metric_value(report: &Report, device: &Device, metric: MetricId) -> f64 {
    report.find_reading(device, metric).unwrap().value().unwrap()
}

fn port_of(rail: usize) -> Device {
    Device::new_port(&format!("mlx5_{rail}"), "1")
}

/// Bytes sent and received by all ports of some nodes.
fn port_traffic(fleet: &SimFleet, nodes: Range<usize>) -> (f64, f64) {
    nodes.map(|node| fleet.node_report(node)).fold((0.0, 0.0), |(sent, received), report| {
        (0..GPUS_PER_NODE).fold((sent, received), |(sent, received), rail| {
            let bytes = |metric| metric_value(&report, &port_of(rail), metric);
            (sent + bytes(port::TRANSMIT_BYTES), received + bytes(port::RECEIVE_BYTES))
        })
    })
}

#[test]
fn job_group_traffic_sent_equals_received_before_and_after_port_down() {
    let mut fleet = named_fleet("demo", 32, 3);
    let groups: Vec<_> = fleet.job_groups().collect();
    let mut last: Vec<_> = groups.iter().map(|group| port_traffic(&fleet, group.clone())).collect();
    for second in 1..40 {
        fleet.advance_to(after_start(f64::from(second) + 0.37));
        for (group, last) in groups.iter().zip(&mut last) {
            let now = port_traffic(&fleet, group.clone());
            let (sent, received) = (now.0 - last.0, now.1 - last.1);
            // Each port may hold back one word of four bytes in each direction.
            let rounding = 8.0 * (group.len() * GPUS_PER_NODE) as f64;
            assert!((sent - received).abs() <= rounding, "sent {sent}, received {received}");
            assert_eq!(sent > 0.0, group.len() > 1 && now != *last);
            *last = now;
        }
    }
}

#[test]
fn rank_is_never_ahead_of_its_job_group() {
    let mut fleet = named_fleet("data_starved", 32, 4);
    let tensor = |fleet: &SimFleet, group: Range<usize>| -> Vec<f64> {
        let gpus = group.flat_map(|node| fleet.machines[node].gpus.clone());
        gpus.map(|gpu| gpu.shown.tensor_s).collect()
    };
    let groups: Vec<_> = fleet.job_groups().collect();
    let start: Vec<_> = groups.iter().map(|group| tensor(&fleet, group.clone())).collect();
    fleet.advance_to(after_start(300.0));
    for (group, start) in groups.into_iter().zip(start) {
        let done = tensor(&fleet, group).into_iter().zip(start).map(|(now, before)| now - before);
        let (min, max) =
            done.fold((f64::MAX, 0.0_f64), |(min, max), done| (min.min(done), max.max(done)));
        // A step is less than 0.15 tensor seconds; GPUs differ by noise, which averages out.
        assert!(min > 5.0 && max - min < 0.3, "{min} to {max}");
    }
}

#[test]
fn seed_determines_fleet_whatever_the_sampling_interval() {
    let counters = |fleet: &SimFleet| -> Vec<MetricSample> {
        let samples = (0..fleet.node_count()).flat_map(|node| fleet.node_report(node).samples);
        samples
            .filter(|sample| matches!(sample.metric.catalogue_row().kind, MetricKind::Counter(_)))
            .collect()
    };
    let (mut one_step, mut many_steps, mut other) =
        (named_fleet("demo", 20, 7), named_fleet("demo", 20, 7), named_fleet("demo", 20, 8));
    one_step.advance_to(after_start(47.0));
    for step in 1..=(47 * 7) {
        many_steps.advance_to(after_start(f64::from(step) / 7.0));
    }
    other.advance_to(after_start(47.0));
    assert_eq!(counters(&one_step), counters(&many_steps));
    assert_ne!(counters(&one_step), counters(&other));
    let repeated = {
        let mut repeated = named_fleet("demo", 20, 7);
        repeated.advance_to(after_start(47.0));
        repeated
    };
    for node in 0..20 {
        assert_eq!(repeated.node_report(node), one_step.node_report(node));
    }
}

#[test]
fn counters_never_fall_and_activity_stays_a_share() {
    let mut fleet = named_fleet("demo", 24, 11);
    let mut last: HashMap<(usize, u32, MetricId), f64> = HashMap::new();
    let mut now = 0.0;
    for sample_number in 0..160_u32 {
        now += 0.013 + f64::from(sample_number % 11) * 0.11;
        fleet.advance_to(after_start(now));
        for node in 0..fleet.node_count() {
            for MetricSample { metric, device, reading } in fleet.node_report(node).samples {
                let row = metric.catalogue_row();
                let Some(value) = reading.value() else { continue };
                if row.name.ends_with("_ratio") {
                    assert!((0.0..=1.0).contains(&value), "{} is {value}", row.name);
                }
                if matches!(row.kind, MetricKind::Counter(width) if width != CounterWidth::Wrapping32)
                {
                    let before = last.insert((node, device, metric), value).unwrap_or(0.0);
                    assert!(value >= before, "{} fell from {before} to {value}", row.name);
                }
            }
        }
    }
}

#[test]
fn integrals_agree_with_the_ratios_that_they_integrate() {
    let mut fleet = named_fleet("healthy", 4, 2);
    let device = Device::new_gpu(3);
    let pair = [
        (gpu::TENSOR_ACTIVE, gpu::TENSOR_ACTIVE_SECONDS),
        (gpu::SM_ACTIVE, gpu::SM_ACTIVE_SECONDS),
    ];
    for (ratio, seconds) in pair {
        let before = metric_value(&fleet.node_report(1), &device, seconds);
        fleet.advance_to(fleet.current_time() + Duration::from_secs(4));
        let report = fleet.node_report(1);
        let mean = (metric_value(&report, &device, seconds) - before) / 4.0;
        assert!((mean - metric_value(&report, &device, ratio)).abs() < 2e-4);
        assert!(mean > 0.2);
    }
}

#[test]
fn values_survive_encoding() {
    let mut fleet = named_fleet("demo", 32, 6);
    fleet.advance_to(after_start(40.0));
    for node in 0..32 {
        let report = fleet.node_report(node);
        let mut body = String::new();
        text::write_text(&report, &mut body);
        let page = text::decode_page(body.as_bytes(), &text::PageLimits::default()).unwrap();
        assert_eq!(
            (page.rejected.total_count(), page.dialect),
            (0, Dialect::Gaunt),
            "{:?}",
            page.rejected
        );
        let read: HashMap<_, _> = readings_by_series(&page.report).collect();
        assert_eq!(read.len(), page.report.samples.len());
        assert_eq!(readings_by_series(&report).collect::<HashMap<_, _>>(), read);
        assert_eq!(page.report.node_time, Some(after_start(40.0)));
        assert_eq!(page.report.infos.len(), report.infos.len());
    }
}

fn readings_by_series(report: &Report) -> impl Iterator<Item = ((MetricId, &Device), Reading)> {
    let device = |sample: &MetricSample| &report.devices[sample.device as usize];
    report.samples.iter().map(move |sample| ((sample.metric, device(sample)), sample.reading))
}

#[test]
fn ground_truth_blames_existing_entities_at_any_size() {
    for scenario in crate::scenario::list_all() {
        for nodes in [1, 2, 3, 8, 30, 32, 200] {
            let fleet = named_fleet(&scenario.name, nodes, 1);
            // A harmless look-alike has no ground truth, and neither has a fabric fault of a single-node job.
            let breaks = scenario.name != "checkpoint" && nodes > 1;
            let min_truths = if breaks { scenario.faults.len() } else { 0 };
            assert!((min_truths..=scenario.faults.len()).contains(&fleet.ground_truths().len()));
            for truth in fleet.ground_truths() {
                assert!(truth.onset > START);
                let Some(name) = truth.blamed.node.as_ref() else { continue };
                let node = (0..nodes).find(|&node| fleet.node_name(node) == name.as_str()).unwrap();
                if truth.blamed.kind == EntityKind::Port {
                    let key = vec![
                        truth.blamed.device.clone().unwrap(),
                        truth.blamed.port.clone().unwrap(),
                    ];
                    let devices = fleet.node_report(node).devices;
                    assert!(devices.iter().any(|device| *device.key == *key));
                }
            }
        }
    }
    assert_eq!(named_fleet("demo", 0, 1).ground_truths(), []);
}

#[test]
fn port_down_shows_at_once_and_neighbour_carries_load() {
    let mut fleet = named_fleet("port_down", 32, 5);
    let port_value = |fleet: &SimFleet, rail, metric| {
        metric_value(&fleet.node_report(5), &port_of(rail), metric)
    };
    fleet.advance_to(after_start(14.999));
    let sent_bytes = port_value(&fleet, 3, port::TRANSMIT_BYTES);
    let link_downed = port_value(&fleet, 3, port::LINK_DOWNED);
    assert_eq!(
        (port_value(&fleet, 3, port::STATE), port_value(&fleet, 3, port::PHYSICAL_STATE)),
        (4.0, 5.0)
    );
    assert_eq!(fleet.ground_truths()[0].onset, after_start(15.0));
    fleet.advance_to(after_start(15.0));
    assert_eq!(
        (port_value(&fleet, 3, port::STATE), port_value(&fleet, 3, port::PHYSICAL_STATE)),
        (1.0, 3.0)
    );
    assert_eq!(port_value(&fleet, 3, port::LINK_DOWNED), link_downed + 1.0);
    assert_eq!(
        port_value(&fleet, 3, port::TRANSMIT_BYTES),
        sent_bytes,
        "a port without a link sends nothing"
    );
    let (before, other) =
        (port_value(&fleet, 2, port::TRANSMIT_BYTES), port_value(&fleet, 6, port::TRANSMIT_BYTES));
    fleet.advance_to(after_start(75.0));
    assert_eq!(port_value(&fleet, 3, port::TRANSMIT_BYTES), sent_bytes);
    let (moved, normal) = (
        port_value(&fleet, 2, port::TRANSMIT_BYTES) - before,
        port_value(&fleet, 6, port::TRANSMIT_BYTES) - other,
    );
    assert!((moved / normal - 2.0).abs() < 0.05, "{moved} against {normal}");
}

#[test]
fn port_comes_back_when_its_fault_ends() {
    let text = "name = \"flap\"\nsummary = \"a flap\"\n[[fault]]\nonset_s = 5.0\nlasts_s = 10.0\n\
                gang = 0\nmember = 0\neffect.port_down.rail = 0";
    let mut fleet = SimFleet::new(Scenario::parse(text).unwrap(), 2, 1, START);
    let state = |fleet: &SimFleet| metric_value(&fleet.node_report(0), &port_of(0), port::STATE);
    let sent_bytes =
        |fleet: &SimFleet| metric_value(&fleet.node_report(0), &port_of(0), port::TRANSMIT_BYTES);
    fleet.advance_to(after_start(14.0));
    let (down_state, before) = (state(&fleet), sent_bytes(&fleet));
    fleet.advance_to(after_start(20.0));
    assert_eq!((down_state, state(&fleet)), (1.0, 4.0));
    assert!(sent_bytes(&fleet) > before);
    let carrier = metric_value(
        &fleet.node_report(0),
        &Device::new_netdev("rail0"),
        host::NETDEV_CARRIER_CHANGES,
    );
    assert_eq!((carrier, fleet.ground_truths()[0].ends), (4.0, Some(after_start(15.0))));
}

#[test]
fn cpu_times_of_a_node_exporter_page_add_up_to_the_time_that_passes() {
    let scenario = Scenario::from_name("healthy").unwrap();
    let mut fleet = SimFleet::with_dialect(Dialect::Dcgm, scenario, 2, 1, START);
    let (templates, mut last) = (text::TemplateCache::default(), text::TemplateState::default());
    let shares = [0.0, 15.0].map(|second| {
        fleet.advance_to(after_start(second));
        let pages = fleet.scraped_pages(0);
        let (_, page) = pages.iter().find(|(of, _)| *of == Dialect::NodeExporter).unwrap();
        let page = templates.decode_page(&mut last, page.as_bytes(), &text::PageLimits::default());
        let busiest = page.unwrap().report.find_reading(&Device::new_node(), host::CPU_BUSIEST);
        busiest.and_then(Reading::value)
    });
    let cpus = metric_value(&fleet.node_report(0), &Device::new_node(), host::CPUS);
    let busiest = shares[1].expect("the share between two pages");
    assert!((busiest - 17.0 / cpus).abs() < 0.05, "17 of {cpus} CPUs are busy: {busiest}");
}

/// Exponential averages of one GPU, with the highest weight on the newest second.
#[derive(Clone, Copy, Debug, Default)]
struct MeanActivity {
    utilization: f64,
    tensor: f64,
    sm: f64,
    dram: f64,
    link: f64,
}

/// Advances second by second from the start to `until` and returns what the averages of the GPUs of some nodes, of
/// which one part in e is left after `memory_s`, were in each second of `observed`.
fn mean_activities(
    fleet: &mut SimFleet,
    nodes: Range<usize>,
    memory_s: f64,
    observed: Range<u32>,
) -> Vec<(usize, MeanActivity)> {
    let decay = (-1.0 / memory_s).exp();
    let mut means = vec![MeanActivity::default(); nodes.len() * GPUS_PER_NODE];
    let mut last_sent = vec![None; means.len()];
    let mut observed_means = Vec::new();
    for second in 1..observed.end {
        fleet.advance_to(after_start(f64::from(second)));
        for (position, (mean, last_sent)) in means.iter_mut().zip(&mut last_sent).enumerate() {
            let (node, index) = (nodes.start + position / GPUS_PER_NODE, position % GPUS_PER_NODE);
            let machine = &fleet.machines[node];
            let (now, before) = (&machine.gpus[index].shown, &machine.gpus[index].before);
            let bytes = machine.ports[index].shown.transmit;
            let rate = bytes - last_sent.replace(bytes).unwrap_or(bytes);
            let blend = |old: &mut f64, new: f64| {
                *old = if second == 1 { new } else { *old * decay + new * (1.0 - decay) };
            };
            blend(&mut mean.utilization, now.utilization_s - before.utilization_s);
            blend(&mut mean.tensor, now.tensor_s - before.tensor_s);
            blend(&mut mean.sm, now.sm_s - before.sm_s);
            blend(&mut mean.dram, now.dram_s - before.dram_s);
            blend(&mut mean.link, rate / 50e9);
            if observed.contains(&second) {
                observed_means.push((node, *mean));
            }
        }
    }
    observed_means
}

#[test]
fn starved_host_and_waiting_peers_differ_with_margin() {
    for (seed, memory_s) in (1..=20).map(|seed| (seed, if seed % 2 == 0 { 5.0 } else { 10.0 })) {
        let mut fleet = named_fleet("data_starved", 32, seed);
        let group = fleet.job_groups().nth(1).unwrap();
        let starved = group.start + 2;
        // Averages need 30 s to forget the healthy time before the onset at 15 s.
        for (node, mean) in mean_activities(&mut fleet, group, memory_s, 50..120) {
            assert!(mean.tensor < 0.045 && mean.dram < 0.08, "seed {seed}: {mean:?}");
            if node == starved {
                assert!(mean.utilization < 0.3 && mean.utilization > 0.025, "{mean:?}");
                assert!(mean.sm > 0.012, "it is not idle: {mean:?}");
            } else {
                assert!(mean.utilization > 0.95 && mean.sm < 0.3, "{mean:?}");
                assert!(mean.link < 0.04, "{mean:?}");
            }
        }
    }
}

#[test]
fn healthy_job_computes_with_a_port_down() {
    for (seed, scenario) in (0..12).zip(["healthy", "port_down"].into_iter().cycle()) {
        let mut fleet = named_fleet(scenario, 32, seed);
        let working = 0..fleet.job_groups().last().unwrap().end;
        for (_, mean) in mean_activities(&mut fleet, working, 5.0, 10..90) {
            assert!(mean.tensor > 0.27 && mean.utilization > 0.9, "{scenario}: {mean:?}");
        }
    }
}

#[test]
fn host_pressure_is_high_only_on_starved_host() {
    let mut fleet = named_fleet("data_starved", 32, 9);
    let starved = fleet.ground_truths()[0].blamed.node.clone().unwrap();
    let pressure = |fleet: &SimFleet, node| {
        metric_value(&fleet.node_report(node), &Device::new_node(), host::IO_PRESSURE)
    };
    fleet.advance_to(after_start(15.0));
    let before: Vec<_> = (0..32).map(|node| pressure(&fleet, node)).collect();
    fleet.advance_to(after_start(45.0));
    for (node, before) in before.into_iter().enumerate() {
        let share = (pressure(&fleet, node) - before) / 30.0;
        let is_starved = fleet.node_name(node) == starved.as_str();
        assert!(
            if is_starved { share > 0.5 } else { share < 0.03 },
            "{}: {share}",
            fleet.node_name(node)
        );
    }
}
