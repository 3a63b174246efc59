//! Budgets: what one target may use, and what all of them may use together. Whoever is over one brings no page at all.
//!
//! While all targets together stay within a budget of theirs, each may use what its own limit allows. Once they are over
//! it, those are refused first that use more than their share: one target that explodes costs itself, not the others.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use gaunt_schema::{Budget, Device, Excess, Failure, Page, Shared, UnixMs};

/// The span in which new series are counted.
const MINUTE_MS: i64 = 60_000;

/// The reason under which the reader refuses what goes over the samples of a page.
const TOO_MANY: &str = "too_many_samples";

/// What targets may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How many times its compressed size a page may have. A page of 8 GPUs with all labels has 25 times.
    pub ratio: u64,
    /// Samples on one page, known to gaunt or not: some 200 nodes' worth.
    pub samples: u64,
    /// Series of one target that gaunt keeps: fifty nodes' worth, or a large switch.
    pub series: u64,
    /// Series in one minute that a target did not have before; its first page is not counted.
    pub new_series: u64,
    /// Samples in one period of all targets: half as many again as 12,500 nodes send.
    pub all_samples: u64,
    /// Series of all targets: twice as many as 12,500 nodes have.
    pub all_series: u64,
    /// Series in one minute that their targets did not have before, of all targets.
    pub all_new_series: u64,
    /// Bytes of pages that are being read, of all targets, beside the few large ones that have seats.
    pub all_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            ratio: 200,
            samples: 200_000,
            series: 50_000,
            new_series: 10_000,
            all_samples: 18_000_000,
            all_series: 24_000_000,
            all_new_series: 1_000_000,
            all_bytes: 256 << 20,
        }
    }
}

/// What all targets use together.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    limits: Limits,
    accounts: AtomicU64,
    samples: AtomicU64,
    series: AtomicU64,
    /// The minute in which `new` was counted.
    minute: AtomicU64,
    new: AtomicU64,
}

impl Ledger {
    pub(super) fn new(limits: Limits) -> Arc<Self> {
        Arc::new(Self { limits, ..Self::default() })
    }

    /// New series of this minute so far, after `more` are added; nothing is added if that is too many.
    fn add_new(&self, more: u64, now: UnixMs) -> Result<(), u64> {
        let minute = now.0.div_euclid(MINUTE_MS) as u64;
        if self.minute.swap(minute, Relaxed) != minute {
            self.new.store(0, Relaxed);
        }
        let limit = self.limits.all_new_series;
        let fits = |used: u64| (used + more <= limit).then_some(used + more);
        match self.new.fetch_update(Relaxed, Relaxed, fits) {
            Ok(_) => Ok(()),
            Err(used) => Err(limit.saturating_sub(used)),
        }
    }
}

/// What one target uses.
#[derive(Debug)]
pub(super) struct Account {
    ledger: Arc<Ledger>,
    samples: u64,
    series: u64,
    /// What its last page named; nothing before the first page.
    named: Option<Named>,
    minute: i64,
    new: u64,
}

impl Account {
    pub(super) fn new(ledger: Arc<Ledger>) -> Self {
        ledger.accounts.fetch_add(1, Relaxed);
        Self { ledger, samples: 0, series: 0, named: None, minute: 0, new: 0 }
    }

    /// Whether a page is within every budget. What it uses is counted from now on; a page that is refused uses nothing.
    pub(super) fn admit(&mut self, page: &Page, now: UnixMs) -> Result<(), Failure> {
        self.release();
        let report = &page.report;
        let (samples, series) =
            (report.samples.len() as u64, (report.samples.len() + report.infos.len()) as u64);
        let limits = self.ledger.limits;
        let refused = page.rejected.by_reason.iter().find(|(reason, _)| *reason == TOO_MANY);
        if let Some((_, over)) = refused {
            return excess(Budget::Samples, limits.samples + over, limits.samples);
        }
        if series > limits.series {
            return excess(Budget::Series, series, limits.series);
        }
        if !self.named.as_ref().is_some_and(|named| named.is_of(page)) {
            let named = Named::of(page);
            let new = self.named.as_ref().map_or(0, |before| before.new_in(&named));
            self.admit_new(new, now)?;
            self.named = Some(named);
        }
        let ledger = &self.ledger;
        share(&ledger.samples, samples, limits.all_samples, ledger)
            .or_else(|share| excess(Budget::AllSamples, samples, share))?;
        self.samples = samples;
        share(&ledger.series, series, limits.all_series, ledger)
            .or_else(|share| excess(Budget::AllSeries, series, share))?;
        self.series = series;
        Ok(())
    }

    fn admit_new(&mut self, new: u64, now: UnixMs) -> Result<(), Failure> {
        let minute = now.0.div_euclid(MINUTE_MS);
        if self.minute != minute {
            (self.minute, self.new) = (minute, 0);
        }
        if new == 0 {
            return Ok(());
        }
        let left = self.ledger.limits.new_series.saturating_sub(self.new);
        if new > left {
            return excess(Budget::NewSeries, new, left);
        }
        self.ledger.add_new(new, now).or_else(|left| excess(Budget::AllNewSeries, new, left))?;
        self.new += new;
        Ok(())
    }

    fn release(&mut self) {
        self.ledger.samples.fetch_sub(self.samples, Relaxed);
        self.ledger.series.fetch_sub(self.series, Relaxed);
        (self.samples, self.series) = (0, 0);
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.release();
        self.ledger.accounts.fetch_sub(1, Relaxed);
    }
}

/// Adds `mine` to what all use. Over the limit only those may still add who stay within their share, which is told.
fn share(used: &AtomicU64, mine: u64, limit: u64, ledger: &Ledger) -> Result<(), u64> {
    let share = limit / ledger.accounts.load(Relaxed).max(1);
    let fits = |used: u64| (used + mine <= limit || mine <= share).then_some(used + mine);
    used.fetch_update(Relaxed, Relaxed, fits).map(|_| ()).map_err(|_| share)
}

fn excess<T>(budget: Budget, found: u64, limit: u64) -> Result<T, Failure> {
    Err(Failure::OverBudget(Excess { budget, found, limit }))
}

/// The devices of a page, each with its number of samples.
#[derive(Debug)]
struct Named {
    devices: Shared<Device>,
    counts: Vec<u32>,
    samples: usize,
}

impl Named {
    fn of(page: &Page) -> Self {
        let report = &page.report;
        let mut counts = vec![0; report.devices.len()];
        for sample in &report.samples {
            if let Some(count) = counts.get_mut(sample.device as usize) {
                *count += 1;
            }
        }
        Self { devices: report.devices.clone(), counts, samples: report.samples.len() }
    }

    /// Whether the page certainly names what this one did: pages of one target mostly do.
    fn is_of(&self, page: &Page) -> bool {
        self.devices.is(&page.report.devices) && self.samples == page.report.samples.len()
    }

    /// Series of `now` that were not there before: those of new devices, and more of those that are known.
    fn new_in(&self, now: &Self) -> u64 {
        let more = |is: &u32, was: Option<&u32>| u64::from(is.saturating_sub(*was.unwrap_or(&0)));
        if self.devices == now.devices {
            return now.counts.iter().zip(&self.counts).map(|(is, was)| more(is, Some(was))).sum();
        }
        let known: HashMap<&Device, &u32> = self.devices.iter().zip(&self.counts).collect();
        let pairs = now.devices.iter().zip(&now.counts);
        pairs.map(|(device, is)| more(is, known.get(device).copied())).sum()
    }
}

#[cfg(test)]
mod tests {
    use gaunt_schema::{Dialect, Rejected, Report, catalogue::host};

    use super::*;

    const NOW: UnixMs = UnixMs(1_000_000);

    fn page(devices: &[&str]) -> Page {
        let mut report = Report::default();
        for name in devices {
            let device = report.device(Device::netdev(name));
            report.push(device, host::CPUS, 1.0);
        }
        Page { report, dialect: Dialect::Gaunt, bytes: 1, rejected: Rejected::default() }
    }

    fn names(range: std::ops::Range<usize>) -> Vec<String> {
        range.map(|n| format!("veth{n}")).collect()
    }

    fn pages(range: std::ops::Range<usize>) -> Page {
        page(&names(range).iter().map(String::as_str).collect::<Vec<_>>())
    }

    fn over(result: Result<(), Failure>) -> (Budget, u64, u64) {
        match result {
            Err(Failure::OverBudget(Excess { budget, found, limit })) => (budget, found, limit),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_page_over_its_own_limits_is_refused_whole() {
        let ledger = Ledger::new(Limits { series: 3, samples: 7, ..Limits::default() });
        let mut account = Account::new(ledger.clone());
        account.admit(&pages(0..3), NOW).unwrap();
        assert_eq!(over(account.admit(&pages(0..4), NOW)), (Budget::Series, 4, 3));
        assert_eq!(ledger.series.load(Relaxed), 0, "who is refused uses nothing");
        let mut cut = pages(0..1);
        cut.rejected.by_reason.push((TOO_MANY.into(), 5));
        assert_eq!(over(account.admit(&cut, NOW)), (Budget::Samples, 12, 7));
        account.admit(&pages(0..3), NOW).unwrap();
    }

    #[test]
    fn who_brings_new_names_all_the_time_runs_out_of_them() {
        let ledger = Ledger::new(Limits { new_series: 10, ..Limits::default() });
        let mut account = Account::new(ledger);
        account.admit(&pages(0..1_000), NOW).unwrap();
        account.admit(&pages(0..1_006), NOW).unwrap();
        assert_eq!(over(account.admit(&pages(6..1_012), NOW)), (Budget::NewSeries, 6, 4));
        account.admit(&pages(0..1_000), NOW).unwrap();
        account.admit(&pages(10..1_000), NOW).unwrap();
        let next = UnixMs(NOW.0 + MINUTE_MS);
        account.admit(&pages(0..1_000), next).unwrap();
        assert_eq!(over(account.admit(&pages(0..1_001), next)), (Budget::NewSeries, 1, 0));
    }

    #[test]
    fn all_targets_together_have_so_many_new_names_a_minute() {
        let ledger = Ledger::new(Limits { all_new_series: 10, ..Limits::default() });
        let mut accounts = [Account::new(ledger.clone()), Account::new(ledger)];
        for account in &mut accounts {
            account.admit(&pages(0..1), NOW).unwrap();
        }
        accounts[0].admit(&pages(0..8), NOW).unwrap();
        assert_eq!(over(accounts[1].admit(&pages(0..5), NOW)), (Budget::AllNewSeries, 4, 3));
        accounts[1].admit(&pages(0..4), NOW).unwrap();
        accounts[1].admit(&pages(0..9), UnixMs(NOW.0 + MINUTE_MS)).unwrap();
    }

    #[test]
    fn who_takes_more_than_its_share_is_refused_first() {
        for (limits, budget) in [
            (Limits { all_series: 100, ..Limits::default() }, Budget::AllSeries),
            (Limits { all_samples: 100, ..Limits::default() }, Budget::AllSamples),
        ] {
            let ledger = Ledger::new(limits);
            let mut modest: Vec<_> = (0..9).map(|_| Account::new(ledger.clone())).collect();
            let mut greedy = Account::new(ledger.clone());
            greedy.admit(&pages(0..95), NOW).unwrap();
            for account in &mut modest {
                account.admit(&pages(0..10), NOW).unwrap();
            }
            assert_eq!(over(greedy.admit(&pages(0..95), NOW)), (budget, 95, 10));
            for account in &mut modest {
                account.admit(&pages(0..10), NOW).unwrap();
            }
            drop(modest);
            greedy.admit(&pages(0..95), NOW).unwrap();
            drop(greedy);
            assert_eq!(ledger.series.load(Relaxed) + ledger.samples.load(Relaxed), 0);
        }
    }
}
