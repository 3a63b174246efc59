//! Actions on findings: acknowledge, accept and withdraw.

use std::{fmt, str::FromStr};

use gaunt_schema::{FindingEvent, SanitizedText, UnixMs};
use serde::{Deserialize, Serialize};

use crate::Finding;

/// The longest note, in characters: a sentence and a link, and the limit of sanitized text.
pub const MAX_NOTE: usize = gaunt_schema::sanitized_text::MAX_CHARS;

/// The longest user name, in characters.
pub const MAX_NAME: usize = 64;

/// An action on a finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FindingAction {
    /// Id of the finding.
    pub finding: String,
    /// User name as given.
    pub by: SanitizedText,
    /// The command.
    pub command: FindingCommand,
    /// The state of the finding that the user acts on; none for any. An action on an earlier one is refused: a network that
    /// was cut delivers requests late, after their client repeated them elsewhere.
    pub seen: Option<SeenFinding>,
}

/// The state of a finding, as far as actions are concerned; as text the entity tag of `If-Match`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeenFinding {
    /// When it opened.
    opened: UnixMs,
    /// When it was acknowledged last, or that withdrawn or lapsed; the epoch if never.
    acted: UnixMs,
}

impl SeenFinding {
    /// The state of this finding.
    pub fn of(finding: &Finding) -> Self {
        let changes = finding.life.changes.iter();
        let acted = changes.filter(|change| is_acknowledgement_event(change.what));
        let acted = acted.map(|change| change.at).max().unwrap_or_default();
        Self { opened: finding.life.opened, acted }
    }
}

/// Whether a change of a finding is one of its acknowledgement.
pub fn is_acknowledgement_event(what: FindingEvent) -> bool {
    matches!(what, FindingEvent::Acknowledged | FindingEvent::Withdrawn | FindingEvent::Lapsed)
}

impl fmt::Display for SeenFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}-{}\"", self.opened.0, self.acted.0)
    }
}

/// A text is not the entity tag of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "not of the form \"OPENED-ACTED\", two times in milliseconds since 1970; leave it out to act on any state"
)]
pub struct SeenFindingError;

impl FromStr for SeenFinding {
    type Err = SeenFindingError;

    fn from_str(text: &str) -> Result<Self, SeenFindingError> {
        let inner = text.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
        let times = inner.and_then(|text| text.split_once('-')).ok_or(SeenFindingError)?;
        let parse = |time: &str| time.parse().map(UnixMs).map_err(|_| SeenFindingError);
        Ok(Self { opened: parse(times.0)?, acted: parse(times.1)? })
    }
}

/// A command on a finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FindingCommand {
    /// Acknowledges the finding, with a note.
    Acknowledge {
        /// The note; may be empty.
        note: SanitizedText,
    },
    /// Accepts the present level as the new baseline, with a note; the finding closes.
    Accept {
        /// The note; may be empty.
        note: SanitizedText,
    },
    /// Withdraws the acknowledgement.
    Withdraw,
}

/// Request body of an acknowledgement.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct AcknowledgementBody {
    /// User name.
    #[cfg_attr(test, schemars(length(min = 1, max = MAX_NAME)))]
    pub by: String,
    /// The note.
    #[serde(default)]
    #[cfg_attr(test, schemars(length(max = MAX_NOTE)))]
    pub note: String,
    /// Whether the present level becomes the baseline; the finding closes then.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub accept: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entity_tag_is_read_as_it_is_written() {
        let seen = SeenFinding { opened: UnixMs(1_700_000_000_000), acted: UnixMs(0) };
        assert_eq!(seen.to_string(), "\"1700000000000-0\"");
        assert_eq!(seen.to_string().parse(), Ok(seen));
        for text in ["", "*", "1-2", "\"\"", "\"1\"", "\"1-\"", "W/\"1-2\"", "\"1-2\", \"3-4\""] {
            assert_eq!(text.parse::<SeenFinding>(), Err(SeenFindingError), "{text}");
        }
    }
}
