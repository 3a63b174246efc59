//! Key bindings: those that screens share, and the lookup of a key on a screen. Help and footer show the same bindings.

pub(crate) use super::key_press::KeyPress;

use super::{
    action::KeyIntent,
    screen_view::ScreenCommand,
    screens::{self, Screen},
};

/// Binding of one or more keys to an operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyBinding {
    /// The keys.
    pub(crate) keys: &'static [KeyPress],
    /// Display name of the keys.
    pub(crate) label: &'static str,
    /// The requested operation.
    pub(crate) intent: KeyIntent,
    /// Short description for the help.
    pub(crate) help: &'static str,
    /// Label in the footer, if the key is listed there.
    pub(crate) footer: Option<&'static str>,
}

/// Defines a binding.
pub(crate) const fn bind(
    keys: &'static [KeyPress],
    label: &'static str,
    intent: KeyIntent,
    help: &'static str,
    footer: Option<&'static str>,
) -> KeyBinding {
    KeyBinding { keys, label, intent, help, footer }
}

/// Opens the selected item.
pub(crate) const OPEN: KeyBinding =
    bind(&[KeyPress::Enter], "Enter", KeyIntent::Open, "open the selected item", Some("open"));

/// Returns to the previous screen.
pub(crate) const BACK: KeyBinding = bind(
    &[KeyPress::Escape, KeyPress::Backspace],
    "Esc",
    KeyIntent::Back,
    "back to the previous screen",
    Some("back"),
);

/// Changes the grouping of the cells.
pub(crate) const FOLD: KeyBinding = bind(
    &[KeyPress::Char('f')],
    "f",
    KeyIntent::Fold,
    "group by node, leaf or rack",
    Some("group"),
);

/// Changes the measure that colours the cells.
pub(crate) const MEASURE: KeyBinding = bind(
    &[KeyPress::Char('m')],
    "m",
    KeyIntent::Measure,
    "colour by the next measure",
    Some("measure"),
);

/// Filters the rows.
pub(crate) const FILTER: KeyBinding = bind(
    &[KeyPress::Char('/')],
    "/",
    KeyIntent::Filter,
    "filter rows; Tab completes",
    Some("filter"),
);

/// Acknowledges findings.
pub(crate) const ACKNOWLEDGE: KeyBinding = bind(
    &[KeyPress::Char('a')],
    "a",
    KeyIntent::Acknowledge,
    "acknowledge with a note, or withdraw",
    Some("acknowledge"),
);

/// Opens the job of the item.
pub(crate) const JOB: KeyBinding =
    bind(&[KeyPress::Char('b')], "b", KeyIntent::Job, "job of this item", Some("job"));

/// Keys of the screens of one node.
pub(crate) const NODE_KEYS: &[KeyBinding] = &[
    JOB,
    bind(
        &[KeyPress::Char('t')],
        "t",
        KeyIntent::Topology,
        "topology of the node",
        Some("topology"),
    ),
    bind(
        &[KeyPress::Char('p')],
        "p",
        KeyIntent::Processes,
        "processes on its GPUs",
        Some("processes"),
    ),
    bind(
        &[KeyPress::Char('e')],
        "e",
        KeyIntent::Events,
        "recent events of the node",
        Some("events"),
    ),
];

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
        KeyIntent::Earlier,
        "back in time: 10 s",
        Some("back in time"),
    ),
    bind(&[KeyPress::Char(']')], "]", KeyIntent::Later, "forward in time: 10 s", None),
    bind(&[KeyPress::Char('{')], "{", KeyIntent::MuchEarlier, "back in time: 1 min", None),
    bind(&[KeyPress::Char('}')], "}", KeyIntent::MuchLater, "forward in time: 1 min", None),
    bind(&[KeyPress::Char('.')], ".", KeyIntent::Now, "return to now", None),
    bind(&[KeyPress::Char('z')], "z", KeyIntent::ToggleReplay, "pause or resume a replay", None),
    bind(&[KeyPress::Char('y')], "y", KeyIntent::Copy, "copy the selected item", None),
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
    bind(&[KeyPress::Char('q'), KeyPress::Ctrl('c')], "q", KeyIntent::Quit, "quit", Some("quit")),
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
pub(crate) fn screen_bindings(place: &Screen) -> impl Iterator<Item = KeyBinding> {
    let own = place.keys().iter().copied().flatten();
    let numbers = screens::main_commands().into_iter().filter_map(number_binding);
    own.copied().chain(numbers).chain(COMMON_KEYS.iter().copied())
}

/// Returns the operation of a key on a screen, if it has one.
pub(crate) fn intent_for_key(key: KeyPress, place: &Screen) -> Option<KeyIntent> {
    screen_bindings(place).find(|binding| binding.keys.contains(&key)).map(|binding| binding.intent)
}

#[cfg(test)]
mod tests;
