//! Reads and decodes key presses and mouse events from the terminal.
//!
//! It ends when the terminal hangs up. It reads on a thread, because polling the terminal's file would change flags
//! that other processes share.

use std::{
    fs::File,
    io::{self, IsTerminal},
    os::fd::{AsFd, OwnedFd},
    thread,
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::{Errno, read},
    pipe::pipe,
};
use tokio::sync::mpsc;

use crate::{action::MouseEvent, keymap::KeyPress};

/// Capacity of the key queue. If the console is that far behind, the reader blocks.
const WAITING: usize = 64;

/// How long a lone escape may be the beginning of a longer sequence.
const ESCAPE: Timespec =
    Timespec { tv_sec: 0, tv_nsec: Duration::from_millis(50).subsec_nanos() as i64 };

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
    _wake: OwnedFd,
}

impl TerminalInput {
    /// Starts to read the terminal: standard input, or the controlling terminal if standard input is not a terminal.
    pub(crate) fn open_input() -> io::Result<Self> {
        let tty: OwnedFd = if io::stdin().is_terminal() {
            io::stdin().as_fd().try_clone_to_owned()?
        } else {
            File::open("/dev/tty")?.into()
        };
        let (ended, wake) = pipe()?;
        let (sender, keys) = mpsc::channel(WAITING);
        thread::Builder::new()
            .name("keys".into())
            .spawn(move || read_keys(&tty, &ended, &sender))?;
        Ok(Self { keys, _wake: wake })
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
fn read_keys(tty: &OwnedFd, ended: &OwnedFd, keys: &mpsc::Sender<InputEvent>) {
    let mut parser = KeyDecoder::default();
    let mut buffer = [0; 1_024];
    loop {
        let timeout = parser.has_pending_bytes().then_some(&ESCAPE);
        let mut fds = [PollFd::new(tty, PollFlags::IN), PollFd::new(ended, PollFlags::IN)];
        let ready = match poll(&mut fds, timeout) {
            Err(Errno::INTR) => continue,
            Ok(ready) => ready,
            Err(_) => break,
        };
        if !fds[1].revents().is_empty() {
            return;
        }
        let found = if ready == 0 {
            parser.finish_pending()
        } else if fds[0].revents().intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL) {
            break;
        } else {
            match read(tty, &mut buffer) {
                Err(Errno::INTR | Errno::AGAIN) => continue,
                Ok(0) | Err(_) => break,
                Ok(length) => parser.decode_bytes(&buffer[..length]),
            }
        };
        for pressed in found {
            if keys.blocking_send(pressed).is_err() {
                return;
            }
        }
    }
    // If the receiver is dropped, the event has no consumer.
    let _ = keys.blocking_send(InputEvent::HungUp);
}

/// Decodes bytes to keys.
#[derive(Debug, Default)]
struct KeyDecoder {
    /// Beginning of an incomplete sequence.
    held: Vec<u8>,
}

/// Maximum length of a key sequence; longer ones are discarded.
const LONGEST: usize = 24;

impl KeyDecoder {
    /// Returns whether more bytes may complete a key.
    fn has_pending_bytes(&self) -> bool {
        !self.held.is_empty()
    }

    /// Decodes bytes and returns the keys that they complete.
    fn decode_bytes(&mut self, bytes: &[u8]) -> Vec<InputEvent> {
        self.held.extend_from_slice(bytes);
        let mut keys = Vec::new();
        let mut rest = &self.held[..];
        while !rest.is_empty() {
            let Some((key, used)) = decode_key(rest) else { break };
            keys.extend(key);
            rest = &rest[used..];
        }
        let kept = if rest.len() > LONGEST { 0 } else { rest.len() };
        self.held.drain(..self.held.len() - kept);
        keys
    }

    /// Handles the end of the wait for more bytes: a lone escape is the Escape key.
    fn finish_pending(&mut self) -> Vec<InputEvent> {
        let held = std::mem::take(&mut self.held);
        if held == [0x1b] { vec![InputEvent::Key(KeyPress::Escape)] } else { Vec::new() }
    }
}

/// Decodes the first key of some bytes. Returns the key, if it is known, and its length; none if more bytes are
/// needed.
fn decode_key(bytes: &[u8]) -> Option<(Option<InputEvent>, usize)> {
    let first = *bytes.first()?;
    let key = match first {
        0x1b => return decode_escape(bytes),
        b'\r' | b'\n' => KeyPress::Enter,
        b'\t' => KeyPress::Tab,
        0x7f | 0x08 => KeyPress::Backspace,
        0 | 28..=31 => return Some((None, 1)),
        1..=26 => KeyPress::Ctrl(char::from(first - 1 + b'a')),
        0x20..0x7f => KeyPress::Char(char::from(first)),
        _ => return decode_multibyte(bytes),
    };
    Some((Some(InputEvent::Key(key)), 1))
}

/// Decodes a key that begins with an escape: `ESC [ … final` or `ESC O final`; otherwise the Escape key itself.
fn decode_escape(bytes: &[u8]) -> Option<(Option<InputEvent>, usize)> {
    match bytes.get(1)? {
        b'O' => Some((decode_named_key(&[], *bytes.get(2)?).map(InputEvent::Key), 3)),
        b'[' => {
            let length = bytes[2..].iter().position(|byte| (0x40..0x7f).contains(byte))?;
            let (parameters, last) = (&bytes[2..2 + length], bytes[2 + length]);
            let pressed = match parameters.strip_prefix(b"<") {
                Some(report) => decode_mouse(report, last).map(InputEvent::Mouse),
                None => decode_named_key(parameters, last).map(InputEvent::Key),
            };
            Some((pressed, 3 + length))
        }
        // Alt plus a key sends the same bytes as Escape followed by the key. No binding uses Alt.
        _ => Some((Some(InputEvent::Key(KeyPress::Escape)), 1)),
    }
}

/// Decodes a mouse report (mode 1006): `button;column;line`, both from 1; `M` for pressed.
fn decode_mouse(report: &[u8], last: u8) -> Option<MouseEvent> {
    let mut numbers = std::str::from_utf8(report).ok()?.split(';').map(str::parse::<u16>);
    let mut next = || numbers.next()?.ok();
    let (button, column, line) = (next()?, next()?.checked_sub(1)?, next()?.checked_sub(1)?);
    match (button, last) {
        (0, b'M') => Some(MouseEvent::Press(column, line)),
        (64, b'M') => Some(MouseEvent::WheelUp(column, line)),
        (65, b'M') => Some(MouseEvent::WheelDown(column, line)),
        _ => None,
    }
}

fn decode_named_key(parameters: &[u8], last: u8) -> Option<KeyPress> {
    let number = parameters.split(|byte| *byte == b';').next().unwrap_or_default();
    Some(match (last, number) {
        (b'A', _) => KeyPress::Up,
        (b'B', _) => KeyPress::Down,
        (b'C', _) => KeyPress::Right,
        (b'D', _) => KeyPress::Left,
        (b'H', _) | (b'~', b"1" | b"7") => KeyPress::Home,
        (b'F', _) | (b'~', b"4" | b"8") => KeyPress::End,
        (b'~', b"3") => KeyPress::Delete,
        (b'~', b"5") => KeyPress::PageUp,
        (b'~', b"6") => KeyPress::PageDown,
        (b'Z', _) => KeyPress::BackTab,
        _ => return None,
    })
}

/// Decodes a non-ASCII character; invalid bytes are skipped one by one.
fn decode_multibyte(bytes: &[u8]) -> Option<(Option<InputEvent>, usize)> {
    let length = match bytes[0] {
        0xc2..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xf4 => 4,
        _ => return Some((None, 1)),
    };
    let end = bytes.len().min(length);
    match std::str::from_utf8(&bytes[..end]) {
        Ok(text) => Some((text.chars().next().map(|c| InputEvent::Key(KeyPress::Char(c))), length)),
        Err(error) if error.error_len().is_none() => None,
        Err(_) => Some((None, 1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode_keys(bytes: &[u8]) -> Vec<KeyPress> {
        let mut parser = KeyDecoder::default();
        let mut pressed = parser.decode_bytes(bytes);
        pressed.extend(parser.finish_pending());
        let key = |pressed| match pressed {
            InputEvent::Key(key) => key,
            other => panic!("no key: {other:?}"),
        };
        pressed.into_iter().map(key).collect()
    }

    #[test]
    fn the_mouse_is_understood_and_its_other_buttons_are_not() {
        let mut parser = KeyDecoder::default();
        let pressed = parser.decode_bytes(
            b"\x1b[<0;10;5M\x1b[<0;10;5m\x1b[<64;1;1M\x1b[<65;200;50M\x1b[<2;1;1M\x1b[<0;0;0M",
        );
        let mice =
            [MouseEvent::Press(9, 4), MouseEvent::WheelUp(0, 0), MouseEvent::WheelDown(199, 49)];
        assert_eq!(pressed, mice.map(InputEvent::Mouse));
    }

    #[test]
    fn keys_are_understood() {
        assert_eq!(decode_keys(b"q\r\t"), [KeyPress::Char('q'), KeyPress::Enter, KeyPress::Tab]);
        assert_eq!(
            decode_keys(b"\x1b[A\x1bOB\x1b[1;2C"),
            [KeyPress::Up, KeyPress::Down, KeyPress::Right]
        );
        assert_eq!(
            decode_keys(b"\x1b[5~\x1b[6~\x1b[H\x1b[4~"),
            [KeyPress::PageUp, KeyPress::PageDown, KeyPress::Home, KeyPress::End]
        );
        assert_eq!(decode_keys(b"\x1b[Z\x03"), [KeyPress::BackTab, KeyPress::Ctrl('c')]);
        assert_eq!(decode_keys("ü".as_bytes()), [KeyPress::Char('ü')]);
    }

    #[test]
    fn a_lone_escape_is_a_key_only_when_nothing_follows() {
        assert_eq!(decode_keys(b"\x1b"), [KeyPress::Escape]);
        let mut parser = KeyDecoder::default();
        assert_eq!(parser.decode_bytes(b"\x1b"), []);
        assert!(parser.has_pending_bytes());
        assert_eq!(parser.decode_bytes(b"[A"), [InputEvent::Key(KeyPress::Up)]);
        assert!(!parser.has_pending_bytes());
        assert_eq!(decode_keys(b"\x1b\x1b"), [KeyPress::Escape, KeyPress::Escape]);
        assert_eq!(decode_keys(b"\x1b1"), [KeyPress::Escape, KeyPress::Char('1')]);
    }

    #[test]
    fn garbage_is_passed_over_and_never_held_for_ever() {
        assert_eq!(decode_keys(b"\xff\xfeq"), [KeyPress::Char('q')]);
        assert_eq!(decode_keys(b"\x1b[200~q"), [KeyPress::Char('q')]);
        let mut parser = KeyDecoder::default();
        assert_eq!(parser.decode_bytes(b"\x1b[0000000000000000000000000000"), []);
        assert_eq!(parser.decode_bytes(b"q"), [InputEvent::Key(KeyPress::Char('q'))]);
    }

    /// The reader blocks while the console reads no keys; afterwards every key arrives in order.
    #[test]
    fn keys_that_nobody_takes_wait_and_none_is_lost() {
        let (tty, typing) = pipe().unwrap();
        let (ended, wake) = pipe().unwrap();
        let (sender, mut keys) = mpsc::channel(WAITING);
        let reading = thread::spawn(move || read_keys(&tty, &ended, &sender));
        let typed: Vec<u8> = (0..20 * WAITING).map(|nth| b'a' + (nth % 26) as u8).collect();
        assert_eq!(rustix::io::write(&typing, &typed).unwrap(), typed.len());
        while keys.len() < WAITING {
            thread::yield_now();
        }
        for byte in typed {
            let pressed = keys.blocking_recv().unwrap();
            assert_eq!(pressed, InputEvent::Key(KeyPress::Char(char::from(byte))));
        }
        drop(wake);
        reading.join().unwrap();
    }
}
