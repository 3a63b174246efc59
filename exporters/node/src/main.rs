//! gaunt-node: samples this node and serves the page.

use std::{
    env,
    io::{self, IsTerminal, Write},
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant as StdInstant},
};

use anyhow::Context;
use clap::{CommandFactory as _, Parser};
use gaunt_node::{
    NodeArguments, NodeCommand, NodeDoctorFormat, NodeSampler, ReadingSource,
    exporter_service::{self, ExporterPlan},
    exporter_settings, node_doctor, nvml_worker,
    watchdog::Watchdog,
    web_access::WebAccess,
};
use gaunt_schema::{Device, Report, catalogue::exporter, text};
use gaunt_signals::{HangUpAction, HeldSignals};
use tokio::{
    runtime,
    sync::watch,
    time::{Instant, timeout_at},
};
use tracing_subscriber::EnvFilter;

/// How long `--once` waits for the driver; values that are missing by then are not on the page.
const ONCE_DEADLINE: Duration = Duration::from_secs(30);

/// The exit code for an invalid command line and for any failure, as in all gaunt programs.
const FAILED: u8 = 3;

/// The exit code of `doctor` if a check misses something.
const MISSING: u8 = 1;

fn main() -> ExitCode {
    let held_signals = HeldSignals::hold();
    if nvml_worker::is_worker_process() {
        drop(held_signals);
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
    match run(&arguments, held_signals) {
        Ok(code) => code,
        Err(error) => {
            _ = writeln!(io::stderr().lock(), "gaunt-node: {error:#}");
            ExitCode::from(FAILED)
        }
    }
}

fn run(arguments: &NodeArguments, held_signals: HeldSignals) -> anyhow::Result<ExitCode> {
    let signals = if arguments.command.is_some() || arguments.once {
        // They have their default effect, as those that arrived meanwhile.
        drop(held_signals);
        None
    } else {
        let signals = held_signals.receive(HangUpAction::Reload);
        Some(signals.context("cannot install signal handlers; raise the limit on open files")?)
    };
    if let Some(command) = &arguments.command {
        return run_command(command, arguments);
    }
    let plan = exporter_settings::build_plan(arguments)?;
    let runtime = runtime::Builder::new_current_thread().enable_all().build();
    runtime.context("cannot start the runtime")?.block_on(async {
        let Some(signals) = signals else { return print_once(plan).await };
        let watchdog = Watchdog::from_environment(|name| env::var_os(name), StdInstant::now())?;
        let reload_plan = || exporter_settings::build_plan(arguments);
        Ok(exporter_service::run(plan, reload_plan, watchdog, signals).await?)
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Runs a command beside the exporter itself.
fn run_command(command: &NodeCommand, arguments: &NodeArguments) -> anyhow::Result<ExitCode> {
    let mut page = Vec::new();
    let mut code = ExitCode::SUCCESS;
    match command {
        NodeCommand::Doctor(options) => {
            let plan = exporter_settings::build_plan(arguments)?;
            let mut checks = node_doctor::run_checks(&plan.sampler, plan.listen);
            checks.push(node_doctor::check_web_config(plan.web_config.as_deref()));
            if options.format == NodeDoctorFormat::Json {
                serde_json::to_writer_pretty(&mut page, &checks)?;
                page.push(b'\n');
            } else {
                page.extend(node_doctor::render_page(&checks).into_bytes());
            }
            if node_doctor::count_missing(&checks) > 0 {
                code = ExitCode::from(MISSING);
            }
        }
        NodeCommand::CheckConfig => {
            let plan = exporter_settings::build_plan(arguments)?;
            plan.web_config.as_deref().map(WebAccess::from_file).transpose()?;
            writeln!(page, "The settings are valid.")?;
        }
        NodeCommand::Completions { shell } => {
            let name = "gaunt-node";
            clap_complete::generate(*shell, &mut NodeArguments::command(), name, &mut page);
        }
        NodeCommand::Man => clap_mangen::Man::new(NodeArguments::command()).render(&mut page)?,
    }
    match io::stdout().lock().write_all(&page) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(error).context("cannot write to standard output")
        }
        _ => Ok(code),
    }
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
