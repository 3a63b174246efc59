//! node_exporter: series where several of its own map to one of ours, or one to several.

use foldhash::fast::RandomState;
use hashbrown::HashMap;

use super::{
    decode_plan::{BlankValues, DecodeOp, ValueRule},
    report_builder::{ReportBuilder, has_info},
};
use crate::{
    Device, DeviceClass, SanitizedText,
    catalogue::{UnitScale, host, port},
    text::{Reason, SeriesLabel, TextSample},
};

const CPU: &str = "node_cpu_seconds_total";
const UNAME: &str = "node_uname_info";
const NETWORK: &str = "node_network_info";
const INFINIBAND: &str = "node_infiniband_info";

/// The names that this module handles.
pub(super) const SPECIAL_NAMES: [&str; 4] = [CPU, UNAME, NETWORK, INFINIBAND];

/// The modes of a CPU that are not work.
const IDLE: &str = "idle";
const IOWAIT: &str = "iowait";

/// The modes in which a CPU runs the kernel.
const KERNEL: [&str; 3] = ["system", "irq", "softirq"];

/// The state that is collected over the page and written at its end.
#[derive(Debug, Default)]
pub(super) struct NodeExporterDecoder<'a> {
    /// The node's name, from its kernel.
    pub(super) node: Option<SanitizedText>,
    /// The kernel's release.
    kernel: Option<SanitizedText>,
    /// The CPUs that were seen, numbered in their order.
    cpus: HashMap<&'a str, u16, RandomState>,
    /// The sample of the time waiting for input or output.
    iowait: Option<u32>,
    /// Whether the page has gaunt's own metrics of the CPUs.
    has_own_cpu: bool,
    /// RDMA devices with firmware and type: it reports per device what gaunt reports per port.
    adapters: HashMap<SanitizedText, RdmaAdapter, RandomState>,
}

/// The identity of an RDMA device.
#[derive(Debug)]
struct RdmaAdapter {
    firmware: SanitizedText,
    hca_type: SanitizedText,
}

impl<'a> NodeExporterDecoder<'a> {
    /// Whether this module handles the name.
    pub(super) fn is_known_name(name: &str) -> bool {
        SPECIAL_NAMES.contains(&name)
    }

    /// Decodes a series that is not a catalogue row under another name.
    pub(super) fn decode_series(
        &mut self,
        builder: &mut ReportBuilder<'a>,
        sample: &TextSample<'_, 'a>,
    ) -> Result<DecodeOp, Reason> {
        let text =
            |label| sample.find_label(label).map(SeriesLabel::unescaped_value).unwrap_or_default();
        match sample.name {
            CPU => return self.decode_cpu(builder, sample),
            UNAME => {
                let value = |name| {
                    sample.find_label(name).map(|label| label.unescaped_value().as_ref().into())
                };
                self.node = self.node.take().or_else(|| value("nodename"));
                self.kernel = self.kernel.take().or_else(|| value("release"));
            }
            NETWORK => {
                let device = builder
                    .device_of_sample(DeviceClass::Netdev, sample)
                    .ok_or(Reason::NoDevice)?;
                let labels = [("address", &*text("address")), ("operstate", &*text("operstate"))];
                builder.report.add_info(device, host::NETDEV_INFO, &labels);
            }
            _ => {
                let device = sample.find_label("device").ok_or(Reason::NoDevice)?;
                let firmware = text("firmware_version").as_ref().into();
                let hca_type = text("hca_type").as_ref().into();
                self.adapters.insert(
                    device.unescaped_value().as_ref().into(),
                    RdmaAdapter { firmware, hca_type },
                );
            }
        }
        Ok(DecodeOp::Ignore)
    }

    fn decode_cpu(
        &mut self,
        builder: &mut ReportBuilder<'a>,
        sample: &TextSample<'_, 'a>,
    ) -> Result<DecodeOp, Reason> {
        let cpu = sample.find_label("cpu").ok_or(Reason::NoDevice)?;
        let mode = sample.find_label("mode").ok_or(Reason::NoDevice)?;
        let node = builder.ensure_device(Device::new_node());
        if self.cpus.is_empty() {
            // On a page that has both, gaunt's own series come first and take precedence.
            self.has_own_cpu = builder.has_own_names && builder.has_sample(node, host::CPU_BUSY);
        }
        if self.has_own_cpu {
            return Ok(DecodeOp::Ignore);
        }
        // Where the lines of all CPUs are one sum, their number and the busiest one are unknown.
        let is_numbered = cpu.raw.bytes().all(|byte| byte.is_ascii_digit());
        let mut order = u16::MAX;
        if is_numbered {
            let next = u16::try_from(self.cpus.len()).unwrap_or(u16::MAX);
            order = *self.cpus.entry(cpu.raw).or_insert(next);
            builder.set_constant(node, host::CPUS, self.cpus.len() as f64);
        }
        if mode.raw == IOWAIT && self.iowait.is_none() {
            self.iowait = builder.add_sample(node, host::CPU_IOWAIT, 0.0.into()).ok();
        }
        Ok(match (mode.raw, self.iowait) {
            (IOWAIT, Some(index)) => DecodeOp::CpuIowait { index, cpu: order },
            (IDLE | IOWAIT, _) => DecodeOp::CpuIdle(order),
            _ => {
                let rule = ValueRule::of(host::CPU_BUSY, UnitScale::Same, BlankValues::Never);
                if KERNEL.contains(&mode.raw) {
                    builder.plan_two_sums(node, [host::CPU_BUSY, host::CPU_KERNEL], rule)?
                } else {
                    builder.plan_sum(node, host::CPU_BUSY, rule)
                }
            }
        })
    }

    /// Adds the info series that are complete only at the end of the page.
    pub(super) fn add_infos(&self, builder: &mut ReportBuilder<'a>) {
        let has_node_info = builder.report.infos.iter().any(|info| info.metric == host::NODE_INFO);
        if let (false, Some(node), Some(kernel)) = (has_node_info, &self.node, &self.kernel) {
            let device = builder.ensure_device(Device::new_node());
            builder.report.add_info(device, host::NODE_INFO, &[("node", node), ("kernel", kernel)]);
        }
        for index in 0..builder.report.devices.len() {
            let device = &builder.report.devices[index];
            if device.class != DeviceClass::Port
                || has_info(&builder.report, index as u32, port::INFO)
            {
                continue;
            }
            let Some(adapter) = self.adapters.get(&device.key[0]) else { continue };
            let labels = [("firmware", &*adapter.firmware), ("hca_type", &*adapter.hca_type)];
            builder.report.add_info(index as u32, port::INFO, &labels);
        }
    }
}
