//! What a second adds to the trace of a run: it tells where two runs part, and whether in files or in findings.

use std::fmt;

/// Hashes of the state after one second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TracedSecond {
    /// What the disks were told since the start.
    pub disks: u64,
    /// What is open.
    pub findings: u64,
}

impl fmt::Display for TracedSecond {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "disks {:016x}, findings {:016x}", self.disks, self.findings)
    }
}
