//! Key binding: the keys of an operation and their texts, and the bindings that several screens share.

use super::{action::KeyIntent, key_press::KeyPress};

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
    "acknowledge, or withdraw that",
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
