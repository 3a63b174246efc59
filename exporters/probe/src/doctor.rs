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
    let mut add = |name, needed, answer: Result<String, String>| {
        let good = answer.is_ok();
        let says = answer.unwrap_or_else(|why| why);
        checks.push(DoctorCheck { name, good, needed, says: SanitizedText::new(&says) });
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
        Err(ending) => add("NVML", true, Err(ending.to_string())),
        Ok(idle_check) => {
            add("NVML", true, Ok("lists the processes on the GPUs".to_owned()));
            let idle = idle_check.check_idle().map(|()| "no process uses the GPUs".to_owned());
            add("idle", false, idle.map_err(|ending| ending.to_string()));
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
    let says = format!("CUDA {}.{}", version / 1000, version % 1000 / 10);
    if version < OLDEST_CUDA {
        return Err(format!(
            "{says} is too old for the kernels: update the driver to CUDA 11.0 or newer"
        ));
    }
    Ok(says)
}

fn check_gpus(cuda: &CudaDriver) -> Result<String, String> {
    let all = gpu_context::list_gpus(cuda).map_err(|error| error.to_string())?;
    let Some(first) = all.first() else {
        return Err("no GPU is visible: check `nvidia-smi -L` and CUDA_VISIBLE_DEVICES".to_owned());
    };
    if let Some(old) = all.iter().find(|gpu| gpu.capability < 70) {
        return Err(format!(
            "{} is sm_{}; the kernels need sm_70 or newer",
            old.model, old.capability
        ));
    }
    let more = if all.len() > MAX_RANKS { "; choose at most 16 with --gpus" } else { "" };
    let bf16 = if first.capability < 80 { ", no bf16" } else { "" };
    Ok(format!("{} {}, sm_{}{bf16}{more}", all.len(), first.model, first.capability))
}

fn check_peers(cuda: &CudaDriver) -> Result<String, String> {
    let all = gpu_context::list_gpus(cuda).map_err(|error| error.to_string())?;
    let mut without = Vec::new();
    for (one, gpu) in all.iter().enumerate() {
        for (other, peer) in all.iter().enumerate().filter(|(other, _)| *other != one) {
            if !cuda.can_access(gpu.device, peer.device).map_err(|error| error.to_string())? {
                without.push(format!("{one}-{other}"));
            }
        }
    }
    match (all.len(), without.as_slice()) {
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
    let found = PerftestSide::find_program(None).ok_or(missing)?;
    Ok(format!("{}: measures between nodes where NCCL is missing", found.display()))
}
