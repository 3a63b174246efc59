//! `/metrics`: metrics of the fleet and of the aggregator, as exposition text with bounded labels.

use std::{
    cmp::Reverse,
    collections::BTreeMap,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use axum::{extract::State, http::HeaderMap, response::Response};
use gaunt_schema::{Entity, GpuState, UnixMs, catalogue::fleet_metrics, text::ExpositionFormat};
use gaunt_series::ReceiveStatus;
use gaunt_store::{StoreStatus, StoreStep, StoreWriter};
use tokio::task::spawn_blocking;

use self::{
    fabric_samples::fetch_fabric,
    hourly_usage::{HourClock, write_hourly_usage},
    page_output::{FamilyOutput, PageOutput},
    screen_samples::fill_screens,
};
use super::{
    api_responses::unavailable_response, api_state::ApiState, negotiated_page,
    receive_service::ReceiveService,
};
use crate::answer_source::{AnswerSource, AnswerSourceError};
use gaunt_api::{
    Answer, FindingList, GpuTime, LossCause, NodeList, NodeState, Overview, PeerState, Question,
    TargetList, TargetState, UsageReport,
};

/// The span of hourly usage.
const HOUR: Duration = Duration::from_hours(1);

/// GPUs with their own series: the design size of one aggregator. Beyond that, only the counts by state remain.
const MAX_GPUS: usize = 100_000;

/// Findings with their own series, worst first.
const MAX_FINDINGS: usize = 1_000;

/// Targets with their own series of dropped results: those with the most.
const MAX_DROPPING: usize = 20;

pub(super) async fn handle_metrics(State(state): State<ApiState>, headers: HeaderMap) -> Response {
    match MetricsAnswers::fetch_answers(&state.source).await {
        Ok(mut answers) => {
            answers.store = state.store.as_ref().map(|status| status.borrow().clone());
            let receive = state.receive.as_ref().map(ReceiveService::watch_status);
            answers.receive = receive.map(|status| *status.borrow());
            negotiated_page::respond_page(&headers, move |format| answers.render_page(format)).await
        }
        Err(error) => unavailable_response(&error),
    }
}

/// The answers that the page is rendered from.
struct MetricsAnswers {
    overview: std::sync::Arc<Overview>,
    nodes: std::sync::Arc<NodeList>,
    findings: std::sync::Arc<FindingList>,
    targets: std::sync::Arc<TargetList>,
    time: std::sync::Arc<GpuTime>,
    /// State of the store, if one is written to.
    store: Option<StoreStatus>,
    /// State of the receiver, if remote write is received.
    receive: Option<ReceiveStatus>,
}

/// Writes the verdicts to the store, one step for each instant of its grid. Ends with the source.
pub(super) async fn write_to_store(source: AnswerSource, mut writer: StoreWriter) {
    let (mut last, mut hours) = (UnixMs::default(), HourClock::default());
    while let Ok(tick) = source.wait_for_tick(last).await {
        last = tick;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = UnixMs(i64::try_from(now.as_millis()).unwrap_or(i64::MAX));
        let Some(mut step) = writer.begin_step(tick, now) else { continue };
        let is_hour_over = hours.is_hour_over(step.instant());
        let Ok(answers) = MetricsAnswers::fetch_answers(&source).await else { continue };
        let usage = if is_hour_over { fetch_hourly_usage(&source).await } else { None };
        let fabric = fetch_fabric(&source).await;
        // Samples of 100,000 GPUs take some ten milliseconds, which must not delay responses.
        let filled = spawn_blocking(move || {
            answers.fill_step(&mut step);
            if let Some(fabric) = fabric {
                fabric.write_to(&mut PageOutput::Step(&mut step));
            }
            if let Some(usage) = usage {
                write_hourly_usage(&mut PageOutput::Step(&mut step), &usage);
            }
            step
        });
        let filled = match filled.await {
            Ok(step) if step.wants_screens() => fill_screens(step, &source).await,
            filled => filled,
        };
        let encoded = match filled {
            Ok(step) => spawn_blocking(move || step.encode()).await,
            Err(error) => Err(error),
        };
        match encoded {
            Ok(step) => writer.send_step(step),
            Err(error) => tracing::error!(%error, "cannot read the verdicts for the store"),
        }
    }
}

/// The usage of the last hour; none if the source does not answer.
async fn fetch_hourly_usage(source: &AnswerSource) -> Option<std::sync::Arc<UsageReport>> {
    match source.ask_question(Question::Usage(HOUR)).await {
        Ok(Answer::Usage(usage)) => Some(usage),
        _ => None,
    }
}

impl MetricsAnswers {
    async fn fetch_answers(source: &AnswerSource) -> Result<Self, AnswerSourceError> {
        let mut answers = Self {
            overview: std::sync::Arc::default(),
            nodes: std::sync::Arc::default(),
            findings: std::sync::Arc::default(),
            targets: std::sync::Arc::default(),
            time: std::sync::Arc::default(),
            store: None,
            receive: None,
        };
        for question in [
            Question::Overview,
            Question::Nodes,
            Question::Findings,
            Question::Targets,
            Question::GpuTime,
        ] {
            match source.ask_question(question).await? {
                Answer::Overview(overview) => answers.overview = overview,
                Answer::Nodes(nodes) => answers.nodes = nodes,
                Answer::Findings(findings) => answers.findings = findings,
                Answer::Targets(targets) => answers.targets = targets,
                Answer::GpuTime(time) => answers.time = time,
                _ => {}
            }
        }
        Ok(answers)
    }

    fn render_page(&self, format: ExpositionFormat) -> String {
        let mut text = String::with_capacity(64 << 10);
        let mut page = PageOutput::Text { out: &mut text, format };
        page.write_family(fleet_metrics::BUILD_INFO, |family| {
            family.write_line(&[("version", env!("CARGO_PKG_VERSION"))], 1.0);
        });
        self.write_recording_status(&mut page);
        self.write_peers(&mut page);
        page.write_family(fleet_metrics::CERTIFICATE_EXPIRY, |family| {
            for line in &self.targets.certificates {
                family.write_line(&[("file", &line.file)], line.expiry.to_seconds());
            }
        });
        if let Some(store) = &self.store {
            write_store_status(&mut page, store, self.overview.at);
        }
        if let Some(receive) = &self.receive {
            write_receive_status(&mut page, receive);
        }
        self.write_verdicts(&mut page);
        format.write_end(&mut text);
        text
    }

    /// Adds the verdicts to a step of the store, with the labels and values of the page. Counters are left out: those of
    /// two aggregators start at different values. The state of a GPU is one series with a number.
    fn fill_step(&self, step: &mut StoreStep) {
        let mut page = PageOutput::Step(step);
        self.write_verdicts(&mut page);
        page.write_family(fleet_metrics::GPU_STATE_CODE, |family| {
            for (node, gpu, state) in self.gpu_states() {
                let labels = [("node", node), ("gpu", &gpu.to_string())];
                family.write_line(&labels, f64::from(state.number_code()));
            }
        });
    }

    /// Writes what two aggregators of one cluster say alike.
    fn write_verdicts(&self, page: &mut PageOutput<'_>) {
        self.write_targets(page);
        self.write_totals(page);
        self.write_fleet(page);
        self.write_findings(page);
        self.write_omissions(page);
    }

    /// Node, number and state of each GPU.
    fn gpu_states(&self) -> impl Iterator<Item = (&str, usize, GpuState)> {
        let states = self.nodes.nodes.iter().flat_map(|line| {
            line.gpu_states.chars().enumerate().map(move |(gpu, code)| {
                (&*line.node, gpu, GpuState::from_letter_code(code).unwrap_or(GpuState::Unknown))
            })
        });
        states.take(MAX_GPUS)
    }

    fn write_targets(&self, page: &mut PageOutput<'_>) {
        let targets = &self.targets.targets;
        page.write_family(fleet_metrics::TARGETS, |family| {
            for state in [TargetState::Live, TargetState::Down, TargetState::Pending] {
                let count = targets.iter().filter(|line| line.state == state).count();
                family.write_line(&[("state", state.as_str())], count as f64);
            }
        });
        page.write_family(fleet_metrics::TARGET_UP, |family| {
            // A target that was not tried is neither up nor down.
            for line in targets.iter().filter(|line| line.state != TargetState::Pending) {
                let up = f64::from(u8::from(line.state == TargetState::Live));
                let node = line.node.as_deref().unwrap_or("");
                family.write_line(&[("target", &line.address), ("node", node)], up);
            }
        });
    }

    fn write_totals(&self, page: &mut PageOutput<'_>) {
        let totals = &self.targets.totals;
        page.write_family(fleet_metrics::SCRAPES, |family| {
            for (outcome, count) in &totals.scrapes {
                family.write_line(&[("outcome", outcome)], *count as f64);
            }
        });
        page.write_family(fleet_metrics::SAMPLES, |family| {
            family.write_line(&[], totals.samples as f64);
        });
        page.write_family(fleet_metrics::REJECTED, |family| {
            for (reason, count) in &totals.rejected {
                family.write_line(&[("reason", reason)], *count as f64);
            }
        });
    }

    /// Writes what limits leave out.
    fn write_omissions(&self, page: &mut PageOutput<'_>) {
        let left_out = &self.targets.left_out;
        page.write_family(fleet_metrics::FINDINGS_WITHOUT_PLACE, |family| {
            for (kind, findings) in &left_out.findings_without_place {
                family.write_line(&[("kind", kind.as_str())], f64::from(*findings));
            }
        });
        page.write_family(fleet_metrics::REFUSED_DEVICES, |family| {
            for (class, devices) in &left_out.refused_devices {
                family.write_line(&[("class", class)], *devices as f64);
            }
        });
        page.write_family(fleet_metrics::UNJUDGED_TARGETS, |family| {
            family.write_line(&[], f64::from(left_out.unjudged_targets));
        });
        page.write_family(fleet_metrics::DROPPED_BATCHES, |family| {
            for (reason, batches) in &left_out.dropped_batches {
                family.write_line(&[("reason", reason)], *batches as f64);
            }
        });
        page.write_family(fleet_metrics::TARGET_DROPPED_BATCHES, |family| {
            let lines = self.targets.targets.iter().filter(|line| line.dropped_batches > 0);
            let mut sorted: Vec<_> = lines.collect();
            sorted.sort_by_key(|line| Reverse(line.dropped_batches));
            for line in sorted.into_iter().take(MAX_DROPPING) {
                let node = line.node.as_deref().unwrap_or("");
                let labels = [("target", &*line.address), ("node", node)];
                family.write_line(&labels, line.dropped_batches as f64);
            }
        });
    }

    /// Writes the status of the recording, if there is one.
    fn write_recording_status(&self, page: &mut PageOutput<'_>) {
        let Some(status) = &self.targets.keeping else { return };
        page.write_family(fleet_metrics::RECORD_ACTIVE, |family| match &status.stopped {
            None => family.write_line(&[], 1.0),
            Some(stopped) => family.write_line(&[("reason", stopped.reason.as_str())], 0.0),
        });
        page.write_family(fleet_metrics::RECORD_BYTES, |family| {
            family.write_line(&[], status.bytes as f64);
        });
        page.write_family(fleet_metrics::RECORD_WRITTEN, |family| {
            family.write_line(&[], status.written as f64);
        });
        page.write_family(fleet_metrics::RECORD_DROPPED, |family| {
            family.write_line(&[("reason", "behind")], status.dropped_behind as f64);
            family.write_line(&[("reason", "stopped")], status.dropped_stopped as f64);
        });
    }

    /// Writes the state of the other aggregators of the cluster; of one that was not tried yet nothing is known.
    fn write_peers(&self, page: &mut PageOutput<'_>) {
        let peers = &self.targets.peers;
        page.write_family(fleet_metrics::PEER_UP, |family| {
            for peer in peers.iter().filter(|peer| peer.state != PeerState::Pending) {
                let up = f64::from(u8::from(peer.state == PeerState::Live));
                family.write_line(&[("peer", &peer.address)], up);
            }
        });
        page.write_family(fleet_metrics::PEER_WAITING, |family| {
            for peer in peers {
                family.write_line(&[("peer", &peer.address)], f64::from(peer.waiting_actions));
            }
        });
        page.write_family(fleet_metrics::PEER_PASSED, |family| {
            for peer in peers {
                family.write_line(&[("peer", &peer.address)], peer.passed_actions as f64);
            }
        });
    }

    fn write_fleet(&self, page: &mut PageOutput<'_>) {
        let counts = &self.overview.nodes;
        page.write_family(fleet_metrics::NODES, |family| {
            for (state, count) in [
                (NodeState::Live, counts.live),
                (NodeState::Stale, counts.stale),
                (NodeState::Down, counts.down),
            ] {
                family.write_line(&[("state", state.as_str())], f64::from(count));
            }
        });
        page.write_family(fleet_metrics::GPUS, |family| {
            for state in GpuState::ALL {
                let count = self.overview.gpus_in_state(*state);
                family.write_line(&[("state", state.as_str())], f64::from(count));
            }
        });
        page.write_family(fleet_metrics::GPU_STATE, |family| {
            for (node, gpu, state) in self.gpu_states() {
                let labels = [("node", node), ("gpu", &gpu.to_string()), ("state", state.as_str())];
                family.write_line(&labels, 1.0);
            }
        });
        page.write_family(fleet_metrics::GPU_STATE_RATIO, |family| self.write_state_ratios(family));
        page.write_family(fleet_metrics::JOB_GPUS, |family| {
            for job in &self.time.jobs {
                for count in &job.states {
                    let labels = [("job", job.job.as_str()), ("state", count.state.as_str())];
                    family.write_line(&labels, f64::from(count.gpus));
                }
            }
        });
        page.write_family(fleet_metrics::LOST_GPUS, |family| {
            family.write_line(&[], self.overview.lost.gpus);
        });
        self.write_losses(page);
        page.write_family(fleet_metrics::STARVED, |family| {
            for row in &self.time.starved {
                let labels = [("job", row.job.as_str()), ("cause", row.cause.as_str())];
                family.write_line(&labels, row.gpu_seconds);
            }
        });
    }

    /// Writes lost GPUs by cause, finding, node and job: four breakdowns of one number.
    fn write_losses(&self, page: &mut PageOutput<'_>) {
        let findings = &self.findings.findings;
        page.write_family(fleet_metrics::LOST_BY_CAUSE, |family| {
            let mut causes: BTreeMap<&str, f64> = BTreeMap::new();
            for finding in findings {
                *causes.entry(finding.kind.as_str()).or_default() += finding.lost_gpus;
            }
            causes.insert(LossCause::Idle.as_str(), self.overview.lost.idle_gpus);
            causes.insert(LossCause::Unexplained.as_str(), self.overview.lost.unexplained_gpus);
            for (cause, gpus) in causes {
                family.write_line(&[("cause", cause)], gpus);
            }
        });
        page.write_family(fleet_metrics::FINDING_LOST, |family| {
            for finding in findings.iter().take(MAX_FINDINGS) {
                let labels = [("id", finding.id.as_str()), ("kind", finding.kind.as_str())];
                family.write_line(&labels, finding.lost_gpus);
            }
        });
        page.write_family(fleet_metrics::NODE_LOST, |family| {
            for line in &self.nodes.nodes {
                family.write_line(&[("node", line.node.as_str())], line.lost_gpus);
            }
        });
        page.write_family(fleet_metrics::JOB_LOST, |family| {
            for job in &self.time.jobs {
                family.write_line(&[("job", job.job.as_str())], job.lost_gpus);
            }
        });
    }

    /// Writes every state of the fleet, and the states of each job that occur.
    fn write_state_ratios(&self, family: &mut FamilyOutput<'_, '_>) {
        let gpu_count = f64::from(self.overview.gpu_count());
        for state in GpuState::ALL.iter().filter(|_| gpu_count > 0.0) {
            let share = f64::from(self.overview.gpus_in_state(*state)) / gpu_count;
            family.write_line(&[("state", state.as_str())], share);
        }
        for job in &self.time.jobs {
            for count in &job.states {
                let labels = [("job", job.job.as_str()), ("state", count.state.as_str())];
                family.write_line(&labels, f64::from(count.gpus) / f64::from(job.gpus.max(1)));
            }
        }
    }

    fn write_findings(&self, page: &mut PageOutput<'_>) {
        page.write_family(fleet_metrics::FINDING, |family| {
            for finding in self.findings.findings.iter().take(MAX_FINDINGS) {
                let mut labels = vec![
                    ("id", finding.id.as_str()),
                    ("kind", finding.kind.as_str()),
                    ("severity", finding.severity.as_str()),
                ];
                let acknowledged = if finding.acknowledged.is_some() { "true" } else { "false" };
                labels.push(("acknowledged", acknowledged));
                labels.extend(entity_labels(&finding.entity));
                family.write_line(&labels, 1.0);
            }
        });
        page.write_family(fleet_metrics::FINDINGS_OPENED, |family| {
            for (kind, count) in &self.targets.totals.findings_opened {
                family.write_line(&[("kind", kind.as_str())], *count as f64);
            }
        });
    }
}

/// Writes the state of the receiver.
fn write_receive_status(page: &mut PageOutput<'_>, receive: &ReceiveStatus) {
    page.write_family(fleet_metrics::RECEIVE_REQUESTS, |family| {
        family.write_line(&[("outcome", "ok")], receive.requests as f64);
        family.write_line(&[("outcome", "invalid")], receive.invalid_requests as f64);
    });
    page.write_family(fleet_metrics::RECEIVE_SAMPLES, |family| {
        let samples = &receive.samples;
        for (outcome, count) in [
            ("used", samples.used),
            ("unknown", samples.unknown),
            ("without_target", samples.without_target),
            ("late", samples.late),
            ("old", samples.old),
            ("future", samples.future),
            ("over_limit", samples.over_limit),
        ] {
            family.write_line(&[("outcome", outcome)], count as f64);
        }
    });
    page.write_family(fleet_metrics::RECEIVE_WAITING, |family| {
        family.write_line(&[], receive.waiting_pages as f64);
    });
}

/// Writes the state of the store at `now`.
fn write_store_status(page: &mut PageOutput<'_>, store: &StoreStatus, now: UnixMs) {
    for (metric, value) in [
        (fleet_metrics::STORE_SENT, store.sent_samples),
        (fleet_metrics::STORE_SENT_BYTES, store.sent_bytes),
        (fleet_metrics::STORE_FAILED, store.failed_attempts),
        (fleet_metrics::STORE_WAITING_BYTES, store.waiting_bytes),
        (fleet_metrics::STORE_SERIES, store.series),
    ] {
        page.write_family(metric, |family| family.write_line(&[], value as f64));
    }
    page.write_family(fleet_metrics::STORE_WAITING_SECONDS, |family| {
        let age = store.oldest.map_or(0.0, |oldest| now.duration_since(oldest).as_secs_f64());
        family.write_line(&[], age);
    });
    page.write_family(fleet_metrics::STORE_REFUSED, |family| {
        if store.other_replica_samples > 0 {
            family.write_line(&[("status", "202")], store.other_replica_samples as f64);
        }
        for (status, samples) in &store.refused_samples {
            family.write_line(&[("status", &status.to_string())], *samples as f64);
        }
    });
    page.write_family(fleet_metrics::STORE_DROPPED, |family| {
        for (reason, samples) in &store.dropped_samples {
            family.write_line(&[("reason", reason)], *samples as f64);
        }
    });
}

/// Labels of an entity and its location; only labels that are known.
fn entity_labels(entity: &Entity) -> impl Iterator<Item = (&'static str, &str)> {
    let parts = [
        ("node", &entity.node),
        ("gpu", &entity.gpu),
        ("device", &entity.device),
        ("port", &entity.port),
        ("job", &entity.job),
        ("rail", &entity.rail),
        ("leaf", &entity.leaf),
        ("domain", &entity.domain),
        ("rack", &entity.rack),
        ("source", &entity.source),
    ];
    let present = parts.into_iter().filter_map(|(name, part)| Some((name, part.as_deref()?)));
    std::iter::once(("entity", entity.kind.as_str())).chain(present)
}

mod fabric_samples;
mod hourly_usage;
mod page_output;
mod screen_samples;
#[cfg(test)]
mod tests;
