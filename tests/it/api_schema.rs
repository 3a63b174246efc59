//! The API description against a running aggregator: every path is requested, every answer fits its schema.

#![expect(clippy::unwrap_used, reason = "what fails in here fails the test that called it")]

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use gaunt_api::{PATHS, Subject};
use serde_json::{Value, json};

use crate::{
    fleet_snapshot::SimulatorProcess,
    test_process::{RunToEnd, TestProcess, debian_program, get, wait_for},
};

const API: &str = "/api/gaunt/v1";

fn load_openapi() -> Value {
    serde_json::from_str(include_str!("../../config/openapi.json")).unwrap()
}

/// Checks each answer against its schema and prints what does not fit, a line each; the schema may refer to all components.
const CHECK_ANSWERS: &str = r#"
import json, sys
from jsonschema import Draft202012Validator
given = json.load(open(sys.argv[1]))
for path, schema, answer in given["answers"]:
    schema["components"] = given["components"]
    for error in list(Draft202012Validator(schema).iter_errors(answer))[:5]:
        print(f"{path}: {error.json_path}: {error.message[:300]}")
"#;

/// Asserts that every answer fits its schema: each is a path, a schema and the answer.
fn check_answers(api: &Value, answers: &[(&str, Value, Value)]) {
    let given = json!({"components": api["components"], "answers": answers});
    let file = tempfile::NamedTempFile::new().unwrap();
    serde_json::to_writer(&file, &given).unwrap();
    let mut command = debian_program("python3");
    let output = command.args(["-c", CHECK_ANSWERS]).arg(file.path()).run_to_end();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stdout.is_empty(), "{}", String::from_utf8_lossy(&output.stdout));
}

/// Sends a request to the API; blanks and special characters of the filter are escaped.
fn ask_api(address: &str, path: &str) -> (u16, Value) {
    // A slash that is already escaped stays so.
    let escaped: String = path
        .replace("%2F", "\u{1}")
        .bytes()
        .map(|byte| match byte {
            1 => "%2F".to_owned(),
            b' ' | b'%' | b'<' | b'>' | b'"' => format!("%{byte:02X}"),
            _ => char::from(byte).to_string(),
        })
        .collect();
    let (status, body) = get(address, &format!("{API}/{escaped}")).unwrap();
    (status, serde_json::from_str(&body).unwrap_or_else(|error| panic!("{path}: {error}: {body}")))
}

/// An aggregator over a simulated fleet of which everything was scraped twice.
pub(crate) fn start_fleet_aggregator(nodes: usize) -> (SimulatorProcess, TestProcess, String) {
    let sim = SimulatorProcess::start_healthy(nodes);
    let missing = "127.0.0.1:9";
    let aggregator =
        TestProcess::start_aggregator(&["--targets", &format!("{},{missing}", sim.list)]);
    let address = aggregator.served_address();
    wait_for("every target was tried", || {
        get(&address, "/readyz").filter(|(status, _)| *status == 200)
    });
    wait_for("rates are known", || {
        let (_, table) = ask_api(&address, "ports?filter=has receive&limit=1");
        (table["matched"] == table["total"] && table["rows"] == 1).then_some(())
    });
    wait_for("the missing target is found", || {
        let (status, _) = ask_api(&address, "findings/target_down/127.0.0.1");
        (status == 200).then_some(())
    });
    (sim, aggregator, address)
}

/// A running aggregator that several tests query.
struct SharedAggregator {
    address: String,
    /// Unused, but only a mutex can be shared between threads.
    _running: Mutex<TestProcess>,
    _sim: SimulatorProcess,
}

/// An aggregator over six nodes. Tests that run at the same time share it; it ends with the last of them.
fn share_fleet_aggregator() -> Arc<SharedAggregator> {
    static SHARED: Mutex<Weak<SharedAggregator>> = Mutex::new(Weak::new());
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(aggregator) = shared.upgrade() {
        return aggregator;
    }
    let (sim, running, address) = start_fleet_aggregator(6);
    let running = Mutex::new(running);
    let aggregator = Arc::new(SharedAggregator { address, _running: running, _sim: sim });
    *shared = Arc::downgrade(&aggregator);
    aggregator
}

#[test]
fn answers_of_a_running_aggregator_fit_their_description() {
    let aggregator = share_fleet_aggregator();
    let address = &aggregator.address;
    let api = load_openapi();
    let served = get(address, &format!("{API}/openapi.json")).unwrap();
    assert_eq!(served.0, 200);
    assert_eq!(serde_json::from_str::<Value>(&served.1).unwrap(), api, "it serves its description");

    let (_, nodes) = ask_api(address, "nodes");
    let node = nodes["nodes"][0]["node"].as_str().unwrap().to_owned();
    let (_, jobs) = ask_api(address, "jobs");
    let job = jobs["columns"][0]["cells"]["texts"]["words"][0].as_str().unwrap().to_owned();
    let history = format!("history?metric=power&filter=node={node} and gpu=0");
    let mut asked: Vec<(&str, String)> = vec![
        ("nodes/{node}", format!("nodes/{node}")),
        ("jobs/{job}", format!("jobs/{job}")),
        ("findings/{finding}", "findings/target_down/127.0.0.1".to_owned()),
        ("findings/{finding}", "findings/target_down/127.0.0.1".to_owned()),
        ("closed", "closed?filter=kind=port_down".to_owned()),
        ("history", history),
        ("history", "history?metric=power&together=sum&points=7".to_owned()),
        ("history", "history?metric=lost".to_owned()),
        ("history", "history?metric=receive&subject=ports&together=max".to_owned()),
        ("nodes", "nodes?filter=gpus=8&sort=node desc&limit=2".to_owned()),
        ("findings", "findings?filter=severity=warning,critical".to_owned()),
        ("targets", "targets?filter=state=down".to_owned()),
        ("usage", "usage?last=5m".to_owned()),
        ("alerts", "alerts".to_owned()),
        (
            "gpus",
            "gpus?filter=power>1W sort power desc limit 3 offset 1&columns=node,gpu,power".into(),
        ),
        ("fabric", "fabric?filter=state=active".to_owned()),
    ];
    for (path, ..) in PATHS.iter().filter(|(path, ..)| !path.contains('{') && *path != "history") {
        asked.push((*path, (*path).to_owned()));
    }
    for subject in Subject::ALL {
        // Every field, as a column and as a filter.
        let names: Vec<&str> =
            subject.all_fields().iter().map(|field| field.name.as_str()).collect();
        for chunk in names.chunks(40) {
            let path = format!("table/{}?columns={}", subject.as_str(), chunk.join(","));
            asked.push(("table/{subject}", path));
        }
        let has = names[..names.len().min(24)].iter().map(|name| format!("has {name}"));
        let has = has.collect::<Vec<_>>().join(" or ");
        asked.push(("table/{subject}", format!("table/{}?filter={has}", subject.as_str())));
    }
    let mut answers: Vec<(&str, Value, Value)> = Vec::new();
    for (path, line) in &asked {
        let (status, answer) = ask_api(address, line);
        assert_eq!(status, 200, "{line}: {answer}");
        let schema = &api["paths"][format!("/{path}")]["get"]["responses"]["200"]["content"]["application/json"]
            ["schema"];
        answers.push((line, schema.clone(), answer));
    }
    check_answers(&api, &answers);
    let paths: BTreeSet<&str> = asked.iter().map(|(path, _)| *path).collect();
    assert_eq!(paths.len(), PATHS.len(), "every path was asked");
}

#[test]
fn refusals_fit_their_description() {
    let aggregator = share_fleet_aggregator();
    let address = &aggregator.address;
    let api = load_openapi();
    let refusal = json!({"$ref": "#/components/schemas/Refusal"});
    let mut answers = Vec::new();
    for (line, expected) in [
        ("nodes/nobody", 404),
        ("jobs/0", 404),
        ("findings/port_down/nobody", 404),
        ("table/wibble", 400),
        ("gpus?filter=powr>3", 400),
        ("gpus?limit=0", 400),
        ("overview?filter=x", 400),
        ("history?metric=uuid", 400),
        ("history?metric=performance_stat", 400),
        ("stream?ask=nodez", 400),
        ("stream?ask=nodes/nobody", 404),
        ("stream", 400),
    ] {
        let (status, answer) = ask_api(address, line);
        assert_eq!(status, expected, "{line}: {answer}");
        answers.push((line, refusal.clone(), answer));
    }
    check_answers(&api, &answers);
}

#[test]
fn tables_lists_and_details_say_the_same() {
    let aggregator = share_fleet_aggregator();
    let address = &aggregator.address;
    let (_, table) = ask_api(address, "gpus?columns=node,gpu,state,power&limit=131072");
    let (_, fabric) = ask_api(address, "fabric");
    let (_, overview) = ask_api(address, "overview");
    let codes = |name: &str| {
        let columns = table["columns"].as_array().unwrap();
        columns.iter().find(|column| column["name"] == name).unwrap()["cells"].clone()
    };
    assert_eq!(table["total"], 48);
    assert_eq!(table["rows"], 48);
    let nodes = codes("node");
    let words: Vec<&str> =
        nodes["texts"]["words"].as_array().unwrap().iter().map(|w| w.as_str().unwrap()).collect();
    let heat: Vec<&str> = overview["heat"]["nodes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|node| node.as_str().unwrap())
        .collect();
    assert_eq!(words, heat, "each node once, in the order of the heat map");
    let powers = codes("power")["numbers"]["values"].as_array().unwrap().clone();
    assert!(powers.iter().all(|power| power.as_f64().unwrap() > 10.0), "{powers:?}");
    let ports: u64 =
        fabric["cells"]["ports"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).sum();
    assert_eq!((ports, &fabric["matched"]), (48, &json!(48)));
    let length = |name: &str| fabric["cells"][name].as_array().unwrap().len();
    assert!(
        length("active") > 0
            && length("active") == length("leaf")
            && length("leaf") == length("rail")
    );
    assert_eq!(fabric["rails"].as_array().unwrap().len(), 8);

    // The GPUs of all jobs add up to the GPUs that have a job.
    let (_, jobs) = ask_api(address, "jobs?columns=job,gpus,nodes");
    let gpus_of_jobs = jobs["columns"][1]["cells"]["numbers"]["values"].as_array().unwrap();
    let gpus_of_jobs: f64 = gpus_of_jobs.iter().map(|n| n.as_f64().unwrap()).sum();
    let (_, with_job) = ask_api(address, "gpus?filter=has job");
    assert!(
        (with_job["matched"].as_f64().unwrap() - gpus_of_jobs).abs() < 0.5 && gpus_of_jobs > 0.0
    );
    let job = jobs["columns"][0]["cells"]["texts"]["words"][0].as_str().unwrap();
    let (_, detail) = ask_api(address, &format!("jobs/{job}"));
    let first = &jobs["columns"][1]["cells"]["numbers"]["values"][0];
    assert_eq!(detail["gpus"]["rows"].as_f64(), first.as_f64());
}
