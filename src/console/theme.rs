//! Colours and glyphs by meaning: what a terminal can show decides how, never what is said.

use gaunt_schema::{GpuState, Severity};
use ratatui::{
    buffer::Buffer,
    style::{Color, Modifier, Style},
};

mod palette;

pub use palette::Palette;

/// How many colours there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Colour {
    /// As the environment says: `NO_COLOR`, `TERM`, `COLORTERM`.
    #[default]
    Auto,
    /// None; bold and reverse remain.
    None,
    /// The 16 of every colour terminal.
    Sixteen,
    /// The palette of 256, which is also the shortest to send.
    Indexed,
    /// 24 bits.
    True,
}

/// Which characters can be drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Glyphs {
    /// As the locale says.
    #[default]
    Auto,
    /// Block elements and signs.
    Unicode,
    /// Plain ASCII.
    Ascii,
}

/// What a piece of the screen means; the theme decides how that looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// Useful work.
    Good,
    /// Useful work of a second kind.
    GoodToo,
    /// Neither good nor bad.
    Neutral,
    /// Time lost through somebody else's fault.
    Waiting,
    /// Time lost for lack of input.
    Starved,
    /// Something is wrong.
    Bad,
    /// Nothing can be more wrong.
    Worst,
    /// It costs and does nothing.
    Cost,
    /// Less important than its surroundings.
    Dim,
    /// The name of a part of the screen.
    Title,
    /// Ordinary text.
    Plain,
}

/// A theme whose choices are all made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Theme {
    colour: Colour,
    glyphs: Glyphs,
    palette: Palette,
}

impl Theme {
    /// The theme for a choice, where the environment decides what was left open.
    pub(crate) fn new(
        colour: Colour,
        glyphs: Glyphs,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Self {
        let colour = match colour {
            Colour::Auto => detect_colour(&environment),
            chosen => chosen,
        };
        let glyphs = match glyphs {
            Glyphs::Auto => detect_glyphs(&environment),
            chosen => chosen,
        };
        Self { colour, glyphs, palette: Palette::default() }
    }

    /// The same in other colours.
    pub(crate) const fn painted(self, palette: Palette) -> Self {
        Self { palette, ..self }
    }

    /// Whether only ASCII can be drawn.
    pub(crate) fn is_ascii(self) -> bool {
        self.glyphs != Glyphs::Unicode
    }

    /// How a meaning looks.
    pub(crate) fn style(self, meaning: Meaning) -> Style {
        let (sixteen, indexed, rgb) = self.palette.of(meaning);
        let style = match self.colour {
            Colour::Auto | Colour::None => Style::new(),
            Colour::Sixteen => Style::new().fg(sixteen),
            Colour::Indexed => Style::new().fg(Color::Indexed(indexed)),
            Colour::True => Style::new().fg(Color::from_u32(rgb)),
        };
        match meaning {
            // Ordinary text is as the terminal has it.
            Meaning::Plain => Style::new(),
            Meaning::Title | Meaning::Bad => style.add_modifier(Modifier::BOLD),
            Meaning::Worst => style.add_modifier(Modifier::BOLD | Modifier::REVERSED),
            _ => style,
        }
    }

    /// How a GPU state looks.
    pub(crate) fn state(self, state: GpuState) -> Style {
        self.style(state_meaning(state))
    }

    /// How a severity looks.
    pub(crate) fn severity(self, severity: Severity) -> Style {
        self.style(match severity {
            Severity::Critical => Meaning::Bad,
            Severity::Warning => Meaning::Waiting,
            Severity::Info => Meaning::Neutral,
        })
    }

    /// Puts ASCII characters in the place of all others, where the terminal cannot draw them.
    pub(crate) fn flatten(self, buffer: &mut Buffer) {
        if self.glyphs == Glyphs::Unicode {
            return;
        }
        for cell in &mut buffer.content {
            if !cell.symbol().is_ascii() {
                // Only fixed characters of ours are written here, never text from outside.
                let plain = ascii(cell.symbol());
                cell.set_symbol(plain);
            }
        }
    }
}

/// What the cursor does to a style.
pub(crate) fn selected(style: Style) -> Style {
    style.add_modifier(Modifier::REVERSED)
}

/// The sign of a severity: told apart by shape.
pub(crate) const fn severity_sign(severity: Severity) -> &'static str {
    match severity {
        Severity::Critical => "✖",
        Severity::Warning => "▲",
        Severity::Info => "●",
    }
}

/// The sign of a GPU state: one column, told apart by shape and density.
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

/// The words for a GPU state on the screen.
pub(crate) const fn state_words(state: GpuState) -> &'static str {
    match state {
        GpuState::Computing => "computing",
        GpuState::MemoryBound => "memory-bound",
        GpuState::Communicating => "communicating",
        GpuState::Busy => "busy",
        GpuState::Slowed => "slowed",
        GpuState::Waiting => "waiting for peers",
        GpuState::DataStarved => "data-starved",
        GpuState::LaunchBound => "launch-bound",
        GpuState::Throttled => "throttled",
        GpuState::Hung => "hung",
        GpuState::IdleAllocated => "held idle",
        GpuState::Idle => "free",
        GpuState::Lost => "lost",
        GpuState::Stale => "stale",
        GpuState::Unknown => "unknown",
    }
}

/// How bad a state is, to show the worst of several in one cell: higher is worse.
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

const fn state_meaning(state: GpuState) -> Meaning {
    match state {
        GpuState::Computing => Meaning::Good,
        GpuState::MemoryBound => Meaning::GoodToo,
        GpuState::Communicating | GpuState::Busy => Meaning::Neutral,
        GpuState::Slowed | GpuState::Waiting => Meaning::Waiting,
        GpuState::DataStarved | GpuState::LaunchBound => Meaning::Starved,
        GpuState::Throttled | GpuState::Lost => Meaning::Bad,
        GpuState::Hung => Meaning::Worst,
        GpuState::IdleAllocated => Meaning::Cost,
        GpuState::Idle | GpuState::Stale | GpuState::Unknown => Meaning::Dim,
    }
}

fn detect_colour(environment: &impl Fn(&str) -> Option<String>) -> Colour {
    let set = |name: &str| environment(name).unwrap_or_default();
    let term = set("TERM");
    if !set("NO_COLOR").is_empty() || term == "dumb" || term.is_empty() {
        Colour::None
    } else if matches!(set("COLORTERM").as_str(), "truecolor" | "24bit") {
        Colour::True
    } else if term.contains("256") || term.contains("kitty") || term.contains("alacritty") {
        Colour::Indexed
    } else {
        Colour::Sixteen
    }
}

/// The first of the locale variables that is set decides, as in the C library.
fn detect_glyphs(environment: &impl Fn(&str) -> Option<String>) -> Glyphs {
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"]
        .into_iter()
        .find_map(|name| environment(name).filter(|value| !value.is_empty()))
        .unwrap_or_default()
        .to_ascii_lowercase();
    let utf8 = locale.contains("utf-8") || locale.contains("utf8");
    if utf8 { Glyphs::Unicode } else { Glyphs::Ascii }
}

/// The ASCII character that stands for one of ours; anything else becomes a question mark.
fn ascii(symbol: &str) -> &'static str {
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
        "←" | "◀" | "◂" => "<",
        "×" => "x",
        "°" => "'",
        "↑" => "^",
        "↓" | "▼" | "✔" => "v",
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

    fn theme(variables: &[(&str, &str)]) -> Theme {
        let variables: Vec<(String, String)> =
            variables.iter().map(|(n, v)| ((*n).into(), (*v).into())).collect();
        Theme::new(Colour::Auto, Glyphs::Auto, |name| {
            variables.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone())
        })
    }

    #[test]
    fn the_environment_decides_what_was_left_open() {
        let of = |variables: &[(&str, &str)]| (theme(variables).colour, theme(variables).glyphs);
        let plain = [("TERM", "xterm-256color"), ("LANG", "en_US.UTF-8")];
        assert_eq!(of(&plain), (Colour::Indexed, Glyphs::Unicode));
        assert_eq!(of(&[("TERM", "linux"), ("LANG", "C")]), (Colour::Sixteen, Glyphs::Ascii));
        assert_eq!(of(&[("TERM", "xterm"), ("NO_COLOR", "1")]).0, Colour::None);
        assert_eq!(of(&[("TERM", "xterm"), ("COLORTERM", "truecolor")]).0, Colour::True);
        assert_eq!(of(&[("LC_ALL", "C"), ("LANG", "de_DE.utf8")]).1, Glyphs::Ascii);
        assert_eq!(of(&[]), (Colour::None, Glyphs::Ascii));
    }

    #[test]
    fn states_are_told_apart_by_shape_alone_even_in_ascii() {
        let signs: Vec<&str> = GpuState::ALL.iter().map(|state| state_sign(*state)).collect();
        let plain = signs.iter().map(|sign| if sign.is_ascii() { *sign } else { ascii(sign) });
        assert_eq!(plain.collect::<BTreeSet<_>>().len(), GpuState::ALL.len());
        assert_eq!(signs.into_iter().collect::<BTreeSet<_>>().len(), GpuState::ALL.len());
    }

    #[test]
    fn without_colour_no_style_has_any() {
        let theme = Theme::new(Colour::None, Glyphs::Ascii, |_| None);
        for state in GpuState::ALL {
            assert_eq!(theme.state(*state).fg, None);
        }
    }
}
