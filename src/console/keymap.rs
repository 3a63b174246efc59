//! Lookup of a key on a screen: its own bindings, then those of every screen. Help and footer show the same bindings.

use super::{
    action::KeyIntent,
    key_binding::{KeyBinding, bind},
    key_press::KeyPress,
    screen::Screen,
    screen_view::ScreenCommand,
    screens::{self, view_of},
};

/// Keys of every screen, after its own keys and the numbers of the main screens.
const COMMON_KEYS: &[KeyBinding] = &[
    bind(&[KeyPress::Up, KeyPress::Char('k')], "↑ k", KeyIntent::Up, "up", None),
    bind(&[KeyPress::Down, KeyPress::Char('j')], "↓ j", KeyIntent::Down, "down", None),
    bind(&[KeyPress::Left, KeyPress::Char('h')], "← h", KeyIntent::Left, "left", None),
    bind(&[KeyPress::Right, KeyPress::Char('l')], "→ l", KeyIntent::Right, "right", None),
    bind(&[KeyPress::Home, KeyPress::Char('g')], "g", KeyIntent::First, "to the beginning", None),
    bind(&[KeyPress::End, KeyPress::Char('G')], "G", KeyIntent::Last, "to the end", None),
    bind(&[KeyPress::PageUp, KeyPress::Ctrl('b')], "PgUp", KeyIntent::PageUp, "one page up", None),
    bind(
        &[KeyPress::PageDown, KeyPress::Ctrl('f'), KeyPress::Char(' ')],
        "PgDn",
        KeyIntent::PageDown,
        "one page down",
        None,
    ),
    bind(
        &[KeyPress::Char('[')],
        "[",
        KeyIntent::PreviousMark,
        "back in time: previous mark",
        Some("back in time"),
    ),
    bind(&[KeyPress::Char(']')], "]", KeyIntent::NextMark, "forward in time: next mark", None),
    bind(&[KeyPress::Char('(')], "(", KeyIntent::Earlier, "back by 1/90 of the time bar", None),
    bind(&[KeyPress::Char(')')], ")", KeyIntent::Later, "forward by the same", None),
    bind(&[KeyPress::Char('{')], "{", KeyIntent::MuchEarlier, "back by 1/15 of the time bar", None),
    bind(&[KeyPress::Char('}')], "}", KeyIntent::MuchLater, "forward by the same", None),
    bind(&[KeyPress::Char('.')], ".", KeyIntent::Now, "return to now", None),
    bind(&[KeyPress::Char('z')], "z", KeyIntent::ToggleReplay, "pause or resume a replay", None),
    bind(&[KeyPress::Char('y')], "y", KeyIntent::Copy, "copy the selected item", None),
    bind(
        &[KeyPress::Char('Y')],
        "Y",
        KeyIntent::CopyMarkdown,
        "copy the finding as Markdown",
        None,
    ),
    bind(
        &[KeyPress::Ctrl('p'), KeyPress::Char(';')],
        ";",
        KeyIntent::Search,
        "search by name; also Ctrl-P",
        Some("search"),
    ),
    bind(
        &[KeyPress::Char('w')],
        "w",
        KeyIntent::Relation,
        "what waits for this, why it waits",
        None,
    ),
    bind(
        &[KeyPress::Char(':')],
        ":",
        KeyIntent::Command,
        "enter a command; Tab completes",
        Some("command"),
    ),
    bind(&[KeyPress::Char('?')], "?", KeyIntent::Help, "show or hide this page", Some("keys")),
    bind(&[KeyPress::Ctrl('l')], "Ctrl-L", KeyIntent::Redraw, "redraw the screen", None),
    bind(&[KeyPress::Ctrl('z')], "Ctrl-Z", KeyIntent::Suspend, "suspend; `fg` resumes", None),
    bind(
        &[KeyPress::Char('q'), KeyPress::Ctrl('c')],
        "q",
        KeyIntent::Quit,
        "quit; also Ctrl-C",
        Some("quit"),
    ),
];

/// Keys of the main screens.
const NUMBER_KEYS: [KeyPress; 9] = [
    KeyPress::Char('1'),
    KeyPress::Char('2'),
    KeyPress::Char('3'),
    KeyPress::Char('4'),
    KeyPress::Char('5'),
    KeyPress::Char('6'),
    KeyPress::Char('7'),
    KeyPress::Char('8'),
    KeyPress::Char('9'),
];

/// Labels of the keys of the main screens.
const NUMBER_LABELS: &str = "123456789";

/// Returns the binding of a main screen; none if its number has no key.
fn number_binding(command: &ScreenCommand) -> Option<KeyBinding> {
    let (number, help) = command.main?;
    let at = usize::from(number).checked_sub(1)?;
    let (keys, label) = (NUMBER_KEYS.get(at..=at)?, NUMBER_LABELS.get(at..=at)?);
    Some(bind(keys, label, KeyIntent::Screen(number), help, None))
}

/// Returns the bindings that are active on a screen, in the order of the help.
pub(crate) fn screen_bindings(screen: &Screen) -> impl Iterator<Item = KeyBinding> {
    own_bindings(screen).chain(common_bindings())
}

/// Returns the bindings of a screen, and those that open the main screens.
pub(crate) fn own_bindings(screen: &Screen) -> impl Iterator<Item = KeyBinding> {
    let screen_keys = view_of(screen).keys().iter().copied().flatten();
    let numbers = screens::main_commands().into_iter().filter_map(number_binding);
    screen_keys.copied().chain(numbers)
}

/// Returns the bindings that every screen has.
pub(crate) fn common_bindings() -> impl Iterator<Item = KeyBinding> {
    COMMON_KEYS.iter().copied()
}

/// Returns the operation of a key on a screen, if it has one.
pub(crate) fn intent_for_key(key: KeyPress, screen: &Screen) -> Option<KeyIntent> {
    screen_bindings(screen)
        .find(|binding| binding.keys.contains(&key))
        .map(|binding| binding.intent)
}

#[cfg(test)]
mod tests;
