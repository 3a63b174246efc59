//! Silent nodes: whether a node that no target answers for is lost to its jobs, or only to gaunt.
//!
//! A job cannot work as usual without one of its nodes. Where its other nodes do, the node is up, and so is most likely
//! what fell silent at the same time. A node whose GPUs were idle when they were read last had no work to lose: its job
//! had ended, as before a reboot.

use gaunt_cluster::{Cluster, Node};
use gaunt_schema::{DeviceClass, SanitizedText, Severity, UnixMs};

use super::{JudgeState, rack_down::NodeDown};

/// Seconds of silence after which the other nodes of a job show whether it goes on: their averages have followed.
const SHOWN_SECONDS: f64 = 60.0;

/// Seconds between which nodes fall silent together: as long as exporters are read one after the other.
const TOGETHER_SECONDS: f64 = 60.0;

/// Whether the GPUs of a node did nothing when they were read last, as far as that is known.
pub(super) fn was_idle(judge: &JudgeState, node: &Node) -> bool {
    let idle = judge.limits.utilization_idle_ratio;
    let mut gpus = node.device_rows(DeviceClass::Gpu).iter();
    gpus.len() > 0
        && gpus.all(|row| {
            let last = judge.gpus.get(*row as usize).and_then(|gpu| gpu.averages.utilization_now());
            last.is_some_and(|last| last < idle)
        })
}

/// Whether a job of a node that is silent since an instant works as usual on other nodes.
pub(super) fn is_job_at_work(
    judge: &JudgeState,
    cluster: &Cluster,
    silent: &SanitizedText,
    jobs: &[SanitizedText],
    since: UnixMs,
) -> bool {
    let (now, gap) = (cluster.now(), cluster.freshness_window());
    if now.duration_since(since).as_secs_f64() < SHOWN_SECONDS {
        return false;
    }
    // What was sampled before does not show it.
    let is_late = |node: &Node| {
        let sampled = node.sampled.filter(|sampled| now.duration_since(*sampled) <= gap);
        sampled.is_some_and(|at| at.duration_since(since).as_secs_f64() >= SHOWN_SECONDS / 2.0)
    };
    let is_at_work = |job: &SanitizedText| {
        let (mut work, mut all) = (0, 0);
        for row in cluster.gpus_by_job().get(job).into_iter().flatten() {
            let node = cluster.device_at(DeviceClass::Gpu, *row);
            let node = node.and_then(|device| cluster.node_by_id(device.node));
            let Some(node) = node.filter(|node| node.name != *silent) else { continue };
            let gpu = judge.gpus.get(*row as usize);
            let works = gpu.is_some_and(|gpu| gpu.averages.works_as_usual(now, gap, &judge.limits));
            all += 1;
            work += usize::from(works && is_late(node));
        }
        work * 2 > all
    };
    jobs.iter().any(is_at_work)
}

/// Whether it is known by now what the other nodes do since one fell silent: after a restart their averages begin anew.
pub(super) fn are_others_known(judge: &JudgeState, cluster: &Cluster, since: UnixMs) -> bool {
    let known_after = SHOWN_SECONDS.max(2.0 * cluster.scrape_period().as_secs_f64());
    judge.first_step.is_none_or(|first| {
        first <= since || cluster.now().duration_since(first).as_secs_f64() >= known_after
    })
}

/// Makes those nodes a warning that fell silent together with one that is up, unless they are critical already.
pub(super) fn cap_nodes_silent_together(judge: &JudgeState, nodes: &mut [NodeDown]) {
    let up: Vec<UnixMs> =
        nodes.iter().filter(|node| node.is_up).map(|node| node.finding.since).collect();
    for node in nodes.iter_mut().filter(|node| node.finding.severity == Severity::Critical) {
        let is_together = |since: &UnixMs| {
            let (first, last) = (node.finding.since.min(*since), node.finding.since.max(*since));
            last.duration_since(first).as_secs_f64() <= TOGETHER_SECONDS
        };
        let open = judge.tracker.open_one(&node.finding.id);
        let is_critical = open.is_some_and(|open| open.severity == Severity::Critical);
        if !is_critical && up.iter().any(is_together) {
            node.finding.severity = Severity::Warning;
        }
    }
}
