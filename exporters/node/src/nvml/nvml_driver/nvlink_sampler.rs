//! The NVLinks of a GPU: state, errors, traffic and peers.

use gaunt_schema::{
    AbsenceReason, DeviceClass, MetricId, Reading, SanitizedText,
    catalogue::{gpu, gpu_parts as parts},
};
use nvml_wrapper::{Device, enum_wrappers::nv_link::ErrorCounter};

use super::{
    GpuSamplingRound, NvmlDeviceHandle, NvmlFunctions, gpu_part_sampler::to_reading,
    nvml_fields::query_fields,
};
use crate::nvml::{driver_call::Call, worker_pipe::GpuPart};

/// The most NVLinks of a GPU that are queried: more than the largest GPU has.
const MAX_LINKS: u32 = 36;

/// The field with the number of NVLinks of the GPU.
const LINK_COUNT: u32 = 91;

/// The fields of one NVLink, with the link as their scope: its state, and its errors by kind.
const LINK: [(u32, MetricId); 4] = [
    (165, parts::NVLINK_UP),
    (161, parts::NVLINK_REPLAY),
    (162, parts::NVLINK_RECOVERY),
    (163, parts::NVLINK_CRC),
];

/// The fields of an NVLink's traffic: received and transmitted, in kibibytes up to Hopper and in bytes after it.
const TRAFFIC: [u32; 4] = [139, 138, 204, 202];

/// The state of a GPU's links between rounds: for each, its peer, once known.
#[derive(Default)]
pub(super) struct NvlinkSampler(Vec<Option<SanitizedText>>);

impl NvlinkSampler {
    /// The number of links, as far as known.
    pub(super) fn link_count(&self) -> u32 {
        self.0.len() as u32
    }

    /// The state and the errors of each NVLink.
    pub(super) fn sample_link_states(
        &mut self,
        round: &mut GpuSamplingRound<'_>,
        functions: NvmlFunctions<'_>,
        device: &Device<'_>,
    ) {
        let handle = NvmlFunctions::device_handle(device);
        let count = query_fields(&[(LINK_COUNT, 0)], round, functions, handle).pop();
        let count = count.and_then(Result::ok).map_or(0, |count| (count as u32).min(MAX_LINKS));
        self.0.resize(count as usize, None);
        if count == 0 {
            return;
        }
        let of_link = |link| LINK.iter().map(move |(field, _)| (*field, link));
        let questions: Vec<_> = (0..count).flat_map(of_link).collect();
        let answers = query_fields(&questions, round, functions, handle);
        for (link, answers) in (0..count).zip(answers.chunks_exact(LINK.len())) {
            let readings = LINK.iter().zip(answers).map(|((_, metric), answer)| {
                let value = match *answer {
                    Err(AbsenceReason::Unsupported) => {
                        query_link_counter(round, device, link, *metric)
                    }
                    answer => answer,
                };
                // A sleeping link counts as up, like an active one: both states are above zero.
                let to_value =
                    |value: f64| if *metric == parts::NVLINK_UP { value.min(1.0) } else { value };
                (*metric, to_reading(value.map(to_value)))
            });
            let readings: Vec<(MetricId, Reading)> = readings.collect();
            let labels = self.query_peer(round, device, link).map(|peer| ("peer".into(), peer));
            let labels = labels.into_iter().collect();
            round
                .sampled
                .parts
                .push(GpuPart { labels, ..GpuPart::of(DeviceClass::Nvlink, link, readings) });
        }
    }

    /// The PCI address of the peer: queried until it is known, and then cached.
    fn query_peer(
        &mut self,
        round: &mut GpuSamplingRound<'_>,
        device: &Device<'_>,
        link: u32,
    ) -> Option<SanitizedText> {
        let cached = self.0.get_mut(link as usize)?;
        if cached.is_none() {
            let peer = round
                .call_driver(Call::LinkPeer, || device.link_wrapper_for(link).remote_pci_info());
            *cached = peer.ok().map(|pci| pci.bus_id.into());
        }
        cached.clone()
    }

    /// Samples the traffic of each NVLink, with one call for all of them.
    pub(super) fn sample_traffic(
        &self,
        round: &mut GpuSamplingRound<'_>,
        functions: NvmlFunctions<'_>,
        handle: NvmlDeviceHandle,
    ) {
        let links = || 0..self.link_count();
        if links().is_empty() {
            return;
        }
        let questions: Vec<_> =
            links().flat_map(|link| TRAFFIC.map(move |field| (field, link))).collect();
        let answers = query_fields(&questions, round, functions, handle);
        for (link, answers) in links().zip(answers.chunks_exact(TRAFFIC.len())) {
            let bytes = |kibibytes: usize, bytes: usize| {
                let older_counter = || answers[kibibytes].map(|value| value * 1024.0);
                to_reading(answers[bytes].or_else(|_| older_counter()))
            };
            let readings =
                vec![(parts::NVLINK_RECEIVE, bytes(0, 2)), (parts::NVLINK_TRANSMIT, bytes(1, 3))];
            round.sampled.parts.push(GpuPart::of(DeviceClass::Nvlink, link, readings));
        }
    }
}

/// Records the traffic over all NVLinks, for a GPU whose own counters do not have it.
pub(super) fn record_total_traffic(round: &mut GpuSamplingRound<'_>) {
    for (total, link_metric) in [
        (gpu::NVLINK_RECEIVE, parts::NVLINK_RECEIVE),
        (gpu::NVLINK_TRANSMIT, parts::NVLINK_TRANSMIT),
    ] {
        let links = round.sampled.parts.iter().flat_map(|part| &part.readings);
        let mut readings = links.filter(|(id, _)| *id == link_metric).peekable();
        // Without links there is no traffic, and one link without a value makes the sum unknown.
        if readings.peek().is_some()
            && let Some(sum) = readings.map(|(_, reading)| reading.value()).sum::<Option<f64>>()
        {
            round.record_reading(total, Ok(sum));
        }
    }
}

/// The same with a separate call: GPUs before Hopper do not have all fields.
fn query_link_counter(
    round: &mut GpuSamplingRound<'_>,
    device: &Device<'_>,
    link: u32,
    metric: MetricId,
) -> Result<f64, AbsenceReason> {
    let link = device.link_wrapper_for(link);
    let mut errors = |kind| round.call_driver(Call::LinkErrors, || link.error_counter(kind));
    match metric {
        parts::NVLINK_REPLAY => Ok(errors(ErrorCounter::DlReplay)? as f64),
        parts::NVLINK_RECOVERY => Ok(errors(ErrorCounter::DlRecovery)? as f64),
        parts::NVLINK_CRC => {
            let control = errors(ErrorCounter::DlCrcFlit)?;
            Ok((control + errors(ErrorCounter::DlCrcData)?) as f64)
        }
        _ => Ok(f64::from(u8::from(round.call_driver(Call::LinkState, || link.is_active())?))),
    }
}
