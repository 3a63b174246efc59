//! The one table of keys: it binds them, and writes the help and the footer of each screen.

use gaunt_schema::Class;

use super::{action::Intent, place::Place};
use crate::answer::Subject;

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
    /// On which screens.
    on: On,
}

/// Screens on which a key means something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum On {
    /// All of them.
    Every,
    /// Where something can be opened.
    Openable,
    /// All but the first.
    Inner,
    /// The overview.
    Overview,
    /// The map of the network.
    Network,
    /// Where cells can be put together.
    Folded,
    /// The probe matrix.
    Probe,
    /// Where colours can mean different things.
    Measured,
    /// Where rows can be narrowed.
    Filtered,
    /// Tables with columns.
    Tables,
    /// A finding, or all of them.
    Findings,
    /// One finding.
    Finding,
    /// Where one node is shown.
    Nodes,
    /// Where something belongs to a job.
    Jobs,
}

impl On {
    const fn holds(self, place: &Place) -> bool {
        match self {
            Self::Every => true,
            Self::Openable => !matches!(
                place,
                Place::Device(_, Class::Port, _)
                    | Place::Topology(_)
                    | Place::Events(_)
                    | Place::Explanation(_)
            ),
            Self::Inner => !matches!(place, Place::Overview),
            Self::Overview => matches!(place, Place::Overview),
            Self::Network => matches!(place, Place::Network),
            Self::Folded => matches!(place, Place::Overview | Place::Probe),
            Self::Probe => matches!(place, Place::Probe),
            Self::Measured => matches!(place, Place::Overview | Place::Network),
            Self::Filtered => place.subject().is_some(),
            Self::Tables => matches!(place, Place::List(_)),
            Self::Findings => place.finding().is_some() || matches!(place, Place::Findings),
            Self::Finding => matches!(place, Place::Finding(_)),
            Self::Nodes => place.node().is_some(),
            Self::Jobs => {
                place.node().is_some()
                    || matches!(
                        place,
                        Place::Finding(_)
                            | Place::Explanation(_)
                            | Place::List(Subject::Gpus | Subject::Nodes | Subject::Processes)
                    )
            }
        }
    }
}

const fn bind(
    keys: &'static [Key],
    label: &'static str,
    intent: Intent,
    help: &'static str,
    footer: Option<&'static str>,
    on: On,
) -> Binding {
    Binding { keys, label, intent, help, footer, on }
}

/// Every key there is, in the order of the help.
pub(crate) const KEYS: &[Binding] = &[
    bind(
        &[Key::Enter],
        "Enter",
        Intent::Open,
        "open what the cursor is on",
        Some("open"),
        On::Openable,
    ),
    bind(
        &[Key::Escape, Key::Backspace],
        "Esc",
        Intent::Back,
        "back to where you came from",
        Some("back"),
        On::Inner,
    ),
    bind(&[Key::Tab], "Tab", Intent::NextPanel, "the next panel", Some("panel"), On::Overview),
    bind(
        &[Key::BackTab],
        "Shift-Tab",
        Intent::PreviousPanel,
        "the panel before",
        None,
        On::Overview,
    ),
    bind(
        &[Key::Char('f')],
        "f",
        Intent::Fold,
        "cells by node, leaf or rack",
        Some("fold"),
        On::Folded,
    ),
    bind(
        &[Key::Char('m')],
        "m",
        Intent::Measure,
        "colour by another measure",
        Some("measure"),
        On::Measured,
    ),
    bind(&[Key::Char('m')], "m", Intent::Measure, "the next rail", Some("rail"), On::Probe),
    bind(
        &[Key::Char('p')],
        "p",
        Intent::Probe,
        "what probes between nodes measured",
        Some("probe"),
        On::Network,
    ),
    bind(
        &[Key::Char('/')],
        "/",
        Intent::Filter,
        "narrow the rows; Tab completes",
        Some("filter"),
        On::Filtered,
    ),
    bind(
        &[Key::Char('>'), Key::Char('s')],
        "s >",
        Intent::SortNext,
        "sort by the next column",
        Some("sort"),
        On::Tables,
    ),
    bind(
        &[Key::Char('<'), Key::Char('S')],
        "S <",
        Intent::SortPrevious,
        "sort by the column before",
        None,
        On::Tables,
    ),
    bind(&[Key::Char('r')], "r", Intent::Reverse, "turn the order round", None, On::Tables),
    bind(
        &[Key::Char('c')],
        "c",
        Intent::Columns,
        "choose columns, and keep them",
        Some("columns"),
        On::Tables,
    ),
    bind(
        &[Key::Char('a')],
        "a",
        Intent::Acknowledge,
        "acknowledge with a note, or withdraw",
        Some("acknowledge"),
        On::Findings,
    ),
    bind(
        &[Key::Char('e')],
        "e",
        Intent::Explain,
        "explain: signals, peers, what was ruled out",
        Some("explain"),
        On::Finding,
    ),
    bind(&[Key::Char('b')], "b", Intent::Job, "the job of this", Some("job"), On::Jobs),
    bind(
        &[Key::Char('t')],
        "t",
        Intent::Topology,
        "how the node's parts hang together",
        Some("topology"),
        On::Nodes,
    ),
    bind(
        &[Key::Char('p')],
        "p",
        Intent::Processes,
        "the processes on its GPUs",
        Some("processes"),
        On::Nodes,
    ),
    bind(
        &[Key::Char('e')],
        "e",
        Intent::Events,
        "what happened there of late",
        Some("events"),
        On::Nodes,
    ),
    bind(
        &[Key::Char('1')],
        "1",
        Intent::Screen(1),
        "overview: the fleet at a glance",
        None,
        On::Every,
    ),
    bind(&[Key::Char('2')], "2", Intent::Screen(2), "findings: what is wrong", None, On::Every),
    bind(&[Key::Char('3')], "3", Intent::Screen(3), "jobs, by what they lose", None, On::Every),
    bind(&[Key::Char('4')], "4", Intent::Screen(4), "network: leaves by rails", None, On::Every),
    bind(&[Key::Char('5')], "5", Intent::Screen(5), "nodes, worst first", None, On::Every),
    bind(&[Key::Char('6')], "6", Intent::Screen(6), "GPUs", None, On::Every),
    bind(&[Key::Char('7')], "7", Intent::Screen(7), "ports, by load", None, On::Every),
    bind(&[Key::Char('8')], "8", Intent::Screen(8), "users and accounts", None, On::Every),
    bind(&[Key::Char('9')], "9", Intent::Screen(9), "targets: what is read", None, On::Every),
    bind(&[Key::Up, Key::Char('k')], "↑ k", Intent::Up, "one up", None, On::Every),
    bind(&[Key::Down, Key::Char('j')], "↓ j", Intent::Down, "one down", None, On::Every),
    bind(&[Key::Left, Key::Char('h')], "← h", Intent::Left, "one to the left", None, On::Every),
    bind(&[Key::Right, Key::Char('l')], "→ l", Intent::Right, "one to the right", None, On::Every),
    bind(&[Key::Home, Key::Char('g')], "g", Intent::First, "to the beginning", None, On::Every),
    bind(&[Key::End, Key::Char('G')], "G", Intent::Last, "to the end", None, On::Every),
    bind(&[Key::PageUp, Key::Ctrl('b')], "PgUp", Intent::PageUp, "one page up", None, On::Every),
    bind(
        &[Key::PageDown, Key::Ctrl('f'), Key::Char(' ')],
        "PgDn",
        Intent::PageDown,
        "one page down",
        None,
        On::Every,
    ),
    bind(
        &[Key::Char('[')],
        "[",
        Intent::Earlier,
        "back in time: 10 s",
        Some("back in time"),
        On::Every,
    ),
    bind(&[Key::Char(']')], "]", Intent::Later, "forward in time: 10 s", None, On::Every),
    bind(&[Key::Char('{')], "{", Intent::MuchEarlier, "back one minute", None, On::Every),
    bind(&[Key::Char('}')], "}", Intent::MuchLater, "forward one minute", None, On::Every),
    bind(&[Key::Char('.')], ".", Intent::Now, "back to now", None, On::Every),
    bind(&[Key::Char('z')], "z", Intent::Hold, "hold a replay, or let it go on", None, On::Every),
    bind(&[Key::Char('y')], "y", Intent::Copy, "copy what the cursor is on", None, On::Every),
    bind(
        &[Key::Char(':')],
        ":",
        Intent::Command,
        "say what to do; Tab completes",
        Some("command"),
        On::Every,
    ),
    bind(&[Key::Char('?')], "?", Intent::Help, "show or hide this page", Some("keys"), On::Every),
    bind(&[Key::Ctrl('l')], "Ctrl-L", Intent::Redraw, "draw everything anew", None, On::Every),
    bind(
        &[Key::Ctrl('z')],
        "Ctrl-Z",
        Intent::Suspend,
        "to the shell; `fg` comes back",
        None,
        On::Every,
    ),
    bind(&[Key::Char('q'), Key::Ctrl('c')], "q", Intent::Quit, "quit", Some("quit"), On::Every),
];

/// The keys that mean something on a screen.
pub(crate) fn here(place: &Place) -> impl Iterator<Item = &'static Binding> {
    KEYS.iter().filter(move |binding| binding.on.holds(place))
}

/// What a key asks for on a screen, if anything.
pub(crate) fn intent(key: Key, place: &Place) -> Option<Intent> {
    here(place).find(|binding| binding.keys.contains(&key)).map(|binding| binding.intent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_key_has_two_meanings_on_a_screen() {
        let (node, id) = (|| "gpu001".into(), || "port_down/gpu001/mlx5_0/1".into());
        let mut places = vec![
            Place::Finding(id()),
            Place::Explanation(id()),
            Place::Job("8812".into()),
            Place::Node(node()),
            Place::Device(node(), Class::Gpu, "GPU 0".into()),
            Place::Topology(node()),
            Place::List(Subject::Processes),
            Place::Events(node()),
            Place::Probe,
        ];
        places.extend((1..=9).map(Place::main));
        for place in places {
            let all: Vec<Key> = here(&place).flat_map(|binding| binding.keys).copied().collect();
            for (at, key) in all.iter().enumerate() {
                assert!(!all[at + 1..].contains(key), "{key:?} is bound twice on {place:?}");
            }
        }
    }

    #[test]
    fn keys_find_their_intent_where_they_have_one() {
        let overview = Place::Overview;
        assert_eq!(intent(Key::Char('q'), &overview), Some(Intent::Quit));
        assert_eq!(intent(Key::Ctrl('c'), &overview), Some(Intent::Quit));
        assert_eq!(intent(Key::Char('j'), &overview), Some(Intent::Down));
        assert_eq!(intent(Key::Char('§'), &overview), None);
        assert_eq!(intent(Key::Char('t'), &overview), None);
        let node = Place::Node("gpu001".into());
        assert_eq!(intent(Key::Char('t'), &node), Some(Intent::Topology));
    }
}
