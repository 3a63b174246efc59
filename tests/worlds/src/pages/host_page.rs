//! The page of node_exporter.

use super::{
    decimal::{Decimal, write_shortest_float},
    host_families,
    host_values::{HostValue, HostView, IDLE},
    page_template::{PageTemplate, TemplateBuilder},
    port_values::{PortValue, PortView},
};
use crate::{
    cluster_plan::{LinkLayer, PortPlan},
    exporter_plan::{HostMetricSet, PortNames},
    node_state::{NodeState, PortState},
    random::RandomKey,
};

/// Where a value of the page comes from.
#[derive(Clone, Copy, Debug)]
pub(super) enum HostSource {
    /// The host.
    Host(HostValue),
    /// Seconds of one processor in a mode.
    Cpu { cpu: usize, mode: usize },
    /// Seconds of all processors in a mode.
    AllCpus { mode: usize },
    /// A port.
    Port(usize, PortValue),
    /// The clock.
    Clock,
    /// Scrapes that were answered.
    Scrapes,
}

/// What of a node its page shows.
#[derive(Clone, Debug)]
pub(super) struct HostSettings {
    /// Name by the kernel.
    pub(super) node: String,
    /// What the exporter serves.
    pub(super) metrics: HostMetricSet,
    /// Kind of its links.
    pub(super) link_layer: LinkLayer,
    /// Its RDMA ports.
    pub(super) ports: Vec<HostPort>,
    /// Logical processors.
    pub(super) cpus: usize,
    /// Name of the management interface.
    pub(super) management: &'static str,
    /// The NFS server's address and path.
    pub(super) export: (String, &'static str),
    /// Kernel release and version of node_exporter.
    pub(super) versions: (&'static str, &'static str),
    /// Key of addresses.
    pub(super) key: RandomKey,
}

/// One RDMA port as the kernel names it.
#[derive(Clone, Debug)]
pub(super) struct HostPort {
    /// RDMA device.
    pub(super) device: String,
    /// Its port, from 1.
    pub(super) port: usize,
    /// Network interface, if it has one.
    pub(super) netdev: Option<String>,
    /// Whether the exporter says the device's type.
    pub(super) has_info: bool,
    /// Whether `port_xmit_wait` stands at its maximum.
    pub(super) is_wait_saturated: bool,
    /// Line rate in Gbit/s.
    pub(super) rate_gbps: f64,
}

impl HostPort {
    /// The ports of a node; ports of the same device are numbered.
    pub(super) fn name_ports(
        plans: &[PortPlan],
        names: &[PortNames],
        is_wait_saturated: &[bool],
    ) -> Vec<Self> {
        let port = |(index, (plan, name)): (usize, (&PortPlan, &PortNames))| {
            let same = names[..index].iter().filter(|other| other.device == name.device);
            Self {
                device: name.device.clone(),
                port: same.count() + 1,
                netdev: name.netdev.clone(),
                has_info: name.has_info,
                is_wait_saturated: is_wait_saturated.get(index).copied().unwrap_or(false),
                rate_gbps: plan.rate_gbps,
            }
        };
        plans.iter().zip(names).enumerate().map(port).collect()
    }

    /// The maker's type of the device.
    pub(super) fn hca_type(&self) -> &'static str {
        if self.device.starts_with("bnxt") {
            "BCM57608"
        } else if self.device.starts_with("irdma") {
            "E810"
        } else if self.rate_gbps > 250.0 {
            "MT4129"
        } else if self.rate_gbps > 110.0 {
            "MT4123"
        } else {
            "MT4125"
        }
    }
}

/// Writes pages of one node's node_exporter.
#[derive(Clone, Debug)]
pub(super) struct HostPage {
    settings: HostSettings,
    /// Which ports are up: their interfaces' labels say so.
    up: Vec<bool>,
    /// Idle seconds of each processor: the kernel accounts them so that they do not fall.
    idle_s: Vec<f64>,
    template: Option<PageTemplate<HostSource>>,
}

impl HostPage {
    pub(super) fn new(settings: HostSettings) -> Self {
        Self { settings, up: Vec::new(), idle_s: Vec::new(), template: None }
    }

    /// The settings.
    pub(super) fn settings(&self) -> &HostSettings {
        &self.settings
    }

    /// Appends the page of a state.
    pub(super) fn write_page(&mut self, state: &NodeState, host: &HostView<'_>, out: &mut String) {
        let is_up = |port: &PortState| port.state == 4;
        if self.template.is_none() || !state.ports.iter().map(is_up).eq(self.up.iter().copied()) {
            self.up = state.ports.iter().map(is_up).collect();
            let mut builder = TemplateBuilder::new();
            host_families::add_families(&self.settings, &self.up, &mut builder);
            self.template = Some(builder.finish());
        }
        self.idle_s.resize(state.host.cpu_busy_s.len(), 0.0);
        for (cpu, idle_s) in self.idle_s.iter_mut().enumerate() {
            *idle_s = idle_s.max(host.cpu_seconds(cpu, IDLE));
        }
        let idle_s = &self.idle_s;
        let nothing = PortState::default();
        let view_of_port = |index: usize| PortView {
            state: state.ports.get(index).unwrap_or(&nothing),
            is_wait_saturated: self.settings.ports[index].is_wait_saturated,
            link_layer: self.settings.link_layer,
        };
        let Some(template) = &self.template else { return };
        template.fill(out, |source, out| match *source {
            HostSource::Host(value) => value(host).write_shortest(out),
            HostSource::Cpu { cpu, mode } => {
                let seconds = match idle_s.get(cpu) {
                    Some(idle_s) if mode == IDLE => *idle_s,
                    _ => host.cpu_seconds(cpu, mode),
                };
                Decimal::floored(seconds, 2).write_shortest(out);
            }
            HostSource::AllCpus { mode } => {
                let seconds = match mode {
                    IDLE => idle_s.iter().sum(),
                    mode => host.total_cpu_seconds(mode),
                };
                Decimal::floored(seconds, 2).write_shortest(out);
            }
            HostSource::Port(index, value) => value(&view_of_port(index)).write_shortest(out),
            HostSource::Clock => write_shortest_float(host.clock_s, out),
            HostSource::Scrapes => Decimal::whole(host.scrapes as i64).write_shortest(out),
        });
    }
}
