//! Which aggregator a command asks: one rule for all of them.
//!
//! `--aggregator`, else `$GAUNT_AGGREGATOR`, else `console.aggregator` in the settings, else the one on this machine.

use std::time::Duration;

use tokio::time::timeout;

use crate::{
    answer::Question,
    source::{Aggregator, AggregatorError},
};

/// The variable of the environment that names an aggregator.
pub const AGGREGATOR_VARIABLE: &str = "GAUNT_AGGREGATOR";

/// The aggregator on this machine.
const THIS_MACHINE: &str = "http://127.0.0.1:9771";

/// How long the aggregator on this machine may take to answer before it counts as absent.
const ANSWER_TIME: Duration = Duration::from_secs(1);

/// Who named an aggregator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamedBy {
    /// `--aggregator`.
    Flag,
    /// `$GAUNT_AGGREGATOR`.
    Environment,
    /// `console.aggregator` in the settings.
    Settings,
    /// Nobody: it is the one on this machine.
    Default,
}

/// The address of an aggregator, and who named it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AggregatorAddress {
    /// The address.
    pub url: String,
    /// Who named it.
    pub named_by: NamedBy,
}

impl AggregatorAddress {
    /// The address by the rule; a name that is empty is none.
    pub fn choose(
        flag: Option<String>,
        variable: Option<String>,
        settings: Option<String>,
    ) -> Self {
        let named = [
            (flag, NamedBy::Flag),
            (variable.filter(|url| !url.trim().is_empty()), NamedBy::Environment),
            (settings, NamedBy::Settings),
        ];
        let named = named.into_iter().find_map(|(url, by)| Some((url?, by)));
        let (url, named_by) = named.unwrap_or_else(|| (THIS_MACHINE.to_owned(), NamedBy::Default));
        Self { url, named_by }
    }

    /// A client of it.
    pub fn client(&self) -> anyhow::Result<Aggregator> {
        Aggregator::new(&self.url).map_err(|error| self.explain(error))
    }

    /// An error of this aggregator, with who named it where that is not seen on the command line.
    pub fn explain(&self, error: AggregatorError) -> anyhow::Error {
        match self.named_by {
            NamedBy::Flag => error.into(),
            NamedBy::Environment => {
                anyhow::anyhow!("{error} (the address is that of {AGGREGATOR_VARIABLE})")
            }
            NamedBy::Settings => {
                anyhow::anyhow!("{error} (the address is console.aggregator in the settings)")
            }
            NamedBy::Default => anyhow::anyhow!(
                "no aggregator is named, and the one on this machine cannot be asked: {error}; name one with \
                 --aggregator URL or {AGGREGATOR_VARIABLE}"
            ),
        }
    }

    /// Whether an aggregator answers there.
    pub(super) async fn answers(&self) -> bool {
        let Ok(aggregator) = Aggregator::new(&self.url) else { return false };
        let answer = timeout(ANSWER_TIME, aggregator.ask(&Question::Overview)).await;
        matches!(answer, Ok(Ok(_)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flag_wins_over_environment_over_settings_over_this_machine() {
        let some = |url: &str| Some(url.to_owned());
        for (flag, variable, settings, url, named_by) in [
            (some("a"), some("b"), some("c"), "a", NamedBy::Flag),
            (None, some("b"), some("c"), "b", NamedBy::Environment),
            (None, some(" "), some("c"), "c", NamedBy::Settings),
            (None, None, None, THIS_MACHINE, NamedBy::Default),
        ] {
            let chosen = AggregatorAddress::choose(flag, variable, settings);
            assert_eq!((chosen.url.as_str(), chosen.named_by), (url, named_by));
        }
    }
}
