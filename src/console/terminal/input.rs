//! Reads key presses and mouse events from the terminal by crossterm, until the terminal hangs up.
//!
//! A thread waits for input and for the hang-up, and lets crossterm read only what has arrived: crossterm alone would
//! read a terminal that hung up again and again.

use std::{
    fs::File,
    io::{self, IsTerminal},
    os::fd::{AsFd, OwnedFd},
    thread::{self, JoinHandle},
    time::Duration,
};

use crossterm::event::{self, Event, KeyCode, KeyEvent, KeyModifiers, MouseButton, MouseEventKind};
use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
    pipe::pipe,
};
use tokio::sync::mpsc;

use crate::{action::MouseEvent, key_press::KeyPress};

/// Capacity of the key queue. If the console is that far behind, the reader blocks.
const WAITING: usize = 64;

/// How long crossterm waits for more input after some. It would read nothing if this were zero, and reads a terminal that
/// hangs up meanwhile again and again until then.
const MORE_INPUT: Duration = Duration::from_millis(50);

/// Input from the terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InputEvent {
    /// Key press.
    Key(KeyPress),
    /// Mouse event.
    Mouse(MouseEvent),
    /// The terminal hung up.
    HungUp,
}

/// Receiver of the input events. Dropping it ends the reader thread.
pub(crate) struct TerminalInput {
    keys: mpsc::Receiver<InputEvent>,
    /// Closing this end wakes the thread.
    wake: OwnedFd,
    reader: JoinHandle<()>,
}

impl TerminalInput {
    /// Starts to read the terminal: standard input, or the controlling terminal if standard input is not a terminal.
    pub(crate) fn open_input() -> io::Result<Self> {
        // The same choice as crossterm's.
        let tty: OwnedFd = if io::stdin().is_terminal() {
            io::stdin().as_fd().try_clone_to_owned()?
        } else {
            File::open("/dev/tty")?.into()
        };
        let (ended, wake) = pipe()?;
        let (sender, keys) = mpsc::channel(WAITING);
        let reader = thread::Builder::new().name("keys".into()).spawn(move || {
            // No error has a reader: whatever ends the input, the terminal is gone.
            let _ = read_keys(&tty, &ended, &sender);
            // If the receiver is dropped, the event has no consumer.
            let _ = sender.blocking_send(InputEvent::HungUp);
        })?;
        Ok(Self { keys, wake, reader })
    }

    /// Ends the reader and waits for its end, so that another program can read the terminal.
    pub(crate) fn close(self) {
        let Self { keys, wake, reader } = self;
        drop((keys, wake));
        // A reader that panicked has ended too.
        let _ = reader.join();
    }

    /// Returns the next input event.
    pub(crate) async fn next(&mut self) -> InputEvent {
        self.keys.recv().await.unwrap_or(InputEvent::HungUp)
    }

    /// Returns the next input event, if one is queued.
    pub(crate) fn try_next(&mut self) -> Option<InputEvent> {
        self.keys.try_recv().ok()
    }
}

/// Reads until the terminal hangs up or the receiver is dropped.
fn read_keys(tty: &OwnedFd, ended: &OwnedFd, keys: &mpsc::Sender<InputEvent>) -> io::Result<()> {
    loop {
        let mut fds = [PollFd::new(tty, PollFlags::IN), PollFd::new(ended, PollFlags::IN)];
        match poll(&mut fds, None) {
            Err(Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
            Ok(_) => {}
        }
        let hung_up = PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL;
        if fds[0].revents().intersects(hung_up) || !fds[1].revents().is_empty() {
            return Ok(());
        }
        while event::poll(MORE_INPUT)? {
            for pressed in console_events(&event::read()?) {
                if keys.blocking_send(pressed).is_err() {
                    return Ok(());
                }
            }
        }
    }
}

/// Converts an event of crossterm; one without a meaning here gives none.
fn console_events(event: &Event) -> Vec<InputEvent> {
    match event {
        Event::Key(key) => {
            // Alt plus a key sends the same bytes as Escape followed by the key. No binding uses Alt.
            let is_prefixed = key.modifiers.contains(KeyModifiers::ALT)
                && matches!(
                    key.code,
                    KeyCode::Char(_) | KeyCode::Enter | KeyCode::Tab | KeyCode::Backspace
                );
            let escape = is_prefixed.then_some(KeyPress::Escape);
            escape.into_iter().chain(console_key(*key)).map(InputEvent::Key).collect()
        }
        Event::Mouse(mouse) => console_mouse(*mouse).map(InputEvent::Mouse).into_iter().collect(),
        _ => Vec::new(),
    }
}

fn console_key(key: KeyEvent) -> Option<KeyPress> {
    Some(match key.code {
        KeyCode::Char(letter) if key.modifiers.contains(KeyModifiers::CONTROL) => match letter {
            'h' => KeyPress::Backspace,
            'j' => KeyPress::Enter,
            'a'..='z' => KeyPress::Ctrl(letter),
            _ => return None,
        },
        KeyCode::Char(letter) => KeyPress::Char(letter),
        KeyCode::Enter => KeyPress::Enter,
        KeyCode::Esc => KeyPress::Escape,
        KeyCode::Tab => KeyPress::Tab,
        KeyCode::BackTab => KeyPress::BackTab,
        KeyCode::Backspace => KeyPress::Backspace,
        KeyCode::Delete => KeyPress::Delete,
        KeyCode::Up => KeyPress::Up,
        KeyCode::Down => KeyPress::Down,
        KeyCode::Left => KeyPress::Left,
        KeyCode::Right => KeyPress::Right,
        KeyCode::Home => KeyPress::Home,
        KeyCode::End => KeyPress::End,
        KeyCode::PageUp => KeyPress::PageUp,
        KeyCode::PageDown => KeyPress::PageDown,
        _ => return None,
    })
}

fn console_mouse(mouse: event::MouseEvent) -> Option<MouseEvent> {
    let (column, line) = (mouse.column, mouse.row);
    // crossterm takes 1 off a report of column or line 0, which is none.
    let is_reported = column < u16::MAX && line < u16::MAX;
    match mouse.kind {
        _ if !is_reported || !mouse.modifiers.is_empty() => None,
        MouseEventKind::Down(MouseButton::Left) => Some(MouseEvent::Press(column, line)),
        MouseEventKind::ScrollUp => Some(MouseEvent::WheelUp(column, line)),
        MouseEventKind::ScrollDown => Some(MouseEvent::WheelDown(column, line)),
        _ => None,
    }
}

/// Waits for the next input event; without the terminal there is none.
pub(crate) async fn next_input(input: &mut Option<TerminalInput>) -> InputEvent {
    match input {
        Some(input) => input.next().await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys_of(code: KeyCode, modifiers: KeyModifiers) -> Vec<InputEvent> {
        console_events(&Event::Key(KeyEvent::new(code, modifiers)))
    }

    #[test]
    fn keys_are_decoded() {
        let (none, control) = (KeyModifiers::NONE, KeyModifiers::CONTROL);
        for (code, modifiers, expected) in [
            (KeyCode::Char('q'), none, Some(KeyPress::Char('q'))),
            (KeyCode::Char('Ü'), KeyModifiers::SHIFT, Some(KeyPress::Char('Ü'))),
            (KeyCode::Char('c'), control, Some(KeyPress::Ctrl('c'))),
            (KeyCode::Char('j'), control, Some(KeyPress::Enter)),
            (KeyCode::Char('h'), control, Some(KeyPress::Backspace)),
            (KeyCode::Char(' '), control, None),
            (KeyCode::Right, KeyModifiers::ALT, Some(KeyPress::Right)),
            (KeyCode::BackTab, KeyModifiers::SHIFT, Some(KeyPress::BackTab)),
            (KeyCode::Insert, none, None),
        ] {
            let expected: Vec<InputEvent> = expected.map(InputEvent::Key).into_iter().collect();
            assert_eq!(keys_of(code, modifiers), expected, "{code:?}");
        }
        let alt = [KeyPress::Escape, KeyPress::Char('1')].map(InputEvent::Key);
        assert_eq!(keys_of(KeyCode::Char('1'), KeyModifiers::ALT), alt);
    }

    #[test]
    fn mouse_is_decoded_without_its_other_buttons() {
        let report = |kind, column, modifiers| {
            console_events(&Event::Mouse(event::MouseEvent { kind, column, row: 4, modifiers }))
        };
        let (left, none) = (MouseEventKind::Down(MouseButton::Left), KeyModifiers::NONE);
        assert_eq!(report(left, 9, none), [InputEvent::Mouse(MouseEvent::Press(9, 4))]);
        let wheel = report(MouseEventKind::ScrollUp, 0, none);
        assert_eq!(wheel, [InputEvent::Mouse(MouseEvent::WheelUp(0, 4))]);
        let wheel = report(MouseEventKind::ScrollDown, 199, none);
        assert_eq!(wheel, [InputEvent::Mouse(MouseEvent::WheelDown(199, 4))]);
        assert_eq!(report(left, 9, KeyModifiers::SHIFT), []);
        assert_eq!(report(left, u16::MAX, none), []);
        assert_eq!(report(MouseEventKind::Down(MouseButton::Right), 9, none), []);
        assert_eq!(report(MouseEventKind::Up(MouseButton::Left), 9, none), []);
    }
}
