//! Who holds the GPUs and MIG instances of a page of dcgm-exporter, as the labels of its series name them.

use super::gpu_holders::{GpuHolder, MAX_HOLDERS};
use crate::text::TextSample;

/// The labels that tell one holder of a GPU from another.
const HOLDER_LABELS: [&str; 9] = [
    "pod",
    "namespace",
    "container",
    "hpc_job",
    "pod_name",
    "exported_pod",
    "exported_namespace",
    "job_id",
    "slurm_job_id",
];

/// The holders of each device.
#[derive(Debug, Default)]
pub(super) struct HolderTable<'a> {
    /// The devices, as positions in the report, in the order of the page.
    holders: Vec<(u32, Vec<GpuHolder>)>,
    /// The device and the labels of the last series that has any, and whether they name a holder: adjacent series mostly have
    /// the same.
    last: Option<(u32, [Option<&'a str>; HOLDER_LABELS.len()], bool)>,
}

impl<'a> HolderTable<'a> {
    /// Records who holds a GPU or an instance, if the labels of a series name a holder, and returns whether they do.
    pub(super) fn add_holder(&mut self, device: u32, sample: &TextSample<'_, 'a>) -> bool {
        let labels = HOLDER_LABELS.map(|name| sample.find_label(name).map(|label| label.raw));
        if labels.iter().all(Option::is_none) {
            return false;
        }
        if let Some((last, last_labels, has_holder)) = self.last
            && (last, last_labels) == (device, labels)
        {
            return has_holder;
        }
        let holder = GpuHolder::of_sample(sample);
        self.last = Some((device, labels, holder.is_some()));
        let Some(holder) = holder else { return false };
        // Series of one device are mostly adjacent.
        let known = self.holders.iter().rposition(|(other, _)| *other == device);
        let index = known.unwrap_or_else(|| {
            self.holders.push((device, Vec::new()));
            self.holders.len() - 1
        });
        let holders = &mut self.holders[index].1;
        if holders.len() < MAX_HOLDERS && !holders.contains(&holder) {
            holders.push(holder);
        }
        true
    }

    /// The holders of a device.
    pub(super) fn of_device(&self, device: u32) -> &[GpuHolder] {
        let holders = self.holders.iter().find(|(other, _)| *other == device);
        holders.map(|(_, holders)| holders.as_slice()).unwrap_or_default()
    }
}
