//! The exporters of one node: what they remember between two scrapes.

use super::{
    RUN_START_S,
    amd_page::{AmdPage, AmdSettings},
    dcgm_page::{DcgmContent, DcgmPage, DcgmSettings},
    gaunt_page::{GauntCollection, GauntPage, GauntSettings},
    gpu_board::{GpuIdentity, identify_gpus},
    gpu_sampler::{GpuSampler, SamplingPlan},
    host_page::{HostPage, HostPort, HostSettings},
    host_values::HostView,
    job_labels::NodeJobs,
};
use crate::{
    exporter_plan::{GpuExporter, JobLabels, NodeExporterPlan},
    job_plan::PausePlan,
    node_state::NodeState,
    random::RandomKey,
    world::World,
};

/// The exporters of one node.
#[derive(Clone, Debug)]
pub(super) struct NodePages {
    node: usize,
    key: RandomKey,
    gpus: Vec<GpuIdentity>,
    jobs: NodeJobs,
    sampler: GpuSampler,
    gpu_page: GpuPage,
    host_page: HostPage,
    /// The newest sample of gaunt-node.
    tick: Option<GauntTick>,
    /// The text of the GPU exporter, as long as nothing on it changes.
    rendered: Option<RenderedPage>,
    /// Who holds the GPUs, as the labels say.
    holders: Option<Vec<Option<usize>>>,
    /// Seconds from the machine's start to that of the run.
    uptime_at_start_s: Option<f64>,
    /// Restarts that have happened.
    restarts: usize,
    /// When the exporters started last, in seconds since the start of the run.
    exporter_start_s: f64,
    /// Scrapes of node_exporter since then.
    host_scrapes: u64,
}

#[derive(Clone, Debug)]
enum GpuPage {
    Dcgm(DcgmPage),
    Amd(AmdPage),
    Gaunt(Box<GauntPage>),
}

/// What gaunt-node sampled besides the GPUs.
#[derive(Clone, Debug)]
struct GauntTick {
    t_s: f64,
    state: NodeState,
    is_driver_hung: bool,
}

#[derive(Clone, Debug)]
struct RenderedPage {
    collection: usize,
    is_dropping: bool,
    text: String,
}

/// What the driver of a node does under a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DriverAnswer {
    /// It answers.
    Normal,
    /// It does not, and the exporter repeats what it had.
    Repeated,
    /// It does not, and the exporter drops what it had.
    Dropped,
}

impl NodePages {
    pub(super) fn new(world: &World, node: usize, key: RandomKey) -> Self {
        let exporters = &world.exporters;
        let (plan, names) = (&world.cluster.nodes[node], &exporters.nodes[node]);
        let node_key = key.child_index(node);
        let sampling = SamplingPlan {
            period_s: exporters.collect_s.max(0.1),
            offset_s: names.collect_offset_s,
            gauge_window_s: exporters.gauge_window_s,
            utilization_window_s: node_key.child("utilization window").uniform(1.0 / 6.0, 1.0),
        };
        Self {
            node,
            key: node_key,
            gpus: identify_gpus(plan, &names.gpu_numbers, node_key.child("gpus")),
            jobs: NodeJobs::of_node(world, node),
            sampler: GpuSampler::new(sampling),
            gpu_page: GpuPage::new(world, names, key, node_key.child("blank")),
            host_page: HostPage::new(host_settings(world, node, key)),
            tick: None,
            rendered: None,
            holders: None,
            uptime_at_start_s: None,
            restarts: 0,
            exporter_start_s: -node_key.child("exporter age").log_uniform(3e3, 3e6),
            host_scrapes: node_key.child("scrapes").index(100_000) as u64,
        }
    }

    /// Whether its exporters are in a restart at an instant.
    pub(super) fn is_restarting(&self, names: &NodeExporterPlan, t_s: f64) -> bool {
        let outage = |index: usize, start: f64| start..start + self.restart_s(index);
        names.restarts_s.iter().enumerate().any(|(index, at)| outage(index, *at).contains(&t_s))
    }

    /// How long a restart takes.
    fn restart_s(&self, index: usize) -> f64 {
        self.key.child("restart").child_index(index).uniform(2.0, 12.0)
    }

    /// Takes note of the node's state at an instant.
    pub(super) fn observe(
        &mut self,
        world: &World,
        t_s: f64,
        state: &NodeState,
        driver: DriverAnswer,
    ) {
        let names = &world.exporters.nodes[self.node];
        self.restart_exporters(names, t_s);
        self.uptime_at_start_s.get_or_insert_with(|| {
            let host = &state.host;
            let busiest = host.cpu_busy_s.iter().copied().fold(0.0, f64::max);
            let iowait = host.cpu_iowait_s / host.cpu_busy_s.len().max(1) as f64;
            busiest + iowait + self.key.child("idle").log_uniform(1e4, 1e6) - t_s
        });
        let is_stalled = names.stalls.as_ref().is_some_and(|stall| is_paused(stall, t_s));
        let is_restarting = self.is_restarting(names, t_s);
        let is_still = is_stalled || is_restarting || driver != DriverAnswer::Normal;
        let is_due = self.sampler.observe(t_s, &state.gpus, is_still);
        // gaunt-node goes on with the host and the ports when the driver hangs.
        if is_due
            && !is_stalled
            && !is_restarting
            && let GpuPage::Gaunt(page) = &mut self.gpu_page
        {
            page.note_sample(self.uptime_at_start_s.unwrap_or(0.0) + t_s, state);
            let is_driver_hung = driver != DriverAnswer::Normal;
            self.tick = Some(GauntTick { t_s, state: state.clone(), is_driver_hung });
            self.rendered = None;
        }
    }

    fn restart_exporters(&mut self, names: &NodeExporterPlan, t_s: f64) {
        let passed = names.restarts_s.iter().filter(|at| **at <= t_s).count();
        if passed <= self.restarts {
            return;
        }
        self.restarts = passed;
        let last = names.restarts_s.iter().enumerate().filter(|(_, at)| **at <= t_s);
        let ends = last.map(|(index, at)| at + self.restart_s(index));
        self.exporter_start_s = ends.fold(f64::MIN, f64::max);
        self.host_scrapes = 0;
        self.rendered = None;
        self.tick = None;
        self.sampler.restart(self.exporter_start_s);
        if let GpuPage::Gaunt(page) = &mut self.gpu_page {
            page.restart();
        }
    }

    /// The page of the GPU exporter.
    pub(super) fn gpu_text(
        &mut self,
        world: &World,
        t_s: f64,
        driver: DriverAnswer,
    ) -> Option<String> {
        let has_new_labels = self.update_labels(world, t_s);
        let collection = self.sampler.latest()?;
        let is_dropping = driver == DriverAnswer::Dropped;
        let is_current = |page: &&RenderedPage| {
            page.collection == collection.number
                && page.is_dropping == is_dropping
                && !has_new_labels
        };
        if let Some(page) = self.rendered.as_ref().filter(is_current) {
            return Some(page.text.clone());
        }
        let mut text = String::with_capacity(
            self.rendered.as_ref().map_or(16_384, |page| page.text.len() + 1_024),
        );
        match &self.gpu_page {
            GpuPage::Dcgm(page) => {
                let content = if is_dropping { DcgmContent::EventsOnly } else { DcgmContent::Full };
                let sticky_xid = &world.exporters.nodes[self.node].sticky_xid;
                page.write_page(&self.gpus, sticky_xid, collection, content, &mut text);
            }
            GpuPage::Amd(page) => {
                let collection = (!is_dropping).then_some(collection);
                page.write_page(&self.gpus, collection, &mut text);
            }
            GpuPage::Gaunt(page) => {
                let tick = self.tick.as_ref()?;
                let content = GauntCollection {
                    gpus: &self.gpus,
                    sticky_xid: &world.exporters.nodes[self.node].sticky_xid,
                    collection,
                    is_driver_hung: tick.is_driver_hung,
                    state: &tick.state,
                    host: &self.host_view(world, tick.t_s, &tick.state),
                    names: self.host_page.settings(),
                };
                page.write_page(&content, &mut text);
            }
        }
        let page = RenderedPage { collection: collection.number, is_dropping, text };
        Some(self.rendered.insert(page).text.clone())
    }

    /// Brings the job labels up to date; returns whether they changed.
    fn update_labels(&mut self, world: &World, t_s: f64) -> bool {
        let lag = match world.exporters.labels {
            JobLabels::None => f64::INFINITY,
            JobLabels::HpcJob | JobLabels::Pods => world.exporters.label_lag_s,
        };
        let gpus = world.cluster.nodes[self.node].gpus.len();
        let holders = self.jobs.holders_at(world, gpus, t_s - lag);
        if self.holders.as_ref() == Some(&holders) {
            return false;
        }
        let labels = self.jobs.label_values(world, &holders);
        self.holders = Some(holders);
        match &mut self.gpu_page {
            GpuPage::Dcgm(page) => page.set_job_labels(&self.gpus, &labels),
            GpuPage::Amd(page) => page.set_job_labels(&self.gpus, &labels),
            GpuPage::Gaunt(page) => page.set_job_labels(&labels),
        }
        true
    }

    /// The page of node_exporter.
    pub(super) fn host_text(&mut self, world: &World, t_s: f64, state: &NodeState) -> String {
        let mut text = String::new();
        self.host_scrapes += 1;
        let host = self.host_view(world, t_s, state);
        self.host_page.write_page(state, &host, &mut text);
        text
    }

    fn host_view<'a>(&self, world: &World, t_s: f64, state: &'a NodeState) -> HostView<'a> {
        let clock_offset_s = world.cluster.nodes[self.node].host.clock_offset_s;
        HostView {
            state: &state.host,
            clock_s: RUN_START_S + t_s + clock_offset_s,
            uptime_s: self.uptime_at_start_s.unwrap_or(1e6) + t_s,
            exporter_start_s: RUN_START_S + self.exporter_start_s + clock_offset_s,
            exporter_age_s: t_s - self.exporter_start_s,
            scrapes: self.host_scrapes,
            noise: self.key.child("scrape noise").child_index(self.host_scrapes as usize).unit(),
        }
    }
}

/// Whether a pause lasts at an instant.
fn is_paused(pause: &PausePlan, t_s: f64) -> bool {
    let since_first = t_s - pause.first_s;
    since_first >= 0.0 && since_first % pause.every_s.max(pause.lasts_s) < pause.lasts_s
}

impl GpuPage {
    fn new(world: &World, names: &NodeExporterPlan, key: RandomKey, blank: RandomKey) -> Self {
        let exporters = &world.exporters;
        let (set, has_profiling) = (exporters.gpu_metrics, names.has_profiling);
        let blank_share = names.blank_share;
        let node = names.gpu_page_name.clone();
        match exporters.gpu_exporter {
            GpuExporter::GauntNode => {
                let settings = GauntSettings { set, has_profiling, blank_share, key: blank };
                Self::Gaunt(Box::new(GauntPage::new(settings)))
            }
            GpuExporter::Amd => Self::Amd(AmdPage::new(AmdSettings {
                set,
                node,
                has_long_clock_types: key.child("long clock types").chance(0.5),
                has_more_labels: key.child("more labels").chance(0.7),
                has_profiling,
                blank_share,
                key: blank,
            })),
            version => {
                let has_new_name_label = match version {
                    GpuExporter::Dcgm49 => true,
                    // 4.8.3 renamed it.
                    GpuExporter::Dcgm48 => key.child("name label").chance(0.4),
                    _ => false,
                };
                Self::Dcgm(DcgmPage::new(DcgmSettings {
                    version,
                    set,
                    name_label: if has_new_name_label { "hostname" } else { "Hostname" },
                    node,
                    // 3.3.7 added it.
                    has_bus_id: version != GpuExporter::Dcgm3 || key.child("bus").chance(0.5),
                    has_empty_pod_labels: key.child("empty labels").chance(0.5),
                    maps_pods: exporters.labels == JobLabels::Pods,
                    driver: match version {
                        GpuExporter::Dcgm3 => "535.183.06",
                        GpuExporter::Dcgm48 => "570.86.15",
                        _ => "580.65.06",
                    },
                    has_profiling,
                    blank_share,
                    key: blank,
                }))
            }
        }
    }
}

/// What of a node its page of node_exporter shows.
fn host_settings(world: &World, node: usize, key: RandomKey) -> HostSettings {
    const INTERFACES: [&str; 4] = ["eno1", "eth0", "ens3f0", "enp1s0f0"];
    let (plan, names) = (&world.cluster.nodes[node], &world.exporters.nodes[node]);
    let ports = HostPort::name_ports(&plan.ports, &names.ports, &names.is_wait_saturated);
    let is_free = |name: &&str| ports.iter().all(|port| port.netdev.as_deref() != Some(name));
    let first = key.child("management").index(INTERFACES.len());
    let candidates = INTERFACES.iter().cycle().skip(first).take(INTERFACES.len());
    let management = candidates.copied().find(is_free).unwrap_or("mgmt0");
    HostSettings {
        node: names.host_page_name.clone(),
        metrics: world.exporters.host_metrics,
        link_layer: world.cluster.fabric.link_layer,
        ports,
        cpus: plan.host.cpus,
        management,
        export: (
            format!("10.20.0.{}", 10 + key.child("nfs server").index(40)),
            key.child("export").pick(&["/export/data", "/scratch", "/vol/datasets"]),
        ),
        versions: (
            key.child("kernel").pick(&["5.15.0-122-generic", "6.8.0-60-generic", "5.14.0-503.el9"]),
            key.child("version").pick(&["1.8.2", "1.9.1", "1.10.2"]),
        ),
        key: key.child_index(node).child("addresses"),
    }
}
