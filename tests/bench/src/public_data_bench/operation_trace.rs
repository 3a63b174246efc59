//! Training traces of ByteDance's StragglerAnalysis: the operations of each worker by step, read from a timeline in
//! Chrome's trace format.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fs::File,
    io::{BufReader, Read},
    path::Path,
};

use anyhow::{Context, ensure};
use flate2::read::GzDecoder;
use serde::Deserialize;

use super::csv_rows::RowCounts;

/// The most bytes of an unpacked timeline.
const MAX_TIMELINE_BYTES: u64 = 1 << 29;

/// The most workers of a job, and the longest operation in seconds.
const MAX_WORKERS: usize = 4_096;
const MAX_OPERATION_S: f64 = 3_600.0;

/// The last instant of a timeline in seconds: 30 days.
const MAX_TIMELINE_S: f64 = 2_592_000.0;

/// The timeline numbers this many streams for each rank.
const STREAMS_PER_RANK: u32 = 5;

/// What a worker does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum OperationKind {
    /// Forward, backward, optimizer.
    Compute,
    /// To and from the neighbouring stages.
    Send,
    /// The same in the other direction.
    Receive,
    /// Gradients, among the replicas of a stage.
    ReduceScatter,
    /// Parameters, among the replicas of a stage.
    AllGather,
    /// Gradients of the embedding, between the first and the last stage.
    EmbeddingAllReduce,
    /// The norm of all gradients, among all ranks.
    GradientNorm,
    /// What only a tensor-parallel group does.
    TensorAllReduce,
}

/// One operation, in seconds since the start of its step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct TraceOperation {
    /// What it is.
    pub(super) kind: OperationKind,
    /// Its start.
    pub(super) start_s: f64,
    /// Its end.
    pub(super) end_s: f64,
}

/// One worker: a replica of one pipeline stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct TraceWorker {
    /// The replica (data-parallel rank).
    pub(super) replica: u32,
    /// The pipeline stage.
    pub(super) stage: u32,
}

/// One step: the operations of each worker by start.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct TraceStep {
    /// The operations of each worker.
    pub(super) workers: BTreeMap<TraceWorker, Vec<TraceOperation>>,
}

/// A whole trace.
#[derive(Debug)]
pub(super) struct OperationTrace {
    /// Events that were read, and those that were left out.
    pub(super) rows: RowCounts,
    /// The first rank of each worker.
    pub(super) ranks: BTreeMap<TraceWorker, u32>,
    /// GPUs of a worker: those of its tensor-parallel group, of which one is traced.
    pub(super) gpus_per_worker: u32,
    /// The recorded steps, in their order.
    pub(super) steps: Vec<TraceStep>,
}

/// An event of the timeline.
#[derive(Deserialize)]
struct TimelineEvent {
    name: Option<String>,
    ph: String,
    #[serde(default)]
    pid: u32,
    #[serde(default)]
    tid: u32,
    /// Microseconds.
    ts: Option<f64>,
    dur: Option<f64>,
    #[serde(default)]
    args: TimelineArguments,
}

#[derive(Default, Deserialize)]
struct TimelineArguments {
    step: Option<u64>,
    name: Option<String>,
}

impl OperationTrace {
    /// Reads a compressed timeline.
    pub(super) fn read_file(path: &Path) -> anyhow::Result<Self> {
        let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
        let unpacked = GzDecoder::new(BufReader::new(file)).take(MAX_TIMELINE_BYTES);
        let events: Vec<TimelineEvent> = serde_json::from_reader(BufReader::new(unpacked))
            .with_context(|| {
                format!("{} is not a packed timeline: fetch it again", path.display())
            })?;
        let trace = Self::from_events(&events);
        ensure!(
            trace.steps.len() > 1 && !trace.ranks.is_empty() && trace.ranks.len() <= MAX_WORKERS,
            "{} has {} steps of {} workers: is it another file?",
            path.display(),
            trace.steps.len(),
            trace.ranks.len()
        );
        Ok(trace)
    }

    fn from_events(events: &[TimelineEvent]) -> Self {
        let stages = name_stages(events);
        let mut rows = RowCounts::default();
        let mut steps: BTreeMap<u64, TraceStep> = BTreeMap::new();
        let mut ranks = BTreeMap::new();
        for event in events.iter().filter(|event| event.ph == "X") {
            let stage = stages.get(&(event.pid, event.tid)).copied();
            let placed = stage.zip(event.args.step).zip(event.to_span());
            let kind = event.name.as_deref().and_then(OperationKind::of_name);
            let Some(((stage, step), span)) =
                placed.filter(|_| kind.is_some() || event.is_host_work())
            else {
                rows.rejected += 1;
                continue;
            };
            rows.read += 1;
            let worker = TraceWorker { replica: event.pid, stage };
            ranks.entry(worker).or_insert(event.tid / STREAMS_PER_RANK);
            let Some(kind) = kind else { continue };
            let operation = TraceOperation { kind, start_s: span.0, end_s: span.1 };
            steps.entry(step).or_default().workers.entry(worker).or_default().push(operation);
        }
        let mut steps: Vec<TraceStep> = steps.into_values().collect();
        // A step that not all workers recorded shows nothing of their order.
        steps.retain(|step| step.workers.len() == ranks.len());
        steps.iter_mut().for_each(TraceStep::begin_at_zero);
        Self { rows, gpus_per_worker: least_distance(ranks.values().copied()), ranks, steps }
    }

    /// The replicas, and the stages.
    pub(super) fn dimensions(&self) -> [BTreeSet<u32>; 2] {
        let workers = || self.ranks.keys();
        [workers().map(|it| it.replica).collect(), workers().map(|it| it.stage).collect()]
    }
}

impl TraceStep {
    /// Moves it to the start of time, and sorts its operations: the timeline draws a gap between two steps. Then adds the
    /// waits.
    fn begin_at_zero(&mut self) {
        let starts = self.workers.values().flatten().map(|operation| operation.start_s);
        let first_s = starts.fold(f64::INFINITY, f64::min);
        for operations in self.workers.values_mut() {
            for operation in operations.iter_mut() {
                operation.start_s -= first_s;
                operation.end_s -= first_s;
            }
            operations.sort_by(|a, b| a.start_s.total_cmp(&b.start_s));
            add_waits(operations);
        }
    }

    /// Seconds from the start to the end of its last operation.
    pub(super) fn length_s(&self) -> f64 {
        let ends = self.workers.values().flatten().map(|operation| operation.end_s);
        ends.fold(0.0, f64::max)
    }

    /// Seconds for which a worker computes.
    pub(super) fn compute_s(&self, worker: TraceWorker) -> f64 {
        let own = self.workers.get(&worker).into_iter().flatten();
        own.filter(|it| it.kind == OperationKind::Compute).map(TraceOperation::length_s).sum()
    }
}

impl TraceOperation {
    /// Its length.
    pub(super) fn length_s(&self) -> f64 {
        self.end_s - self.start_s
    }
}

impl OperationKind {
    /// The kind of an event; none if it is not about the GPU.
    fn of_name(name: &str) -> Option<Self> {
        Some(match name {
            "forward-compute" | "backward-compute" | "optimizer" => Self::Compute,
            "forward-send" | "backward-send" => Self::Send,
            "forward-recv" | "backward-recv" => Self::Receive,
            "grads-reduce-scatter" => Self::ReduceScatter,
            "params-all-gather" => Self::AllGather,
            "embedding-grads-all-reduce" => Self::EmbeddingAllReduce,
            "optimizer-clip-main-grad" => Self::GradientNorm,
            "layernorm-grads-all-reduce" | "separate-grads-all-reduce" => Self::TensorAllReduce,
            _ => return None,
        })
    }
}

impl TimelineEvent {
    /// Start and end in seconds, if they are sound.
    fn to_span(&self) -> Option<(f64, f64)> {
        let (start_s, length_s) = (self.ts? / 1e6, self.dur? / 1e6);
        let is_sound =
            (0.0..MAX_TIMELINE_S).contains(&start_s) && (0.0..MAX_OPERATION_S).contains(&length_s);
        is_sound.then_some((start_s, start_s + length_s))
    }

    /// Whether it is Python's garbage collection, in which the GPU has no part.
    fn is_host_work(&self) -> bool {
        self.name.as_deref() == Some("gc")
    }
}

/// Lets each communication begin when its worker is ready for it: the timeline draws only the transfer, before which the
/// kernel of NCCL waits for the other ranks.
fn add_waits(operations: &mut [TraceOperation]) {
    let (mut computed_s, mut done_s) = (0.0, 0.0);
    for operation in operations {
        let ready_s = match operation.kind {
            // Nothing is drawn shorter than it is.
            OperationKind::Compute | OperationKind::TensorAllReduce => operation.start_s,
            // Both directions begin together.
            OperationKind::Send | OperationKind::Receive => computed_s,
            OperationKind::ReduceScatter
            | OperationKind::AllGather
            | OperationKind::EmbeddingAllReduce
            | OperationKind::GradientNorm => done_s,
        };
        operation.start_s = operation.start_s.min(ready_s);
        if operation.kind == OperationKind::Compute {
            computed_s = operation.end_s;
        }
        done_s = f64::max(done_s, operation.end_s);
    }
}

/// The stage of each stream, by process and thread: `PP rank 2, TP rank 0, compute`.
fn name_stages(events: &[TimelineEvent]) -> HashMap<(u32, u32), u32> {
    let named = events.iter().filter(|event| event.name.as_deref() == Some("thread_name"));
    let stage = |event: &TimelineEvent| {
        let text = event.args.name.as_deref()?.strip_prefix("PP rank ")?;
        text.split_once(',')?.0.trim().parse().ok()
    };
    named.filter_map(|event| Some(((event.pid, event.tid), stage(event)?))).collect()
}

/// The least distance between two ranks; one where there is one rank.
fn least_distance(ranks: impl Iterator<Item = u32>) -> u32 {
    let ranks: Vec<u32> = ranks.collect::<BTreeSet<u32>>().into_iter().collect();
    ranks.windows(2).map(|pair| pair[1] - pair[0]).min().unwrap_or(1)
}

#[cfg(test)]
pub(super) mod tests {
    use std::io::Write as _;

    use flate2::{Compression, write::GzEncoder};

    use super::*;

    /// Writes a job of two replicas with two stages and four GPUs each, of which one is traced: the second replica waits
    /// for the first one, which computes twice as long.
    pub(in crate::public_data_bench) fn write_timeline(path: &Path, steps: u64) {
        let mut events = Vec::new();
        for (replica, stage, rank) in [(0, 0, 0), (1, 0, 4), (0, 1, 8), (1, 1, 12)] {
            let tid = rank * 5;
            events.push(format!(
                r#"{{"name":"thread_name","pid":{replica},"tid":{tid},"ph":"M","args":{{"name":"PP rank {stage}, TP rank 0, compute"}}}}"#
            ));
            for step in 0..steps {
                // Each step begins after a gap, and is longer than the last one.
                let (drawn, longer) = (step as f64 * 12.0, 1.0 + step as f64 * 0.03);
                let mut push = |name: &str, from: f64, until: f64| {
                    let ts = (drawn + from * longer) * 1e6;
                    let dur = (until - from) * longer * 1e6;
                    events.push(format!(
                        r#"{{"name":"{name}","cat":"{name}","pid":{replica},"tid":{tid},"ts":{ts},"dur":{dur},"ph":"X","args":{{"step":{step},"mb_id":0}}}}"#
                    ));
                };
                let (begun, computed) = match (replica, stage) {
                    (0, 0) => (0.0, 8.0),
                    (0, _) => (4.0, 8.0),
                    _ => (0.0, 4.0),
                };
                if begun > 0.0 {
                    push("forward-recv", begun - 0.1, begun);
                }
                push("forward-compute", begun, computed);
                // Only the transfer is drawn.
                push("grads-reduce-scatter", 8.0, 8.5);
                push("optimizer", 8.5, 9.0);
                push("gc", 9.0, 9.0);
            }
        }
        events.push(
            r#"{"name":"odd","pid":0,"tid":0,"ph":"X","ts":1,"dur":1,"args":{"step":0}}"#.into(),
        );
        events.push(
            r#"{"name":"process_name","pid":0,"ph":"M","args":{"name":"DP rank [0]"}}"#.into(),
        );
        let mut packed = GzEncoder::new(File::create(path).unwrap(), Compression::fast());
        packed.write_all(format!("[{}]", events.join(",")).as_bytes()).unwrap();
        packed.finish().unwrap();
    }

    #[test]
    fn timeline_becomes_steps_of_workers() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("timeline-AR.json.gz");
        write_timeline(&path, 3);
        let trace = OperationTrace::read_file(&path).unwrap();
        assert_eq!(trace.rows, RowCounts { read: 51, rejected: 1 });
        assert_eq!((trace.steps.len(), trace.gpus_per_worker), (3, 4));
        let worker = |replica, stage| TraceWorker { replica, stage };
        assert_eq!(trace.ranks[&worker(1, 1)], 12);
        let step = &trace.steps[0];
        assert_eq!((step.length_s(), step.compute_s(worker(0, 0))), (9.0, 8.5));
        assert!(
            (trace.steps[2].length_s() - 9.0 * 1.06).abs() < 1e-9,
            "the gap before it is left out"
        );
        let waits = &step.workers[&worker(1, 0)][1];
        assert_eq!((waits.kind, waits.length_s()), (OperationKind::ReduceScatter, 4.5));
        // Garbage collection is read, and leaves the GPU alone.
        assert_eq!(step.workers[&worker(1, 0)].len(), 3);
    }

    #[test]
    fn other_file_is_refused_with_the_next_step() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("timeline-AR.json.gz");
        std::fs::write(&path, "version https://git-lfs.github.com/spec/v1\n").unwrap();
        let error = OperationTrace::read_file(&path).unwrap_err().to_string();
        assert!(error.ends_with("is not a packed timeline: fetch it again"), "{error}");
    }
}
