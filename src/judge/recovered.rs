//! Why a finding closes: which of its numbers was beyond its limit and is not any more.

use std::collections::BTreeSet;

use gaunt_schema::{
    Class, EntityKind, FindingKind,
    catalogue::{gpu_health, port},
    unit::Unit,
};

use super::{
    Evidence, Finding, Judge, Whereabouts, average::Average, crowd::median, gang::Gang, links,
};
use crate::cluster::{Cluster, NodeId};

/// A number of findings: its words, whether less of it is worse, and how it is measured now.
type Measure = (&'static str, Worse, fn(&Around<'_>) -> Option<f64>);

/// In which direction a number is worse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Worse {
    Below,
    Above,
}

use Worse::{Above, Below};

/// Every number that can say that a fault is over, by the words of the evidence.
const MEASURES: &[Measure] = &[
    ("utilization of these GPUs", Below, |it| it.gpu(|of| of.signals.utilization)),
    ("utilization of their GPUs", Below, |it| it.gpu(|of| of.signals.utilization)),
    ("tasks of the host waiting for input or output", Above, |it| it.io()),
    ("tasks of these hosts waiting for input or output", Above, |it| it.io()),
    ("tasks of the host waiting for a CPU", Above, |it| {
        it.host(|host| Some(host.cpu(it.cluster)?.now))
    }),
    ("busiest CPU of the host", Above, |it| it.host(|host| Some(host.busiest(it.cluster)?.now))),
    ("share of the time in which heat or hardware held the clock", Above, |it| {
        it.gpu(|of| larger(of.signals.hw_slowdown, of.signals.sw_thermal))
    }),
    ("clock", Below, |it| it.gpu(|of| of.clock)),
    ("PCIe lanes", Below, |it| it.row(|row| it.cluster.value(gpu_health::PCIE_WIDTH, row))),
    ("PCIe generation", Below, |it| {
        it.row(|row| it.cluster.value(gpu_health::PCIE_GENERATION, row))
    }),
    ("NVLink errors in a second", Above, |it| {
        it.row(|row| it.judge.nvlinks.errors(row, it.cluster))
    }),
    ("active NVLinks", Below, |it| it.row(|row| it.judge.nvlinks.active(row))),
    ("logical state", Below, |it| it.port(|row| it.cluster.value(port::STATE, row))),
    ("physical state", Below, |it| it.port(|row| it.cluster.value(port::PHYSICAL_STATE, row))),
    ("line rate", Below, |it| it.port(|row| it.cluster.value(port::RATE, row))),
    ("broken symbols and packets in a second", Above, |it| it.link(|link| link.errors)),
    ("packets with a congestion mark", Above, |it| it.link(|link| link.marked)),
    ("time in which the network stops them", Above, |it| it.link(|link| link.paused)),
    ("time in which they stop it", Above, |it| it.link(|link| link.pauses)),
    ("packets without a buffer in a second", Above, |it| it.link(|link| link.unbuffered)),
    ("packets sent again in a second", Above, |it| it.resent()),
    ("work against what is usual", Below, |it| it.gang.and_then(|gang| gang.pace)),
    ("speed that the job has lost", Above, |it| it.slowed()),
    ("speed that its job has lost", Above, |it| it.slowed()),
];

/// What a finding is about, as it is now.
struct Around<'a> {
    judge: &'a Judge,
    cluster: &'a Cluster,
    kind: FindingKind,
    gpus: Vec<u32>,
    nodes: BTreeSet<NodeId>,
    ports: Vec<u32>,
    gang: Option<&'a Gang>,
}

/// The averages of one GPU.
struct OfGpu {
    signals: super::signals::Signals,
    clock: Option<f64>,
}

/// The signal that recovered, beside its limit, as a person reads it: `tasks of the host waiting for input or output
/// 2 %, limit 8 %`.
pub(super) fn signal(judge: &Judge, cluster: &Cluster, finding: &Finding) -> String {
    let nodes = Whereabouts::of(judge, cluster);
    if let Some(gone) = finding.entity.node.as_ref().and_then(|name| nodes.gone(name)) {
        return gone.reason().to_string();
    }
    let around = Around::of(judge, cluster, finding);
    let recovered = finding.evidence.iter().find_map(|number| around.recovered(number));
    recovered.unwrap_or_else(|| plain(finding.kind).to_owned())
}

/// Where no number says it.
const fn plain(kind: FindingKind) -> &'static str {
    match kind {
        FindingKind::TargetDown => "the target answers again",
        FindingKind::DriverHung => "the driver answers again",
        FindingKind::DataStale => "values change again",
        FindingKind::GpuFailed => "the GPU works as usual again, was reset or is back",
        FindingKind::IdleAllocated => "its GPUs are in use again, or no job holds them",
        FindingKind::CollectiveHang => "the job moves again, or has ended",
        _ => "no evidence any more",
    }
}

impl<'a> Around<'a> {
    fn of(judge: &'a Judge, cluster: &'a Cluster, finding: &Finding) -> Self {
        let culprit = &finding.entity;
        let node = culprit.node.as_ref().and_then(|name| cluster.named(name));
        let job = culprit.job.as_ref().and_then(|job| cluster.jobs().get(job));
        let mut nodes: BTreeSet<NodeId> = node.iter().map(|(id, _)| *id).collect();
        if matches!(culprit.kind, EntityKind::Storage | EntityKind::Leaf | EntityKind::Rail) {
            let victims = finding.victims.iter().filter_map(|victim| victim.node.as_ref());
            nodes.extend(victims.filter_map(|name| Some(cluster.named(name)?.0)));
        }
        let rows = |class: Class| {
            let nodes = nodes.iter().filter_map(|id| cluster.node(*id));
            nodes.flat_map(|node| node.rows(class).to_vec()).collect::<Vec<u32>>()
        };
        let is = |class: Class, row: &u32, keys: &[Option<&gaunt_schema::Safe>]| {
            let entry = cluster.device(class, *row);
            keys.iter().enumerate().all(|(at, key)| {
                key.is_none() || entry.and_then(|entry| entry.device.key.get(at)) == *key
            })
        };
        let mut gpus = rows(Class::Gpu);
        gpus.retain(|row| is(Class::Gpu, row, &[culprit.gpu.as_ref()]));
        if node.is_none() && nodes.is_empty() {
            gpus = job.cloned().unwrap_or_default();
        }
        let mut ports = rows(Class::Port);
        ports.retain(|row| is(Class::Port, row, &[culprit.device.as_ref(), culprit.port.as_ref()]));
        let gang = gpus.first().and_then(|row| judge.gangs.of(*row));
        Self { judge, cluster, kind: finding.kind, gpus, nodes, ports, gang }
    }

    /// What is said of a number that was beyond its limit when it was last looked at, and is not now.
    fn recovered(&self, number: &Evidence) -> Option<String> {
        let (before, limit) = number.value.zip(number.limit)?;
        let (_, worse, measure) = MEASURES.iter().find(|(what, ..)| *what == number.what)?;
        let beyond = |value: f64| if *worse == Below { value < limit } else { value >= limit };
        let now = measure(self).filter(|now| beyond(before) && !beyond(*now))?;
        let sign = if *worse == Below { "≥" } else { "<" };
        let unit = number.unit;
        Some(format!("{} {} {sign} limit {}", number.what, said(now, unit), said(limit, unit)))
    }

    fn gpu(&self, of: impl Fn(&OfGpu) -> Option<f64>) -> Option<f64> {
        let (now, gap) = (self.cluster.now(), self.cluster.fresh_for());
        self.row(|row| {
            let averages = &self.judge.gpus.get(row as usize)?.averages;
            let clock = averages.clock_hertz(now, &self.judge.limits);
            of(&OfGpu { signals: averages.signals(now, gap, &self.judge.limits), clock })
        })
    }

    fn row(&self, of: impl Fn(u32) -> Option<f64>) -> Option<f64> {
        median(self.gpus.iter().filter_map(|row| of(*row)))
    }

    fn host(&self, of: impl Fn(&super::Host) -> Option<f64>) -> Option<f64> {
        let hosts = self.nodes.iter().filter_map(|id| self.judge.hosts.get(id));
        median(hosts.filter_map(of))
    }

    fn io(&self) -> Option<f64> {
        self.host(|host| Some(host.io(self.cluster)?.now))
    }

    fn port(&self, of: impl Fn(u32) -> Option<f64>) -> Option<f64> {
        self.ports.iter().filter_map(|row| of(*row)).reduce(f64::min)
    }

    fn link(&self, of: impl Fn(&links::Link) -> Average) -> Option<f64> {
        let now = |row: &u32| links::now(of(self.judge.links.of(*row)?), self.cluster);
        median(self.ports.iter().filter_map(now))
    }

    fn resent(&self) -> Option<f64> {
        if self.kind != FindingKind::PcieDegraded {
            return self.link(|link| link.resent);
        }
        let (now, gap) = (self.cluster.now(), self.cluster.fresh_for());
        self.row(|row| self.judge.gpus.get(row as usize)?.averages.pcie_replays(now, gap))
    }

    fn slowed(&self) -> Option<f64> {
        self.gang.and_then(Gang::slowed)
    }
}

fn larger(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    a.into_iter().chain(b).reduce(f64::max)
}

/// A number with its unit.
fn said(value: f64, unit: Unit) -> String {
    match unit {
        Unit::Ratio => super::finding::percent(value),
        Unit::Hertz => format!("{:.0} MHz", value / 1e6),
        Unit::BytesPerSecond => format!("{:.0} Gb/s", value * 8.0 / 1e9),
        Unit::Seconds => format!("{value:.0} s"),
        _ if value.fract().abs() < 1e-9 => format!("{value:.0}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_measure_is_a_number_of_some_finding() {
        for (what, ..) in MEASURES {
            let known = FindingKind::ALL.iter().any(|kind| {
                let ground = super::super::ground(*kind, what);
                !ground.series.is_empty() || !ground.threshold.is_empty()
            });
            assert!(known, "{what}");
        }
    }
}
