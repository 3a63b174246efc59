//! Rows that a cursor moves over, and how far a key moves it.

use super::{
    action::KeyIntent,
    console_state::ConsoleState,
    finding_list_rows::{FINDINGS_CURSOR, FindingRow},
};

/// Rows that a cursor moves over.
pub(crate) struct CursorRows {
    /// Name of the cursor.
    pub(crate) cursor: &'static str,
    /// The unique key of each row.
    pub(crate) keys: Vec<String>,
}

impl CursorRows {
    /// Returns finding rows.
    pub(crate) fn of_findings(rows: Vec<FindingRow<'_>>) -> Self {
        let keys = rows.into_iter().map(|row| row.row_key().to_owned()).collect();
        Self { cursor: FINDINGS_CURSOR, keys }
    }

    /// Returns the index of the cursor.
    pub(crate) fn index(&self, state: &ConsoleState) -> usize {
        state.cursors.of(self.cursor).row_index(self.keys.len(), |at| &self.keys[at])
    }

    /// Moves the cursor by a number of rows.
    pub(crate) fn move_by(&self, state: &mut ConsoleState, by: isize) {
        state.cursors.of_mut(self.cursor).move_by(by, self.keys.len(), |at| &self.keys[at]);
    }

    /// Moves the cursor to a row. Returns whether it was already there.
    pub(crate) fn move_to(&self, state: &mut ConsoleState, row: usize) -> bool {
        state.cursors.of_mut(self.cursor).move_to(row, self.keys.len(), |at| &self.keys[at])
    }
}

/// Returns how many rows a key moves in a list.
pub(crate) fn row_steps(state: &ConsoleState, intent: KeyIntent) -> isize {
    step_size(state, intent, 1, 0)
}

/// Returns how many items a key moves: `row` per line, `one` per column, and the lines of the screen per page.
pub(crate) fn step_size(state: &ConsoleState, intent: KeyIntent, row: isize, one: isize) -> isize {
    let page = state.layout.page.max(1) as isize;
    match intent {
        KeyIntent::Up => -row,
        KeyIntent::Down => row,
        KeyIntent::Left => -one,
        KeyIntent::Right => one,
        KeyIntent::PageUp => -page,
        KeyIntent::PageDown => page,
        KeyIntent::First => isize::MIN,
        KeyIntent::Last => isize::MAX,
        _ => 0,
    }
}

/// Scrolls a page without a cursor by a number of lines.
pub(crate) fn scroll_by(state: &mut ConsoleState, by: isize) {
    state.scroll = state.scroll.saturating_add_signed(by).min(state.layout.hidden);
}
