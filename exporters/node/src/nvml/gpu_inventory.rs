//! The GPUs of this node across ticks and workers: their identities and their last readings.

use std::{collections::BTreeMap, path::Path};

use gaunt_schema::{
    AbsenceReason, Device, DeviceClass, MetricId, Reading, Report, SanitizedText,
    catalogue::{gpu, gpu_parts as parts},
};

use super::{
    kernel_log::is_same_device,
    process_owners::{self, InfoLabels, ProcessOwners},
    worker_pipe::{GpuAttribute, GpuIdentity, GpuPart, GpuRoundReadings},
};

mod energy_counter;
mod rate_integrals;
mod recent_clock_events;

use energy_counter::EnergyCounter;
use rate_integrals::RateIntegrals;
use recent_clock_events::RecentClockEvents;

use crate::{
    kubelet::{DeviceHolder, DeviceHolders, gpu_names, mig_names},
    pci_location::{self, PciLocation, to_kernel_address},
};

/// The owners of processes, and the holders of GPUs.
#[derive(Clone, Copy)]
pub(super) struct GpuOwnership<'a> {
    /// By process.
    pub(super) owners: &'a ProcessOwners,
    /// By device.
    pub(super) holders: &'a DeviceHolders,
}

/// Every GPU that was ever listed, in order of its number.
#[derive(Default)]
pub(super) struct GpuInventory {
    gpus: Vec<InventoryGpu>,
    /// For each worker the GPUs of its inventory, as positions in `gpus`, and the instant of its last tick.
    workers: BTreeMap<u64, (Vec<usize>, Option<f64>)>,
}

/// One GPU.
struct InventoryGpu {
    /// Its number on the page: its NVML index when it was first listed. It stays when an earlier GPU disappears and the
    /// driver renumbers, so that a series keeps its meaning.
    number: u32,
    identity: GpuIdentity,
    driver: SanitizedText,
    /// Its neighbours according to the kernel: memory node, network cards.
    neighbours: InfoLabels,
    /// Whether it was in the last inventory.
    listed: bool,
    /// Whether it is present: listed, and not lost in the last round.
    present: bool,
    latest: GpuRoundReadings,
    integrals: RateIntegrals,
    energy: EnergyCounter,
    recent: RecentClockEvents,
}

impl GpuInventory {
    /// Applies a worker's inventory: new GPUs are added, missing ones are marked as not listed.
    pub(super) fn update_inventory(
        &mut self,
        worker: u64,
        driver: &SanitizedText,
        identities: Vec<GpuIdentity>,
    ) {
        for gpu in &mut self.gpus {
            (gpu.listed, gpu.present) = (false, false);
        }
        let mut positions = Vec::with_capacity(identities.len());
        for identity in identities {
            let position = self.gpus.iter().position(|gpu| gpu.is_same_gpu(&identity));
            let position = position.unwrap_or_else(|| self.add_gpu(&identity));
            let gpu = &mut self.gpus[position];
            if identity.uuid.is_some() {
                gpu.identity = identity;
            }
            gpu.driver = driver.clone();
            (gpu.listed, gpu.present) = (true, true);
            positions.push(position);
        }
        self.workers.insert(worker, (positions, None));
    }

    /// Reads the PCI location of each GPU from the kernel's tree, and which of these RDMA devices are nearest to it.
    pub(super) fn refresh_topology(&mut self, sys_root: &Path, cards: &[(String, PciLocation)]) {
        for gpu in &mut self.gpus {
            let address = gpu.identity.pci_bus_id.as_deref();
            let Some(address) = address.and_then(to_kernel_address) else { continue };
            let location = PciLocation::of(&sys_root.join("bus/pci/devices").join(&address));
            let numa = location.numa.clone().map(|node| ("numa_node", node));
            let labels = numa.into_iter().chain(pci_location::nic_labels(&location, cards));
            gpu.neighbours = labels.map(|(label, text)| (label, text.into())).collect();
        }
    }

    fn add_gpu(&mut self, identity: &GpuIdentity) -> usize {
        let is_used = |number| self.gpus.iter().any(|gpu| gpu.number == number);
        // Among one more numbers than there are GPUs, at least one is free.
        let last = identity.index.saturating_add(self.gpus.len() as u32);
        let number = (identity.index..=last).find(|number| !is_used(*number));
        let number = number.unwrap_or(last);
        self.gpus.push(InventoryGpu {
            number,
            identity: identity.clone(),
            driver: SanitizedText::default(),
            neighbours: InfoLabels::new(),
            listed: true,
            present: true,
            latest: GpuRoundReadings::default(),
            integrals: RateIntegrals::default(),
            energy: EnergyCounter::default(),
            recent: RecentClockEvents::default(),
        });
        self.gpus.len() - 1
    }

    /// Stores the readings of a worker's GPUs in one round, `seconds` after its start.
    pub(super) fn apply_tick(&mut self, worker: u64, seconds: f64, rounds: Vec<GpuRoundReadings>) {
        let Some((positions, last)) = self.workers.get_mut(&worker) else { return };
        let step = last.replace(seconds).map_or(0.0, |last| seconds - last);
        for (position, mut readings) in positions.iter().zip(rounds) {
            let gpu = &mut self.gpus[*position];
            gpu.present = !readings.lost;
            gpu.integrals.integrate_readings(step, &mut readings);
            gpu.energy.apply_tick(step, &mut readings);
            gpu.recent.apply_tick(step, &mut readings);
            if readings.lost {
                // A lost GPU keeps its last known attributes and parts.
                readings.words = std::mem::take(&mut gpu.latest.words);
                readings.parts = std::mem::take(&mut gpu.latest.parts);
            }
            gpu.latest = readings;
        }
    }

    /// The page number of the GPU at this position of a worker's inventory.
    pub(super) fn gpu_number(&self, worker: u64, position: u32) -> Option<u32> {
        let (positions, _) = self.workers.get(&worker)?;
        Some(self.gpus.get(*positions.get(position as usize)?)?.number)
    }

    /// The page number of the GPU at a PCI address in the kernel log's form.
    pub(super) fn gpu_number_at(&self, pci: &str) -> Option<u32> {
        self.gpus.iter().find(|gpu| gpu.is_at(pci)).map(|gpu| gpu.number)
    }

    /// The numbers of the present GPUs that are in a multi-node NVLink domain: the driver states a cluster of them.
    pub(super) fn gpus_in_nvlink_domain(&self) -> Vec<u32> {
        let has_cluster = |gpu: &&InventoryGpu| {
            gpu.present
                && gpu.latest.words.iter().any(|(name, _)| *name == GpuAttribute::ClusterUuid)
        };
        self.gpus.iter().filter(has_cluster).map(|gpu| gpu.number).collect()
    }

    /// The processes on all GPUs.
    pub(super) fn process_ids(&self) -> Vec<u32> {
        let processes = self.gpus.iter().flat_map(|gpu| gpu.parts_of_class(DeviceClass::Process));
        processes.map(|part| part.number).collect()
    }

    /// Removes a worker that ended; its GPUs stay.
    pub(super) fn forget_worker(&mut self, worker: u64) {
        self.workers.remove(&worker);
    }

    /// Adds every GPU to the report: with its last readings if they are `fresh`, else with its values marked stale.
    pub(super) fn report_gpus(
        &self,
        fresh: bool,
        ownership: GpuOwnership<'_>,
        report: &mut Report,
    ) {
        for gpu in &self.gpus {
            let device = report.ensure_device(Device::new_gpu(gpu.number));
            report.add_info(device, gpu::INFO, &gpu.info_labels());
            // If a GPU is called and does not answer, its readings already contain the reasons.
            let why = match (gpu.listed && fresh, gpu.present) {
                (true, _) => None,
                (false, false) => Some(AbsenceReason::Lost),
                (false, true) => Some(AbsenceReason::Stale),
            };
            let present = match why {
                Some(AbsenceReason::Stale) => AbsenceReason::Stale.into(),
                _ => Reading::of(f64::from(u8::from(gpu.present))),
            };
            report.push(device, gpu::PRESENT, present);
            let holder = gpu.find_holder(ownership.holders);
            if let Some(job) = gpu.job_labels(ownership, holder) {
                report_info(report, device, gpu::JOB_INFO, &job);
            }
            for (metric, reading) in &gpu.latest.readings {
                report.push(device, *metric, why.map_or(*reading, Reading::new_absent));
            }
            // A lost GPU is detected by its round; its parts do not report it themselves.
            let why = why.or((!gpu.present).then_some(AbsenceReason::Lost));
            for part in &gpu.latest.parts {
                gpu.report_part(part, why, (&self.gpus, ownership, holder), report);
            }
        }
    }

    /// The number of expected GPUs, and the numbers of those that are lost.
    pub(super) fn count_gpus(&self) -> (usize, Vec<u32>) {
        let lost = self.gpus.iter().filter(|gpu| !gpu.present).map(|gpu| gpu.number);
        (self.gpus.len(), lost.collect())
    }
}

impl InventoryGpu {
    /// Whether it is at this PCI address.
    fn is_at(&self, pci: &str) -> bool {
        self.identity.pci_bus_id.as_deref().is_some_and(|address| is_same_device(pci, address))
    }

    /// Whether it is the GPU with that identity: by UUID, or by PCI address if one has no UUID.
    fn is_same_gpu(&self, other: &GpuIdentity) -> bool {
        match (&self.identity.uuid, &other.uuid) {
            (Some(own_uuid), Some(uuid)) => own_uuid == uuid,
            _ => match (&self.identity.pci_bus_id, &other.pci_bus_id) {
                (Some(own_address), Some(address)) => own_address == address,
                _ => self.identity.index == other.index,
            },
        }
    }

    fn info_labels(&self) -> Vec<(&'static str, &str)> {
        let identity = &self.identity;
        let labels = [
            ("uuid", identity.uuid.as_deref()),
            ("model", identity.model.as_deref()),
            ("pci_bus_id", identity.pci_bus_id.as_deref()),
            ("serial", identity.serial.as_deref()),
            ("driver", Some(&*self.driver)),
            ("vbios", identity.vbios.as_deref()),
        ];
        let attributes =
            self.latest.words.iter().map(|(attribute, text)| (attribute.label_name(), &**text));
        let neighbours = self.neighbours.iter().map(|(label, text)| (*label, &**text));
        let labels = labels.into_iter().filter_map(|(label, text)| Some((label, text?)));
        labels.chain(neighbours).chain(attributes).collect()
    }

    /// The labels of the job that holds the GPU: that of its first process with a job.
    /// Without a process it is the pod that holds it. Pods that share it are listed: none of them is its job.
    fn job_labels(
        &self,
        ownership: GpuOwnership<'_>,
        holder: Option<&DeviceHolder>,
    ) -> Option<InfoLabels> {
        let names = self.device_names();
        let sharers = ownership.holders.find_sharers(names.iter().map(String::as_str));
        if let Some((names, count)) = sharers {
            return Some(process_owners::shared_gpu_labels(names, count));
        }
        let mut processes = self.parts_of_class(DeviceClass::Process);
        let job =
            processes.find_map(|process| ownership.owners.of(process.number)?.job_labels(holder));
        job.or_else(|| holder.map(process_owners::held_gpu_labels))
    }

    /// The container that holds the GPU, or all of its instances that are held.
    fn find_holder<'a>(&self, pods: &'a DeviceHolders) -> Option<&'a DeviceHolder> {
        pods.find_holder(self.device_names().iter().map(String::as_str))
    }

    /// The names under which the GPU and its instances are allocated.
    fn device_names(&self) -> Vec<String> {
        let names = gpu_names(self.identity.uuid.as_deref(), self.number);
        let instances = self.parts_of_class(DeviceClass::Mig).flat_map(|part| self.mig_names(part));
        names.chain(instances).collect()
    }

    /// The names under which a device plugin allocates an instance.
    fn mig_names(&self, part: &GpuPart) -> impl Iterator<Item = String> {
        mig_names(part.find_label("uuid"), self.number, part.find_label("gpu_instance"))
    }

    /// Its parts of one kind.
    fn parts_of_class(&self, class: DeviceClass) -> impl Iterator<Item = &GpuPart> {
        self.latest.parts.iter().filter(move |part| part.class == class)
    }

    fn report_part(
        &self,
        part: &GpuPart,
        why: Option<AbsenceReason>,
        (peers, ownership, holder): (&[InventoryGpu], GpuOwnership<'_>, Option<&DeviceHolder>),
        report: &mut Report,
    ) {
        let device =
            report.ensure_device(Device::new_gpu_part(part.class, self.number, part.number));
        match part.class {
            DeviceClass::Process => {
                let labels =
                    ownership.owners.of(part.number).map(|owner| owner.process_labels(holder));
                report_info(report, device, parts::PROCESS_INFO, &labels.unwrap_or_default());
            }
            DeviceClass::Mig if !part.labels.is_empty() => {
                let names: Vec<_> = self.mig_names(part).collect();
                let holder = ownership.holders.find_holder(names.iter().map(String::as_str));
                let holder = holder.map(DeviceHolder::pod_labels);
                let holder = holder.iter().flatten().map(|(label, text)| (*label, &**text));
                let labels = part.labels.iter().map(|(label, text)| (&**label, &**text));
                report.add_info(device, parts::MIG_INFO, &labels.chain(holder).collect::<Vec<_>>());
            }
            DeviceClass::Nvlink if !part.labels.is_empty() => {
                let peer =
                    peers.iter().find(|gpu| part.labels.iter().any(|(_, pci)| gpu.is_at(pci)));
                let number = peer.map(|gpu| gpu.number.to_string());
                let labels = part.labels.iter().map(|(label, text)| (&**label, &**text));
                let labels = labels.chain(number.as_deref().map(|number| ("peer_gpu", number)));
                report.add_info(device, parts::NVLINK_INFO, &labels.collect::<Vec<_>>());
            }
            _ => {}
        }
        for (metric, reading) in &part.readings {
            report.push(device, *metric, why.map_or(*reading, Reading::new_absent));
        }
    }
}

/// Adds an info series of these labels.
fn report_info(report: &mut Report, device: u32, metric: MetricId, labels: &InfoLabels) {
    let labels: Vec<_> = labels.iter().map(|(label, text)| (*label, &**text)).collect();
    report.add_info(device, metric, &labels);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test_identity(index: u32, uuid: &str) -> GpuIdentity {
        GpuIdentity { index, uuid: Some(uuid.into()), ..GpuIdentity::default() }
    }

    fn test_readings(share: f64) -> GpuRoundReadings {
        GpuRoundReadings {
            readings: vec![(gpu::UTILIZATION, Reading::of(share))],
            ..GpuRoundReadings::default()
        }
    }

    fn read_metric(
        gpus: &GpuInventory,
        fresh: bool,
        number: u32,
        metric: MetricId,
    ) -> Option<Reading> {
        let mut report = Report::default();
        let (owners, pods) = (ProcessOwners::new("/proc".as_ref()), DeviceHolders::default());
        gpus.report_gpus(fresh, GpuOwnership { owners: &owners, holders: &pods }, &mut report);
        report.find_reading(&Device::new_gpu(number), metric)
    }

    #[test]
    fn ratio_is_integrated_over_ticks_and_across_workers() {
        let mut gpus = GpuInventory::default();
        let driver = SanitizedText::new("1");
        gpus.update_inventory(1, &driver, vec![test_identity(0, "a")]);
        for (seconds, share) in [(1.0, 0.5), (2.0, 0.5), (4.0, 0.25), (60.0, 1.0)] {
            gpus.apply_tick(1, seconds, vec![test_readings(share)]);
        }
        assert_eq!(read_metric(&gpus, true, 0, gpu::UTILIZATION_SECONDS), Some(Reading::of(1.0)));
        gpus.forget_worker(1);
        gpus.update_inventory(2, &driver, vec![test_identity(0, "a")]);
        gpus.apply_tick(2, 0.5, vec![test_readings(1.0)]);
        gpus.apply_tick(2, 1.0, vec![test_readings(1.0)]);
        assert_eq!(read_metric(&gpus, true, 0, gpu::UTILIZATION_SECONDS), Some(Reading::of(1.5)));
    }

    #[test]
    fn vanished_gpu_is_remembered_and_others_keep_their_numbers() {
        let mut gpus = GpuInventory::default();
        let driver = SanitizedText::new("1");
        gpus.update_inventory(
            1,
            &driver,
            vec![test_identity(0, "a"), test_identity(1, "b"), test_identity(2, "c")],
        );
        gpus.apply_tick(1, 1.0, vec![test_readings(0.1), test_readings(0.2), test_readings(0.3)]);
        gpus.update_inventory(2, &driver, vec![test_identity(0, "a"), test_identity(1, "c")]);
        gpus.apply_tick(2, 1.0, vec![test_readings(0.4), test_readings(0.6)]);
        assert_eq!(read_metric(&gpus, true, 2, gpu::UTILIZATION), Some(Reading::of(0.6)));
        assert_eq!(read_metric(&gpus, true, 1, gpu::PRESENT), Some(Reading::of(0.0)));
        assert_eq!(read_metric(&gpus, true, 1, gpu::UTILIZATION), Some(AbsenceReason::Lost.into()));
        assert_eq!(gpus.count_gpus(), (3, vec![1]));
    }

    #[test]
    fn readings_of_earlier_ticks_are_reported_stale() {
        let mut gpus = GpuInventory::default();
        gpus.update_inventory(1, &SanitizedText::new("1"), vec![test_identity(0, "a")]);
        gpus.apply_tick(1, 1.0, vec![test_readings(0.1)]);
        assert_eq!(
            read_metric(&gpus, false, 0, gpu::UTILIZATION),
            Some(AbsenceReason::Stale.into())
        );
        assert_eq!(
            read_metric(&gpus, false, 0, gpu::UTILIZATION_SECONDS),
            Some(AbsenceReason::Stale.into())
        );
        assert_eq!(read_metric(&gpus, false, 0, gpu::PRESENT), Some(AbsenceReason::Stale.into()));
    }
}
