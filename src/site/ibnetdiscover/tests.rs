//! Tests with a small fat tree as `ibnetdiscover` prints it.

use super::*;

const FABRIC: &str = "\
#
# Topology file: generated on Tue Oct  7 08:12:44 2025
#
# Initiated from node b8cef603007ad1f0 port b8cef603007ad1f0

vendid=0x2c9
devid=0xd2f2
sysimgguid=0xfc6a1c0300aa0100
switchguid=0xfc6a1c0300aa0100(fc6a1c0300aa0100)
Switch\t65 \"S-fc6a1c0300aa0100\"\t\t# \"MF0;leaf-01:MQM9790/U1\" enhanced port 0 lid 2 lmc 0
[1]\t\"H-b8cef603007ad1f0\"[1](b8cef603007ad1f0) \t\t# \"gpu-001 mlx5_0\" lid 11 4xNDR
[2]\t\"H-b8cef603007ad2f0\"[1](b8cef603007ad2f0) \t\t# \"gpu-002 mlx5_0\" lid 12 4xNDR
[3]\t\"H-b8cef603007ad3f0\"[1](b8cef603007ad3f0) \t\t# \"old-7 HCA-1\" lid 13 4xHDR
[33][ext 17/1]\t\"S-fc6a1c0300aa0300\"[1]\t\t# \"MF0;spine-01:MQM9790/U1\" lid 4 4xNDR
[65]\t\"H-fc6a1c0300aa0108\"[1](fc6a1c0300aa0108) \t\t# \"Mellanox Technologies Aggregation Node\" lid 90 4xNDR

vendid=0x2c9
devid=0xd2f2
switchguid=0xfc6a1c0300aa0200(fc6a1c0300aa0200)
Switch\t65 \"S-fc6a1c0300aa0200\"\t\t# \"MF0;leaf-02:MQM9790/U1\" enhanced port 0 lid 3 lmc 0
[1]\t\"H-b8cef603007ad1f4\"[1](b8cef603007ad1f4) \t\t# \"gpu-001 mlx5_1\" lid 14 4xNDR
[33]\t\"S-fc6a1c0300aa0300\"[2]\t\t# \"MF0;spine-01:MQM9790/U1\" lid 4 4xNDR

switchguid=0xfc6a1c0300aa0300(fc6a1c0300aa0300)
Switch\t65 \"S-fc6a1c0300aa0300\"\t\t# \"MF0;spine-01:MQM9790/U1\" enhanced port 0 lid 4 lmc 0
[1]\t\"S-fc6a1c0300aa0100\"[33]\t\t# \"MF0;leaf-01:MQM9790/U1\" lid 2 4xNDR
[2]\t\"S-fc6a1c0300aa0200\"[33]\t\t# \"MF0;leaf-02:MQM9790/U1\" lid 3 4xNDR

vendid=0x2c9
devid=0x1021
caguid=0xb8cef603007ad1f0
Ca\t1 \"H-b8cef603007ad1f0\"\t\t# \"gpu-001 mlx5_0\"
[1](b8cef603007ad1f0) \t\"S-fc6a1c0300aa0100\"[1]\t\t# lid 11 lmc 0 \"MF0;leaf-01:MQM9790/U1\" lid 2 4xNDR
";

fn parse_error(text: &str) -> String {
    let fault = parse_topology(text, "fabric.txt".into()).unwrap_err();
    format!("{}: {}", fault.line, fault.what)
}

#[test]
fn cables_give_each_port_its_leaf_and_each_leaf_its_spines() {
    let (topology, _) = parse_topology(FABRIC, "fabric.txt".into()).unwrap();
    let ports: Vec<_> = topology
        .ports
        .iter()
        .map(|p| {
            format!(
                "{} {}/{} {}",
                p.node,
                p.device,
                p.port.as_ref().unwrap(),
                p.leaf.as_ref().unwrap()
            )
        })
        .collect();
    let expected = [
        "gpu-001 mlx5_0/1 leaf-01",
        "gpu-002 mlx5_0/1 leaf-01",
        "old-7 /1 leaf-01",
        "gpu-001 mlx5_1/1 leaf-02",
    ];
    assert_eq!(ports, expected);
    assert_eq!(topology.ports[2].guid.as_deref(), Some("b8cef603007ad3f0"));
    let above: Vec<_> =
        topology.switches.iter().map(|s| (s.name.as_str(), s.above[0].as_str())).collect();
    assert_eq!(above, [("leaf-01", "spine-01"), ("leaf-02", "spine-01")]);
    // An adapter that is only numbered gives the leaf of its node, not of a port.
    assert_eq!((topology.nodes.len(), topology.nodes[0].node.as_str()), (1, "old-7"));
}

#[test]
fn cables_join_switch_guid_and_port_with_node_and_adapter() {
    let (topology, _) = parse_topology(FABRIC, "fabric.txt".into()).unwrap();
    let cables: Vec<_> = topology
        .cables
        .iter()
        .map(|c| format!("{:016x}/{} {} {}", c.switch_guid, c.switch_port, c.node, c.adapter))
        .collect();
    let expected = [
        "fc6a1c0300aa0100/1 gpu-001 mlx5_0",
        "fc6a1c0300aa0100/2 gpu-002 mlx5_0",
        "fc6a1c0300aa0100/3 old-7 HCA-1",
        "fc6a1c0300aa0200/1 gpu-001 mlx5_1",
    ];
    assert_eq!(cables, expected);
}

#[test]
fn switches_that_share_a_name_keep_their_guids() {
    let text = FABRIC.replace("MF0;leaf-01:MQM9790/U1", "Quantum Mellanox Technologies");
    let text = text.replace("MF0;leaf-02:MQM9790/U1", "Quantum Mellanox Technologies");
    let (topology, _) = parse_topology(&text, "fabric.txt".into()).unwrap();
    assert_eq!(topology.ports[0].leaf.as_deref(), Some("S-fc6a1c0300aa0100"));
    assert_eq!(switch_name("MF0;cs-1:CS8500/L03/U1"), "cs-1/L03/U1");
}

#[test]
fn invalid_output_is_refused_with_its_line() {
    assert!(parse_error("").starts_with("1: no switch in it"));
    let broken = parse_error("vendid=0x2c9\nSwitch 40 S-1\n");
    assert!(broken.starts_with("2: \"Switch 40 S-1\" has no GUID"), "{broken}");
    let list = "SW  1  1 0xfc6a1c0300aa0100 4x NDR - CA 11 1 0xb8 ( 'leaf' - 'gpu' )\n";
    assert!(parse_error(list).contains("without -p, -l or -H"));
    let broken = parse_error("Switch\t4 \"S-1\"\t# \"a\" port 0\n[1]\t\"H-2\n");
    assert!(broken.starts_with("2: ") && broken.contains("is not a cable"), "{broken}");
}

const TIMEOUT: &str = "src/query_smp.c:196; umad (DR path slid 0; dlid 0; 0,1,33 Attr 0xff90:1) bad \
                       status 110; Connection timed out\n";

#[test]
fn messages_of_the_tool_are_skipped_with_their_lines() {
    let warning = "ibwarn: [4711] mad_rpc: _do_madrpc failed; dport (DR path 0,1,3)\n";
    let text = FABRIC.replace("\n[2]\t", &format!("\n{warning}[2]\t"));
    let text = format!("{TIMEOUT}{text}{TIMEOUT}");
    let (topology, skipped) = parse_topology(&text, "fabric.txt".into()).unwrap();
    let (clean, none) = parse_topology(FABRIC, "fabric.txt".into()).unwrap();
    assert_eq!((topology, none), (clean, vec![]));
    let lines: Vec<usize> = skipped.iter().map(|fault| fault.line).collect();
    assert_eq!(lines, [1, 13, 29, 37]);
    assert!(
        skipped[0].what.starts_with("\"src/query_smp.c:196; umad (DR path")
            && skipped[0].what.contains("is a message of the tool: a device"),
        "{skipped:?}"
    );
}

#[test]
fn cable_that_a_message_cuts_in_two_is_skipped() {
    for cut in ["[2]\t\"H-b8cef6", "[2]\t\"H-b8cef603007ad2f0\"[1](b8ce", "# \"gpu-002 ml"] {
        let text = FABRIC.replace(cut, &format!("{cut}{TIMEOUT}"));
        let (topology, skipped) = parse_topology(&text, "fabric.txt".into()).unwrap();
        let nodes: Vec<&str> = topology.ports.iter().map(|port| port.node.as_str()).collect();
        assert_eq!(nodes, ["gpu-001", "old-7", "gpu-001"], "{cut}");
        let lines: Vec<usize> = skipped.iter().map(|fault| fault.line).collect();
        assert_eq!(lines, [12, 13], "{cut}");
    }
}

#[test]
fn cables_below_a_header_that_is_cut_in_two_belong_to_no_switch() {
    let text = FABRIC.replace("Switch\t65 \"S-fc6a1c0300aa0200", &format!("Swit{TIMEOUT}"));
    let (topology, skipped) = parse_topology(&text, "fabric.txt".into()).unwrap();
    let ports: Vec<String> = topology
        .ports
        .iter()
        .map(|port| format!("{} {}", port.node, port.leaf.as_deref().unwrap_or_default()))
        .collect();
    assert_eq!(ports, ["gpu-001 leaf-01", "gpu-002 leaf-01", "old-7 leaf-01"]);
    assert_eq!(skipped.len(), 2, "{skipped:?}");
}

#[test]
fn output_of_more_messages_than_any_fabric_has_is_refused() {
    let text = format!("{FABRIC}{}", TIMEOUT.repeat(MAX_SKIPPED + 1));
    assert!(parse_error(&text).contains("2>/dev/null"));
}
