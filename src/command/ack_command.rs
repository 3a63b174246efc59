//! `gaunt ack`: takes a finding on at an aggregator, with a note, or gives it back.

use std::{path::PathBuf, process::ExitCode};

use anyhow::Context as _;
use gaunt_schema::SanitizedText;

use super::{AggregatorAddress, explain_command::resolve_finding_id, snapshot_command};
use crate::answer::{
    Answer, FindingAction, FindingCommand, FindingList, Question,
    finding_action::{MAX_NAME, MAX_NOTE},
};

/// The variable of the environment that holds a token.
pub const TOKEN_VARIABLE: &str = "GAUNT_TOKEN";

/// What is done, where, and by whom.
#[derive(Debug)]
pub struct AckOptions {
    /// The finding's id, or a part of it that no other open one has.
    pub finding: String,
    /// Who does it; whoever is logged in unless it is said.
    pub by: Option<String>,
    /// What is said about it; none to give the finding back.
    pub note: Option<String>,
    /// The present level is usual from now on, and the finding closes.
    pub accept: bool,
    /// The aggregator.
    pub aggregator: AggregatorAddress,
    /// The file of its token; without one it is in the environment.
    pub token_file: Option<PathBuf>,
}

/// Does it, and says so.
pub async fn run(wanted: AckOptions) -> anyhow::Result<ExitCode> {
    let by = wanted.by.or_else(|| std::env::var("USER").ok()).filter(|by| !by.trim().is_empty());
    let by = by.context("who acknowledges is not known; say it with --by NAME")?;
    for (what, text, most) in
        [("--by", &by, MAX_NAME), ("--note", wanted.note.as_ref().unwrap_or(&by), MAX_NOTE)]
    {
        let length = text.chars().count();
        anyhow::ensure!(length <= most, "{what} has {length} characters; at most {most} are kept");
    }
    let address = &wanted.aggregator;
    let aggregator = address.build_client()?.with_token(read_token(wanted.token_file)?);
    let open = aggregator.ask_question(&Question::Findings).await;
    let Answer::Findings(open) = open.map_err(|error| address.explain_error(error))? else {
        anyhow::bail!("the aggregator gave no findings");
    };
    let id = resolve_finding_id(Some(&wanted.finding), &open, &FindingList::default())?;
    let deed = match &wanted.note {
        Some(note) if wanted.accept => FindingCommand::Accept { note: SanitizedText::new(note) },
        Some(note) => FindingCommand::Acknowledge { note: SanitizedText::new(note) },
        None => FindingCommand::Withdraw,
    };
    let acknowledges = wanted.note.is_some();
    let act = FindingAction { finding: id.clone(), by: SanitizedText::new(&by), command: deed };
    match aggregator.send_action(&act).await.map_err(|error| address.explain_error(error))? {
        Answer::Refused(refusal) => anyhow::bail!("{refusal}"),
        _ if wanted.accept => snapshot_command::print_page(&format!(
            "{id} is closed: its present level is usual from now on, as {by} says\n"
        ))?,
        _ if acknowledges => {
            snapshot_command::print_page(&format!("{id} is acknowledged by {by}\n"))?;
        }
        _ => snapshot_command::print_page(&format!("{id} is acknowledged no more\n"))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The token, from a file or from the environment: on a command line everybody on the machine would see it.
pub fn read_token(file: Option<PathBuf>) -> anyhow::Result<Option<String>> {
    let Some(path) = file else {
        return Ok(std::env::var(TOKEN_VARIABLE).ok().filter(|token| !token.is_empty()));
    };
    let text = std::fs::read_to_string(&path);
    let text = text.with_context(|| format!("cannot read the token in {}", path.display()))?;
    Ok(Some(text.trim().to_owned()))
}
