//! Columns of lists: short titles with units, stable widths, and formatted numbers.

use std::time::Duration;

use gaunt_schema::unit::Unit;

use crate::{
    display_text,
    display_units::DisplayUnits,
    widget::{sparkline, text_table},
};
use gaunt_api::{
    AnswerColumn, AnswerTable, FieldKind, Subject, SubjectField, answer_table::HISTORY_COLUMNS,
};

/// Column of a shown table.
pub(crate) struct ListColumn<'a> {
    /// Index among the requested columns.
    pub(crate) position: usize,
    /// Field of the column.
    pub(crate) field: &'static SubjectField,
    /// Cells of the column.
    pub(crate) column: &'a AnswerColumn,
    /// Title, with the unit.
    pub(crate) title: String,
    /// Width and alignment.
    pub(crate) layout: text_table::ColumnLayout,
    /// Units of the numbers.
    units: DisplayUnits,
}

/// Short titles of fields that occur in several tables.
const TITLES: [(&str, &str); 26] = [
    ("lost", "GPUs lost"),
    ("recent_power", "power, last 5m"),
    ("gpu", "GPU"),
    ("gpus", "GPUs"),
    ("gpu_states", "per GPU"),
    ("utilization", "util"),
    ("gpu_utilization", "util"),
    ("gpu_power", "power"),
    ("memory", "mem"),
    ("memory_used", "mem"),
    ("temperature", "temp"),
    ("sm_active", "SM"),
    ("tensor_active", "tensor"),
    ("sm_clock", "clock"),
    ("ports_active", "up"),
    ("io_pressure_some", "IO PSI"),
    ("job_name", "name"),
    ("symbol_errors", "symb err/s"),
    ("link_downed", "downs/s"),
    ("ecn_marked_packets", "ECN/s"),
    ("receive", "in"),
    ("transmit", "out"),
    ("rate", "line"),
    ("useful", "useful"),
    ("confidence", "conf"),
    ("closed", "closed ago"),
];

/// Text columns with a special width.
const WIDTHS: [(&str, usize); 17] = [
    ("recent_power", HISTORY_COLUMNS),
    ("gpu", 3),
    ("port", 4),
    ("rail", 6),
    ("state", 12),
    ("finding", 21),
    ("device", 10),
    ("leaf", 12),
    ("rack", 8),
    ("user", 10),
    ("account", 10),
    ("failure", 12),
    ("dialect", 9),
    ("model", 22),
    ("entity", 28),
    ("summary", 60),
    ("severity", 8),
];

/// Minimum and maximum width of a name column.
const NAMES: (usize, usize) = (8, 24);

impl<'a> ListColumn<'a> {
    /// Creates the column of a field, if the table contains it.
    pub(crate) fn of(
        position: usize,
        field: &'static SubjectField,
        table: &'a AnswerTable,
        units: DisplayUnits,
    ) -> Option<Self> {
        let column = table.find_column(&field.name)?;
        let bare = title_of(field);
        let (title, layout) = if let FieldKind::Number(unit) = field.kind {
            let (sign, digits) = unit_of(unit, units);
            let title = if sign.is_empty() { bare } else { format!("{bare} {sign}") };
            let width =
                display_text::text_width(&title).clamp(digits, 14) + usize::from(title.len() <= 9);
            (title, text_table::number_column("", width))
        } else {
            let width = text_column_width(field, column, table);
            let width = width.max(display_text::text_width(&bare));
            (bare, text_table::text_column("", width))
        };
        Some(Self { position, field, column, title, layout, units })
    }

    /// Returns the width and the alignment; the heading of the sorted column has an arrow.
    pub(crate) fn layout_when(&self, is_sorted: bool) -> text_table::ColumnLayout {
        let title = display_text::text_width(&self.title) + usize::from(is_sorted);
        text_table::ColumnLayout { width: self.layout.width.max(title), ..self.layout }
    }

    /// Renders a number in the unit of the title.
    pub(crate) fn render_number(&self, value: f64) -> String {
        let FieldKind::Number(unit) = self.field.kind else { return String::new() };
        match unit {
            Unit::Ratio => display_text::format_whole_percent(Some(value)),
            Unit::Bytes | Unit::BytesPerSecond | Unit::Celsius => {
                self.units.format_number(value, unit)
            }
            Unit::Watts => display_text::format_signed_count(value),
            Unit::Hertz => format!("{:.0}", value / 1e6),
            Unit::Seconds if value < 1.0 => display_text::format_with_unit(value.max(0.0), unit),
            Unit::Seconds => {
                display_text::format_duration(Duration::from_secs_f64(value.clamp(0.0, 1e12)))
            }
            Unit::Joules => display_text::format_with_unit(value, unit),
            Unit::Count => display_text::format_gpu_count(value),
        }
    }
}

/// Returns the title of a field without its unit.
pub(crate) fn title_of(field: &SubjectField) -> String {
    let named = TITLES.iter().find(|(name, _)| *name == field.name).map(|(_, title)| *title);
    named.map_or_else(|| field.name.replace('_', " "), str::to_owned)
}

/// Returns the symbol of a unit for a title, and the width of its numbers.
const fn unit_of(unit: Unit, units: DisplayUnits) -> (&'static str, usize) {
    match unit {
        Unit::Ratio => ("%", 5),
        Unit::Bytes | Unit::BytesPerSecond => (units.heading(unit), 6),
        Unit::Watts => ("W", 7),
        Unit::Celsius => (units.heading(unit), 4),
        Unit::Hertz => ("MHz", 6),
        Unit::Seconds => ("", 6),
        Unit::Joules => ("", 9),
        Unit::Count => ("", 5),
    }
}

/// Returns the width of a text column: names are as wide as the widest of the window, other texts as their field
/// needs.
fn text_column_width(field: &SubjectField, column: &AnswerColumn, table: &AnswerTable) -> usize {
    match (field.name.as_str(), table.subject) {
        ("state", Subject::Gpus) => return 16,
        ("state", Subject::Nodes | Subject::Targets) => return 7,
        _ => {}
    }
    if let Some((_, width)) = WIDTHS.iter().find(|(name, _)| *name == field.name) {
        return *width;
    }
    let longest = (0..table.rows as usize).filter_map(|row| column.text_at(row));
    let longest = longest.map(|text| display_text::text_width(text)).max().unwrap_or(0);
    if field.name == "gpu_states" { longest.clamp(8, 16) } else { longest.clamp(NAMES.0, NAMES.1) }
}

/// Renders the digits of a history as a sparkline.
pub(crate) fn render_history(digits: &str) -> String {
    let point = |digit: char| digit.to_digit(10).map(|digit| digit as f32);
    let points: Vec<Option<f32>> = digits.chars().map(point).collect();
    sparkline::render_sparkline(&points, Some(9.0), points.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample_answers;

    #[test]
    fn titles_carry_the_unit_and_numbers_do_not() {
        let (table, units) = (sample_answers::gpu_table(), DisplayUnits::default());
        let power =
            ListColumn::of(0, Subject::Gpus.find_field("power").unwrap(), &table, units).unwrap();
        assert_eq!(
            (power.title.as_str(), power.render_number(1_512.4).as_str()),
            ("power W", "1,512")
        );
        let busy =
            ListColumn::of(0, Subject::Gpus.find_field("utilization").unwrap(), &table, units)
                .unwrap();
        assert_eq!((busy.title.as_str(), busy.render_number(0.985).as_str()), ("util %", "98"));
        assert!(
            ListColumn::of(0, Subject::Gpus.find_field("uuid").unwrap(), &table, units).is_none()
        );
    }
}
