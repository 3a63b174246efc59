//! CUDA's codes that the fake driver returns.

pub(super) const INVALID_VALUE: u32 = 1;
pub(super) const OUT_OF_MEMORY: u32 = 2;
pub(super) const NOT_INITIALIZED: u32 = 3;
pub(super) const NO_DEVICE: u32 = 100;
pub(super) const INVALID_CONTEXT: u32 = 201;
pub(super) const INVALID_HANDLE: u32 = 400;
pub(super) const NOT_READY: u32 = 600;
pub(super) const ILLEGAL_ADDRESS: u32 = 700;
pub(super) const PEER_ENABLED: u32 = 704;
pub(super) const PEER_UNSUPPORTED: u32 = 217;
