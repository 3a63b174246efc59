//! Metrics of the node itself and of its network devices.

use super::{MIB, Metric, node_exporter_name, rows};
use crate::{
    DeviceClass::{Netdev, Node},
    unit::{CounterWidth::Bits64, Unit},
};

rows! {
    from 0;
    NODE_INFO, "Who the node is.",
        Metric::new_info_series("gaunt_node_info", Node,
            &["node", "version", "kernel", "cluster"]).with_rare_changes();
    NODE_TIME, "The node's clock at the instant of sampling.",
        Metric::new_gauge("gaunt_node_time_seconds", Node, Unit::Seconds, 1e-3)
            .with_foreign(&[node_exporter_name("node_time_seconds")]);
    CPUS, "Logical CPUs that are online.",
        Metric::new_gauge("gaunt_node_cpus", Node, Unit::Count, 1.0).with_rare_changes();
    CPU_BUSY, "Time that CPUs were busy, summed over all of them.",
        Metric::new_counter("gaunt_node_cpu_busy_seconds_total", Node, Unit::Seconds, Bits64).with_history();
    CPU_KERNEL, "Time that CPUs ran the kernel, its interrupts included, summed over all of them: a part of the busy time.",
        Metric::new_counter("gaunt_node_cpu_kernel_seconds_total", Node, Unit::Seconds, Bits64);
    CPU_IOWAIT, "Time that CPUs were idle while input or output was outstanding, summed over all of them.",
        Metric::new_counter("gaunt_node_cpu_iowait_seconds_total", Node, Unit::Seconds, Bits64);
    CPU_BUSIEST, "Busy share of the busiest CPU since the last sample.",
        Metric::new_gauge("gaunt_node_busiest_cpu_ratio", Node, Unit::Ratio, 0.01).with_history();
    TASKS_RUNNABLE, "Tasks that run or wait for a CPU at this moment.",
        Metric::new_gauge("gaunt_node_runnable_tasks", Node, Unit::Count, 1.0)
            .with_history().with_foreign(&[node_exporter_name("node_procs_running")]);
    TASKS_BLOCKED, "Tasks that wait for input or output at this moment.",
        Metric::new_gauge("gaunt_node_blocked_tasks", Node, Unit::Count, 1.0)
            .with_history().with_foreign(&[node_exporter_name("node_procs_blocked")]);
    TASKS_UNINTERRUPTIBLE, "Processes that cannot be interrupted (state D): a driver or a file system holds them.",
        Metric::new_gauge("gaunt_node_uninterruptible_processes", Node, Unit::Count, 1.0).with_history();
    LOAD, "Tasks that ran or waited, averaged over a minute.",
        Metric::new_gauge("gaunt_node_load1", Node, Unit::Count, 0.01)
            .with_foreign(&[node_exporter_name("node_load1")]);
    CPU_PRESSURE, "Time that at least one task waited for a CPU (PSI some).",
        Metric::new_counter("gaunt_node_cpu_pressure_some_seconds_total", Node, Unit::Seconds, Bits64)
            .with_history().with_foreign(&[node_exporter_name("node_pressure_cpu_waiting_seconds_total")]);
    CPU_PRESSURE_FULL, "Time that all runnable tasks of some group waited for a CPU (PSI full).",
        Metric::new_counter("gaunt_node_cpu_pressure_full_seconds_total", Node, Unit::Seconds, Bits64);
    IO_PRESSURE, "Time that at least one task waited for input or output (PSI some).",
        Metric::new_counter("gaunt_node_io_pressure_some_seconds_total", Node, Unit::Seconds, Bits64)
            .with_history().with_foreign(&[node_exporter_name("node_pressure_io_waiting_seconds_total")]);
    IO_PRESSURE_FULL, "Time that all runnable tasks waited for input or output (PSI full).",
        Metric::new_counter("gaunt_node_io_pressure_full_seconds_total", Node, Unit::Seconds, Bits64)
            .with_foreign(&[node_exporter_name("node_pressure_io_stalled_seconds_total")]);
    MEMORY_PRESSURE, "Time that at least one task waited for memory (PSI some).",
        Metric::new_counter("gaunt_node_memory_pressure_some_seconds_total", Node, Unit::Seconds, Bits64)
            .with_foreign(&[node_exporter_name("node_pressure_memory_waiting_seconds_total")]);
    MEMORY_PRESSURE_FULL, "Time that all runnable tasks waited for memory (PSI full).",
        Metric::new_counter("gaunt_node_memory_pressure_full_seconds_total", Node, Unit::Seconds, Bits64)
            .with_foreign(&[node_exporter_name("node_pressure_memory_stalled_seconds_total")]);
    MEMORY_TOTAL, "Memory of the node.",
        Metric::new_gauge("gaunt_node_memory_total_bytes", Node, Unit::Bytes, MIB)
            .with_foreign(&[node_exporter_name("node_memory_MemTotal_bytes")]).with_rare_changes();
    MEMORY_AVAILABLE, "Memory that new work could take without swapping.",
        Metric::new_gauge("gaunt_node_memory_available_bytes", Node, Unit::Bytes, MIB)
            .with_history().with_foreign(&[node_exporter_name("node_memory_MemAvailable_bytes")]);
    MEMORY_FREE, "Memory that nothing uses.",
        Metric::new_gauge("gaunt_node_memory_free_bytes", Node, Unit::Bytes, MIB)
            .with_foreign(&[node_exporter_name("node_memory_MemFree_bytes")]);
    MEMORY_CACHED, "Memory that holds pages of files: the page cache.",
        Metric::new_gauge("gaunt_node_memory_cached_bytes", Node, Unit::Bytes, MIB)
            .with_foreign(&[node_exporter_name("node_memory_Cached_bytes")]);
    MEMORY_BUFFERS, "Memory that holds blocks of disks.",
        Metric::new_gauge("gaunt_node_memory_buffers_bytes", Node, Unit::Bytes, MIB)
            .with_foreign(&[node_exporter_name("node_memory_Buffers_bytes")]);
    MEMORY_DIRTY, "Memory that has yet to be written to disks.",
        Metric::new_gauge("gaunt_node_memory_dirty_bytes", Node, Unit::Bytes, MIB)
            .with_foreign(&[node_exporter_name("node_memory_Dirty_bytes")]);
    MEMORY_WRITEBACK, "Memory that is being written to disks.",
        Metric::new_gauge("gaunt_node_memory_writeback_bytes", Node, Unit::Bytes, MIB)
            .with_foreign(&[node_exporter_name("node_memory_Writeback_bytes")]);
    MEMORY_SHARED, "Memory of shared segments and of file systems in memory, where data loaders exchange batches.",
        Metric::new_gauge("gaunt_node_memory_shared_bytes", Node, Unit::Bytes, MIB)
            .with_foreign(&[node_exporter_name("node_memory_Shmem_bytes")]);
    SWAP_TOTAL, "Room to swap.",
        Metric::new_gauge("gaunt_node_memory_swap_total_bytes", Node, Unit::Bytes, MIB)
            .with_foreign(&[node_exporter_name("node_memory_SwapTotal_bytes")]).with_rare_changes();
    SWAP_FREE, "Room to swap that is free.",
        Metric::new_gauge("gaunt_node_memory_swap_free_bytes", Node, Unit::Bytes, MIB)
            .with_foreign(&[node_exporter_name("node_memory_SwapFree_bytes")]);
    OOM_KILLS, "Processes that the kernel killed for lack of memory.",
        Metric::new_counter("gaunt_node_oom_kills_total", Node, Unit::Count, Bits64)
            .with_foreign(&[node_exporter_name("node_vmstat_oom_kill")]);
    NODE_POWER, "Power draw of the whole node, where its board tells.",
        Metric::new_gauge("gaunt_node_power_watts", Node, Unit::Watts, 1.0).with_history();
    CERTIFICATE_EXPIRY, "When the certificate of the exporter expires, or the one of its chain that expires first.",
        Metric::new_gauge("gaunt_node_certificate_expiry_timestamp_seconds", Node, Unit::Seconds, 1.0).with_rare_changes();
    NFS_RETRANSMITS, "Requests to NFS servers that were sent again because no answer came.",
        Metric::new_counter("gaunt_node_nfs_retransmits_total", Node, Unit::Count, Bits64);
    NFSD_READ_BYTES, "Bytes that the node's NFS server read for its clients.",
        Metric::new_counter("gaunt_node_nfsd_read_bytes_total", Node, Unit::Bytes, Bits64);
    NFSD_WRITE_BYTES, "Bytes that the node's NFS server wrote for its clients.",
        Metric::new_counter("gaunt_node_nfsd_write_bytes_total", Node, Unit::Bytes, Bits64);
    TCP_SENT, "TCP segments that the node sent, without those sent again.",
        Metric::new_counter("gaunt_node_tcp_sent_segments_total", Node, Unit::Count, Bits64)
            .with_foreign(&[node_exporter_name("node_netstat_Tcp_OutSegs")]);
    TCP_RESENT, "TCP segments that the node sent again because no answer came.",
        Metric::new_counter("gaunt_node_tcp_resent_segments_total", Node, Unit::Count, Bits64)
            .with_foreign(&[node_exporter_name("node_netstat_Tcp_RetransSegs")]);
    NETDEV_INFO, "Who the network device is.",
        Metric::new_info_series("gaunt_netdev_info", Netdev,
            &["address", "operstate", "function", "driver", "pci_bus_id", "master"]);
    NETDEV_CARRIER, "Whether the network device has a carrier.",
        Metric::new_gauge("gaunt_netdev_carrier", Netdev, Unit::Count, 1.0)
            .with_foreign(&[node_exporter_name("node_network_carrier")]);
    NETDEV_SPEED, "Line rate of the network device.",
        Metric::new_gauge("gaunt_netdev_speed_bytes_per_second", Netdev, Unit::BytesPerSecond, 1.0)
            .with_foreign(&[node_exporter_name("node_network_speed_bytes")]);
    NETDEV_MTU, "Largest packet that the network device sends (MTU).",
        Metric::new_gauge("gaunt_netdev_mtu_bytes", Netdev, Unit::Bytes, 1.0)
            .with_foreign(&[node_exporter_name("node_network_mtu_bytes")]);
    NETDEV_CARRIER_CHANGES, "Times that the carrier came or went.",
        Metric::new_counter("gaunt_netdev_carrier_changes_total", Netdev, Unit::Count, Bits64)
            .with_foreign(&[node_exporter_name("node_network_carrier_changes_total")]);
    NETDEV_RECEIVE_BYTES, "Bytes received.",
        Metric::new_counter("gaunt_netdev_receive_bytes_total", Netdev, Unit::Bytes, Bits64)
            .with_history().with_foreign(&[node_exporter_name("node_network_receive_bytes_total")]);
    NETDEV_TRANSMIT_BYTES, "Bytes transmitted.",
        Metric::new_counter("gaunt_netdev_transmit_bytes_total", Netdev, Unit::Bytes, Bits64)
            .with_history().with_foreign(&[node_exporter_name("node_network_transmit_bytes_total")]);
    NETDEV_RECEIVE_PACKETS, "Packets received.",
        Metric::new_counter("gaunt_netdev_receive_packets_total", Netdev, Unit::Count, Bits64)
            .with_foreign(&[node_exporter_name("node_network_receive_packets_total")]);
    NETDEV_TRANSMIT_PACKETS, "Packets transmitted.",
        Metric::new_counter("gaunt_netdev_transmit_packets_total", Netdev, Unit::Count, Bits64)
            .with_foreign(&[node_exporter_name("node_network_transmit_packets_total")]);
    NETDEV_RECEIVE_ERRORS, "Packets received with an error.",
        Metric::new_counter("gaunt_netdev_receive_errors_total", Netdev, Unit::Count, Bits64)
            .with_foreign(&[node_exporter_name("node_network_receive_errs_total")]);
    NETDEV_TRANSMIT_ERRORS, "Packets that could not be transmitted.",
        Metric::new_counter("gaunt_netdev_transmit_errors_total", Netdev, Unit::Count, Bits64)
            .with_foreign(&[node_exporter_name("node_network_transmit_errs_total")]);
    NETDEV_RECEIVE_DROPS, "Packets received and dropped.",
        Metric::new_counter("gaunt_netdev_receive_drops_total", Netdev, Unit::Count, Bits64)
            .with_foreign(&[node_exporter_name("node_network_receive_drop_total")]);
    NETDEV_TRANSMIT_DROPS, "Packets dropped instead of transmitted.",
        Metric::new_counter("gaunt_netdev_transmit_drops_total", Netdev, Unit::Count, Bits64)
            .with_foreign(&[node_exporter_name("node_network_transmit_drop_total")]);
}
