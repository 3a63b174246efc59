//! Snapshot questions: the answer to one question as plain columns, as JSON like the API's, or as comma-separated
//! values.

use std::io::{self, Write as _};

use anyhow::Context as _;

use super::{
    FleetSnapshot, OutputFormat, json_rows, node_text, paged_rows, table_output::OutputTable,
};
use crate::answer_source::AnswerSource;
use gaunt_api::{Answer, Filter, FindingList, Question, Refusal, Subject};

/// One question as typed.
#[derive(Clone, Debug)]
pub struct SnapshotQuestion {
    /// The question: `gpus`, `nodes/gpu003`, `history?metric=power`.
    pub text: String,
    /// The filter, if it is not part of the question.
    pub filter: Option<String>,
    /// The most rows; all unless this or the filter sets a limit.
    pub limit: Option<u32>,
}

impl SnapshotQuestion {
    /// Parses the question; a filter error marks its position.
    pub(super) fn parse_question(&self, form: OutputFormat) -> anyhow::Result<Question> {
        let filter = self.filter.iter().map(|filter| ("filter".to_owned(), filter.clone()));
        let limit = self.limit.iter().map(|limit| ("limit".to_owned(), limit.to_string()));
        let question = Question::parse_line(&self.text, &filter.chain(limit).collect::<Vec<_>>());
        let question = question.map_err(|refusal| refusal_error(&refusal))?;
        // People and spreadsheets read columns.
        Ok(match question {
            _ if matches!(form, OutputFormat::Json | OutputFormat::Columns) => question,
            Question::Nodes => Question::Table(Filter::all_rows(Subject::Nodes)),
            Question::Findings => Question::Table(Filter::all_rows(Subject::Findings)),
            Question::Closed => Question::Table(Filter::all_rows(Subject::Closed)),
            Question::Targets => Question::Table(Filter::all_rows(Subject::Targets)),
            Question::List(filter) => Question::Table(filter),
            other => other,
        })
    }
}

/// Renders one answer. Rows omitted by a limit are reported on standard error where the page cannot show that.
pub(super) async fn render_answer(
    source: &AnswerSource,
    question: Question,
    form: OutputFormat,
) -> anyhow::Result<String> {
    let answer = paged_rows::ask_all(source, question).await?;
    if let Answer::Refused(refusal) = &answer {
        return Err(refusal_error(refusal));
    }
    if let (Some(omitted), true) =
        (paged_rows::describe_omitted(&answer), form != OutputFormat::Text)
    {
        // A closed standard error does not affect the page.
        drop(writeln!(io::stderr(), "gaunt: {omitted}"));
    }
    match (form, &answer) {
        (OutputFormat::Columns, _) => Ok(serde_json::to_string(&answer)? + "\n"),
        (OutputFormat::Json, _) => Ok(json_rows::answer_to_json(&answer)?.to_string() + "\n"),
        (OutputFormat::Text, Answer::Overview(overview)) => {
            let findings = overview.findings.clone();
            let total = overview.findings_open;
            let groups = overview.groups.clone();
            let contexts = overview.contexts.clone();
            let at = overview.at;
            let list = FindingList { at, findings, total, matched: total, groups, contexts };
            Ok(FleetSnapshot::from_answers([answer.clone(), Answer::Findings(list.into())])
                .render_text())
        }
        (OutputFormat::Text, Answer::Node(node)) => {
            let line = &node.line;
            let head = format!("{}  {}  {}\n", line.node, line.state.as_str(), line.gpu_states);
            Ok(head + &node_text::render_node(node).join("\n"))
        }
        (OutputFormat::Text, Answer::Finding(explanation)) => {
            Ok(super::render_explanation(explanation))
        }
        (OutputFormat::Text, Answer::Job(job)) => {
            let line = OutputTable::of(&Answer::Table(job.line.clone().into()));
            let line = line.map(|table| table.render_text()).unwrap_or_default();
            let gpus =
                OutputTable::of(&answer).map(|table| table.render_text()).unwrap_or_default();
            Ok(format!("{line}\n{gpus}"))
        }
        _ => {
            let table = OutputTable::of(&answer)
                .context("this answer has no columns; use --format json")?;
            Ok(if form == OutputFormat::Csv { table.render_csv() } else { table.render_text() })
        }
    }
}

/// A refusal as an error; a filter error marks the position.
fn refusal_error(refusal: &Refusal) -> anyhow::Error {
    match refusal {
        Refusal::BadFilter { error } => anyhow::anyhow!("{refusal}\n{}", error.render_pointer()),
        _ => anyhow::anyhow!("{refusal}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_asked_as_tables_where_columns_are_printed() {
        for subject in [Subject::Nodes, Subject::Findings, Subject::Closed, Subject::Targets] {
            let text = subject.as_str().to_owned();
            let question = SnapshotQuestion { text, filter: None, limit: None };
            let table = Question::Table(Filter::all_rows(subject));
            assert_eq!(question.parse_question(OutputFormat::Csv).unwrap(), table, "{subject:?}");
        }
    }
}
