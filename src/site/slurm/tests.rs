//! Tests of the topologies parsed from Slurm's two files.

use super::*;

const TREE: &str = "\
# Two leaves under two spines.
SwitchName=leaf-1 Nodes=gpu[001-002] LinkSpeed=400
switchname=leaf-2 \\
  nodes=gpu[003-004],gpu009
SwitchName=spine-1 Switches=leaf-[1-2]
SwitchName=top Level=2 Switches=spine-[1-2]
";

/// Leaf and domain of each node.
fn leaf_and_domain(topology: &SourceTopology) -> Vec<(&str, Option<&str>, Option<&str>)> {
    topology
        .nodes
        .iter()
        .map(|n| (n.node.as_str(), n.leaf.as_deref(), n.domain.as_deref()))
        .collect()
}

fn parse_error(text: &str) -> String {
    let fault = parse_topology(text, "topology.conf".into()).unwrap_err();
    format!("{}: {}", fault.line, fault.what)
}

#[test]
fn tree_gives_nodes_their_leaf_and_leaves_their_spines() {
    let (topology, skipped) = parse_topology(TREE, "topology.conf".into()).unwrap();
    assert_eq!(skipped, []);
    let expected = [
        ("gpu001", Some("leaf-1"), None),
        ("gpu002", Some("leaf-1"), None),
        ("gpu003", Some("leaf-2"), None),
        ("gpu004", Some("leaf-2"), None),
        ("gpu009", Some("leaf-2"), None),
    ];
    assert_eq!(leaf_and_domain(&topology), expected);
    assert_eq!(topology.origin, TopologyOrigin::Scheduler);
    let above: Vec<_> =
        topology.switches.iter().map(|s| (s.name.as_str(), s.above.len())).collect();
    assert_eq!(above, [("leaf-1", 1), ("leaf-2", 1), ("spine-1", 1), ("spine-2", 1)]);
    assert!(topology.ports.is_empty(), "Slurm knows no cable");
}

#[test]
fn block_is_an_nvlink_domain() {
    let text = "BlockName=b1 Nodes=gpu[01-18]\nBlockName=b2 Nodes=gpu[19-36]\nBlockSizes=18,36\n";
    let (topology, _) = parse_topology(text, "topology.conf".into()).unwrap();
    assert_eq!(topology.nodes.len(), 36);
    assert_eq!(leaf_and_domain(&topology)[35], ("gpu36", None, Some("b2")));
}

#[test]
fn node_below_two_leaves_has_no_leaf() {
    let text = "SwitchName=a Nodes=n[1-2]\nSwitchName=b Nodes=n[2-3]\n";
    let (topology, _) = parse_topology(text, "topology.conf".into()).unwrap();
    let leaves: Vec<_> = leaf_and_domain(&topology).into_iter().map(|(_, leaf, _)| leaf).collect();
    assert_eq!(leaves, [Some("a"), None, Some("b")]);
}

#[test]
fn output_of_scontrol_is_the_same_topology() {
    let text = "\
SwitchName=leaf-1 Level=0 LinkSpeed=1 Nodes=gpu[001-002]
SwitchName=leaf-2 Level=0 LinkSpeed=1 Nodes=gpu[003-004,009]
SwitchName=spine-1 Level=1 LinkSpeed=1 Nodes=gpu[001-004,009] Switches=leaf-[1-2]
SwitchName=top Level=2 LinkSpeed=1 Nodes=gpu[001-004,009] Switches=spine-[1-2]
";
    let read = |text: &str| parse_topology(text, "topology.conf".into()).unwrap().0;
    assert_eq!(read(text), read(TREE));
    let text = "BlockName=b1 BlockIndex=0 Nodes=gpu[1-4] BlockSize=4\n\
                BlockName=b2 BlockIndex=1 Nodes=gpu[5-8] BlockSize=4\n\
                AggregatedBlock=b[1-2] BlockIndex=2 Nodes=gpu[1-8] BlockSize=8\n";
    assert_eq!(leaf_and_domain(&read(text))[7], ("gpu8", None, Some("b2")));
}

#[test]
fn value_goes_on_in_the_next_line() {
    let text = "SwitchName=leaf-1 Nodes=\\\ngpu1,\\\ngpu2\n";
    let (topology, _) = parse_topology(text, "topology.conf".into()).unwrap();
    assert_eq!(topology.nodes.len(), 2);
}

#[test]
fn ring_is_skipped_with_its_line() {
    let text = "SwitchName=leaf-1 Nodes=gpu[001-002]\n\nRingName=r1 \\\n  Nodes=gpu[003-008]\n";
    let (topology, skipped) = parse_topology(text, "topology.conf".into()).unwrap();
    assert_eq!(topology.nodes.len(), 2);
    let lines: Vec<usize> = skipped.iter().map(|fault| fault.line).collect();
    assert_eq!(lines, [3]);
    assert!(skipped[0].what.starts_with("RingName is a ring of nodes"), "{skipped:?}");
}

#[test]
fn invalid_line_is_refused_with_its_number() {
    assert_eq!(
        parse_error("\nSwitchName=a Node=n1\n"),
        "2: \"node\" is not a known key; known are SwitchName, Switches, Nodes, Level, LinkSpeed, \
         BlockName, BlockSizes"
    );
    assert_eq!(parse_error("SwitchName=a"), "1: \"a\" needs either Nodes or Switches");
    assert_eq!(
        parse_error("SwitchName=a SwitchName=b"),
        "1: \"SwitchName\" is given twice; keep one"
    );
    assert!(parse_error("leaf1 gpu[1-2]").starts_with("1: \"leaf1\" is not KEY=VALUE"));
    assert!(
        parse_error("SwitchName=a Nodes=n[1-").starts_with("1: host list \"n[1-\", character 2")
    );
    assert!(parse_error("SwitchName=a Nodes=n[1-99999999]").contains("host list"));
    assert_eq!(parse_error("Nodes=n1"), "1: each line needs one of SwitchName and BlockName");
}

#[test]
fn yaml_gives_the_same_topology_and_the_default_tree_is_used() {
    let text = "\
---
- topology: old
  tree:
    switches:
      - switch: wrong
        nodes: gpu[001-004]
- topology: ib
  cluster_default: true
  tree:
    switches:
      - switch: top
        children: leaf-[1-2]
      - switch: leaf-1
        nodes: gpu[001-002]
      - switch: leaf-2
        nodes: gpu[003-004]
- topology: nvl
  block:
    block_sizes:
      - 2
      - 4
    blocks:
      - block: b1
        nodes: gpu[001-002]
- topology: rest
  flat: true
";
    let (topology, skipped) = read_yaml(text, "topology.yaml".into()).unwrap();
    assert_eq!(skipped, []);
    let expected = [
        ("gpu001", Some("leaf-1"), Some("b1")),
        ("gpu002", Some("leaf-1"), Some("b1")),
        ("gpu003", Some("leaf-2"), None),
        ("gpu004", Some("leaf-2"), None),
    ];
    assert_eq!(leaf_and_domain(&topology), expected);
    assert_eq!(topology.switches.len(), 2);
    let broken = read_yaml(&text.replace("gpu[003-004]", "gpu[003-"), "t".into()).unwrap_err();
    assert_eq!(broken.line, 15, "{broken:?}");
    let broken = read_yaml("- topology: [\n", "t".into()).unwrap_err();
    assert!(broken.what.ends_with("see Slurm's topology.yaml(5)"), "{broken:?}");
}

#[test]
fn unknown_key_of_yaml_is_skipped_with_its_line() {
    let text = "\
- topology: ib
  tree:
    switches:
      - switch: leaf-1
        nodes: gpu[001-002]
        link_speed: 400
- topology: wide
  ring:
    rings:
      - ring: r1
        nodes: gpu[003-008]
- topology: nvl
  block:
    blocksizes: [2]
    blocks:
      - { block: b1, nodes: 'gpu[001-002]', \"topology\": 7 }
";
    let (topology, skipped) = read_yaml(text, "topology.yaml".into()).unwrap();
    assert_eq!(leaf_and_domain(&topology)[1], ("gpu002", Some("leaf-1"), Some("b1")));
    let skipped: Vec<String> =
        skipped.iter().map(|fault| format!("{}: {}", fault.line, fault.what)).collect();
    let expected = [
        "6: \"tree.switches.link_speed\" is not a known key; known are switch, nodes, children",
        "8: ring is a ring of nodes, which has no leaf and no NVLink domain; declare these in \
         gaunt's own .toml if there are any",
        "14: \"block.blocksizes\" is not a known key; known are block_sizes, blocks",
        "16: \"block.blocks.topology\" is not a known key; known are block, nodes",
    ];
    assert_eq!(skipped, expected);
}
