//! dcgm-exporter's names: on each series who the GPU is, and one mask of all reasons that hold a clock.

mod sums;

use super::{Foreign, families, values};
use crate::{
    Class, Device, Dialect, MetricId, Report, Safe,
    catalogue::gpu,
    text::write::Form,
    unit::{Kind, Width},
};

/// Counters there that are gauges with us, because an exchanged board begins anew.
const COUNTERS: [&str; 5] = [
    "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS",
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",
    "DCGM_FI_DEV_RETIRED_DBE",
    "DCGM_FI_DEV_RETIRED_PENDING",
    "DCGM_FI_DEV_RETIRED_SBE",
];

/// The source of a job that dcgm-exporter would call one: its batch system's files name no containers.
const BATCH_SYSTEM: &str = "slurm";

/// Labels of a series.
type Labels<'a> = Vec<(&'static str, &'a str)>;

/// Appends every family of dcgm-exporter that the report can fill.
pub(super) fn write(report: &Report, form: Form, watches_xid: bool, out: &mut String) {
    let names: Vec<_> = report.devices.iter().map(Name::of).collect();
    let labels: Vec<_> = (0..).zip(&names).map(|(at, name)| name.labels(report, at)).collect();
    let of = |device: u32| labels[device as usize].iter().copied();
    let mut values = values(report, Dialect::Dcgm);
    // What is said of a part of a GPU has other labels there.
    values.retain(|value| report.devices[value.device as usize].class == Class::Gpu);
    families(&values, form, kind, of, out);
    sums::clock_events(report, form, of, out);
    sums::links(report, form, of, out);
    sums::xids(report, form, watches_xid, of, out);
}

fn kind(value: &Foreign) -> Kind {
    if COUNTERS.contains(&value.name) {
        return Kind::Counter(Width::Bits64);
    }
    value.metric.row().kind
}

/// The name that the kernel gives a GPU.
struct Name(String);

impl Name {
    fn of(device: &Device) -> Self {
        let index = device.key.first().map(Safe::as_str).unwrap_or_default();
        Self(format!("nvidia{index}"))
    }

    /// All labels of the GPU at position `at`, in dcgm-exporter's order. One that is not known is empty, as there.
    fn labels<'a>(&'a self, report: &'a Report, at: u32) -> Labels<'a> {
        let device = &report.devices[at as usize];
        if device.class != Class::Gpu {
            return Labels::new();
        }
        let said = |metric: MetricId, wanted: &str| {
            let mut infos = report.infos.iter();
            let info = infos.find(|info| info.metric == metric && info.device == at)?;
            let label = info.labels.iter().find(|(name, _)| *name == wanted)?;
            Some(label.1.as_str())
        };
        let who = |wanted| said(gpu::INFO, wanted).unwrap_or_default();
        let mut labels = vec![
            ("gpu", device.key[0].as_str()),
            ("UUID", who("uuid")),
            ("pci_bus_id", who("pci_bus_id")),
            ("device", self.0.as_str()),
            ("modelName", who("model")),
            ("Hostname", report.node.as_deref().unwrap_or_default()),
            ("DCGM_FI_DRIVER_VERSION", who("driver")),
        ];
        let job = |wanted| said(gpu::JOB_INFO, wanted);
        match (job("namespace"), job("pod")) {
            (Some(namespace), Some(pod)) => {
                let container = job("container").unwrap_or_default();
                labels.extend([("container", container), ("namespace", namespace), ("pod", pod)]);
            }
            // Without the kubelet's word a pod has a number and no name.
            (None, Some(pod)) => labels.push(("pod_uid", pod)),
            _ if job("source").is_none_or(|source| source == BATCH_SYSTEM) => {
                labels.extend(job("job").map(|job| ("hpc_job", job)));
            }
            _ => {}
        }
        labels
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Absent,
        catalogue::{gpu_health, gpu_parts as parts},
        text::{Compat, Limits, decode, write_page},
    };

    fn report() -> Report {
        let mut report = Report { node: Some("gpu-0417".into()), ..Report::default() };
        let gpu = report.device(Device::gpu(3));
        let who = [
            ("uuid", "GPU-a"),
            ("model", "NVIDIA H100 80GB HBM3"),
            ("pci_bus_id", "00000000:1B:00.0"),
            ("serial", "1"),
            ("driver", "550.54.15"),
        ];
        report.info(gpu, gpu::INFO, &who);
        report.push(gpu, gpu::UTILIZATION, 0.57);
        report.push(gpu, gpu::MEMORY_USED, 64_424_509_439.0);
        report.push(gpu, gpu::SM_CLOCK, 1.98e9);
        report.push(gpu, gpu::ENERGY, 9_876_543_210.123);
        report.push(gpu, gpu::POWER, Absent::Stale);
        for (bit, metric) in gpu::CLOCK_EVENTS {
            report.push(gpu, *metric, f64::from(u8::from(matches!(bit, 0x04 | 0x40))));
        }
        report
    }

    const DCGM: Compat = Compat { dcgm: true, node: false, xid: true };

    /// What the page has beyond our own.
    fn page(report: &Report, form: Form) -> String {
        let (mut own, mut all) = (String::new(), String::new());
        write_page(report, form, Compat::default(), &mut own);
        write_page(report, form, DCGM, &mut all);
        let own = own.trim_end_matches("# EOF\n");
        all.strip_prefix(own).unwrap().to_owned()
    }

    #[test]
    fn labels_units_and_masks_are_those_of_dcgm_exporter() {
        let who = "gpu=\"3\",UUID=\"GPU-a\",pci_bus_id=\"00000000:1B:00.0\",device=\"nvidia3\",\
                   modelName=\"NVIDIA H100 80GB HBM3\",Hostname=\"gpu-0417\",\
                   DCGM_FI_DRIVER_VERSION=\"550.54.15\"";
        let page = page(&report(), Form::Text);
        let samples: Vec<_> = page.lines().filter(|line| !line.starts_with('#')).collect();
        let expected = [
            ("DCGM_FI_DEV_GPU_UTIL", "57"),
            ("DCGM_FI_DEV_FB_USED", "61439"),
            ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "9876543210123"),
            ("DCGM_FI_DEV_SM_CLOCK", "1980"),
            ("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "68"),
            ("DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", "68"),
        ];
        let expected: Vec<_> =
            expected.iter().map(|(name, value)| format!("{name}{{{who}}} {value}")).collect();
        assert_eq!(samples, expected);
        let energy = "# TYPE DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION counter\n";
        assert!(page.contains(energy), "{page}");
    }

    #[test]
    fn open_metrics_does_not_call_a_counter_what_has_no_name_of_one() {
        let page = page(&report(), Form::OpenMetrics);
        assert!(page.contains("# TYPE DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION unknown\n"), "{page}");
        assert!(page.ends_with("} 68\n# EOF\n"), "{page}");
    }

    #[test]
    fn parts_of_a_gpu_are_said_of_the_whole() {
        let mut report = report();
        let with_error = report.device(Device::gpu(4));
        for gpu in [0, with_error] {
            report.push(gpu, gpu::PRESENT, 1.0);
        }
        for (link, replays) in [(0, 3.0), (1, 4.0)] {
            let link = report.device(Device::part(Class::Nvlink, 3, link));
            report.push(link, parts::NVLINK_REPLAY, replays);
            report.push(link, parts::NVLINK_CRC, Absent::Unsupported);
        }
        for (code, at) in [(79, 1000.0), (31, 2000.0), (48, 1500.0)] {
            let xid = report.device(Device::part(Class::Xid, 4, code));
            report.push(xid, parts::XID_ERRORS, 1.0);
            report.push(xid, parts::XID_LAST_SEEN, at);
        }
        report.push(0, gpu_health::REMAPPED_CORRECTED, 7.0);
        let page = page(&report, Form::Text);
        let value = |name: &str, gpu: &str| {
            let start = format!("{name}{{gpu=\"{gpu}\",");
            let line = page.lines().find(|line| line.starts_with(&start))?;
            Some(line.rsplit(' ').next().unwrap().to_owned())
        };
        let replays = "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL";
        assert_eq!(value(replays, "3").as_deref(), Some("7"));
        assert_eq!(value(replays, "4"), None);
        assert_eq!(value("DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", "3"), None);
        assert_eq!(value("DCGM_FI_DEV_XID_ERRORS", "3").as_deref(), Some("0"));
        assert_eq!(value("DCGM_FI_DEV_XID_ERRORS", "4").as_deref(), Some("31"));
        let says = ",err_code=\"31\",err_msg=\"memory page fault\"} 31\n";
        assert!(page.contains(says), "{page}");
        assert!(page.contains(",err_code=\"0\",err_msg=\"No Error\"} 0\n"), "{page}");
        assert!(page.contains("# TYPE DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS counter\n"), "{page}");
    }

    #[test]
    fn the_job_stands_where_dcgm_exporter_has_it() {
        let mut report = report();
        report.info(0, gpu::JOB_INFO, &[("job", "4711"), ("user", "ada")]);
        assert!(page(&report, Form::Text).contains("\",hpc_job=\"4711\"} 57\n"));
        report.infos.pop();
        let pod = [("job", "web/chat"), ("namespace", "web"), ("pod", "chat-1")];
        report.info(0, gpu::JOB_INFO, &pod);
        let says = "\",container=\"\",namespace=\"web\",pod=\"chat-1\"} 57\n";
        assert!(page(&report, Form::Text).contains(says));
        report.infos.pop();
        report.info(0, gpu::JOB_INFO, &[("job", "4be1"), ("source", "docker")]);
        assert!(!page(&report, Form::Text).contains("4be1"));
        report.infos.pop();
        report.info(0, gpu::JOB_INFO, &[("pod", "0a1b2c3d")]);
        assert!(page(&report, Form::Text).contains("\",pod_uid=\"0a1b2c3d\"} 57\n"));
    }

    #[test]
    fn our_own_reader_takes_a_page_that_says_everything_twice() {
        let mut report = report();
        report.info(0, gpu::JOB_INFO, &[("job", "4711"), ("user", "ada")]);
        let mut text = String::new();
        write_page(&report, Form::Text, DCGM, &mut text);
        let page = decode(text.as_bytes(), &Limits::default()).unwrap();
        assert_eq!(page.rejected.total(), 0, "{:?}", page.rejected);
        assert_eq!((page.dialect, &page.report.node), (Dialect::Gaunt, &report.node));
        assert_eq!(page.report.infos.len(), 3, "the node, the GPU and its job, each once");
        let device = Device::gpu(3);
        for metric in [gpu::UTILIZATION, gpu::ENERGY, gpu::POWER, gpu::CLOCK_EVENT_IDLE] {
            let (found, said) = (page.report.reading(&device, metric), first(&report, metric));
            assert_eq!(found, said, "{}", metric.key());
        }
    }

    fn first(report: &Report, metric: MetricId) -> Option<crate::Reading> {
        report.samples.iter().find(|sample| sample.metric == metric).map(|sample| sample.reading)
    }
}
