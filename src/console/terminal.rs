//! The door to the terminal: taken over on entry, given back on every way out.

use std::{
    io::{self, IsTerminal, Write},
    panic,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
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
use rustix::process::{Signal, kill_current_process_group};

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
    /// Whether the mouse is ours.
    mouse: bool,
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
            mouse: true,
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

    /// How long the terminal took to take the last frame: what a slow link shows itself by.
    pub(crate) fn took(&self) -> Duration {
        self.writer.took()
    }

    /// Rings the terminal's bell.
    pub(crate) fn ring(&self) -> io::Result<()> {
        self.writer.send(b"\x07".to_vec())
    }

    /// Puts a text on the clipboard, where the terminal allows it (OSC 52).
    pub(crate) fn copy(&self, text: &str) -> io::Result<()> {
        self.writer.send(format!("\x1b]52;c;{}\x07", base64(text.as_bytes())).into_bytes())
    }

    /// Takes the mouse, or leaves it to the terminal, which can then mark text.
    pub(crate) fn take_mouse(&mut self, ours: bool) -> io::Result<()> {
        self.mouse = ours;
        self.writer.send(if ours { MOUSE_ON } else { MOUSE_OFF }.to_vec())
    }

    /// Takes the terminal again after somebody else continued this process.
    pub(crate) fn retake(&mut self) -> io::Result<()> {
        enable_raw_mode()?;
        self.enter()?;
        self.forget()
    }

    /// Draws one frame: what changed since the last one, in one write, shown at once where terminals can.
    /// Says how many bytes that took; none if nothing changed.
    pub(crate) fn draw(&mut self, draw: impl FnOnce(&mut Buffer)) -> io::Result<usize> {
        queue!(self.frame, BeginSynchronizedUpdate)?;
        let open = self.frame.len();
        self.terminal.draw(|frame| draw(frame.buffer_mut()))?;
        let nothing = self.frame.len() == open;
        queue!(self.frame, EndSynchronizedUpdate)?;
        let bytes = self.frame.take();
        if nothing {
            return Ok(0);
        }
        let length = bytes.len();
        self.writer.send(bytes)?;
        Ok(length)
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
        // The whole group, as the terminal itself would: a shell that waits for a script of ours must see it stop.
        kill_current_process_group(Signal::STOP)?;
        self.retake()
    }

    fn enter(&mut self) -> io::Result<()> {
        queue!(self.frame, EnterAlternateScreen, cursor::Hide)?;
        if self.mouse {
            self.frame.write_all(MOUSE_ON)?;
        }
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
    let _ = out.write_all(MOUSE_OFF);
    let _ = queue!(out, EndSynchronizedUpdate, LeaveAlternateScreen, cursor::Show);
    let _ = out.flush();
}

/// Presses and the wheel are reported, in numbers that no width exceeds; movements are not.
const MOUSE_ON: &[u8] = b"\x1b[?1000h\x1b[?1006h";
const MOUSE_OFF: &[u8] = b"\x1b[?1006l\x1b[?1000l";

/// Bytes in the alphabet that terminals take a clipboard in.
fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let byte = |at: usize| u32::from(three.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for at in 0..4 {
            let sign = ALPHABET[(bits >> (18 - 6 * at)) as usize & 63];
            out.push(if at > three.len() { '=' } else { char::from(sign) });
        }
    }
    out
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

#[cfg(test)]
mod tests {
    #[test]
    fn the_clipboard_gets_base64() {
        for (text, coded) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("gpu003", "Z3B1MDAz")]
        {
            assert_eq!(super::base64(text.as_bytes()), coded);
        }
    }
}
