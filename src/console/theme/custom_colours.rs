//! Colours of a theme file, by meaning.

use super::StyleRole;

/// Number of meanings.
const ROLES: usize = StyleRole::Plain as usize + 1;

/// Colours that replace those of a palette: in 24 bits, and the nearest one of the palette of 256.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CustomColours {
    colours: [Option<(u8, u32)>; ROLES],
}

impl CustomColours {
    /// Sets the colour of a meaning.
    pub(crate) fn set(&mut self, role: StyleRole, rgb: u32) {
        self.colours[role as usize] = Some((nearest_indexed(rgb), rgb));
    }

    /// Returns the colour of a meaning, if one is set: in the palette of 256, and in 24 bits.
    pub(crate) const fn of(&self, role: StyleRole) -> Option<(u8, u32)> {
        self.colours[role as usize]
    }
}

/// Levels of the cube of 6 × 6 × 6 colours in the palette of 256.
const LEVELS: [u32; 6] = [0, 95, 135, 175, 215, 255];

/// Returns the nearest colour of the palette of 256, of its cube and its greys; the first 16 depend on the terminal.
fn nearest_indexed(rgb: u32) -> u8 {
    let parts = [rgb >> 16 & 0xff, rgb >> 8 & 0xff, rgb & 0xff];
    let distance = |other: [u32; 3]| -> u32 {
        parts.iter().zip(other).map(|(one, other)| one.abs_diff(other).pow(2)).sum()
    };
    let level = |part: u32| {
        let nearest = LEVELS.iter().enumerate().min_by_key(|(_, level)| level.abs_diff(part));
        nearest.map_or(0, |(at, _)| at)
    };
    let [red, green, blue] = parts.map(level);
    let cube = distance([LEVELS[red], LEVELS[green], LEVELS[blue]]);
    let grey = (0_u32..24).min_by_key(|step| distance([8 + 10 * step; 3])).unwrap_or(0);
    if distance([8 + 10 * grey; 3]) < cube {
        232 + grey as u8
    } else {
        (16 + 36 * red + 6 * green + blue) as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_colour_is_found_in_cube_and_greys() {
        for (rgb, indexed) in
            [(0x00_0000, 16), (0xff_ffff, 231), (0xff_0000, 196), (0x5f_87d7, 68), (0x80_8080, 244)]
        {
            assert_eq!(nearest_indexed(rgb), indexed, "{rgb:06x}");
        }
    }
}
