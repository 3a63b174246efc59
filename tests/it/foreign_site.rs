//! A site that dcgm-exporter and node_exporter monitor, with names, sizes and periods unlike the simulator's: its pages.

#![expect(clippy::unwrap_used, reason = "what fails in here fails the test that called it")]

use std::{fmt::Write as _, fs, path::Path};

pub(crate) const START_MS: i64 = 1_731_400_007_000;

/// Activity of a GPU, on average between two collections, and its sensor values.
#[derive(Clone, Copy)]
pub(crate) struct ForeignGpuActivity {
    pub(crate) busy: f64,
    pub(crate) tensor: f64,
    pub(crate) watts: f64,
    pub(crate) megahertz: f64,
    pub(crate) celsius: f64,
    pub(crate) reasons: u32,
}

pub(crate) const TRAINING: ForeignGpuActivity = ForeignGpuActivity {
    busy: 97.0,
    tensor: 0.38,
    watts: 345.0,
    megahertz: 1_290.0,
    celsius: 58.0,
    reasons: 0,
};
pub(crate) const WAITING: ForeignGpuActivity = ForeignGpuActivity {
    busy: 100.0,
    tensor: 0.0,
    watts: 96.0,
    megahertz: 1_410.0,
    celsius: 44.0,
    reasons: 0,
};
pub(crate) const IDLE: ForeignGpuActivity = ForeignGpuActivity {
    busy: 0.0,
    tensor: 0.0,
    watts: 58.0,
    megahertz: 210.0,
    celsius: 33.0,
    reasons: 1,
};

/// Activity of a host: shares of time, GB/s through each port, symbol errors per second on the first one.
#[derive(Clone, Copy)]
pub(crate) struct ForeignHostActivity {
    pub(crate) io: f64,
    pub(crate) cpu: f64,
    pub(crate) gigabytes: f64,
    pub(crate) errors: f64,
    pub(crate) gigabits: f64,
}

pub(crate) const FEEDING: ForeignHostActivity =
    ForeignHostActivity { io: 0.01, cpu: 0.01, gigabytes: 4.0, errors: 0.0, gigabits: 200.0 };
pub(crate) const QUIET: ForeignHostActivity = ForeignHostActivity { gigabytes: 0.0, ..FEEDING };

/// A site that is monitored by foreign exporters.
pub(crate) struct ForeignSite {
    pub(crate) nodes: Vec<&'static str>,
    pub(crate) gpus: usize,
    pub(crate) period: i64,
    pub(crate) job: Option<&'static str>,
    /// Whether DCGM collects its profiling counters.
    pub(crate) profiled: bool,
    pub(crate) model: &'static str,
}

/// Second from which the jobs of these sites are slower.
const ONSET: i64 = 240;

/// The activity in a job of which one GPU has a low clock from then on, on that GPU or on another one.
pub(crate) fn slow_clock_activity(
    second: i64,
    is_slow: bool,
) -> (ForeignHostActivity, ForeignGpuActivity) {
    match (second >= ONSET, is_slow) {
        (true, true) => {
            (FEEDING, ForeignGpuActivity { megahertz: 810.0, watts: 250.0, ..TRAINING })
        }
        (true, false) => (
            ForeignHostActivity { gigabytes: 2.6, ..FEEDING },
            ForeignGpuActivity { watts: 255.0, megahertz: 1_340.0, busy: 99.0, ..TRAINING },
        ),
        (false, _) => (FEEDING, TRAINING),
    }
}

/// The activity in a job that a bad link slows from then on: at its host, which is `bad`, or at another one.
pub(crate) fn bad_link_activity(
    second: i64,
    bad: Option<ForeignHostActivity>,
) -> (ForeignHostActivity, ForeignGpuActivity) {
    if second < ONSET {
        return (FEEDING, TRAINING);
    }
    let host = ForeignHostActivity { gigabytes: 2.7, ..bad.unwrap_or(FEEDING) };
    (host, ForeignGpuActivity { tensor: 0.27, watts: 270.0, ..TRAINING })
}

/// The host of a cable with errors.
pub(crate) const BAD_CABLE: ForeignHostActivity = ForeignHostActivity { errors: 40.0, ..FEEDING };

impl ForeignSite {
    /// Three nodes of one job.
    pub(crate) fn of_one_job() -> Self {
        Self {
            nodes: vec!["hgx01", "hgx02", "hgx03"],
            gpus: 8,
            period: 15,
            job: Some("pretrain"),
            profiled: true,
            model: "NVIDIA H100 80GB HBM3",
        }
    }

    /// Records this many periods; `activity_at` returns the activity of a node and one of its GPUs at a second.
    pub(crate) fn write_recording(
        &self,
        folder: &Path,
        seconds: i64,
        activity_at: impl Fn(i64, usize, usize) -> (ForeignHostActivity, ForeignGpuActivity),
    ) {
        for (node, name) in self.nodes.iter().enumerate() {
            let mut host = ForeignHostCounters::default();
            let mut energy = vec![0.0; self.gpus];
            let phase = (node as i64 * 7_919) % (self.period * 1_000);
            for second in (self.period..=seconds).step_by(self.period as usize) {
                let loads: Vec<(ForeignHostActivity, ForeignGpuActivity)> =
                    (0..self.gpus).map(|gpu| activity_at(second, node, gpu)).collect();
                host.advance_by(&loads[0].0, self.period as f64);
                for (joules, (_, load)) in energy.iter_mut().zip(&loads) {
                    *joules += load.watts * self.period as f64;
                }
                let at = START_MS + second * 1_000 + phase;
                let page = self.dcgm_page(name, &loads, &energy, second);
                write_page(folder, &format!("{name}-dcgm"), at, &page);
                write_page(
                    folder,
                    &format!("{name}-node"),
                    at + 11,
                    &Self::node_exporter_page(name, &host, at),
                );
            }
        }
    }

    fn dcgm_page(
        &self,
        name: &str,
        loads: &[(ForeignHostActivity, ForeignGpuActivity)],
        energy: &[f64],
        second: i64,
    ) -> String {
        let mut page = String::new();
        let mut family =
            |metric: &str, kind: &str, value: &dyn Fn(usize, &ForeignGpuActivity) -> f64| {
                _ = writeln!(page, "# HELP {metric} {metric}.\n# TYPE {metric} {kind}");
                // The last GPU comes first: the order is not guaranteed.
                for (gpu, (_, load)) in loads.iter().enumerate().rev() {
                    let job = self.job.map_or(String::new(), |job| format!(",hpc_job=\"{job}\""));
                    let uuid =
                        format!("GPU-{:08x}-{gpu:04x}", name.bytes().map(u32::from).sum::<u32>());
                    _ = writeln!(
                        page,
                        "{metric}{{gpu=\"{gpu}\",UUID=\"{uuid}\",device=\"nvidia{gpu}\",modelName=\"{}\",Hostname=\"{name}\"{job}}} {}",
                        self.model,
                        value(gpu, load)
                    );
                }
            };
        // Noise for each GPU and second.
        let noise = |gpu: usize| {
            let mixed = (second as u64 * 6_364_136_223 + gpu as u64 * 1_442_695) % 1_009;
            1.0 + (mixed as f64 / 1_009.0 - 0.5) * 0.03
        };
        family("DCGM_FI_DEV_POWER_USAGE", "gauge", &|gpu, load| load.watts * noise(gpu));
        family("DCGM_FI_DEV_GPU_UTIL", "gauge", &|_, load| load.busy);
        family("DCGM_FI_DEV_SM_CLOCK", "gauge", &|_, load| load.megahertz);
        family("DCGM_FI_DEV_GPU_TEMP", "gauge", &|_, load| load.celsius);
        family("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "counter", &|gpu, _| energy[gpu] * 1e3);
        let used_mib = |load: &ForeignGpuActivity| {
            if load.megahertz > 1_000.0 || load.busy > 0.0 { 31_000.0 } else { 600.0 }
        };
        family("DCGM_FI_DEV_FB_USED", "gauge", &|_, load| used_mib(load));
        family("DCGM_FI_DEV_FB_FREE", "gauge", &|_, load| 40_500.0 - used_mib(load));
        family("DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", "gauge", &|_, load| f64::from(load.reasons));
        if self.profiled {
            family("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "gauge", &|gpu, load| {
                load.tensor * noise(gpu)
            });
        }
        page
    }

    fn node_exporter_page(name: &str, host: &ForeignHostCounters, at: i64) -> String {
        let mut page = format!("node_time_seconds {}\n", at as f64 / 1e3);
        for (port, card) in ["ibp65s0", "ibp193s0"].into_iter().enumerate() {
            let labels = format!("{{device=\"{card}\",port=\"1\"}}");
            let first = port == 0;
            let mut push = |series: &str, value: f64| {
                _ = writeln!(page, "node_infiniband_{series}{labels} {value}");
            };
            push("state_id", 4.0);
            push("physical_state_id", 5.0);
            push("rate_bytes_per_second", if first { host.gigabits } else { 200.0 } * 1e9 / 8.0);
            push("port_data_received_bytes_total", host.bytes);
            push("port_data_transmitted_bytes_total", host.bytes + 1e9);
            push("link_downed_total", 2.0);
            push("symbol_error_total", if first { host.errors.floor() } else { 0.0 });
        }
        for (cpu, share) in [(0, 0.4), (1, 0.7), (2, 0.2)] {
            let busy = share * host.seconds;
            let idle = host.seconds - busy;
            _ = writeln!(page, "node_cpu_seconds_total{{cpu=\"{cpu}\",mode=\"user\"}} {busy}");
            _ = writeln!(page, "node_cpu_seconds_total{{cpu=\"{cpu}\",mode=\"idle\"}} {idle}");
        }
        _ = writeln!(page, "node_pressure_io_waiting_seconds_total {}", host.io);
        _ = writeln!(page, "node_pressure_cpu_waiting_seconds_total {}", host.cpu);
        _ = writeln!(page, "node_uname_info{{machine=\"x86_64\",nodename=\"{name}\"}} 1");
        page
    }
}

/// Counters of a host.
#[derive(Default)]
struct ForeignHostCounters {
    seconds: f64,
    io: f64,
    cpu: f64,
    bytes: f64,
    errors: f64,
    gigabits: f64,
}

impl ForeignHostCounters {
    fn advance_by(&mut self, load: &ForeignHostActivity, seconds: f64) {
        self.seconds += seconds;
        self.io += load.io * seconds;
        self.cpu += load.cpu * seconds;
        self.bytes += load.gigabytes * 1e9 * seconds;
        self.errors += load.errors * seconds;
        self.gigabits = load.gigabits;
    }
}

pub(crate) fn write_page(folder: &Path, target: &str, at: i64, page: &str) {
    let folder = folder.join(target);
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join(format!("{at}.prom")), page).unwrap();
}
