//! Device file of the terminal: its modes, its size, and writes with a bounded wait.
//!
//! The file is opened again for this process alone, so that it can be written without blocking while the shell's own
//! descriptor keeps its flags: a terminal that does not read must delay neither a signal nor the exit.

use std::{
    io,
    os::fd::{AsFd as _, OwnedFd},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use crossterm::terminal::{disable_raw_mode, enable_raw_mode};
use ratatui::layout::Rect;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{Mode, OFlags, open},
    io::{Errno, write},
    process::getsid,
    termios::{tcgetsid, tcgetwinsize, ttyname},
};

/// How long the final sequence waits for a terminal that does not read.
const LAST_WORDS: Duration = Duration::from_millis(300);

/// How long a write waits before it checks whether the terminal is still configured by this process.
const LOOK: Duration = Duration::from_millis(50);

/// Bytes per write where a write may block: what a terminal with any free buffer space mostly accepts.
const PIECE: usize = 256;

/// Size of a terminal that does not report one, such as a serial line.
const USUAL: (u16, u16) = (80, 24);

/// Maximum number of columns and lines drawn: a larger terminal shows only this area.
const MOST: (u16, u16) = (1_000, 400);

/// The terminal device.
pub(super) struct TtyDevice {
    file: OwnedFd,
    /// Maximum bytes per write.
    piece: usize,
    /// Whether the terminal is configured by this process.
    is_taken: Mutex<bool>,
}

impl TtyDevice {
    /// Opens the terminal behind the standard output.
    pub(super) fn open_tty() -> io::Result<Self> {
        let (file, piece) = match open_own_tty() {
            Some(file) => (file, usize::MAX),
            None => (io::stdout().as_fd().try_clone_to_owned()?, PIECE),
        };
        Ok(Self { file, piece, is_taken: Mutex::new(false) })
    }

    fn lock_taken(&self) -> MutexGuard<'_, bool> {
        self.is_taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enables raw mode: keys arrive as they are pressed, and bytes are written unchanged.
    pub(super) fn enter_raw_mode(&self) -> io::Result<()> {
        let mut is_taken = self.lock_taken();
        if *is_taken {
            // Another process may have changed the modes meanwhile, and crossterm enables none that it knows as enabled.
            disable_raw_mode()?;
        }
        enable_raw_mode()?;
        *is_taken = true;
        Ok(())
    }

    /// Restores the terminal and writes a final sequence. Errors are ignored: the terminal is then gone.
    pub(super) fn restore_terminal(&self, words: &[u8]) {
        let mut is_taken = self.lock_taken();
        if !std::mem::take(&mut *is_taken) {
            return;
        }
        // Modes first: they can be restored even if the terminal reads nothing more.
        let _ = disable_raw_mode();
        let deadline = Instant::now() + LAST_WORDS;
        let mut rest = words;
        while !rest.is_empty() && Instant::now() < deadline {
            match self.write_chunk(rest) {
                Ok(written) => rest = &rest[written..],
                Err(_) => return,
            }
        }
    }

    /// Writes a frame; the rest of it is discarded once the terminal is restored or gone.
    pub(super) fn write_frame(&self, frame: &[u8]) {
        let mut rest = frame;
        while !rest.is_empty() {
            self.wait_writable();
            let is_taken = self.lock_taken();
            if !*is_taken {
                return;
            }
            match self.write_chunk(rest) {
                Ok(written) => rest = &rest[written..],
                // Without a terminal there is no place to report the error; the input thread detects the hang-up.
                Err(_) => return,
            }
        }
    }

    /// Writes as many bytes as the terminal accepts now, possibly none.
    fn write_chunk(&self, bytes: &[u8]) -> io::Result<usize> {
        if !self.wait_writable() {
            return Ok(0);
        }
        match write(&self.file, &bytes[..bytes.len().min(self.piece)]) {
            Ok(written) => Ok(written),
            Err(Errno::AGAIN | Errno::INTR) => Ok(0),
            Err(error) => Err(error.into()),
        }
    }

    /// Waits briefly until the terminal is writable or fails. Returns whether it is writable.
    fn wait_writable(&self) -> bool {
        let mut poll_fds = [PollFd::new(&self.file, PollFlags::OUT)];
        let timeout = Timespec { tv_sec: 0, tv_nsec: LOOK.subsec_nanos().into() };
        poll(&mut poll_fds, Some(&timeout)).is_ok_and(|ready| ready > 0)
    }

    /// Returns the area of the terminal.
    pub(super) fn terminal_area(&self) -> Rect {
        let size = tcgetwinsize(&self.file);
        let (columns, lines) = size.map_or((0, 0), |size| (size.ws_col, size.ws_row));
        let size_or = |reported: u16, fallback: u16, maximum: u16| {
            if reported == 0 { fallback } else { reported.min(maximum) }
        };
        Rect::new(0, 0, size_or(columns, USUAL.0, MOST.0), size_or(lines, USUAL.1, MOST.1))
    }
}

/// Opens the terminal of the standard output separately; none without permission.
fn open_own_tty() -> Option<OwnedFd> {
    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let stdout = io::stdout();
    // By its device name, only its owner can open it, which is another user after `su`.
    let controls = tcgetsid(&stdout).is_ok_and(|session| getsid(None) == Ok(session));
    if controls && let Ok(file) = open(c"/dev/tty", flags, Mode::empty()) {
        return Some(file);
    }
    let name = ttyname(&stdout, Vec::new()).ok()?;
    open(name, flags, Mode::empty()).ok()
}
