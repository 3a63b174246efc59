//! The two formats of a page: Prometheus text 0.0.4 and OpenMetrics 1.0. They differ in the headers of families.

use std::fmt::Write;

use crate::{
    MetricId,
    text::{CONTENT_TYPE, OPEN_METRICS},
    unit::{MetricKind, Unit},
};

/// The suffix of a counter's samples, which its family's name lacks in OpenMetrics.
const TOTAL: &str = "_total";

/// The suffix of an info series, which its family's name lacks in OpenMetrics.
const INFO: &str = "_info";

/// The format of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ExpositionFormat {
    /// The Prometheus exposition format 0.0.4.
    Text,
    /// OpenMetrics 1.0.
    OpenMetrics,
}

impl ExpositionFormat {
    /// Its media type.
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Text => CONTENT_TYPE,
            Self::OpenMetrics => OPEN_METRICS,
        }
    }

    /// Appends the header of a metric's family.
    pub fn write_header(self, metric: MetricId, out: &mut String) {
        let row = metric.catalogue_row();
        self.write_family_header(row.name, row.help, row.kind, row.unit, out);
    }

    /// Appends the header of a gauge without a unit.
    pub(super) fn write_gauge_header(self, name: &str, help: &str, out: &mut String) {
        self.write_family_header(name, help, MetricKind::Gauge, Unit::Count, out);
    }

    /// Appends the header of the family called `name`. Help texts are constants: one line without backslash and
    /// quotation mark.
    pub(super) fn write_family_header(
        self,
        name: &str,
        help: &str,
        kind: MetricKind,
        unit: Unit,
        out: &mut String,
    ) {
        let (family, kind) = match (self, kind) {
            (Self::Text, MetricKind::Counter(_)) => (name, "counter"),
            (Self::Text, _) | (Self::OpenMetrics, MetricKind::Gauge) => (name, "gauge"),
            // Other exporters have counters and info series with names that OpenMetrics does not allow.
            (Self::OpenMetrics, MetricKind::Counter(_)) => {
                name.strip_suffix(TOTAL).map_or((name, "unknown"), |family| (family, "counter"))
            }
            (Self::OpenMetrics, MetricKind::Info) => {
                name.strip_suffix(INFO).map_or((name, "gauge"), |family| (family, "info"))
            }
        };
        // Writing to a String never fails.
        let _ = writeln!(out, "# HELP {family} {help}\n# TYPE {family} {kind}");
        let unit = unit.name_suffix();
        if self == Self::OpenMetrics && !unit.is_empty() && family.ends_with(unit) {
            let _ = writeln!(out, "# UNIT {family} {}", &unit[1..]);
        }
    }

    /// Appends the end of the page.
    pub fn write_end(self, out: &mut String) {
        if self == Self::OpenMetrics {
            out.push_str("# EOF\n");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::{
        Device, Report,
        catalogue::{CATALOGUE, gpu, host},
        text::{CompatOptions, write_page},
    };

    #[test]
    fn openmetrics_page_has_families_units_and_eof() {
        let mut report = Report { node: Some("a".into()), ..Report::default() };
        let gpu = report.ensure_device(Device::new_gpu(0));
        report.push(gpu, gpu::ENERGY, 9.5);
        report.push(gpu, gpu::PROCESSES, 2.0);
        let mut page = String::new();
        write_page(&report, ExpositionFormat::OpenMetrics, CompatOptions::default(), &mut page);
        let expected = "\
# HELP gaunt_node Who the node is.
# TYPE gaunt_node info
gaunt_node_info{node=\"a\"} 1
# HELP gaunt_gpu_energy_joules Energy used since the driver was loaded.
# TYPE gaunt_gpu_energy_joules counter
# UNIT gaunt_gpu_energy_joules joules
gaunt_gpu_energy_joules_total{gpu=\"0\"} 9.5
# HELP gaunt_gpu_processes Processes that hold a compute context on the GPU.
# TYPE gaunt_gpu_processes gauge
gaunt_gpu_processes{gpu=\"0\"} 2
# EOF
";
        assert_eq!(page, expected);
    }

    #[test]
    fn text_page_has_common_prometheus_format() {
        let mut report = Report { node: Some("a".into()), ..Report::default() };
        let node = report.ensure_device(Device::new_node());
        report.push(node, host::CPUS, 2.0);
        let (mut text_page, mut whole_page) = (String::new(), String::new());
        crate::text::write_text(&report, &mut text_page);
        write_page(&report, ExpositionFormat::Text, CompatOptions::default(), &mut whole_page);
        assert_eq!(text_page, whole_page);
    }

    #[test]
    fn openmetrics_family_names_are_unique() {
        let rows: HashSet<_> = CATALOGUE.iter().map(|row| row.name).collect();
        let families: HashSet<_> = rows
            .iter()
            .map(|name| name.strip_suffix(TOTAL).or(name.strip_suffix(INFO)).unwrap_or(name))
            .collect();
        assert_eq!(rows.len(), families.len());
        for row in &CATALOGUE {
            assert!(!row.help.contains(['"', '\\', '\n']), "{}: help", row.name);
        }
    }
}
