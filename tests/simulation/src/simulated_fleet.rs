//! The nodes of a simulation: pages with counters of a known slope, clocks of their own, and reboots.

use std::time::Duration;

use gaunt_schema::{
    Device, DeviceClass, Reading, Report, SanitizedText, UnixMs,
    catalogue::{gpu, gpu_parts, host, port},
};

/// The number of nodes of a run with faults.
pub(crate) const NODES: usize = 3;

/// Ports of an exporter, without TLS and with it, and for clients that do not check its certificate.
pub(crate) const PLAIN_PORT: u16 = 9770;
pub(crate) const TLS_PORT: u16 = 9443;
pub(crate) const UNCHECKED_TLS_PORT: u16 = 9444;

/// GPUs of a node.
const GPUS: u32 = 2;

/// One node.
#[derive(Clone, Debug)]
pub(crate) struct SimulatedNode {
    index: usize,
    /// How far its clock is ahead of the true time, in milliseconds.
    pub(crate) skew_ms: i64,
    /// When it booted: its counters began at zero.
    booted: UnixMs,
    /// How often it has rebooted: every other time with another kernel.
    reboots: u32,
    /// Until when it is off, or its exporter does not run.
    off_until: UnixMs,
    /// The version of its exporter; version 2 reports a metric more.
    pub(crate) version: u32,
    /// Whether the cable of its port is unplugged.
    pub(crate) is_port_down: bool,
}

impl SimulatedNode {
    pub(crate) fn new(index: usize, booted: UnixMs, skew_ms: i64) -> Self {
        Self {
            index,
            skew_ms,
            booted,
            reboots: 0,
            off_until: booted,
            version: 1,
            is_port_down: false,
        }
    }

    /// The address of a node.
    pub(crate) fn host(index: usize) -> String {
        format!("10.0.0.{}", index + 1)
    }

    /// The address of its exporter without TLS.
    pub(crate) fn address(index: usize) -> String {
        format!("{}:{PLAIN_PORT}", Self::host(index))
    }

    /// The name of a node.
    pub(crate) fn name_of(index: usize) -> String {
        format!("gpu{:02}", index + 1)
    }

    /// The bytes that each port of a node sends in a second.
    pub(crate) fn slope_of(index: usize) -> f64 {
        1e9 * (index as f64 + 1.0)
    }

    /// Turns the node off, for so long.
    pub(crate) fn reboot(&mut self, at: UnixMs, off: Duration) {
        self.off_until = at + off;
        self.booted = self.off_until;
        self.reboots += 1;
    }

    /// Stops its exporter for so long; its counters are the kernel's, and go on.
    #[cfg(test)]
    pub(crate) fn stop_exporter(&mut self, at: UnixMs, off: Duration) {
        self.off_until = at + off;
    }

    /// It runs from now on.
    pub(crate) fn end_outage(&mut self, at: UnixMs) {
        self.off_until = self.off_until.min(at);
        self.booted = self.booted.min(at);
    }

    /// Whether it boots, or has booted, after this time.
    pub(crate) fn booted_after(&self, at: UnixMs) -> bool {
        self.booted > at
    }

    /// Whether it runs.
    pub(crate) fn is_on(&self, at: UnixMs) -> bool {
        at >= self.off_until
    }

    /// Its report at this time.
    pub(crate) fn report(&self, at: UnixMs) -> Report {
        let name = Self::name_of(self.index);
        let mut report = Report {
            node: Some(SanitizedText::new(&name)),
            node_time: Some(UnixMs(at.0 + self.skew_ms)),
            ..Report::default()
        };
        let up = at.duration_since(self.booted).as_secs_f64();
        let own = report.ensure_device(Device::new_node());
        let version = format!("0.{}.0", self.version);
        let kernel = format!("6.8.{}", self.reboots / 2);
        report.add_info(own, host::NODE_INFO, &[("kernel", &kernel), ("version", &version)]);
        let mut push = |device: Device, metric, value: f64| {
            let device = report.ensure_device(device);
            report.push(device, metric, Reading::of(value));
        };
        push(Device::new_node(), host::CPUS, 64.0);
        push(Device::new_node(), host::CPU_BUSY, 10.0 * up);
        push(Device::new_node(), host::LOAD, 3.0 + (up % 7.0));
        for index in 0..GPUS {
            // Ordinary work: a little different at each sample.
            let load = 0.9 + 0.01 * f64::from(index) + 0.001 * (up % 11.0);
            push(Device::new_gpu(index), gpu::UTILIZATION, load);
            push(Device::new_gpu(index), gpu::POWER, 600.0 + up % 13.0);
            if self.version > 1 {
                push(Device::new_gpu(index), gpu::TEMPERATURE, 55.0);
            }
            let process = Device::new_gpu_part(DeviceClass::Process, index, 4_000 + index);
            push(process, gpu_parts::PROCESS_MEMORY, 60e9);
        }
        let sent = Self::slope_of(self.index) * up;
        let (state, physical) = if self.is_port_down { (1.0, 2.0) } else { (4.0, 5.0) };
        push(Device::new_port("mlx5_0", "1"), port::STATE, state);
        push(Device::new_port("mlx5_0", "1"), port::PHYSICAL_STATE, physical);
        if !self.is_port_down {
            push(Device::new_port("mlx5_0", "1"), port::TRANSMIT_BYTES, sent.floor());
        }
        report
    }
}
