//! `gaunt snapshot`: prints one snapshot of the fleet, as plain columns or one JSON object, with an exit code for
//! alerting.

use std::{
    io::{self, Write as _},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use anyhow::Context as _;
use gaunt_schema::Severity;
use serde::Serialize;

use super::{FAILED, ViewSource, sleep_for};
use crate::answer_source::AnswerSource;
use gaunt_api::{
    Answer, Explanation, FindingList, NodeDetail, Overview, Question, TargetList, TargetState,
};

mod explanation_text;
mod fleet_text;
mod json_rows;
mod node_text;
mod paged_rows;
mod question;
mod table_output;
mod text_columns;

pub use question::SnapshotQuestion;
pub(super) use text_columns::format_quantity;

/// Default sampling time before a snapshot: a GPU enters a state after 5 s of consistent samples.
pub const WATCH: Duration = Duration::from_secs(8);

/// Target sources that a message names.
const NAMED: usize = 3;

/// Options of a snapshot.
#[derive(Clone, Debug)]
pub struct SnapshotOptions {
    /// One question instead of the whole snapshot.
    pub question: Option<SnapshotQuestion>,
    /// Output format.
    pub form: OutputFormat,
    /// Return an exit code by the worst severity.
    pub check: bool,
    /// Sampling time if no aggregator is used.
    pub watch: Duration,
}

/// Output format of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputFormat {
    /// Plain columns.
    Text,
    /// One JSON object.
    Json,
    /// Comma-separated values; only for one question.
    Csv,
    /// The JSON object of the API; only for one question.
    Columns,
}

/// Content of a snapshot, all from one source.
#[derive(Debug, Default, Serialize)]
pub struct FleetSnapshot {
    /// Summary of the fleet.
    pub overview: Arc<Overview>,
    /// Details of all nodes, worst first; for text only if the fleet has one node.
    pub nodes: Vec<Arc<NodeDetail>>,
    /// Every open finding.
    pub findings: Arc<FindingList>,
    /// Every target.
    pub targets: Arc<TargetList>,
}

/// Takes one snapshot and prints it.
pub async fn run(view: ViewSource, options: &SnapshotOptions) -> anyhow::Result<ExitCode> {
    // An invalid question is reported before sampling starts.
    let question = match (&options.question, options.form) {
        (Some(asked), form) => Some(asked.parse_question(form)?),
        (None, OutputFormat::Csv) => {
            anyhow::bail!("--format csv needs one question; add one, such as --ask gpus")
        }
        (None, OutputFormat::Columns) => {
            anyhow::bail!("--format columns needs one question; add one, such as --ask gpus")
        }
        (None, OutputFormat::Text | OutputFormat::Json) => None,
    };
    let view = view.resolve_default(true).await;
    let aggregator = view.aggregator_address();
    let result = Box::pin(print_snapshot(view, options, question)).await;
    result.map_err(|error| super::explain_error(aggregator.as_ref(), error))
}

async fn print_snapshot(
    view: ViewSource,
    options: &SnapshotOptions,
    question: Option<Question>,
) -> anyhow::Result<ExitCode> {
    let open = view.open_view().await?;
    if open.needs_warmup {
        wait_for_samples(&open.source, options.watch).await?;
    }
    let (page, snapshot) = if let Some(question) = question {
        let page = question::render_answer(&open.source, question, options.form).await?;
        (page, FleetSnapshot::fetch_health(&open.source).await?)
    } else {
        let json = options.form == OutputFormat::Json;
        let snapshot = FleetSnapshot::fetch_all(&open.source, json).await?;
        (if json { snapshot.render_json()? } else { snapshot.render_text() }, snapshot)
    };
    print_page(&page)?;
    Ok(snapshot.exit_code(options.check))
}

/// Waits until the fleet was sampled for `span`, and every target was tried and read a second time for its rates.
pub(super) async fn wait_for_samples(source: &AnswerSource, span: Duration) -> anyhow::Result<()> {
    let Answer::Overview(overview) = source.ask_question(Question::Overview).await? else {
        anyhow::bail!("the engine returned no overview");
    };
    let period = Duration::from_millis(overview.period_ms);
    sleep_for(span.max(period * 3)).await;
    Ok(())
}

/// Renders the explanation of one finding as text.
pub(super) fn render_explanation(explanation: &Explanation) -> String {
    explanation_text::render_page(explanation)
}

/// Prints a page to standard output; a closed pipe is not an error.
pub(super) fn print_page(page: &str) -> anyhow::Result<()> {
    match io::stdout().lock().write_all(page.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(error).context("cannot write to standard output")
        }
        _ => Ok(()),
    }
}

impl FleetSnapshot {
    /// Assembles a snapshot from answers.
    pub(super) fn from_answers(answers: impl IntoIterator<Item = Answer>) -> Self {
        let mut snapshot = Self::default();
        for answer in answers {
            match answer {
                Answer::Overview(overview) => snapshot.overview = overview,
                Answer::Node(node) => snapshot.nodes.push(node),
                Answer::Findings(findings) => snapshot.findings = findings,
                Answer::Targets(targets) => snapshot.targets = targets,
                _ => {}
            }
        }
        snapshot
    }

    /// The exit code: whether the data is complete, which is reported if not, and on request the worst finding.
    pub(super) fn exit_code(&self, check: bool) -> ExitCode {
        if let Some(gap) = self.describe_gap() {
            tracing::error!("partial data: {gap}");
            return ExitCode::from(FAILED);
        }
        ExitCode::from(if check { self.severity_code() } else { 0 })
    }

    /// Fetches what the exit code depends on.
    pub(super) async fn fetch_health(source: &AnswerSource) -> anyhow::Result<Self> {
        let mut answers = Vec::new();
        for question in [Question::Findings, Question::Targets] {
            answers.push(source.ask_question(question).await?.into_result()?);
        }
        Ok(Self::from_answers(answers))
    }

    async fn fetch_all(source: &AnswerSource, nodes: bool) -> anyhow::Result<Self> {
        let mut answers = Vec::new();
        for question in [Question::Overview, Question::Findings, Question::Targets] {
            answers.push(source.ask_question(question).await?.into_result()?);
        }
        if let Answer::Nodes(list) = source.ask_question(Question::Nodes).await? {
            // Text output shows the only node in detail too.
            let with_details = nodes || list.nodes.len() == 1;
            for line in list.nodes.iter().take(if with_details { usize::MAX } else { 0 }) {
                answers.push(source.ask_question(Question::Node(line.node.clone())).await?);
            }
        }
        Ok(Self::from_answers(answers))
    }

    fn render_json(&self) -> anyhow::Result<String> {
        Ok(serde_json::to_string(self)? + "\n")
    }

    /// Renders the snapshot as plain columns.
    pub(super) fn render_text(&self) -> String {
        fleet_text::render_page(self)
    }

    /// Describes missing data as a sentence; none if everything was read.
    fn describe_gap(&self) -> Option<String> {
        let sources = self.source_gap();
        let targets = self.target_gap();
        match (sources, targets) {
            (Some(sources), Some(targets)) => Some(format!("{sources}; {targets}")),
            (sources, targets) => sources.or(targets),
        }
    }

    /// Missing data because a target source cannot be read, or because there are no targets.
    fn source_gap(&self) -> Option<String> {
        let sources = &self.targets.sources;
        let troubled = sources.iter().filter_map(|source| match &source.trouble {
            Some(why) => Some(why.to_string()),
            None if source.taken.is_none() => Some(format!("{} has not answered yet", source.name)),
            None => None,
        });
        let troubled: Vec<String> = troubled.collect();
        match troubled.first() {
            Some(first) => Some(format!(
                "{} of {} target sources cannot be read completely; first: {first}",
                troubled.len(),
                sources.len()
            )),
            None if self.targets.targets.is_empty() => {
                let names: Vec<&str> =
                    sources.iter().map(|source| source.name.as_str()).take(NAMED).collect();
                let more = if sources.len() > NAMED { " and others" } else { "" };
                Some(match names.as_slice() {
                    [] => "no targets: no source lists any".to_owned(),
                    [only] if more.is_empty() => format!("no targets: {only} lists none"),
                    names => format!("no targets: {}{more} list none", names.join(", ")),
                })
            }
            None => None,
        }
    }

    /// Missing data because a target cannot be read.
    fn target_gap(&self) -> Option<String> {
        let lines = &self.targets.targets;
        let count = |state| lines.iter().filter(|line| line.state == state).count();
        let (down, pending) = (count(TargetState::Down), count(TargetState::Pending));
        let first = lines.iter().find(|line| line.state != TargetState::Live)?;
        let why = first.message.as_ref().unwrap_or(&first.address);
        let mut missing = Vec::new();
        for (number, word) in [(down, "down"), (pending, "not tried yet")] {
            if number > 0 {
                missing.push(format!(
                    "{number} of {} targets {} {word}",
                    lines.len(),
                    verb_for_count(number)
                ));
            }
        }
        Some(format!("{}; first: {why}", missing.join(", ")))
    }

    /// 0, 1 or 2 by the worst open finding that is not acknowledged.
    fn severity_code(&self) -> u8 {
        let open = self.findings.findings.iter().filter(|finding| finding.acknowledged.is_none());
        match open.map(|finding| finding.severity).max() {
            None | Some(Severity::Info) => 0,
            Some(Severity::Warning) => 1,
            Some(Severity::Critical) => 2,
        }
    }
}

fn verb_for_count(number: usize) -> &'static str {
    if number == 1 { "is" } else { "are" }
}
