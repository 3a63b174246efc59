//! What can happen to the console: a key's intent, an answer, a failure, the passing of time.

use gaunt_schema::{Safe, UnixMs};

use crate::answer::{Answer, Question};

/// Something that happened.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    /// A key was pressed that means something.
    Intent(Intent),
    /// The source answered.
    Answered(UnixMs, Answer),
    /// The source did not answer, and why.
    Failed(UnixMs, Safe),
    /// The period is over.
    Tick(UnixMs),
}

/// What a key asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Intent {
    /// Show the overview.
    Overview,
    /// Show all findings.
    Findings,
    /// Show all nodes.
    Nodes,
    /// Open what the cursor is on.
    Open,
    /// Close what was opened last.
    Back,
    /// Move the cursor to the next panel.
    NextPanel,
    /// Move the cursor to the panel before.
    PreviousPanel,
    /// One up.
    Up,
    /// One down.
    Down,
    /// One to the left.
    Left,
    /// One to the right.
    Right,
    /// To the beginning.
    First,
    /// To the end.
    Last,
    /// One page up.
    PageUp,
    /// One page down.
    PageDown,
    /// Show or hide the keys.
    Help,
    /// Draw everything anew.
    Redraw,
    /// Give the terminal back to the shell until it is continued.
    Suspend,
    /// End.
    Quit,
}

/// What the console owes after an action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Ask these, one after the other.
    Ask(Vec<Question>),
    /// Draw every cell anew.
    Redraw,
    /// Give the terminal back until continued.
    Suspend,
    /// End.
    Quit,
}
