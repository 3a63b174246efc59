//! Prometheus rules against the code: every name exists, every alert is tested both ways and has its runbook.

#![expect(clippy::unwrap_used, reason = "what fails in here fails the test that called it")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    sync::LazyLock,
};

use gaunt_schema::{
    FindingKind, Severity,
    catalogue::{CATALOGUE, exporter::ABSENT},
    xid::XIDS,
};
use serde_json::Value;

use crate::test_process::{RunToEnd, debian_program};

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
];

/// XIDs that need no immediate action, or whose row refers to another alert.
const WATCHED: &[u32] = &[45, 92, 154, 155];

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
fn all_rules() -> &'static [Value] {
    static RULES: LazyLock<Vec<Value>> = LazyLock::new(read_rules);
    &RULES
}

fn read_rules() -> Vec<Value> {
    let all = yaml_files("rules/gaunt").into_iter().chain(yaml_files("rules/dcgm"));
    let groups = all.flat_map(|(_, file)| file["groups"].as_array().unwrap().clone());
    groups.flat_map(|group| group["rules"].as_array().unwrap().clone()).collect()
}

/// The alerts by name; names are unique.
fn alert_rules() -> BTreeMap<String, Value> {
    let mut named = BTreeMap::new();
    for rule in all_rules().iter().filter(|rule| rule["alert"].is_string()) {
        let name = rule["alert"].as_str().unwrap().to_owned();
        assert!(named.insert(name.clone(), rule.clone()).is_none(), "{name} stands twice");
    }
    named
}

/// The words of an expression that are names of metrics: not in quotes, and not a label or a function.
pub(crate) fn metric_names(expression: &str) -> BTreeSet<String> {
    let bare = expression.split('"').step_by(2).collect::<Vec<_>>().join(" ");
    let words =
        bare.split(|letter: char| !(letter.is_ascii_alphanumeric() || "_:".contains(letter)));
    let named = |word: &&str| {
        ["gaunt_", "gaunt:", "DCGM_", "node_"].iter().any(|start| word.starts_with(start))
            || ["up", "ALERTS", "scrape_duration_seconds"].contains(word)
    };
    words.filter(named).map(str::to_owned).collect()
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
fn every_metric_that_a_rule_names_is_said_by_somebody() {
    let mut strange = BTreeSet::new();
    for rule in all_rules() {
        let expression = rule["expr"].as_str().unwrap();
        let named = metric_names(expression);
        assert!(!named.is_empty(), "no metric in {expression}");
        strange.extend(named.into_iter().filter(|name| !is_known(name)));
    }
    assert!(strange.is_empty(), "nobody says {strange:?}");
}

#[test]
fn every_alert_has_a_severity_a_runbook_and_tests_both_ways() {
    let mut tested: BTreeMap<String, (bool, bool)> = BTreeMap::new();
    for (path, file) in yaml_files("tests/gaunt").into_iter().chain(yaml_files("tests/dcgm")) {
        for test in file["tests"].as_array().unwrap() {
            for case in test["alert_rule_test"].as_array().into_iter().flatten() {
                let name = case["alertname"].as_str().unwrap().to_owned();
                let expected = case["exp_alerts"].as_array();
                let expected = expected.unwrap_or_else(|| panic!("{}: {name}", path.display()));
                let seen = tested.entry(name).or_default();
                if expected.is_empty() { seen.1 = true } else { seen.0 = true }
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
        let known = ["critical", "warning", "info", "{{ $labels.severity }}"];
        assert!(known.contains(&severity), "{name}: {severity}");
        assert!(["finding", "signal"].contains(&labels["layer"].as_str().unwrap()), "{name}");
        assert!(notes["summary"].is_string() && notes["description"].is_string(), "{name}");
        let place = format!("config/prometheus/runbooks.md#{}", name.to_lowercase());
        assert_eq!(notes["runbook"], place.as_str());
        let section = runbooks.split(&format!("\n## {name}\n")).nth(1);
        let section = section.unwrap_or_else(|| panic!("{name} has no section in runbooks.md"));
        let section = section.split("\n## ").next().unwrap();
        assert!(section.contains("**Means:**") && section.contains("**Do:**"), "{name}");
    }
    let written: BTreeSet<_> =
        runbooks.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    let known: BTreeSet<_> = alerts.keys().map(String::as_str).collect();
    assert_eq!(written, known, "sections of runbooks.md and alerts");
}

#[test]
fn every_kind_of_finding_has_its_alert() {
    let expressions: Vec<_> =
        alert_rules().values().map(|rule| rule["expr"].as_str().unwrap().to_owned()).collect();
    for kind in FindingKind::ALL {
        let one = format!("gaunt:finding{{kind=\"{kind}\"}} == 1");
        assert_eq!(expressions.iter().filter(|all| **all == one).count(), 1, "{kind}");
    }
}

#[test]
fn every_xid_leads_to_the_action_of_its_row() {
    let alerts = alert_rules();
    let own = |code: u32| {
        let name = alerts.iter().filter(|(name, _)| name.starts_with("GauntXid"));
        let codes = |rule: &Value| {
            let expression = rule["expr"].as_str().unwrap().to_owned();
            let codes =
                expression.split("xid=~\"").nth(1).unwrap().split('"').next().unwrap().to_owned();
            codes.split('|').any(|one| one == code.to_string())
        };
        name.filter(|(_, rule)| codes(rule)).map(|(name, _)| name.clone()).collect::<Vec<_>>()
    };
    let foreign = |code: u32| {
        let ends = format!("gaunt:dcgm_new_xid:code == {code}");
        let says =
            |rule: &Value| {
                rule["expr"].as_str().unwrap().split(" or ").any(|part| {
                    part.lines().any(|line| line.trim_start_matches("or ").trim() == ends)
                })
            };
        alerts
            .iter()
            .filter(|(_, rule)| says(rule))
            .map(|(name, _)| name.clone())
            .collect::<Vec<_>>()
    };
    for row in XIDS {
        let (own, foreign) = (own(row.code), foreign(row.code));
        if WATCHED.contains(&row.code) {
            assert!(own.is_empty() && foreign.is_empty(), "XID {}: {own:?}", row.code);
            continue;
        }
        assert_eq!((own.len(), foreign.len()), (1, 1), "XID {}: {own:?} {foreign:?}", row.code);
        assert_eq!(own[0].trim_start_matches("Gaunt"), foreign[0].trim_start_matches("Dcgm"));
        let rule = &alerts[&own[0]];
        assert_eq!(
            rule["annotations"]["description"],
            alerts[&foreign[0]]["annotations"]["description"]
        );
        let said = rule["annotations"]["description"].as_str().unwrap().to_lowercase();
        // The first words of the row: reset, reboot, inspect, restart, look.
        let key = ["reboot", "inspect", "restart", "look at the job", "reset"];
        let key = key.iter().find(|key| row.action.contains(**key)).unwrap();
        assert!(said.contains(key), "XID {}: {:?} and {said:?}", row.code, row.action);
        // A row that pages has a critical alert; a row that needs a reset does, too.
        let paged = rule["labels"]["severity"] == "critical";
        assert!(paged || row.severity != Severity::Critical, "XID {}", row.code);
    }
}

#[test]
fn no_rule_has_a_form_that_never_fires_or_always_does() {
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
        for (at, _) in expression.match_indices("_total") {
            let rest = expression[at + 6..].trim_start();
            let rest =
                rest.strip_prefix('{').map_or(rest, |inside| inside.split_once('}').unwrap().1);
            assert!(!rest.trim_start().starts_with('>'), "a bare counter in {expression}");
        }
    }
}

#[test]
fn what_is_critical_pages_whatever_it_is_called() {
    let config = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/prometheus/alertmanager.yml");
    let names: BTreeSet<&str> =
        all_rules().iter().filter_map(|rule| rule["alert"].as_str()).collect();
    assert!(names.len() > 90, "{}", names.len());
    let receiver = |name: &str, severity: &str| {
        let output = debian_program("amtool")
            .args(["config", "routes", "test", "--config.file"])
            .arg(&config)
            .args([format!("alertname={name}"), format!("severity={severity}")])
            .run_to_end();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    for (severity, whom) in [("critical", "pager"), ("warning", "day"), ("info", "nobody")] {
        for name in &names {
            assert_eq!(receiver(name, severity), whom, "{name} {severity}");
        }
    }
}
