//! Output of the metrics: exposition text for a scrape, or samples for the store.

use std::fmt::Write as _;

use gaunt_schema::{MetricId, catalogue::fleet_metrics, text::ExpositionFormat, unit::MetricKind};
use gaunt_store::StoreStep;

/// What is being written.
pub(super) enum PageOutput<'a> {
    /// A page.
    Text {
        /// The page so far.
        out: &'a mut String,
        /// Its format.
        format: ExpositionFormat,
    },
    /// Gauges as samples of a step.
    Step(&'a mut StoreStep),
}

impl<'a> PageOutput<'a> {
    /// Writes one family: its header from the catalogue, then its lines. A family without lines is left out.
    pub(super) fn write_family(
        &mut self,
        metric: MetricId,
        lines: impl FnOnce(&mut FamilyOutput<'_, 'a>),
    ) {
        let row = metric.catalogue_row();
        let mut starts = None;
        match self {
            Self::Text { out, format } => {
                let family_start = out.len();
                format.write_header(metric, out);
                starts = Some((family_start, out.len()));
            }
            Self::Step(_)
                if row.kind != MetricKind::Gauge || metric == fleet_metrics::GPU_STATE =>
            {
                return;
            }
            Self::Step(_) => {}
        }
        lines(&mut FamilyOutput { page: self, name: row.name });
        if let (Self::Text { out, .. }, Some((family_start, header_end))) = (self, starts)
            && out.len() == header_end
        {
            out.truncate(family_start);
        }
    }
}

/// The family that is being written.
pub(super) struct FamilyOutput<'page, 'a> {
    page: &'page mut PageOutput<'a>,
    name: &'static str,
}

impl FamilyOutput<'_, '_> {
    pub(super) fn write_line(&mut self, labels: &[(&str, &str)], value: f64) {
        match self.page {
            PageOutput::Text { out, .. } => write_text_line(out, self.name, labels, value),
            PageOutput::Step(step) => step.push_sample(self.name, labels, value),
        }
    }
}

fn write_text_line(out: &mut String, name: &str, labels: &[(&str, &str)], value: f64) {
    out.push_str(name);
    for (index, (name, text)) in labels.iter().enumerate() {
        out.push(if index == 0 { '{' } else { ',' });
        out.push_str(name);
        out.push_str("=\"");
        write_escaped(out, text);
        out.push('"');
    }
    if !labels.is_empty() {
        out.push('}');
    }
    writeln!(out, " {value}").expect("writing to a string cannot fail");
}

fn write_escaped(out: &mut String, text: &str) {
    for character in text.chars() {
        match character {
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            '\n' => out.push_str("\\n"),
            other => out.push(other),
        }
    }
}
