//! Findings: what is wrong, where, since when, how sure, what it costs, on what evidence.

use gaunt_schema::{Entity, FindingKind, Severity, UnixMs, unit::Unit};
use serde::{Deserialize, Serialize};

/// Every open finding.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FindingList {
    /// The owner's clock when this was true.
    pub at: UnixMs,
    /// The findings, worst first: by severity, then by cost.
    pub findings: Vec<Finding>,
    /// How many there are in all.
    #[serde(default)]
    pub total: u32,
    /// How many of them match the filter; the list may be only a page of them.
    #[serde(default)]
    pub matched: u32,
}

/// One fault, said once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// Stable as long as the same kind blames the same thing: `port_down/gpu003/mlx5_1/1`.
    pub id: String,
    /// What is wrong.
    pub kind: FindingKind,
    /// How urgent it is.
    pub severity: Severity,
    /// What is to blame.
    pub entity: Entity,
    /// When the evidence began, by the owner's clock.
    pub since: UnixMs,
    /// How sure the judge is, from 0 to 1.
    pub confidence: f64,
    /// GPU-hours that it costs in an hour.
    pub cost_gpu_hours_per_hour: f64,
    /// Who suffers from it.
    pub victims: Vec<Entity>,
    /// One sentence: what is wrong and since when.
    pub summary: String,
    /// One sentence: what to look at next.
    pub next: String,
    /// The numbers behind it, each beside its limit.
    pub evidence: Vec<Evidence>,
}

/// One number behind a finding.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Evidence {
    /// What was looked at, in a few words.
    pub what: String,
    /// Its value; none if the evidence is an absence.
    pub value: Option<f64>,
    /// Its unit.
    pub unit: Unit,
    /// The limit that it passed, if it is a number.
    pub limit: Option<f64>,
    /// What it means, in a few words; empty if the numbers say it.
    pub note: String,
}
