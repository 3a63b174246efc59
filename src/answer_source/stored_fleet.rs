//! Stored fleet: the verdicts of one instant, read back from a store, and the answers that they give.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use gaunt_api::{
    FABRIC_SERIES, Finding, FindingGroup, FindingList, GpuTime, HeatMap, JobOwner, JobTime,
    LossCause, LostGpuTime, NodeCounts, NodeLine, NodeList, NodeState, Overview, StateCount,
};
use gaunt_engine::{EngineOptions, MAX_WORST, worst_findings};
use gaunt_schema::{
    Acknowledgement, Entity, EntityKind, FindingKind, GpuState, LifeState, MetricId, SanitizedText,
    Severity, UnixMs, catalogue::fleet_metrics, natural_order,
};
use gaunt_series::StoredSample;

use super::stored_fabric::StoredFabric;

/// The verdicts that are read of an instant.
const READ: [MetricId; 11] = [
    fleet_metrics::NODES,
    fleet_metrics::GPUS,
    fleet_metrics::LOST_GPUS,
    fleet_metrics::LOST_BY_CAUSE,
    fleet_metrics::FINDING,
    fleet_metrics::FINDING_LOST,
    fleet_metrics::FINDINGS_WITHOUT_PLACE,
    fleet_metrics::NODE_LOST,
    fleet_metrics::JOB_LOST,
    fleet_metrics::JOB_GPUS,
    fleet_metrics::GPU_STATE_CODE,
];

/// The most GPUs of a node, as in the cluster.
const MAX_NODE_GPUS: usize = 64;

/// Who acknowledged a finding: the store knows only that somebody did.
const SOMEBODY: &str = "(not stored)";

/// The verdicts of an instant.
#[derive(Debug, Default)]
pub(super) struct StoredFleet {
    /// The instant.
    pub(super) at: UnixMs,
    counts: NodeCounts,
    states: BTreeMap<GpuState, u32>,
    lost: f64,
    causes: BTreeMap<String, f64>,
    without_place: BTreeMap<String, f64>,
    nodes: BTreeMap<SanitizedText, StoredNode>,
    jobs: BTreeMap<SanitizedText, StoredJob>,
    findings: BTreeMap<String, Finding>,
    finding_losses: HashMap<String, f64>,
    /// The network.
    pub(super) fabric: StoredFabric,
}

/// A node.
#[derive(Debug, Default)]
struct StoredNode {
    lost: f64,
    gpus: Vec<GpuState>,
}

/// A job.
#[derive(Debug, Default)]
struct StoredJob {
    lost: f64,
    states: BTreeMap<GpuState, u32>,
}

/// A job, for its row.
#[derive(Debug)]
pub(super) struct JobLine {
    /// Its id.
    pub(super) job: SanitizedText,
    /// GPUs that it held.
    pub(super) gpus: u32,
    /// GPUs of which the state was known.
    pub(super) known: u32,
    /// Its lost GPUs.
    pub(super) lost: f64,
    /// The worst open finding on it.
    pub(super) finding: Option<FindingKind>,
}

impl StoredFleet {
    /// No verdict of this instant yet.
    pub(super) fn at_step(at: UnixMs) -> Self {
        Self { at, ..Self::default() }
    }

    /// The names of the series to read.
    pub(super) fn read_names() -> Vec<&'static str> {
        let fabric = FABRIC_SERIES.into_iter().chain([fleet_metrics::FLAGGED_PORT]);
        READ.into_iter().chain(fabric).map(|metric| metric.catalogue_row().name).collect()
    }

    /// Takes a sample. The other writer of a pair says the same; what is no verdict of gaunt is left out.
    pub(super) fn add_sample(&mut self, sample: &StoredSample<'_>) {
        let value = sample.value;
        let is = |metric: MetricId| sample.name == metric.catalogue_row().name;
        let count = |value: f64| value.clamp(0.0, f64::from(u32::MAX)) as u32;
        let text = |label: &str| SanitizedText::new(sample.label(label));
        let state = GpuState::parse(sample.label("state"));
        if is(fleet_metrics::NODES) {
            match sample.label("state") {
                "live" => self.counts.live = count(value),
                "stale" => self.counts.stale = count(value),
                "down" => self.counts.down = count(value),
                _ => {}
            }
        } else if is(fleet_metrics::GPUS) {
            self.states.extend(state.map(|state| (state, count(value))));
        } else if is(fleet_metrics::LOST_GPUS) {
            self.lost = value.max(0.0);
        } else if is(fleet_metrics::LOST_BY_CAUSE) {
            self.causes.insert(sample.label("cause").to_owned(), value);
        } else if is(fleet_metrics::FINDINGS_WITHOUT_PLACE) {
            self.without_place.insert(sample.label("kind").to_owned(), value);
        } else if is(fleet_metrics::FINDING_LOST) {
            self.finding_losses.insert(sample.label("id").to_owned(), value);
        } else if is(fleet_metrics::NODE_LOST) {
            self.nodes.entry(text("node")).or_default().lost = value;
        } else if is(fleet_metrics::JOB_LOST) {
            self.jobs.entry(text("exported_job")).or_default().lost = value;
        } else if is(fleet_metrics::JOB_GPUS) {
            let job = self.jobs.entry(text("exported_job")).or_default();
            job.states.extend(state.map(|state| (state, count(value))));
        } else if is(fleet_metrics::GPU_STATE_CODE) {
            self.add_gpu(sample);
        } else if is(fleet_metrics::FINDING)
            && let Some(finding) = read_finding(sample, self.at)
        {
            self.findings.insert(finding.id.clone(), finding);
        } else {
            self.fabric.add_sample(sample);
        }
    }

    fn add_gpu(&mut self, sample: &StoredSample<'_>) {
        let state = GpuState::ALL
            .iter()
            .find(|it| f64::from(it.number_code()).to_bits() == sample.value.to_bits());
        let gpu = sample.label("gpu").parse::<usize>().ok().filter(|gpu| *gpu < MAX_NODE_GPUS);
        let (Some(state), Some(gpu)) = (state, gpu) else { return };
        let node = self.nodes.entry(SanitizedText::new(sample.label("node"))).or_default();
        if node.gpus.len() <= gpu {
            node.gpus.resize(gpu + 1, GpuState::Unknown);
        }
        node.gpus[gpu] = *state;
    }

    /// Takes costs, and what the journal knows of these findings: text, start and evidence. It has a finding of that time
    /// if one of the same id had opened by then and had not closed.
    pub(super) fn join_journal(&mut self, journal: &[Arc<FindingList>]) {
        let step = Duration::from_mins(1);
        let mut known: HashMap<&str, &Finding> = HashMap::new();
        for finding in journal.iter().flat_map(|list| &list.findings) {
            let is_open = finding.life.closed.is_none_or(|closed| closed + step >= self.at);
            if is_open && finding.since <= self.at {
                known.entry(&finding.id).or_insert(finding);
            }
        }
        for finding in self.findings.values_mut() {
            if let Some(known) = known.get(finding.id.as_str()) {
                let (severity, acknowledged) = (finding.severity, finding.acknowledged.take());
                *finding = Finding { severity, ..(*known).clone() };
                finding.life.state = LifeState::Open;
                finding.life.closed = None;
                let is_of_then = |it: &Acknowledgement| it.at <= self.at;
                let named = known.acknowledged.clone().filter(is_of_then);
                finding.acknowledged = acknowledged.map(|unnamed| named.unwrap_or(unnamed));
            }
            finding.set_lost_gpus(self.finding_losses.get(&finding.id).copied().unwrap_or(0.0));
        }
    }

    /// The findings that were open, worst first.
    pub(super) fn finding_list(&self) -> FindingList {
        let mut findings: Vec<Finding> = self.findings.values().cloned().collect();
        findings.sort_by(|left, right| {
            let by_cost = right.lost_gpus.total_cmp(&left.lost_gpus);
            right.severity.cmp(&left.severity).then(by_cost).then(left.id.cmp(&right.id))
        });
        let total = findings.len() as u32;
        let groups = FindingGroup::group_findings(&findings, |_| JobOwner::default());
        FindingList { at: self.at, findings, total, matched: total, groups, contexts: Vec::new() }
    }

    /// The nodes, worst first.
    pub(super) fn node_list(&self) -> NodeList {
        let findings = self.finding_list();
        let worst = worst_kinds(&findings, |entity| entity.node.as_ref());
        let line = |(name, node): (&SanitizedText, &StoredNode)| {
            let is_silent = |state: &GpuState| matches!(state, GpuState::Stale | GpuState::Unknown);
            let is_stale = !node.gpus.is_empty() && node.gpus.iter().all(is_silent);
            NodeLine {
                node: name.clone(),
                state: if is_stale { NodeState::Stale } else { NodeState::Live },
                age_ms: None,
                gpu_states: node.gpus.iter().map(|state| state.letter_code()).collect(),
                lost_gpus: node.lost,
                utilization_ratio: None,
                power_watts: None,
                ports: (0, 0),
                jobs: Vec::new(),
                finding: worst.get(name.as_str()).copied(),
            }
        };
        let mut nodes: Vec<NodeLine> = self.nodes.iter().map(line).collect();
        nodes.sort_by(|left, right| {
            let by_loss = right.lost_gpus.total_cmp(&left.lost_gpus);
            let by_finding = right.finding.is_some().cmp(&left.finding.is_some());
            by_loss.then(by_finding).then_with(|| natural_order(&left.node, &right.node))
        });
        let total = nodes.len() as u32;
        NodeList { at: self.at, nodes, total, matched: total }
    }

    /// The jobs, by lost GPUs.
    pub(super) fn job_lines(&self) -> Vec<JobLine> {
        let findings = self.finding_list();
        let worst = worst_kinds(&findings, |entity| entity.job.as_ref());
        let held = self.jobs.iter().filter(|(name, _)| *name != gaunt_api::gpu_time::NOBODY);
        let line = |(name, job): (&SanitizedText, &StoredJob)| {
            let silent = [GpuState::Stale, GpuState::Unknown];
            let silent = silent.iter().filter_map(|state| job.states.get(state)).sum::<u32>();
            let gpus = job.states.values().sum::<u32>();
            let (lost, finding) = (job.lost, worst.get(name.as_str()).copied());
            JobLine { job: name.clone(), gpus, known: gpus.saturating_sub(silent), lost, finding }
        };
        let mut lines: Vec<JobLine> = held.map(line).collect();
        lines.sort_by(|left, right| {
            let by_loss = right.lost.total_cmp(&left.lost);
            by_loss.then_with(|| natural_order(&left.job, &right.job))
        });
        lines
    }

    /// GPU states of each job, the largest first.
    pub(super) fn gpu_time(&self) -> GpuTime {
        let job = |(name, job): (&SanitizedText, &StoredJob)| JobTime {
            job: name.clone(),
            gpus: job.states.values().sum(),
            states: count_states(&job.states),
            lost_gpus: job.lost,
        };
        let mut jobs: Vec<JobTime> = self.jobs.iter().map(job).collect();
        jobs.sort_by(|left, right| right.gpus.cmp(&left.gpus).then(left.job.cmp(&right.job)));
        GpuTime { at: self.at, jobs, unlisted_jobs: 0, starved: Vec::new() }
    }

    /// The summary, with the lost GPUs of the time before as pairs of instant and number, oldest first.
    pub(super) fn overview(
        &self,
        options: &EngineOptions,
        losses: &[(UnixMs, f64)],
        step: Duration,
        notes: Vec<SanitizedText>,
    ) -> Overview {
        let list = self.finding_list();
        let mut worst = self.node_list().nodes;
        worst.truncate(MAX_WORST);
        let (findings, groups) = worst_findings(&list);
        let mut heat = HeatMap::default();
        let mut names: Vec<&SanitizedText> = self
            .nodes
            .iter()
            .filter(|(_, node)| !node.gpus.is_empty())
            .map(|(name, _)| name)
            .collect();
        names.sort_by(|left, right| natural_order(left, right));
        for name in names {
            let gpus = &self.nodes[name].gpus;
            heat.nodes.push(name.clone());
            heat.gpus.push(gpus.len() as u16);
            heat.states.extend(gpus.iter().map(|state| state.letter_code()));
        }
        Overview {
            cluster: options.cluster.clone(),
            at: self.at,
            period_ms: options.period.as_millis() as u64,
            nodes: self.counts,
            states: count_states(&self.states),
            lost: self.lost_time(options, losses, step),
            findings_open: list.total,
            findings_acknowledged: list
                .findings
                .iter()
                .filter(|it| it.acknowledged.is_some())
                .count() as u32,
            findings_without_place: self.without_place.values().sum::<f64>() as u32,
            findings,
            groups,
            heat,
            worst,
            trouble: notes.clone(),
            source_notes: notes,
            ..Overview::default()
        }
    }

    fn lost_time(
        &self,
        options: &EngineOptions,
        losses: &[(UnixMs, f64)],
        step: Duration,
    ) -> LostGpuTime {
        let of = |cause: LossCause| self.causes.get(cause.as_str()).copied().unwrap_or(0.0);
        let (idle, unexplained) = (of(LossCause::Idle), of(LossCause::Unexplained));
        let unknown = [GpuState::Stale, GpuState::Unknown];
        let mut history = Vec::new();
        for (at, lost) in losses {
            // A step that is missing is unknown.
            let steps = self.at.duration_since(*at).as_millis() / step.as_millis().max(1);
            let place = steps as usize;
            if history.len() <= place {
                history.resize(place + 1, None);
            }
            history[place] = Some(*lost as f32);
        }
        history.reverse();
        LostGpuTime {
            gpus: self.lost,
            findings_gpus: (self.lost - idle - unexplained).max(0.0),
            idle_gpus: idle,
            unexplained_gpus: unexplained,
            unknown_gpus: unknown.iter().filter_map(|state| self.states.get(state)).sum(),
            cost_per_hour: options.price_per_gpu_hour.map(|price| price * self.lost),
            price_per_gpu_hour: options.price_per_gpu_hour,
            currency: options.currency.clone(),
            history,
            history_step_ms: step.as_millis() as u64,
        }
    }
}

/// The kind of the first finding about each entity of a list, by name.
fn worst_kinds(
    list: &FindingList,
    name: impl Fn(&Entity) -> Option<&SanitizedText>,
) -> HashMap<&str, FindingKind> {
    let mut worst = HashMap::new();
    for finding in &list.findings {
        if let Some(name) = name(&finding.entity) {
            worst.entry(name.as_str()).or_insert(finding.kind);
        }
    }
    worst
}

/// The states that occur, in their order.
fn count_states(states: &BTreeMap<GpuState, u32>) -> Vec<StateCount> {
    let present = states.iter().filter(|(_, gpus)| **gpus > 0);
    present.map(|(state, gpus)| StateCount { state: *state, gpus: *gpus }).collect()
}

/// A finding as its labels state it; none if they are not those of a finding.
fn read_finding(sample: &StoredSample<'_>, at: UnixMs) -> Option<Finding> {
    let part = |label: &str| {
        let value = sample.label(label);
        (!value.is_empty()).then(|| SanitizedText::new(value))
    };
    let severity = Severity::parse(sample.label("severity"))?;
    let entity = Entity {
        node: part("node"),
        gpu: part("gpu"),
        device: part("device"),
        port: part("port"),
        job: part("exported_job"),
        rail: part("rail"),
        leaf: part("leaf"),
        domain: part("domain"),
        rack: part("rack"),
        source: part("source"),
        ..Entity::new(EntityKind::parse(sample.label("entity"))?)
    };
    let mut finding = Finding::new(FindingKind::parse(sample.label("kind"))?, severity, entity);
    // Ids become parts of paths and texts of a terminal.
    finding.id = SanitizedText::new(sample.label("id")).to_string();
    finding.since = at;
    finding.summary = format!(
        "{}: {}; the store keeps no sentence, and this aggregator has none of it",
        finding.kind, finding.entity
    );
    finding.acknowledged = (sample.label("acknowledged") == "true").then(|| Acknowledgement {
        by: SOMEBODY.into(),
        at,
        note: SanitizedText::default(),
        severity,
    });
    Some(finding)
}
