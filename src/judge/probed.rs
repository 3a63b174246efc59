//! What probes measured on idle wires: evidence beside what counters say, and worth a look where they say nothing.

use gaunt_schema::{Class, Entity, EntityKind, FindingKind, Safe, catalogue::probe, unit::Unit};

use super::{
    Evidence, Finding, Judge,
    finding::{Suspicion, count, percent},
    life::Seen,
};
use crate::cluster::{Cluster, Node};

/// The words of the evidence.
pub(super) const OWN: &str = "bandwidth of its probe against what is usual for it";
pub(super) const MODEL: &str =
    "bandwidth of its probe against what boards of its model should reach";
pub(super) const OTHERS: &str = "bandwidth between idle nodes against what is usual for its rail";
pub(super) const WRONG: &str = "elements that a probe found wrong";

/// What the probes of many nodes say together of a port or a leaf.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// The port, or the leaf.
    pub entity: Entity,
    /// Whether only what goes to other leaves is slow.
    pub across: bool,
    /// The median share of what is usual that its pairs reach.
    pub ratio: f64,
    /// How many pairs say so.
    pub pairs: u32,
}

/// Adds what probes say. It comes last: a probe is of an hour ago, and hides nothing that is seen now.
pub(super) fn add(judge: &Judge, cluster: &Cluster, seen: &mut Seen) {
    for (_, node) in cluster.nodes().filter(|(_, node)| !node.rows(Class::Probe).is_empty()) {
        if let Some(probe) = Probe::of(judge, cluster, node) {
            probe.add(node, seen);
        }
    }
    for measured in &judge.measured {
        between(judge, measured, seen);
    }
}

/// The last probe of one node, where it found something.
#[derive(Default)]
struct Probe {
    /// The series that is furthest from what it should be.
    slow: Option<Slow>,
    /// The most elements that came out wrong, and of what.
    wrong: Option<(String, f64)>,
}

/// A series that is not what it should be.
struct Slow {
    /// What was measured.
    what: String,
    ratio: f64,
    limit: f64,
    /// Whether it is compared with what boards of its model reach elsewhere, not with its own past.
    elsewhere: bool,
    /// Whether it went through the host.
    through_host: bool,
}

impl Slow {
    /// The worst that is said of one series. Within one GPU it says nothing of any wire.
    fn of(judge: &Judge, cluster: &Cluster, row: u32, what: &str) -> Option<Self> {
        let entry = cluster.device(Class::Probe, row)?;
        let path = entry.info(probe::INFO, "path").map(Safe::as_str);
        let said = [
            (probe::BASELINE_RATIO, judge.limits.probe_baseline_ratio, false),
            (probe::REFERENCE_RATIO, 1.0, true),
        ];
        let said = said.into_iter().filter_map(|(metric, limit, elsewhere)| {
            let ratio = cluster.value(metric, row).filter(|ratio| *ratio < limit)?;
            let through_host = matches!(path, Some("host" | "staged"));
            Some(Self { what: what.to_owned(), ratio, limit, elsewhere, through_host })
        });
        said.filter(|_| path != Some("local")).min_by(|a, b| a.share().total_cmp(&b.share()))
    }

    /// What it reached of its limit.
    fn share(&self) -> f64 {
        self.ratio / self.limit
    }

    fn evidence(&self) -> Evidence {
        let what = if self.elsewhere { MODEL } else { OWN };
        Evidence::new(what, Some(self.ratio), Unit::Ratio, Some(self.limit)).note(&self.what)
    }
}

impl Probe {
    fn of(judge: &Judge, cluster: &Cluster, node: &Node) -> Option<Self> {
        let own = *node.rows(Class::Node).first()?;
        let ended = cluster.value(probe::LAST_RUN, own)?;
        let age = cluster.now().0 as f64 / 1e3 - ended;
        if age > judge.limits.probe_valid_seconds {
            return None;
        }
        let mut found = Self::default();
        for row in node.rows(Class::Probe) {
            let Some(entry) = cluster.device(Class::Probe, *row) else { continue };
            let name = entry.device.key.first().map_or("", Safe::as_str).replace('_', "-");
            if let Some(slow) = Slow::of(judge, cluster, *row, &name)
                && found.slow.as_ref().is_none_or(|worst| slow.share() < worst.share())
            {
                found.slow = Some(slow);
            }
            let wrong = cluster.value(probe::WRONG, *row).filter(|wrong| *wrong > 0.0);
            if let Some(wrong) = wrong
                && found.wrong.as_ref().is_none_or(|(_, most)| wrong > *most)
            {
                found.wrong = Some((name, wrong));
            }
        }
        (found.slow.is_some() || found.wrong.is_some()).then_some(found)
    }

    fn add(self, node: &Node, seen: &mut Seen) {
        let entity = Entity::node(&node.name);
        if let Some((what, wrong)) = self.wrong {
            let evidence = Evidence::new(WRONG, Some(wrong), Unit::Count, None).note(&what);
            seen.suspicions.push(
                Suspicion::of(FindingKind::GpuFailed, entity.clone(), 1, true)
                    .says(
                        format!("{entity} gets wrong data from its own GPUs: {what} of its probe."),
                        "Drain the node: what its GPUs exchange cannot be trusted. `gaunt-probe matrix` shows between which of them.".to_owned(),
                    )
                    .on([evidence]),
            );
        }
        let Some(slow) = self.slow else { return };
        let evidence = slow.evidence();
        let kind =
            if slow.through_host { FindingKind::PcieDegraded } else { FindingKind::NvlinkDegraded };
        let same = |finding: &Finding| {
            finding.kind == kind && finding.entity.node.as_ref() == Some(&node.name)
        };
        if support(seen, same, &evidence) {
            return;
        }
        let usual =
            if slow.elsewhere { "what boards of its model should" } else { "what is usual for it" };
        seen.suspicions.push(
            Suspicion::of(kind, entity.clone(), 1, true)
                .says(
                    format!(
                        "{} on {entity} reaches {} of {usual}, while its GPUs are idle.",
                        slow.what,
                        percent(slow.ratio)
                    ),
                    "Run `gaunt-probe matrix` there: it shows between which GPUs data is slow."
                        .to_owned(),
                )
                .on([evidence]),
        );
    }
}

/// Adds what probes between nodes say of one port or leaf.
fn between(judge: &Judge, measured: &Measured, seen: &mut Seen) {
    let Measured { entity, across, ratio, pairs } = measured;
    if *ratio >= judge.limits.probe_baseline_ratio {
        return;
    }
    let limit = Some(judge.limits.probe_baseline_ratio);
    let said = format!("{} say so", count(*pairs as usize, "pair"));
    let evidence = Evidence::new(OTHERS, Some(*ratio), Unit::Ratio, limit).note(said);
    let port = entity.kind == EntityKind::Port;
    let same = |finding: &Finding| match finding.kind {
        FindingKind::PortRateLow | FindingKind::LinkErrors => port && finding.entity == *entity,
        FindingKind::LeafCongested => !port && finding.entity.leaf == entity.leaf,
        _ => false,
    };
    if support(seen, same, &evidence) {
        return;
    }
    let (kind, whom, next) = match (port, across) {
        (true, _) => (
            FindingKind::PortRateLow,
            "with every other port of its rail",
            "Look at the cable and the transceivers at both ends, and at the PCIe slot of the card.",
        ),
        (false, false) => (
            FindingKind::LeafCongested,
            "between ports below it",
            "Look at the switch itself: its ports are slow with each other while nobody else sends.",
        ),
        (false, true) => (
            FindingKind::LeafCongested,
            "with ports below other leaves",
            "Look at the uplinks of this switch: below it everything is as usual.",
        ),
    };
    seen.suspicions.push(
        Suspicion::of(kind, entity.clone(), 1, true)
            .says(
                format!(
                    "{entity} carries {} of what is usual {whom}, measured between idle nodes.",
                    percent(*ratio)
                ),
                next.to_owned(),
            )
            .on([evidence]),
    );
}

/// Adds the evidence to every finding that it supports; whether there is one. Evidence of another kind wakes somebody.
fn support(seen: &mut Seen, same: impl Fn(&Finding) -> bool, evidence: &Evidence) -> bool {
    let mut any = false;
    for held in seen.suspicions.iter_mut().filter(|held| same(&held.finding)) {
        held.confirm(evidence.clone());
        any = true;
    }
    any
}
