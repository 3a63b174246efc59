//! Quotas of one target and of all targets together. A page above a quota is rejected as a whole.
//!
//! While all targets together stay within their quotas, each may use what its own limit allows. Above them, targets
//! that use more than their share are rejected first: one target that explodes affects only itself.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use gaunt_schema::{CowList, Device, LimitExceeded, Quota, ScrapeFailure, ScrapedPage, UnixMs};

/// The window in which new series are counted.
const MINUTE_MS: i64 = 60_000;

/// The reason with which the parser rejects samples above the limit of a page.
const TOO_MANY: &str = "too_many_samples";

/// The quotas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScrapeQuotas {
    /// Maximum ratio of a page to its compressed size. A page of 8 GPUs with all labels has 25.
    pub ratio: u64,
    /// Samples on one page, known to gaunt or not: those of some 200 nodes.
    pub samples: u64,
    /// Series of one target that gaunt keeps: those of fifty nodes, or of a large switch.
    pub series: u64,
    /// New series of one target per minute; its first page is not counted.
    pub new_series: u64,
    /// Samples of all targets per period: one and a half times those of 12,500 nodes.
    pub all_samples: u64,
    /// Series of all targets: twice those of 12,500 nodes.
    pub all_series: u64,
    /// New series of all targets per minute.
    pub all_new_series: u64,
    /// Bytes of pages that are being read, of all targets, beside the few large ones with a permit of their own.
    pub all_bytes: u64,
}

impl Default for ScrapeQuotas {
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

/// Usage of all targets together.
#[derive(Debug, Default)]
pub(super) struct FleetQuotaUsage {
    limits: ScrapeQuotas,
    targets: AtomicU64,
    samples: AtomicU64,
    series: AtomicU64,
    /// The minute in which `new` was counted.
    minute: AtomicU64,
    new: AtomicU64,
}

impl FleetQuotaUsage {
    pub(super) fn new(limits: ScrapeQuotas) -> Arc<Self> {
        Arc::new(Self { limits, ..Self::default() })
    }

    /// Adds `count` new series to those of this minute; above the limit, it adds nothing and returns what is left.
    fn add_new_series(&self, count: u64, now: UnixMs) -> Result<(), u64> {
        let minute = now.0.div_euclid(MINUTE_MS) as u64;
        if self.minute.swap(minute, Relaxed) != minute {
            self.new.store(0, Relaxed);
        }
        let limit = self.limits.all_new_series;
        let within_limit = |used: u64| (used + count <= limit).then_some(used + count);
        match self.new.fetch_update(Relaxed, Relaxed, within_limit) {
            Ok(_) => Ok(()),
            Err(used) => Err(limit.saturating_sub(used)),
        }
    }
}

/// Usage of one target.
#[derive(Debug)]
pub(super) struct TargetQuotaUsage {
    fleet: Arc<FleetQuotaUsage>,
    samples: u64,
    series: u64,
    /// Counts of its last page; none before the first page.
    last_counts: Option<DeviceSampleCounts>,
    minute: i64,
    new: u64,
}

impl TargetQuotaUsage {
    pub(super) fn new(fleet: Arc<FleetQuotaUsage>) -> Self {
        fleet.targets.fetch_add(1, Relaxed);
        Self { fleet, samples: 0, series: 0, last_counts: None, minute: 0, new: 0 }
    }

    /// Checks a page against every quota and counts its usage; a rejected page uses nothing.
    pub(super) fn admit_page(
        &mut self,
        page: &ScrapedPage,
        now: UnixMs,
    ) -> Result<(), ScrapeFailure> {
        self.release_usage();
        let report = &page.report;
        let (samples, series) =
            (report.samples.len() as u64, (report.samples.len() + report.infos.len()) as u64);
        let limits = self.fleet.limits;
        let truncated = page.rejected.by_reason.iter().find(|(reason, _)| *reason == TOO_MANY);
        if let Some((_, excess)) = truncated {
            return quota_exceeded(Quota::Samples, limits.samples + excess, limits.samples);
        }
        if series > limits.series {
            return quota_exceeded(Quota::Series, series, limits.series);
        }
        if !self.last_counts.as_ref().is_some_and(|counts| counts.has_same_devices(page)) {
            let counts = DeviceSampleCounts::of(page);
            let new = self.last_counts.as_ref().map_or(0, |before| before.new_series_in(&counts));
            self.admit_new_series(new, now)?;
            self.last_counts = Some(counts);
        }
        let fleet = &self.fleet;
        reserve_share(&fleet.samples, samples, limits.all_samples, fleet)
            .or_else(|share| quota_exceeded(Quota::AllSamples, samples, share))?;
        self.samples = samples;
        reserve_share(&fleet.series, series, limits.all_series, fleet)
            .or_else(|share| quota_exceeded(Quota::AllSeries, series, share))?;
        self.series = series;
        Ok(())
    }

    fn admit_new_series(&mut self, new: u64, now: UnixMs) -> Result<(), ScrapeFailure> {
        let minute = now.0.div_euclid(MINUTE_MS);
        if self.minute != minute {
            (self.minute, self.new) = (minute, 0);
        }
        if new == 0 {
            return Ok(());
        }
        let left = self.fleet.limits.new_series.saturating_sub(self.new);
        if new > left {
            return quota_exceeded(Quota::NewSeries, new, left);
        }
        self.fleet
            .add_new_series(new, now)
            .or_else(|left| quota_exceeded(Quota::AllNewSeries, new, left))?;
        self.new += new;
        Ok(())
    }

    fn release_usage(&mut self) {
        self.fleet.samples.fetch_sub(self.samples, Relaxed);
        self.fleet.series.fetch_sub(self.series, Relaxed);
        (self.samples, self.series) = (0, 0);
    }
}

impl Drop for TargetQuotaUsage {
    fn drop(&mut self) {
        self.release_usage();
        self.fleet.targets.fetch_sub(1, Relaxed);
    }
}

/// Adds `amount` to the total. Above the limit, only targets within their share may still add; the share is returned.
fn reserve_share(
    used: &AtomicU64,
    amount: u64,
    limit: u64,
    fleet: &FleetQuotaUsage,
) -> Result<(), u64> {
    let share = limit / fleet.targets.load(Relaxed).max(1);
    let new_total =
        |used: u64| (used + amount <= limit || amount <= share).then_some(used + amount);
    used.fetch_update(Relaxed, Relaxed, new_total).map(|_| ()).map_err(|_| share)
}

fn quota_exceeded<T>(budget: Quota, found: u64, limit: u64) -> Result<T, ScrapeFailure> {
    Err(ScrapeFailure::OverBudget(LimitExceeded { budget, found, limit }))
}

/// The devices of a page, each with its number of samples.
#[derive(Debug)]
struct DeviceSampleCounts {
    devices: CowList<Device>,
    counts: Vec<u32>,
    samples: usize,
}

impl DeviceSampleCounts {
    fn of(page: &ScrapedPage) -> Self {
        let report = &page.report;
        let mut counts = vec![0; report.devices.len()];
        for sample in &report.samples {
            if let Some(count) = counts.get_mut(sample.device as usize) {
                *count += 1;
            }
        }
        Self { devices: report.devices.clone(), counts, samples: report.samples.len() }
    }

    /// Whether the page certainly has the same devices: pages of one target usually do.
    fn has_same_devices(&self, page: &ScrapedPage) -> bool {
        self.devices.ptr_eq(&page.report.devices) && self.samples == page.report.samples.len()
    }

    /// New series in `now`: those of new devices, and additional ones of known devices.
    fn new_series_in(&self, now: &Self) -> u64 {
        let increase = |count: &u32, previous: Option<&u32>| {
            u64::from(count.saturating_sub(*previous.unwrap_or(&0)))
        };
        if self.devices == now.devices {
            return now
                .counts
                .iter()
                .zip(&self.counts)
                .map(|(count, previous)| increase(count, Some(previous)))
                .sum();
        }
        let previous_counts: HashMap<&Device, &u32> =
            self.devices.iter().zip(&self.counts).collect();
        let pairs = now.devices.iter().zip(&now.counts);
        pairs.map(|(device, count)| increase(count, previous_counts.get(device).copied())).sum()
    }
}

#[cfg(test)]
mod tests {
    use gaunt_schema::{Dialect, RejectionCounts, Report, catalogue::host};

    use super::*;

    const NOW: UnixMs = UnixMs(1_000_000);

    fn page_with_devices(devices: &[&str]) -> ScrapedPage {
        let mut report = Report::default();
        for name in devices {
            let device = report.ensure_device(Device::new_netdev(name));
            report.push(device, host::CPUS, 1.0);
        }
        ScrapedPage {
            report,
            dialect: Dialect::Gaunt,
            bytes: 1,
            rejected: RejectionCounts::default(),
        }
    }

    fn device_names(range: std::ops::Range<usize>) -> Vec<String> {
        range.map(|n| format!("veth{n}")).collect()
    }

    fn page_with_range(range: std::ops::Range<usize>) -> ScrapedPage {
        page_with_devices(&device_names(range).iter().map(String::as_str).collect::<Vec<_>>())
    }

    fn expect_over_quota(result: Result<(), ScrapeFailure>) -> (Quota, u64, u64) {
        match result {
            Err(ScrapeFailure::OverBudget(LimitExceeded { budget, found, limit })) => {
                (budget, found, limit)
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn page_over_a_target_quota_is_refused_as_a_whole() {
        let fleet =
            FleetQuotaUsage::new(ScrapeQuotas { series: 3, samples: 7, ..ScrapeQuotas::default() });
        let mut usage = TargetQuotaUsage::new(fleet.clone());
        usage.admit_page(&page_with_range(0..3), NOW).unwrap();
        assert_eq!(
            expect_over_quota(usage.admit_page(&page_with_range(0..4), NOW)),
            (Quota::Series, 4, 3)
        );
        assert_eq!(fleet.series.load(Relaxed), 0, "who is refused uses nothing");
        let mut cut = page_with_range(0..1);
        cut.rejected.by_reason.push((TOO_MANY.into(), 5));
        assert_eq!(expect_over_quota(usage.admit_page(&cut, NOW)), (Quota::Samples, 12, 7));
        usage.admit_page(&page_with_range(0..3), NOW).unwrap();
    }

    #[test]
    fn new_series_of_a_target_are_limited_per_minute() {
        let fleet =
            FleetQuotaUsage::new(ScrapeQuotas { new_series: 10, ..ScrapeQuotas::default() });
        let mut usage = TargetQuotaUsage::new(fleet);
        usage.admit_page(&page_with_range(0..1_000), NOW).unwrap();
        usage.admit_page(&page_with_range(0..1_006), NOW).unwrap();
        assert_eq!(
            expect_over_quota(usage.admit_page(&page_with_range(6..1_012), NOW)),
            (Quota::NewSeries, 6, 4)
        );
        usage.admit_page(&page_with_range(0..1_000), NOW).unwrap();
        usage.admit_page(&page_with_range(10..1_000), NOW).unwrap();
        let next = UnixMs(NOW.0 + MINUTE_MS);
        usage.admit_page(&page_with_range(0..1_000), next).unwrap();
        assert_eq!(
            expect_over_quota(usage.admit_page(&page_with_range(0..1_001), next)),
            (Quota::NewSeries, 1, 0)
        );
    }

    #[test]
    fn new_series_of_all_targets_are_limited_per_minute() {
        let fleet =
            FleetQuotaUsage::new(ScrapeQuotas { all_new_series: 10, ..ScrapeQuotas::default() });
        let mut usages = [TargetQuotaUsage::new(fleet.clone()), TargetQuotaUsage::new(fleet)];
        for usage in &mut usages {
            usage.admit_page(&page_with_range(0..1), NOW).unwrap();
        }
        usages[0].admit_page(&page_with_range(0..8), NOW).unwrap();
        assert_eq!(
            expect_over_quota(usages[1].admit_page(&page_with_range(0..5), NOW)),
            (Quota::AllNewSeries, 4, 3)
        );
        usages[1].admit_page(&page_with_range(0..4), NOW).unwrap();
        usages[1].admit_page(&page_with_range(0..9), UnixMs(NOW.0 + MINUTE_MS)).unwrap();
    }

    #[test]
    fn target_above_its_share_is_refused_first() {
        for (limits, budget) in [
            (ScrapeQuotas { all_series: 100, ..ScrapeQuotas::default() }, Quota::AllSeries),
            (ScrapeQuotas { all_samples: 100, ..ScrapeQuotas::default() }, Quota::AllSamples),
        ] {
            let fleet = FleetQuotaUsage::new(limits);
            let mut modest: Vec<_> = (0..9).map(|_| TargetQuotaUsage::new(fleet.clone())).collect();
            let mut greedy = TargetQuotaUsage::new(fleet.clone());
            greedy.admit_page(&page_with_range(0..95), NOW).unwrap();
            for usage in &mut modest {
                usage.admit_page(&page_with_range(0..10), NOW).unwrap();
            }
            assert_eq!(
                expect_over_quota(greedy.admit_page(&page_with_range(0..95), NOW)),
                (budget, 95, 10)
            );
            for usage in &mut modest {
                usage.admit_page(&page_with_range(0..10), NOW).unwrap();
            }
            drop(modest);
            greedy.admit_page(&page_with_range(0..95), NOW).unwrap();
            drop(greedy);
            assert_eq!(fleet.series.load(Relaxed) + fleet.samples.load(Relaxed), 0);
        }
    }
}
