//! What each sample of a page means, name by name; the report and the page's dialect come out.

use super::{Dialect, absence, assembly::Assembly, dcgm::Dcgm, node_exporter::NodeExporter};
use crate::{
    Absent, Class, Info, Reading, Report, Safe, UnixMs,
    catalogue::{Named, host, named},
    text::{Reason, Sample, write::NODE},
    unit::{Kind, Width},
};

/// The year 10,000 in seconds since the epoch: a clock that shows more is broken, and differences to it would not
/// fit into an instant.
const END_OF_TIME: f64 = 253_402_300_800.0;

/// What a metric name stands for.
#[derive(Clone, Copy, Debug)]
enum Meaning {
    /// A row of the catalogue, or several told apart by a label.
    Row(Named),
    /// The mark of absence.
    Absence,
    /// Something of dcgm-exporter that is not one row.
    Dcgm,
    /// Something of node_exporter that is not one row.
    NodeExporter,
    /// Nothing to us.
    Nothing,
}

/// Reads the samples of one page, in order.
#[derive(Debug)]
pub(crate) struct Interpreter<'a> {
    assembly: Assembly<'a>,
    dcgm: Dcgm<'a>,
    node_exporter: NodeExporter<'a>,
    /// The last name and its meaning: samples of one metric mostly stand together.
    last: (&'a str, Meaning),
    /// Samples understood, by dialect.
    counts: [u64; Dialect::ALL.len()],
}

impl Default for Interpreter<'_> {
    fn default() -> Self {
        Self {
            assembly: Assembly::default(),
            dcgm: Dcgm::default(),
            node_exporter: NodeExporter::default(),
            last: ("", Meaning::Nothing),
            counts: [0; Dialect::ALL.len()],
        }
    }
}

impl<'a> Interpreter<'a> {
    /// Takes one sample. A name that means nothing to us is passed over; that is no error.
    pub(crate) fn take(&mut self, sample: &Sample<'_, 'a>) -> Result<(), Reason> {
        if self.last.0 != sample.name {
            self.last = (sample.name, meaning(sample.name));
        }
        let (dialect, taken) = match self.last.1 {
            Meaning::Row(named) => (named.dialect, self.row(named, sample)),
            Meaning::Absence => (Dialect::Gaunt, absence::take(&mut self.assembly, sample)),
            Meaning::Dcgm => (Dialect::Dcgm, self.dcgm.take(&mut self.assembly, sample)),
            Meaning::NodeExporter => {
                (Dialect::NodeExporter, self.node_exporter.take(&mut self.assembly, sample))
            }
            Meaning::Nothing => return Ok(()),
        };
        if taken.is_ok() {
            self.counts[dialect as usize] += 1;
        }
        taken
    }

    /// The report, and in whose words most of the page was.
    pub(crate) fn finish(mut self) -> (Report, Dialect) {
        self.node_exporter.finish(&mut self.assembly);
        let mut report = self.assembly.report;
        let foreign = || self.dcgm.node.or(self.node_exporter.node);
        report.node = report.node.or_else(foreign);
        let mut most = (0, Dialect::Unknown);
        for (count, dialect) in self.counts.into_iter().zip(Dialect::ALL) {
            if count > most.0 {
                most = (count, dialect);
            }
        }
        (report, most.1)
    }

    fn row(&mut self, named: Named, sample: &Sample<'_, 'a>) -> Result<(), Reason> {
        let row = named.first.row();
        if row.class == Class::Fleet {
            // What an aggregator says of a whole fleet is not about this node.
            return Ok(());
        }
        if named.dialect == Dialect::Dcgm && Dcgm::is_of_instance(sample) {
            return Ok(());
        }
        let device = self.assembly.device_of(row.class, sample).ok_or(Reason::NoDevice)?;
        if named.dialect == Dialect::Dcgm {
            self.dcgm.identify(&mut self.assembly.report, device, sample);
        }
        if row.kind == Kind::Info {
            self.info(named, device, sample);
            return Ok(());
        }
        let metric = match row.tag {
            None => named.first,
            Some((label, _)) => {
                let value = sample.label(label).map(crate::text::Label::value);
                match absence::tagged(named, value.as_deref()) {
                    Some(metric) => metric,
                    // A value of the label that a newer gaunt knows.
                    None => return Ok(()),
                }
            }
        };
        let mut reading = reading(named, metric.row().kind, sample);
        if let (true, Some(seconds)) = (metric == host::NODE_TIME, reading.value()) {
            if (0.0..END_OF_TIME).contains(&seconds) {
                self.assembly.report.node_time.get_or_insert(UnixMs::from_seconds(seconds));
                return Ok(());
            }
            reading = Absent::Error.into();
        }
        if named.dialect == Dialect::Gaunt {
            self.assembly.own = true;
            return self.assembly.push(device, metric, reading);
        }
        self.assembly.push_foreign(device, metric, reading)
    }

    fn info(&mut self, named: Named, device: u32, sample: &Sample<'_, 'a>) {
        let metric = named.first;
        let own = metric.row().class.labels();
        let rest = sample.labels.iter().filter(|label| !own.contains(&label.name));
        let labels = rest.map(|label| (label.name.into(), label.value().as_ref().into()));
        let labels: Vec<(Safe, Safe)> = labels.collect();
        let report = &mut self.assembly.report;
        if metric == host::NODE_INFO && report.node.is_none() {
            let node = labels.iter().find(|(name, value)| *name == NODE && !value.is_empty());
            report.node = node.map(|(_, value)| value.clone());
        }
        report.infos.push(Info { metric, device, labels });
    }
}

fn meaning(name: &str) -> Meaning {
    match named(name) {
        Some(named) => Meaning::Row(named),
        None if name == absence::NAME => Meaning::Absence,
        None if Dcgm::knows(name) => Meaning::Dcgm,
        None if NodeExporter::knows(name) => Meaning::NodeExporter,
        None => Meaning::Nothing,
    }
}

/// The reading that a value stands for, in our unit.
fn reading(named: Named, kind: Kind, sample: &Sample<'_, '_>) -> Reading {
    let blank = match named.dialect {
        Dialect::Dcgm => Dcgm::blank(kind, sample),
        Dialect::NodeExporter => NodeExporter::blank(named.first, sample),
        _ => None,
    };
    if let Some(reason) = blank {
        return reason.into();
    }
    // Exactly at its end it stands still; above it the counter of this device is wider than the table knows.
    if let Kind::Counter(width @ Width::Saturating(_)) = kind
        && width.max() == Some(sample.value)
    {
        return Absent::Saturated.into();
    }
    Reading::of(named.scale.apply(sample.value))
}
