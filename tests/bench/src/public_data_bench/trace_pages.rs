//! The pages of a traced training job: activity of each GPU as dcgm-exporter would have served it, and the times of its
//! collectives as NCCL's inspector would have written them.
//!
//! A trace has neither clocks nor temperatures nor bytes: these are left out.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    time::Duration,
};

use gaunt_schema::UnixMs;

use super::{
    modelled_gpu::{KernelShares, ModelledGpu},
    operation_trace::{OperationKind, OperationTrace, TraceStep, TraceWorker},
    page_player::PublicPages,
};
use crate::judge_bench::START;

/// Seconds between two renewals of the inspector's averages.
const INSPECTOR_S: usize = 30;

/// GPUs of a node. A node's targets: activity, and collectives.
const GPUS_PER_NODE: u32 = 8;
const TARGETS_PER_NODE: u32 = 2;

/// What one worker did, by second of the run.
#[derive(Debug)]
struct WorkerHistory {
    rank: u32,
    /// Seconds of each second for which it computes, and for which any kernel runs.
    computing: Vec<f64>,
    busy: Vec<f64>,
    /// Joules until the end of each second.
    energy_j: Vec<f64>,
    /// End and length of each operation of a kind in seconds, by end.
    operations: BTreeMap<OperationKind, Vec<(f64, f64)>>,
}

/// The pages of one job.
#[derive(Debug)]
pub(super) struct TracePages {
    job: String,
    gpus_per_worker: u32,
    histories: BTreeMap<TraceWorker, WorkerHistory>,
    length_s: usize,
    /// Seconds between two pages of an exporter: DCGM's activities are means over this time.
    period_s: usize,
    is_listed: bool,
}

impl TracePages {
    /// Lays steps one after the other; pages are this many seconds apart.
    pub(super) fn from_steps<'a>(
        job: &str,
        trace: &OperationTrace,
        steps: impl IntoIterator<Item = &'a TraceStep>,
        period_s: usize,
    ) -> Self {
        let new_history = |rank| WorkerHistory {
            rank,
            computing: Vec::new(),
            busy: Vec::new(),
            energy_j: Vec::new(),
            operations: BTreeMap::new(),
        };
        let ranks = trace.ranks.iter();
        let mut histories: BTreeMap<TraceWorker, WorkerHistory> =
            ranks.map(|(worker, rank)| (*worker, new_history(*rank))).collect();
        let mut start_s = 0.0;
        for step in steps {
            for (worker, history) in &mut histories {
                history.add_step(start_s, step, *worker);
            }
            start_s += step.length_s();
        }
        histories.values_mut().for_each(WorkerHistory::complete);
        let job = job.to_owned();
        let gpus_per_worker = trace.gpus_per_worker.min(GPUS_PER_NODE);
        Self {
            job,
            gpus_per_worker,
            histories,
            length_s: start_s as usize,
            period_s,
            is_listed: false,
        }
    }

    /// The number of GPUs.
    pub(super) fn gpu_count(&self) -> usize {
        self.histories.len() * self.gpus_per_worker as usize
    }

    /// The node of a worker.
    pub(super) fn node_name(&self, worker: TraceWorker) -> String {
        let rank = self.histories.get(&worker).map_or(0, |history| history.rank);
        format_node(rank / GPUS_PER_NODE)
    }

    fn list_nodes(&self) -> BTreeSet<u32> {
        self.histories.values().map(|history| history.rank / GPUS_PER_NODE).collect()
    }

    /// The workers of a node with each of their GPUs: number on the node, and number in the worker.
    fn node_gpus(
        &self,
        node: u32,
    ) -> impl Iterator<Item = (TraceWorker, &WorkerHistory, u32, u32)> {
        let of_node = move |history: &WorkerHistory| history.rank / GPUS_PER_NODE == node;
        let workers = self.histories.iter().filter(move |(_, history)| of_node(history));
        workers.flat_map(|(worker, history)| {
            (0..self.gpus_per_worker)
                .map(move |part| (*worker, history, history.rank % GPUS_PER_NODE + part, part))
        })
    }

    /// The page of DCGM at a second, with means over the last period.
    fn render_activity(&self, node: u32, second: usize) -> String {
        let mut page = String::new();
        for (_, history, gpu, _) in self.node_gpus(node) {
            let computing = mean_before(&history.computing, second, self.period_s);
            let busy = mean_before(&history.busy, second, self.period_s).max(computing);
            let rank = node * GPUS_PER_NODE + gpu;
            let own = ModelledGpu { node: &format_node(node), gpu, rank, job: &self.job };
            let energy_j = history.energy_j.get(second).copied().unwrap_or_default();
            page += &own.render_lines(KernelShares { computing, busy }, energy_j);
        }
        page
    }

    /// The page of the inspector: means over its last whole window.
    fn render_collectives(&self, node: u32, second: usize) -> String {
        let until_s = (second / INSPECTOR_S * INSPECTOR_S) as f64;
        let mut page = String::new();
        for (worker, history, gpu, part) in self.node_gpus(node) {
            for (kind, operations) in &history.operations {
                let Some(labels) = self.communicator_labels(*kind, worker, part) else { continue };
                let Some(mean_s) = mean_of_window(operations, until_s) else { continue };
                let is_pair = matches!(kind, OperationKind::Send | OperationKind::Receive);
                let metric = if is_pair { "p2p" } else { "collective" };
                // Writing to a string cannot fail.
                _ = writeln!(
                    page,
                    "nccl_{metric}_exec_time_microseconds{{version=\"v5.1\",slurm_job_id=\"{}\",node=\"{}\",gpu=\"GPU{gpu}\",{labels},message_size=\"unknown\"}} {:.3}",
                    self.job,
                    format_node(node),
                    mean_s * 1e6
                );
            }
        }
        page
    }

    /// The labels of an operation's communicator; none where its ranks are not all traced.
    fn communicator_labels(
        &self,
        kind: OperationKind,
        worker: TraceWorker,
        part: u32,
    ) -> Option<String> {
        let TraceWorker { replica, stage } = worker;
        let of_stage = |other: &TraceWorker| other.stage == stage;
        let of_replica = |other: &TraceWorker| other.replica == replica;
        let last = self.histories.keys().map(|other| other.stage).max()?;
        let at_end = |other: &TraceWorker| of_replica(other) && [0, last].contains(&other.stage);
        let (name, operation, members): (_, _, Vec<&TraceWorker>) = match kind {
            OperationKind::ReduceScatter | OperationKind::AllGather => {
                let operation =
                    if kind == OperationKind::AllGather { "AllGather" } else { "ReduceScatter" };
                let members = self.histories.keys().filter(|it| of_stage(it)).collect();
                (format!("dp-{stage}-{part}"), format!("collective=\"{operation}\""), members)
            }
            OperationKind::EmbeddingAllReduce => {
                let members = self.histories.keys().filter(|it| at_end(it)).collect();
                (format!("embedding-{replica}-{part}"), "collective=\"AllReduce\"".into(), members)
            }
            OperationKind::Send | OperationKind::Receive => {
                let operation = if kind == OperationKind::Send { "Send" } else { "Recv" };
                let members = self.histories.keys().filter(|it| of_replica(it)).collect();
                (format!("pp-{replica}-{part}"), format!("p2p_operation=\"{operation}\""), members)
            }
            OperationKind::Compute
            | OperationKind::GradientNorm
            | OperationKind::TensorAllReduce => return None,
        };
        let nodes: BTreeSet<u32> = members
            .iter()
            .filter_map(|member| Some(self.histories.get(*member)?.rank / GPUS_PER_NODE))
            .collect();
        Some(format!(
            "comm_name=\"{name}\",n_nodes=\"{}\",nranks=\"{}\",{operation}",
            nodes.len(),
            members.len()
        ))
    }
}

impl PublicPages for TracePages {
    fn time_span(&self) -> (UnixMs, UnixMs) {
        // The inspector has nothing to say before its first window is over.
        let at = |seconds: usize| START + Duration::from_secs(seconds as u64);
        (at(INSPECTOR_S), at(self.length_s))
    }

    fn scrape_period(&self) -> Duration {
        Duration::from_secs(self.period_s as u64)
    }

    fn changed_targets(&mut self, _at: UnixMs) -> Option<Vec<(u32, String)>> {
        if std::mem::replace(&mut self.is_listed, true) {
            return None;
        }
        let targets = self.list_nodes().into_iter().flat_map(|node| {
            let host = format!("10.1.{}.{}", node / 250, node % 250 + 1);
            let first = node * TARGETS_PER_NODE;
            [(first, format!("{host}:9400")), (first + 1, format!("{host}:9100"))]
        });
        Some(targets.collect())
    }

    fn take_pages(&mut self, at: UnixMs) -> Vec<(u32, String)> {
        let second = at.duration_since(START).as_secs() as usize;
        let nodes = self.list_nodes();
        let period_s = self.period_s;
        let due = nodes.into_iter().filter(|node| second % period_s == *node as usize % period_s);
        due.flat_map(|node| {
            let first = node * TARGETS_PER_NODE;
            let pages = [
                (first, self.render_activity(node, second)),
                (first + 1, self.render_collectives(node, second)),
            ];
            pages.into_iter().filter(|(_, page)| !page.is_empty())
        })
        .collect()
    }
}

impl WorkerHistory {
    fn add_step(&mut self, start_s: f64, step: &TraceStep, worker: TraceWorker) {
        let seconds = (start_s + step.length_s()).ceil() as usize + 1;
        self.computing.resize(seconds.max(self.computing.len()), 0.0);
        self.busy.resize(seconds.max(self.busy.len()), 0.0);
        let own = step.workers.get(&worker).map_or(&[][..], Vec::as_slice);
        // Pauses between two operations are waits in collectives that are not traced: launches are late by 2 % at most.
        if let Some(first) = own.first() {
            let last_s = own.iter().map(|operation| operation.end_s).fold(0.0, f64::max);
            add_interval(&mut self.busy, start_s + first.start_s, start_s + last_s);
        }
        for operation in own {
            let (from_s, until_s) = (start_s + operation.start_s, start_s + operation.end_s);
            if operation.kind == OperationKind::Compute {
                add_interval(&mut self.computing, from_s, until_s);
            }
            let of_kind = self.operations.entry(operation.kind).or_default();
            of_kind.push((until_s, operation.length_s()));
        }
    }

    /// Sorts its operations by end, and sums up its energy.
    fn complete(&mut self) {
        for operations in self.operations.values_mut() {
            operations.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        }
        let seconds = self.computing.iter().zip(&self.busy);
        let powers = seconds.map(|(computing, busy)| {
            KernelShares { computing: *computing, busy: busy.max(*computing) }.power_w()
        });
        self.energy_j = powers
            .scan(0.0, |sum, power_w| {
                *sum += power_w;
                Some(*sum)
            })
            .collect();
    }
}

/// Adds an interval to the seconds that it covers.
fn add_interval(seconds: &mut [f64], from_s: f64, until_s: f64) {
    let first = from_s.max(0.0) as usize;
    let covered = seconds.iter_mut().enumerate().skip(first);
    for (second, share) in covered.take_while(|(second, _)| (*second as f64) < until_s) {
        *share += (until_s.min(second as f64 + 1.0) - from_s.max(second as f64)).max(0.0);
    }
}

/// The mean of the last period before a second.
fn mean_before(seconds: &[f64], second: usize, period_s: usize) -> f64 {
    let until = second.min(seconds.len());
    let last = &seconds[until.saturating_sub(period_s)..until];
    let mean = last.iter().sum::<f64>() / last.len().max(1) as f64;
    mean.clamp(0.0, 1.0)
}

/// The mean length of the operations that ended in the last window before an instant in which any ended.
fn mean_of_window(operations: &[(f64, f64)], until_s: f64) -> Option<f64> {
    let before = &operations[..operations.partition_point(|(end_s, _)| *end_s <= until_s)];
    let (last_end_s, _) = before.last()?;
    let window = INSPECTOR_S as f64;
    let from_s = (last_end_s / window).ceil() * window - window;
    let inside = before.iter().rev().take_while(|(end_s, _)| *end_s > from_s);
    let lengths: Vec<f64> = inside.map(|(_, length_s)| *length_s).collect();
    Some(lengths.iter().sum::<f64>() / lengths.len() as f64)
}

fn format_node(node: u32) -> String {
    format!("node{node:04}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::public_data_bench::{
        healthy_step::build_healthy_step, operation_trace::tests::write_timeline,
        page_player::play_public_pages,
    };

    fn read_trace() -> OperationTrace {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("timeline.json.gz");
        write_timeline(&path, 4);
        OperationTrace::read_file(&path).unwrap()
    }

    #[test]
    fn page_has_the_activity_of_the_last_period_and_the_times_of_collectives() {
        let trace = read_trace();
        let steps = std::iter::repeat_n(&trace.steps[0], 10);
        let mut pages = TracePages::from_steps("job", &trace, steps, 15);
        assert_eq!((pages.gpu_count(), pages.length_s), (16, 90));
        let at = |second| START + Duration::from_secs(second);
        let targets = pages.changed_targets(START).unwrap();
        assert_eq!(targets.len(), 4);
        assert_eq!(pages.changed_targets(at(1)), None);
        assert_eq!(pages.node_name(TraceWorker { replica: 0, stage: 1 }), "node0001");
        let (from, until) = pages.time_span();
        assert_eq!((from, until), (at(30), at(90)), "the inspector has no window before");
        let taken = pages.take_pages(at(45));
        let [(0, activity), (1, collectives)] = taken.as_slice() else { panic!("{taken:?}") };
        let value = |page: &str, start: &str| -> f64 {
            let line = page.lines().find(|line| line.starts_with(start)).unwrap();
            line.rsplit_once(' ').unwrap().1.parse().unwrap()
        };
        // From second 30 to 45: 6 s of one step, and the whole of the next one. All of it is busy.
        assert!((value(activity, "DCGM_FI_DEV_GPU_UTIL{gpu=\"0\"") - 100.0).abs() < 1e-9);
        let slow = value(activity, "DCGM_FI_PROF_SM_ACTIVE{gpu=\"0\"");
        let waiting = value(activity, "DCGM_FI_PROF_SM_ACTIVE{gpu=\"7\"");
        assert!(slow > 0.9 && (0.4..0.7).contains(&waiting), "{slow} {waiting}");
        let scatter = "nccl_collective_exec_time_microseconds{version=\"v5.1\",slurm_job_id=\"job\",node=\"node0000\",gpu=\"GPU";
        assert!((value(collectives, &format!("{scatter}0\"")) - 5e5).abs() < 1.0);
        assert!((value(collectives, &format!("{scatter}4\"")) - 4.5e6).abs() < 1.0);
        assert!(collectives.contains("comm_name=\"dp-0-0\",n_nodes=\"1\",nranks=\"2\""));
    }

    #[test]
    fn traced_job_is_judged_without_a_rejected_line() {
        let trace = read_trace();
        let healthy = trace.steps.iter().map(|step| build_healthy_step(&trace, step));
        let healthy: Vec<TraceStep> = healthy.collect();
        let steps = healthy.iter().cycle().take(100).chain(trace.steps.iter().cycle().take(40));
        let mut pages = TracePages::from_steps("job", &trace, steps, 15);
        let run = play_public_pages(&mut pages);
        assert!(run.pages > 150, "{}", run.pages);
        assert_eq!(run.rejected_lines, 0);
        let early = START + Duration::from_secs(500);
        assert!(run.episodes.iter().all(|it| it.opened >= early), "{:?}", run.episodes);
    }
}
