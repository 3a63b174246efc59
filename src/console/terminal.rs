//! The door to the terminal: taken over on entry, given back on every way out.

use std::{
    io::{self, IsTerminal as _},
    panic,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use ratatui::buffer::Buffer;
use rustix::process::{Signal, kill_current_process_group};

mod buffer_diff;
mod input;
mod terminal_writer;
mod tty_device;

pub(crate) use input::{InputEvent, TerminalInput};
use terminal_writer::TerminalWriter;
use tty_device::TtyDevice;

/// The terminal in our hands. Dropping it gives the terminal back.
pub(crate) struct TerminalSession {
    line: Arc<TtyDevice>,
    writer: TerminalWriter,
    /// What the terminal shows; none if it must be drawn anew.
    shown: Option<Buffer>,
    /// The frame before that, whose memory the next one takes.
    spare: Buffer,
    panicked: Arc<AtomicBool>,
    before: Arc<PanicHook>,
    /// Whether the mouse is ours.
    mouse: bool,
}

/// What a panic is told with.
type PanicHook = Box<dyn Fn(&panic::PanicHookInfo<'_>) + Sync + Send>;

impl TerminalSession {
    /// Takes the terminal: raw mode, alternate screen, no cursor. A panic anywhere gives it back before its message.
    pub(crate) fn open_terminal() -> io::Result<Self> {
        if !io::stdout().is_terminal() {
            return Err(io::Error::other("standard output is not a terminal"));
        }
        let line = Arc::new(TtyDevice::open_tty()?);
        let panicked = Arc::new(AtomicBool::new(false));
        let before = Arc::new(panic::take_hook());
        let (given, flag, tell) = (Arc::clone(&line), Arc::clone(&panicked), Arc::clone(&before));
        panic::set_hook(Box::new(move |info| {
            flag.store(true, Ordering::Relaxed);
            given.restore_terminal(LEAVE);
            tell(info);
        }));
        let mut screen = Self {
            writer: TerminalWriter::spawn_writer(Arc::clone(&line))?,
            line,
            shown: None,
            spare: Buffer::default(),
            panicked,
            before,
            mouse: true,
        };
        screen.take_terminal()?;
        Ok(screen)
    }

    /// Whether some thread panicked: the terminal is given back already, and nothing may be drawn any more.
    pub(crate) fn has_panicked(&self) -> bool {
        self.panicked.load(Ordering::Relaxed)
    }

    /// Whether the frame before has reached the terminal. Until then, a new one would only be late.
    pub(crate) fn is_ready(&self) -> bool {
        self.writer.is_idle()
    }

    /// Waits until the frame before has reached the terminal.
    pub(crate) async fn wait_until_ready(&self) {
        self.writer.wait_until_idle().await;
    }

    /// How long the terminal took to take the last frame: what a slow link shows itself by.
    pub(crate) fn last_write_duration(&self) -> Duration {
        self.writer.last_write_duration()
    }

    /// Rings the terminal's bell.
    pub(crate) fn ring_bell(&self) -> io::Result<()> {
        self.writer.queue_frame(b"\x07".to_vec())
    }

    /// Puts a text on the clipboard, where the terminal allows it (OSC 52).
    pub(crate) fn copy_to_clipboard(&self, text: &str) -> io::Result<()> {
        self.writer
            .queue_frame(format!("\x1b]52;c;{}\x07", encode_base64(text.as_bytes())).into_bytes())
    }

    /// Takes the mouse, or leaves it to the terminal, which can then mark text.
    pub(crate) fn capture_mouse(&mut self, ours: bool) -> io::Result<()> {
        self.mouse = ours;
        self.writer.queue_frame(if ours { MOUSE_ON } else { MOUSE_OFF }.to_vec())
    }

    /// Takes the terminal, also after somebody else continued this process.
    pub(crate) fn take_terminal(&mut self) -> io::Result<()> {
        self.line.enter_raw_mode()?;
        self.force_redraw();
        self.writer.queue_frame([ENTER, if self.mouse { MOUSE_ON } else { b"" }].concat())
    }

    /// Draws one frame: what changed since the last one, in one write, shown at once where terminals can.
    /// Says how many bytes that took; none if nothing changed.
    pub(crate) fn draw(&mut self, draw: impl FnOnce(&mut Buffer)) -> io::Result<usize> {
        let area = self.line.terminal_area();
        let mut next = std::mem::take(&mut self.spare);
        next.resize(area);
        next.reset();
        draw(&mut next);
        let mut frame = BEGIN.to_vec();
        let shown = self.shown.take().filter(|shown| shown.area == area).unwrap_or_else(|| {
            frame.extend_from_slice(CLEAR);
            Buffer::empty(area)
        });
        buffer_diff::write_changes(&mut frame, &shown, &next);
        (self.shown, self.spare) = (Some(next), shown);
        if frame.len() == BEGIN.len() {
            return Ok(0);
        }
        frame.extend_from_slice(END);
        let length = frame.len();
        self.writer.queue_frame(frame)?;
        Ok(length)
    }

    /// Forgets what the terminal shows, so that the next frame draws every cell.
    pub(crate) fn force_redraw(&mut self) {
        self.shown = None;
    }

    /// Gives the terminal back and stops this process until it is continued, as Ctrl-Z does elsewhere.
    pub(crate) fn suspend_process(&mut self) -> io::Result<()> {
        self.writer.flush_with_timeout();
        self.line.restore_terminal(LEAVE);
        // The whole group, as the terminal itself would: a shell that waits for a script of ours must see it stop.
        kill_current_process_group(Signal::STOP)?;
        self.take_terminal()
    }
}

impl Drop for TerminalSession {
    fn drop(&mut self) {
        self.writer.flush_with_timeout();
        self.line.restore_terminal(LEAVE);
        if !self.has_panicked() && !std::thread::panicking() {
            let before = Arc::clone(&self.before);
            panic::set_hook(Box::new(move |info| before(info)));
        }
    }
}

/// The alternate screen, without the cursor.
const ENTER: &[u8] = b"\x1b[?1049h\x1b[?25l";
/// All that was changed, undone; a frame that was cut in the middle of a sequence ends with the first byte.
const LEAVE: &[u8] = b"\x18\x1b[?2026l\x1b[m\x1b[?1006l\x1b[?1000l\x1b[?1049l\x1b[?25h";

/// A frame is shown at once, between these, where terminals can.
const BEGIN: &[u8] = b"\x1b[?2026h";
const END: &[u8] = b"\x1b[?2026l";
const CLEAR: &[u8] = b"\x1b[m\x1b[2J";

/// Presses and the wheel are reported, in numbers that no width exceeds; movements are not.
const MOUSE_ON: &[u8] = b"\x1b[?1000h\x1b[?1006h";
const MOUSE_OFF: &[u8] = b"\x1b[?1006l\x1b[?1000l";

/// Bytes in the alphabet that terminals take a clipboard in.
fn encode_base64(bytes: &[u8]) -> String {
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

#[cfg(test)]
mod tests {
    #[test]
    fn the_clipboard_gets_base64() {
        for (text, coded) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("gpu003", "Z3B1MDAz")]
        {
            assert_eq!(super::encode_base64(text.as_bytes()), coded);
        }
    }
}
