//! Who everything on a node is: the parts of its reports that stay.

use gaunt_schema::{
    Report,
    catalogue::{gpu, host, port},
};

use super::{Layout, OPERSTATE_UP};
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
        page.info(
            device,
            gpu::INFO,
            &[
                ("uuid", &format!("GPU-51a0{node:04x}-{index:04x}-4000-8000-00005e551024")),
                ("model", model.name),
                ("pci_bus_id", &format!("00000000:{:02X}:00.0", 0x1b + 0x10 * index)),
                ("serial", &(1_650_000_000_000 + (node * layout.gpus + index) as u64).to_string()),
                ("driver", "580.95.05"),
            ],
        );
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
