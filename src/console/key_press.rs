//! Key press, decoded from the bytes of the terminal.

/// Key, as the terminal reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyPress {
    /// A character.
    Char(char),
    /// A character together with Ctrl.
    Ctrl(char),
    /// Enter.
    Enter,
    /// Escape.
    Escape,
    /// Tab.
    Tab,
    /// Shift and Tab.
    BackTab,
    /// Backspace.
    Backspace,
    /// Delete.
    Delete,
    /// Arrow up.
    Up,
    /// Arrow down.
    Down,
    /// Arrow left.
    Left,
    /// Arrow right.
    Right,
    /// Home.
    Home,
    /// End.
    End,
    /// Page up.
    PageUp,
    /// Page down.
    PageDown,
}

/// Names of the keys that are not characters.
const NAMES: [(&str, KeyPress); 14] = [
    ("Enter", KeyPress::Enter),
    ("Esc", KeyPress::Escape),
    ("Tab", KeyPress::Tab),
    ("Shift-Tab", KeyPress::BackTab),
    ("Backspace", KeyPress::Backspace),
    ("Delete", KeyPress::Delete),
    ("Up", KeyPress::Up),
    ("Down", KeyPress::Down),
    ("Left", KeyPress::Left),
    ("Right", KeyPress::Right),
    ("Home", KeyPress::Home),
    ("End", KeyPress::End),
    ("PgUp", KeyPress::PageUp),
    ("PgDn", KeyPress::PageDown),
];

impl KeyPress {
    /// Parses the name of a key: a character, `Ctrl-X`, `Space`, or a name such as `Enter`.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        let mut characters = name.chars();
        if let (Some(only), None) = (characters.next(), characters.next()) {
            return (!only.is_control() && !only.is_whitespace()).then_some(Self::Char(only));
        }
        if name.eq_ignore_ascii_case("space") {
            return Some(Self::Char(' '));
        }
        if let Some(letter) = name.strip_prefix("Ctrl-").or_else(|| name.strip_prefix("ctrl-")) {
            let letter = letter.to_ascii_lowercase();
            // Ctrl-H, -I, -J and -M are other keys for the terminal.
            let letter = letter.chars().next().filter(|_| letter.len() == 1)?;
            return (letter.is_ascii_lowercase() && !"hijm".contains(letter))
                .then_some(Self::Ctrl(letter));
        }
        let found = NAMES.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, key)| *key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_names_are_parsed() {
        for (name, key) in [
            ("F", Some(KeyPress::Char('F'))),
            ("ä", Some(KeyPress::Char('ä'))),
            ("Ctrl-g", Some(KeyPress::Ctrl('g'))),
            ("Ctrl-G", Some(KeyPress::Ctrl('g'))),
            ("space", Some(KeyPress::Char(' '))),
            ("PgDn", Some(KeyPress::PageDown)),
            ("Ctrl-m", None),
            ("Ctrl-1", None),
            ("F5", None),
            (" ", None),
            ("", None),
        ] {
            assert_eq!(KeyPress::parse(name), key, "{name}");
        }
    }
}
