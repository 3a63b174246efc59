//! Cross-node probes: offers this node to the aggregator, measures with the assigned peer, and reports the result.

use std::{
    cell::Cell,
    fs,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use gaunt_schema::{
    SanitizedText, plain_error,
    probe_pairing::{
        PairTool, PairingAssignment, PairingCandidate, PairingOutcome, PairingReply, PairingRequest,
    },
};
use reqwest::{Certificate, Client, StatusCode, Url};
use tokio::runtime::{Builder, Runtime};
use tokio_rustls::rustls::crypto::ring;

use crate::{
    baselines::{ProbeBudget, ProbeState},
    exit_code::{ExitKind, ProbeExit},
    idle_check::GpuIdleCheck,
    nccl_ffi::NcclLibrary,
    perftest::{self, PerftestSide},
    probe_supervisor::run_supervised_pair,
    request::{BandwidthMeasurement, MeasureKind, MeasureRequest, PairSetup},
};

/// The aggregator's API path for probes.
const PATH: &str = "api/gaunt/v1/probe/meeting";

/// The most equal aggregators.
const MAX_AGGREGATORS: usize = 8;

/// The timeout of one request.
const DEADLINE: Duration = Duration::from_secs(5);

/// The largest reply that is read.
const MAX_REPLY: usize = 64 << 10;

/// How long a node that is in use waits before the next check.
const BUSY: Duration = Duration::from_secs(30);

/// The delay after a request without a response, and the most retries in a row.
const SILENT: Duration = Duration::from_secs(5);
const SILENCES: u32 = 12;

/// The file of earlier results, in the state folder.
const PAST: &str = "meetings.json";

/// The options of cross-node probes.
#[derive(Clone, Debug)]
pub struct CrossNodeOptions {
    /// The URL of the aggregator: `http://HOST:9771`; of several equal ones, separated by commas, the first one that answers.
    pub aggregator: String,
    /// The file with the token for probe pairing.
    pub token_file: Option<PathBuf>,
    /// CA certificates in PEM with which an aggregator with TLS is verified; the system's by default.
    pub ca_file: Option<PathBuf>,
    /// This node's name in the aggregator.
    pub node: String,
    /// The name or address at which other nodes reach it.
    pub host: String,
    /// The number of pairings; without it, one after the other until it is stopped.
    pub rounds: Option<u32>,
    /// The longest wait for a peer; without it, until it is stopped.
    pub max_wait: Option<Duration>,
    /// The measurement of a pair.
    pub request: MeasureRequest,
    /// The perftest program, if not the one on the path.
    pub perftest: Option<PathBuf>,
    /// The folder of baselines and the daily budget.
    pub state: PathBuf,
    /// The daily budget.
    pub budget: ProbeBudget,
}

/// The result of one pairing.
#[derive(Clone, Debug, serde::Serialize)]
pub struct CrossNodeResult {
    /// The node at the other end.
    pub peer: SanitizedText,
    /// The local port.
    pub port: SanitizedText,
    /// The tool.
    pub tool: PairTool,
    /// The bandwidth in bytes per second, if it was measured.
    pub bytes_per_second: Option<f64>,
    /// The ratio to the baseline of the two nodes.
    pub ratio: Option<f64>,
    /// One sentence for people.
    pub says: SanitizedText,
}

/// Runs pairings until their number is reached, and reports each. The last exit counts.
pub fn run(options: &CrossNodeOptions, on_result: &mut dyn FnMut(&CrossNodeResult)) -> ProbeExit {
    match CrossNodeProber::new(options).and_then(|prober| prober.run(on_result)) {
        Ok(exit) | Err(exit) => exit,
    }
}

struct CrossNodeProber<'a> {
    options: &'a CrossNodeOptions,
    client: PairingClient,
    tools: Vec<PairTool>,
}

impl<'a> CrossNodeProber<'a> {
    fn new(options: &'a CrossNodeOptions) -> Result<Self, ProbeExit> {
        let nccl = NcclLibrary::open_library(options.request.libraries.nccl.as_deref());
        let mut tools = Vec::new();
        tools.extend(nccl.as_ref().ok().map(|_| PairTool::Nccl));
        tools.extend(
            PerftestSide::find_program(options.perftest.as_ref()).map(|_| PairTool::Perftest),
        );
        if let (true, Err(why)) = (tools.is_empty(), nccl) {
            let why = format!("no tool to measure between nodes: install perftest, or NCCL: {why}");
            return Err(ProbeExit::new(ExitKind::Failed, why));
        }
        Ok(Self { options, client: PairingClient::new(options)?, tools })
    }

    fn run(&self, on_result: &mut dyn FnMut(&CrossNodeResult)) -> Result<ProbeExit, ProbeExit> {
        let mut exit = ProbeExit::new_measured();
        let (mut done, mut waiting_since) = (0, Instant::now());
        while self.options.rounds.is_none_or(|rounds| done < rounds) {
            if let Err(refused) = self.check_ready() {
                if self.options.rounds.is_some() {
                    return Err(refused);
                }
                thread::sleep(BUSY);
                continue;
            }
            let candidate = PairingCandidate {
                node: SanitizedText::new(&self.options.node),
                host: SanitizedText::new(&self.options.host),
                tools: self.tools.clone(),
            };
            // All nodes ask the first aggregator that answers: a pair is made by one of them.
            self.client.current.set(0);
            match self.client.send_with_retry(&PairingRequest::Free(candidate))? {
                PairingReply::Wait { millis } => {
                    if self
                        .options
                        .max_wait
                        .is_some_and(|max_wait| waiting_since.elapsed() > max_wait)
                    {
                        return Err(ProbeExit::new(
                            ExitKind::Refused,
                            "no other node was free within --patience",
                        ));
                    }
                    thread::sleep(Duration::from_millis(millis));
                }
                PairingReply::Meet(assignment) => {
                    let (result, pair_exit) = self.measure_peer(&assignment)?;
                    (done, waiting_since) = (done + 1, Instant::now());
                    exit = pair_exit;
                    on_result(&result);
                }
                PairingReply::Over { why } => return Err(ProbeExit::new(ExitKind::Failed, why)),
                PairingReply::Key { .. } | PairingReply::Noted => return Err(unexpected_reply()),
            }
        }
        Ok(exit)
    }

    /// Whether the GPUs are idle, and the daily budget is not used up.
    fn check_ready(&self) -> Result<(), ProbeExit> {
        let (request, now) = (&self.options.request, crate::auto::unix_seconds());
        ProbeState::load_state(&self.state_path())?.check_due(now, &self.options.budget)?;
        if request.even_if_busy {
            return Ok(());
        }
        GpuIdleCheck::open_nvml(request.libraries.nvml.as_deref(), &request.unless)?.check_idle()
    }

    fn state_path(&self) -> PathBuf {
        self.options.state.join(PAST)
    }

    /// Measures with the assigned peer, and reports the outcome.
    fn measure_peer(
        &self,
        assignment: &PairingAssignment,
    ) -> Result<(CrossNodeResult, ProbeExit), ProbeExit> {
        let (measured, ratio) = match assignment.tool {
            PairTool::Nccl => self.measure_with_nccl(assignment)?,
            PairTool::Perftest => (self.measure_with_perftest(assignment), None),
        };
        let (rate, exit) = match measured {
            Ok(rate) => (Some(rate), ProbeExit::new_measured()),
            Err(exit) => (None, exit),
        };
        let PairingAssignment { meeting, rank, tool, device, port, peer, .. } = assignment.clone();
        let message = exit.message.clone();
        let outcome = PairingOutcome { bytes_per_second: rate, says: message.clone() };
        // The reply is ignored: an aggregator that forgot the pairing has nothing to record.
        self.client.send_with_retry(&PairingRequest::Ended { meeting, rank, outcome })?;
        let port = SanitizedText::new(&format!("{device}:{port}"));
        Ok((
            CrossNodeResult { peer, port, tool, bytes_per_second: rate, ratio, says: message },
            exit,
        ))
    }

    fn measure_with_nccl(
        &self,
        assignment: &PairingAssignment,
    ) -> Result<(Result<f64, ProbeExit>, Option<f64>), ProbeExit> {
        let PairingAssignment { meeting, rank, device, port, peer, .. } = assignment;
        let key = match rank {
            0 => None,
            _ => match self.wait_for_key(*meeting) {
                Ok(key) => Some(key.as_str().to_owned()),
                Err(exit) => return Ok((Err(exit), None)),
            },
        };
        let mut request = self.options.request.clone();
        request.what = MeasureKind::Pair(usize::from(*rank));
        if request.gpus.is_empty() {
            request.gpus.extend(assignment.gpu);
        }
        request.meeting = Some(PairSetup { key, port: Some(format!("{device}:{port}")) });
        let mut result = run_supervised_pair(&request, &mut |key| {
            // The peer polls for the key. If this request is lost, the pairing ends at its deadline.
            let ready = PairingRequest::Ready { meeting: *meeting, key: SanitizedText::new(key) };
            drop(self.client.send_request(&ready));
        });
        for measurement in &mut result.measured {
            measurement.between = SanitizedText::new(&format!("{device}:{port}>{peer}"));
        }
        let path = self.state_path();
        fs::create_dir_all(&self.options.state).map_err(|error| {
            let folder = self.options.state.display();
            ProbeExit::new(
                ExitKind::Failed,
                format!("cannot use {folder}: {error}; set another folder with --state"),
            )
        })?;
        let mut state = ProbeState::load_state(&path)?;
        let exit = state.record_result(crate::auto::unix_seconds(), &result);
        state.save_state(&path)?;
        let ratio = state.last.first().and_then(|(_, ratio)| *ratio);
        let measured = result.measured.first().map(BandwidthMeasurement::effective_bandwidth);
        let is_measured = matches!(exit.kind, ExitKind::Measured | ExitKind::Slow);
        Ok((measured.filter(|_| is_measured).ok_or(exit), ratio))
    }

    fn measure_with_perftest(&self, assignment: &PairingAssignment) -> Result<f64, ProbeExit> {
        let meeting = assignment.meeting;
        let side = PerftestSide {
            program: self.options.perftest.clone(),
            device: assignment.device.to_string(),
            port: assignment.port.to_string(),
            tcp: perftest::PORT,
        };
        let failed = |why: String| ProbeExit::new(ExitKind::Failed, why);
        if assignment.rank == 0 {
            let ready =
                PairingRequest::Ready { meeting, key: SanitizedText::new(&self.options.host) };
            return side.run_server(&mut || drop(self.client.send_request(&ready))).map_err(failed);
        }
        side.run_client(&self.wait_for_key(meeting)?).map_err(failed)
    }

    /// Polls for the key that rank 0 publishes when it is ready.
    fn wait_for_key(&self, meeting: u64) -> Result<SanitizedText, ProbeExit> {
        let end = Instant::now() + Duration::from_millis(self.options.request.limits.setup_millis);
        while Instant::now() < end {
            match self.client.send_with_retry(&PairingRequest::Coming { meeting })? {
                PairingReply::Wait { millis } => thread::sleep(Duration::from_millis(millis)),
                PairingReply::Key { key } => return Ok(key),
                PairingReply::Over { why } => return Err(ProbeExit::new(ExitKind::Failed, why)),
                PairingReply::Meet(_) | PairingReply::Noted => return Err(unexpected_reply()),
            }
        }
        Err(ProbeExit::new(ExitKind::Hung, "the other node was not ready before the deadline"))
    }
}

/// The HTTP client of the aggregator's pairing API.
struct PairingClient {
    client: Client,
    runtime: Runtime,
    /// The aggregators, and the position of the one that answered last.
    urls: Vec<Url>,
    current: Cell<usize>,
    token_file: Option<PathBuf>,
}

/// Why a request failed.
enum PairingSendError {
    /// No response, or a server error: it is retried.
    Unreachable(String),
    /// Rejected: a retry would fail as well.
    Refused(ProbeExit),
}

impl PairingClient {
    fn new(options: &CrossNodeOptions) -> Result<Self, ProbeExit> {
        let failed = |why: String| ProbeExit::new(ExitKind::Failed, why);
        let urls = options.aggregator.split(',').map(parse_pairing_url);
        let urls = urls.collect::<Result<Vec<_>, _>>().map_err(failed)?;
        if urls.len() > MAX_AGGREGATORS {
            let why = format!("{} aggregators; at most {MAX_AGGREGATORS} are allowed", urls.len());
            return Err(failed(why));
        }
        // reqwest needs a crypto provider; one that is installed already is no error.
        drop(ring::default_provider().install_default());
        let client =
            Client::builder().timeout(DEADLINE).redirect(reqwest::redirect::Policy::none());
        let client = match &options.ca_file {
            Some(path) => client.tls_certs_only(load_authorities(path).map_err(failed)?),
            None => client,
        };
        let client = client.no_proxy().build().map_err(|error| {
            let why = plain_error::network(&error);
            failed(format!("cannot create an HTTP client: {why}"))
        })?;
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| {
            let why = plain_error::io(&error);
            failed(format!("cannot start the network runtime: {why}; check `ulimit -n`"))
        })?;
        let (current, token_file) = (Cell::new(0), options.token_file.clone());
        Ok(Self { client, runtime, urls, current, token_file })
    }

    /// Sends a request to the aggregator that answered last, or to the next one that answers, and retries it while none
    /// does.
    fn send_with_retry(&self, message: &PairingRequest) -> Result<PairingReply, ProbeExit> {
        let mut last = String::new();
        for _ in 0..SILENCES {
            for _ in 0..self.urls.len() {
                match self.send_request(message) {
                    Ok(reply) => return Ok(reply),
                    Err(PairingSendError::Refused(exit)) => return Err(exit),
                    Err(PairingSendError::Unreachable(why)) => last = why,
                }
                self.current.set((self.current.get() + 1) % self.urls.len());
            }
            thread::sleep(SILENT);
        }
        Err(ProbeExit::new(ExitKind::Failed, format!("no response from the aggregator: {last}")))
    }

    /// Sends a request to the aggregator that answered last.
    fn send_request(&self, message: &PairingRequest) -> Result<PairingReply, PairingSendError> {
        let url = &self.urls[self.current.get()];
        let refused =
            |why: String| PairingSendError::Refused(ProbeExit::new(ExitKind::Failed, why));
        let mut request = self.client.post(url.clone()).json(message);
        if let Some(path) = &self.token_file {
            let token = fs::read_to_string(path).map_err(|error| {
                refused(format!("cannot read the token in {}: {error}", path.display()))
            })?;
            request = request.bearer_auth(token.trim());
        }
        let unreachable = |error: reqwest::Error| {
            PairingSendError::Unreachable(format!("{url}: {}", plain_error::network(&error)))
        };
        self.runtime.block_on(async {
            let mut response = request.send().await.map_err(unreachable)?;
            let status = response.status();
            let mut body = Vec::new();
            while let Some(chunk) = response.chunk().await.map_err(unreachable)? {
                body.extend_from_slice(&chunk);
                if body.len() > MAX_REPLY {
                    return Err(refused(format!("{url} sent more than {MAX_REPLY} bytes")));
                }
            }
            match status {
                StatusCode::OK => serde_json::from_slice(&body).map_err(|error| {
                    refused(format!(
                        "{url} sent an invalid reply: {}; check that it runs the same version",
                        plain_error::json(&error)
                    ))
                }),
                status if status.is_server_error() => {
                    Err(PairingSendError::Unreachable(format!("{url} returned {status}")))
                }
                status => {
                    let text = String::from_utf8_lossy(&body);
                    let text = text.chars().take(300).collect::<String>();
                    Err(refused(format!(
                        "{url} refused the request with {status}: {text}; check --token-file"
                    )))
                }
            }
        })
    }
}

/// The CA certificates of a file.
fn load_authorities(path: &Path) -> Result<Vec<Certificate>, String> {
    let shown = path.display();
    let pem = fs::read(path).map_err(|error| {
        format!("cannot read the CA in {shown}: {}; check --ca-file", plain_error::io(&error))
    })?;
    let certificates = Certificate::from_pem_bundle(&pem).unwrap_or_default();
    if certificates.is_empty() {
        return Err(format!("{shown} has no certificate in PEM; check --ca-file"));
    }
    Ok(certificates)
}

/// The URL of the pairing API of an aggregator.
fn parse_pairing_url(address: &str) -> Result<Url, String> {
    let address = address.trim();
    let invalid = || {
        format!(
            "{address:?} is not an aggregator's address; use http://HOST:9771, or https://HOST:9771"
        )
    };
    let with_scheme =
        if address.contains("://") { address.to_owned() } else { format!("http://{address}") };
    let mut url = Url::parse(&with_scheme).map_err(|_| invalid())?;
    url.path_segments_mut().map_err(|()| invalid())?.pop_if_empty().extend(PATH.split('/'));
    Ok(url)
}

fn unexpected_reply() -> ProbeExit {
    ProbeExit::new(
        ExitKind::Failed,
        "unexpected reply from the aggregator; check that it runs the same version",
    )
}
