//! Options of the console: period, looks, what it may do, and which other sources it can open.

use std::time::Duration;

use super::{
    console_source::ContextConnection,
    replay_control::ReplayControl,
    theme::{ColourDepth, GlyphSet, Palette},
};

/// Options of the console.
#[derive(Clone, Debug)]
pub struct ConsoleOptions {
    /// Time between two polls of the source.
    pub period: Duration,
    /// Number of colours to use.
    pub colour: ColourDepth,
    /// Character set to use.
    pub glyphs: GlyphSet,
    /// Colour palette; the palette that the user saved takes precedence.
    pub palette: Palette,
    /// Controls of the replay, if the source is a replay; `z` pauses it.
    pub player: Option<ReplayControl>,
    /// Whether the console writes no file but its preferences, runs no program, opens no other aggregator, and is not
    /// suspended.
    pub restricted: bool,
    /// Whether it may copy to the terminal's clipboard in restricted mode.
    pub restricted_copy: bool,
    /// Whether the console presses keys of its own and says what they show.
    pub tour: bool,
    /// Opens the aggregators of the user's file; none if the source cannot be changed.
    pub contexts: Option<ContextConnection>,
}

impl Default for ConsoleOptions {
    fn default() -> Self {
        Self {
            period: Duration::from_secs(1),
            colour: ColourDepth::Auto,
            glyphs: GlyphSet::Auto,
            palette: Palette::default(),
            player: None,
            restricted: false,
            restricted_copy: false,
            tour: false,
            contexts: None,
        }
    }
}
