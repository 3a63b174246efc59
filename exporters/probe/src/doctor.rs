//! The doctor: checks the requirements of a probe, and reports how to install what is missing. Uses no GPU.

use gaunt_schema::SanitizedText;
use serde::Serialize;

use crate::{
    collective_plan::MAX_RANKS,
    cuda::{cuda_ffi::CudaDriver, gpu_context},
    exit_code::ExitKind,
    idle_check::GpuIdleCheck,
    nccl_ffi::NcclLibrary,
    perftest::PerftestSide,
    request::LibraryPaths,
};

/// The oldest CUDA version whose driver accepts the kernels' PTX: 11.0 for bf16.
const OLDEST_CUDA: i32 = 11_000;

/// One check.
#[derive(Clone, Debug, Serialize)]
pub struct DoctorCheck {
    /// What it checks.
    pub name: &'static str,
    /// Whether it passed.
    pub good: bool,
    /// Whether no measurement is possible without it.
    pub needed: bool,
    /// What was found, or what to do.
    pub says: SanitizedText,
}

/// Runs all checks.
pub fn run_checks(libraries: &LibraryPaths) -> Vec<DoctorCheck> {
    let mut checks = Vec::new();
    let mut add = |name, needed, result: Result<String, String>| {
        let is_ok = result.is_ok();
        let message = result.unwrap_or_else(|why| why);
        checks.push(DoctorCheck { name, good: is_ok, needed, says: SanitizedText::new(&message) });
    };
    let idle_check = GpuIdleCheck::open_nvml(libraries.nvml.as_deref(), &[]);
    match CudaDriver::open_library(libraries.cuda.as_deref()) {
        Err(error) => add("CUDA driver", true, Err(error.to_string())),
        Ok(cuda) => {
            add("CUDA driver", true, check_driver(&cuda));
            add("GPUs", true, check_gpus(&cuda));
            add("peer access", false, check_peers(&cuda));
        }
    }
    match &idle_check {
        Err(exit) => add("NVML", true, Err(exit.to_string())),
        Ok(idle_check) => {
            add("NVML", true, Ok("lists the processes on the GPUs".to_owned()));
            let idle = idle_check.check_idle().map(|()| "no process uses the GPUs".to_owned());
            add("idle", false, idle.map_err(|exit| exit.to_string()));
        }
    }
    add("NCCL", false, check_nccl(libraries));
    add("perftest", false, check_perftest());
    checks
}

/// The doctor's exit kind.
pub fn exit_kind(checks: &[DoctorCheck]) -> ExitKind {
    if checks.iter().any(|check| check.needed && !check.good) {
        ExitKind::NoGpu
    } else {
        ExitKind::Measured
    }
}

fn check_driver(cuda: &CudaDriver) -> Result<String, String> {
    let version = cuda.driver_version().map_err(|error| error.to_string())?;
    let version_text = format!("CUDA {}.{}", version / 1000, version % 1000 / 10);
    if version < OLDEST_CUDA {
        return Err(format!(
            "{version_text} is too old for the kernels: update the driver to CUDA 11.0 or newer"
        ));
    }
    Ok(version_text)
}

fn check_gpus(cuda: &CudaDriver) -> Result<String, String> {
    let gpus = gpu_context::list_gpus(cuda).map_err(|error| error.to_string())?;
    let Some(first) = gpus.first() else {
        return Err("no GPU is visible: check `nvidia-smi -L` and CUDA_VISIBLE_DEVICES".to_owned());
    };
    if let Some(old) = gpus.iter().find(|gpu| gpu.capability < 70) {
        return Err(format!(
            "{} is sm_{}; the kernels need sm_70 or newer",
            old.model, old.capability
        ));
    }
    let advice = if gpus.len() > MAX_RANKS { "; choose at most 16 with --gpus" } else { "" };
    let bf16 = if first.capability < 80 { ", no bf16" } else { "" };
    Ok(format!("{} {}, sm_{}{bf16}{advice}", gpus.len(), first.model, first.capability))
}

fn check_peers(cuda: &CudaDriver) -> Result<String, String> {
    let gpus = gpu_context::list_gpus(cuda).map_err(|error| error.to_string())?;
    let mut missing = Vec::new();
    for (index, gpu) in gpus.iter().enumerate() {
        for (other, peer) in gpus.iter().enumerate().filter(|(other, _)| *other != index) {
            if !cuda.can_access(gpu.device, peer.device).map_err(|error| error.to_string())? {
                missing.push(format!("{index}-{other}"));
            }
        }
    }
    match (gpus.len(), missing.as_slice()) {
        (0 | 1, _) => {
            Err("only one GPU: no links to measure; test the kernels with --ranks 8".to_owned())
        }
        (_, []) => Ok("all pairs of GPUs".to_owned()),
        (_, pairs) => Err(format!(
            "missing for these pairs, which use host memory instead: {}; check `nvidia-smi topo -p2p r`",
            pairs.join(", ")
        )),
    }
}

fn check_nccl(libraries: &LibraryPaths) -> Result<String, String> {
    let version = NcclLibrary::open_library(libraries.nccl.as_deref())
        .and_then(|nccl| nccl.library_version());
    let version = version.map_err(|error| error.to_string())?;
    Ok(format!("NCCL {version}: used by --nccl and `gaunt-probe cross-node`"))
}

fn check_perftest() -> Result<String, String> {
    let missing = "not installed; `gaunt-probe cross-node` uses it where NCCL is missing: `apt install perftest`";
    let program = PerftestSide::find_program(None).ok_or(missing)?;
    Ok(format!("{}: measures between nodes where NCCL is missing", program.display()))
}
