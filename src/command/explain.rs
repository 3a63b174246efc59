//! `gaunt explain`: one finding, open or closed, with the whole chain of evidence behind it.

use std::process::ExitCode;

use super::{AggregatorAddress, judge, snapshot};
use crate::{
    answer::{Answer, Explanation, FindingList, Question},
    owner,
};

/// Ids that are listed where a text names none or several.
const LISTED: usize = 12;

/// Which finding is explained, and how.
#[derive(Debug)]
pub struct Wanted {
    /// Its id, or a part of it that no other one has; the worst that is open if nothing is said.
    pub finding: Option<String>,
    /// Where it is.
    pub from: From,
    /// One JSON object instead of text.
    pub json: bool,
}

/// Where a finding is.
#[derive(Debug)]
pub enum From {
    /// At the aggregator of this address.
    Aggregator(AggregatorAddress),
    /// In a recording, which is lived through.
    Recording(judge::Wanted),
}

/// Prints the explanation.
pub async fn run(wanted: Wanted, owner: owner::Options) -> anyhow::Result<ExitCode> {
    let told = match wanted.from {
        From::Aggregator(address) => {
            let aggregator = address.client()?;
            let ask = async |question| {
                aggregator.ask(&question).await.map_err(|error| address.explain(error))
            };
            let (open, closed) = (ask(Question::Findings).await?, ask(Question::Closed).await?);
            let id = resolve(wanted.finding.as_deref(), &list(&open), &list(&closed))?;
            ask(Question::Finding(id)).await?
        }
        From::Recording(recording) => {
            let mut witness = judge::witness(&recording, owner)?;
            let (open, closed) = (witness.ask(&Question::Findings), witness.ask(&Question::Closed));
            let id = resolve(wanted.finding.as_deref(), &list(&open), &list(&closed))?;
            witness.ask(&Question::Finding(id))
        }
    };
    let told: &Explanation = match &told {
        Answer::Finding(told) => told,
        Answer::Refused(refusal) => anyhow::bail!("{refusal}"),
        _ => anyhow::bail!("another answer came than one to the question"),
    };
    let page =
        if wanted.json { serde_json::to_string(told)? + "\n" } else { snapshot::explained(told) };
    snapshot::print(&page)?;
    Ok(ExitCode::SUCCESS)
}

fn list(answer: &Answer) -> FindingList {
    match answer {
        Answer::Findings(list) => (**list).clone(),
        _ => FindingList::default(),
    }
}

/// The id that a text means: that itself, or the only one that it is a part of, those of open findings first.
pub(super) fn resolve(
    text: Option<&str>,
    open: &FindingList,
    closed: &FindingList,
) -> anyhow::Result<String> {
    let ids = |list: &FindingList| -> Vec<String> {
        list.findings.iter().map(|finding| finding.id.clone()).collect()
    };
    let (open, closed) = (ids(open), ids(closed));
    let Some(text) = text else {
        return open.first().or(closed.first()).cloned().ok_or_else(|| {
            anyhow::anyhow!(
                "no finding is open, and none is remembered: there is nothing to explain"
            )
        });
    };
    if let Some(id) = open.iter().chain(&closed).find(|id| *id == text) {
        return Ok(id.clone());
    }
    let with = |ids: &[String]| -> Vec<String> {
        ids.iter().filter(|id| id.contains(text)).cloned().collect()
    };
    for meant in [with(&open), with(&closed)] {
        match meant.as_slice() {
            [] => {}
            [one] => return Ok(one.clone()),
            several => anyhow::bail!("{text} may be any of\n{}", listed(several)),
        }
    }
    let all: Vec<String> = open.into_iter().chain(closed).collect();
    if all.is_empty() {
        anyhow::bail!("no finding is open, and none is remembered");
    }
    anyhow::bail!("no finding has {text} in its id; there are\n{}", listed(&all))
}

fn listed(ids: &[String]) -> String {
    let mut lines: Vec<String> = ids.iter().take(LISTED).map(|id| format!("  {id}")).collect();
    if ids.len() > LISTED {
        lines.push(format!("  and {} more", ids.len() - LISTED));
    }
    lines.join("\n")
}
