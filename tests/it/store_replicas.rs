//! Stores beside each other: two copies behind vmagent and vmauth that a pair of aggregators writes to, and stored verdicts
//! beside scraped ones.

#![expect(clippy::unwrap_used, reason = "what fails in here fails the test that called it")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs,
    path::Path,
    process::Command,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use gaunt_schema::{DeviceClass, catalogue::CATALOGUE, unit::MetricKind};
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::{
    alerting_end_to_end::read_shipped,
    binaries::{fake_driver, program_path},
    grafana_dashboards::panel_expressions,
    prometheus_rules::{metric_names, rule_expressions},
    prometheus_scrape::query_instant,
    test_process::{
        NO_LATENCY, RunToEnd as _, TestProcess, debian_program, free_port, get, start_victoria,
        wait_for, wait_within,
    },
    victoria_metrics::drop_filter_cache,
};

/// Steps of a window: a copy of one would be a longer gap.
const WINDOW_STEPS: i64 = 4;

/// Expressions with rows that are compared at least: the fleet, its losses, one finding, targets and nodes.
const FILLED: usize = 15;

/// Gauges of the aggregator itself, which a pair does not say alike, and the states by name, which are stored as numbers.
const NOT_STORED: [&str; 5] =
    ["gaunt_build_info", "gaunt_gpu_state", "gaunt_peer_", "gaunt_record_", "gaunt_store_"];

/// Starts a store with a folder of its own.
fn start_store(folder: &Path) -> (TestProcess, String) {
    let address = format!("127.0.0.1:{}", free_port());
    (start_victoria(folder, &address, &["-dedup.minScrapeInterval=1s", NO_LATENCY]), address)
}

/// The instants of a series in a store, in order.
fn stored_instants(store: &str, series: &str) -> Option<Vec<i64>> {
    drop_filter_cache(store);
    let (_, body) = get(store, &format!("/api/v1/export?match[]={series}"))?;
    let series: Value = serde_json::from_str(body.lines().next()?).ok()?;
    Some(series["timestamps"].as_array()?.iter().filter_map(Value::as_i64).collect())
}

/// Settings of an aggregator that writes each second as this user.
fn write_settings(folder: &TempDir, name: &str, url: &str) -> String {
    let path = folder.path().join(format!("{name}.toml"));
    let text = format!(
        "[cluster]\nname = \"hall-1\"\n[serve]\nstate_folder = \"state-{name}\"\n[store]\nurl = \
         \"{url}\"\nevery = \"1s\"\nlevel = \"screens\"\nbasic = {{ user = \"gaunt\", password_file = \
         \"password\" }}\n"
    );
    fs::write(&path, text).unwrap();
    path.display().to_string()
}

fn wall_clock_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as i64
}

/// Two aggregators write one set of series, vmagent copies it to two stores, and one aggregator is killed. It takes some
/// ten seconds: four steps are one request, before and after the kill.
#[test]
fn pair_writes_to_two_stores_and_a_kill_leaves_no_gap() {
    let folder = tempfile::tempdir().unwrap();
    let stores = ["one", "two"].map(|name| start_store(&folder.path().join(name)));
    let (agent, auth) =
        (format!("127.0.0.1:{}", free_port()), format!("127.0.0.1:{}", free_port()));
    let mut command = debian_program("vmagent");
    for (_, address) in &stores {
        command.arg(format!("-remoteWrite.url=http://{address}/api/v1/write"));
    }
    let _agent = TestProcess::start_command(
        command
            .arg(format!("-remoteWrite.tmpDataPath={}", folder.path().join("queue").display()))
            .arg("-remoteWrite.flushInterval=1s")
            .arg(format!("-httpListenAddr={agent}")),
    );
    let [one, two] = stores.each_ref().map(|(_, address)| address.as_str());
    let shipped = read_shipped("config/prometheus/store/vmauth.yml");
    let shipped = shipped.replace("vmagent:8429", &agent).replace("store-a:8428", one);
    let config = folder.path().join("vmauth.yml");
    fs::write(&config, shipped.replace("store-b:8428", two)).unwrap();
    let _auth = TestProcess::start_command(
        debian_program("vmauth")
            .arg(format!("-auth.config={}", config.display()))
            .arg(format!("-httpListenAddr={auth}")),
    );
    wait_for("vmauth", || get(&auth, "/health").filter(|(status, _)| *status == 200));
    fs::write(folder.path().join("password"), "change-me").unwrap();
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    fs::set_permissions(folder.path().join("password"), private).unwrap();

    let scenario = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/scenarios/eight.toml");
    let mut command = Command::new(program_path("gaunt-node"));
    command.args(["--listen", "127.0.0.1:0", "--node", "node-a", "--nvml-library"]);
    let node =
        TestProcess::start_command(command.arg(fake_driver()).env("GAUNT_FAKE_DRIVER", scenario));
    let node_address = node.served_address();
    wait_for("the driver's values", || {
        get(&node_address, "/metrics").filter(|(_, page)| page.contains("gaunt_gpu_power_watts{"))
    });
    let targets = format!("{node_address},127.0.0.1:1");
    let url = format!("http://{auth}/api/v1/write");
    let [killed, _other] = ["a", "b"].map(|name| {
        let settings = write_settings(&folder, name, &url);
        TestProcess::start_aggregator(&["--config", &settings, "--targets", &targets])
    });
    let series = "gaunt_lost_gpus";
    // It takes ten seconds where nothing else runs.
    wait_within(Duration::from_mins(3), "some requests of both", || {
        stored_instants(one, series).filter(|instants| instants.len() >= 8)
    });
    let killed_at = wall_clock_ms();
    killed.send_signal(Signal::KILL);
    drop(killed);
    for store in [one, two] {
        let instants = wait_for("samples of the other one", || {
            let instants = stored_instants(store, series)?;
            instants.last().is_some_and(|last| *last > killed_at + 6_000).then_some(instants)
        });
        let gaps = instants.windows(2).map(|pair| (pair[1] - pair[0]) / 1_000);
        // The steps of a busy machine may come late; a lost window would be missing whole.
        let longest = gaps.max().unwrap();
        assert!(longest <= WINDOW_STEPS, "{longest} steps: {instants:?}");
        assert!(instants.is_sorted_by(|one, next| one < next), "one series: {instants:?}");
        check_screens(store);
    }
    check_passwords(&auth, series);
}

/// Level `screens`: under gaunt-node's name and labels, once a minute.
fn check_screens(store: &str) {
    let power = "last_over_time(gaunt_gpu_power_watts{gpu=\"0\"}[5m])";
    let (labels, _) = wait_for("the power of a GPU", || {
        drop_filter_cache(store);
        query_instant(store, power).pop()
    });
    assert_eq!(
        (&*labels["node"], &*labels["job"], &*labels["cluster"]),
        ("node-a", "gaunt", "hall-1")
    );
    assert!(!labels.contains_key("instance"), "{labels:?}");
}

/// Both copies answer behind vmauth, each in its turn, and only with the password: vmauth 1.79 answers 400 without.
fn check_passwords(auth: &str, series: &str) {
    for (password, status) in [("change-me", "200"), ("wrong", "400")] {
        for _ in 0..2 {
            let mut curl = Command::new("curl");
            curl.args(["-s", "-o", "/dev/null", "-w", "%{http_code}", "-u"]);
            curl.arg(format!("gaunt:{password}"));
            let answer =
                curl.arg(format!("http://{auth}/api/v1/query?query={series}")).run_to_end();
            assert_eq!(String::from_utf8_lossy(&answer.stdout), status);
        }
    }
}

/// Rows of an expression at an instant, without the label of the scrape; none if it was refused.
fn query_at(prometheus: &str, expression: &str, at: i64) -> Option<BTreeMap<String, String>> {
    let mut escaped = String::new();
    for byte in expression.bytes() {
        write!(escaped, "%{byte:02X}").unwrap();
    }
    let path = format!("/api/v1/query?time={at}&query={escaped}");
    let (_, body) = get(prometheus, &path).filter(|(status, _)| *status == 200)?;
    let json: Value = serde_json::from_str(&body).unwrap();
    let rows = json["data"]["result"].as_array()?.iter().filter_map(|row| {
        let mut labels = row["metric"].as_object()?.clone();
        labels.remove("instance");
        let value: f64 = row["value"][1].as_str()?.parse().ok()?;
        Some((Value::from(labels).to_string(), format!("{value:.6e}")))
    });
    Some(rows.collect())
}

/// The names of all series.
fn series_names(prometheus: &str) -> BTreeSet<String> {
    let (_, body) = get(prometheus, "/api/v1/label/__name__/values").unwrap();
    let json: Value = serde_json::from_str(&body).unwrap();
    let names = json["data"].as_array().unwrap().iter().filter_map(Value::as_str);
    names.map(str::to_owned).collect()
}

/// Starts a Prometheus with the shipped rules and these scrape jobs.
fn start_with_rules(folder: &Path, jobs: &str) -> (TestProcess, String) {
    fs::create_dir_all(folder).unwrap();
    let config = folder.join("prometheus.yml");
    let rules = concat!(env!("CARGO_MANIFEST_DIR"), "/config/prometheus/rules/gaunt/*.yml");
    let text = format!(
        "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\nrule_files: ['{rules}']\n\
         scrape_configs: {jobs}\n"
    );
    fs::write(&config, text).unwrap();
    let address = format!("127.0.0.1:{}", free_port());
    let running = TestProcess::start_command(
        debian_program("prometheus")
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", folder.join("data").display()))
            .arg("--web.enable-remote-write-receiver")
            .arg(format!("--web.listen-address={address}")),
    );
    (running, address)
}

/// A metric that only one aggregator can say, or that is stored in another form.
fn is_not_stored(name: &str) -> bool {
    let row = CATALOGUE.iter().find(|row| row.name == name);
    row.is_none_or(|row| row.kind != MetricKind::Gauge || row.class != DeviceClass::Fleet)
        || NOT_STORED.iter().any(|start| name.starts_with(start))
}

/// What rules and panels read of an aggregator that a store does not have is in the documentation.
fn check_unstored_names(
    expressions: &[String],
    in_store: &BTreeSet<String>,
    in_scrape: &BTreeSet<String>,
) {
    let documented = read_shipped("config/prometheus/STORE.md");
    let names: BTreeSet<String> = expressions.iter().flat_map(|it| metric_names(it)).collect();
    let unstored = names.iter().filter(|name| name.starts_with("gaunt_"));
    let unstored = unstored.filter(|name| in_scrape.contains(*name) && !in_store.contains(*name));
    for name in unstored {
        let is_listed = ["gaunt_store_", "gaunt_peer_", "gaunt_record_"]
            .into_iter()
            .find(|start| name.starts_with(start))
            .map_or_else(|| format!("`{name}`"), |start| format!("`{start}…`"));
        assert!(documented.contains(&is_listed), "{name} is not stored; say so in STORE.md");
    }
}

/// The expression with ranges of four seconds: longer ones would reach back to before both knew everything.
fn shorten_ranges(expression: &str) -> String {
    let mut parts = expression.split('[');
    let mut shortened = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.split_once(']') {
            Some((range, rest)) if range.starts_with(|first: char| first.is_ascii_digit()) => {
                let step = if range.contains(':') { ":1s" } else { "" };
                write!(shortened, "[4s{step}]{rest}").unwrap();
            }
            _ => write!(shortened, "[{part}").unwrap(),
        }
    }
    shortened
}

/// The same instant, once as scraped and once as stored: rules and panels that read verdicts give the same rows. Prometheus
/// scrapes nothing in its first five seconds, and stored verdicts come after four steps.
#[test]
fn rules_and_dashboards_read_the_same_from_a_store_as_from_a_scrape() {
    let folder = tempfile::tempdir().unwrap();
    let (_store, stored) = start_with_rules(&folder.path().join("stored"), "[]");
    wait_for("the store", || get(&stored, "/-/ready").filter(|(status, _)| *status == 200));
    let scenario = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/scenarios/eight.toml");
    let mut command = Command::new(program_path("gaunt-node"));
    command.args(["--listen", "127.0.0.1:0", "--node", "node-a", "--nvml-library"]);
    let node =
        TestProcess::start_command(command.arg(fake_driver()).env("GAUNT_FAKE_DRIVER", scenario));
    let settings = folder.path().join("gaunt.toml");
    let text = format!(
        "[cluster]\nname = \"hall-1\"\n[store]\nurl = \"http://{stored}/api/v1/write\"\nevery = \"1s\"\n"
    );
    fs::write(&settings, text).unwrap();
    let targets = format!("{},127.0.0.1:1", node.served_address());
    let arguments = ["--config", settings.to_str().unwrap(), "--targets", &targets];
    let aggregator = TestProcess::start_aggregator(&arguments);
    let gaunt = aggregator.served_address();
    let (_scraper, scraped) = start_with_rules(
        &folder.path().join("scraped"),
        &format!(
            "[{{job_name: gaunt, static_configs: [{{targets: ['{gaunt}'], labels: {{cluster: hall-1}}}}]}}]"
        ),
    );
    for (what, prometheus) in [("stored", &stored), ("scraped", &scraped)] {
        wait_for(what, || {
            let found = query_instant(prometheus, "gaunt_finding{kind=\"target_down\"}");
            (found.len() == 1).then_some(())
        });
    }
    let (in_store, in_scrape) = (series_names(&stored), series_names(&scraped));
    let missing: Vec<&String> = in_scrape
        .iter()
        .filter(|name| {
            name.starts_with("gaunt_") && !in_store.contains(*name) && !is_not_stored(name)
        })
        .collect();
    assert_eq!(missing, Vec::<&String>::new(), "verdicts that are scraped but not stored");

    let is_comparable = |expression: &String| {
        let names = metric_names(expression);
        // How long an alert is pending depends on when each of the two began; losses by cause are of a counter or of a gauge.
        let is_alike =
            |name: &str| name != "ALERTS" && name != "gaunt:fleet_cause_lost_gpus:rate5m";
        let is_readable = |name: &String| in_store.contains(name) && is_alike(name);
        !names.is_empty() && names.iter().all(is_readable)
    };
    let mut expressions: Vec<String> = rule_expressions();
    expressions.extend(panel_expressions());
    check_unstored_names(&expressions, &in_store, &in_scrape);
    expressions.retain(is_comparable);
    for expression in &mut expressions {
        *expression = shorten_ranges(expression);
    }
    let mut difference = String::new();
    let compared = wait_for("equal answers", || {
        let at = wall_clock_ms() / 1_000 - 6;
        let mut filled = 0;
        for expression in &expressions {
            let [one, other] = [&scraped, &stored].map(|it| query_at(it, expression, at));
            if one.is_none() || one != other {
                difference = format!("{expression}\nscraped {one:?}\nstored {other:?}");
                // The last difference is shown where they never agree.
                println!("{difference}");
                return None;
            }
            filled += usize::from(one.is_some_and(|rows| !rows.is_empty()));
        }
        (filled >= FILLED).then_some(filled)
    });
    println!("{compared} of {} expressions have rows", expressions.len());
}
