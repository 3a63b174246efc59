//! Bench `growth`: the judge's CPU time for each signal of a small and of a large fleet. Each signal costs the same in
//! both, whatever is wrong with the fleet: a part that grows with the square of the fleet shows as a ratio.

use std::io::Write;

use gaunt_schema::{
    Device, DeviceClass, InfoSeries, MetricSample, Report, SanitizedText,
    catalogue::{gpu, port},
};
use gaunt_sim::{Scenario, scenario};
use serde_json::json;

use crate::judge_bench::time_judge;

/// Nodes of the small fleet, and of the large one.
const NODES: [usize; 2] = [128, 1_024];

/// From this second on a change that is a fault applies.
const ONSET: i64 = 15;

/// Changes a report, given the second since the start.
type ReportChange = fn(&mut Report, i64);

/// What is changed in every report of a healthy fleet, by name.
const CHANGES: [(&str, ReportChange); 7] = [
    ("one job", |report, _| hold_all_by_one_job(report)),
    ("no jobs", |report, _| report.infos.retain(|info| info.metric != gpu::JOB_INFO)),
    ("one job, all capped", |report, second| {
        hold_all_by_one_job(report);
        if second >= ONSET {
            cap_power(report);
        }
    }),
    ("one job, a third capped", |report, second| {
        hold_all_by_one_job(report);
        if second >= ONSET && sum_of_name(report).is_multiple_of(3) {
            cap_power(report);
        }
    }),
    ("one job, all starved", |report, second| {
        hold_all_by_one_job(report);
        if second >= ONSET {
            scale_gpu(report, gpu::UTILIZATION, 0.1);
            scale_gpu(report, gpu::TENSOR_ACTIVE, 0.1);
        }
    }),
    ("a port down everywhere", |report, _| add_unused_port(report)),
    ("every rate different", |report, _| {
        let name = sum_of_name(report);
        for sample in report.samples.iter_mut().filter(|sample| sample.metric == port::RATE) {
            sample.reading = (25e9 + (name as f64) * 1e6 + f64::from(sample.device) * 1e8).into();
        }
    }),
];

/// Options of the bench.
#[derive(Debug, clap::Args)]
pub(crate) struct GrowthOptions {
    /// `growth`: only fleets with this in their name
    #[arg(long, value_name = "TEXT")]
    fleets: Option<String>,
}

/// Prints a row for each scenario and each change, and the largest ratio.
pub(crate) fn run(options: &GrowthOptions, out: &mut dyn Write) -> anyhow::Result<()> {
    let [small, large] = NODES;
    writeln!(out, "{:<24} ns a signal at {small} nodes, at {large}   ratio", "fleet")?;
    let mut worst = (0.0, String::new());
    let healthy = Scenario::from_name("healthy")?;
    let scenarios = scenario::list_all().iter();
    let unchanged: ReportChange = |_, _| {};
    let fleets = scenarios
        .map(|scenario| (scenario.name.as_str(), scenario.clone(), unchanged))
        .chain(CHANGES.map(|(name, change)| (name, healthy.clone(), change)));
    let is_wanted = |name: &str| options.fleets.as_ref().is_none_or(|text| name.contains(text));
    for (name, scenario, change) in fleets.filter(|(name, ..)| is_wanted(name)) {
        let mut cost = [0.0; 2];
        for (cost, nodes) in cost.iter_mut().zip(NODES) {
            *cost = time_judge(scenario.clone(), nodes, change)?.ns_per_signal;
        }
        let ratio = cost[1] / cost[0];
        writeln!(out, "{name:<24} {:>26.1} {:>10.1} {ratio:>7.2}", cost[0], cost[1])?;
        if ratio > worst.0 {
            worst = (ratio, name.to_owned());
        }
    }
    let line = json!({ "nodes": NODES, "worst_ratio": worst.0, "worst": worst.1 });
    writeln!(out, "{line}")?;
    Ok(())
}

/// One job holds every GPU.
fn hold_all_by_one_job(report: &mut Report) {
    report.infos.retain(|info| info.metric != gpu::JOB_INFO);
    let label = (SanitizedText::from("job"), SanitizedText::from("1"));
    for (device, _) in
        (0..).zip(report.devices.clone().iter()).filter(|(_, it)| it.class == DeviceClass::Gpu)
    {
        let labels = vec![label.clone()].into();
        report.infos.push(InfoSeries { metric: gpu::JOB_INFO, device, labels });
    }
}

fn cap_power(report: &mut Report) {
    scale_gpu(report, gpu::SM_CLOCK, 0.6);
    scale_gpu(report, gpu::TENSOR_ACTIVE, 0.7);
    set_gpu(report, gpu::CLOCK_EVENT_SW_POWER_CAP, 1.0);
}

/// A number that differs between nodes.
fn sum_of_name(report: &Report) -> usize {
    let name = report.node.as_ref();
    name.map_or(0, |name| name.len() + name.bytes().map(usize::from).sum::<usize>())
}

/// Adds a port without a cable, as the second one of a card.
fn add_unused_port(report: &mut Report) {
    let device = report.ensure_device(Device::new_port("mlx5_90", "1"));
    for (metric, value) in [(port::STATE, 1.0), (port::PHYSICAL_STATE, 2.0)] {
        report.push(device, metric, value);
    }
}

fn samples_of(
    report: &mut Report,
    metric: gaunt_schema::MetricId,
) -> impl Iterator<Item = &mut MetricSample> {
    report.samples.iter_mut().filter(move |sample| sample.metric == metric)
}

fn scale_gpu(report: &mut Report, metric: gaunt_schema::MetricId, factor: f64) {
    for sample in samples_of(report, metric) {
        if let Some(value) = sample.reading.value() {
            sample.reading = (value * factor).into();
        }
    }
}

fn set_gpu(report: &mut Report, metric: gaunt_schema::MetricId, value: f64) {
    samples_of(report, metric).for_each(|sample| sample.reading = value.into());
}
