//! One GPU, or one MIG instance of it, at one collection.

use super::{
    gpu_board::{GpuIdentity, MIB, MigInstance},
    gpu_sampler::{GpuProfile, GpuSample},
};

/// What the fields of a GPU exporter are computed from.
#[derive(Clone, Copy, Debug)]
pub(super) struct GpuView<'a> {
    /// Who it is.
    pub(super) identity: &'a GpuIdentity,
    /// What was collected.
    pub(super) sample: &'a GpuSample,
    /// The instance that this is, of a divided GPU.
    pub(super) instance: Option<MigInstance>,
    /// XID of an old error.
    pub(super) sticky_xid: u32,
    /// Whether the exporter serves profiling values.
    pub(super) has_profiling: bool,
}

impl GpuView<'_> {
    /// Share of the GPU that this is.
    pub(super) fn share(&self) -> f64 {
        self.instance.map_or(1.0, |instance| instance.share)
    }

    /// The profiling values, if there are any.
    pub(super) fn profile(&self) -> Option<&GpuProfile> {
        self.sample.profile.as_ref().filter(|_| self.has_profiling)
    }

    /// The newest XID, or the old one that the driver repeats.
    pub(super) fn xid(&self) -> u32 {
        match self.sample.state.last_xid {
            0 => self.sticky_xid,
            xid => xid,
        }
    }

    /// Total, reserved and used memory in MiB.
    pub(super) fn memory_mib(&self) -> (f64, f64, f64) {
        let board = self.identity.board;
        let total = (board.memory_mib * self.share()).floor();
        let reserved = (board.reserved_mib * self.share()).floor();
        let used = (self.sample.state.memory_used_bytes * self.share() / MIB).round();
        (total, reserved, used.clamp(0.0, total - reserved))
    }
}
