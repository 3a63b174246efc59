//! `gaunt explain`: prints one finding, open or closed, with its explanation.

use std::process::ExitCode;

use gaunt_schema::FindingKind;

use super::{
    AggregatorAddress, aggregator_address::token_from_environment, judge_command, snapshot_command,
};
use crate::answer_source::split_clusters;
use gaunt_api::{
    API, Answer, EvidenceItem, EvidencePlot, Explanation, FindingList, FindingText, Question,
    TimeParam, evidence_query::history_queries,
};

/// Ids that are listed where a text matches none or several.
const LISTED: usize = 12;

/// Which finding is explained, and how.
#[derive(Debug)]
pub struct ExplainOptions {
    /// Its id, or a unique part of it; by default the worst open finding.
    pub finding: Option<String>,
    /// Source of the finding.
    pub from: ExplainSource,
    /// Output form.
    pub form: ExplanationFormat,
}

/// Output form of an explanation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExplanationFormat {
    /// Plain columns.
    Text,
    /// One JSON object.
    Json,
    /// Markdown, for a ticket.
    Markdown,
    /// One page of HTML.
    Html,
}

/// Source of a finding.
#[derive(Debug)]
pub enum ExplainSource {
    /// The aggregator at this address, or those of several clusters.
    Aggregator(AggregatorAddress),
    /// A recording, which is replayed.
    Recording(judge_command::JudgeOptions),
}

/// Prints the explanation.
pub async fn run(
    options: ExplainOptions,
    engine_options: gaunt_engine::EngineOptions,
) -> anyhow::Result<ExitCode> {
    let mut link = None;
    let with_plots = options.form == ExplanationFormat::Html;
    let mut plots = Vec::new();
    let answer = match options.from {
        ExplainSource::Aggregator(address) => {
            let source = address.open_source(token_from_environment())?;
            let ask = async |question| {
                let answer = source.ask_question(question).await;
                answer.map_err(|error| super::explain_error(Some(&address), error.into()))
            };
            let (open, closed) = (
                ask(Question::Findings).await?.into_result()?,
                ask(Question::Closed).await?.into_result()?,
            );
            let id = resolve_finding_id(
                options.finding.as_deref(),
                &finding_list(&open),
                &finding_list(&closed),
            )?;
            link = finding_link(&address.url, &id);
            let answer = ask(Question::Finding(id)).await?;
            for (item, question) in plot_questions(&answer).into_iter().filter(|_| with_plots) {
                plots.extend(evidence_plot(item, ask(question).await?));
            }
            answer
        }
        ExplainSource::Recording(recording) => {
            let mut run = judge_command::judge_recording(&recording, engine_options)?;
            let (open, closed) =
                (run.answer_question(&Question::Findings), run.answer_question(&Question::Closed));
            let id = resolve_finding_id(
                options.finding.as_deref(),
                &finding_list(&open),
                &finding_list(&closed),
            )?;
            let answer = run.answer_question(&Question::Finding(id));
            let questions = plot_questions(&answer).into_iter().filter(|_| with_plots);
            plots.extend(questions.filter_map(|(item, question)| {
                evidence_plot(item, run.answer_question(&question))
            }));
            answer
        }
    };
    let explanation: &Explanation = match &answer {
        Answer::Finding(explanation) => explanation,
        Answer::Refused(refusal) => anyhow::bail!("{refusal}"),
        _ => anyhow::bail!("unexpected answer: not an explanation"),
    };
    let text = FindingText {
        finding: &explanation.finding,
        at: explanation.at,
        context: explanation.context.as_ref(),
        explanation: Some(explanation),
        plots: &plots,
        link: link.as_deref(),
        format: &snapshot_command::format_quantity,
    };
    let page = match options.form {
        ExplanationFormat::Text => snapshot_command::render_explanation(explanation),
        ExplanationFormat::Json => serde_json::to_string(explanation)? + "\n",
        ExplanationFormat::Markdown => text.render_markdown(),
        ExplanationFormat::Html => text.render_html(),
    };
    snapshot_command::print_page(&page)?;
    Ok(ExitCode::SUCCESS)
}

/// The address of a finding at the first aggregator of its cluster.
fn finding_link(address: &str, id: &str) -> Option<String> {
    let (urls, id) = match split_clusters(address) {
        Some(named) => named.into_iter().find_map(|(cluster, urls)| {
            Some((urls, id.strip_prefix(cluster)?.strip_prefix('/')?))
        })?,
        None => (address, id),
    };
    let url = urls.split(',').next()?.trim().trim_end_matches('/');
    url.contains("://").then(|| format!("{url}{API}/findings/{id}"))
}

/// The questions for the histories of the evidence: up to now, or to the end of a closed finding.
fn plot_questions(answer: &Answer) -> Vec<(EvidenceItem, Question)> {
    let Answer::Finding(explanation) = answer else { return Vec::new() };
    let finding = &explanation.finding;
    let queries = history_queries(finding).into_iter();
    let asked = finding.evidence.iter().zip(queries).filter_map(|(item, query)| {
        let question = Question::History(query?);
        let question = match finding.life.closed {
            Some(closed) => Question::AtTime(TimeParam::At(closed), Box::new(question)),
            None => question,
        };
        Some((item.clone(), question))
    });
    asked.collect()
}

/// The plot of an answer; none if the history of that time is no longer kept.
fn evidence_plot(item: EvidenceItem, answer: Answer) -> Option<EvidencePlot> {
    match answer {
        Answer::History(history) if history.mean.iter().any(Option::is_some) => {
            Some(EvidencePlot { item, history })
        }
        _ => None,
    }
}

fn finding_list(answer: &Answer) -> FindingList {
    match answer {
        Answer::Findings(list) => (**list).clone(),
        _ => FindingList::default(),
    }
}

/// Resolves a text to an id: an exact id, or the only one that contains it, open findings first.
pub(super) fn resolve_finding_id(
    text: Option<&str>,
    open: &FindingList,
    closed: &FindingList,
) -> anyhow::Result<String> {
    let ids = |list: &FindingList| -> Vec<String> {
        list.findings.iter().map(|finding| finding.id.clone()).collect()
    };
    let (open, closed) = (ids(open), ids(closed));
    let Some(text) = text else {
        return open
            .first()
            .or(closed.first())
            .cloned()
            .ok_or_else(|| anyhow::anyhow!("no open or closed finding to explain"));
    };
    if let Some(id) = open.iter().chain(&closed).find(|id| *id == text) {
        return Ok(id.clone());
    }
    let containing = |ids: &[String]| -> Vec<String> {
        ids.iter().filter(|id| id.contains(text)).cloned().collect()
    };
    for matching in [containing(&open), containing(&closed)] {
        match matching.as_slice() {
            [] => {}
            [id] => return Ok(id.clone()),
            several => anyhow::bail!("{text} is ambiguous; it matches\n{}", render_ids(several)),
        }
    }
    let known_ids: Vec<String> = open.into_iter().chain(closed).collect();
    anyhow::bail!("{}", describe_unknown(text, &known_ids))
}

/// Describes a text that matches no finding, with what would match: the known ids or, without any, the kinds.
fn describe_unknown(text: &str, known_ids: &[String]) -> String {
    let kinds = || FindingKind::ALL.iter().map(|kind| kind.as_str());
    let problem = if kinds().any(|kind| kind == text) {
        format!("no finding of the kind {text}")
    } else {
        format!("no finding id contains {text}")
    };
    if !known_ids.is_empty() {
        return format!("{problem}; known ids are\n{}", render_ids(known_ids));
    }
    let kind = text.split_once('/').map_or(text, |(kind, _)| kind);
    if kinds().any(|known| known == kind) {
        return format!("{problem}; there is no finding now");
    }
    let kinds = kinds().collect::<Vec<_>>().join(", ");
    format!("{problem}, and no kind has this name; kinds are {kinds}; there is no finding now")
}

fn render_ids(ids: &[String]) -> String {
    let mut lines: Vec<String> = ids.iter().take(LISTED).map(|id| format!("  {id}")).collect();
    if ids.len() > LISTED {
        lines.push(format!("  and {} more", ids.len() - LISTED));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_leads_to_the_first_aggregator_of_the_cluster() {
        let id = "target_down/gpu003";
        let expected = |host: &str| Some(format!("https://{host}{API}/findings/{id}"));
        for address in ["https://a1/", "https://a1,https://b1"] {
            assert_eq!(finding_link(address, id), expected("a1"), "{address}");
        }
        let clusters = "hall-1=https://a1,https://b1;hall-2=https://a2";
        assert_eq!(finding_link(clusters, &format!("hall-2/{id}")), expected("a2"));
        assert_eq!(finding_link("10.0.0.5:9771", id), None);
    }

    #[test]
    fn unknown_finding_is_named_with_the_known_kinds() {
        let none = FindingList::default();
        let message = |text| resolve_finding_id(Some(text), &none, &none).unwrap_err().to_string();
        let kind = message("port_down");
        assert_eq!(kind, "no finding of the kind port_down; there is no finding now");
        let id = message("port_down/gpu003");
        assert_eq!(id, "no finding id contains port_down/gpu003; there is no finding now");
        let other = message("foo");
        assert!(other.starts_with("no finding id contains foo, and no kind has this name;"));
        assert!(other.contains("port_down, ") && other.contains("target_down"), "{other}");
        let ids = ["port_down/gpu003/mlx5_1/1".to_owned()];
        let listed = describe_unknown("foo", &ids);
        assert_eq!(
            listed,
            "no finding id contains foo; known ids are\n  port_down/gpu003/mlx5_1/1"
        );
    }
}
