//! The kernels: their PTX, and their entry points.

use std::ffi::CStr;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// The copy and gate kernels, for every element type.
pub(crate) const COPY: &str = include_str!("../../kernels/copy.ptx");

/// Threads of a block: enough to hide latency with few blocks, and few enough for the registers of every target.
pub(crate) const THREADS: u32 = 512;

/// The gate kernel.
pub(crate) const GATE: &CStr = c"gaunt_gate";
/// The copy kernel.
pub(crate) const MOVE: &CStr = c"gaunt_copy";

/// The element type of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum ElementType {
    /// 32-bit floating point.
    F32,
    /// bfloat16: needs sm_80 or newer.
    Bf16,
}

/// The kernels of one element type.
pub(crate) struct KernelSet {
    /// Their PTX.
    pub(crate) ptx: &'static str,
    /// Adds the neighbour's data to the rank's own.
    pub(crate) add: &'static CStr,
    /// Writes the pattern that a rank sends.
    pub(crate) pattern: &'static CStr,
    /// Verifies the received sum.
    pub(crate) check: &'static CStr,
}

impl ElementType {
    /// Its size in bytes.
    pub const fn byte_size(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::Bf16 => 2,
        }
    }

    /// Its name in tables and files.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
        }
    }

    /// The oldest compute capability that supports it, major and minor in one number.
    pub(crate) const fn min_capability(self) -> i32 {
        match self {
            Self::F32 => 70,
            Self::Bf16 => 80,
        }
    }

    pub(crate) const fn kernel_set(self) -> KernelSet {
        match self {
            Self::F32 => KernelSet {
                ptx: include_str!("../../kernels/f32.ptx"),
                add: c"gaunt_add_f32",
                pattern: c"gaunt_pattern_f32",
                check: c"gaunt_check_f32",
            },
            Self::Bf16 => KernelSet {
                ptx: include_str!("../../kernels/bf16.ptx"),
                add: c"gaunt_add_bf16",
                pattern: c"gaunt_pattern_bf16",
                check: c"gaunt_check_bf16",
            },
        }
    }
}
