//! Signals from the operating system that the console handles.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

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
    /// Installs the handlers.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            quit: signal(SignalKind::quit())?,
            hang_up: signal(SignalKind::hangup())?,
            // They end a program by default: here, not before the terminal is restored.
            user: [signal(SignalKind::user_defined1())?, signal(SignalKind::user_defined2())?],
            resize: signal(SignalKind::window_change())?,
            stop: signal(SignalKind::from_raw(rustix::process::Signal::TSTP.as_raw()))?,
            resume: signal(SignalKind::from_raw(rustix::process::Signal::CONT.as_raw()))?,
        })
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
