//! Samples of other programs of the node: by family, untyped, after our own series.

use std::{collections::BTreeMap, fmt::Write};

use super::{ExpositionFormat, write_sample};
use crate::{ExtraSample, Report};

/// Appends the extra samples of a report, grouped by family. Of duplicate samples of a series the first is written.
pub(super) fn write_extra(report: &Report, format: ExpositionFormat, out: &mut String) {
    let mut families: BTreeMap<&str, Vec<&ExtraSample>> = BTreeMap::new();
    for extra in &report.extra {
        let family = families.entry(&extra.name).or_default();
        if !family.iter().any(|other| other.labels == extra.labels) {
            family.push(extra);
        }
    }
    let kind = if format == ExpositionFormat::OpenMetrics { "unknown" } else { "untyped" };
    for (name, samples) in families {
        // Writing to a String never fails.
        _ = writeln!(out, "# TYPE {name} {kind}");
        for sample in samples {
            let labels = sample.labels.iter();
            let labels = labels.map(|(name, value)| (name.as_str(), value.as_str()));
            write_sample(name, labels, sample.value, out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::write_text;

    #[test]
    fn families_are_adjacent_and_series_unique() {
        let sample = |name: &str, rank: &str, value| ExtraSample {
            name: name.into(),
            labels: vec![("rank".into(), rank.into())],
            value,
        };
        let report = Report {
            extra: vec![
                sample("nccl_bus_bandwidth_gbs", "0", 471.5),
                sample("nccl_algorithm_bandwidth_gbs", "0", 250.0),
                sample("nccl_bus_bandwidth_gbs", "1\"", 1.0),
                sample("nccl_bus_bandwidth_gbs", "0", 9.0),
            ],
            ..Report::default()
        };
        let mut page = String::new();
        write_text(&report, &mut page);
        let expected = "\
# TYPE nccl_algorithm_bandwidth_gbs untyped
nccl_algorithm_bandwidth_gbs{rank=\"0\"} 250
# TYPE nccl_bus_bandwidth_gbs untyped
nccl_bus_bandwidth_gbs{rank=\"0\"} 471.5
nccl_bus_bandwidth_gbs{rank=\"1\\\"\"} 1
";
        assert_eq!(page, expected);
    }
}
