//! What was lost ever since: GPU seconds by job and cause, which only grow, in a bounded table.

use std::collections::{BTreeMap, HashMap};

use gaunt_schema::{Safe, UnixMs};
use serde::{Deserialize, Serialize};

use super::{Key, Used};
use crate::answer::{
    LossCause, Starved,
    gpu_time::{ENDED, NOBODY},
};

/// Rows of the account: a thousand jobs with four causes each. Those of the jobs that lost nothing for longest are put
/// together when there are more.
const MAX_ROWS: usize = 4_096;

/// GPU seconds by job and cause.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(in crate::owner) struct Spent {
    rows: Vec<Row>,
    #[serde(skip)]
    places: HashMap<(Safe, Safe), usize>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Row {
    job: Safe,
    cause: Safe,
    gpu_seconds: f64,
    /// When it last grew.
    grew: UnixMs,
}

impl Spent {
    /// The same after it was read back.
    pub(in crate::owner) fn resumed(mut self) -> Self {
        self.rows.truncate(MAX_ROWS);
        self.index();
        self
    }

    fn index(&mut self) {
        let places = self.rows.iter().enumerate();
        self.places = places.map(|(at, row)| ((row.job.clone(), row.cause.clone()), at)).collect();
    }

    /// Adds what of this was lost.
    pub(super) fn add(&mut self, now: UnixMs, used: &HashMap<Key<Safe>, Used>) {
        let mut lost: BTreeMap<(Safe, &'static str), f64> = BTreeMap::new();
        for (key, used) in used {
            if let Some(cause) = key.cause.map(LossCause::as_str) {
                *lost
                    .entry((key.job.clone().unwrap_or_else(|| Safe::new(NOBODY)), cause))
                    .or_default() += used.lost;
            }
        }
        for ((job, cause), seconds) in lost {
            self.grow(job, Safe::new(cause), seconds, now);
        }
    }

    fn grow(&mut self, job: Safe, cause: Safe, seconds: f64, now: UnixMs) {
        let key = (job, cause);
        if let Some(at) = self.places.get(&key) {
            let row = &mut self.rows[*at];
            row.gpu_seconds += seconds;
            row.grew = now;
            return;
        }
        if self.rows.len() >= MAX_ROWS {
            self.fold(now);
        }
        let (job, cause) = key.clone();
        self.places.insert(key, self.rows.len());
        self.rows.push(Row { job, cause, gpu_seconds: seconds, grew: now });
    }

    /// Puts the older half of the rows together under one name, so that what is summed over jobs never falls.
    fn fold(&mut self, now: UnixMs) {
        self.rows.sort_by_key(|row| (row.job != *ENDED, row.grew));
        let mut ended: BTreeMap<Safe, f64> = BTreeMap::new();
        for row in self.rows.drain(..MAX_ROWS / 2) {
            *ended.entry(row.cause).or_default() += row.gpu_seconds;
        }
        let ended = ended.into_iter().map(|(cause, gpu_seconds)| Row {
            job: Safe::new(ENDED),
            cause,
            gpu_seconds,
            grew: now,
        });
        self.rows.extend(ended);
        self.index();
    }

    /// Every row.
    pub(in crate::owner) fn told(&self) -> Vec<Starved> {
        let rows = self.rows.iter().map(|row| Starved {
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
    use gaunt_schema::GpuState;

    use super::*;

    /// Adds a second of a GPU that waits.
    fn lose(spent: &mut Spent, job: &str, at: i64) {
        let job = Safe::new(job);
        let cause = Some(LossCause::Unexplained);
        let key = Key { job: Some(&job), model: None, state: GpuState::Waiting, cause };
        let worked = Key { state: GpuState::Computing, cause: None, ..key.clone() };
        let used = Used { seconds: 2.0, lost: 1.0, joules: None };
        let more = Used { lost: 0.0, ..used };
        spent.add(UnixMs(at), &HashMap::from([(key.cloned(), used), (worked.cloned(), more)]));
    }

    fn sum(spent: &Spent) -> f64 {
        spent.rows.iter().map(|row| row.gpu_seconds).sum()
    }

    #[test]
    fn a_job_that_ended_keeps_its_time_until_there_is_no_room() {
        let mut spent = Spent::default();
        let mut before = 0.0;
        for job in 0..10_000 {
            lose(&mut spent, &format!("job{job}"), job * 1_000);
            assert!(spent.rows.len() <= MAX_ROWS);
            assert!(sum(&spent) >= before, "the sum over jobs never falls");
            before = sum(&spent);
        }
        assert_eq!(before.to_string(), "10000", "what was worked is not lost");
        let told = spent.told();
        let ended = told.iter().find(|row| *row.job == *ENDED).unwrap();
        assert!(ended.gpu_seconds > 5_000.0);
        assert!(told.iter().any(|row| &*row.job == "job9999"), "the newest have their own");
    }

    #[test]
    fn it_goes_on_after_a_restart() {
        let mut spent = Spent::default();
        lose(&mut spent, "a", 1_000);
        let text = serde_json::to_string(&spent).unwrap();
        let mut again = serde_json::from_str::<Spent>(&text).unwrap().resumed();
        lose(&mut again, "a", 500_000);
        let told = again.told();
        assert_eq!((told.len(), &*told[0].cause), (1, "unexplained"));
        assert_eq!(told[0].gpu_seconds.to_string(), "2");
    }
}
