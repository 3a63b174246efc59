//! Bench `signals`: the metrics of a labelled run before and after its onset, by their relation to the fault.

use std::{collections::BTreeMap, io::Write, time::Duration};

use anyhow::{Context, anyhow};
use gaunt_schema::{
    Device, DeviceClass, Dialect, MetricId, Report, SanitizedText, UnixMs, text, unit::MetricKind,
};
use gaunt_sim::{GroundTruth, suite::SuiteCase};
use serde_json::json;

use crate::judge_bench::{JudgeBenchOptions, START};

/// Window before the onset, and window after it once every average has settled.
const BEFORE: Duration = Duration::from_mins(1);
const SETTLED: Duration = Duration::from_secs(15);
const AFTER: Duration = Duration::from_secs(75);

/// Scrape period.
const STEP: Duration = Duration::from_secs(5);

/// A mean that changes by less than this share is not printed.
const MIN_CHANGE: f64 = 0.05;

/// Relation of a value to the fault, from the ground truth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ValueSubject {
    /// The blamed entity.
    It,
    /// Its node.
    ItsNode,
    /// The same rail elsewhere in its job.
    ItsRail,
    /// Its job.
    Peers,
    /// All others.
    Others,
}

/// Sums over a window.
#[derive(Clone, Copy, Debug, Default)]
struct WindowSum {
    sum: f64,
    samples: u32,
}

impl WindowSum {
    fn add_value(&mut self, value: f64) {
        self.sum += value;
        self.samples += 1;
    }

    fn mean_value(self) -> Option<f64> {
        (self.samples > 0).then(|| self.sum / f64::from(self.samples))
    }
}

/// The last value of each counter, by node, device and metric.
type LastCounters = BTreeMap<(usize, Device, MetricId), (UnixMs, f64)>;

/// Means of each metric before and after, by relation to the fault.
#[derive(Debug, Default)]
struct SubjectMeans(BTreeMap<(MetricId, ValueSubject), [WindowSum; 2]>);

/// Prints the metrics that change with the onset of each selected run.
pub(crate) fn run(options: &JudgeBenchOptions, out: &mut dyn Write) -> anyhow::Result<()> {
    let mut runs = Vec::new();
    for case in options.select_cases()? {
        let lines =
            compare_case(&case, out).with_context(|| format!("cannot show {}", case.scenario))?;
        runs.push(json!({ "scenario": case.scenario, "seed": case.seed, "changes": lines }));
    }
    writeln!(out, "{}", json!({ "bench": "signals", "runs": runs }))?;
    Ok(())
}

fn compare_case(case: &SuiteCase, out: &mut dyn Write) -> anyhow::Result<usize> {
    let mut fleet = case.build_fleet(START);
    let truth = fleet.ground_truths().first().cloned();
    let onset = find_onset(case, &fleet, truth.as_ref());
    let mut means = SubjectMeans::default();
    let mut last = LastCounters::new();
    let (from, until) = (onset - BEFORE, onset + AFTER);
    let mut now = from;
    while now < until {
        fleet.advance_to(now);
        let window = match now {
            now if now < onset => Some(0),
            now if now >= onset + SETTLED => Some(1),
            _ => None,
        };
        for node in 0..fleet.node_count() {
            let name = fleet.node_name(node).to_owned();
            for (_, page) in fleet.scraped_pages(node) {
                let page = text::decode_page(page.as_bytes(), &text::PageLimits::default());
                let page = page.map_err(|failure| anyhow!("{failure:?}"))?;
                let subject_of =
                    |device: &Device| value_subject(case, truth.as_ref(), node, &name, device);
                means.add_report(&page.report, node, now, window, &mut last, subject_of);
            }
        }
        now = now + STEP;
    }
    write_changes(case, truth.as_ref(), &means, out)
}

/// The first onset: of the fault, or of the harmless look-alike.
fn find_onset(
    case: &SuiteCase,
    fleet: &gaunt_sim::SimFleet,
    truth: Option<&GroundTruth>,
) -> UnixMs {
    let first = fleet.scenario().faults.iter().map(|fault| fault.onset_s).fold(f64::MAX, f64::min);
    let first = if first < f64::from(case.seconds) { first } else { 100.0 };
    truth.map_or_else(|| START + Duration::from_secs_f64(first), |truth| truth.onset)
}

impl SubjectMeans {
    fn add_report(
        &mut self,
        report: &Report,
        node: usize,
        now: UnixMs,
        window: Option<usize>,
        last: &mut LastCounters,
        subject_of: impl Fn(&Device) -> ValueSubject,
    ) {
        for sample in &report.samples {
            let device = &report.devices[sample.device as usize];
            let Some(value) = sample.reading.value() else { continue };
            let value = if matches!(sample.metric.catalogue_row().kind, MetricKind::Counter(_)) {
                let key = (node, device.clone(), sample.metric);
                let Some((earlier, before)) = last.insert(key, (now, value)) else { continue };
                (value - before) / now.duration_since(earlier).as_secs_f64()
            } else {
                value
            };
            if let Some(window) = window {
                self.0.entry((sample.metric, subject_of(device))).or_default()[window]
                    .add_value(value);
            }
        }
    }
}

fn value_subject(
    case: &SuiteCase,
    truth: Option<&GroundTruth>,
    node: usize,
    name: &str,
    device: &Device,
) -> ValueSubject {
    let first = &case.shape.jobs[0].nodes;
    let Some(truth) = truth else {
        return if first.contains(&node) { ValueSubject::It } else { ValueSubject::Others };
    };
    let blamed = &truth.blamed;
    let key = device.key.first().map(SanitizedText::as_str).unwrap_or_default();
    let rail = key.strip_prefix("mlx5_").or_else(|| key.strip_prefix("rail"));
    let its_rail = blamed.rail.as_ref().map(SanitizedText::as_str);
    let its_rail = its_rail.or_else(|| blamed.device.as_ref()?.strip_prefix("mlx5_"));
    let its_rail =
        its_rail.or_else(|| blamed.leaf.as_ref()?.rsplit_once("-r").map(|(_, rail)| rail));
    let on_rail = rail.is_some() && rail == its_rail;
    let is_on_node = blamed.node.as_ref().is_some_and(|node| node.as_str() == name);
    let mut leaf = blamed.leaf.iter();
    let is_below_leaf =
        leaf.any(|leaf| leaf.starts_with(&format!("leaf-{:02}-", node / case.shape.leaf_nodes)));
    let is_itself = match device.class {
        DeviceClass::Gpu | DeviceClass::Nvlink | DeviceClass::Xid => {
            is_on_node && blamed.gpu.as_ref().is_some_and(|gpu| gpu.as_str() == key)
        }
        DeviceClass::Port | DeviceClass::Netdev => {
            on_rail && (is_on_node || is_below_leaf || blamed.rail.is_some())
        }
        _ => false,
    };
    match () {
        () if is_itself => ValueSubject::It,
        () if is_on_node => ValueSubject::ItsNode,
        () if on_rail => ValueSubject::ItsRail,
        () if first.contains(&node) => ValueSubject::Peers,
        () => ValueSubject::Others,
    }
}

fn write_changes(
    case: &SuiteCase,
    truth: Option<&GroundTruth>,
    means: &SubjectMeans,
    out: &mut dyn Write,
) -> anyhow::Result<usize> {
    let dialect = if case.dialect == Dialect::Gaunt { "gaunt" } else { "dcgm" };
    let (gpm, labels) = (case.gpm, case.labels);
    let truth_text = truth
        .map_or_else(|| "no fault".to_owned(), |truth| format!("{} {}", truth.kind, truth.blamed));
    writeln!(
        out,
        "{} {} seed {} · {dialect} · gpm {gpm} · labels {labels} · {truth_text}",
        case.scenario,
        case.level.as_str(),
        case.seed,
    )?;
    let mut lines = 0;
    for ((metric, subject), [before, after]) in &means.0 {
        let (before, after) = (before.mean_value(), after.mean_value());
        let has_changed = match (before, after) {
            (Some(before), Some(after)) => {
                (after - before).abs() > MIN_CHANGE * before.abs().max(after.abs()) + 1e-9
            }
            _ => true,
        };
        if has_changed {
            lines += 1;
            let number = |value: Option<f64>| value.map_or("-".to_owned(), |v| format!("{v:.4e}"));
            writeln!(
                out,
                "  {:58} {:8} {:>12} -> {:>12}",
                metric.series_key(),
                format!("{subject:?}"),
                number(before),
                number(after),
            )?;
        }
    }
    Ok(lines)
}
