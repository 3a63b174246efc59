//! The page of a GPU of which a data set tells only when it computes and when it waits: what dcgm-exporter serves of it
//! follows from fixed shares.

use std::fmt::Write as _;

/// What kernels of each kind occupy: those that compute all SMs and half of the tensor cores' time, those of NCCL a tenth
/// of the SMs and no tensor core.
const TENSOR_SHARE: f64 = 0.5;
const NCCL_SM_SHARE: f64 = 0.1;

/// Watts of an idle GPU, and what kernels of each kind add.
const IDLE_W: f64 = 80.0;
const NCCL_W: f64 = 120.0;
const COMPUTE_W: f64 = 420.0;

/// Shares of a time, from 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct KernelShares {
    /// In which it computes.
    pub(super) computing: f64,
    /// In which any kernel runs.
    pub(super) busy: f64,
}

/// The labels of a GPU.
#[derive(Clone, Copy, Debug)]
pub(super) struct ModelledGpu<'a> {
    /// Its node.
    pub(super) node: &'a str,
    /// Its number there.
    pub(super) gpu: u32,
    /// A number of its own in the job.
    pub(super) rank: u32,
    /// Its job.
    pub(super) job: &'a str,
}

impl KernelShares {
    /// Its power.
    pub(super) fn power_w(self) -> f64 {
        IDLE_W + COMPUTE_W * self.computing + NCCL_W * (self.busy - self.computing).max(0.0)
    }

    /// The lines of its power, and of the energy since the start.
    pub(super) fn render_power(self, labels: &str, energy_j: f64) -> String {
        let (watts, millijoules) = (self.power_w(), energy_j * 1e3);
        format!(
            "DCGM_FI_DEV_POWER_USAGE{{{labels}}} {watts:.3}\nDCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{{{labels}}} {millijoules:.0}\n"
        )
    }
}

impl ModelledGpu<'_> {
    /// Its lines of the page: means of the last period, and the energy since its start.
    pub(super) fn render_lines(&self, shares: KernelShares, energy_j: f64) -> String {
        let Self { node, gpu, rank, job } = self;
        let labels = format!(
            "gpu=\"{gpu}\",UUID=\"GPU-00000000-0000-0000-0000-{rank:012}\",device=\"nvidia{gpu}\",Hostname=\"{node}\",hpc_job=\"{job}\""
        );
        let KernelShares { computing, busy } = shares;
        let sm = computing + (busy - computing).max(0.0) * NCCL_SM_SHARE;
        let mut lines = shares.render_power(&labels, energy_j);
        for (name, value) in [
            ("DCGM_FI_DEV_GPU_UTIL", format!("{:.0}", busy * 100.0)),
            ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", format!("{busy:.6}")),
            ("DCGM_FI_PROF_SM_ACTIVE", format!("{sm:.6}")),
            ("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", format!("{:.6}", computing * TENSOR_SHARE)),
        ] {
            // Writing to a string cannot fail.
            _ = writeln!(lines, "{name}{{{labels}}} {value}");
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use gaunt_schema::{
        catalogue::gpu,
        text::{PageLimits, decode_page},
    };

    use super::*;

    #[test]
    fn page_has_what_a_waiting_gpu_shows() {
        let own = ModelledGpu { node: "node1", gpu: 3, rank: 11, job: "job" };
        let shares = KernelShares { computing: 0.25, busy: 0.75 };
        let page = own.render_lines(shares, 1_234.5);
        let decoded = decode_page(page.as_bytes(), &PageLimits::default()).unwrap();
        assert_eq!(decoded.rejected.total_count(), 0);
        let devices = &decoded.report.devices;
        let device = devices.iter().find(|it| it.class == gaunt_schema::DeviceClass::Gpu).unwrap();
        let value = |metric| {
            decoded.report.find_reading(device, metric).and_then(gaunt_schema::Reading::value)
        };
        assert_eq!(value(gpu::UTILIZATION), Some(0.75));
        assert_eq!(value(gpu::POWER), Some(245.0));
        assert_eq!(value(gpu::SM_ACTIVE), Some(0.3));
        assert_eq!(value(gpu::TENSOR_ACTIVE), Some(0.125));
    }
}
