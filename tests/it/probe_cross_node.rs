//! Cross-node measurement: two gaunt-probes as on two nodes, paired by an aggregator, with the resulting matrix.

#![expect(clippy::unwrap_used, reason = "what fails in here fails the test that called it")]

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    thread::{self, JoinHandle},
};

use serde_json::Value;
use tempfile::TempDir;

use crate::{
    binaries::{fake_driver, program_path},
    fleet_snapshot::SimulatorProcess,
    probe_program::ProbeFixture,
    served_web_config::WebAggregator,
    test_process::{RunToEnd, TestProcess, get, wait_for},
};

const TOKEN: &str = "a-token-of-the-tests";

/// An aggregator with a simulated fleet, which pairs probes that have the token.
struct CrossNodeSetup {
    _sim: SimulatorProcess,
    _aggregator: TestProcess,
    address: String,
    folder: TempDir,
    nodes: Vec<String>,
}

impl CrossNodeSetup {
    fn new(nodes: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let token = folder.path().join("token");
        fs::write(&token, TOKEN).unwrap();
        fs::set_permissions(&token, fs::Permissions::from_mode(0o600)).unwrap();
        let sim = SimulatorProcess::start_healthy(nodes);
        let aggregator = TestProcess::start_aggregator(&[
            "--targets",
            &sim.list,
            "--token-file",
            token.to_str().unwrap(),
        ]);
        let address = aggregator.served_address();
        let nodes = wait_for("all nodes are known", || {
            let (_, body) = get(&address, "/api/gaunt/v1/nodes")?;
            let list: Value = serde_json::from_str(&body).ok()?;
            let rows = list["nodes"].as_array()?.iter();
            let mut names: Vec<_> =
                rows.map(|node| node["node"].as_str().unwrap().to_owned()).collect();
            names.sort();
            (names.len() == nodes).then_some(names)
        });
        Self { _sim: sim, _aggregator: aggregator, address, folder, nodes }
    }

    fn token_path(&self) -> PathBuf {
        self.folder.path().join("token")
    }

    /// A command for one cross-node measurement as this node.
    fn cross_node_command(&self, probe: &ProbeFixture, node: &str) -> Command {
        let mut command =
            probe.probe_command(&["cross-node", "--rounds", "1", "--bytes", "256KiB"]);
        command.args(["--runs", "3", "--busy", "60s", "--within", "60s", "--node", node]);
        // The first of two aggregators does not answer.
        command.arg("--aggregator").arg(format!("127.0.0.1:9,{}", self.address));
        command.arg("--token-file").arg(self.token_path());
        command.arg("--state").arg(probe.file_path("state"));
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// The same for one that does not wait for ever where its partner fails.
    fn paired_command(&self, probe: &ProbeFixture, node: &str) -> Command {
        let mut command = self.cross_node_command(probe, node);
        command.args(["--patience", "60s"]);
        command
    }

    fn fetch_matrix(&self) -> Value {
        let (status, body) = get(&self.address, "/api/gaunt/v1/probe").unwrap();
        assert_eq!(status, 200, "{body}");
        serde_json::from_str(&body).unwrap()
    }

    /// The matrix after so many pairings have ended, and so many of them failed; none is in progress.
    fn wait_for_ended(&self, ended: u64, failed: u64) -> Value {
        let matrix = wait_for(&format!("{ended} pairings ended, {failed} failed"), || {
            let matrix = self.fetch_matrix();
            (matrix["ended"] == serde_json::json!([ended, failed])).then_some(matrix)
        });
        assert_eq!(matrix["measuring"], 0, "{matrix}");
        matrix
    }
}

/// Runs commands concurrently.
fn run_at_once(commands: Vec<Command>) -> Vec<Output> {
    let threads =
        commands.into_iter().map(|mut command| thread::spawn(move || command.run_to_end()));
    let threads: Vec<_> = threads.collect();
    threads.into_iter().map(|one| one.join().unwrap()).collect()
}

/// The result that one of them printed.
fn parse_cross_node(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    let error = String::from_utf8_lossy(&output.stderr);
    serde_json::from_str(text.trim()).unwrap_or_else(|_| panic!("no pairing: {text}\n{error}"))
}

/// The only measurement between two nodes.
fn find_only_pair<'a>(matrix: &'a Value, nodes: &[String]) -> &'a Value {
    let rails = matrix["rails"].as_array().unwrap().iter();
    let pairs = rails.flat_map(|rail| rail["pairs"].as_array().unwrap());
    let has_end = |pair: &Value, end: &str| nodes.iter().any(|node| pair[end]["node"] == *node);
    let found: Vec<_> = pairs.filter(|pair| has_end(pair, "from") && has_end(pair, "to")).collect();
    assert_eq!(found.len(), 1, "{nodes:?} in {matrix}");
    found[0]
}

/// One aggregator for all pairs: while one node waits for a peer that failed, the others are measured.
#[test]
fn nodes_are_paired_measured_and_rejected_and_each_failure_is_named() {
    let setup = CrossNodeSetup::new(6);
    let [failing, measured, without_nccl] =
        [&setup.nodes[..2], &setup.nodes[2..4], &setup.nodes[4..]];
    let waiting = check_failing_side(&setup, failing);
    check_bandwidth_of_both_sides(&setup, measured);
    check_perftest_without_nccl(&setup, without_nccl);
    let (output, _probes) = waiting.join().unwrap();
    assert_eq!(output.status.code(), Some(6), "{}", parse_cross_node(&output));
    check_failed_pair(&setup.wait_for_ended(3, 1), failing);
    // Nobody else is free from now on.
    check_rejected_nodes(&setup, &without_nccl[0]);
}

/// Two nodes are paired, and both report the bandwidth.
fn check_bandwidth_of_both_sides(setup: &CrossNodeSetup, nodes: &[String]) {
    let cuda = "remote_gigabytes_per_second = 40.0\nlatency_microseconds = 0.0";
    let probes = [ProbeFixture::with_gpus(8, "", cuda), ProbeFixture::with_gpus(8, "", cuda)];
    let commands = probes.iter().zip(nodes).map(|(probe, node)| setup.paired_command(probe, node));
    let outputs = run_at_once(commands.collect());
    for (output, (node, peer)) in outputs.iter().zip([(0, 1), (1, 0)]) {
        assert_eq!(output.status.code(), Some(0), "{outputs:?} of {}", setup.fetch_matrix());
        let result = parse_cross_node(output);
        assert_eq!(
            (&result["tool"], &result["peer"]),
            (&"nccl".into(), &nodes[peer].as_str().into())
        );
        let bandwidth = result["bytes_per_second"].as_f64().unwrap();
        assert!((bandwidth / 40e9 - 1.0).abs() < 0.01, "{} carried {bandwidth}", nodes[node]);
    }
    let matrix = setup.wait_for_ended(2, 1);
    let pair = find_only_pair(&matrix, nodes);
    assert_eq!((&pair["failure"], &pair["tool"]), (&Value::Null, &"nccl".into()));
    assert!((pair["bytes_per_second"].as_f64().unwrap() / 40e9 - 1.0).abs() < 0.01);
    for probe in &probes {
        let allocations = fs::read_to_string(probe.file_path("ledger")).unwrap();
        assert_eq!(allocations.lines().count(), 1, "one GPU each: {allocations}");
        assert!(allocations.contains("bytes=0 streams=0 events=0 modules=0"), "{allocations}");
        assert!(probe.file_path("state/meetings.json").is_file(), "baselines are saved");
    }
}

/// The failing side is named, and frees the other one, whose run ends at its deadline.
fn check_failing_side(
    setup: &CrossNodeSetup,
    nodes: &[String],
) -> JoinHandle<(Output, [ProbeFixture; 2])> {
    let small = "memory_bytes = 100000";
    let probes = [ProbeFixture::with_gpus(8, "", ""), ProbeFixture::with_gpus(8, "", small)];
    let [mut first, mut second] =
        [0, 1].map(|index| setup.paired_command(&probes[index], &nodes[index]));
    // The failing side starts first: the other one creates the key, and waits this long for it. The first polls each
    // second for a partner; it must do so before the other one gives up.
    first.args(["--setup", "10s"]);
    let second = thread::spawn(move || second.run_to_end());
    wait_for("it is free", || (setup.fetch_matrix()["free"] == 1).then_some(()));
    let first = thread::spawn(move || (first.run_to_end(), probes));
    let output = second.join().unwrap();
    assert_eq!(output.status.code(), Some(8), "out of memory: {}", parse_cross_node(&output));
    check_failed_pair(&setup.wait_for_ended(1, 1), nodes);
    first
}

/// The second of two nodes failed.
fn check_failed_pair(matrix: &Value, nodes: &[String]) {
    let pair = find_only_pair(matrix, nodes);
    assert_eq!(pair["bytes_per_second"], Value::Null);
    let failure = pair["failure"].as_str().unwrap();
    assert!(failure.starts_with(&nodes[1]) && failure.contains("100000 are free"), "{failure}");
}

/// Perftest measures without NCCL, and a node without both is told so.
fn check_perftest_without_nccl(setup: &CrossNodeSetup, nodes: &[String]) {
    let script = setup.folder.path().join("ib_write_bw");
    fs::write(&script, WRITE_BW).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let probes = [ProbeFixture::with_gpus(8, "", ""), ProbeFixture::with_gpus(8, "", "")];
    let command = |probe: &ProbeFixture, node: &str, perftest: &Path| {
        let mut command = Command::new(program_path("gaunt-probe"));
        command.args([
            "cross-node",
            "--json",
            "--rounds",
            "1",
            "--nccl-library",
            "/nowhere/libnccl.so.2",
            "--patience",
            "60s",
        ]);
        command.arg("--nvml-library").arg(fake_driver()).arg("--node").arg(node);
        command.arg("--perftest").arg(perftest).args(["--host", "127.0.0.1"]);
        command.arg("--aggregator").arg(&setup.address).arg("--token-file").arg(setup.token_path());
        command.arg("--state").arg(probe.file_path("state"));
        command.env("GAUNT_FAKE_DRIVER", probe.file_path("scenario.toml"));
        command.env("MEETING_FOLDER", setup.folder.path());
        command
    };
    let commands = probes.iter().zip(nodes).map(|(probe, node)| command(probe, node, &script));
    for output in run_at_once(commands.collect()) {
        let result = parse_cross_node(&output);
        assert_eq!(output.status.code(), Some(0), "{result}");
        assert_eq!(
            (&result["tool"], &result["bytes_per_second"]),
            (&"perftest".into(), &48.9e9.into())
        );
    }
    assert_eq!(find_only_pair(&setup.wait_for_ended(3, 1), nodes)["bytes_per_second"], 48.9e9);

    let output = command(&probes[0], &nodes[0], Path::new("/nowhere/ib_write_bw")).run_to_end();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr.contains("install perftest, or NCCL: NCCL not found"), "{stderr}");
}

/// A stand-in for `ib_write_bw`: the side without a host argument waits for the one with it, on the given port and
/// device.
const WRITE_BW: &str = r#"#!/bin/bash
host= port= device=
while (($#)); do
    case $1 in
        --ib-dev) device=$2; shift ;;
        --port) port=$2; shift ;;
        --ib-port|--size|--iters) shift ;;
        --report_gbits|--CPU-freq) ;;
        -*) echo "unknown option $1" >&2; exit 1 ;;
        *) host=$1 ;;
    esac
    shift
done
[[ $device == mlx5_* ]] || { echo "IB device $device not found" >&2; exit 1; }
pipe=$MEETING_FOLDER/$port
if [[ -z $host ]]; then
    mkfifo "$pipe" && cat "$pipe" >/dev/null && rm "$pipe"
else
    [[ -p $pipe ]] || { echo "Couldn't connect to $host:$port" >&2; exit 1; }
    echo "$host" >"$pipe"
fi
echo " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]"
echo " 65536      5000             392.44             391.20               0.746155"
"#;

/// An unauthorized or unknown node is rejected with the next step, and a node does not wait longer than it may.
fn check_rejected_nodes(setup: &CrossNodeSetup, node: &str) {
    let probe = ProbeFixture::with_gpus(1, "", "");
    let refused = |command: &mut Command| {
        let output = command.run_to_end();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let stderr = refused(&mut setup.cross_node_command(&probe, "stranger"));
    assert!(stderr.contains("no RDMA port of stranger is known; set --node"), "{stderr}");
    fs::write(setup.folder.path().join("wrong"), "another-token-of-them").unwrap();
    // The alias of cross-node.
    let mut command = probe.probe_command(&["meet", "--rounds", "1", "--node", node]);
    command.arg("--aggregator").arg(&setup.address);
    let stderr = refused(&mut command);
    assert!(stderr.contains("401") && stderr.contains("--token-file"), "{stderr}");
    let stderr = refused(command.arg("--token-file").arg(setup.folder.path().join("wrong")));
    assert!(stderr.contains("401") && stderr.contains("refused"), "{stderr}");
    let busy = ProbeFixture::with_gpus(1, "processes = 1\n", "");
    let output = setup.cross_node_command(&busy, node).run_to_end();
    assert_eq!(output.status.code(), Some(3), "a GPU in use is not offered");
    let output = setup.cross_node_command(&probe, node).args(["--patience", "1ms"]).run_to_end();
    let stderr = String::from_utf8_lossy(&output.stderr);
    let is_said = stderr.contains("no other node was free within --patience");
    assert!(is_said, "{output:?} of {}", setup.fetch_matrix());
}

#[test]
fn aggregator_with_tls_is_verified_by_the_named_authority() {
    let server = WebAggregator::start("");
    let probe = ProbeFixture::with_gpus(1, "", "");
    let run = |authority: &str| {
        let mut command = probe.probe_command(&["cross-node", "--rounds", "1", "--node", "gpu001"]);
        command.args(["--aggregator", &format!("https://{}", server.address)]);
        let output = command.arg("--ca-file").arg(server.path(authority)).run_to_end();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    // The handshake succeeds: the token is missing.
    let stderr = run("certs/ca.pem");
    assert!(stderr.contains("401") && stderr.contains("--token-file"), "{stderr}");
    let stderr = run("none.pem");
    assert!(stderr.contains("cannot read the CA in ") && stderr.contains("--ca-file"), "{stderr}");
    let stderr = run("reader");
    assert!(stderr.contains("reader has no certificate in PEM; check --ca-file"), "{stderr}");
}
