//! The signals of a program that runs until it is ended: SIGTERM and SIGINT end it, SIGHUP reloads its settings or ends it.
//!
//! First thing in `main` they are held ([`HeldSignals`]): the kernel keeps what arrives. Once the command line says what the
//! program is, they are received ([`ServiceSignals`]) by a thread of their own, so that they are heard whatever the start
//! waits for. Until the main loop takes them over, one that ends the program ends it at once, with success: nothing has begun
//! that needs an end. A reload is kept for the main loop.

use std::{
    future::pending,
    io,
    os::raw::c_int,
    process,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
};

use rustix::process::Signal;
use signal_hook::iterator::Signals;
use tokio::sync::watch;

use crate::signal_mask::{BlockedSignals, is_ignored};

/// The signals of a service.
const HELD: [Signal; 3] = [Signal::TERM, Signal::INT, Signal::HUP];

/// Signals that the kernel keeps, until they are received or this is dropped; then they have their default effect.
#[derive(Debug)]
pub struct HeldSignals {
    _blocked: BlockedSignals,
}

/// What SIGHUP does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HangUpAction {
    /// It reloads the settings.
    Reload,
    /// It ends the program, unless it is ignored, as with `nohup`.
    End,
}

/// Who handles a signal that ends the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EndHandler {
    /// The thread that receives it: the program starts.
    Thread,
    /// The main loop.
    MainLoop,
}

/// The received signals of a program that starts.
#[derive(Debug)]
pub struct ServiceSignals {
    end_handler: Arc<Mutex<EndHandler>>,
    end: EndSignal,
    reload: ReloadSignal,
}

/// The end of the program, as the main loop hears it.
#[derive(Clone, Debug)]
pub struct EndSignal(watch::Receiver<bool>);

/// The reloads of the settings, as the main loop hears them.
#[derive(Clone, Debug)]
pub struct ReloadSignal(watch::Receiver<u64>);

impl HeldSignals {
    /// Holds the signals, before the process has other threads.
    pub fn hold() -> Self {
        Self { _blocked: BlockedSignals::block(&HELD) }
    }

    /// Receives them from now on, and those that arrived meanwhile.
    pub fn receive(self, hang_up: HangUpAction) -> io::Result<ServiceSignals> {
        self.receive_with_code(hang_up, |_| 0)
    }

    /// Each of them ends the program from now on, with the code that a shell gives to it.
    pub fn exit_on_any(self) -> io::Result<()> {
        self.receive_with_code(HangUpAction::End, |signal| 128 + signal).map(drop)
    }

    /// Receives them; until the main loop takes over, one that ends the program does so with this code.
    fn receive_with_code(
        self,
        hang_up: HangUpAction,
        exit_code: fn(c_int) -> i32,
    ) -> io::Result<ServiceSignals> {
        let is_left =
            |signal| signal == Signal::HUP && hang_up == HangUpAction::End && is_ignored(signal);
        let received = HELD.into_iter().filter(|signal| !is_left(*signal)).map(Signal::as_raw);
        // While they are held none arrives beside a handler that is not complete.
        let signals = Signals::new(received.collect::<Vec<c_int>>())?;
        let end_handler = Arc::new(Mutex::new(EndHandler::Thread));
        let ((end_sender, end), (reload_sender, reload)) =
            (watch::channel(false), watch::channel(0));
        let thread = SignalThread {
            hang_up,
            exit_code,
            end_handler: Arc::clone(&end_handler),
            end: end_sender,
            reloads: reload_sender,
        };
        thread::Builder::new().name("signals".to_owned()).spawn(move || thread.receive(signals))?;
        drop(self);
        Ok(ServiceSignals { end_handler, end: EndSignal(end), reload: ReloadSignal(reload) })
    }
}

/// What the thread that receives the signals passes on.
struct SignalThread {
    hang_up: HangUpAction,
    exit_code: fn(c_int) -> i32,
    end_handler: Arc<Mutex<EndHandler>>,
    end: watch::Sender<bool>,
    reloads: watch::Sender<u64>,
}

impl SignalThread {
    fn receive(self, mut signals: Signals) {
        for signal in signals.forever() {
            if signal == Signal::HUP.as_raw() && self.hang_up == HangUpAction::Reload {
                self.reloads.send_modify(|count| *count += 1);
                continue;
            }
            // Locked until the end, so that no main loop begins meanwhile.
            let end_handler = lock(&self.end_handler);
            if *end_handler == EndHandler::Thread {
                tracing::info!("stopping on a signal, before the start is complete");
                process::exit((self.exit_code)(signal));
            }
            self.end.send_replace(true);
        }
    }
}

impl ServiceSignals {
    /// The main loop takes over: from now on it ends the program.
    pub fn take_over(self) -> (EndSignal, ReloadSignal) {
        *lock(&self.end_handler) = EndHandler::MainLoop;
        (self.end, self.reload)
    }
}

impl EndSignal {
    /// Waits until the program is to end.
    pub async fn wait(&mut self) {
        if self.0.wait_for(|has_arrived| *has_arrived).await.is_err() {
            pending::<()>().await;
        }
    }

    /// Whether the program is to end.
    pub fn has_arrived(&self) -> bool {
        *self.0.borrow()
    }
}

impl ReloadSignal {
    /// Waits for a reload that was not waited for before.
    pub async fn wait(&mut self) {
        if self.0.changed().await.is_err() {
            pending::<()>().await;
        }
    }
}

fn lock(end_handler: &Mutex<EndHandler>) -> MutexGuard<'_, EndHandler> {
    end_handler.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::{
        env,
        os::unix::process::ExitStatusExt as _,
        process::{Command, Stdio},
    };

    use rustix::process::{getpid, kill_process};
    use tokio::runtime::Builder;

    use super::*;

    /// Environment variable with the number of a signal and the moment at which the test sends it to itself.
    const SENT: &str = "GAUNT_TEST_SENT";

    /// Exit code of a process whose main loop got what it waits for.
    const RECEIVED: i32 = 7;

    /// What a process of its own does that sends itself a signal at a moment: the signal that ends it, and its exit code.
    fn end_of_process(signal: Signal, moment: &str) -> (Option<i32>, Option<i32>) {
        let status = Command::new(env::current_exe().unwrap())
            .args(["--exact", "service_signals::tests::stand_in", "--ignored"])
            .env(SENT, format!("{} {moment}", signal.as_raw()))
            .stdout(Stdio::null())
            .status()
            .unwrap();
        (status.signal(), status.code())
    }

    #[test]
    fn end_of_a_start_is_at_once_and_later_that_of_the_main_loop() {
        for signal in [Signal::TERM, Signal::INT] {
            assert_eq!(end_of_process(signal, "starting"), (None, Some(0)));
            assert_eq!(end_of_process(signal, "running"), (None, Some(RECEIVED)));
            assert_eq!(end_of_process(signal, "any"), (None, Some(128 + signal.as_raw())));
        }
    }

    #[test]
    fn reload_is_kept_for_the_main_loop() {
        for moment in ["starting", "running", "between"] {
            let ended = end_of_process(Signal::HUP, moment);
            assert_eq!(ended, (None, Some(RECEIVED)), "{moment}");
        }
    }

    /// Sends itself a signal at one moment, and waits for what it causes. What arrives while signals are held is tested on the
    /// programs (`tests/it/start_signals.rs`): here other threads have them unblocked.
    #[test]
    #[ignore = "it ends the process; the tests above run it"]
    fn stand_in() {
        let Ok(sent) = env::var(SENT) else { return };
        let (number, moment) = sent.split_once(' ').unwrap();
        let signal = HELD.into_iter().find(|it| it.as_raw().to_string() == number).unwrap();
        let send_at = |now: &str| {
            if now == moment {
                kill_process(getpid(), signal).unwrap();
            }
        };
        let held = HeldSignals::hold();
        if moment == "any" {
            held.exit_on_any().unwrap();
            send_at("any");
            loop {
                thread::park();
            }
        }
        let signals = held.receive(HangUpAction::Reload).unwrap();
        send_at("starting");
        let is_end = signal != Signal::HUP;
        if is_end && moment == "starting" {
            // Its thread ends the process.
            loop {
                thread::park();
            }
        }
        let (mut end, mut reload) = signals.take_over();
        send_at("running");
        Builder::new_current_thread().build().unwrap().block_on(async {
            if moment == "between" {
                for _ in 0..3 {
                    kill_process(getpid(), signal).unwrap();
                    reload.wait().await;
                }
            } else if is_end {
                end.wait().await;
                assert!(end.has_arrived());
            } else {
                reload.wait().await;
            }
        });
        process::exit(RECEIVED);
    }
}
