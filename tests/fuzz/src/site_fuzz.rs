//! Any text as one of the operator's files: Slurm's topology in both notations, `ibnetdiscover`, LLDP
//! neighbours, gaunt's topology TOML, and `squeue --json`. Parsed facts have names, and a recording preserves them.

use std::path::Path;

use gaunt_schema::{JobList, SourceTopology};
use gaunt_site::{parse_jobs, parse_topology};

const NAMES: [&str; 5] =
    ["topology.conf", "topology.yaml", "topology.toml", "gpu1.json", "squeue.json"];

/// The first byte is the name of the file.
pub fn check_input(input: &[u8]) {
    let [which, text @ ..] = input else { return };
    let Ok(text) = std::str::from_utf8(text) else { return };
    let name = NAMES[usize::from(*which) % NAMES.len()];
    let path = Path::new(name);
    if name == "squeue.json" {
        match parse_jobs(path, text) {
            Ok(list) => {
                for job in &list.jobs {
                    assert!(!job.id.is_empty());
                    let texts = [&job.name, &job.user, &job.account, &job.partition];
                    assert!(texts.into_iter().flatten().all(|text| !text.is_empty()), "{job:?}");
                    assert!(job.holds.iter().all(|holding| !holding.node.is_empty()), "{job:?}");
                }
                let kept = serde_json::to_string(&list).expect("plain structs become JSON");
                assert_eq!(
                    serde_json::from_str::<JobList>(&kept).expect("it was written so"),
                    list
                );
            }
            Err(error) => assert!(error.to_string().contains(name), "{error}"),
        }
        return;
    }
    match parse_topology(path, text) {
        Ok(topology) => {
            assert!(topology.nodes.iter().all(|node| !node.node.is_empty()), "{topology:?}");
            assert!(topology.switches.iter().all(|switch| !switch.name.is_empty()), "{topology:?}");
            let kept = serde_json::to_string(&topology).expect("plain structs become JSON");
            assert_eq!(
                serde_json::from_str::<SourceTopology>(&kept).expect("it was written so"),
                topology
            );
        }
        Err(error) => assert!(error.to_string().contains(name), "{error}"),
    }
}
