//! The terminal's file: its modes, its size, and writes that wait for nobody longer than is wanted.
//!
//! It is opened once more for us alone, so that it can be written without blocking while the shell's own stays as it
//! is: a terminal that takes nothing must neither hold a signal nor the way out.

use std::{
    io,
    os::fd::{AsFd as _, OwnedFd},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use ratatui::layout::Rect;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{Mode, OFlags, open},
    io::{Errno, write},
    process::getsid,
    termios::{OptionalActions, Termios, tcgetattr, tcgetsid, tcgetwinsize, tcsetattr, ttyname},
};

/// How long the last words wait for a terminal that takes nothing.
const LAST_WORDS: Duration = Duration::from_millis(300);

/// How long a write waits before it looks whether the terminal is still ours.
const LOOK: Duration = Duration::from_millis(50);

/// Bytes that are written at once where a write may block: as many as a terminal with room at all mostly takes.
const PIECE: usize = 256;

/// What a terminal has that does not say how large it is, as a serial line.
const USUAL: (u16, u16) = (80, 24);

/// The most columns and lines that are drawn: a larger terminal shows this much of it.
const MOST: (u16, u16) = (1_000, 400);

/// The terminal.
pub(super) struct TtyDevice {
    file: OwnedFd,
    /// The most bytes of one write.
    piece: usize,
    /// The modes as they were before the terminal was ours; none while it is not.
    before: Mutex<Option<Termios>>,
}

impl TtyDevice {
    /// The terminal behind the standard output.
    pub(super) fn open_tty() -> io::Result<Self> {
        let (file, piece) = match open_own_tty() {
            Some(file) => (file, usize::MAX),
            None => (io::stdout().as_fd().try_clone_to_owned()?, PIECE),
        };
        Ok(Self { file, piece, before: Mutex::new(None) })
    }

    fn lock_modes(&self) -> MutexGuard<'_, Option<Termios>> {
        self.before.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes it ours: keys come as they are pressed, and bytes go out as they are written.
    pub(super) fn enter_raw_mode(&self) -> io::Result<()> {
        let mut before = self.lock_modes();
        let modes = match &*before {
            Some(modes) => modes.clone(),
            None => tcgetattr(&self.file)?,
        };
        let mut raw = modes.clone();
        raw.make_raw();
        tcsetattr(&self.file, OptionalActions::Now, &raw)?;
        *before = Some(modes);
        Ok(())
    }

    /// Gives it back as it was, with these last words. Nobody can be told if that fails: it is then gone.
    pub(super) fn restore_terminal(&self, words: &[u8]) {
        let mut before = self.lock_modes();
        let Some(modes) = before.take() else { return };
        // The modes first: a terminal that takes nothing more can still have them back.
        let _ = tcsetattr(&self.file, OptionalActions::Now, &modes);
        let deadline = Instant::now() + LAST_WORDS;
        let mut rest = words;
        while !rest.is_empty() && Instant::now() < deadline {
            match self.write_chunk(rest) {
                Ok(written) => rest = &rest[written..],
                Err(_) => return,
            }
        }
    }

    /// Writes a frame; what is left of it is thrown away once the terminal is given back, or gone.
    pub(super) fn write_frame(&self, frame: &[u8]) {
        let mut rest = frame;
        while !rest.is_empty() {
            self.wait_writable();
            let before = self.lock_modes();
            if before.is_none() {
                return;
            }
            match self.write_chunk(rest) {
                Ok(written) => rest = &rest[written..],
                // Without a terminal there is nobody to tell; the input notices the hang-up.
                Err(_) => return,
            }
        }
    }

    /// Writes as much as the terminal takes now, which may be nothing.
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

    /// Waits a little until the terminal takes something, or fails to; whether it does.
    fn wait_writable(&self) -> bool {
        let mut wanted = [PollFd::new(&self.file, PollFlags::OUT)];
        let look = Timespec { tv_sec: 0, tv_nsec: LOOK.subsec_nanos().into() };
        poll(&mut wanted, Some(&look)).is_ok_and(|ready| ready > 0)
    }

    /// The area that there is.
    pub(super) fn terminal_area(&self) -> Rect {
        let size = tcgetwinsize(&self.file);
        let (columns, lines) = size.map_or((0, 0), |size| (size.ws_col, size.ws_row));
        let or = |told: u16, usual: u16, most: u16| if told == 0 { usual } else { told.min(most) };
        Rect::new(0, 0, or(columns, USUAL.0, MOST.0), or(lines, USUAL.1, MOST.1))
    }
}

/// The terminal of the standard output, opened for us alone; none if we may not.
fn open_own_tty() -> Option<OwnedFd> {
    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let stdout = io::stdout();
    // By its own name it can only be opened by its owner, who need not be us after `su`.
    let controls = tcgetsid(&stdout).is_ok_and(|session| getsid(None) == Ok(session));
    if controls && let Ok(file) = open(c"/dev/tty", flags, Mode::empty()) {
        return Some(file);
    }
    let name = ttyname(&stdout, Vec::new()).ok()?;
    open(name, flags, Mode::empty()).ok()
}
