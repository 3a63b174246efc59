//! Tests of the declared topology file: the sample, and rejected input.

use super::*;

#[test]
fn shipped_sample_is_parsed_as_documented() {
    let text = include_str!("../../../config/topology.toml");
    let topology = parse_topology(text, "topology.toml".into()).unwrap();
    let node = topology.nodes.iter().find(|location| location.node == "gpu001").unwrap();
    assert_eq!((node.rack.as_deref(), node.leaf.as_deref()), (Some("r01"), None));
    let port = topology.ports.iter().find(|p| p.node == "gpu001" && p.device == "mlx5_1").unwrap();
    assert_eq!((port.leaf.as_deref(), &port.port), (Some("leaf-02"), &None));
    assert_eq!(topology.rails.len(), 4);
    let leaf = topology.switches.iter().find(|switch| switch.name == "leaf-01").unwrap();
    assert_eq!((leaf.above.len(), leaf.rail.as_deref()), (2, Some("0")));
}

#[test]
fn invalid_file_is_refused_with_its_line() {
    let error_of = |text: &str| {
        let fault = parse_topology(text, "t.toml".into()).unwrap_err();
        format!("{}: {}", fault.line, fault.what)
    };
    assert!(
        error_of("[[nodes]]\nnames = \"a\"\nleave = \"x\"\n")
            .starts_with("3: unknown field \"leave\"; known: ")
    );
    assert!(
        error_of("[[nodes]]\n\nnames = \"a[\"\n").starts_with("3: host list \"a[\", character 2")
    );
    assert!(error_of("[[nodes]]\nnames = \"\"\n").starts_with("2: an empty host list"));
    assert!(error_of("# nothing\n").starts_with("1: no topology in it"));
    let both =
        parse_topology("[[nodes]]\nnames=\"a\"\nports={\"mlx5_0/2\"=\"x\"}\n", "t".into()).unwrap();
    assert_eq!(both.ports[0].port.as_deref(), Some("2"));
}
