//! Users screen: what the jobs of each user hold and lose.

use gaunt_schema::UnixMs;
use ratatui::{buffer::Buffer, layout::Rect, style::Style, text::Line};

use crate::{
    console_state::{ClickArea, ClickTarget, ConsoleState, ScreenLayout},
    cursor::first_visible_row,
    cursor_rows::CursorRows,
    display_text,
    key_binding::{BACK, KeyBinding, OPEN},
    screen::{ListScreen, Screen, UsersScreen},
    screen_view::{ScreenCommand, ScreenOutcome, ScreenView},
    theme::{self, StyleRole, Theme},
    user_totals::{UserTotals, users_question},
    view::draw_lines,
    widget::text_table::{self, number_column, text_column},
};
use gaunt_api::{Question, Subject};

/// Name of the cursor in the users.
const CURSOR: &str = "users";

impl ScreenView for UsersScreen {
    fn commands() -> &'static [ScreenCommand] {
        const {
            &[ScreenCommand::main(8, "users", "users, by GPUs lost", "users and accounts", |_| {
                Ok(UsersScreen.into())
            })]
        }
    }

    fn header_title(&self) -> String {
        "users".into()
    }

    fn keys(&self) -> &'static [&'static [KeyBinding]] {
        &[&[OPEN, BACK]]
    }

    fn questions(&self, _state: &ConsoleState) -> Vec<Question> {
        vec![users_question()]
    }

    fn shown_at(&self, state: &ConsoleState) -> Option<UnixMs> {
        state.data.users.as_deref().map(|table| table.at)
    }

    fn row_counts(&self, state: &ConsoleState) -> Option<(u64, u64, &'static str)> {
        let table = state.data.users.as_deref()?;
        Some((table.rows.into(), table.matched.into(), "jobs"))
    }

    fn cursor_rows(&self, state: &ConsoleState) -> Option<CursorRows> {
        let totals = state.data.users.as_deref().map_or_else(Vec::new, UserTotals::of);
        let keys = totals.into_iter().map(|user| user.name).collect();
        Some(CursorRows { cursor: CURSOR, keys })
    }

    fn item_target(&self, state: &ConsoleState) -> Option<Screen> {
        selected_filter(state).map(|_| ListScreen(Subject::Jobs).into())
    }

    /// Opens the jobs of the user.
    fn open_item(&self, state: &mut ConsoleState) -> ScreenOutcome {
        ScreenOutcome::open_filtered_list(state, Subject::Jobs, selected_filter(state))
    }

    /// Draws one line per user, the largest loss first.
    ///
    /// ```text
    ///  USERS         jobs   GPUs   lost  useful %  power W  accounts
    ///  alice            2    192     60        69   90,000  llm, vision
    /// ```
    fn draw(
        &self,
        buffer: &mut Buffer,
        area: Rect,
        state: &ConsoleState,
        theme: Theme,
    ) -> ScreenLayout {
        let Some(jobs) = state.data.users.as_deref() else {
            return self.draw_waiting(buffer, area, "the jobs", state, theme);
        };
        let rolls = UserTotals::of(jobs);
        let at = state.cursors.of(CURSOR).row_index(rolls.len(), |at| &rolls[at].name);
        let account_width = usize::from(area.width).saturating_sub(20 + 6 + 8 + 8 + 8 + 9 + 7 * 2);
        let columns = [
            text_column("USERS", 20),
            number_column("jobs", 6),
            number_column("GPUs", 8),
            number_column("GPUs lost", 9),
            number_column("useful %", 8),
            number_column("power W", 9),
            text_column("account", account_width),
        ];
        let mut lines =
            vec![text_table::render_heading(&columns, theme.style_for(StyleRole::Title))];
        if rolls.is_empty() {
            let text = " no job with GPUs, or no job source: see [jobs] in the settings";
            lines.extend([Line::default(), Line::styled(text, theme.style_for(StyleRole::Dim))]);
        }
        let page = usize::from(area.height).saturating_sub(1);
        let from = first_visible_row(at, rolls.len(), page);
        let mut click_areas = Vec::new();
        for (row, roll) in rolls.iter().enumerate().skip(from).take(page) {
            let y = area.y + lines.len() as u16;
            click_areas.push(ClickArea {
                area: Rect { y, height: 1, ..area },
                target: ClickTarget::Row(row),
            });
            lines.push(text_table::render_row(&columns, user_cells(roll, row == at, theme)));
        }
        draw_lines(buffer, area, &lines);
        ScreenLayout { page, click_areas, ..ScreenLayout::default() }
    }
}

/// Returns the filter for the jobs of the user under the cursor.
fn selected_filter(state: &ConsoleState) -> Option<String> {
    let rolls = UserTotals::of(state.data.users.as_deref()?);
    let at = state.cursors.of(CURSOR).row_index(rolls.len(), |at| &rolls[at].name);
    rolls.get(at).map(UserTotals::jobs_filter)
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
