//! Ports of RDMA devices, from `class/infiniband`: each device on its own thread, so that unresponsive firmware affects
//! one card and not all.

use std::{io, path::PathBuf, time::Duration};

use gaunt_schema::{Report, catalogue::port};

use super::{CollectError, CollectOutcome, Collector, collector_runner::CollectorPool};
use crate::{
    SamplerOptions, device_exclusions::DeviceExclusions, kernel_files::list_names, pci_location,
};

mod port_counters;
mod port_rails;
mod rdma_device;

use port_rails::PortRails;
use rdma_device::RdmaDeviceCollector;

/// The most devices that are reported: four times the largest host, which has one for each GPU and the storage.
const MAX_DEVICES: usize = 64;

/// How many devices keep their files open: 8 ports of about 70 files are 560 of the default 1,024 descriptors.
const KEPT_DEVICES: usize = 8;

/// Reads `SYS/class/infiniband/*`.
pub(super) struct PortCollector {
    sys_root: PathBuf,
    folder: PathBuf,
    exclude: DeviceExclusions,
    deadline: Duration,
    names: Vec<String>,
    pool: CollectorPool,
    /// The configured order of the rails.
    order: Vec<String>,
    rails: PortRails,
}

impl PortCollector {
    pub(super) fn new(options: &SamplerOptions) -> Self {
        Self {
            sys_root: options.sys_root.clone(),
            folder: options.sys_root.join("class/infiniband"),
            exclude: DeviceExclusions::new(&options.exclude),
            // Wait less than the round, so that the collector ends before it.
            deadline: options.round_deadline() * 3 / 5,
            names: Vec::new(),
            pool: CollectorPool::default(),
            order: options.rails.clone(),
            rails: PortRails::new(),
        }
    }

    /// Discovers the devices. An excluded one is not read at all: on some hosts each read writes a line to the kernel
    /// log.
    fn discover_devices(&mut self) -> io::Result<()> {
        let mut names = match list_names(&self.folder) {
            Ok(names) => names,
            // Without an RDMA driver the folder does not exist.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(error),
        };
        names.retain(|name| !self.exclude.is_excluded(name));
        names.truncate(MAX_DEVICES);
        if names == self.names {
            return Ok(());
        }
        self.pool.retain_named(|name| names.iter().any(|other| other == name));
        for (position, name) in names.iter().enumerate() {
            if !self.pool.has_collector(name) {
                let card = RdmaDeviceCollector::new(&self.sys_root, name, position < KEPT_DEVICES);
                self.pool.add_collector(Box::new(card));
            }
        }
        let gpus = pci_location::list_gpus(&self.sys_root);
        let card =
            |name: &String| port_rails::RailCandidate::of(name, &self.folder.join(name), &gpus);
        let cards: Vec<_> = names.iter().map(card).collect();
        let configured = port_rails::configured_rails(&cards, &self.order);
        self.rails =
            if self.order.is_empty() { port_rails::detect_rails(&cards) } else { configured };
        self.names = names;
        Ok(())
    }
}

impl Collector for PortCollector {
    fn name(&self) -> &'static str {
        "ports"
    }

    fn collect_readings(&mut self, report: &mut Report) -> Result<CollectOutcome, CollectError> {
        if let Err(source) = self.discover_devices() {
            return Err(CollectError::Read { path: self.folder.clone(), source });
        }
        if self.names.is_empty() {
            let why = format!("no RDMA device in {}", self.folder.display());
            return Ok(CollectOutcome::Nothing(why));
        }
        let now = report.node_time.unwrap_or_default();
        let (mut failed, mut notes) = (Vec::new(), Vec::new());
        for run in self.pool.run(now, self.deadline, report) {
            match run.outcome {
                Err(error) => failed.push(format!("{}: {error}", run.name)),
                Ok(CollectOutcome::Nothing(why)) => notes.push(format!("{}: {why}", run.name)),
                Ok(_) => {}
            }
        }
        let devices = &report.devices;
        for info in report.infos.iter_mut().filter(|info| info.metric == port::INFO) {
            let key = devices.get(info.device as usize).map(|device| &*device.key);
            if let Some([device, number]) = key
                && let Some((rail, source)) = self.rails.get(&(device.clone(), number.clone()))
            {
                info.labels.push(("rail".into(), rail.to_string().into()));
                info.labels.push(("rail_by".into(), (*source).into()));
            }
        }
        if !failed.is_empty() {
            return Err(CollectError::Devices(failed.join("; ")));
        }
        if notes.is_empty() {
            return Ok(CollectOutcome::Found);
        }
        Ok(CollectOutcome::FoundThat { message: notes.join("; "), at: None })
    }
}
