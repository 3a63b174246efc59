//! Encodes changed cells for a terminal in as few bytes as possible, for slow links.

use std::{fmt, io};

use crossterm::{
    Command,
    cursor::{MoveRight, MoveTo},
    queue,
    style::Print,
};
use ratatui::{
    buffer::{Buffer, Cell},
    style::{Color, Modifier},
};

use crate::display_text;

/// Modifiers that themes use, with their SGR numbers. Dim is not used: terminals differ in it beside bold.
const MODIFIERS: [(Modifier, &str); 3] =
    [(Modifier::BOLD, "1;"), (Modifier::UNDERLINED, "4;"), (Modifier::REVERSED, "7;")];

/// Length of the shortest sequence that moves the cursor within a line.
const MOVE_BYTES: usize = 4;

/// Style of a cell.
#[derive(Clone, Copy, PartialEq)]
struct TerminalStyle {
    front: Color,
    back: Color,
    modifier: Modifier,
}

/// Default style of the terminal.
const PLAIN: TerminalStyle =
    TerminalStyle { front: Color::Reset, back: Color::Reset, modifier: Modifier::empty() };

impl TerminalStyle {
    fn of_cell(cell: &Cell) -> Self {
        Self { front: cell.fg, back: cell.bg, modifier: cell.modifier }
    }
}

/// Writes the changes between two frames of one size; the style is plain before and after.
pub(super) fn write_changes(out: &mut Vec<u8>, shown: &Buffer, next: &Buffer) -> io::Result<()> {
    let mut current = PLAIN;
    // The known position of the terminal's cursor.
    let mut position: Option<(u16, u16)> = None;
    for (x, y, cell) in changed_cells(shown, next) {
        let target = TerminalStyle::of_cell(cell);
        match position {
            Some((at, line)) if line == y => {
                let gap = &next.content[next.index_of(at, y)..next.index_of(x, y)];
                current = write_gap(out, gap, current, target)?;
            }
            _ if x == 0 => queue!(out, MoveToLine(y))?,
            _ => queue!(out, MoveTo(x, y))?,
        }
        queue!(out, StyleChange { from: current, to: target }, Print(cell.symbol()))?;
        current = target;
        // Terminals differ in the width of unusual characters and in the cursor position after the last column.
        position = (display_text::text_width(cell.symbol()) == 1).then_some((x + 1, y));
    }
    queue!(out, StyleChange { from: current, to: PLAIN })
}

/// Moves the cursor over unchanged cells, or writes them again if that is shorter and needs no style besides these two.
/// Returns the style afterwards.
fn write_gap(
    out: &mut Vec<u8>,
    gap: &[Cell],
    current: TerminalStyle,
    target: TerminalStyle,
) -> io::Result<TerminalStyle> {
    let is_short = gap.len() < MOVE_BYTES
        && gap.iter().map(|cell| cell.symbol().len()).sum::<usize>() < MOVE_BYTES
        && gap.iter().all(|cell| display_text::text_width(cell.symbol()) == 1);
    let fits = |style: &TerminalStyle| {
        is_short && gap.iter().all(|cell| TerminalStyle::of_cell(cell) == *style)
    };
    let Some(style) = [current, target].into_iter().find(fits) else {
        match gap.len() {
            // The same, and a byte shorter.
            1 => queue!(out, Print("\x1b[C"))?,
            cells => queue!(out, MoveRight(cells as u16))?,
        }
        return Ok(current);
    };
    queue!(out, StyleChange { from: current, to: style })?;
    gap.iter().try_for_each(|cell| queue!(out, Print(cell.symbol())))?;
    Ok(style)
}

/// Returns the changed cells, line by line and from left to right. Beside a removed wide character, the half that a
/// terminal blanks is drawn again too.
fn changed_cells<'a>(
    shown: &'a Buffer,
    next: &'a Buffer,
) -> impl Iterator<Item = (u16, u16, &'a Cell)> {
    let columns = usize::from(next.area.width.max(1));
    let more = |cell: &Cell| display_text::text_width(cell.symbol()).saturating_sub(1);
    // Upcoming columns that the previous character covers, and those where it blanks half of another one.
    let (mut covered, mut blanked) = (0_usize, 0_usize);
    let cells = shown.content.iter().zip(&next.content).enumerate();
    cells.filter_map(move |(at, (old, new))| {
        let (x, y) = ((at % columns) as u16, (at / columns) as u16);
        if x == 0 {
            (covered, blanked) = (0, 0);
        }
        let is_covered = covered > 0;
        let differs = blanked > 0 || old != new;
        (covered, blanked) = (covered.saturating_sub(1), blanked.saturating_sub(1));
        if differs {
            blanked = blanked.max(more(old));
        }
        if is_covered {
            return None;
        }
        covered = more(new);
        differs.then_some((x, y, new))
    })
}

/// Moves the cursor to the begin of a line; shorter than [`MoveTo`].
struct MoveToLine(u16);

impl Command for MoveToLine {
    fn write_ansi(&self, out: &mut impl fmt::Write) -> fmt::Result {
        write!(out, "\x1b[{}H", self.0 + 1)
    }
}

/// Changes the style: adds attributes, or resets first if an attribute is removed. One sequence for all of it, and the
/// short numbers of the 16 colours: crossterm's commands are longer.
struct StyleChange {
    from: TerminalStyle,
    to: TerminalStyle,
}

impl Command for StyleChange {
    fn write_ansi(&self, out: &mut impl fmt::Write) -> fmt::Result {
        let (from, to) = (self.from, self.to);
        if from == to {
            return Ok(());
        }
        let anew = to == PLAIN || !to.modifier.contains(from.modifier);
        let from = if anew { PLAIN } else { from };
        let mut numbers = if anew && to != PLAIN { "0;".to_owned() } else { String::new() };
        for (modifier, number) in MODIFIERS {
            if (to.modifier - from.modifier).contains(modifier) {
                numbers.push_str(number);
            }
        }
        if to.front != from.front {
            numbers.push_str(&sgr_colour(to.front, 30));
        }
        if to.back != from.back {
            numbers.push_str(&sgr_colour(to.back, 40));
        }
        if anew || !numbers.is_empty() {
            write!(out, "\x1b[{}m", numbers.trim_end_matches(';'))?;
        }
        Ok(())
    }
}

/// Returns the SGR numbers of a colour; `base` is the number of black.
fn sgr_colour(colour: Color, base: u8) -> String {
    let plain = match colour {
        Color::Rgb(red, green, blue) => return format!("{};2;{red};{green};{blue};", base + 8),
        Color::Indexed(index) => return format!("{};5;{index};", base + 8),
        Color::Reset => 9,
        Color::Black => 0,
        Color::Red => 1,
        Color::Green => 2,
        Color::Yellow => 3,
        Color::Blue => 4,
        Color::Magenta => 5,
        Color::Cyan => 6,
        Color::Gray => 7,
        Color::DarkGray => 60,
        Color::LightRed => 61,
        Color::LightGreen => 62,
        Color::LightYellow => 63,
        Color::LightBlue => 64,
        Color::LightMagenta => 65,
        Color::LightCyan => 66,
        Color::White => 67,
    };
    format!("{};", base + plain)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use ratatui::{layout::Rect, style::Style};

    use super::*;

    const AREA: Rect = Rect { x: 0, y: 0, width: 12, height: 3 };

    fn changes_between(from: &Buffer, to: &Buffer) -> Vec<u8> {
        let mut out = Vec::new();
        write_changes(&mut out, from, to).unwrap();
        out
    }

    #[test]
    fn adjacent_cells_need_no_cursor_moves_and_gaps_few() {
        let empty = Buffer::empty(AREA);
        let mut next = empty.clone();
        next.set_string(0, 0, "ab", Style::new());
        next.set_string(3, 0, "c", Style::new().fg(Color::Indexed(34)));
        next.set_string(8, 0, "d", Style::new().fg(Color::Indexed(34)));
        next.set_string(2, 1, "e", Style::new().add_modifier(Modifier::BOLD));
        let bytes = changes_between(&empty, &next);
        let text = "\x1b[1Hab \x1b[38;5;34mc\x1b[4Cd\x1b[2;3H\x1b[1;39me\x1b[m";
        assert_eq!(String::from_utf8(bytes).unwrap(), text);
        assert!(changes_between(&next, &next).is_empty(), "unchanged cells are not written");
    }

    /// A fleet in which nothing happens: power, utilization and losses vary a little, and the time bar moves by one
    /// point in ten seconds.
    #[test]
    fn calm_overview_of_a_large_fleet_costs_few_bytes() {
        use crate::{
            action::ConsoleAction,
            console_state::ConsoleState,
            preferences::ConsolePreferences,
            sample_answers::{self, AT},
            screen_frame,
            theme::{ColourDepth, GlyphSet, Theme},
            update::apply_action,
        };
        use gaunt_api::{Answer, Question};
        let theme = Theme::new(ColourDepth::Indexed, GlyphSet::Unicode, |_| None);
        let mut state = ConsoleState::new(None, AT, ConsolePreferences::default());
        let mut shown = Buffer::empty(Rect { x: 0, y: 0, width: 200, height: 50 });
        let (mut bytes, seconds) = (0, 30);
        for second in 0..=seconds {
            let vary = |of: i64| ((second * 7_919 + of * 104_729) % 41) as f64 - 20.0;
            let mut overview = sample_answers::two_faults_overview(12_500);
            overview.at = gaunt_schema::UnixMs(AT.0 + second * 1_000);
            overview.lost.gpus += vary(0);
            let points = (0..90_i64).map(|point| {
                let point = (point + second / 10) as f32;
                Some(2_000.0 + 500.0 * (point / 40.0).sin() + 60.0 * (point * 1.7).sin())
            });
            overview.lost.history = points.collect();
            let names = (0..32).map(|node| format!("gpu{node:05}"));
            let line = overview.worst[1].clone();
            let worst = names
                .map(|name| gaunt_api::NodeLine { node: name.as_str().into(), ..line.clone() });
            overview.worst = worst.collect();
            for (of, line) in (1..).zip(&mut overview.worst) {
                line.power_watts = line.power_watts.map(|watts| watts + vary(of));
                line.utilization_ratio = Some(0.97 + vary(of) / 1_000.0);
            }
            let answer = Answer::Overview(std::sync::Arc::new(overview));
            let action = ConsoleAction::Answered(
                gaunt_schema::UnixMs(AT.0 + second * 1_000),
                Box::new(Question::Overview),
                answer,
            );
            apply_action(&mut state, action);
            let mut next = Buffer::empty(shown.area);
            state.layout = screen_frame::draw(&mut next, &state, theme);
            if second > 0 {
                bytes += changes_between(&shown, &next).len();
            }
            shown = next;
        }
        let each = bytes / seconds as usize;
        assert!(each <= 400, "{each} bytes a frame");
    }

    fn any_style() -> impl Strategy<Value = Style> {
        let colour = prop_oneof![
            Just(Color::Reset),
            Just(Color::Red),
            Just(Color::LightBlue),
            any::<u8>().prop_map(Color::Indexed),
            any::<[u8; 3]>().prop_map(|[r, g, b]| Color::Rgb(r, g, b)),
        ];
        let modifier = proptest::sample::subsequence(MODIFIERS.map(|(m, _)| m).to_vec(), 0..=3);
        (colour.clone(), colour, modifier).prop_map(|(front, back, modifiers)| {
            let style = Style::new().fg(front).bg(back);
            modifiers.into_iter().fold(style, Style::add_modifier)
        })
    }

    type StyledText = (u16, u16, String, Style);

    fn any_texts() -> impl Strategy<Value = Vec<StyledText>> {
        let sign = prop_oneof!["[a-z█░ ]{1,5}", Just("東京".to_owned()), Just("é".to_owned())];
        proptest::collection::vec((0..12_u16, 0..3_u16, sign, any_style()), 0..8)
    }

    fn text_buffer(texts: &[StyledText]) -> Buffer {
        let mut buffer = Buffer::empty(AREA);
        for (x, y, text, style) in texts {
            buffer.set_string(*x, *y, text, *style);
        }
        buffer
    }

    proptest! {
        #[test]
        fn terminal_shows_the_same_after_changes_as_after_a_full_redraw(
            before in any_texts(),
            after in any_texts(),
        ) {
            let (empty, before, after) = (Buffer::empty(AREA), text_buffer(&before), text_buffer(&after));
            let mut incremental = vt100::Parser::new(AREA.height, AREA.width, 0);
            incremental.process(&changes_between(&empty, &before));
            incremental.process(&changes_between(&before, &after));
            let mut redrawn = vt100::Parser::new(AREA.height, AREA.width, 0);
            redrawn.process(&changes_between(&empty, &after));
            let cells = |parser: &vt100::Parser| -> Vec<Option<vt100::Cell>> {
                let positions = (0..AREA.height).flat_map(|y| (0..AREA.width).map(move |x| (y, x)));
                positions.map(|(y, x)| parser.screen().cell(y, x).cloned()).collect()
            };
            let visible_cells = |parser: &vt100::Parser| -> Vec<_> {
                cells(parser).into_iter().flatten().map(|cell| {
                    let text = cell.contents().trim_end().to_owned();
                    (text, cell.fgcolor(), cell.bgcolor(), cell.bold(), cell.inverse(), cell.underline())
                }).collect()
            };
            prop_assert_eq!(visible_cells(&incremental), visible_cells(&redrawn));
        }
    }
}
