//! Device tree of a node with 8 RDMA ports of mlx5 cards and 9 network devices, with all files filled.

use std::{fs, io, path::Path};

/// Ports: one for each GPU.
const PORTS: usize = 8;

/// The counters that mlx5 has in a port's `counters`.
const COUNTERS: &[&str] = &[
    "VL15_dropped",
    "excessive_buffer_overrun_errors",
    "link_downed",
    "link_error_recovery",
    "local_link_integrity_errors",
    "multicast_rcv_packets",
    "multicast_xmit_packets",
    "port_rcv_constraint_errors",
    "port_rcv_data",
    "port_rcv_errors",
    "port_rcv_packets",
    "port_rcv_remote_physical_errors",
    "port_rcv_switch_relay_errors",
    "port_xmit_constraint_errors",
    "port_xmit_data",
    "port_xmit_discards",
    "port_xmit_packets",
    "port_xmit_wait",
    "symbol_error",
    "unicast_rcv_packets",
    "unicast_xmit_packets",
];

/// The counters of mlx5 in `hw_counters`.
const HW_COUNTERS: &[&str] = &[
    "duplicate_request",
    "implied_nak_seq_err",
    "lifespan",
    "local_ack_timeout_err",
    "np_cnp_sent",
    "np_ecn_marked_roce_packets",
    "out_of_buffer",
    "out_of_sequence",
    "packet_seq_err",
    "req_cqe_error",
    "req_cqe_flush_error",
    "req_remote_access_errors",
    "req_remote_invalid_request",
    "resp_cqe_error",
    "resp_cqe_flush_error",
    "resp_local_length_error",
    "resp_remote_access_errors",
    "rnr_nak_retry_err",
    "roce_adp_retrans",
    "roce_adp_retrans_to",
    "roce_slow_restart",
    "roce_slow_restart_cnps",
    "roce_slow_restart_trans",
    "rp_cnp_handled",
    "rp_cnp_ignored",
    "rx_atomic_requests",
    "rx_dct_connect",
    "rx_icrc_encapsulated",
    "rx_read_requests",
    "rx_write_requests",
];

/// Attributes of a network device besides its statistics; includes the numbers that prometheus-node-exporter requires.
const NETDEV: &[(&str, &str)] = &[
    ("addr_assign_type", "0"),
    ("addr_len", "6"),
    ("address", "02:00:00:00:00:01"),
    ("broadcast", "ff:ff:ff:ff:ff:ff"),
    ("carrier", "1"),
    ("carrier_changes", "2"),
    ("carrier_down_count", "1"),
    ("carrier_up_count", "1"),
    ("dev_id", "0x0"),
    ("dormant", "0"),
    ("duplex", "full"),
    ("flags", "0x1003"),
    ("ifindex", "2"),
    ("iflink", "2"),
    ("link_mode", "0"),
    ("mtu", "4092"),
    ("name_assign_type", "4"),
    ("netdev_group", "0"),
    ("operstate", "up"),
    ("speed", "400000"),
    ("tx_queue_len", "1000"),
    ("type", "1"),
];

/// The statistics of a network device.
const STATISTICS: &[&str] = &[
    "rx_bytes",
    "rx_packets",
    "rx_errors",
    "rx_dropped",
    "tx_bytes",
    "tx_packets",
    "tx_errors",
    "tx_dropped",
    "multicast",
    "collisions",
    "rx_length_errors",
    "rx_over_errors",
    "rx_crc_errors",
    "rx_frame_errors",
    "rx_fifo_errors",
    "rx_missed_errors",
    "tx_aborted_errors",
    "tx_carrier_errors",
    "tx_fifo_errors",
    "tx_heartbeat_errors",
    "tx_window_errors",
    "rx_compressed",
    "tx_compressed",
    "rx_nohandler",
];

/// Writes the tree.
pub(super) fn write_tree(sys: &Path) -> io::Result<()> {
    for at in 0..PORTS {
        write_port(&sys.join(format!("class/infiniband/mlx5_{at}")), at)?;
        write_netdev(&sys.join(format!("class/net/ib{at}")), at)?;
    }
    write_netdev(&sys.join("class/net/eth0"), PORTS)
}

fn write_port(device: &Path, at: usize) -> io::Result<()> {
    let port = device.join("ports/1");
    write_file(device, "fw_ver", "28.39.1002")?;
    write_file(device, "hca_type", "MT4129")?;
    write_file(device, "board_id", "MT_0000000838")?;
    write_file(&device.join(format!("device/net/ib{at}")), "dev_port", "0")?;
    write_file(&port, "state", "4: ACTIVE")?;
    write_file(&port, "phys_state", "5: LinkUp")?;
    write_file(&port, "rate", "400 Gb/sec (4X NDR)")?;
    write_file(&port, "link_layer", "InfiniBand")?;
    for (position, name) in COUNTERS.iter().enumerate() {
        // Below the maximum of every width.
        let value = if name.ends_with("data") || name.ends_with("packets") {
            987_654_321_000 + (at * 1000 + position) as u64
        } else {
            (position % 7) as u64
        };
        write_file(&port.join("counters"), name, &value.to_string())?;
    }
    for (position, name) in HW_COUNTERS.iter().enumerate() {
        write_file(&port.join("hw_counters"), name, &(at * 1000 + position).to_string())?;
    }
    Ok(())
}

fn write_netdev(folder: &Path, at: usize) -> io::Result<()> {
    for (name, content) in NETDEV {
        write_file(folder, name, content)?;
    }
    for (position, name) in STATISTICS.iter().enumerate() {
        let value = (at * 1_000_000 + position).to_string();
        write_file(&folder.join("statistics"), name, &value)?;
    }
    Ok(())
}

fn write_file(folder: &Path, name: &str, content: &str) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    fs::write(folder.join(name), format!("{content}\n"))
}
