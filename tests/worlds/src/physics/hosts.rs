//! Counters of hosts: processors, pressure, memory, storage, disks.

use super::noise::Noise;
use crate::{cluster_plan::HostPlan, node_state::HostState, random::RandomKey};

/// Bytes of one NFS read.
const READ_BYTES: f64 = 524_288.0;

/// What jobs, storage and faults ask of a host.
#[derive(Clone, Debug, Default)]
pub(super) struct HostLoad {
    /// Busy share of the main thread of each GPU's rank.
    pub(super) threads: Vec<f64>,
    /// Busy processors of data loaders.
    pub(super) loader_cpus: f64,
    /// Load of the processors by a fault, 0 to 1.
    pub(super) cpu_fault: f64,
    /// Load of the disks by a fault, 0 to 1.
    pub(super) io_fault: f64,
    /// Bytes read per second from shared storage.
    pub(super) read_bytes: f64,
    /// Time from call to answer.
    pub(super) response_s: f64,
    /// Share of the read load that waits for slow storage, 0 to 1.
    pub(super) storage_wait: f64,
    /// Bytes written per second to shared storage.
    pub(super) write_bytes: f64,
    /// Used memory in bytes.
    pub(super) memory_bytes: f64,
}

/// Rates that hold until the next refresh.
#[derive(Clone, Debug, Default)]
struct HostRates {
    cpus: Vec<f64>,
    iowait: f64,
    cpu_some: f64,
    io_some: f64,
    io_full: f64,
    memory_some: f64,
    runnable: f64,
    blocked: f64,
    disk_reads: f64,
    disk_read_s: f64,
    disk_writes: f64,
    disk_write_s: f64,
    disk_busy: f64,
    management: f64,
}

/// One host.
#[derive(Clone, Debug)]
pub(super) struct HostRun {
    /// What is asked of it.
    pub(super) load: HostLoad,
    /// Share by which its part of a step is slower.
    pub(super) slows: f64,
    /// Whether its storage has no port of its own.
    pub(super) reads_by_management: bool,
    plan: HostPlan,
    rates: HostRates,
    noise: Noise,
    management: f64,
    daemon_cpu: usize,
}

impl HostRun {
    /// A host and its first state.
    pub(super) fn new(plan: &HostPlan, gpus: usize, key: RandomKey) -> (Self, HostState) {
        let cpus = plan.cpus.max(1);
        let uptime_s = key.child("uptime").log_uniform(8e4, 6e6);
        let busy = key.child("busy").uniform(0.05, 0.4);
        let total = if cpus >= 160 { 2.0 * 1_099_511_627_776.0 } else { 1_099_511_627_776.0 };
        let state = HostState {
            cpu_busy_s: (0..cpus)
                .map(|cpu| uptime_s * busy * key.child("cpu").child_index(cpu).uniform(0.3, 1.7))
                .collect(),
            cpu_iowait_s: uptime_s * 0.01 * cpus as f64 * key.child("iowait").unit(),
            cpu_pressure_some_s: uptime_s * plan.base_cpu_pressure,
            io_pressure_some_s: uptime_s * plan.base_io_pressure,
            io_pressure_full_s: uptime_s * plan.base_io_pressure * 0.5,
            memory_pressure_some_s: uptime_s * 1e-5,
            memory_pressure_full_s: uptime_s * 4e-6,
            load1: plan.base_busy_cpus,
            memory_total_bytes: total,
            memory_available_bytes: 0.9 * total,
            nfs_read_operations: uptime_s * key.child("nfs").log_uniform(1.0, 500.0),
            nfs_read_response_s: uptime_s * 0.5,
            nfs_read_bytes: uptime_s * key.child("nfs bytes").log_uniform(1e5, 3e8),
            nfs_retransmits: key.child("retransmits").uniform(0.0, 400.0).floor(),
            disk_reads: uptime_s * 2.0,
            disk_read_s: uptime_s * 0.001,
            disk_writes: uptime_s * 20.0,
            disk_write_s: uptime_s * 0.01,
            disk_busy_s: uptime_s * 0.01,
            netdev_receive_bytes: uptime_s * 1e5,
            netdev_transmit_bytes: uptime_s * 1e5,
            ..HostState::default()
        };
        let load = HostLoad { threads: vec![0.0; gpus], ..HostLoad::default() };
        let run = Self {
            load,
            slows: 0.0,
            reads_by_management: true,
            plan: plan.clone(),
            rates: HostRates { cpus: vec![0.0; cpus], ..HostRates::default() },
            noise: Noise::new(key.child("noise")),
            management: key.child("management").log_uniform(2e4, 8e5),
            daemon_cpu: key.child("daemon").index(cpus),
        };
        (run, state)
    }

    /// Forgets what was asked of it, and looks at the clock for chores.
    pub(super) fn begin(&mut self, t_s: f64) {
        self.load.threads.fill(0.0);
        let threads = std::mem::take(&mut self.load.threads);
        self.load = HostLoad { threads, response_s: 0.002, ..HostLoad::default() };
        let chores = self.plan.chores.iter().filter(|chore| chore.span_s.contains(&t_s));
        self.slows = chores.map(|chore| chore.slows_host_part).sum();
    }

    /// Sets the rates for the time from an instant on.
    pub(super) fn refresh(&mut self, t_s: f64) {
        let cpus = self.plan.cpus.max(1) as f64;
        let (load, noise) = (&self.load, self.noise);
        let wobble = |index: usize, period_s: f64, size: f64| {
            (size * noise.of(index).wave(t_s, period_s)).exp()
        };
        let active = self.plan.chores.iter().filter(|chore| chore.span_s.contains(&t_s));
        let (mut chore_cpus, mut chore_cpu, mut chore_io) = (0.0, 0.0, 0.0);
        for chore in active {
            chore_cpus += chore.busy_cpus;
            chore_cpu += chore.cpu_pressure;
            chore_io += chore.io_pressure;
        }
        let threads: f64 = load.threads.iter().sum();
        let base = self.plan.base_busy_cpus * wobble(1, 9.0, 0.2);
        let free = (0.98 * cpus - base - chore_cpus - threads - load.loader_cpus).max(0.0);
        let spread = base + chore_cpus + load.loader_cpus * wobble(2, 6.0, 0.05);
        let spread = spread + free * load.cpu_fault;
        let waits = load.io_fault.max(0.5 * load.storage_wait);
        let writes = load.write_bytes / 4e9;
        let crowded = ((spread + threads) / cpus - 0.85).max(0.0) * 2.0;
        let cpu_some = self.plan.base_cpu_pressure * wobble(3, 8.0, 0.35)
            + chore_cpu
            + 0.012 * (load.loader_cpus + threads) / cpus
            + 0.55 * load.cpu_fault * wobble(4, 5.0, 0.1)
            + crowded;
        let io_some = self.plan.base_io_pressure * wobble(5, 8.0, 0.35)
            + chore_io
            + 0.7 * load.io_fault * wobble(6, 5.0, 0.1)
            + 0.35 * load.storage_wait * wobble(7, 5.0, 0.15)
            + (0.25 * writes).min(0.3);
        let reads_per_s = load.read_bytes / READ_BYTES;
        let blocked = reads_per_s * load.response_s * 0.5 + 30.0 * load.io_fault + 3.0 * chore_io;
        let rates = &mut self.rates;
        rates.cpu_some = cpu_some.min(0.97);
        rates.io_some = io_some.min(0.97);
        rates.io_full = (0.6 * io_some).min(0.9);
        rates.memory_some = 1e-5 + 0.02 * load.io_fault;
        rates.iowait = (0.002 * cpus * wobble(8, 7.0, 0.4)
            + 0.12 * cpus * waits
            + (0.05 * cpus * writes).min(0.1 * cpus)
            + 0.1 * cpus * chore_io)
            .min(0.7 * cpus);
        rates.runnable = (spread + threads) * wobble(9, 2.0, 0.08) + 0.8 * cpus * load.cpu_fault;
        rates.blocked = blocked.min(400.0);
        rates.disk_reads = 3.0 * wobble(10, 5.0, 0.5) + 2_500.0 * load.io_fault + 200.0 * chore_io;
        let slow_disk = 1.0 + 60.0 * load.io_fault;
        rates.disk_read_s = rates.disk_reads * 4e-4 * slow_disk;
        rates.disk_writes = 15.0 * wobble(11, 5.0, 0.5) + 800.0 * chore_io;
        rates.disk_write_s = rates.disk_writes * 6e-4 * slow_disk;
        rates.disk_busy = (0.01 * wobble(12, 5.0, 0.5) + 0.95 * load.io_fault + chore_io).min(0.99);
        rates.management = self.management * wobble(13, 5.0, 0.3);
        self.spread_over_processors(t_s, spread);
    }

    /// Gives every processor its share: threads of ranks stay where they are, all else spreads.
    fn spread_over_processors(&mut self, t_s: f64, spread: f64) {
        let count = self.rates.cpus.len();
        let gpus = self.load.threads.len().max(1);
        let slot = (t_s / 2.0).floor() as i64;
        let even = spread / count as f64;
        for (cpu, rate) in self.rates.cpus.iter_mut().enumerate() {
            let own = 0.6 + 0.8 * self.noise.unit(cpu as i64 - 10_000);
            let now = 0.8 + 0.4 * self.noise.unit(slot.wrapping_mul(1_024) + cpu as i64);
            *rate = (even * own * now).min(0.99);
        }
        for (gpu, busy) in self.load.threads.iter().enumerate() {
            let cpu = (gpu * count / gpus + 2).min(count - 1);
            self.rates.cpus[cpu] = self.rates.cpus[cpu].max(*busy);
        }
        if self.plan.has_spinning_daemon {
            self.rates.cpus[self.daemon_cpu] = 0.995;
        }
        if self.load.cpu_fault > 0.0 {
            for rate in &mut self.rates.cpus {
                *rate = rate.max(0.97 * self.load.cpu_fault);
            }
        }
    }

    /// Adds what happened in some seconds.
    pub(super) fn integrate(&self, state: &mut HostState, seconds: f64) {
        let (rates, load) = (&self.rates, &self.load);
        for (sum, rate) in state.cpu_busy_s.iter_mut().zip(&rates.cpus) {
            *sum += rate * seconds;
        }
        state.cpu_iowait_s += rates.iowait * seconds;
        state.cpu_pressure_some_s += rates.cpu_some * seconds;
        state.io_pressure_some_s += rates.io_some * seconds;
        state.io_pressure_full_s += rates.io_full * seconds;
        state.memory_pressure_some_s += rates.memory_some * seconds;
        state.memory_pressure_full_s += 0.5 * rates.memory_some * seconds;
        state.runnable_tasks = rates.runnable.round().max(1.0);
        state.blocked_tasks = rates.blocked.round();
        let tasks = rates.runnable + rates.blocked;
        state.load1 += (tasks - state.load1) * (1.0 - (-seconds / 60.0).exp());
        let available = state.memory_total_bytes * 0.94 - load.memory_bytes;
        let follow = 1.0 - (-seconds / 15.0).exp();
        state.memory_available_bytes += (available - state.memory_available_bytes) * follow;
        let reads = (load.read_bytes / READ_BYTES + 0.05) * seconds;
        state.nfs_read_operations += reads;
        state.nfs_read_response_s += reads * load.response_s;
        state.nfs_read_bytes += load.read_bytes * seconds;
        state.nfs_retransmits += 0.02 * load.storage_wait * seconds;
        state.disk_reads += rates.disk_reads * seconds;
        state.disk_read_s += rates.disk_read_s * seconds;
        state.disk_writes += rates.disk_writes * seconds;
        state.disk_write_s += rates.disk_write_s * seconds;
        state.disk_busy_s += rates.disk_busy * seconds;
        let storage = f64::from(u8::from(self.reads_by_management));
        let received = rates.management + storage * load.read_bytes;
        let sent = 1.3 * rates.management + storage * load.write_bytes;
        state.netdev_receive_bytes += received * seconds;
        state.netdev_transmit_bytes += sent * seconds;
    }
}
