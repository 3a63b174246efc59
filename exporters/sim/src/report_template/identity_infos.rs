//! Identity labels of everything on a node: the constant parts of its reports.

use gaunt_schema::{
    Report,
    catalogue::{gpu, host, port},
};

use super::{DeviceLayout, OPERSTATE_UP, mig_samples};
use crate::{fleet_shape::FleetShape, gpu_activity::GpuModel, sim_job::SimJob};

/// Writes the identity labels of all devices.
pub(super) fn write_infos(
    page: &mut Report,
    layout: DeviceLayout,
    shape: &FleetShape,
    node: usize,
    job: Option<&SimJob>,
    model: &GpuModel,
) {
    let name = page.node.clone().unwrap_or_else(|| "".into());
    let version = env!("CARGO_PKG_VERSION");
    page.add_info(
        0,
        host::NODE_INFO,
        &[
            ("node", name.as_str()),
            ("version", version),
            ("kernel", "6.12.48-simulated"),
            ("cluster", "sim"),
        ],
    );
    for index in 0..layout.gpus {
        let device = (DeviceLayout::GPUS + index) as u32;
        let uuid = format!("GPU-51a0{node:04x}-{index:04x}-4000-8000-00005e551024");
        let bus = format!("00000000:{:02X}:00.0", 0x1b + 0x10 * index);
        let serial = (1_650_000_000_000 + (node * layout.gpus + index) as u64).to_string();
        let domain = format!("51a0d0ma-1000-4000-8000-{:012x}", shape.domain_of(node).start);
        let mut labels = vec![
            ("uuid", uuid.as_str()),
            ("model", model.name),
            ("pci_bus_id", bus.as_str()),
            ("serial", serial.as_str()),
            ("driver", "580.95.05"),
        ];
        if shape.domain_nodes > 1 {
            labels.extend([("cluster_uuid", domain.as_str()), ("clique", "0")]);
        }
        page.add_info(device, gpu::INFO, &labels);
        if let Some(job) = job {
            page.add_info(
                device,
                gpu::JOB_INFO,
                &[
                    ("job", &job.id),
                    ("name", job.name),
                    ("user", job.user),
                    ("rank", &(job.rank + index).to_string()),
                ],
            );
        }
    }
    write_network_infos(page, layout, shape, node);
    mig_samples::write_mig_infos(page, layout, node);
}

/// Sets the maintenance reservation as the job of every GPU, as a batch system does.
pub(super) fn set_maintenance_job(report: &mut Report) {
    for info in report.infos.iter_mut().filter(|info| info.metric == gpu::JOB_INFO) {
        let labels = [("job", "48099"), ("name", "maintenance"), ("user", "root")];
        info.labels = labels.map(|(name, value)| (name.into(), value.into())).to_vec().into();
    }
}

fn write_network_infos(page: &mut Report, layout: DeviceLayout, shape: &FleetShape, node: usize) {
    for netdev in 0..=layout.rails {
        let (high, low) = (node >> 8, node & 0xff);
        page.add_info(
            (layout.bond_index() + netdev) as u32,
            host::NETDEV_INFO,
            &[("address", &format!("02:51:a0:{high:02x}:{low:02x}:{netdev:02x}")), OPERSTATE_UP],
        );
    }
    for rail in 0..layout.rails {
        page.add_info(
            (layout.first_port() + rail) as u32,
            port::INFO,
            &[
                ("netdev", &format!("rail{rail}")),
                ("link_layer", "Ethernet"),
                ("firmware", "28.43.2566"),
                ("hca_type", "MT4129"),
                ("rail", &rail.to_string()),
                ("leaf", &shape.leaf_name(node, rail)),
            ],
        );
    }
}
