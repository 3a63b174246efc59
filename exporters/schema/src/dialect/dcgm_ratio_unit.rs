//! The unit of a ratio that one DCGM version writes as 0 to 1 and another as a percentage, decided for a whole page.

use super::decode_plan::BlankValues;
use crate::text::TextSample;

/// What a page shows about the unit.
///
/// A single value does not show it: 1 may be one per cent, or all.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RatioEvidence {
    /// How many such ratios the page has.
    ratios: u32,
    /// A name of the page exists only where ratios are ratios.
    has_base_units: bool,
    /// A value is above 1.
    exceeds_one: bool,
    /// A value has decimals: percentages are whole numbers.
    has_decimals: bool,
}

/// The unit of a page's ratios.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RatioUnit {
    /// 0 to 1, as the names on the page show.
    Ratio,
    /// 0 to 1, as its values show; the next page may show something else.
    RatioByValues,
    /// 0 to 100, in whole numbers.
    Percent,
}

impl RatioEvidence {
    /// Records a name that only pages in base units have.
    pub(super) fn add_base_unit(&mut self) {
        self.has_base_units = true;
    }

    /// Records a value of such a ratio.
    pub(super) fn add_value(&mut self, sample: &TextSample<'_, '_>, blank: BlankValues) {
        self.ratios = self.ratios.saturating_add(1);
        if sample.value.is_finite() && !blank.is_blank(sample.value, sample.digits.as_bytes()) {
            self.exceeds_one |= sample.value > 1.0;
            self.has_decimals |= sample.digits.contains('.');
        }
    }

    /// The unit; none if the page has no such ratio.
    pub(super) fn find_unit(self) -> Option<RatioUnit> {
        let unit = match self {
            Self { has_base_units: true, .. } => RatioUnit::Ratio,
            Self { exceeds_one: false, has_decimals: true, .. } => RatioUnit::RatioByValues,
            _ => RatioUnit::Percent,
        };
        (self.ratios > 0).then_some(unit)
    }
}
