//! Actions on findings: acknowledge, accept and withdraw.

use gaunt_schema::SanitizedText;
use serde::{Deserialize, Serialize};

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
