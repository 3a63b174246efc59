//! GPU starts: a process that has begun to use a GPU and has not worked on it yet. It loads, compiles, or waits for others
//! that do: it hangs only if that goes on for too long.

use gaunt_schema::UnixMs;

use super::moving_average::CompactTimestamp;

/// Whether a process begins on one GPU: eight bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct GpuStart {
    memory: MemoryUse,
    /// Whether its job has worked on it.
    pub(super) has_worked: bool,
    /// The memory that was used when something last worked on it, in units of [`MEMORY_UNIT`]; 0 if that is not known.
    at_work: u16,
    /// While nothing uses it, since when; else when something began to, unless it has worked since.
    since: CompactTimestamp,
}

/// How much of its memory is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum MemoryUse {
    /// What its work needs, or more than nothing where that is not known.
    #[default]
    Held,
    /// Far less than its work needed: the processes have ended, and others may load.
    Part,
    /// As little as in the sample before, and they work with it: it is other work.
    Less,
    /// No more than the driver needs.
    Nothing,
}

/// What one sample says about the memory of a GPU.
#[derive(Clone, Copy, Debug)]
pub(super) struct UsedMemory {
    pub(super) bytes: f64,
    /// Whether it is more than the driver needs.
    pub(super) is_held: bool,
}

/// The unit in which used memory is kept: no GPU has 65,536 of them.
const MEMORY_UNIT: f64 = 64.0 * 1024.0 * 1024.0;

/// The share of the memory that its work needed, below which those processes have ended: others that begin need as much
/// again, and take it while they load.
const PART_OF_WORK: f64 = 0.5;

/// Seconds after which a process that has not worked on its GPU no longer loads or compiles.
const START_SECONDS: f64 = 300.0;

impl GpuStart {
    /// Records how much of its memory is used, if that is known, and whether it works, lately and in this sample.
    pub(super) fn observe_memory(
        &mut self,
        at: UnixMs,
        used: Option<UsedMemory>,
        [works, works_now]: [bool; 2],
    ) {
        self.has_worked |= works;
        let Some(used) = used else { return };
        // What worked lately on a GPU that was free in between were other processes.
        let works = works && (works_now || !self.is_empty() && !self.since.is_set());
        if works {
            self.since = CompactTimestamp::default();
        } else if used.is_held == self.is_empty() {
            self.since = CompactTimestamp::of(at);
        }
        let units = used.bytes / MEMORY_UNIT;
        let is_part = units < f64::from(self.at_work) * PART_OF_WORK;
        // One sample may show work that ended before the memory was freed.
        let was_part = self.memory == MemoryUse::Part;
        let confirms_less = is_part && was_part && works && works_now;
        if works && !is_part || confirms_less {
            self.at_work = units as u16;
        }
        self.memory = match (used.is_held, is_part) {
            (false, _) => MemoryUse::Nothing,
            (true, true) if confirms_less => MemoryUse::Less,
            (true, true) => MemoryUse::Part,
            (true, false) if self.memory == MemoryUse::Less => MemoryUse::Less,
            (true, false) => MemoryUse::Held,
        };
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
        self.memory == MemoryUse::Nothing
    }

    /// Whether the processes that worked on it have ended: no process uses it, or one that has not loaded yet. Samples may
    /// be too rare to show that its memory was free in between.
    pub(super) fn has_ended(self) -> bool {
        matches!(self.memory, MemoryUse::Part | MemoryUse::Nothing)
    }

    /// Whether the processes work on with far less memory than before: they had not ended.
    pub(super) fn needs_less(self) -> bool {
        self.memory == MemoryUse::Less
    }

    /// Whether no process has used it for so long that none is about to begin.
    pub(super) fn is_never_to_begin(self, now: UnixMs) -> bool {
        self.free_seconds(now).is_some_and(|seconds| seconds >= START_SECONDS)
    }

    /// Returns the seconds since a process began that has not worked yet.
    fn unused_seconds(self, now: UnixMs) -> Option<f64> {
        self.since_seconds(now).filter(|_| !self.is_empty())
    }

    /// Returns the seconds since nothing uses it.
    pub(super) fn free_seconds(self, now: UnixMs) -> Option<f64> {
        self.since_seconds(now).filter(|_| self.is_empty())
    }

    fn since_seconds(self, now: UnixMs) -> Option<f64> {
        self.since.is_set().then(|| CompactTimestamp::of(now).seconds_since(self.since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(bytes: f64) -> UsedMemory {
        UsedMemory { bytes, is_held: bytes > 1e9 }
    }

    #[test]
    fn processes_have_ended_when_far_less_memory_is_used_than_they_worked_with() {
        let mut start = GpuStart::default();
        assert_eq!(size_of::<GpuStart>(), 8);
        for (bytes, works, has_ended) in [
            (20e9, false, false),
            (60e9, true, false),
            (40e9, false, false),
            (20e9, false, true),
            (1e8, false, true),
            (20e9, false, true),
            (60e9, false, false),
            // It worked until the memory was freed, and works again once it is taken.
            (60e9, true, false),
            (20e9, true, true),
            (60e9, false, false),
            // Another job needs less.
            (20e9, false, true),
            (20e9, true, false),
            (20e9, false, false),
        ] {
            start.observe_memory(UnixMs(1_800_000_000_000), Some(used(bytes)), [works; 2]);
            assert_eq!(start.has_ended(), has_ended, "{bytes} {works}");
        }
    }

    #[test]
    fn work_before_the_memory_was_freed_is_not_that_of_the_next_process() {
        let mut start = GpuStart::default();
        let at = |second: i64| UnixMs(1_800_000_000_000 + second * 1_000);
        start.observe_memory(at(0), Some(used(60e9)), [true; 2]);
        start.observe_memory(at(20), Some(used(1e8)), [true, false]);
        start.observe_memory(at(40), Some(used(60e9)), [true, false]);
        assert!(start.is_starting(at(40)));
        start.observe_memory(at(60), Some(used(60e9)), [true; 2]);
        assert!(!start.is_starting(at(60)));
    }

    #[test]
    fn process_starts_until_it_works_and_not_for_ever() {
        let mut start = GpuStart::default();
        let at = |second: i64| UnixMs(1_800_000_000_000 + second * 1_000);
        start.observe_memory(at(0), Some(used(60e9)), [false; 2]);
        assert!(!start.is_starting(at(0)), "what is there at the first look is not new");
        start.observe_memory(at(10), Some(used(1e8)), [false; 2]);
        start.observe_memory(at(20), None, [false; 2]);
        start.observe_memory(at(30), Some(used(60e9)), [false; 2]);
        assert!(start.is_starting(at(100)));
        assert!(!start.has_never_worked(at(100)));
        assert!(!start.is_starting(at(30 + 300)), "it never began to work");
        assert!(start.has_never_worked(at(30 + 300)));
        start.observe_memory(at(110), Some(used(60e9)), [true; 2]);
        start.observe_memory(at(120), Some(used(60e9)), [false; 2]);
        assert!(!start.is_starting(at(120)), "it stands still after it has worked");
        assert!(!start.has_never_worked(at(900)));
    }
}
