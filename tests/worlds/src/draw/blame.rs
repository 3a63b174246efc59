//! Kind and blame of each fault, with what cannot be told apart from the pages that a world has.

use gaunt_schema::{Entity, EntityKind, FindingKind, SanitizedText};

use super::{
    site_files::leaf_name,
    truths::{job_entities, members_of, node_names, slowed_jobs, stage_of},
};
use crate::{
    cluster_plan::LinkLayer,
    exporter_plan::{GpuExporter, GpuMetricSet, JobLabels, TopologyPlan},
    fault_plan::{FaultKind, FaultPlan},
    world::World,
};

/// What to say of a fault.
pub(super) struct Blame {
    pub(super) kind: FindingKind,
    pub(super) blamed: Entity,
    pub(super) also: Vec<Entity>,
    pub(super) kinds: Vec<FindingKind>,
    pub(super) follows: Vec<(FindingKind, Entity)>,
}

/// Kind and blame of a fault.
pub(super) fn blame_fault(world: &World, fault: &FaultPlan) -> Blame {
    let blamer = Blamer { world, fault };
    blamer
        .blame_host()
        .or_else(|| blamer.blame_gpu())
        .or_else(|| blamer.blame_link())
        .or_else(|| blamer.blame_network())
        .unwrap_or_else(|| blamer.blame_job())
}

struct Blamer<'a> {
    world: &'a World,
    fault: &'a FaultPlan,
}

/// A blame of the first of some equal entities.
fn blame(kind: FindingKind, entities: Vec<Entity>, kinds: Vec<FindingKind>) -> Blame {
    let mut entities = entities.into_iter();
    let blamed = entities.next().unwrap_or(Entity::new(EntityKind::Job));
    Blame { kind, blamed, also: entities.collect(), kinds, follows: Vec::new() }
}

impl Blamer<'_> {
    fn nodes(&self) -> Vec<Entity> {
        node_names(self.world, self.fault.node).iter().map(Entity::new_node).collect()
    }

    fn gpu(&self, gpu: usize) -> Vec<Entity> {
        let number = self.world.exporters.nodes[self.fault.node].gpu_numbers[gpu];
        let number = SanitizedText::new(&number.to_string());
        let names = node_names(self.world, self.fault.node);
        names.iter().map(|name| Entity::new_gpu(name, &number)).collect()
    }

    fn all_gpus(&self) -> Vec<Entity> {
        let gpus = self.world.cluster.nodes[self.fault.node].gpus.len();
        (0..gpus).flat_map(|gpu| self.gpu(gpu)).collect()
    }

    fn port(&self) -> Vec<Entity> {
        let device = &self.world.exporters.nodes[self.fault.node].ports[self.fault.port].device;
        let (device, number) = (SanitizedText::new(device), SanitizedText::new("1"));
        let names = node_names(self.world, self.fault.node);
        names.iter().map(|name| Entity::new_port(name, &device, &number)).collect()
    }

    fn job(&self) -> Vec<Entity> {
        let entities = self.fault.job.map(|job| job_entities(self.world, job));
        entities.unwrap_or_default()
    }

    /// The metrics of the GPUs that the pages have, worst first.
    fn gpu_metrics(&self) -> GpuMetricSet {
        let exporters = &self.world.exporters;
        match exporters.gpu_exporter {
            GpuExporter::GauntNode if exporters.gpu_metrics == GpuMetricSet::Default => {
                GpuMetricSet::Full
            }
            _ => exporters.gpu_metrics,
        }
    }

    fn is_own_exporter(&self) -> bool {
        self.world.exporters.gpu_exporter == GpuExporter::GauntNode
    }

    fn has_single_node(&self) -> bool {
        let job = self.fault.job.map(|job| &self.world.cluster.jobs[job]);
        job.is_none_or(|job| job.nodes.len() == 1)
    }

    /// Faults of a host, its loader or its storage.
    fn blame_host(&self) -> Option<Blame> {
        use FindingKind as Kind;
        let exporters = &self.world.exporters;
        Some(match self.fault.kind {
            FaultKind::LoaderSlowLoud | FaultKind::LoaderSlowSilent => {
                let mut entities = self.nodes();
                // From outside, slow loading and slow launches cannot be told apart.
                let mut kinds = vec![Kind::HostBound];
                if self.has_single_node() {
                    kinds.push(Kind::StorageSlow);
                    entities.push(Entity::new(EntityKind::Storage));
                    entities.extend(self.job());
                }
                blame(Kind::DataStarved, entities, kinds)
            }
            FaultKind::StorageSlowForJob | FaultKind::StorageSlowForAll => {
                let mut entities = vec![Entity::new(EntityKind::Storage)];
                let jobs = 0..self.world.cluster.jobs.len();
                let is_hit = |job: &usize| {
                    self.fault.kind == FaultKind::StorageSlowForAll || self.fault.job == Some(*job)
                };
                entities.extend(jobs.filter(is_hit).flat_map(|job| job_entities(self.world, job)));
                let mut kinds = Vec::new();
                if self.has_single_node() {
                    entities.extend(self.nodes());
                    kinds.extend([Kind::DataStarved, Kind::HostBound]);
                } else if !exporters.host_metrics.has_nfs {
                    kinds.push(Kind::DataStarved);
                }
                blame(Kind::StorageSlow, entities, kinds)
            }
            FaultKind::LaunchBound => {
                let entities = [self.nodes(), self.gpu(self.fault.gpu)].concat();
                let shows_processor =
                    self.is_own_exporter() || exporters.host_metrics.has_processors;
                let kinds = if shows_processor { vec![] } else { vec![Kind::DataStarved] };
                blame(Kind::HostBound, entities, kinds)
            }
            FaultKind::ExporterDown => blame(Kind::TargetDown, self.nodes(), vec![Kind::DataStale]),
            FaultKind::DriverHung => blame(Kind::DriverHung, self.nodes(), vec![Kind::DataStale]),
            _ => return None,
        })
    }

    /// Faults of a GPU itself.
    fn blame_gpu(&self) -> Option<Blame> {
        use FindingKind as Kind;
        let gpu = || self.gpu(self.fault.gpu);
        // Without reasons a low clock is all that shows.
        let has_reasons = self.gpu_metrics() == GpuMetricSet::Full;
        let or_straggler = if has_reasons { vec![] } else { vec![Kind::ComputeStraggler] };
        Some(match self.fault.kind {
            FaultKind::GpuClockLow => blame(Kind::ComputeStraggler, gpu(), vec![Kind::Throttled]),
            FaultKind::GpuThermal => blame(Kind::Throttled, gpu(), or_straggler),
            FaultKind::PowerBrake => {
                let entities = [self.nodes(), self.all_gpus()].concat();
                blame(Kind::Throttled, entities, or_straggler)
            }
            FaultKind::GpuLost | FaultKind::GpuMemoryErrors => {
                let mut verdict = blame(Kind::GpuFailed, gpu(), vec![]);
                let hung = self.job().into_iter().map(|job| (Kind::CollectiveHang, job));
                verdict.follows = hung.collect();
                verdict
            }
            _ => return None,
        })
    }

    /// Faults of the links of a GPU inside its machine.
    fn blame_link(&self) -> Option<Blame> {
        use FindingKind as Kind;
        // What a slow link looks like where no page has it: at least, that its job is slower.
        let metrics = self.gpu_metrics();
        let unseen = match metrics {
            GpuMetricSet::Minimal => vec![
                Kind::ComputeStraggler,
                Kind::HostBound,
                Kind::DataStarved,
                Kind::UnexplainedSlowdown,
            ],
            GpuMetricSet::Default => {
                vec![Kind::ComputeStraggler, Kind::HostBound, Kind::UnexplainedSlowdown]
            }
            GpuMetricSet::Full => vec![],
        };
        let mut entities = self.gpu(self.fault.gpu);
        if self.fault.kind == FaultKind::NvswitchSlow || metrics != GpuMetricSet::Full {
            let jobs = slowed_jobs(self.world, self.fault).into_iter();
            entities.extend(jobs.flat_map(|job| job_entities(self.world, job)));
        }
        Some(match self.fault.kind {
            FaultKind::PcieDegraded => {
                if metrics == GpuMetricSet::Minimal {
                    entities.extend(self.nodes());
                }
                blame(Kind::PcieDegraded, entities, unseen)
            }
            FaultKind::NvlinkErrors => {
                let pairs = entities.clone().into_iter();
                let pairs = pairs.map(|gpu| Entity { kind: EntityKind::GpuPair, ..gpu });
                entities.extend(pairs);
                entities.extend(self.nodes());
                blame(Kind::NvlinkDegraded, entities, unseen)
            }
            FaultKind::NvswitchSlow => {
                let domains = self.nodes().into_iter();
                let domains = domains.map(|node| Entity { kind: EntityKind::NvlinkDomain, ..node });
                let machines = [self.nodes(), domains.collect(), self.all_gpus()].concat();
                let entities = [machines, entities].concat();
                // No error is counted: only that the collectives of the node take longer.
                let kinds = match metrics {
                    GpuMetricSet::Full => vec![Kind::ComputeStraggler, Kind::UnexplainedSlowdown],
                    _ => unseen,
                };
                blame(Kind::NvlinkDegraded, entities, kinds)
            }
            _ => return None,
        })
    }

    /// Faults of ports, cables and switches.
    fn blame_network(&self) -> Option<Blame> {
        use FindingKind as Kind;
        let exporters = &self.world.exporters;
        let is_infiniband = self.world.cluster.fabric.link_layer == LinkLayer::InfiniBand;
        let shows_pauses = !is_infiniband
            && self.world.cluster.fabric.has_pfc
            && (self.is_own_exporter() || exporters.host_metrics.has_ethtool);
        Some(match self.fault.kind {
            FaultKind::PortDown => blame(Kind::PortDown, self.port(), vec![]),
            FaultKind::PortFlap => {
                let mut verdict = blame(Kind::PortDown, self.port(), vec![Kind::LinkErrors]);
                verdict.follows =
                    self.port().into_iter().map(|port| (Kind::LinkErrors, port)).collect();
                verdict
            }
            FaultKind::PortRateLow => blame(Kind::PortRateLow, self.port(), vec![]),
            FaultKind::LinkErrors => blame(Kind::LinkErrors, self.port(), vec![]),
            FaultKind::LeafCongested | FaultKind::RailSlow => self.blame_switches(),
            FaultKind::Incast => {
                let mut entities = [self.port(), self.nodes()].concat();
                entities.push(self.leaf());
                let kinds = if shows_pauses { vec![] } else { vec![Kind::HostBlocksNetwork] };
                blame(Kind::LeafCongested, entities, kinds)
            }
            FaultKind::SlowReceiver => {
                let entities = [self.nodes(), self.port()].concat();
                let kinds = if shows_pauses { vec![] } else { vec![Kind::LeafCongested] };
                blame(Kind::HostBlocksNetwork, entities, kinds)
            }
            _ => return None,
        })
    }

    /// The leaf switch of the fault, by the name that the site has for it, if any.
    fn leaf(&self) -> Entity {
        let name = leaf_name(self.world, self.fault.leaf);
        let name = name.map(|name| SanitizedText::new(&name));
        Entity { leaf: name, ..Entity::new(EntityKind::Leaf) }
    }

    fn blame_switches(&self) -> Blame {
        use FindingKind as Kind;
        let number = Some(SanitizedText::new(&self.fault.rail.to_string()));
        let rail = Entity { rail: number.clone(), ..Entity::new(EntityKind::Rail) };
        let leaf = self.leaf();
        let of_rail = Entity { rail: number, ..leaf.clone() };
        let is_declared = self.world.exporters.topology == TopologyPlan::Declared;
        let has_one_group =
            self.world.cluster.nodes.len() <= self.world.cluster.fabric.nodes_per_leaf;
        // Without a map of the ports, or below a single leaf switch, a leaf switch and its rail are the same ports.
        let is_ambiguous = !is_declared || has_one_group;
        if self.fault.kind == FaultKind::LeafCongested {
            let mut entities = vec![leaf, of_rail];
            let kinds = if is_ambiguous { vec![Kind::RailSlow] } else { vec![] };
            if is_ambiguous {
                entities.push(rail);
            }
            return blame(Kind::LeafCongested, entities, kinds);
        }
        let mut entities = vec![rail];
        if !is_declared {
            entities.extend(self.rails_by_device());
        }
        let kinds = if is_ambiguous { vec![Kind::LeafCongested] } else { vec![] };
        if is_ambiguous && has_one_group {
            entities.extend([leaf, of_rail]);
        }
        blame(Kind::RailSlow, entities, kinds)
    }

    /// The rail of the fault by the numbers of its devices: a site without a map of its ports has no other name for it, and
    /// none where the devices are named by their addresses.
    fn rails_by_device(&self) -> Vec<Entity> {
        let members = members_of(self.world, self.fault);
        if members.iter().any(|(_, device)| is_named_by_address(device)) {
            return vec![Entity::new(EntityKind::Rail)];
        }
        let number = |device: &str| {
            let name = device.trim_end_matches(|c: char| c.is_ascii_digit());
            SanitizedText::new(&device[name.len()..])
        };
        let mut numbers: Vec<SanitizedText> =
            members.iter().map(|(_, device)| number(device)).collect();
        numbers.sort();
        numbers.dedup();
        numbers.retain(|number| !number.is_empty());
        let rail = |number| Entity { rail: Some(number), ..Entity::new(EntityKind::Rail) };
        numbers.into_iter().map(rail).collect()
    }

    /// Faults of a whole job.
    fn blame_job(&self) -> Blame {
        use FindingKind as Kind;
        let mut job = self.job();
        if self.world.exporters.labels != JobLabels::HpcJob && job.is_empty() {
            job.push(Entity::new(EntityKind::Job));
        }
        match self.fault.kind {
            FaultKind::Hang => blame(Kind::CollectiveHang, job, vec![]),
            // Until it has lasted for long, a job that does nothing cannot be told from one that hangs.
            FaultKind::IdleAllocated => blame(Kind::IdleAllocated, job, vec![Kind::CollectiveHang]),
            FaultKind::StageImbalance => {
                let stages = job.iter().cloned();
                let stages = stages.map(|job| Entity { kind: EntityKind::Stage, ..job });
                let mut entities: Vec<Entity> = stages.collect();
                entities.extend(job);
                let plan = self.fault.job.map(|job| &self.world.cluster.jobs[job]);
                // A stage of one machine is that machine.
                if plan.is_some_and(|job| stage_of(job, self.fault.node).1 == 1) {
                    entities.extend(self.nodes());
                }
                blame(Kind::StageImbalance, entities, vec![])
            }
            _ => blame(Kind::DataSkew, job, vec![]),
        }
    }
}

/// Whether a device has the name that the kernel makes of its address: `ibx…` or `rocex…`.
fn is_named_by_address(device: &str) -> bool {
    ["ibx", "rocex"].iter().any(|kind| device.starts_with(kind))
}
