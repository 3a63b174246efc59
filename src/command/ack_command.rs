//! `gaunt ack`: acknowledges a finding at an aggregator, with a note, or withdraws that.

use std::{path::PathBuf, process::ExitCode};

use anyhow::Context as _;
use gaunt_schema::SanitizedText;

use super::{
    AggregatorAddress, aggregator_address::token_from_environment,
    explain_command::resolve_finding_id, snapshot_command,
};
use crate::answer_source::AnswerSourceError;
use gaunt_api::{
    Answer, FindingAction, FindingCommand, FindingList, Question,
    finding_action::{MAX_NAME, MAX_NOTE},
};

/// The action, the aggregator and the user.
#[derive(Debug)]
pub struct AckOptions {
    /// The finding's id, or a part of it that is unique among open findings.
    pub finding: String,
    /// The user; the login name by default.
    pub by: Option<String>,
    /// The note; none to withdraw the acknowledgement.
    pub note: Option<String>,
    /// Accept the present level as the baseline; the finding closes.
    pub accept: bool,
    /// The aggregator, or those of several clusters.
    pub aggregator: AggregatorAddress,
    /// The token file; without one the token comes from the environment.
    pub token_file: Option<PathBuf>,
}

/// Sends the action and prints the result.
pub async fn run(options: AckOptions) -> anyhow::Result<ExitCode> {
    let by = options.by.or_else(|| std::env::var("USER").ok()).filter(|by| !by.trim().is_empty());
    let by = by.context("no user name; set it with --by NAME")?;
    for (what, text, max_length) in
        [("--by", &by, MAX_NAME), ("--note", options.note.as_ref().unwrap_or(&by), MAX_NOTE)]
    {
        let length = text.chars().count();
        anyhow::ensure!(
            length <= max_length,
            "{what} has {length} characters; at most {max_length} are allowed"
        );
    }
    let address = &options.aggregator;
    let explain = |error: AnswerSourceError| super::explain_error(Some(address), error.into());
    let source = address.open_source(read_token(options.token_file)?)?;
    let open = source.ask_question(Question::Findings).await;
    let Answer::Findings(open) = open.map_err(explain)?.into_result()? else {
        anyhow::bail!("unexpected answer: not a list of findings");
    };
    let id = resolve_finding_id(Some(&options.finding), &open, &FindingList::default())?;
    let command = match &options.note {
        Some(note) if options.accept => FindingCommand::Accept { note: SanitizedText::new(note) },
        Some(note) => FindingCommand::Acknowledge { note: SanitizedText::new(note) },
        None => FindingCommand::Withdraw,
    };
    let is_acknowledgement = options.note.is_some();
    let action =
        FindingAction { finding: id.clone(), by: SanitizedText::new(&by), command, seen: None };
    match source.send_action(action).await.map_err(explain)? {
        Answer::Refused(refusal) => anyhow::bail!("{refusal}"),
        _ if options.accept => snapshot_command::print_page(&format!(
            "{id} is closed: its present level is the new baseline, accepted by {by}\n"
        ))?,
        _ if is_acknowledgement => {
            snapshot_command::print_page(&format!("{id} is acknowledged by {by}\n"))?;
        }
        _ => snapshot_command::print_page(&format!("acknowledgement of {id} is withdrawn\n"))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Reads the token from a file or the environment: a command line is visible to every user of the machine.
pub fn read_token(file: Option<PathBuf>) -> anyhow::Result<Option<String>> {
    let Some(path) = file else {
        return Ok(token_from_environment());
    };
    let text = std::fs::read_to_string(&path);
    let text = text.with_context(|| format!("cannot read the token in {}", path.display()))?;
    Ok(Some(text.trim().to_owned()))
}
