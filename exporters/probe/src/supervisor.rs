//! The parent: starts the worker, holds it to its deadlines, and kills it when it does not keep them.

use std::{
    env,
    io::{BufRead, BufReader, Write},
    process::{Child, Command, Stdio},
    sync::mpsc::{self, Receiver, RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

use crate::{
    ending::{Ending, Kind},
    order::{Answer, Order},
    worker::{ARGUMENT, Word},
};

/// How long a worker may still take to give memory back when it is to stop, before it is killed.
const GRACE: Duration = Duration::from_millis(500);

/// How long a killed process is waited for: a driver that hangs in the kernel may keep it for ever.
const REAP: Duration = Duration::from_secs(2);

/// Has an order done by a worker, and comes back in time whatever happens.
pub fn supervise(order: &Order) -> Answer {
    supervise_meeting(order, &mut |_| {})
}

/// The same, and passes on the key of a pair as soon as it is there.
pub(crate) fn supervise_meeting(order: &Order, pass_on: &mut dyn FnMut(&str)) -> Answer {
    let began = Instant::now();
    let mut answer = match spawn(order) {
        Ok((child, words)) => follow(order, child, &words, pass_on),
        Err(error) => ended(Kind::Failed, &format!("cannot start the worker: {error}")),
    };
    answer.cost.seconds = began.elapsed().as_secs_f64();
    answer
}

fn spawn(order: &Order) -> std::io::Result<(Child, Receiver<Word>)> {
    let mut command = Command::new(env::current_exe()?);
    if let Some(port) = order.meeting.as_ref().and_then(|meeting| meeting.port.as_ref()) {
        // The sign of equality means this one, not all whose names begin so.
        command.env("NCCL_IB_HCA", format!("={port}"));
    }
    let mut child = command
        .arg(ARGUMENT)
        // CUDA's usual order is by speed; NVML's is by address.
        .env("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
        // Streams that share a hardware queue would wait for each other.
        .env("CUDA_DEVICE_MAX_CONNECTIONS", "32")
        // NCCL keeps to the same multiprocessors.
        .env("NCCL_MAX_CTAS", order.limits.sms.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut line = serde_json::to_vec(order)?;
    line.push(b'\n');
    if let Some(mut stdin) = child.stdin.take() {
        // A worker that ended already says so by its end.
        _ = stdin.write_all(&line);
    }
    let (send, words) = mpsc::channel();
    let stdout = child.stdout.take();
    thread::Builder::new().name("worker-pipe".to_owned()).spawn(move || {
        let lines = stdout.into_iter().flat_map(|stdout| BufReader::new(stdout).lines());
        for line in lines.map_while(Result::ok) {
            let Ok(word) = serde_json::from_str(&line) else { continue };
            if send.send(word).is_err() {
                return;
            }
        }
    })?;
    Ok((child, words))
}

/// Listens to a worker until it ends or its time is over.
fn follow(
    order: &Order,
    mut child: Child,
    words: &Receiver<Word>,
    pass_on: &mut dyn FnMut(&str),
) -> Answer {
    let limits = &order.limits;
    let mut limit = Duration::from_millis(limits.setup_millis);
    let mut deadline = Instant::now() + limit;
    let mut at = "the driver".to_owned();
    let mut alarm = None;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match words.recv_timeout(left) {
            Ok(Word::Measuring) => {
                limit = Duration::from_millis(limits.within_millis);
                deadline = Instant::now() + limit;
            }
            Ok(Word::At(what)) => at = what.to_string(),
            Ok(Word::Key(key)) => pass_on(key.as_str()),
            Ok(Word::Alarm(ending)) => {
                alarm = Some(ending);
                deadline = deadline.min(Instant::now() + GRACE);
            }
            Ok(Word::Answer(answer)) => {
                // All is given back; only the process itself still has to go.
                return reap(child, GRACE, *answer);
            }
            Err(RecvTimeoutError::Timeout) => {
                _ = child.kill();
                let answer = match alarm {
                    Some(ending) => Answer::nothing(ending),
                    None => ended(
                        Kind::Hung,
                        &format!(
                            "not done within {limit:?}, and killed: it was about {at}; see `nvidia-smi` and `dmesg`"
                        ),
                    ),
                };
                return reap(child, REAP, answer);
            }
            Err(RecvTimeoutError::Disconnected) => {
                let how = child
                    .wait()
                    .map_or_else(|error| error.to_string(), |status| status.to_string());
                let why = format!("the worker died ({how}): it was about {at}; see `dmesg`");
                return alarm.map_or_else(|| ended(Kind::Failed, &why), Answer::nothing);
            }
        }
    }
}

/// Waits for the end of a process; what does not end is said, and left.
fn reap(mut child: Child, patience: Duration, mut answer: Answer) -> Answer {
    let end = Instant::now() + patience;
    while Instant::now() < end {
        if child.try_wait().is_ok_and(|status| status.is_some()) {
            return answer;
        }
        thread::sleep(Duration::from_millis(1));
    }
    if answer.ending.kind == Kind::Measured {
        _ = child.kill();
    }
    let note = format!("process {} does not end: the driver holds it in the kernel", child.id());
    answer.notes.push(note.as_str().into());
    answer
}

fn ended(kind: Kind, why: &str) -> Answer {
    Answer::nothing(Ending::new(kind, why))
}
