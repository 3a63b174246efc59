//! The pages that the exporters of a world serve, scrape by scrape.

mod amd_page;
mod dcgm_fields;
mod dcgm_page;
mod decimal;
#[cfg(test)]
mod drawn_worlds;
mod gaunt_host;
mod gaunt_page;
mod gpu_board;
mod gpu_sampler;
mod gpu_view;
mod host_families;
mod host_interfaces;
mod host_page;
mod host_values;
mod job_labels;
mod node_pages;
mod page_template;
mod port_values;
#[cfg(test)]
mod test_world;
#[cfg(test)]
mod tests;

use self::node_pages::{DriverAnswer, NodePages};
use crate::{
    exporter_plan::GpuExporter,
    fault_plan::FaultKind,
    node_state::NodeState,
    random::RandomKey,
    world::{RUN_START, World},
};

/// The start of every run, in seconds since the Unix epoch: machines' clocks show it with their offset.
pub const RUN_START_S: f64 = RUN_START.0 as f64 / 1e3;

/// Share of hung drivers whose values the exporter drops, instead of repeating them.
const DROPPING_SHARE: f64 = 0.4;

/// The largest jitter of a scrape, as a share of the period: scrapes keep their order.
const LARGEST_JITTER: f64 = 0.45;

/// A page that is scraped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageTarget {
    /// Node index.
    pub node: usize,
    /// The program that serves it.
    pub program: PageProgram,
    /// Host and port.
    pub address: String,
}

/// A program that serves a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PageProgram {
    /// The GPU exporter; gaunt-node serves host and ports too.
    Gpu(GpuExporter),
    /// Prometheus's node_exporter.
    NodeExporter,
}

impl PageProgram {
    /// The port on which it listens.
    pub const fn default_port(self) -> u16 {
        match self {
            Self::Gpu(GpuExporter::GauntNode) => 9770,
            Self::Gpu(GpuExporter::Dcgm3 | GpuExporter::Dcgm48 | GpuExporter::Dcgm49) => 9400,
            Self::Gpu(GpuExporter::Amd) => 5000,
            Self::NodeExporter => 9100,
        }
    }
}

/// The exporters of a world, with what they remember.
#[derive(Clone, Debug)]
pub struct ExporterPages {
    world: World,
    key: RandomKey,
    targets: Vec<PageTarget>,
    nodes: Vec<NodePages>,
    /// Scrapes of each target.
    scrapes: Vec<usize>,
}

impl ExporterPages {
    /// The exporters of a world before its first scrape.
    pub fn new(world: &World, key: RandomKey) -> Self {
        let gpu_exporter = world.exporters.gpu_exporter;
        let mut targets = Vec::new();
        for (node, names) in world.exporters.nodes.iter().enumerate() {
            let mut add_target = |program: PageProgram| {
                let address = format!("{}:{}", names.address, program.default_port());
                targets.push(PageTarget { node, program, address });
            };
            add_target(PageProgram::Gpu(gpu_exporter));
            if gpu_exporter != GpuExporter::GauntNode {
                add_target(PageProgram::NodeExporter);
            }
        }
        let nodes = 0..world.exporters.nodes.len();
        Self {
            nodes: nodes.map(|node| NodePages::new(world, node, key)).collect(),
            scrapes: vec![0; targets.len()],
            world: world.clone(),
            key,
            targets,
        }
    }

    /// The pages that are scraped.
    pub fn targets(&self) -> &[PageTarget] {
        &self.targets
    }

    /// The first scrape of a target after an instant.
    pub fn due_at(&self, target: usize, after_s: f64) -> f64 {
        let exporters = &self.world.exporters;
        let PageTarget { node, program, .. } = self.targets[target];
        let period = exporters.scrape_s;
        let key = self.key.child("scrapes").child_index(target);
        // Prometheus spreads its targets over the period, those of one machine too.
        let own_offset = match program {
            PageProgram::Gpu(_) => 0.0,
            PageProgram::NodeExporter => key.child("offset").uniform(0.0, period),
        };
        let offset = (exporters.nodes[node].scrape_offset_s + own_offset).rem_euclid(period);
        let jitter = (exporters.jitter_s / 2.0).min(LARGEST_JITTER * period);
        let mut number = ((after_s - offset) / period).floor() - 1.0;
        loop {
            // Scrapes before the start of the run have numbers too.
            let draw = key.child_index((number + 1_000_000.0).max(0.0) as usize);
            let due = offset + number * period + draw.uniform(-jitter, jitter);
            if due > after_s {
                return due;
            }
            number += 1.0;
        }
    }

    /// Takes note of a node's state, for what its GPU exporter collects between scrapes: at least once a second.
    pub fn observe(&mut self, t_s: f64, node: usize, state: &NodeState) {
        let driver = self.driver_answer(node, t_s);
        self.nodes[node].observe(&self.world, t_s, state, driver);
    }

    /// The page of a target at an instant; none where the scrape is lost or nobody answers.
    pub fn scrape(&mut self, t_s: f64, target: usize, state: &NodeState) -> Option<String> {
        let PageTarget { node, program, .. } = self.targets[target];
        self.observe(t_s, node, state);
        self.scrapes[target] += 1;
        let draw = self.key.child("lost").child_index(target).child_index(self.scrapes[target]);
        let exporters = &self.world.exporters;
        if draw.chance(exporters.lost_scrapes)
            || self.is_faulty(FaultKind::ExporterDown, node, t_s)
            || self.nodes[node].is_restarting(&exporters.nodes[node], t_s)
        {
            return None;
        }
        match program {
            PageProgram::Gpu(_) => {
                let driver = self.driver_answer(node, t_s);
                self.nodes[node].gpu_text(&self.world, t_s, driver)
            }
            PageProgram::NodeExporter => Some(self.nodes[node].host_text(&self.world, t_s, state)),
        }
    }

    fn driver_answer(&self, node: usize, t_s: f64) -> DriverAnswer {
        if !self.is_faulty(FaultKind::DriverHung, node, t_s) {
            DriverAnswer::Normal
        } else if self.key.child("hung driver").chance(DROPPING_SHARE) {
            DriverAnswer::Dropped
        } else {
            DriverAnswer::Repeated
        }
    }

    fn is_faulty(&self, kind: FaultKind, node: usize, t_s: f64) -> bool {
        self.world.faults.iter().any(|fault| {
            fault.kind == kind
                && fault.node == node
                && fault.course.size_at(t_s - fault.onset_s) > 0.0
        })
    }
}
