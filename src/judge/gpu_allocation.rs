//! GPU allocation: the job that holds a GPU; the baseline of one job does not apply to the next one.

use gaunt_schema::{SanitizedText, UnixMs};

use super::{Thresholds, moving_average::CompactTimestamp};

/// The last job that held a GPU.
#[derive(Clone, Debug, Default)]
pub(super) struct GpuAllocation {
    job: Option<SanitizedText>,
    /// When that began, if known.
    started: CompactTimestamp,
    /// Since when it is not held.
    free: CompactTimestamp,
}

impl GpuAllocation {
    /// Whether a job that is named has held it.
    pub(super) fn was_named(&self) -> bool {
        self.job.is_some()
    }

    /// Records the present holder of the GPU; returns whether another job began on it, or the same one anew. Without
    /// job labels, a new job is inferred when the GPU is held again, and only for a GPU that an open finding names: the
    /// baselines of others adapt with time.
    pub(super) fn observe_holder(
        &mut self,
        now: UnixMs,
        job: Option<(&SanitizedText, Option<UnixMs>)>,
        allocated: Option<bool>,
        frozen: bool,
        limits: &Thresholds,
    ) -> bool {
        if allocated == Some(false) && job.is_none() {
            if !self.free.is_set() {
                self.free = CompactTimestamp::of(now);
            }
            return false;
        }
        if allocated != Some(true) {
            return false;
        }
        let free = std::mem::take(&mut self.free);
        let was_free =
            free.is_set() && CompactTimestamp::of(now).seconds_since(free) >= limits.leave_seconds;
        let Some((job, started)) = job else { return was_free && frozen };
        let before = Some(self.started).filter(|before| before.is_set());
        let started = started.map(CompactTimestamp::of);
        self.started = started.or(before).unwrap_or_default();
        let another = self.job.as_ref().is_some_and(|previous| previous != job);
        // Two texts that are one in memory are equal without a comparison: it is kept as the cluster has it.
        if self.job.as_ref().is_none_or(|previous| !std::ptr::eq(previous.as_str(), job.as_str())) {
            self.job = Some(job.clone());
        }
        let is_later = |(before, started): (CompactTimestamp, CompactTimestamp)| {
            started.to_millis() > before.to_millis()
        };
        let anew = before.zip(started).is_some_and(is_later);
        if another {
            self.started = started.unwrap_or_default();
        }
        another || anew || (was_free && frozen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocation_begins_with_another_job_and_with_a_restart_of_the_same() {
        let limits = Thresholds::default();
        let (a, b) = (SanitizedText::new("a"), SanitizedText::new("b"));
        let mut holder = GpuAllocation::default();
        let mut see =
            |second: i64, job: Option<(&SanitizedText, Option<i64>)>, held: bool, frozen: bool| {
                let job =
                    job.map(|(job, started)| (job, started.map(|second| UnixMs(second * 1_000))));
                holder.observe_holder(UnixMs(second * 1_000), job, Some(held), frozen, &limits)
            };
        assert!(!see(0, Some((&a, None)), true, false), "the first that is seen is not new");
        assert!(see(1, Some((&b, Some(5))), true, false), "another job");
        assert!(!see(2, Some((&b, None)), true, false), "a page that does not say when");
        assert!(see(3, Some((&b, Some(9))), true, false), "the same one, started anew");
        assert!(!see(4, None, false, true) && !see(5, Some((&b, Some(9))), true, true), "a gap");
        assert!(!see(6, None, false, true) && see(30, Some((&b, Some(9))), true, true));
        assert!(!see(31, None, false, false) && !see(60, None, true, false), "no finding names it");
        assert!(!see(61, None, false, true) && see(90, None, true, true), "nobody names jobs");
    }
}
