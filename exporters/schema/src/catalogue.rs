//! The catalogue: every metric that gaunt knows, named once, with all that any room needs to know about it.
//!
//! A row is a series per device: a metric with a fixed label, such as one clock-event reason, has one row for each
//! value of it, and the rows share their name and help.

use std::sync::LazyLock;

use hashbrown::HashMap;
use serde::{Deserialize, Serialize};

use crate::{
    Class, Dialect,
    unit::{Kind, Unit, Width},
};

pub mod collective;
pub mod ethernet;
pub mod exporter;
pub mod fleet;
pub mod gpu;
pub mod gpu_health;
pub mod gpu_parts;
pub mod hardware;
pub mod host;
pub mod port;
pub mod probe;
pub mod service;
pub mod switch_port;

/// One mebibyte: the unit of dcgm-exporter's framebuffer sizes, and fine enough for history.
const MIB: f64 = 1_048_576.0;

/// The position of a row in the catalogue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MetricId(pub u16);

/// One row of the catalogue.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// The name on text.
    pub name: &'static str,
    /// A label with a fixed value, for metrics that are a small closed set of series.
    pub tag: Option<(&'static str, &'static str)>,
    /// How it moves, and how it ends if it is a counter.
    pub kind: Kind,
    /// Its base unit.
    pub unit: Unit,
    /// The step that history is quantised to; smaller differences are noise.
    pub resolution: f64,
    /// What it is measured on.
    pub class: Class,
    /// One sentence for people.
    pub help: &'static str,
    /// Whether its past is kept.
    pub history: bool,
    /// The counter that integrates it, so that a scraper of any period loses nothing.
    pub integral: Option<&'static str>,
    /// For info series: the labels beside those of the device.
    pub labels: &'static [&'static str],
    /// Its names in the pages of other exporters.
    pub foreign: &'static [Foreign],
}

/// A metric's name in the pages of another exporter.
#[derive(Clone, Copy, Debug)]
pub struct Foreign {
    /// Whose name it is.
    pub dialect: Dialect,
    /// The name there.
    pub name: &'static str,
    /// From the value there to ours.
    pub scale: Scale,
}

/// A change of unit, exact where it can be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scale {
    /// The same unit.
    Same,
    /// Our value is theirs times this.
    Times(f64),
    /// Our value is theirs divided by this: 57 per cent is 0.57 to the last bit.
    Per(f64),
}

impl Scale {
    /// Their value in our unit.
    pub fn apply(self, value: f64) -> f64 {
        match self {
            Self::Same => value,
            Self::Times(factor) => value * factor,
            Self::Per(divisor) => value / divisor,
        }
    }

    /// Our value in their unit: the whole number that became it, if there is one.
    pub fn invert(self, value: f64) -> f64 {
        let theirs = match self {
            Self::Same => return value,
            Self::Times(factor) => value / factor,
            Self::Per(divisor) => value * divisor,
        };
        let whole = theirs.round();
        if self.apply(whole).to_bits() == value.to_bits() { whole } else { theirs }
    }
}

impl Metric {
    const fn new(
        name: &'static str,
        class: Class,
        kind: Kind,
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
            integral: None,
            labels: &[],
            foreign: &[],
        }
    }

    const fn gauge(name: &'static str, class: Class, unit: Unit, resolution: f64) -> Self {
        Self::new(name, class, Kind::Gauge, unit, resolution)
    }

    const fn counter(name: &'static str, class: Class, unit: Unit, width: Width) -> Self {
        Self::new(name, class, Kind::Counter(width), unit, 1.0)
    }

    const fn info_series(
        name: &'static str,
        class: Class,
        labels: &'static [&'static str],
    ) -> Self {
        let mut row = Self::new(name, class, Kind::Info, Unit::Count, 1.0);
        row.labels = labels;
        row
    }

    const fn help(mut self, help: &'static str) -> Self {
        self.help = help;
        self
    }

    const fn tag(mut self, label: &'static str, value: &'static str) -> Self {
        self.tag = Some((label, value));
        self
    }

    const fn history(mut self) -> Self {
        self.history = true;
        self
    }

    const fn integral(mut self, counter: &'static str) -> Self {
        self.integral = Some(counter);
        self
    }

    const fn foreign(mut self, names: &'static [Foreign]) -> Self {
        self.foreign = names;
        self
    }
}

const fn dcgm(name: &'static str, scale: Scale) -> Foreign {
    Foreign { dialect: Dialect::Dcgm, name, scale }
}

const fn node_exporter(name: &'static str) -> Foreign {
    Foreign { dialect: Dialect::NodeExporter, name, scale: Scale::Same }
}

/// The place of a constant among those of its class, found when this is compiled.
const fn place(names: &[&str], name: &str) -> u16 {
    let mut place = 0;
    while !same(names[place as usize].as_bytes(), name.as_bytes()) {
        place += 1;
    }
    place
}

/// Whether two names are the same: what `==` says, which no constant may ask yet.
const fn same(one: &[u8], other: &[u8]) -> bool {
    let mut at = 0;
    while at < one.len() && at < other.len() && one[at] == other[at] {
        at += 1;
    }
    at == one.len() && at == other.len()
}

/// Declares the rows of one class: a constant for each, in catalogue order from `$base`.
macro_rules! rows {
    (from $base:expr; $($id:ident, $help:literal, $row:expr;)*) => {
        const NAMES: &[&str] = &[$(stringify!($id),)*];
        $(
            #[doc = $help]
            pub const $id: $crate::MetricId =
                $crate::MetricId($base + $crate::catalogue::place(NAMES, stringify!($id)));
        )*
        pub(super) const ROWS: &[$crate::catalogue::Metric] = &[$($row.help($help),)*];
        /// The position after this class's last row.
        pub(super) const END: u16 = $base + ROWS.len() as u16;
    };
}
use rows;

const LEN: usize = fleet::END as usize;

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
        probe::ROWS,
        exporter::ROWS,
        fleet::ROWS,
    ];
    let mut all = [host::ROWS[0]; LEN];
    let (mut filled, mut part) = (0, 0);
    while part < parts.len() {
        let mut row = 0;
        while row < parts[part].len() {
            all[filled] = parts[part][row];
            filled += 1;
            row += 1;
        }
        part += 1;
    }
    all
};

impl MetricId {
    /// The row.
    #[inline]
    pub fn row(self) -> &'static Metric {
        &CATALOGUE[usize::from(self.0)]
    }

    /// Every row's position.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..LEN as u16).map(Self)
    }

    /// The unique name of the row: the metric's name, with its fixed label in braces if it has one.
    pub fn key(self) -> String {
        let row = self.row();
        match row.tag {
            None => row.name.to_owned(),
            Some((label, value)) => format!("{}{{{label}=\"{value}\"}}", row.name),
        }
    }
}

/// What a name on a page stands for.
#[derive(Clone, Copy, Debug)]
pub struct Named {
    /// The first row of this name; tagged rows follow it without a gap.
    pub first: MetricId,
    /// How many rows share the name.
    pub rows: u16,
    /// In whose words the name is.
    pub dialect: Dialect,
    /// From the value there to ours.
    pub scale: Scale,
}

/// The rows that a name on a page stands for, whoever's name it is.
pub fn named(name: &str) -> Option<Named> {
    static NAMES: LazyLock<HashMap<&'static str, Named, foldhash::fast::FixedState>> =
        LazyLock::new(|| {
            let mut names: HashMap<_, Named, _> = HashMap::default();
            for id in MetricId::all() {
                let row = id.row();
                let ours = Foreign { dialect: Dialect::Gaunt, name: row.name, scale: Scale::Same };
                for name in std::iter::once(&ours).chain(row.foreign) {
                    let known = names.entry(name.name).or_insert(Named {
                        first: id,
                        rows: 0,
                        dialect: name.dialect,
                        scale: name.scale,
                    });
                    known.rows += 1;
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
    fn every_key_is_unique_and_every_row_finds_itself() {
        let mut keys = HashSet::new();
        for id in MetricId::all() {
            assert!(keys.insert(id.key()), "{} stands twice", id.key());
            let named = named(id.row().name).unwrap();
            let range = named.first.0..named.first.0 + named.rows;
            assert!(range.contains(&id.0), "rows named {} do not stand together", id.row().name);
        }
    }

    #[test]
    fn names_follow_the_field() {
        for row in &CATALOGUE {
            let stem = row.name.strip_suffix("_total");
            let counter = matches!(row.kind, Kind::Counter(_));
            assert_eq!(stem.is_some(), counter, "{}: _total is for counters", row.name);
            assert!(stem.unwrap_or(row.name).ends_with(row.unit.suffix()), "{}: unit", row.name);
            assert_eq!(row.name.ends_with("_info"), row.kind == Kind::Info, "{}", row.name);
            assert!(row.name.starts_with("gaunt_"), "{}", row.name);
            assert!(row.help.len() > 10 && row.help.ends_with('.'), "{}: help", row.name);
            assert!(row.resolution > 0.0, "{}: resolution", row.name);
        }
    }

    #[test]
    fn every_integral_is_a_counter_of_the_same_class() {
        for row in &CATALOGUE {
            let Some(integral) = row.integral else { continue };
            let counter = named(integral).expect("the integral is in the catalogue").first.row();
            assert_eq!(counter.class, row.class, "{}", row.name);
            assert!(matches!(counter.kind, Kind::Counter(_)), "{}", row.name);
        }
    }

    #[test]
    fn per_cent_becomes_a_ratio_to_the_last_bit() {
        let named = named("DCGM_FI_DEV_GPU_UTIL").unwrap();
        assert_eq!(named.first, gpu::UTILIZATION);
        assert_eq!(named.scale.apply(57.0).to_string(), "0.57");
    }

    #[test]
    fn their_whole_numbers_come_back_to_the_last_bit() {
        for scale in [Scale::Same, Scale::Per(100.0), Scale::Per(1e3), Scale::Times(1e6)] {
            for theirs in (0..100_u32).chain(4_200_000_010..=4_200_000_019) {
                let theirs = f64::from(theirs);
                let back = scale.invert(scale.apply(theirs));
                assert_eq!(back.to_bits(), theirs.to_bits(), "{scale:?}");
            }
        }
        assert_eq!(Scale::Per(100.0).invert(0.12345).to_string(), "12.345");
    }
}
