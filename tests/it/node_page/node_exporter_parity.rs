//! Parity: the same tree of RDMA devices read by Debian's prometheus-node-exporter and by gaunt-node.

use std::{collections::BTreeMap, fs, path::Path};

use gaunt_schema::text::{PageLimits, PageLine, TextReader};

use super::{node_command, wait_for_page};
use crate::test_process::{TestProcess, debian_program, free_port};

/// The files of a port, all with distinct numbers. Some counters are saturated.
const FILES: &[(&str, &str)] = &[
    ("state", "4: ACTIVE"),
    ("phys_state", "5: LinkUp"),
    ("rate", "400 Gb/sec (4X NDR)"),
    ("link_layer", "InfiniBand"),
    ("counters/VL15_dropped", "65535"),
    ("counters/excessive_buffer_overrun_errors", "15"),
    ("counters/link_downed", "255"),
    ("counters/link_error_recovery", "104"),
    ("counters/local_link_integrity_errors", "5"),
    ("counters/multicast_rcv_packets", "1006"),
    ("counters/multicast_xmit_packets", "1007"),
    ("counters/port_rcv_constraint_errors", "108"),
    ("counters/port_rcv_data", "1125899906842624"),
    ("counters/port_rcv_discards", "1009"),
    ("counters/port_rcv_errors", "1010"),
    ("counters/port_rcv_packets", "9007199254740993"),
    ("counters/port_rcv_remote_physical_errors", "1012"),
    ("counters/port_rcv_switch_relay_errors", "1013"),
    ("counters/port_xmit_constraint_errors", "255"),
    ("counters/port_xmit_data", "4631917"),
    ("counters/port_xmit_discards", "N/A (no PMA)"),
    ("counters/port_xmit_packets", "1017"),
    ("counters/port_xmit_wait", "4294967295"),
    ("counters/symbol_error", "65535"),
    ("counters/unicast_rcv_packets", "1020"),
    ("counters/unicast_xmit_packets", "0"),
];

/// The devices, by driver name.
const DEVICES: [(&str, &str); 3] =
    [("mlx5_0", "MT4129"), ("mlx4_0", "MT4103"), ("bnxt_re0", "BCM57608")];

fn write_tree(sys: &Path) {
    for (index, (device, hca_type)) in DEVICES.iter().enumerate() {
        let device = sys.join("class/infiniband").join(device);
        for port in ["1", "2"] {
            let port = device.join("ports").join(port);
            fs::create_dir_all(port.join("counters")).unwrap();
            for (file, content) in FILES {
                fs::write(port.join(file), format!("{content}\n")).unwrap();
            }
        }
        let down = device.join("ports/2");
        fs::write(down.join("state"), "1: DOWN\n").unwrap();
        fs::write(down.join("phys_state"), "3: Disabled\n").unwrap();
        fs::write(down.join("rate"), "2.5 Gb/sec (1X SDR)\n").unwrap();
        fs::write(down.join("counters/link_error_recovery"), format!("{index}\n")).unwrap();
        fs::write(device.join("fw_ver"), "28.39.1002\n").unwrap();
        fs::write(device.join("hca_type"), format!("{hca_type}\n")).unwrap();
        fs::write(device.join("board_id"), format!("MT_{index}\n")).unwrap();
    }
}

/// Every `node_infiniband_*` series of a page, its labels in order, with its value and its type.
fn infiniband_series(page: &str) -> BTreeMap<String, (f64, String)> {
    let kinds: BTreeMap<_, _> =
        page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' ')).collect();
    let mut found = BTreeMap::new();
    let mut reader = TextReader::new(page.as_bytes(), &PageLimits::default());
    while let Some(line) = reader.next() {
        let Ok(PageLine::Sample(sample)) = line else { continue };
        if !sample.name.starts_with("node_infiniband_") {
            continue;
        }
        let labels: BTreeMap<_, _> = sample
            .labels
            .iter()
            .map(|label| (label.name, label.unescaped_value().into_owned()))
            .collect();
        let value_and_type = (sample.value, kinds[sample.name].to_owned());
        let previous = found.insert(format!("{}{labels:?}", sample.name), value_and_type);
        assert_eq!(previous, None, "{} stands twice", sample.name);
    }
    found
}

#[test]
fn values_equal_those_of_node_exporter_on_the_same_tree() {
    let sys = tempfile::tempdir().unwrap();
    write_tree(sys.path());
    let address = format!("127.0.0.1:{}", free_port());
    let _debian = TestProcess::start_command(
        debian_program("prometheus-node-exporter")
            .args(["--collector.disable-defaults", "--collector.infiniband"])
            .arg(format!("--path.sysfs={}", sys.path().display()))
            .arg(format!("--web.listen-address={address}")),
    );
    let theirs = infiniband_series(&wait_for_page(&address, "node_infiniband_state_id"));
    let node = TestProcess::start_command(node_command(sys.path()).args(["--compat", "node"]));
    let ours =
        infiniband_series(&wait_for_page(&node.served_address(), "node_infiniband_state_id"));

    // Two ports of three devices with 21 counters that have a number, two states and a rate; and each device once.
    assert_eq!(theirs.len(), 3 * (2 * (21 + 3) + 1), "{theirs:#?}");
    for (name, expected) in &theirs {
        assert_eq!(ours.get(name), Some(expected), "{name}");
    }
    assert_eq!(ours.len(), theirs.len(), "{ours:#?}");
}
