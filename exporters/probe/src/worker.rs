//! The worker: the process that touches the GPUs. It is told one order, tells how far it is, and may be killed at any time.

use std::{
    io::{self, BufRead, Write},
    process::ExitCode,
};

use gaunt_schema::Safe;
use rustix::process::{Signal, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};

use crate::{
    ending::Ending,
    measure::{self, Hear, Outcome},
    order::{Answer, Order},
    reference,
};

/// The hidden argument that makes a process the worker.
pub(crate) const ARGUMENT: &str = "worker-of-gaunt-probe";

/// What a worker says, a line of JSON each.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Word {
    /// Contexts and memory are there.
    Measuring,
    /// What is done now.
    At(Safe),
    /// The key by which the other side of a pair comes.
    Key(Safe),
    /// Somebody came: it will end soon, or is to be ended.
    Alarm(Ending),
    /// The end.
    Answer(Box<Answer>),
}

/// Whether this process is to be a worker.
pub fn requested() -> bool {
    std::env::args_os().nth(1).is_some_and(|argument| argument == ARGUMENT)
}

/// Does what standard input orders, and says so on standard output.
pub fn run() -> ExitCode {
    // Whoever kills the parent must not leave us on the GPUs.
    if set_parent_process_death_signal(Some(Signal::KILL)).is_err() {
        return ExitCode::FAILURE;
    }
    let mut line = String::new();
    let read = io::stdin().lock().read_line(&mut line).is_ok();
    let Ok(order) = serde_json::from_str::<Order>(&line) else {
        return ExitCode::FAILURE;
    };
    if !read {
        return ExitCode::FAILURE;
    }
    let mut outcome = Outcome::default();
    let ended = measure::measure(&order, &Pipe, &mut outcome);
    outcome.notes.extend(reference::compare(outcome.model.as_ref(), &mut outcome.measured));
    let answer = Answer {
        ending: ended.err().unwrap_or_else(Ending::measured),
        model: outcome.model,
        measured: outcome.measured,
        notes: outcome.notes,
        cost: outcome.cost,
    };
    tell(&Word::Answer(Box::new(answer)));
    ExitCode::SUCCESS
}

/// Standard output, which the parent reads.
struct Pipe;

impl Hear for Pipe {
    fn measuring(&self) {
        tell(&Word::Measuring);
    }

    fn at(&self, what: &str) {
        tell(&Word::At(what.into()));
    }

    fn key(&self, key: &str) {
        tell(&Word::Key(key.into()));
    }

    fn alarm(&self) -> Box<dyn FnOnce(&Ending) + Send> {
        Box::new(|ending| tell(&Word::Alarm(ending.clone())))
    }
}

fn tell(word: &Word) {
    let Ok(mut line) = serde_json::to_string(word) else { return };
    line.push('\n');
    let mut out = io::stdout().lock();
    // A parent that is gone has killed us already.
    _ = out.write_all(line.as_bytes()).and_then(|()| out.flush());
}
