//! Processes on AMD GPUs, from the compute driver's own tree (KFD): which memory each holds on which GPU.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use gaunt_schema::{Device, DeviceClass, Report, catalogue::gpu_parts};

use crate::kernel_files::{list_names, read_once};

/// The most processes that are reported: each costs a small file of each GPU.
const MAX_PROCESSES: usize = 64;

/// Reads `SYS/class/kfd/kfd`.
pub(super) struct AmdProcesses {
    folder: PathBuf,
    /// The driver's ids of the GPUs, with their numbers. A GPU in several partitions has several ids.
    gpus: BTreeMap<String, u32>,
}

impl AmdProcesses {
    pub(super) fn new(sys_root: &Path) -> Self {
        Self { folder: sys_root.join("class/kfd/kfd"), gpus: BTreeMap::new() }
    }

    /// Finds the driver's ids of the GPUs with these PCI addresses.
    pub(super) fn discover_gpus(&mut self, number_of: impl Fn(&str) -> Option<u32>) {
        let nodes = self.folder.join("topology/nodes");
        let gpus = list_names(&nodes).unwrap_or_default().into_iter().filter_map(|node| {
            let node = nodes.join(node);
            let address = parse_address(&read_once(&node.join("properties"))?)?;
            Some((read_once(&node.join("gpu_id"))?, number_of(&address)?))
        });
        self.gpus = gpus.collect();
    }

    /// Adds the memory that each process holds. One without memory on a GPU is not on it.
    pub(super) fn collect_readings(&self, report: &mut Report) {
        if self.gpus.is_empty() {
            return;
        }
        let processes = self.folder.join("proc");
        let names = list_names(&processes).unwrap_or_default();
        let pids = names.into_iter().filter_map(|name| name.parse::<u32>().ok());
        for pid in pids.take(MAX_PROCESSES) {
            let mut held: BTreeMap<u32, u64> = BTreeMap::new();
            for (id, gpu) in &self.gpus {
                let file = processes.join(pid.to_string()).join(format!("vram_{id}"));
                let bytes = read_once(&file).and_then(|text| text.parse::<u64>().ok());
                *held.entry(*gpu).or_default() += bytes.unwrap_or_default();
            }
            for (gpu, bytes) in held.into_iter().filter(|(_, bytes)| *bytes > 0) {
                let process = Device::new_gpu_part(DeviceClass::Process, gpu, pid);
                let device = report.ensure_device(process);
                report.push(device, gpu_parts::PROCESS_MEMORY, bytes as f64);
            }
        }
    }
}

/// The PCI address in a GPU's properties: `location_id` has bus, device and function, `domain` the rest.
fn parse_address(properties: &str) -> Option<String> {
    let property = |name: &str| {
        let mut lines = properties.lines().filter_map(|line| line.split_once(' '));
        lines.find(|(key, _)| *key == name)?.1.trim().parse::<u32>().ok()
    };
    let (domain, location) = (property("domain").unwrap_or_default(), property("location_id")?);
    let (bus, device, function) = (location >> 8 & 0xff, location >> 3 & 0x1f, location & 0x7);
    Some(format!("{domain:04x}:{bus:02x}:{device:02x}.{function}"))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn processes_have_the_gpus_on_which_they_hold_memory() {
        let sys = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = sys.path().join("class/kfd/kfd").join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        // A processor, and two GPUs of which the second has two partitions.
        write("topology/nodes/0/gpu_id", "0\n");
        write("topology/nodes/0/properties", "cpu_cores_count 64\nlocation_id 0\ndomain 0\n");
        for (node, id, location) in [(1, 4_711, 0x2f00), (2, 4_712, 0xc100), (3, 4_713, 0xc100)] {
            write(&format!("topology/nodes/{node}/gpu_id"), &format!("{id}\n"));
            let properties = format!("simd_count 304\nlocation_id {location}\ndomain 0\n");
            write(&format!("topology/nodes/{node}/properties"), &properties);
        }
        for (pid, held) in [(40, [512, 0, 0]), (41, [0, 100, 28]), (42, [0, 0, 0])] {
            for (id, bytes) in [4_711, 4_712, 4_713].into_iter().zip(held) {
                write(&format!("proc/{pid}/vram_{id}"), &format!("{bytes}\n"));
            }
        }
        let mut processes = AmdProcesses::new(sys.path());
        processes.discover_gpus(|address| {
            let known = ["0000:2f:00.0", "0000:c1:00.0"];
            known.iter().position(|it| *it == address).map(|at| at as u32 + 4)
        });
        let mut report = Report::default();
        processes.collect_readings(&mut report);
        let shown = report.samples.iter().map(|sample| {
            let device = &report.devices[sample.device as usize];
            (device.key[0].to_string(), device.key[1].to_string(), sample.reading.value().unwrap())
        });
        let expected = [("4", "40", 512.0), ("5", "41", 128.0)];
        let expected = expected.map(|(gpu, pid, bytes)| (gpu.to_owned(), pid.to_owned(), bytes));
        assert_eq!(shown.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn addresses_follow_from_locations() {
        let address = |text| parse_address(text);
        assert_eq!(address("location_id 50433\ndomain 1\n").as_deref(), Some("0001:c5:00.1"));
        assert_eq!(address("domain 1\n"), None);
    }
}
