//! What is usual, as it outlives a restart: a fault that lasts over one must not be taken for usual by who looks anew.

use std::collections::HashMap;

use gaunt_schema::{Class, Safe};
use serde::{Deserialize, Serialize};

use super::{Gpu, Judge, baseline::Baseline, host::Host, signals::Averages};
use crate::cluster::Cluster;

/// What was learned of everything that is known, by names: rows mean nothing after a restart.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Usual {
    nodes: HashMap<Safe, OfNode>,
}

/// What was learned of a node and its devices, by their keys.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct OfNode {
    host: Option<[Baseline; 4]>,
    /// With the least power that each was seen to draw.
    gpus: HashMap<Safe, ([Baseline; 4], Option<f32>)>,
    /// With the highest rate that each was seen at; keys are device and port.
    ports: HashMap<Safe, ([Baseline; 3], Option<f64>)>,
}

impl Usual {
    /// What the judge has learned by now.
    pub(super) fn of(judge: &Judge, cluster: &Cluster) -> Self {
        let mut usual = Self::default();
        // What was not seen since a restart is not forgotten for another one.
        usual.nodes.clone_from(&judge.before.nodes);
        for (id, node) in cluster.nodes() {
            let of = usual.nodes.entry(node.name.clone()).or_default();
            if let Some(host) = judge.hosts.get(&id) {
                of.host = Some(host.learned());
            }
            for row in node.rows(Class::Gpu) {
                let entry = cluster.device(Class::Gpu, *row);
                let key = entry.and_then(|entry| entry.device.key.first());
                let own = judge.gpus.get(*row as usize).map(|gpu| gpu.averages.learned());
                if let (Some(key), Some(own)) = (key, own)
                    && own.0.iter().any(|usual| !usual.is_new())
                {
                    of.gpus.insert(key.clone(), own);
                }
            }
        }
        for (row, own) in judge.links.learned() {
            if let Some((node, key)) = port(cluster, row)
                && let Some(of) = usual.nodes.get_mut(&node)
            {
                of.ports.insert(key, own);
            }
        }
        usual
    }

    /// Gives every node that is seen for the first time what was learned of it before.
    pub(super) fn recall(judge: &mut Judge, cluster: &Cluster) {
        if judge.before.nodes.is_empty() {
            return;
        }
        for (id, node) in cluster.nodes() {
            // Devices come with the first page.
            if node.rows(Class::Gpu).is_empty() && node.rows(Class::Port).is_empty() {
                continue;
            }
            let Some(of) = judge.before.nodes.remove(&node.name) else { continue };
            if let Some(usual) = of.host {
                judge.hosts.insert(id, Host::recalling(usual));
            }
            for row in node.rows(Class::Gpu) {
                let entry = cluster.device(Class::Gpu, *row);
                let own = entry.and_then(|entry| of.gpus.get(entry.device.key.first()?));
                if let (Some(own), Some(gpu)) = (own, judge.gpus.get_mut(*row as usize)) {
                    let averages = Averages::recalling(*own);
                    *gpu = Gpu { node: Some(node.name.clone()), averages, ..Gpu::default() };
                }
            }
            for row in node.rows(Class::Port) {
                let own = port(cluster, *row).and_then(|(_, key)| of.ports.get(&key).copied());
                if let Some(own) = own {
                    judge.links.recall(&node.name, *row, own);
                }
            }
        }
    }
}

/// The node of a port, and its device and number in one word.
fn port(cluster: &Cluster, row: u32) -> Option<(Safe, Safe)> {
    let entry = cluster.device(Class::Port, row)?;
    let name = cluster.node(entry.node)?.name.clone();
    Some((name, Safe::new(&entry.device.key.join("/"))))
}
