//! Nodes: who speaks for them, which devices they have.

use std::{cmp::Ordering, collections::BTreeMap};

use gaunt_schema::{
    Class, Device, Dialect, MetricId, Report, Safe, Shared, Target, TargetId, UnixMs, natural,
};

use super::speaker::Speaker;

/// A node's number; it may be given to another node once this one is forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub(super) u32);

/// One machine.
#[derive(Clone, Debug)]
pub struct Node {
    /// Its name.
    pub name: Safe,
    /// When its newest values came, by the owner's clock; pages that repeat an old sample do not count.
    pub sampled: Option<UnixMs>,
    /// Its clock minus the owner's in milliseconds, as last seen, transport included.
    pub clock_skew_ms: Option<i64>,
    /// The targets that speak for it, each in another dialect, model servers apart.
    pub speakers: Vec<Speaker>,
    /// Its devices of each class: rows of the class's columns, in the order of their names.
    pub(super) rows: [Vec<u32>; Class::ALL.len()],
    /// Who feeds each class.
    pub(super) feeds: [Option<Feed>; Class::ALL.len()],
}

/// The target that last brought values of a class of devices of a node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Feed {
    pub(super) target: TargetId,
    /// When it last brought new values of the class.
    pub(super) last: UnixMs,
}

/// One device of a node.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The node that it is on.
    pub node: NodeId,
    /// What it is.
    pub device: Device,
    /// Who it is.
    infos: Vec<Told>,
}

/// What an info series says of a device, and who tells it.
#[derive(Clone, Debug)]
struct Told {
    series: MetricId,
    teller: (Dialect, TargetId),
    labels: Labels,
}

/// The labels of an info series. They are asked for by name for every GPU in every tick: names of another length are
/// passed over without being looked at, which no tree of them does. Mostly it is the list that the page's layout has.
type Labels = Shared<(Safe, Safe)>;

/// The most labels of one info series that are kept, as many as a line may have.
const MAX_LABELS: usize = 64;

impl Node {
    pub(super) fn new(name: Safe) -> Self {
        Self {
            name,
            sampled: None,
            clock_skew_ms: None,
            speakers: Vec::new(),
            rows: std::array::from_fn(|_| Vec::new()),
            feeds: [None; Class::ALL.len()],
        }
    }

    /// Rows of its devices of a class, in the order of their names.
    #[inline]
    pub fn rows(&self, class: Class) -> &[u32] {
        &self.rows[class as usize]
    }

    /// When the newest values of a class came, if anybody feeds it.
    #[inline]
    pub fn fed(&self, class: Class) -> Option<UnixMs> {
        Some(self.feeds[class as usize]?.last)
    }

    /// Whether a target speaks for the node.
    pub(super) fn hears(&self, target: TargetId) -> bool {
        self.speakers.iter().any(|speaker| speaker.target == target)
    }

    /// The row of the node itself, once it said something about itself.
    pub fn own_row(&self) -> Option<u32> {
        self.rows(Class::Node).first().copied()
    }
}

impl Entry {
    pub(super) fn new(node: NodeId, device: Device) -> Self {
        Self { node, device, infos: Vec::new() }
    }

    /// Takes an info series of the device, unless a better dialect tells it.
    pub(super) fn tell(&mut self, series: MetricId, teller: (Dialect, TargetId), labels: &Labels) {
        let known = self.infos.iter().position(|told| told.series == series);
        let at = known.unwrap_or_else(|| {
            self.infos.push(Told { series, teller, labels: Labels::default() });
            self.infos.len() - 1
        });
        let told = &mut self.infos[at];
        if told.teller < teller {
            return;
        }
        let mut now = if told.teller == teller { told.labels.to_vec() } else { Vec::new() };
        for (name, value) in labels {
            if let Some((_, known)) = now.iter_mut().find(|(known, _)| known == name) {
                known.clone_from(value);
            } else if now.len() < MAX_LABELS {
                now.push((name.clone(), value.clone()));
            }
        }
        told.teller = teller;
        told.labels = if now == **labels { labels.clone() } else { now.into() };
    }

    /// Forgets what a target told of the device.
    pub(super) fn forget(&mut self, target: TargetId) {
        self.infos.retain(|told| told.teller.1 != target);
    }

    /// A label of an info series.
    pub fn info(&self, series: MetricId, label: &str) -> Option<&Safe> {
        let told = self.infos.iter().find(|told| told.series == series)?;
        let (_, value) = told.labels.iter().find(|(name, _)| name == label)?;
        Some(value).filter(|value| !value.is_empty())
    }

    /// Every info series, with its labels by name.
    pub fn infos(&self) -> impl Iterator<Item = (MetricId, BTreeMap<Safe, Safe>)> {
        self.infos.iter().map(|told| (told.series, told.labels.iter().cloned().collect()))
    }
}

/// The name of the node that a page speaks for: what the operator said, what the page says, or the address.
pub(super) fn name_of(target: &Target, report: &Report) -> Safe {
    let told = |name: &Option<Safe>| name.clone().filter(|name| !name.is_empty());
    told(&target.node).or_else(|| told(&report.node)).unwrap_or_else(|| host_of(&target.address))
}

/// The host part of an address.
pub fn host_of(address: &Safe) -> Safe {
    let text = address.split_once("://").map_or(address.as_str(), |(_, rest)| rest);
    let text = text.split('/').next().unwrap_or(text);
    if let Some(inner) = text.strip_prefix('[').and_then(|rest| rest.split(']').next()) {
        return Safe::new(inner);
    }
    match text.split_once(':') {
        // A second colon is that of a bare IPv6 address.
        Some((host, port)) if !port.contains(':') => Safe::new(host),
        _ => Safe::new(text),
    }
}

/// The order in which a person names devices: `mlx5_2` before `mlx5_10`.
pub(super) fn by_name(a: &Device, b: &Device) -> Ordering {
    let parts = a.key.iter().zip(b.key.iter()).map(|(a, b)| natural(a, b));
    parts.fold(Ordering::Equal, Ordering::then).then_with(|| a.key.len().cmp(&b.key.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_operators_name_wins_over_the_pages_and_that_over_the_address() {
        let mut target = Target {
            id: TargetId(1),
            address: "10.0.0.7:9770".into(),
            node: Some("gpu007".into()),
            origin: "flag".into(),
        };
        let mut report = Report { node: Some("node-7".into()), ..Report::default() };
        assert_eq!(name_of(&target, &report), "gpu007");
        target.node = None;
        assert_eq!(name_of(&target, &report), "node-7");
        report.node = None;
        assert_eq!(name_of(&target, &report), "10.0.0.7");
    }

    #[test]
    fn addresses_lose_their_ports() {
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
    fn labels_are_those_that_were_told_last_and_not_without_end() {
        use gaunt_schema::catalogue::gpu;

        let teller = (Dialect::Gaunt, TargetId(1));
        let mut entry = Entry::new(NodeId(0), Device::gpu(0));
        let labels = |from: usize, to: usize| {
            (from..to).map(|at| (Safe::from(format!("l{at}")), Safe::from(format!("v{at}"))))
        };
        let first = labels(0, 3).chain([("uuid".into(), Safe::default())]).collect();
        entry.tell(gpu::INFO, teller, &first);
        assert!(entry.infos[0].labels.is(&first), "the page's own list");
        entry.tell(gpu::INFO, teller, &vec![("l1".into(), "other".into())].into());
        let told = |entry: &Entry, label: &str| entry.info(gpu::INFO, label).map(Safe::to_string);
        assert_eq!(told(&entry, "l1").as_deref(), Some("other"));
        assert_eq!(told(&entry, "l2").as_deref(), Some("v2"));
        assert_eq!(told(&entry, "uuid"), None, "an empty label is none");
        assert_eq!(entry.info(gpu::JOB_INFO, "l1"), None);
        entry.tell(gpu::INFO, teller, &labels(0, 500).collect());
        assert_eq!(entry.infos().map(|(_, labels)| labels.len()).collect::<Vec<_>>(), [MAX_LABELS]);
        // Who knows it better says it alone; who does not is not heard.
        entry.tell(gpu::INFO, (Dialect::Dcgm, TargetId(2)), &labels(0, 1).collect());
        assert_eq!(told(&entry, "l1").as_deref(), Some("v1"));
        entry.forget(TargetId(1));
        assert_eq!(told(&entry, "l1"), None);
    }

    #[test]
    fn names_sort_as_a_person_counts() {
        let mut gpus: Vec<_> = [10, 9, 0].map(Device::gpu).into();
        gpus.sort_by(by_name);
        assert_eq!(gpus, [0, 9, 10].map(Device::gpu));
    }
}
