//! An Alertmanager in simulated time: alerts posted over HTTP, notifications of groups, and what it shows.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use gaunt_node::server_stream::NetworkStream;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    task::JoinSet,
};

use crate::{BEGAN, seeded_random::SeededRandom, simulated_link::Connections};

/// Time between two looks at a group, as in the shipped configuration.
pub(crate) const GROUP_INTERVAL: u64 = 60;

/// The largest request that is read, in bytes.
const MAX_REQUEST: usize = 1 << 20;

/// An Alertmanager; clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct SimulatedAlertmanager(Arc<Mutex<AlertmanagerState>>);

#[derive(Debug)]
struct AlertmanagerState {
    start: tokio::time::Instant,
    /// Alerts by id and severity: until when each is open (RFC 3339 in UTC, whose order is that of times), and its labels.
    alerts: BTreeMap<String, (String, Value)>,
    notified: BTreeSet<String>,
    pages: BTreeMap<String, usize>,
    /// One answer in so many is an error; none if there are no faults.
    fault_every: Option<u64>,
    random: SeededRandom,
    broken: Vec<String>,
}

impl SimulatedAlertmanager {
    pub(crate) fn new(random: SeededRandom) -> Self {
        Self(Arc::new(Mutex::new(AlertmanagerState {
            start: tokio::time::Instant::now(),
            alerts: BTreeMap::new(),
            notified: BTreeSet::new(),
            pages: BTreeMap::new(),
            fault_every: None,
            random,
            broken: Vec::new(),
        })))
    }

    fn state(&self) -> MutexGuard<'_, AlertmanagerState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One answer in so many is an error from now on.
    pub(crate) fn set_faults(&self, every: Option<u64>) {
        self.state().fault_every = every;
    }

    /// Notifications that an alert is open, by its id and severity.
    pub(crate) fn pages(&self) -> BTreeMap<String, usize> {
        self.state().pages.clone()
    }

    /// What was posted and is no alert.
    pub(crate) fn take_broken(&self) -> Vec<String> {
        std::mem::take(&mut self.state().broken)
    }

    /// Notifies of what opened or ended since the last time; returns that.
    pub(crate) fn notify_groups(&self) -> Vec<String> {
        let mut state = self.state();
        let now = state.now();
        let mut news = Vec::new();
        for (id, (ends, _)) in state.alerts.clone() {
            if ends <= now {
                if state.notified.remove(&id) {
                    news.push(format!("resolved {id}"));
                }
            } else if state.notified.insert(id.clone()) {
                news.push(format!("firing {id}"));
                *state.pages.entry(id).or_default() += 1;
            }
        }
        news
    }

    /// Answers connections until they end.
    pub(crate) async fn serve(self, mut connections: Connections) {
        let mut open = JoinSet::new();
        loop {
            tokio::select! {
                Some((stream, _)) = connections.recv() => {
                    let served = self.clone();
                    open.spawn(async move { served.serve_connection(stream).await });
                }
                Some(_) = open.join_next() => {}
                else => return,
            }
        }
    }

    async fn serve_connection(&self, mut stream: Box<dyn NetworkStream>) -> Option<()> {
        let mut received = Vec::new();
        loop {
            let (head, length) = loop {
                if let Some(end) = received.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
                    let head = String::from_utf8_lossy(&received[..end]).into_owned();
                    break (head.clone(), end + 4 + content_length(&head));
                }
                read_more(&mut stream, &mut received).await?;
            };
            while received.len() < length {
                read_more(&mut stream, &mut received).await?;
            }
            let body: Vec<u8> = received.drain(..length).skip(head.len() + 4).collect();
            let (status, answer) = self.state().answer(&head, &body);
            let answer = format!(
                "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{answer}",
                answer.len()
            );
            stream.write_all(answer.as_bytes()).await.ok()?;
        }
    }
}

/// Reads more bytes; none at the end, or beyond the limit.
async fn read_more(stream: &mut Box<dyn NetworkStream>, received: &mut Vec<u8>) -> Option<()> {
    let mut bytes = [0; 4096];
    let count = stream.read(&mut bytes).await.ok().filter(|count| *count > 0)?;
    received.extend_from_slice(&bytes[..count]);
    (received.len() <= MAX_REQUEST).then_some(())
}

fn content_length(head: &str) -> usize {
    let lines = head.lines().filter_map(|line| line.split_once(':'));
    let mut length = lines.filter(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    length.find_map(|(_, value)| value.trim().parse().ok()).unwrap_or(0)
}

impl AlertmanagerState {
    fn now(&self) -> String {
        (BEGAN + self.start.elapsed()).to_rfc3339()
    }

    /// Status and body of the answer to a request.
    fn answer(&mut self, head: &str, body: &[u8]) -> (&'static str, String) {
        let is_faulty = self.fault_every.is_some_and(|every| self.random.once_in(every));
        // A failed post may have been taken, or not.
        let is_taken = !is_faulty || self.random.once_in(2);
        let answer = if head.starts_with("POST /api/v2/alerts ") {
            if is_taken && let Err(why) = self.take_post(body) {
                self.broken.push(format!("a post is refused: {why}"));
                return ("400 Bad Request", json!(why).to_string());
            }
            String::new()
        } else if head.starts_with("GET /api/v2/alerts?") {
            self.show_alerts().to_string()
        } else if head.starts_with("GET /api/v2/silences ") {
            "[]".to_owned()
        } else {
            self.broken.push(format!("no such request: {head:?}"));
            return ("404 Not Found", String::new());
        };
        if is_faulty { ("503 Unavailable", String::new()) } else { ("200 OK", answer) }
    }

    fn take_post(&mut self, body: &[u8]) -> Result<(), String> {
        let posted: Vec<Value> = serde_json::from_slice(body).map_err(|error| error.to_string())?;
        for alert in posted {
            let text = |part: &Value| part.as_str().map(str::to_owned).ok_or("no text".to_owned());
            let (id, severity) =
                (text(&alert["labels"]["id"])?, text(&alert["labels"]["severity"])?);
            let (starts, ends) = (text(&alert["startsAt"])?, text(&alert["endsAt"])?);
            if starts > ends {
                return Err(format!("{id} ends before it starts"));
            }
            self.alerts.insert(format!("{id} {severity}"), (ends, alert["labels"].clone()));
        }
        Ok(())
    }

    fn show_alerts(&self) -> Value {
        let now = self.now();
        let open = self.alerts.values().filter(|(ends, _)| *ends > now);
        let shown = open.map(|(_, labels)| {
            json!({
                "labels": labels,
                "status": { "state": "active", "silencedBy": [], "inhibitedBy": [] },
                "startsAt": BEGAN.to_rfc3339(),
                "receivers": [{ "name": "pager" }],
            })
        });
        shown.collect()
    }
}

/// The seconds of an outage of the pager's side: an alert is kept open for four minutes without a post.
pub(crate) fn draw_outage(random: &mut SeededRandom) -> Duration {
    Duration::from_secs(random.below(60))
}
