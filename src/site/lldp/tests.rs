//! Tests of both JSON formats of lldpcli, printed on a node and on a switch.

use super::*;

const TWO: &str = r#"{"lldp": {"interface": [
  {"ens1f0np0": {"via": "LLDP", "rid": "1", "age": "3 days, 01:12:09",
    "chassis": {"leaf-01": {"id": {"type": "mac", "value": "0c:42:a1:00:00:01"}, "descr": "switch",
      "capability": [{"type": "Bridge", "enabled": true}, {"type": "Router", "enabled": true}]}},
    "port": {"id": {"type": "ifname", "value": "swp1"}, "descr": "swp1", "ttl": "120"}}},
  {"ens2f0np0": {"via": "LLDP", "rid": "2",
    "chassis": {"id": {"type": "mac", "value": "0c:42:a1:00:00:02"}},
    "port": {"id": {"type": "mac", "value": "0c:42:a1:00:00:03"}, "ttl": "120"}}}]}}"#;

const ONE: &str = r#"{"lldp": {"interface": {"swp7": {"via": "LLDP",
    "chassis": {"gpu-007": {"id": {"type": "mac", "value": "aa:bb:cc:00:00:07"},
      "capability": [{"type": "Bridge", "enabled": false}, {"type": "Station", "enabled": true}]}},
    "port": {"id": {"type": "mac", "value": "aa:bb:cc:00:00:08"}, "descr": "ens1f0np0", "ttl": "120"}}}}}"#;

const LISTS: &str = r#"{"lldp": [{"interface": [{"name": "eth1", "via": "LLDP",
    "chassis": [{"id": [{"type": "mac", "value": "x"}], "name": [{"value": "leaf-09"}],
      "capability": [{"type": "Bridge", "enabled": true}]}],
    "port": [{"id": [{"type": "ifname", "value": "swp3"}], "descr": [{"value": "swp3"}]}]}]}]}"#;

fn port_lines(text: &str, machine: &str) -> Vec<String> {
    let line = |p: PortLocation| format!("{} {} {}", p.node, p.device, p.leaf.unwrap());
    parse_neighbours(text, machine).unwrap().into_iter().map(line).collect()
}

#[test]
fn switch_at_a_port_is_its_leaf_and_a_nameless_one_is_skipped() {
    assert_eq!(port_lines(TWO, "gpu-001"), ["gpu-001 ens1f0np0 leaf-01"]);
    assert_eq!(port_lines(LISTS, "gpu-002"), ["gpu-002 eth1 leaf-09"]);
}

#[test]
fn neighbours_of_a_switch_are_the_nodes_at_its_ports() {
    assert_eq!(port_lines(ONE, "leaf-03"), ["gpu-007 ens1f0np0 leaf-03"]);
}

#[test]
fn host_that_bridges_and_routes_for_containers_is_a_node() {
    let text = ONE.replace(
        r#"{"type": "Station", "enabled": true}"#,
        r#"{"type": "Router", "enabled": true}"#,
    );
    assert_ne!(text, ONE);
    assert_eq!(port_lines(&text, "leaf-03"), ["gpu-007 ens1f0np0 leaf-03"]);
    // A switch that gives its ports no names is one all the same.
    let text = text.replace("ens1f0np0", "Ethernet 1/7");
    assert_eq!(port_lines(&text, "gpu-009"), ["gpu-009 swp7 gpu-007"]);
}

#[test]
fn missing_neighbours_are_valid_and_other_text_is_an_error() {
    assert!(port_lines(r#"{"lldp": {}}"#, "a").is_empty());
    assert!(
        parse_neighbours("Interface: eth0", "a")
            .unwrap_err()
            .what
            .starts_with("invalid JSON (column ")
    );
    assert!(
        parse_neighbours("{}", "a").unwrap_err().what.contains("lldpcli -f json show neighbors")
    );
    assert_eq!(parse_neighbours("{\n\n oops", "a").unwrap_err().line, 3);
}

const OWN_INTERFACES: &str = r#"{"lldp": {"interface": [{"ens1f0np0": {"status": "RX and TX",
    "chassis": {"gpu-001": {"id": {"type": "mac", "value": "aa:bb:cc:00:00:01"},
      "capability": [{"type": "Bridge", "enabled": true}]}},
    "port": {"id": {"type": "mac", "value": "aa:bb:cc:00:00:02"}, "descr": "ens1f0np0", "ttl": "120"}}}]}}"#;

#[test]
fn own_interfaces_are_no_neighbours() {
    let fault = parse_neighbours(OWN_INTERFACES, "gpu-001").unwrap_err();
    assert!(fault.what.contains("`lldpcli -f json show neighbors`"), "{fault:?}");
}

#[test]
fn broken_file_of_a_directory_is_skipped_and_named() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("gpu-001.json", OWN_INTERFACES);
    write("gpu-002.json", LISTS);
    write("gpu-003.json", "{\n oops");
    let data = crate::read_topology(folder.path()).unwrap();
    assert_eq!(data.content.ports.len(), 1);
    let skipped = data.skipped.unwrap();
    assert!(skipped.contains("gpu-001.json:1: it shows the machine's own"), "{skipped}");
    assert!(skipped.ends_with("; skipped; 1 more"), "{skipped}");
    write("gpu-002.json", "[]");
    crate::read_topology(folder.path()).unwrap_err();
}
