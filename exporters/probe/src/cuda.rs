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
        "no CUDA driver: {library}: {why}; install the NVIDIA driver, or set its path with --cuda-library",
        library = library.display()
    )]
    Absent {
        /// The library's path.
        library: PathBuf,
        /// The loader's message.
        why: SanitizedText,
    },
    /// The driver is too old.
    #[error("the CUDA driver lacks {0}: update it to CUDA 11.0 or newer")]
    Symbol(&'static str),
    /// A call failed.
    #[error("CUDA error {name} ({code}) in {call}{hint}", hint = hint_for_code(*.code))]
    Call {
        /// Our name of the call.
        call: &'static str,
        /// CUDA's code.
        code: i32,
        /// CUDA's name for it.
        name: String,
    },
}

/// Codes after which this process cannot use a GPU: its context is dead, or the GPU is lost.
const LOST: [i32; 8] = [46, 101, 214, 220, 700, 702, 719, 999];

impl CudaError {
    /// Whether an allocation failed for lack of memory.
    pub(crate) fn is_out_of_memory(&self) -> bool {
        matches!(self, Self::Call { code: 2, .. })
    }

    /// Whether the GPU, or our context on it, is lost.
    pub(crate) fn is_lost(&self) -> bool {
        matches!(self, Self::Call { code, .. } if LOST.contains(code))
    }

    /// Whether there is nothing to measure here.
    pub(crate) fn is_absence(&self) -> bool {
        matches!(self, Self::Absent { .. } | Self::Call { code: 100 | 802 | 803 | 804, .. })
    }
}

/// The next step for a code; empty if its name says enough.
fn hint_for_code(code: i32) -> &'static str {
    match code {
        100 => "; no GPU is visible: check `nvidia-smi -L` and CUDA_VISIBLE_DEVICES",
        214 => "; uncorrectable ECC error: check `nvidia-smi -q -d ECC`",
        218 | 222 => "; the driver is too old for the kernels: run `gaunt-probe doctor`",
        220 => "; NVLink error: check `nvidia-smi nvlink -e`",
        700 | 719 => "; check `dmesg` for an XID",
        46 | 999 => "; check `nvidia-smi`, and `dmesg` for an XID",
        802 => "; start the fabric manager: `systemctl start nvidia-fabricmanager`",
        803 | 804 => {
            "; kernel module and library versions differ: reload the driver or reboot the node"
        }
        _ => "",
    }
}
