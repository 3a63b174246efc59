//! Builds a report: every device once, every metric of a device once, and the plan that fills it.

use std::hash::BuildHasher;

use foldhash::fast::RandomState;
use hashbrown::{HashMap, HashSet, HashTable};

use super::decode_plan::{DecodeOp, DecodePlan, PartField, ValueRule};
use crate::{
    Device, DeviceClass, MetricId, Reading, Report, SanitizedText,
    catalogue::gpu::CLOCK_EVENTS,
    device::MAX_KEY_LABELS,
    text::{Reason, TextSample},
};

/// The separator of two label names of which either may identify a device.
const OR: char = '|';

/// Our names of devices by those of their exporter.
type DeviceAliases = HashMap<(DeviceClass, SanitizedText), SanitizedText, RandomState>;

/// A device as the page writes it, and its position in the report.
#[derive(Debug)]
struct KnownDevice<'a> {
    class: DeviceClass,
    raw: [&'a str; MAX_KEY_LABELS],
    index: u32,
}

/// The report, the indexes of its devices and samples, and the plan that fills them.
#[derive(Debug, Default)]
pub(super) struct ReportBuilder<'a> {
    /// The report so far.
    pub(super) report: Report,
    /// The operations of the lines so far.
    pub(super) plan: DecodePlan,
    /// Whether the page has a sample under gaunt's own names.
    pub(super) has_own_names: bool,
    /// Whether the meaning of a line depends on its value in a way that the plan cannot hold; the plan is then
    /// discarded.
    pub(super) not_replayable: bool,
    by_labels: HashTable<KnownDevice<'a>>,
    /// Two raw texts may become one sanitized text; then they are one device.
    devices: HashMap<Device, u32, RandomState>,
    sample_indexes: HashMap<(MetricId, u32), u32, RandomState>,
    /// The exporter's name of a device, and ours.
    aliases: DeviceAliases,
    state: RandomState,
}

impl<'a> ReportBuilder<'a> {
    /// The position of the device of `class` that the labels identify, added if it is new; none if a label is missing.
    pub(super) fn device_of_sample(
        &mut self,
        class: DeviceClass,
        sample: &TextSample<'_, 'a>,
    ) -> Option<u32> {
        self.device_by_labels(class, class.key_label_names(), sample)
    }

    /// The same, identified by labels of another exporter. An empty name stands for a key that no label holds.
    pub(super) fn device_by_labels(
        &mut self,
        class: DeviceClass,
        names: &[&str],
        sample: &TextSample<'_, 'a>,
    ) -> Option<u32> {
        let mut raw = [""; MAX_KEY_LABELS];
        let mut escaped = false;
        for (raw, name) in raw.iter_mut().zip(names).filter(|(_, name)| !name.is_empty()) {
            let label = find_label(sample, name)?;
            *raw = label.raw;
            escaped |= label.escaped;
        }
        let hash = self.state.hash_one((class, raw));
        let known_device =
            self.by_labels.find(hash, |device| device.class == class && device.raw == raw);
        if let Some(device) = known_device {
            return Some(device.index);
        }
        let value = |(raw, name): (&&'a str, &&str)| match find_label(sample, name) {
            Some(label) if escaped => label.unescaped_value().as_ref().into(),
            _ => SanitizedText::new(raw),
        };
        let key = raw.iter().zip(names).map(value).collect();
        let index = self.ensure_device(Device { class, key });
        let state = &self.state;
        self.by_labels.insert_unique(hash, KnownDevice { class, raw, index }, |device| {
            state.hash_one((device.class, device.raw))
        });
        Some(index)
    }

    /// The position of `device`, added if it is new.
    pub(super) fn ensure_device(&mut self, device: Device) -> u32 {
        let next = self.report.devices.len() as u32;
        let devices = &mut self.report.devices;
        *self.devices.entry(device).or_insert_with_key(|device| {
            devices.push(device.clone());
            next
        })
    }

    /// Adds a sample, unless the device has one of this metric.
    pub(super) fn add_sample(
        &mut self,
        device: u32,
        metric: MetricId,
        reading: Reading,
    ) -> Result<u32, Reason> {
        let index = self.report.samples.len() as u32;
        match self.sample_indexes.entry((metric, device)) {
            hashbrown::hash_map::Entry::Occupied(_) => return Err(Reason::SameDevice),
            hashbrown::hash_map::Entry::Vacant(entry) => entry.insert(index),
        };
        self.report.push(device, metric, reading);
        Ok(index)
    }

    /// Whether the device has a sample of this metric.
    pub(super) fn has_sample(&self, device: u32, metric: MetricId) -> bool {
        self.sample_indexes.contains_key(&(metric, device))
    }

    /// The position of the device's sample of this metric.
    pub(super) fn find_sample(&self, device: u32, metric: MetricId) -> Option<u32> {
        self.sample_indexes.get(&(metric, device)).copied()
    }

    /// Plans the value as the reading of a sample that lines before it filled in.
    pub(super) fn plan_overwrite(&mut self, index: u32, rule: ValueRule) -> DecodeOp {
        DecodeOp::Read { index, rule: self.plan.ensure_rule(rule) }
    }

    /// Plans the value of a part of a device as the reading of the part, and as a summand of another sample.
    pub(super) fn plan_part_field(
        &mut self,
        own: Option<(u32, MetricId, ValueRule)>,
        sum: Option<(u32, ValueRule)>,
    ) -> Result<DecodeOp, Reason> {
        let own = match own {
            Some((part, metric, rule)) => {
                let index = match self.find_sample(part, metric) {
                    Some(index) => index,
                    None => self.add_sample(part, metric, 0.0.into())?,
                };
                Some((index, self.plan.ensure_rule(rule)))
            }
            None => None,
        };
        let sum = sum.map(|(index, rule)| (index, self.plan.ensure_rule(rule)));
        Ok(self.plan.add_part_field(PartField { own, sums: [sum, None] }))
    }

    /// Plans the value as one of several that are added up to the reading of each of two metrics.
    pub(super) fn plan_two_sums(
        &mut self,
        device: u32,
        metrics: [MetricId; 2],
        rule: ValueRule,
    ) -> Result<DecodeOp, Reason> {
        let rule = self.plan.ensure_rule(rule);
        let mut sums = [None; 2];
        for (sum, metric) in sums.iter_mut().zip(metrics) {
            let index = match self.find_sample(device, metric) {
                Some(index) => index,
                None => self.add_sample(device, metric, 0.0.into())?,
            };
            *sum = Some((index, rule));
        }
        Ok(self.plan.add_part_field(PartField { own: None, sums }))
    }

    /// Takes a line out of the plan, and its summand out of the sum that it was added to.
    pub(super) fn withdraw_line(&mut self, op: usize, sum: Option<(u32, Reading)>) {
        self.plan.ops[op] = DecodeOp::Ignore;
        let Some((index, Reading::Value(summand))) = sum else { return };
        let reading = &mut self.report.samples[index as usize].reading;
        if let Reading::Value(value) = *reading {
            *reading = Reading::of(value - summand);
        }
    }

    /// Adds a reading that depends on the presence of the line and not on any value.
    pub(super) fn add_constant(
        &mut self,
        device: u32,
        metric: MetricId,
        reading: impl Into<Reading>,
    ) -> Result<(), Reason> {
        self.add_sample(device, metric, reading.into()).map(drop)
    }

    /// Sets a reading that depends on no value, or adds it.
    pub(super) fn set_constant(
        &mut self,
        device: u32,
        metric: MetricId,
        reading: impl Into<Reading>,
    ) {
        let reading = reading.into();
        match self.sample_indexes.get(&(metric, device)) {
            Some(index) => self.report.samples[*index as usize].reading = reading,
            None => drop(self.add_sample(device, metric, reading)),
        }
    }

    /// Plans the value as the reading of this metric.
    pub(super) fn plan_reading(
        &mut self,
        device: u32,
        metric: MetricId,
        rule: ValueRule,
    ) -> Result<DecodeOp, Reason> {
        let index = self.add_sample(device, metric, 0.0.into())?;
        Ok(DecodeOp::Read { index, rule: self.plan.ensure_rule(rule) })
    }

    /// The same for a foreign name. gaunt-node may have reported the value under both names; its own come first and
    /// take precedence.
    pub(super) fn plan_foreign_reading(
        &mut self,
        device: u32,
        metric: MetricId,
        rule: ValueRule,
    ) -> Result<DecodeOp, Reason> {
        if self.has_own_names && self.has_sample(device, metric) {
            return Ok(DecodeOp::Ignore);
        }
        self.plan_reading(device, metric, rule)
    }

    /// Plans the value as one of several that are added up to the reading of this metric.
    pub(super) fn plan_sum(&mut self, device: u32, metric: MetricId, rule: ValueRule) -> DecodeOp {
        let rule_at = self.plan.ensure_rule(rule);
        match self.sample_indexes.get(&(metric, device)) {
            Some(index) => DecodeOp::Add { index: *index, rule: rule_at },
            None => match self.plan_reading(device, metric, rule) {
                Ok(op) => op,
                Err(_) => DecodeOp::Ignore,
            },
        }
    }

    /// Plans the value as a mask of clock-event reasons.
    pub(super) fn plan_bitmask(
        &mut self,
        device: u32,
        rule: ValueRule,
    ) -> Result<DecodeOp, Reason> {
        if CLOCK_EVENTS.iter().any(|(_, metric)| self.has_sample(device, *metric)) {
            return if self.has_own_names { Ok(DecodeOp::Ignore) } else { Err(Reason::SameDevice) };
        }
        let index = self.report.samples.len() as u32;
        for (_, metric) in CLOCK_EVENTS {
            self.add_constant(device, *metric, 0.0)?;
        }
        Ok(DecodeOp::Bits { index, rule: self.plan.ensure_rule(rule) })
    }

    /// Records that the exporter's name `foreign` is our `own`, for every device that it names.
    pub(super) fn add_alias(
        &mut self,
        class: DeviceClass,
        foreign: SanitizedText,
        own: SanitizedText,
    ) {
        self.aliases.entry((class, foreign)).or_insert(own);
    }

    /// Renames the devices to our names, unless that would merge two of them.
    pub(super) fn apply_aliases(&mut self) {
        if self.aliases.is_empty() {
            return;
        }
        let mut uses: HashMap<(DeviceClass, &SanitizedText), u32, RandomState> = HashMap::default();
        for ((class, _), own) in &self.aliases {
            *uses.entry((*class, own)).or_default() += 1;
        }
        apply_xid_aliases(&mut self.plan.gpus, &self.aliases, &uses, &self.devices);
        for device in &mut self.report.devices {
            let class = if device.class.key_label_names().first() == Some(&"gpu") {
                DeviceClass::Gpu
            } else {
                device.class
            };
            let Some(foreign) = device.key.first().cloned() else { continue };
            let Some(own) = self.aliases.get(&(class, foreign.clone())) else { continue };
            if uses.get(&(class, own)) != Some(&1) {
                continue;
            }
            device.set_first_key(own);
            if self.devices.contains_key(device) {
                device.set_first_key(&foreign);
                continue;
            }
            self.devices.insert(device.clone(), 0);
        }
    }
}

/// The same for the GPUs with an XID.
fn apply_xid_aliases(
    gpus: &mut [SanitizedText],
    aliases: &DeviceAliases,
    uses: &HashMap<(DeviceClass, &SanitizedText), u32, RandomState>,
    devices: &HashMap<Device, u32, RandomState>,
) {
    let names: HashSet<SanitizedText, RandomState> = gpus.iter().cloned().collect();
    for foreign in gpus {
        let Some(own) = aliases.get(&(DeviceClass::Gpu, foreign.clone())) else { continue };
        let device = Device { class: DeviceClass::Gpu, key: [own.clone()].into() };
        let is_free = !names.contains(own) && !devices.contains_key(&device);
        if is_free && uses.get(&(DeviceClass::Gpu, own)) == Some(&1) {
            *foreign = own.clone();
        }
    }
}

/// The label of this name, or of the first of several names that the line has.
fn find_label<'s, 'a>(
    sample: &'s TextSample<'_, 'a>,
    name: &str,
) -> Option<&'s crate::text::SeriesLabel<'a>> {
    name.split(OR).find_map(|name| sample.find_label(name))
}

/// The value of a label of this name, or of the first of several names that the line has.
pub(super) fn label_text<'a>(
    sample: &TextSample<'_, 'a>,
    name: &str,
) -> Option<std::borrow::Cow<'a, str>> {
    find_label(sample, name).map(crate::text::SeriesLabel::unescaped_value)
}

/// Whether the report has this info series of the device at position `device`.
pub(super) fn has_info(report: &Report, device: u32, metric: MetricId) -> bool {
    report.infos.iter().any(|info| info.device == device && info.metric == metric)
}
