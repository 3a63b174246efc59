//! Consoles that are wrong about an address or a token: each error names the address and the next step, and a refusal is an
//! answer.

use std::{
    io,
    net::SocketAddr,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use gaunt::answer_source::AggregatorClient;
use gaunt_api::{Answer, FindingAction, FindingCommand, Question};
use gaunt_node::server_stream::NetworkStream;
use gaunt_schema::{
    SanitizedText,
    probe_pairing::{PairTool, PairingCandidate, PairingRequest},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    task::JoinSet,
    time::sleep,
};

use crate::{
    seeded_random::SeededRandom,
    simulated_link::{Connections, ServicePlace, SimulatedLink},
};

/// Time between two questions.
const ASK_EVERY: Duration = Duration::from_secs(7);

/// What is at the wrong address, by turns: status, body, and a part of the error that says so.
const WRONG: &[(&str, &str, &str)] = &[
    ("200 OK", "gaunt_node_info{node=\"gpu01\"} 1\n", "is a gaunt-node, not an aggregator"),
    ("200 OK", "# TYPE up gauge\nup 1\n", "is an exporter of metrics, not an aggregator"),
    ("200 OK", "<html>", "sent an invalid answer: it is not JSON"),
    ("200 OK", "{\"at\":", "sent an invalid answer: it ends too early"),
    ("200 OK", "{\"at\":\"soon\"}", "a value is missing or has the wrong type"),
    ("500 Internal Server Error", "{}", "answered with HTTP status 500; is it gaunt"),
    ("421 Misdirected Request", "", "add this name to serve.names there"),
    ("429 Too Many Requests", "", "correct the token, or try again in a minute"),
    ("302 Found", "", "answered with HTTP status 302"),
    ("404 Not Found", "no", "sent an invalid answer"),
];

/// What a console asks, with its steps in `at` and names that do not exist.
const ASKED: &[&str] = &[
    "overview?at=-1m",
    "findings?at=-30s",
    "nodes/nowhere",
    "jobs/none",
    "findings/target_down/nowhere",
    "history?metric=power",
    "table/gpus",
    "usage?last=1m",
];

/// A server that is no aggregator; clones are the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct WrongServer(Arc<Mutex<usize>>);

impl WrongServer {
    fn kind(&self) -> MutexGuard<'_, usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers connections until they end.
    pub(crate) async fn serve(self, mut connections: Connections) {
        let mut open = JoinSet::new();
        while let Some((stream, _)) = connections.recv().await {
            let (status, body, _) = WRONG[*self.kind() % WRONG.len()];
            open.spawn(answer(stream, status, body));
        }
    }
}

/// Answers every request of a connection alike.
async fn answer(mut stream: Box<dyn NetworkStream>, status: &str, body: &str) {
    let length = body.len();
    let answer = format!(
        "HTTP/1.1 {status}\r\nlocation: /elsewhere\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    let mut bytes = [0; 4096];
    if stream.read(&mut bytes).await.is_ok_and(|count| count > 0) {
        _ = stream.write_all(answer.as_bytes()).await;
    }
}

/// The consoles; clones are the same.
#[derive(Clone)]
pub(crate) struct MistakenConsoles {
    wrong: WrongServer,
    /// A console at the wrong server.
    lost: AggregatorClient,
    /// Consoles at one of the pair, with another token than theirs, and with theirs.
    unknown: AggregatorClient,
    known: AggregatorClient,
    broken: Arc<Mutex<Vec<String>>>,
}

impl MistakenConsoles {
    /// Opens links in a folder, without faults: to the wrong server, and to one of the pair, whose token is this.
    pub(crate) fn open(
        folder: &Path,
        place: &ServicePlace,
        token: &str,
        tasks: &mut JoinSet<()>,
    ) -> io::Result<Self> {
        let (wrong, wrong_place) = (WrongServer::default(), ServicePlace::default());
        tasks.spawn(wrong.clone().serve(wrong_place.start_program()));
        let from = SocketAddr::from(([10, 0, 1, 4], 40_000));
        let mut connect = |address: &str, to: &str, place: &ServicePlace| {
            let path = SimulatedLink::socket(folder, "mistaken", to);
            SimulatedLink::open(&path, from, place, SeededRandom::new(0), tasks)?;
            AggregatorClient::through_sockets(&[(address, &path)]).map_err(io::Error::other)
        };
        let lost = connect("http://wrong:9771", "wrong", &wrong_place)?;
        let known = connect("http://a:9771", "a", place)?.with_token(Some(token.to_owned()));
        let unknown = known.clone().with_token(Some("another-token-than-theirs".to_owned()));
        Ok(Self { wrong, lost, unknown, known, broken: Arc::default() })
    }

    fn note(&self, what: String) {
        self.broken.lock().unwrap_or_else(PoisonError::into_inner).push(what);
    }

    /// What does not hold.
    pub(crate) fn take_broken(&self) -> Vec<String> {
        std::mem::take(&mut self.broken.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Asks now and then.
    pub(crate) async fn watch(self) {
        for turn in 0.. {
            sleep(ASK_EVERY).await;
            self.ask_wrong(turn).await;
            self.ask_pair(turn).await;
        }
    }

    /// Asks the wrong server, which is another one at each turn.
    async fn ask_wrong(&self, turn: usize) {
        *self.wrong.kind() = turn;
        let expected = WRONG[turn % WRONG.len()].2;
        match self.lost.ask_question(&Question::Overview).await {
            Err(error) if error.to_string().contains(expected) => {
                if !error.to_string().contains("wrong:9771") {
                    self.note(format!("an error names no address: {error}"));
                }
            }
            other => self.note(format!("{expected:?} is expected: {other:?}")),
        }
    }

    /// Asks one of the pair for what it may not have, and acts without the right to. It may be down: then that is an error.
    async fn ask_pair(&self, turn: usize) {
        let line = ASKED[turn % ASKED.len()];
        let (path, parameters) = line.split_once('?').unwrap_or((line, ""));
        let parameters: Vec<(String, String)> = parameters
            .split_once('=')
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into_iter()
            .collect();
        match Question::parse_path(path, &parameters) {
            Ok(question) => {
                let answer = self.known.ask_question(&question).await;
                let is_named = path.contains("nowhere") || path.contains("none");
                if is_named && answer.as_ref().is_ok_and(|it| !matches!(it, Answer::Refused(_))) {
                    self.note(format!("{line} is answered: {answer:?}"));
                }
            }
            Err(why) => self.note(format!("{line} is no question: {why:?}")),
        }
        let action = FindingAction {
            finding: "target_down/nowhere".to_owned(),
            by: "eve".into(),
            command: FindingCommand::Withdraw,
            seen: None,
        };
        if let Ok(answer) = self.unknown.send_action(&action).await
            && !matches!(answer, Answer::Refused(_))
        {
            self.note(format!("an action without a role is answered: {answer:?}"));
        }
        let node = SanitizedText::new("gpu01");
        let candidate =
            PairingCandidate { node: node.clone(), host: node, tools: vec![PairTool::Nccl] };
        let request = PairingRequest::Free(candidate);
        if let Ok(reply) = self.unknown.send_pairing_request(&request).await {
            self.note(format!("a probe without a role gets {reply:?}"));
        }
        // Whatever it is told, it may ask.
        drop(self.known.send_pairing_request(&request).await);
    }
}
