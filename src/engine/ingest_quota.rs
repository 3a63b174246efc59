//! The CPU quota of a target: how much CPU time ingesting one of its pages may take.
//!
//! Size quotas bound costs that are proportional to the size of a page; this one bounds all other costs. A target that
//! exceeds it several times in a row is refused for a while, twice as long each time, and then tried again.

use std::{
    collections::{HashMap, HashSet},
    time::{Duration, Instant},
};

use gaunt_schema::{Batch, Delivery, LimitExceeded, Quota, ScrapeFailure, TargetId};
use rustix::time::{ClockId, clock_gettime};

use super::Engine;

/// The quota of any page, and what each sample adds: many times the cost of pages that are ingested for the first
/// time.
const OF_A_PAGE: Duration = Duration::from_millis(50);
const OF_A_SAMPLE: Duration = Duration::from_micros(2);

/// Consecutive pages that must exceed it: a single one may have found cold caches, or contain only new series.
const IN_A_ROW: u32 = 3;

/// Pages that are refused the first time, and at most.
const FIRST_REST: u32 = 8;
const LONGEST_REST: u32 = 64;

/// Targets that exceeded their quotas recently, or may have: their pages took longer.
#[derive(Debug, Default)]
pub(super) struct IngestQuota {
    over: HashMap<TargetId, QuotaOverrun>,
}

#[derive(Debug)]
struct QuotaOverrun {
    /// Consecutive pages that exceeded it.
    pages: u32,
    /// Pages still to be refused, and how many were refused the last time.
    left: u32,
    rest: u32,
    excess: LimitExceeded,
}

impl IngestQuota {
    /// Ingests a delivery, unless its target is refused.
    pub(super) fn ingest_within_quota(&mut self, engine: &mut Engine, delivery: Delivery) {
        let Delivery::Batch(batch) = delivery else {
            if let Delivery::Targets(targets) = &delivery {
                let known: HashSet<TargetId> = targets.iter().map(|target| target.id).collect();
                self.over.retain(|target, _| known.contains(target));
            }
            return engine.ingest_delivery(delivery);
        };
        let Ok(page) = &batch.outcome else {
            return engine.ingest_delivery(Delivery::Batch(batch));
        };
        let (target, samples) = (batch.target, page.report.samples.len());
        if let Some(excess) = self.refuse_next(target) {
            let outcome = Err(ScrapeFailure::OverBudget(excess));
            return engine.ingest_delivery(Delivery::Batch(Batch { outcome, ..batch }));
        }
        // CPU time costs two system calls a page, and is never longer than time, which costs none.
        if self.over.contains_key(&target) {
            let began = thread_cpu_time();
            engine.ingest_delivery(Delivery::Batch(batch));
            self.record_cost(target, samples, thread_cpu_time().saturating_sub(began));
        } else {
            let began = Instant::now();
            engine.ingest_delivery(Delivery::Batch(batch));
            self.note_time(target, samples, began.elapsed());
        }
    }

    /// Notes how long a page with so many samples took: over its quota, the CPU time of the next ones is measured.
    fn note_time(&mut self, target: TargetId, samples: usize, took: Duration) {
        if took > limit_of(samples) {
            let excess = excess_of(samples, took);
            self.over.insert(target, QuotaOverrun { pages: 0, left: 0, rest: 0, excess });
        }
    }

    /// Whether the next page of a target is refused, and why.
    fn refuse_next(&mut self, target: TargetId) -> Option<LimitExceeded> {
        let over = self.over.get_mut(&target).filter(|over| over.left > 0)?;
        over.left -= 1;
        Some(over.excess)
    }

    /// Records the CPU time of a page with so many samples.
    fn record_cost(&mut self, target: TargetId, samples: usize, spent: Duration) {
        if spent <= limit_of(samples) {
            self.over.remove(&target);
            return;
        }
        let excess = excess_of(samples, spent);
        let (found, limit) = (excess.found, excess.limit);
        let fresh = QuotaOverrun { pages: 0, left: 0, rest: 0, excess };
        let over = self.over.entry(target).or_insert(fresh);
        over.excess = excess;
        over.pages = over.pages.saturating_add(1);
        if over.pages >= IN_A_ROW {
            over.rest = (over.rest * 2).clamp(FIRST_REST, LONGEST_REST);
            over.left = over.rest;
            tracing::warn!(
                target = target.0,
                found,
                limit,
                refused = over.left,
                "page takes too much CPU time"
            );
        }
    }
}

/// The quota of a page with so many samples.
fn limit_of(samples: usize) -> Duration {
    OF_A_PAGE + OF_A_SAMPLE * u32::try_from(samples).unwrap_or(u32::MAX)
}

fn excess_of(samples: usize, spent: Duration) -> LimitExceeded {
    let (found, limit) = (spent.as_millis() as u64, limit_of(samples).as_millis() as u64);
    LimitExceeded { budget: Quota::IngestTime, found, limit }
}

/// The CPU time of this thread so far: other load on the machine does not count.
fn thread_cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let (seconds, nanos) = (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec));
    Duration::new(seconds.unwrap_or_default(), nanos.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGET: TargetId = TargetId(7);

    #[test]
    fn ingest_quota_rejects_after_three_pages_in_a_row_and_retries() {
        let mut budget = IngestQuota::default();
        let (cheap, dear) = (Duration::from_millis(5), Duration::from_millis(400));
        for spent in [dear, dear, cheap, dear, dear] {
            budget.record_cost(TARGET, 1_000, spent);
            assert_eq!(budget.refuse_next(TARGET), None, "not three in a row");
        }
        let mut rests = Vec::new();
        for _ in 0..6 {
            budget.record_cost(TARGET, 1_000, dear);
            let mut refused = 0;
            while let Some(excess) = budget.refuse_next(TARGET) {
                assert_eq!(
                    (excess.budget, excess.found, excess.limit),
                    (Quota::IngestTime, 400, 52)
                );
                refused += 1;
            }
            rests.push(refused);
        }
        assert_eq!(rests, [8, 16, 32, 64, 64, 64]);
        assert_eq!(budget.refuse_next(TargetId(8)), None, "others are taken");
        budget.record_cost(TARGET, 1_000, cheap);
        budget.record_cost(TARGET, 1_000, dear);
        assert_eq!(budget.refuse_next(TARGET), None, "a page within it ends it");
    }

    #[test]
    fn page_that_took_long_is_measured_and_not_counted() {
        let mut budget = IngestQuota::default();
        let (short, long) = (Duration::from_millis(51), Duration::from_millis(53));
        budget.note_time(TARGET, 1_000, short);
        assert!(budget.over.is_empty());
        budget.note_time(TARGET, 1_000, long);
        assert!(budget.over.contains_key(&TARGET));
        // The machine was busy.
        budget.record_cost(TARGET, 1_000, Duration::from_millis(1));
        assert!(budget.over.is_empty());
        budget.note_time(TARGET, 1_000, long);
        for _ in 0..IN_A_ROW {
            assert_eq!(budget.refuse_next(TARGET), None);
            budget.record_cost(TARGET, 1_000, long);
        }
        assert!(budget.refuse_next(TARGET).is_some());
    }

    #[test]
    fn ingest_quota_grows_with_the_page() {
        let mut budget = IngestQuota::default();
        for _ in 0..5 {
            budget.record_cost(TARGET, 500_000, Duration::from_millis(900));
        }
        assert_eq!(budget.refuse_next(TARGET), None);
    }
}
