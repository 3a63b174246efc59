//! The command line: what can be typed, and nothing else.

use std::{path::PathBuf, time::Duration};

use clap::{Args, Parser, Subcommand, ValueEnum};

mod byte_size;
mod command_line;
mod time_span;

pub use byte_size::{SizeError, parse_size};
pub use command_line::parse;
pub use time_span::{SpanError, parse_age, parse_span};

/// How filters are written, for those who ask.
const FILTERS: &str = "\
Filters, for --filter and after ? in a question:
  node=gpu-0417 and state=waiting,hung       and, or, not, ( ); a list is any of its values
  power>300W and memory_used>=60GB           = != < <= > >=, units: W GB GiB % GB/s C GHz s m h k M
  model~h100 and node!~gpu-0[1-3]*           ~ is a pattern with * ? [a-z], or a part of the text
  has job and not has sm_active              whether there is one: what is absent matches nothing else
  ... sort power desc, node limit 20 offset 40 columns node,gpu,power
  Fields of GPUs: node gpu state finding job job_name user rank namespace pod leaf rail rack domain
  uuid model serial pci_bus_id age, and every metric of `gaunt metrics`, in short or in full.";

/// How gaunt ends, for those who script it.
const EXIT_CODES: &str = "\
Exit codes:
  0  done; with snapshot --check: no finding worse than info is open and unacknowledged
  1  only snapshot --check: the worst open, unacknowledged finding is a warning
  2  only snapshot --check: the worst open, unacknowledged finding is critical
  3  wrong command line, cannot start, aggregator unreachable, or partial data: a target or a source of targets that
     could not be read; takes precedence over 1 and 2
gaunt-node and gaunt-sim use 0 and 3; gaunt-probe --help lists its own.

Which aggregator is asked: --aggregator, else the targets of the flags, else $GAUNT_AGGREGATOR, else console.aggregator in
the settings, else the targets of the settings, else the aggregator at 127.0.0.1:9771 if it answers, else this box.
Options may stand before or after the command.";

/// What the help of `snapshot` ends with.
fn snapshot_help() -> String {
    format!("{FILTERS}\n\n{EXIT_CODES}")
}

/// gaunt shows which GPUs of a cluster are starving, why, and which part of the network is to blame.
///
/// Without a command it opens the console: on this box, on the targets of --targets, or on an aggregator. When the
/// output is not a terminal it prints one snapshot instead.
#[derive(Debug, Parser)]
#[command(name = "gaunt", version, about, long_about, args_conflicts_with_subcommands = true)]
#[command(after_help = EXIT_CODES)]
pub struct GauntArguments {
    /// What to do; the console if nothing is said.
    #[command(subcommand)]
    pub command: Option<GauntCommand>,
    /// What the console shows.
    #[command(flatten)]
    pub view: ViewArguments,
    /// What to log, such as `debug` or `gaunt::gather=trace`; RUST_LOG says the same. Logs go to stderr, and
    /// nowhere while the console covers it.
    #[arg(long, global = true, value_name = "FILTER")]
    pub log: Option<String>,
}

/// Where the console and `snapshot` read from; this box if nothing is said.
#[derive(Args, Clone, Debug, Default)]
pub struct ViewArguments {
    /// Read an aggregator, such as http://10.0.0.5:9771; GAUNT_AGGREGATOR names one too.
    #[arg(long, value_name = "URL", conflicts_with_all = ["targets", "targets_file", "file_sd", "http_sd", "dns_sd", "config"])]
    pub aggregator: Option<String>,
    /// A file with the aggregator's token, for who acknowledges findings in the console; GAUNT_TOKEN holds one too.
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// What to scrape directly.
    #[command(flatten)]
    pub scrape: ScrapeArguments,
    /// How this box is read when nothing else is named.
    #[command(flatten)]
    pub this_box: ThisBoxArguments,
}

/// What is scraped, and how often.
#[derive(Args, Clone, Debug, Default)]
pub struct ScrapeArguments {
    /// Targets as a host list: `gpu[001-064]:9770`, `rack1=10.0.0.7:9100`. The port is 9770 unless given.
    #[arg(long, value_name = "LIST")]
    pub targets: Vec<String>,
    /// A file with a host list on each line; `#` starts a comment.
    #[arg(long, value_name = "FILE")]
    pub targets_file: Vec<PathBuf>,
    /// Files of targets in Prometheus's format, JSON or YAML; `*` in the name stands for several.
    #[arg(long, value_name = "FILES")]
    pub file_sd: Vec<PathBuf>,
    /// A server that names targets in Prometheus's format, such as http://10.0.0.5:8080/targets.
    #[arg(long, value_name = "URL")]
    pub http_sd: Vec<String>,
    /// A name in DNS that stands for targets: its SRV records, or `A NAME` for its addresses.
    #[arg(long, value_name = "NAME")]
    pub dns_sd: Vec<String>,
    /// Settings; config/gaunt.toml is a complete sample. Flags win over it.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The time between two scrapes of a target, such as 500ms or 10s.
    #[arg(long, value_name = "SPAN", value_parser = parse_span)]
    pub period: Option<Duration>,
}

/// How this box is read.
#[derive(Args, Clone, Debug)]
pub struct ThisBoxArguments {
    /// NVIDIA's management library.
    #[arg(long, value_name = "FILE")]
    pub nvml_library: Option<PathBuf>,
    /// Where sysfs is.
    #[arg(long, value_name = "FOLDER", default_value = "/sys", hide = true)]
    pub sys_root: PathBuf,
    /// Where procfs is.
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
    /// Show a simulated fleet with faults; needs nothing.
    Demo(DemoArguments),
    /// Run the aggregator: scrape targets, judge, answer over HTTP.
    Serve(ServeArguments),
    /// Print the state of the fleet once.
    #[command(after_help = snapshot_help())]
    Snapshot(SnapshotArguments),
    /// Print where GPU time and energy went: by state, job, user and board, with what was lost and what it cost.
    Report(ReportArguments),
    /// Judge recorded pages in virtual time and print every finding with its opening and its close.
    Judge(JudgeArguments),
    /// Explain a finding: the whole chain of evidence, of an open one or of one that closed.
    Explain(ExplainArguments),
    /// Take a finding on at an aggregator, with a note, or give it back.
    Ack(AckArguments),
    /// Record what targets say, or those of an aggregator, into a folder until SIGINT or SIGTERM. Each segment takes along the
    /// open findings, usual values and history of its start.
    Record(RecordArguments),
    /// Show a recording in the console as it happened; without a terminal print a snapshot of its end.
    Replay(ReplayArguments),
    /// Print every metric that gaunt knows.
    Metrics,
}

/// What is recorded, and where.
#[derive(Args, Clone, Debug)]
pub struct RecordArguments {
    /// What is scraped.
    #[command(flatten)]
    pub scrape: ScrapeArguments,
    /// Record what the targets of this aggregator say, such as http://10.0.0.5:9771; nothing is scraped twice.
    #[arg(long, value_name = "URL", conflicts_with_all = ["targets", "targets_file", "file_sd", "http_sd", "dns_sd", "config", "period"])]
    pub aggregator: Option<String>,
    /// The folder of the recording; one that is there already goes on.
    #[arg(long, value_name = "FOLDER")]
    pub to: PathBuf,
    /// The size of the whole recording beyond which the oldest goes, such as 1GB or 512MiB; at least 1MiB.
    #[arg(long, value_name = "SIZE", default_value = "4GiB", value_parser = parse_recording_size)]
    pub max_bytes: u64,
    /// The age beyond which it goes.
    #[arg(long, value_name = "SPAN", default_value = "24h", value_parser = parse_age)]
    pub max_age: Duration,
    /// How long to record; until it is stopped unless this is said.
    #[arg(long, value_name = "SPAN", value_parser = parse_age)]
    pub duration: Option<Duration>,
}

/// The smallest size of a recording: a few blocks of the largest kind.
const SMALLEST_RECORDING: u64 = 1 << 20;

/// The most rows that a limit may name, as a filter has it.
const MOST_ROWS: u32 = 131_072;

/// A size that a recording may have. The usual one is a day of 8 nodes at 1 s, or of 60 at 10 s.
fn parse_recording_size(text: &str) -> Result<u64, String> {
    let bytes = parse_size(text).map_err(|error| error.to_string())?;
    if bytes < SMALLEST_RECORDING {
        Err(format!("{text} is too small; at least 1MiB is needed"))
    } else {
        Ok(bytes)
    }
}

/// A recording that is played back.
#[derive(Args, Clone, Debug)]
pub struct ReplayArguments {
    /// The folder of the recording.
    #[arg(long, value_name = "FOLDER")]
    pub from: PathBuf,
    /// How many times as fast as it happened.
    #[arg(long, default_value_t = 1.0, value_parser = parse_speed)]
    pub speed: f64,
    /// Start this long after the beginning; the 15 minutes before it are lived through first.
    #[arg(long, value_name = "SPAN", value_parser = parse_span)]
    pub seek: Option<Duration>,
    /// Settings with the judge's limits; config/gaunt.toml is a complete sample.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// A speed that a replay can have.
fn parse_speed(text: &str) -> Result<f64, String> {
    let speed = text.parse().ok().filter(|speed| (0.01..=1_000.0).contains(speed));
    speed.ok_or_else(|| "write a number from 0.01 to 1000, such as 10".to_owned())
}

/// The stories that the demo can tell, for its help.
fn scenario_help() -> String {
    let lines =
        gaunt_sim::scenario_run::list_names().map(|(name, told)| format!("  {name:<15} {told}"));
    format!("Scenarios:\n{}", lines.collect::<Vec<_>>().join("\n"))
}

/// A simulated fleet.
#[derive(Args, Clone, Debug)]
#[command(after_help = scenario_help())]
pub struct DemoArguments {
    /// How many nodes, each with 8 GPUs and 8 ports; 32 unless said. The cases F1 to H16 have fleets of their own.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1250))]
    pub nodes: Option<u16>,
    /// Which story is told: one of the scenarios below. F1 to F18 are faults, H1 to H16 only look like some.
    #[arg(long, default_value = "demo", value_name = "NAME")]
    pub scenario: String,
    /// Another seed is another fleet with the same story.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Print a snapshot of the fleet after so long, without waiting for it, instead of showing it.
    #[arg(long, value_name = "SPAN", value_parser = parse_span)]
    pub snapshot_after: Option<Duration>,
}

/// The aggregator.
#[derive(Args, Clone, Debug)]
pub struct ServeArguments {
    /// What is scraped.
    #[command(flatten)]
    pub scrape: ScrapeArguments,
    /// Where to answer; 127.0.0.1:9771 unless the settings say otherwise.
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = parse_listen_address)]
    pub listen: Option<std::net::SocketAddr>,
    /// A name under which it is asked, beside its addresses, localhost and the name of this machine. A request for any
    /// other name is turned away: a web page could have made it.
    #[arg(long = "name", value_name = "HOST")]
    pub names: Vec<String>,
    /// A folder in which findings, acknowledgements and counters outlive a restart.
    #[arg(long, value_name = "FOLDER")]
    pub state: Option<PathBuf>,
    /// A file with a token of at least 16 characters: who has it may acknowledge findings. Without one nobody may.
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
}

/// A finding to be explained.
#[derive(Args, Clone, Debug)]
pub struct ExplainArguments {
    /// Its id, or a part of it that no other one has; the worst open one unless it is said.
    pub finding: Option<String>,
    /// The aggregator that knows it; GAUNT_AGGREGATOR names one too.
    #[arg(long, value_name = "URL", conflicts_with_all = ["from", "topology", "jobs", "period"])]
    pub aggregator: Option<String>,
    /// A recording that is judged first, as by `gaunt judge`.
    #[arg(long, value_name = "FOLDER")]
    pub from: Option<PathBuf>,
    /// How the cluster of the recording is wired.
    #[arg(long, value_name = "FILE", requires = "from")]
    pub topology: Vec<PathBuf>,
    /// Jobs that ran in the recording, as `squeue --json` writes them.
    #[arg(long, value_name = "FILE", requires = "from")]
    pub jobs: Vec<PathBuf>,
    /// The time between two pages of a target in the recording.
    #[arg(long, value_name = "SPAN", value_parser = parse_span, requires = "from")]
    pub period: Option<Duration>,
    /// Settings: the aggregator, or the judge's limits for the recording.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// For people or for programs.
    #[arg(long, value_enum, default_value_t = FormatArgument::Text)]
    pub format: FormatArgument,
}

/// An acknowledgement.
#[derive(Args, Clone, Debug)]
pub struct AckArguments {
    /// The finding's id, or a part of it that no other open one has.
    pub finding: String,
    /// What is said about it: what is done, by when, where to read more.
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub note: String,
    /// Give the finding back.
    #[arg(long, conflicts_with = "note")]
    pub withdraw: bool,
    /// Take the present level as usual for all that the finding names, and close it: the job has changed.
    #[arg(long, conflicts_with = "withdraw")]
    pub accept: bool,
    /// Who does it; $USER unless it is said.
    #[arg(long, value_name = "NAME")]
    pub by: Option<String>,
    /// The aggregator; GAUNT_AGGREGATOR names one too.
    #[arg(long, value_name = "URL")]
    pub aggregator: Option<String>,
    /// Settings that name the aggregator.
    #[arg(long, value_name = "FILE", conflicts_with = "aggregator")]
    pub config: Option<PathBuf>,
    /// A file with the aggregator's token; GAUNT_TOKEN holds it otherwise.
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
}

/// One look at the fleet.
#[derive(Args, Clone, Debug)]
pub struct SnapshotArguments {
    /// Where to look.
    #[command(flatten)]
    pub view: ViewArguments,
    /// Print the answer to one question instead of the whole picture: overview, nodes, nodes/NAME, gpus, jobs,
    /// jobs/NUMBER, ports, fabric, findings, targets, table/findings, 'history?metric=power'.
    #[arg(long, value_name = "QUESTION")]
    pub ask: Option<String>,
    /// Which rows, in which order, how many, with which columns:
    /// 'job=8812 and sm_active<30% sort power desc limit 20 columns node,gpu,power'.
    #[arg(long, value_name = "FILTER", requires = "ask")]
    pub filter: Option<String>,
    /// The most rows of that answer; all of them unless it is said.
    #[arg(long, value_name = "ROWS", requires = "ask",
        value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_ROWS)))]
    pub limit: Option<u32>,
    /// For people, for programs, or for spreadsheets.
    #[arg(long, value_enum, default_value_t = SnapshotFormatArgument::Text)]
    pub format: SnapshotFormatArgument,
    /// Exit with 1 if the worst open finding that nobody acknowledged is a warning, with 2 if it is critical.
    #[arg(long)]
    pub check: bool,
    /// How long to watch before looking, when no aggregator has done so; a judgement needs several samples.
    #[arg(long, value_name = "SPAN", default_value = "8s", value_parser = parse_span)]
    pub watch: Duration,
}

/// A report of usage.
#[derive(Args, Clone, Debug)]
pub struct ReportArguments {
    /// Where to look.
    #[command(flatten)]
    pub view: ViewArguments,
    /// How far back: an aggregator knows the last hour.
    #[arg(long, value_name = "SPAN", default_value = "15m", value_parser = parse_age)]
    pub last: Duration,
    /// All of a recording of `gaunt record` or of an aggregator instead.
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["aggregator", "targets", "targets_file", "file_sd", "http_sd", "dns_sd", "last"])]
    pub from: Option<PathBuf>,
    /// What an hour of a board costs, by its model: 'NVIDIA H100*=2.50', or 2.50 for all others. The settings have a
    /// table of them.
    #[arg(long, value_name = "[MODEL=]AMOUNT", value_parser = parse_price)]
    pub price: Vec<(Option<String>, f64)>,
    /// The currency of the prices.
    #[arg(long, value_name = "WORD")]
    pub currency: Option<String>,
    /// Kilograms of CO2 for a kilowatt-hour.
    #[arg(long, value_name = "KG")]
    pub co2: Option<f64>,
    /// For people, for programs, or for spreadsheets.
    #[arg(long, value_enum, default_value_t = ReportFormatArgument::Text)]
    pub format: ReportFormatArgument,
    /// How long to watch before looking, when no aggregator has done so.
    #[arg(long, value_name = "SPAN", default_value = "8s", value_parser = parse_span)]
    pub watch: Duration,
}

/// A price, and the model that it is for.
fn parse_price(text: &str) -> Result<(Option<String>, f64), String> {
    let (model, amount) = match text.rsplit_once('=') {
        Some((model, amount)) => (Some(model.to_owned()), amount),
        None => (None, text),
    };
    let amount = amount.parse().ok().filter(|amount: &f64| amount.is_finite() && *amount >= 0.0);
    let amount = amount.ok_or_else(|| "write an amount such as 2.50, or MODEL=2.50".to_owned())?;
    Ok((model, amount))
}

/// Recorded pages.
#[derive(Args, Clone, Debug)]
pub struct JudgeArguments {
    /// A recording of `gaunt record` or of an aggregator, or FOLDER/TARGET/UNIX_MS.prom, pages of any exporter that
    /// gaunt understands; there an empty file is a scrape that brought nothing.
    #[arg(long, value_name = "FOLDER")]
    pub from: PathBuf,
    /// For people or for programs.
    #[arg(long, value_enum, default_value_t = FormatArgument::Text)]
    pub format: FormatArgument,
    /// How the cluster is wired: Slurm's topology.conf or topology.yaml, the output of ibnetdiscover, LLDP neighbours,
    /// or gaunt's own TOML.
    #[arg(long, value_name = "FILE")]
    pub topology: Vec<PathBuf>,
    /// Running jobs, as `squeue --json` writes them.
    #[arg(long, value_name = "FILE")]
    pub jobs: Vec<PathBuf>,
    /// The time between two pages of a target; worked out from their names unless it is said.
    #[arg(long, value_name = "SPAN", value_parser = parse_span)]
    pub period: Option<Duration>,
    /// Settings with the judge's limits; config/gaunt.toml is a complete sample.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// How an answer is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FormatArgument {
    /// Plain columns.
    Text,
    /// One JSON object.
    Json,
}

/// How a snapshot is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SnapshotFormatArgument {
    /// Plain columns.
    Text,
    /// One JSON object; of a question, {"rows": [{"node": ...}]}.
    Json,
    /// Comma-separated values of one question.
    Csv,
    /// One JSON object of one question as the API gives it: an array for each column.
    Columns,
}

/// How a report is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ReportFormatArgument {
    /// Plain columns.
    Text,
    /// One JSON object.
    Json,
    /// Comma-separated values of one question.
    Csv,
}

/// An address to listen on, with a message that says how one is written.
fn parse_listen_address(text: &str) -> Result<std::net::SocketAddr, String> {
    text.parse().map_err(|_| "write an IP address and a port, such as 0.0.0.0:9771".to_owned())
}
