//! One question of a snapshot: its answer as plain columns, as JSON like the API's, or as comma-separated values.

use std::io::{self, Write as _};

use anyhow::Context as _;

use super::{Form, Picture, node, pages, rows, sheet::Sheet};
use crate::{
    answer::{Answer, Filter, FindingList, Question, Refusal, Subject},
    source::Source,
};

/// One question as it is typed.
#[derive(Clone, Debug)]
pub struct One {
    /// The question: `gpus`, `nodes/gpu003`, `history?metric=power`.
    pub ask: String,
    /// The filter, if it is not part of the question.
    pub filter: Option<String>,
    /// The most rows; all unless this or the filter says.
    pub limit: Option<u32>,
}

impl One {
    /// The question; what is wrong with it is shown where it stands.
    pub(super) fn question(&self, form: Form) -> anyhow::Result<Question> {
        let filter = self.filter.iter().map(|filter| ("filter".to_owned(), filter.clone()));
        let limit = self.limit.iter().map(|limit| ("limit".to_owned(), limit.to_string()));
        let question = Question::read_line(&self.ask, &filter.chain(limit).collect::<Vec<_>>());
        let question = question.map_err(|refusal| explained(&refusal))?;
        // What people and spreadsheets read are columns.
        Ok(match question {
            _ if matches!(form, Form::Json | Form::Columns) => question,
            Question::Nodes => Question::Table(Filter::all(Subject::Nodes)),
            Question::Findings => Question::Table(Filter::all(Subject::Findings)),
            Question::Targets => Question::Table(Filter::all(Subject::Targets)),
            Question::List(filter) => Question::Table(filter),
            other => other,
        })
    }
}

/// The page of one answer. Rows that a limit leaves out are said on the standard error where the page has no place for it.
pub(super) async fn page(
    source: &Source,
    question: Question,
    form: Form,
) -> anyhow::Result<String> {
    let answer = pages::ask_all(source, question).await?;
    if let Answer::Refused(refusal) = &answer {
        return Err(explained(refusal));
    }
    if let (Some(cut), true) = (pages::cut(&answer), form != Form::Text) {
        // A closed standard error takes nothing from the page.
        drop(writeln!(io::stderr(), "gaunt: {cut}"));
    }
    match (form, &answer) {
        (Form::Columns, _) => Ok(serde_json::to_string(&answer)? + "\n"),
        (Form::Json, _) => Ok(rows::json(&answer)?.to_string() + "\n"),
        (Form::Text, Answer::Overview(overview)) => {
            let findings = overview.findings.clone();
            let total = overview.findings_open;
            let list = FindingList { at: overview.at, findings, total, matched: total };
            Ok(Picture::gather([answer.clone(), Answer::Findings(list.into())]).text())
        }
        (Form::Text, Answer::Node(node)) => {
            let line = &node.line;
            let head = format!("{}  {}  {}\n", line.node, line.state.as_str(), line.gpu_states);
            Ok(head + &node::section(node).join("\n"))
        }
        (Form::Text, Answer::Finding(told)) => Ok(super::explained(told)),
        (Form::Text, Answer::Job(job)) => {
            let line = Sheet::of(&Answer::Table(job.line.clone().into()));
            let line = line.map(|sheet| sheet.text()).unwrap_or_default();
            let gpus = Sheet::of(&answer).map(|sheet| sheet.text()).unwrap_or_default();
            Ok(format!("{line}\n{gpus}"))
        }
        _ => {
            let sheet =
                Sheet::of(&answer).context("this answer has no columns; use --format json")?;
            Ok(if form == Form::Csv { sheet.csv() } else { sheet.text() })
        }
    }
}

/// A refusal as an error; one of a filter marks the place.
fn explained(refusal: &Refusal) -> anyhow::Error {
    match refusal {
        Refusal::BadFilter { error } => anyhow::anyhow!("{refusal}\n{}", error.pointed()),
        _ => anyhow::anyhow!("{refusal}"),
    }
}
