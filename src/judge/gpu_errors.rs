//! Errors that GPUs and their drivers report: XIDs, uncorrectable memory errors, GPUs that are gone from the bus.

use std::collections::{BTreeMap, HashMap};

use gaunt_schema::{
    DeviceClass, MetricId, SanitizedText, Severity, UnixMs,
    catalogue::{gpu, gpu_health, gpu_parts, hardware},
    xid::{
        describe_xid, is_contained_memory_error, is_nvlink_cause, is_nvlink_consequence,
        is_nvlink_error, is_program_error,
    },
};
use serde::{Deserialize, Serialize};

use super::{
    Thresholds, program_error::ProgramError, row_remaps::RowRemaps, sample_interval::SampleInterval,
};
use gaunt_cluster::{Cluster, Node};

/// What shows uncorrectable memory errors: counters of NVIDIA's, and AMD's, which covers all blocks of the GPU (RAS);
/// last XIDs, of which one is such an error.
pub(super) const MEMORY_ERRORS: &[MetricId] = &[
    gpu_health::ECC_UNCORRECTED_VOLATILE,
    hardware::GPU_RAS_UNCORRECTED,
    gpu_health::REMAPPED_UNCORRECTED,
    gpu_parts::XID_ERRORS,
];

/// The counters of them.
pub(super) const UNCORRECTED_ERRORS: &[MetricId] = MEMORY_ERRORS.split_at(3).0;

/// The reported errors, by row of the GPU.
#[derive(Debug, Default)]
pub(super) struct GpuErrorTracker {
    /// The few GPUs with known errors.
    broken: BTreeMap<u32, GpuErrors>,
    /// Uncorrectable memory errors as last counted; NaN before any count.
    uncorrected: Vec<f64>,
    /// XID counts as last read, by row of their own class.
    counted: HashMap<u32, f64>,
}

/// The known errors of one GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct GpuErrors {
    /// The last critical XID, and when it was seen; a failed NVLink is kept over what follows from it.
    pub(super) xid: Option<(u32, UnixMs)>,
    /// Whether that XID follows from a failed NVLink of another GPU.
    pub(super) follows: bool,
    /// When the count of uncorrectable memory errors last rose.
    pub(super) memory: Option<UnixMs>,
    /// Since when it is gone.
    pub(super) gone: Option<UnixMs>,
    /// Since when its driver says that a memory row could not be remapped: it works on, and its board is to be replaced.
    pub(super) remap: Option<UnixMs>,
    /// Rows of its memory that were replaced because of correctable errors: it works on.
    remapped: Option<RowRemaps>,
    /// The last XID by which a program on it failed: it works on.
    pub(super) program: Option<ProgramError>,
    /// Since when it works at its baseline.
    well: Option<UnixMs>,
    /// Its energy counter, which restarts when it is reset.
    energy: Option<f64>,
}

impl GpuErrors {
    /// Whether it has no known errors.
    fn is_healthy(&self) -> bool {
        self.remap.is_none()
            && self.remapped.is_none()
            && self.program.is_none()
            && self.is_working()
    }

    /// Whether no error keeps it from working.
    pub(super) fn is_working(&self) -> bool {
        self.xid.is_none() && self.memory.is_none() && self.gone.is_none()
    }

    /// Whether all that it reports is an error on an NVLink, whose other end may be to blame as well.
    pub(super) fn is_only_nvlink(&self) -> bool {
        self.xid.is_some_and(|(code, _)| is_nvlink_error(code))
            && self.memory.is_none()
            && self.gone.is_none()
    }

    /// Whether nothing is to be told of the GPU itself: it works, and its memory does not fail.
    pub(super) fn is_well(&self, now: UnixMs) -> bool {
        self.is_working() && self.remap.is_none() && self.failing_rows(now).is_none()
    }

    /// Returns how many rows of its memory were replaced in quick succession, and since when, if that is its failing memory.
    pub(super) fn failing_rows(&self, now: UnixMs) -> Option<(f64, UnixMs)> {
        self.remapped.and_then(|remapped| remapped.failing(now))
    }

    /// Whether its energy counter was higher before.
    fn is_counter_reset(&self, energy: Option<f64>) -> bool {
        self.energy.zip(energy).is_some_and(|(before, now)| now < before)
    }
}

/// XIDs of peers at most this long before or after that of a failed NVLink follow from it: their drivers notice it
/// within seconds, and their nodes are read at different times.
const NVLINK_TOGETHER_SECONDS: f64 = 120.0;

/// The maximum of saved XID counts per node: eight GPUs with more kinds of errors are all broken.
const MAX_COUNTED: usize = 512;

/// The error counts and broken GPUs of one node, as saved over a restart: by the keys of GPUs and XIDs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct NodeErrorSnapshot {
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    broken: BTreeMap<SanitizedText, GpuErrors>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    uncorrected: BTreeMap<SanitizedText, f64>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    counted: BTreeMap<SanitizedText, f64>,
}

impl NodeErrorSnapshot {
    /// Whether it holds nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.broken.is_empty() && self.uncorrected.is_empty() && self.counted.is_empty()
    }
}

impl GpuErrors {
    /// Clamps timestamps that lie in the future: a clock may have been set back.
    fn clamp_times(self, now: UnixMs) -> Self {
        Self {
            xid: self.xid.map(|(code, at)| (code, at.min(now))),
            follows: self.follows,
            memory: self.memory.map(|at| at.min(now)),
            gone: self.gone.map(|at| at.min(now)),
            remap: self.remap.map(|at| at.min(now)),
            remapped: self.remapped.map(|remapped| remapped.clamp_times(now)),
            program: self.program.map(|program| program.clamp_times(now)),
            well: self.well.map(|at| at.min(now)),
            energy: self.energy,
        }
    }
}

impl GpuErrorTracker {
    /// Adds the errors of a node to its snapshot.
    pub(super) fn snapshot_errors(
        &self,
        cluster: &Cluster,
        node: &Node,
        errors: &mut NodeErrorSnapshot,
    ) {
        for row in node.device_rows(DeviceClass::Gpu) {
            let Some(key) = gpu_key(cluster, *row) else { continue };
            let counted = self.uncorrected.get(*row as usize);
            if let Some(counted) = counted.filter(|counted| counted.is_finite()) {
                errors.uncorrected.insert(key.clone(), *counted);
            }
            match self.broken.get(row) {
                Some(broken) => drop(errors.broken.insert(key.clone(), *broken)),
                None => drop(errors.broken.remove(key)),
            }
        }
        for row in node.device_rows(DeviceClass::Xid) {
            let (Some(key), Some(counted)) = (xid_key(cluster, *row), self.counted.get(row)) else {
                continue;
            };
            if errors.counted.len() < MAX_COUNTED || errors.counted.contains_key(&key) {
                errors.counted.insert(key, *counted);
            }
        }
    }

    /// Restores the errors of a node for those devices that it has now.
    pub(super) fn restore_errors(
        &mut self,
        cluster: &Cluster,
        node: &Node,
        errors: &mut NodeErrorSnapshot,
    ) {
        if self.uncorrected.len() < cluster.row_count(DeviceClass::Gpu) {
            self.uncorrected.resize(cluster.row_count(DeviceClass::Gpu), f64::NAN);
        }
        for row in node.device_rows(DeviceClass::Gpu) {
            let Some(key) = gpu_key(cluster, *row) else { continue };
            if let Some(counted) = errors.uncorrected.remove(key) {
                self.uncorrected[*row as usize] = counted;
            }
            if let Some(broken) = errors.broken.remove(key) {
                self.broken.insert(*row, broken.clamp_times(cluster.now()));
            }
        }
        for row in node.device_rows(DeviceClass::Xid) {
            let before = xid_key(cluster, *row).and_then(|key| errors.counted.remove(&key));
            if let Some(before) = before {
                self.counted.insert(*row, before);
            }
        }
    }

    /// Reads the errors of a node whose page is of `at`; `first` if it was unknown before, so that its counts are old.
    pub(super) fn observe_node(
        &mut self,
        cluster: &Cluster,
        node: &Node,
        at: UnixMs,
        first: bool,
        limits: &Thresholds,
    ) {
        self.uncorrected.resize(cluster.row_count(DeviceClass::Gpu), f64::NAN);
        for row in node.device_rows(DeviceClass::Gpu) {
            let counted = &mut self.uncorrected[*row as usize];
            if first {
                (*counted, _) = (f64::NAN, self.broken.remove(row));
            }
            let mut broken = self.broken.get(row).copied().unwrap_or_default();
            let count =
                UNCORRECTED_ERRORS.iter().find_map(|metric| cluster.current_value(*metric, *row));
            if count.is_some_and(|now| now > *counted) {
                broken.memory = Some(at);
            }
            let energy = cluster.current_value(gpu::ENERGY, *row);
            // The counters restarted: the GPU was reset, or its driver reloaded.
            if count.is_some_and(|now| now < *counted) || broken.is_counter_reset(energy) {
                (broken.xid, broken.memory, broken.follows) = (None, None, false);
            }
            broken.energy = energy.or(broken.energy);
            // A state that a page leaves out is as it was.
            if let Some(failed) = cluster.current_value(gpu_health::REMAP_FAILED, *row) {
                broken.remap = (failed > 0.0).then(|| broken.remap.unwrap_or(at));
            }
            if let Some(count) = cluster.current_value(gpu_health::REMAPPED_CORRECTED, *row) {
                broken.remapped = RowRemaps::observe_count(broken.remapped, count, at);
            }
            *counted = count.unwrap_or(*counted);
            match is_gone(cluster, node, *row, at, limits) {
                Some(true) => broken.gone = broken.gone.or(Some(at)),
                // It came back to the bus, which only a reset or a restart of its node does.
                Some(false) if broken.gone.is_some() => {
                    (broken.gone, broken.xid, broken.memory) = (None, None, None);
                    broken.follows = false;
                }
                Some(false) | None => {}
            }
            if broken.is_healthy() {
                self.broken.remove(row);
            } else {
                self.broken.insert(*row, broken);
            }
        }
        for row in node.device_rows(DeviceClass::Xid) {
            self.observe_xid(cluster, node, *row, at, first);
        }
    }

    /// Records whether a GPU works at its baseline. After doing so for long enough after its error it counts as
    /// repaired; time alone does not repair it.
    pub(super) fn observe_work(&mut self, row: u32, at: UnixMs, well: bool, limits: &Thresholds) {
        let Some(broken) = self.broken.get_mut(&row) else { return };
        if !well {
            broken.well = None;
            return;
        }
        let since = *broken.well.get_or_insert(at);
        let over = |error: UnixMs| {
            at.duration_since(error.max(since)).as_secs_f64() >= limits.error_speaks_seconds
        };
        broken.memory = broken.memory.filter(|error| !over(*error));
        broken.xid = broken.xid.filter(|(_, error)| !over(*error));
        if broken.is_healthy() {
            self.broken.remove(&row);
        }
    }

    fn observe_xid(&mut self, cluster: &Cluster, node: &Node, row: u32, at: UnixMs, first: bool) {
        let Some(count) = cluster.current_value(gpu_parts::XID_ERRORS, row) else { return };
        let before = self.counted.insert(row, count);
        if first || before.unwrap_or(0.0) >= count {
            return;
        }
        let Some(entry) = cluster.device_at(DeviceClass::Xid, row) else { return };
        let code = entry.device.key.get(1).and_then(|code| code.parse().ok()).map(describe_xid);
        let Some(code) = code else { return };
        let is_contained = is_contained_memory_error(code.code);
        let is_of_program = is_program_error(code.code);
        if code.severity != Severity::Critical && !is_contained && !is_of_program {
            return;
        }
        let board = node.device_rows(DeviceClass::Gpu).iter().find(|row| {
            let board = cluster.device_at(DeviceClass::Gpu, **row);
            board.is_some_and(|board| board.device.key.first() == entry.device.key.first())
        });
        let Some(board) = board else { return };
        let broken = self.broken.entry(*board).or_default();
        if is_contained {
            broken.memory = Some(at);
            return;
        }
        if is_of_program {
            broken.program = Some(ProgramError::next(broken.program, code.code, at));
            return;
        }
        let is_known = |(known, since): (u32, UnixMs)| {
            is_nvlink_cause(known)
                && is_nvlink_consequence(code.code)
                && at.duration_since(since).as_secs_f64() <= NVLINK_TOGETHER_SECONDS
        };
        if !broken.xid.is_some_and(is_known) {
            (broken.xid, broken.follows) = (Some((code.code, at)), false);
        }
    }

    /// Records whether the jobs of programs that failed a moment ago stand still since.
    pub(super) fn observe_jobs(
        &mut self,
        stands_still: impl Fn(u32) -> Option<bool>,
        now: UnixMs,
        limits: &Thresholds,
    ) {
        self.broken.retain(|row, broken| {
            let observe =
                |program: ProgramError| program.observe_job(stands_still(*row), now, limits);
            broken.program = broken.program.and_then(observe);
            !broken.is_healthy()
        });
    }

    /// Marks XIDs that follow from a failed NVLink of another GPU of the same NVLink domain, or of the same node: the
    /// requests of all its peers fail together with it.
    pub(super) fn mark_consequences(&mut self, cluster: &Cluster) {
        let causes: Vec<(u32, UnixMs)> = self
            .broken
            .iter()
            .filter_map(|(row, broken)| Some((*row, broken.xid?)))
            .filter(|(_, (code, _))| is_nvlink_cause(*code))
            .map(|(row, (_, at))| (row, at))
            .collect();
        if causes.is_empty() {
            return;
        }
        for (row, broken) in &mut self.broken {
            let known = broken.xid.filter(|(code, _)| is_nvlink_consequence(*code));
            let Some((_, at)) = known else { continue };
            let is_together = |since: UnixMs| {
                let apart = at.duration_since(since).max(since.duration_since(at));
                apart.as_secs_f64() <= NVLINK_TOGETHER_SECONDS
            };
            let follows = causes
                .iter()
                .any(|(cause, since)| is_together(*since) && shares_nvlinks(cluster, *row, *cause));
            broken.follows |= follows;
        }
    }

    /// Returns the number of GPUs whose XIDs follow from the failed NVLink of this one.
    pub(super) fn count_followers(&self, cluster: &Cluster, row: u32) -> usize {
        let followers = self.broken.iter().filter(|(_, broken)| broken.follows);
        followers.filter(|(other, _)| shares_nvlinks(cluster, row, **other)).count()
    }

    /// Returns the known errors of the GPU at this row.
    pub(super) fn of(&self, row: u32) -> GpuErrors {
        self.broken.get(&row).copied().unwrap_or_default()
    }
}

fn gpu_key(cluster: &Cluster, row: u32) -> Option<&SanitizedText> {
    cluster.device_at(DeviceClass::Gpu, row)?.device.key.first()
}

/// Whether two GPUs are in one NVLink domain, or on one node.
fn shares_nvlinks(cluster: &Cluster, gpu: u32, other: u32) -> bool {
    let node = |row| cluster.device_at(DeviceClass::Gpu, row).map(|entry| entry.node);
    let topology = cluster.topology();
    let domain = |row| Some(&topology.gpu_topology(row)?.domain.as_ref()?.value);
    domain(gpu).is_some() && domain(gpu) == domain(other)
        || node(gpu).is_some() && node(gpu) == node(other)
}

/// Returns the GPU and the XID as one key.
fn xid_key(cluster: &Cluster, row: u32) -> Option<SanitizedText> {
    Some(SanitizedText::new(&cluster.device_at(DeviceClass::Xid, row)?.device.key.join("/")))
}

/// Metrics of which a GPU that is present has at least one: an exporter leaves single values out.
const NAMED_BY: [MetricId; 5] =
    [gpu::POWER, gpu::UTILIZATION, gpu::TEMPERATURE, gpu::SM_CLOCK, gpu::MEMORY_USED];

/// Whether a GPU that was present is gone, while its neighbours or its driver report so; none if its page fails, which
/// is no evidence.
fn is_gone(
    cluster: &Cluster,
    node: &Node,
    row: u32,
    at: UnixMs,
    limits: &Thresholds,
) -> Option<bool> {
    if cluster.current_value(gpu::PRESENT, row) == Some(0.0) {
        return Some(true);
    }
    let last =
        |row: u32| NAMED_BY.iter().filter_map(|metric| cluster.last_value_at(*metric, row)).max();
    // A page repeats what was collected before: a collection without the GPU is one, however often it is scraped.
    let interval = SampleInterval::of_gpus(cluster, node).to_duration();
    let all = interval * limits.confirming_samples;
    let renewed = node.renewals(DeviceClass::Gpu).last();
    // The first one came a page after the last that had it, and each further one an interval later.
    let enough = all.saturating_sub(interval * 3 / 2) + cluster.scrape_period();
    let missed = |seen: UnixMs| {
        at.duration_since(seen) >= all
            || renewed.is_some_and(|renewed| renewed.duration_since(seen) >= enough)
    };
    if !last(row).is_some_and(missed) {
        return last(row).map(|_| false);
    }
    let mut neighbours = node.device_rows(DeviceClass::Gpu).iter().filter(|other| **other != row);
    neighbours.any(|other| last(*other).is_some_and(|seen| !missed(seen))).then_some(true)
}
