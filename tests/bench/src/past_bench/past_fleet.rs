//! The fleet of bench `past`: series as dcgm-exporter writes them, with six faults in its first 64 nodes.

use std::{fmt::Write as _, time::Duration};

use gaunt_schema::UnixMs;
use gaunt_store::{StoreSample, compress_request, encode_labels, push_series};

pub(crate) const GPUS_PER_NODE: usize = 8;

/// The nodes with faults, a cluster of their own.
pub(crate) const FAULTY_NODES: usize = 64;

/// The scrape interval.
pub(crate) const PERIOD_MS: i64 = 15_000;

/// Fields of a GPU; the first ones are those of a usual list of dcgm-exporter.
pub(crate) const FIELDS: [&str; 32] = [
    "DCGM_FI_DEV_GPU_UTIL",
    "DCGM_FI_DEV_SM_CLOCK",
    "DCGM_FI_DEV_POWER_USAGE",
    "DCGM_FI_DEV_GPU_TEMP",
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
    "DCGM_FI_PROF_SM_ACTIVE",
    "DCGM_FI_PROF_DRAM_ACTIVE",
    "DCGM_FI_DEV_FB_USED",
    "DCGM_FI_DEV_FB_FREE",
    "DCGM_FI_DEV_MEM_CLOCK",
    "DCGM_FI_DEV_MEMORY_TEMP",
    "DCGM_FI_DEV_MEM_COPY_UTIL",
    "DCGM_FI_DEV_ENC_UTIL",
    "DCGM_FI_DEV_DEC_UTIL",
    "DCGM_FI_DEV_XID_ERRORS",
    "DCGM_FI_DEV_PCIE_REPLAY_COUNTER",
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",
    "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS",
    "DCGM_FI_DEV_ROW_REMAP_FAILURE",
    "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL",
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
    "DCGM_FI_PROF_PCIE_TX_BYTES",
    "DCGM_FI_PROF_PCIE_RX_BYTES",
    "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS",
    "DCGM_FI_DEV_POWER_VIOLATION",
    "DCGM_FI_DEV_THERMAL_VIOLATION",
    "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL",
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL",
    "DCGM_FI_PROF_SM_OCCUPANCY",
    "DCGM_FI_PROF_PIPE_FP16_ACTIVE",
    "DCGM_FI_PROF_PIPE_FP64_ACTIVE",
];

/// A fleet with one job; its nodes are the cluster `hall-1`, the first 64, then `hall-2` and `large`.
#[derive(Clone, Copy)]
pub(crate) struct PastFleet {
    /// Nodes of `hall-1` and `hall-2`.
    pub(crate) small_nodes: usize,
    pub(crate) fields: usize,
    /// When the first fault begins; the others follow two minutes apart.
    pub(crate) faults_from: UnixMs,
    /// How much later than in the recording all instants are.
    pub(crate) shift: Duration,
}

/// A fault of one GPU or node.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// A low clock without a reason, which slows the job.
    SlowGpu,
    /// An XID that ends the GPU.
    Xid,
    /// A PCIe link that repeats a packet each second.
    PcieReplays,
    /// Heat that holds the clock.
    HotGpu,
    /// A GPU that is no longer on the page.
    LostGpu,
    /// An exporter that no longer answers.
    Down,
}

/// Node and GPU of each fault, in the order in which they begin.
const FAULTS: [(Fault, usize, usize); 6] = [
    (Fault::SlowGpu, 2, 3),
    (Fault::Xid, 9, 1),
    (Fault::PcieReplays, 12, 0),
    (Fault::HotGpu, 30, 2),
    (Fault::LostGpu, 20, 7),
    (Fault::Down, 4, 0),
];

/// The time between the beginnings of two faults.
const BETWEEN_FAULTS: Duration = Duration::from_mins(2);

impl PastFleet {
    pub(crate) fn node_name(node: usize) -> String {
        format!("gpu{node:05}")
    }

    pub(crate) fn instance(node: usize) -> String {
        format!("gpu{node:05}:9400")
    }

    /// Whether a fault has begun.
    fn has_begun(&self, fault: Fault, at: UnixMs) -> bool {
        let number = FAULTS.iter().position(|(known, ..)| *known == fault);
        number.is_some_and(|number| at >= self.faults_from + BETWEEN_FAULTS * number as u32)
    }

    /// Whether a GPU has a fault.
    fn has_fault(&self, fault: Fault, node: usize, gpu: usize, at: UnixMs) -> bool {
        FAULTS.contains(&(fault, node, gpu)) && self.has_begun(fault, at)
    }

    fn is_up(&self, node: usize, at: UnixMs) -> bool {
        !self.has_fault(Fault::Down, node, 0, at - self.shift)
    }

    fn is_present(&self, node: usize, gpu: usize, at: UnixMs) -> bool {
        !self.has_fault(Fault::LostGpu, node, gpu, at - self.shift)
    }

    /// The value of a field: what the job does, with noise for each GPU and instant.
    fn value(&self, node: usize, gpu: usize, field: usize, at: UnixMs) -> f64 {
        let at = at - self.shift;
        let mixed = (at.0 as u64 / 1_000)
            .wrapping_mul(6_364_136_223)
            .wrapping_add((node * 8 + gpu) as u64 * 1_442_695)
            % 1_009;
        let noise = 1.0 + (mixed as f64 / 1_009.0 - 0.5) * 0.03;
        let has = |fault| self.has_fault(fault, node, gpu, at);
        let is_slowed = self.has_begun(Fault::SlowGpu, at);
        let (clock, watts) = match (has(Fault::SlowGpu), has(Fault::HotGpu), is_slowed) {
            (true, ..) => (810.0, 250.0),
            (_, true, _) => (990.0, 260.0),
            (.., true) => (1_340.0, 255.0),
            (.., false) => (1_290.0, 345.0),
        };
        match field {
            0 => 97.0,
            1 => clock,
            2 => watts * noise,
            3 => {
                if has(Fault::HotGpu) {
                    92.0
                } else {
                    58.0
                }
            }
            4 => (at.0 as f64 / 1e3) * 345.0,
            5 | 6 | 7 | 29 | 30 => 0.38 * noise * clock / 1_290.0,
            // A kernel runs nearly all the time.
            21 => 0.97,
            8 => 31_000.0,
            9 => 9_500.0,
            10 => 1_593.0,
            11 => 61.0,
            12 => (20.0 * noise).round(),
            15 if has(Fault::Xid) => 79.0,
            16 if has(Fault::PcieReplays) => {
                let begun = self.faults_from + BETWEEN_FAULTS * 2;
                at.duration_since(begun).as_secs() as f64
            }
            // HW and HW thermal slowdown.
            24 if has(Fault::HotGpu) => 72.0,
            20 | 22 | 23 => (at.0 as f64 * 1e3 * noise).round(),
            _ => 0.0,
        }
    }

    /// The page of a node, as its exporter serves it; none while it is down.
    pub(crate) fn write_page(&self, node: usize, at: UnixMs) -> Option<String> {
        if !self.is_up(node, at) {
            return None;
        }
        let (mut page, name) = (String::new(), Self::node_name(node));
        for (field, metric) in FIELDS.iter().enumerate().take(self.fields) {
            for gpu in (0..GPUS_PER_NODE).filter(|gpu| self.is_present(node, *gpu, at)) {
                let value = self.value(node, gpu, field, at);
                // Writing to a string cannot fail.
                _ = writeln!(
                    page,
                    "{metric}{{Hostname=\"{name}\",UUID=\"GPU-{node:08x}-{gpu:04x}\",device=\"nvidia{gpu}\",\
                     gpu=\"{gpu}\",hpc_job=\"8812\",modelName=\"NVIDIA H100 80GB HBM3\",\
                     pci_bus_id=\"00000000:{gpu:02X}:00.0\"}} {value}"
                );
            }
        }
        Some(page)
    }

    /// Adds a scrape of a node to a request, and returns its samples.
    pub(crate) fn push_scrape(&self, node: usize, at: UnixMs, request: &mut Vec<u8>) -> u64 {
        let (name, instance) = (Self::node_name(node), Self::instance(node));
        let cluster = match node {
            0..FAULTY_NODES => "hall-1",
            node if node < self.small_nodes => "hall-2",
            _ => "large",
        };
        let (mut encoded, mut samples) = (Vec::with_capacity(512), 0);
        let mut push = |metric: &str, own: &[(&str, &str)], value: f64| {
            let target = [
                ("__name__", metric),
                ("instance", &instance),
                ("job", "dcgm"),
                ("cluster", cluster),
            ];
            let mut labels: Vec<(&str, &str)> = target.iter().chain(own).copied().collect();
            encoded.clear();
            encode_labels(&mut labels, &mut encoded);
            push_series(&encoded, &[StoreSample { at, bits: value.to_bits() }], request);
            samples += 1;
        };
        let is_up = self.is_up(node, at);
        push("up", &[], f64::from(u8::from(is_up)));
        push("scrape_duration_seconds", &[], 0.02);
        let gpus = (0..GPUS_PER_NODE).filter(|gpu| is_up && self.is_present(node, *gpu, at));
        for gpu in gpus {
            let (uuid, device) = (format!("GPU-{node:08x}-{gpu:04x}"), format!("nvidia{gpu}"));
            let (index, bus) = (gpu.to_string(), format!("00000000:{gpu:02X}:00.0"));
            let own = [
                ("Hostname", name.as_str()),
                ("UUID", &uuid),
                ("device", &device),
                ("gpu", &index),
                ("hpc_job", "8812"),
                ("modelName", "NVIDIA H100 80GB HBM3"),
                ("pci_bus_id", &bus),
            ];
            for (field, metric) in FIELDS.iter().enumerate().take(self.fields) {
                push(metric, &own, self.value(node, gpu, field, at));
            }
        }
        samples
    }

    /// The compressed requests of a scrape of these nodes, some thousand samples each, and the number of samples.
    pub(crate) fn encode_scrape(
        &self,
        nodes: std::ops::Range<usize>,
        at: UnixMs,
        mut send: impl FnMut(Vec<u8>) -> anyhow::Result<()>,
    ) -> anyhow::Result<u64> {
        /// Nodes of one request: 2,000 samples, as Prometheus sends them.
        const NODES: usize = 8;
        let (mut samples, mut first) = (0, nodes.start);
        while first < nodes.end {
            let mut request = Vec::new();
            let last = (first + NODES).min(nodes.end);
            for node in first..last {
                samples += self.push_scrape(node, at, &mut request);
            }
            send(compress_request(&request)?)?;
            first = last;
        }
        Ok(samples)
    }
}
