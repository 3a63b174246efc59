//! CUDA without a toolkit: the driver's FFI bindings, one GPU with its resources, and the errors.

use std::path::PathBuf;

use gaunt_schema::SanitizedText;

pub(crate) mod cuda_ffi;
pub(crate) mod gpu_context;
pub(crate) mod kernel_set;

/// An error of the CUDA driver.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CudaError {
    /// There is no driver.
    #[error(
        "no CUDA driver: {library}: {why}; install the NVIDIA driver, or name the library with --cuda-library",
        library = library.display()
    )]
    Absent {
        /// The library that was looked for.
        library: PathBuf,
        /// What the loader said.
        why: SanitizedText,
    },
    /// The driver is older than what we need.
    #[error("the CUDA driver has no {0}; it is older than 11.0: update it")]
    Symbol(&'static str),
    /// A call failed.
    #[error("the CUDA driver says {name} ({code}) to {call}{hint}", hint = hint_for_code(*.code))]
    Call {
        /// The call, in our words.
        call: &'static str,
        /// CUDA's code.
        code: i32,
        /// CUDA's name for it.
        name: String,
    },
}

/// Codes after which a GPU is of no use to this process: its context is dead, or it is gone.
const LOST: [i32; 8] = [46, 101, 214, 220, 700, 702, 719, 999];

impl CudaError {
    /// Whether memory was asked for that is not there.
    pub(crate) fn is_out_of_memory(&self) -> bool {
        matches!(self, Self::Call { code: 2, .. })
    }

    /// Whether the GPU, or our context on it, is gone.
    pub(crate) fn is_lost(&self) -> bool {
        matches!(self, Self::Call { code, .. } if LOST.contains(code))
    }

    /// Whether there is nothing to measure here.
    pub(crate) fn is_absence(&self) -> bool {
        matches!(self, Self::Absent { .. } | Self::Call { code: 100 | 802 | 803 | 804, .. })
    }
}

/// What to do about a code, where its name does not say it.
fn hint_for_code(code: i32) -> &'static str {
    match code {
        100 => "; no GPU is visible: see `nvidia-smi -L` and CUDA_VISIBLE_DEVICES",
        214 => "; the GPU met an error that ECC cannot correct: see `nvidia-smi -q -d ECC`",
        218 | 222 => "; the driver is too old for the kernels: see `gaunt-probe doctor`",
        220 => "; an NVLink failed: see `nvidia-smi nvlink -e`",
        700 | 719 => "; see `dmesg` for an Xid",
        46 | 999 => "; see `nvidia-smi` and `dmesg` for an Xid",
        802 => "; start the fabric manager: `systemctl start nvidia-fabricmanager`",
        803 | 804 => "; kernel module and library differ: restart the node or reload the driver",
        _ => "",
    }
}
