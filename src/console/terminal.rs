//! Terminal session: configures the terminal on entry and restores it on every exit path.

use std::{
    fmt,
    io::{self, IsTerminal as _},
    panic,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use crossterm::{
    Command,
    clipboard::CopyToClipboard,
    cursor::{Hide, Show},
    event::DisableMouseCapture,
    queue,
    style::{Print, ResetColor},
    terminal::{
        BeginSynchronizedUpdate, Clear, ClearType, EndSynchronizedUpdate, EnterAlternateScreen,
        LeaveAlternateScreen,
    },
};
use ratatui::buffer::Buffer;
use rustix::process::{Signal, kill_current_process_group};

use crate::user_config::NotificationForm;
use gaunt_schema::SanitizedText;

mod buffer_diff;
mod input;
mod terminal_writer;
mod tty_device;

pub(crate) use input::{InputEvent, TerminalInput, next_input};
use terminal_writer::TerminalWriter;
use tty_device::TtyDevice;

/// Active terminal session. Dropping it restores the terminal.
pub(crate) struct TerminalSession {
    line: Arc<TtyDevice>,
    writer: TerminalWriter,
    /// The contents of the terminal; of no size if every cell must be redrawn.
    shown: Buffer,
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
            given.restore_terminal(&leave_sequence());
            tell(info);
        }));
        let mut screen = Self {
            writer: TerminalWriter::spawn_writer(Arc::clone(&line))?,
            line,
            shown: Buffer::default(),
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
        self.queue_command(Print('\x07'))
    }

    /// Tells the terminal about something new, in the form that it understands.
    pub(crate) fn notify(&self, form: NotificationForm, text: &SanitizedText) -> io::Result<()> {
        match form {
            NotificationForm::Off => Ok(()),
            NotificationForm::Osc9 => {
                self.queue_command(Print(format!("\x1b]9;gaunt: {text}\x07")))
            }
            NotificationForm::Osc777 => {
                // A semicolon would begin another field.
                let text = text.replace(';', ",");
                self.queue_command(Print(format!("\x1b]777;notify;gaunt;{text}\x07")))
            }
        }
    }

    /// Returns the terminal to a program of the user, until it is taken again.
    pub(crate) fn release_terminal(&mut self) {
        self.writer.flush_with_timeout();
        self.line.restore_terminal(&leave_sequence());
    }

    /// Copies a text to the clipboard, if the terminal supports it (OSC 52).
    pub(crate) fn copy_to_clipboard(&self, text: &str) -> io::Result<()> {
        self.queue_command(CopyToClipboard::to_clipboard_from(text))
    }

    /// Captures the mouse, or releases it so that the terminal can select text.
    pub(crate) fn capture_mouse(&mut self, ours: bool) -> io::Result<()> {
        self.mouse = ours;
        if ours {
            self.queue_command(CaptureMousePresses)
        } else {
            self.queue_command(DisableMouseCapture)
        }
    }

    /// Configures the terminal again, also after another process continued this one.
    pub(crate) fn take_terminal(&mut self) -> io::Result<()> {
        self.line.enter_raw_mode()?;
        self.force_redraw();
        self.queue_command(EnterAlternateScreen)?;
        self.queue_command(Hide)?;
        if self.mouse { self.queue_command(CaptureMousePresses) } else { Ok(()) }
    }

    fn queue_command(&self, command: impl Command) -> io::Result<()> {
        let mut bytes = Vec::new();
        queue!(bytes, command)?;
        self.writer.queue_frame(bytes)
    }

    /// Draws one frame: the changed cells in one write, displayed atomically where terminals support it. Returns the
    /// number of bytes; none if nothing changed.
    pub(crate) fn draw(&mut self, draw: impl FnOnce(&mut Buffer)) -> io::Result<usize> {
        let area = self.line.terminal_area();
        let mut next = std::mem::take(&mut self.spare);
        next.resize(area);
        next.reset();
        draw(&mut next);
        let mut frame = Vec::new();
        queue!(frame, BeginSynchronizedUpdate)?;
        let begun = frame.len();
        let mut shown = std::mem::take(&mut self.shown);
        if shown.area != area {
            queue!(frame, ResetColor, Clear(ClearType::All))?;
            shown = Buffer::empty(area);
        }
        buffer_diff::write_changes(&mut frame, &shown, &next)?;
        (self.shown, self.spare) = (next, shown);
        if frame.len() == begun {
            return Ok(0);
        }
        queue!(frame, EndSynchronizedUpdate)?;
        let length = frame.len();
        self.writer.queue_frame(frame)?;
        Ok(length)
    }

    /// Forgets the contents of the terminal, so that the next frame draws every cell.
    pub(crate) fn force_redraw(&mut self) {
        self.shown = Buffer::default();
    }

    /// Restores the terminal and stops this process until it is continued, like Ctrl-Z elsewhere.
    pub(crate) fn suspend_process(&mut self) -> io::Result<()> {
        self.writer.flush_with_timeout();
        self.line.restore_terminal(&leave_sequence());
        // Stop the whole process group, as the terminal does: a shell that waits for a calling script must see it
        // stop.
        kill_current_process_group(Signal::STOP)?;
        self.take_terminal()
    }
}

impl Drop for TerminalSession {
    fn drop(&mut self) {
        self.writer.flush_with_timeout();
        self.line.restore_terminal(&leave_sequence());
        if !self.has_panicked() && !std::thread::panicking() {
            let before = Arc::clone(&self.before);
            panic::set_hook(Box::new(move |info| before(info)));
        }
    }
}

/// Undoes all changes; the first byte terminates a frame that was cut in the middle of a sequence.
fn leave_sequence() -> Vec<u8> {
    let mut bytes = vec![0x18];
    // Writing to a vector cannot fail.
    let _ = queue!(
        bytes,
        EndSynchronizedUpdate,
        ResetColor,
        DisableMouseCapture,
        LeaveAlternateScreen,
        Show
    );
    bytes
}

/// Reports presses and the wheel, in numbers without a width limit. crossterm's own command also reports movements,
/// each of which would wake the console.
struct CaptureMousePresses;

impl Command for CaptureMousePresses {
    fn write_ansi(&self, out: &mut impl fmt::Write) -> fmt::Result {
        out.write_str("\x1b[?1000h\x1b[?1006h")
    }
}
