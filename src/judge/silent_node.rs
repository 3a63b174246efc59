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

/// A node with failed targets.
pub(super) struct SilentNode<'a> {
    pub(super) name: &'a SanitizedText,
    /// None if it was not read since a restart.
    pub(super) node: Option<&'a Node>,
    /// Its jobs, as far as known.
    pub(super) jobs: &'a [SanitizedText],
    pub(super) since: UnixMs,
}

/// What the silence of a node means.
pub(super) struct SilenceVerdict {
    /// It is up: its job works as usual on other nodes.
    pub(super) is_up: bool,
    /// A job has most likely lost it: a page.
    pub(super) is_lost: bool,
}

impl SilentNode<'_> {
    /// Judges the silence of a node if none of its targets answers, with the finding of this id.
    pub(super) fn judge_silence(
        &self,
        judge: &JudgeState,
        cluster: &Cluster,
        id: &str,
    ) -> SilenceVerdict {
        let dark = judge.limits.dark_seconds;
        let silent = cluster.now().duration_since(self.since).as_secs_f64();
        let is_up = self.is_job_at_work(judge, cluster);
        if silent < dark || self.jobs.is_empty() {
            return SilenceVerdict { is_up, is_lost: false };
        }
        let open = judge.tracker.open_one(id).map(|open| open.severity);
        if open == Some(Severity::Critical) {
            return SilenceVerdict { is_up, is_lost: true };
        }
        // What was no page when it became due is none because its job ends later. A restart may have come between.
        let due = UnixMs(self.since.0 + (dark * 1e3) as i64);
        let was_judged = judge.first_step.is_some_and(|first| first <= due);
        let was_spared = was_judged && open == Some(Severity::Warning) && silent >= 2.0 * dark;
        let is_harmless = is_up || was_spared || self.was_idle(judge);
        let is_lost = !is_harmless && self.are_others_known(judge, cluster);
        SilenceVerdict { is_up, is_lost }
    }

    /// Whether its GPUs did nothing when they were read last, or no process held them, as far as that is known.
    fn was_idle(&self, judge: &JudgeState) -> bool {
        let Some(node) = self.node else { return false };
        let idle = judge.limits.utilization_idle_ratio;
        let mut gpus = node.device_rows(DeviceClass::Gpu).iter();
        gpus.len() > 0
            && gpus.all(|row| {
                judge.gpus.get(*row as usize).is_some_and(|gpu| {
                    let last = gpu.averages.utilization_now();
                    gpu.start.is_empty() || last.is_some_and(|last| last < idle)
                })
            })
    }

    /// Whether one of its jobs works as usual on other nodes since it is silent.
    fn is_job_at_work(&self, judge: &JudgeState, cluster: &Cluster) -> bool {
        let (now, gap) = (cluster.now(), cluster.freshness_window());
        if now.duration_since(self.since).as_secs_f64() < SHOWN_SECONDS {
            return false;
        }
        // What was sampled before does not show it.
        let is_late = |node: &Node| {
            let sampled = node.sampled.filter(|sampled| now.duration_since(*sampled) <= gap);
            sampled.is_some_and(|at| {
                at.duration_since(self.since).as_secs_f64() >= SHOWN_SECONDS / 2.0
            })
        };
        let is_at_work = |job: &SanitizedText| {
            let (mut work, mut all) = (0, 0);
            for row in cluster.gpus_by_job().get(job).into_iter().flatten() {
                let node = cluster.device_at(DeviceClass::Gpu, *row);
                let node = node.and_then(|device| cluster.node_by_id(device.node));
                let Some(node) = node.filter(|node| node.name != *self.name) else { continue };
                let gpu = judge.gpus.get(*row as usize);
                let works =
                    gpu.is_some_and(|gpu| gpu.averages.works_as_usual(now, gap, &judge.limits));
                all += 1;
                work += usize::from(works && is_late(node));
            }
            work * 2 > all
        };
        self.jobs.iter().any(is_at_work)
    }

    /// Whether it is known by now what the other nodes do since it fell silent: after a restart their averages begin anew.
    fn are_others_known(&self, judge: &JudgeState, cluster: &Cluster) -> bool {
        let known_after = SHOWN_SECONDS.max(2.0 * cluster.scrape_period().as_secs_f64());
        judge.first_step.is_none_or(|first| {
            let known = cluster.now().duration_since(first).as_secs_f64();
            first <= self.since || known >= known_after
        })
    }
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
