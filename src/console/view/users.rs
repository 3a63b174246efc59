//! Users: what the jobs of each hold and lose.

use ratatui::{buffer::Buffer, layout::Rect, style::Style, text::Line};

use super::{hints, put};
use crate::console::{
    cursor::window,
    format,
    state::{Room, Spot, State, What},
    theme::{self, Meaning, Theme},
    users::Roll,
    widget::table::{self, number, text},
};

/// Draws one line for each user, those who lose most first.
///
/// ```text
///  USERS         jobs   GPUs   lost  useful %  power W  accounts
///  alice            2    192     60        69   90,000  llm, vision
/// ```
pub(super) fn draw(buffer: &mut Buffer, area: Rect, state: &State, theme: Theme) -> Room {
    let Some(jobs) = state.data.users.as_deref() else {
        put(buffer, area, &hints::waiting_for("the jobs", state, area.width, theme));
        return Room::default();
    };
    let rolls = Roll::of(jobs);
    let at = state.at.users.index(rolls.len(), |at| &rolls[at].name);
    let room = usize::from(area.width).saturating_sub(20 + 6 + 8 + 8 + 8 + 9 + 7 * 2);
    let columns = [
        text("USERS", 20),
        number("jobs", 6),
        number("GPUs", 8),
        number("lost", 8),
        number("useful %", 8),
        number("power W", 9),
        text("account", room),
    ];
    let mut lines = vec![table::heading(&columns, theme.style(Meaning::Title))];
    if rolls.is_empty() {
        let text = " no job holds a GPU now, or nobody says so: see [jobs] in the settings";
        lines.extend([Line::default(), Line::styled(text, theme.style(Meaning::Dim))]);
    }
    let page = usize::from(area.height).saturating_sub(1);
    let from = window(at, rolls.len(), page);
    let mut spots = Vec::new();
    for (row, roll) in rolls.iter().enumerate().skip(from).take(page) {
        let y = area.y + lines.len() as u16;
        spots.push(Spot { area: Rect { y, height: 1, ..area }, what: What::Row(row) });
        lines.push(table::row(&columns, cells(roll, row == at, theme)));
    }
    put(buffer, area, &lines);
    Room { page, spots, ..Room::default() }
}

fn cells(roll: &Roll, chosen: bool, theme: Theme) -> [(String, Style); 7] {
    let plain = Style::new();
    let name = if roll.name.is_empty() { "(not known)".to_owned() } else { roll.name.clone() };
    let useful = (roll.gpus > 0.0).then(|| (roll.gpus - roll.lost) / roll.gpus);
    let lost = if roll.lost > 0.0 { theme.style(Meaning::Bad) } else { plain };
    [
        (name, if chosen { theme::selected(plain) } else { plain }),
        (format::count(roll.jobs as u64), plain),
        (format::gpus(roll.gpus), plain),
        (format::gpus(roll.lost), lost),
        (format::whole_percent(useful), plain),
        (roll.power.map_or_else(|| format::ABSENT.into(), format::count_signed), plain),
        (roll.accounts.join(", "), theme.style(Meaning::Dim)),
    ]
}
