//! Draws the network: switches, and the RDMA ports of every node with what they are used for.

use super::family::Forced;
use crate::{
    cluster_plan::{FabricPlan, GpuModel, LeafLayout, LinkLayer, PortPlan, PortRole},
    random::RandomKey,
};

/// Draws the fabric of so many nodes.
pub(super) fn draw_fabric(
    key: RandomKey,
    forced: &Forced,
    nodes: usize,
    rails: usize,
) -> FabricPlan {
    let key = key.child("fabric");
    let link_layer = forced.link_layer.unwrap_or_else(|| {
        let is_infiniband = key.child("layer").chance(0.35);
        if is_infiniband { LinkLayer::InfiniBand } else { LinkLayer::Ethernet }
    });
    let is_ethernet = link_layer == LinkLayer::Ethernet;
    let layout_draw = key.child("layout").unit();
    let leaf_layout = match (rails, forced.topology.is_some()) {
        (1, _) => LeafLayout::PerRack,
        // A site that describes a tree has one leaf switch above a rack more often.
        (_, true) if layout_draw < 0.6 => LeafLayout::PerRack,
        _ if layout_draw < 0.5 => LeafLayout::PerRail,
        _ if layout_draw < 0.8 => LeafLayout::PerRack,
        _ => LeafLayout::DualRack,
    };
    let nodes_per_leaf = match key.child("below").index(5) {
        0 => 2,
        1 => 3,
        2 => 4,
        3 => 8,
        _ => 16,
    };
    let groups = nodes.div_ceil(nodes_per_leaf);
    let leaves_of_group = leaves_per_group(leaf_layout, rails);
    let has_pfc =
        is_ethernet && forced.has_pfc.unwrap_or_else(|| key.child("priority").chance(0.92));
    let (low_gain, high_gain) = forced.mark_gain.unwrap_or((0.0005, 0.3));
    let is_adaptive = key.child("adaptive").chance(0.2);
    FabricPlan {
        link_layer,
        leaves: groups * leaves_of_group,
        leaf_layout,
        nodes_per_leaf,
        has_pfc,
        // Without either, congestion would only show as loss.
        has_ecn: is_ethernet && (forced.mark_gain.is_some() || key.child("marks").chance(0.93)),
        mark_gain: key.child("gain").log_uniform(low_gain, high_gain),
        has_adaptive_routing: is_adaptive,
        wait_tick_s: key.child("tick").log_uniform(2e-9, 1e-7),
    }
}

/// Leaf switches of a group of nodes.
pub(super) fn leaves_per_group(layout: LeafLayout, rails: usize) -> usize {
    match layout {
        LeafLayout::PerRail => rails,
        LeafLayout::PerRack => 1,
        LeafLayout::DualRack => 2,
    }
}

/// The leaf switch of a rail's port of a node.
pub(super) fn leaf_of(fabric: &FabricPlan, rails: usize, node: usize, rail: usize) -> usize {
    let group = node / fabric.nodes_per_leaf;
    let within = match fabric.leaf_layout {
        LeafLayout::PerRail => rail,
        LeafLayout::PerRack => 0,
        LeafLayout::DualRack => rail % 2,
    };
    group * leaves_per_group(fabric.leaf_layout, rails) + within
}

/// Number of rails of nodes with so many GPUs.
pub(super) fn draw_rails(key: RandomKey, model: GpuModel, gpus: usize) -> usize {
    let key = key.child("rails");
    if model == GpuModel::L40S {
        return key.pick(&[1, 1, 2, 2, 4]).min(gpus);
    }
    match key.index(10) {
        0 => 1,
        1 => 2,
        2..=4 => (gpus / 2).max(1),
        _ => gpus,
    }
}

/// Rate of a rail in Gbit/s.
fn rail_rate(key: RandomKey, model: GpuModel) -> f64 {
    let rates: &[f64] = match model {
        GpuModel::A100 => &[100.0, 200.0, 200.0],
        GpuModel::L40S => &[100.0, 200.0],
        GpuModel::B200 => &[400.0, 800.0],
        _ => &[200.0, 400.0, 400.0, 400.0],
    };
    key.child("rate").pick(rates)
}

/// Draws what each port of every node is used for, in the order of their PCI addresses.
pub(super) fn draw_ports(
    key: RandomKey,
    forced: &Forced,
    fabric: &FabricPlan,
    nodes: usize,
    (model, rails): (GpuModel, usize),
) -> Vec<Vec<PortPlan>> {
    let key = key.child("ports");
    let template = draw_template(key, forced, rail_rate(key, model), rails);
    let odd_node = key.child("odd").chance(0.12).then(|| key.child("which odd").index(nodes));
    let chatty = key.child("chatty").chance(0.15).then(|| key.child("which chatty").index(nodes));
    let node_ports = |node: usize| {
        let node_key = key.child("node").child_index(node);
        let mut ports: Vec<PortPlan> = Vec::new();
        for (slot, (role, rate_gbps)) in template.iter().enumerate() {
            let mut port =
                new_port(node_key.child_index(slot), fabric, (*role, *rate_gbps), forced);
            if let PortRole::Collective { rail } = role {
                port.leaf = Some(leaf_of(fabric, rails, node, *rail));
                let is_chatty = chatty == Some(node) && *rail == 0;
                if is_chatty && fabric.has_ecn {
                    port.background_mark_share = key.child("chat").log_uniform(0.003, 0.03);
                }
            }
            ports.push(port);
        }
        if odd_node == Some(node) {
            let at = node_key.child("odd at").index(ports.len() + 1);
            ports.insert(
                at,
                new_port(node_key.child("odd"), fabric, (PortRole::Unused, 100.0), forced),
            );
        }
        ports
    };
    (0..nodes).map(node_ports).collect()
}

/// Roles and rates that the nodes have in common.
fn draw_template(
    key: RandomKey,
    forced: &Forced,
    rail_rate: f64,
    rails: usize,
) -> Vec<(PortRole, f64)> {
    let key = key.child("template");
    let mut order: Vec<usize> = (0..rails).collect();
    if key.child("shuffled").chance(0.15) {
        order.sort_by_key(|rail| key.child("order").child_index(*rail).bits());
    }
    let mut ports: Vec<(PortRole, f64)> =
        order.into_iter().map(|rail| (PortRole::Collective { rail }, rail_rate)).collect();
    let probability = forced.other_ports.unwrap_or(0.25);
    let mut add = |purpose: &str, role: PortRole, rates: &[f64]| {
        let key = key.child(purpose);
        if key.child("present").chance(probability) {
            let count = if key.child("pair").chance(0.3) { 2 } else { 1 };
            let at = key.child("at").index(ports.len() + 1);
            let rate = key.child("rate").pick(rates);
            for _ in 0..count {
                ports.insert(at, (role, rate));
            }
        }
    };
    add("storage", PortRole::Storage, &[100.0, 200.0, rail_rate, rail_rate, 400.0, 800.0]);
    add("front end", PortRole::FrontEnd, &[10.0, 25.0, 100.0, rail_rate]);
    add("unused", PortRole::Unused, &[100.0, rail_rate]);
    if key.child("second ports").chance(probability * 0.4) {
        // Cards with two ports of which one is cabled.
        let cards = |(role, rate): (PortRole, f64)| match role {
            PortRole::Collective { .. } => vec![(role, rate), (PortRole::Unused, rate)],
            _ => vec![(role, rate)],
        };
        ports = ports.into_iter().flat_map(cards).collect();
    }
    ports
}

fn new_port(
    key: RandomKey,
    fabric: &FabricPlan,
    (role, rate_gbps): (PortRole, f64),
    forced: &Forced,
) -> PortPlan {
    let is_loud = forced.mark_gain.is_some_and(|(low, _)| low > 0.01);
    let background = key.child("background");
    let background_bytes_per_s = match role {
        PortRole::Collective { .. } => background.log_uniform(3e2, 3e4),
        PortRole::Storage => background.log_uniform(1e4, 0.02 * rate_gbps * 1e9 / 8.0),
        PortRole::FrontEnd => background.log_uniform(1e3, 1e6),
        PortRole::Unused => 0.0,
    };
    let marks = key.child("marks");
    let background_mark_share = if !fabric.has_ecn || role == PortRole::Unused {
        0.0
    } else if is_loud {
        marks.log_uniform(1e-5, 0.01)
    } else {
        marks.log_uniform(1e-7, 1e-4)
    };
    let disorder = key.child("disorder");
    let background_out_of_sequence_ppm = match (role, fabric.has_adaptive_routing) {
        (PortRole::Unused, _) => 0.0,
        (_, true) => disorder.log_uniform(100.0, 20_000.0),
        (_, false) => disorder.log_uniform(0.01, 5.0),
    };
    PortPlan {
        role,
        rate_gbps,
        is_never_up: role == PortRole::Unused,
        leaf: None,
        background_bytes_per_s,
        background_mark_share,
        background_out_of_sequence_ppm,
    }
}
