//! The step of a job as it would be without its slow replica: what the judge must know of the past to see that the job
//! became slower.

use std::collections::BTreeMap;

use super::operation_trace::{
    OperationKind, OperationTrace, TraceOperation, TraceStep, TraceWorker,
};

/// Operations in which a rank waits for the others.
const WAITING: [OperationKind; 5] = [
    OperationKind::ReduceScatter,
    OperationKind::AllGather,
    OperationKind::EmbeddingAllReduce,
    OperationKind::GradientNorm,
    OperationKind::TensorAllReduce,
];

/// Returns a step in which all replicas do what the fastest one did, and nobody waits for the slow one: each collective
/// takes as long as for the worker of its stage that came last, and what follows begins earlier by the rest.
pub(super) fn build_healthy_step(trace: &OperationTrace, step: &TraceStep) -> TraceStep {
    let [replicas, stages] = trace.dimensions();
    let compute_s = |replica: u32| -> f64 {
        stages.iter().map(|stage| step.compute_s(TraceWorker { replica, stage: *stage })).sum()
    };
    let fastest = replicas.iter().copied().min_by(|a, b| compute_s(*a).total_cmp(&compute_s(*b)));
    let fastest = fastest.unwrap_or_default();
    let mut healthy = TraceStep::default();
    for stage in stages {
        let Some(own) = step.workers.get(&TraceWorker { replica: fastest, stage }) else {
            continue;
        };
        let shortest = shortest_spans(step, stage);
        let mut earlier_s = 0.0;
        let mut operations = Vec::with_capacity(own.len());
        for (operation, span_s) in with_spans(own) {
            let mut operation = *operation;
            let cut_s = shortest.get(&operation.kind).map_or(0.0, |shortest_s| span_s - shortest_s);
            // The pause before it is cut first, and then its own time.
            let pause_s = span_s - operation.length_s();
            operation.start_s -= earlier_s + cut_s.min(pause_s);
            earlier_s += cut_s;
            operation.end_s -= earlier_s;
            operations.push(operation);
        }
        for replica in &replicas {
            healthy.workers.insert(TraceWorker { replica: *replica, stage }, operations.clone());
        }
    }
    let length_s = healthy.length_s();
    for operations in healthy.workers.values_mut() {
        wait_until_end(operations, length_s);
    }
    healthy
}

/// Lets a worker that is ready before the others wait in its last collective, as all begin the next step together.
fn wait_until_end(operations: &mut [TraceOperation], length_s: f64) {
    let end_s = operations.iter().map(|operation| operation.end_s).fold(0.0, f64::max);
    let last = operations.iter().rposition(|operation| WAITING.contains(&operation.kind));
    let Some(last) = last else { return };
    for operation in operations.iter_mut().skip(last + 1) {
        operation.start_s += length_s - end_s;
        operation.end_s += length_s - end_s;
    }
    operations[last].end_s += length_s - end_s;
}

/// Operations with the seconds from the end of all before to their own end.
fn with_spans(operations: &[TraceOperation]) -> impl Iterator<Item = (&TraceOperation, f64)> {
    let mut done_s = 0.0;
    operations.iter().map(move |operation| {
        let span_s = operation.end_s - operation.start_s.min(done_s);
        done_s = f64::max(done_s, operation.end_s);
        (operation, span_s)
    })
}

/// The shortest span of each collective in a stage: that of the worker for which the others waited.
fn shortest_spans(step: &TraceStep, stage: u32) -> BTreeMap<OperationKind, f64> {
    let mut shortest: BTreeMap<OperationKind, f64> = BTreeMap::new();
    let of_stage = step.workers.iter().filter(|(worker, _)| worker.stage == stage);
    for (operation, span_s) in of_stage.flat_map(|(_, operations)| with_spans(operations)) {
        if WAITING.contains(&operation.kind) {
            let least = shortest.entry(operation.kind).or_insert(f64::INFINITY);
            *least = least.min(span_s);
        }
    }
    shortest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::public_data_bench::operation_trace::tests::write_timeline;

    #[test]
    fn nobody_waits_in_a_healthy_step() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("timeline.json.gz");
        write_timeline(&path, 2);
        let trace = OperationTrace::read_file(&path).unwrap();
        let healthy = build_healthy_step(&trace, &trace.steps[0]);
        assert_eq!(healthy.workers.len(), 4);
        // Of 4.5 s in the collective, half a second is the transfer.
        assert!((healthy.length_s() - 5.0).abs() < 1e-9, "{}", healthy.length_s());
        let first = &healthy.workers[&TraceWorker { replica: 0, stage: 0 }];
        let lengths: Vec<f64> = first.iter().map(TraceOperation::length_s).collect();
        assert_eq!(lengths, [4.0, 0.5, 0.5]);
        assert_eq!(*first, healthy.workers[&TraceWorker { replica: 1, stage: 0 }]);
    }

    #[test]
    fn worker_that_is_ready_early_waits_in_its_last_collective() {
        let operation = |kind, start_s, end_s| TraceOperation { kind, start_s, end_s };
        let mut operations = [
            operation(OperationKind::Compute, 0.0, 2.0),
            operation(OperationKind::ReduceScatter, 2.0, 3.0),
            operation(OperationKind::Compute, 3.0, 4.0),
        ];
        wait_until_end(&mut operations, 6.0);
        let times: Vec<_> = operations.iter().map(|it| (it.start_s, it.end_s)).collect();
        assert_eq!(times, [(0.0, 2.0), (2.0, 5.0), (5.0, 6.0)]);
    }
}
