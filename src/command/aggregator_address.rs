//! Aggregator address: one rule for all commands.
//!
//! `--aggregator`, else `$GAUNT_AGGREGATOR`, else `console.aggregator` in the settings, else the one on this machine.

use std::{
    ffi::OsString,
    io::{self, Write as _},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use tokio::time::timeout;

use crate::answer_source::{
    AggregatorClient, AggregatorError, AggregatorReportFn, AnswerSource, split_clusters,
};
use gaunt_api::Question;

/// Environment variable of the aggregator's address.
pub const AGGREGATOR_VARIABLE: &str = "GAUNT_AGGREGATOR";

/// Environment variable of a file of CA certificates that aggregators are verified with.
pub const AUTHORITIES_VARIABLE: &str = "GAUNT_CA_FILE";

/// Environment variable with the aggregator's token.
const TOKEN_VARIABLE: &str = "GAUNT_TOKEN";

/// The aggregator on this machine.
const THIS_MACHINE: &str = "http://127.0.0.1:9771";

/// How long the aggregator on this machine may take to answer before it counts as absent.
const ANSWER_TIME: Duration = Duration::from_secs(1);

/// The token in the environment, if there is one.
pub(super) fn token_from_environment() -> Option<String> {
    std::env::var(TOKEN_VARIABLE).ok().filter(|token| !token.is_empty())
}

/// Origin of an aggregator's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AggregatorNamedBy {
    /// `--aggregator`.
    Flag,
    /// `$GAUNT_AGGREGATOR`.
    Environment,
    /// `console.aggregator` in the settings.
    Settings,
    /// Default: the aggregator on this machine.
    Default,
}

/// The address of an aggregator and its origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AggregatorAddress {
    /// The address.
    pub url: String,
    /// Where the address comes from.
    pub named_by: AggregatorNamedBy,
    /// CA certificates that it is verified with, instead of the system's.
    pub ca_file: Option<PathBuf>,
}

impl AggregatorAddress {
    /// Chooses the address by the rule; an empty one counts as not set.
    pub fn choose_address(
        flag: Option<String>,
        variable: Option<String>,
        settings: Option<String>,
    ) -> Self {
        let choice = [
            (flag, AggregatorNamedBy::Flag),
            (variable.filter(|url| !url.trim().is_empty()), AggregatorNamedBy::Environment),
            (settings, AggregatorNamedBy::Settings),
        ];
        let choice = choice.into_iter().find_map(|(url, by)| Some((url?, by)));
        let (url, named_by) =
            choice.unwrap_or_else(|| (THIS_MACHINE.to_owned(), AggregatorNamedBy::Default));
        Self { url, named_by, ca_file: None }
    }

    /// Trusts these CA certificates, else those of the environment's file, else those of the system.
    #[must_use]
    pub fn with_authorities(self, ca_file: Option<PathBuf>, variable: Option<OsString>) -> Self {
        let variable = variable.filter(|path| !path.is_empty()).map(PathBuf::from);
        Self { ca_file: ca_file.or(variable), ..self }
    }

    /// Creates a client for it. A move to another of several equal aggregators is reported on standard error.
    pub fn build_client(&self) -> anyhow::Result<AggregatorClient> {
        anyhow::ensure!(
            split_clusters(&self.url).is_none(),
            "this command asks one cluster, and {} names several; pass --aggregator URL of one",
            self.url
        );
        let client = self.open_client().map_err(|error| self.explain_error(error))?;
        Ok(client.with_move_report(report_notices()))
    }

    /// Opens it, or all clusters that it names.
    pub fn open_source(&self, token: Option<String>) -> anyhow::Result<AnswerSource> {
        AnswerSource::open_address(
            &self.url,
            self.ca_file.as_deref(),
            token,
            Some(report_notices()),
        )
        .map_err(|error| self.explain_error(error))
    }

    /// Adds the origin of the address to an error where the command line does not show it.
    pub fn explain_error(&self, error: AggregatorError) -> anyhow::Error {
        match self.named_by {
            AggregatorNamedBy::Flag => error.into(),
            AggregatorNamedBy::Environment => {
                anyhow::anyhow!("{error} (address from {AGGREGATOR_VARIABLE})")
            }
            AggregatorNamedBy::Settings => {
                anyhow::anyhow!("{error} (address from console.aggregator in the settings)")
            }
            AggregatorNamedBy::Default => anyhow::anyhow!(
                "no aggregator given, and none reachable on this host; set --aggregator URL or \
                 {AGGREGATOR_VARIABLE} ({error})"
            ),
        }
    }

    fn open_client(&self) -> Result<AggregatorClient, AggregatorError> {
        let client = AggregatorClient::with_authorities(&self.url, self.ca_file.as_deref())?;
        Ok(client.with_token(token_from_environment()))
    }

    /// Whether an aggregator answers at this address.
    pub(super) async fn is_answering(&self) -> bool {
        let (ca_file, token) = (self.ca_file.as_deref(), token_from_environment());
        let Ok(source) = AnswerSource::open_address(&self.url, ca_file, token, None) else {
            return false;
        };
        let answer = timeout(ANSWER_TIME, source.ask_question(Question::Overview)).await;
        matches!(answer, Ok(Ok(_)))
    }
}

/// Writes notices to standard error.
fn report_notices() -> AggregatorReportFn {
    Arc::new(|notice| {
        // A closed standard error does not affect the result.
        drop(writeln!(io::stderr(), "gaunt: {notice}"));
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flag_wins_over_environment_over_settings_over_this_machine() {
        let some = |url: &str| Some(url.to_owned());
        for (flag, variable, settings, url, named_by) in [
            (some("a"), some("b"), some("c"), "a", AggregatorNamedBy::Flag),
            (None, some("b"), some("c"), "b", AggregatorNamedBy::Environment),
            (None, some(" "), some("c"), "c", AggregatorNamedBy::Settings),
            (None, None, None, THIS_MACHINE, AggregatorNamedBy::Default),
        ] {
            let chosen = AggregatorAddress::choose_address(flag, variable, settings);
            assert_eq!((chosen.url.as_str(), chosen.named_by), (url, named_by));
        }
    }
}
