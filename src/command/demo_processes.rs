//! Processes of the demo: each GPU that a job holds has the process of its rank, as gaunt-node reports it.

use gaunt_schema::{
    Device, DeviceClass, MetricId, Report, SanitizedText,
    catalogue::{gpu, gpu_parts},
};

/// Number of the first process; those of one node are consecutive.
const FIRST_PID: u32 = 40_213;

/// Memory of a GPU that belongs to the driver and not to a process, in bytes.
const DRIVER_BYTES: f64 = 600.0 * 1_048_576.0;

/// Adds the process of each GPU with a job to the report of its node. A GPU that is lost names none.
pub(super) fn add_processes(report: &mut Report) {
    let gpus = report.devices.iter().enumerate();
    let gpus = gpus.filter(|(_, device)| device.class == DeviceClass::Gpu);
    let processes: Vec<_> =
        gpus.filter_map(|(row, device)| DemoProcess::of(report, row as u32, device)).collect();
    for process in processes {
        let pid = FIRST_PID + process.gpu;
        let device = Device::new_gpu_part(DeviceClass::Process, process.gpu, pid);
        let row = report.ensure_device(device);
        report.push(row, gpu_parts::PROCESS_MEMORY, process.memory);
        if let Some(busy) = process.busy {
            report.push(row, gpu_parts::PROCESS_SM, busy);
        }
        let labels = [("name", "python3"), ("user", &process.user), ("job", &process.job)];
        report.add_info(row, gpu_parts::PROCESS_INFO, &labels);
    }
}

/// What the process of a GPU reports.
struct DemoProcess {
    gpu: u32,
    memory: f64,
    busy: Option<f64>,
    user: SanitizedText,
    job: SanitizedText,
}

impl DemoProcess {
    /// Returns the process of a GPU; none without a job, or without a value of its memory.
    fn of(report: &Report, row: u32, device: &Device) -> Option<Self> {
        let value = |metric: MetricId| {
            let mut samples = report.samples.iter();
            samples.find(|sample| sample.device == row && sample.metric == metric)?.reading.value()
        };
        let mut infos = report.infos.iter();
        let info = infos.find(|info| info.device == row && info.metric == gpu::JOB_INFO)?;
        let label = |wanted: &str| {
            let mut labels = info.labels.iter();
            labels.find(|(name, _)| name.as_str() == wanted).map(|(_, value)| value.clone())
        };
        Some(Self {
            gpu: device.key[0].parse().ok()?,
            memory: (value(gpu::MEMORY_USED)? - DRIVER_BYTES).max(0.0),
            busy: value(gpu::UTILIZATION),
            user: label("user")?,
            job: label("job")?,
        })
    }
}
