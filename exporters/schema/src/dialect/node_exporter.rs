//! node_exporter: what it says in several series that we say in one, and the other way round.

use foldhash::fast::RandomState;
use hashbrown::{HashMap, HashSet};

use super::assembly::{Assembly, has_info};
use crate::{
    Absent, Class, Device, MetricId, Safe,
    catalogue::{host, port},
    text::{Label, Reason, Sample},
};

const CPU: &str = "node_cpu_seconds_total";
const UNAME: &str = "node_uname_info";
const NETWORK: &str = "node_network_info";
const INFINIBAND: &str = "node_infiniband_info";

/// The modes of a CPU that are not work.
const IDLE: &str = "idle";
const IOWAIT: &str = "iowait";

/// What is gathered over the page and said at its end.
#[derive(Debug, Default)]
pub(super) struct NodeExporter<'a> {
    /// The node's name, from its kernel.
    pub(super) node: Option<Safe>,
    /// The kernel's release.
    kernel: Option<Safe>,
    /// The CPUs that were seen.
    cpus: HashSet<&'a str, RandomState>,
    busy: f64,
    iowait: f64,
    /// RDMA devices with firmware and type: it says once for a device what we say for each port.
    adapters: HashMap<Safe, Adapter, RandomState>,
}

/// What an RDMA device is.
#[derive(Debug)]
struct Adapter {
    firmware: Safe,
    hca_type: Safe,
}

impl<'a> NodeExporter<'a> {
    /// Whether the name is one that this module takes.
    pub(super) fn knows(name: &str) -> bool {
        matches!(name, CPU | UNAME | NETWORK | INFINIBAND)
    }

    /// Takes a series that is not one of ours under another name.
    pub(super) fn take(
        &mut self,
        assembly: &mut Assembly<'a>,
        sample: &Sample<'_, 'a>,
    ) -> Result<(), Reason> {
        let text = |label| sample.label(label).map(Label::value).unwrap_or_default();
        match sample.name {
            CPU => self.cpu(sample)?,
            UNAME => {
                let value = |name| sample.label(name).map(|label| label.value().as_ref().into());
                self.node = self.node.take().or_else(|| value("nodename"));
                self.kernel = self.kernel.take().or_else(|| value("release"));
            }
            NETWORK => {
                let device = assembly.device_of(Class::Netdev, sample).ok_or(Reason::NoDevice)?;
                let labels = [("address", &*text("address")), ("operstate", &*text("operstate"))];
                assembly.report.info(device, host::NETDEV_INFO, &labels);
            }
            _ => {
                let device = sample.label("device").ok_or(Reason::NoDevice)?;
                let firmware = text("firmware_version").as_ref().into();
                let hca_type = text("hca_type").as_ref().into();
                self.adapters
                    .insert(device.value().as_ref().into(), Adapter { firmware, hca_type });
            }
        }
        Ok(())
    }

    fn cpu(&mut self, sample: &Sample<'_, 'a>) -> Result<(), Reason> {
        let cpu = sample.label("cpu").ok_or(Reason::NoDevice)?;
        let mode = sample.label("mode").ok_or(Reason::NoDevice)?;
        self.cpus.insert(cpu.raw);
        match mode.raw {
            IDLE => {}
            IOWAIT => self.iowait += sample.value,
            _ => self.busy += sample.value,
        }
        Ok(())
    }

    /// Adds what could be said only when the page was over.
    pub(super) fn finish(&self, assembly: &mut Assembly<'a>) {
        let told = assembly.report.infos.iter().any(|info| info.metric == host::NODE_INFO);
        if let (false, Some(node), Some(kernel)) = (told, &self.node, &self.kernel) {
            let at = assembly.device(Device::node());
            assembly.report.info(at, host::NODE_INFO, &[("node", node), ("kernel", kernel)]);
        }
        if !self.cpus.is_empty() {
            let node = assembly.device(Device::node());
            for (metric, value) in [
                (host::CPUS, self.cpus.len() as f64),
                (host::CPU_BUSY, self.busy),
                (host::CPU_IOWAIT, self.iowait),
            ] {
                // On a page that has both words for it, gaunt's own stand first and stay.
                let _ = assembly.push(node, metric, value);
            }
        }
        for at in 0..assembly.report.devices.len() {
            let device = &assembly.report.devices[at];
            if device.class != Class::Port || has_info(&assembly.report, at as u32, port::INFO) {
                continue;
            }
            let Some(adapter) = self.adapters.get(&device.key[0]) else { continue };
            let labels = [("firmware", &*adapter.firmware), ("hca_type", &*adapter.hca_type)];
            assembly.report.info(at as u32, port::INFO, &labels);
        }
    }

    /// Why the value is none, if it is one that stands for no value: an interface that has no rate has minus one.
    pub(super) fn blank(metric: MetricId, sample: &Sample<'_, '_>) -> Option<Absent> {
        (metric == host::NETDEV_SPEED && sample.value < 0.0).then_some(Absent::Unsupported)
    }
}
