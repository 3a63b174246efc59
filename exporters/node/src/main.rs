//! gaunt-node: samples this node and serves the page.

mod exporter_settings;

use std::{
    env,
    io::{self, IsTerminal, Write},
    net::SocketAddr,
    path::PathBuf,
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant as StdInstant},
};

use anyhow::Context;
use clap::Parser;
use gaunt_node::{
    NodeSampler, ReadingSource, exporter_service, exporter_service::ExporterPlan, nvml_worker,
    watchdog::Watchdog,
};
use gaunt_schema::{Device, Report, catalogue::exporter, text};
use tokio::{
    runtime,
    sync::watch,
    time::{Instant, timeout_at},
};
use tracing_subscriber::EnvFilter;

/// How long `--once` waits for the driver; values that are missing by then are not on the page.
const ONCE_DEADLINE: Duration = Duration::from_secs(30);

/// Exports metrics of the GPUs, RDMA ports, network devices and pressure (PSI) of this node to gaunt and Prometheus.
#[derive(Parser)]
#[command(version, after_help = "Exit codes: 0 done, 3 wrong command line or cannot start")]
struct NodeArguments {
    /// Settings file; flags override it. Reloaded on SIGHUP
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Listen address of the metrics page [default: 127.0.0.1:9770]
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,
    /// Web configuration with TLS and users, in the format of exporter-toolkit [default: none]
    #[arg(long, value_name = "FILE")]
    web_config: Option<PathBuf>,
    /// Sampling interval, 100ms to 60s [default: 1s]
    #[arg(long, value_name = "TIME", value_parser = exporter_settings::parse_period)]
    period: Option<Duration>,
    /// Also export metrics under the names of these exporters: dcgm (dcgm-exporter before 4.9), dcgm=4.9, node
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = exporter_settings::parse_compat)]
    compat: Option<Vec<exporter_settings::CompatExporter>>,
    /// Mount point of sysfs [default: /sys]
    #[arg(long, value_name = "FOLDER")]
    sys_root: Option<PathBuf>,
    /// Mount point of procfs [default: /proc]
    #[arg(long, value_name = "FOLDER")]
    proc_root: Option<PathBuf>,
    /// NVML library to load [default: libnvidia-ml.so.1]
    #[arg(long, value_name = "PATH")]
    nvml_library: Option<PathBuf>,
    /// Name of this node [default: the host name]
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    /// Accepted name in the Host header, besides addresses, localhost and the names of this host. Other names are
    /// rejected to prevent DNS rebinding by web pages
    #[arg(long, value_name = "HOST")]
    name: Option<Vec<String>>,
    /// RDMA or network device that is not read; * matches any text
    #[arg(long, value_name = "NAME")]
    exclude: Option<Vec<String>>,
    /// Collectors to disable, as named in gaunt_collector_success, or parts of nvml: gpm, fast-sampling, xid,
    /// kernel_log, processes
    #[arg(long, alias = "without", value_name = "NAMES", value_delimiter = ',')]
    disable: Option<Vec<ReadingSource>>,
    /// Folder with *.prom files to export unchanged
    #[arg(long, value_name = "FOLDER")]
    textfiles: Option<PathBuf>,
    /// Print the page after one full sampling interval, and exit
    #[arg(long)]
    once: bool,
}

/// The exit code for an invalid command line and for any failure, as in all gaunt programs.
const FAILED: u8 = 3;

fn main() -> ExitCode {
    if nvml_worker::is_worker_process() {
        return nvml_worker::run();
    }
    let arguments = match NodeArguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            // Help and version are successful output; everything else is an invalid command line.
            let is_answer = error.print().is_ok() && !error.use_stderr();
            return ExitCode::from(if is_answer { 0 } else { FAILED });
        }
    };
    // With a page on a terminal, log only problems.
    let level = if arguments.once { "warn" } else { "info" };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level));
    let ansi = io::stderr().is_terminal();
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(ansi)
        .with_writer(io::stderr)
        .init();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            _ = writeln!(io::stderr().lock(), "gaunt-node: {error:#}");
            ExitCode::from(FAILED)
        }
    }
}

fn run(arguments: &NodeArguments) -> anyhow::Result<()> {
    let plan = exporter_settings::build_plan(arguments)?;
    let runtime = runtime::Builder::new_current_thread().enable_all().build();
    runtime.context("cannot start the runtime")?.block_on(async {
        if arguments.once {
            return print_once(plan).await;
        }
        let watchdog = Watchdog::from_environment(|name| env::var_os(name), StdInstant::now())?;
        Ok(exporter_service::run(plan, || exporter_settings::build_plan(arguments), watchdog)
            .await?)
    })
}

/// Prints one page as text.
async fn print_once(plan: ExporterPlan) -> anyhow::Result<()> {
    let needs_nvml = plan.sampler.is_enabled(ReadingSource::Nvml);
    let sampler = NodeSampler::start_sampling(plan.sampler);
    let report = await_settled_report(sampler.watch_reports(), needs_nvml).await;
    let mut page = String::new();
    text::write_page(&report, text::ExpositionFormat::Text, plan.compat, &mut page);
    io::stdout().lock().write_all(page.as_bytes()).context("cannot print the page")
}

/// The first report after a whole period and, if it `needs_nvml`, after the driver's status: the second sample may
/// follow soon after the first.
async fn await_settled_report(
    mut reports: watch::Receiver<Arc<Report>>,
    needs_nvml: bool,
) -> Arc<Report> {
    let deadline = Instant::now() + ONCE_DEADLINE;
    let nvml = Device::new_collector("nvml");
    let mut received = 0;
    while let Ok(Ok(())) = timeout_at(deadline, reports.changed()).await {
        let report = reports.borrow_and_update();
        received += 1;
        let has_status = report.find_reading(&nvml, exporter::COLLECTOR_SUCCESS).is_some();
        if received > 2 && (has_status || !needs_nvml) {
            break;
        }
    }
    Arc::clone(&reports.borrow())
}
