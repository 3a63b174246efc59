//! One question of a snapshot: its answer as plain columns, as JSON like the API's, or as comma-separated values.

use anyhow::Context as _;

use super::{Form, Picture, node, sheet::Sheet};
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
}

impl One {
    /// The question; what is wrong with it is shown where it stands.
    pub(super) fn question(&self, form: Form) -> anyhow::Result<Question> {
        let more = self.filter.iter().map(|filter| ("filter".to_owned(), filter.clone()));
        let question = Question::read_line(&self.ask, &more.collect::<Vec<_>>());
        let question = question.map_err(|refusal| explained(&refusal))?;
        // What people and spreadsheets read are columns.
        Ok(match question {
            _ if form == Form::Json => question,
            Question::Nodes => Question::Table(Filter::all(Subject::Nodes)),
            Question::Findings => Question::Table(Filter::all(Subject::Findings)),
            Question::Targets => Question::Table(Filter::all(Subject::Targets)),
            Question::List(filter) => Question::Table(filter),
            other => other,
        })
    }
}

/// The page of one answer.
pub(super) async fn page(
    source: &Source,
    question: Question,
    form: Form,
) -> anyhow::Result<String> {
    let answer = source.ask(question).await?;
    if let Answer::Refused(refusal) = &answer {
        return Err(explained(refusal));
    }
    match (form, &answer) {
        (Form::Json, _) => Ok(serde_json::to_string(&answer)? + "\n"),
        (Form::Text, Answer::Overview(overview)) => {
            let findings = overview.findings.clone();
            let total = overview.findings_open;
            let groups = overview.groups.clone();
            let list = FindingList { at: overview.at, findings, total, matched: total, groups };
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
