//! Every query of every dashboard against a real Prometheus that scraped a simulated fleet: no error, no empty result.

#![expect(clippy::unwrap_used, reason = "what fails in here fails the test that called it")]

use std::{
    collections::BTreeSet,
    fmt::Write as _,
    fs,
    io::{Read as _, Write as _},
    net::TcpListener,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::{
    alerting_end_to_end::FourPortNode,
    binaries::{fake_driver, program_path},
    fleet_snapshot::SimulatorProcess,
    prometheus_rules::{all_rules, is_known, metric_names},
    prometheus_scrape::{query_instant, send_query, start_with_config},
    test_process::{NO_LATENCY, TestProcess, free_port, get, run_gaunt, start_victoria, wait_for},
    victoria_metrics::drop_filter_cache,
};

/// Time for a fault to begin, to be found and to become an alert.
const TIME_LIMIT: Duration = Duration::from_secs(150);

/// Settings of the aggregator that count the time of waiting GPUs as lost at once; the defaults need 40 s of samples.
const LEARN_FAST: &str =
    "[judge]\nusual_learned_seconds = 5.0\naverage_seconds = 2.0\nenter_seconds = 1.0\n";

/// The time that the report and the dashboard are compared over.
const COMPARED: &str = "10s";

/// Probe metrics that gaunt-node forwards.
const PROBED: &str = "\
gaunt_probe_info{collective=\"all_reduce\",between=\"0-7\",tool=\"gaunt-probe\",path=\"nvlink\",ranks=\"8\",bytes=\"67108864\",type=\"float32\"} 1
gaunt_probe_busbw_bytes_per_second{collective=\"all_reduce\",between=\"0-7\"} 4.1e11
gaunt_probe_baseline_ratio{collective=\"all_reduce\",between=\"0-7\"} 0.98
gaunt_probe_wrong_elements{collective=\"all_reduce\",between=\"0-7\"} 0
gaunt_probe_last_run_timestamp_seconds 1700000000
gaunt_probe_last_exit_code 0
gaunt_probe_runs_total 3
gaunt_probe_busy_seconds_total 0.4
gaunt_probe_skipped_total{reason=\"job\"} 12
";

/// The series that Grafana's dashboard 12239 needs, each filtered by these two labels.
const DASHBOARD_12239: [&str; 6] = [
    "DCGM_FI_DEV_GPU_TEMP",
    "DCGM_FI_DEV_POWER_USAGE",
    "DCGM_FI_DEV_SM_CLOCK",
    "DCGM_FI_DEV_GPU_UTIL",
    "DCGM_FI_DEV_FB_USED",
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
];

/// One query of a dashboard.
struct DashboardQuery {
    dashboard: String,
    panel: String,
    query: String,
    /// For a variable: the label whose values it lists.
    label: Option<String>,
}

type QueryRows = Vec<(std::collections::BTreeMap<String, String>, f64)>;

impl DashboardQuery {
    /// Whether the result is not empty.
    fn is_answered(&self, rows: &QueryRows) -> bool {
        match &self.label {
            None => !rows.is_empty(),
            Some(label) => rows.iter().any(|(labels, _)| labels.contains_key(label)),
        }
    }
}

fn repository_root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every dashboard by its file name, in order.
fn read_dashboards() -> Vec<(String, Value)> {
    let mut found: Vec<_> = fs::read_dir(repository_root().join("dashboards"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "json"))
        .collect();
    found.sort();
    let read = |path: std::path::PathBuf| {
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        (name, serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap())
    };
    found.into_iter().map(read).collect()
}

/// Every query of a dashboard: its panels, its variables, its annotations.
fn dashboard_queries(name: &str, dashboard: &Value) -> Vec<DashboardQuery> {
    let build_query = |panel: String, query: &str| DashboardQuery {
        dashboard: name.to_owned(),
        panel,
        query: fill_variables(query),
        label: None,
    };
    let mut queries = Vec::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().unwrap_or(&Vec::new()) {
            let title = panel["title"].as_str().unwrap().to_owned();
            queries.push(build_query(title, target["expr"].as_str().unwrap()));
        }
    }
    for variable in dashboard["templating"]["list"].as_array().unwrap() {
        if variable["type"] == "query" {
            // label_values(SERIES, LABEL) lists the values of a label.
            let text = variable["query"]["query"].as_str().unwrap();
            let inside = text.strip_prefix("label_values(").unwrap().strip_suffix(')').unwrap();
            let (series, label) = inside.rsplit_once(", ").unwrap();
            let query = format!("count by ({label}) ({series})");
            let name = format!("${}", variable["name"].as_str().unwrap());
            queries.push(DashboardQuery {
                label: Some(label.to_owned()),
                ..build_query(name, &query)
            });
        }
    }
    for annotation in dashboard["annotations"]["list"].as_array().unwrap() {
        queries.push(build_query("annotations".to_owned(), annotation["expr"].as_str().unwrap()));
    }
    queries
}

/// The expressions of all panels.
pub(crate) fn panel_expressions() -> Vec<String> {
    let dashboards = read_dashboards();
    let queries =
        dashboards.iter().flat_map(|(name, dashboard)| dashboard_queries(name, dashboard));
    queries.map(|query| query.query).collect()
}

/// A query as Grafana sends it with every variable set to all.
fn fill_variables(query: &str) -> String {
    let mut query = query.to_owned();
    for (variable, value) in [
        ("$__rate_interval", "15s"),
        ("$__range_s", "30"),
        ("$__range", "30s"),
        ("$cluster", ".*"),
        ("$node", ".*"),
        ("$gpu", ".*"),
        ("$job", ".*"),
        ("$rail", ".*"),
        ("$price", "2.50"),
        ("$co2", "0.35"),
    ] {
        query = query.replace(variable, value);
    }
    assert!(!query.contains('$'), "an unknown variable in {query}");
    query
}

#[test]
fn dashboards_are_sound_and_name_what_exists() {
    let dashboards = read_dashboards();
    let names: Vec<_> = dashboards.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(
        names,
        [
            "gaunt-findings",
            "gaunt-fleet",
            "gaunt-gpu",
            "gaunt-job",
            "gaunt-network",
            "gaunt-node",
            "gaunt-probe",
            "gaunt-self"
        ]
    );
    let readme = fs::read_to_string(repository_root().join("dashboards/README.md")).unwrap();
    for (name, dashboard) in &dashboards {
        assert_eq!(dashboard["uid"], name.as_str());
        assert!(dashboard["schemaVersion"].as_u64().unwrap() >= 39, "{name}");
        assert!(
            readme.contains(&format!("`{name}.json`")),
            "{name} is not in dashboards/README.md"
        );
        let panels = dashboard["panels"].as_array().unwrap();
        assert!(panels.len() <= 14, "{name}: few panels that answer questions");
        let ids: BTreeSet<_> = panels.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
        assert_eq!(ids.len(), panels.len(), "{name}: an id stands twice");
        let text = panels.iter().filter(|panel| panel["type"] == "text").count();
        assert_eq!(text, 1, "{name} says which command shows the same");
        for panel in panels.iter().filter(|panel| panel["type"] != "text") {
            let title = &panel["title"];
            assert_eq!(panel["datasource"]["uid"], "${datasource}", "{name}: {title}");
            assert!(panel["fieldConfig"]["defaults"]["unit"].is_string(), "{name}: {title}");
            // Nodes of two clusters may have the same name.
            for target in panel["targets"].as_array().unwrap() {
                let query = target["expr"].as_str().unwrap();
                for selector in query.split('{').skip(1).filter(|it| it.contains("$node")) {
                    assert!(selector.starts_with("cluster=~\"$cluster\""), "{name}: {title}");
                }
            }
            // A link points to an existing dashboard.
            for link in panel["fieldConfig"]["defaults"]["links"].as_array().unwrap_or(&Vec::new())
            {
                let target = link["url"].as_str().unwrap().trim_start_matches("/d/");
                let target = target.split('?').next().unwrap();
                assert!(names.contains(&target), "{name}: {title} leads to {target}");
            }
        }
        for DashboardQuery { panel, query, .. } in dashboard_queries(name, dashboard) {
            let metrics = metric_names(&query);
            assert!(!metrics.is_empty(), "{name}: {panel}");
            let unknown: Vec<_> = metrics.iter().filter(|metric| !is_known(metric)).collect();
            assert!(unknown.is_empty(), "{name}: {panel}: nobody says {unknown:?}");
            if query.contains("rate(") {
                assert!(!query.contains("[5m]"), "{name}: {panel} has an interval of its own");
            }
        }
    }
}

/// A node whose page has the metrics of a probe; it answers until the test ends.
fn probed_node() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            // One request per connection, with the same answer.
            let mut request = [0; 4_096];
            _ = stream.read(&mut request);
            let head =
                "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nConnection: close";
            _ = write!(stream, "{head}\r\nContent-Length: {}\r\n\r\n{PROBED}", PROBED.len());
        }
    });
    address
}

/// A real gaunt-node that also exports dcgm-exporter's names.
fn compatible_node() -> (TestProcess, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let settings = folder.path().join("node.toml");
    fs::write(&settings, "compat = [\"dcgm\"]\n").unwrap();
    let mut command = Command::new(program_path("gaunt-node"));
    command.args(["--listen", "127.0.0.1:0", "--node", "compatible", "--nvml-library"]);
    command.arg(fake_driver()).arg("--config").arg(&settings);
    let scenario = repository_root().join("tests/fixtures/scenarios/eight.toml");
    (TestProcess::start_command(command.env("GAUNT_FAKE_DRIVER", scenario)), folder)
}

/// A VictoriaMetrics that answers at once.
fn start_store() -> (String, (TestProcess, tempfile::TempDir)) {
    let folder = tempfile::tempdir().unwrap();
    let address = format!("127.0.0.1:{}", free_port());
    let process = start_victoria(folder.path(), &address, &[NO_LATENCY]);
    (address, (process, folder))
}

/// The answers to all queries, as soon as every query has its answer at one and the same time: a GPU is lost after 15
/// seconds.
fn query_all(queries: &[DashboardQuery], prometheus: &str) -> Vec<QueryRows> {
    let end = Instant::now() + TIME_LIMIT;
    loop {
        let answers: Vec<_> =
            queries.iter().map(|entry| query_instant(prometheus, &entry.query)).collect();
        let empty: Vec<_> = queries
            .iter()
            .zip(&answers)
            .filter(|(entry, rows)| !entry.is_answered(rows))
            .map(|(entry, _)| format!("{}: {}: {}", entry.dashboard, entry.panel, entry.query))
            .collect();
        if empty.is_empty() {
            return answers;
        }
        assert!(Instant::now() < end, "empty after {TIME_LIMIT:?}:\n{}", empty.join("\n"));
        std::thread::sleep(Duration::from_millis(500));
    }
}

/// Average GPUs and watts, in the report and in the dashboard: their sampling times differ.
fn check_report_agrees(aggregator: &str, prometheus: &str) {
    // Both cover the last seconds, and agree once the fault is older than these: since then all is constant.
    let end = Instant::now() + TIME_LIMIT;
    let lost_query = format!("sum(avg_over_time(gaunt:fleet_lost_gpus:count[{COMPARED}]))");
    let watts_query = format!("sum(rate(gaunt_gpu_energy_joules_total[{COMPARED}]))");
    let mut last_values = String::new();
    let mut compare = || {
        let args = ["report", "--aggregator", aggregator, "--last", COMPARED, "--format", "json"];
        let report: Value = serde_json::from_slice(&run_gaunt(&args).stdout).ok()?;
        let watched = report["watched_seconds"].as_f64()?;
        let lost = report["total"]["lost_gpu_hours"].as_f64()? * 3_600.0 / watched;
        let watts = report["total"]["energy_kwh"].as_f64()? * 3.6e6 / watched;
        let query_value = |expression: &str| Some(query_instant(prometheus, expression).first()?.1);
        let is_close = |left: f64, right: f64| left > 0.0 && (left / right - 1.0).abs() < 0.1;
        let dashboard_lost = query_value(&lost_query)?;
        let dashboard_watts = query_value(&watts_query)?;
        last_values =
            format!("GPUs lost {lost} and {dashboard_lost}, watts {watts} and {dashboard_watts}");
        let agrees = is_close(lost, dashboard_lost) && is_close(watts, dashboard_watts);
        // At least the lost GPU counts.
        (lost > 0.9 && agrees).then_some(())
    };
    while compare().is_none() {
        std::thread::sleep(Duration::from_millis(500));
        assert!(Instant::now() < end, "the report and the dashboard: {last_values}");
    }
}

/// Prints what a user would see: each panel with its rows and their range.
fn print_answers(queries: &[DashboardQuery], answers: &[QueryRows]) {
    let mut table = format!(
        "{:<16} {:<44} {:>5} {:>14} {:>14}\n",
        "dashboard", "panel", "rows", "least", "most"
    );
    for (DashboardQuery { dashboard, panel, .. }, rows) in queries.iter().zip(answers) {
        let values = rows.iter().map(|(_, value)| *value);
        let (least, most) = values.fold((f64::MAX, f64::MIN), |(a, b), v| (a.min(v), b.max(v)));
        let rows = rows.len();
        writeln!(table, "{dashboard:<16} {panel:<44} {rows:>5} {least:>14.6} {most:>14.6}")
            .unwrap();
    }
    std::io::stdout().lock().write_all(table.as_bytes()).unwrap();
}

#[test]
fn panels_and_variables_are_answered_by_a_scraped_fleet() {
    let (node, _folder) = compatible_node();
    let address = node.served_address();
    let ports = FourPortNode::start_node("ports");
    ports.set_link(1, false);
    // The clock of its fault starts with it.
    let sim = SimulatorProcess::start_scenario(8, "gpu_lost");
    let list = format!("{},{address},probed={},{}", sim.list, probed_node(), ports.address);
    let settings = tempfile::NamedTempFile::new().unwrap();
    fs::write(settings.path(), LEARN_FAST).unwrap();
    let arguments = ["--config", settings.path().to_str().unwrap(), "--targets", &list];
    let aggregator = TestProcess::start_aggregator(&arguments);
    let gaunt = aggregator.served_address();
    wait_for("the aggregator has tried all", || {
        get(&gaunt, "/readyz").filter(|(status, _)| *status == 200)
    });
    let rules = tempfile::tempdir().unwrap();
    for name in ["recording", "findings"] {
        let path = repository_root().join(format!("config/prometheus/rules/gaunt/{name}.yml"));
        let text = fs::read_to_string(path).unwrap().replace("for: 15s", "for: 1s");
        fs::write(rules.path().join(format!("{name}.yml")), text).unwrap();
    }
    let (store, _store) = start_store();
    let cluster = "relabel_configs: [{target_label: cluster, replacement: hall-1}]";
    let (prometheus, _running) = start_with_config(&format!(
        "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\n\
         rule_files: ['{}/*.yml']\n\
         remote_write: [{{url: 'http://{store}/api/v1/write'}}]\n\
         scrape_configs:\n\
         - {{job_name: gaunt, static_configs: [{{targets: ['{gaunt}']}}], {cluster}}}\n\
         - {{job_name: gaunt-node, http_sd_configs: [{{url: 'http://{gaunt}/sd/http', refresh_interval: 1s}}], {cluster}}}\n",
        rules.path().display(),
    ));
    let queries: Vec<_> =
        read_dashboards().iter().flat_map(|(name, json)| dashboard_queries(name, json)).collect();
    let answers = query_all(&queries, &prometheus);
    // VictoriaMetrics has the same series and another engine.
    drop_filter_cache(&store);
    query_all(&queries, &store);
    // Rules are sound for both engines, whether they have rows here or not.
    for rule in all_rules() {
        let expression = rule["expr"].as_str().unwrap();
        for server in [&prometheus, &store] {
            let answer = send_query(server, expression);
            assert_eq!(answer.as_ref().map(|it| it.0), Some(200), "{expression}: {answer:?}");
        }
    }
    for series in DASHBOARD_12239 {
        let text = format!("{series}{{instance=~\"{address}\", gpu=~\"[0-7]\"}}");
        wait_for(&text, || (query_instant(&prometheus, &text).len() == 8).then_some(()));
    }
    check_report_agrees(&gaunt, &prometheus);
    print_answers(&queries, &answers);
}
