//! Alerts: findings posted to Alertmanager by ourselves, and what it says of them read back.
//!
//! The labels are those of the shipped rules, so that an alert is the same whoever posts it: Prometheus, this
//! aggregator or its standby. Each Alertmanager has a task of its own, and one that does not answer holds up nobody.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use gaunt_schema::{Safe, Severity, UnixMs};
use tokio::{sync::watch, task::JoinSet};

use crate::{
    answer::{AlertLine, AlertList, AlertServer, Answer, Finding, Question},
    gather::Access,
    source::Source,
};

mod label;
mod server;
mod wire;

use label::Alert;
use server::Server;

/// Alertmanagers that can be named: a cluster of them has three or five members.
pub const MAX_SERVERS: usize = 16;

/// Findings that are posted, worst first: more at once are one disaster, and are told by the worst of them.
const MAX_ALERTS: usize = 1_000;

/// An alert that ended is told for so long, as Prometheus does: an Alertmanager that was away hears it too.
const RESOLVED_FOR: Duration = Duration::from_mins(15);

/// Where findings are posted, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The Alertmanagers, such as `https://10.0.0.5:9093`; all members of a cluster are told.
    pub servers: Vec<String>,
    /// The time after which an open finding is posted again. Who hears nothing for four times as long takes it for over.
    pub every: Duration,
    /// The least severity that is posted.
    pub least: Severity,
    /// The name of the cluster, put on every alert if there is one.
    pub cluster: Safe,
    /// How they are reached: files of keys are read again when they change.
    pub access: Access,
}

/// Why findings cannot be posted.
#[derive(Debug, thiserror::Error)]
pub enum AlertError {
    /// An address is none.
    #[error(
        "{0:?} is not the address of an Alertmanager; write http://HOST:9093 or https://HOST:9093 in alertmanager.urls"
    )]
    Address(String),
    /// There are too many.
    #[error("{0} Alertmanagers are named in alertmanager.urls; {MAX_SERVERS} are possible")]
    TooMany(usize),
}

/// What is to be told at one instant: what is open, and what ended lately.
#[derive(Clone, Debug, Default, PartialEq)]
struct Told {
    at: UnixMs,
    open: BTreeMap<String, Alert>,
    ended: BTreeMap<String, (Alert, UnixMs)>,
}

/// The alerting that runs. Dropping it ends it.
#[derive(Debug)]
pub struct Alerting {
    _tasks: JoinSet<()>,
}

/// Checks the addresses, before anything is started.
pub fn check(options: &Options) -> Result<(), AlertError> {
    if options.servers.len() > MAX_SERVERS {
        return Err(AlertError::TooMany(options.servers.len()));
    }
    options.servers.iter().try_for_each(|address| server::base(address).map(drop))
}

/// Starts to post what `source` finds; what the Alertmanagers say appears at the other end of `said`.
pub async fn start(
    options: Options,
    source: Source,
    said: watch::Sender<Arc<AlertList>>,
) -> Result<Alerting, AlertError> {
    check(&options)?;
    let mut tasks = JoinSet::new();
    let keys = options.access.clone().open(&mut tasks).await;
    let (tell, told) = watch::channel(Told::default());
    let mut answers = Vec::new();
    for address in &options.servers {
        let (send, heard) = watch::channel((AlertServer::default(), Vec::new()));
        let server = Server::new(address, options.every, keys.clone())?;
        tasks.spawn(server.run(told.clone(), send));
        answers.push(heard);
    }
    tasks.spawn(observe(options, source, tell));
    tasks.spawn(gather(answers, said));
    Ok(Alerting { _tasks: tasks })
}

/// Follows the findings, and says what changed. Ends with the source.
async fn observe(options: Options, source: Source, tell: watch::Sender<Told>) {
    let mut last = UnixMs::default();
    while let Ok(at) = source.ticked_after(last).await {
        last = at;
        let Ok(Answer::Findings(known)) = source.ask(Question::Findings).await else { continue };
        let open = alerts(&known.findings, &options);
        tell.send_if_modified(|told| told.take(at, open));
    }
}

/// The findings as alerts, by their ids.
fn alerts(findings: &[Finding], options: &Options) -> BTreeMap<String, Alert> {
    // Whoever took a finding on is told enough.
    let worth = findings
        .iter()
        .filter(|finding| finding.severity >= options.least && finding.acknowledged.is_none());
    let alerts = worth.take(MAX_ALERTS);
    alerts.map(|finding| (finding.id.clone(), Alert::of(finding, &options.cluster))).collect()
}

impl Told {
    /// Takes what is open now; whether that is news.
    fn take(&mut self, at: UnixMs, open: BTreeMap<String, Alert>) -> bool {
        let before = std::mem::replace(&mut self.open, open);
        let mut news = before.keys().ne(self.open.keys());
        for (id, alert) in before {
            match self.open.get(&id) {
                Some(same) if same.labels == alert.labels => {}
                // Of another severity it is another alert, and the one that was is over.
                Some(_) => {
                    news = true;
                    self.ended.insert(format!("{id} {}", alert.severity()), (alert, at));
                }
                None => {
                    self.ended.insert(id, (alert, at));
                }
            }
        }
        let open = &self.open;
        self.ended.retain(|_, (alert, ended)| {
            let again = open.values().any(|one| one.labels == alert.labels);
            !again && at.since(*ended) < RESOLVED_FOR
        });
        self.at = at;
        news
    }
}

/// Puts together what the servers say.
async fn gather(
    mut heard: Vec<watch::Receiver<(AlertServer, Vec<AlertLine>)>>,
    said: watch::Sender<Arc<AlertList>>,
) {
    loop {
        let mut list = AlertList::default();
        for one in &mut heard {
            let (server, lines) = one.borrow_and_update().clone();
            list.servers.push(server);
            for line in lines {
                // The members of a cluster say the same.
                let same = |known: &AlertLine| {
                    known.finding == line.finding && known.severity == line.severity
                };
                if !list.alerts.iter().any(same) {
                    list.alerts.push(line);
                }
            }
        }
        list.alerts.sort_by(|one, other| {
            other.severity.cmp(&one.severity).then_with(|| one.finding.cmp(&other.finding))
        });
        said.send_replace(Arc::new(list));
        let changes = heard.iter_mut().map(|one| Box::pin(one.changed()));
        if any(changes.collect()).await.is_err() {
            return;
        }
    }
}

/// Waits for the first of several.
async fn any<F: Future + Unpin>(mut all: Vec<F>) -> F::Output {
    std::future::poll_fn(move |context| {
        for one in &mut all {
            if let std::task::Poll::Ready(output) = std::pin::Pin::new(one).poll(context) {
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

    fn alert(severity: &str) -> Alert {
        let labels = [("alertname", "GauntPortDown"), ("severity", severity)];
        Alert {
            labels: labels.map(|(name, value)| (name, value.to_owned())).into(),
            ..Alert::default()
        }
    }

    fn open(of: &[(&str, &str)]) -> BTreeMap<String, Alert> {
        of.iter().map(|(id, severity)| ((*id).to_owned(), alert(severity))).collect()
    }

    #[test]
    fn what_ends_is_told_for_a_while_and_what_comes_back_is_open_again() {
        let mut told = Told::default();
        assert!(told.take(UnixMs(1_000), open(&[("a", "critical")])));
        assert!(!told.take(UnixMs(2_000), open(&[("a", "critical")])), "no news");
        assert!(told.take(UnixMs(3_000), open(&[])));
        assert_eq!(told.ended["a"].1, UnixMs(3_000));
        assert!(told.take(UnixMs(4_000), open(&[("a", "critical")])));
        assert!(told.ended.is_empty(), "it is open again");
        assert!(told.take(UnixMs(5_000), open(&[])));
        assert!(!told.take(UnixMs(5_000) + RESOLVED_FOR, open(&[])));
        assert!(told.ended.is_empty(), "it was told long enough");
    }

    #[test]
    fn another_severity_is_another_alert() {
        let mut told = Told::default();
        told.take(UnixMs(1_000), open(&[("a", "warning")]));
        assert!(told.take(UnixMs(2_000), open(&[("a", "critical")])));
        let (ended, _) = &told.ended["a warning"];
        assert_eq!(ended.severity(), "warning");
        assert_eq!(told.open["a"].severity(), "critical");
    }
}
