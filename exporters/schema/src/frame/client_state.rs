//! What a client holds already, as it says in its request: `layout=HASH;tick=NUMBER`, both in hexadecimal digits.

use std::fmt;

use super::LayoutHash;

/// The header that says it.
pub const HOLDS: &str = "x-gaunt-frame";

/// What a client holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientState {
    /// A layout.
    pub layout: Option<LayoutHash>,
    /// The tick of which it has all readings, in that layout.
    pub tick: Option<u64>,
}

impl ClientState {
    /// What a header says; what it says otherwise is nothing.
    pub fn parse(text: &str) -> Self {
        let mut holds = Self::default();
        for part in text.split(';').take(8) {
            match part.trim().split_once('=') {
                Some(("layout", hash)) => holds.layout = LayoutHash::parse(hash),
                Some(("tick", tick)) if tick.len() <= 16 => {
                    holds.tick = u64::from_str_radix(tick, 16).ok();
                }
                _ => {}
            }
        }
        holds
    }
}

impl fmt::Display for ClientState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.layout, self.tick) {
            (Some(layout), Some(tick)) => write!(f, "layout={layout};tick={tick:x}"),
            (Some(layout), None) => write!(f, "layout={layout}"),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_is_said_and_understood() {
        let layout = Some(LayoutHash::of(b"x"));
        for holds in [
            ClientState::default(),
            ClientState { layout, tick: None },
            ClientState { layout, tick: Some(u64::MAX) },
            ClientState { layout, tick: Some(0) },
        ] {
            assert_eq!(ClientState::parse(&holds.to_string()), holds, "{holds}");
        }
        for nothing in ["", ";;;", "layout", "layout=1;tick=", "tick=123456789012345678", "a=b"] {
            assert_eq!(ClientState::parse(nothing), ClientState::default(), "{nothing}");
        }
    }
}
