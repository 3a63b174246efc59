//! The doctor: checks the requirements of a probe, and how to install what is missing. No GPU is used.

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

/// The oldest CUDA whose driver takes the kernels' PTX: 11.0 for bf16.
const OLDEST_CUDA: i32 = 11_000;

/// One thing that was looked at.
#[derive(Clone, Debug, Serialize)]
pub struct DoctorCheck {
    /// What it is.
    pub name: &'static str,
    /// Whether it is as it should be.
    pub good: bool,
    /// Whether nothing can be measured without it.
    pub needed: bool,
    /// What was found, or what to do.
    pub says: SanitizedText,
}

/// Everything that was looked at.
pub fn run_checks(libraries: &LibraryPaths) -> Vec<DoctorCheck> {
    let mut signs = Vec::new();
    let mut say = |name, needed, answer: Result<String, String>| {
        let good = answer.is_ok();
        let says = answer.unwrap_or_else(|why| why);
        signs.push(DoctorCheck { name, good, needed, says: SanitizedText::new(&says) });
    };
    let look = GpuIdleCheck::open_nvml(libraries.nvml.as_deref(), &[]);
    match CudaDriver::open_library(libraries.cuda.as_deref()) {
        Err(error) => say("CUDA driver", true, Err(error.to_string())),
        Ok(cuda) => {
            say("CUDA driver", true, check_driver(&cuda));
            say("GPUs", true, check_gpus(&cuda));
            say("peer access", false, check_peers(&cuda));
        }
    }
    match &look {
        Err(ending) => say("NVML", true, Err(ending.to_string())),
        Ok(look) => {
            say("NVML", true, Ok("it says who is on the GPUs".to_owned()));
            let free = look.check_idle().map(|()| "nobody is on the GPUs".to_owned());
            say("idle", false, free.map_err(|ending| ending.to_string()));
        }
    }
    say("NCCL", false, check_nccl(libraries));
    say("perftest", false, check_perftest());
    signs
}

/// How the doctor ends.
pub fn exit_kind(signs: &[DoctorCheck]) -> ExitKind {
    if signs.iter().any(|sign| sign.needed && !sign.good) {
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
        return Err(
            "the driver lists none: see `nvidia-smi -L` and CUDA_VISIBLE_DEVICES".to_owned()
        );
    };
    if let Some(old) = all.iter().find(|gpu| gpu.capability < 70) {
        return Err(format!("{} is sm_{} and the kernels need sm_70", old.model, old.capability));
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
            Err("one GPU has no peers: links cannot be measured, --ranks 8 proves the kernels"
                .to_owned())
        }
        (_, []) => Ok("every GPU reaches every other's memory".to_owned()),
        (_, pairs) => Err(format!(
            "these pairs do not reach each other's memory and go through the host: {}; see `nvidia-smi topo -p2p r`",
            pairs.join(", ")
        )),
    }
}

fn check_nccl(libraries: &LibraryPaths) -> Result<String, String> {
    let version = NcclLibrary::open_library(libraries.nccl.as_deref())
        .and_then(|nccl| nccl.library_version());
    let version = version.map_err(|error| error.to_string())?;
    Ok(format!("NCCL {version}: --nccl measures it beside, `gaunt-probe meet` between nodes"))
}

fn check_perftest() -> Result<String, String> {
    let missing = "not installed: `apt install perftest` brings RDMA tests between nodes, for `gaunt-probe meet`";
    let found = PerftestSide::find_program(None).ok_or(missing)?;
    Ok(format!("{} measures between nodes where NCCL is not", found.display()))
}
