//! Nodes and devices: the sources that report a node, and the rows of its devices.

use std::{cmp::Ordering, collections::BTreeMap};

use gaunt_schema::{
    CowList, Device, DeviceClass, Dialect, MetricId, SanitizedText, TargetId, UnixMs, natural_order,
};

use super::{renewal_interval::RenewalInterval, source_priority::MetricSource};

/// Id of a node; it may be reused once this node is forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub(super) u32);

impl NodeId {
    /// Returns its index in a table of nodes: ids are dense.
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// Returns the id at an index.
    pub const fn at_index(index: usize) -> Self {
        Self(index as u32)
    }
}

/// One machine.
#[derive(Clone, Debug)]
pub struct Node {
    /// Its name.
    pub name: SanitizedText,
    /// When its newest values arrived, by the engine's clock; pages that repeat an old sample do not count.
    pub sampled: Option<UnixMs>,
    /// Its clock minus the engine's clock in milliseconds, as last seen, transport time included.
    pub clock_skew_ms: Option<i64>,
    /// The targets that report it, each in another dialect except for model servers.
    pub sources: Vec<MetricSource>,
    /// Its devices of each class: rows of the class's columns, in the order of their names.
    pub(super) rows: [Vec<u32>; DeviceClass::ALL.len()],
    /// The source of each class that targets report values of: of some classes, never of all.
    feeds: Vec<ClassFeed>,
}

/// The target that last reported values of a class of devices of a node.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClassFeed {
    pub(super) class: DeviceClass,
    pub(super) target: TargetId,
    /// When it last reported values of the class.
    pub(super) last: UnixMs,
    /// When it had new ones.
    pub(super) renewals: RenewalInterval,
}

/// One device of a node.
#[derive(Clone, Debug)]
pub struct DeviceEntry {
    /// Its node.
    pub node: NodeId,
    /// Class and name of the device.
    pub device: Device,
    /// Its info series.
    infos: Vec<AttributedInfo>,
}

/// The labels of an info series of a device, and the source that reports them.
#[derive(Clone, Debug)]
struct AttributedInfo {
    series: MetricId,
    source: (Dialect, TargetId),
    labels: InfoSeriesLabels,
}

/// The labels of an info series. They are looked up by name for every GPU in every tick: comparing lengths first skips
/// most names without comparing their bytes, which a tree cannot do. Usually it shares the list of the page's layout.
type InfoSeriesLabels = CowList<(SanitizedText, SanitizedText)>;

/// Maximum number of labels of one info series, as many as a line may have.
const MAX_LABELS: usize = 64;

impl Node {
    pub(super) fn new(name: SanitizedText) -> Self {
        Self {
            name,
            sampled: None,
            clock_skew_ms: None,
            sources: Vec::new(),
            rows: std::array::from_fn(|_| Vec::new()),
            feeds: Vec::new(),
        }
    }

    /// Rows of its devices of a class, in the order of their names.
    #[inline]
    pub fn device_rows(&self, class: DeviceClass) -> &[u32] {
        &self.rows[class as usize]
    }

    /// When the newest values of a class arrived, if any target reports it.
    #[inline]
    pub fn last_fed(&self, class: DeviceClass) -> Option<UnixMs> {
        Some(self.class_feed(class)?.last)
    }

    /// The dialect of the target that last reported values of a class.
    pub fn feed_dialect(&self, class: DeviceClass) -> Option<Dialect> {
        let target = self.class_feed(class)?.target;
        Some(self.sources.iter().find(|source| source.target == target)?.dialect)
    }

    /// When the values of a class were renewed: a page may repeat values that its exporter collected before.
    #[inline]
    pub fn renewals(&self, class: DeviceClass) -> RenewalInterval {
        self.class_feed(class).map(|feed| feed.renewals).unwrap_or_default()
    }

    #[inline]
    fn class_feed(&self, class: DeviceClass) -> Option<&ClassFeed> {
        self.feeds.iter().find(|feed| feed.class == class)
    }

    /// Records the target that reported values of a class.
    pub(super) fn record_feed(&mut self, feed: ClassFeed) {
        if let Some(known) = self.feeds.iter_mut().find(|known| known.class == feed.class) {
            *known = feed;
        } else {
            self.feeds.reserve_exact(1);
            self.feeds.push(feed);
        }
    }

    /// Drops what a target was the source of.
    pub(super) fn forget_feeds(&mut self, target: TargetId) {
        self.feeds.retain(|feed| feed.target != target);
    }

    /// Whether a target reports the node.
    pub(super) fn has_source(&self, target: TargetId) -> bool {
        self.sources.iter().any(|source| source.target == target)
    }

    /// The row of the node itself, once a page reported a metric of it.
    pub fn own_row(&self) -> Option<u32> {
        self.device_rows(DeviceClass::Node).first().copied()
    }
}

impl DeviceEntry {
    pub(super) fn new(node: NodeId, device: Device) -> Self {
        Self { node, device, infos: Vec::new() }
    }

    /// Stores an info series of the device, unless a dialect of higher priority reports it.
    pub(super) fn record_info(
        &mut self,
        series: MetricId,
        source: (Dialect, TargetId),
        labels: &InfoSeriesLabels,
    ) {
        let position = self.infos.iter().position(|info| info.series == series);
        let index = position.unwrap_or_else(|| {
            // Most devices have one.
            self.infos.reserve_exact(1);
            self.infos.push(AttributedInfo { series, source, labels: InfoSeriesLabels::default() });
            self.infos.len() - 1
        });
        let info = &mut self.infos[index];
        if info.source < source {
            return;
        }
        let mut merged = if info.source == source { info.labels.to_vec() } else { Vec::new() };
        for (name, value) in labels {
            if let Some((_, existing)) = merged.iter_mut().find(|(label, _)| label == name) {
                existing.clone_from(value);
            } else if merged.len() < MAX_LABELS {
                merged.push((name.clone(), value.clone()));
            }
        }
        info.source = source;
        info.labels = if merged == **labels { labels.clone() } else { merged.into() };
    }

    /// Drops what a target reported about the device.
    pub(super) fn forget_target(&mut self, target: TargetId) {
        self.infos.retain(|info| info.source.1 != target);
    }

    /// A label of an info series.
    pub fn info_label(&self, series: MetricId, label: &str) -> Option<&SanitizedText> {
        let info = self.infos.iter().find(|info| info.series == series)?;
        let (_, value) = info.labels.iter().find(|(name, _)| name == label)?;
        Some(value).filter(|value| !value.is_empty())
    }

    /// Every info series, with its labels by name.
    pub fn info_series(
        &self,
    ) -> impl Iterator<Item = (MetricId, BTreeMap<SanitizedText, SanitizedText>)> {
        self.infos.iter().map(|info| (info.series, info.labels.iter().cloned().collect()))
    }
}

/// The host part of an address.
pub fn host_of(address: &SanitizedText) -> SanitizedText {
    let text = address.split_once("://").map_or(address.as_str(), |(_, rest)| rest);
    let text = text.split('/').next().unwrap_or(text);
    if let Some(inner) = text.strip_prefix('[').and_then(|rest| rest.split(']').next()) {
        return SanitizedText::new(inner);
    }
    match text.split_once(':') {
        // A second colon is that of a bare IPv6 address.
        Some((host, port)) if !port.contains(':') => SanitizedText::new(host),
        _ => SanitizedText::new(text),
    }
}

/// Natural order of device names: `mlx5_2` before `mlx5_10`.
pub(super) fn compare_devices(a: &Device, b: &Device) -> Ordering {
    let parts = a.key.iter().zip(b.key.iter()).map(|(a, b)| natural_order(a, b));
    parts.fold(Ordering::Equal, Ordering::then).then_with(|| a.key.len().cmp(&b.key.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_is_the_address_without_its_port() {
        for (address, host) in [
            ("gpu007:9770", "gpu007"),
            ("[fd00::7]:9770", "fd00::7"),
            ("fd00::7", "fd00::7"),
            ("http://gpu007:9100/metrics", "gpu007"),
            ("this box", "this box"),
        ] {
            assert_eq!(host_of(&address.into()), host);
        }
    }

    #[test]
    fn labels_are_those_reported_last_and_limited_in_number() {
        use gaunt_schema::catalogue::gpu;

        let source = (Dialect::Gaunt, TargetId(1));
        let mut entry = DeviceEntry::new(NodeId(0), Device::new_gpu(0));
        let labels = |from: usize, to: usize| {
            (from..to).map(|index| {
                (SanitizedText::from(format!("l{index}")), SanitizedText::from(format!("v{index}")))
            })
        };
        let first = labels(0, 3).chain([("uuid".into(), SanitizedText::default())]).collect();
        entry.record_info(gpu::INFO, source, &first);
        assert!(entry.infos[0].labels.ptr_eq(&first), "the page's own list");
        entry.record_info(gpu::INFO, source, &vec![("l1".into(), "other".into())].into());
        let label_of = |entry: &DeviceEntry, label: &str| {
            entry.info_label(gpu::INFO, label).map(SanitizedText::to_string)
        };
        assert_eq!(label_of(&entry, "l1").as_deref(), Some("other"));
        assert_eq!(label_of(&entry, "l2").as_deref(), Some("v2"));
        assert_eq!(label_of(&entry, "uuid"), None, "an empty label is none");
        assert_eq!(entry.info_label(gpu::JOB_INFO, "l1"), None);
        entry.record_info(gpu::INFO, source, &labels(0, 500).collect());
        assert_eq!(
            entry.info_series().map(|(_, labels)| labels.len()).collect::<Vec<_>>(),
            [MAX_LABELS]
        );
        // A dialect of higher priority overrides the others.
        entry.record_info(gpu::INFO, (Dialect::Dcgm, TargetId(2)), &labels(0, 1).collect());
        assert_eq!(label_of(&entry, "l1").as_deref(), Some("v1"));
        entry.forget_target(TargetId(1));
        assert_eq!(label_of(&entry, "l1"), None);
    }

    #[test]
    fn device_names_are_in_natural_order() {
        let mut gpus: Vec<_> = [10, 9, 0].map(Device::new_gpu).into();
        gpus.sort_by(compare_devices);
        assert_eq!(gpus, [0, 9, 10].map(Device::new_gpu));
    }
}
