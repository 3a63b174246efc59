//! Inputs of the console (keys, mouse, answers, failures, ticks) and the effects that they request.

use std::path::PathBuf;

use gaunt_schema::{SanitizedText, UnixMs};

use super::{
    key_press::KeyPress,
    preferences::ConsolePreferences,
    user_config::{NotificationForm, plugin_key::PluginCommand},
};
use gaunt_api::{Answer, Question};

/// An input of the console.
#[derive(Clone, Debug)]
pub(crate) enum ConsoleAction {
    /// Key press.
    Key(KeyPress),
    /// Key press with gaunt's own meaning, whatever the user bound it to.
    OwnKey(KeyPress),
    /// Mouse event.
    Mouse(MouseEvent),
    /// The source answered a question.
    Answered(UnixMs, Box<Question>, Answer),
    /// The source failed to answer a question, with the reason.
    Failed(UnixMs, Box<Question>, SanitizedText),
    /// Result of an effect.
    Done(Result<SanitizedText, SanitizedText>),
    /// The poll period elapsed.
    Tick(UnixMs),
}

/// Mouse event and its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MouseEvent {
    /// The first button was pressed at a column and a line.
    Press(u16, u16),
    /// The wheel was turned up.
    WheelUp(u16, u16),
    /// The wheel was turned down.
    WheelDown(u16, u16),
}

/// Operation that a key requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyIntent {
    /// Show one of the main screens, by number.
    Screen(u8),
    /// Open the item under the cursor.
    Open,
    /// Close the current screen and return to the previous one.
    Back,
    /// Move the cursor to the next panel.
    NextPanel,
    /// Move the cursor to the previous panel.
    PreviousPanel,
    /// Move up by one.
    Up,
    /// Move down by one.
    Down,
    /// Move left by one.
    Left,
    /// Move right by one.
    Right,
    /// Move to the beginning.
    First,
    /// Move to the end.
    Last,
    /// Move up by one page.
    PageUp,
    /// Move down by one page.
    PageDown,
    /// Filter the rows.
    Filter,
    /// Open the command prompt.
    Command,
    /// Search everything that has a name.
    Search,
    /// Show what waits for the item, or why it waits.
    Relation,
    /// Sort by the column to the right.
    SortNext,
    /// Sort by the column to the left.
    SortPrevious,
    /// Reverse the sort order.
    Reverse,
    /// Choose columns.
    Columns,
    /// Copy the item under the cursor.
    Copy,
    /// Copy the finding as Markdown, for a ticket.
    CopyMarkdown,
    /// Go back in time by one step.
    Earlier,
    /// Go forward in time by one step.
    Later,
    /// Go back in time by one minute.
    MuchEarlier,
    /// Go forward in time by one minute.
    MuchLater,
    /// Go back in time to the previous mark.
    PreviousMark,
    /// Go forward in time to the next mark.
    NextMark,
    /// Return to the present.
    Now,
    /// Change the grouping of the heat map.
    Fold,
    /// Change the measure that colours the map.
    Measure,
    /// Open the job of the shown item.
    Job,
    /// Open the topology of the node.
    Topology,
    /// Open the measurements of the cross-node probe.
    Probe,
    /// Open what is not known of the fleet.
    Coverage,
    /// Open the processes of the node.
    Processes,
    /// Open the recent events of the node.
    Events,
    /// Open the explanation of the finding.
    Explain,
    /// Acknowledge the finding, or withdraw its acknowledgement.
    Acknowledge,
    /// Show a shorter span.
    ShorterSpan,
    /// Show a longer span.
    LongerSpan,
    /// Pause or resume a replay.
    ToggleReplay,
    /// Show or hide the help screen.
    Help,
    /// Redraw the whole screen.
    Redraw,
    /// Return the terminal to the shell until the process is continued.
    Suspend,
    /// Quit the console.
    Quit,
}

/// Side effect that the console runs after an action.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ConsoleEffect {
    /// Ask these questions, one after the other.
    Ask(Vec<Question>),
    /// Acknowledge findings with a note, or withdraw their acknowledgements without one.
    Acknowledge(Vec<SanitizedText>, Option<String>),
    /// Act as if a key was pressed, with gaunt's own meaning.
    Press(KeyPress),
    /// Run a program of the user.
    Run(PluginCommand),
    /// Open the aggregator of this name in the user's file.
    OpenContext(String),
    /// Show one of several clusters, or all of them.
    OpenCluster(Option<String>),
    /// Tell the terminal about a new critical finding, in these words.
    Notify(NotificationForm, SanitizedText),
    /// Copy a text to the clipboard of the terminal.
    Copy(String),
    /// Write a text to a new file.
    WriteFile(PathBuf, String),
    /// Save the user's preferences.
    SavePreferences(ConsolePreferences),
    /// Capture or release the mouse.
    Mouse(bool),
    /// Pause or resume a replay.
    ToggleReplay,
    /// Seek a replay to an instant.
    SeekReplay(UnixMs),
    /// Ring the terminal's bell.
    Bell,
    /// Redraw every cell.
    Redraw,
    /// Return the terminal to the shell until the process is continued.
    Suspend,
    /// Quit the console.
    Quit,
}
