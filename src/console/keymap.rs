//! Table of key bindings: the only source of the key lookup, the help, and the footer of each screen.

pub(crate) use super::key_press::KeyPress;
use gaunt_schema::DeviceClass;

use super::{action::KeyIntent, screen::Screen};
use gaunt_api::Subject;

/// Binding of one or more keys to an operation.
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
    /// Screens where the binding is active.
    scope: BindingScope,
}

/// Screens where a binding is active.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BindingScope {
    /// All screens.
    Every,
    /// Screens with items that can be opened.
    Openable,
    /// All screens except the overview.
    Inner,
    /// The overview.
    Overview,
    /// The network map.
    Network,
    /// Screens whose cells can be grouped.
    Folded,
    /// The probe matrix.
    Probe,
    /// Screens with more than one measure to colour by.
    Measured,
    /// Screens with rows that can be filtered.
    Filtered,
    /// Tables with columns.
    Tables,
    /// One finding or the list of findings.
    Findings,
    /// One finding.
    Finding,
    /// Screens of one node.
    Nodes,
    /// Screens with items that belong to a job.
    Jobs,
}

impl BindingScope {
    const fn includes_screen(self, place: &Screen) -> bool {
        match self {
            Self::Every => true,
            Self::Openable => !matches!(
                place,
                Screen::Device(_, DeviceClass::Port, _)
                    | Screen::Topology(_)
                    | Screen::Events(_)
                    | Screen::Explanation(_)
            ),
            Self::Inner => !matches!(place, Screen::Overview),
            Self::Overview => matches!(place, Screen::Overview),
            Self::Network => matches!(place, Screen::Network),
            Self::Folded => matches!(place, Screen::Overview | Screen::Probe),
            Self::Probe => matches!(place, Screen::Probe),
            Self::Measured => matches!(place, Screen::Overview | Screen::Network),
            Self::Filtered => place.filter_subject().is_some(),
            Self::Tables => matches!(place, Screen::List(_)),
            Self::Findings => place.finding_id().is_some() || matches!(place, Screen::Findings),
            Self::Finding => matches!(place, Screen::Finding(_)),
            Self::Nodes => place.node_name().is_some(),
            Self::Jobs => {
                place.node_name().is_some()
                    || matches!(
                        place,
                        Screen::Finding(_)
                            | Screen::Explanation(_)
                            | Screen::List(Subject::Gpus | Subject::Nodes | Subject::Processes)
                    )
            }
        }
    }
}

const fn bind(
    keys: &'static [KeyPress],
    label: &'static str,
    intent: KeyIntent,
    help: &'static str,
    footer: Option<&'static str>,
    on: BindingScope,
) -> KeyBinding {
    KeyBinding { keys, label, intent, help, footer, scope: on }
}

/// All key bindings, in the order of the help.
pub(crate) const KEYS: &[KeyBinding] = &[
    bind(
        &[KeyPress::Enter],
        "Enter",
        KeyIntent::Open,
        "open the selected item",
        Some("open"),
        BindingScope::Openable,
    ),
    bind(
        &[KeyPress::Escape, KeyPress::Backspace],
        "Esc",
        KeyIntent::Back,
        "back to the previous screen",
        Some("back"),
        BindingScope::Inner,
    ),
    bind(
        &[KeyPress::Tab],
        "Tab",
        KeyIntent::NextPanel,
        "next panel",
        Some("panel"),
        BindingScope::Overview,
    ),
    bind(
        &[KeyPress::BackTab],
        "Shift-Tab",
        KeyIntent::PreviousPanel,
        "previous panel",
        None,
        BindingScope::Overview,
    ),
    bind(
        &[KeyPress::Char('f')],
        "f",
        KeyIntent::Fold,
        "group by node, leaf or rack",
        Some("group"),
        BindingScope::Folded,
    ),
    bind(
        &[KeyPress::Char('m')],
        "m",
        KeyIntent::Measure,
        "colour by the next measure",
        Some("measure"),
        BindingScope::Measured,
    ),
    bind(
        &[KeyPress::Char('m')],
        "m",
        KeyIntent::Measure,
        "next rail",
        Some("rail"),
        BindingScope::Probe,
    ),
    bind(
        &[KeyPress::Char('p')],
        "p",
        KeyIntent::Probe,
        "cross-node probe results",
        Some("probe"),
        BindingScope::Network,
    ),
    bind(
        &[KeyPress::Char('/')],
        "/",
        KeyIntent::Filter,
        "filter rows; Tab completes",
        Some("filter"),
        BindingScope::Filtered,
    ),
    bind(
        &[KeyPress::Char('>'), KeyPress::Char('s')],
        "s >",
        KeyIntent::SortNext,
        "sort by the next column",
        Some("sort"),
        BindingScope::Tables,
    ),
    bind(
        &[KeyPress::Char('<'), KeyPress::Char('S')],
        "S <",
        KeyIntent::SortPrevious,
        "sort by the previous column",
        None,
        BindingScope::Tables,
    ),
    bind(
        &[KeyPress::Char('r')],
        "r",
        KeyIntent::Reverse,
        "reverse the sort order",
        None,
        BindingScope::Tables,
    ),
    bind(
        &[KeyPress::Char('c')],
        "c",
        KeyIntent::Columns,
        "choose and save columns",
        Some("columns"),
        BindingScope::Tables,
    ),
    bind(
        &[KeyPress::Char('a')],
        "a",
        KeyIntent::Acknowledge,
        "acknowledge with a note, or withdraw",
        Some("acknowledge"),
        BindingScope::Findings,
    ),
    bind(
        &[KeyPress::Char('e')],
        "e",
        KeyIntent::Explain,
        "explain: signals, peers, ruled out",
        Some("explain"),
        BindingScope::Finding,
    ),
    bind(
        &[KeyPress::Char('b')],
        "b",
        KeyIntent::Job,
        "job of this item",
        Some("job"),
        BindingScope::Jobs,
    ),
    bind(
        &[KeyPress::Char('t')],
        "t",
        KeyIntent::Topology,
        "topology of the node",
        Some("topology"),
        BindingScope::Nodes,
    ),
    bind(
        &[KeyPress::Char('p')],
        "p",
        KeyIntent::Processes,
        "processes on its GPUs",
        Some("processes"),
        BindingScope::Nodes,
    ),
    bind(
        &[KeyPress::Char('e')],
        "e",
        KeyIntent::Events,
        "recent events of the node",
        Some("events"),
        BindingScope::Nodes,
    ),
    bind(
        &[KeyPress::Char('1')],
        "1",
        KeyIntent::Screen(1),
        "overview of the fleet",
        None,
        BindingScope::Every,
    ),
    bind(
        &[KeyPress::Char('2')],
        "2",
        KeyIntent::Screen(2),
        "open findings",
        None,
        BindingScope::Every,
    ),
    bind(
        &[KeyPress::Char('3')],
        "3",
        KeyIntent::Screen(3),
        "jobs, by GPUs lost",
        None,
        BindingScope::Every,
    ),
    bind(
        &[KeyPress::Char('4')],
        "4",
        KeyIntent::Screen(4),
        "network: leaves by rails",
        None,
        BindingScope::Every,
    ),
    bind(
        &[KeyPress::Char('5')],
        "5",
        KeyIntent::Screen(5),
        "nodes, worst first",
        None,
        BindingScope::Every,
    ),
    bind(&[KeyPress::Char('6')], "6", KeyIntent::Screen(6), "GPUs", None, BindingScope::Every),
    bind(
        &[KeyPress::Char('7')],
        "7",
        KeyIntent::Screen(7),
        "ports, by load",
        None,
        BindingScope::Every,
    ),
    bind(
        &[KeyPress::Char('8')],
        "8",
        KeyIntent::Screen(8),
        "users and accounts",
        None,
        BindingScope::Every,
    ),
    bind(
        &[KeyPress::Char('9')],
        "9",
        KeyIntent::Screen(9),
        "targets: scrape state",
        None,
        BindingScope::Every,
    ),
    bind(
        &[KeyPress::Up, KeyPress::Char('k')],
        "↑ k",
        KeyIntent::Up,
        "up",
        None,
        BindingScope::Every,
    ),
    bind(
        &[KeyPress::Down, KeyPress::Char('j')],
        "↓ j",
        KeyIntent::Down,
        "down",
        None,
        BindingScope::Every,
    ),
    bind(
        &[KeyPress::Left, KeyPress::Char('h')],
        "← h",
        KeyIntent::Left,
        "left",
        None,
        BindingScope::Every,
    ),
    bind(
        &[KeyPress::Right, KeyPress::Char('l')],
        "→ l",
        KeyIntent::Right,
        "right",
        None,
        BindingScope::Every,
    ),
    bind(
        &[KeyPress::Home, KeyPress::Char('g')],
        "g",
        KeyIntent::First,
        "to the beginning",
        None,
        BindingScope::Every,
    ),
    bind(
        &[KeyPress::End, KeyPress::Char('G')],
        "G",
        KeyIntent::Last,
        "to the end",
        None,
        BindingScope::Every,
    ),
    bind(
        &[KeyPress::PageUp, KeyPress::Ctrl('b')],
        "PgUp",
        KeyIntent::PageUp,
        "one page up",
        None,
        BindingScope::Every,
    ),
    bind(
        &[KeyPress::PageDown, KeyPress::Ctrl('f'), KeyPress::Char(' ')],
        "PgDn",
        KeyIntent::PageDown,
        "one page down",
        None,
        BindingScope::Every,
    ),
    bind(
        &[KeyPress::Char('[')],
        "[",
        KeyIntent::Earlier,
        "back in time: 10 s",
        Some("back in time"),
        BindingScope::Every,
    ),
    bind(
        &[KeyPress::Char(']')],
        "]",
        KeyIntent::Later,
        "forward in time: 10 s",
        None,
        BindingScope::Every,
    ),
    bind(
        &[KeyPress::Char('{')],
        "{",
        KeyIntent::MuchEarlier,
        "back in time: 1 min",
        None,
        BindingScope::Every,
    ),
    bind(
        &[KeyPress::Char('}')],
        "}",
        KeyIntent::MuchLater,
        "forward in time: 1 min",
        None,
        BindingScope::Every,
    ),
    bind(&[KeyPress::Char('.')], ".", KeyIntent::Now, "return to now", None, BindingScope::Every),
    bind(
        &[KeyPress::Char('z')],
        "z",
        KeyIntent::ToggleReplay,
        "pause or resume a replay",
        None,
        BindingScope::Every,
    ),
    bind(
        &[KeyPress::Char('y')],
        "y",
        KeyIntent::Copy,
        "copy the selected item",
        None,
        BindingScope::Every,
    ),
    bind(
        &[KeyPress::Char(':')],
        ":",
        KeyIntent::Command,
        "enter a command; Tab completes",
        Some("command"),
        BindingScope::Every,
    ),
    bind(
        &[KeyPress::Char('?')],
        "?",
        KeyIntent::Help,
        "show or hide this page",
        Some("keys"),
        BindingScope::Every,
    ),
    bind(
        &[KeyPress::Ctrl('l')],
        "Ctrl-L",
        KeyIntent::Redraw,
        "redraw the screen",
        None,
        BindingScope::Every,
    ),
    bind(
        &[KeyPress::Ctrl('z')],
        "Ctrl-Z",
        KeyIntent::Suspend,
        "suspend; `fg` resumes",
        None,
        BindingScope::Every,
    ),
    bind(
        &[KeyPress::Char('q'), KeyPress::Ctrl('c')],
        "q",
        KeyIntent::Quit,
        "quit",
        Some("quit"),
        BindingScope::Every,
    ),
];

/// Returns the bindings that are active on a screen.
pub(crate) fn screen_bindings(place: &Screen) -> impl Iterator<Item = &'static KeyBinding> {
    KEYS.iter().filter(move |binding| binding.scope.includes_screen(place))
}

/// Returns the operation of a key on a screen, if it has one.
pub(crate) fn intent_for_key(key: KeyPress, place: &Screen) -> Option<KeyIntent> {
    screen_bindings(place).find(|binding| binding.keys.contains(&key)).map(|binding| binding.intent)
}

#[cfg(test)]
mod tests;
