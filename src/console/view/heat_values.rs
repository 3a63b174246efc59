//! Texts and cells of the heat map: the states of GPUs, or the values that colour it.

use std::ops::Range;

use gaunt_schema::GpuState;
use ratatui::style::Style;

use crate::{
    display_text,
    display_units::DisplayUnits,
    heat_index::{HeatIndex, HeatRange},
    theme::{StyleRole, Theme},
};
use gaunt_api::FieldKind;

/// The values that colour the map, and the units in which they are shown.
#[derive(Clone, Copy)]
pub(super) struct HeatValues<'a> {
    range: &'a HeatRange,
    units: DisplayUnits,
}

/// Symbols from low to high: tenths of the range.
const TENTHS: [&str; 10] = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"];

impl<'a> HeatValues<'a> {
    /// Returns the values of the map, if it shows any.
    pub(super) fn of(index: &'a HeatIndex, units: DisplayUnits) -> Option<Self> {
        index.values().map(|range| Self { range, units })
    }

    /// Renders the legend of the symbols.
    pub(super) fn render_scale(&self) -> String {
        let HeatRange { field, low, high, .. } = self.range;
        if low > high {
            return format!("; {}: no values", field.name);
        }
        let (low, high) = (self.format_value(*low), self.format_value(*high));
        format!("; {}: 0 = {low}, 9 = {high}", field.name)
    }

    fn format_value(&self, value: f64) -> String {
        match self.range.field.kind {
            FieldKind::Number(unit) => self.units.format_value(value, unit),
            _ => String::new(),
        }
    }

    /// Returns the cell of one GPU.
    pub(super) fn gpu_cell(&self, gpu: usize, theme: Theme) -> (&'static str, Style) {
        self.value_cell(self.gpu_value(gpu), theme)
    }

    /// Returns the cell of the highest value of some nodes.
    pub(super) fn highest_cell(&self, nodes: &[u32], theme: Theme) -> (&'static str, Style) {
        self.value_cell(self.range.highest_of(nodes), theme)
    }

    fn gpu_value(&self, gpu: usize) -> Option<f64> {
        self.range.gpu_values().get(gpu).copied().flatten()
    }

    fn value_cell(&self, value: Option<f64>, theme: Theme) -> (&'static str, Style) {
        let Some(value) = value.filter(|value| value.is_finite()) else {
            return ("-", theme.style_for(StyleRole::Dim));
        };
        let range = self.range.high - self.range.low;
        let share = if range > 0.0 { (value - self.range.low) / range } else { 0.0 };
        let tenth = ((share * 10.0) as usize).min(9);
        let meaning = match tenth {
            0..=1 => StyleRole::Dim,
            2..=3 => StyleRole::Neutral,
            4..=5 => StyleRole::SecondaryGood,
            6..=7 => StyleRole::Good,
            8 => StyleRole::Waiting,
            _ => StyleRole::Starved,
        };
        (TENTHS[tenth], theme.style_for(meaning))
    }

    /// Renders the lowest and the highest value of a few GPUs.
    fn render_extremes(&self, gpus: Range<usize>) -> String {
        let known = || gpus.clone().filter_map(|gpu| self.gpu_value(gpu));
        match known().reduce(f64::min).zip(known().reduce(f64::max)) {
            Some((low, high)) => {
                let (low, high) = (self.format_value(low), self.format_value(high));
                if low == high { low } else { format!("{low} to {high}") }
            }
            None => display_text::ABSENT.to_owned(),
        }
    }

    /// Renders the values of a few GPUs.
    fn render_values(&self, gpus: Range<usize>) -> String {
        let texts = gpus.map(|gpu| {
            let value = self.gpu_value(gpu);
            value.map_or_else(|| display_text::ABSENT.to_owned(), |value| self.format_value(value))
        });
        texts.collect::<Vec<_>>().join(" ")
    }
}

/// Renders a node and the states of its GPUs: `gpu003: 7 waiting, 1 hung`; or their values, and the lowest and highest of
/// them where all do not fit into `columns`.
pub(super) fn render_node(
    index: &HeatIndex,
    node: u32,
    values: Option<HeatValues<'_>>,
    columns: usize,
) -> String {
    let Some(name) = index.node_name(node) else { return String::new() };
    if let Some(values) = values {
        let gpus = index.gpus_of(node);
        let text = format!("{name}: {}", values.render_values(gpus.clone()));
        if display_text::text_width(&text) <= columns {
            return text;
        }
        return format!("{name}: {}", values.render_extremes(gpus));
    }
    let states = index.states_of(node);
    let counts = GpuState::ALL.iter().filter_map(|&state| {
        let count = states.chars().filter(|code| *code == state.letter_code()).count();
        (count > 0).then(|| format!("{count} {}", state.as_str()))
    });
    format!("{name}: {}", counts.collect::<Vec<_>>().join(", "))
}
