//! History points in a recording: exported in the packed form of the store, and restored to a device once a page names
//! it again.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use gaunt_schema::{Device, MetricId, SanitizedText, UnixMs};
use serde::{Deserialize, Serialize};

use super::{
    Cluster,
    history_column::{EarlierGroup, PointQuantization, ROWS, SLOTS},
};

/// Estimated size of a packed block of one device: constant values take two bytes, noisy ones ten.
const BLOCK_BYTES: usize = 8;

/// Maximum size of the index entry of a device, a group of series or a block, without names.
const DEVICE_BYTES: usize = 48;
const GROUP_BYTES: usize = 48;
const NUMBER_BYTES: usize = 8;

/// Points that no device claims within this time are dropped: the device does not come back.
const CLAIMED_WITHIN: Duration = Duration::from_mins(10);

/// History points of many devices. The points themselves follow the index, block after block.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KeptPast {
    /// Time between two points, in milliseconds.
    step_ms: u64,
    /// The slot of the newest points.
    last: i64,
    devices: Vec<KeptDevice>,
    groups: Vec<KeptGroup>,
    #[serde(skip)]
    points: Vec<u8>,
}

/// A device with points.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct KeptDevice {
    node: SanitizedText,
    device: Device,
}

/// Points of one metric of up to [`ROWS`] devices of a class.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct KeptGroup {
    metric: SanitizedText,
    /// The value of the label that distinguishes the series of a metric; may be empty.
    tag: SanitizedText,
    step: f64,
    /// Number of steps above which a step is doubled; none if never.
    steps: Option<f64>,
    /// Indices into the device list.
    devices: Vec<u32>,
    /// Size of each block in bytes, oldest first; the last one ends with the newest slot.
    blocks: Vec<u32>,
}

impl KeptPast {
    /// Number of series with points.
    pub fn series(&self) -> usize {
        self.groups.iter().map(|group| group.devices.len()).sum()
    }

    /// Time of the oldest points; none without any.
    pub fn begins(&self) -> Option<UnixMs> {
        let longest = self.groups.iter().map(|group| group.blocks.len()).max()?;
        let slots = i64::try_from(longest * SLOTS).ok()?;
        let first = self.last.checked_sub(slots)?.checked_add(1)?;
        Some(UnixMs(first.checked_mul(i64::try_from(self.step_ms).ok()?)?))
    }

    /// The points, which are not part of the index.
    pub fn points(&self) -> &[u8] {
        &self.points
    }

    /// Attaches the points; none if they do not match the index.
    pub fn with_points(self, points: Vec<u8>) -> Option<Self> {
        let mut total = self.groups.iter().flat_map(|group| &group.blocks);
        let total = total.try_fold(0_usize, |sum, bytes| sum.checked_add(*bytes as usize))?;
        (total == points.len()).then_some(Self { points, ..self })
    }
}

/// Points that wait for their devices.
#[derive(Debug, Default)]
pub(super) struct Unclaimed {
    /// When they arrived.
    since: Option<UnixMs>,
    /// Devices by node, each with the metrics, groups and positions of its points.
    nodes: BTreeMap<SanitizedText, Vec<(Device, Vec<PointLocation>)>>,
}

#[derive(Clone, Copy, Debug)]
struct PointLocation {
    metric: MetricId,
    group: u32,
    /// Position of the device in the group.
    column: u8,
}

/// A metric by its name and tag: its id differs between versions.
fn key(metric: MetricId) -> (&'static str, &'static str) {
    let row = metric.catalogue_row();
    (row.name, row.tag.map_or("", |(_, value)| value))
}

/// An export in progress, with its size limit.
struct Packing<'a> {
    cluster: &'a Cluster,
    kept: KeptPast,
    /// Indices of devices by class and row.
    numbers: BTreeMap<(usize, u32), u32>,
    /// Bytes so far, index included.
    bytes: usize,
    max_bytes: usize,
}

impl Packing<'_> {
    /// Adds the newest `blocks` of a metric of these devices; false if the limit is reached.
    fn add(&mut self, metric: MetricId, rows: &[u32], blocks: usize) -> bool {
        let Some(history) = self.cluster.metric_column(metric).kept_history() else { return true };
        let class = metric.catalogue_row().class;
        for rows in rows.chunks(ROWS) {
            let packed = history.pack_rows(rows, self.kept.last, blocks);
            let begin = packed.iter().position(|block| !block.is_empty());
            let Some(packed) = begin.map(|begin| &packed[begin..]) else { continue };
            let points: usize = packed.iter().map(|block| block.len()).sum();
            let new =
                rows.iter().filter(|row| !self.numbers.contains_key(&(class as usize, **row)));
            let names: usize = new.map(|row| self.name_bytes(class, *row)).sum();
            let (name, tag) = key(metric);
            let index = GROUP_BYTES + name.len() + tag.len();
            let index = index + NUMBER_BYTES * (rows.len() + packed.len()) + names;
            if self.bytes + points + index > self.max_bytes {
                return false;
            }
            self.bytes += points + index;
            let devices = rows.iter().filter_map(|row| self.number(class, *row)).collect();
            let PointQuantization { step, steps } = history.quantum();
            self.kept.groups.push(KeptGroup {
                metric: SanitizedText::new(name),
                tag: SanitizedText::new(tag),
                step,
                steps: steps.is_finite().then_some(steps),
                devices,
                blocks: packed.iter().map(|block| block.len() as u32).collect(),
            });
            for block in packed {
                self.kept.points.extend_from_slice(block);
            }
        }
        true
    }

    /// Size of the names of a device.
    fn name_bytes(&self, class: gaunt_schema::DeviceClass, row: u32) -> usize {
        let Some(entry) = self.cluster.device_at(class, row) else { return 0 };
        let node = self.cluster.node_by_id(entry.node).map_or(0, |node| node.name.len());
        let labels: usize = entry.device.key.iter().map(|label| label.len() + 4).sum();
        DEVICE_BYTES + node + labels
    }

    /// The index of a device, assigned if it has none.
    fn number(&mut self, class: gaunt_schema::DeviceClass, row: u32) -> Option<u32> {
        if let Some(number) = self.numbers.get(&(class as usize, row)) {
            return Some(*number);
        }
        let entry = self.cluster.device_at(class, row)?;
        let node = self.cluster.node_by_id(entry.node)?.name.clone();
        let number = self.kept.devices.len() as u32;
        self.kept.devices.push(KeptDevice { node, device: entry.device.clone() });
        self.numbers.insert((class as usize, row), number);
        Some(number)
    }
}

impl Cluster {
    /// Keeps values current for this long, for pages that are rarer than the points of history: rates span their gaps.
    #[must_use]
    pub fn with_freshness(self, freshness: Duration) -> Self {
        Self { freshness, ..self }
    }

    /// The newest history points in at most `max_bytes` bytes: all points of the nodes `first`, then an equal share of
    /// every other series.
    pub fn keep_past(&self, max_bytes: usize, first: &BTreeSet<SanitizedText>) -> KeptPast {
        let (mut preferred, mut rest) = (Vec::new(), Vec::new());
        for metric in MetricId::all_ids().filter(|metric| self.has_history(*metric)) {
            let (mut first_rows, mut other_rows) = (Vec::new(), Vec::new());
            for (row, entry) in self.inventory.entries_of_class(metric.catalogue_row().class) {
                let is_first =
                    self.node_by_id(entry.node).is_some_and(|node| first.contains(&node.name));
                if is_first { first_rows.push(row) } else { other_rows.push(row) }
            }
            preferred.push((metric, first_rows));
            rest.push((metric, other_rows));
        }
        let step_ms = self.period.as_millis() as u64;
        let kept = KeptPast { step_ms, last: self.history_slot(self.now), ..KeptPast::default() };
        let mut packing =
            Packing { cluster: self, kept, numbers: BTreeMap::new(), bytes: 0, max_bytes };
        for series_rows in [preferred, rest] {
            let series: usize = series_rows.iter().map(|(_, rows)| rows.len()).sum();
            let slots =
                self.columns.iter().filter_map(|column| Some(column.kept_history()?.slots()));
            let longest = slots.max().unwrap_or_default().div_ceil(SLOTS);
            // An equal share: with space for a tenth, the newest tenth of each series.
            let affordable =
                max_bytes.saturating_sub(packing.bytes) / (series.max(1) * BLOCK_BYTES);
            let blocks = longest.min(affordable);
            if blocks == 0
                || !series_rows.iter().all(|(metric, rows)| packing.add(*metric, rows, blocks))
            {
                break;
            }
        }
        packing.kept
    }

    /// Restores points that another process kept, from before the first page; each device gets its own once a page
    /// names it. Ignored if the step differs.
    pub fn recall_past(&mut self, kept: &KeptPast) {
        if u128::from(kept.step_ms) != self.period.as_millis() {
            return;
        }
        let metrics: BTreeMap<_, _> =
            MetricId::all_ids().map(|metric| (key(metric), metric)).collect();
        let mut locations: BTreeMap<u32, Vec<PointLocation>> = BTreeMap::new();
        let mut offset = 0_usize;
        for group in &kept.groups {
            let lengths = group.blocks.iter().map(|bytes| *bytes as usize);
            let blocks: Option<Vec<Box<[u8]>>> = lengths
                .map(|bytes| {
                    let block = kept.points.get(offset..offset.checked_add(bytes)?)?;
                    offset += bytes;
                    Some(block.into())
                })
                .collect();
            let Some(blocks) = blocks else { return };
            let metric = metrics.get(&(group.metric.as_str(), group.tag.as_str())).copied();
            let Some(metric) = metric.filter(|_| group.step > 0.0 && group.step.is_finite()) else {
                continue;
            };
            let history = self.columns[usize::from(metric.0)].history_mut();
            let slots = (blocks.len() * SLOTS) as i64;
            let Some((history, first)) = history.zip(kept.last.checked_sub(slots - 1)) else {
                continue;
            };
            let quantum =
                PointQuantization { step: group.step, steps: group.steps.unwrap_or(f64::INFINITY) };
            let number = history.take_earlier(EarlierGroup { first, quantum, blocks });
            for (column, device) in group.devices.iter().take(ROWS).enumerate() {
                let location = PointLocation { metric, group: number, column: column as u8 };
                locations.entry(*device).or_default().push(location);
            }
        }
        self.unclaimed.since = None;
        for (number, locations) in locations {
            if let Some(KeptDevice { node, device }) = kept.devices.get(number as usize) {
                let devices = self.unclaimed.nodes.entry(node.clone()).or_default();
                devices.push((device.clone(), locations));
            }
        }
    }

    /// Assigns earlier points to devices that are named by now, and drops those that are too old.
    pub(super) fn claim_past(&mut self) {
        let slot = self.history_slot(self.now);
        for history in self.columns.iter_mut().filter_map(super::MetricColumn::history_mut) {
            history.expire_earlier(slot);
        }
        if self.unclaimed.nodes.is_empty() {
            return;
        }
        let (inventory, columns) = (&self.inventory, &mut self.columns);
        self.unclaimed.nodes.retain(|node, devices| {
            let Some(id) = inventory.id_by_name(node) else { return true };
            devices.retain(|(device, locations)| {
                let Some(row) = inventory.device_row(id, device) else { return true };
                for PointLocation { metric, group, column } in locations {
                    if let Some(history) = columns[usize::from(metric.0)].history_mut() {
                        history.assign_earlier(row, *group, *column);
                    }
                }
                false
            });
            !devices.is_empty()
        });
        let since = *self.unclaimed.since.get_or_insert(self.now);
        if self.now.duration_since(since) > CLAIMED_WITHIN {
            self.unclaimed.nodes.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use gaunt_schema::{
        Batch, Delivery, Dialect, Reading, RejectionCounts, Report, ScrapeTarget, ScrapedPage,
        TargetId, catalogue::gpu,
    };

    use super::*;

    const PERIOD: Duration = Duration::from_secs(1);

    fn cluster(nodes: u32) -> Cluster {
        let mut cluster = Cluster::new(PERIOD, 120);
        let target = |node: u32| ScrapeTarget {
            id: TargetId(node),
            address: format!("10.0.0.{node}:9770").into(),
            node: Some(format!("n{node}").into()),
            origin: "test".into(),
        };
        cluster.ingest_delivery(Delivery::Targets((0..nodes).map(target).collect()));
        cluster
    }

    /// Every node reports the power of its GPU.
    fn live(cluster: &mut Cluster, nodes: u32, seconds: std::ops::Range<i64>) {
        for second in seconds {
            let at = UnixMs(second * 1_000);
            for node in 0..nodes {
                let mut report = Report::default();
                let device = report.ensure_device(Device::new_gpu(0));
                report.push(device, gpu::POWER, Reading::of(power(node, second)));
                let (dialect, rejected) = (Dialect::Gaunt, RejectionCounts::default());
                let page = ScrapedPage { report, dialect, bytes: 0, rejected };
                let (target, outcome) = (TargetId(node), Ok(page));
                let batch = Batch { target, at, duration_ms: 1.0, outcome };
                cluster.ingest_delivery(Delivery::Batch(batch));
            }
            cluster.advance_to(at);
        }
    }

    fn power(node: u32, second: i64) -> f64 {
        f64::from(400 + node) + (second % 7) as f64
    }

    fn past(cluster: &Cluster, node: &str) -> Vec<Option<f32>> {
        let (_, node) = cluster.node_by_name(node).unwrap();
        let row = node.device_rows(gaunt_schema::DeviceClass::Gpu)[0];
        cluster.recent_points(gpu::POWER, node, row, 120).unwrap()
    }

    #[test]
    fn kept_past_is_restored_to_devices_that_pages_name_again() {
        let mut before = cluster(3);
        live(&mut before, 3, 1_000..1_100);
        let kept = before.keep_past(1 << 20, &BTreeSet::new());
        assert!(kept.series() >= 3 && kept.begins().unwrap() <= UnixMs(1_000_000), "{kept:?}");
        let mut after = cluster(3);
        after.recall_past(&kept);
        // The third node does not come back.
        live(&mut after, 2, 1_102..1_105);
        for node in 0..2 {
            let points = past(&after, &format!("n{node}"));
            for (slot, point) in (985..1_105).zip(&points) {
                let is_expected = (1_000..1_100).contains(&slot) || slot >= 1_102;
                assert_eq!(point.is_some(), is_expected, "n{node} at {slot}");
                let deviation =
                    point.map_or(0.0, |point| (f64::from(point) - power(node, slot)).abs());
                assert!(deviation < 0.5, "n{node} at {slot}: {point:?}");
            }
        }
        assert!(after.node_by_name("n2").is_none(), "nobody is there for its past alone");
        // Points beyond retention are dropped.
        live(&mut after, 2, 1_105..1_300);
        let mut histories =
            after.columns.iter().filter_map(super::super::MetricColumn::kept_history);
        assert!(histories.all(|history| history.earlier_bytes() == 0));
    }

    #[test]
    fn kept_past_stays_within_its_bytes_and_takes_named_nodes_first() {
        let mut before = cluster(200);
        live(&mut before, 200, 1_000..1_060);
        let first: BTreeSet<SanitizedText> = ["n150".into()].into();
        for max_bytes in [300, 1_000, 4_000, 16_000] {
            let kept = before.keep_past(max_bytes, &first);
            let bytes = serde_json::to_vec(&kept).unwrap().len() + kept.points().len();
            // The limit does not count the frame of the index.
            assert!(bytes <= max_bytes + 100, "{bytes} of {max_bytes}");
            assert_eq!(
                kept.devices.first().map(|device| device.node.as_str()),
                Some("n150"),
                "{max_bytes}"
            );
        }
        assert_eq!(before.keep_past(100, &first).series(), 0, "no room for any");
    }

    #[test]
    fn damaged_past_is_refused_or_gives_nothing_wrong() {
        let mut before = cluster(2);
        live(&mut before, 2, 1_000..1_050);
        let kept = before.keep_past(1 << 20, &BTreeSet::new());
        assert!(kept.clone().with_points(vec![1, 2, 3]).is_none());
        let mut damaged = kept.clone();
        for group in &mut damaged.groups {
            group.devices = vec![7, u32::MAX];
            group.metric = "no_such_metric".into();
        }
        damaged.last = i64::MIN;
        let mut after = cluster(2);
        after.recall_past(&damaged);
        let mut other = KeptPast { step_ms: 10_000, ..kept };
        after.recall_past(&other);
        other.step_ms = 1_000;
        other.groups.iter_mut().for_each(|group| group.blocks.push(u32::MAX));
        after.recall_past(&other);
        live(&mut after, 2, 1_060..1_063);
        assert_eq!(past(&after, "n0").iter().flatten().count(), 3);
    }
}
