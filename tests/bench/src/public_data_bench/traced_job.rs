//! The traced jobs of ByteDance: what slowed each of them down, and how it is played.

use std::{collections::BTreeSet, path::Path, time::Duration};

use super::{
    healthy_step::build_healthy_step,
    operation_trace::{OperationTrace, TraceStep, TraceWorker},
    straggler_score::KnownStraggler,
    trace_pages::TracePages,
};
use crate::judge_bench::START;

/// How long steps are repeated: a judge knows the usual speed of a job by then.
const REPEATED_S: f64 = 1_800.0;

/// The most repetitions, however short steps are.
const MAX_REPETITIONS: usize = 1_000;

/// A traced job, as its authors explain it.
#[derive(Clone, Copy, Debug)]
pub(super) struct TracedJob {
    /// The trace in file names.
    name: &'static str,
    /// The worker that its authors slowed down.
    slow_worker: Option<TraceWorker>,
}

/// All traced jobs: an artificially slow worker; a last stage with more work; sequences of different lengths. The last two
/// have no slow worker.
pub(super) const TRACED_JOBS: [TracedJob; 3] = [
    TracedJob { name: "AR", slow_worker: Some(TraceWorker { replica: 0, stage: 0 }) },
    TracedJob { name: "ST", slow_worker: None },
    TracedJob { name: "SE", slow_worker: None },
];

/// Seconds between two pages: common settings of exporters and Prometheus servers.
const SCRAPE_PERIODS_S: [usize; 3] = [5, 15, 30];

/// One way to play a job.
pub(super) struct PlayedTrace {
    /// Its name.
    pub(super) name: String,
    /// Mean length of its steps in seconds, before it is slow where that is known.
    pub(super) step_s: f64,
    /// Its pages.
    pub(super) pages: TracePages,
    /// Its slow workers.
    pub(super) stragglers: Vec<KnownStraggler>,
}

impl TracedJob {
    /// Reads its timeline.
    pub(super) fn read_trace(&self, folder: &Path) -> anyhow::Result<OperationTrace> {
        OperationTrace::read_file(&folder.join(format!("timeline-{}.json.gz", self.name)))
    }

    /// The job as recorded, at each scrape period; where its slow worker is known, also after half an hour without it.
    pub(super) fn list_variants(&self, trace: &OperationTrace) -> Vec<PlayedTrace> {
        let recorded: Vec<&TraceStep> = trace.steps.iter().collect();
        let recorded_s = repeat_steps(&recorded);
        let mut variants = self.play_steps("", trace, &recorded_s, 0);
        if self.slow_worker.is_some() {
            let healthy: Vec<TraceStep> =
                trace.steps.iter().map(|step| build_healthy_step(trace, step)).collect();
            let healthy = repeat_steps(&healthy.iter().collect::<Vec<_>>());
            let steps = [healthy.as_slice(), recorded_s.as_slice()].concat();
            variants.extend(self.play_steps(" onset", trace, &steps, healthy.len()));
        }
        variants
    }

    fn play_steps(
        &self,
        variant: &str,
        trace: &OperationTrace,
        steps: &[&TraceStep],
        slow_from: usize,
    ) -> Vec<PlayedTrace> {
        let job = format!("trace-{}", self.name.to_lowercase());
        let sum_s = |steps: &[&TraceStep]| steps.iter().map(|step| step.length_s()).sum::<f64>();
        let (onset_s, length_s) = (sum_s(&steps[..slow_from]), sum_s(steps));
        let mean_s = match slow_from {
            0 => length_s / steps.len() as f64,
            healthy => onset_s / healthy as f64,
        };
        let play = |period_s| {
            let pages = TracePages::from_steps(&job, trace, steps.iter().copied(), period_s);
            let straggler = self.slow_worker.map(|worker| KnownStraggler {
                nodes: BTreeSet::from([pages.node_name(worker)]),
                from: START + Duration::from_secs_f64(onset_s),
                until: START + Duration::from_secs_f64(length_s),
            });
            let name = format!("bytedance {}{variant} {period_s} s", self.name);
            PlayedTrace { name, step_s: mean_s, pages, stragglers: straggler.into_iter().collect() }
        };
        SCRAPE_PERIODS_S.into_iter().map(play).collect()
    }
}

/// Repeats all steps until they take long enough.
fn repeat_steps<'a>(steps: &[&'a TraceStep]) -> Vec<&'a TraceStep> {
    let once_s: f64 = steps.iter().map(|step| step.length_s()).sum();
    let times = (REPEATED_S / once_s).ceil().clamp(1.0, MAX_REPETITIONS as f64) as usize;
    steps.repeat(times)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::public_data_bench::operation_trace::tests::write_timeline;

    #[test]
    fn slow_worker_is_played_after_a_healthy_half_hour_too() {
        let folder = tempfile::tempdir().unwrap();
        let [slow, ..] = TRACED_JOBS;
        write_timeline(&folder.path().join("timeline-AR.json.gz"), 4);
        let trace = slow.read_trace(folder.path()).unwrap();
        let variants = slow.list_variants(&trace);
        let names: Vec<&str> = variants.iter().map(|played| played.name.as_str()).collect();
        assert_eq!(names[..2], ["bytedance AR 5 s", "bytedance AR 15 s"]);
        assert_eq!((names[3], names.len()), ("bytedance AR onset 5 s", 6));
        let (recorded, from_healthy) = (&variants[1], &variants[4]);
        let onset =
            |played: &PlayedTrace| played.stragglers[0].from.duration_since(START).as_secs();
        // 87 times 20.9 s.
        assert_eq!((onset(recorded), onset(from_healthy)), (0, 1_818));
        assert!((recorded.step_s - 9.405).abs() < 1e-9, "{}", recorded.step_s);
        assert!((from_healthy.step_s - 5.225).abs() < 1e-9, "{}", from_healthy.step_s);
        assert_eq!(from_healthy.stragglers[0].nodes, BTreeSet::from(["node0000".to_owned()]));
        let even = TracedJob { slow_worker: None, ..slow };
        let variants = even.list_variants(&trace);
        assert!(variants.len() == 3 && variants[0].stragglers.is_empty());
    }
}
