//! Hourly usage: GPU-hours, lost GPU-hours and energy of the last hour by job, for the store alone.
//!
//! They are gauges at the full hour: two aggregators count from different starts, so that counters would look as if they
//! were reset where one writes after the other. Their sum over months is the GPU-hours of these months.

use std::collections::BTreeMap;

use gaunt_api::{UsageReport, UsageRow};
use gaunt_schema::{MetricId, UnixMs, catalogue::fleet_metrics};

use super::page_output::PageOutput;

/// Milliseconds of an hour.
const HOUR_MS: i64 = 3_600_000;

const SECONDS_PER_HOUR: f64 = 3_600.0;

/// The most series of one metric, those with the most GPU time.
const MAX_ROWS: usize = 20_000;

/// Job, user, state and cause; empty where a row has none.
type UsageLabels<'a> = [&'a str; 4];

const LABELS: [&str; 4] = ["job", "user", "state", "cause"];

/// Tells when an hour is over.
#[derive(Debug, Default)]
pub(super) struct HourClock {
    hour: Option<i64>,
}

impl HourClock {
    /// Whether the instant is the first one of another hour than the instant before.
    pub(super) fn is_hour_over(&mut self, at: UnixMs) -> bool {
        let hour = at.0.div_euclid(HOUR_MS);
        self.hour.replace(hour).is_some_and(|before| before < hour)
    }
}

/// Writes the usage of an hour.
pub(super) fn write_hourly_usage(page: &mut PageOutput<'_>, usage: &UsageReport) {
    let gpu_hours = |row: &UsageRow| Some(row.gpu_seconds / SECONDS_PER_HOUR);
    write_rows(page, fleet_metrics::JOB_GPU_HOURS, usage, gpu_hours);
    let lost_hours = |row: &UsageRow| {
        (row.lost_gpu_seconds > 0.0).then_some(row.lost_gpu_seconds / SECONDS_PER_HOUR)
    };
    write_rows(page, fleet_metrics::JOB_LOST_GPU_HOURS, usage, lost_hours);
    write_rows(page, fleet_metrics::JOB_ENERGY, usage, |row| row.joules);
}

/// Writes the sum of a value for each set of labels; rows without the value are left out.
fn write_rows(
    page: &mut PageOutput<'_>,
    metric: MetricId,
    usage: &UsageReport,
    value_of: impl Fn(&UsageRow) -> Option<f64>,
) {
    let mut sums: BTreeMap<UsageLabels<'_>, f64> = BTreeMap::new();
    for row in &usage.rows {
        let labels = [
            row.job.as_deref().unwrap_or_default(),
            row.user.as_deref().unwrap_or_default(),
            row.state.map_or("", gaunt_schema::GpuState::as_str),
            row.cause.map_or("", gaunt_api::LossCause::as_str),
        ];
        let has_room = sums.len() < MAX_ROWS || sums.contains_key(&labels);
        if let Some(value) = value_of(row).filter(|_| has_room) {
            *sums.entry(labels).or_default() += value;
        }
    }
    page.write_family(metric, |family| {
        for (labels, sum) in &sums {
            let present = LABELS.into_iter().zip(*labels).filter(|(_, text)| !text.is_empty());
            family.write_line(&present.collect::<Vec<_>>(), *sum);
        }
    });
}

#[cfg(test)]
mod tests {
    use gaunt_api::LossCause;
    use gaunt_schema::{GpuState, text::ExpositionFormat};

    use super::*;

    #[test]
    fn hour_is_over_at_the_first_instant_of_the_next_one() {
        let mut clock = HourClock::default();
        let minutes = [30, 59, 60, 61, 119, 125, 90, 121, 300];
        let over = minutes.map(|minute| clock.is_hour_over(UnixMs(minute * 60_000)));
        assert_eq!(over, [false, false, true, false, false, true, false, true, true]);
    }

    #[test]
    fn models_of_one_job_are_added_up_and_absent_labels_are_left_out() {
        let row = |job: Option<&str>, model: &str, state, gpu_seconds, joules| UsageRow {
            job: job.map(Into::into),
            user: job.map(|_| "mira".into()),
            model: Some(model.into()),
            state: Some(state),
            cause: job.is_none().then_some(LossCause::Idle),
            gpu_seconds,
            lost_gpu_seconds: if job.is_none() { gpu_seconds } else { 0.0 },
            joules,
            ..UsageRow::default()
        };
        let usage = UsageReport {
            rows: vec![
                row(Some("8812"), "H100", GpuState::Computing, 3_600.0, Some(7.0)),
                row(Some("8812"), "H200", GpuState::Computing, 1_800.0, None),
                row(None, "H100", GpuState::Idle, 900.0, None),
            ],
            ..UsageReport::default()
        };
        let mut text = String::new();
        let format = ExpositionFormat::Text;
        write_hourly_usage(&mut PageOutput::Text { out: &mut text, format }, &usage);
        let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(
            lines,
            [
                r#"gaunt_job_gpu_hours{state="idle",cause="idle"} 0.25"#,
                r#"gaunt_job_gpu_hours{job="8812",user="mira",state="computing"} 1.5"#,
                r#"gaunt_job_lost_gpu_hours{state="idle",cause="idle"} 0.25"#,
                r#"gaunt_job_energy_joules{job="8812",user="mira",state="computing"} 7"#,
            ]
        );
    }
}
