//! Signals from the operating system that the console handles.

use std::{
    io,
    sync::{
        Arc, LazyLock,
        atomic::{AtomicBool, Ordering},
    },
};

use gaunt_signals::BlockedSignals;
use rustix::process::Signal as SignalNumber;
use signal_hook::flag::register_conditional_default;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals that end the console, and by default the process.
const END_SIGNALS: [SignalNumber; 6] = [
    SignalNumber::TERM,
    SignalNumber::INT,
    SignalNumber::QUIT,
    SignalNumber::HUP,
    SignalNumber::USR1,
    SignalNumber::USR2,
];

/// Whether they end the process, because no console receives them yet.
static ENDS_PROCESS: LazyLock<Arc<AtomicBool>> = LazyLock::new(|| Arc::new(AtomicBool::new(true)));

/// Installs handlers of the signals that end the console, before the process has other threads. Until a console receives
/// them they end the process, as without a handler. One that arrives while its first handler is installed beside other
/// threads is lost: it neither ends the process nor has a receiver.
pub fn install_end_handlers() -> io::Result<()> {
    install_end_handlers_with(|| {})
}

/// The same, with what happens while they are installed.
fn install_end_handlers_with(mut meanwhile: impl FnMut()) -> io::Result<()> {
    // Another thread would get what is blocked in this one.
    let _blocked = BlockedSignals::block(&END_SIGNALS);
    for signal in END_SIGNALS {
        register_conditional_default(signal.as_raw(), Arc::clone(&ENDS_PROCESS))?;
        meanwhile();
    }
    Ok(())
}

/// A signal from the operating system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SignalEvent {
    /// Terminate.
    End,
    /// A key of the terminal ends what runs in it: the console, or a program that it made way for.
    Interrupt,
    /// The terminal size changed.
    Resized,
    /// Stop until continued.
    Stop,
    /// Continued after a stop.
    Continued,
}

/// The signals that the console handles.
pub(crate) struct ConsoleSignals {
    terminate: Signal,
    interrupt: Signal,
    quit: Signal,
    hang_up: Signal,
    user: [Signal; 2],
    resize: Signal,
    stop: Signal,
    resume: Signal,
}

impl ConsoleSignals {
    /// Receives the signals from now on.
    pub(crate) fn new() -> io::Result<Self> {
        let signals = Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            quit: signal(SignalKind::quit())?,
            hang_up: signal(SignalKind::hangup())?,
            // They end a program by default: here, not before the terminal is restored.
            user: [signal(SignalKind::user_defined1())?, signal(SignalKind::user_defined2())?],
            resize: signal(SignalKind::window_change())?,
            stop: signal(SignalKind::from_raw(SignalNumber::TSTP.as_raw()))?,
            resume: signal(SignalKind::from_raw(SignalNumber::CONT.as_raw()))?,
        };
        ENDS_PROCESS.store(false, Ordering::SeqCst);
        Ok(signals)
    }

    /// Waits for the next signal.
    pub(crate) async fn next(&mut self) -> SignalEvent {
        let [first_user, second_user] = &mut self.user;
        tokio::select! {
            _ = first_user.recv() => SignalEvent::End,
            _ = second_user.recv() => SignalEvent::End,
            _ = self.terminate.recv() => SignalEvent::End,
            _ = self.interrupt.recv() => SignalEvent::Interrupt,
            _ = self.quit.recv() => SignalEvent::Interrupt,
            _ = self.hang_up.recv() => SignalEvent::End,
            _ = self.resize.recv() => SignalEvent::Resized,
            _ = self.stop.recv() => SignalEvent::Stop,
            _ = self.resume.recv() => SignalEvent::Continued,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        env,
        os::unix::process::ExitStatusExt as _,
        process::{Command, Stdio},
        thread,
        time::Duration,
    };

    use rustix::process::{getpid, kill_process};
    use tokio::runtime::Runtime;

    use super::*;

    /// Environment variables with the number of a signal, and when the test sends it to itself.
    const NUMBER: &str = "GAUNT_TEST_SIGNAL";
    const MOMENT: &str = "GAUNT_TEST_MOMENT";

    /// Exit code of a process whose console received the signal.
    const RECEIVED: i32 = 7;

    /// How long a process waits for its end.
    const ENDS_WITHIN: Duration = Duration::from_mins(1);

    #[test]
    fn end_signal_ends_the_process_until_the_console_receives_it() {
        let during = ["install", "before", "received"];
        for (signal, moment) in END_SIGNALS.iter().flat_map(|it| during.map(|at| (it, at))) {
            let status = Command::new(env::current_exe().unwrap())
                .args(["--exact", "console_signals::tests::stand_in", "--ignored"])
                .env(NUMBER, signal.as_raw().to_string())
                .env(MOMENT, moment)
                .stdout(Stdio::null())
                .status()
                .unwrap();
            let ended = (status.signal(), status.code());
            let expected = if moment == "received" {
                (None, Some(RECEIVED))
            } else {
                (Some(signal.as_raw()), None)
            };
            assert_eq!(ended, expected, "{signal:?}, {moment}");
        }
    }

    /// Sends itself a signal at one moment.
    #[test]
    #[ignore = "it ends the process; the test above runs it"]
    fn stand_in() {
        let Ok(number) = env::var(NUMBER) else { return };
        let number: i32 = number.parse().unwrap();
        let signal = END_SIGNALS.into_iter().find(|it| it.as_raw() == number).unwrap();
        let moment = env::var(MOMENT).unwrap();
        let send_at = |now: &str| {
            if now == moment {
                kill_process(getpid(), signal).unwrap();
                // Another thread may handle it.
                if now != "received" {
                    thread::sleep(ENDS_WITHIN);
                }
            }
        };
        let mut installed = 0;
        install_end_handlers_with(|| {
            installed += 1;
            if installed == END_SIGNALS.len() {
                send_at("install");
            }
        })
        .unwrap();
        send_at("before");
        Runtime::new().unwrap().block_on(async {
            let mut signals = ConsoleSignals::new().unwrap();
            send_at("received");
            assert!(matches!(signals.next().await, SignalEvent::End | SignalEvent::Interrupt));
        });
        std::process::exit(RECEIVED);
    }
}
