//! The one table of keys: it binds them, and writes the help and the footer.

use super::action::Intent;

/// A key, as the terminal tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Key {
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

/// Keys that mean the same.
pub(crate) struct Binding {
    /// The keys.
    pub(crate) keys: &'static [Key],
    /// How a person names them.
    pub(crate) label: &'static str,
    /// What they ask for.
    pub(crate) intent: Intent,
    /// What that is, in a few words.
    pub(crate) help: &'static str,
    /// The word in the footer, if it has a place there.
    pub(crate) footer: Option<&'static str>,
}

const fn bind(
    keys: &'static [Key],
    label: &'static str,
    intent: Intent,
    help: &'static str,
    footer: Option<&'static str>,
) -> Binding {
    Binding { keys, label, intent, help, footer }
}

/// Every key there is, in the order of the help.
pub(crate) const KEYS: &[Binding] = &[
    bind(&[Key::Char('1')], "1", Intent::Overview, "the fleet at a glance", Some("overview")),
    bind(&[Key::Char('2')], "2", Intent::Findings, "every open finding", Some("findings")),
    bind(&[Key::Char('5')], "5", Intent::Nodes, "every node, worst first", Some("nodes")),
    bind(&[Key::Enter], "Enter", Intent::Open, "open what the cursor is on", Some("open")),
    bind(
        &[Key::Escape, Key::Backspace],
        "Esc",
        Intent::Back,
        "back to where you came from",
        Some("back"),
    ),
    bind(&[Key::Tab], "Tab", Intent::NextPanel, "the next panel of the overview", Some("panel")),
    bind(&[Key::BackTab], "Shift-Tab", Intent::PreviousPanel, "the panel before", None),
    bind(&[Key::Up, Key::Char('k')], "↑ k", Intent::Up, "one up", None),
    bind(&[Key::Down, Key::Char('j')], "↓ j", Intent::Down, "one down", None),
    bind(&[Key::Left, Key::Char('h')], "← h", Intent::Left, "one to the left", None),
    bind(&[Key::Right, Key::Char('l')], "→ l", Intent::Right, "one to the right", None),
    bind(&[Key::Home, Key::Char('g')], "g", Intent::First, "to the beginning", None),
    bind(&[Key::End, Key::Char('G')], "G", Intent::Last, "to the end", None),
    bind(&[Key::PageUp, Key::Ctrl('b')], "PgUp", Intent::PageUp, "one page up", None),
    bind(
        &[Key::PageDown, Key::Ctrl('f'), Key::Char(' ')],
        "PgDn",
        Intent::PageDown,
        "one page down",
        None,
    ),
    bind(&[Key::Char('?')], "?", Intent::Help, "show or hide this page", Some("keys")),
    bind(&[Key::Ctrl('l')], "Ctrl-L", Intent::Redraw, "draw everything anew", None),
    bind(&[Key::Ctrl('z')], "Ctrl-Z", Intent::Suspend, "to the shell; `fg` comes back", None),
    bind(&[Key::Char('q'), Key::Ctrl('c')], "q", Intent::Quit, "quit", Some("quit")),
];

/// What a key asks for, if anything.
pub(crate) fn intent(key: Key) -> Option<Intent> {
    KEYS.iter().find(|binding| binding.keys.contains(&key)).map(|binding| binding.intent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_key_has_two_meanings() {
        let all: Vec<Key> = KEYS.iter().flat_map(|binding| binding.keys).copied().collect();
        for (at, key) in all.iter().enumerate() {
            assert!(!all[at + 1..].contains(key), "{key:?} is bound twice");
        }
    }

    #[test]
    fn keys_find_their_intent() {
        assert_eq!(intent(Key::Char('q')), Some(Intent::Quit));
        assert_eq!(intent(Key::Ctrl('c')), Some(Intent::Quit));
        assert_eq!(intent(Key::Char('j')), Some(Intent::Down));
        assert_eq!(intent(Key::Char('§')), None);
    }
}
