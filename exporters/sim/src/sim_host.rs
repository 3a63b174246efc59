//! Model of one host without its GPUs: CPUs, pressure, memory and the storage network.
//!
//! Everything here changes on a grid of whole seconds since the fleet's origin: each second has its own noise, and a
//! total within a second is interpolated linearly.

use crate::noise_key::NoiseKey;

/// Logical processors of a host.
pub(crate) const CPUS: f64 = 192.0;
/// Memory of a host in bytes.
pub(crate) const MEMORY_BYTES: f64 = 2.0 * 1_099_511_627_776.0;
/// Rate of the bond to the storage: two ports of 100 Gb/s.
pub(crate) const BOND_BYTES_PER_S: f64 = 25e9;

/// What a host is used for in one second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum HostUse {
    /// Nothing, or an idle session.
    Idle,
    /// Feeding its GPUs with input data.
    Feeding {
        /// Input bytes per second.
        bytes: f64,
        /// Whether a thread of the job busy-waits, as is common: one CPU is busy all the time.
        spins: bool,
    },
    /// Data starvation: this much input arrives, in bursts.
    Starving {
        /// Bytes per second.
        bytes: f64,
        /// Share of the time in which the GPUs have no input.
        share: f64,
        /// Whether CPU contention is the cause, and not slow reads.
        by_cpu: bool,
    },
    /// Launching kernels on one saturated CPU, and feeding meanwhile.
    Launching(f64),
    /// Writing a checkpoint.
    Writing,
    /// Reading a model.
    Reading,
    /// Serving inference requests, at this share of capacity.
    Serving(f64),
}

/// Rates of a host in one second, or its totals over all seconds before.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct HostMeters {
    pub(crate) busy_s: f64,
    pub(crate) iowait_s: f64,
    pub(crate) cpu_some_s: f64,
    pub(crate) io_some_s: f64,
    pub(crate) io_full_s: f64,
    pub(crate) bond_receive_bytes: f64,
    pub(crate) bond_transmit_bytes: f64,
}

/// State of a host over time.
#[derive(Clone, Debug)]
pub(crate) struct SimHost {
    noise: NoiseKey,
    /// The second whose rates apply, counted from the origin.
    second: u64,
    base: HostMeters,
    rates: HostMeters,
    /// Totals at the current instant.
    pub(crate) shown: HostMeters,
    /// Busy share of the busiest CPU.
    pub(crate) busiest_ratio: f64,
    /// Available memory in bytes.
    pub(crate) available_bytes: f64,
}

impl SimHost {
    pub(crate) fn after_boot(noise: NoiseKey, uptime: f64, first: HostUse) -> Self {
        let base = HostMeters {
            busy_s: uptime * noise.child_key(0).random_between(7.0, 11.0),
            iowait_s: uptime * 0.05,
            cpu_some_s: uptime * 0.004,
            io_some_s: uptime * 0.006,
            io_full_s: uptime * 0.002,
            bond_receive_bytes: (uptime * noise.child_key(1).random_between(2e8, 4e8)).floor(),
            bond_transmit_bytes: (uptime * 2.5e7).floor(),
        };
        let mut host = Self {
            noise: noise.child_key(2),
            second: 0,
            base,
            rates: HostMeters::default(),
            shown: base,
            busiest_ratio: 0.0,
            available_bytes: 0.0,
        };
        host.enter_second(0, first);
        host
    }

    /// Advances to `now`; `used` returns what the host is used for at an instant.
    pub(crate) fn advance_to(&mut self, now: f64, used: impl Fn(f64) -> HostUse) {
        while (self.second + 1) as f64 <= now {
            self.base = self.base.add_rates(&self.rates, 1.0);
            self.enter_second(self.second + 1, used((self.second + 1) as f64));
        }
        self.shown = self.base.add_rates(&self.rates, now - self.second as f64);
    }

    fn enter_second(&mut self, second: u64, used: HostUse) {
        self.second = second;
        let noise = self.noise.child_key(second);
        let jitter = |stream: u64, spread: f64| noise.child_key(stream).random_factor(spread);
        let (rates, busiest, memory_used) = match used {
            HostUse::Idle => {
                let rates = HostMeters {
                    busy_s: 0.6 * jitter(0, 0.4),
                    iowait_s: 0.01,
                    cpu_some_s: 0.0004 * jitter(1, 0.5),
                    io_some_s: 0.0006 * jitter(2, 0.5),
                    io_full_s: 0.0002 * jitter(2, 0.5),
                    bond_receive_bytes: 2.4e5 * jitter(3, 0.6),
                    bond_transmit_bytes: 1.8e5 * jitter(4, 0.6),
                };
                (rates, noise.child_key(5).random_between(0.03, 0.12), 0.03)
            }
            HostUse::Feeding { bytes, spins } => {
                let rates = HostMeters {
                    busy_s: 17.0 * jitter(0, 0.08),
                    iowait_s: 0.12 * jitter(1, 0.5),
                    cpu_some_s: 0.004 * jitter(1, 0.5),
                    io_some_s: 0.012 * jitter(2, 0.6),
                    io_full_s: 0.003 * jitter(2, 0.6),
                    bond_receive_bytes: bytes * jitter(3, 0.15),
                    bond_transmit_bytes: 3.1e7 * jitter(4, 0.3),
                };
                let (low, high) = if spins { (0.93, 1.0) } else { (0.55, 0.78) };
                (rates, noise.child_key(5).random_between(low, high), 0.31)
            }
            other => Self::rates_of_use(other, noise),
        };
        self.rates = rates;
        self.busiest_ratio = busiest;
        self.available_bytes = MEMORY_BYTES * (1.0 - memory_used * jitter(6, 0.01));
    }
}

impl SimHost {
    /// Rates for the rarer uses, the busiest CPU, and the share of memory in use.
    fn rates_of_use(used: HostUse, noise: NoiseKey) -> (HostMeters, f64, f64) {
        let jitter = |stream: u64, spread: f64| noise.child_key(stream).random_factor(spread);
        let rates =
            |busy: f64, iowait: f64, cpu: f64, io: f64, receive: f64, transmit: f64| HostMeters {
                busy_s: busy * jitter(0, 0.1),
                iowait_s: iowait * jitter(1, 0.25),
                cpu_some_s: (cpu * jitter(1, 0.2)).min(0.99),
                io_some_s: (io * jitter(2, 0.15)).min(0.99),
                io_full_s: (io * 0.55 * jitter(2, 0.2)).min(0.99),
                bond_receive_bytes: receive,
                bond_transmit_bytes: transmit * jitter(4, 0.3),
            };
        let core = |low: f64, high: f64| noise.child_key(5).random_between(low, high);
        match used {
            HostUse::Idle | HostUse::Feeding { .. } => (HostMeters::default(), 0.0, 0.0),
            HostUse::Starving { bytes, share, by_cpu: false } => {
                let bytes = bytes * jitter(3, 0.9);
                (
                    rates(11.0, 13.8 * share, 0.006, 0.02 + 0.76 * share, bytes, 1.9e7),
                    core(0.4, 0.6),
                    0.31,
                )
            }
            HostUse::Starving { bytes, share, by_cpu: true } => {
                let bytes = bytes * jitter(3, 0.4);
                let cpu = 0.02 + 0.8 * share;
                (rates(20.0 + 160.0 * share, 0.1, cpu, 0.015, bytes, 1.9e7), core(0.96, 1.0), 0.31)
            }
            HostUse::Launching(bytes) => {
                let bytes = bytes * jitter(3, 0.15);
                (rates(19.0, 0.1, 0.05, 0.012, bytes, 3.1e7), core(0.985, 1.0), 0.31)
            }
            HostUse::Writing => (rates(9.0, 4.0, 0.005, 0.35, 2e6, 2.6e9), core(0.5, 0.9), 0.33),
            HostUse::Reading => {
                let bytes = 1.8e9 * jitter(3, 0.5);
                (rates(24.0, 3.0, 0.01, 0.3, bytes, 2e7), core(0.8, 1.0), 0.2)
            }
            HostUse::Serving(load) => {
                let bytes = 1e5 + 4e6 * load;
                (rates(1.5 + 14.0 * load, 0.02, 0.002, 0.002, bytes, bytes), core(0.2, 0.6), 0.2)
            }
        }
    }
}

impl HostMeters {
    fn add_rates(&self, rates: &Self, span: f64) -> Self {
        Self {
            busy_s: self.busy_s + rates.busy_s * span,
            iowait_s: self.iowait_s + rates.iowait_s * span,
            cpu_some_s: self.cpu_some_s + rates.cpu_some_s * span,
            io_some_s: self.io_some_s + rates.io_some_s * span,
            io_full_s: self.io_full_s + rates.io_full_s * span,
            bond_receive_bytes: self.bond_receive_bytes + rates.bond_receive_bytes * span,
            bond_transmit_bytes: self.bond_transmit_bytes + rates.bond_transmit_bytes * span,
        }
    }
}
