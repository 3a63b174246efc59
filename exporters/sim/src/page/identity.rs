//! Who everything on a node is: the parts of its reports that stay.

use gaunt_schema::{
    Report,
    catalogue::{gpu, host, port},
};

use super::{Layout, OPERSTATE_UP, slices};
use crate::{gpu::Model, job::Job, shape::Shape};

/// Writes who everything is.
pub(super) fn introduce(
    page: &mut Report,
    layout: Layout,
    shape: &Shape,
    node: usize,
    job: Option<&Job>,
    model: &Model,
) {
    let name = page.node.clone().unwrap_or_else(|| "".into());
    let version = env!("CARGO_PKG_VERSION");
    page.info(
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
        let device = (Layout::GPUS + index) as u32;
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
        page.info(device, gpu::INFO, &labels);
        if let Some(job) = job {
            page.info(
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
    introduce_network(page, layout, shape, node);
    slices::introduce(page, layout, node);
}

/// Names the maintenance as the job of every GPU, as a batch system does that reserves nodes for it.
pub(super) fn maintain(report: &mut Report) {
    for info in report.infos.iter_mut().filter(|info| info.metric == gpu::JOB_INFO) {
        let labels = [("job", "48099"), ("name", "maintenance"), ("user", "root")];
        info.labels = labels.map(|(name, value)| (name.into(), value.into())).to_vec().into();
    }
}

fn introduce_network(page: &mut Report, layout: Layout, shape: &Shape, node: usize) {
    for netdev in 0..=layout.rails {
        let (high, low) = (node >> 8, node & 0xff);
        page.info(
            (layout.bond() + netdev) as u32,
            host::NETDEV_INFO,
            &[("address", &format!("02:51:a0:{high:02x}:{low:02x}:{netdev:02x}")), OPERSTATE_UP],
        );
    }
    for rail in 0..layout.rails {
        page.info(
            (layout.ports() + rail) as u32,
            port::INFO,
            &[
                ("netdev", &format!("rail{rail}")),
                ("link_layer", "Ethernet"),
                ("firmware", "28.43.2566"),
                ("hca_type", "MT4129"),
                ("rail", &rail.to_string()),
                ("leaf", &shape.leaf(node, rail)),
            ],
        );
    }
}
