//! dcgm-exporter: the identity of its GPUs and MIG instances, its fields under all their names, and its mask of clock-event
//! reasons.

use foldhash::fast::RandomState;
use hashbrown::{HashMap, HashSet};

use super::{
    dcgm_holders::HolderTable,
    dcgm_instances::{self, INSTANCE, InstanceField, PROFILE},
    dcgm_new_names::{DcgmField, FieldUnit},
    dcgm_ratio_unit::{NEW_DRIVER_LABEL, RatioEvidence},
    dcgm_shared_values::SharedValues,
    decode_plan::{BlankValues, DecodeOp, ValueRule},
    first_host::FirstHost,
    gpu_holders::{self, MAX_HOLDERS},
    report_builder::{ReportBuilder, has_info},
};
use crate::{
    Device, DeviceClass, MetricId, Report, SanitizedText,
    catalogue::{UnitScale, gpu, gpu_health as health, gpu_parts as parts},
    text::{Reason, SeriesLabel, TextSample},
};

/// The mask of clock-event reasons, under its two names.
const CLOCK_EVENTS: [&str; 2] =
    ["DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS"];

/// The most recent XID, under its two names; 0 if there was none.
const XID: [&str; 2] = ["DCGM_FI_DEV_XID_ERRORS", "DCGM_FI_DEV_XID_ERROR"];

/// The XIDs since the exporter started, one series each, which dcgm-exporter 4.8.3 and later count if asked to. Where a page
/// has them, no XID is missed between two scrapes.
const XID_TOTAL: &str = "DCGM_EXP_XID_ERRORS_TOTAL";

/// The label with the number of an XID.
const XID_NUMBER: &str = "xid";

/// Errors of all NVLinks of a GPU together, which gaunt reports per link: the sums over links of older GPUs, and the
/// counters of Hopper and later under their two names.
const LINK_ERRORS: [(&str, MetricId); 10] = [
    ("DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL", parts::NVLINK_REPLAY),
    ("DCGM_FI_DEV_NVLINK_REPLAY_ERROR_TOTAL", parts::NVLINK_REPLAY),
    ("DCGM_FI_DEV_NVLINK_REPLAY_TOTAL", parts::NVLINK_REPLAY),
    ("DCGM_FI_DEV_NVLINK_ERROR_DL_REPLAY", parts::NVLINK_REPLAY),
    ("DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL", parts::NVLINK_RECOVERY),
    ("DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_TOTAL", parts::NVLINK_RECOVERY),
    ("DCGM_FI_DEV_NVLINK_RECOVERY_TOTAL", parts::NVLINK_RECOVERY),
    ("DCGM_FI_DEV_NVLINK_ERROR_DL_RECOVERY", parts::NVLINK_RECOVERY),
    ("DCGM_FI_DEV_NVLINK_CRC_ERROR_TOTAL", parts::NVLINK_CRC),
    ("DCGM_FI_DEV_NVLINK_ERROR_DL_CRC", parts::NVLINK_CRC),
];

/// The device name of all NVLinks of a GPU together.
const ALL_LINKS: &str = "all";

/// The label of a series of one NVLink.
const LINK: &str = "nvlink";

/// The node's name, under its two spellings.
const NODE: [&str; 2] = ["Hostname", "hostname"];

/// The label that holds a GPU's UUID.
const UUID: &str = "UUID";

/// The label that holds a GPU's model.
const MODEL: &str = "modelName";

/// The separator of product name and profile in the name of an instance, as in the driver's own.
const BEFORE_PROFILE: &str = " MIG ";

/// The labels that identify a GPU, with our names for them.
const IDENTITY: [(&str, &str); 5] = [
    ("uuid", UUID),
    ("model", MODEL),
    ("pci_bus_id", "pci_bus_id"),
    ("driver", "DCGM_FI_DRIVER_VERSION"),
    ("driver", NEW_DRIVER_LABEL),
];

/// The state that is collected over the page.
#[derive(Debug, Default)]
pub(super) struct DcgmDecoder<'a> {
    /// The node's name, if a series carries it.
    pub(super) node: Option<SanitizedText>,
    /// What the page shows about the unit of ratios that may be percentages.
    pub(super) ratio_evidence: RatioEvidence,
    /// The GPUs that are identified, as positions in the report, with their UUIDs.
    identified: HashMap<u32, Option<&'a str>, RandomState>,
    /// The MIG instances, in the order of the page.
    instances: Vec<DcgmInstance>,
    /// The values that are those of a pod so far: pods that share a device repeat its values, or have their own.
    shared: SharedValues,
    /// The samples of GPUs that come from their instances, as sums or repeated by each.
    from_instances: HashSet<u32, RandomState>,
    /// Who holds the GPUs and instances.
    holders: HolderTable<'a>,
    host: FirstHost,
    /// The name under which the clock-event mask came first; its other name repeats the same value.
    mask: Option<&'a str>,
    /// The GPUs that have a line for their last XID, with their numbers in the plan.
    xid_gpus: HashMap<SanitizedText, u32, RandomState>,
}

/// The names that this module handles, with the metric and the unit of the value.
pub(super) fn special_names() -> impl Iterator<Item = (&'static str, MetricId, &'static str)> {
    let reasons =
        |name| gpu::CLOCK_EVENTS.iter().map(move |(_, metric)| (name, *metric, "bit mask"));
    let xids = XID.into_iter().map(|name| (name, parts::XID_ERRORS, "last XID"));
    let counts = LINK_ERRORS.into_iter().chain([(XID_TOTAL, parts::XID_ERRORS)]);
    let counts = counts.map(|(name, metric)| (name, metric, "count"));
    CLOCK_EVENTS.into_iter().flat_map(reasons).chain(xids).chain(counts)
}

/// A MIG instance, as positions in the report, and its labels.
#[derive(Debug)]
struct DcgmInstance {
    gpu: u32,
    part: u32,
    name: String,
    number: String,
}

fn link_error_metric(name: &str) -> Option<MetricId> {
    LINK_ERRORS.iter().find(|(other, _)| *other == name).map(|(_, metric)| *metric)
}

impl<'a> DcgmDecoder<'a> {
    /// Whether this module handles the name.
    pub(super) fn is_known_name(name: &str) -> bool {
        CLOCK_EVENTS.contains(&name)
            || XID.contains(&name)
            || name == XID_TOTAL
            || link_error_metric(name).is_some()
    }

    /// Decodes a series that is not a catalogue row under another name.
    pub(super) fn decode_series(
        &mut self,
        builder: &mut ReportBuilder<'a>,
        sample: &TextSample<'_, 'a>,
    ) -> Result<DecodeOp, Reason> {
        self.check_host(sample)?;
        if XID.contains(&sample.name) {
            return self.decode_xid(builder, sample);
        }
        if sample.name == XID_TOTAL {
            return Self::decode_xid_total(builder, sample);
        }
        if let Some(metric) = link_error_metric(sample.name) {
            return Self::decode_link_errors(builder, sample, metric);
        }
        self.decode_mask(builder, sample)
    }

    /// Decodes a field under one of the names of DCGM 4.6 and later.
    pub(super) fn decode_new_field(
        &mut self,
        builder: &mut ReportBuilder<'a>,
        sample: &TextSample<'_, 'a>,
        (field, is_base_unit): (&DcgmField, bool),
    ) -> Result<DecodeOp, Reason> {
        if is_base_unit {
            self.ratio_evidence.add_base_unit();
        }
        let rule = |scale| ValueRule::of(field.metric, scale, BlankValues::DcgmGauge);
        let rule = match field.unit {
            FieldUnit::Fixed(scale) => rule(scale),
            FieldUnit::RatioOrPercent => {
                self.ratio_evidence.add_value(sample, BlankValues::DcgmGauge);
                ValueRule { has_page_unit: true, ..rule(UnitScale::Same) }
            }
        };
        self.decode_field(builder, sample, field.metric, rule)
    }

    /// Decodes a field of a GPU or of a MIG instance.
    pub(super) fn decode_field(
        &mut self,
        builder: &mut ReportBuilder<'a>,
        sample: &TextSample<'_, 'a>,
        metric: MetricId,
        rule: ValueRule,
    ) -> Result<DecodeOp, Reason> {
        if sample.find_label(LINK).is_some() {
            return Ok(DecodeOp::Ignore);
        }
        self.check_host(sample)?;
        let gpu = builder.device_of_sample(DeviceClass::Gpu, sample).ok_or(Reason::NoDevice)?;
        self.identify_gpu(&mut builder.report, gpu, sample);
        let instance = sample.find_label(INSTANCE);
        // gaunt-node reports these names only beside its own.
        if builder.has_own_names && (instance.is_some() || builder.has_sample(gpu, metric)) {
            return Ok(DecodeOp::Ignore);
        }
        let Some(instance) = instance else {
            let has_holder = self.holders.add_holder(gpu, sample);
            return self.plan_gpu_field(builder, gpu, sample, (metric, rule), has_holder);
        };
        let key = [
            builder.report.devices[gpu as usize].key[0].clone(),
            instance.unescaped_value().as_ref().into(),
        ];
        let part = builder.ensure_device(Device { class: DeviceClass::Mig, key: key.into() });
        let has_holder = self.holders.add_holder(part, sample);
        self.identify_instance(builder, (gpu, part), sample);
        let InstanceField::OfInstance(own_metric, contribution) = InstanceField::of(metric) else {
            return self.plan_repeated_field(builder, gpu, (metric, rule), has_holder);
        };
        if !self.shared.is_instance_value(builder, (part, metric), has_holder) {
            return Ok(DecodeOp::Ignore);
        }
        let label = |name| sample.find_label(name).map(SeriesLabel::unescaped_value);
        let share = dcgm_instances::slice_share(
            &label(PROFILE).unwrap_or_default(),
            &label(MODEL).unwrap_or_default(),
        );
        let summand = contribution.summand_rule(rule, share);
        let sum = summand.and_then(|rule| Some((self.ensure_sum(builder, gpu, metric)?, rule)));
        if has_holder {
            let digits = sample.digits.as_bytes();
            let added = sum.map(|(index, rule)| (index, rule.apply_rule(sample.value, digits)));
            self.shared.add_holder_line(builder, (part, metric), added);
        }
        builder.plan_part_field(own_metric.map(|metric| (part, metric, rule)), sum)
    }

    /// Plans a value of a whole GPU that each of its instances repeats.
    fn plan_repeated_field(
        &mut self,
        builder: &mut ReportBuilder<'a>,
        gpu: u32,
        (metric, rule): (MetricId, ValueRule),
        has_holder: bool,
    ) -> Result<DecodeOp, Reason> {
        if let Some(index) = builder.find_sample(gpu, metric) {
            let replaces = self.from_instances.contains(&index)
                && self.shared.replaces_sample(index, has_holder);
            return Ok(if replaces {
                builder.plan_overwrite(index, rule)
            } else {
                DecodeOp::Ignore
            });
        }
        let index = builder.report.samples.len() as u32;
        self.from_instances.insert(index);
        if has_holder {
            self.shared.add_holder_sample(index);
        }
        builder.plan_reading(gpu, metric, rule)
    }

    /// The sum of a GPU over its instances, unless the GPU has a value of its own.
    fn ensure_sum(
        &mut self,
        builder: &mut ReportBuilder<'a>,
        gpu: u32,
        metric: MetricId,
    ) -> Option<u32> {
        if let Some(index) = builder.find_sample(gpu, metric) {
            return self.from_instances.contains(&index).then_some(index);
        }
        let index = builder.add_sample(gpu, metric, 0.0.into()).ok()?;
        self.from_instances.insert(index);
        Some(index)
    }

    /// Plans a value of a whole GPU. Pods that share it repeat it, or have values of their own: that without a pod is the
    /// GPU's, else the first one.
    fn plan_gpu_field(
        &mut self,
        builder: &mut ReportBuilder<'a>,
        gpu: u32,
        sample: &TextSample<'_, 'a>,
        (metric, rule): (MetricId, ValueRule),
        has_holder: bool,
    ) -> Result<DecodeOp, Reason> {
        match builder.find_sample(gpu, metric) {
            None => {
                if has_holder {
                    self.shared.add_holder_sample(builder.report.samples.len() as u32);
                }
                builder.plan_reading(gpu, metric, rule)
            }
            Some(index) if self.from_instances.remove(&index) => {
                if has_holder {
                    self.shared.add_holder_sample(index);
                }
                Ok(builder.plan_overwrite(index, rule))
            }
            Some(index)
                if self.is_same_gpu(gpu, sample)
                    && self.shared.replaces_sample(index, has_holder) =>
            {
                Ok(builder.plan_overwrite(index, rule))
            }
            Some(_) if self.is_same_gpu(gpu, sample) => Ok(DecodeOp::Ignore),
            Some(_) => Err(Reason::SameDevice),
        }
    }

    /// Whether a series is of the GPU that was identified under its number, as far as UUIDs show.
    fn is_same_gpu(&self, gpu: u32, sample: &TextSample<'_, 'a>) -> bool {
        let uuid = sample.find_label(UUID).map(|label| label.raw);
        self.identified
            .get(&gpu)
            .is_none_or(|known| known.is_none() || uuid.is_none() || *known == uuid)
    }

    /// Records the last XID of a GPU. The GPU itself may be lost: its other series report whether it is present.
    fn decode_xid(
        &mut self,
        builder: &mut ReportBuilder<'a>,
        sample: &TextSample<'_, 'a>,
    ) -> Result<DecodeOp, Reason> {
        let gpu = sample.find_label("gpu").ok_or(Reason::NoDevice)?;
        if builder.has_own_names {
            return Ok(DecodeOp::Ignore);
        }
        let gpus = &mut builder.plan.gpus;
        let number =
            self.xid_gpus.entry(gpu.unescaped_value().as_ref().into()).or_insert_with_key(|gpu| {
                gpus.push(gpu.clone());
                gpus.len() as u32 - 1
            });
        Ok(DecodeOp::Xid(*number))
    }

    /// Records how often a GPU had an XID. A page without errors has one series without the number of an XID, of value 0.
    fn decode_xid_total(
        builder: &mut ReportBuilder<'a>,
        sample: &TextSample<'_, 'a>,
    ) -> Result<DecodeOp, Reason> {
        let gpu = sample.find_label("gpu").ok_or(Reason::NoDevice)?;
        let number = sample.find_label(XID_NUMBER).map(SeriesLabel::unescaped_value);
        let is_number =
            |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let Some(number) = number.filter(|text| is_number(text)) else {
            return Ok(DecodeOp::Ignore);
        };
        if builder.has_own_names {
            return Ok(DecodeOp::Ignore);
        }
        let key = vec![gpu.unescaped_value().as_ref().into(), number.as_ref().into()];
        let device = builder.ensure_device(Device { class: DeviceClass::Xid, key: key.into() });
        // The pods and instances of a GPU repeat it.
        if builder.has_sample(device, parts::XID_ERRORS) {
            return Ok(DecodeOp::Ignore);
        }
        let rule = ValueRule::of(parts::XID_ERRORS, UnitScale::Same, BlankValues::DcgmCounter);
        builder.plan_foreign_reading(device, parts::XID_ERRORS, rule)
    }

    /// Records errors of one NVLink, or of all of a GPU as those of one.
    fn decode_link_errors(
        builder: &mut ReportBuilder<'a>,
        sample: &TextSample<'_, 'a>,
        metric: MetricId,
    ) -> Result<DecodeOp, Reason> {
        let gpu = sample.find_label("gpu").ok_or(Reason::NoDevice)?;
        // gaunt-node reports them per link, and under these names only in addition.
        if builder.has_own_names {
            return Ok(DecodeOp::Ignore);
        }
        let link = sample.find_label(LINK).map(SeriesLabel::unescaped_value);
        let link = SanitizedText::new(link.as_deref().unwrap_or(ALL_LINKS));
        let key = vec![gpu.unescaped_value().as_ref().into(), link];
        let device = builder.ensure_device(Device { class: DeviceClass::Nvlink, key: key.into() });
        // The pods and instances of a GPU repeat it.
        if builder.has_sample(device, metric) {
            return Ok(DecodeOp::Ignore);
        }
        let rule = ValueRule::of(metric, UnitScale::Same, BlankValues::DcgmCounter);
        builder.plan_foreign_reading(device, metric, rule)
    }

    /// Splits the mask of clock-event reasons.
    fn decode_mask(
        &mut self,
        builder: &mut ReportBuilder<'a>,
        sample: &TextSample<'_, 'a>,
    ) -> Result<DecodeOp, Reason> {
        let mask = *self.mask.get_or_insert(sample.name);
        if mask != sample.name {
            return Ok(DecodeOp::Ignore);
        }
        let device = builder.device_of_sample(DeviceClass::Gpu, sample).ok_or(Reason::NoDevice)?;
        self.identify_gpu(&mut builder.report, device, sample);
        // The pods and instances of a GPU repeat it.
        if builder.has_sample(device, gpu::CLOCK_EVENT_IDLE) && self.is_same_gpu(device, sample) {
            return Ok(DecodeOp::Ignore);
        }
        let rule = ValueRule {
            scale: UnitScale::Same,
            blank: BlankValues::DcgmGauge,
            end: None,
            has_page_unit: false,
            requires_whole: false,
            true_value: None,
            is_pcie_speed: false,
        };
        builder.plan_bitmask(device, rule)
    }

    /// Records the identity and place of the GPU from its first series.
    fn identify_gpu(&mut self, report: &mut Report, device: u32, sample: &TextSample<'_, 'a>) {
        if self.identified.contains_key(&device) {
            return;
        }
        self.identified.insert(device, sample.find_label(UUID).map(|label| label.raw));
        if self.node.is_none() {
            let name = NODE.iter().find_map(|label| sample.find_label(label));
            self.node = name.map(|label| label.unescaped_value().as_ref().into());
        }
        let value = |label: &str| sample.find_label(label).map(SeriesLabel::unescaped_value);
        let labels = IDENTITY
            .iter()
            .filter_map(|(own_label, foreign_label)| Some((*own_label, value(foreign_label)?)));
        let labels: Vec<_> = labels.collect();
        let labels: Vec<_> = labels.iter().map(|(name, value)| (*name, value.as_ref())).collect();
        if !labels.is_empty() && !has_info(report, device, gpu::INFO) {
            report.add_info(device, gpu::INFO, &labels);
        }
    }

    /// Records the identity of an instance from its first series, and that its GPU is partitioned.
    fn identify_instance(
        &mut self,
        builder: &mut ReportBuilder<'a>,
        (gpu, part): (u32, u32),
        sample: &TextSample<'_, 'a>,
    ) {
        if self.instances.iter().rev().any(|instance| instance.part == part) {
            return;
        }
        let label = |name| sample.find_label(name).map(SeriesLabel::unescaped_value);
        let [model, profile, number] =
            [MODEL, PROFILE, INSTANCE].map(|name| label(name).unwrap_or_default());
        let name = format!("{model}{BEFORE_PROFILE}{profile}");
        self.instances.push(DcgmInstance { gpu, part, name, number: number.into_owned() });
        if !builder.has_sample(gpu, health::MIG_MODE) {
            builder.set_constant(gpu, health::MIG_MODE, 1.0);
        }
    }

    /// Rejects a series of another node than the page's first: a page of several nodes, such as one of a federation, has
    /// several GPUs of one number.
    fn check_host(&mut self, sample: &TextSample<'_, 'a>) -> Result<(), Reason> {
        if self.host.is_another(&NODE, sample) { Err(Reason::OtherNode) } else { Ok(()) }
    }

    /// Adds who the instances are, and who holds the GPUs and instances, after all series.
    pub(super) fn add_infos(&mut self, report: &mut Report) {
        let holders_of = |device: u32| self.holders.of_device(device);
        for instance in &self.instances {
            let mut labels =
                vec![("name", instance.name.as_str()), ("gpu_instance", &instance.number)];
            if let [holder] = holders_of(instance.part) {
                labels
                    .extend(holder.pod_labels().iter().map(|(name, text)| (*name, text.as_str())));
            }
            report.add_info(instance.part, parts::MIG_INFO, &labels);
        }
        let mut gpus: Vec<u32> = self.identified.keys().copied().collect();
        gpus.sort_unstable();
        for gpu in gpus {
            if has_info(report, gpu, gpu::JOB_INFO) {
                continue;
            }
            let parts = self.instances.iter().filter(|instance| instance.gpu == gpu);
            let mut holders = holders_of(gpu).to_vec();
            for holder in parts.flat_map(|instance| holders_of(instance.part)) {
                if holders.len() < MAX_HOLDERS && !holders.contains(holder) {
                    holders.push(holder.clone());
                }
            }
            let labels = gpu_holders::job_labels(&holders);
            let labels: Vec<_> = labels.iter().map(|(name, text)| (*name, text.as_str())).collect();
            if !labels.is_empty() {
                report.add_info(gpu, gpu::JOB_INFO, &labels);
            }
        }
    }
}
