//! The health of one GPU's part of the NVLink fabric: what its driver, DCGM and the IMEX daemon report of it.

use gaunt_cluster::Cluster;
use gaunt_schema::{DeviceClass, EvidenceItem, catalogue::gpu_health as health};

use super::{EvidenceRow, JudgeState};

/// A registration that goes on, and one that ended with an error.
const IN_PROGRESS: f64 = 2.0;
const FAILED: f64 = 4.0;

/// Summaries of the health.
const UNHEALTHY: f64 = 2.0;
const LIMITED_CAPACITY: f64 = 3.0;

/// The state of an IMEX daemon that is ready. Below zero there is none on this node, or it is not configured: the job
/// may do without.
const IMEX_READY: f64 = 5.0;

/// The largest mask: newer drivers may use bits that gaunt does not know.
const LARGEST_MASK: f64 = u32::MAX as f64;

/// The conditions of the mask with two bits each, from the lowest: not reported, true or false.
const CONDITIONS: [&str; 4] = [
    "degraded bandwidth",
    "route recovery in progress",
    "an unhealthy route",
    "recovery from an access timeout in progress",
];

/// The value of a condition that holds.
const TRUE: u32 = 1;

/// Where the configuration is in the mask, and what is wrong with it, from the first value that is an error.
const CONFIGURATION_SHIFT: u32 = 8;
const CONFIGURATION_MASK: u32 = 0xf;
const CONFIGURATION_CORRECT: u32 = 1;
const WRONG_CONFIGURATIONS: [&str; 6] = [
    "a wrong system GUID",
    "a wrong chassis serial number",
    "no partition",
    "too few NVLinks",
    "incompatible GPU firmware",
    "an invalid location",
];

/// What is wrong with the fabric at a GPU. Only faults of one class are added up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum FabricFault {
    /// Its health is bad, or its registration failed.
    Unhealthy,
    /// Its registration goes on while a job holds it.
    Registering,
    /// The IMEX daemon of its node is not ready while a job holds it on several nodes of the domain.
    ImexNotReady,
}

/// The faulty part of one GPU.
#[derive(Clone, Debug)]
pub(super) struct FabricHealth {
    pub(super) row: u32,
    pub(super) fault: FabricFault,
    /// The faults, in words.
    pub(super) words: String,
    state: Option<f64>,
    mask: Option<f64>,
    summary: Option<f64>,
    imex: Option<f64>,
}

impl FabricHealth {
    /// Returns the faulty part of a GPU; none if it is healthy, or nothing is reported.
    pub(super) fn of(judge: &JudgeState, cluster: &Cluster, row: u32) -> Option<Self> {
        let value = |metric| cluster.current_value(metric, row);
        let (state, mask) = (value(health::FABRIC_STATE), value(health::FABRIC_HEALTH_MASK));
        let (summary, imex) = (value(health::FABRIC_HEALTH_SUMMARY), value(health::IMEX_STATE));
        let mut words = mask.map(list_mask_faults).unwrap_or_default();
        if state == Some(FAILED) {
            words.push("a failed registration");
        }
        // The summary says less than the mask: it counts where the mask names nothing.
        match summary {
            Some(UNHEALTHY) if words.is_empty() => words.push("an unhealthy summary"),
            Some(LIMITED_CAPACITY) if words.is_empty() => words.push("limited capacity"),
            _ => {}
        }
        let is_used = || {
            judge.job_groups.of(row).is_some()
                || judge.gpus.get(row as usize).is_some_and(|gpu| gpu.allocated == Some(true))
        };
        let is_imex_starting = imex.is_some_and(|imex| imex >= 0.0 && imex != IMEX_READY);
        let fault = if !words.is_empty() {
            FabricFault::Unhealthy
        } else if state == Some(IN_PROGRESS) && is_used() {
            words.push("a registration that does not end");
            FabricFault::Registering
        } else if is_imex_starting && spans_nodes_of_domain(cluster, row) {
            words.push("an IMEX daemon that is not ready");
            FabricFault::ImexNotReady
        } else {
            return None;
        };
        Some(Self { row, fault, words: words.join(", "), state, mask, summary, imex })
    }

    /// Returns the values behind it; those that show no fault are context.
    pub(super) fn collect_evidence(&self) -> [EvidenceItem; 4] {
        let is_registering = self.fault == FabricFault::Registering;
        let is_state_bad = self.state == Some(FAILED) || is_registering;
        let is_mask_bad = self.mask.is_some_and(|mask| !list_mask_faults(mask).is_empty());
        let is_summary_bad =
            self.summary.is_some_and(|it| it == UNHEALTHY || it == LIMITED_CAPACITY);
        let is_imex_bad = self.fault == FabricFault::ImexNotReady;
        let fact = |row: EvidenceRow, value, is_bad: bool| {
            row.to_evidence(value, None).context_if(!is_bad)
        };
        [
            fact(EvidenceRow::FabricHealthMask, self.mask, is_mask_bad).with_note(if is_mask_bad {
                &self.words
            } else {
                "no fault"
            }),
            fact(EvidenceRow::FabricHealthSummary, self.summary, is_summary_bad),
            fact(EvidenceRow::FabricState, self.state, is_state_bad),
            fact(EvidenceRow::ImexState, self.imex, is_imex_bad),
        ]
    }
}

/// Lists the conditions of a health mask that are faults.
fn list_mask_faults(mask: f64) -> Vec<&'static str> {
    if mask.fract() != 0.0 || !(0.0..=LARGEST_MASK).contains(&mask) {
        return Vec::new();
    }
    let mask = mask as u32;
    let is_true = |index: usize| mask >> (2 * index) & 0b11 == TRUE;
    let mut faults: Vec<&'static str> = (0..CONDITIONS.len())
        .filter(|index| is_true(*index))
        .map(|index| CONDITIONS[index])
        .collect();
    let configuration = mask >> CONFIGURATION_SHIFT & CONFIGURATION_MASK;
    if let Some(index) = configuration.checked_sub(CONFIGURATION_CORRECT + 1) {
        faults.push(WRONG_CONFIGURATIONS.get(index as usize).unwrap_or(&"a wrong configuration"));
    }
    faults
}

/// Whether the job of a GPU holds GPUs of several nodes of its NVLink domain: only such a job needs IMEX.
fn spans_nodes_of_domain(cluster: &Cluster, row: u32) -> bool {
    let topology = cluster.topology();
    let domain_of = |row: u32| Some(&topology.gpu_topology(row)?.domain.as_ref()?.value);
    let node_of = |row: u32| cluster.device_at(DeviceClass::Gpu, row).map(|entry| entry.node);
    let (Some(domain), Some(node)) = (domain_of(row), node_of(row)) else { return false };
    let Some(job) = cluster.job_of_gpu(row) else { return false };
    let mut others = cluster.gpus_by_job().get(job).into_iter().flatten();
    others.any(|other| domain_of(*other) == Some(domain) && node_of(*other) != Some(node))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_conditions_that_hold_are_faults() {
        for healthy in [0.0, 170.0, 426.0, 128.0, -1.0, 0.5, 4_294_967_296.0] {
            assert!(list_mask_faults(healthy).is_empty(), "{healthy}");
        }
        assert_eq!(list_mask_faults(425.0), ["degraded bandwidth"]);
        assert_eq!(list_mask_faults(410.0), ["an unhealthy route"]);
        assert_eq!(
            list_mask_faults(f64::from(0x555)),
            [CONDITIONS.as_slice(), &["too few NVLinks"]].concat()
        );
        assert_eq!(list_mask_faults(f64::from(0xfaa)), ["a wrong configuration"]);
    }
}
