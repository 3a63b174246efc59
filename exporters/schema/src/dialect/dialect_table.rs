//! One exporter's format as a table: metric names, the labels that identify a device, the labels that describe it.

use super::{
    decode_plan::{BlankValues, DecodeOp, ValueRule},
    first_host::FirstHost,
    gpu_holders::{self, GpuHolder},
    report_builder::{ReportBuilder, has_info, label_text},
};
use crate::{
    DeviceClass, Dialect, MetricId, Report, SanitizedText,
    catalogue::{UnitScale, gpu},
    text::{Reason, TextSample},
    unit::MetricKind,
};

/// The table of one exporter.
#[derive(Debug)]
pub(super) struct DialectTable {
    /// Which exporter.
    pub(super) dialect: Dialect,
    /// Name mappings; those of equal names are adjacent.
    pub(super) mappings: &'static [NameMapping],
    /// The labels that identify a device of a class, where they differ from ours: a bar separates alternatives, and an
    /// empty name stands for a key that the page lacks.
    pub(super) keys: &'static [(DeviceClass, &'static [&'static str])],
    /// Which labels of its series describe the devices.
    pub(super) identity: &'static [IdentityLabels],
    /// The labels that hold the node's name, in order of precedence.
    pub(super) node: &'static [&'static str],
    /// Labels that only series of a part of a device have: such series do not describe the whole.
    pub(super) parts: &'static [&'static str],
    /// Which values are blank.
    pub(super) blank: BlankValues,
}

/// The mapping of one name.
#[derive(Debug)]
pub(super) struct NameMapping {
    /// The name on the page.
    pub(super) name: &'static str,
    /// Only series with this label and value, or without the label if the value begins with a question mark. An empty
    /// value stands for any.
    pub(super) when: Option<(&'static str, &'static str)>,
    /// The target of the mapping.
    pub(super) to: MappingTarget,
}

/// What the value of a series becomes.
#[derive(Clone, Copy, Debug)]
pub(super) enum MappingTarget {
    /// The reading of a metric.
    Reading(MetricId, UnitScale),
    /// A summand of the reading: series that differ only in labels that gaunt does not keep are added up.
    Sum(MetricId, UnitScale),
    /// One if the value is this number, else zero.
    Flag(MetricId, f64),
    /// The generation of PCIe with this speed in GT/s.
    PcieSpeed(MetricId),
    /// No reading: only its labels are used, which describe the device of this class.
    IdentityOnly(DeviceClass),
    /// No reading: its value is our index of the device of this class.
    Index(DeviceClass),
    /// Deliberately not read, for this reason.
    Declined(&'static str),
}

impl MappingTarget {
    /// The class of the device that a series is of; none if the series is not read.
    fn device_class(self) -> Option<DeviceClass> {
        match self {
            Self::Reading(metric, _)
            | Self::Sum(metric, _)
            | Self::Flag(metric, _)
            | Self::PcieSpeed(metric) => Some(metric.catalogue_row().class),
            Self::IdentityOnly(class) | Self::Index(class) => Some(class),
            Self::Declined(_) => None,
        }
    }
}

/// The info series that the labels of a class form: our name and theirs; an equals sign introduces a constant.
#[derive(Debug)]
pub(super) struct IdentityLabels {
    /// The class of the devices.
    pub(super) class: DeviceClass,
    /// The info series.
    pub(super) info: MetricId,
    /// Our labels and theirs.
    pub(super) labels: &'static [(&'static str, &'static str)],
}

/// A name that maps to a catalogue row in the same unit.
pub(super) const fn same_unit(name: &'static str, metric: MetricId) -> NameMapping {
    scaled_unit(name, metric, UnitScale::Same)
}

/// A name that maps to a catalogue row in another unit.
pub(super) const fn scaled_unit(
    name: &'static str,
    metric: MetricId,
    scale: UnitScale,
) -> NameMapping {
    NameMapping { name, when: None, to: MappingTarget::Reading(metric, scale) }
}

/// A name that is known and not read, for this reason.
pub(super) const fn declined(name: &'static str, reason: &'static str) -> NameMapping {
    NameMapping { name, when: None, to: MappingTarget::Declined(reason) }
}

/// A name whose series are added up to a catalogue row.
pub(super) const fn sum_series(name: &'static str, metric: MetricId) -> NameMapping {
    NameMapping { name, when: None, to: MappingTarget::Sum(metric, UnitScale::Same) }
}

impl NameMapping {
    /// Restricts the mapping to series whose label has this value.
    pub(super) const fn when_label(mut self, label: &'static str, value: &'static str) -> Self {
        self.when = Some((label, value));
        self
    }

    /// Whether the mapping applies to a series of its name.
    pub(super) fn matches_sample(&self, sample: &TextSample<'_, '_>) -> bool {
        self.when.is_none_or(|(label, expected)| match expected.strip_prefix('?') {
            Some(expected) => sample.find_label(label).is_none_or(|label| label.raw == expected),
            None => sample
                .find_label(label)
                .is_some_and(|label| expected.is_empty() || label.raw == expected),
        })
    }
}

/// The state of one page in this format, beside its values.
#[derive(Debug, Default)]
pub(super) struct DecodeContext {
    /// The node's name.
    pub(super) node: Option<SanitizedText>,
    host: FirstHost,
    /// Devices that are identified, as positions in the report.
    identified: hashbrown::HashSet<u32, foldhash::fast::RandomState>,
}

impl DialectTable {
    /// The position of the device that a series is of.
    pub(super) fn device_of_series<'a>(
        &self,
        class: DeviceClass,
        builder: &mut ReportBuilder<'a>,
        sample: &TextSample<'_, 'a>,
    ) -> Option<u32> {
        let names = self.keys.iter().find(|(key_class, _)| *key_class == class);
        builder.device_by_labels(
            class,
            names.map_or(class.key_label_names(), |(_, names)| names),
            sample,
        )
    }

    /// Decodes a series to which this mapping of the table applies.
    pub(super) fn decode_series<'a>(
        &self,
        mapping: &NameMapping,
        context: &mut DecodeContext,
        builder: &mut ReportBuilder<'a>,
        sample: &TextSample<'_, 'a>,
    ) -> Result<DecodeOp, Reason> {
        if self.parts.iter().any(|label| sample.find_label(label).is_some()) {
            return Ok(DecodeOp::Ignore);
        }
        let Some(class) = mapping.to.device_class() else { return Ok(DecodeOp::Ignore) };
        if context.host.is_another(self.node, sample) {
            return Err(Reason::OtherNode);
        }
        let device = self.device_of_series(class, builder, sample).ok_or(Reason::NoDevice)?;
        self.identify_device(mapping.to, class, device, context, builder, sample);
        if let Some((metric, rule)) = self.reading_rule(mapping.to) {
            // The old and the new name may both report the value.
            return if self.is_duplicate(device, metric, builder) {
                Ok(DecodeOp::Ignore)
            } else {
                builder.plan_foreign_reading(device, metric, rule)
            };
        }
        match mapping.to {
            MappingTarget::Sum(metric, scale)
                if metric.catalogue_row().kind != MetricKind::Info =>
            {
                Ok(builder.plan_sum(device, metric, ValueRule::of(metric, scale, self.blank)))
            }
            MappingTarget::Index(class) => {
                let foreign_key = builder.report.devices[device as usize].key[0].clone();
                if sample.value >= 0.0 && sample.value.fract() == 0.0 {
                    builder.add_alias(
                        class,
                        foreign_key,
                        SanitizedText::new(&format!("{}", sample.value)),
                    );
                }
                Ok(builder.plan.require_value(sample.value))
            }
            MappingTarget::IdentityOnly(class) => {
                let index = label_text(sample, "index").filter(|_| class == DeviceClass::Gpu);
                if let Some(index) =
                    index.filter(|index| index.bytes().all(|byte| byte.is_ascii_digit()))
                {
                    let foreign_key = builder.report.devices[device as usize].key[0].clone();
                    builder.add_alias(class, foreign_key, SanitizedText::new(&index));
                }
                Ok(DecodeOp::Ignore)
            }
            _ => Ok(DecodeOp::Ignore),
        }
    }

    /// The metric and the conversion of a value that is a reading by itself.
    fn reading_rule(&self, to: MappingTarget) -> Option<(MetricId, ValueRule)> {
        let rule = |metric, scale| ValueRule::of(metric, scale, self.blank);
        let same = |metric| rule(metric, UnitScale::Same);
        Some(match to {
            MappingTarget::Reading(metric, scale) => (metric, rule(metric, scale)),
            MappingTarget::Flag(metric, yes) => {
                (metric, ValueRule { true_value: Some(yes), ..same(metric) })
            }
            MappingTarget::PcieSpeed(metric) => {
                (metric, ValueRule { is_pcie_speed: true, ..same(metric) })
            }
            _ => return None,
        })
    }

    fn is_duplicate(&self, device: u32, metric: MetricId, builder: &ReportBuilder<'_>) -> bool {
        self.dialect != Dialect::Snmp && builder.has_sample(device, metric)
    }

    /// Records the identity and place of the device from its first series that carries them.
    fn identify_device(
        &self,
        to: MappingTarget,
        class: DeviceClass,
        device: u32,
        context: &mut DecodeContext,
        builder: &mut ReportBuilder<'_>,
        sample: &TextSample<'_, '_>,
    ) {
        // A series that exists only to identify the device may come after others of the device.
        if !context.identified.insert(device) && !matches!(to, MappingTarget::IdentityOnly(_)) {
            return;
        }
        if context.node.is_none() {
            let name = self.node.iter().find_map(|label| label_text(sample, label));
            context.node = name.map(|name| SanitizedText::new(&name));
        }
        for identity in self.identity.iter().filter(|identity| identity.class == class) {
            let labels = identity.labels.iter().filter_map(|(own_label, foreign_label)| {
                let value = match foreign_label.strip_prefix('=') {
                    Some(constant) => constant.into(),
                    None => label_text(sample, foreign_label)?,
                };
                Some((*own_label, value))
            });
            let labels: Vec<_> = labels.collect();
            let labels: Vec<_> = labels.iter().map(|(name, value)| (*name, &**value)).collect();
            add_info_labels(&mut builder.report, device, identity.info, &labels);
        }
        if class == DeviceClass::Gpu {
            add_job_info(device, builder, sample);
        }
    }
}

/// Adds missing labels to an info series of a device.
fn add_info_labels(report: &mut Report, device: u32, metric: MetricId, labels: &[(&str, &str)]) {
    if labels.is_empty() {
        return;
    }
    let infos = report.infos.iter();
    let index = infos.clone().position(|info| info.device == device && info.metric == metric);
    let Some(index) = index else { return report.add_info(device, metric, labels) };
    for (name, value) in labels {
        if report.infos[index].labels.iter().all(|(other, _)| other != name) {
            report.infos[index].labels.push(((*name).into(), (*value).into()));
        }
    }
}

/// Records which job holds a GPU, if its labels contain that.
fn add_job_info(device: u32, builder: &mut ReportBuilder<'_>, sample: &TextSample<'_, '_>) {
    if has_info(&builder.report, device, gpu::JOB_INFO) {
        return;
    }
    if let Some(holder) = GpuHolder::of_sample(sample) {
        let labels = gpu_holders::job_labels(&[holder]);
        let labels: Vec<_> = labels.iter().map(|(name, value)| (*name, &**value)).collect();
        builder.report.add_info(device, gpu::JOB_INFO, &labels);
    }
}
