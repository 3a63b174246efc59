//! Values of the host that node_exporter and gaunt-node show, computed once for a scrape.

use super::decimal::Decimal;
use crate::node_state::HostState;

/// Modes of a processor, in the order of their names.
pub(super) const CPU_MODES: [&str; 8] =
    ["idle", "iowait", "irq", "nice", "softirq", "steal", "system", "user"];

/// The shares of busy time in [`CPU_MODES`].
const BUSY_SHARES: [f64; 8] = [0.0, 0.0, 0.0, 0.002, 0.028, 0.0, 0.17, 0.8];

/// The share of busy time in the kernel.
pub(super) const KERNEL_SHARE: f64 = BUSY_SHARES[2] + BUSY_SHARES[4] + BUSY_SHARES[6];

/// Position of idle time in [`CPU_MODES`].
pub(super) const IDLE: usize = 0;

/// Position of the time that waits for IO in [`CPU_MODES`].
const IOWAIT: usize = 1;

/// What the values of a host are computed from.
#[derive(Clone, Copy, Debug)]
pub(super) struct HostView<'a> {
    /// Its state.
    pub(super) state: &'a HostState,
    /// Its own clock, in seconds since the epoch.
    pub(super) clock_s: f64,
    /// Seconds since it started.
    pub(super) uptime_s: f64,
    /// When the exporter started, in seconds since the epoch.
    pub(super) exporter_start_s: f64,
    /// Seconds for which the exporter has run.
    pub(super) exporter_age_s: f64,
    /// Scrapes that the exporter has answered.
    pub(super) scrapes: u64,
    /// A number from 0 to 1 that differs from scrape to scrape.
    pub(super) noise: f64,
}

/// A value of the host.
pub(super) type HostValue = fn(&HostView<'_>) -> Decimal;

impl HostView<'_> {
    /// Seconds of a processor in a mode.
    pub(super) fn cpu_seconds(&self, cpu: usize, mode: usize) -> f64 {
        let busy = self.state.cpu_busy_s.get(cpu).copied().unwrap_or(0.0);
        let iowait = self.state.cpu_iowait_s / self.state.cpu_busy_s.len().max(1) as f64;
        match mode {
            IDLE => (self.uptime_s - busy - iowait).max(0.0),
            IOWAIT => iowait,
            mode => busy * BUSY_SHARES[mode],
        }
    }

    /// Seconds of all processors in a mode.
    pub(super) fn total_cpu_seconds(&self, mode: usize) -> f64 {
        (0..self.state.cpu_busy_s.len()).map(|cpu| self.cpu_seconds(cpu, mode)).sum()
    }

    /// Memory that is neither available nor in the page cache.
    fn used_memory(&self) -> f64 {
        (self.state.memory_total_bytes - self.state.memory_available_bytes).max(0.0)
    }

    /// Memory of the page cache.
    pub(super) fn cached_memory(&self) -> f64 {
        0.35 * self.state.memory_available_bytes
    }

    /// Memory that nothing uses.
    pub(super) fn free_memory(&self) -> f64 {
        0.62 * self.state.memory_available_bytes
    }
}

/// Memory in bytes: the kernel tells KiB.
fn memory(bytes: f64) -> Decimal {
    Decimal::nearest(bytes / 1024.0).times(1024)
}

fn psi(seconds: f64) -> Decimal {
    Decimal::floored(seconds, 6)
}

fn zero(_: &HostView<'_>) -> Decimal {
    Decimal::whole(0)
}

/// Bytes of one disk read or write.
const DISK_REQUEST_BYTES: f64 = 131_072.0;

/// Context switches and interrupts of a busy processor, per second.
const SWITCHES_PER_BUSY_SECOND: f64 = 4_100.0;

/// Fields of `/proc/meminfo`.
#[rustfmt::skip]
pub(super) const MEMORY_FIELDS: &[(&str, HostValue)] = &[
    ("Active", |v| memory(v.used_memory() * 0.7)),
    ("AnonPages", |v| memory(v.used_memory() * 0.6)),
    ("Buffers", |v| memory(v.cached_memory() * 0.01)),
    ("Cached", |v| memory(v.cached_memory())),
    ("Committed_AS", |v| memory(v.used_memory() * 1.4)),
    ("Dirty", |v| memory(3e6 + 4e7 * v.noise)),
    ("HugePages_Total", zero),
    ("Inactive", |v| memory(v.cached_memory() * 0.8)),
    ("MemAvailable", |v| memory(v.state.memory_available_bytes)),
    ("MemFree", |v| memory(v.free_memory())),
    ("MemTotal", |v| memory(v.state.memory_total_bytes)),
    ("SReclaimable", |v| memory(v.cached_memory() * 0.03)),
    ("Shmem", |v| memory(v.used_memory() * 0.2)),
    ("Slab", |v| memory(v.cached_memory() * 0.04)),
    ("SwapFree", zero),
    ("SwapTotal", zero),
    ("Writeback", zero),
];

/// Pressure stall information.
#[rustfmt::skip]
pub(super) const PRESSURE: &[(&str, &str, HostValue)] = &[
    ("cpu_waiting", "Total time in seconds that processes have waited for CPU time", |v| psi(v.state.cpu_pressure_some_s)),
    ("io_stalled", "Total time in seconds no process could make progress due to IO congestion", |v| psi(v.state.io_pressure_full_s)),
    ("io_waiting", "Total time in seconds that processes have waited due to IO congestion", |v| psi(v.state.io_pressure_some_s)),
    ("memory_stalled", "Total time in seconds no process could make progress due to memory congestion", |v| psi(v.state.memory_pressure_full_s)),
    ("memory_waiting", "Total time in seconds that processes have waited for memory", |v| psi(v.state.memory_pressure_some_s)),
];

/// Statistics of the system disk.
#[rustfmt::skip]
pub(super) const DISK: &[(&str, bool, &str, HostValue)] = &[
    ("io_now", false, "The number of I/Os currently in progress.", |v| Decimal::nearest(v.state.blocked_tasks)),
    ("io_time_seconds_total", true, "Total seconds spent doing I/Os.", |v| Decimal::floored(v.state.disk_busy_s, 3)),
    ("io_time_weighted_seconds_total", true, "The weighted # of seconds spent doing I/Os.", |v| Decimal::floored(v.state.disk_read_s + v.state.disk_write_s, 3)),
    ("read_bytes_total", true, "The total number of bytes read successfully.", |v| Decimal::count(v.state.disk_reads).times(DISK_REQUEST_BYTES as i64)),
    ("read_time_seconds_total", true, "The total number of seconds spent by all reads.", |v| Decimal::floored(v.state.disk_read_s, 3)),
    ("reads_completed_total", true, "The total number of reads completed successfully.", |v| Decimal::count(v.state.disk_reads)),
    ("reads_merged_total", true, "The total number of reads merged.", |v| Decimal::count(v.state.disk_reads * 0.08)),
    ("write_time_seconds_total", true, "This is the total number of seconds spent by all writes.", |v| Decimal::floored(v.state.disk_write_s, 3)),
    ("writes_completed_total", true, "The total number of writes completed successfully.", |v| Decimal::count(v.state.disk_writes)),
    ("writes_merged_total", true, "The number of writes merged.", |v| Decimal::count(v.state.disk_writes * 0.3)),
    ("written_bytes_total", true, "The total number of bytes written successfully.", |v| Decimal::count(v.state.disk_writes).times(DISK_REQUEST_BYTES as i64 / 4)),
];

/// Statistics of the management interface.
#[rustfmt::skip]
pub(super) const MANAGEMENT: &[(&str, HostValue)] = &[
    ("receive_bytes_total", |v| Decimal::count(v.state.netdev_receive_bytes)),
    ("receive_packets_total", |v| Decimal::count(v.state.netdev_receive_bytes / 900.0)),
    ("transmit_bytes_total", |v| Decimal::count(v.state.netdev_transmit_bytes)),
    ("transmit_packets_total", |v| Decimal::count(v.state.netdev_transmit_bytes / 700.0)),
];

/// Statistics of NFS operations: name, help text, and the values of attributes, reads and writes.
#[rustfmt::skip]
pub(super) const NFS_OPERATIONS: &[(&str, &str, [HostValue; 3])] = &[
    ("major_timeouts_total", "Number of times a request has had a major timeout for a given operation.", [zero; 3]),
    ("request_time_seconds_total", "Duration all requests took from when a request was enqueued to when it was completely handled for a given operation, in seconds.", [
        |v| Decimal::floored(v.state.nfs_read_operations * 6e-5, 3),
        |v| Decimal::floored(v.state.nfs_read_response_s * 1.08, 3),
        |v| Decimal::floored(v.state.nfs_read_operations * 8e-6, 3),
    ]),
    ("requests_total", "Number of requests performed for a given operation.", [
        |v| Decimal::count(v.state.nfs_read_operations * 0.3),
        |v| Decimal::count(v.state.nfs_read_operations),
        |v| Decimal::count(v.state.nfs_read_operations * 0.004),
    ]),
    ("response_time_seconds_total", "Duration all requests took to get a reply back after a request for a given operation was transmitted, in seconds.", [
        |v| Decimal::floored(v.state.nfs_read_operations * 5e-5, 3),
        |v| Decimal::floored(v.state.nfs_read_response_s, 3),
        |v| Decimal::floored(v.state.nfs_read_operations * 7e-6, 3),
    ]),
];

/// Series without labels: name, whether it is a counter, help text, value.
#[rustfmt::skip]
pub(super) const SINGLES: &[(&str, bool, &str, HostValue)] = &[
    ("node_boot_time_seconds", false, "Node boot time, in unixtime.", |v| Decimal::nearest(v.clock_s - v.uptime_s)),
    ("node_context_switches_total", true, "Total number of context switches.", |v| Decimal::count(v.uptime_s * 9e3 + busy(v) * SWITCHES_PER_BUSY_SECOND)),
    ("node_entropy_available_bits", false, "Bits of available entropy.", |_| Decimal::whole(256)),
    ("node_filefd_allocated", false, "File descriptor statistics: allocated.", |v| Decimal::nearest(18_000.0 + 900.0 * v.noise)),
    ("node_forks_total", true, "Total number of forks.", |v| Decimal::count(v.uptime_s * 11.0)),
    ("node_intr_total", true, "Total number of interrupts serviced.", |v| Decimal::count(v.uptime_s * 2e4 + busy(v) * SWITCHES_PER_BUSY_SECOND)),
    ("node_load1", false, "1m load average.", |v| Decimal::rounded(v.state.load1, 2)),
    ("node_load15", false, "15m load average.", |v| Decimal::rounded(v.state.load1 * 0.94, 2)),
    ("node_load5", false, "5m load average.", |v| Decimal::rounded(v.state.load1 * 0.97, 2)),
    ("node_procs_blocked", false, "Number of processes blocked waiting for I/O to complete.", |v| Decimal::nearest(v.state.blocked_tasks)),
    ("node_procs_running", false, "Number of processes in runnable state.", |v| Decimal::nearest(v.state.runnable_tasks.max(1.0))),
    ("node_timex_offset_seconds", false, "Time offset in between local system and reference clock.", |v| Decimal::rounded((v.noise - 0.5) * 2e-5, 9)),
];

/// Counters of the network stack and of memory management, which node_exporter does not type.
#[rustfmt::skip]
pub(super) const UNTYPED: &[(&str, &str, HostValue)] = &[
    ("node_netstat_IpExt_InOctets", "Statistic IpExtInOctets.", |v| Decimal::count(v.state.netdev_receive_bytes * 0.98)),
    ("node_netstat_IpExt_OutOctets", "Statistic IpExtOutOctets.", |v| Decimal::count(v.state.netdev_transmit_bytes * 0.98)),
    ("node_netstat_Tcp_CurrEstab", "Statistic TcpCurrEstab.", |v| Decimal::nearest(140.0 + 9.0 * v.noise)),
    ("node_netstat_Tcp_InSegs", "Statistic TcpInSegs.", |v| Decimal::count(v.state.netdev_receive_bytes / 910.0)),
    ("node_netstat_Tcp_OutSegs", "Statistic TcpOutSegs.", |v| Decimal::count(v.state.netdev_transmit_bytes / 710.0)),
    ("node_netstat_Tcp_RetransSegs", "Statistic TcpRetransSegs.", |v| Decimal::count(v.state.netdev_transmit_bytes / 3e7)),
    ("node_vmstat_oom_kill", "/proc/vmstat information field oom_kill.", zero),
    ("node_vmstat_pgfault", "/proc/vmstat information field pgfault.", |v| Decimal::count(v.uptime_s * 5e3 + busy(v) * 2e3)),
    ("node_vmstat_pgmajfault", "/proc/vmstat information field pgmajfault.", |v| Decimal::count(v.state.disk_reads * 0.02)),
    ("node_vmstat_pgpgin", "/proc/vmstat information field pgpgin.", |v| Decimal::count(v.state.disk_reads * 128.0)),
    ("node_vmstat_pgpgout", "/proc/vmstat information field pgpgout.", |v| Decimal::count(v.state.disk_writes * 32.0)),
];

/// The exporter about itself: name, whether it is a counter, help text, value.
#[rustfmt::skip]
pub(super) const OWN: &[(&str, bool, &str, HostValue)] = &[
    ("go_goroutines", false, "Number of goroutines that currently exist.", |v| Decimal::nearest(8.0 + 3.0 * v.noise)),
    ("go_memstats_alloc_bytes", false, "Number of bytes allocated and still in use.", |v| Decimal::nearest(2.1e6 + 1.9e6 * v.noise)),
    ("go_memstats_alloc_bytes_total", true, "Total number of bytes allocated, even if freed.", |v| Decimal::whole(2_310_000 + v.scrapes as i64 * 1_730_000)),
    ("go_memstats_heap_inuse_bytes", false, "Number of heap bytes that are in use.", |v| Decimal::nearest(3.9e6 + 1.5e6 * v.noise)),
    ("go_memstats_mallocs_total", true, "Total number of mallocs.", |v| Decimal::whole(21_000 + v.scrapes as i64 * 26_400)),
    ("go_threads", false, "Number of OS threads created.", |_| Decimal::whole(9)),
    ("process_cpu_seconds_total", true, "Total user and system CPU time spent in seconds.", |v| Decimal::floored(0.07 + v.scrapes as f64 * 0.021, 2)),
    ("process_max_fds", false, "Maximum number of open file descriptors.", |_| Decimal::whole(1_048_576)),
    ("process_open_fds", false, "Number of open file descriptors.", |v| Decimal::nearest(9.0 + 2.0 * v.noise)),
    ("process_resident_memory_bytes", false, "Resident memory size in bytes.", |v| memory(2.2e7 + 2e6 * (1.0 - (-v.exporter_age_s / 600.0).exp()))),
    ("process_start_time_seconds", false, "Start time of the process since unix epoch in seconds.", |v| Decimal::rounded(v.exporter_start_s, 2)),
    ("process_virtual_memory_bytes", false, "Virtual memory size in bytes.", |_| Decimal::whole(1_276_022_784)),
    ("promhttp_metric_handler_requests_in_flight", false, "Current number of scrapes being served.", |_| Decimal::whole(1)),
];

/// Busy seconds of all processors.
fn busy(view: &HostView<'_>) -> f64 {
    view.state.cpu_busy_s.iter().sum()
}
