//! The state of one node at one instant: what its devices would say, exact, before any exporter reads it.
//!
//! Counters count since the start of the machine, start at arbitrary values and never fall here; widths, resets,
//! delays, blanks and names are the exporters' matter.

/// State of one node at one instant.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeState {
    /// The GPUs, in the order of the plan.
    pub gpus: Vec<GpuState>,
    /// The ports, in the order of the plan.
    pub ports: Vec<PortState>,
    /// The host.
    pub host: HostState,
}

/// State of one GPU. `*_s` are seconds of activity since the machine's start: a rate of them is a ratio.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GpuState {
    /// Whether the driver lists it.
    pub is_present: bool,
    /// Whether a kernel ran (utilization of NVML).
    pub busy_s: f64,
    /// Graphics and compute engine active (`DCGM_FI_PROF_GR_ENGINE_ACTIVE`).
    pub engine_active_s: f64,
    /// At least one warp resident, averaged over the SMs.
    pub sm_active_s: f64,
    /// Tensor pipe.
    pub tensor_active_s: f64,
    /// Memory interface.
    pub dram_active_s: f64,
    /// Energy since the machine's start, in joules.
    pub energy_j: f64,
    /// Temperature of the chip and of its memory, in °C.
    pub temperature_c: f64,
    /// Memory temperature in °C.
    pub memory_temperature_c: f64,
    /// SM clock at this instant, in MHz.
    pub sm_clock_mhz: f64,
    /// Memory clock in MHz.
    pub memory_clock_mhz: f64,
    /// NVML clock event reasons at this instant, as their bit mask.
    pub clock_event_bits: u64,
    /// Time limited by power, in seconds since the machine's start.
    pub power_violation_s: f64,
    /// Time limited by temperature.
    pub thermal_violation_s: f64,
    /// Used framebuffer memory in bytes.
    pub memory_used_bytes: f64,
    /// Bytes over PCIe to the GPU.
    pub pcie_receive_bytes: f64,
    /// Bytes over PCIe from the GPU.
    pub pcie_transmit_bytes: f64,
    /// PCIe replays.
    pub pcie_replays: f64,
    /// PCIe generation at this instant.
    pub pcie_generation: u32,
    /// PCIe lanes at this instant.
    pub pcie_lanes: u32,
    /// Bytes over NVLink to the GPU, all links.
    pub nvlink_receive_bytes: f64,
    /// Bytes over NVLink from the GPU.
    pub nvlink_transmit_bytes: f64,
    /// NVLink CRC errors, all links.
    pub nvlink_crc_errors: f64,
    /// NVLink replays, all links.
    pub nvlink_replays: f64,
    /// Corrected memory errors.
    pub ecc_corrected: f64,
    /// Uncorrected memory errors.
    pub ecc_uncorrected: f64,
    /// Remapped rows after uncorrectable errors.
    pub remapped_rows: f64,
    /// The newest XID; 0 for none.
    pub last_xid: u32,
}

/// State of one port.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PortState {
    /// Logical state: 1 down, 2 init, 3 armed, 4 active.
    pub state: u32,
    /// Physical state: 2 polling, 3 disabled, 5 link up.
    pub physical_state: u32,
    /// Rate at this instant, in Gbit/s.
    pub rate_gbps: f64,
    /// Bytes received.
    pub receive_bytes: f64,
    /// Bytes sent.
    pub transmit_bytes: f64,
    /// Packets received.
    pub receive_packets: f64,
    /// Packets sent.
    pub transmit_packets: f64,
    /// Ticks in which data waited for credits (`port_xmit_wait`).
    pub transmit_wait_ticks: f64,
    /// Received packets with an ECN mark.
    pub ecn_marked_packets: f64,
    /// CNPs sent, as a receiver.
    pub cnp_sent: f64,
    /// CNPs handled, as a sender.
    pub cnp_handled: f64,
    /// Packets out of sequence.
    pub out_of_sequence: f64,
    /// NAKs for a wrong sequence, as a sender.
    pub packet_sequence_errors: f64,
    /// Acknowledgements that did not come in time.
    pub ack_timeouts: f64,
    /// "Receiver not ready" answers.
    pub rnr_naks: f64,
    /// Drops for lack of receive buffers.
    pub out_of_buffer: f64,
    /// Adaptive retransmissions.
    pub adaptive_retransmits: f64,
    /// Symbol errors.
    pub symbol_errors: f64,
    /// Receive errors.
    pub receive_errors: f64,
    /// Discarded packets to be sent.
    pub transmit_discards: f64,
    /// Times that the link went down.
    pub link_downed: f64,
    /// Error recoveries of the link.
    pub link_error_recoveries: f64,
    /// Pause frames received, and time paused by them, in seconds.
    pub pause_received: f64,
    /// Time paused by received frames, in seconds.
    pub pause_received_s: f64,
    /// Pause frames sent.
    pub pause_sent: f64,
    /// Time for which sent frames paused others, in seconds.
    pub pause_sent_s: f64,
    /// Bits corrected by FEC.
    pub corrected_bits: f64,
}

/// State of the host.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HostState {
    /// Busy seconds of each logical processor since the machine's start.
    pub cpu_busy_s: Vec<f64>,
    /// Seconds that processors waited for IO, all together.
    pub cpu_iowait_s: f64,
    /// PSI: seconds with some task waiting for a processor.
    pub cpu_pressure_some_s: f64,
    /// PSI: seconds with some task waiting for IO.
    pub io_pressure_some_s: f64,
    /// PSI: seconds with all tasks waiting for IO.
    pub io_pressure_full_s: f64,
    /// PSI: seconds with some task waiting for memory.
    pub memory_pressure_some_s: f64,
    /// PSI: seconds with all tasks waiting for memory.
    pub memory_pressure_full_s: f64,
    /// Load average of a minute.
    pub load1: f64,
    /// Runnable tasks at this instant.
    pub runnable_tasks: f64,
    /// Tasks blocked on IO at this instant.
    pub blocked_tasks: f64,
    /// Memory in bytes.
    pub memory_total_bytes: f64,
    /// Available memory in bytes.
    pub memory_available_bytes: f64,
    /// NFS read operations.
    pub nfs_read_operations: f64,
    /// Their time from call to answer, in seconds.
    pub nfs_read_response_s: f64,
    /// Bytes read over NFS.
    pub nfs_read_bytes: f64,
    /// NFS retransmissions.
    pub nfs_retransmits: f64,
    /// Disk reads completed.
    pub disk_reads: f64,
    /// Their time in seconds.
    pub disk_read_s: f64,
    /// Disk writes completed.
    pub disk_writes: f64,
    /// Their time in seconds.
    pub disk_write_s: f64,
    /// Time with IO in progress, in seconds.
    pub disk_busy_s: f64,
    /// Bytes received by the management interface.
    pub netdev_receive_bytes: f64,
    /// Bytes sent by the management interface.
    pub netdev_transmit_bytes: f64,
}
