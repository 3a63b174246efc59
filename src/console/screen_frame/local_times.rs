//! Local times: rewrites the times of day of a drawn frame from UTC to the user's time zone.
//!
//! All times reach the console in UTC, many within a sentence. They are rewritten in the frame, so that no part of it
//! shows another time zone than the clock at the top.

use ratatui::buffer::{Buffer, Cell};

use crate::display_text;

/// Columns of a time of day in UTC: `12:03:41Z`.
const COLUMNS: usize = 9;

/// Rewrites each time of day in UTC, `offset` seconds east of it. The rest of a word follows without the `Z`; all other
/// columns stay where they are.
pub(super) fn show_local_times(buffer: &mut Buffer, offset: i32) {
    let width = usize::from(buffer.area.width.max(1));
    for row in buffer.content.chunks_mut(width) {
        let mut column = 0;
        while column + COLUMNS <= row.len() {
            let follows_text = column > 0 && is_part_of_number(&row[column - 1]);
            match parse_time(&row[column..column + COLUMNS]).filter(|_| !follows_text) {
                Some(second) => {
                    write_time(&mut row[column..], (second + offset).rem_euclid(86_400));
                    column += COLUMNS - 1;
                }
                None => column += 1,
            }
        }
    }
}

/// Returns whether a cell belongs to the digits behind it, as in a date with its time.
fn is_part_of_number(cell: &Cell) -> bool {
    cell.symbol().bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b':')
}

/// Returns the second of the day, if these cells are a time of day in UTC.
fn parse_time(cells: &[Cell]) -> Option<i32> {
    let mut number = 0;
    let mut second = 0;
    for (at, cell) in cells.iter().enumerate() {
        let byte = *cell.symbol().as_bytes().first().filter(|_| cell.symbol().len() == 1)?;
        match (at, byte) {
            (2 | 5, b':') | (8, b'Z') => (second, number) = (second * 60 + number, 0),
            (2 | 5 | 8, _) => return None,
            (_, b'0'..=b'9') => number = number * 10 + i32::from(byte - b'0'),
            _ => return None,
        }
    }
    Some(second)
}

/// Writes a time of day over one in UTC, and closes the gap that the `Z` leaves.
fn write_time(cells: &mut [Cell], second: i32) {
    let text = format!("{:02}:{:02}:{:02}", second / 3_600, second / 60 % 60, second % 60);
    for (cell, digit) in cells.iter_mut().zip(text.as_bytes()) {
        cell.set_char(char::from(*digit));
    }
    let rest = &mut cells[COLUMNS - 1..];
    let is_narrow = |cell: &Cell| display_text::text_width(cell.symbol()) == 1;
    let in_word = |cell: &&Cell| cell.symbol() != " " && is_narrow(cell);
    let word = 1 + rest[1..].iter().take_while(in_word).count();
    // Half of a wide character cannot move.
    let ends = rest.get(word).is_none_or(is_narrow);
    let moved = if ends { word } else { 1 };
    rest[..moved].rotate_left(1);
    rest[moved - 1].set_symbol(" ");
}

#[cfg(test)]
mod tests {
    use ratatui::{layout::Rect, style::Style};

    use super::*;

    fn local(text: &str, offset: i32) -> String {
        let area = Rect { x: 0, y: 0, width: display_text::text_width(text) as u16, height: 1 };
        let mut buffer = Buffer::empty(area);
        buffer.set_string(0, 0, text, Style::new());
        show_local_times(&mut buffer, offset);
        buffer.content.iter().map(Cell::symbol).collect()
    }

    #[test]
    fn times_are_moved_by_the_offset_and_all_else_stays() {
        for (text, offset, shown) in [
            ("12:03:41Z ● 1 s", 7_200, "14:03:41  ● 1 s"),
            ("down since 23:30:00Z: 7 of 7", 3_600, "down since 00:30:00:  7 of 7"),
            ("(since 00:10:05Z).", -19_800, "(since 18:40:05). "),
            ("00:00:01Z to 00:00:02Z", 60, "00:01:01  to 00:01:02 "),
            ("2026-11-21T03:24:05Z", 60, "2026-11-21T03:24:05Z"),
            ("12:03:41 and 1:03:41Z", 60, "12:03:41 and 1:03:41Z"),
            ("12:03:41Z", 0, "12:03:41 "),
        ] {
            assert_eq!(local(text, offset), shown, "{text}");
        }
    }
}
