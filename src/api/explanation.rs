//! Explanations: the evidence behind one finding, open or closed.

use gaunt_schema::{EvidenceContext, Finding, Severity, UnixMs, time::format_duration};
use serde::{Deserialize, Serialize};

use super::FindingContext;

/// Everything known about one finding.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Explanation {
    /// Engine time of this answer.
    pub at: UnixMs,
    /// The finding in its current or last state.
    pub finding: Finding,
    /// How findings of this kind are detected, in a few sentences.
    pub rule: String,
    /// The limits that its evidence is compared with.
    pub limits: Vec<LimitDetail>,
    /// Context of the evidence at the last detailed evaluation; none if an older gaunt wrote it.
    pub chain: Option<EvidenceContext>,
    /// Number of earlier findings of this kind on this entity that closed within the 30 days before it opened; 0 also
    /// where no journal is kept.
    #[serde(default)]
    pub earlier_count: u32,
    /// The newest of them, newest first.
    #[serde(default)]
    pub earlier: Vec<EarlierFinding>,
    /// Owners, cost and nearby changes; none of an older aggregator or of the past.
    #[serde(default)]
    pub context: Option<FindingContext>,
}

/// An earlier finding of the same kind on the same entity.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct EarlierFinding {
    /// Time of its opening.
    pub opened: UnixMs,
    /// Time of its closing.
    pub closed: UnixMs,
    /// Its last severity.
    pub severity: Severity,
}

impl Explanation {
    /// How often the same fault was found on this entity before: `third link_errors on this port in 30 days`, with the
    /// earlier ones. None if this is the first.
    pub fn describe_repeats(&self) -> Option<String> {
        if self.earlier_count == 0 {
            return None;
        }
        let (kind, entity) = (self.finding.kind, self.finding.entity.kind.as_str());
        let number = format_ordinal(self.earlier_count + 1);
        let earlier = self.earlier.iter().map(|earlier| {
            let duration = format_duration(earlier.closed.duration_since(earlier.opened));
            format!("{} for {duration} ({})", format_minute(earlier.opened), earlier.severity)
        });
        let mut listed: Vec<String> = earlier.collect();
        let unlisted = self.earlier_count as usize - listed.len().min(self.earlier_count as usize);
        if unlisted > 0 {
            listed.push(format!("and {unlisted} more"));
        }
        Some(format!(
            "{number} {kind} on this {entity} in 30 days; before: {} (UTC)",
            listed.join(", ")
        ))
    }
}

/// `second`, `third`; from ten on in digits.
fn format_ordinal(number: u32) -> String {
    const WORDS: [&str; 9] =
        ["first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth"];
    if let Some(word) = number.checked_sub(1).and_then(|index| WORDS.get(index as usize)) {
        return (*word).to_owned();
    }
    let ending = match (number % 10, number % 100) {
        (_, 11..=13) => "th",
        (1, _) => "st",
        (2, _) => "nd",
        (3, _) => "rd",
        _ => "th",
    };
    format!("{number}{ending}")
}

/// Date and time to the minute: `2026-11-21 03:24`.
fn format_minute(at: UnixMs) -> String {
    let (year, month, day) = at.to_date();
    let time = at.to_time_of_day();
    format!("{year:04}-{month:02}-{day:02} {}", time.get(..5).unwrap_or(&time))
}

/// One limit with its reason.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LimitDetail {
    /// Key in the settings, below `[judge]`.
    pub key: String,
    /// Configured value.
    pub value: f64,
    /// Purpose and source of the limit.
    pub why: String,
}

#[cfg(test)]
mod tests {
    use gaunt_schema::{Entity, FindingKind};

    use super::*;

    #[test]
    fn repeated_fault_is_counted_in_words_with_the_earlier_ones() {
        let entity = Entity::new_port(&"gpu003".into(), &"mlx5_1".into(), &"1".into());
        let at = UnixMs(1_763_695_445_000);
        let mut explanation = Explanation {
            at,
            finding: Finding::new(FindingKind::LinkErrors, Severity::Warning, entity),
            rule: String::new(),
            limits: Vec::new(),
            chain: None,
            earlier_count: 0,
            earlier: Vec::new(),
            context: None,
        };
        assert_eq!(explanation.describe_repeats(), None);
        let closed = UnixMs(at.0 + 600_000);
        explanation.earlier.push(EarlierFinding {
            opened: at,
            closed,
            severity: Severity::Warning,
        });
        explanation.earlier_count = 2;
        assert_eq!(
            explanation.describe_repeats().unwrap(),
            "third link_errors on this port in 30 days; before: 2025-11-21 03:24 for 10m (warning), \
             and 1 more (UTC)"
        );
        let ordinals = [2, 9, 10, 11, 13, 21, 22, 103, 111].map(format_ordinal);
        let expected =
            ["second", "ninth", "10th", "11th", "13th", "21st", "22nd", "103rd", "111th"];
        assert_eq!(ordinals, expected.map(str::to_owned));
    }
}
