//! Which GPU of which node a rank is: from an aggregator, by the rank that a job's GPUs report.

use std::collections::BTreeMap;

use gaunt_schema::SanitizedText;
use serde::Serialize;

use crate::command::AggregatorAddress;
use gaunt_api::{Answer, AnswerTable, Filter, Question, Subject};

/// The most ranks that are looked up.
const MAX_LOOKUPS: usize = 32;

/// The GPU of a rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct RankOwner {
    pub(super) node: SanitizedText,
    pub(super) gpu: SanitizedText,
    pub(super) job: Option<SanitizedText>,
}

/// Asks for the GPUs of ranks. A rank that several jobs have is left out unless the job is named.
pub(super) async fn find_owners(
    address: &AggregatorAddress,
    job: Option<&str>,
    ranks: &[u32],
) -> anyhow::Result<BTreeMap<u32, Vec<RankOwner>>> {
    if ranks.is_empty() {
        return Ok(BTreeMap::new());
    }
    let ranks: Vec<String> = ranks.iter().take(MAX_LOOKUPS).map(u32::to_string).collect();
    let quoted = |job: &str| job.replace('\\', r"\\").replace('"', r#"\""#);
    let of_job = job.map(|job| format!("job=\"{}\" and ", quoted(job))).unwrap_or_default();
    let text = format!("{of_job}rank={} columns node,gpu,rank,job limit 1000", ranks.join(","));
    let filter = Filter::parse(Subject::Gpus, &text)?;
    let aggregator = address.build_client()?;
    let answer = aggregator.ask_question(&Question::Table(filter)).await;
    match answer.map_err(|error| address.explain_error(error))? {
        Answer::Table(table) => Ok(collect_owners(&table)),
        Answer::Refused(refusal) => anyhow::bail!("{refusal}"),
        _ => anyhow::bail!("unexpected answer; is the aggregator of this version?"),
    }
}

fn collect_owners(table: &AnswerTable) -> BTreeMap<u32, Vec<RankOwner>> {
    let mut owners: BTreeMap<u32, Vec<RankOwner>> = BTreeMap::new();
    let text = |column: &str, row| table.find_column(column)?.text_at(row).cloned();
    for row in 0..table.rows as usize {
        let rank = text("rank", row).and_then(|rank| rank.parse().ok());
        let (Some(rank), Some(node), Some(gpu)) = (rank, text("node", row), text("gpu", row))
        else {
            continue;
        };
        owners.entry(rank).or_default().push(RankOwner { node, gpu, job: text("job", row) });
    }
    owners
}
