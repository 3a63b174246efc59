//! The list of all names on other exporters' pages that gaunt reads, with their units and gaunt's metrics.

use std::borrow::Cow;

use super::{
    CUSTOM_HANDLERS, Dialect, TABLES, dcgm_exporter,
    dcgm_new_names::{self, FieldUnit},
    dialect_table::{MappingTarget, NameMapping},
    node_exporter,
};
use crate::{
    MetricId,
    catalogue::UnitScale::{self, Per, Same, Times},
    unit::Unit::{self, Bytes, BytesPerSecond, Celsius, Hertz, Joules, Ratio, Seconds, Watts},
};

/// The units of other exporters that are not base units: ours, the conversion, and the name.
const FOREIGN_UNITS: [(Unit, UnitScale, &str); 20] = [
    (Ratio, Per(100.0), "percent"),
    (Unit::Count, Per(100.0), "percent"),
    (Bytes, Times(4.0), "4-byte words"),
    (Bytes, Times(1_024.0), "KiB"),
    (Bytes, Times(1_048_576.0), "MiB"),
    (BytesPerSecond, Times(125_000.0), "Mbit/s"),
    (BytesPerSecond, Times(125_000_000.0), "Gbit/s"),
    (BytesPerSecond, Times(1_000_000.0), "MB/s"),
    (BytesPerSecond, Times(1_000.0), "KB/s"),
    (BytesPerSecond, Times(1_024_000.0), "KiB/ms"),
    (Watts, Per(1e3), "mW"),
    (Watts, Per(1e6), "µW"),
    (Joules, Per(1e3), "mJ"),
    (Joules, Per(1e6), "µJ"),
    (Celsius, Per(1e3), "m°C"),
    (Hertz, Times(1e6), "MHz"),
    (Seconds, Per(1e3), "ms"),
    (Seconds, Per(1e6), "µs"),
    (Seconds, Per(1e9), "ns"),
    (Seconds, Times(60.0), "minutes"),
];

/// A name on the pages of another exporter.
#[derive(Clone, Debug, PartialEq)]
pub struct DialectMetric {
    /// Which exporter.
    pub dialect: Dialect,
    /// The name on its pages.
    pub name: &'static str,
    /// Which of its series are read, if not all: a label and its value.
    pub series: Option<String>,
    /// The unit there; none for names of which only labels are read.
    pub unit: Option<Cow<'static, str>>,
    /// gaunt's metric; none where only labels are read, or where several series become several metrics.
    pub metric: Option<MetricId>,
    /// Why the name is not read, if it is not.
    pub declined: Option<&'static str>,
}

impl DialectMetric {
    fn of(dialect: Dialect, name: &'static str) -> Self {
        Self { dialect, name, series: None, unit: None, metric: None, declined: None }
    }

    fn with_metric(mut self, metric: MetricId, unit: impl Into<Cow<'static, str>>) -> Self {
        (self.metric, self.unit) = (Some(metric), Some(unit.into()));
        self
    }
}

/// Every name on pages of other exporters that gaunt reads, or knows and does not read, by exporter.
pub fn dialect_metrics() -> Vec<DialectMetric> {
    let mut entries: Vec<DialectMetric> = Vec::new();
    for metric in MetricId::all_ids() {
        let row = metric.catalogue_row();
        entries.extend(row.foreign.iter().map(|name| {
            DialectMetric::of(name.dialect, name.name)
                .with_metric(metric, foreign_unit(row.unit, name.scale))
        }));
    }
    for (name, metric, unit) in dcgm_exporter::special_names() {
        entries.push(DialectMetric::of(Dialect::Dcgm, name).with_metric(metric, unit));
    }
    for field in dcgm_new_names::RENAMED.iter().chain(&dcgm_new_names::BASE_UNITS) {
        let unit = match field.unit {
            FieldUnit::Fixed(scale) => foreign_unit(field.metric.catalogue_row().unit, scale),
            FieldUnit::RatioOrPercent => "ratio or percent".into(),
        };
        entries.push(DialectMetric::of(Dialect::Dcgm, field.name).with_metric(field.metric, unit));
    }
    let special = node_exporter::SPECIAL_NAMES.iter();
    entries.extend(special.map(|name| DialectMetric::of(Dialect::NodeExporter, name)));
    for table in &TABLES {
        entries.extend(table.mappings.iter().map(|mapping| of_mapping(table.dialect, mapping)));
    }
    let handlers = CUSTOM_HANDLERS.iter().copied().flatten();
    entries.extend(handlers.map(|handler| DialectMetric::of(handler.dialect, handler.name)));
    entries.sort_by_key(|entry| entry.dialect);
    entries
}

fn of_mapping(dialect: Dialect, mapping: &NameMapping) -> DialectMetric {
    let entry = DialectMetric {
        series: mapping.when.map(|(label, value)| series_condition(label, value)),
        ..DialectMetric::of(dialect, mapping.name)
    };
    let unit = |metric: MetricId, scale| foreign_unit(metric.catalogue_row().unit, scale);
    match mapping.to {
        MappingTarget::Reading(metric, scale) | MappingTarget::Sum(metric, scale) => {
            entry.with_metric(metric, unit(metric, scale))
        }
        MappingTarget::PcieSpeed(metric) => entry.with_metric(metric, "GT/s"),
        MappingTarget::Flag(metric, yes) => {
            entry.with_metric(metric, format!("code, {yes} is yes"))
        }
        MappingTarget::IdentityOnly(_) | MappingTarget::Index(_) => entry,
        MappingTarget::Declined(reason) => DialectMetric { declined: Some(reason), ..entry },
    }
}

/// The condition of a mapping in words.
fn series_condition(label: &str, value: &str) -> String {
    match value.strip_prefix('?') {
        Some(value) => format!("{label}={value} or without {label}"),
        None if value.is_empty() => format!("with {label}"),
        None => format!("{label}={value}"),
    }
}

/// The name of the unit from which this conversion comes.
fn foreign_unit(unit: Unit, scale: UnitScale) -> Cow<'static, str> {
    if scale == Same {
        return unit.as_str().into();
    }
    let named = FOREIGN_UNITS.iter().find(|(other, from, _)| *other == unit && *from == scale);
    match (named, scale) {
        (Some((.., name)), _) => (*name).into(),
        (None, Per(divisor)) => format!("1/{divisor} {}", unit.as_str()).into(),
        (None, Times(factor)) => format!("{factor} {}", unit.as_str()).into(),
        (None, Same) => unit.as_str().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn units_of(name: &str) -> Vec<String> {
        let entries = dialect_metrics();
        let named = entries.iter().filter(|entry| entry.name == name);
        named.map(|entry| entry.unit.clone().unwrap_or_default().into_owned()).collect()
    }

    #[test]
    fn dialect_metrics_name_the_unit_of_every_value() {
        let entries = dialect_metrics();
        for entry in &entries {
            assert_eq!(entry.unit.is_some(), entry.metric.is_some(), "{entry:?}");
            let unit = entry.unit.as_deref().unwrap_or_default();
            assert!(
                !unit.starts_with(|first: char| first.is_ascii_digit() && first != '4'),
                "{entry:?}"
            );
        }
        for dialect in Dialect::ALL {
            let is_listed = entries.iter().any(|entry| entry.dialect == dialect);
            assert_eq!(
                is_listed,
                !matches!(dialect, Dialect::Gaunt | Dialect::Unknown),
                "{dialect:?}"
            );
        }
        assert!(entries.is_sorted_by_key(|entry| entry.dialect));
    }

    #[test]
    fn dialect_metrics_state_units_as_on_the_page() {
        for (name, unit) in [
            ("DCGM_FI_DEV_GPU_UTIL", "percent"),
            ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "mJ"),
            ("habanalabs_power_mW", "mW"),
            ("gpu_energy_consumed", "µJ"),
            ("ifHighSpeed", "Mbit/s"),
            ("ifOperStatus", "code, 1 is yes"),
            ("amd_gpu_current_temperature", "m°C"),
            ("PortXmitDataExtended", "bytes"),
            ("nvidia_smi_gpu_info", ""),
            ("habanalabs_energy", ""),
        ] {
            assert_eq!(units_of(name), [unit], "{name}");
        }
        assert_eq!(units_of("gpu_clock"), ["MHz"; 4]);
        let entries = dialect_metrics();
        let power = entries.iter().find(|entry| entry.name == "gpu_package_power").unwrap();
        assert_eq!(power.series.as_deref(), Some("gpu_partition_id=0 or without gpu_partition_id"));
    }
}
