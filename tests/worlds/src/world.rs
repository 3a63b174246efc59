//! A world: cluster, exporters, faults, and what a judge should say of it.

use gaunt_schema::UnixMs;
use gaunt_sim::GroundTruth;

use crate::{cluster_plan::ClusterPlan, exporter_plan::ExporterPlan, fault_plan::FaultPlan};

/// The start of every run: instants of plans are seconds since then, and those of truths are on this time axis.
pub const RUN_START: UnixMs = UnixMs(1_767_603_600_000);

/// One labelled run.
#[derive(Clone, Debug, PartialEq)]
pub struct World {
    /// Name of its family.
    pub family: &'static str,
    /// Its seed.
    pub seed: u64,
    /// Machines, jobs, fabric.
    pub cluster: ClusterPlan,
    /// How they are seen.
    pub exporters: ExporterPlan,
    /// None, one or two.
    pub faults: Vec<FaultPlan>,
    /// Name of the quiet case, of a world without a fault.
    pub quiet_case: Option<&'static str>,
    /// Duration of the run in seconds.
    pub duration_s: f64,
}

/// What a judge should say of one fault of a world.
#[derive(Clone, Debug, PartialEq)]
pub struct WorldTruth {
    /// Kind, blame, time limit, victims.
    pub truth: GroundTruth,
    /// The ports that a leaf switch or rail has, as (node name, device), where the fault is one of a leaf or rail:
    /// a finding that names at least three quarters of them and at most a quarter of others is right, whatever it
    /// calls them.
    pub members: Vec<(String, String)>,
    /// Share of the job's speed that it costs.
    pub loss: f64,
}
