//! Cursor in a list that follows its row when the list is sorted again.

use std::ops::Range;

/// Position in a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RowCursor {
    /// Key of the row; none until the cursor is moved.
    key: Option<String>,
    /// Last index, used when the row is gone.
    at: usize,
}

impl RowCursor {
    /// A cursor that was never moved.
    pub(crate) const UNMOVED: Self = Self { key: None, at: 0 };

    /// Returns the index of the cursor among `count` rows with the keys `key_at`.
    pub(crate) fn row_index<'a>(&self, count: usize, key_at: impl Fn(usize) -> &'a str) -> usize {
        let last = count.saturating_sub(1);
        let Some(key) = &self.key else { return self.at.min(last) };
        // Fast path: in most cases the row has not moved.
        if self.at < count && key_at(self.at) == key {
            return self.at;
        }
        (0..count).find(|&at| key_at(at) == key).unwrap_or(self.at.min(last))
    }

    /// Moves the cursor to the row of a key, as soon as it is listed.
    pub(crate) fn follow(&mut self, key: String) {
        self.key = Some(key);
    }

    /// Moves the cursor by a number of rows and stops at the ends.
    pub(crate) fn move_by<'a>(
        &mut self,
        by: isize,
        count: usize,
        key_at: impl Fn(usize) -> &'a str,
    ) {
        if count == 0 {
            return;
        }
        let from = self.row_index(count, &key_at);
        self.at = from.saturating_add_signed(by).min(count - 1);
        self.key = Some(key_at(self.at).to_owned());
    }

    /// Moves the cursor to a row. Returns whether it was already there.
    pub(crate) fn move_to<'a>(
        &mut self,
        row: usize,
        count: usize,
        key_at: impl Fn(usize) -> &'a str,
    ) -> bool {
        if row >= count {
            return false;
        }
        let before = self.row_index(count, &key_at);
        (self.at, self.key) = (row, Some(key_at(row).to_owned()));
        before == row
    }
}

/// Returns the first of `count` rows to show in `height` lines so that row `at` is visible.
pub(crate) fn first_visible_row(at: usize, count: usize, height: usize) -> usize {
    let centred = at.saturating_sub(height / 2);
    centred.min(count.saturating_sub(height))
}

/// Returns the rows to show in `available` lines, of which the row `at` is one; each of the `count` rows has its own
/// number of lines. Only rows near `at` are measured.
pub(crate) fn visible_rows(
    count: usize,
    at: usize,
    available: usize,
    height_of: impl Fn(usize) -> usize,
) -> Range<usize> {
    if count == 0 {
        return 0..0;
    }
    let at = at.min(count - 1);
    let mut visible = at..at + 1;
    let mut used = height_of(at);
    let measure = |row: Option<usize>| row.filter(|row| *row < count).map(&height_of);
    let mut before = measure(visible.start.checked_sub(1));
    let mut after = measure(Some(visible.end));
    loop {
        let fits = |height: Option<usize>| height.is_some_and(|more| used + more <= available);
        let is_centred = at - visible.start < visible.end - at;
        if fits(before) && (is_centred || !fits(after)) {
            visible.start -= 1;
            used += before.unwrap_or(0);
            before = measure(visible.start.checked_sub(1));
        } else if fits(after) {
            visible.end += 1;
            used += after.unwrap_or(0);
            after = measure(Some(visible.end));
        } else {
            return visible;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursor_follows_its_row_and_stays_near_if_the_row_is_gone() {
        let mut cursor = RowCursor::default();
        let before = ["a", "b", "c"];
        cursor.move_by(1, 3, |at| before[at]);
        assert_eq!(cursor.row_index(3, |at| before[at]), 1);
        let sorted = ["c", "a", "b"];
        assert_eq!(cursor.row_index(3, |at| sorted[at]), 2);
        let gone = ["c"];
        assert_eq!(cursor.row_index(1, |at| gone[at]), 0);
        assert_eq!(cursor.row_index(0, |_| ""), 0);
    }

    #[test]
    fn cursor_stops_at_the_ends() {
        let rows = ["a", "b", "c"];
        let mut cursor = RowCursor::default();
        cursor.move_by(isize::MIN, 3, |at| rows[at]);
        assert_eq!(cursor.row_index(3, |at| rows[at]), 0);
        cursor.move_by(isize::MAX, 3, |at| rows[at]);
        assert_eq!(cursor.row_index(3, |at| rows[at]), 2);
        cursor.move_by(1, 0, |_| "");
    }

    #[test]
    fn visible_window_includes_the_cursor_and_ends_at_the_last_row() {
        assert_eq!(first_visible_row(0, 100, 10), 0);
        assert_eq!(first_visible_row(50, 100, 10), 45);
        assert_eq!(first_visible_row(99, 100, 10), 90);
        assert_eq!(first_visible_row(3, 4, 10), 0);
    }

    #[test]
    fn visible_rows_include_the_cursor_and_fill_the_lines() {
        let heights = [1, 2, 2, 1, 2, 2, 1, 2];
        assert_eq!(visible_rows(8, 0, 5, |row| heights[row]), 0..3);
        assert_eq!(visible_rows(8, 7, 5, |row| heights[row]), 5..8);
        for at in 0..heights.len() {
            for available in 2..14 {
                let visible = visible_rows(8, at, available, |row| heights[row]);
                let used: usize = heights[visible.clone()].iter().sum();
                assert!(visible.contains(&at), "{at} of {visible:?}");
                assert!((available - 1..=available).contains(&used.min(13)), "{visible:?}");
            }
        }
        assert_eq!(visible_rows(0, 0, 5, |_| 1), 0..0);
    }
}
