//! A small fleet of real programs, scraped by `gaunt serve`: the snapshot shows what they reported.

#![expect(clippy::unwrap_used, reason = "what fails in here fails the test that called it")]

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use gaunt_schema::{ScrapedPage, catalogue::gpu::CLOCK_EVENTS, text};
use serde_json::Value;

use crate::{
    binaries::{fake_driver, program_path},
    test_process::{DEADLINE, TestProcess, debian_program, free_port, get, run_gaunt, wait_for},
};

const SCENARIO: &str = "tests/fixtures/scenarios/eight.toml";

/// The simulated nodes: a process, and its targets as the host list that it prints.
pub(crate) struct SimulatorProcess {
    child: Child,
    /// The targets as a host list.
    pub(crate) list: String,
}

impl SimulatorProcess {
    pub(crate) fn start_healthy(nodes: usize) -> Self {
        Self::start_scenario(nodes, "healthy")
    }

    /// The same with a scenario of this name.
    pub(crate) fn start_scenario(nodes: usize, scenario: &str) -> Self {
        Self::start_with_args(&["--nodes", &nodes.to_string(), "--scenario", scenario])
    }

    /// The same with these arguments.
    pub(crate) fn start_with_args(args: &[&str]) -> Self {
        let mut child = Command::new(program_path("gaunt-sim"))
            .args(["--listen-port", "0"])
            .args(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut list = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut list).unwrap();
        Self { child, list: list.trim().to_owned() }
    }
}

impl Drop for SimulatorProcess {
    fn drop(&mut self) {
        // It may have ended already.
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

fn start_node(name: &str) -> TestProcess {
    let mut command = Command::new(program_path("gaunt-node"));
    command
        .args(["--listen", "127.0.0.1:0", "--node", name])
        .arg("--nvml-library")
        .arg(fake_driver())
        .env("GAUNT_FAKE_DRIVER", Path::new(env!("CARGO_MANIFEST_DIR")).join(SCENARIO));
    TestProcess::start_command(&mut command)
}

/// The page of a target, scraped by the test.
fn scrape_page(address: &str) -> ScrapedPage {
    let (status, body) = wait_for("a page", || get(address, "/metrics"));
    assert_eq!(status, 200);
    text::decode_page(body.as_bytes(), &text::PageLimits::default()).unwrap()
}

/// The output of the snapshot, once every target is scraped.
fn run_snapshot(aggregator: &str) -> Value {
    let output = run_gaunt(&["snapshot", "--aggregator", aggregator, "--format", "json"]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn node_detail<'a>(snapshot: &'a Value, node: &str) -> &'a Value {
    let nodes = snapshot["nodes"].as_array().unwrap();
    nodes.iter().find(|detail| detail["line"]["node"] == node).unwrap_or_else(|| {
        panic!("node {node} is missing; there are {} others", nodes.len());
    })
}

fn gpu_device(detail: &Value, index: usize) -> &Value {
    let name = format!("GPU {index}");
    detail["devices"].as_array().unwrap().iter().find(|device| device["name"] == *name).unwrap()
}

#[test]
fn snapshot_shows_every_value_of_every_program() {
    let sim = SimulatorProcess::start_healthy(30);
    let nodes = [start_node("node-a"), start_node("node-b")];
    let node_addresses: Vec<_> = nodes.iter().map(TestProcess::served_address).collect();
    let foreign = format!("127.0.0.1:{}", free_port());
    let _exporter = TestProcess::start_command(
        debian_program("prometheus-node-exporter").arg(format!("--web.listen-address={foreign}")),
    );
    for address in &node_addresses {
        wait_for("the fake driver's values", || {
            get(address, "/metrics").filter(|(_, page)| page.contains("gaunt_gpu_power_watts{"))
        });
    }
    wait_for("the node exporter's page", || get(&foreign, "/metrics"));
    let list = format!("{},{},foreign={foreign}", node_addresses.join(","), sim.list);
    let aggregator = TestProcess::start_aggregator(&["--targets", &list]);
    let address = aggregator.served_address();
    wait_for("every target was tried", || {
        get(&address, "/readyz").filter(|(status, _)| *status == 200)
    });

    // The overview is updated once a second, so it may be a second behind the targets. The overview alone is cheaper to
    // ask for than the whole snapshot.
    wait_for("all nodes are live", || {
        let (_, body) = get(&address, "/api/gaunt/v1/overview")?;
        let overview: Value = serde_json::from_str(&body).unwrap();
        (overview["nodes"]["live"] == 33).then_some(())
    });
    let snapshot = wait_for("all nodes are live", || {
        Some(run_snapshot(&address)).filter(|snapshot| snapshot["overview"]["nodes"]["live"] == 33)
    });
    let targets = snapshot["targets"]["targets"].as_array().unwrap();
    assert_eq!(targets.len(), 33);
    for target in targets {
        assert_eq!((&target["state"], &target["missed"]), (&"live".into(), &0.into()), "{target}");
        assert_eq!(target["rejected"]["by_reason"], Value::Array(Vec::new()), "{target}");
    }
    for node in ["node-a", "node-b"] {
        check_scenario(node_detail(&snapshot, node));
    }
    for i in 1..=30 {
        let simulated = node_detail(&snapshot, &format!("gpu{i:03}"));
        assert_eq!(simulated["line"]["gpu_states"].as_str().unwrap().len(), 8);
        assert_eq!(simulated["line"]["ports"][1], 8);
    }
    let host = sim.list.split_once('[').unwrap().0;
    let port = sim.list.rsplit(':').next().unwrap();
    check_simulated(&format!("{host}7:{port}"), &address, "gpu007");
    check_foreign(&scrape_page(&foreign), node_detail(&snapshot, "foreign"));
}

/// Every number of the fake driver's scenario, in base units, to the last bit.
fn check_scenario(detail: &Value) {
    let scenario: toml::Table = toml::from_str(
        &fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(SCENARIO)).unwrap(),
    )
    .unwrap();
    let gpus = scenario["gpu"].as_array().unwrap();
    assert_eq!(detail["line"]["gpu_states"].as_str().unwrap().len(), gpus.len());
    for (index, gpu_scenario) in gpus.iter().enumerate() {
        let device = gpu_device(detail, index);
        let configured = |key: &str| gpu_scenario[key].as_integer().unwrap() as f64;
        for (metric, expected) in [
            ("gaunt_gpu_utilization_ratio", configured("utilization_percent") / 100.0),
            ("gaunt_gpu_memory_activity_ratio", configured("memory_activity_percent") / 100.0),
            ("gaunt_gpu_memory_total_bytes", configured("memory_total_bytes")),
            ("gaunt_gpu_memory_used_bytes", configured("memory_used_bytes")),
            ("gaunt_gpu_power_watts", configured("power_milliwatts") / 1e3),
            ("gaunt_gpu_power_limit_watts", configured("power_limit_milliwatts") / 1e3),
            ("gaunt_gpu_energy_joules_total", configured("energy_millijoules") / 1e3),
            ("gaunt_gpu_temperature_celsius", configured("temperature_celsius")),
            ("gaunt_gpu_sm_clock_hertz", configured("sm_clock_megahertz") * 1e6),
            ("gaunt_gpu_sm_clock_max_hertz", configured("sm_clock_max_megahertz") * 1e6),
            ("gaunt_gpu_processes", configured("processes")),
            ("gaunt_gpu_present", 1.0),
        ] {
            assert_eq!(device["values"][metric], expected, "GPU {index}: {metric}");
        }
        let free = configured("memory_total_bytes")
            - configured("memory_used_bytes")
            - configured("memory_reserved_bytes");
        assert_eq!(device["values"]["gaunt_gpu_memory_free_bytes"], free, "GPU {index}: free");
        let events = gpu_scenario["clock_events"].as_integer().unwrap() as u64;
        for (bit, metric) in CLOCK_EVENTS {
            let expected = if events & bit == 0 { 0.0 } else { 1.0 };
            let key = metric.series_key();
            assert_eq!(device["values"][&key], expected, "GPU {index}: {key}");
        }
        for key in ["uuid", "model", "pci_bus_id", "serial"] {
            let expected = gpu_scenario[key].as_str().unwrap();
            assert_eq!(device["info"]["gaunt_gpu_info"][key], expected, "GPU {index}: {key}");
        }
    }
}

/// Values by device name and metric key.
type SamplesByName = BTreeMap<(String, String), Value>;

/// The samples of a page as the aggregator shows them: device name and metric key to value.
fn page_samples(page: &ScrapedPage) -> SamplesByName {
    let report = &page.report;
    let sample = |sample: &gaunt_schema::MetricSample| {
        let device = report.devices[sample.device as usize].to_string();
        let value = serde_json::to_value(sample.reading).unwrap();
        ((device, sample.metric.series_key()), value)
    };
    report.samples.iter().map(sample).collect()
}

/// What the aggregator shows of a node now.
fn shown_samples(address: &str, node: &str) -> SamplesByName {
    let (_, body) = get(address, &format!("/api/gaunt/v1/nodes/{node}")).unwrap();
    let detail: Value = serde_json::from_str(&body).unwrap();
    let mut samples = BTreeMap::new();
    for device in detail["devices"].as_array().unwrap() {
        for (metric, value) in device["values"].as_object().unwrap() {
            let name = device["name"].as_str().unwrap().to_owned();
            samples.insert((name, metric.clone()), value.clone());
        }
    }
    samples
}

/// Waits until the aggregator has ingested a page of the node that was scraped here too, and compares every sample.
fn check_simulated(target: &str, address: &str, node: &str) {
    let differences = |scraped: &SamplesByName, shown: &SamplesByName| -> Vec<_> {
        let differs = |(key, value): &(&(String, String), &Value)| shown.get(*key) != Some(*value);
        let pairs = scraped.iter().filter(differs);
        pairs.map(|(key, value)| (key.clone(), value.clone(), shown.get(key).cloned())).collect()
    };
    // Each second the node has another page. The aggregator shows the last one until its next scrape.
    let mut pages: Vec<SamplesByName> = Vec::new();
    let mut fewest = Vec::new();
    let end = Instant::now() + DEADLINE;
    loop {
        let page = page_samples(&scrape_page(target));
        assert!(page.len() > 500, "a node of 8 GPUs says more than {} samples", page.len());
        if pages.last() != Some(&page) {
            pages.push(page);
        }
        let shown = shown_samples(address, node);
        for page in pages.iter().rev().take(2) {
            let found = differences(page, &shown);
            if found.is_empty() {
                return;
            }
            if fewest.is_empty() || found.len() < fewest.len() {
                fewest = found;
            }
        }
        assert!(Instant::now() < end, "{node} is never shown as it says; at best:\n{fewest:#?}");
        thread::sleep(Duration::from_millis(50));
    }
}

/// Checks what a foreign exporter reports and does not change from one second to the next.
fn check_foreign(page: &ScrapedPage, detail: &Value) {
    assert_eq!(detail["targets"][0]["dialect"], "node_exporter");
    let samples = page_samples(page);
    for metric in ["gaunt_node_memory_total_bytes", "gaunt_node_cpus"] {
        let expected = &samples[&("node".to_owned(), metric.to_owned())];
        let node = &detail["devices"][0];
        assert_eq!(&node["values"][metric], expected, "{metric}");
    }
}
