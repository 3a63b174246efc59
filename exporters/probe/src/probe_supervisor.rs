//! The supervisor of the probe worker: starts it, enforces its deadlines, and kills it when it exceeds them.

use std::{
    env,
    io::{BufRead, BufReader, Read, Write},
    process::{Child, Command, Stdio},
    sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender},
    thread,
    time::{Duration, Instant},
};

use crate::{
    exit_code::{ExitKind, ProbeExit},
    probe_worker::{ARGUMENT, ProbeWorkerMessage},
    request::{MeasureLimits, MeasureRequest, MeasureResult},
};

/// The time for a worker that must stop to free memory, before it is killed.
const GRACE: Duration = Duration::from_millis(500);

/// The capacity of the message channel; if it is full, the worker waits.
const MAX_MESSAGES: usize = 64;

/// The longest line that is read from the worker, in bytes: an answer with its notes has a few thousand.
const MAX_LINE: u64 = 4 << 20;

/// The maximum wait for a killed process: a driver that hangs in the kernel may block its exit for ever.
const REAP: Duration = Duration::from_secs(2);

/// Runs a request in a worker; returns in time in all cases.
pub fn run_supervised(request: &MeasureRequest) -> MeasureResult {
    run_supervised_pair(request, &mut |_| {})
}

/// The same, and passes on the key of a pair as soon as it is known.
pub(crate) fn run_supervised_pair(
    request: &MeasureRequest,
    on_key: &mut dyn FnMut(&str),
) -> MeasureResult {
    let started = Instant::now();
    let mut result = match spawn_worker(request) {
        Ok((child, messages)) => follow_worker(&request.limits, child, &messages, on_key),
        Err(error) => {
            result_of_kind(ExitKind::Failed, &format!("cannot start the worker: {error}"))
        }
    };
    result.cost.seconds = started.elapsed().as_secs_f64();
    result
}

fn spawn_worker(
    request: &MeasureRequest,
) -> std::io::Result<(Child, Receiver<ProbeWorkerMessage>)> {
    let mut command = Command::new(env::current_exe()?);
    if let Some(port) = request.meeting.as_ref().and_then(|pair| pair.port.as_ref()) {
        // The equals sign selects this port alone, not all ports with this prefix.
        command.env("NCCL_IB_HCA", format!("={port}"));
    }
    let mut child = command
        .arg(ARGUMENT)
        // CUDA's default order is by speed; NVML's is by address.
        .env("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
        // Streams that share a hardware queue would wait for each other.
        .env("CUDA_DEVICE_MAX_CONNECTIONS", "32")
        // NCCL gets the same limit on SMs.
        .env("NCCL_MAX_CTAS", request.limits.sms.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut line = serde_json::to_vec(request)?;
    line.push(b'\n');
    if let Some(mut stdin) = child.stdin.take() {
        // If the worker has ended already, its exit is seen below.
        _ = stdin.write_all(&line);
    }
    let (sender, messages) = mpsc::sync_channel(MAX_MESSAGES);
    let stdout = child.stdout.take();
    thread::Builder::new()
        .name("worker-pipe".to_owned())
        .spawn(move || stdout.map(|stdout| listen(stdout, &sender)))?;
    Ok((child, messages))
}

/// Forwards a worker's messages until its pipe ends or the receiver is dropped. Other lines, such as library output,
/// are ignored.
fn listen(pipe: impl Read, sender: &SyncSender<ProbeWorkerMessage>) {
    let (mut pipe, mut line) = (BufReader::new(pipe), Vec::new());
    loop {
        line.clear();
        match pipe.by_ref().take(MAX_LINE).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        let Ok(message) = serde_json::from_slice(&line) else { continue };
        if sender.send(message).is_err() {
            return;
        }
    }
}

/// Reads a worker's messages until it ends or its deadline passes.
fn follow_worker(
    limits: &MeasureLimits,
    mut child: Child,
    messages: &Receiver<ProbeWorkerMessage>,
    on_key: &mut dyn FnMut(&str),
) -> MeasureResult {
    let mut limit = Duration::from_millis(limits.setup_millis);
    let mut deadline = Instant::now() + limit;
    let mut step = "driver start".to_owned();
    let mut alarm = None;
    loop {
        let remaining = deadline.saturating_duration_since(Instant::now());
        // A worker that sends messages all the time has the same deadline.
        let received = if remaining.is_zero() {
            Err(RecvTimeoutError::Timeout)
        } else {
            messages.recv_timeout(remaining)
        };
        match received {
            Ok(ProbeWorkerMessage::Measuring) => {
                limit = Duration::from_millis(limits.within_millis);
                deadline = Instant::now() + limit;
            }
            Ok(ProbeWorkerMessage::At(name)) => step = name.to_string(),
            Ok(ProbeWorkerMessage::Key(key)) => on_key(key.as_str()),
            Ok(ProbeWorkerMessage::Alarm(exit)) => {
                alarm = Some(exit);
                deadline = deadline.min(Instant::now() + GRACE);
            }
            Ok(ProbeWorkerMessage::Answer(result)) => {
                // All resources are freed; only the process still has to exit.
                return reap_worker(child, GRACE, *result);
            }
            Err(RecvTimeoutError::Timeout) => {
                _ = child.kill();
                let result = match alarm {
                    Some(exit) => MeasureResult::from_exit(exit),
                    None => result_of_kind(
                        ExitKind::Hung,
                        &format!(
                            "deadline of {limit:?} passed, worker killed at step: {step}; check `nvidia-smi`, `dmesg`"
                        ),
                    ),
                };
                return reap_worker(child, REAP, result);
            }
            Err(RecvTimeoutError::Disconnected) => {
                let status = child
                    .wait()
                    .map_or_else(|error| error.to_string(), |status| status.to_string());
                let why = format!("the worker died ({status}) at step: {step}; check `dmesg`");
                return alarm.map_or_else(
                    || result_of_kind(ExitKind::Failed, &why),
                    MeasureResult::from_exit,
                );
            }
        }
    }
}

/// Waits for the end of a process; adds a note if it does not end.
fn reap_worker(mut child: Child, timeout: Duration, mut result: MeasureResult) -> MeasureResult {
    let end = Instant::now() + timeout;
    while Instant::now() < end {
        if child.try_wait().is_ok_and(|status| status.is_some()) {
            return result;
        }
        thread::sleep(Duration::from_millis(1));
    }
    if result.ending.kind == ExitKind::Measured {
        _ = child.kill();
    }
    let note = format!("process {} does not exit: it is blocked in the driver", child.id());
    result.notes.push(note.as_str().into());
    result
}

fn result_of_kind(kind: ExitKind, why: &str) -> MeasureResult {
    MeasureResult::from_exit(ProbeExit::new(kind, why))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::COLLECTIVE;

    fn encode_line(message: &ProbeWorkerMessage) -> Vec<u8> {
        let mut line = serde_json::to_vec(message).expect("a message is JSON");
        line.push(b'\n');
        line
    }

    #[test]
    fn worker_pipe_is_bounded_and_forwards_every_message() {
        let message_count = 100 * MAX_MESSAGES;
        let mut pipe = Vec::new();
        for nth in 0..message_count {
            pipe.extend(encode_line(&ProbeWorkerMessage::At(nth.to_string().as_str().into())));
        }
        // A library that prints without an end of line, far more than a line may have.
        pipe.extend(vec![b'x'; 3 * MAX_LINE as usize]);
        pipe.push(b'\n');
        pipe.extend(encode_line(&ProbeWorkerMessage::Answer(Box::new(result_of_kind(
            ExitKind::Failed,
            "last",
        )))));
        let (sender, messages) = mpsc::sync_channel(MAX_MESSAGES);
        let listening = thread::spawn(move || listen(&*pipe, &sender));
        let received: Vec<ProbeWorkerMessage> = messages.iter().collect();
        listening.join().expect("it does not panic");
        assert_eq!(received.len(), message_count + 1);
        let step_name = |message: &ProbeWorkerMessage| match message {
            ProbeWorkerMessage::At(name) => name.to_string(),
            other => panic!("{other:?}"),
        };
        assert!(
            (0..message_count).all(|nth| step_name(&received[nth]) == nth.to_string()),
            "in order"
        );
        assert!(matches!(received.last(), Some(ProbeWorkerMessage::Answer(_))));
    }

    #[test]
    fn worker_with_endless_output_is_killed_at_its_deadline() {
        let child = Command::new("sleep").arg("100000").spawn().expect("sleep runs");
        let (sender, messages) = mpsc::sync_channel(MAX_MESSAGES);
        let sending = thread::spawn(move || {
            let mut count = 0_u64;
            while sender.send(ProbeWorkerMessage::At("driver start".into())).is_ok() {
                count += 1;
            }
            count
        });
        let limits = MeasureLimits { setup_millis: 50, ..COLLECTIVE };
        let result = follow_worker(&limits, child, &messages, &mut |_| {});
        assert_eq!(result.ending.kind, ExitKind::Hung);
        drop(messages);
        assert!(sending.join().expect("it does not panic") > 0);
    }
}
