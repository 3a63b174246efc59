//! Cumulative lost time: GPU seconds by job and cause, which only grow, in a bounded table.

use std::collections::{BTreeMap, HashMap};

use gaunt_schema::{SanitizedText, UnixMs};
use serde::{Deserialize, Serialize};

use super::{UsageAmount, UsageKey};
use gaunt_api::{
    JobLostTime,
    gpu_time::{ENDED, NOBODY},
};

/// Maximum number of rows: a thousand jobs with four causes each. Above it, the rows of the jobs without a loss for
/// longest are merged.
const MAX_ROWS: usize = 4_096;

/// GPU seconds by job and cause.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct LostTimeTotals {
    rows: Vec<LostTimeRow>,
    #[serde(skip)]
    index: HashMap<(SanitizedText, SanitizedText), usize>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct LostTimeRow {
    job: SanitizedText,
    cause: SanitizedText,
    gpu_seconds: f64,
    /// When it last grew.
    grew: UnixMs,
}

impl LostTimeTotals {
    /// Prepares totals that were loaded from disk.
    pub(crate) fn into_restored(mut self) -> Self {
        self.rows.truncate(MAX_ROWS);
        self.rebuild_index();
        self
    }

    fn rebuild_index(&mut self) {
        let index = self.rows.iter().enumerate();
        self.index = index.map(|(at, row)| ((row.job.clone(), row.cause.clone()), at)).collect();
    }

    /// Adds the lost part of this usage.
    pub(super) fn add_lost_time(
        &mut self,
        now: UnixMs,
        used: &HashMap<UsageKey<SanitizedText>, UsageAmount>,
    ) {
        // The last digit of a sum depends on its order: the same usage is saved as the same bytes.
        let mut lost: Vec<_> = used
            .iter()
            .filter_map(|(key, used)| Some((key, key.cause?.as_str(), used.lost)))
            .collect();
        lost.sort_unstable_by_key(|(key, ..)| *key);
        for (key, cause, seconds) in lost {
            let job = key.job.clone().unwrap_or_else(|| SanitizedText::new(NOBODY));
            self.grow_row(job, SanitizedText::new(cause), seconds, now);
        }
    }

    fn grow_row(&mut self, job: SanitizedText, cause: SanitizedText, seconds: f64, now: UnixMs) {
        let key = (job, cause);
        if let Some(at) = self.index.get(&key) {
            let row = &mut self.rows[*at];
            row.gpu_seconds += seconds;
            row.grew = now;
            return;
        }
        if self.rows.len() >= MAX_ROWS {
            self.fold_oldest(now);
        }
        let (job, cause) = key.clone();
        self.index.insert(key, self.rows.len());
        self.rows.push(LostTimeRow { job, cause, gpu_seconds: seconds, grew: now });
    }

    /// Merges the older half of the rows under one name, so that sums over jobs never fall.
    fn fold_oldest(&mut self, now: UnixMs) {
        self.rows.sort_by_key(|row| (row.job != *ENDED, row.grew));
        let mut ended: BTreeMap<SanitizedText, f64> = BTreeMap::new();
        for row in self.rows.drain(..MAX_ROWS / 2) {
            *ended.entry(row.cause).or_default() += row.gpu_seconds;
        }
        let ended = ended.into_iter().map(|(cause, gpu_seconds)| LostTimeRow {
            job: SanitizedText::new(ENDED),
            cause,
            gpu_seconds,
            grew: now,
        });
        self.rows.extend(ended);
        self.rebuild_index();
    }

    /// Every row.
    pub(crate) fn sorted_rows(&self) -> Vec<JobLostTime> {
        let rows = self.rows.iter().map(|row| JobLostTime {
            job: row.job.clone(),
            cause: row.cause.clone(),
            gpu_seconds: row.gpu_seconds,
        });
        let mut rows: Vec<_> = rows.collect();
        rows.sort_by(|a, b| (&a.job, &a.cause).cmp(&(&b.job, &b.cause)));
        rows
    }
}

#[cfg(test)]
mod tests {
    use gaunt_api::LossCause;
    use gaunt_schema::GpuState;

    use super::*;

    /// Adds a second of a GPU that waits.
    fn lose_second(totals: &mut LostTimeTotals, job: &str, at: i64) {
        let job = SanitizedText::new(job);
        let cause = Some(LossCause::Unexplained);
        let key = UsageKey { job: Some(&job), model: None, state: GpuState::Waiting, cause };
        let worked = UsageKey { state: GpuState::Computing, cause: None, ..key.clone() };
        let used = UsageAmount { seconds: 2.0, lost: 1.0, joules: None };
        let more = UsageAmount { lost: 0.0, ..used };
        totals.add_lost_time(
            UnixMs(at),
            &HashMap::from([(key.to_owned_key(), used), (worked.to_owned_key(), more)]),
        );
    }

    fn sum_seconds(totals: &LostTimeTotals) -> f64 {
        totals.rows.iter().map(|row| row.gpu_seconds).sum()
    }

    #[test]
    fn ended_job_keeps_its_time_until_the_table_is_full() {
        let mut totals = LostTimeTotals::default();
        let mut before = 0.0;
        for job in 0..10_000 {
            lose_second(&mut totals, &format!("job{job}"), job * 1_000);
            assert!(totals.rows.len() <= MAX_ROWS);
            assert!(sum_seconds(&totals) >= before, "the sum over jobs never falls");
            before = sum_seconds(&totals);
        }
        assert_eq!(before.to_string(), "10000", "what was worked is not lost");
        let rows = totals.sorted_rows();
        let ended = rows.iter().find(|row| *row.job == *ENDED).unwrap();
        assert!(ended.gpu_seconds > 5_000.0);
        assert!(rows.iter().any(|row| &*row.job == "job9999"), "the newest have their own");
    }

    #[test]
    fn lost_time_continues_after_a_restart() {
        let mut totals = LostTimeTotals::default();
        lose_second(&mut totals, "a", 1_000);
        let text = serde_json::to_string(&totals).unwrap();
        let mut restored = serde_json::from_str::<LostTimeTotals>(&text).unwrap().into_restored();
        lose_second(&mut restored, "a", 500_000);
        let rows = restored.sorted_rows();
        assert_eq!((rows.len(), &*rows[0].cause), (1, "unexplained"));
        assert_eq!(rows[0].gpu_seconds.to_string(), "2");
    }
}
