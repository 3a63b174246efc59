//! Targets that change while `gaunt serve` runs: every kind of source, as flags and in the settings, and SIGHUP.

#![expect(clippy::unwrap_used, reason = "what fails in here fails the test that called it")]

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket},
    path::Path,
    sync::{Arc, Mutex},
    thread,
};

use gaunt_scrape::expand_host_list;
use hickory_resolver::proto::{
    op::{Message, MessageType},
    rr::{Name, RData, Record, rdata},
    serialize::binary::{BinDecodable as _, BinEncodable as _},
};
use rustix::process::Signal;
use serde_json::Value;

use crate::{
    fleet_snapshot::SimulatorProcess,
    test_process::{TestProcess, get, wait_for},
};

/// The targets answer of an aggregator.
struct TargetsAnswer(Value);

impl TargetsAnswer {
    /// Address, state and origin of each.
    fn target_states(&self) -> Vec<(&str, &str, &str)> {
        let rows = self.0["targets"].as_array().unwrap().iter();
        rows.map(|target| {
            let text = |key: &str| target[key].as_str().unwrap();
            (text("address"), text("state"), text("origin"))
        })
        .collect()
    }

    /// The addresses that are scraped, in order.
    fn live_addresses(&self) -> Vec<&str> {
        let mut live: Vec<&str> = self
            .target_states()
            .into_iter()
            .filter(|(_, state, _)| *state == "live")
            .map(|(address, ..)| address)
            .collect();
        live.sort_unstable();
        live
    }

    /// The error of a source whose name contains `part`.
    fn source_trouble(&self, part: &str) -> Option<&str> {
        let mut sources = self.0["sources"].as_array().unwrap().iter();
        let source = sources.find(|source| source["name"].as_str().unwrap().contains(part));
        source.unwrap_or_else(|| panic!("no source {part}: {}", self.0))["trouble"].as_str()
    }
}

fn fetch_targets(aggregator: &str) -> Option<TargetsAnswer> {
    let (status, body) = get(aggregator, "/api/gaunt/v1/targets")?;
    (status == 200).then(|| TargetsAnswer(serde_json::from_str(&body).unwrap()))
}

/// Polls until the targets answer of an aggregator is as expected.
fn wait_for_targets(
    aggregator: &str,
    what: &str,
    wanted: impl Fn(&TargetsAnswer) -> bool,
) -> TargetsAnswer {
    wait_for(what, || fetch_targets(aggregator).filter(|answer| wanted(answer)))
}

/// The addresses of a small fleet.
fn start_fleet(nodes: usize) -> (SimulatorProcess, Vec<String>) {
    let sim = SimulatorProcess::start_healthy(nodes);
    let mut addresses = expand_host_list(&sim.list, nodes).unwrap();
    assert_eq!(addresses.len(), nodes, "{}", sim.list);
    addresses.sort_unstable();
    (sim, addresses)
}

/// A list in Prometheus's format.
fn targets_json(addresses: &[String]) -> String {
    serde_json::json!([{ "targets": addresses }]).to_string()
}

/// Replaces a file by renaming, as tools do.
fn replace_file(path: &Path, text: &str) {
    let other = path.with_extension("new");
    fs::write(&other, text).unwrap();
    fs::rename(&other, path).unwrap();
}

#[test]
fn target_files_of_flags_are_followed_and_sighup_confirms_removals() {
    let (_sim, addresses) = start_fleet(4);
    let folder = tempfile::tempdir().unwrap();
    let (sd, yaml, hosts) = (
        folder.path().join("sd.json"),
        folder.path().join("more.yml"),
        folder.path().join("targets"),
    );
    fs::write(&sd, targets_json(&addresses[..1])).unwrap();
    fs::write(&yaml, format!("- targets: ['{}']\n", addresses[1])).unwrap();
    fs::write(&hosts, format!("# the third\n{}\n", addresses[2])).unwrap();
    let path = |path: &Path| path.to_str().unwrap().to_owned();
    let aggregator = TestProcess::start_aggregator(&[
        "--file-sd",
        &path(&sd),
        "--file-sd",
        &path(&folder.path().join("*.yml")),
        "--targets-file",
        &path(&hosts),
    ]);
    let serving = aggregator.line_with("serving");
    assert!(serving.contains("sources=3") && !serving.contains("targets="), "{serving}");
    let address = serving.split("address=").nth(1).unwrap().split(' ').next().unwrap().to_owned();
    let answer = wait_for_targets(&address, "three files", |answer| {
        answer.live_addresses() == addresses[..3]
    });
    let origins: Vec<&str> = answer.target_states().iter().map(|(.., origin)| *origin).collect();
    for file in ["sd.json", "more.yml", "targets:2"] {
        assert!(origins.iter().any(|origin| origin.ends_with(file)), "{file}: {origins:?}");
    }

    replace_file(&sd, &targets_json(&[addresses[0].clone(), addresses[3].clone()]));
    wait_for_targets(&address, "the file that grew", |answer| answer.live_addresses() == addresses);
    // A truncated file changes nothing, and is reported.
    fs::write(&sd, "[{\"targets\": [").unwrap();
    wait_for_targets(&address, "half a file", |answer| {
        answer.source_trouble("sd.json").is_some_and(|why| why.contains("incomplete JSON"))
            && answer.live_addresses() == addresses
    });
    replace_file(&sd, "[]");
    wait_for_targets(&address, "the guard", |answer| {
        answer.source_trouble("sd.json").is_some_and(|why| why.contains("send gaunt SIGHUP"))
            && answer.live_addresses() == addresses
    });
    aggregator.send_signal(Signal::HUP);
    wait_for_targets(&address, "what the operator confirmed", |answer| {
        answer.live_addresses() == addresses[1..3] && answer.source_trouble("sd.json").is_none()
    });
    assert!(aggregator.terminate_and_wait().success());
}

#[test]
fn settings_are_reloaded_on_sighup_and_invalid_ones_are_rejected() {
    let (_sim, addresses) = start_fleet(3);
    let folder = tempfile::tempdir().unwrap();
    let settings = folder.path().join("gaunt.toml");
    fs::write(folder.path().join("hosts"), format!("{}\n", addresses[1])).unwrap();
    fs::write(folder.path().join("sd.json"), targets_json(&addresses[2..])).unwrap();
    let write_settings = |text: &str| fs::write(&settings, format!("[gather]\n{text}")).unwrap();
    write_settings(&format!("targets = [\"{}\"]\n", addresses[0]));
    let aggregator = TestProcess::start_aggregator(&["--config", settings.to_str().unwrap()]);
    let address = aggregator.served_address();
    wait_for_targets(&address, "the first target", |answer| {
        answer.live_addresses() == addresses[..1]
    });

    write_settings(&format!(
        "targets = [\"{}\"]\ntargets_files = [\"hosts\"]\nfile_sd = [\"sd.*n\"]\n",
        addresses[0]
    ));
    aggregator.send_signal(Signal::HUP);
    wait_for_targets(&address, "all three", |answer| answer.live_addresses() == addresses);

    for (text, why) in [
        ("targetz = []\n", "unknown key `targetz`"),
        ("targets = [\"gpu[1-\"]\n", "unclosed bracket"),
        ("targets = []\n", "no targets"),
        ("targets_files = [\"nowhere\"]\n", "cannot read targets file"),
    ] {
        write_settings(text);
        aggregator.send_signal(Signal::HUP);
        let line = aggregator.line_with("keeping the previous ones");
        assert!(line.contains(why), "{line}");
    }
    assert_eq!(fetch_targets(&address).unwrap().target_states().len(), 3);

    // Targets that the settings no longer name are removed, though only one remains.
    write_settings("targets_files = [\"hosts\"]\n");
    aggregator.send_signal(Signal::HUP);
    wait_for_targets(&address, "the one that stays", |answer| {
        answer.live_addresses() == addresses[1..2] && answer.target_states().len() == 1
    });
}

#[test]
fn broken_files_of_targets_topology_and_jobs_stop_no_start_and_are_in_the_answer() {
    let (_sim, addresses) = start_fleet(1);
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    write("topology.conf", "SwitchName=leaf-1 Nodes=n1\nRingName=r1 Nodes=n1\n");
    write("broken.toml", "[[nodes]\n");
    write("squeue.json", "{");
    // An editor may leave a file empty for an instant.
    for name in ["empty.conf", "empty.toml", "empty.json", "empty-hosts"] {
        write(name, "");
    }
    write(
        "gaunt.toml",
        &format!(
            "[gather]\ntargets = [\"{}\"]\ntargets_files = [\"nowhere\", \"empty-hosts\"]\n[topology]\nfiles = \
             [\"topology.conf\", \"broken.toml\", \"missing.txt\", \"empty.conf\", \"empty.toml\"]\n\
             [jobs]\nfiles = [\"squeue.json\", \"empty.json\"]\n",
            addresses[0]
        ),
    );
    let settings = folder.path().join("gaunt.toml");
    let aggregator = TestProcess::start_aggregator(&["--config", settings.to_str().unwrap()]);
    let answer = wait_for_targets(&aggregator.served_address(), "the target", |answer| {
        answer.live_addresses() == addresses && answer.source_trouble("nowhere").is_some()
    });
    let files = answer.0["site_files"].as_array().unwrap().iter();
    let troubles: Vec<&str> = files.map(|file| file["trouble"].as_str().unwrap_or("?")).collect();
    let expected = [
        "topology.conf:2: RingName",
        "broken.toml:1: ",
        "missing.txt: No such",
        "empty.conf",
        "empty.toml",
        "squeue.json:1: ",
        "empty.json:1: ",
    ];
    assert_eq!(troubles.len(), expected.len(), "{troubles:?}");
    for (trouble, expected) in troubles.iter().zip(expected) {
        assert!(trouble.contains(expected), "{expected}: {trouble}");
    }
}

/// A server of one list, which the test changes.
fn serve_list(text: &Arc<Mutex<String>>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let text = text.clone();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let (mut head, mut byte) = (Vec::new(), [0]);
            while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|n| n == 1) {
                head.push(byte[0]);
            }
            let body = text.lock().unwrap().clone();
            // The client may have disconnected.
            _ = write!(
                stream,
                "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            );
        }
    });
    address
}

/// A DNS server that knows one service; the test changes its ports.
fn serve_dns(ports: &Arc<Mutex<Vec<u16>>>) -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let ports = ports.clone();
    thread::spawn(move || {
        let mut buffer = [0; 1500];
        while let Ok((length, peer)) = socket.recv_from(&mut buffer) {
            let mut message = Message::from_bytes(&buffer[..length]).unwrap();
            message.metadata.message_type = MessageType::Response;
            let query = message.queries.first().unwrap().clone();
            let host = Name::from_ascii("node.test.").unwrap();
            for port in &*ports.lock().unwrap() {
                let service = RData::SRV(rdata::SRV::new(0, 0, *port, host.clone()));
                message.answers.push(Record::from_rdata(query.name().clone(), 30, service));
            }
            socket.send_to(&message.to_bytes().unwrap(), peer).unwrap();
        }
    });
    address
}

#[test]
fn http_discovery_of_settings_lists_allowed_targets() {
    let (_sim, addresses) = start_fleet(2);
    let text = Arc::new(Mutex::new(targets_json(&addresses[..1])));
    let http = serve_list(&text);
    let folder = tempfile::tempdir().unwrap();
    let settings = folder.path().join("gaunt.toml");
    fs::write(
        &settings,
        format!(
            "[[gather.groups]]\nname = \"inventory\"\nallow = [\"{}/8\"]\n\
             http_sd = [{{ url = \"http://{http}/targets\", refresh = \"1s\" }}]\n",
            Ipv4Addr::LOCALHOST
        ),
    )
    .unwrap();
    let aggregator = TestProcess::start_aggregator(&["--config", settings.to_str().unwrap()]);
    let address = aggregator.served_address();
    let answer = wait_for_targets(&address, "the first list", |answer| {
        answer.live_addresses() == addresses[..1]
    });
    assert_eq!(answer.target_states()[0].2, format!("http://{http}/targets"));
    *text.lock().unwrap() = targets_json(&addresses);
    wait_for_targets(&address, "the list that grew", |answer| answer.live_addresses() == addresses);
    *text.lock().unwrap() = "[]".to_owned();
    wait_for_targets(&address, "the guard", |answer| {
        answer
            .source_trouble("/targets")
            .is_some_and(|why| why.contains("2 of 2 targets disappeared"))
    });
    assert_eq!(self::fetch_targets(&address).unwrap().live_addresses(), addresses);
    aggregator.send_signal(Signal::HUP);
    wait_for_targets(&address, "what the operator confirmed", |answer| {
        answer.target_states().is_empty()
    });
}

#[test]
fn dns_discovery_lists_services_and_forbidden_targets_are_not_scraped() {
    let ports = Arc::new(Mutex::new(vec![9100]));
    let server = serve_dns(&ports);
    let folder = tempfile::tempdir().unwrap();
    let settings = folder.path().join("gaunt.toml");
    fs::write(
        &settings,
        format!(
            "[[gather.groups]]\nname = \"services\"\n\
             dns_sd = [{{ name = \"_node._tcp.test.\", refresh = \"1s\", server = \"{server}\" }}]\n"
        ),
    )
    .unwrap();
    let aggregator = TestProcess::start_aggregator(&["--config", settings.to_str().unwrap()]);
    let address = aggregator.served_address();
    let addresses = |answer: &TargetsAnswer| -> Vec<String> {
        let mut addresses: Vec<String> =
            answer.target_states().iter().map(|(address, ..)| (*address).to_owned()).collect();
        addresses.sort_unstable();
        addresses
    };
    wait_for_targets(&address, "a service", |answer| addresses(answer) == ["node.test:9100"]);
    ports.lock().unwrap().push(9101);
    wait_for_targets(&address, "two", |answer| {
        addresses(answer) == ["node.test:9100", "node.test:9101"]
    });
    // Flags override the settings: a server that names this machine itself is rejected.
    let (_sim, nodes) = start_fleet(1);
    let http = self::serve_list(&Arc::new(Mutex::new(targets_json(&nodes))));
    let flags = TestProcess::start_aggregator(&["--http-sd", &format!("http://{http}/")]);
    let answer =
        wait_for_targets(&flags.served_address(), "the target that is this machine", |answer| {
            answer.target_states().iter().any(|(_, state, _)| *state == "down")
        });
    let target = &answer.0["targets"][0];
    assert_eq!(target["failure"]["reason"], "forbidden", "{target}");
    assert!(target["message"].as_str().unwrap().contains("add its network to `allow`"), "{target}");
}
