//! Command line definition: options, commands and their help.

use std::{path::PathBuf, time::Duration};

use clap::{ArgGroup, Args, Parser, Subcommand};

mod ack_arguments;
mod bundle_arguments;
mod byte_size;
mod certs_arguments;
mod command_line;
mod installation;
mod judge_arguments;
mod output_format;
mod prometheus_arguments;
mod target_sources;
mod time_span;

pub use ack_arguments::AckArguments;
pub use bundle_arguments::BundleArguments;
pub use byte_size::{SizeError, parse_size};
pub use certs_arguments::CertsArguments;
pub use command_line::{build_command, parse};
pub use installation::{CheckArguments, CompletionArguments, ManArguments};
pub use judge_arguments::JudgeArguments;
pub use output_format::{
    ExplainFormatArgument, FormatArgument, ReportFormatArgument, SnapshotFormatArgument,
};
pub use prometheus_arguments::{PastSpanArguments, PrometheusArguments};
pub use target_sources::sources_from_flags;
pub use time_span::{SpanError, parse_age, parse_span};

/// Filter syntax, for the help of `snapshot`.
const FILTERS: &str = "\
Filters, for --filter and after ? in a question:
  node=gpu-0417 and state=waiting,hung       and, or, not, ( ); a list matches any of its values
  power>300W and memory_used>=60GB           = != < <= > >=, units: W GB GiB % GB/s C GHz s m h k M
  model~h100 and node!~gpu-0[1-3]*           ~ matches a glob (* ? [a-z]), or a substring
  has job and not has sm_active              has: the value exists; a missing value matches no comparison
  ... sort power desc, node limit 20 offset 40 columns node,gpu,power
  Fields of GPUs: node gpu state finding job job_name user rank namespace pod leaf rail rack domain
  uuid model serial pci_bus_id recent_power age, and every metric of `gaunt metrics`, in short or in full.";

/// Exit codes and the choice of the aggregator, for the help.
const EXIT_CODES: &str = "\
Exit codes:
  0  done; with snapshot --check: no finding worse than info is open and unacknowledged
  1  snapshot --check: the worst open, unacknowledged finding is a warning; doctor: a check misses something;
     check-config: a file has an error
  2  only snapshot --check: the worst open, unacknowledged finding is critical
  3  wrong command line, cannot start, aggregator unreachable, or partial data: a target or a target source could not
     be read; takes precedence over 1 and 2
gaunt-node and gaunt-sim use 0 and 3; gaunt-probe --help lists its own.

Data source: --aggregator, else --prometheus or the targets of the flags, else $GAUNT_AGGREGATOR, else console.aggregator
in the settings, else the targets of the settings, else prometheus.url in the settings, else the aggregator at
127.0.0.1:9771 if it answers, else this host.
explain and ack need an aggregator; record does not use the last two.
Options may precede or follow the command.";

/// Text after the help of `snapshot`.
fn snapshot_help() -> String {
    format!("{FILTERS}\n\n{EXIT_CODES}")
}

/// Shows which GPUs of a cluster wait or are slow, why, and which part of the network is at fault.
///
/// Without a command, opens the console for an aggregator, the targets of --targets, or this host. If the output is
/// not a terminal, prints one snapshot instead.
#[derive(Debug, Parser)]
#[command(name = "gaunt", version = gaunt_schema::VERSION, about, long_about, args_conflicts_with_subcommands = true)]
#[command(after_help = EXIT_CODES)]
pub struct GauntArguments {
    /// The command; by default the console.
    #[command(subcommand)]
    pub command: Option<GauntCommand>,
    /// Data source of the console.
    #[command(flatten)]
    pub view: ViewArguments,
    /// Restricted mode: the console writes no file but its preferences, runs no program, opens no other aggregator, and
    /// takes no token from GAUNT_TOKEN.
    #[arg(long)]
    pub restricted: bool,
    /// Log filter, such as `debug` or `gaunt_scrape=trace`; overrides RUST_LOG. Logs go to stderr; while the console is
    /// open, only if stderr is not a terminal.
    #[arg(long, global = true, value_name = "FILTER")]
    pub log: Option<String>,
}

/// Data source of the console and `snapshot`; by default this host.
#[derive(Args, Clone, Debug, Default)]
pub struct ViewArguments {
    /// Aggregator to query, such as http://10.0.0.5:9771; overrides $GAUNT_AGGREGATOR. Of several equal ones, separated by
    /// commas, the next one is used when one does not answer. Several clusters: NAME=URL for each, repeated.
    #[arg(long, value_name = "URL", conflicts_with_all = ["targets", "targets_file", "file_sd", "http_sd", "dns_sd", "config", "prometheus"])]
    pub aggregator: Vec<String>,
    /// File with the aggregator's token, where reading or acknowledging needs one; default: the token in GAUNT_TOKEN.
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Targets to scrape directly.
    #[command(flatten)]
    pub scrape: ScrapeArguments,
    /// How this host is sampled if no other source is set.
    #[command(flatten)]
    pub this_box: ThisBoxArguments,
}

/// Targets and scrape interval.
#[derive(Args, Clone, Debug, Default)]
pub struct ScrapeArguments {
    /// Targets as a host list: `gpu[001-064]:9770`, `rack1=10.0.0.7:9100`. Default port: 9770.
    #[arg(long, value_name = "LIST", conflicts_with = "prometheus")]
    pub targets: Vec<String>,
    /// File with one host list per line; `#` starts a comment.
    #[arg(long, value_name = "FILE", conflicts_with = "prometheus")]
    pub targets_file: Vec<PathBuf>,
    /// Target files in Prometheus's file_sd format, JSON or YAML; the name may contain `*`.
    #[arg(long, value_name = "FILES", conflicts_with = "prometheus")]
    pub file_sd: Vec<PathBuf>,
    /// URL of targets in Prometheus's http_sd format, such as http://10.0.0.5:8080/targets.
    #[arg(long, value_name = "URL", conflicts_with = "prometheus")]
    pub http_sd: Vec<String>,
    /// DNS name of targets: SRV records; `A NAME` or `AAAA NAME` for address records.
    #[arg(long, value_name = "NAME", conflicts_with = "prometheus")]
    pub dns_sd: Vec<String>,
    /// A Prometheus that is read instead.
    #[command(flatten)]
    pub server: PrometheusArguments,
    /// CA certificates in PEM with which the aggregator, or the targets of the flags, are verified instead of the
    /// system's; default for an aggregator: $GAUNT_CA_FILE.
    #[arg(long, value_name = "FILE")]
    pub ca_file: Option<PathBuf>,
    /// Settings file; config/gaunt.toml is a complete sample. Flags override it.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Scrape interval of a target, such as 500ms or 10s; default: gather.period in the settings, else 1s.
    #[arg(long, value_name = "DURATION", value_parser = parse_span)]
    pub period: Option<Duration>,
}

/// How this host is sampled.
#[derive(Args, Clone, Debug)]
pub struct ThisBoxArguments {
    /// NVML library to load on this host; default: libnvidia-ml.so.1.
    #[arg(long, value_name = "FILE")]
    pub nvml_library: Option<PathBuf>,
    /// Path of sysfs.
    #[arg(long, value_name = "FOLDER", default_value = "/sys", hide = true)]
    pub sys_root: PathBuf,
    /// Path of procfs.
    #[arg(long, value_name = "FOLDER", default_value = "/proc", hide = true)]
    pub proc_root: PathBuf,
}

impl Default for ThisBoxArguments {
    fn default() -> Self {
        Self { nvml_library: None, sys_root: "/sys".into(), proc_root: "/proc".into() }
    }
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum GauntCommand {
    /// Show a simulated fleet with faults; needs no GPU, target or configuration.
    Demo(DemoArguments),
    /// Run the aggregator: scrape targets, detect faults, serve the HTTP API and /metrics.
    Serve(ServeArguments),
    /// Print one snapshot of the fleet and exit.
    #[command(after_help = snapshot_help())]
    Snapshot(SnapshotArguments),
    /// Check which telemetry is missing, and print the next step for each: unjoined exporters, unknown topology, missing
    /// metrics, slow renewal intervals.
    Doctor(DoctorArguments),
    /// Write one archive with the state of gaunt, without secrets, for whoever helps.
    SupportBundle(BundleArguments),
    /// Report GPU-hours and energy by state, job, user and GPU model, with lost GPU-hours and cost.
    Report(ReportArguments),
    /// Run the detectors over recorded pages in virtual time; print every finding with its start and end.
    Judge(JudgeArguments),
    /// Explain an open or closed finding with all its evidence.
    Explain(ExplainArguments),
    /// Acknowledge a finding at an aggregator, with a note, or withdraw the acknowledgement.
    Ack(AckArguments),
    /// Record the pages of targets, or of an aggregator's targets, to a folder until SIGINT or SIGTERM. Each segment
    /// starts with the open findings, baselines and history of that time.
    Record(RecordArguments),
    /// Replay a recording in the console; without a terminal, print a snapshot of its end.
    Replay(ReplayArguments),
    /// Create certificates for TLS between gaunt's programs, signed by a small CA in the same folder. For sites without a
    /// CA of their own.
    Certs(CertsArguments),
    /// List every metric that gaunt knows, with kind, unit and meaning.
    Metrics(MetricsArguments),
    /// Check settings, rules and topology without starting anything; print every error with its line and next step.
    CheckConfig(CheckArguments),
    /// Print the completions of a shell.
    Completions(CompletionArguments),
    /// Print the manual page of gaunt, or write the pages of gaunt and all its commands to a folder.
    Man(ManArguments),
}

/// Options of `metrics`.
#[derive(Args, Clone, Copy, Debug)]
pub struct MetricsArguments {
    /// List the names on other exporters' pages instead: dialect, name, unit there, metric of gaunt and its unit.
    #[arg(long)]
    pub dialects: bool,
}

/// Options of `record`.
#[derive(Args, Clone, Debug)]
pub struct RecordArguments {
    /// Targets to scrape.
    #[command(flatten)]
    pub scrape: ScrapeArguments,
    /// Record the targets of this aggregator, such as http://10.0.0.5:9771, without scraping them again.
    #[arg(long, value_name = "URL", conflicts_with_all = ["targets", "targets_file", "file_sd", "http_sd", "dns_sd", "config", "period", "prometheus"])]
    pub aggregator: Option<String>,
    /// The span of the past of a Prometheus that is recorded; without one, what it scrapes from now on.
    #[command(flatten)]
    pub past: PastSpanArguments,
    /// Folder of the recording; an existing recording is continued.
    #[arg(long, value_name = "FOLDER")]
    pub to: PathBuf,
    /// Delete the oldest segments above this total size, such as 1GB or 512MiB; at least 1MiB.
    #[arg(long, value_name = "SIZE", default_value = "4GiB", value_parser = parse_recording_size)]
    pub max_bytes: u64,
    /// Delete segments older than this.
    #[arg(long, value_name = "DURATION", default_value = "24h", value_parser = parse_age)]
    pub max_age: Duration,
    /// Recording time; default: until stopped.
    #[arg(long, value_name = "DURATION", value_parser = parse_age)]
    pub duration: Option<Duration>,
}

/// The smallest size of a recording: a few blocks of the largest kind.
const SMALLEST_RECORDING: u64 = 1 << 20;

/// Maximum of `--limit`, as in a filter.
const MOST_ROWS: u32 = 131_072;

/// Parses the size of a recording. The default holds a day of 8 nodes at 1 s, or of 60 at 10 s.
fn parse_recording_size(text: &str) -> Result<u64, String> {
    let bytes = parse_size(text).map_err(|error| error.to_string())?;
    if bytes < SMALLEST_RECORDING {
        Err(format!("{text} is too small; the minimum is 1MiB"))
    } else {
        Ok(bytes)
    }
}

/// Options of `replay`.
#[derive(Args, Clone, Debug)]
#[command(group = ArgGroup::new("replayed").args(["from", "prometheus"]).required(true))]
pub struct ReplayArguments {
    /// Folder of the recording.
    #[arg(long, value_name = "FOLDER")]
    pub from: Option<PathBuf>,
    /// A Prometheus whose past is replayed; it is kept in the folder for temporary files meanwhile.
    #[command(flatten)]
    pub server: PrometheusArguments,
    /// The span that is replayed.
    #[command(flatten)]
    pub past: PastSpanArguments,
    /// Replay speed, a factor from 0.01 to 1000.
    #[arg(long, default_value_t = 1.0, value_parser = parse_speed)]
    pub speed: f64,
    /// Start this long after the beginning, at most 60m; the 15 minutes before are replayed first, without display.
    #[arg(long, value_name = "DURATION", value_parser = parse_span)]
    pub seek: Option<Duration>,
    /// Settings file with the detector limits; config/gaunt.toml is a complete sample.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Restricted mode: the console writes no file but its preferences and runs no program.
    #[arg(long)]
    pub restricted: bool,
}

/// Parses a replay speed: a factor from 0.01 to 1000.
fn parse_speed(text: &str) -> Result<f64, String> {
    let speed = text.parse().ok().filter(|speed| (0.01..=1_000.0).contains(speed));
    speed.ok_or_else(|| "write a number from 0.01 to 1000, such as 10".to_owned())
}

/// The scenarios of the demo, for its help.
fn scenario_help() -> String {
    let lines = gaunt_sim::scenario_run::list_names()
        .map(|(name, description)| format!("  {name:<15} {description}"));
    format!("Scenarios:\n{}", lines.collect::<Vec<_>>().join("\n"))
}

/// Options of `demo`.
#[derive(Args, Clone, Debug)]
#[command(after_help = scenario_help())]
pub struct DemoArguments {
    /// Number of nodes, 1 to 1250, each with 8 GPUs and 8 ports; default: 32. F1 to F19 and H1 to H16 have fleets of
    /// their own.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1250))]
    pub nodes: Option<u16>,
    /// Scenario to run, listed below: F1 to F19 are faults, H1 to H16 harmless look-alikes.
    #[arg(long, default_value = "tour", value_name = "NAME")]
    pub scenario: String,
    /// Random seed.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Print a snapshot after this much simulated time, without waiting, instead of opening the console.
    #[arg(long, value_name = "DURATION", value_parser = parse_span)]
    pub snapshot_after: Option<Duration>,
    /// Restricted mode: the console writes no file but its preferences and runs no program.
    #[arg(long)]
    pub restricted: bool,
    /// Walk through the screens in two minutes; any key ends it.
    #[arg(long, conflicts_with_all = ["snapshot_after", "scenario"])]
    pub tour: bool,
}

/// Options of `serve`.
#[derive(Args, Clone, Debug)]
pub struct ServeArguments {
    /// Targets to scrape.
    #[command(flatten)]
    pub scrape: ScrapeArguments,
    /// Listen address; default: serve.listen in the settings, else 127.0.0.1:9771.
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = parse_listen_address)]
    pub listen: Option<std::net::SocketAddr>,
    /// Accepted name in the Host header, besides addresses, localhost and the host name. Other names are rejected to
    /// prevent DNS rebinding by web pages.
    #[arg(long = "name", value_name = "HOST")]
    pub names: Vec<String>,
    /// Folder for findings, acknowledgements and counters that persist over restarts; default: serve.state_folder in
    /// the settings, else nothing persists.
    #[arg(long, value_name = "FOLDER")]
    pub state: Option<PathBuf>,
    /// File with a token of at least 16 characters; clients with it may acknowledge findings and pair probes. Without
    /// it, the API is read-only.
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// File with a token of at least 16 characters with which a Prometheus or vmagent may send what it scrapes by remote
    /// write to /api/v1/write; instead of targets. Set --period to its scrape interval; default: 15s.
    #[arg(long, value_name = "FILE")]
    pub receive_token_file: Option<PathBuf>,
    /// Web configuration with TLS and users, in the format of exporter-toolkit; overrides serve.web_config.
    #[arg(long, value_name = "FILE")]
    pub web_config: Option<PathBuf>,
    /// Store that receives remote write, such as http://10.0.0.5:9090/api/v1/write, for the verdicts of each 15 s; default:
    /// store.url in the settings, else none.
    #[arg(long, value_name = "URL")]
    pub store: Option<String>,
}

/// Options of `explain`.
#[derive(Args, Clone, Debug)]
#[command(group = ArgGroup::new("judged").args(["from", "prometheus"]).multiple(true))]
pub struct ExplainArguments {
    /// Finding id, or a unique part of it; default: the worst open finding, else the latest closed one.
    pub finding: Option<String>,
    /// Aggregator to query; overrides $GAUNT_AGGREGATOR. Several clusters: NAME=URL for each, repeated.
    #[arg(long, value_name = "URL", conflicts_with_all = ["from", "topology", "jobs", "period", "prometheus"])]
    pub aggregator: Vec<String>,
    /// CA certificates in PEM with which it is verified; default: $GAUNT_CA_FILE, else the system's.
    #[arg(long, value_name = "FILE")]
    pub ca_file: Option<PathBuf>,
    /// A Prometheus with the finding in its past; the detectors run over it first.
    #[command(flatten)]
    pub server: PrometheusArguments,
    /// The span of it.
    #[command(flatten)]
    pub past: PastSpanArguments,
    /// Explain a finding of this recording; the detectors run over it first, as in `gaunt judge`.
    #[arg(long, value_name = "FOLDER", conflicts_with = "prometheus")]
    pub from: Option<PathBuf>,
    /// Topology of the recorded cluster, as for `gaunt judge`.
    #[arg(long, value_name = "FILE", requires = "judged")]
    pub topology: Vec<PathBuf>,
    /// Jobs of the recorded cluster: output of `squeue --json`.
    #[arg(long, value_name = "FILE", requires = "judged")]
    pub jobs: Vec<PathBuf>,
    /// Scrape interval of a target; default: the interval of the recording or of the file names.
    #[arg(long, value_name = "DURATION", value_parser = parse_span, requires = "judged")]
    pub period: Option<Duration>,
    /// Instead of a finding, explain the dumps of PyTorch's flight recorder in this folder: which rank the others wait
    /// for. Files end in the rank, such as nccl_trace_rank_0; each host may have a subfolder.
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["finding", "from"])]
    pub flight_recorder: Option<PathBuf>,
    /// Job of the dumps, to find the GPUs of its ranks at the aggregator.
    #[arg(long, value_name = "JOB", requires = "flight_recorder")]
    pub job: Option<String>,
    /// Settings file with the aggregator address, or with the detector limits for --from.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Output format; markdown for a ticket, html for one page that needs nothing else.
    #[arg(long, value_enum, default_value_t = ExplainFormatArgument::Text)]
    pub format: ExplainFormatArgument,
}

/// Options of `snapshot`.
#[derive(Args, Clone, Debug)]
pub struct SnapshotArguments {
    /// Data source.
    #[command(flatten)]
    pub view: ViewArguments,
    /// Print the answer to one question instead of the whole snapshot: overview, nodes, nodes/NAME, gpus, jobs,
    /// jobs/NUMBER, ports, fabric, findings, findings/ID, gpu_time, targets, probe, usage, alerts, coverage,
    /// 'history?metric=power', or table/ with gpus, nodes, jobs, ports, processes, findings, closed or targets.
    #[arg(long, value_name = "QUESTION")]
    pub ask: Option<String>,
    /// Filter of the rows, then order, limit and columns:
    /// 'job=8812 and sm_active<30% sort power desc limit 20 columns node,gpu,power'.
    #[arg(long, value_name = "FILTER", requires = "ask")]
    pub filter: Option<String>,
    /// Maximum number of rows; default: all.
    #[arg(long, value_name = "ROWS", requires = "ask",
        value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_ROWS)))]
    pub limit: Option<u32>,
    /// Output format.
    #[arg(long, value_enum, default_value_t = SnapshotFormatArgument::Text)]
    pub format: SnapshotFormatArgument,
    /// Exit with 1 if the worst open, unacknowledged finding is a warning, with 2 if it is critical.
    #[arg(long)]
    pub check: bool,
    /// Sampling time before the snapshot, at least three periods (ignored with an aggregator); states need several
    /// samples.
    #[arg(long, value_name = "DURATION", default_value = "8s", value_parser = parse_span)]
    pub watch: Duration,
}

/// Options of `doctor`.
#[derive(Args, Clone, Debug)]
pub struct DoctorArguments {
    /// Data source.
    #[command(flatten)]
    pub view: ViewArguments,
    /// Output format.
    #[arg(long, value_enum, default_value_t = FormatArgument::Text)]
    pub format: FormatArgument,
    /// Sampling time before the checks, at least three periods (ignored with an aggregator).
    #[arg(long, value_name = "DURATION", default_value = "8s", value_parser = parse_span)]
    pub watch: Duration,
}

/// Options of `report`.
#[derive(Args, Clone, Debug)]
pub struct ReportArguments {
    /// Data source.
    #[command(flatten)]
    pub view: ViewArguments,
    /// Time span up to now; an aggregator keeps the last hour, and its store longer.
    #[arg(long, value_name = "DURATION", default_value = "15m", value_parser = parse_age)]
    pub last: Duration,
    /// Report on a whole recording of `gaunt record` or of an aggregator instead.
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["aggregator", "targets", "targets_file", "file_sd", "http_sd", "dns_sd", "last", "prometheus"])]
    pub from: Option<PathBuf>,
    /// Topology of the recorded cluster, as for `gaunt judge`.
    #[arg(long, value_name = "FILE", requires = "from", conflicts_with_all = ["aggregator", "targets", "targets_file", "file_sd", "http_sd", "dns_sd", "prometheus"])]
    pub topology: Vec<PathBuf>,
    /// Jobs of the recorded cluster: output of `squeue --json`.
    #[arg(long, value_name = "FILE", requires = "from", conflicts_with_all = ["aggregator", "targets", "targets_file", "file_sd", "http_sd", "dns_sd", "prometheus"])]
    pub jobs: Vec<PathBuf>,
    /// Instead, one finding as a page of HTML that needs nothing else, with plots of its evidence: its id, or a unique
    /// part of it; open or closed, of an aggregator or of the end of a recording.
    #[arg(long, value_name = "ID", conflicts_with_all = ["targets", "targets_file", "file_sd", "http_sd", "dns_sd", "prometheus", "last", "price", "currency", "co2", "format", "watch"])]
    pub incident: Option<String>,
    /// Price of one GPU-hour of a GPU model, such as 'NVIDIA H100*=2.50', or 2.50 for all other models; overrides
    /// report.prices in the settings, and the aggregator's cluster.price_per_gpu_hour.
    #[arg(long, value_name = "[MODEL=]AMOUNT", value_parser = parse_price)]
    pub price: Vec<(Option<String>, f64)>,
    /// Currency of the prices; default: that of the price in the settings or of the aggregator, else USD.
    #[arg(long, value_name = "WORD")]
    pub currency: Option<String>,
    /// Kilograms of CO2 per kilowatt-hour; default: report.co2_kg_per_kwh in the settings.
    #[arg(long, value_name = "KG")]
    pub co2: Option<f64>,
    /// Output format.
    #[arg(long, value_enum, default_value_t = ReportFormatArgument::Text)]
    pub format: ReportFormatArgument,
    /// Sampling time before the report, at least three periods (ignored with an aggregator).
    #[arg(long, value_name = "DURATION", default_value = "8s", value_parser = parse_span)]
    pub watch: Duration,
}

/// Parses a price, with the GPU model that it applies to.
fn parse_price(text: &str) -> Result<(Option<String>, f64), String> {
    let (model, amount) = match text.rsplit_once('=') {
        Some((model, amount)) => (Some(model.to_owned()), amount),
        None => (None, text),
    };
    let amount = amount.parse().ok().filter(|amount: &f64| amount.is_finite() && *amount >= 0.0);
    let amount = amount.ok_or_else(|| "write an amount such as 2.50, or MODEL=2.50".to_owned())?;
    Ok((model, amount))
}

/// Parses a listen address; the error shows the format.
fn parse_listen_address(text: &str) -> Result<std::net::SocketAddr, String> {
    text.parse().map_err(|_| "write an IP address and a port, such as 0.0.0.0:9771".to_owned())
}
