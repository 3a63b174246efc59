//! GPU starts: a process that has begun to use a GPU and has not worked on it yet. It loads, compiles, or waits for others
//! that do: it hangs only if that goes on for too long.

use gaunt_schema::UnixMs;

use super::moving_average::CompactTimestamp;

/// Whether a process begins on one GPU: eight bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct GpuStart {
    /// Nothing used its memory at the last sample.
    empty: bool,
    /// Whether its job has worked on it.
    pub(super) has_worked: bool,
    /// When something began to, unless it has worked since.
    began: CompactTimestamp,
}

/// Seconds after which a process that has not worked on its GPU no longer loads or compiles.
const START_SECONDS: f64 = 300.0;

impl GpuStart {
    /// Records whether its memory is used, if that is known, and whether it works.
    pub(super) fn observe_memory(&mut self, at: UnixMs, used: Option<bool>, works: bool) {
        self.has_worked |= works;
        let Some(used) = used else { return };
        if works || !used {
            self.began = CompactTimestamp::default();
        } else if self.empty {
            self.began = CompactTimestamp::of(at);
        }
        self.empty = !used;
    }

    /// Whether a process has begun and has not worked yet, and may take as long.
    pub(super) fn is_starting(self, now: UnixMs) -> bool {
        self.unused_seconds(now).is_some_and(|seconds| seconds < START_SECONDS)
    }

    /// Whether a process began so long ago that it no longer starts, and has not worked since.
    pub(super) fn has_never_worked(self, now: UnixMs) -> bool {
        self.unused_seconds(now).is_some_and(|seconds| seconds >= START_SECONDS)
    }

    /// Whether no process uses it.
    pub(super) fn is_empty(self) -> bool {
        self.empty
    }

    /// Returns the seconds since a process began that has not worked yet.
    fn unused_seconds(self, now: UnixMs) -> Option<f64> {
        self.began.is_set().then(|| CompactTimestamp::of(now).seconds_since(self.began))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_starts_until_it_works_and_not_for_ever() {
        let mut start = GpuStart::default();
        let at = |second: i64| UnixMs(1_800_000_000_000 + second * 1_000);
        start.observe_memory(at(0), Some(true), false);
        assert!(!start.is_starting(at(0)), "what is there at the first look is not new");
        start.observe_memory(at(10), Some(false), false);
        start.observe_memory(at(20), None, false);
        start.observe_memory(at(30), Some(true), false);
        assert!(start.is_starting(at(100)));
        assert!(!start.has_never_worked(at(100)));
        assert!(!start.is_starting(at(30 + 300)), "it never began to work");
        assert!(start.has_never_worked(at(30 + 300)));
        start.observe_memory(at(110), Some(true), true);
        start.observe_memory(at(120), Some(true), false);
        assert!(!start.is_starting(at(120)), "it stands still after it has worked");
        assert!(!start.has_never_worked(at(900)));
    }
}
