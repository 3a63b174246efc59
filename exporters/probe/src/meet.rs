//! Between nodes: offers this node to the aggregator, measures with whom it names, and tells it what came of it.

use std::{
    fs,
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use gaunt_schema::{
    Safe,
    meeting::{Guest, Invitation, Outcome, PairTool, Reply, Word},
    plain_error,
};
use reqwest::{Client, StatusCode, Url};
use tokio::runtime::{Builder, Runtime};
use tokio_rustls::rustls::crypto::ring;

use crate::{
    ending::{Ending, Kind},
    idle::Look,
    nccl::Nccl,
    order::{Measured, Meeting, Order, What},
    past::{Budget, Past},
    perftest::{self, Side},
    supervisor::supervise_meeting,
};

/// Where the aggregator hears probes.
const PATH: &str = "api/gaunt/v1/probe/meeting";

/// How long one word may take, there and back.
const DEADLINE: Duration = Duration::from_secs(5);

/// The largest reply that is read.
const MAX_REPLY: usize = 64 << 10;

/// How long a node that is in use waits before it looks again.
const BUSY: Duration = Duration::from_secs(30);

/// How long it waits for an aggregator that does not answer, and how often in a row.
const SILENT: Duration = Duration::from_secs(5);
const SILENCES: u32 = 12;

/// The file of what was measured before, in the folder of the past.
const PAST: &str = "meetings.json";

/// What is offered, to whom, and how often.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where the aggregator is: `http://HOST:9771`.
    pub aggregator: String,
    /// The file of the token that lets probes meet.
    pub token_file: Option<PathBuf>,
    /// This node's name, as the aggregator knows it.
    pub node: String,
    /// The name or address under which others reach it.
    pub host: String,
    /// How many meetings; without it, one after the other until it is stopped.
    pub rounds: Option<u32>,
    /// How long somebody to meet is waited for; without it, until it is stopped.
    pub patience: Option<Duration>,
    /// How a pair is measured.
    pub order: Order,
    /// perftest's program, if not the one on the path.
    pub perftest: Option<PathBuf>,
    /// Folder for what is usual here and for today's budget.
    pub state: PathBuf,
    /// What a day may cost.
    pub budget: Budget,
}

/// What came of one meeting.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Met {
    /// The node at the other end.
    pub peer: Safe,
    /// The port here that carried it.
    pub port: Safe,
    /// What was measured with.
    pub tool: PairTool,
    /// Bytes in a second, if it was measured.
    pub bytes_per_second: Option<f64>,
    /// That as a share of what is usual between the two.
    pub ratio: Option<f64>,
    /// One sentence for people.
    pub says: Safe,
}

/// Offers the node until it met often enough, and tells of each meeting. The last ending counts.
pub fn run(options: &Options, tell: &mut dyn FnMut(&Met)) -> Ending {
    match Prober::new(options).and_then(|prober| prober.run(tell)) {
        Ok(ending) | Err(ending) => ending,
    }
}

struct Prober<'a> {
    options: &'a Options,
    line: Line,
    tools: Vec<PairTool>,
}

impl<'a> Prober<'a> {
    fn new(options: &'a Options) -> Result<Self, Ending> {
        let nccl = Nccl::open(options.order.libraries.nccl.as_deref());
        let mut tools = Vec::new();
        tools.extend(nccl.as_ref().ok().map(|_| PairTool::Nccl));
        tools.extend(Side::find(options.perftest.as_ref()).map(|_| PairTool::Perftest));
        if let (true, Err(why)) = (tools.is_empty(), nccl) {
            let why = format!("nothing measures between nodes: install perftest, or NCCL: {why}");
            return Err(Ending::new(Kind::Failed, why));
        }
        Ok(Self { options, line: Line::new(options)?, tools })
    }

    fn run(&self, tell: &mut dyn FnMut(&Met)) -> Result<Ending, Ending> {
        let mut ending = Ending::measured();
        let (mut made, mut since) = (0, Instant::now());
        while self.options.rounds.is_none_or(|rounds| made < rounds) {
            if let Err(refused) = self.is_free() {
                if self.options.rounds.is_some() {
                    return Err(refused);
                }
                thread::sleep(BUSY);
                continue;
            }
            let guest = Guest {
                node: Safe::new(&self.options.node),
                host: Safe::new(&self.options.host),
                tools: self.tools.clone(),
            };
            match self.line.say_patiently(&Word::Free(guest))? {
                Reply::Wait { millis } => {
                    if self.options.patience.is_some_and(|patience| since.elapsed() > patience) {
                        return Err(Ending::new(Kind::Refused, "nobody came to be measured with"));
                    }
                    thread::sleep(Duration::from_millis(millis));
                }
                Reply::Meet(invitation) => {
                    let (met, ended) = self.meet(&invitation)?;
                    (made, since) = (made + 1, Instant::now());
                    ending = ended;
                    tell(&met);
                }
                Reply::Over { why } => return Err(Ending::new(Kind::Failed, why)),
                Reply::Key { .. } | Reply::Noted => return Err(strange()),
            }
        }
        Ok(ending)
    }

    /// Whether nobody is on the GPUs, and today's budget is not used up.
    fn is_free(&self) -> Result<(), Ending> {
        let (order, now) = (&self.options.order, crate::auto::now());
        Past::read(&self.past())?.may_run(now, &self.options.budget)?;
        if order.even_if_busy {
            return Ok(());
        }
        Look::open(order.libraries.nvml.as_deref(), &order.unless)?.is_free()
    }

    fn past(&self) -> PathBuf {
        self.options.state.join(PAST)
    }

    /// Measures with the node that was named, and says what came of it.
    fn meet(&self, invitation: &Invitation) -> Result<(Met, Ending), Ending> {
        let (ended, ratio) = match invitation.tool {
            PairTool::Nccl => self.by_nccl(invitation)?,
            PairTool::Perftest => (self.by_perftest(invitation), None),
        };
        let (rate, ending) = match ended {
            Ok(rate) => (Some(rate), Ending::measured()),
            Err(ending) => (None, ending),
        };
        let Invitation { meeting, rank, tool, device, port, peer, .. } = invitation.clone();
        let says = ending.message.clone();
        let outcome = Outcome { bytes_per_second: rate, says: says.clone() };
        // An aggregator that forgot the meeting has nothing to note.
        self.line.say_patiently(&Word::Ended { meeting, rank, outcome })?;
        let port = Safe::new(&format!("{device}:{port}"));
        Ok((Met { peer, port, tool, bytes_per_second: rate, ratio, says }, ending))
    }

    fn by_nccl(
        &self,
        invitation: &Invitation,
    ) -> Result<(Result<f64, Ending>, Option<f64>), Ending> {
        let Invitation { meeting, rank, device, port, peer, .. } = invitation;
        let key = match rank {
            0 => None,
            _ => match self.key(*meeting) {
                Ok(key) => Some(key.as_str().to_owned()),
                Err(ending) => return Ok((Err(ending), None)),
            },
        };
        let mut order = self.options.order.clone();
        order.what = What::Pair(usize::from(*rank));
        if order.gpus.is_empty() {
            order.gpus.extend(invitation.gpu);
        }
        order.meeting = Some(Meeting { key, port: Some(format!("{device}:{port}")) });
        let mut answer = supervise_meeting(&order, &mut |key| {
            // Who waits for the key asks again; a word that was lost ends as a meeting that nobody came to.
            let ready = Word::Ready { meeting: *meeting, key: Safe::new(key) };
            drop(self.line.say(&ready));
        });
        for one in &mut answer.measured {
            one.between = Safe::new(&format!("{device}:{port}>{peer}"));
        }
        let path = self.past();
        fs::create_dir_all(&self.options.state).map_err(|error| {
            let state = self.options.state.display();
            Ending::new(
                Kind::Failed,
                format!("cannot use {state}: {error}; name another with --state"),
            )
        })?;
        let mut past = Past::read(&path)?;
        let ending = past.take(crate::auto::now(), &answer);
        past.write(&path)?;
        let ratio = past.last.first().and_then(|(_, ratio)| *ratio);
        let measured = answer.measured.first().map(Measured::bandwidth);
        let good = matches!(ending.kind, Kind::Measured | Kind::Slow);
        Ok((measured.filter(|_| good).ok_or(ending), ratio))
    }

    fn by_perftest(&self, invitation: &Invitation) -> Result<f64, Ending> {
        let meeting = invitation.meeting;
        let side = Side {
            program: self.options.perftest.clone(),
            device: invitation.device.to_string(),
            port: invitation.port.to_string(),
            tcp: perftest::PORT,
        };
        let failed = |why: String| Ending::new(Kind::Failed, why);
        if invitation.rank == 0 {
            let ready = Word::Ready { meeting, key: Safe::new(&self.options.host) };
            return side.wait(&mut || drop(self.line.say(&ready))).map_err(failed);
        }
        side.go(&self.key(meeting)?).map_err(failed)
    }

    /// What rank 0 says when it is ready.
    fn key(&self, meeting: u64) -> Result<Safe, Ending> {
        let end = Instant::now() + Duration::from_millis(self.options.order.limits.setup_millis);
        while Instant::now() < end {
            match self.line.say_patiently(&Word::Coming { meeting })? {
                Reply::Wait { millis } => thread::sleep(Duration::from_millis(millis)),
                Reply::Key { key } => return Ok(key),
                Reply::Over { why } => return Err(Ending::new(Kind::Failed, why)),
                Reply::Meet(_) | Reply::Noted => return Err(strange()),
            }
        }
        Err(Ending::new(Kind::Hung, "the other node was not ready in time"))
    }
}

/// The way to the aggregator.
struct Line {
    client: Client,
    runtime: Runtime,
    url: Url,
    token_file: Option<PathBuf>,
}

/// Why a word was not heard.
enum Deaf {
    /// Nobody answers; later somebody may.
    Silent(String),
    /// It will not be heard later either.
    Refused(Ending),
}

impl Line {
    fn new(options: &Options) -> Result<Self, Ending> {
        let failed = |why: String| Ending::new(Kind::Failed, why);
        let address = &options.aggregator;
        let full =
            if address.contains("://") { address.clone() } else { format!("http://{address}") };
        let bad =
            || failed(format!("{address:?} is not an aggregator's address; use http://HOST:9771"));
        let mut url = Url::parse(&full).map_err(|_| bad())?;
        url.path_segments_mut().map_err(|()| bad())?.pop_if_empty().extend(PATH.split('/'));
        // reqwest has no arithmetic of its own; that another one is there already is no failure.
        drop(ring::default_provider().install_default());
        let client =
            Client::builder().timeout(DEADLINE).redirect(reqwest::redirect::Policy::none());
        let client = client.no_proxy().build().map_err(|error| {
            let why = plain_error::network(&error);
            failed(format!("no HTTP client can be made: {why}"))
        })?;
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| {
            let why = plain_error::io(&error);
            failed(format!("no thread can wait for the network: {why}; see `ulimit -n`"))
        })?;
        Ok(Self { client, runtime, url, token_file: options.token_file.clone() })
    }

    /// Says a word again and again while nobody answers.
    fn say_patiently(&self, word: &Word) -> Result<Reply, Ending> {
        let mut last = String::new();
        for _ in 0..SILENCES {
            match self.say(word) {
                Ok(reply) => return Ok(reply),
                Err(Deaf::Refused(ending)) => return Err(ending),
                Err(Deaf::Silent(why)) => last = why,
            }
            thread::sleep(SILENT);
        }
        Err(Ending::new(Kind::Failed, format!("the aggregator does not answer: {last}")))
    }

    fn say(&self, word: &Word) -> Result<Reply, Deaf> {
        let refused = |why: String| Deaf::Refused(Ending::new(Kind::Failed, why));
        let mut request = self.client.post(self.url.clone()).json(word);
        if let Some(path) = &self.token_file {
            let token = fs::read_to_string(path).map_err(|error| {
                refused(format!("cannot read the token in {}: {error}", path.display()))
            })?;
            request = request.bearer_auth(token.trim());
        }
        let silent = |error: reqwest::Error| {
            Deaf::Silent(format!("{}: {}", self.url, plain_error::network(&error)))
        };
        self.runtime.block_on(async {
            let mut response = request.send().await.map_err(silent)?;
            let status = response.status();
            let mut body = Vec::new();
            while let Some(chunk) = response.chunk().await.map_err(silent)? {
                body.extend_from_slice(&chunk);
                if body.len() > MAX_REPLY {
                    return Err(refused(format!(
                        "{} answers with more than {MAX_REPLY} bytes",
                        self.url
                    )));
                }
            }
            match status {
                StatusCode::OK => serde_json::from_slice(&body).map_err(|error| {
                    refused(format!(
                        "{} gave a reply that cannot be read: {}; is it of this version?",
                        self.url,
                        plain_error::json(&error)
                    ))
                }),
                status if status.is_server_error() => {
                    Err(Deaf::Silent(format!("{} answered {status}", self.url)))
                }
                status => {
                    let said = String::from_utf8_lossy(&body);
                    let said = said.chars().take(300).collect::<String>();
                    Err(refused(format!(
                        "{} refused with {status}: {said}; see --token-file",
                        self.url
                    )))
                }
            }
        })
    }
}

fn strange() -> Ending {
    Ending::new(
        Kind::Failed,
        "the aggregator's reply fits no word that was said; is it of this version?",
    )
}
