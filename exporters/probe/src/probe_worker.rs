//! The worker: the process that uses the GPUs. It runs one request, reports its progress, and may be killed at any
//! time.

use std::{
    io::{self, BufRead, Write},
    process::ExitCode,
};

use gaunt_schema::SanitizedText;
use rustix::process::{Signal, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};

use crate::{
    exit_code::ProbeExit,
    measure::{self, MeasureOutcome, ProgressReporter},
    reference_bandwidth,
    request::{MeasureRequest, MeasureResult},
};

/// The hidden argument that makes a process the worker.
pub(crate) const ARGUMENT: &str = "worker-of-gaunt-probe";

/// A message of the worker, one line of JSON each.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ProbeWorkerMessage {
    /// Contexts and memory are ready.
    Measuring,
    /// The step that starts now.
    At(SanitizedText),
    /// The key with which the other side of a pair joins.
    Key(SanitizedText),
    /// Another process uses the GPUs: the measurement stops, or must be stopped.
    Alarm(ProbeExit),
    /// The result.
    Answer(Box<MeasureResult>),
}

/// Whether this process is a worker.
pub fn is_worker_process() -> bool {
    std::env::args_os().nth(1).is_some_and(|argument| argument == ARGUMENT)
}

/// Runs the request from standard input, and writes messages to standard output.
pub fn run() -> ExitCode {
    // If the parent is killed, the worker must not stay on the GPUs.
    if set_parent_process_death_signal(Some(Signal::KILL)).is_err() {
        return ExitCode::FAILURE;
    }
    let mut line = String::new();
    let read = io::stdin().lock().read_line(&mut line).is_ok();
    let Ok(request) = serde_json::from_str::<MeasureRequest>(&line) else {
        return ExitCode::FAILURE;
    };
    if !read {
        return ExitCode::FAILURE;
    }
    let mut outcome = MeasureOutcome::default();
    let result = measure::run_measurement(&request, &StdoutReporter, &mut outcome);
    outcome.notes.extend(reference_bandwidth::apply_references(
        outcome.model.as_ref(),
        &mut outcome.measured,
    ));
    let result = MeasureResult {
        ending: result.err().unwrap_or_else(ProbeExit::new_measured),
        model: outcome.model,
        measured: outcome.measured,
        notes: outcome.notes,
        cost: outcome.cost,
    };
    write_message(&ProbeWorkerMessage::Answer(Box::new(result)));
    ExitCode::SUCCESS
}

/// Standard output, which the parent reads.
struct StdoutReporter;

impl ProgressReporter for StdoutReporter {
    fn report_measuring(&self) {
        write_message(&ProbeWorkerMessage::Measuring);
    }

    fn report_step(&self, step: &str) {
        write_message(&ProbeWorkerMessage::At(step.into()));
    }

    fn report_key(&self, key: &str) {
        write_message(&ProbeWorkerMessage::Key(key.into()));
    }

    fn alarm_callback(&self) -> Box<dyn FnOnce(&ProbeExit) + Send> {
        Box::new(|exit| write_message(&ProbeWorkerMessage::Alarm(exit.clone())))
    }
}

fn write_message(message: &ProbeWorkerMessage) {
    let Ok(mut line) = serde_json::to_string(message) else { return };
    line.push('\n');
    let mut out = io::stdout().lock();
    // A parent that is gone has killed this process already.
    _ = out.write_all(line.as_bytes()).and_then(|()| out.flush());
}
