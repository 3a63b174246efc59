//! Draws machines: GPUs with their differences, and hosts with their noise.

use super::family::Forced;
use crate::{
    cluster_plan::{ChorePlan, GpuModel, GpuPlan, HostPlan},
    random::RandomKey,
};

/// The power limit of a board in watts.
pub(super) const fn board_power_w(model: GpuModel) -> f64 {
    match model {
        GpuModel::A100 => 400.0,
        GpuModel::H100 | GpuModel::H200 => 700.0,
        GpuModel::B200 => 1_000.0,
        GpuModel::L40S => 350.0,
        GpuModel::Mi300x => 750.0,
    }
}

/// GPUs of one cluster: models, limits and what differs.
pub(super) struct GpuDraw {
    key: RandomKey,
    /// The model of most nodes.
    pub(super) model: GpuModel,
    /// The model of the nodes from the second number on.
    second_model: Option<(GpuModel, usize)>,
    spread: f64,
    site_limit: f64,
    has_mixed_limits: bool,
    has_hot_slot: bool,
    mig: MigDraw,
}

/// Which GPUs are divided.
#[derive(Clone, Copy)]
enum MigDraw {
    None,
    /// All GPUs of the nodes from this one on.
    NodesFrom(usize),
    /// The last GPUs of every node.
    GpusFrom(usize),
}

impl GpuDraw {
    /// Draws the GPUs of a cluster.
    pub(super) fn draw(key: RandomKey, forced: &Forced, nodes: usize, gpus: usize) -> Self {
        const MODELS: [GpuModel; 8] = [
            GpuModel::A100,
            GpuModel::A100,
            GpuModel::H100,
            GpuModel::H100,
            GpuModel::H100,
            GpuModel::H200,
            GpuModel::B200,
            GpuModel::L40S,
        ];
        let key = key.child("gpus");
        let model = forced.model.unwrap_or_else(|| key.child("model").pick(&MODELS));
        let mix = forced.gpu_mix.unwrap_or(0.1);
        let is_mixed = key.child("mixed").chance(mix) && nodes >= 4 && forced.model.is_none();
        let second = match model {
            GpuModel::H100 => GpuModel::A100,
            GpuModel::A100 | GpuModel::H200 => GpuModel::H100,
            GpuModel::B200 => GpuModel::H200,
            other => other,
        };
        let split = nodes / 2 + key.child("split").index(nodes / 4 + 1);
        let has_mig = forced.has_mig.unwrap_or_else(|| key.child("mig").chance(0.03))
            && matches!(model, GpuModel::A100 | GpuModel::H100 | GpuModel::H200);
        let mig = match (has_mig, nodes) {
            (false, _) => MigDraw::None,
            (true, 4..) if key.child("mig nodes").chance(0.5) => {
                MigDraw::NodesFrom(nodes - 1 - key.child("mig count").index(nodes / 4))
            }
            (true, _) => MigDraw::GpusFrom(gpus - 1 - key.child("mig gpus").index(gpus / 4)),
        };
        let is_capped = key.child("site cap").chance(0.15);
        Self {
            key,
            model,
            second_model: is_mixed.then_some((second, split)),
            spread: key.child("spread").uniform(0.006, 0.018) * if mix > 0.5 { 1.4 } else { 1.0 },
            site_limit: if is_capped { key.child("site limit").uniform(0.6, 0.9) } else { 1.0 },
            has_mixed_limits: key.child("limits").chance(mix),
            has_hot_slot: key.child("hot").chance((2.0 * mix).min(0.8)),
            mig,
        }
    }

    /// The first GPU of every node that is divided into instances, if the last ones are.
    pub(super) fn first_mig_gpu(&self) -> Option<usize> {
        if let MigDraw::GpusFrom(first) = self.mig { Some(first) } else { None }
    }

    /// The first node whose GPUs are all divided.
    pub(super) fn first_mig_node(&self) -> Option<usize> {
        if let MigDraw::NodesFrom(first) = self.mig { Some(first) } else { None }
    }

    /// The GPUs of one node.
    pub(super) fn node_gpus(&self, node: usize, gpus: usize) -> Vec<GpuPlan> {
        let model = match self.second_model {
            Some((second, split)) if node >= split => second,
            _ => self.model,
        };
        let node_key = self.key.child("node").child_index(node);
        let is_node_capped = self.has_mixed_limits && node_key.child("capped").chance(0.3);
        let node_limit =
            if is_node_capped { node_key.child("limit").uniform(0.7, 0.95) } else { 1.0 };
        let hot_slot = self.key.child("hot slot").index(gpus);
        let new_gpu = |gpu: usize| {
            let key = node_key.child_index(gpu);
            let slot_c = self.key.child("slot").child_index(gpu).uniform(0.0, 4.0);
            let is_hot = self.has_hot_slot && gpu == hot_slot;
            let limit_w = board_power_w(model) * self.site_limit * node_limit;
            let has_corrected_errors = key.child("corrected").chance(0.05);
            GpuPlan {
                model,
                silicon_speed: (1.0 + self.spread * key.child("silicon").normal())
                    .clamp(0.94, 1.04),
                power_limit_w: (limit_w / 5.0).round() * 5.0,
                hotter_c: slot_c
                    + if is_hot { self.key.child("hotter").uniform(5.0, 11.0) } else { 0.0 },
                has_mig: match self.mig {
                    MigDraw::None => false,
                    MigDraw::NodesFrom(first) => node >= first,
                    MigDraw::GpusFrom(first) => gpu >= first,
                },
                corrected_errors_per_hour: if has_corrected_errors {
                    key.child("corrected rate").log_uniform(0.1, 20.0)
                } else {
                    0.0
                },
                application_xid: None,
            }
        };
        (0..gpus).map(new_gpu).collect()
    }
}

/// Draws the host of one node.
pub(super) fn draw_host(key: RandomKey, forced: &Forced, node: usize, duration_s: f64) -> HostPlan {
    let site = key.child("hosts of site");
    let key = key.child("host").child_index(node);
    let noise = forced.host_noise.unwrap_or(0.12);
    let is_wide = forced.host_noise.is_some() || site.child("wide").chance(0.3);
    let site_pressure = site.child("pressure").log_uniform(0.0005, 0.02);
    let decades = if is_wide { 1.0 } else { 0.25 };
    let level = |purpose: &str, middle: f64| {
        let exponent = key.child(purpose).uniform(-decades, decades);
        (middle * 10.0_f64.powf(exponent)).min(0.3)
    };
    let cpus = site.child("cpus").pick(&[64, 96, 128, 192, 224, 256]);
    let base_busy_cpus = level("busy", 0.02).max(0.002) * cpus as f64 * 0.5;
    let waves = forced.drift.unwrap_or(0.15);
    let has_wave = site.child("wave").chance(waves);
    let clock_offset_s = if site.child("clocks").chance(0.2) {
        key.child("clock").normal() * site.child("clock spread").log_uniform(0.01, 20.0)
    } else {
        key.child("clock").normal() * 0.005
    };
    HostPlan {
        cpus,
        base_busy_cpus: base_busy_cpus.min(0.25 * cpus as f64),
        base_cpu_pressure: level("cpu pressure", site_pressure),
        base_io_pressure: level("io pressure", 0.5 * site_pressure),
        has_spinning_daemon: key.child("daemon").chance(0.3 * noise),
        chores: draw_chores(key, site, noise, duration_s),
        inlet_c: site.child("inlet").uniform(18.0, 30.0) + key.child("inlet").normal(),
        inlet_wave: if has_wave {
            let period_s = site.child("wave period").log_uniform(200.0, 3_000.0);
            (site.child("wave height").uniform(1.0, 5.0), period_s)
        } else {
            (key.child("wave").uniform(0.0, 0.5), 900.0)
        },
        clock_offset_s,
    }
}

/// Bursts of one host: 1 to 30 an hour, of 2 to 30 s; and a chore that all hosts have at the same minute.
fn draw_chores(key: RandomKey, site: RandomKey, noise: f64, duration_s: f64) -> Vec<ChorePlan> {
    let mut chores = Vec::new();
    if key.child("has chores").chance((2.0 * noise).min(0.9)) {
        let every_s = 3_600.0 / key.child("chore rate").log_uniform(1.0, 30.0);
        let mut at_s = key.child("first chore").uniform(0.0, every_s);
        while at_s < duration_s && chores.len() < 60 {
            let burst = key.child("burst").child_index(chores.len());
            chores.push(new_chore(burst, at_s));
            at_s += every_s * burst.child("gap").uniform(0.5, 1.5);
        }
    }
    if site.child("window").chance(0.5 * noise) {
        let at_s = site.child("window at").uniform(30.0, 600.0);
        let chore = new_chore(key.child("window"), at_s + key.child("late").uniform(0.0, 2.0));
        chores.push(chore);
    }
    chores
}

/// A burst from this instant on, which hardly ever slows a job.
pub(super) fn new_chore(key: RandomKey, at_s: f64) -> ChorePlan {
    let lasts_s = key.child("lasts").log_uniform(2.0, 30.0);
    let cpu_pressure = key.child("cpu").log_uniform(0.005, 0.4);
    let is_slowing = key.child("slows").chance(0.05);
    ChorePlan {
        span_s: at_s..at_s + lasts_s,
        busy_cpus: key.child("cpus").log_uniform(1.0, 24.0),
        cpu_pressure,
        io_pressure: key.child("io").log_uniform(0.001, 0.3),
        slows_host_part: if is_slowing { key.child("slow").uniform(0.01, 0.05) } else { 0.0 },
    }
}
