//! The GPUs of this node as they are remembered across ticks and workers: who they are, what they last said.

use std::{collections::BTreeMap, path::Path};

use gaunt_schema::{
    Absent, Class, Device, MetricId, Reading, Report, Safe,
    catalogue::{gpu, gpu_parts as parts},
};

use super::{
    kernel_log::is_same_board,
    owners::{self, Labels, Owners},
    pipe::{Identity, Part, Readings},
};

mod integrals;
mod recent;

use integrals::Integrals;
use recent::Recent;

use crate::{
    kubelet::{Holder, Pods, gpu_names, mig_names},
    pci::{self, Place, as_the_kernel_writes},
};

/// Whose the processes are, and who holds the GPUs.
#[derive(Clone, Copy)]
pub(super) struct Whose<'a> {
    /// By process.
    pub(super) owners: &'a Owners,
    /// By device.
    pub(super) pods: &'a Pods,
}

/// Every GPU that was ever seen, in order of its number.
#[derive(Default)]
pub(super) struct Remembered {
    gpus: Vec<Gpu>,
    /// For each worker the GPUs of its inventory, as positions in `gpus`, and the instant of its last tick.
    workers: BTreeMap<u64, (Vec<usize>, Option<f64>)>,
}

/// One GPU.
struct Gpu {
    /// Its number on the page: its NVML index when it was first seen. It stays when an earlier GPU vanishes and the
    /// driver counts anew, so that a series keeps meaning one board.
    number: u32,
    identity: Identity,
    driver: Safe,
    /// What is near to it, where the kernel says: its memory, its network cards.
    near: Labels,
    /// Whether it was in the last inventory.
    listed: bool,
    /// Whether it answers: it is listed and was not called lost in the last round.
    present: bool,
    said: Readings,
    integrals: Integrals,
    recent: Recent,
}

impl Remembered {
    /// Takes a worker's inventory: new GPUs are added, those that it does not name are gone.
    pub(super) fn inventory(&mut self, worker: u64, driver: &Safe, found: Vec<Identity>) {
        for gpu in &mut self.gpus {
            (gpu.listed, gpu.present) = (false, false);
        }
        let mut positions = Vec::with_capacity(found.len());
        for identity in found {
            let known = self.gpus.iter().position(|gpu| gpu.is(&identity));
            let position = known.unwrap_or_else(|| self.add(&identity));
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

    /// Looks in the kernel's tree where each GPU sits, and which of these RDMA devices are nearest to it.
    pub(super) fn look_around(&mut self, sys_root: &Path, cards: &[(String, Place)]) {
        for gpu in &mut self.gpus {
            let address = gpu.identity.pci_bus_id.as_deref();
            let Some(address) = address.and_then(as_the_kernel_writes) else { continue };
            let place = Place::of(&sys_root.join("bus/pci/devices").join(&address));
            let numa = place.numa.clone().map(|node| ("numa_node", node));
            let near = numa.into_iter().chain(pci::nics(&place, cards));
            gpu.near = near.map(|(label, text)| (label, text.into())).collect();
        }
    }

    fn add(&mut self, identity: &Identity) -> usize {
        let taken = |number| self.gpus.iter().any(|gpu| gpu.number == number);
        // Of so many numbers one more than there are GPUs, at least one is free.
        let last = identity.index.saturating_add(self.gpus.len() as u32);
        let number = (identity.index..=last).find(|number| !taken(*number));
        let number = number.unwrap_or(last);
        self.gpus.push(Gpu {
            number,
            identity: identity.clone(),
            driver: Safe::default(),
            near: Labels::new(),
            listed: true,
            present: true,
            said: Readings::default(),
            integrals: Integrals::default(),
            recent: Recent::default(),
        });
        self.gpus.len() - 1
    }

    /// Takes what a worker's GPUs said in one round, `seconds` after its start.
    pub(super) fn tick(&mut self, worker: u64, seconds: f64, said: Vec<Readings>) {
        let Some((positions, last)) = self.workers.get_mut(&worker) else { return };
        let step = last.replace(seconds).map_or(0.0, |last| seconds - last);
        for (position, mut said) in positions.iter().zip(said) {
            let gpu = &mut self.gpus[*position];
            gpu.present = !said.lost;
            gpu.integrals.add(step, &mut said);
            gpu.recent.add(step, &mut said);
            if said.lost {
                // Words and parts of a GPU that is gone are the last that were known.
                said.words = std::mem::take(&mut gpu.said.words);
                said.parts = std::mem::take(&mut gpu.said.parts);
            }
            gpu.said = said;
        }
    }

    /// The number on the page of the GPU at this position of a worker's inventory.
    pub(super) fn number(&self, worker: u64, position: u32) -> Option<u32> {
        let (positions, _) = self.workers.get(&worker)?;
        Some(self.gpus.get(*positions.get(position as usize)?)?.number)
    }

    /// The number on the page of the GPU at a PCI address as the kernel log has it.
    pub(super) fn number_at(&self, pci: &str) -> Option<u32> {
        self.gpus.iter().find(|gpu| gpu.is_at(pci)).map(|gpu| gpu.number)
    }

    /// The processes on all GPUs.
    pub(super) fn pids(&self) -> Vec<u32> {
        let processes = self.gpus.iter().flat_map(|gpu| gpu.parts(Class::Process));
        processes.map(|part| part.number).collect()
    }

    /// Forgets a worker that is gone; its GPUs stay.
    pub(super) fn forget_worker(&mut self, worker: u64) {
        self.workers.remove(&worker);
    }

    /// Adds every GPU to the report: as it last spoke if that is `fresh`, else with its values called stale.
    pub(super) fn write(&self, fresh: bool, whose: Whose<'_>, report: &mut Report) {
        for gpu in &self.gpus {
            let device = report.device(Device::gpu(gpu.number));
            report.info(device, gpu::INFO, &gpu.labels());
            // While a GPU that does not answer is asked, its readings say themselves why they are absent.
            let why = match (gpu.listed && fresh, gpu.present) {
                (true, _) => None,
                (false, false) => Some(Absent::Lost),
                (false, true) => Some(Absent::Stale),
            };
            let present = match why {
                Some(Absent::Stale) => Absent::Stale.into(),
                _ => Reading::of(f64::from(u8::from(gpu.present))),
            };
            report.push(device, gpu::PRESENT, present);
            let holder = gpu.holder(whose.pods);
            if let Some(job) = gpu.job(whose.owners, holder) {
                info(report, device, gpu::JOB_INFO, &job);
            }
            for (metric, reading) in &gpu.said.readings {
                report.push(device, *metric, why.map_or(*reading, Reading::absent));
            }
            // A lost GPU is told apart by the round that lost it; its parts say nothing by themselves.
            let why = why.or((!gpu.present).then_some(Absent::Lost));
            for part in &gpu.said.parts {
                gpu.write_part(part, why, (&self.gpus, whose, holder), report);
            }
        }
    }

    /// How many GPUs there are to be, and the numbers of those that are gone.
    pub(super) fn count(&self) -> (usize, Vec<u32>) {
        let gone = self.gpus.iter().filter(|gpu| !gpu.present).map(|gpu| gpu.number);
        (self.gpus.len(), gone.collect())
    }
}

impl Gpu {
    /// Whether it is at this PCI address.
    fn is_at(&self, pci: &str) -> bool {
        self.identity.pci_bus_id.as_deref().is_some_and(|own| is_same_board(pci, own))
    }

    /// Whether this is the board of that identity: by UUID, or where one is silent by its place.
    fn is(&self, other: &Identity) -> bool {
        match (&self.identity.uuid, &other.uuid) {
            (Some(own), Some(uuid)) => own == uuid,
            _ => match (&self.identity.pci_bus_id, &other.pci_bus_id) {
                (Some(own), Some(place)) => own == place,
                _ => self.identity.index == other.index,
            },
        }
    }

    fn labels(&self) -> Vec<(&'static str, &str)> {
        let identity = &self.identity;
        let labels = [
            ("uuid", identity.uuid.as_deref()),
            ("model", identity.model.as_deref()),
            ("pci_bus_id", identity.pci_bus_id.as_deref()),
            ("serial", identity.serial.as_deref()),
            ("driver", Some(&*self.driver)),
            ("vbios", identity.vbios.as_deref()),
        ];
        let words = self.said.words.iter().map(|(word, text)| (word.label(), &**text));
        let near = self.near.iter().map(|(label, text)| (*label, &**text));
        let labels = labels.into_iter().filter_map(|(label, text)| Some((label, text?)));
        labels.chain(near).chain(words).collect()
    }

    /// The labels of the job that holds the GPU: that of its first process that has one.
    /// Without a process it is the pod's that holds it.
    fn job(&self, owners: &Owners, holder: Option<&Holder>) -> Option<Labels> {
        let mut processes = self.parts(Class::Process);
        let job = processes.find_map(|process| owners.of(process.number)?.job(holder));
        job.or_else(|| holder.map(owners::held))
    }

    /// The container that holds the GPU, or all of its instances that are held.
    fn holder<'a>(&self, pods: &'a Pods) -> Option<&'a Holder> {
        let own = gpu_names(self.identity.uuid.as_deref(), self.number);
        let instances = self.parts(Class::Mig).flat_map(|part| self.mig_names(part));
        let names: Vec<String> = own.chain(instances).collect();
        pods.holder(names.iter().map(String::as_str))
    }

    /// The names under which an instance is given away.
    fn mig_names(&self, part: &Part) -> impl Iterator<Item = String> {
        mig_names(part.label("uuid"), self.number, part.label("gpu_instance"))
    }

    /// Its parts of one kind.
    fn parts(&self, class: Class) -> impl Iterator<Item = &Part> {
        self.said.parts.iter().filter(move |part| part.class == class)
    }

    fn write_part(
        &self,
        part: &Part,
        why: Option<Absent>,
        (peers, whose, holder): (&[Gpu], Whose<'_>, Option<&Holder>),
        report: &mut Report,
    ) {
        let device = report.device(Device::part(part.class, self.number, part.number));
        match part.class {
            Class::Process => {
                let labels = whose.owners.of(part.number).map(|owner| owner.labels(holder));
                info(report, device, parts::PROCESS_INFO, &labels.unwrap_or_default());
            }
            Class::Mig if !part.labels.is_empty() => {
                let names: Vec<_> = self.mig_names(part).collect();
                let holder = whose.pods.holder(names.iter().map(String::as_str));
                let holder = holder.map(Holder::labels);
                let holder = holder.iter().flatten().map(|(label, text)| (*label, &**text));
                let labels = part.labels.iter().map(|(label, text)| (&**label, &**text));
                report.info(device, parts::MIG_INFO, &labels.chain(holder).collect::<Vec<_>>());
            }
            Class::Nvlink if !part.labels.is_empty() => {
                let peer =
                    peers.iter().find(|gpu| part.labels.iter().any(|(_, pci)| gpu.is_at(pci)));
                let number = peer.map(|gpu| gpu.number.to_string());
                let labels = part.labels.iter().map(|(label, text)| (&**label, &**text));
                let labels = labels.chain(number.as_deref().map(|number| ("peer_gpu", number)));
                report.info(device, parts::NVLINK_INFO, &labels.collect::<Vec<_>>());
            }
            _ => {}
        }
        for (metric, reading) in &part.readings {
            report.push(device, *metric, why.map_or(*reading, Reading::absent));
        }
    }
}

/// Adds an info series of these labels.
fn info(report: &mut Report, device: u32, metric: MetricId, labels: &Labels) {
    let labels: Vec<_> = labels.iter().map(|(label, text)| (*label, &**text)).collect();
    report.info(device, metric, &labels);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn board(index: u32, uuid: &str) -> Identity {
        Identity { index, uuid: Some(uuid.into()), ..Identity::default() }
    }

    fn busy(share: f64) -> Readings {
        Readings { readings: vec![(gpu::UTILIZATION, Reading::of(share))], ..Readings::default() }
    }

    fn read(gpus: &Remembered, fresh: bool, number: u32, metric: MetricId) -> Option<Reading> {
        let mut report = Report::default();
        let (owners, pods) = (Owners::new("/proc".as_ref()), Pods::default());
        gpus.write(fresh, Whose { owners: &owners, pods: &pods }, &mut report);
        report.reading(&Device::gpu(number), metric)
    }

    #[test]
    fn a_ratio_is_integrated_over_ticks_and_across_workers() {
        let mut gpus = Remembered::default();
        let driver = Safe::new("1");
        gpus.inventory(1, &driver, vec![board(0, "a")]);
        for (seconds, share) in [(1.0, 0.5), (2.0, 0.5), (4.0, 0.25), (60.0, 1.0)] {
            gpus.tick(1, seconds, vec![busy(share)]);
        }
        assert_eq!(read(&gpus, true, 0, gpu::UTILIZATION_SECONDS), Some(Reading::of(1.0)));
        gpus.forget_worker(1);
        gpus.inventory(2, &driver, vec![board(0, "a")]);
        gpus.tick(2, 0.5, vec![busy(1.0)]);
        gpus.tick(2, 1.0, vec![busy(1.0)]);
        assert_eq!(read(&gpus, true, 0, gpu::UTILIZATION_SECONDS), Some(Reading::of(1.5)));
    }

    #[test]
    fn a_gpu_that_vanishes_is_remembered_and_the_others_keep_their_numbers() {
        let mut gpus = Remembered::default();
        let driver = Safe::new("1");
        gpus.inventory(1, &driver, vec![board(0, "a"), board(1, "b"), board(2, "c")]);
        gpus.tick(1, 1.0, vec![busy(0.1), busy(0.2), busy(0.3)]);
        gpus.inventory(2, &driver, vec![board(0, "a"), board(1, "c")]);
        gpus.tick(2, 1.0, vec![busy(0.4), busy(0.6)]);
        assert_eq!(read(&gpus, true, 2, gpu::UTILIZATION), Some(Reading::of(0.6)));
        assert_eq!(read(&gpus, true, 1, gpu::PRESENT), Some(Reading::of(0.0)));
        assert_eq!(read(&gpus, true, 1, gpu::UTILIZATION), Some(Absent::Lost.into()));
        assert_eq!(gpus.count(), (3, vec![1]));
    }

    #[test]
    fn what_is_not_fresh_is_stale_and_not_old() {
        let mut gpus = Remembered::default();
        gpus.inventory(1, &Safe::new("1"), vec![board(0, "a")]);
        gpus.tick(1, 1.0, vec![busy(0.1)]);
        assert_eq!(read(&gpus, false, 0, gpu::UTILIZATION), Some(Absent::Stale.into()));
        assert_eq!(read(&gpus, false, 0, gpu::UTILIZATION_SECONDS), Some(Absent::Stale.into()));
        assert_eq!(read(&gpus, false, 0, gpu::PRESENT), Some(Absent::Stale.into()));
    }
}
