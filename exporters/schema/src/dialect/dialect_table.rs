//! What the words of one exporter mean, as a table: names, the labels that name a device, the labels that say who it is.

use super::{
    dcgm_exporter,
    decode_plan::{BlankValues, DecodeOp, ValueRule},
    report_builder::{ReportBuilder, has_info, label_text},
};
use crate::{
    DeviceClass, Dialect, MetricId, Report, SanitizedText,
    catalogue::{UnitScale, gpu},
    text::{Reason, TextSample},
    unit::MetricKind,
};

/// The words of one exporter.
#[derive(Debug)]
pub(super) struct DialectTable {
    /// Whose words they are.
    pub(super) dialect: Dialect,
    /// Names, those that are equal side by side.
    pub(super) mappings: &'static [NameMapping],
    /// The labels that name a device of a class, where they are not ours: alternatives stand apart by a bar, and an
    /// empty name is for what the page does not say.
    pub(super) keys: &'static [(DeviceClass, &'static [&'static str])],
    /// What the labels of its series say of the devices.
    pub(super) identity: &'static [IdentityLabels],
    /// The labels that have the node's name, in the order in which they are believed.
    pub(super) node: &'static [&'static str],
    /// Labels that only series of a part of a device have: they say nothing of the whole.
    pub(super) parts: &'static [&'static str],
    /// What is no value.
    pub(super) blank: BlankValues,
}

/// One name, and what it means.
#[derive(Debug)]
pub(super) struct NameMapping {
    /// The name on the page.
    pub(super) name: &'static str,
    /// Only series with this label and value, or without the label if the value begins with a question mark.
    pub(super) when: Option<(&'static str, &'static str)>,
    /// What its value becomes.
    pub(super) to: MappingTarget,
}

/// What the value of a series becomes.
#[derive(Clone, Copy, Debug)]
pub(super) enum MappingTarget {
    /// The reading of a metric.
    Reading(MetricId, UnitScale),
    /// A part of the reading: series that differ in labels that we do not keep are added up.
    Sum(MetricId, UnitScale),
    /// One where it is this number, zero where it is another.
    Flag(MetricId, f64),
    /// Nothing, but its labels say who the device of this class is.
    IdentityOnly(DeviceClass),
    /// Nothing, but its value is what we call the device of this class.
    Index(DeviceClass),
}

/// Which info series the labels of a class make, ours and theirs; a constant stands behind an equals sign.
#[derive(Debug)]
pub(super) struct IdentityLabels {
    /// Of which devices.
    pub(super) class: DeviceClass,
    /// The info series.
    pub(super) info: MetricId,
    /// Our labels and theirs.
    pub(super) labels: &'static [(&'static str, &'static str)],
}

/// A name that is a row of ours in the same unit.
pub(super) const fn same_unit(name: &'static str, metric: MetricId) -> NameMapping {
    scaled_unit(name, metric, UnitScale::Same)
}

/// A name that is a row of ours in another unit.
pub(super) const fn scaled_unit(
    name: &'static str,
    metric: MetricId,
    scale: UnitScale,
) -> NameMapping {
    NameMapping { name, when: None, to: MappingTarget::Reading(metric, scale) }
}

/// A name whose series are added up to a row of ours.
pub(super) const fn sum_series(name: &'static str, metric: MetricId) -> NameMapping {
    NameMapping { name, when: None, to: MappingTarget::Sum(metric, UnitScale::Same) }
}

impl NameMapping {
    /// The word, only where a label has this value.
    pub(super) const fn when_label(mut self, label: &'static str, value: &'static str) -> Self {
        self.when = Some((label, value));
        self
    }

    fn matches_sample(&self, sample: &TextSample<'_, '_>) -> bool {
        self.when.is_none_or(|(label, wanted)| match wanted.strip_prefix('?') {
            Some(wanted) => sample.find_label(label).is_none_or(|label| label.raw == wanted),
            None => sample.find_label(label).is_some_and(|label| label.raw == wanted),
        })
    }
}

/// What a page in these words has told so far, beside its values.
#[derive(Debug, Default)]
pub(super) struct DecodeContext {
    /// The node's name.
    pub(super) node: Option<SanitizedText>,
    /// Devices that are identified, as positions in the report.
    identified: hashbrown::HashSet<u32, foldhash::fast::RandomState>,
}

impl DialectTable {
    /// The position of the device that a series is of.
    pub(super) fn device_of_series<'a>(
        &self,
        class: DeviceClass,
        assembly: &mut ReportBuilder<'a>,
        sample: &TextSample<'_, 'a>,
    ) -> Option<u32> {
        let names = self.keys.iter().find(|(of, _)| *of == class);
        assembly.device_by_labels(
            class,
            names.map_or(class.key_label_names(), |(_, names)| names),
            sample,
        )
    }

    /// Takes a series whose name is one of these words.
    pub(super) fn decode_series<'a>(
        &self,
        words: &[NameMapping],
        told: &mut DecodeContext,
        assembly: &mut ReportBuilder<'a>,
        sample: &TextSample<'_, 'a>,
    ) -> Result<DecodeOp, Reason> {
        let Some(word) = words.iter().find(|word| word.matches_sample(sample)) else {
            return Ok(DecodeOp::Ignore);
        };
        if self.parts.iter().any(|label| sample.find_label(label).is_some()) {
            return Ok(DecodeOp::Ignore);
        }
        let class = match word.to {
            MappingTarget::Reading(metric, _)
            | MappingTarget::Sum(metric, _)
            | MappingTarget::Flag(metric, _) => metric.catalogue_row().class,
            MappingTarget::IdentityOnly(class) | MappingTarget::Index(class) => class,
        };
        let device = self.device_of_series(class, assembly, sample).ok_or(Reason::NoDevice)?;
        self.identify_device(word.to, class, device, told, assembly, sample);
        let rule = |metric: MetricId, scale| ValueRule::of(metric, scale, self.blank);
        match word.to {
            // Two names may say the same: the old one and the new one.
            MappingTarget::Reading(metric, _) | MappingTarget::Flag(metric, _)
                if self.is_duplicate(device, metric, assembly) =>
            {
                Ok(DecodeOp::Ignore)
            }
            MappingTarget::Reading(metric, scale) => {
                assembly.plan_foreign_reading(device, metric, rule(metric, scale))
            }
            MappingTarget::Sum(metric, scale)
                if metric.catalogue_row().kind != MetricKind::Info =>
            {
                Ok(assembly.plan_sum(device, metric, rule(metric, scale)))
            }
            MappingTarget::Flag(metric, yes) => {
                let rule = ValueRule { true_value: Some(yes), ..rule(metric, UnitScale::Same) };
                assembly.plan_foreign_reading(device, metric, rule)
            }
            MappingTarget::Index(class) => {
                let theirs = assembly.report.devices[device as usize].key[0].clone();
                if sample.value >= 0.0 && sample.value.fract() == 0.0 {
                    assembly.add_alias(
                        class,
                        theirs,
                        SanitizedText::new(&format!("{}", sample.value)),
                    );
                }
                Ok(assembly.plan.require_value(sample.value))
            }
            MappingTarget::IdentityOnly(class) => {
                let index = label_text(sample, "index").filter(|_| class == DeviceClass::Gpu);
                if let Some(index) = index.filter(|index| index.bytes().all(|b| b.is_ascii_digit()))
                {
                    let theirs = assembly.report.devices[device as usize].key[0].clone();
                    assembly.add_alias(class, theirs, SanitizedText::new(&index));
                }
                Ok(DecodeOp::Ignore)
            }
            MappingTarget::Sum(..) => Ok(DecodeOp::Ignore),
        }
    }

    fn is_duplicate(&self, device: u32, metric: MetricId, assembly: &ReportBuilder<'_>) -> bool {
        self.dialect != Dialect::Snmp && assembly.has_sample(device, metric)
    }

    /// Notes who the device is and where, from the first series of it that says so.
    fn identify_device(
        &self,
        to: MappingTarget,
        class: DeviceClass,
        device: u32,
        told: &mut DecodeContext,
        assembly: &mut ReportBuilder<'_>,
        sample: &TextSample<'_, '_>,
    ) {
        // A series that is there to say who the device is may come after others of the device.
        if !told.identified.insert(device) && !matches!(to, MappingTarget::IdentityOnly(_)) {
            return;
        }
        if told.node.is_none() {
            let name = self.node.iter().find_map(|label| label_text(sample, label));
            told.node = name.map(|name| SanitizedText::new(&name));
        }
        for identity in self.identity.iter().filter(|identity| identity.class == class) {
            let known = identity.labels.iter().filter_map(|(ours, theirs)| {
                let value = match theirs.strip_prefix('=') {
                    Some(constant) => constant.into(),
                    None => label_text(sample, theirs)?,
                };
                Some((*ours, value))
            });
            let known: Vec<_> = known.collect();
            let labels: Vec<_> = known.iter().map(|(name, value)| (*name, &**value)).collect();
            add_info_labels(&mut assembly.report, device, identity.info, &labels);
        }
        if class == DeviceClass::Gpu {
            add_job_info(device, assembly, sample);
        }
    }
}

/// Adds to an info series of a device what is not in it yet.
fn add_info_labels(report: &mut Report, device: u32, metric: MetricId, labels: &[(&str, &str)]) {
    if labels.is_empty() {
        return;
    }
    let infos = report.infos.iter();
    let at = infos.clone().position(|info| info.device == device && info.metric == metric);
    let Some(at) = at else { return report.add_info(device, metric, labels) };
    for (name, value) in labels {
        if report.infos[at].labels.iter().all(|(known, _)| known != name) {
            report.infos[at].labels.push(((*name).into(), (*value).into()));
        }
    }
}

/// Notes which job holds a GPU, if its labels tell.
fn add_job_info(device: u32, assembly: &mut ReportBuilder<'_>, sample: &TextSample<'_, '_>) {
    if has_info(&assembly.report, device, gpu::JOB_INFO) {
        return;
    }
    if let Some(job) = label_text(sample, "hpc_job|job_id|slurm_job_id") {
        assembly.report.add_info(device, gpu::JOB_INFO, &[("job", &job)]);
    } else if let Some(pod) = label_text(sample, "pod") {
        let job = match label_text(sample, "namespace") {
            Some(namespace) => format!("{namespace}/{}", dcgm_exporter::pod_owner(&pod)),
            None => dcgm_exporter::pod_owner(&pod).to_owned(),
        };
        assembly.report.add_info(device, gpu::JOB_INFO, &[("job", &job), ("name", &pod)]);
    }
}
