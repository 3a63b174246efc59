//! The view that answers are computed from: the current state, or as much as is kept of a past one.

use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock},
    time::Duration,
};

use gaunt_schema::{
    DeviceClass, FindingKind, GpuState, MetricId, Reading, SanitizedText, UnixMs,
    catalogue::{gpu, host, port},
    unit::MetricKind,
};

use super::{
    Engine, EngineOptions, LostGpuSeries,
    change_log::ChangeLog,
    snapshot_history::{SnapshotHistory, TickSnapshot},
};
use gaunt_api::{Answer, CumulativeTotals, FindingList, NodeList, Question, Refusal, TimeParam};
use gaunt_cluster::{Cluster, Node};
use gaunt_judge::{FleetLoss, GpuLoss, gpus_of_parts};

/// Metrics that hardly ever change and have no history: their current value also stands for the past.
const CONSTANT: [MetricId; 6] = [
    gpu::MEMORY_TOTAL,
    gpu::POWER_LIMIT,
    gpu::SM_CLOCK_MAX,
    host::CPUS,
    host::MEMORY_TOTAL,
    host::NETDEV_SPEED,
];

/// The port's logical state when traffic can flow.
const ACTIVE: f64 = 4.0;

/// The cluster and what was judged of it, as of the last tick or of a past one. Answers read nothing else.
#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    /// Inventory, jobs and topology are those of now, also in the past; values are read with the methods below.
    pub(super) cluster: &'a Cluster,
    pub(super) options: &'a EngineOptions,
    /// State and loss of every GPU.
    pub(super) loss: &'a FleetLoss,
    /// Open findings.
    pub(super) findings: &'a Arc<FindingList>,
    /// Closed findings, as of now.
    pub(super) closed: &'a FindingList,
    /// Findings above the limit of the list, by kind; not kept of the past.
    pub(super) without_place: Option<&'a BTreeMap<FindingKind, u32>>,
    /// The time of this view.
    pub(super) at: UnixMs,
    /// The past tick; none for now.
    pub(super) past: Option<&'a TickSnapshot>,
    /// Number of GPUs.
    pub(super) gpu_count: u32,
    pub(super) totals: &'a CumulativeTotals,
    /// Dropped batches, by reason.
    pub(super) dropped_batches: &'a BTreeMap<SanitizedText, u64>,
    /// Why the state is not saved now.
    pub(super) save_failure: Option<&'a SanitizedText>,
    pub(super) lost_series: &'a LostGpuSeries,
    pub(super) change_log: &'a ChangeLog,
    pub(super) snapshots: &'a SnapshotHistory,
    /// The list of all nodes, once it is built.
    nodes: &'a OnceLock<Arc<NodeList>>,
}

impl Engine {
    /// The view as of the last tick.
    pub(super) fn view(&self) -> View<'_> {
        View {
            cluster: &self.cluster,
            options: &self.options,
            loss: &self.loss,
            findings: &self.findings,
            closed: &self.closed,
            without_place: Some(&self.without_place),
            at: self.cluster.now(),
            past: None,
            gpu_count: self.overview.gpu_count(),
            totals: &self.totals,
            dropped_batches: &self.dropped_batches,
            save_failure: self.save_failure.as_ref(),
            lost_series: &self.lost_series,
            change_log: &self.change_log,
            snapshots: &self.snapshots,
            nodes: &self.nodes,
        }
    }

    /// Answers as of a past time.
    pub(super) fn answer_in_past(
        &self,
        when: TimeParam,
        question: &Question,
    ) -> Result<Answer, Refusal> {
        let now = self.cluster.now();
        let oldest = self.snapshots.oldest_time();
        let seconds = now.duration_since(oldest.unwrap_or(now)).as_secs();
        let at = when.to_instant(now);
        let Some(snapshot) = self.snapshots.snapshot_at(at) else {
            let recorded = match question {
                Question::Finding(id) => self.explain_earlier_finding(id, at),
                _ => None,
            };
            return recorded.map(Answer::Finding).ok_or(Refusal::NotKept { seconds, oldest });
        };
        let gpus = |(_, node): (_, &Node)| node.device_rows(DeviceClass::Gpu).len() as u32;
        let view = View {
            loss: &snapshot.unpack_loss(),
            findings: &snapshot.findings,
            without_place: None,
            at: snapshot.at,
            past: Some(snapshot),
            gpu_count: self.cluster.sorted_nodes().map(gpus).sum(),
            nodes: &OnceLock::new(),
            ..self.view()
        };
        self.answer_from_view(&view, question)
    }
}

impl<'a> View<'a> {
    /// One row per node, built once per tick.
    pub(super) fn all_nodes(&self) -> &'a Arc<NodeList> {
        self.nodes.get_or_init(|| Arc::new(self.node_list()))
    }

    /// State and loss of the GPU at this row.
    pub(super) fn gpu_loss(&self, row: u32) -> GpuLoss {
        self.loss.gpus.get(row as usize).copied().unwrap_or_default()
    }

    /// State of the GPU at this row.
    pub(super) fn gpu_state(&self, row: u32) -> GpuState {
        self.gpu_loss(row).shown_state()
    }

    /// Lost GPUs among these.
    pub(super) fn lost_gpus<'b>(&self, rows: impl IntoIterator<Item = &'b u32>) -> f64 {
        gpus_of_parts(rows.into_iter().map(|row| u64::from(self.gpu_loss(*row).lost_parts())).sum())
    }

    /// The last reading of a metric; in the past a value or none.
    pub(super) fn last_reading(&self, metric: MetricId, row: u32) -> Option<Reading> {
        match self.past {
            None => self.cluster.current_reading(metric, row),
            Some(_) => self.metric_value(metric, row).map(Reading::from),
        }
    }

    /// The value of a metric.
    pub(super) fn metric_value(&self, metric: MetricId, row: u32) -> Option<f64> {
        match self.past {
            None => self.cluster.current_value(metric, row),
            Some(_) if CONSTANT.contains(&metric) => self.cluster.current_value(metric, row),
            Some(_) if matches!(metric.catalogue_row().kind, MetricKind::Counter(_)) => None,
            Some(_) => self.cluster.value_at(metric, row, self.at),
        }
    }

    /// The rate of a counter per second.
    pub(super) fn counter_rate(&self, metric: MetricId, row: u32) -> Option<f64> {
        match self.past {
            None => self.cluster.current_rate(metric, row),
            Some(_) => self.cluster.value_at(metric, row, self.at),
        }
    }

    /// The recent points of a metric up to the time of this view, at most `most`.
    pub(super) fn past_points(
        &self,
        metric: MetricId,
        node: &Node,
        row: u32,
        most: usize,
    ) -> Option<Vec<Option<f32>>> {
        match self.past {
            None => self.cluster.recent_points(metric, node, row, most),
            Some(_) => self.cluster.points_until(metric, row, self.at, most),
        }
    }

    /// Whether traffic can flow over a port.
    pub(super) fn is_active(&self, row: u32) -> Option<bool> {
        match self.past {
            None => gaunt_judge::is_port_active(self.cluster, row),
            Some(_) => Some(self.metric_value(port::STATE, row)? == ACTIVE),
        }
    }

    /// The time since a node's values came, in seconds; unknown in the past.
    pub(super) fn node_age_seconds(&self, node: &Node) -> Option<f64> {
        Some(self.age_of(node.sampled?)?.as_secs_f64())
    }

    /// The age of something that arrived at a time; unknown in the past.
    pub(super) fn age_of(&self, came: UnixMs) -> Option<Duration> {
        self.past.is_none().then(|| self.at.duration_since(came))
    }
}
