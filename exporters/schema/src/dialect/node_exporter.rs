//! node_exporter: what it says in several series that we say in one, and the other way round.

use foldhash::fast::RandomState;
use hashbrown::{HashMap, HashSet};

use super::{
    assembly::{Assembly, has_info},
    plan::{Blank, Op, Rule},
};
use crate::{
    Class, Device, Safe,
    catalogue::{Scale, host, port},
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
    /// Whether gaunt's own words for the CPUs stand on the page.
    told: bool,
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
    ) -> Result<Op, Reason> {
        let text = |label| sample.label(label).map(Label::value).unwrap_or_default();
        match sample.name {
            CPU => return self.cpu(assembly, sample),
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
        Ok(Op::Ignore)
    }

    fn cpu(&mut self, assembly: &mut Assembly<'a>, sample: &Sample<'_, 'a>) -> Result<Op, Reason> {
        let cpu = sample.label("cpu").ok_or(Reason::NoDevice)?;
        let mode = sample.label("mode").ok_or(Reason::NoDevice)?;
        let node = assembly.device(Device::node());
        if self.cpus.is_empty() {
            // On a page that has both words for it, gaunt's own stand first and stay.
            self.told = assembly.own && assembly.has(node, host::CPU_BUSY);
        }
        if self.told {
            return Ok(Op::Ignore);
        }
        self.cpus.insert(cpu.raw);
        assembly.set(node, host::CPUS, self.cpus.len() as f64);
        let metric = match mode.raw {
            IDLE => return Ok(Op::Ignore),
            IOWAIT => host::CPU_IOWAIT,
            _ => host::CPU_BUSY,
        };
        Ok(assembly.sum(node, metric, Rule::of(metric, Scale::Same, Blank::Never)))
    }

    /// Adds what could be said only when the page was over.
    pub(super) fn finish(&self, assembly: &mut Assembly<'a>) {
        let told = assembly.report.infos.iter().any(|info| info.metric == host::NODE_INFO);
        if let (false, Some(node), Some(kernel)) = (told, &self.node, &self.kernel) {
            let at = assembly.device(Device::node());
            assembly.report.info(at, host::NODE_INFO, &[("node", node), ("kernel", kernel)]);
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
}
