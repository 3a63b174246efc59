//! List screen: the rows of a subject as a table with the user's order, columns and filter.

use gaunt_schema::{DeviceClass, GpuState, SanitizedText, UnixMs};
use ratatui::{
    buffer::Buffer,
    layout::Rect,
    style::Style,
    text::{Line, Span},
};

use crate::{
    action::KeyIntent,
    console_state::{ClickArea, ClickTarget, ConsoleState, ScreenLayout},
    cursor::first_visible_row,
    cursor_rows, display_text,
    key_binding::{BACK, FILTER, JOB, KeyBinding, OPEN, bind},
    key_press::KeyPress,
    list_state::{ListState, identity_fields},
    screen::{
        CoverageScreen, DeviceScreen, FindingScreen, JobScreen, ListScreen, NodeScreen, Screen,
    },
    screen_view::{ScreenCommand, ScreenOutcome, ScreenView},
    theme::{self, StyleRole, Theme},
    view::{
        draw_lines,
        list_columns::{ListColumn, render_history, title_of},
        node_tables, worst_nodes,
    },
    widget::text_table,
};
use gaunt_api::{AnswerTable, Finding, Question, Subject, finding_place};

impl ScreenView for ListScreen {
    fn commands() -> &'static [ScreenCommand] {
        const {
            &[
                ScreenCommand::main(3, "jobs", "jobs, by GPUs lost", "jobs, by GPUs lost", |_| {
                    Ok(ListScreen(Subject::Jobs).into())
                }),
                ScreenCommand::main(
                    5,
                    "nodes",
                    "all nodes, worst first",
                    "nodes, worst first",
                    |_| Ok(ListScreen(Subject::Nodes).into()),
                ),
                ScreenCommand::main(6, "gpus", "all GPUs", "GPUs", |_| {
                    Ok(ListScreen(Subject::Gpus).into())
                }),
                ScreenCommand::main(
                    7,
                    "ports",
                    "all ports, worst first",
                    "ports, worst first",
                    |_| Ok(ListScreen(Subject::Ports).into()),
                ),
                ScreenCommand::main(
                    9,
                    "targets",
                    "scrape state of all targets",
                    "targets: scrape state",
                    |_| Ok(ListScreen(Subject::Targets).into()),
                ),
                ScreenCommand::other("closed", "recently closed findings", |_| {
                    Ok(ListScreen(Subject::Closed).into())
                }),
                ScreenCommand::other("processes", "processes on all GPUs", |_| {
                    Ok(ListScreen(Subject::Processes).into())
                }),
            ]
        }
    }

    fn header_title(&self) -> String {
        self.0.as_str().into()
    }

    fn keys(&self) -> &'static [&'static [KeyBinding]] {
        match self.0 {
            Subject::Gpus | Subject::Nodes | Subject::Processes => {
                &[&[OPEN, BACK, FILTER], TABLE_KEYS, &[JOB]]
            }
            Subject::Targets => &[&[OPEN, BACK, FILTER, COVERAGE], TABLE_KEYS],
            _ => &[&[OPEN, BACK, FILTER], TABLE_KEYS],
        }
    }

    fn questions(&self, state: &ConsoleState) -> Vec<Question> {
        vec![state.list_state(self.0).rows_question()]
    }

    fn shown_at(&self, state: &ConsoleState) -> Option<UnixMs> {
        state.subject_table(self.0).map(|table| table.at)
    }

    fn rows_command(&self) -> Option<&'static str> {
        Some(self.0.as_str())
    }

    fn table_subject(&self) -> Option<Subject> {
        Some(self.0)
    }

    fn item_target(&self, state: &ConsoleState) -> Option<Screen> {
        let text = |field: &str| selected_text(state, self.0, field);
        Some(match self.0 {
            Subject::Jobs => JobScreen(text("job")?).into(),
            Subject::Gpus | Subject::Processes => {
                let gpu = text("gpu")?;
                DeviceScreen::of_gpu(text("node")?, &gpu).into()
            }
            Subject::Ports => {
                let name = SanitizedText::new(&format!("{}/{}", text("device")?, text("port")?));
                DeviceScreen(text("node")?, DeviceClass::Port, name).into()
            }
            Subject::Findings | Subject::Closed => FindingScreen(text("id")?).into(),
            _ => NodeScreen(text("node")?).into(),
        })
    }

    fn item_job(&self, state: &ConsoleState) -> Option<SanitizedText> {
        selected_text(state, self.0, "job")?.split(", ").next().map(SanitizedText::new)
    }

    fn item_text(&self, state: &ConsoleState) -> Option<String> {
        state.list_state(self.0).cursor_row(state.subject_table(self.0)?)?;
        let parts = identity_fields(self.0).iter();
        let parts = parts.filter_map(|field| selected_text(state, self.0, field));
        Some(parts.map(|part| part.to_string()).collect::<Vec<_>>().join(" "))
    }

    fn handle_intent(&self, state: &mut ConsoleState, intent: KeyIntent) -> ScreenOutcome {
        if intent == KeyIntent::Coverage {
            return ScreenOutcome::Open(CoverageScreen.into());
        }
        let by = cursor_rows::row_steps(state, intent);
        let table = state.subject_table(self.0).cloned();
        let list = state.list_state_mut(self.0);
        match (intent, table) {
            (KeyIntent::SortNext, _) => list.sort_by_neighbour(true),
            (KeyIntent::SortPrevious, _) => list.sort_by_neighbour(false),
            (KeyIntent::Reverse, _) => list.reverse_order(),
            (_, Some(table)) => list.move_cursor_by(by, &table),
            (_, None) => {}
        }
        // Request distant rows when the cursor approaches them.
        ScreenOutcome::Ask
    }

    fn handle_click(&self, state: &mut ConsoleState, target: ClickTarget) -> ScreenOutcome {
        let table = state.subject_table(self.0).cloned();
        let list = state.list_state_mut(self.0);
        match (target, table) {
            (ClickTarget::Row(row), Some(table)) => {
                let again = list.cursor_position(&table) == row;
                list.move_cursor_to(row, &table);
                if again {
                    return self.open_item(state);
                }
            }
            (ClickTarget::Heading(column), _) => {
                let Some(field) = list.shown_columns().get(column).copied() else {
                    return ScreenOutcome::Unchanged;
                };
                list.sort_by(field);
            }
            _ => return ScreenOutcome::Unchanged,
        }
        ScreenOutcome::Ask
    }

    /// Draws the rows of a subject.
    ///
    /// ```text
    ///  GPUS  12 of 10,000: power>300W                                  sorted by power ▼
    ///  node      GPU  state                job    util %  power W ▼   °C  mem GiB  finding
    ///  gpu003    5    ░ waiting  8812      100        312   61     61.2
    /// ```
    fn draw(
        &self,
        buffer: &mut Buffer,
        area: Rect,
        state: &ConsoleState,
        theme: Theme,
    ) -> ScreenLayout {
        let area = match self.0 {
            Subject::Targets => draw_source_troubles(buffer, area, state, theme),
            _ => area,
        };
        let Some(table) = state.subject_table(self.0).map(|table| &**table) else {
            let what = format!("the {}", self.0.as_str());
            return self.draw_waiting(buffer, area, &what, state, theme);
        };
        let list = state.list_state(self.0);
        let width = usize::from(area.width);
        let mut shown: Vec<ListColumn<'_>> = list
            .shown_columns()
            .into_iter()
            .enumerate()
            .filter_map(|(at, field)| ListColumn::of(at, field, table, theme.units()))
            .collect();
        let sorted_by = list.sort.map(|(field, _)| field);
        let is_sorted = |column: &ListColumn<'_>| sorted_by == Some(column.field);
        let mut columns: Vec<text_table::ColumnLayout> =
            shown.iter().map(|column| column.layout_when(is_sorted(column))).collect();
        let sorted = shown.iter().position(is_sorted);
        text_table::make_room(&mut columns, &mut shown, sorted, width.saturating_sub(2));
        let (fits, used) = text_table::fit_columns(&columns, width.saturating_sub(2));
        columns.truncate(fits);
        let shown = &shown[..fits];
        // A sentence at the end has all space that is left.
        if let Some((last, layout)) = shown.last().zip(columns.last_mut())
            && last.field.name == "summary"
        {
            layout.width += width.saturating_sub(2 + used);
        }
        let columns = &columns[..];
        let mut click_areas = Vec::new();
        let mut lines = vec![render_title(table, list, width, theme)];
        lines.push(render_heading(
            shown,
            columns,
            list,
            theme,
            (area.x, area.y + 1),
            &mut click_areas,
        ));
        let height = usize::from(area.height).saturating_sub(lines.len());
        if table.matched == 0 {
            lines.push(Line::default());
            lines.push(Line::styled(
                format!(" {}", empty_reason(table)),
                theme.style_for(StyleRole::Dim),
            ));
        }
        let findings = state.data.overview.as_deref().map_or(&[][..], |it| &it.findings);
        let at = list.cursor_position(table);
        let (offset, rows) = (table.offset as usize, table.rows as usize);
        let from = first_visible_row(at.saturating_sub(offset), rows, height);
        for row in from..(from + height).min(rows) {
            let y = area.y + lines.len() as u16;
            let area = Rect { y, height: 1, ..area };
            click_areas.push(ClickArea { area, target: ClickTarget::Row(offset + row) });
            let chosen = offset + row == at;
            let cells = shown.iter().enumerate().map(|(number, column)| {
                let (text, style) = render_cell(column, table, row, findings, theme);
                let marked = chosen && number == 0;
                (text, if marked { theme::selected_style(style) } else { style })
            });
            lines.push(text_table::render_row(columns, cells));
        }
        draw_lines(buffer, area, &lines);
        ScreenLayout { page: height, click_areas, ..ScreenLayout::default() }
    }
}

/// Texts about target sources and site files below the targets, in a quarter of the screen at most; the overview and the
/// API have all of them.
const SOURCE_TROUBLES: usize = 3;

/// Draws what is wrong with target sources and site files at the bottom, then what a queried server is asked; returns
/// the area above.
fn draw_source_troubles(
    buffer: &mut Buffer,
    area: Rect,
    state: &ConsoleState,
    theme: Theme,
) -> Rect {
    let overviews = || state.data.overview.iter();
    let troubles = overviews().flat_map(|overview| &overview.source_trouble);
    let troubles = troubles.map(|text| ("▲", StyleRole::Waiting, text));
    let notes = overviews().flat_map(|overview| &overview.source_notes);
    let notes = notes.map(|text| ("·", StyleRole::Dim, text));
    let width = usize::from(area.width).saturating_sub(4);
    let lines: Vec<Line<'_>> = troubles
        .chain(notes)
        .take(SOURCE_TROUBLES)
        .flat_map(|(mark, role, text)| {
            let wrapped = display_text::wrap_text(text, width).into_iter().enumerate();
            wrapped.map(move |(number, part)| {
                let mark = if number == 0 { mark } else { " " };
                Line::styled(format!(" {mark} {part}"), theme.style_for(role))
            })
        })
        .take(usize::from(area.height) / 4)
        .collect();
    let height = lines.len() as u16;
    let below = Rect { y: area.bottom() - height, height, ..area };
    draw_lines(buffer, below, &lines);
    Rect { height: area.height - height, ..area }
}

/// Opens the coverage screen.
const COVERAGE: KeyBinding =
    bind(&[KeyPress::Char('v')], "v", KeyIntent::Coverage, "missing telemetry", Some("coverage"));

/// Keys of the order and the columns.
const TABLE_KEYS: &[KeyBinding] = &[
    bind(
        &[KeyPress::Char('>'), KeyPress::Char('s')],
        "s >",
        KeyIntent::SortNext,
        "sort by the next column",
        Some("sort"),
    ),
    bind(
        &[KeyPress::Char('<'), KeyPress::Char('S')],
        "S <",
        KeyIntent::SortPrevious,
        "sort by the previous column",
        None,
    ),
    bind(&[KeyPress::Char('r')], "r", KeyIntent::Reverse, "reverse the sort order", None),
    bind(
        &[KeyPress::Char('c')],
        "c",
        KeyIntent::Columns,
        "choose and save columns",
        Some("columns"),
    ),
];

/// Returns a field of the row under the cursor.
fn selected_text(state: &ConsoleState, subject: Subject, field: &str) -> Option<SanitizedText> {
    let table = state.subject_table(subject)?;
    let row = state.list_state(subject).cursor_row(table)?;
    table.find_column(field)?.text_at(row).cloned()
}

/// Returns why there are no rows.
fn empty_reason(table: &AnswerTable) -> String {
    let what = table.subject.as_str();
    if table.total > 0 {
        return format!(
            "0 of {} {what} match; Esc clears the filter, / enters another",
            display_text::format_count(table.total.into())
        );
    }
    match table.subject {
        Subject::Jobs => "no job with GPUs, or no job source: see [jobs] in the settings".into(),
        Subject::Ports => "no node has an RDMA port".into(),
        Subject::Processes => "no GPU process is listed: none runs, or gaunt-node may not list them; past ones are not kept".into(),
        Subject::Gpus => "no node has a GPU".into(),
        Subject::Closed => "no closed finding".into(),
        _ => format!("no {what}"),
    }
}

fn render_title(
    table: &AnswerTable,
    list: &ListState,
    width: usize,
    theme: Theme,
) -> Line<'static> {
    let name = table.subject.as_str().to_uppercase();
    let (matched, total) = (
        display_text::format_count(table.matched.into()),
        display_text::format_count(table.total.into()),
    );
    let count = if list.rows.is_empty() { total } else { format!("{matched} of {total}") };
    let order = list.sort.map_or_else(
        || match table.subject {
            Subject::Nodes | Subject::Findings | Subject::Ports => "worst first ".to_owned(),
            Subject::Closed => "newest first ".to_owned(),
            _ => "by name ".to_owned(),
        },
        |(field, descending)| format!("by {} {} ", title_of(field), sort_arrow(descending)),
    );
    let filter = if list.rows.is_empty() { String::new() } else { format!(": {}", list.rows) };
    let head = format!(" {name}  ");
    let available =
        width.saturating_sub(display_text::text_width(&head) + display_text::text_width(&order));
    Line::from(vec![
        Span::styled(head, theme.style_for(StyleRole::Title)),
        Span::raw(display_text::align_left(&format!("{count}{filter}"), available)),
        Span::styled(order, theme.style_for(StyleRole::Dim)),
    ])
}

const fn sort_arrow(descending: bool) -> &'static str {
    if descending { "▼" } else { "▲" }
}

fn render_heading(
    shown: &[ListColumn<'_>],
    columns: &[text_table::ColumnLayout],
    list: &ListState,
    theme: Theme,
    (x, y): (u16, u16),
    click_areas: &mut Vec<ClickArea>,
) -> Line<'static> {
    let mut left = x + 1;
    for (column, layout) in shown.iter().zip(columns) {
        let width = layout.width as u16;
        let area = Rect { x: left, y, width, height: 1 };
        click_areas.push(ClickArea { area, target: ClickTarget::Heading(column.position) });
        left += width + 2;
    }
    let style = theme.style_for(StyleRole::Title);
    let names = shown.iter().zip(columns).map(|(column, layout)| {
        let mark = list.sort.filter(|(field, _)| *field == column.field);
        match mark {
            None => (column.title.clone(), style),
            Some((_, descending)) => {
                let available = layout.width.saturating_sub(1);
                (
                    format!(
                        "{}{}",
                        display_text::truncate_text(&column.title, available),
                        sort_arrow(descending)
                    ),
                    style,
                )
            }
        }
    });
    text_table::render_row(columns, names)
}

/// Renders one cell.
fn render_cell(
    column: &ListColumn<'_>,
    table: &AnswerTable,
    row: usize,
    findings: &[Finding],
    theme: Theme,
) -> (String, Style) {
    let name = column.field.name.as_str();
    let plain = Style::new();
    let Some(text) = column.column.text_at(row) else {
        return render_number(column, row, theme);
    };
    match (name, table.subject) {
        ("state", Subject::Gpus) => match GpuState::parse(text) {
            Some(state) => {
                let words = format!("{} {}", theme::state_sign(state), state.as_str());
                (words, theme.state_style(state))
            }
            None => (text.to_string(), plain),
        },
        ("state" | "severity", _) => (text.to_string(), theme.style_for(state_word_role(text))),
        ("gpu_states", _) => {
            let states = text.chars().filter_map(GpuState::from_letter_code);
            let worst = states.max_by_key(|state| theme::state_rank(*state));
            (
                worst_nodes::gpu_state_signs(text),
                worst.map_or(plain, |state| theme.state_style(state)),
            )
        }
        ("recent_power", _) => (render_history(text), theme.style_for(StyleRole::Neutral)),
        ("finding", Subject::Gpus | Subject::Nodes) => {
            let part = |field| table.find_column(field)?.text_at(row).map(SanitizedText::as_str);
            let (node, gpu) = (part("node").unwrap_or_default(), part("gpu"));
            worst_nodes::render_finding(
                text,
                finding_place::is_elsewhere(findings, text, node, gpu),
                theme,
            )
        }
        ("finding" | "failure", _) => (text.to_string(), theme.style_for(StyleRole::Bad)),
        _ => (text.to_string(), plain),
    }
}

/// Returns the style role of a state name.
fn state_word_role(word: &str) -> StyleRole {
    match word {
        "live" | "active" => StyleRole::Dim,
        "stale" | "pending" | "armed" | "initializing" | "warning" => StyleRole::Waiting,
        "down" | "critical" => StyleRole::Bad,
        _ => StyleRole::Plain,
    }
}

fn render_number(column: &ListColumn<'_>, row: usize, theme: Theme) -> (String, Style) {
    let dim = theme.style_for(StyleRole::Dim);
    if column.field.is_text() {
        return (String::new(), dim);
    }
    let Some(value) = column.column.number_at(row).filter(|value| value.is_finite()) else {
        return (node_tables::absence_label(column.column.absent_reason(row)).into(), dim);
    };
    let bad = value > 0.0 && WRONG.contains(&column.field.name.as_str());
    let style = if bad { theme.style_for(StyleRole::Bad) } else { Style::new() };
    (column.render_number(value), style)
}

/// Fields for which any value above zero is a fault.
const WRONG: [&str; 10] = [
    "lost",
    "symbol_errors",
    "link_downed",
    "link_error_recovery",
    "receive_errors",
    "rejected",
    "missed",
    "transmit_discards",
    "ecc_uncorrected",
    "packet_sequence_errors",
];
