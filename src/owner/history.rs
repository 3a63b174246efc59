//! History: one metric of one device, or of many put together, from what the cluster keeps.

use gaunt_schema::{Class, Safe, unit::Unit};

use super::{
    Owner, lost,
    rows::{Gpus, Ports},
};
use crate::{
    answer::{
        FieldKind, Filter, History, HistoryAsk, Key, NodeList, Own, Refusal, Subject, Together,
        filter::{MAX_ROWS, Selected, select},
    },
    cluster::NodeId,
};

/// The most devices that are put together: a large job, in a few milliseconds.
const MAX_DEVICES: u32 = 4_096;

impl Owner {
    /// One metric over time.
    pub(super) fn history(&self, ask: &HistoryAsk, nodes: &NodeList) -> Result<History, Refusal> {
        let subject = ask.of.subject();
        let bad = |why: String| Refusal::BadParameter {
            parameter: "metric".into(),
            why: Safe::new(&why),
        };
        if ask.metric == "lost" && ask.of.is_all() {
            return Ok(self.lost_history(ask));
        }
        let unknown = || bad(format!("{} is no field of {}", ask.metric, subject.as_str()));
        let field = subject.field(&ask.metric).ok_or_else(unknown)?;
        let (Key::Metric(metric), FieldKind::Number(unit)) = (field.key, field.kind) else {
            return Err(bad(format!("{} is no metric: no past of it is kept", field.name)));
        };
        if !self.cluster.keeps_past(metric) {
            let name = &field.name;
            return Err(bad(format!(
                "of {name} no past is kept, unless every_metric = true in [history] of the settings"
            )));
        }
        let rows = self.rows(&ask.of, nodes);
        let selected = select(&ask.of, &*rows, MAX_ROWS);
        let places = self.places(&ask.of, metric.row().class, &selected, nodes);
        if places.len() > MAX_DEVICES as usize {
            let devices = places.len() as u32;
            return Err(Refusal::TooMany { devices, limit: MAX_DEVICES });
        }
        let mut sum = Sum::default();
        for (row, id) in &places {
            if let Some(past) = self
                .cluster
                .node(*id)
                .and_then(|node| self.sight().past(metric, node, *row, usize::MAX))
            {
                sum.add(&past);
            }
        }
        let mut history = History {
            at: self.sight().now(),
            metric: field.name.clone(),
            unit,
            devices: sum.devices,
            together: ask.together,
            step_ms: self.cluster.period().as_millis() as u64,
            mean: sum.points(ask.together),
            low: Vec::new(),
            high: Vec::new(),
        };
        history.thin(ask.points);
        Ok(history)
    }

    /// Where the cells of the selected rows are, each device once.
    fn places(
        &self,
        of: &Filter,
        class: Class,
        selected: &Selected,
        nodes: &NodeList,
    ) -> Vec<(u32, NodeId)> {
        let own = |id: NodeId| Some((self.cluster.node(id)?.own_row()?, id));
        let rows = selected.rows.iter();
        match of.subject() {
            Subject::Gpus => {
                let gpus = Gpus::new(self, of);
                if class == Class::Gpu {
                    return rows.map(|row| gpus.place(*row)).collect();
                }
                let mut ids: Vec<NodeId> = rows.map(|row| gpus.place(*row).1).collect();
                ids.sort_unstable();
                ids.dedup();
                ids.into_iter().filter_map(own).collect()
            }
            Subject::Ports => {
                let ports = Ports::new(self);
                rows.map(|row| ports.place(*row)).collect()
            }
            _ => {
                let named = |row: &u32| self.cluster.named(&nodes.nodes.get(*row as usize)?.node);
                rows.filter_map(|row| own(named(row)?.0)).collect()
            }
        }
    }

    /// The fleet's lost GPUs, as the overview shows them.
    fn lost_history(&self, ask: &HistoryAsk) -> History {
        let mut history = History {
            at: self.sight().now(),
            metric: Subject::Nodes
                .field_of(Key::Own(Own::Lost))
                .map_or_else(String::new, |field| field.name.clone()),
            unit: Unit::Count,
            devices: self.cluster.rows(Class::Gpu) as u32,
            together: Together::Sum,
            step_ms: lost::STEP.as_millis() as u64,
            mean: self.ledger.until(self.sight().now()),
            low: Vec::new(),
            high: Vec::new(),
        };
        history.thin(ask.points);
        history
    }
}

/// Pasts being put together, slot by slot, the newest last.
#[derive(Default)]
struct Sum {
    devices: u32,
    slots: Vec<Slot>,
}

#[derive(Clone, Copy)]
struct Slot {
    sum: f64,
    known: u32,
    low: f32,
    high: f32,
}

const NOTHING: Slot = Slot { sum: 0.0, known: 0, low: f32::INFINITY, high: f32::NEG_INFINITY };

impl Sum {
    fn add(&mut self, past: &[Option<f32>]) {
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

    fn points(&self, together: Together) -> Vec<Option<f32>> {
        let point = |slot: &Slot| {
            (slot.known > 0).then(|| match together {
                Together::Mean => (slot.sum / f64::from(slot.known)) as f32,
                Together::Sum => slot.sum as f32,
                Together::Min => slot.low,
                Together::Max => slot.high,
            })
        };
        self.slots.iter().map(point).collect()
    }
}
