//! The sampler: runs the collectors each tick on its own thread and publishes their readings.

use std::{
    sync::{
        Arc,
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::Duration,
};

use gaunt_schema::{Device, Report, SanitizedText, catalogue::host};
use tokio::sync::watch;

use crate::{
    SamplerOptions,
    collector::{self, Collector, collector_runner::CollectorRunner},
    kernel_files::read_once,
    nvml::nvml_collector::NvmlCollector,
    process_gpus::ProcessGpus,
    wall_clock,
};

/// The NVML worker samples on the tick, and the sampler this fraction of a period later, so that a report contains the
/// values of its own tick and not those of the previous one.
const LAG_OF_A_PERIOD: u32 = 5;

/// A node being sampled. Dropping it ends the sampling and, through it, the NVML worker.
pub struct NodeSampler {
    reports: watch::Receiver<Arc<Report>>,
    /// Never used for sending: its drop is the stop signal.
    _alive: mpsc::Sender<()>,
}

impl NodeSampler {
    /// Starts sampling. The first report comes immediately, the others once per period.
    pub fn start_sampling(options: SamplerOptions) -> Self {
        Self::start_with_requests(options, watch::channel(0).1)
    }

    /// The same, with NCCL's RAS queried for changes of `ras_requests`.
    pub(crate) fn start_with_requests(
        options: SamplerOptions,
        ras_requests: watch::Receiver<u64>,
    ) -> Self {
        let (publish, reports) = watch::channel(Arc::new(Report::default()));
        let (alive_sender, stop) = mpsc::channel();
        let sample_loop = move || run(&options, ras_requests, &publish, &stop);
        if let Err(error) = thread::Builder::new().name("sampler".to_owned()).spawn(sample_loop) {
            tracing::error!(%error, "cannot start the sampler; raise the limit on threads");
        }
        Self { reports, _alive: alive_sender }
    }

    /// The newest report. Before the first tick it is empty, and its `node_time` is absent.
    pub fn watch_reports(&self) -> watch::Receiver<Arc<Report>> {
        self.reports.clone()
    }
}

fn run(
    options: &SamplerOptions,
    ras_requests: watch::Receiver<u64>,
    publish: &watch::Sender<Arc<Report>>,
    stop: &mpsc::Receiver<()>,
) {
    if !options.without.is_empty() {
        let names: Vec<_> = options.without.iter().map(ToString::to_string).collect();
        tracing::info!("disabled: {}", names.join(", "));
    }
    let (process_sender, processes) = watch::channel(Arc::default());
    let mut collectors = CollectorRunner::new(
        enabled_collectors(options, ras_requests, processes),
        options.round_deadline(),
    );
    let offset = options.period / LAG_OF_A_PERIOD;
    loop {
        let report = sample_node(options, &mut collectors);
        if options.inspector_logs.is_some() {
            process_sender.send_replace(Arc::new(ProcessGpus::of_report(&report)));
        }
        publish.send_replace(Arc::new(report));
        let delay = wall_clock::until_tick(wall_clock::now(), options.period, offset);
        if stop.recv_timeout(delay.max(Duration::from_millis(1))) != Err(RecvTimeoutError::Timeout)
        {
            return;
        }
    }
}

/// The enabled collectors of a node, in page order.
pub(crate) fn enabled_collectors(
    options: &SamplerOptions,
    ras_requests: watch::Receiver<u64>,
    processes: watch::Receiver<Arc<ProcessGpus>>,
) -> Vec<Box<dyn Collector>> {
    let (holder_sender, pods) = watch::channel(Arc::default());
    let mut collectors =
        collector::host_collectors(options, holder_sender, ras_requests, processes);
    collectors.push(Box::new(NvmlCollector::new(options, pods)));
    collectors
        .retain(|collector| options.without.iter().all(|off| off.to_string() != collector.name()));
    collectors
}

/// One report of all collectors.
fn sample_node(options: &SamplerOptions, collectors: &mut CollectorRunner) -> Report {
    let now = wall_clock::now();
    let kernel = options.proc_root.join("sys/kernel");
    let name = options.node_name.clone().or_else(|| read_once(&kernel.join("hostname")));
    let mut report = Report { node_time: Some(now), ..Report::default() };
    let node = report.ensure_device(Device::new_node());
    let release = read_once(&kernel.join("osrelease"));
    report.add_info(node, host::NODE_INFO, &node_labels(name.as_deref(), release.as_deref()));
    report.node = name.as_deref().map(SanitizedText::new);
    collectors.run(now, &mut report);
    report
}

fn node_labels<'a>(name: Option<&'a str>, kernel: Option<&'a str>) -> Vec<(&'a str, &'a str)> {
    let labels = [("node", name), ("version", Some(env!("CARGO_PKG_VERSION"))), ("kernel", kernel)];
    labels.into_iter().filter_map(|(label, value)| Some((label, value?))).collect()
}
