//! Theme files of the user: colours by meaning, on top of one of gaunt's palettes.

use std::path::Path;

use toml::{Table, Value};

use super::{ThemeChoice, read_bounded};
use crate::theme::{CustomColours, Palette, StyleRole};

/// Names of the meanings in a theme file.
const ROLES: [(&str, StyleRole); 10] = [
    ("good", StyleRole::Good),
    ("second_good", StyleRole::SecondaryGood),
    ("neutral", StyleRole::Neutral),
    ("waiting", StyleRole::Waiting),
    ("starved", StyleRole::Starved),
    ("bad", StyleRole::Bad),
    ("worst", StyleRole::Worst),
    ("cost", StyleRole::Cost),
    ("dim", StyleRole::Dim),
    ("title", StyleRole::Title),
];

/// Finds a theme: a palette by its name, or the file `themes/NAME.toml` beside the user's file.
pub(super) fn find_theme(name: &str, config: &Path) -> Result<ThemeChoice, String> {
    if let Some(palette) = Palette::parse(name) {
        return Ok(ThemeChoice { palette, colours: None });
    }
    let plain = !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || "-_".contains(c));
    let known = Palette::ALL.map(Palette::as_str).join(", ");
    if !plain {
        return Err(format!("{name:?} is not a theme; use {known}, or the name of a theme file"));
    }
    let path = config.with_file_name("themes").join(name).with_extension("toml");
    if !path.exists() {
        let path = path.display();
        return Err(format!("{name} is no theme: use {known}, or write the file {path}"));
    }
    let text = read_bounded(&path).map_err(|why| format!("{}: {why}", path.display()))?;
    parse_theme(&text).map_err(|why| format!("{}: {why}", path.display()))
}

/// Parses a theme file: `base` and colours such as `bad = "#ff5f5f"`.
fn parse_theme(text: &str) -> Result<ThemeChoice, String> {
    let table: Table = text.parse().map_err(|error: toml::de::Error| error.message().to_owned())?;
    let mut palette = Palette::default();
    let mut colours = CustomColours::default();
    for (key, value) in &table {
        let Value::String(text) = value else {
            return Err(format!("{key} is not a text such as \"#ff5f5f\""));
        };
        if key == "base" {
            palette = Palette::parse(text).ok_or_else(|| {
                let known = Palette::ALL.map(Palette::as_str).join(", ");
                format!("base = {text:?} is not a palette; use {known}")
            })?;
            continue;
        }
        let Some((_, role)) = ROLES.iter().find(|(name, _)| name == key) else {
            let known = ROLES.map(|(name, _)| name).join(", ");
            return Err(format!("{key} is not a colour; use base, {known}"));
        };
        let rgb = parse_colour(text)
            .ok_or_else(|| format!("{key} = {text:?} is not a colour such as \"#ff5f5f\""))?;
        colours.set(*role, rgb);
    }
    Ok(ThemeChoice { palette, colours: Some(colours) })
}

/// Parses `#rrggbb`.
fn parse_colour(text: &str) -> Option<u32> {
    let digits = text.strip_prefix('#')?;
    (digits.len() == 6).then(|| u32::from_str_radix(digits, 16).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn theme_file_sets_colours_on_top_of_a_palette() {
        let theme = parse_theme("base = \"light\"\nbad = \"#ff0080\"\n").unwrap();
        assert_eq!(theme.palette, Palette::Light);
        assert_eq!(theme.colours.unwrap().of(StyleRole::Bad).map(|(_, rgb)| rgb), Some(0xff_0080));
        assert_eq!(theme.colours.unwrap().of(StyleRole::Good), None);
        for (text, why) in [
            ("bad = 3", "bad is not a text"),
            ("bad = \"red\"", "bad = \"red\" is not a colour such as"),
            ("evil = \"#000000\"", "evil is not a colour; use base, good"),
            ("base = \"pink\"", "base = \"pink\" is not a palette; use dark"),
        ] {
            let error = parse_theme(text).unwrap_err();
            assert!(error.starts_with(why), "{error}");
        }
        let missing = find_theme("mine", Path::new("/nowhere/gaunt/config.toml")).unwrap_err();
        assert!(missing.ends_with("/nowhere/gaunt/themes/mine.toml"), "{missing}");
        assert!(find_theme("../x", Path::new("/nowhere/config.toml")).is_err());
    }
}
