//! Keys from the terminal, read and understood here.
//!
//! It ends when the terminal hangs up. It reads on a thread, because a terminal's file may only be polled for what other processes share with us.

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

use crate::console::{action::Mouse, keymap::Key};

/// Keys that may wait. When the console is that far behind, the reader waits too.
const WAITING: usize = 64;

/// How long a lone escape may be the beginning of a longer sequence.
const ESCAPE: Timespec =
    Timespec { tv_sec: 0, tv_nsec: Duration::from_millis(50).subsec_nanos() as i64 };

/// What comes from the terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pressed {
    /// A key.
    Key(Key),
    /// The mouse.
    Mouse(Mouse),
    /// The terminal is gone.
    HungUp,
}

/// The keys, as they are pressed. Dropping it ends the thread behind it.
pub(crate) struct Input {
    keys: mpsc::Receiver<Pressed>,
    /// Closing this end wakes the thread.
    _wake: OwnedFd,
}

impl Input {
    /// Starts to read the terminal: standard input, or the controlling terminal if that is something else.
    pub(crate) fn open() -> io::Result<Self> {
        let tty: OwnedFd = if io::stdin().is_terminal() {
            io::stdin().as_fd().try_clone_to_owned()?
        } else {
            File::open("/dev/tty")?.into()
        };
        let (ended, wake) = pipe()?;
        let (sender, keys) = mpsc::channel(WAITING);
        thread::Builder::new().name("keys".into()).spawn(move || listen(&tty, &ended, &sender))?;
        Ok(Self { keys, _wake: wake })
    }

    /// The next key.
    pub(crate) async fn next(&mut self) -> Pressed {
        self.keys.recv().await.unwrap_or(Pressed::HungUp)
    }

    /// The next key, if one is waiting.
    pub(crate) fn waiting(&mut self) -> Option<Pressed> {
        self.keys.try_recv().ok()
    }
}

/// Reads until the terminal hangs up or nobody listens.
fn listen(tty: &OwnedFd, ended: &OwnedFd, keys: &mpsc::Sender<Pressed>) {
    let mut parser = Parser::default();
    let mut buffer = [0; 1_024];
    loop {
        let timeout = parser.is_open().then_some(&ESCAPE);
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
            parser.finish()
        } else if fds[0].revents().intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL) {
            break;
        } else {
            match read(tty, &mut buffer) {
                Err(Errno::INTR | Errno::AGAIN) => continue,
                Ok(0) | Err(_) => break,
                Ok(length) => parser.feed(&buffer[..length]),
            }
        };
        for pressed in found {
            if keys.blocking_send(pressed).is_err() {
                return;
            }
        }
    }
    // The receiver may be gone, and then there is nobody to tell.
    let _ = keys.blocking_send(Pressed::HungUp);
}

/// Bytes to keys.
#[derive(Debug, Default)]
struct Parser {
    /// The beginning of a sequence that is not complete.
    held: Vec<u8>,
}

/// The longest sequence that may be a key; a longer one is thrown away.
const LONGEST: usize = 24;

impl Parser {
    /// Whether more bytes may complete a key.
    fn is_open(&self) -> bool {
        !self.held.is_empty()
    }

    /// Takes bytes, gives the keys that they complete.
    fn feed(&mut self, bytes: &[u8]) -> Vec<Pressed> {
        self.held.extend_from_slice(bytes);
        let mut keys = Vec::new();
        let mut rest = &self.held[..];
        while !rest.is_empty() {
            let Some((key, used)) = one(rest) else { break };
            keys.extend(key);
            rest = &rest[used..];
        }
        let kept = if rest.len() > LONGEST { 0 } else { rest.len() };
        self.held.drain(..self.held.len() - kept);
        keys
    }

    /// Nothing more came: a lone escape is the key of that name.
    fn finish(&mut self) -> Vec<Pressed> {
        let held = std::mem::take(&mut self.held);
        if held == [0x1b] { vec![Pressed::Key(Key::Escape)] } else { Vec::new() }
    }
}

/// The first key of some bytes, if it has a meaning, and how long it is; none if more bytes must come.
fn one(bytes: &[u8]) -> Option<(Option<Pressed>, usize)> {
    let first = *bytes.first()?;
    let key = match first {
        0x1b => return escape(bytes),
        b'\r' | b'\n' => Key::Enter,
        b'\t' => Key::Tab,
        0x7f | 0x08 => Key::Backspace,
        0 | 28..=31 => return Some((None, 1)),
        1..=26 => Key::Ctrl(char::from(first - 1 + b'a')),
        0x20..0x7f => Key::Char(char::from(first)),
        _ => return multibyte(bytes),
    };
    Some((Some(Pressed::Key(key)), 1))
}

/// A key that begins with an escape: `ESC [ … final` or `ESC O final`; else escape itself.
fn escape(bytes: &[u8]) -> Option<(Option<Pressed>, usize)> {
    match bytes.get(1)? {
        b'O' => Some((named(&[], *bytes.get(2)?).map(Pressed::Key), 3)),
        b'[' => {
            let length = bytes[2..].iter().position(|byte| (0x40..0x7f).contains(byte))?;
            let (parameters, last) = (&bytes[2..2 + length], bytes[2 + length]);
            let pressed = match parameters.strip_prefix(b"<") {
                Some(report) => mouse(report, last).map(Pressed::Mouse),
                None => named(parameters, last).map(Pressed::Key),
            };
            Some((pressed, 3 + length))
        }
        // Alt and a key send the same as escape and a key soon after it. Nothing here is bound to Alt.
        _ => Some((Some(Pressed::Key(Key::Escape)), 1)),
    }
}

/// What the mouse did, as terminals report it (mode 1006): `button;column;line`, both from 1; `M` for pressed.
fn mouse(report: &[u8], last: u8) -> Option<Mouse> {
    let mut numbers = std::str::from_utf8(report).ok()?.split(';').map(str::parse::<u16>);
    let mut next = || numbers.next()?.ok();
    let (button, column, line) = (next()?, next()?.checked_sub(1)?, next()?.checked_sub(1)?);
    match (button, last) {
        (0, b'M') => Some(Mouse::Press(column, line)),
        (64, b'M') => Some(Mouse::WheelUp(column, line)),
        (65, b'M') => Some(Mouse::WheelDown(column, line)),
        _ => None,
    }
}

fn named(parameters: &[u8], last: u8) -> Option<Key> {
    let number = parameters.split(|byte| *byte == b';').next().unwrap_or_default();
    Some(match (last, number) {
        (b'A', _) => Key::Up,
        (b'B', _) => Key::Down,
        (b'C', _) => Key::Right,
        (b'D', _) => Key::Left,
        (b'H', _) | (b'~', b"1" | b"7") => Key::Home,
        (b'F', _) | (b'~', b"4" | b"8") => Key::End,
        (b'~', b"3") => Key::Delete,
        (b'~', b"5") => Key::PageUp,
        (b'~', b"6") => Key::PageDown,
        (b'Z', _) => Key::BackTab,
        _ => return None,
    })
}

/// A character beyond ASCII; bytes that are none are passed over one by one.
fn multibyte(bytes: &[u8]) -> Option<(Option<Pressed>, usize)> {
    let length = match bytes[0] {
        0xc2..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xf4 => 4,
        _ => return Some((None, 1)),
    };
    let end = bytes.len().min(length);
    match std::str::from_utf8(&bytes[..end]) {
        Ok(text) => Some((text.chars().next().map(|c| Pressed::Key(Key::Char(c))), length)),
        Err(error) if error.error_len().is_none() => None,
        Err(_) => Some((None, 1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(bytes: &[u8]) -> Vec<Key> {
        let mut parser = Parser::default();
        let mut pressed = parser.feed(bytes);
        pressed.extend(parser.finish());
        let key = |pressed| match pressed {
            Pressed::Key(key) => key,
            other => panic!("no key: {other:?}"),
        };
        pressed.into_iter().map(key).collect()
    }

    #[test]
    fn the_mouse_is_understood_and_its_other_buttons_are_not() {
        let mut parser = Parser::default();
        let pressed = parser.feed(
            b"\x1b[<0;10;5M\x1b[<0;10;5m\x1b[<64;1;1M\x1b[<65;200;50M\x1b[<2;1;1M\x1b[<0;0;0M",
        );
        let mice = [Mouse::Press(9, 4), Mouse::WheelUp(0, 0), Mouse::WheelDown(199, 49)];
        assert_eq!(pressed, mice.map(Pressed::Mouse));
    }

    #[test]
    fn keys_are_understood() {
        assert_eq!(keys(b"q\r\t"), [Key::Char('q'), Key::Enter, Key::Tab]);
        assert_eq!(keys(b"\x1b[A\x1bOB\x1b[1;2C"), [Key::Up, Key::Down, Key::Right]);
        assert_eq!(
            keys(b"\x1b[5~\x1b[6~\x1b[H\x1b[4~"),
            [Key::PageUp, Key::PageDown, Key::Home, Key::End]
        );
        assert_eq!(keys(b"\x1b[Z\x03"), [Key::BackTab, Key::Ctrl('c')]);
        assert_eq!(keys("ü".as_bytes()), [Key::Char('ü')]);
    }

    #[test]
    fn a_lone_escape_is_a_key_only_when_nothing_follows() {
        assert_eq!(keys(b"\x1b"), [Key::Escape]);
        let mut parser = Parser::default();
        assert_eq!(parser.feed(b"\x1b"), []);
        assert!(parser.is_open());
        assert_eq!(parser.feed(b"[A"), [Pressed::Key(Key::Up)]);
        assert!(!parser.is_open());
        assert_eq!(keys(b"\x1b\x1b"), [Key::Escape, Key::Escape]);
        assert_eq!(keys(b"\x1b1"), [Key::Escape, Key::Char('1')]);
    }

    #[test]
    fn garbage_is_passed_over_and_never_held_for_ever() {
        assert_eq!(keys(b"\xff\xfeq"), [Key::Char('q')]);
        assert_eq!(keys(b"\x1b[200~q"), [Key::Char('q')]);
        let mut parser = Parser::default();
        assert_eq!(parser.feed(b"\x1b[0000000000000000000000000000"), []);
        assert_eq!(parser.feed(b"q"), [Pressed::Key(Key::Char('q'))]);
    }

    /// A console that reads no keys makes the reader wait; then every key comes, in its order.
    #[test]
    fn keys_that_nobody_takes_wait_and_none_is_lost() {
        let (tty, typing) = pipe().unwrap();
        let (ended, wake) = pipe().unwrap();
        let (sender, mut keys) = mpsc::channel(WAITING);
        let reading = thread::spawn(move || listen(&tty, &ended, &sender));
        let typed: Vec<u8> = (0..20 * WAITING).map(|nth| b'a' + (nth % 26) as u8).collect();
        assert_eq!(rustix::io::write(&typing, &typed).unwrap(), typed.len());
        while keys.len() < WAITING {
            thread::yield_now();
        }
        for byte in typed {
            let pressed = keys.blocking_recv().unwrap();
            assert_eq!(pressed, Pressed::Key(Key::Char(char::from(byte))));
        }
        drop(wake);
        reading.join().unwrap();
    }
}
