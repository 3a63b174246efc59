//! Bench `pictures`: tables of labelled runs over time, for the simulator's documentation page.

use std::{collections::BTreeMap, io::Write, time::Duration};

use anyhow::Context;
use gaunt_schema::{
    Device, DeviceClass, MetricId, Report, UnixMs,
    catalogue::{ethernet, gpu, gpu_health as health, gpu_parts as parts, host, port},
    unit::MetricKind,
};
use gaunt_sim::{
    GroundTruth, SimFleet,
    suite::{FaultLevel, SCENARIOS, SuiteCase},
};
use serde_json::json;

use crate::judge_bench::START;

/// Averaging window in seconds.
const SPAN: u32 = 10;

/// Instants of the rows, in seconds from the onset.
const ROWS: [i64; 7] = [-20, -10, 0, 10, 20, 40, 60];

/// The entity whose value a column shows.
#[derive(Clone, Copy)]
enum ValueOwner {
    /// The blamed entity, or the first node of the job.
    Blamed,
    /// Another node of the job.
    Peers,
}

use ValueOwner::{Blamed, Peers};

/// One column: title, entity, metric, factor, decimals.
type PictureColumn = (&'static str, ValueOwner, MetricId, f64, usize);

const FAULT_COLUMNS: [PictureColumn; 3] = [
    ("its util", Blamed, gpu::UTILIZATION, 1.0, 2),
    ("its tensor", Blamed, gpu::TENSOR_ACTIVE, 1.0, 3),
    ("its W", Blamed, gpu::POWER, 1.0, 0),
];
const PEER_COLUMNS: [PictureColumn; 3] = [
    ("peer util", Peers, gpu::UTILIZATION, 1.0, 2),
    ("peer tensor", Peers, gpu::TENSOR_ACTIVE, 1.0, 3),
    ("peer W", Peers, gpu::POWER, 1.0, 0),
];
const SENT: PictureColumn = ("its GB/s", Blamed, port::TRANSMIT_BYTES, 1e-9, 2);

/// One table: the case, the text between its columns and the peers', and its interpretation.
type PictureSpec = (&'static str, FaultLevel, u64, &'static [PictureColumn], &'static str);

const PICTURES: &[PictureSpec] = &[
    (
        "F1",
        FaultLevel::Medium,
        4,
        &[
            ("its IO pressure", Blamed, host::IO_PRESSURE, 1.0, 2),
            ("its CPU pressure", Blamed, host::CPU_PRESSURE, 1.0, 2),
        ],
        "Its GPUs are idle between batches; those of the other hosts busy-wait in the collective at full utilization.",
    ),
    (
        "F3",
        FaultLevel::Medium,
        3,
        &[("its MHz", Blamed, gpu::SM_CLOCK, 1e-6, 0)],
        "It is the only one that computes all the time; the others compute less and busy-wait more.",
    ),
    (
        "F4",
        FaultLevel::Hard,
        3,
        &[
            ("its °C", Blamed, gpu::TEMPERATURE, 1.0, 0),
            ("HW thermal", Blamed, gpu::CLOCK_EVENT_HW_THERMAL, 1.0, 1),
        ],
        "The temperature rises over half a minute; the hardware lowers the clock at once.",
    ),
    (
        "F5",
        FaultLevel::Hard,
        3,
        &[("its busiest CPU", Blamed, host::CPU_BUSIEST, 1.0, 2)],
        "Utilization, tensor activity and power fall on this host; on other hosts only the latter two.",
    ),
    (
        "F6",
        FaultLevel::Medium,
        4,
        &[
            ("its link width", Blamed, health::PCIE_WIDTH, 1.0, 0),
            ("its replays/s", Blamed, health::PCIE_REPLAYS, 1.0, 1),
        ],
        "One GPU gets its input late in every step: it is idle while the others busy-wait.",
    ),
    (
        "F7",
        FaultLevel::Medium,
        3,
        &[
            ("its links", Blamed, parts::NVLINK_UP, 1.0, 0),
            ("its replays/s", Blamed, parts::NVLINK_REPLAY, 1.0, 1),
        ],
        "Exchanges are slow on the whole node; its averages equal those of its peers, only link metrics differ.",
    ),
    (
        "F8",
        FaultLevel::Hard,
        3,
        &[SENT, ("its state", Blamed, port::STATE, 1.0, 0)],
        "Another rail carries its traffic, and the gradient exchange of all ranks takes twice as long.",
    ),
    (
        "F11",
        FaultLevel::Hard,
        3,
        &[
            SENT,
            ("ECN/s", Blamed, port::ECN_MARKED, 1.0, 0),
            ("CNP/s", Blamed, port::CNP_HANDLED, 1.0, 0),
            ("paused", Blamed, ethernet::RECEIVE_PAUSED_3, 1.0, 3),
        ],
        "The port is one below the leaf on its rail; all ranks wait for the gradient exchange.",
    ),
    (
        "F13",
        FaultLevel::Hard,
        3,
        &[
            SENT,
            ("pause sent", Blamed, ethernet::TRANSMIT_PAUSED_3, 1.0, 2),
            ("out of buffer/s", Blamed, port::OUT_OF_BUFFER, 1.0, 1),
            ("peer ECN/s", Peers, port::ECN_MARKED, 1.0, 0),
        ],
        "It sends PFC pause frames, and receives none.",
    ),
    (
        "F14",
        FaultLevel::Hard,
        3,
        &[SENT],
        "All ranks busy-wait, no traffic, power is constant and low.",
    ),
    (
        "H1",
        FaultLevel::Medium,
        3,
        &[("its IO pressure", Blamed, host::IO_PRESSURE, 1.0, 2)],
        "One node writes and its GPUs are idle, or all of them; no rank steps until it is done, and then all continue.",
    ),
];

/// Prints every table as a section of the simulator's page.
pub(crate) fn run(out: &mut dyn Write) -> anyhow::Result<()> {
    for picture in PICTURES {
        write_picture(picture, out).with_context(|| format!("cannot show {}", picture.0))?;
    }
    writeln!(out, "{}", json!({ "bench": "pictures", "pictures": PICTURES.len() }))?;
    Ok(())
}

fn write_picture(picture: &PictureSpec, out: &mut dyn Write) -> anyhow::Result<()> {
    let (scenario, level, seed, between, caption) = *picture;
    let case = SuiteCase::from_name(scenario, level, seed).context("unknown case")?;
    let line = SCENARIOS.iter().find(|(name, _)| *name == scenario).map_or("", |(_, line)| line);
    let mut fleet = case.build_fleet(START);
    let truth = fleet.ground_truths().first().cloned();
    let truth_text = truth
        .as_ref()
        .map_or_else(|| "no fault".to_owned(), |truth| format!("{}, {}", truth.kind, truth.blamed));
    writeln!(out, "\n### {scenario}: {line}\n")?;
    let level = level.as_str();
    writeln!(
        out,
        "`--scenario {scenario} --level {level} --seed {seed}`, truth: {truth_text}. {caption}\n"
    )?;
    let columns: Vec<PictureColumn> =
        FAULT_COLUMNS.iter().chain(between).chain(&PEER_COLUMNS).copied().collect();
    let headings: Vec<&str> = columns.iter().map(|column| column.0).collect();
    writeln!(out, "| time | {} |", headings.join(" | "))?;
    writeln!(out, "| ---: |{}", " ---: |".repeat(headings.len()))?;
    let first = fleet.scenario().faults.iter().filter(|fault| fault.gang == 0);
    let first = first.map(|fault| fault.onset_s).fold(f64::MAX, f64::min);
    let first = Duration::from_secs_f64(first);
    let onset = truth.as_ref().map_or(START + first, |truth| truth.onset);
    let location = ValueLocation::from_truth(&case, &fleet, truth.as_ref());
    let peer = location.peer_location(&case);
    for row in ROWS {
        let until = UnixMs(onset.0 + row * 1_000);
        let means = ColumnMeans::of(&mut fleet, until, [&location, &peer], &columns);
        let cells =
            columns.iter().enumerate().map(|(index, column)| means.format_cell(index, column));
        writeln!(out, "| {row:+} s | {} |", cells.collect::<Vec<_>>().join(" | "))?;
    }
    Ok(())
}

/// The node and devices from which a column is read.
struct ValueLocation {
    node: usize,
    gpu: u32,
    rail: u32,
}

impl ValueLocation {
    fn from_truth(case: &SuiteCase, fleet: &SimFleet, truth: Option<&GroundTruth>) -> Self {
        let first = case.shape.jobs[0].nodes.start;
        let number =
            |text: Option<&gaunt_schema::SanitizedText>| text.and_then(|text| text.parse().ok());
        let Some(truth) = truth else { return Self { node: first, gpu: 0, rail: 0 } };
        let blamed = &truth.blamed;
        let is_blamed = |node: &usize| Some(fleet.node_name(*node)) == blamed.node.as_deref();
        let leaf = blamed.leaf.as_deref().and_then(|leaf| leaf.strip_prefix("leaf-"));
        let (leaf, leaf_rail) = leaf.and_then(|leaf| leaf.split_once("-r")).unzip();
        let leaf_node = leaf.and_then(|leaf| leaf.parse::<usize>().ok());
        let leaf_node = leaf_node.map(|leaf| leaf * case.shape.leaf_nodes);
        let rail = blamed.device.as_deref().and_then(|device| device.strip_prefix("mlx5_"));
        let rail = rail.or(leaf_rail).and_then(|rail| rail.parse().ok());
        Self {
            node: (0..fleet.node_count()).find(is_blamed).or(leaf_node).unwrap_or(first),
            gpu: number(blamed.gpu.as_ref()).unwrap_or(0),
            rail: rail.or_else(|| number(blamed.rail.as_ref())).unwrap_or(0),
        }
    }

    /// The same devices on another node of the first job.
    fn peer_location(&self, case: &SuiteCase) -> Self {
        let nodes = case.shape.jobs[0].nodes.clone();
        let node = nodes.rev().find(|node| *node != self.node).unwrap_or(self.node);
        Self { node, gpu: self.gpu, rail: self.rail }
    }

    /// The value here; for links the sum over all links of the GPU.
    fn read_value(&self, report: &Report, metric: MetricId) -> Option<f64> {
        let read = |device: &Device| report.find_reading(device, metric)?.value();
        let gpu = self.gpu.to_string();
        match metric.catalogue_row().class {
            DeviceClass::Gpu => read(&Device::new_gpu(self.gpu)),
            DeviceClass::Port => read(&Device::new_port(&format!("mlx5_{}", self.rail), "1")),
            DeviceClass::Netdev => read(&Device::new_netdev(&format!("rail{}", self.rail))),
            DeviceClass::Nvlink => {
                let links = report.devices.iter().filter(|device| {
                    device.class == DeviceClass::Nvlink && device.key[0].as_str() == gpu
                });
                Some(links.filter_map(read).sum())
            }
            _ => read(&Device::new_node()),
        }
    }
}

/// Means of the columns over the seconds before an instant.
struct ColumnMeans(BTreeMap<usize, (f64, u32)>);

impl ColumnMeans {
    fn of(
        fleet: &mut SimFleet,
        until: UnixMs,
        locations: [&ValueLocation; 2],
        columns: &[PictureColumn],
    ) -> Self {
        let mut sums = BTreeMap::new();
        let mut before: BTreeMap<usize, f64> = BTreeMap::new();
        for second in (0..=SPAN).rev() {
            fleet.advance_to(until - Duration::from_secs(second.into()));
            let reports = locations.map(|location| fleet.node_report(location.node));
            for (index, (_, subject, metric, ..)) in columns.iter().enumerate() {
                let side = *subject as usize;
                let Some(value) = locations[side].read_value(&reports[side], *metric) else {
                    continue;
                };
                let is_counter = matches!(metric.catalogue_row().kind, MetricKind::Counter(_));
                let last = before.insert(index, value);
                let measured = match (is_counter, last) {
                    (true, Some(last)) => value - last,
                    (false, Some(_)) => value,
                    // The first sample only gives the start value of counters.
                    (_, None) => continue,
                };
                let sum: &mut (f64, u32) = sums.entry(index).or_default();
                *sum = (sum.0 + measured, sum.1 + 1);
            }
        }
        Self(sums)
    }

    fn format_cell(&self, index: usize, column: &PictureColumn) -> String {
        let (_, _, _, factor, decimals) = *column;
        self.0.get(&index).map_or_else(
            || "-".to_owned(),
            |(sum, count)| format!("{:.decimals$}", sum / f64::from(*count) * factor),
        )
    }
}
