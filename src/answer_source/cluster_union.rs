//! Cluster union: several clusters, each with its aggregators, asked together and answered as one.
//!
//! Names of nodes, jobs and findings begin with their cluster. A question about one of them goes to its cluster alone; any
//! other goes to all, each under one deadline. A silent cluster is left out, and the overview says so.

use std::{
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use gaunt_api::{Answer, FindingAction, Question, Refusal};
use gaunt_schema::SanitizedText;
use tokio::{task::JoinSet, time::timeout};

use super::{
    aggregator_choice::AggregatorReportFn,
    aggregator_client::AggregatorClient,
    aggregator_connection::AggregatorError,
    cluster_names::{localize_question, names_cluster, qualify_answer},
    joined_answer::join_answers,
};

/// The most clusters.
const MAX_CLUSTERS: usize = 16;

/// The longest name of a cluster.
const MAX_NAME: usize = 63;

/// The time that the slowest cluster has to answer; a single aggregator has more.
const CLUSTER_DEADLINE: Duration = Duration::from_secs(3);

/// Separates clusters in one address; `--aggregator` may also be repeated.
pub const CLUSTER_SEPARATOR: char = ';';

/// Several clusters.
#[derive(Clone)]
pub struct ClusterUnion {
    clusters: Arc<[NamedCluster]>,
    /// The clusters that did not answer last.
    silent: Arc<Mutex<Vec<SanitizedText>>>,
    report: Option<AggregatorReportFn>,
}

/// One cluster: its name, and its equal aggregators.
#[derive(Clone, Debug)]
struct NamedCluster {
    name: SanitizedText,
    client: AggregatorClient,
}

impl std::fmt::Debug for ClusterUnion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("ClusterUnion").field(&self.clusters).finish()
    }
}

/// The clusters of an address: `hall-1=https://a1,https://b1;hall-2=https://a2`; none if it names no cluster.
pub fn split_clusters(address: &str) -> Option<Vec<(&str, &str)>> {
    let parts: Vec<&str> =
        address.split(CLUSTER_SEPARATOR).map(str::trim).filter(|part| !part.is_empty()).collect();
    let named: Vec<(&str, &str)> = parts.iter().filter_map(|part| split_name(part)).collect();
    (!named.is_empty() && named.len() == parts.len()).then_some(named)
}

/// Name and addresses of one cluster.
fn split_name(part: &str) -> Option<(&str, &str)> {
    let (name, urls) = part.split_once('=')?;
    (!name.contains(['/', ':'])).then_some((name.trim(), urls.trim()))
}

impl ClusterUnion {
    /// The clusters of these names and addresses, verified with these CA certificates if there are any.
    pub fn new(named: &[(&str, &str)], ca_file: Option<&Path>) -> Result<Self, AggregatorError> {
        let invalid = |name: &str, why: &'static str| AggregatorError::Cluster {
            name: SanitizedText::new(name),
            why,
        };
        let mut clusters: Vec<NamedCluster> = Vec::new();
        for (name, address) in named {
            let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
            if name.is_empty() || name.len() > MAX_NAME || !name.bytes().all(is_valid) {
                return Err(invalid(name, "use letters, digits, `-`, `_` and `.`"));
            }
            if clusters.iter().any(|known| &*known.name == *name) {
                return Err(invalid(name, "it is named twice; separate its aggregators by commas"));
            }
            if clusters.len() == MAX_CLUSTERS {
                return Err(invalid(name, "at most 16 clusters are joined"));
            }
            let client = AggregatorClient::with_authorities(address, ca_file)?;
            clusters.push(NamedCluster { name: SanitizedText::new(name), client });
        }
        Ok(Self { clusters: clusters.into(), silent: Arc::default(), report: None })
    }

    /// Reports clusters that stop answering, and those that answer again, in one line.
    #[must_use]
    pub fn with_report(self, report: Option<AggregatorReportFn>) -> Self {
        Self { report, ..self }
    }

    /// The same clusters, with the token that opens their write API.
    #[must_use]
    pub fn with_token(self, token: Option<&str>) -> Self {
        self.map_clients(|client| client.with_token(token.map(str::to_owned)))
    }

    /// The same clusters, each followed by streams.
    #[must_use]
    pub fn with_streams(self) -> Self {
        self.map_clients(AggregatorClient::with_streams).with_report(None)
    }

    fn map_clients(self, change: impl Fn(AggregatorClient) -> AggregatorClient) -> Self {
        let changed = |cluster: &NamedCluster| NamedCluster {
            name: cluster.name.clone(),
            client: change(cluster.client.clone()),
        };
        Self { clusters: self.clusters.iter().map(changed).collect(), ..self }
    }

    /// The names of the clusters.
    pub fn names(&self) -> Vec<SanitizedText> {
        self.clusters.iter().map(|cluster| cluster.name.clone()).collect()
    }

    /// The aggregators of one cluster.
    pub fn select_cluster(&self, name: &str) -> Option<AggregatorClient> {
        let found = self.clusters.iter().find(|cluster| &*cluster.name == name);
        found.map(|cluster| cluster.client.clone())
    }

    /// Sends a question to the cluster that it names, or to all.
    pub async fn ask_question(&self, question: &Question) -> Result<Answer, AggregatorError> {
        if let Some(cluster) = self.find_cluster(|name| names_cluster(name, question)) {
            let local = localize_question(&cluster.name, question);
            let answer = cluster.client.ask_question(&local).await?;
            return Ok(qualify_answer(&cluster.name, question, answer));
        }
        let mut asked = JoinSet::new();
        for (position, cluster) in self.clusters.iter().cloned().enumerate() {
            let local = first_page(&localize_question(&cluster.name, question));
            asked.spawn(async move {
                let answer = timeout(CLUSTER_DEADLINE, cluster.client.ask_question(&local)).await;
                let answer = answer.unwrap_or_else(|_| {
                    Err(AggregatorError::Unreachable {
                        address: cluster.client.display_address().into(),
                        why: SanitizedText::new(&format!("no answer within {CLUSTER_DEADLINE:?}")),
                    })
                });
                (position, answer.map(|answer| qualify_answer(&cluster.name, &local, answer)))
            });
        }
        let mut results: Vec<Option<Result<Answer, AggregatorError>>> =
            self.clusters.iter().map(|_| None).collect();
        while let Some(result) = asked.join_next().await {
            if let Ok((position, answer)) = result {
                results[position] = Some(answer);
            }
        }
        self.join_results(question, results)
    }

    fn join_results(
        &self,
        question: &Question,
        results: Vec<Option<Result<Answer, AggregatorError>>>,
    ) -> Result<Answer, AggregatorError> {
        let (mut answers, mut refusal, mut failure) = (Vec::new(), None, None);
        let (mut silent, mut notes) = (Vec::new(), Vec::new());
        for (cluster, result) in self.clusters.iter().zip(results) {
            match result {
                Some(Ok(Answer::Refused(refused))) => {
                    notes.push(format!("cluster {}: {refused}", cluster.name));
                    refusal.get_or_insert(refused);
                }
                Some(Ok(answer)) => answers.push((cluster.name.clone(), answer)),
                Some(Err(error)) => {
                    notes.push(format!("cluster {} is left out: {error}", cluster.name));
                    silent.push(cluster.name.clone());
                    failure.get_or_insert(error);
                }
                None => {}
            }
        }
        self.report_silent(silent.clone(), &notes);
        if answers.is_empty() {
            return match (refusal, failure) {
                (Some(refusal), _) => Ok(Answer::Refused(refusal)),
                (None, Some(failure)) => Err(failure),
                (None, None) => Err(AggregatorError::Address(String::new())),
            };
        }
        Ok(match join_answers(question, answers) {
            Answer::Overview(overview) if !notes.is_empty() => {
                let mut overview = Arc::unwrap_or_clone(overview);
                let notes = notes.iter().map(|note| SanitizedText::new(note));
                overview.trouble.splice(0..0, notes.clone());
                overview.source_trouble.splice(0..0, notes);
                overview.silent_clusters = silent;
                Answer::Overview(Arc::new(overview))
            }
            answer => answer,
        })
    }

    /// Reports a change of the clusters that do not answer.
    fn report_silent(&self, silent: Vec<SanitizedText>, notes: &[String]) {
        let mut last = self.silent.lock().unwrap_or_else(PoisonError::into_inner);
        if *last == silent {
            return;
        }
        let is_whole = silent.is_empty();
        *last = silent;
        drop(last);
        if let Some(report) = &self.report {
            if is_whole {
                report("all clusters answer again");
            }
            for note in notes {
                report(note);
            }
        }
    }

    /// Sends an action to the cluster of its finding.
    pub async fn send_action(&self, action: &FindingAction) -> Result<Answer, AggregatorError> {
        let question = Question::Finding(action.finding.clone());
        let Some(cluster) = self.find_cluster(|name| names_cluster(name, &question)) else {
            let finding = SanitizedText::new(&action.finding);
            return Ok(Answer::Refused(Refusal::UnknownFinding { finding }));
        };
        let Question::Finding(finding) = localize_question(&cluster.name, &question) else {
            return Ok(Answer::Refused(Refusal::UnknownFinding { finding: cluster.name.clone() }));
        };
        let answer =
            cluster.client.send_action(&FindingAction { finding, ..action.clone() }).await?;
        Ok(qualify_answer(&cluster.name, &question, answer))
    }

    fn find_cluster(&self, names: impl Fn(&str) -> bool) -> Option<&NamedCluster> {
        self.clusters.iter().find(|cluster| names(&cluster.name))
    }
}

/// The question with all rows up to the end of its page: the page is cut from the joined rows.
fn first_page(question: &Question) -> Question {
    let whole = |filter: &gaunt_api::Filter| match (filter.limit(), filter.offset()) {
        (_, 0) => filter.clone(),
        (limit, offset) => {
            let limit = limit.unwrap_or(gaunt_api::filter::USUAL_ROWS);
            let limit = limit.saturating_add(offset).min(gaunt_api::filter::MAX_ROWS);
            filter.with_page(limit, 0).unwrap_or_else(|_| filter.clone())
        }
    };
    match question {
        Question::List(filter) => Question::List(whole(filter)),
        Question::Table(filter) => Question::Table(whole(filter)),
        Question::AtTime(at, question) => Question::AtTime(*at, Box::new(first_page(question))),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_names_clusters_or_is_that_of_one() {
        assert_eq!(
            split_clusters("hall-1=https://a1,https://b1 ; hall-2=a2:9771;"),
            Some(vec![("hall-1", "https://a1,https://b1"), ("hall-2", "a2:9771")])
        );
        for single in ["https://a1,https://b1", "http://a/?x=y", "a:9771", "hall-1=a;b", ""] {
            assert_eq!(split_clusters(single), None, "{single}");
        }
        for (named, why) in [
            (vec![("a b", "x")], "use letters"),
            (vec![("a", "x"), ("a", "y")], "named twice"),
            (vec![("a", "ftp://x")], "not an aggregator address"),
        ] {
            let error = ClusterUnion::new(&named, None).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
