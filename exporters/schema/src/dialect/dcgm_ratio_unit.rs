//! The unit of a ratio that one DCGM version writes as 0 to 1 and another as a percentage, decided for a whole page.

use super::decode_plan::{BlankValues, is_one};
use crate::text::TextSample;

/// The label with the driver's version under the name that dcgm-exporter 4.9 gives it by default. An older one has it only
/// if its list of fields was written for DCGM 4.6.
pub(super) const NEW_DRIVER_LABEL: &str = "DCGM_FI_SYSTEM_DRIVER_VERSION";

/// The only field of which the unit depends on the version.
pub(super) const RATIO_FIELD: &str = "DCGM_FI_DEV_GPU_UTIL_RATIO";

/// How it is listed where nothing shows its unit.
pub(super) const RATIO_WITHOUT_UNIT: &str =
    "DCGM_FI_DEV_GPU_UTIL_RATIO (left out, its unit is unknown: 1 is 1 % or 100 %)";

/// What a page shows about the unit.
///
/// A single value does not show it: 1 may be one per cent, or all.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RatioEvidence {
    /// How many such ratios the page has.
    ratios: u32,
    /// What names and labels show.
    names: NameEvidence,
    /// A value is 1.
    has_one: bool,
    /// A value is above 1.
    exceeds_one: bool,
    /// A value has decimals: percentages are whole numbers.
    has_decimals: bool,
}

/// What the names and labels of a page show, the strongest last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum NameEvidence {
    /// Nothing.
    #[default]
    None,
    /// Such a series has the driver's label of 4.9. It decides where values do not: a server that stores samples gives 1.0
    /// back as 1.
    NewLabel,
    /// A name exists only where ratios are ratios.
    BaseUnits,
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
    /// The same, where the next page may show something else.
    PercentByValues,
    /// Nothing shows it: 1 is one per cent or all, and 0 is 0.
    Unknown,
}

impl RatioUnit {
    /// Whether values are percentages, if it is known.
    pub(super) const fn is_percent(self) -> Option<bool> {
        match self {
            Self::Percent | Self::PercentByValues => Some(true),
            Self::Ratio | Self::RatioByValues => Some(false),
            Self::Unknown => None,
        }
    }

    /// Whether another page with the same names and labels may have another unit.
    pub(super) const fn depends_on_values(self) -> bool {
        matches!(self, Self::RatioByValues | Self::PercentByValues | Self::Unknown)
    }
}

impl RatioEvidence {
    /// Records a name that only pages in base units have.
    pub(super) fn add_base_unit(&mut self) {
        self.names = NameEvidence::BaseUnits;
    }

    /// Records a value of such a ratio.
    pub(super) fn add_value(&mut self, sample: &TextSample<'_, '_>, blank: BlankValues) {
        self.ratios = self.ratios.saturating_add(1);
        if sample.find_label(NEW_DRIVER_LABEL).is_some() {
            self.names = self.names.max(NameEvidence::NewLabel);
        }
        if sample.value.is_finite() && !blank.is_blank(sample.value, sample.digits.as_bytes()) {
            self.has_one |= is_one(sample.value);
            self.exceeds_one |= sample.value > 1.0;
            self.has_decimals |= sample.digits.contains('.');
        }
    }

    /// The unit; none if the page has no such ratio.
    pub(super) fn find_unit(self) -> Option<RatioUnit> {
        let has_new_label = self.names == NameEvidence::NewLabel;
        let unit = match self {
            Self { names: NameEvidence::BaseUnits, .. } => RatioUnit::Ratio,
            Self { exceeds_one: false, .. } if self.has_decimals || has_new_label => {
                RatioUnit::RatioByValues
            }
            _ if has_new_label => RatioUnit::PercentByValues,
            Self { has_one: true, exceeds_one: false, .. } => RatioUnit::Unknown,
            _ => RatioUnit::Percent,
        };
        (self.ratios > 0).then_some(unit)
    }
}
