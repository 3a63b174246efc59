//! NCCL's RAS service: its events all the time, and the status of the job only when the aggregator asks for it.
//!
//! A status gathers from every process of the job, for seconds if the job is sick. It is therefore read at most every ten
//! seconds, however many ask, on a thread of its own. Two states in a row show which ranks the others wait for.

use std::{
    net::SocketAddr,
    path::PathBuf,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use gaunt_schema::{
    AbsenceReason, Device, MetricId, Reading, Report, SanitizedText, UnixMs,
    catalogue::nccl_ras,
    ras_connection::RasError,
    ras_status::{RasComparison, RasLaggingRank, RasStatus},
};
use tokio::sync::watch;

use super::{CollectError, CollectOutcome, Collector};
use crate::{
    SamplerOptions,
    local_addresses::read_addresses,
    ras_monitor::{self, RasConnectionState, RasMonitorState},
};

#[cfg(test)]
mod tests;

/// The shortest time between two queries, which is also that between two states that are compared.
const QUERY_EVERY: Duration = Duration::from_secs(10);

/// The age at which a state is too old to be compared: ranks would have met again meanwhile.
const STATE_VALID: Duration = Duration::from_mins(2);

/// How long a comparison is reported. The aggregator asks again meanwhile if the job still hangs.
const COMPARISON_VALID: Duration = Duration::from_mins(3);

/// The most lagging ranks that are reported.
const MAX_RANKS: usize = 16;

/// The time between two looks at the node's addresses.
const ADDRESSES_EVERY: Duration = Duration::from_mins(1);

/// Follows the service, and reads the job's status on request.
pub(super) struct RasCollector {
    service: SocketAddr,
    proc_root: PathBuf,
    /// The addresses of this node, and when they were read.
    addresses: Option<(Instant, String)>,
    /// The state of the connection; none before the first run, or without a thread for it.
    monitor: Option<watch::Receiver<RasMonitorState>>,
    /// Changes with each request for a status.
    requests: watch::Receiver<u64>,
    query: Option<JoinHandle<Result<RasStatus, RasError>>>,
    /// When the last query began.
    queried: Option<Instant>,
    /// Why the last query failed.
    query_error: Option<String>,
    /// The last state, and when it was read.
    status: Option<(Instant, RasStatus)>,
    status_time: Option<UnixMs>,
    comparison: Option<(Instant, UnixMs, RasComparison)>,
}

impl RasCollector {
    pub(super) fn new(
        service: SocketAddr,
        options: &SamplerOptions,
        requests: watch::Receiver<u64>,
    ) -> Self {
        Self {
            service,
            proc_root: options.proc_root.clone(),
            addresses: None,
            monitor: None,
            requests,
            query: None,
            queried: None,
            query_error: None,
            status: None,
            status_time: None,
            comparison: None,
        }
    }

    fn monitor_state(&mut self) -> Result<RasMonitorState, CollectError> {
        let monitor = match self.monitor.take() {
            Some(monitor) => monitor,
            None => ras_monitor::start_monitor(self.service).map_err(|error| {
                let why = "cannot start a thread for NCCL's RAS";
                CollectError::Devices(format!("{why}: {error}; raise the limit on threads"))
            })?,
        };
        let state = monitor.borrow().clone();
        self.monitor = Some(monitor);
        Ok(state)
    }

    /// Starts a query if somebody asked since the last one began, and that was long enough ago.
    fn start_requested_query(&mut self, now: Instant) -> Result<(), CollectError> {
        let is_early = self.queried.is_some_and(|at| now.duration_since(at) < QUERY_EVERY);
        if self.query.is_some() || is_early || !self.requests.has_changed().unwrap_or(false) {
            return Ok(());
        }
        self.requests.mark_unchanged();
        self.queried = Some(now);
        let service = self.service;
        let query = move || ras_monitor::query_status(service);
        let thread = thread::Builder::new().name("ras-query".to_owned()).spawn(query);
        self.query = Some(thread.map_err(|error| {
            let why = "cannot start a thread for a query of NCCL's RAS";
            CollectError::Devices(format!("{why}: {error}; raise the limit on threads"))
        })?);
        Ok(())
    }

    /// Takes the result of a query that has ended.
    fn finish_query(&mut self, now: Instant, wall: UnixMs) {
        if !self.query.as_ref().is_some_and(JoinHandle::is_finished) {
            return;
        }
        let Some(query) = self.query.take() else { return };
        let answer =
            query.join().map_err(|_| "the query ended unexpectedly; see the log".to_owned());
        match answer.and_then(|answer| answer.map_err(|error| error.to_string())) {
            Ok(status) => self.store_status(status, now, wall),
            Err(error) => self.query_error = Some(error),
        }
    }

    fn store_status(&mut self, status: RasStatus, now: Instant, wall: UnixMs) {
        self.query_error = None;
        self.status_time = Some(wall);
        if let Some((at, before)) = &self.status
            && now.duration_since(*at) <= STATE_VALID
        {
            self.comparison = Some((now, wall, RasComparison::of(before, &status)));
        }
        self.status = Some((now, status));
    }

    /// Drops what is too old to be compared or reported, or is of a job that ended.
    fn drop_outdated(&mut self, now: Instant, is_connected: bool) {
        let is_valid = |at: Instant, limit| is_connected && now.duration_since(at) <= limit;
        self.status.take_if(|(at, _)| !is_valid(*at, STATE_VALID));
        self.comparison.take_if(|(at, ..)| !is_valid(*at, COMPARISON_VALID));
    }

    fn report_node(&mut self, state: &RasMonitorState, now: Instant, report: &mut Report) {
        let node = report.ensure_device(Device::new_node());
        let is_due = |(at, _): &(Instant, String)| now.duration_since(*at) >= ADDRESSES_EVERY;
        if self.addresses.as_ref().is_none_or(is_due) {
            let addresses = read_addresses(&self.proc_root);
            let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
            self.addresses = Some((now, addresses.join(" ")));
        }
        let addresses = self.addresses.as_ref().map_or("", |(_, addresses)| addresses);
        let service = self.service.to_string();
        let labels = [("service", service.as_str()), ("addresses", addresses)];
        report.add_info(node, nccl_ras::INFO, &labels);
        if state.connection == RasConnectionState::Pending {
            return;
        }
        let connected = f64::from(u8::from(state.connection.is_connected()));
        report.push(node, nccl_ras::CONNECTED, connected);
        let counts = state.counts;
        for (metric, count) in [
            (nccl_ras::JOINED, counts.joined),
            (nccl_ras::UNRESPONSIVE, counts.unresponsive),
            (nccl_ras::RECOVERED, counts.recovered),
            (nccl_ras::DEAD, counts.dead),
        ] {
            let has_events = !matches!(state.connection, RasConnectionState::WithoutEvents(_));
            let reading = if has_events {
                Reading::from(count as f64)
            } else {
                AbsenceReason::Unsupported.into()
            };
            report.push(node, metric, reading);
        }
    }

    fn report_status(&self, report: &mut Report) {
        let node = report.ensure_device(Device::new_node());
        let mut push = |metric: MetricId, value: f64| report.push(node, metric, value);
        if let (Some((_, status)), Some(at)) = (&self.status, self.status_time) {
            let [dead, unresponsive] = status.missing_counts();
            push(nccl_ras::STATUS_TIME, at.to_seconds());
            push(nccl_ras::MISSING_DEAD, dead as f64);
            push(nccl_ras::MISSING_UNRESPONSIVE, unresponsive as f64);
        }
        let Some((_, at, comparison)) = &self.comparison else { return };
        let stuck = comparison.communicators.saturating_sub(comparison.progressing);
        push(nccl_ras::COMPARED_TIME, at.to_seconds());
        push(nccl_ras::COMMUNICATORS, f64::from(comparison.communicators));
        push(nccl_ras::STUCK_COMMUNICATORS, f64::from(stuck));
        push(nccl_ras::LAGGING_RANKS, comparison.lagging.len() as f64);
        for rank in comparison.lagging.iter().take(MAX_RANKS) {
            report_rank(rank, report);
        }
    }
}

fn report_rank(rank: &RasLaggingRank, report: &mut Report) {
    let device = Device::new_rank(&rank.communicator, rank.rank);
    // Two communicators may have the same hash: the first one lags more.
    if report.devices.contains(&device) {
        return;
    }
    let device = report.ensure_device(device);
    let (pid, gpu) = (rank.process.pid.to_string(), rank.process.nvml_dev.to_string());
    let operation = rank.operation.as_ref().map_or("", |(name, ..)| name);
    let labels = [
        ("host", rank.process.host.as_str()),
        ("pid", &pid),
        ("gpu", &gpu),
        ("reason", rank.reason.as_str()),
        ("operation", operation),
    ];
    report.add_info(device, nccl_ras::RANK_INFO, &labels);
    // A process that RAS does not reach states no counts.
    let counts = rank.operation.as_ref().map(|(_, own, most)| (*own as f64, *most as f64));
    let reading = |count: Option<f64>| {
        count.map_or_else(|| Reading::from(AbsenceReason::Lost), Reading::from)
    };
    report.push(device, nccl_ras::LAUNCHED, reading(counts.map(|(own, _)| own)));
    report.push(device, nccl_ras::EXPECTED, reading(counts.map(|(_, most)| most)));
    report.push(device, nccl_ras::WAITING, f64::from(rank.waiting_ranks));
}

impl Collector for RasCollector {
    fn name(&self) -> &'static str {
        "ras"
    }

    fn collect_readings(&mut self, report: &mut Report) -> Result<CollectOutcome, CollectError> {
        self.collect_at(Instant::now(), report)
    }
}

impl RasCollector {
    fn collect_at(
        &mut self,
        now: Instant,
        report: &mut Report,
    ) -> Result<CollectOutcome, CollectError> {
        let state = self.monitor_state()?;
        self.finish_query(now, report.node_time.unwrap_or_default());
        self.drop_outdated(now, state.connection.is_connected());
        if !state.connection.is_connected() {
            self.requests.mark_unchanged();
        }
        self.report_node(&state, now, report);
        self.report_status(report);
        let outcome = match &state.connection {
            RasConnectionState::Pending => {
                return Ok(CollectOutcome::Pending("connecting to NCCL's RAS".to_owned()));
            }
            RasConnectionState::NotFound => {
                let service = self.service;
                return Ok(CollectOutcome::Nothing(format!(
                    "no NCCL RAS service at {service}: no job with NCCL 2.24 or newer, or NCCL_RAS_ENABLE=0"
                )));
            }
            RasConnectionState::Failed(why) => return Err(CollectError::Devices(why.clone())),
            RasConnectionState::WithoutEvents(why) => Some(why.clone()),
            RasConnectionState::Connected => state.last_dead.as_ref().map(describe_death),
        };
        self.start_requested_query(now)?;
        if let Some(error) = &self.query_error {
            return Err(CollectError::Devices(error.clone()));
        }
        Ok(outcome.map_or(CollectOutcome::Found, |message| CollectOutcome::FoundThat {
            message,
            at: None,
        }))
    }
}

fn describe_death(process: &SanitizedText) -> String {
    format!("NCCL considers dead: {process}")
}
