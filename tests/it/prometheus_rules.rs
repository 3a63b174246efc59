//! Prometheus rules against the code: every name exists, every alert is tested both ways and has its runbook.

#![expect(clippy::unwrap_used, reason = "what fails in here fails the test that called it")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{Read as _, Write as _},
    net::TcpStream,
    path::{Path, PathBuf},
    sync::LazyLock,
};

use gaunt_schema::{
    FindingKind, Severity,
    catalogue::{CATALOGUE, exporter::ABSENT},
    xid::XIDS,
};
use serde_json::{Value, json};

use crate::{
    alerting_end_to_end::start_alertmanager,
    test_process::{
        DEADLINE, RunToEnd as _, TestProcess, debian_program, free_port, get, wait_for,
    },
};

/// Names of dcgm-exporter, node_exporter and Prometheus that no row of the catalogue has.
const FOREIGN: &[&str] = &[
    "ALERTS",
    "scrape_duration_seconds",
    "up",
    "DCGM_FI_DEV_CLOCKS_EVENT_REASONS",
    "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS",
    "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS",
    "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL",
    "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL",
    "DCGM_FI_DEV_XID_ERRORS",
    // The names of dcgm-exporter 4.9.
    "DCGM_FI_DEV_FB_FREE_BYTES",
    "DCGM_FI_DEV_FB_USED_BYTES",
    "DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL",
    "DCGM_FI_DEV_GPU_TEMP_CELSIUS",
    "DCGM_FI_DEV_GPU_THERMAL_THROTTLE_SECONDS_TOTAL",
    "DCGM_FI_DEV_GPU_UTIL_RATIO",
    "DCGM_FI_DEV_MEMORY_TEMP_CELSIUS",
    "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_TOTAL",
    "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_TOTAL",
    "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_TOTAL",
    "DCGM_FI_DEV_PCIE_REPLAY_TOTAL",
    "DCGM_FI_DEV_ROW_REMAP_CORRECTABLE_TOTAL",
    "DCGM_FI_DEV_ROW_REMAP_FAILED",
    "DCGM_FI_DEV_ROW_REMAP_UNCORRECTABLE_TOTAL",
    "DCGM_FI_DEV_XID_ERROR",
    "DCGM_FI_PROF_SM_UTIL_RATIO",
];

/// XIDs that need no immediate action, or whose row refers to another alert.
const WATCHED: &[u32] = &[45, 92, 146, 147, 148, 154, 155];

/// Every YAML file in a folder below `config/prometheus`, in order.
fn yaml_files(folder: &str) -> Vec<(PathBuf, Value)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/prometheus").join(folder);
    let mut paths: Vec<_> =
        fs::read_dir(&root).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty(), "{} is empty", root.display());
    let read = |path: PathBuf| {
        let value = serde_saphyr::from_str(&fs::read_to_string(&path).unwrap())
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        (path, value)
    };
    paths.into_iter().map(read).collect()
}

/// All rules of both packs, read once.
pub(crate) fn all_rules() -> &'static [Value] {
    static RULES: LazyLock<Vec<Value>> = LazyLock::new(read_rules);
    &RULES
}

fn read_rules() -> Vec<Value> {
    let files = yaml_files("rules/gaunt").into_iter().chain(yaml_files("rules/dcgm"));
    let groups = files.flat_map(|(_, file)| file["groups"].as_array().unwrap().clone());
    groups.flat_map(|group| group["rules"].as_array().unwrap().clone()).collect()
}

/// The expressions of gaunt's own rules.
pub(crate) fn rule_expressions() -> Vec<String> {
    let groups = yaml_files("rules/gaunt").into_iter();
    let groups = groups.flat_map(|(_, file)| file["groups"].as_array().unwrap().clone());
    let rules = groups.flat_map(|group| group["rules"].as_array().unwrap().clone());
    rules.map(|rule| rule["expr"].as_str().unwrap().to_owned()).collect()
}

/// The alerts by name; names are unique.
pub(crate) fn alert_rules() -> BTreeMap<String, Value> {
    let mut alerts = BTreeMap::new();
    for rule in all_rules().iter().filter(|rule| rule["alert"].is_string()) {
        let name = rule["alert"].as_str().unwrap().to_owned();
        assert!(alerts.insert(name.clone(), rule.clone()).is_none(), "{name} stands twice");
    }
    alerts
}

/// The words of an expression that are names of metrics: not in quotes, and not a label or a function.
pub(crate) fn metric_names(expression: &str) -> BTreeSet<String> {
    let unquoted = expression.split('"').step_by(2).collect::<Vec<_>>().join(" ");
    let words =
        unquoted.split(|letter: char| !(letter.is_ascii_alphanumeric() || "_:".contains(letter)));
    let is_metric = |word: &&str| {
        ["gaunt_", "gaunt:", "DCGM_", "node_"].iter().any(|start| word.starts_with(start))
            || ["up", "ALERTS", "scrape_duration_seconds"].contains(word)
    };
    words.filter(is_metric).map(str::to_owned).collect()
}

/// Whether a metric of this name exists: in the catalogue, another exporter, or one of our recording rules.
pub(crate) fn is_known(name: &str) -> bool {
    let recorded = || all_rules().iter().any(|rule| rule["record"] == name);
    let foreign = || CATALOGUE.iter().any(|row| row.foreign.iter().any(|other| other.name == name));
    CATALOGUE.iter().any(|row| row.name == name)
        || name == ABSENT
        || FOREIGN.contains(&name)
        || foreign()
        || recorded()
}

#[test]
fn metrics_named_by_rules_exist() {
    let mut unknown = BTreeSet::new();
    for rule in all_rules() {
        let expression = rule["expr"].as_str().unwrap();
        let named = metric_names(expression);
        assert!(!named.is_empty(), "no metric in {expression}");
        unknown.extend(named.into_iter().filter(|name| !is_known(name)));
    }
    assert!(unknown.is_empty(), "nobody says {unknown:?}");
}

#[test]
fn alerts_have_a_severity_a_runbook_and_tests_both_ways() {
    let mut tested: BTreeMap<String, (bool, bool)> = BTreeMap::new();
    for (path, file) in yaml_files("tests/gaunt").into_iter().chain(yaml_files("tests/dcgm")) {
        for test in file["tests"].as_array().unwrap() {
            for case in test["alert_rule_test"].as_array().into_iter().flatten() {
                let name = case["alertname"].as_str().unwrap().to_owned();
                let expected = case["exp_alerts"].as_array();
                let expected = expected.unwrap_or_else(|| panic!("{}: {name}", path.display()));
                let coverage = tested.entry(name).or_default();
                if expected.is_empty() { coverage.1 = true } else { coverage.0 = true }
            }
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let runbooks = fs::read_to_string(root.join("config/prometheus/runbooks.md")).unwrap();
    let alerts = alert_rules();
    for (name, rule) in &alerts {
        assert_eq!(tested.get(name), Some(&(true, true)), "{name} is not tested both ways");
        let (labels, notes) = (&rule["labels"], &rule["annotations"]);
        let severity = labels["severity"].as_str().unwrap();
        let severities = ["critical", "warning", "info", "{{ $labels.severity }}"];
        assert!(severities.contains(&severity), "{name}: {severity}");
        assert!(["finding", "signal"].contains(&labels["layer"].as_str().unwrap()), "{name}");
        assert!(notes["summary"].is_string() && notes["description"].is_string(), "{name}");
        let runbook = format!("config/prometheus/runbooks.md#{}", name.to_lowercase());
        assert_eq!(notes["runbook"], runbook.as_str());
        let section = runbooks.split(&format!("\n## {name}\n")).nth(1);
        let section = section.unwrap_or_else(|| panic!("{name} has no section in runbooks.md"));
        let section = section.split("\n## ").next().unwrap();
        assert!(section.contains("**Means:**") && section.contains("**Do:**"), "{name}");
    }
    let written: BTreeSet<_> =
        runbooks.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    let names: BTreeSet<_> = alerts.keys().map(String::as_str).collect();
    assert_eq!(written, names, "sections of runbooks.md and alerts");
}

#[test]
fn finding_kinds_have_one_alert_each() {
    let expressions: Vec<_> =
        alert_rules().values().map(|rule| rule["expr"].as_str().unwrap().to_owned()).collect();
    for kind in FindingKind::ALL {
        let expression = format!("gaunt:finding{{kind=\"{kind}\"}} == 1");
        assert_eq!(expressions.iter().filter(|other| **other == expression).count(), 1, "{kind}");
    }
}

#[test]
fn xids_lead_to_the_action_of_their_row() {
    let alerts = alert_rules();
    let gaunt_alerts = |code: u32| {
        let xid_alerts = alerts.iter().filter(|(name, _)| name.starts_with("GauntXid"));
        let has_code = |rule: &Value| {
            let expression = rule["expr"].as_str().unwrap().to_owned();
            let codes =
                expression.split("xid=~\"").nth(1).unwrap().split('"').next().unwrap().to_owned();
            codes.split('|').any(|one| one == code.to_string())
        };
        xid_alerts
            .filter(|(_, rule)| has_code(rule))
            .map(|(name, _)| name.clone())
            .collect::<Vec<_>>()
    };
    let dcgm_alerts = |code: u32| {
        let condition = format!("gaunt:dcgm_new_xid:code == {code}");
        let has_condition = |rule: &Value| {
            rule["expr"].as_str().unwrap().split(" or ").any(|part| {
                part.lines().any(|line| line.trim_start_matches("or ").trim() == condition)
            })
        };
        alerts
            .iter()
            .filter(|(_, rule)| has_condition(rule))
            .map(|(name, _)| name.clone())
            .collect::<Vec<_>>()
    };
    for row in XIDS {
        let (gaunt_alerts, dcgm_alerts) = (gaunt_alerts(row.code), dcgm_alerts(row.code));
        if WATCHED.contains(&row.code) {
            assert!(
                gaunt_alerts.is_empty() && dcgm_alerts.is_empty(),
                "XID {}: {gaunt_alerts:?}",
                row.code
            );
            continue;
        }
        assert_eq!(
            (gaunt_alerts.len(), dcgm_alerts.len()),
            (1, 1),
            "XID {}: {gaunt_alerts:?} {dcgm_alerts:?}",
            row.code
        );
        assert_eq!(
            gaunt_alerts[0].trim_start_matches("Gaunt"),
            dcgm_alerts[0].trim_start_matches("Dcgm")
        );
        let rule = &alerts[&gaunt_alerts[0]];
        assert_eq!(
            rule["annotations"]["description"],
            alerts[&dcgm_alerts[0]]["annotations"]["description"]
        );
        let description = rule["annotations"]["description"].as_str().unwrap().to_lowercase();
        // The first words of the row: reset, reboot, inspect, restart, look.
        let key = ["reboot", "inspect", "restart", "look at the job", "reset"];
        let key = key.iter().find(|key| row.action.contains(**key)).unwrap();
        assert!(
            description.contains(key),
            "XID {}: {:?} and {description:?}",
            row.code,
            row.action
        );
        // A row that pages has a critical alert; a row that needs a reset does, too.
        let paged = rule["labels"]["severity"] == "critical";
        assert!(paged || row.severity != Severity::Critical, "XID {}", row.code);
    }
}

#[test]
fn rules_have_no_form_that_never_or_always_fires() {
    for rule in all_rules() {
        let expression = rule["expr"].as_str().unwrap();
        for (form, why) in [
            ("increase(DCGM_FI_DEV_XID_ERRORS", "it is the last code and no counter"),
            ("rate(DCGM_FI_DEV_XID_ERRORS", "it is the last code and no counter"),
            ("error_code", "the label is err_code"),
            ("CLOCK_THROTTLE_REASONS > 0", "bit 1 is idle"),
            ("CLOCKS_EVENT_REASONS > 0", "bit 1 is idle"),
            ("FB_USED / DCGM_FI_DEV_FB_FREE", "that is no share"),
            ("node_infiniband_port_receive_errors_total", "nobody says that"),
            ("symbol_error_counter_total", "nobody says that"),
            ("rp_cnp_handled", "nobody says that"),
            ("SM_CLOCK <", "an idle GPU has a low clock"),
            ("bytes_total[5m]) * 4", "it is bytes already"),
        ] {
            assert!(!expression.contains(form), "{form}: {why}, in {expression}");
        }
        // A saturated counter must not be compared with a bound that it never leaves.
        for (index, _) in expression.match_indices("_total") {
            let rest = expression[index + 6..].trim_start();
            let rest =
                rest.strip_prefix('{').map_or(rest, |inside| inside.split_once('}').unwrap().1);
            assert!(!rest.trim_start().starts_with('>'), "a bare counter in {expression}");
        }
    }
}

/// Status of the answer to a JSON document.
fn post_json(address: &str, path: &str, document: &Value) -> u16 {
    let body = document.to_string();
    let length = body.len();
    let head = format!(
        "POST {path} HTTP/1.0\r\nHost: {address}\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\n\r\n"
    );
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    stream.write_all((head + &body).as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.split(' ').nth(1).unwrap().parse().unwrap()
}

#[test]
fn critical_alerts_page_whatever_their_name() {
    let names: BTreeSet<&str> =
        all_rules().iter().filter_map(|rule| rule["alert"].as_str()).collect();
    assert!(names.len() > 90, "{}", names.len());
    let routes = [("critical", "pager"), ("warning", "day"), ("info", "nobody")];
    let mut alerts = Vec::new();
    for (severity, _) in routes {
        let labels = names.iter().map(|name| json!({ "alertname": name, "severity": severity }));
        alerts.extend(labels.map(|labels| json!({ "labels": labels })));
    }
    // Alertmanager lists each alert with the receivers that its routes lead to. Nothing listens where it notifies them.
    let manager = format!("127.0.0.1:{}", free_port());
    let _manager = start_alertmanager("127.0.0.1:9", &manager);
    assert_eq!(post_json(&manager, "/api/v2/alerts", &Value::from(alerts)), 200);
    let (status, body) = get(&manager, "/api/v2/alerts").unwrap();
    assert_eq!(status, 200, "{body}");
    let listed: Vec<Value> = serde_json::from_str(&body).unwrap();
    let mut receivers: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
    for alert in &listed {
        let label = |name: &str| alert["labels"][name].as_str().unwrap();
        let led_to = alert["receivers"].as_array().unwrap().iter();
        let led_to = led_to.map(|receiver| receiver["name"].as_str().unwrap());
        receivers.entry((label("alertname"), label("severity"))).or_default().extend(led_to);
    }
    for (severity, receiver) in routes {
        for name in &names {
            let found = receivers.get(&(*name, severity)).map(Vec::as_slice);
            assert_eq!(found, Some(&[receiver][..]), "{name} {severity}");
        }
    }
    check_pair_inhibition(&manager);
}

/// Of a finding to which two aggregators give different severities, the more severe alert is notified alone; the same finding
/// of another cluster, and another one, are their own.
fn check_pair_inhibition(manager: &str) {
    let alert = |cluster: &str, id: &str, severity: &str| {
        json!({ "labels": { "alertname": "GauntPortDown", "layer": "finding", "severity": severity,
            "cluster": cluster, "id": id, "node": id } })
    };
    let alerts = [
        alert("hall-1", "a", "critical"),
        alert("hall-1", "a", "warning"),
        alert("hall-1", "b", "warning"),
        alert("hall-1", "b", "info"),
        alert("hall-2", "a", "warning"),
    ];
    assert_eq!(post_json(manager, "/api/v2/alerts", &Value::from(alerts.to_vec())), 200);
    let expected = ["hall-1 a warning", "hall-1 b info"].map(str::to_owned);
    wait_for("inhibition of the lower severities", || {
        let (_, body) = get(manager, "/api/v2/alerts?filter=layer%3D%22finding%22")?;
        let listed: Vec<Value> = serde_json::from_str(&body).ok()?;
        let inhibited = listed.iter().filter(|alert| {
            alert["status"]["inhibitedBy"].as_array().is_some_and(|by| !by.is_empty())
        });
        let named = inhibited.map(|alert| {
            ["cluster", "id", "severity"]
                .map(|label| alert["labels"][label].as_str().unwrap())
                .join(" ")
        });
        let mut named: Vec<String> = named.collect();
        named.sort();
        (named == expected).then_some(())
    });
}

#[test]
fn shipped_configuration_of_stores_is_valid() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/prometheus/store");
    let prometheus = folder.join("prometheus.yml");
    let mut promtool = debian_program("promtool");
    let output = promtool.args(["check", "config"]).arg(&prometheus).run_to_end();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let address = format!("127.0.0.1:{}", free_port());
    let _vmauth = TestProcess::start_command(
        debian_program("vmauth")
            .arg(format!("-auth.config={}", folder.join("vmauth.yml").display()))
            .arg(format!("-httpListenAddr={address}")),
    );
    wait_for("vmauth", || get(&address, "/health").filter(|(status, _)| *status == 200));
    // Mimir and Thanos are no Debian packages: only the form is checked.
    assert_eq!(yaml_files("store").len(), 3);
}
