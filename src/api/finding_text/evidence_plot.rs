//! Plot of the history of an evidence number as SVG within a page: axes, limit, and the start of the finding.

use std::{fmt::Write as _, sync::Arc};

use gaunt_schema::{UnixMs, unit::Unit};

use crate::{
    EvidenceItem, Finding, MetricHistory, evidence_query::limit_in_unit, html_page::escape_html,
};

/// Size of a plot and its margins, in units of the drawing: left, right, above, below.
const SIZE: (f64, f64) = (880.0, 190.0);
const MARGINS: (f64, f64, f64, f64) = (90.0, 20.0, 12.0, 28.0);

/// The history of one number of a finding.
#[derive(Clone, Debug)]
pub struct EvidencePlot {
    /// The number.
    pub item: EvidenceItem,
    /// Its history.
    pub history: Arc<MetricHistory>,
}

impl EvidencePlot {
    /// Returns the title, and the drawing with its own text alone: no script, no style, no reference.
    pub(super) fn render_svg(
        &self,
        finding: &Finding,
        format: &dyn Fn(f64, Unit) -> String,
    ) -> (String, String) {
        let history = &*self.history;
        let limit = limit_in_unit(history, &self.item);
        let known = || history.mean.iter().flatten().copied().filter(|value| value.is_finite());
        let largest = known().fold(limit.unwrap_or(0.0), f32::max);
        let top = match f64::from(largest) {
            share if history.unit == Unit::Ratio && share <= 1.0 => (share * 1.1).min(1.0),
            largest => largest * 1.1,
        };
        let top = if top > 0.0 { top } else { 1.0 };
        let number = |value: f64| escape_html(&format(value, history.unit));
        let (left, right, above, below) = MARGINS;
        let (width, height) = (SIZE.0 - left - right, SIZE.1 - above - below);
        let steps = history.mean.len().max(2) - 1;
        let x = |index: f64| left + width * index / steps as f64;
        let y = |value: f64| above + height * (1.0 - (value / top).clamp(0.0, 1.0));
        let mut out = format!(
            "<svg viewBox=\"0 0 {} {}\" role=\"img\" fill=\"none\" stroke=\"currentColor\" font-size=\"12\">\n",
            SIZE.0, SIZE.1
        );
        let text = |out: &mut String, x: f64, y: f64, anchor: &str, text: &str| {
            _ = writeln!(
                out,
                "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" fill=\"currentColor\" stroke=\"none\">{text}</text>"
            );
        };
        _ = writeln!(
            out,
            "<path d=\"M{left} {above}V{:.1}H{:.1}\" opacity=\"0.5\"/>",
            above + height,
            left + width
        );
        text(&mut out, left - 6.0, y(top) + 10.0, "end", &number(top));
        text(&mut out, left - 6.0, y(0.0), "end", &number(0.0));
        if let Some(limit) = limit.map(f64::from) {
            let label = escape_html(&self.item.side.render_limit(&format(limit, history.unit)));
            let at = y(limit);
            _ = writeln!(
                out,
                "<path d=\"M{left} {at:.1}H{:.1}\" stroke=\"#d9a400\" stroke-dasharray=\"6 4\"/>",
                left + width
            );
            text(&mut out, left - 6.0, at + 4.0, "end", &label);
        }
        let span = history.step_ms.saturating_mul(steps as u64);
        let first = UnixMs(history.at.0.saturating_sub_unsigned(span));
        let share = (finding.since.0 - first.0) as f64 / span.max(1) as f64;
        if (0.0..=1.0).contains(&share) {
            let at = left + width * share;
            _ = writeln!(
                out,
                "<path d=\"M{at:.1} {above}V{:.1}\" stroke=\"#c81414\" stroke-dasharray=\"2 3\"/>",
                above + height
            );
            text(&mut out, at + 4.0, above + 10.0, "start", "start of the finding");
        }
        _ = writeln!(
            out,
            "<path d=\"{}\" stroke=\"#2f7ed8\" stroke-width=\"1.5\"/>",
            self.line(x, y)
        );
        let bottom = SIZE.1 - 8.0;
        text(&mut out, left, bottom, "start", &(first.to_time_of_day() + "Z"));
        text(&mut out, left + width, bottom, "end", &(history.at.to_time_of_day() + "Z"));
        out.push_str("</svg>\n");
        let many = if history.devices > 1 {
            format!(", mean of {}", history.devices)
        } else {
            String::new()
        };
        (format!("{}{many}", self.item.what), out)
    }

    /// The line through the known points; a gap where a point is unknown.
    fn line(&self, x: impl Fn(f64) -> f64, y: impl Fn(f64) -> f64) -> String {
        let mut line = String::new();
        let mut pen = 'M';
        for (index, point) in self.history.mean.iter().enumerate() {
            let Some(value) = point.filter(|value| value.is_finite()) else {
                pen = 'M';
                continue;
            };
            let (x, y) = (x(index as f64), y(f64::from(value)));
            _ = write!(line, "{pen}{x:.1} {y:.1}");
            if pen == 'M' {
                // A point between two gaps is visible too.
                _ = write!(line, "h0.5");
            }
            pen = 'L';
        }
        line
    }
}
