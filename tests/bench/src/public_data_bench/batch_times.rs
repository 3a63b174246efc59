//! Mini-batch times of Alibaba's distributed training jobs (cluster-trace-gpu-v2020): the workers of a job, and when one of
//! them is slow.
//!
//! A table has the time that each worker spent on every tenth batch, on a scale from 0 to 1,000. The column `time` has no
//! unit; it is read as seconds. What follows assumes that all workers wait for the slowest one after each batch.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    time::Duration,
};

use anyhow::ensure;
use gaunt_schema::UnixMs;

use super::{
    csv_rows::{RowCounts, read_rows},
    modelled_gpu::{KernelShares, ModelledGpu},
    page_player::PublicPages,
    straggler_score::KnownStraggler,
};
use crate::judge_bench::START;

/// Columns of a table.
const COLUMNS: [&str; 3] = ["worker", "time", "batch_time_norm"];

/// Largest number of a worker, and of a second: a week.
const MAX_WORKER: u32 = 4_096;
const MAX_SECOND: usize = 7 * 86_400;

/// Seconds between two pages.
const PERIOD_S: usize = 15;

/// A job is slow while the median of this many batches is this many times that of all its batches. Two such times with
/// less than so many seconds between them are one.
const SLOW_SAMPLES: usize = 5;
const SLOW_TIMES: f64 = 1.15;
const SAME_SPAN_S: usize = 300;

/// Its slow workers are those that are slower than usual by as much, and take at least this share of the slowest one's time.
const SLOWEST_SHARE: f64 = 0.7;

/// The samples of one worker, by second.
type WorkerSamples = BTreeMap<usize, f64>;

/// The workers of one job.
#[derive(Debug)]
pub(super) struct BatchTimes {
    job: String,
    workers: BTreeMap<u32, WorkerSamples>,
    /// Rows of the table.
    pub(super) rows: RowCounts,
    /// Joules of each worker until its last page.
    energy_j: BTreeMap<u32, f64>,
    /// The workers that the last list of targets named, once there was one.
    listed: Option<Vec<u32>>,
}

impl BatchTimes {
    /// Reads the table of one job.
    pub(super) fn read_file(path: &Path, job: &str) -> anyhow::Result<Self> {
        let mut workers: BTreeMap<u32, WorkerSamples> = BTreeMap::new();
        let rows = read_rows(path, COLUMNS, |[worker, second, batch_time]| {
            let worker: u32 = worker.parse().ok().filter(|worker| *worker < MAX_WORKER)?;
            let second: usize = second.parse().ok().filter(|second| *second < MAX_SECOND)?;
            let batch_time: f64 = batch_time.parse().ok().filter(|time: &f64| *time > 0.0)?;
            workers.entry(worker).or_default().insert(second, batch_time);
            Some(())
        })?;
        ensure!(workers.len() > 1, "{} has fewer than two workers", path.display());
        let energy_j = BTreeMap::new();
        Ok(Self { job: job.to_owned(), workers, rows, energy_j, listed: None })
    }

    /// The number of workers.
    pub(super) fn worker_count(&self) -> usize {
        self.workers.len()
    }

    /// When the job is slow, and the workers that make it slow.
    pub(super) fn list_stragglers(&self) -> Vec<KnownStraggler> {
        let mut slowest = WorkerSamples::new();
        for (second, time) in self.workers.values().flatten() {
            let job = slowest.entry(*second).or_default();
            *job = job.max(*time);
        }
        let at = |second: usize| START + Duration::from_secs(second as u64);
        let straggler = |(first, last): (usize, usize)| {
            let within = |samples: &WorkerSamples| {
                median_of(samples.range(first..=last).map(|(_, time)| *time).collect())
            };
            let least = within(&slowest)? * SLOWEST_SHARE;
            let is_slow = |samples: &WorkerSamples| {
                let usual = median_of(samples.values().copied().collect());
                let both = within(samples).zip(usual);
                both.is_some_and(|(own, usual)| own >= least.max(usual * SLOW_TIMES))
            };
            let workers = self.workers.iter().filter(|(_, samples)| is_slow(samples));
            let nodes: BTreeSet<String> = workers.map(|(worker, _)| format_node(*worker)).collect();
            let is_known = !nodes.is_empty();
            is_known.then(|| KnownStraggler { nodes, from: at(first), until: at(last) })
        };
        slow_spans(&slowest).into_iter().filter_map(straggler).collect()
    }

    /// The last sample of each worker at a second; none before its first one and after its last one.
    fn samples_at(&self, second: usize) -> BTreeMap<u32, f64> {
        let sample = |(worker, samples): (&u32, &WorkerSamples)| {
            samples.range(second..).next()?;
            samples.range(..=second).next_back().map(|(_, time)| (*worker, *time))
        };
        self.workers.iter().filter_map(sample).collect()
    }

    /// The page of one worker: it computes for its own time, and waits for the rest of the slowest one's.
    fn render_page(&mut self, worker: u32, own: f64, slowest: f64) -> String {
        let shares = KernelShares { computing: own / slowest, busy: 1.0 };
        let energy_j = self.energy_j.entry(worker).or_default();
        *energy_j += shares.power_w() * PERIOD_S as f64;
        let node = format_node(worker);
        let gpu = ModelledGpu { node: &node, gpu: 0, rank: worker, job: &self.job };
        gpu.render_lines(shares, *energy_j)
    }

    fn last_second(&self) -> usize {
        let last = |samples: &WorkerSamples| samples.last_key_value().map(|(second, _)| *second);
        self.workers.values().filter_map(last).max().unwrap_or_default()
    }
}

impl PublicPages for BatchTimes {
    fn time_span(&self) -> (UnixMs, UnixMs) {
        (START, START + Duration::from_secs(self.last_second() as u64))
    }

    fn scrape_period(&self) -> Duration {
        Duration::from_secs(PERIOD_S as u64)
    }

    fn changed_targets(&mut self, at: UnixMs) -> Option<Vec<(u32, String)>> {
        let second = second_of(at);
        let workers = self.workers.iter().filter(|(_, samples)| {
            samples.last_key_value().is_some_and(|(last, _)| *last >= second)
        });
        let there: Vec<u32> = workers.map(|(worker, _)| *worker).collect();
        if self.listed.as_ref() == Some(&there) {
            return None;
        }
        let address = |worker: &u32| format!("10.2.{}.{}:9400", worker / 250, worker % 250 + 1);
        let targets = there.iter().map(|worker| (*worker, address(worker))).collect();
        self.listed = Some(there);
        Some(targets)
    }

    fn take_pages(&mut self, at: UnixMs) -> Vec<(u32, String)> {
        let second = second_of(at);
        let is_due = |worker: u32| second % PERIOD_S == worker as usize % PERIOD_S;
        if !self.workers.keys().any(|worker| is_due(*worker)) {
            return Vec::new();
        }
        let samples = self.samples_at(second);
        let slowest = samples.values().copied().fold(0.0, f64::max);
        let due = samples.into_iter().filter(|(worker, _)| is_due(*worker));
        due.map(|(worker, own)| (worker, self.render_page(worker, own, slowest))).collect()
    }
}

fn second_of(at: UnixMs) -> usize {
    at.duration_since(START).as_secs() as usize
}

/// First and last second of each time for which a job is slow.
fn slow_spans(batches: &WorkerSamples) -> Vec<(usize, usize)> {
    let times: Vec<(usize, f64)> = batches.iter().map(|(second, time)| (*second, *time)).collect();
    let usual = median_of(times.iter().map(|(_, time)| *time).collect());
    let mut spans: Vec<(usize, usize)> = Vec::new();
    for window in times.windows(SLOW_SAMPLES) {
        let present = median_of(window.iter().map(|(_, time)| *time).collect());
        if !present.zip(usual).is_some_and(|(present, usual)| present >= usual * SLOW_TIMES) {
            continue;
        }
        let (first, last) = (window[0].0, window[SLOW_SAMPLES - 1].0);
        match spans.last_mut().filter(|(_, end)| first <= *end + SAME_SPAN_S) {
            Some((_, end)) => *end = last,
            None => spans.push((first, last)),
        }
    }
    spans
}

fn median_of(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

fn format_node(worker: u32) -> String {
    format!("node{worker:04}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::public_data_bench::page_player::play_public_pages;

    /// Four workers; the third one takes twice as long from second 301 to 401. The fourth one becomes slower too, and
    /// nobody waits for it.
    fn read_table() -> BatchTimes {
        let mut table = vec![",worker,gpu,time,batch_time_norm".to_owned()];
        for second in (1..600).step_by(10) {
            for worker in 0..4 {
                let is_slow = (301..=401).contains(&second);
                let time = match worker {
                    2 if is_slow => 820,
                    3 if is_slow => 500,
                    _ => 400 + worker * 5,
                };
                table.push(format!("{second},{worker},25,{second},{time}"));
            }
        }
        table.push("7,9,25,NaN,1".to_owned());
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("job_1_norm.csv");
        std::fs::write(&path, table.join("\n")).unwrap();
        BatchTimes::read_file(&path, "job1").unwrap()
    }

    #[test]
    fn slow_worker_is_the_one_that_makes_the_job_slow() {
        let times = read_table();
        assert_eq!(times.rows, RowCounts { read: 240, rejected: 1 });
        let stragglers = times.list_stragglers();
        let [straggler] = stragglers.as_slice() else { panic!("{stragglers:?}") };
        assert_eq!(straggler.nodes, BTreeSet::from(["node0002".to_owned()]));
        let after = |at: UnixMs| at.duration_since(START).as_secs();
        // A window of five samples is slow from its third slow one on: it begins two samples before.
        assert_eq!((after(straggler.from), after(straggler.until)), (281, 421));
    }

    #[test]
    fn workers_wait_for_the_slowest_one() {
        let mut times = read_table();
        assert_eq!(times.changed_targets(START).map(|targets| targets.len()), Some(4));
        let page = |times: &mut BatchTimes, second| {
            let pages = times.take_pages(START + Duration::from_secs(second));
            let line = pages.first().and_then(|(_, page)| page.lines().last().map(str::to_owned));
            line.map(|line| line.rsplit_once(' ').unwrap().1.to_owned())
        };
        // Second 315 is worker 0's, and 317 is worker 2's.
        assert_eq!(page(&mut times, 315).as_deref(), Some("0.243902"));
        assert_eq!(page(&mut times, 317).as_deref(), Some("0.500000"));
        assert_eq!(page(&mut times, 320), None);
        assert_eq!(page(&mut times, 0), None, "there is no sample yet");
        // The last sample is that of second 591: nobody is a target any more.
        let after = START + Duration::from_secs(592);
        assert_eq!(times.changed_targets(after).map(|targets| targets.len()), Some(0));
    }

    #[test]
    fn workers_are_judged_without_a_rejected_line() {
        let mut times = read_table();
        let run = play_public_pages(&mut times);
        assert_eq!((run.pages, run.rejected_lines), (159, 0));
        assert!(run.episodes.iter().all(|it| it.paged.is_none()), "{:?}", run.episodes);
    }
}
