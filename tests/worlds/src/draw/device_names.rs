//! Names of RDMA devices and network interfaces, as the kernel, udev and vendors choose them.

use super::family::{DeviceStyle, Forced};
use crate::{
    cluster_plan::{GpuModel, LinkLayer, NodePlan, PortRole},
    exporter_plan::PortNames,
    random::RandomKey,
};

/// Draws the style of device names of a cluster.
pub(super) fn draw_style(key: RandomKey, forced: &Forced, layer: LinkLayer) -> DeviceStyle {
    let key = key.child("device style");
    if !forced.has_odd_devices.unwrap_or_else(|| key.child("odd").chance(0.25)) {
        return DeviceStyle::Kernel;
    }
    if layer == LinkLayer::InfiniBand {
        return key.pick(&[DeviceStyle::Pci, DeviceStyle::Guid, DeviceStyle::Kernel]);
    }
    key.pick(&[
        DeviceStyle::Pci,
        DeviceStyle::Pci,
        DeviceStyle::Guid,
        DeviceStyle::Broadcom,
        DeviceStyle::Intel,
        DeviceStyle::Kernel,
    ])
}

/// What the names of all nodes of a cluster have in common.
pub(super) struct DeviceNaming {
    key: RandomKey,
    style: DeviceStyle,
    layer: LinkLayer,
    is_odd: bool,
    has_info: bool,
    has_netdevs: bool,
}

impl DeviceNaming {
    /// Draws the naming of a cluster.
    pub(super) fn draw(key: RandomKey, forced: &Forced, layer: LinkLayer, has_info: bool) -> Self {
        let naming = key.child("devices");
        Self {
            key: naming,
            style: draw_style(key, forced, layer),
            layer,
            is_odd: forced.has_odd_devices.unwrap_or(false),
            has_info,
            has_netdevs: naming.child("netdevs").chance(0.9),
        }
    }

    /// Names of the ports of one node.
    pub(super) fn port_names(&self, node: usize, plan: &NodePlan) -> Vec<PortNames> {
        let numbers = self.numbers(node, plan.ports.len());
        let buses = self.buses(plan);
        let has_bond = self.key.child("bond").chance(0.15);
        let mut bonds = 0;
        let names = plan.ports.iter().enumerate().map(|(slot, port)| {
            let is_bond = has_bond
                && port.role == PortRole::FrontEnd
                && self.style == DeviceStyle::Kernel
                && bonds == 0;
            let device = if is_bond {
                bonds += 1;
                "mlx5_bond_0".to_owned()
            } else {
                self.device_name(node, slot, numbers[slot], buses[slot])
            };
            let netdev = self.has_netdevs.then(|| {
                if is_bond {
                    "bond0".to_owned()
                } else {
                    self.netdev_name(slot, numbers[slot], buses[slot], plan)
                }
            });
            PortNames { device, netdev, has_info: self.has_info }
        });
        names.collect()
    }

    /// Numbers that the kernel gave the devices: in the order of their discovery, which may differ between nodes.
    fn numbers(&self, node: usize, count: usize) -> Vec<usize> {
        let key = self.key.child("numbers");
        let first = if key.child("gap").chance(0.1) { 2 } else { 0 };
        let is_mixed = key.child("mixed").chance(if self.is_odd { 0.6 } else { 0.06 });
        let mut numbers: Vec<usize> = (first..first + count).collect();
        if is_mixed && key.child("node").child_index(node).chance(0.4) {
            let key = key.child("order").child_index(node);
            numbers.sort_by_key(|number| key.child_index(*number).bits());
        }
        numbers
    }

    /// PCI buses, ascending; nodes of one GPU model have the same mainboard.
    fn buses(&self, plan: &NodePlan) -> Vec<usize> {
        let model = plan.gpus.first().map_or(GpuModel::H100, |gpu| gpu.model);
        let key = self.key.child("buses").child(&format!("{model:?}"));
        let stride = 230 / plan.ports.len().max(1);
        let bus = |slot: usize| {
            12 + slot * stride + key.child_index(slot).index(stride.saturating_sub(2).max(1))
        };
        (0..plan.ports.len()).map(bus).collect()
    }

    fn device_name(&self, node: usize, slot: usize, number: usize, bus: usize) -> String {
        let prefix = if self.layer == LinkLayer::InfiniBand { "ib" } else { "roce" };
        match self.style {
            DeviceStyle::Kernel => format!("mlx5_{number}"),
            DeviceStyle::Pci => format!("{prefix}p{bus}s0"),
            DeviceStyle::Guid => {
                let bits = self.key.child("guid").child_index(node).child_index(slot).bits();
                format!("{prefix}x{:016x}", 0x946d_ae00_0000_0000 | (bits & 0xff_ffff_ffff))
            }
            DeviceStyle::Broadcom => format!("bnxt_re{number}"),
            DeviceStyle::Intel => format!("irdma{number}"),
        }
    }

    fn netdev_name(&self, slot: usize, number: usize, bus: usize, plan: &NodePlan) -> String {
        if self.layer == LinkLayer::InfiniBand {
            return match self.key.child("ib netdev").index(2) {
                0 => format!("ib{number}"),
                _ => format!("ibp{bus}s0"),
            };
        }
        let is_front_end = plan.ports[slot].role == PortRole::FrontEnd;
        match self.key.child("netdev").index(5) {
            0 => format!("eth{number}"),
            1 if !is_front_end => format!("rdma{number}"),
            2 => format!("enp{bus}s0f0np0"),
            3 => format!("ens{}np0", 100 + slot),
            _ => format!("enp{bus}s0np0"),
        }
    }
}
