//! Theme: colours and glyphs by meaning, and units; the capabilities of the terminal change the style, never the content.

use std::sync::LazyLock;

use gaunt_schema::{GpuState, Severity};
use ratatui::{
    buffer::Buffer,
    style::{Color, Modifier, Style},
};

use crate::display_units::DisplayUnits;

mod custom_colours;
mod palette;

pub(crate) use custom_colours::CustomColours;
pub use palette::Palette;

/// Colour depth of the terminal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ColourDepth {
    /// Detect from the environment: `NO_COLOR`, `TERM`, `COLORTERM`.
    #[default]
    Auto,
    /// No colours; bold and reverse remain.
    None,
    /// The 16 colours of every colour terminal.
    Sixteen,
    /// The palette of 256 colours, which also has the shortest sequences.
    Indexed,
    /// 24-bit colours.
    True,
}

/// Character set of the terminal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GlyphSet {
    /// Detect from the locale.
    #[default]
    Auto,
    /// Unicode with block elements and symbols.
    Unicode,
    /// Plain ASCII.
    Ascii,
}

/// Meaning of a piece of the screen; the theme maps it to a style.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StyleRole {
    /// Useful work.
    Good,
    /// Useful work of a second kind.
    SecondaryGood,
    /// Neither good nor bad.
    Neutral,
    /// Time lost while waiting for others.
    Waiting,
    /// Time lost to data starvation.
    Starved,
    /// Fault.
    Bad,
    /// The worst fault.
    Worst,
    /// Resources that are allocated but not used.
    Cost,
    /// Less important than its surroundings.
    Dim,
    /// Title of a part of the screen.
    Title,
    /// Ordinary text.
    Plain,
}

/// Theme with all choices resolved.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Theme {
    colour: ColourDepth,
    glyphs: GlyphSet,
    palette: Palette,
    custom: Option<CustomColours>,
    units: DisplayUnits,
}

impl Theme {
    /// Resolves a theme; the environment decides all automatic choices.
    pub(crate) fn new(
        colour: ColourDepth,
        glyphs: GlyphSet,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Self {
        let colour = match colour {
            ColourDepth::Auto => detect_colour(&environment),
            chosen => chosen,
        };
        let glyphs = match glyphs {
            GlyphSet::Auto => detect_glyphs(&environment),
            chosen => chosen,
        };
        Self {
            colour,
            glyphs,
            palette: Palette::default(),
            custom: None,
            units: DisplayUnits::default(),
        }
    }

    /// Returns the theme with another palette.
    pub(crate) const fn with_palette(self, palette: Palette) -> Self {
        Self { palette, ..self }
    }

    /// Returns the theme with the colours of a theme file.
    pub(crate) const fn with_colours(self, custom: Option<CustomColours>) -> Self {
        Self { custom, ..self }
    }

    /// Returns the theme with other units.
    pub(crate) const fn with_units(self, units: DisplayUnits) -> Self {
        Self { units, ..self }
    }

    /// Returns the units of the shown values.
    pub(crate) const fn units(self) -> DisplayUnits {
        self.units
    }

    /// Returns whether only ASCII can be drawn.
    pub(crate) fn is_ascii(self) -> bool {
        self.glyphs != GlyphSet::Unicode
    }

    /// Returns the style of a meaning.
    pub(crate) fn style_for(self, meaning: StyleRole) -> Style {
        let (sixteen, mut indexed, mut rgb) = self.palette.of(meaning);
        if let Some(chosen) = self.custom.and_then(|colours| colours.of(meaning)) {
            (indexed, rgb) = chosen;
        }
        let style = match self.colour {
            ColourDepth::Auto | ColourDepth::None => Style::new(),
            ColourDepth::Sixteen => Style::new().fg(sixteen),
            ColourDepth::Indexed => Style::new().fg(Color::Indexed(indexed)),
            ColourDepth::True => Style::new().fg(Color::from_u32(rgb)),
        };
        match meaning {
            // Ordinary text uses the terminal's default colours.
            StyleRole::Plain => Style::new(),
            StyleRole::Title | StyleRole::Bad => style.add_modifier(Modifier::BOLD),
            StyleRole::Worst => style.add_modifier(Modifier::BOLD | Modifier::REVERSED),
            _ => style,
        }
    }

    /// Returns the style of a GPU state.
    pub(crate) fn state_style(self, state: GpuState) -> Style {
        self.style_for(state_role(state))
    }

    /// Returns the style of a severity.
    pub(crate) fn severity_style(self, severity: Severity) -> Style {
        self.style_for(match severity {
            Severity::Critical => StyleRole::Bad,
            Severity::Warning => StyleRole::Waiting,
            Severity::Info => StyleRole::Neutral,
        })
    }

    /// Replaces all non-ASCII characters, if the terminal cannot draw them.
    pub(crate) fn replace_non_ascii(self, buffer: &mut Buffer) {
        if self.glyphs == GlyphSet::Unicode {
            return;
        }
        for cell in &mut buffer.content {
            if !cell.symbol().is_ascii() {
                // Only fixed characters of the program are written here, never external text.
                let plain = ascii_fallback(cell.symbol());
                cell.set_symbol(plain);
            }
        }
    }
}

/// Returns the style of a cell under the cursor.
pub(crate) fn selected_style(style: Style) -> Style {
    style.add_modifier(Modifier::REVERSED)
}

/// Returns the symbol of a severity, distinct by shape.
pub(crate) const fn severity_sign(severity: Severity) -> &'static str {
    match severity {
        Severity::Critical => "✖",
        Severity::Warning => "▲",
        Severity::Info => "●",
    }
}

/// Returns the symbol of a GPU state: one column, distinct by shape and density.
pub(crate) const fn state_sign(state: GpuState) -> &'static str {
    match state {
        GpuState::Computing => "█",
        GpuState::MemoryBound => "▓",
        GpuState::Communicating => "▒",
        GpuState::Busy => "b",
        GpuState::Slowed => "s",
        GpuState::Waiting => "░",
        GpuState::DataStarved => "d",
        GpuState::LaunchBound => "l",
        GpuState::Throttled => "t",
        GpuState::Hung => "H",
        GpuState::IdleAllocated => "i",
        GpuState::Idle => "·",
        GpuState::Lost => "x",
        GpuState::Stale => "?",
        GpuState::Unknown => "-",
    }
}

/// Returns the rank of a state, used to show the worst of several in one cell: higher is worse.
pub(crate) fn state_rank(state: GpuState) -> u8 {
    match state {
        GpuState::Idle => 0,
        GpuState::Computing => 1,
        GpuState::MemoryBound => 2,
        GpuState::Communicating => 3,
        GpuState::Busy => 4,
        GpuState::Unknown => 5,
        GpuState::Stale => 6,
        GpuState::IdleAllocated => 7,
        GpuState::Slowed => 8,
        GpuState::Waiting => 9,
        GpuState::LaunchBound => 10,
        GpuState::DataStarved => 11,
        GpuState::Throttled => 12,
        GpuState::Lost => 13,
        GpuState::Hung => 14,
    }
}

/// Returns the rank and the state of a code letter. A map of a large fleet needs 100,000 look-ups.
pub(crate) fn ranked_state(code: u8) -> (u8, GpuState) {
    static STATES: LazyLock<[(u8, GpuState); 256]> = LazyLock::new(|| {
        std::array::from_fn(|code| {
            let state = GpuState::from_letter_code(char::from(code as u8));
            let state = state.unwrap_or(GpuState::Unknown);
            (state_rank(state), state)
        })
    });
    STATES[usize::from(code)]
}

const fn state_role(state: GpuState) -> StyleRole {
    match state {
        GpuState::Computing => StyleRole::Good,
        GpuState::MemoryBound => StyleRole::SecondaryGood,
        GpuState::Communicating | GpuState::Busy => StyleRole::Neutral,
        GpuState::Slowed | GpuState::Waiting => StyleRole::Waiting,
        GpuState::DataStarved | GpuState::LaunchBound => StyleRole::Starved,
        GpuState::Throttled | GpuState::Lost => StyleRole::Bad,
        GpuState::Hung => StyleRole::Worst,
        GpuState::IdleAllocated => StyleRole::Cost,
        GpuState::Idle | GpuState::Stale | GpuState::Unknown => StyleRole::Dim,
    }
}

fn detect_colour(environment: &impl Fn(&str) -> Option<String>) -> ColourDepth {
    let set = |name: &str| environment(name).unwrap_or_default();
    let term = set("TERM");
    if !set("NO_COLOR").is_empty() || term == "dumb" || term.is_empty() {
        ColourDepth::None
    } else if matches!(set("COLORTERM").as_str(), "truecolor" | "24bit") {
        ColourDepth::True
    } else if term.contains("256") || term.contains("kitty") || term.contains("alacritty") {
        ColourDepth::Indexed
    } else {
        ColourDepth::Sixteen
    }
}

/// Selects the glyphs by the first locale variable that is set, as in the C library.
fn detect_glyphs(environment: &impl Fn(&str) -> Option<String>) -> GlyphSet {
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"]
        .into_iter()
        .find_map(|name| environment(name).filter(|value| !value.is_empty()))
        .unwrap_or_default()
        .to_ascii_lowercase();
    let utf8 = locale.contains("utf-8") || locale.contains("utf8");
    if utf8 { GlyphSet::Unicode } else { GlyphSet::Ascii }
}

/// Returns the ASCII replacement of a known character; all others become a question mark.
fn ascii_fallback(symbol: &str) -> &'static str {
    match symbol {
        "█" => "C",
        "▓" => "M",
        "▒" => "N",
        "░" => "w",
        "·" | "▂" => ".",
        "✖" => "X",
        "▲" => "!",
        "●" => "*",
        "○" => "o",
        "…" => "~",
        "–" | "▄" | "─" => "-",
        "▸" | "→" | "▶" => ">",
        "│" | "┤" => "|",
        "←" | "◀" | "◂" => "<",
        "×" => "x",
        "°" => "'",
        "◆" => "@",
        "↑" => "^",
        "↓" | "▼" | "▾" | "✔" => "v",
        "▁" => "_",
        "▃" => ":",
        "▅" | "━" => "=",
        "▆" => "+",
        "▇" => "#",
        _ => "?",
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn detect_theme(variables: &[(&str, &str)]) -> Theme {
        let variables: Vec<(String, String)> =
            variables.iter().map(|(n, v)| ((*n).into(), (*v).into())).collect();
        Theme::new(ColourDepth::Auto, GlyphSet::Auto, |name| {
            variables.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone())
        })
    }

    #[test]
    fn environment_sets_unspecified_options() {
        let of = |variables: &[(&str, &str)]| {
            (detect_theme(variables).colour, detect_theme(variables).glyphs)
        };
        let plain = [("TERM", "xterm-256color"), ("LANG", "en_US.UTF-8")];
        assert_eq!(of(&plain), (ColourDepth::Indexed, GlyphSet::Unicode));
        assert_eq!(
            of(&[("TERM", "linux"), ("LANG", "C")]),
            (ColourDepth::Sixteen, GlyphSet::Ascii)
        );
        assert_eq!(of(&[("TERM", "xterm"), ("NO_COLOR", "1")]).0, ColourDepth::None);
        assert_eq!(of(&[("TERM", "xterm"), ("COLORTERM", "truecolor")]).0, ColourDepth::True);
        assert_eq!(of(&[("LC_ALL", "C"), ("LANG", "de_DE.utf8")]).1, GlyphSet::Ascii);
        assert_eq!(of(&[]), (ColourDepth::None, GlyphSet::Ascii));
    }

    #[test]
    fn state_glyphs_differ_by_shape_even_in_ascii() {
        let signs: Vec<&str> = GpuState::ALL.iter().map(|state| state_sign(*state)).collect();
        let plain =
            signs.iter().map(|sign| if sign.is_ascii() { *sign } else { ascii_fallback(sign) });
        assert_eq!(plain.collect::<BTreeSet<_>>().len(), GpuState::ALL.len());
        assert_eq!(signs.into_iter().collect::<BTreeSet<_>>().len(), GpuState::ALL.len());
    }

    #[test]
    fn styles_have_no_colour_without_colour_support() {
        let theme = Theme::new(ColourDepth::None, GlyphSet::Ascii, |_| None);
        for state in GpuState::ALL {
            assert_eq!(theme.state_style(*state).fg, None);
        }
    }
}
