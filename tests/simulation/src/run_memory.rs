//! What must hold of the memory of a run, whose aggregators share one thread.

/// The most memory of an aggregator with its three nodes and what simulates them, in bytes: 1.65 MB were seen.
const MAX_BYTES: i64 = 2_000_000;

/// Seconds after the last start of a process from which on the growth of its memory is measured, and for so many at least.
const GROWS_FOR: u64 = 60;
const MEASURED_FOR: u64 = 120;

/// The most bytes by which the memory of an aggregator grows in a second meanwhile, as its history does: 1.3 kB were seen in
/// most long runs, and 3.7 kB in one.
const MAX_GROWTH: i64 = 4_200;

/// The memory of a run.
#[derive(Debug)]
pub(crate) struct RunMemory {
    /// The bytes that were in use before it.
    pub(crate) before: u64,
    /// Ends of processes so far, and the second of the last one.
    ends: u64,
    ended: u64,
    /// Where the growth since the last start is measured from: the second, and the bytes then.
    base: Option<(u64, i64)>,
}

impl RunMemory {
    pub(crate) fn new(before: u64) -> Self {
        Self { before, ends: 0, ended: 0, base: None }
    }

    /// Checks the bytes of an aggregator at this second of a run in which so many processes have ended.
    pub(crate) fn check(&mut self, second: u64, ends: u64, bytes: i64) -> Vec<String> {
        let mut broken = Vec::new();
        if bytes > MAX_BYTES {
            broken.push(format!("{bytes} bytes of memory are in use, more than {MAX_BYTES}"));
        }
        if ends != self.ends {
            (self.ends, self.ended, self.base) = (ends, second, None);
        }
        if second - self.ended < GROWS_FOR {
            return broken;
        }
        let (since, base) = *self.base.get_or_insert((second, bytes));
        let growth = (bytes - base) / (second - since).max(1) as i64;
        if second - since >= MEASURED_FOR && growth > MAX_GROWTH {
            broken.push(format!("memory grows by {growth} B/s for {} s", second - since));
        }
        broken
    }
}
