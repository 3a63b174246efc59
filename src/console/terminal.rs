//! The door to the terminal: taken over on entry, given back on every way out.

use std::{
    io::{self, IsTerminal, Write},
    panic,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use crossterm::{
    cursor, queue,
    terminal::{
        BeginSynchronizedUpdate, EndSynchronizedUpdate, EnterAlternateScreen, LeaveAlternateScreen,
        disable_raw_mode, enable_raw_mode,
    },
};
use ratatui::{
    Terminal,
    backend::CrosstermBackend,
    buffer::Buffer,
    layout::{Position, Rect},
};
use rustix::process::{Signal, getpid, kill_process};

mod input;
mod writer;

pub(crate) use input::{Input, Pressed};
use writer::Writer;

/// The terminal in our hands. Dropping it gives the terminal back.
pub(crate) struct Screen {
    terminal: Terminal<CrosstermBackend<Collected>>,
    frame: Collected,
    writer: Writer,
    panicked: Arc<AtomicBool>,
    before: Arc<Hook>,
}

/// What a panic is told with.
type Hook = Box<dyn Fn(&panic::PanicHookInfo<'_>) + Sync + Send>;

impl Screen {
    /// Takes the terminal: raw mode, alternate screen, no cursor. A panic anywhere gives it back before its message.
    pub(crate) fn open() -> io::Result<Self> {
        if !io::stdout().is_terminal() {
            return Err(io::Error::other("standard output is not a terminal"));
        }
        enable_raw_mode()?;
        let panicked = Arc::new(AtomicBool::new(false));
        let before = Arc::new(panic::take_hook());
        let (flag, tell) = (Arc::clone(&panicked), Arc::clone(&before));
        panic::set_hook(Box::new(move |info| {
            flag.store(true, Ordering::Relaxed);
            leave();
            tell(info);
        }));
        let frame = Collected::default();
        let mut screen = Self {
            terminal: Terminal::new(CrosstermBackend::new(frame.clone()))?,
            frame,
            writer: Writer::start(Arc::clone(&panicked))?,
            panicked,
            before,
        };
        screen.enter()?;
        Ok(screen)
    }

    /// Whether some thread panicked: the terminal is given back already, and nothing may be drawn any more.
    pub(crate) fn panicked(&self) -> bool {
        self.panicked.load(Ordering::Relaxed)
    }

    /// Whether the frame before has reached the terminal. Until then, a new one would only be late.
    pub(crate) fn is_ready(&self) -> bool {
        self.writer.is_idle()
    }

    /// Waits until the frame before has reached the terminal.
    pub(crate) async fn ready(&self) {
        self.writer.idle().await;
    }

    /// Draws one frame: what changed since the last one, in one write, shown at once where terminals can.
    pub(crate) fn draw(&mut self, draw: impl FnOnce(&mut Buffer)) -> io::Result<()> {
        queue!(self.frame, BeginSynchronizedUpdate)?;
        let open = self.frame.len();
        self.terminal.draw(|frame| draw(frame.buffer_mut()))?;
        let nothing = self.frame.len() == open;
        queue!(self.frame, EndSynchronizedUpdate)?;
        let bytes = self.frame.take();
        if nothing { Ok(()) } else { self.writer.send(bytes) }
    }

    /// Forgets what the terminal shows, so that the next frame draws every cell.
    pub(crate) fn forget(&mut self) -> io::Result<()> {
        // Clearing would ask the terminal where its cursor is, and our own reader would take the answer.
        let size = self.terminal.size()?;
        self.terminal.resize(Rect::from((Position::ORIGIN, size)))
    }

    /// Gives the terminal back and stops this process until it is continued, as Ctrl-Z does elsewhere.
    pub(crate) fn suspend(&mut self) -> io::Result<()> {
        self.writer.settle();
        leave();
        kill_process(getpid(), Signal::TSTP)?;
        enable_raw_mode()?;
        self.enter()?;
        self.forget()
    }

    fn enter(&mut self) -> io::Result<()> {
        queue!(self.frame, EnterAlternateScreen, cursor::Hide)?;
        let bytes = self.frame.take();
        self.writer.send(bytes)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // A terminal that takes nothing more must not keep us: its modes are restored all the same.
        let settled = self.writer.settle();
        if self.panicked() {
            return;
        }
        if settled {
            leave();
        } else {
            let _ = disable_raw_mode();
        }
        if !std::thread::panicking() {
            let before = Arc::clone(&self.before);
            panic::set_hook(Box::new(move |info| before(info)));
        }
    }
}

/// Gives the terminal back. Nobody can be told if that fails: the terminal is then gone.
fn leave() {
    // The modes first: a terminal that takes nothing more can still have them back.
    let _ = disable_raw_mode();
    let mut out = io::stdout().lock();
    let _ = queue!(out, EndSynchronizedUpdate, LeaveAlternateScreen, cursor::Show);
    let _ = out.flush();
}

/// Bytes of a frame, gathered until it is complete. Shared, because the backend keeps its half to itself; both ends are
/// used by one thread only, so that the lock is never waited for.
#[derive(Clone, Default)]
struct Collected(Arc<Mutex<Vec<u8>>>);

impl Collected {
    fn take(&self) -> Vec<u8> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn len(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

impl Write for Collected {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
