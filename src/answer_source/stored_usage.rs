//! Stored usage: GPU-hours, lost GPU-hours and energy of months, out of the samples that were written at each full hour.

use std::{collections::BTreeMap, time::Duration};

use gaunt_api::{LossCause, UsageReport, UsageRow};
use gaunt_schema::{GpuState, MetricId, SanitizedText, UnixMs, catalogue::fleet_metrics};
use gaunt_series::{QueryError, StoredSeries};

const HOUR: Duration = Duration::from_hours(1);

/// The labels of an hour's samples: job, user, state and cause.
const LABELS: [&str; 4] = ["exported_job", "user", "state", "cause"];

/// The most rows, as many as are written in an hour and those of jobs that ended.
const MAX_ROWS: usize = 100_000;

/// Sets a number of a row.
type SetPart = fn(&mut UsageRow, f64);

/// The usage of the full hours in the `span` up to `until`.
pub(super) async fn read_usage(
    stored: &mut StoredSeries,
    cluster: &SanitizedText,
    until: UnixMs,
    span: Duration,
) -> Result<UsageReport, QueryError> {
    let hour_ms = HOUR.as_millis() as i64;
    let at = UnixMs(until.0.div_euclid(hour_ms) * hour_ms);
    let span = HOUR * (span.as_secs().div_ceil(HOUR.as_secs()) as u32);
    let mut rows: BTreeMap<[SanitizedText; 4], UsageRow> = BTreeMap::new();
    let parts: [(MetricId, SetPart); 3] = [
        (fleet_metrics::JOB_GPU_HOURS, |row, hours| row.gpu_seconds = hours * HOUR.as_secs_f64()),
        (fleet_metrics::JOB_LOST_GPU_HOURS, |row, hours| {
            row.lost_gpu_seconds = hours * HOUR.as_secs_f64();
        }),
        (fleet_metrics::JOB_ENERGY, |row, joules| row.joules = Some(joules)),
    ];
    for (metric, set) in parts {
        let name = metric.catalogue_row().name;
        let read = stored.sum_hours(name, &LABELS, (at, span), |sample| {
            let key = LABELS.map(|label| SanitizedText::new(sample.label(label)));
            if sample.value >= 0.0 && (rows.len() < MAX_ROWS || rows.contains_key(&key)) {
                set(rows.entry(key).or_default(), sample.value);
            }
        });
        read.await?;
    }
    let name = fleet_metrics::JOB_GPU_HOURS.catalogue_row().name;
    let watched = stored.count_hours(name, (at, span)).await?;
    let mut rows: Vec<UsageRow> = rows
        .into_iter()
        .map(|([job, user, state, cause], row)| {
            let known = |text: SanitizedText| (!text.is_empty()).then_some(text);
            UsageRow {
                state: GpuState::parse(&state),
                cause: LossCause::parse(&cause),
                job: known(job),
                user: known(user),
                ..row
            }
        })
        .collect();
    rows.sort_by(|left, right| right.gpu_seconds.total_cmp(&left.gpu_seconds));
    let watched_seconds = (HOUR * (watched as u32)).as_secs_f64();
    Ok(UsageReport { cluster: cluster.clone(), at, from: at - span, watched_seconds, rows })
}
