//! Telemetry coverage: what gaunt does not know of the fleet, why, and how soon a finding can be reported at the
//! measured intervals.

use gaunt_schema::{DeviceClass, Dialect, SanitizedText, UnixMs};
use serde::{Deserialize, Serialize};

/// Maximum number of names in the list of a check.
pub const MAX_MISSING_NAMES: usize = 16;

/// Maximum number of groups of renewal intervals.
pub const MAX_RENEWAL_GROUPS: usize = 32;

/// What gaunt knows and does not know now.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TelemetryCoverage {
    /// Engine time of this answer.
    pub at: UnixMs,
    /// Number of nodes with GPUs or host metrics.
    pub nodes: u32,
    /// Number of nodes with GPUs.
    pub gpu_nodes: u32,
    /// Number of GPUs.
    pub gpus: u32,
    /// Scrape interval of a target, in milliseconds.
    pub period_ms: u64,
    /// The checks that apply to this fleet.
    pub checks: Vec<CoverageCheck>,
    /// How often values are renewed, the rarest first: at most 32 groups.
    pub intervals: Vec<RenewalGroup>,
    /// Number of groups before that limit.
    pub intervals_total: u32,
    /// The shortest delay of all groups: nothing inferred is reported earlier. None before an interval is measured.
    pub inferred_seconds: Option<f64>,
    /// The delay after which a state that a device reports about itself is a finding, such as a port that is down.
    pub reported_seconds: f64,
}

/// What a check asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum CoverageKind {
    /// Every target is read.
    Targets,
    /// Every node with GPUs has host metrics.
    HostMetrics,
    /// Every node with host metrics has GPUs.
    GpuMetrics,
    /// No two nodes look like the halves of one machine.
    JoinedNodes,
    /// Every node with GPUs has PSI metrics.
    PressureMetrics,
    /// Every field of every page of dcgm-exporter is understood.
    ExporterFields,
    /// Every GPU has profiling counters.
    ProfilingCounters,
    /// Every node with GPUs has metrics of RDMA ports.
    PortMetrics,
    /// The rail of every active port is known.
    Rails,
    /// The leaf switch of every active port is known.
    Leaves,
    /// Every GPU in use has a job label.
    JobLabels,
    /// Every source of targets is read.
    Sources,
    /// Every file of topology and jobs is read without errors.
    SiteFiles,
    /// The clock of every node is right.
    Clocks,
    /// Every gaunt-node has the version of the aggregator.
    Versions,
    /// No certificate of an exporter or of the aggregator expires soon.
    Certificates,
    /// Every Alertmanager takes alerts.
    Alertmanagers,
    /// Every other aggregator of the cluster answers.
    Peers,
    /// The store accepts verdicts.
    Store,
}

impl CoverageKind {
    /// The name in answers and tables.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Targets => "targets",
            Self::HostMetrics => "host_metrics",
            Self::GpuMetrics => "gpu_metrics",
            Self::JoinedNodes => "joined_nodes",
            Self::PressureMetrics => "pressure_metrics",
            Self::ExporterFields => "exporter_fields",
            Self::ProfilingCounters => "profiling_counters",
            Self::PortMetrics => "port_metrics",
            Self::Rails => "rails",
            Self::Leaves => "leaves",
            Self::JobLabels => "job_labels",
            Self::Sources => "sources",
            Self::SiteFiles => "site_files",
            Self::Clocks => "clocks",
            Self::Versions => "versions",
            Self::Certificates => "certificates",
            Self::Alertmanagers => "alertmanagers",
            Self::Peers => "peers",
            Self::Store => "store",
        }
    }
}

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum CoverageState {
    /// Everything is known.
    Ok,
    /// Something is missing that gaunt needs.
    Missing,
    /// Something is absent that this fleet may not have at all.
    Note,
}

impl CoverageState {
    /// The name in answers and tables.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Missing => "missing",
            Self::Note => "note",
        }
    }
}

/// One check: how much is known, and what is missing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CoverageCheck {
    /// What it asks for.
    pub kind: CoverageKind,
    /// Its result.
    pub state: CoverageState,
    /// How many targets, nodes, GPUs or ports have it.
    pub known: u32,
    /// Of how many.
    pub total: u32,
    /// The result as a sentence.
    pub summary: SanitizedText,
    /// The next step, if something is missing.
    pub next: SanitizedText,
    /// Nodes or targets that lack it, or fields that are not understood, the first 16 by name.
    pub missing: Vec<SanitizedText>,
    /// Number of names before that limit.
    pub missing_total: u32,
    /// Who states what is known: the origins of topology facts, with how many each states.
    pub origins: Vec<OriginCount>,
}

/// Number of facts that sources of one origin state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct OriginCount {
    /// The origin and the source: `declared topology.toml`.
    pub origin: SanitizedText,
    /// How many facts.
    pub count: u32,
}

/// Nodes whose values of one class are renewed equally often by exporters of one format.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RenewalGroup {
    /// The exporter format.
    pub dialect: Dialect,
    /// The devices: GPUs, hosts or ports.
    pub class: DeviceClass,
    /// Number of nodes.
    pub nodes: u32,
    /// The measured renewal interval in seconds; none before three renewals.
    pub renewal_seconds: Option<f64>,
    /// The shortest delay of a finding that is inferred from these values, counted from the first sample that shows the
    /// fault; none while the interval is unknown.
    pub inferred_seconds: Option<f64>,
}

impl TelemetryCoverage {
    /// Returns the number of checks that miss something.
    pub fn missing_checks(&self) -> usize {
        self.checks.iter().filter(|check| check.state == CoverageState::Missing).count()
    }

    /// Returns how soon a finding can be reported, as sentences: in general, and from values that are renewed more
    /// rarely than targets are scraped, or whose interval is not known.
    pub fn describe_delays(&self) -> Vec<String> {
        let reported = format!(
            "A state that a device reports, such as a port that is down, is a finding after {}",
            format_seconds(self.reported_seconds)
        );
        let mut lines = vec![match self.inferred_seconds {
            Some(least) => format!(
                "{reported}; what is inferred takes at least {} from the first sample that shows it.",
                format_seconds(least)
            ),
            None => format!("{reported}; no renewal interval is measured yet."),
        }];
        // Scrapes do not come at exact intervals.
        let slow_from = self.period_ms as f64 / 1e3 * 1.5;
        let is_slow = |group: &&RenewalGroup| {
            group.renewal_seconds.is_none_or(|seconds| seconds >= slow_from)
        };
        let slow = self.intervals.iter().filter(is_slow);
        lines.extend(slow.map(RenewalGroup::describe_delay));
        let more = (self.intervals_total as usize).saturating_sub(self.intervals.len());
        lines
            .extend((more > 0).then(|| format!("{more} more groups of intervals are not listed.")));
        lines
    }
}

impl CoverageCheck {
    /// Returns the names of what is missing in one line, and how many more there are; empty if there are none.
    pub fn list_missing(&self) -> String {
        let names: Vec<&str> = self.missing.iter().map(SanitizedText::as_str).collect();
        let more = (self.missing_total as usize).saturating_sub(names.len());
        match more {
            0 => names.join(", "),
            _ => format!("{} and {more} more", names.join(", ")),
        }
    }

    /// Returns who states what is known, in one line; empty if nobody does.
    pub fn list_origins(&self) -> String {
        let origins = self.origins.iter().map(|one| format!("{} ({})", one.origin, one.count));
        origins.collect::<Vec<_>>().join(", ")
    }
}

impl RenewalGroup {
    /// Returns the delay of findings inferred from these values as a sentence.
    fn describe_delay(&self) -> String {
        let nodes = if self.nodes == 1 { "node" } else { "nodes" };
        let of =
            format!("{} of {} {nodes} ({})", self.class_label(), self.nodes, self.dialect.as_str());
        match (self.renewal_seconds, self.inferred_seconds) {
            (Some(renewal), Some(inferred)) => format!(
                "{of} are renewed every {}: nothing inferred from them is reported within {}.",
                format_seconds(renewal),
                format_seconds(inferred)
            ),
            _ => {
                format!("{of}: the renewal interval is not measured yet; it takes three renewals.")
            }
        }
    }

    /// Returns the devices in the words of tables.
    pub const fn class_label(&self) -> &'static str {
        match self.class {
            DeviceClass::Gpu => "GPUs",
            DeviceClass::Port => "ports",
            _ => "hosts",
        }
    }
}

/// A number of seconds, with tenths only where it has some.
fn format_seconds(seconds: f64) -> String {
    let digits = usize::from((seconds - seconds.round()).abs() >= 0.05);
    format!("{seconds:.digits$} s")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_beyond_the_limit_are_counted() {
        let mut check = CoverageCheck {
            kind: CoverageKind::Rails,
            state: CoverageState::Missing,
            known: 3,
            total: 9,
            summary: SanitizedText::default(),
            next: SanitizedText::default(),
            missing: vec!["gpu001".into(), "gpu002".into()],
            missing_total: 2,
            origins: vec![OriginCount { origin: "declared topology.toml".into(), count: 3 }],
        };
        assert_eq!(check.list_missing(), "gpu001, gpu002");
        check.missing_total = 6;
        assert_eq!(check.list_missing(), "gpu001, gpu002 and 4 more");
        assert_eq!(check.list_origins(), "declared topology.toml (3)");
        let coverage = TelemetryCoverage { checks: vec![check], ..TelemetryCoverage::default() };
        assert_eq!(coverage.missing_checks(), 1);
    }
}
