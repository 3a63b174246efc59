//! A finding as the judge makes it: one fault, said once, with the numbers behind it.

use gaunt_schema::{Entity, FindingKind, Severity, UnixMs, unit::Unit};

/// The most victims that are listed; their cost is counted in full.
pub(super) const MAX_VICTIMS: usize = 32;

/// One fault.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// Stable as long as the same kind blames the same thing: `port_down/gpu003/mlx5_1/1`.
    pub id: String,
    /// What is wrong.
    pub kind: FindingKind,
    /// How urgent it is.
    pub severity: Severity,
    /// What is to blame.
    pub entity: Entity,
    /// When the evidence began.
    pub since: UnixMs,
    /// How sure the judge is, from 0 to 1.
    pub confidence: f64,
    /// GPUs whose time it costs.
    pub lost_gpus: f64,
    /// Who suffers from it; at most 32 are named.
    pub victims: Vec<Entity>,
    /// One sentence: what is wrong and since when.
    pub summary: String,
    /// One sentence: what to look at next.
    pub next: String,
    /// The numbers, each beside its limit.
    pub evidence: Vec<Evidence>,
}

/// One number behind a finding.
#[derive(Clone, Debug, PartialEq)]
pub struct Evidence {
    /// What was looked at.
    pub what: String,
    /// Its value; none if the evidence is an absence.
    pub value: Option<f64>,
    /// Its unit.
    pub unit: Unit,
    /// The limit that it passed, if it is a number.
    pub limit: Option<f64>,
    /// What it means; empty if the numbers say it.
    pub note: String,
}

impl Evidence {
    /// A number beside its limit.
    pub(super) fn new(what: &str, value: Option<f64>, unit: Unit, limit: Option<f64>) -> Self {
        Self { what: what.to_owned(), value, unit, limit, note: String::new() }
    }

    /// The same with what it means.
    pub(super) fn note(mut self, note: impl Into<String>) -> Self {
        self.note = note.into();
        self
    }
}

/// The time of day of an instant: `11:57:32 UTC`.
pub(super) fn time_of_day(at: UnixMs) -> String {
    let seconds = at.0.div_euclid(1_000).rem_euclid(86_400);
    format!("{:02}:{:02}:{:02} UTC", seconds / 3_600, seconds / 60 % 60, seconds % 60)
}

/// A count with its noun: `1 GPU`, `8 GPUs`.
pub(super) fn count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_day_is_that_of_the_instant() {
        assert_eq!(time_of_day(UnixMs(0)), "00:00:00 UTC");
        assert_eq!(time_of_day(UnixMs(1_700_000_000_999)), "22:13:20 UTC");
        assert_eq!(time_of_day(UnixMs(-1)), "23:59:59 UTC");
    }

    #[test]
    fn one_is_not_many() {
        assert_eq!((count(1, "GPU"), count(0, "port")), ("1 GPU".into(), "0 ports".into()));
    }
}
