//! Acts: the few things that may be done to what is known, beside asking.

use gaunt_schema::SanitizedText;
use serde::{Deserialize, Serialize};

/// The longest note, in characters: a sentence and a link, and as much as safe text may have.
pub const MAX_NOTE: usize = gaunt_schema::sanitized_text::MAX_CHARS;

/// The longest name of somebody who acts, in characters.
pub const MAX_NAME: usize = 64;

/// Something that is done to a finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FindingAction {
    /// Which finding.
    pub finding: String,
    /// Who does it, as he calls himself.
    pub by: SanitizedText,
    /// What he does.
    pub command: FindingCommand,
}

/// What is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FindingCommand {
    /// He takes it on, and says this about it.
    Acknowledge {
        /// What he says; may be empty.
        note: SanitizedText,
    },
    /// He says that what it does now is usual from now on, and why: the finding closes.
    Accept {
        /// What he says; may be empty.
        note: SanitizedText,
    },
    /// He takes an acknowledgement back.
    Withdraw,
}

/// An acknowledgement as it is sent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AcknowledgementBody {
    /// Who acknowledges.
    pub by: String,
    /// What he says about it.
    #[serde(default)]
    pub note: String,
    /// Whether the present level is usual from now on; the finding closes then.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub accept: bool,
}
