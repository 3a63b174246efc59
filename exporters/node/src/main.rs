//! gaunt-node: samples this node and serves the page.

use std::{
    io::{self, IsTerminal, Write},
    net::SocketAddr,
    path::PathBuf,
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, bail};
use clap::Parser;
use gaunt_node::{Options, Sampler, server, worker};
use gaunt_schema::{Device, Report, catalogue::exporter, text};
use tokio::{
    runtime,
    signal::unix::{SignalKind, signal},
    sync::watch,
    time::{Instant, timeout_at},
};
use tracing_subscriber::EnvFilter;

/// How long `--once` waits for the driver; what is not there by then is not on the page.
const ONCE_DEADLINE: Duration = Duration::from_secs(30);

/// The shortest and the longest period. Below the first the driver's own windows repeat themselves; beyond the second
/// nobody would call it live.
const PERIODS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_mins(1));

/// Samples the GPUs, RDMA ports, network devices and pressure of this node and serves them to gaunt and Prometheus.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// Address to serve the page on
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:9770")]
    listen: SocketAddr,
    /// Time between two samples, such as 1s or 500ms
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = period)]
    period: Duration,
    /// Where the kernel's device tree is
    #[arg(long, value_name = "FOLDER", default_value = "/sys")]
    sys_root: PathBuf,
    /// Where the kernel's process tree is
    #[arg(long, value_name = "FOLDER", default_value = "/proc")]
    proc_root: PathBuf,
    /// NVML library to load instead of libnvidia-ml.so.1
    #[arg(long, value_name = "PATH")]
    nvml_library: Option<PathBuf>,
    /// Name of this node, instead of its host name
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    /// RDMA or network device to leave alone, not even read; * stands for anything
    #[arg(long, value_name = "NAME")]
    exclude: Vec<String>,
    /// Print the page once a whole period is sampled, and exit
    #[arg(long)]
    once: bool,
}

fn main() -> ExitCode {
    if worker::requested() {
        return worker::run();
    }
    let arguments = Arguments::parse();
    // Beside a page on a terminal only what is wrong is worth a line.
    let level = if arguments.once { "warn" } else { "info" };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level));
    let colours = io::stderr().is_terminal();
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(colours)
        .with_writer(io::stderr)
        .init();
    match run(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            _ = writeln!(io::stderr().lock(), "gaunt-node: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: Arguments) -> anyhow::Result<()> {
    for (flag, root) in [("sys", &arguments.sys_root), ("proc", &arguments.proc_root)] {
        if !root.is_dir() {
            bail!("{} is no folder; check --{flag}-root", root.display());
        }
    }
    let options = Options {
        sys_root: arguments.sys_root,
        proc_root: arguments.proc_root,
        nvml_library: arguments.nvml_library,
        node_name: arguments.node,
        period: arguments.period,
        exclude: arguments.exclude,
        ..Options::default()
    };
    let runtime = runtime::Builder::new_current_thread().enable_all().build();
    runtime.context("cannot start the runtime")?.block_on(async {
        if arguments.once {
            let sampler = Sampler::start(options);
            let report = settled(sampler.watch()).await;
            let mut page = String::new();
            text::write(&report, &mut page);
            return io::stdout().lock().write_all(page.as_bytes()).context("cannot print the page");
        }
        // The address first: a second exporter must not bother the driver before it notices the first.
        let listener = server::listen(arguments.listen).await?;
        let address = listener.local_addr().context("cannot tell the address")?;
        let mut ends = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        let sampler = Sampler::start(options);
        tracing::info!(%address, "serving /metrics");
        tokio::select! {
            () = server::serve(listener, sampler.watch()) => {}
            _ = ends.0.recv() => {}
            _ = ends.1.recv() => {}
        }
        tracing::info!("asked to stop");
        Ok(())
    })
}

/// The first report after a whole period and a word from the driver: the second sample may come soon after the first.
async fn settled(mut reports: watch::Receiver<Arc<Report>>) -> Arc<Report> {
    let deadline = Instant::now() + ONCE_DEADLINE;
    let nvml = Device::collector("nvml");
    let mut seen = 0;
    while let Ok(Ok(())) = timeout_at(deadline, reports.changed()).await {
        let report = reports.borrow_and_update();
        seen += 1;
        if seen > 2 && report.reading(&nvml, exporter::COLLECTOR_SUCCESS).is_some() {
            break;
        }
    }
    Arc::clone(&reports.borrow())
}

/// A period such as `1s` or `500ms`.
fn period(text: &str) -> Result<Duration, String> {
    let (number, unit) = match text.strip_suffix("ms") {
        Some(number) => (number, 1),
        None => (text.strip_suffix('s').ok_or("write a time with its unit: 1s, 500ms")?, 1000),
    };
    let number: u64 = number.parse().map_err(|_| "write a whole number and its unit: 1s, 500ms")?;
    let period = Duration::from_millis(number.saturating_mul(unit));
    if period < PERIODS.0 || period > PERIODS.1 {
        return Err(format!("it must be between {:?} and {:?}", PERIODS.0, PERIODS.1));
    }
    Ok(period)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periods_have_units_and_bounds() {
        assert_eq!(period("1s"), Ok(Duration::from_secs(1)));
        assert_eq!(period("500ms"), Ok(Duration::from_millis(500)));
        for bad in ["1", "s", "0s", "-1s", "99ms", "61s", "1.5s", "99999999999999999999s"] {
            assert!(period(bad).is_err(), "{bad}");
        }
    }
}
