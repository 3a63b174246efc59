//! What can happen to the console: keys, the mouse, an answer, a failure, the passing of time; and what it owes then.

use std::path::PathBuf;

use gaunt_schema::{SanitizedText, UnixMs};

use super::{keymap::KeyPress, preferences::ConsolePreferences};
use crate::answer::{Answer, Question};

/// Something that happened.
#[derive(Clone, Debug)]
pub(crate) enum ConsoleAction {
    /// A key was pressed.
    Key(KeyPress),
    /// The mouse was used.
    Mouse(MouseEvent),
    /// The source answered a question.
    Answered(UnixMs, Box<Question>, Answer),
    /// The source did not answer a question, and why.
    Failed(UnixMs, Box<Question>, SanitizedText),
    /// Something that was owed is done, or why it is not.
    Done(Result<SanitizedText, SanitizedText>),
    /// The period is over.
    Tick(UnixMs),
}

/// What the mouse did, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MouseEvent {
    /// The first button was pressed at a column and a line.
    Press(u16, u16),
    /// The wheel was turned up.
    WheelUp(u16, u16),
    /// The wheel was turned down.
    WheelDown(u16, u16),
}

/// What a key asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyIntent {
    /// Show one of the main screens, by its number.
    Screen(u8),
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
    /// Narrow the rows.
    Filter,
    /// Say what to do.
    Command,
    /// Sort by the column to the right.
    SortNext,
    /// Sort by the column to the left.
    SortPrevious,
    /// Turn the order round.
    Reverse,
    /// Choose columns.
    Columns,
    /// Copy what the cursor is on.
    Copy,
    /// Back in time by a step.
    Earlier,
    /// Forward in time by a step.
    Later,
    /// Back in time by a minute.
    MuchEarlier,
    /// Forward in time by a minute.
    MuchLater,
    /// Back to now.
    Now,
    /// Put the cells of the heat map together in another way.
    Fold,
    /// Colour by another measure.
    Measure,
    /// The job of what is shown.
    Job,
    /// How the parts of the node hang together.
    Topology,
    /// What probes between nodes measured.
    Probe,
    /// The processes on the node.
    Processes,
    /// What happened on the node of late.
    Events,
    /// Everything that is known of the finding.
    Explain,
    /// Acknowledge the finding, or withdraw that.
    Acknowledge,
    /// Hold a replay, or let it go on.
    ToggleReplay,
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
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ConsoleEffect {
    /// Ask these, one after the other.
    Ask(Vec<Question>),
    /// Acknowledge findings with a note, or without one withdraw that.
    Acknowledge(Vec<SanitizedText>, Option<String>),
    /// Put a text on the clipboard of the terminal.
    Copy(String),
    /// Write a text into a new file.
    WriteFile(PathBuf, String),
    /// Keep the reader's choices for the next time.
    SavePreferences(ConsolePreferences),
    /// Take the mouse, or leave it to the terminal.
    Mouse(bool),
    /// Hold a replay, or let it go on.
    ToggleReplay,
    /// Lead a replay to an instant.
    SeekReplay(UnixMs),
    /// Call the reader.
    Bell,
    /// Draw every cell anew.
    Redraw,
    /// Give the terminal back until continued.
    Suspend,
    /// End.
    Quit,
}
