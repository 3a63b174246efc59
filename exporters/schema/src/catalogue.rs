//! The catalogue: every metric that gaunt knows, each defined once with all its properties.
//!
//! A row is a series per device: a metric with a fixed label, such as one clock-event reason, has one row for each
//! value of it, and the rows share their name and help.

use std::sync::LazyLock;

use hashbrown::HashMap;
use serde::{Deserialize, Serialize};

use crate::{
    DeviceClass, Dialect,
    unit::{CounterWidth, MetricKind, Unit},
};

pub mod collective;
pub mod ethernet;
pub mod exporter;
pub mod fleet_metrics;
pub mod gpu;
pub mod gpu_health;
pub mod gpu_parts;
pub mod hardware;
pub mod host;
pub mod nccl_ras;
pub mod port;
pub mod probe_results;
pub mod service;
pub mod switch_port;

/// One mebibyte: the unit of dcgm-exporter's framebuffer sizes, and fine enough for history.
const MIB: f64 = 1_048_576.0;

/// The unit of DCGM's NVLink rates in bytes per second. It calls them MB/s, and divides kibibytes per second by 1,000.
pub(crate) const NVLINK_RATE_UNIT: f64 = 1_024_000.0;

/// The position of a row in the catalogue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MetricId(pub u16);

/// One row of the catalogue.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// The name on a page.
    pub name: &'static str,
    /// A label with a fixed value, for metrics that are a small closed set of series.
    pub tag: Option<(&'static str, &'static str)>,
    /// Its type and, for a counter, its width.
    pub kind: MetricKind,
    /// Its base unit.
    pub unit: Unit,
    /// The quantisation step of history; smaller differences are noise.
    pub resolution: f64,
    /// The class of device that it is measured on.
    pub class: DeviceClass,
    /// The help text: one sentence.
    pub help: &'static str,
    /// Whether history is kept.
    pub history: bool,
    /// Whether its values change by events that are rare, such as an installation, and no finding waits for them:
    /// limits, sizes, versions, counts over the life of a board. A queried server is asked for them less often.
    pub changes_rarely: bool,
    /// The counter that integrates it, so that a scraper with any period loses nothing.
    pub integral: Option<&'static str>,
    /// For info series: the labels in addition to those of the device.
    pub labels: &'static [&'static str],
    /// Its names on the pages of other exporters.
    pub foreign: &'static [ForeignName],
}

/// A metric's name on the pages of another exporter.
#[derive(Clone, Copy, Debug)]
pub struct ForeignName {
    /// Which exporter.
    pub dialect: Dialect,
    /// The name on its pages.
    pub name: &'static str,
    /// The conversion from the exporter's unit to ours.
    pub scale: UnitScale,
}

/// A unit conversion, exact where possible.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum UnitScale {
    /// The same unit.
    Same,
    /// Our value is the foreign value times this.
    Times(f64),
    /// Our value is the foreign value divided by this: 57 per cent is exactly 0.57.
    Per(f64),
}

impl UnitScale {
    /// Converts a foreign value to our unit.
    pub fn to_catalogue_unit(self, value: f64) -> f64 {
        match self {
            Self::Same => value,
            Self::Times(factor) => value * factor,
            Self::Per(divisor) => value / divisor,
        }
    }

    /// Converts our value to the foreign unit: the whole number that it came from, if there is one.
    pub fn to_foreign_unit(self, value: f64) -> f64 {
        let foreign = match self {
            Self::Same => return value,
            Self::Times(factor) => value / factor,
            Self::Per(divisor) => value * divisor,
        };
        let rounded = foreign.round();
        if self.to_catalogue_unit(rounded).to_bits() == value.to_bits() { rounded } else { foreign }
    }
}

impl Metric {
    const fn new(
        name: &'static str,
        class: DeviceClass,
        kind: MetricKind,
        unit: Unit,
        resolution: f64,
    ) -> Self {
        Self {
            name,
            tag: None,
            kind,
            unit,
            resolution,
            class,
            help: "",
            history: false,
            changes_rarely: false,
            integral: None,
            labels: &[],
            foreign: &[],
        }
    }

    const fn new_gauge(
        name: &'static str,
        class: DeviceClass,
        unit: Unit,
        resolution: f64,
    ) -> Self {
        Self::new(name, class, MetricKind::Gauge, unit, resolution)
    }

    const fn new_counter(
        name: &'static str,
        class: DeviceClass,
        unit: Unit,
        width: CounterWidth,
    ) -> Self {
        Self::new(name, class, MetricKind::Counter(width), unit, 1.0)
    }

    const fn new_info_series(
        name: &'static str,
        class: DeviceClass,
        labels: &'static [&'static str],
    ) -> Self {
        let mut row = Self::new(name, class, MetricKind::Info, Unit::Count, 1.0);
        row.labels = labels;
        row
    }

    const fn with_help(mut self, help: &'static str) -> Self {
        self.help = help;
        self
    }

    const fn with_tag(mut self, label: &'static str, value: &'static str) -> Self {
        self.tag = Some((label, value));
        self
    }

    const fn with_history(mut self) -> Self {
        self.history = true;
        self
    }

    const fn with_rare_changes(mut self) -> Self {
        self.changes_rarely = true;
        self
    }

    const fn with_integral(mut self, counter: &'static str) -> Self {
        self.integral = Some(counter);
        self
    }

    const fn with_foreign(mut self, names: &'static [ForeignName]) -> Self {
        self.foreign = names;
        self
    }
}

const fn dcgm_name(name: &'static str, scale: UnitScale) -> ForeignName {
    ForeignName { dialect: Dialect::Dcgm, name, scale }
}

const fn node_exporter_name(name: &'static str) -> ForeignName {
    ForeignName { dialect: Dialect::NodeExporter, name, scale: UnitScale::Same }
}

/// The index of a constant in its class, computed at compile time.
const fn index_of_name(names: &[&str], name: &str) -> u16 {
    let mut index = 0;
    while !bytes_equal(names[index as usize].as_bytes(), name.as_bytes()) {
        index += 1;
    }
    index
}

/// Whether two names are equal: `==` on slices is not yet allowed in constants.
const fn bytes_equal(left: &[u8], right: &[u8]) -> bool {
    let mut index = 0;
    while index < left.len() && index < right.len() && left[index] == right[index] {
        index += 1;
    }
    index == left.len() && index == right.len()
}

/// Declares the rows of one class: a constant for each, in catalogue order from `$base`.
macro_rules! rows {
    (from $base:expr; $($id:ident, $help:literal, $row:expr;)*) => {
        const NAMES: &[&str] = &[$(stringify!($id),)*];
        $(
            #[doc = $help]
            pub const $id: $crate::MetricId =
                $crate::MetricId($base + $crate::catalogue::index_of_name(NAMES, stringify!($id)));
        )*
        pub(super) const ROWS: &[$crate::catalogue::Metric] = &[$($row.with_help($help),)*];
        /// The position after this class's last row.
        pub(super) const END: u16 = $base + ROWS.len() as u16;
    };
}
use rows;

const LEN: usize = fleet_metrics::END as usize;

/// Every row, in the order of the page.
pub static CATALOGUE: [Metric; LEN] = {
    let parts = [
        host::ROWS,
        gpu::ROWS,
        gpu_health::ROWS,
        gpu_parts::ROWS,
        port::ROWS,
        ethernet::ROWS,
        hardware::ROWS,
        switch_port::ROWS,
        service::ROWS,
        collective::ROWS,
        nccl_ras::ROWS,
        probe_results::ROWS,
        exporter::ROWS,
        fleet_metrics::ROWS,
    ];
    let mut rows = [host::ROWS[0]; LEN];
    let (mut count, mut part) = (0, 0);
    while part < parts.len() {
        let mut row = 0;
        while row < parts[part].len() {
            rows[count] = parts[part][row];
            count += 1;
            row += 1;
        }
        part += 1;
    }
    rows
};

impl MetricId {
    /// The row.
    #[inline]
    pub fn catalogue_row(self) -> &'static Metric {
        &CATALOGUE[usize::from(self.0)]
    }

    /// Every row's position.
    pub fn all_ids() -> impl Iterator<Item = Self> {
        (0..LEN as u16).map(Self)
    }

    /// The unique name of the row: the metric's name, with its fixed label in braces if it has one.
    pub fn series_key(self) -> String {
        let row = self.catalogue_row();
        match row.tag {
            None => row.name.to_owned(),
            Some((label, value)) => format!("{}{{{label}=\"{value}\"}}", row.name),
        }
    }
}

/// The rows that a name on a page stands for.
#[derive(Clone, Copy, Debug)]
pub struct NamedRows {
    /// The first row of this name; tagged rows follow it without a gap.
    pub first: MetricId,
    /// How many rows share the name.
    pub rows: u16,
    /// The exporter that uses the name.
    pub dialect: Dialect,
    /// The conversion to our unit.
    pub scale: UnitScale,
}

/// The rows that a name on a page stands for, in any exporter's format.
pub fn find_rows(name: &str) -> Option<NamedRows> {
    static NAMES: LazyLock<HashMap<&'static str, NamedRows, foldhash::fast::FixedState>> =
        LazyLock::new(|| {
            let mut names: HashMap<_, NamedRows, _> = HashMap::default();
            for id in MetricId::all_ids() {
                let row = id.catalogue_row();
                let own_name =
                    ForeignName { dialect: Dialect::Gaunt, name: row.name, scale: UnitScale::Same };
                for name in std::iter::once(&own_name).chain(row.foreign) {
                    let rows = names.entry(name.name).or_insert(NamedRows {
                        first: id,
                        rows: 0,
                        dialect: name.dialect,
                        scale: name.scale,
                    });
                    rows.rows += 1;
                }
            }
            names
        });
    NAMES.get(name).copied()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn catalogue_keys_are_unique_and_find_their_row() {
        let mut keys = HashSet::new();
        for id in MetricId::all_ids() {
            assert!(keys.insert(id.series_key()), "{} is declared twice", id.series_key());
            let named = find_rows(id.catalogue_row().name).unwrap();
            let range = named.first.0..named.first.0 + named.rows;
            assert!(
                range.contains(&id.0),
                "rows named {} are not adjacent",
                id.catalogue_row().name
            );
        }
    }

    #[test]
    fn metric_names_follow_naming_rules() {
        for row in &CATALOGUE {
            let stem = row.name.strip_suffix("_total");
            let counter = matches!(row.kind, MetricKind::Counter(_));
            assert_eq!(stem.is_some(), counter, "{}: _total is for counters", row.name);
            assert!(
                stem.unwrap_or(row.name).ends_with(row.unit.name_suffix()),
                "{}: unit",
                row.name
            );
            assert_eq!(row.name.ends_with("_info"), row.kind == MetricKind::Info, "{}", row.name);
            assert!(row.name.starts_with("gaunt_"), "{}", row.name);
            assert!(row.help.len() > 10 && row.help.ends_with('.'), "{}: help", row.name);
            assert!(row.resolution > 0.0, "{}: resolution", row.name);
        }
    }

    #[test]
    fn what_changes_rarely_has_no_history_and_is_no_health_of_a_job() {
        let mut rare = 0;
        for row in CATALOGUE.iter().filter(|row| row.changes_rarely) {
            rare += 1;
            assert!(!row.history && row.integral.is_none(), "{}", row.name);
            assert!(!row.labels.contains(&"job") && !row.labels.contains(&"pod"), "{}", row.name);
        }
        assert!((30..60).contains(&rare), "{rare}");
    }

    #[test]
    fn integrals_are_counters_of_the_same_class() {
        for row in &CATALOGUE {
            let Some(integral) = row.integral else { continue };
            let counter = find_rows(integral)
                .expect("the integral is in the catalogue")
                .first
                .catalogue_row();
            assert_eq!(counter.class, row.class, "{}", row.name);
            assert!(matches!(counter.kind, MetricKind::Counter(_)), "{}", row.name);
        }
    }

    #[test]
    fn percent_converts_to_ratio_exactly() {
        let named = find_rows("DCGM_FI_DEV_GPU_UTIL").unwrap();
        assert_eq!(named.first, gpu::UTILIZATION);
        assert_eq!(named.scale.to_catalogue_unit(57.0).to_string(), "0.57");
    }

    #[test]
    fn integer_values_convert_back_exactly() {
        for scale in
            [UnitScale::Same, UnitScale::Per(100.0), UnitScale::Per(1e3), UnitScale::Times(1e6)]
        {
            for foreign in (0..100_u32).chain(4_200_000_010..=4_200_000_019) {
                let foreign = f64::from(foreign);
                let round_trip = scale.to_foreign_unit(scale.to_catalogue_unit(foreign));
                assert_eq!(round_trip.to_bits(), foreign.to_bits(), "{scale:?}");
            }
        }
        assert_eq!(UnitScale::Per(100.0).to_foreign_unit(0.12345).to_string(), "12.345");
    }
}
