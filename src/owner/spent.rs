//! The account of lost GPU time: seconds by job and cause, which only grow, in a bounded table.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use gaunt_schema::{Class, EntityKind, FindingKind, GpuState, Safe, UnixMs};
use serde::{Deserialize, Serialize};

use super::Owner;
use crate::{
    answer::{Finding, FindingList, GpuTime, JobTime, Starved, StateCount, gpu_time::ENDED},
    cluster::Cluster,
};

/// Rows of the account: a thousand jobs with four causes each. Those of the jobs that lost nothing for longest are put
/// together when there are more.
const MAX_ROWS: usize = 4_096;

/// Jobs whose states are told one by one.
const MAX_JOBS: usize = 1_000;

/// The longest time between two ticks that is counted: beyond it nobody looked.
const LONGEST: Duration = Duration::from_secs(10);

/// GPU seconds by job and cause.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Spent {
    rows: Vec<Row>,
    #[serde(skip)]
    places: HashMap<(Safe, Safe), usize>,
    #[serde(skip)]
    last: Option<UnixMs>,
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
    pub(super) fn resumed(mut self) -> Self {
        self.rows.truncate(MAX_ROWS);
        self.index();
        self
    }

    fn index(&mut self) {
        let places = self.rows.iter().enumerate();
        self.places = places.map(|(at, row)| ((row.job.clone(), row.cause.clone()), at)).collect();
    }

    /// Adds what was lost since the last time.
    fn add(&mut self, now: UnixMs, lost: BTreeMap<(Safe, &'static str), u32>) {
        let passed = self.last.map_or(Duration::ZERO, |last| now.since(last)).min(LONGEST);
        self.last = Some(now);
        for ((job, cause), gpus) in lost {
            let seconds = passed.as_secs_f64() * f64::from(gpus);
            if seconds > 0.0 {
                self.grow(job, Safe::new(cause), seconds, now);
            }
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
    pub(super) fn told(&self) -> Vec<Starved> {
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

/// What explains lost time: the worst finding that blames a GPU, its node or its job, or that names them as victims.
struct Causes<'a> {
    gpus: HashMap<(&'a str, &'a str), FindingKind>,
    nodes: HashMap<&'a str, FindingKind>,
    jobs: HashMap<&'a str, FindingKind>,
}

impl<'a> Causes<'a> {
    fn of(list: &'a FindingList) -> Self {
        let mut causes = Self { gpus: HashMap::new(), nodes: HashMap::new(), jobs: HashMap::new() };
        // A target that is not read explains what is not known, and no time that is lost.
        let explains = |finding: &&Finding| finding.kind != FindingKind::TargetDown;
        for finding in list.findings.iter().filter(explains) {
            for entity in std::iter::once(&finding.entity).chain(&finding.victims) {
                let kind = finding.kind;
                match (entity.kind, &entity.node, &entity.gpu, &entity.job) {
                    (EntityKind::Gpu, Some(node), Some(gpu), _) => {
                        causes.gpus.entry((node, gpu)).or_insert(kind);
                    }
                    (EntityKind::Node, Some(node), ..) => {
                        causes.nodes.entry(node).or_insert(kind);
                    }
                    (_, _, _, Some(job)) => {
                        causes.jobs.entry(job).or_insert(kind);
                    }
                    _ => {}
                }
            }
        }
        causes
    }

    fn of_gpu(&self, cluster: &Cluster, row: u32) -> Option<FindingKind> {
        let entry = cluster.device(Class::Gpu, row)?;
        let node = cluster.node(entry.node)?.name.as_str();
        let gpu = entry.device.key.first().map_or("", Safe::as_str);
        let job = cluster.job(row).and_then(|job| self.jobs.get(job.as_str()));
        self.gpus.get(&(node, gpu)).or_else(|| self.nodes.get(node)).or(job).copied()
    }
}

impl Owner {
    /// Counts what is lost now; states and findings must be those of now.
    pub(super) fn count_lost_time(&mut self) {
        let causes = Causes::of(&self.findings);
        let mut lost: BTreeMap<(Safe, &'static str), u32> = BTreeMap::new();
        for (row, state) in self.states.iter().enumerate() {
            if !state.is_lost_time() || self.cluster.device(Class::Gpu, row as u32).is_none() {
                continue;
            }
            let row = row as u32;
            let cause = causes.of_gpu(&self.cluster, row);
            let cause = cause.map_or(state.as_str(), FindingKind::as_str);
            let job = self.cluster.job(row).cloned().unwrap_or_default();
            *lost.entry((job, cause)).or_default() += 1;
        }
        self.spent.add(self.cluster.now(), lost);
    }

    /// What the GPUs of each job do, and what was lost.
    pub(super) fn gpu_time(&self) -> GpuTime {
        let mut jobs: Vec<(&Safe, &Vec<u32>)> = self.cluster.jobs().iter().collect();
        jobs.sort_by(|a, b| b.1.len().cmp(&a.1.len()).then_with(|| a.0.cmp(b.0)));
        let unlisted_jobs = jobs.len().saturating_sub(MAX_JOBS) as u32;
        let jobs = jobs.into_iter().take(MAX_JOBS).map(|(job, gpus)| {
            let mut counts = vec![0_u32; GpuState::ALL.len()];
            for gpu in gpus {
                counts[self.state_of(*gpu) as usize] += 1;
            }
            let states = GpuState::ALL.iter().map(|state| (*state, counts[*state as usize]));
            let states = states.filter(|(_, gpus)| *gpus > 0);
            let states = states.map(|(state, gpus)| StateCount { state, gpus }).collect();
            JobTime { job: job.clone(), gpus: gpus.len() as u32, states }
        });
        GpuTime {
            at: self.cluster.now(),
            jobs: jobs.collect(),
            unlisted_jobs,
            starved: self.told_spent.clone().unwrap_or_else(|| self.spent.told()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost(job: &str, cause: &'static str, gpus: u32) -> BTreeMap<(Safe, &'static str), u32> {
        BTreeMap::from([((job.into(), cause), gpus)])
    }

    fn sum(spent: &Spent) -> f64 {
        spent.rows.iter().map(|row| row.gpu_seconds).sum()
    }

    #[test]
    fn time_is_counted_between_two_looks_and_never_before_the_first() {
        let mut spent = Spent::default();
        spent.add(UnixMs(1_000), lost("a", "waiting", 8));
        assert_eq!(spent.told(), []);
        spent.add(UnixMs(2_500), lost("a", "waiting", 8));
        spent.add(UnixMs(1_002_500), lost("a", "waiting", 1));
        let told = spent.told();
        assert_eq!((told.len(), &*told[0].job, &*told[0].cause), (1, "a", "waiting"));
        assert_eq!(told[0].gpu_seconds.to_string(), "22", "a pause counts ten seconds at most");
    }

    #[test]
    fn a_job_that_ended_keeps_its_time_until_there_is_no_room() {
        let mut spent = Spent::default();
        let mut before = 0.0;
        for job in 0..10_000 {
            spent.add(UnixMs(job * 1_000), lost(&format!("job{job}"), "hung", 1));
            assert!(spent.rows.len() <= MAX_ROWS);
            assert!(sum(&spent) >= before, "the sum over jobs never falls");
            before = sum(&spent);
        }
        assert_eq!(before.to_string(), "9999");
        let told = spent.told();
        let ended = told.iter().find(|row| *row.job == *ENDED).unwrap();
        assert!(ended.gpu_seconds > 5_000.0);
        assert!(told.iter().any(|row| &*row.job == "job9999"), "the newest have their own");
    }

    #[test]
    fn it_goes_on_after_a_restart() {
        let mut spent = Spent::default();
        spent.add(UnixMs(0), lost("a", "hung", 2));
        spent.add(UnixMs(1_000), lost("a", "hung", 2));
        let text = serde_json::to_string(&spent).unwrap();
        let mut again = serde_json::from_str::<Spent>(&text).unwrap().resumed();
        again.add(UnixMs(500_000), lost("a", "hung", 2));
        again.add(UnixMs(501_000), lost("a", "hung", 2));
        assert_eq!(
            again.told()[0].gpu_seconds.to_string(),
            "4",
            "what passed between is not known"
        );
        assert_eq!(again.rows.len(), 1);
    }
}
