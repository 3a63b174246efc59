//! The client state in a request header: `layout=HASH;tick=NUMBER`, both in hexadecimal digits.

use std::fmt;

use super::LayoutHash;

/// The name of the header.
pub const HOLDS: &str = "x-gaunt-frame";

/// The layout and tick that a client has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientState {
    /// The layout.
    pub layout: Option<LayoutHash>,
    /// The tick of which the client has all readings, in that layout.
    pub tick: Option<u64>,
}

impl ClientState {
    /// Parses a header value; unknown or malformed parts are ignored.
    pub fn parse(text: &str) -> Self {
        let mut state = Self::default();
        for part in text.split(';').take(8) {
            match part.trim().split_once('=') {
                Some(("layout", hash)) => state.layout = LayoutHash::parse(hash),
                Some(("tick", tick)) if tick.len() <= 16 => {
                    state.tick = u64::from_str_radix(tick, 16).ok();
                }
                _ => {}
            }
        }
        state
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
    fn client_state_header_round_trip() {
        let layout = Some(LayoutHash::of(b"x"));
        for state in [
            ClientState::default(),
            ClientState { layout, tick: None },
            ClientState { layout, tick: Some(u64::MAX) },
            ClientState { layout, tick: Some(0) },
        ] {
            assert_eq!(ClientState::parse(&state.to_string()), state, "{state}");
        }
        for nothing in ["", ";;;", "layout", "layout=1;tick=", "tick=123456789012345678", "a=b"] {
            assert_eq!(ClientState::parse(nothing), ClientState::default(), "{nothing}");
        }
    }
}
