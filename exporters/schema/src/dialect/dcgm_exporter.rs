//! dcgm-exporter: the identity of its GPUs and its mask of clock-event reasons.

use foldhash::fast::RandomState;
use hashbrown::{HashMap, HashSet};

use super::{
    decode_plan::{BlankValues, DecodeOp, ValueRule},
    report_builder::{ReportBuilder, has_info},
};
use crate::{
    Device, DeviceClass, MetricId, Report, SanitizedText,
    catalogue::{UnitScale, gpu, gpu_parts as parts},
    text::{Reason, SeriesLabel, TextSample},
};

/// The mask of clock-event reasons, under its two names.
const CLOCK_EVENTS: [&str; 2] =
    ["DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS"];

/// The most recent XID, under its two names; 0 if there was none.
const XID: [&str; 2] = ["DCGM_FI_DEV_XID_ERRORS", "DCGM_FI_DEV_XID_ERROR"];

/// Errors of all NVLinks of a GPU together, which gaunt reports per link.
const LINK_ERRORS: [(&str, MetricId); 3] = [
    ("DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", parts::NVLINK_CRC),
    ("DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL", parts::NVLINK_REPLAY),
    ("DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL", parts::NVLINK_RECOVERY),
];

/// The device name of all NVLinks of a GPU together.
const ALL_LINKS: &str = "all";

/// The label that only series of a MIG instance have: they do not describe the whole GPU.
const INSTANCE: &str = "GPU_I_ID";

/// The node's name, under its two spellings.
const NODE: [&str; 2] = ["Hostname", "hostname"];

/// The labels that identify a GPU, with our names for them.
const IDENTITY: [(&str, &str); 5] = [
    ("uuid", "UUID"),
    ("model", "modelName"),
    ("pci_bus_id", "pci_bus_id"),
    ("driver", "DCGM_FI_DRIVER_VERSION"),
    ("driver", "DCGM_FI_SYSTEM_DRIVER_VERSION"),
];

/// The state that is collected over the page.
#[derive(Debug, Default)]
pub(super) struct DcgmDecoder<'a> {
    /// The node's name, if a series carries it.
    pub(super) node: Option<SanitizedText>,
    /// The GPUs that are identified, as positions in the report.
    identified: HashSet<u32, RandomState>,
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
    let links = LINK_ERRORS.into_iter().map(|(name, metric)| (name, metric, "count"));
    CLOCK_EVENTS.into_iter().flat_map(reasons).chain(xids).chain(links)
}

fn link_error_metric(name: &str) -> Option<MetricId> {
    LINK_ERRORS.iter().find(|(other, _)| *other == name).map(|(_, metric)| *metric)
}

impl<'a> DcgmDecoder<'a> {
    /// Whether this module handles the name.
    pub(super) fn is_known_name(name: &str) -> bool {
        CLOCK_EVENTS.contains(&name) || XID.contains(&name) || link_error_metric(name).is_some()
    }

    /// Whether the series is of a MIG instance.
    pub(super) fn is_mig_series(sample: &TextSample<'_, '_>) -> bool {
        sample.find_label(INSTANCE).is_some()
    }

    /// Decodes a series that is not a catalogue row under another name.
    pub(super) fn decode_series(
        &mut self,
        builder: &mut ReportBuilder<'a>,
        sample: &TextSample<'_, 'a>,
    ) -> Result<DecodeOp, Reason> {
        if XID.contains(&sample.name) {
            return self.decode_xid(builder, sample);
        }
        if let Some(metric) = link_error_metric(sample.name) {
            return Self::decode_link_errors(builder, sample, metric);
        }
        self.decode_mask(builder, sample)
    }

    /// Records the last XID of a GPU. The GPU itself may be lost: its other series report whether it is present.
    fn decode_xid(
        &mut self,
        builder: &mut ReportBuilder<'a>,
        sample: &TextSample<'_, 'a>,
    ) -> Result<DecodeOp, Reason> {
        let gpu = sample.find_label("gpu").ok_or(Reason::NoDevice)?;
        if builder.has_own_names || Self::is_mig_series(sample) {
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

    /// Records errors of all NVLinks of a GPU as those of one link.
    fn decode_link_errors(
        builder: &mut ReportBuilder<'a>,
        sample: &TextSample<'_, 'a>,
        metric: MetricId,
    ) -> Result<DecodeOp, Reason> {
        let gpu = sample.find_label("gpu").ok_or(Reason::NoDevice)?;
        // gaunt-node reports them per link, and under these names only in addition.
        if builder.has_own_names || Self::is_mig_series(sample) {
            return Ok(DecodeOp::Ignore);
        }
        let key = vec![gpu.unescaped_value().as_ref().into(), SanitizedText::new(ALL_LINKS)];
        let device = builder.ensure_device(Device { class: DeviceClass::Nvlink, key: key.into() });
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
        if mask != sample.name || Self::is_mig_series(sample) {
            return Ok(DecodeOp::Ignore);
        }
        let device = builder.device_of_sample(DeviceClass::Gpu, sample).ok_or(Reason::NoDevice)?;
        self.identify_gpu(&mut builder.report, device, sample);
        let rule = ValueRule {
            scale: UnitScale::Same,
            blank: BlankValues::DcgmGauge,
            end: None,
            is_percent_if_whole: false,
            true_value: None,
            is_pcie_speed: false,
        };
        builder.plan_bitmask(device, rule)
    }

    /// Records the identity and place of the GPU from its first series.
    pub(super) fn identify_gpu(
        &mut self,
        report: &mut Report,
        device: u32,
        sample: &TextSample<'_, '_>,
    ) {
        if !self.identified.insert(device) {
            return;
        }
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
        if has_info(report, device, gpu::JOB_INFO) {
            return;
        }
        if let Some(job) = value("hpc_job") {
            report.add_info(device, gpu::JOB_INFO, &[("job", &job)]);
        } else if let Some(pod) = value("pod") {
            let job = match value("namespace") {
                Some(namespace) => format!("{namespace}/{}", pod_owner(&pod)),
                None => pod_owner(&pod).to_owned(),
            };
            report.add_info(device, gpu::JOB_INFO, &[("job", &job), ("name", &pod)]);
        }
    }
}

/// The controller of a pod, as far as its name shows: Kubernetes appends to the controller's name a template hash, five
/// random characters or an index, and training operators a role before the index.
pub(super) fn pod_owner(pod: &str) -> &str {
    let strip_part = |name, is_part: fn(&str) -> bool| match str::rsplit_once(name, '-') {
        Some((rest, part)) if is_part(part) && !rest.is_empty() => rest,
        _ => name,
    };
    let is_random = |part: &str| part.bytes().all(|byte| DRAWN.contains(&byte));
    let owner = match pod.rsplit_once('-') {
        Some((rest, part)) if part.len() == 5 && is_random(part) => match rest.rsplit_once('-') {
            Some((owner, hash)) if (8..=10).contains(&hash.len()) && is_random(hash) => {
                return owner;
            }
            _ => rest,
        },
        _ => pod,
    };
    let owner = strip_part(owner, |part| part.bytes().all(|byte| byte.is_ascii_digit()));
    strip_part(owner, |part| ROLES.contains(&part))
}

/// The characters of which Kubernetes makes generated names: no vowels, so that they spell no words.
const DRAWN: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// The roles that training operators give to the pods of one job.
const ROLES: [&str; 5] = ["worker", "master", "launcher", "chief", "ps"];
