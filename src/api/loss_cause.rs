//! Causes of lost GPU time: a finding kind, idle, or unexplained.

use std::fmt;

use gaunt_schema::FindingKind;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

/// The cause of lost GPU time. It is encoded as a name: the finding kind, `idle` or `unexplained`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LossCause {
    /// An open finding of this kind.
    Finding(FindingKind),
    /// No finding: GPUs are allocated to a job and idle.
    Idle,
    /// No finding explains it.
    Unexplained,
}

impl LossCause {
    /// The encoded name, also used in labels.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Finding(kind) => kind.as_str(),
            Self::Idle => "idle",
            Self::Unexplained => "unexplained",
        }
    }

    /// Parses a cause name.
    pub fn parse(word: &str) -> Option<Self> {
        match word {
            "idle" => Some(Self::Idle),
            "unexplained" => Some(Self::Unexplained),
            kind => FindingKind::parse(kind).map(Self::Finding),
        }
    }
}

impl fmt::Display for LossCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl Serialize for LossCause {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for LossCause {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let word = std::borrow::Cow::<str>::deserialize(from)?;
        Self::parse(&word).ok_or_else(|| Error::custom("unknown cause of lost GPU time"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loss_cause_is_one_word_both_ways() {
        let kinds = FindingKind::ALL.iter().copied().map(LossCause::Finding);
        for cause in kinds.chain([LossCause::Idle, LossCause::Unexplained]) {
            assert_eq!(LossCause::parse(cause.as_str()), Some(cause));
            let text = serde_json::to_string(&cause).unwrap();
            assert_eq!(serde_json::from_str::<LossCause>(&text).unwrap(), cause);
        }
        assert_eq!(LossCause::parse("luck"), None);
    }
}
