//! Palettes: the colour of each meaning, in 16 colours, in the palette of 256, and in 24 bits.

use ratatui::style::Color;

use super::StyleRole;

/// Colour palette.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Palette {
    /// For a dark background.
    #[default]
    Dark,
    /// For a light background.
    Light,
    /// Maximum contrast, for projectors and low vision.
    Contrast,
    /// Distinct without red-green colour vision.
    Colourblind,
}

impl Palette {
    /// All palettes.
    pub const ALL: [Self; 4] = [Self::Dark, Self::Light, Self::Contrast, Self::Colourblind];

    /// Returns the name in configuration and commands.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Dark => "dark",
            Self::Light => "light",
            Self::Contrast => "contrast",
            Self::Colourblind => "colourblind",
        }
    }

    /// Parses the name of a palette.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|palette| palette.as_str() == word)
    }

    /// Returns the colours of a meaning.
    pub(super) const fn of(self, meaning: StyleRole) -> (Color, u8, u32) {
        match self {
            Self::Dark => dark_colour(meaning),
            Self::Light => light_colour(meaning),
            Self::Contrast => contrast_colour(meaning),
            Self::Colourblind => colourblind_colour(meaning),
        }
    }
}

/// Blue-green against orange and red, so that useful and lost time are distinct with the common kinds of colour
/// blindness.
const fn dark_colour(meaning: StyleRole) -> (Color, u8, u32) {
    match meaning {
        StyleRole::Good => (Color::Green, 36, 0x00_2f_a5_8a),
        StyleRole::SecondaryGood => (Color::Cyan, 73, 0x00_56_b0_b6),
        StyleRole::Neutral => (Color::Blue, 68, 0x00_5f_87_d7),
        StyleRole::Waiting => (Color::Yellow, 221, 0x00_f2_d0_5c),
        StyleRole::Starved => (Color::Magenta, 208, 0x00_ff_87_00),
        StyleRole::Bad => (Color::LightRed, 203, 0x00_ff_5f_5f),
        StyleRole::Worst => (Color::Red, 196, 0x00_ff_20_20),
        StyleRole::Cost => (Color::DarkGray, 137, 0x00_a8_80_5a),
        StyleRole::Dim => (Color::DarkGray, 245, 0x00_8a_8a_8a),
        StyleRole::Title | StyleRole::Plain => (Color::Reset, 255, 0x00_ee_ee_ee),
    }
}

const fn light_colour(meaning: StyleRole) -> (Color, u8, u32) {
    match meaning {
        StyleRole::Good => (Color::Green, 29, 0x00_00_76_56),
        StyleRole::SecondaryGood => (Color::Cyan, 30, 0x00_00_78_80),
        StyleRole::Neutral => (Color::Blue, 25, 0x00_00_5f_af),
        StyleRole::Waiting => (Color::Yellow, 136, 0x00_9a_6b_00),
        StyleRole::Starved => (Color::Magenta, 130, 0x00_b0_50_00),
        StyleRole::Bad => (Color::Red, 160, 0x00_c8_14_14),
        StyleRole::Worst => (Color::Red, 124, 0x00_a8_00_00),
        StyleRole::Cost => (Color::DarkGray, 94, 0x00_80_5a_20),
        StyleRole::Dim => (Color::DarkGray, 242, 0x00_6a_6a_6a),
        StyleRole::Title | StyleRole::Plain => (Color::Reset, 235, 0x00_20_20_20),
    }
}

const fn contrast_colour(meaning: StyleRole) -> (Color, u8, u32) {
    match meaning {
        StyleRole::Good => (Color::LightGreen, 46, 0x00_00_ff_40),
        StyleRole::SecondaryGood => (Color::LightCyan, 51, 0x00_00_ff_ff),
        StyleRole::Neutral => (Color::LightBlue, 117, 0x00_80_d0_ff),
        StyleRole::Waiting => (Color::LightYellow, 226, 0x00_ff_ff_00),
        StyleRole::Starved => (Color::LightMagenta, 213, 0x00_ff_80_ff),
        StyleRole::Bad | StyleRole::Worst => (Color::LightRed, 196, 0x00_ff_30_30),
        StyleRole::Cost => (Color::White, 223, 0x00_ff_d8_a8),
        StyleRole::Dim => (Color::White, 252, 0x00_d0_d0_d0),
        StyleRole::Title | StyleRole::Plain => (Color::White, 231, 0x00_ff_ff_ff),
    }
}

/// The Okabe-Ito colours.
const fn colourblind_colour(meaning: StyleRole) -> (Color, u8, u32) {
    match meaning {
        StyleRole::Good => (Color::LightBlue, 74, 0x00_56_b4_e9),
        StyleRole::SecondaryGood => (Color::Cyan, 36, 0x00_00_9e_73),
        StyleRole::Neutral => (Color::Blue, 67, 0x00_4a_90_c4),
        StyleRole::Waiting => (Color::LightYellow, 227, 0x00_f0_e4_42),
        StyleRole::Starved => (Color::Yellow, 214, 0x00_e6_9f_00),
        StyleRole::Bad => (Color::Red, 202, 0x00_f0_6a_00),
        StyleRole::Worst => (Color::LightMagenta, 175, 0x00_cc_79_a7),
        StyleRole::Cost => (Color::DarkGray, 144, 0x00_b0_a0_78),
        StyleRole::Dim => (Color::DarkGray, 246, 0x00_94_94_94),
        StyleRole::Title | StyleRole::Plain => (Color::Reset, 255, 0x00_ee_ee_ee),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_colours_differ_in_each_palette_and_depth() {
        for palette in Palette::ALL {
            assert_eq!(Palette::parse(palette.as_str()), Some(palette));
            let four = [StyleRole::Good, StyleRole::Waiting, StyleRole::Starved, StyleRole::Bad];
            for (at, one) in four.iter().enumerate() {
                for other in &four[at + 1..] {
                    let (one, other) = (palette.of(*one), palette.of(*other));
                    let differ = one.0 != other.0 && one.1 != other.1 && one.2 != other.2;
                    assert!(differ, "{palette:?}: {one:?} {other:?}");
                }
            }
        }
    }
}
