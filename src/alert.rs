//! Alerting: posts findings to Alertmanager directly, and reads their alert state back.
//!
//! The labels are those of the shipped rules, so that an alert is the same whichever posts it: Prometheus, this
//! aggregator or its standby. Each Alertmanager has its own task, so that one that does not answer delays no other.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use gaunt_schema::{SanitizedText, Severity, UnixMs};
use tokio::{sync::watch, task::JoinSet};

use crate::answer_source::AnswerSource;
use gaunt_api::{
    AlertLine, AlertList, AlertServer, Answer, Finding, Question,
    peer_exchange::{PeerAlertSet, alert_name},
};
use gaunt_scrape::ServerAccess;

mod alert_labels;
mod alertmanager_api;
mod alertmanager_client;
#[cfg(test)]
mod pair_tests;

use alert_labels::FindingAlert;
pub(crate) use alert_labels::rule_alert_name;
use alertmanager_client::AlertmanagerClient;

/// The most Alertmanagers: a cluster of them has three or five members.
pub const MAX_SERVERS: usize = 16;

/// The most findings that are posted, worst first: more at once are one incident, which the worst of them report.
const MAX_ALERTS: usize = 1_000;

/// How long an ended alert is posted as resolved, as in Prometheus: an Alertmanager that was down receives it too.
const RESOLVED_FOR: Duration = Duration::from_mins(15);

/// Where findings are posted, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlertOptions {
    /// The Alertmanagers, such as `https://10.0.0.5:9093`; findings are posted to all members of a cluster.
    pub servers: Vec<String>,
    /// Time after which an open finding is posted again. An Alertmanager resolves it after four times as long without a
    /// post.
    pub repeat_interval: Duration,
    /// The lowest severity that is posted.
    pub min_severity: Severity,
    /// Cluster name, a label of every alert if set.
    pub cluster: SanitizedText,
    /// TLS and credentials: files are read again when they change.
    pub access: ServerAccess,
}

/// Why findings cannot be posted.
#[derive(Debug, thiserror::Error)]
pub enum AlertError {
    /// An address is invalid.
    #[error(
        "{0:?} is not an Alertmanager address; write http://HOST:9093 or https://HOST:9093 in \
         alertmanager.urls"
    )]
    Address(String),
    /// There are too many Alertmanagers.
    #[error("{0} Alertmanagers in alertmanager.urls; at most {MAX_SERVERS} are allowed")]
    TooMany(usize),
}

/// Alerts to post at one time: open ones, and recently ended ones.
#[derive(Clone, Debug, Default, PartialEq)]
struct AlertSnapshot {
    at: UnixMs,
    open: BTreeMap<String, FindingAlert>,
    ended: BTreeMap<String, (FindingAlert, UnixMs)>,
    /// What peers post as open: Alertmanager would notify again of what one resolves and another posts.
    at_peers: PeerAlertSet,
}

/// Running alerting tasks. Dropping them ends alerting.
#[derive(Debug)]
pub struct AlertingTasks {
    _tasks: JoinSet<()>,
}

/// Checks the addresses before anything is started.
pub fn check_servers(urls: &[String]) -> Result<(), AlertError> {
    if urls.len() > MAX_SERVERS {
        return Err(AlertError::TooMany(urls.len()));
    }
    urls.iter().try_for_each(|address| alertmanager_client::parse_base_url(address).map(drop))
}

/// Starts to post the findings of `source`; the state of the Alertmanagers is sent to `list_sender`.
pub async fn start_alerting(
    options: AlertOptions,
    source: AnswerSource,
    list_sender: watch::Sender<Arc<AlertList>>,
    at_peers: watch::Receiver<PeerAlertSet>,
) -> Result<AlertingTasks, AlertError> {
    check_servers(&options.servers)?;
    let mut tasks = JoinSet::new();
    let credentials = options.access.clone().watch_credentials(&mut tasks).await;
    let (snapshot_sender, snapshots) = watch::channel(AlertSnapshot::default());
    let mut states = Vec::new();
    for address in &options.servers {
        let (state_sender, state) = watch::channel((AlertServer::default(), Vec::new()));
        let server =
            AlertmanagerClient::new(address, options.repeat_interval, credentials.clone())?;
        tasks.spawn(server.run(snapshots.clone(), state_sender));
        states.push(state);
    }
    tasks.spawn(watch_findings(options, source, at_peers, snapshot_sender));
    tasks.spawn(merge_server_lists(states, list_sender));
    Ok(AlertingTasks { _tasks: tasks })
}

/// Follows the findings, and publishes changes. Ends with the source.
async fn watch_findings(
    options: AlertOptions,
    source: AnswerSource,
    at_peers: watch::Receiver<PeerAlertSet>,
    sender: watch::Sender<AlertSnapshot>,
) {
    let mut last = UnixMs::default();
    while let Ok(at) = source.wait_for_tick(last).await {
        last = at;
        let Ok(Answer::Findings(findings)) = source.ask_question(Question::Findings).await else {
            continue;
        };
        let open = build_alerts(&findings.findings, &options);
        let at_peers = at_peers.borrow().clone();
        sender.send_if_modified(|snapshot| {
            let is_released = snapshot.update_peers(at_peers);
            snapshot.update_open(at, open) || is_released
        });
    }
}

/// The findings as alerts, by id.
fn build_alerts(findings: &[Finding], options: &AlertOptions) -> BTreeMap<String, FindingAlert> {
    // Acknowledged findings are not posted.
    let postable = findings.iter().filter(|finding| {
        finding.severity >= options.min_severity && finding.acknowledged.is_none()
    });
    let alerts = postable.take(MAX_ALERTS);
    alerts
        .map(|finding| (finding.id.clone(), FindingAlert::of(finding, &options.cluster)))
        .collect()
}

impl AlertSnapshot {
    /// Updates what peers post; returns whether there is another alert that may be posted as resolved now.
    fn update_peers(&mut self, at_peers: PeerAlertSet) -> bool {
        let before = self.resolved_alerts().count();
        self.at_peers = at_peers;
        self.resolved_alerts().count() > before
    }

    /// The alerts to post as resolved, and when they ended: those of which every peer said afterwards that it does not post
    /// them. What a peer that does not answer may still post is not posted any more, and Alertmanager resolves it if
    /// nobody else posts it either: it never hears that an alert ended from one and that it is open from another.
    fn resolved_alerts(&self) -> impl Iterator<Item = (&FindingAlert, UnixMs)> {
        let ended = self.ended.values().filter(|(alert, ended)| {
            let name = alert_name(alert.finding_id(), alert.severity_label());
            *ended < self.at_peers.asked_at && !self.at_peers.names.contains(&name)
        });
        ended.map(|(alert, ended)| (alert, *ended))
    }

    /// Updates the open alerts; returns whether anything changed.
    fn update_open(&mut self, at: UnixMs, open: BTreeMap<String, FindingAlert>) -> bool {
        let previous = std::mem::replace(&mut self.open, open);
        let mut is_changed = previous.keys().ne(self.open.keys());
        for (id, alert) in previous {
            match self.open.get(&id) {
                Some(current) if current.labels == alert.labels => {}
                // With another severity it is another alert, and the previous one has ended.
                Some(_) => {
                    is_changed = true;
                    self.ended.insert(format!("{id} {}", alert.severity_label()), (alert, at));
                }
                None => {
                    self.ended.insert(id, (alert, at));
                }
            }
        }
        let open = &self.open;
        self.ended.retain(|_, (alert, ended)| {
            let is_open = open.values().any(|other| other.labels == alert.labels);
            !is_open && at.duration_since(*ended) < RESOLVED_FOR
        });
        self.at = at;
        is_changed
    }
}

/// Merges the alert lists of the servers.
async fn merge_server_lists(
    mut receivers: Vec<watch::Receiver<(AlertServer, Vec<AlertLine>)>>,
    list_sender: watch::Sender<Arc<AlertList>>,
) {
    loop {
        let mut list = AlertList::default();
        for receiver in &mut receivers {
            let (server, lines) = receiver.borrow_and_update().clone();
            list.servers.push(server);
            for line in lines {
                // The members of a cluster report the same alerts.
                let is_same = |other_line: &AlertLine| {
                    other_line.finding == line.finding && other_line.severity == line.severity
                };
                if !list.alerts.iter().any(is_same) {
                    list.alerts.push(line);
                }
            }
        }
        list.alerts.sort_by(|one, other| {
            other.severity.cmp(&one.severity).then_with(|| one.finding.cmp(&other.finding))
        });
        list_sender.send_replace(Arc::new(list));
        let changes = receivers.iter_mut().map(|receiver| Box::pin(receiver.changed()));
        if wait_for_any(changes.collect()).await.is_err() {
            return;
        }
    }
}

/// Waits for the first of several futures.
async fn wait_for_any<F: Future + Unpin>(mut futures: Vec<F>) -> F::Output {
    std::future::poll_fn(move |context| {
        for future in &mut futures {
            if let std::task::Poll::Ready(output) = std::pin::Pin::new(future).poll(context) {
                return std::task::Poll::Ready(output);
            }
        }
        std::task::Poll::Pending
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test_alert(severity: &str) -> FindingAlert {
        let labels = [("alertname", "GauntPortDown"), ("severity", severity)];
        FindingAlert {
            labels: labels.map(|(name, value)| (name, value.to_owned())).into(),
            ..FindingAlert::default()
        }
    }

    fn open_alerts(alerts: &[(&str, &str)]) -> BTreeMap<String, FindingAlert> {
        let alert = |id: &str, severity| {
            let mut alert = test_alert(severity);
            alert.labels.insert("id", id.to_owned());
            alert
        };
        alerts.iter().map(|(id, severity)| ((*id).to_owned(), alert(id, severity))).collect()
    }

    #[test]
    fn ended_alert_is_kept_for_a_while_and_may_open_again() {
        let mut snapshot = AlertSnapshot::default();
        assert!(snapshot.update_open(UnixMs(1_000), open_alerts(&[("a", "critical")])));
        assert!(!snapshot.update_open(UnixMs(2_000), open_alerts(&[("a", "critical")])), "no news");
        assert!(snapshot.update_open(UnixMs(3_000), open_alerts(&[])));
        assert_eq!(snapshot.ended["a"].1, UnixMs(3_000));
        assert!(snapshot.update_open(UnixMs(4_000), open_alerts(&[("a", "critical")])));
        assert!(snapshot.ended.is_empty(), "it is open again");
        assert!(snapshot.update_open(UnixMs(5_000), open_alerts(&[])));
        assert!(!snapshot.update_open(UnixMs(5_000) + RESOLVED_FOR, open_alerts(&[])));
        assert!(snapshot.ended.is_empty(), "it was told long enough");
    }

    #[test]
    fn alert_is_not_resolved_while_a_peer_posts_it() {
        let mut snapshot = AlertSnapshot::default();
        let open = open_alerts(&[("a", "critical"), ("b", "critical")]);
        snapshot.update_open(UnixMs(1_000), open);
        let posted = |names: &[&str], asked_at: i64| {
            let names = names.iter().map(|name| SanitizedText::new(name)).collect();
            PeerAlertSet { names: Arc::new(names), asked_at: UnixMs(asked_at) }
        };
        assert!(!snapshot.update_peers(posted(&["a critical", "b warning"], 1_500)));
        assert!(snapshot.update_open(UnixMs(2_000), open_alerts(&[])));
        assert_eq!(snapshot.resolved_alerts().count(), 0, "the peer was asked before the end");
        assert!(snapshot.update_peers(posted(&["a critical", "b warning"], 2_001)));
        let resolved: Vec<_> = snapshot.resolved_alerts().map(|(it, _)| it.finding_id()).collect();
        assert_eq!(resolved, ["b"], "the alert of another severity is another one");
        assert!(!snapshot.update_peers(posted(&["a critical", "b warning"], 3_000)), "no news");
        assert!(snapshot.update_peers(posted(&[], 4_000)));
        assert_eq!(snapshot.resolved_alerts().count(), 2);
        // A peer that does not answer may still post both.
        assert!(!snapshot.update_peers(posted(&[], 0)));
        assert_eq!(snapshot.resolved_alerts().count(), 0);
    }

    #[test]
    fn alert_of_another_severity_is_another_alert() {
        let mut snapshot = AlertSnapshot::default();
        snapshot.update_open(UnixMs(1_000), open_alerts(&[("a", "warning")]));
        assert!(snapshot.update_open(UnixMs(2_000), open_alerts(&[("a", "critical")])));
        let (ended, _) = &snapshot.ended["a warning"];
        assert_eq!(ended.severity_label(), "warning");
        assert_eq!(snapshot.open["a"].severity_label(), "critical");
    }
}
