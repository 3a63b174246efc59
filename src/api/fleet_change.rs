//! Changes of the fleet that a person would ask for beside a fault: jobs that start and end, deploys, reboots, driver
//! changes.

use gaunt_schema::{SanitizedText, UnixMs};
use serde::{Deserialize, Serialize};

/// Maximum number of nodes that an answer names for one change; the others are counted.
pub const NAMED_NODES: usize = 8;

/// One change of the fleet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FleetChange {
    /// When it was first seen, in engine time; of a job, its start as the scheduler states it, where that is known.
    pub at: UnixMs,
    /// What changed.
    pub kind: FleetChangeKind,
    /// The job, if a job started, ended or was deployed.
    #[serde(default)]
    pub job: Option<SanitizedText>,
    /// The first nodes that changed, in the order of their names; of a job, none.
    #[serde(default)]
    pub nodes: Vec<SanitizedText>,
    /// Number of nodes that changed, that the job runs on, or on which it was deployed first.
    pub node_count: u32,
    /// The old and the new value, such as `550.54.15 → 550.90.07`; empty if there is none.
    #[serde(default)]
    pub what: SanitizedText,
}

/// Kind of a change of the fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum FleetChangeKind {
    /// A job started; or, with a value, it was deployed while it ran: pods of it have another template than before, since
    /// its Deployment in Kubernetes was changed. A kind of its own would be unknown to consoles of older versions.
    JobStarted,
    /// A job ended.
    JobEnded,
    /// Nodes booted: their CPU time counts from zero again.
    Rebooted,
    /// Nodes have another version of the GPU driver.
    DriverChanged,
    /// Nodes run another kernel.
    KernelChanged,
}

impl FleetChangeKind {
    /// Returns the words for it after its subject: `job 8812 started`.
    pub const fn as_words(self) -> &'static str {
        match self {
            Self::JobStarted => "started",
            Self::JobEnded => "ended",
            Self::Rebooted => "rebooted",
            Self::DriverChanged => "driver changed",
            Self::KernelChanged => "kernel changed",
        }
    }
}

impl FleetChange {
    /// Describes the change without its time: `job 8812 started on 8 nodes`, `gpu003: driver changed, 550.54.15 →
    /// 550.90.07`.
    pub fn describe(&self) -> String {
        let is_deploy = self.kind == FleetChangeKind::JobStarted && !self.what.is_empty();
        let words = if is_deploy { "deployed" } else { self.kind.as_words() };
        let (count, plural) = (self.node_count, if self.node_count == 1 { "" } else { "s" });
        let text = match (&self.job, self.nodes.as_slice()) {
            (Some(job), _) if count > 0 => format!("job {job} {words} on {count} node{plural}"),
            (Some(job), _) => format!("job {job} {words}"),
            (None, [node]) => format!("{node} {words}"),
            (None, [node, ..]) => format!("{node} and {} more nodes {words}", count.max(2) - 1),
            (None, []) => format!("{count} node{plural} {words}"),
        };
        if self.what.is_empty() { text } else { format!("{text}: {}", self.what) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn change_is_described_with_its_subject_and_values() {
        let change =
            |kind, job: Option<&str>, nodes: &[&str], node_count, what: &str| FleetChange {
                at: UnixMs(0),
                kind,
                job: job.map(SanitizedText::new),
                nodes: nodes.iter().map(|node| SanitizedText::new(node)).collect(),
                node_count,
                what: SanitizedText::new(what),
            };
        let started = change(FleetChangeKind::JobStarted, Some("8812"), &[], 8, "");
        assert_eq!(started.describe(), "job 8812 started on 8 nodes");
        let ended = change(FleetChangeKind::JobEnded, Some("8812"), &[], 0, "");
        assert_eq!(ended.describe(), "job 8812 ended");
        let driver = change(FleetChangeKind::DriverChanged, None, &["gpu003"], 1, "550 → 570");
        assert_eq!(driver.describe(), "gpu003 driver changed: 550 → 570");
        let what = "pod template 7d4b9c8f5 → 5f6c9d7b4";
        let deploy = change(FleetChangeKind::JobStarted, Some("ml/vllm"), &[], 2, what);
        assert_eq!(
            deploy.describe(),
            "job ml/vllm deployed on 2 nodes: pod template 7d4b9c8f5 → 5f6c9d7b4"
        );
        let reboots = change(FleetChangeKind::Rebooted, None, &["gpu003", "gpu004"], 12, "");
        assert_eq!(reboots.describe(), "gpu003 and 11 more nodes rebooted");
    }
}
