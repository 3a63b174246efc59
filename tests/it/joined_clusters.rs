//! Several clusters in one view: joined lists, names with their cluster, and a cluster that falls silent.

#![expect(clippy::unwrap_used, reason = "what fails in here fails the test that called it")]

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path, process::Command};

use serde_json::Value;

use crate::{
    binaries::{fake_driver, program_path},
    test_process::{TestProcess, get, run_gaunt, wait_for},
};

/// Starts an aggregator of this cluster, with one node of eight GPUs and a target that is down.
fn start_cluster(folder: &Path, name: &str) -> (TestProcess, TestProcess) {
    let scenario = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/scenarios/eight.toml");
    let mut command = Command::new(program_path("gaunt-node"));
    command.args(["--listen", "127.0.0.1:0", "--node", "node-a", "--nvml-library"]);
    let node =
        TestProcess::start_command(command.arg(fake_driver()).env("GAUNT_FAKE_DRIVER", scenario));
    let settings = folder.join(format!("{name}.toml"));
    fs::write(&settings, format!("[cluster]\nname = \"{name}\"\n")).unwrap();
    let targets = format!("{},127.0.0.1:1", node.served_address());
    let arguments = ["--config", settings.to_str().unwrap(), "--targets", &targets];
    (node, TestProcess::start_aggregator(&arguments))
}

#[test]
fn clusters_are_joined_and_a_silent_one_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let halls = ["hall-1", "hall-2"].map(|hall| (hall, start_cluster(folder.path(), hall)));
    let addresses = halls.each_ref().map(|(_, (_, aggregator))| aggregator.served_address());
    for address in &addresses {
        wait_for("the GPUs and the finding of a cluster", || {
            let (_, gpus) = get(address, "/api/gaunt/v1/gpus")?;
            let (_, findings) = get(address, "/api/gaunt/v1/findings")?;
            (gpus.contains("\"rows\":8") && findings.contains("target_down")).then_some(())
        });
    }
    let named = [format!("hall-1={}", addresses[0]), format!("hall-2={}", addresses[1])];
    let flags = ["--aggregator", &named[0], "--aggregator", &named[1]];
    let ask = |question: &str| {
        let mut arguments = vec!["snapshot", "--ask", question, "--format", "json"];
        arguments.extend(flags);
        let output = run_gaunt(&arguments);
        let text = String::from_utf8(output.stdout).unwrap();
        let answer: Value = serde_json::from_str(&text).unwrap_or(Value::Null);
        (answer, String::from_utf8(output.stderr).unwrap(), output.status.code())
    };
    let (overview, warnings, _) = ask("overview");
    assert_eq!(overview["cluster"], "hall-1 + hall-2");
    assert!(!warnings.contains("left out"), "{warnings}");
    assert_eq!(overview["nodes"]["live"], 2, "{overview}");
    let heat: Vec<&str> =
        overview["heat"]["nodes"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert_eq!(heat, ["hall-1/node-a", "hall-2/node-a"]);
    let (findings, _, _) = ask("findings");
    let ids = findings["findings"].as_array().unwrap().iter().map(|it| it["id"].as_str().unwrap());
    let mut ids: Vec<&str> = ids.filter(|id| id.contains("target_down")).collect();
    ids.sort_unstable();
    assert_eq!(ids.len(), 2, "{findings}");
    assert!(ids[0].starts_with("hall-1/target_down/") && ids[1].starts_with("hall-2/"), "{ids:?}");

    let output = run_gaunt(
        &[
            &[
                "snapshot",
                "--ask",
                "gpus?filter=node=hall-2/node-a&columns=node,gpu&sort=gpu desc&limit=3",
                "--format",
                "csv",
            ],
            &flags[..],
        ]
        .concat(),
    );
    let csv = String::from_utf8(output.stdout).unwrap();
    assert_eq!(
        csv,
        "cluster,node,gpu\r\nhall-2,hall-2/node-a,7\r\nhall-2,hall-2/node-a,6\r\nhall-2,hall-2/node-a,5\r\n",
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let (refused, why, code) = ask("coverage");
    assert!(code != Some(0) || refused["refused"].is_string(), "{refused} {why}");

    let [_, (_, (_node, silent))] = halls;
    drop(silent);
    let (overview, warnings, _) = ask("overview");
    assert_eq!(
        (overview["nodes"]["live"].as_u64(), overview["cluster"].as_str()),
        (Some(1), Some("hall-1"))
    );
    assert_eq!(overview["silent_clusters"][0].as_str(), Some("hall-2"));
    assert!(
        overview["trouble"][0].as_str().unwrap().contains("cluster hall-2 is left out"),
        "{overview}"
    );
    assert!(warnings.contains("cluster hall-2 is left out: aggregator"), "{warnings}");
    let output = run_gaunt(&["record", "--to=unused", "--aggregator", &named.join(";")]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("asks one cluster"), "{output:?}");
}

#[test]
fn acknowledgement_goes_to_the_cluster_of_the_finding() {
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    fs::write(&token, "a-token-of-both-halls").unwrap();
    fs::set_permissions(&token, fs::Permissions::from_mode(0o600)).unwrap();
    let halls = ["hall-1", "hall-2"].map(|hall| {
        let text = format!("[cluster]\nname = \"{hall}\"\n[serve]\ntoken_file = \"token\"\n");
        let settings = folder.path().join(format!("{hall}.toml"));
        fs::write(&settings, text).unwrap();
        let settings = settings.to_str().unwrap();
        TestProcess::start_aggregator(&["--config", settings, "--targets", "127.0.0.1:1"])
    });
    let addresses = halls.each_ref().map(TestProcess::served_address);
    for address in &addresses {
        wait_for("the finding of a cluster", || {
            let (_, findings) = get(address, "/api/gaunt/v1/findings")?;
            findings.contains("target_down").then_some(())
        });
    }
    let named = [format!("hall-1={}", addresses[0]), format!("hall-2={}", addresses[1])];
    let flags = ["--aggregator", &named[0], "--aggregator", &named[1]];
    let ack = |finding: &str| {
        let token = ["--by", "alice", "--token-file", token.to_str().unwrap()];
        let output = run_gaunt(&[&["ack", finding], &token[..], &flags[..]].concat());
        [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap())
    };
    let [_, several] = ack("target_down");
    assert!(several.contains("target_down is ambiguous; it matches\n  hall-1/target"), "{several}");
    let [_, none] = ack("hall-3/target_down");
    assert!(none.contains("contains hall-3/target_down; known ids are\n  hall-"), "{none}");
    let [done, error] = ack("hall-2/target_down");
    assert_eq!(done, "hall-2/target_down/127.0.0.1 is acknowledged by alice\n", "{error}");
    let explained = |form: &str| {
        let arguments = ["explain", "hall-2/target_down", "--format", form];
        String::from_utf8(run_gaunt(&[&arguments[..], &flags[..]].concat()).stdout).unwrap()
    };
    let json: Value = serde_json::from_str(&explained("json")).unwrap();
    assert_eq!(json["finding"]["id"], "hall-2/target_down/127.0.0.1");
    let has_name =
        |address: &String| get(address, "/api/gaunt/v1/findings").unwrap().1.contains("alice");
    assert_eq!(addresses.each_ref().map(has_name), [false, true]);
}
