//! Context of a finding: the jobs that it affects and their owners, its cost per hour, and what changed near its start.

use gaunt_schema::{SanitizedText, UnixMs, time::format_duration};
use serde::{Deserialize, Serialize};

use super::FleetChange;

/// Maximum number of jobs and of changes in one context.
pub const CONTEXT_ITEMS: usize = 4;

/// What is known around one finding.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FindingContext {
    /// Id of the finding.
    pub id: String,
    /// The jobs that it affects, those with most GPUs first; a bounded number.
    pub jobs: Vec<VictimJob>,
    /// Number of jobs that it affects.
    pub job_count: u32,
    /// Its cost per hour, if a price is set.
    #[serde(default)]
    pub cost_per_hour: Option<f64>,
    /// The currency of the price.
    #[serde(default)]
    pub currency: SanitizedText,
    /// Changes of its nodes and jobs near its start, nearest first; a bounded number.
    #[serde(default)]
    pub changes: Vec<FleetChange>,
}

/// A job that a finding affects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct VictimJob {
    /// Its id.
    pub job: SanitizedText,
    /// Its name, as its user chose it.
    #[serde(default)]
    pub name: Option<SanitizedText>,
    /// The user that submitted it.
    #[serde(default)]
    pub user: Option<SanitizedText>,
    /// The account that is charged.
    #[serde(default)]
    pub account: Option<SanitizedText>,
    /// Number of its GPUs that the finding affects.
    pub gpus: u32,
}

impl VictimJob {
    /// Describes the job with its name and its owner: `job 8812 llama-pt of alice`.
    pub fn describe(&self) -> String {
        let mut text = format!("job {}", self.job);
        if let Some(name) = &self.name {
            text.extend([" ", name.as_str()]);
        }
        if let Some(owner) = self.user.as_ref().or(self.account.as_ref()) {
            text.extend([" of ", owner.as_str()]);
        }
        text
    }
}

impl FindingContext {
    /// Describes the jobs and their owners; none if no job is known.
    pub fn describe_jobs(&self) -> Option<String> {
        let (first, rest) = self.jobs.split_first()?;
        let mut text = first.describe();
        let shown = match rest {
            [second] if self.job_count == 2 => {
                text.extend([" and ", &second.describe()]);
                2
            }
            _ => 1,
        };
        Some(match self.job_count.saturating_sub(shown) {
            0 => text,
            1 => text + " and 1 more job",
            more => format!("{text} and {more} more jobs"),
        })
    }

    /// Describes the changes near the start of the finding, each with its distance from it.
    pub fn describe_changes(&self, since: UnixMs) -> Vec<String> {
        let changes = self.changes.iter().map(|change| {
            let text = change.describe();
            if change.at <= since {
                let before = since.duration_since(change.at);
                format!("{text}, {} before", format_duration(before))
            } else {
                let after = change.at.duration_since(since);
                format!("{text}, {} after", format_duration(after))
            }
        });
        changes.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FleetChangeKind;

    fn victim(job: &str, name: Option<&str>, user: Option<&str>) -> VictimJob {
        VictimJob {
            job: SanitizedText::new(job),
            name: name.map(SanitizedText::new),
            user: user.map(SanitizedText::new),
            account: None,
            gpus: 8,
        }
    }

    #[test]
    fn jobs_are_named_with_their_owners_and_the_rest_is_counted() {
        let mut context = FindingContext::default();
        assert_eq!(context.describe_jobs(), None);
        context.jobs = vec![victim("8812", Some("llama-pt"), Some("alice"))];
        context.job_count = 1;
        assert_eq!(context.describe_jobs().unwrap(), "job 8812 llama-pt of alice");
        context.jobs.push(victim("8840", None, Some("bob")));
        context.job_count = 2;
        let both = "job 8812 llama-pt of alice and job 8840 of bob";
        assert_eq!(context.describe_jobs().unwrap(), both);
        context.job_count = 9;
        let many = "job 8812 llama-pt of alice and 8 more jobs";
        assert_eq!(context.describe_jobs().unwrap(), many);
    }

    #[test]
    fn changes_have_their_distance_from_the_start() {
        let change = |at| FleetChange {
            at: UnixMs(at),
            kind: FleetChangeKind::JobStarted,
            job: Some("8812".into()),
            nodes: Vec::new(),
            node_count: 0,
            what: SanitizedText::default(),
        };
        let changes = vec![change(58_000), change(63_000)];
        let context = FindingContext { changes, ..FindingContext::default() };
        let described = context.describe_changes(UnixMs(60_000));
        assert_eq!(described, ["job 8812 started, 2s before", "job 8812 started, 3s after"]);
    }
}
