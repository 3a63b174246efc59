//! What the words of one exporter mean, as a table: names, the labels that name a device, the labels that say who it is.

use super::{
    assembly::{Assembly, has_info, text},
    dcgm,
    plan::{Blank, Op, Rule},
};
use crate::{
    Class, Dialect, MetricId, Report, Safe,
    catalogue::{Scale, gpu},
    text::{Reason, Sample},
    unit::Kind,
};

/// The words of one exporter.
#[derive(Debug)]
pub(super) struct Table {
    /// Whose words they are.
    pub(super) dialect: Dialect,
    /// Names, those that are equal side by side.
    pub(super) words: &'static [Word],
    /// The labels that name a device of a class, where they are not ours: alternatives stand apart by a bar, and an
    /// empty name is for what the page does not say.
    pub(super) keys: &'static [(Class, &'static [&'static str])],
    /// What the labels of its series say of the devices.
    pub(super) identity: &'static [Identity],
    /// The labels that have the node's name, in the order in which they are believed.
    pub(super) node: &'static [&'static str],
    /// Labels that only series of a part of a device have: they say nothing of the whole.
    pub(super) parts: &'static [&'static str],
    /// What is no value.
    pub(super) blank: Blank,
}

/// One name, and what it means.
#[derive(Debug)]
pub(super) struct Word {
    /// The name on the page.
    pub(super) name: &'static str,
    /// Only series with this label and value, or without the label if the value begins with a question mark.
    pub(super) when: Option<(&'static str, &'static str)>,
    /// What its value becomes.
    pub(super) to: To,
}

/// What the value of a series becomes.
#[derive(Clone, Copy, Debug)]
pub(super) enum To {
    /// The reading of a metric.
    Row(MetricId, Scale),
    /// A part of the reading: series that differ in labels that we do not keep are added up.
    Sum(MetricId, Scale),
    /// One where it is this number, zero where it is another.
    Flag(MetricId, f64),
    /// Nothing, but its labels say who the device of this class is.
    Who(Class),
    /// Nothing, but its value is what we call the device of this class.
    Index(Class),
}

/// Which info series the labels of a class make, ours and theirs; a constant stands behind an equals sign.
#[derive(Debug)]
pub(super) struct Identity {
    /// Of which devices.
    pub(super) class: Class,
    /// The info series.
    pub(super) info: MetricId,
    /// Our labels and theirs.
    pub(super) labels: &'static [(&'static str, &'static str)],
}

/// A name that is a row of ours in the same unit.
pub(super) const fn same(name: &'static str, metric: MetricId) -> Word {
    row(name, metric, Scale::Same)
}

/// A name that is a row of ours in another unit.
pub(super) const fn row(name: &'static str, metric: MetricId, scale: Scale) -> Word {
    Word { name, when: None, to: To::Row(metric, scale) }
}

/// A name whose series are added up to a row of ours.
pub(super) const fn sum(name: &'static str, metric: MetricId) -> Word {
    Word { name, when: None, to: To::Sum(metric, Scale::Same) }
}

impl Word {
    /// The word, only where a label has this value.
    pub(super) const fn when(mut self, label: &'static str, value: &'static str) -> Self {
        self.when = Some((label, value));
        self
    }

    fn applies(&self, sample: &Sample<'_, '_>) -> bool {
        self.when.is_none_or(|(label, wanted)| match wanted.strip_prefix('?') {
            Some(wanted) => sample.label(label).is_none_or(|label| label.raw == wanted),
            None => sample.label(label).is_some_and(|label| label.raw == wanted),
        })
    }
}

/// What a page in these words has told so far, beside its values.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// The node's name.
    pub(super) node: Option<Safe>,
    /// Devices that are identified, as positions in the report.
    identified: hashbrown::HashSet<u32, foldhash::fast::RandomState>,
}

impl Table {
    /// The position of the device that a series is of.
    pub(super) fn device<'a>(
        &self,
        class: Class,
        assembly: &mut Assembly<'a>,
        sample: &Sample<'_, 'a>,
    ) -> Option<u32> {
        let names = self.keys.iter().find(|(of, _)| *of == class);
        assembly.device_by(class, names.map_or(class.labels(), |(_, names)| names), sample)
    }

    /// Takes a series whose name is one of these words.
    pub(super) fn take<'a>(
        &self,
        words: &[Word],
        told: &mut Told,
        assembly: &mut Assembly<'a>,
        sample: &Sample<'_, 'a>,
    ) -> Result<Op, Reason> {
        let Some(word) = words.iter().find(|word| word.applies(sample)) else {
            return Ok(Op::Ignore);
        };
        if self.parts.iter().any(|label| sample.label(label).is_some()) {
            return Ok(Op::Ignore);
        }
        let class = match word.to {
            To::Row(metric, _) | To::Sum(metric, _) | To::Flag(metric, _) => metric.row().class,
            To::Who(class) | To::Index(class) => class,
        };
        let device = self.device(class, assembly, sample).ok_or(Reason::NoDevice)?;
        self.identify(word.to, class, device, told, assembly, sample);
        let rule = |metric: MetricId, scale| Rule::of(metric, scale, self.blank);
        match word.to {
            // Two names may say the same: the old one and the new one.
            To::Row(metric, _) | To::Flag(metric, _) if self.is_told(device, metric, assembly) => {
                Ok(Op::Ignore)
            }
            To::Row(metric, scale) => assembly.read_foreign(device, metric, rule(metric, scale)),
            To::Sum(metric, scale) if metric.row().kind != Kind::Info => {
                Ok(assembly.sum(device, metric, rule(metric, scale)))
            }
            To::Flag(metric, yes) => {
                let rule = Rule { yes: Some(yes), ..rule(metric, Scale::Same) };
                assembly.read_foreign(device, metric, rule)
            }
            To::Index(class) => {
                let theirs = assembly.report.devices[device as usize].key[0].clone();
                if sample.value >= 0.0 && sample.value.fract() == 0.0 {
                    assembly.alias(class, theirs, Safe::new(&format!("{}", sample.value)));
                }
                Ok(assembly.plan.only(sample.value))
            }
            To::Who(class) => {
                let index = text(sample, "index").filter(|_| class == Class::Gpu);
                if let Some(index) = index.filter(|index| index.bytes().all(|b| b.is_ascii_digit()))
                {
                    let theirs = assembly.report.devices[device as usize].key[0].clone();
                    assembly.alias(class, theirs, Safe::new(&index));
                }
                Ok(Op::Ignore)
            }
            To::Sum(..) => Ok(Op::Ignore),
        }
    }

    fn is_told(&self, device: u32, metric: MetricId, assembly: &Assembly<'_>) -> bool {
        self.dialect != Dialect::Snmp && assembly.has(device, metric)
    }

    /// Notes who the device is and where, from the first series of it that says so.
    fn identify(
        &self,
        to: To,
        class: Class,
        device: u32,
        told: &mut Told,
        assembly: &mut Assembly<'_>,
        sample: &Sample<'_, '_>,
    ) {
        // A series that is there to say who the device is may come after others of the device.
        if !told.identified.insert(device) && !matches!(to, To::Who(_)) {
            return;
        }
        if told.node.is_none() {
            let name = self.node.iter().find_map(|label| text(sample, label));
            told.node = name.map(|name| Safe::new(&name));
        }
        for identity in self.identity.iter().filter(|identity| identity.class == class) {
            let known = identity.labels.iter().filter_map(|(ours, theirs)| {
                let value = match theirs.strip_prefix('=') {
                    Some(constant) => constant.into(),
                    None => text(sample, theirs)?,
                };
                Some((*ours, value))
            });
            let known: Vec<_> = known.collect();
            let labels: Vec<_> = known.iter().map(|(name, value)| (*name, &**value)).collect();
            tell(&mut assembly.report, device, identity.info, &labels);
        }
        if class == Class::Gpu {
            hold(device, assembly, sample);
        }
    }
}

/// Adds to an info series of a device what is not in it yet.
fn tell(report: &mut Report, device: u32, metric: MetricId, labels: &[(&str, &str)]) {
    if labels.is_empty() {
        return;
    }
    let infos = report.infos.iter();
    let at = infos.clone().position(|info| info.device == device && info.metric == metric);
    let Some(at) = at else { return report.info(device, metric, labels) };
    for (name, value) in labels {
        if report.infos[at].labels.iter().all(|(known, _)| known != name) {
            report.infos[at].labels.push(((*name).into(), (*value).into()));
        }
    }
}

/// Notes which job holds a GPU, if its labels tell.
fn hold(device: u32, assembly: &mut Assembly<'_>, sample: &Sample<'_, '_>) {
    if has_info(&assembly.report, device, gpu::JOB_INFO) {
        return;
    }
    if let Some(job) = text(sample, "hpc_job|job_id|slurm_job_id") {
        assembly.report.info(device, gpu::JOB_INFO, &[("job", &job)]);
    } else if let Some(pod) = text(sample, "pod") {
        let job = match text(sample, "namespace") {
            Some(namespace) => format!("{namespace}/{}", dcgm::owner(&pod)),
            None => dcgm::owner(&pod).to_owned(),
        };
        assembly.report.info(device, gpu::JOB_INFO, &[("job", &job), ("name", &pod)]);
    }
}
