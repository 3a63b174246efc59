//! The GPU of each process, from the readings of the last tick: what other programs log by process is joined to it.

use std::collections::BTreeMap;

use gaunt_schema::{DeviceClass, Report, SanitizedText};

/// The GPUs of the processes of this node, by process number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProcessGpus(BTreeMap<u32, ProcessGpu>);

/// Where a process runs.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ProcessGpu {
    /// On this GPU.
    One(SanitizedText),
    /// On several GPUs: what it does on which of them is not known.
    Several,
}

impl ProcessGpus {
    /// The GPUs of all processes in a report.
    pub(crate) fn of_report(report: &Report) -> Self {
        let mut processes: BTreeMap<u32, ProcessGpu> = BTreeMap::new();
        for device in &report.devices {
            let [gpu, pid] = &*device.key else { continue };
            let Ok(pid) = pid.as_str().parse() else { continue };
            if device.class != DeviceClass::Process {
                continue;
            }
            let found = || ProcessGpu::One(gpu.clone());
            let known = processes.entry(pid).or_insert_with(found);
            if *known != found() {
                *known = ProcessGpu::Several;
            }
        }
        Self(processes)
    }

    /// The GPU of a process, if it is on one GPU.
    pub(crate) fn gpu_of(&self, pid: u32) -> Option<&SanitizedText> {
        match self.0.get(&pid) {
            Some(ProcessGpu::One(gpu)) => Some(gpu),
            Some(ProcessGpu::Several) | None => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use gaunt_schema::Device;

    use super::*;

    #[test]
    fn process_has_a_gpu_if_it_is_on_one() {
        let mut report = Report::default();
        for (gpu, pid) in [(0, 40), (1, 41), (2, 41), (3, 42)] {
            report.ensure_device(Device::new_gpu_part(DeviceClass::Process, gpu, pid));
        }
        report.ensure_device(Device::new_gpu_part(DeviceClass::Xid, 5, 43));
        let processes = ProcessGpus::of_report(&report);
        let gpus = [40, 41, 42, 43].map(|pid| processes.gpu_of(pid).map(SanitizedText::as_str));
        assert_eq!(gpus, [Some("0"), None, Some("3"), None]);
    }
}
