//! Terminal session: configures the terminal on entry and restores it on every exit path.

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

/// Active terminal session. Dropping it restores the terminal.
pub(crate) struct TerminalSession {
    line: Arc<TtyDevice>,
    writer: TerminalWriter,
    /// The contents of the terminal; none if every cell must be redrawn.
    shown: Option<Buffer>,
    /// The previous frame, whose memory the next frame reuses.
    spare: Buffer,
    panicked: Arc<AtomicBool>,
    before: Arc<PanicHook>,
    /// Whether the mouse is captured.
    mouse: bool,
}

/// Panic hook.
type PanicHook = Box<dyn Fn(&panic::PanicHookInfo<'_>) + Sync + Send>;

impl TerminalSession {
    /// Configures the terminal: raw mode, alternate screen, no cursor. A panic anywhere restores it before its
    /// message.
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

    /// Returns whether a thread panicked: the terminal is already restored, and nothing may be drawn.
    pub(crate) fn has_panicked(&self) -> bool {
        self.panicked.load(Ordering::Relaxed)
    }

    /// Returns whether the previous frame has reached the terminal. Until then, a new frame would only be late.
    pub(crate) fn is_ready(&self) -> bool {
        self.writer.is_idle()
    }

    /// Waits until the previous frame has reached the terminal.
    pub(crate) async fn wait_until_ready(&self) {
        self.writer.wait_until_idle().await;
    }

    /// Returns the write time of the last frame, which shows how slow the link is.
    pub(crate) fn last_write_duration(&self) -> Duration {
        self.writer.last_write_duration()
    }

    /// Rings the terminal's bell.
    pub(crate) fn ring_bell(&self) -> io::Result<()> {
        self.writer.queue_frame(b"\x07".to_vec())
    }

    /// Copies a text to the clipboard, if the terminal supports it (OSC 52).
    pub(crate) fn copy_to_clipboard(&self, text: &str) -> io::Result<()> {
        self.writer
            .queue_frame(format!("\x1b]52;c;{}\x07", encode_base64(text.as_bytes())).into_bytes())
    }

    /// Captures the mouse, or releases it so that the terminal can select text.
    pub(crate) fn capture_mouse(&mut self, ours: bool) -> io::Result<()> {
        self.mouse = ours;
        self.writer.queue_frame(if ours { MOUSE_ON } else { MOUSE_OFF }.to_vec())
    }

    /// Configures the terminal again, also after another process continued this one.
    pub(crate) fn take_terminal(&mut self) -> io::Result<()> {
        self.line.enter_raw_mode()?;
        self.force_redraw();
        self.writer.queue_frame([ENTER, if self.mouse { MOUSE_ON } else { b"" }].concat())
    }

    /// Draws one frame: the changed cells in one write, displayed atomically where terminals support it. Returns the
    /// number of bytes; none if nothing changed.
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

    /// Forgets the contents of the terminal, so that the next frame draws every cell.
    pub(crate) fn force_redraw(&mut self) {
        self.shown = None;
    }

    /// Restores the terminal and stops this process until it is continued, like Ctrl-Z elsewhere.
    pub(crate) fn suspend_process(&mut self) -> io::Result<()> {
        self.writer.flush_with_timeout();
        self.line.restore_terminal(LEAVE);
        // Stop the whole process group, as the terminal does: a shell that waits for a calling script must see it
        // stop.
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

/// Enter the alternate screen and hide the cursor.
const ENTER: &[u8] = b"\x1b[?1049h\x1b[?25l";
/// Undo all changes; the first byte terminates a frame that was cut in the middle of a sequence.
const LEAVE: &[u8] = b"\x18\x1b[?2026l\x1b[m\x1b[?1006l\x1b[?1000l\x1b[?1049l\x1b[?25h";

/// Begin of a synchronized update: terminals that support it display the frame atomically.
const BEGIN: &[u8] = b"\x1b[?2026h";
const END: &[u8] = b"\x1b[?2026l";
const CLEAR: &[u8] = b"\x1b[m\x1b[2J";

/// Report presses and the wheel, in numbers without a width limit; do not report movements.
const MOUSE_ON: &[u8] = b"\x1b[?1000h\x1b[?1006h";
const MOUSE_OFF: &[u8] = b"\x1b[?1006l\x1b[?1000l";

/// Encodes bytes in Base64, as terminals expect for the clipboard.
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
