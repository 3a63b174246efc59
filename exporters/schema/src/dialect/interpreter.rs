//! What each sample of a page means, name by name; the report, its plan and the page's dialect come out.

use std::sync::LazyLock;

use hashbrown::{HashMap, HashSet};

use super::{
    Dialect, TABLES, absence,
    assembly::Assembly,
    dcgm::Dcgm,
    node_exporter::NodeExporter,
    plan::{self, Aside, Blank, Op, Plan, Rule},
    special,
    table::{Table, Told, Word},
};
use crate::{
    Absent, Class, Device, Info, Report, Safe, Shared,
    catalogue::{Named, host, named},
    safe::Texts,
    text::{Reason, Sample, write::NODE},
    unit::Kind,
};

/// What a metric name stands for.
#[derive(Clone, Copy, Debug)]
enum Meaning {
    /// A row of the catalogue, or several told apart by a label.
    Row(Named),
    /// A word of an exporter's table.
    Word(&'static Table, &'static [Word]),
    /// The mark of absence.
    Absence,
    /// Something of dcgm-exporter that is not one row.
    Dcgm,
    /// Something of node_exporter that is not one row.
    NodeExporter,
    /// Something of another exporter that no table can say.
    Special(&'static special::Special),
    /// Nothing to us.
    Nothing,
}

/// Reads the samples of one page, in order.
#[derive(Debug)]
pub(crate) struct Interpreter<'a> {
    assembly: Assembly<'a>,
    dcgm: Dcgm<'a>,
    node_exporter: NodeExporter<'a>,
    told: Told,
    aside: Aside,
    /// What labels say of who devices are.
    texts: Texts,
    /// The last name and its meaning: samples of one metric mostly stand together.
    last: (&'a str, Meaning),
    /// Samples understood, by dialect.
    counts: [u64; Dialect::ALL.len()],
}

/// What a page said, and how to read the next one like it.
#[derive(Debug)]
pub(crate) struct Understood {
    /// The report.
    pub(crate) report: Report,
    /// In whose words most of it was.
    pub(crate) dialect: Dialect,
    /// What became of each line, unless a line meant something that no plan can hold.
    pub(crate) plan: Option<Plan>,
    /// How many devices, with a sample each, are in the report for the XIDs of now: the last ones. They come and go
    /// while the plan stays.
    pub(crate) xids: usize,
}

impl Default for Interpreter<'_> {
    fn default() -> Self {
        Self {
            assembly: Assembly::default(),
            dcgm: Dcgm::default(),
            node_exporter: NodeExporter::default(),
            told: Told::default(),
            aside: Aside::default(),
            texts: Texts::default(),
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
        let (dialect, op) = match self.last.1 {
            Meaning::Nothing => {
                self.assembly.plan.ops.push(Op::Ignore);
                return Ok(());
            }
            Meaning::Row(named) => (named.dialect, self.row(named, sample)),
            Meaning::Word(table, words) => {
                (table.dialect, table.take(words, &mut self.told, &mut self.assembly, sample))
            }
            Meaning::Absence => (Dialect::Gaunt, absence::take(&mut self.assembly, sample)),
            Meaning::Dcgm => (Dialect::Dcgm, self.dcgm.take(&mut self.assembly, sample)),
            Meaning::NodeExporter => {
                (Dialect::NodeExporter, self.node_exporter.take(&mut self.assembly, sample))
            }
            Meaning::Special(special) => {
                (special.dialect, (special.take)(&mut self.told, &mut self.assembly, sample))
            }
        };
        let Assembly { plan, report, .. } = &mut self.assembly;
        plan.ops.push(op.unwrap_or_else(Op::Refuse));
        let op = op?;
        self.counts[dialect as usize] += 1;
        let digits = sample.digits.as_bytes();
        let run = plan.run(op, sample.value, digits, &mut report.samples, &mut self.aside);
        self.assembly.unsteady |= run.is_err();
        Ok(())
    }

    /// The report, in whose words most of the page was, and the plan.
    pub(crate) fn finish(mut self) -> Understood {
        self.node_exporter.finish(&mut self.assembly);
        self.assembly.rename();
        self.assembly.report.node_time = self.aside.time;
        let before = self.assembly.report.devices.len();
        self.show_xids();
        let xids = self.assembly.report.devices.len() - before;
        let Assembly { mut report, plan, unsteady, .. } = self.assembly;
        let foreign = || self.dcgm.node.or(self.told.node).or(self.node_exporter.node);
        report.node = report.node.or_else(foreign);
        let mut most = (0, Dialect::Unknown);
        for (count, dialect) in self.counts.into_iter().zip(Dialect::ALL) {
            if count > most.0 {
                most = (count, dialect);
            }
        }
        Understood { report, dialect: most.1, plan: (!unsteady).then_some(plan), xids }
    }

    /// Adds the XIDs that GPUs show, after all else.
    fn show_xids(&mut self) {
        let Assembly { plan, report, unsteady, .. } = &mut self.assembly;
        if plan.gpus.is_empty() {
            return;
        }
        let devices = report.devices.iter().filter(|device| device.class == Class::Xid).cloned();
        let told: HashSet<Device, foldhash::fast::RandomState> = devices.collect();
        // Whether a mark adds to these hangs on its value.
        *unsteady |= !told.is_empty();
        for shown in std::mem::take(&mut self.aside).xids() {
            let (device, sample) = plan.xid(shown);
            if !told.contains(&device) {
                report.samples.push(sample(report.devices.len() as u32));
                report.devices.push(device);
            }
        }
    }

    fn row(&mut self, named: Named, sample: &Sample<'_, 'a>) -> Result<Op, Reason> {
        let row = named.first.row();
        if row.class == Class::Fleet {
            // What an aggregator says of a whole fleet is not about this node.
            return Ok(Op::Ignore);
        }
        if named.dialect == Dialect::Dcgm && Dcgm::is_of_instance(sample) {
            return Ok(Op::Ignore);
        }
        let device = self.assembly.device_of(row.class, sample).ok_or(Reason::NoDevice)?;
        if named.dialect == Dialect::Dcgm {
            self.dcgm.identify(&mut self.assembly.report, device, sample);
        }
        if row.kind == Kind::Info {
            self.info(named, device, sample);
            return Ok(Op::Ignore);
        }
        let metric = match row.tag {
            Some((label, _)) if named.dialect == Dialect::Gaunt => {
                let value = sample.label(label).map(crate::text::Label::value);
                match absence::tagged(named, value.as_deref()) {
                    Some(metric) => metric,
                    // A value of the label that a newer gaunt knows.
                    None => return Ok(Op::Ignore),
                }
            }
            // A name of another exporter's stands for one row.
            _ => named.first,
        };
        if metric == host::NODE_TIME {
            return self.time(device, sample);
        }
        let blank = match (named.dialect, metric.row().kind) {
            (Dialect::Dcgm, Kind::Gauge) => Blank::DcgmGauge,
            (Dialect::Dcgm, _) => Blank::DcgmCounter,
            // An interface that has no rate has minus one.
            (Dialect::NodeExporter, _) if metric == host::NETDEV_SPEED => Blank::Negative,
            _ => Blank::Never,
        };
        let rule = Rule::of(metric, named.scale, blank);
        if named.dialect == Dialect::Gaunt {
            self.assembly.own = true;
            return self.assembly.read(device, metric, rule);
        }
        self.assembly.read_foreign(device, metric, rule)
    }

    /// The node's clock is of the page, not a sample of it, unless it shows no time.
    fn time(&mut self, device: u32, sample: &Sample<'_, 'a>) -> Result<Op, Reason> {
        if plan::is_time(sample.value) {
            return Ok(Op::Time);
        }
        self.assembly.unsteady = true;
        self.assembly.constant(device, host::NODE_TIME, Absent::Error)?;
        Ok(Op::Ignore)
    }

    fn info(&mut self, named: Named, device: u32, sample: &Sample<'_, 'a>) {
        let metric = named.first;
        let own = metric.row().class.labels();
        let rest = sample.labels.iter().filter(|label| !own.contains(&label.name));
        let texts = &mut self.texts;
        let labels = rest.map(|label| (texts.safe(label.name), texts.safe(&label.value())));
        let labels: Shared<(Safe, Safe)> = labels.collect();
        let report = &mut self.assembly.report;
        if metric == host::NODE_INFO && report.node.is_none() {
            let node = labels.iter().find(|(name, value)| *name == NODE && !value.is_empty());
            report.node = node.map(|(_, value)| value.clone());
        }
        report.infos.push(Info { metric, device, labels });
    }
}

/// Whether the name means anything to us.
pub(crate) fn knows(name: &str) -> bool {
    !matches!(meaning(name), Meaning::Nothing)
}

fn meaning(name: &str) -> Meaning {
    match named(name) {
        Some(named) => Meaning::Row(named),
        None if name == absence::NAME => Meaning::Absence,
        None if Dcgm::knows(name) => Meaning::Dcgm,
        None if NodeExporter::knows(name) => Meaning::NodeExporter,
        None => WORDS.get(name).copied().unwrap_or(Meaning::Nothing),
    }
}

type Words = HashMap<&'static str, Meaning, foldhash::fast::FixedState>;

/// Every word of every table.
static WORDS: LazyLock<Words> = LazyLock::new(|| {
    let mut all = Words::default();
    for table in &TABLES {
        for words in table.words.chunk_by(|one, next| one.name == next.name) {
            all.insert(words[0].name, Meaning::Word(table, words));
        }
    }
    for special in special::ALL.iter().copied().flatten() {
        all.insert(special.name, Meaning::Special(special));
    }
    all
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_exporters_have_one_word() {
        let mut seen = std::collections::HashSet::new();
        for table in &TABLES {
            for words in table.words.chunk_by(|one, next| one.name == next.name) {
                assert!(seen.insert(words[0].name), "{} stands twice, or apart", words[0].name);
                assert!(named(words[0].name).is_none(), "{} is in the catalogue", words[0].name);
            }
        }
        for special in special::ALL.iter().copied().flatten() {
            assert!(seen.insert(special.name), "{} stands twice", special.name);
        }
    }
}
