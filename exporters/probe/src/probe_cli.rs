//! The command line of gaunt-probe.

use std::{io, net::SocketAddr, path::PathBuf, time::Duration};

use clap::{Args, CommandFactory as _, Parser, Subcommand};
use clap_complete::Shell;
use gaunt_probe::{
    Collective, ElementType, ExitKind,
    baselines::ProbeBudget,
    cross_node,
    request::{self, LibraryPaths, MeasureKind, MeasureLimits, MeasureRequest},
};
use gaunt_schema::time;

/// The control groups of Slurm jobs, which exist from before a job's first process to after its last.
const JOBS: [&str; 2] =
    ["/sys/fs/cgroup/system.slice/slurmstepd.scope/job_*", "/sys/fs/cgroup/devices/slurm/uid_*"];

/// Measures the bandwidth of the links between idle GPUs, within milliseconds
#[derive(Parser)]
#[command(name = "gaunt-probe", version = gaunt_schema::VERSION, after_help = render_exit_codes())]
pub(crate) struct ProbeArguments {
    #[command(subcommand)]
    pub(crate) command: ProbeCommand,
}

#[derive(Subcommand)]
pub(crate) enum ProbeCommand {
    /// Run an all-reduce
    AllReduce(CollectiveArguments),
    /// Run a reduce-scatter
    ReduceScatter(CollectiveArguments),
    /// Run an all-gather
    AllGather(CollectiveArguments),
    /// Run an all-to-all
    AllToAll(CollectiveArguments),
    /// Run a broadcast
    Broadcast(CollectiveArguments),
    /// Run a ring send/recv
    SendRecv(CollectiveArguments),
    /// Measure every pair of GPUs in both directions, and every GPU with the host
    Matrix(MeasureArguments),
    /// If a probe is due and the GPUs are idle, run all-reduce and matrix, and compare with baselines; for gaunt-node
    Auto(AutoArguments),
    /// Measure the network between nodes, with peers that the aggregator assigns
    #[command(alias = "meet")]
    CrossNode(CrossNodeArguments),
    /// Print the status of this node's NCCL jobs from NCCL's RAS service; uses no GPU
    Ras(RasArguments),
    /// Check what gaunt-probe requires, and print how to install what is missing; uses no GPU
    Doctor(DoctorArguments),
    /// Print the completions of a shell
    Completions {
        /// The shell. Packages install the completions of bash, zsh and fish
        shell: Shell,
    },
    /// Print the manual page
    Man,
}

/// A collective.
#[derive(Args)]
pub(crate) struct CollectiveArguments {
    /// Number of ranks; with more ranks than GPUs, ranks share GPUs [default: one per GPU]
    #[arg(long, value_name = "NUMBER")]
    ranks: Option<usize>,
    #[command(flatten)]
    pub(crate) measuring: MeasureArguments,
}

/// The options that all measurements share.
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
#[derive(Args)]
pub(crate) struct MeasureArguments {
    /// Message size, such as 64MiB; of a gathering collective the size of all parts together
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = parse_size)]
    bytes: u64,
    /// GPUs by NVML index, such as 0,1 or 0-3 [default: all]
    #[arg(long, value_name = "LIST", value_parser = parse_gpu_indices)]
    gpus: Option<GpuIndices>,
    /// Element type
    #[arg(long = "type", value_name = "TYPE", default_value = "f32")]
    element: ElementType,
    /// Measured iterations
    #[arg(long, value_name = "NUMBER", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1000))]
    runs: u16,
    /// Warm-up iterations
    #[arg(long, value_name = "NUMBER", default_value_t = 2, value_parser = clap::value_parser!(u16).range(0..=1000))]
    warm_up: u16,
    /// Streams per rank
    #[arg(long, value_name = "NUMBER", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=16))]
    channels: u16,
    /// Maximum SMs to use per GPU [default: 32]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    sms: Option<u32>,
    /// Maximum memory to use per GPU [default: 1GiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    memory: Option<u64>,
    /// Maximum bytes to move over links [default: 64GiB; matrix: 256GiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    traffic: Option<u64>,
    /// Maximum GPU time: no iteration begins after it [default: 500ms; matrix: 4s]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    busy: Option<Duration>,
    /// Deadline from the first iteration to the result, after which the worker is killed [default: 2s; matrix: 15s]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    within: Option<Duration>,
    /// Deadline for creating contexts and memory, before the first iteration [default: 60s]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    setup: Option<Duration>,
    /// Fail with exit code 11 if GPUs have no peer access to each other
    #[arg(long)]
    require_peer: bool,
    /// Run even if GPUs are busy or their use is unknown
    #[arg(long)]
    even_if_busy: bool,
    /// Do not run if this path exists, because it marks a job; its last part may end in *
    #[arg(long, value_name = "PATH")]
    unless_exists: Vec<PathBuf>,
    /// Minimum bandwidth in GB/s; below it the exit code is 5
    #[arg(long, value_name = "GB/S")]
    pub(crate) floor: Option<f64>,
    /// End with 0 unless the GPUs or their links have a fault (exit codes 4 to 7): for what must start where nothing could be measured
    #[arg(long)]
    faults_only: bool,
    /// Also measure NCCL, if installed; NCCL allocates its own memory
    #[arg(long = "nccl")]
    compare_nccl: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    libraries: LibraryArguments,
}

/// Paths of libraries that the loader does not find.
#[derive(Args)]
pub(crate) struct LibraryArguments {
    /// CUDA driver library to load [default: libcuda.so.1]
    #[arg(long = "cuda-library", value_name = "PATH")]
    cuda: Option<PathBuf>,
    /// NVML library to load [default: libnvidia-ml.so.1]
    #[arg(long = "nvml-library", value_name = "PATH")]
    nvml: Option<PathBuf>,
    /// NCCL library to load [default: libnccl.so.2]
    #[arg(long = "nccl-library", value_name = "PATH")]
    nccl: Option<PathBuf>,
}

/// Scheduled probes.
#[derive(Args)]
pub(crate) struct AutoArguments {
    /// Folder for baselines, and for the page that gaunt-node exports
    #[arg(long, value_name = "FOLDER", default_value = "/var/lib/gaunt-probe")]
    pub(crate) state: PathBuf,
    /// Minimum time between two probes, at most 600s
    #[arg(long, value_name = "TIME", default_value = "300s", value_parser = parse_duration)]
    cool_down: Duration,
    /// Maximum GPU time of all probes per day, at most 600s
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_duration)]
    daily_busy: Duration,
    #[command(flatten)]
    pub(crate) measuring: MeasureArguments,
}

impl AutoArguments {
    /// The measurements in order: a ring of all GPUs, then every pair.
    pub(crate) fn to_requests(&self) -> Vec<MeasureRequest> {
        let ring = MeasureKind::Collective(Collective::AllReduce, None);
        let mut requests = vec![
            self.measuring.to_request(ring, request::COLLECTIVE),
            self.measuring.to_request(MeasureKind::Matrix, request::MATRIX),
        ];
        for request in &mut requests {
            request.unless.extend(JOBS.map(PathBuf::from));
        }
        requests
    }

    pub(crate) fn to_budget(&self) -> ProbeBudget {
        ProbeBudget {
            cool_down_seconds: self.cool_down.as_secs(),
            daily_seconds: self.daily_busy.as_secs_f64(),
        }
    }
}

/// Measurements between nodes.
#[derive(Args)]
pub(crate) struct CrossNodeArguments {
    /// Aggregator that pairs nodes, such as http://HOST:9771; of several, separated by commas, the first one that answers
    #[arg(long, value_name = "URL")]
    aggregator: String,
    /// File with the aggregator's token, which pairing requires
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// CA certificates in PEM with which an aggregator with TLS is verified [default: the system's]
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,
    /// This node's name in the aggregator [default: the host name]
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    /// Name or address at which other nodes reach this one [default: the node's name]
    #[arg(long, value_name = "HOST")]
    host: Option<String>,
    /// Number of pairings [default: unlimited]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    rounds: Option<u32>,
    /// Maximum wait for a peer, at most 600s [default: unlimited]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    patience: Option<Duration>,
    /// Path of ib_write_bw, which measures where NCCL is missing [default: the one in PATH]
    #[arg(long, value_name = "PATH")]
    perftest: Option<PathBuf>,
    /// Folder for baselines and the GPU time used today
    #[arg(long, value_name = "FOLDER", default_value = "/var/lib/gaunt-probe")]
    state: PathBuf,
    /// Maximum GPU time of all pairings per day, at most 600s
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_duration)]
    daily_busy: Duration,
    #[command(flatten)]
    pub(crate) measuring: MeasureArguments,
}

impl CrossNodeArguments {
    pub(crate) fn to_options(&self) -> cross_node::CrossNodeOptions {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let node = self.node.clone().unwrap_or(host);
        let mut request = self.measuring.to_request(MeasureKind::Pair(0), request::COLLECTIVE);
        request.unless.extend(JOBS.map(PathBuf::from));
        cross_node::CrossNodeOptions {
            aggregator: self.aggregator.clone(),
            token_file: self.token_file.clone(),
            ca_file: self.ca_file.clone(),
            host: self.host.clone().unwrap_or_else(|| node.clone()),
            node,
            rounds: self.rounds,
            max_wait: self.patience,
            request,
            perftest: self.perftest.clone(),
            state: self.state.clone(),
            budget: ProbeBudget {
                cool_down_seconds: 0,
                daily_seconds: self.daily_busy.as_secs_f64(),
            },
        }
    }
}

/// The address of NCCL's RAS service.
#[derive(Args)]
pub(crate) struct RasArguments {
    /// Address of the job's RAS service, as in its NCCL_RAS_ADDR
    #[arg(long, value_name = "ADDRESS:PORT", default_value = gaunt_schema::ras_connection::ADDRESS)]
    pub(crate) address: SocketAddr,
    /// Compare the ranks in two queries 10 s apart, and name those that the others wait for (NCCL 2.28.7 or newer)
    #[arg(long)]
    pub(crate) compare: bool,
    /// Print the comparison as JSON
    #[arg(long, requires = "compare")]
    pub(crate) json: bool,
}

/// The options of the doctor.
#[derive(Args)]
pub(crate) struct DoctorArguments {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) libraries: LibraryArguments,
}

/// Indices of GPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
struct GpuIndices(Vec<u32>);

impl ProbeCommand {
    /// What packages install beside the program, for the commands that print it.
    pub(crate) fn render_installation(&self) -> io::Result<Option<Vec<u8>>> {
        let mut page = Vec::new();
        match self {
            Self::Completions { shell } => {
                let mut command = ProbeArguments::command();
                clap_complete::generate(*shell, &mut command, "gaunt-probe", &mut page);
            }
            Self::Man => clap_mangen::Man::new(ProbeArguments::command()).render(&mut page)?,
            _ => return Ok(None),
        }
        Ok(Some(page))
    }

    /// The request, and its output options; none for commands other than collectives and the matrix.
    pub(crate) fn to_request(&self) -> Option<(MeasureRequest, &MeasureArguments)> {
        let (collective, ring) = match self {
            Self::AllReduce(ring) => (Collective::AllReduce, ring),
            Self::ReduceScatter(ring) => (Collective::ReduceScatter, ring),
            Self::AllGather(ring) => (Collective::AllGather, ring),
            Self::AllToAll(ring) => (Collective::AllToAll, ring),
            Self::Broadcast(ring) => (Collective::Broadcast, ring),
            Self::SendRecv(ring) => (Collective::SendRecv, ring),
            Self::Matrix(measuring) => {
                return Some((
                    measuring.to_request(MeasureKind::Matrix, request::MATRIX),
                    measuring,
                ));
            }
            Self::Auto(_)
            | Self::CrossNode(_)
            | Self::Ras(_)
            | Self::Doctor(_)
            | Self::Completions { .. }
            | Self::Man => return None,
        };
        let kind = MeasureKind::Collective(collective, ring.ranks);
        Some((ring.measuring.to_request(kind, request::COLLECTIVE), &ring.measuring))
    }
}

impl MeasureArguments {
    /// What decides the exit code: with `--faults-only` everything but a fault is as good as a measurement.
    pub(crate) fn exit_kind(&self, kind: ExitKind) -> ExitKind {
        if self.faults_only && !kind.is_fault() { ExitKind::Measured } else { kind }
    }

    fn to_request(&self, kind: MeasureKind, defaults: MeasureLimits) -> MeasureRequest {
        let millis =
            |time: Option<Duration>, default| time.map_or(default, |time| time.as_millis() as u64);
        MeasureRequest {
            what: kind,
            gpus: self.gpus.as_ref().map(|indices| indices.0.clone()).unwrap_or_default(),
            bytes: self.bytes as usize,
            element: self.element,
            runs: usize::from(self.runs),
            warm_up: usize::from(self.warm_up),
            channels: usize::from(self.channels),
            require_peer: self.require_peer,
            even_if_busy: self.even_if_busy,
            unless: self.unless_exists.clone(),
            limits: MeasureLimits {
                busy_millis: millis(self.busy, defaults.busy_millis),
                within_millis: millis(self.within, defaults.within_millis),
                setup_millis: millis(self.setup, defaults.setup_millis),
                traffic_bytes: self.traffic.unwrap_or(defaults.traffic_bytes),
                memory_bytes: self.memory.unwrap_or(defaults.memory_bytes),
                sms: self.sms.unwrap_or(defaults.sms),
            },
            libraries: self.libraries.to_library_paths(),
            nccl: self.compare_nccl,
            meeting: None,
        }
    }
}

impl LibraryArguments {
    pub(crate) fn to_library_paths(&self) -> LibraryPaths {
        LibraryPaths { cuda: self.cuda.clone(), nvml: self.nvml.clone(), nccl: self.nccl.clone() }
    }
}

/// The exit codes and their meanings, for the help.
fn render_exit_codes() -> String {
    let lines = ExitKind::ALL.iter().map(|(_, code, meaning)| format!("\n  {code:>2}  {meaning}"));
    format!("Exit codes:{}", lines.collect::<String>())
}

/// A size such as `64MiB`, `1GB` or `4096`.
fn parse_size(text: &str) -> Result<u64, String> {
    let digits = text.find(|character: char| !character.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: u64 =
        number.parse().map_err(|_| "expected a size such as 64MiB, 1GB or 4096".to_owned())?;
    let factor: u64 = match unit.trim() {
        "" | "B" => 1,
        "KiB" | "K" => 1 << 10,
        "MiB" | "M" => 1 << 20,
        "GiB" | "G" => 1 << 30,
        "kB" | "KB" => 1_000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        other => {
            return Err(format!("unknown unit {other}; use B, KiB, MiB, GiB, kB, MB or GB"));
        }
    };
    let bytes = number.checked_mul(factor).filter(|bytes| (1..=1 << 40).contains(bytes));
    bytes.ok_or_else(|| "must be between 1 byte and 1 TiB".to_owned())
}

/// A time such as `500ms` or `2s`.
fn parse_duration(text: &str) -> Result<Duration, String> {
    let span =
        time::parse_duration(text).ok_or("expected a time with its unit, such as 2s or 500ms")?;
    if !(Duration::from_millis(1)..=Duration::from_mins(10)).contains(&span) {
        return Err("must be between 1ms and 600s".to_owned());
    }
    Ok(span)
}

/// Indices such as `0,2` or `0-3`.
fn parse_gpu_indices(text: &str) -> Result<GpuIndices, String> {
    let mut indices = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| text.trim().parse::<u32>().ok().filter(|number| *number < 1024);
        let invalid = || format!("{part:?} is not a GPU index; use 0,1 or 0-3");
        let (first, last) = (number(first).ok_or_else(invalid)?, number(last).ok_or_else(invalid)?);
        indices.extend(first..=last);
    }
    let mut sorted = indices.clone();
    sorted.sort_unstable();
    sorted.dedup();
    if sorted.len() != indices.len() || indices.is_empty() {
        return Err("name each GPU once".to_owned());
    }
    Ok(GpuIndices(indices))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_times_and_lists_are_read_or_refused() {
        assert_eq!(parse_size("64MiB"), Ok(64 << 20));
        assert_eq!(parse_size("1GB"), Ok(1_000_000_000));
        assert_eq!(parse_size("4096"), Ok(4096));
        assert!(parse_size("64mib").unwrap_err().contains("unknown unit"));
        assert!(
            parse_size("0").is_err()
                && parse_size("").is_err()
                && parse_size("99999999GiB").is_err()
        );
        assert_eq!(parse_duration("500ms"), Ok(Duration::from_millis(500)));
        assert!(parse_duration("5").is_err() && parse_duration("0s").is_err());
        assert_eq!(parse_gpu_indices("0-2,5"), Ok(GpuIndices(vec![0, 1, 2, 5])));
        assert!(
            parse_gpu_indices("0,0").is_err()
                && parse_gpu_indices("a").is_err()
                && parse_gpu_indices("3-1").is_err()
        );
    }

    #[test]
    fn command_line_is_consistent() {
        use clap::CommandFactory;
        ProbeArguments::command().debug_assert();
    }
}
