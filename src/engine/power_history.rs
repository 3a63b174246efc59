//! Power of GPUs over the last minutes as a short text, for the rows of tables.

use std::time::Duration;

use gaunt_schema::{DeviceClass, SanitizedText, catalogue::gpu};

use super::view::View;
use gaunt_api::answer_table::{HISTORY_COLUMNS, HISTORY_SPAN};

/// Maximum number of GPUs whose points are read for one row: of a larger job, evenly spaced ones stand for all.
const MAX_GPUS: usize = 64;

impl View<'_> {
    /// Power of these GPUs together, a digit for each part of the span, oldest first: tenths of the highest one, `-`
    /// where unknown. None without a known point.
    pub(super) fn power_history(&self, gpus: &[u32]) -> Option<SanitizedText> {
        let period = self.cluster.scrape_period().max(Duration::from_millis(1));
        let most = HISTORY_SPAN.as_millis().div_ceil(period.as_millis()) as usize;
        let mut parts = [(0.0_f64, 0_u32); HISTORY_COLUMNS];
        for row in gpus.iter().step_by(gpus.len().div_ceil(MAX_GPUS).max(1)) {
            let node = self.cluster.device_at(DeviceClass::Gpu, *row);
            let node = node.and_then(|device| self.cluster.node_by_id(device.node));
            let points = node.and_then(|node| self.past_points(gpu::POWER, node, *row, most));
            for (back, point) in points.iter().flat_map(|points| points.iter().rev().enumerate()) {
                // The newest part is the last one.
                let part = parts.iter_mut().nth_back(back * HISTORY_COLUMNS / most);
                if let (Some(value), Some((sum, known))) = (point, part) {
                    (*sum, *known) = (*sum + f64::from(*value), *known + 1);
                }
            }
        }
        render_digits(&parts.map(|(sum, known)| (known > 0).then(|| sum / f64::from(known))))
    }
}

fn render_digits(means: &[Option<f64>]) -> Option<SanitizedText> {
    let highest = means.iter().flatten().copied().reduce(f64::max)?;
    let digit = |mean: &Option<f64>| match mean {
        None => '-',
        Some(_) if highest <= 0.0 => '0',
        Some(mean) => char::from(b'0' + ((mean / highest * 10.0).max(0.0) as u8).min(9)),
    };
    Some(SanitizedText::new(&means.iter().map(digit).collect::<String>()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_tenths_of_the_highest_and_gaps_are_kept() {
        let digits = |means: &[Option<f64>]| render_digits(means).map(|text| text.to_string());
        assert_eq!(digits(&[None, Some(700.0), Some(350.0), Some(0.0)]).unwrap(), "-950");
        assert_eq!(digits(&[Some(0.0), None]).unwrap(), "0-");
        assert_eq!(digits(&[None, None]), None);
    }
}
