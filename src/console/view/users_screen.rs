//! Users screen: what the jobs of each user hold and lose.

use ratatui::{buffer::Buffer, layout::Rect, style::Style, text::Line};

use super::{draw_lines, placeholders};
use crate::{
    console_state::{ClickArea, ClickTarget, ConsoleState, ScreenLayout},
    cursor::first_visible_row,
    display_text,
    theme::{self, StyleRole, Theme},
    user_totals::UserTotals,
    widget::text_table::{self, number_column, text_column},
};

/// Draws one line per user, the largest loss first.
///
/// ```text
///  USERS         jobs   GPUs   lost  useful %  power W  accounts
///  alice            2    192     60        69   90,000  llm, vision
/// ```
pub(super) fn draw(
    buffer: &mut Buffer,
    area: Rect,
    state: &ConsoleState,
    theme: Theme,
) -> ScreenLayout {
    let Some(jobs) = state.data.users.as_deref() else {
        draw_lines(
            buffer,
            area,
            &placeholders::render_waiting("the jobs", state, area.width, theme),
        );
        return ScreenLayout::default();
    };
    let rolls = UserTotals::of(jobs);
    let at = state.cursors.users.row_index(rolls.len(), |at| &rolls[at].name);
    let room = usize::from(area.width).saturating_sub(20 + 6 + 8 + 8 + 8 + 9 + 7 * 2);
    let columns = [
        text_column("USERS", 20),
        number_column("jobs", 6),
        number_column("GPUs", 8),
        number_column("lost", 8),
        number_column("useful %", 8),
        number_column("power W", 9),
        text_column("account", room),
    ];
    let mut lines = vec![text_table::render_heading(&columns, theme.style_for(StyleRole::Title))];
    if rolls.is_empty() {
        let text = " no job with GPUs, or no job source: see [jobs] in the settings";
        lines.extend([Line::default(), Line::styled(text, theme.style_for(StyleRole::Dim))]);
    }
    let page = usize::from(area.height).saturating_sub(1);
    let from = first_visible_row(at, rolls.len(), page);
    let mut spots = Vec::new();
    for (row, roll) in rolls.iter().enumerate().skip(from).take(page) {
        let y = area.y + lines.len() as u16;
        spots
            .push(ClickArea { area: Rect { y, height: 1, ..area }, target: ClickTarget::Row(row) });
        lines.push(text_table::render_row(&columns, user_cells(roll, row == at, theme)));
    }
    draw_lines(buffer, area, &lines);
    ScreenLayout { page, click_areas: spots, ..ScreenLayout::default() }
}

fn user_cells(roll: &UserTotals, chosen: bool, theme: Theme) -> [(String, Style); 7] {
    let plain = Style::new();
    let name = if roll.name.is_empty() { "(unknown)".to_owned() } else { roll.name.clone() };
    let useful = (roll.gpus > 0.0).then(|| (roll.gpus - roll.lost) / roll.gpus);
    let lost = if roll.lost > 0.0 { theme.style_for(StyleRole::Bad) } else { plain };
    [
        (name, if chosen { theme::selected_style(plain) } else { plain }),
        (display_text::format_count(roll.jobs as u64), plain),
        (display_text::format_gpu_count(roll.gpus), plain),
        (display_text::format_gpu_count(roll.lost), lost),
        (display_text::format_whole_percent(useful), plain),
        (
            roll.power
                .map_or_else(|| display_text::ABSENT.into(), display_text::format_signed_count),
            plain,
        ),
        (roll.accounts.join(", "), theme.style_for(StyleRole::Dim)),
    ]
}
