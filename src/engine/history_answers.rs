//! Answers about history: one metric of one device, or of many devices aggregated.

use gaunt_schema::{DeviceClass, SanitizedText, unit::Unit};

use super::{
    lost_gpus,
    subject_rows::{GpuRows, PortRows},
    view::View,
};
use gaunt_api::{
    BuiltinField, FieldKey, FieldKind, Filter, HistoryAggregation, HistoryQuery, MetricHistory,
    Refusal, Subject,
    filter::{MAX_ROWS, SelectedRows, select_rows},
};
use gaunt_cluster::NodeId;

/// Maximum number of devices that are aggregated: a large job, in a few milliseconds.
const MAX_DEVICES: u32 = 4_096;

impl View<'_> {
    /// One metric over time.
    pub(super) fn metric_history(&self, ask: &HistoryQuery) -> Result<MetricHistory, Refusal> {
        let subject = ask.of.subject();
        let bad = |why: String| Refusal::BadParameter {
            parameter: "metric".into(),
            why: SanitizedText::new(&why),
        };
        if ask.metric == "lost" && ask.of.is_all() {
            return Ok(self.lost_history(ask));
        }
        let unknown = || bad(format!("{} is not a field of {}", ask.metric, subject.as_str()));
        let field = subject.find_field(&ask.metric).ok_or_else(unknown)?;
        let (FieldKey::Metric(metric), FieldKind::Number(unit)) = (field.key, field.kind) else {
            return Err(bad(format!("{} is not a metric, so it has no history", field.name)));
        };
        if !self.cluster.has_history(metric) {
            let name = &field.name;
            return Err(bad(format!(
                "no history of {name}; set every_metric = true in [history] of the settings"
            )));
        }
        let rows = self.subject_rows(&ask.of);
        let selected = select_rows(&ask.of, &*rows, MAX_ROWS);
        let device_rows = self.device_rows(&ask.of, metric.catalogue_row().class, &selected);
        if device_rows.len() > MAX_DEVICES as usize {
            let devices = device_rows.len() as u32;
            return Err(Refusal::TooMany { devices, limit: MAX_DEVICES });
        }
        let mut sum = SeriesAggregate::default();
        for (row, id) in &device_rows {
            if let Some(past) = self
                .cluster
                .node_by_id(*id)
                .and_then(|node| self.past_points(metric, node, *row, usize::MAX))
            {
                sum.add_series(&past);
            }
        }
        let mut history = MetricHistory {
            at: self.at,
            metric: field.name.clone(),
            unit,
            devices: sum.devices,
            together: ask.together,
            step_ms: self.cluster.scrape_period().as_millis() as u64,
            mean: sum.aggregate_points(ask.together),
            low: Vec::new(),
            high: Vec::new(),
        };
        if let Some(span) = ask.span {
            history.crop_to(span);
        }
        history.downsample_to(ask.points);
        Ok(history)
    }

    /// The column rows of the selected devices, each once.
    fn device_rows(
        &self,
        of: &Filter,
        class: DeviceClass,
        selected: &SelectedRows,
    ) -> Vec<(u32, NodeId)> {
        let own = |id: NodeId| Some((self.cluster.node_by_id(id)?.own_row()?, id));
        let rows = selected.rows.iter();
        match of.subject() {
            Subject::Gpus => {
                let gpus = GpuRows::new(*self, of);
                if class == DeviceClass::Gpu {
                    return rows.map(|row| gpus.cluster_row(*row)).collect();
                }
                let mut ids: Vec<NodeId> = rows.map(|row| gpus.cluster_row(*row).1).collect();
                ids.sort_unstable();
                ids.dedup();
                ids.into_iter().filter_map(own).collect()
            }
            Subject::Ports => {
                let ports = PortRows::new(*self);
                rows.map(|row| ports.cluster_row(*row)).collect()
            }
            _ => {
                let nodes = &self.all_nodes().nodes;
                let named = |row: &u32| self.cluster.node_by_name(&nodes.get(*row as usize)?.node);
                rows.filter_map(|row| own(named(row)?.0)).collect()
            }
        }
    }

    /// The fleet's lost GPUs, as the overview shows them.
    fn lost_history(&self, ask: &HistoryQuery) -> MetricHistory {
        let mut history = MetricHistory {
            at: self.at,
            metric: Subject::Nodes
                .field_of_key(FieldKey::Builtin(BuiltinField::Lost))
                .map_or_else(String::new, |field| field.name.clone()),
            unit: Unit::Count,
            devices: self.cluster.row_count(DeviceClass::Gpu) as u32,
            together: HistoryAggregation::Sum,
            step_ms: lost_gpus::STEP.as_millis() as u64,
            mean: self.lost_series.points_until(self.at),
            low: Vec::new(),
            high: Vec::new(),
        };
        if let Some(span) = ask.span {
            history.crop_to(span);
        }
        history.downsample_to(ask.points);
        history
    }
}

/// Histories being aggregated, slot by slot, the newest last.
#[derive(Default)]
struct SeriesAggregate {
    devices: u32,
    slots: Vec<SlotAggregate>,
}

#[derive(Clone, Copy)]
struct SlotAggregate {
    sum: f64,
    known: u32,
    low: f32,
    high: f32,
}

const NOTHING: SlotAggregate =
    SlotAggregate { sum: 0.0, known: 0, low: f32::INFINITY, high: f32::NEG_INFINITY };

impl SeriesAggregate {
    fn add_series(&mut self, past: &[Option<f32>]) {
        self.devices += 1;
        if self.slots.len() < past.len() {
            self.slots.resize(past.len(), NOTHING);
        }
        let first = self.slots.len() - past.len();
        for (slot, point) in self.slots[first..].iter_mut().zip(past) {
            if let Some(point) = *point {
                slot.sum += f64::from(point);
                slot.known += 1;
                slot.low = slot.low.min(point);
                slot.high = slot.high.max(point);
            }
        }
    }

    fn aggregate_points(&self, together: HistoryAggregation) -> Vec<Option<f32>> {
        let point = |slot: &SlotAggregate| {
            (slot.known > 0).then(|| match together {
                HistoryAggregation::Mean => (slot.sum / f64::from(slot.known)) as f32,
                HistoryAggregation::Sum => slot.sum as f32,
                HistoryAggregation::Min => slot.low,
                HistoryAggregation::Max => slot.high,
            })
        };
        self.slots.iter().map(point).collect()
    }
}
