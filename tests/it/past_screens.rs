//! Screens of a time that no aggregator keeps: replayed out of a real Prometheus, or out of the verdicts in a store.

#![expect(clippy::unwrap_used, reason = "what fails in here fails the test that called it")]

use std::{
    path::Path,
    time::{SystemTime, UNIX_EPOCH},
};

use serde_json::Value;

use crate::{
    foreign_site::START_MS,
    prometheus_past::{
        HALLS, PastServer, SECONDS, Sample, start_prometheus, start_victoria_metrics,
    },
    test_process::{TestProcess, get, run_gaunt, wait_for},
};

/// Milliseconds of an hour.
const HOUR_MS: i64 = 3_600_000;

#[test]
fn screens_of_last_year_are_replayed_with_explanations() {
    let server = start_prometheus(&HALLS.samples);
    let folder = tempfile::tempdir().unwrap();
    let settings = folder.path().join("gaunt.toml");
    let text =
        format!("[gather]\ntargets = [\"127.0.0.1:1\"]\n[prometheus]\nurl = \"{}\"\n", server.url);
    std::fs::write(&settings, text).unwrap();
    let aggregator = TestProcess::start_aggregator(&["--config", settings.to_str().unwrap()]);
    let gaunt = aggregator.served_address();
    wait_for("the aggregator", || get(&gaunt, "/readyz").filter(|(status, _)| *status == 200));
    let ask = |path: &str, at: i64| -> (u16, Value) {
        let separator = if path.contains('?') { '&' } else { '?' };
        let path = format!("/api/gaunt/v1/{path}{separator}at={at}");
        let (status, body) = get(&gaunt, &path).unwrap();
        (status, serde_json::from_str(&body).unwrap_or(Value::String(body)))
    };
    let at = START_MS + (SECONDS + 2) * 1_000;
    let (status, overview) = ask("overview", at);
    assert_eq!(status, 200, "{overview}");
    assert_eq!(overview["at"].as_i64(), Some(at));
    let nodes = overview["heat"]["nodes"].as_array().unwrap();
    assert!(nodes.iter().any(|node| node == "r08-c03"), "{overview}");
    let note = overview["source_notes"][0].as_str().unwrap();
    assert!(
        note.contains("past, replayed from 15 minutes") && note.contains(&server.url),
        "{note}"
    );
    let (_, findings) = ask("findings", at);
    let straggler = findings["findings"].as_array().unwrap().iter().find(|finding| {
        finding["kind"] == "compute_straggler" && finding["entity"]["node"] == "r08-c03"
    });
    let id = straggler.unwrap_or_else(|| panic!("{findings}"))["id"].as_str().unwrap();
    let (status, explanation) = ask(&format!("findings/{id}"), at);
    assert_eq!((status, explanation["finding"]["id"].as_str()), (200, Some(id)), "{explanation}");
    assert!(explanation["chain"].is_object(), "{explanation}");
    let (status, machine) = ask("nodes/r08-c03", at);
    assert_eq!(status, 200, "{machine}");
    assert!(machine["devices"].as_array().unwrap().len() >= 4, "{machine}");
    // A job, a second before: only the hosts that it ran on are read again.
    let (_, jobs) = ask("jobs?columns=job", at);
    let job = jobs["columns"][0]["cells"]["texts"]["words"][0].as_str().unwrap();
    let (status, detail) = ask(&format!("jobs/{}", job.replace('/', "%2F")), at - 1_000);
    assert_eq!((status, detail["job"].as_str()), (200, Some(job)), "{detail}");
    assert!(detail["gpus"]["rows"].as_u64() > Some(0), "{detail}");
    // Before anything was scraped, and without an answer, the reason is given; the present is not touched.
    let (status, refused) = ask("overview", START_MS - 86_400_000);
    let why = refused["message"].as_str().unwrap_or_default();
    assert!(status == 400 && why.contains("the past cannot be read"), "{status} {refused}");
    drop(server);
    let (status, refused) = ask("overview", at - 60_000);
    let why = refused["message"].as_str().unwrap_or_default();
    assert!(status == 400 && why.contains("check the address"), "{status} {refused}");
    assert_eq!(get(&gaunt, "/api/gaunt/v1/overview").unwrap().0, 200);
}

/// The verdicts of two nodes and a job, as an aggregator writes them: three steps, of which the last has another loss.
fn stored_verdicts() -> Vec<Sample> {
    let mut samples = Vec::new();
    for step in 0..3_i64 {
        let at = (START_MS / 15_000 + step) * 15_000;
        let mut add = |name: &str, labels: &str, value: f64| {
            let comma = if labels.is_empty() { "" } else { "," };
            let series = format!("{name}{{cluster=\"hall-7\",job=\"gaunt\"{comma}{labels}}}");
            samples.push((series, at, value.to_string()));
        };
        let lost = if step == 2 { 2.5 } else { 0.5 };
        for (state, nodes) in [("live", 2.0), ("stale", 0.0), ("down", 1.0)] {
            add("gaunt_nodes", &format!("state=\"{state}\""), nodes);
        }
        for (state, gpus) in [("computing", 6.0), ("data_starved", 2.0)] {
            add("gaunt_gpus", &format!("state=\"{state}\""), gpus);
            let labels = format!("exported_job=\"8812\",state=\"{state}\"");
            add("gaunt_job_gpus", &labels, gpus);
        }
        // What no aggregator writes is left out.
        add("gaunt_gpus", "state=\"made_up\"", 7.0);
        add("gaunt_gpu_state_code", "node=\"gpu2\",gpu=\"99999999\"", 0.0);
        add("gaunt_gpu_state_code", "node=\"gpu2\",gpu=\"-1\"", 77.0);
        add(
            "gaunt_finding",
            "id=\"made_up/gpu1\",kind=\"made_up\",severity=\"critical\",entity=\"node\"",
            1.0,
        );
        add("gaunt_gpu_power_watts", "node=\"gpu2\",gpu=\"0\"", 400.0 + 10.0 * step as f64);
        add("gaunt_lost_gpus", "", lost);
        for (cause, gpus) in [("data_starved", lost - 0.5), ("idle", 0.0), ("unexplained", 0.5)] {
            add("gaunt_cause_lost_gpus", &format!("cause=\"{cause}\""), gpus);
        }
        add("gaunt_job_lost_gpus", "exported_job=\"8812\"", lost);
        let id = "id=\"data_starved/8812/gpu2\",kind=\"data_starved\"";
        let blamed = "severity=\"critical\",acknowledged=\"true\",entity=\"node\",node=\"gpu2\"";
        add("gaunt_finding", &format!("{id},{blamed},exported_job=\"8812\""), 1.0);
        add("gaunt_finding_lost_gpus", id, lost - 0.5);
        for (leaf, ports, active, load) in
            [("leaf-1", 16.0, 16.0, 0.4), ("leaf-2", 16.0, 15.0, 0.1)]
        {
            let labels = format!("leaf=\"{leaf}\",rail=\"0\"");
            add("gaunt_fabric_ports", &labels, ports);
            add("gaunt_fabric_active_ports", &labels, active);
            add("gaunt_fabric_receive_ratio", &labels, load);
            add("gaunt_fabric_transmit_ratio", &labels, -1.0);
        }
        add("gaunt_fabric_ports", "", 2.0);
        let port = "node=\"gpu2\",device=\"mlx5_3\",port=\"1\",leaf=\"leaf-2\",rail=\"0\"";
        add("gaunt_flagged_port_state", &format!("{port},kind=\"port_down\""), 1.0);
        for (node, lost) in [("gpu1", 0.0), ("gpu2", lost)] {
            add("gaunt_node_lost_gpus", &format!("node=\"{node}\""), lost);
            for gpu in 0..4 {
                let code = if node == "gpu2" && gpu > 1 { 6.0 } else { 0.0 };
                add("gaunt_gpu_state_code", &format!("node=\"{node}\",gpu=\"{gpu}\""), code);
            }
        }
    }
    samples.sort_unstable();
    samples
}

/// The network by leaf and rail, and the port that was down.
fn check_stored_network(ask: &dyn Fn(&str, i64) -> (u16, Value), last: i64) {
    let (_, fabric) = ask("fabric?", last + 7_000);
    assert_eq!(fabric["leaves"], serde_json::json!(["", "leaf-1", "leaf-2"]), "{fabric}");
    let cells = &fabric["cells"];
    assert_eq!((&fabric["total"], &fabric["at"]), (&34.into(), &last.into()), "{fabric}");
    assert_eq!(cells["active"], serde_json::json!([0, 16, 15]), "{fabric}");
    assert_eq!(cells["receive_ratio"].as_array().unwrap()[0], Value::Null, "{fabric}");
    assert_eq!(cells["finding"], serde_json::json!([null, null, "port_down"]), "{fabric}");
    let (_, ports) =
        ask("ports?filter=leaf%3Dleaf-2%20columns%20node,device,state,finding,load&", last);
    assert_eq!((&ports["rows"], &ports["total"]), (&1.into(), &34.into()), "{ports}");
    let word = |column: usize| &ports["columns"][column]["cells"]["texts"]["words"][0];
    assert_eq!([0, 1, 2, 3].map(word), ["gpu2", "mlx5_3", "down", "port_down"], "{ports}");
}

/// Hours with usage, relative to the present one: 90 days are 2,160 hours, of which the first here is no part. They are as many
/// if another hour begins meanwhile.
const USED_HOURS: [i64; 7] = [-2_161, -2_159, -2_158, -1_000, -1, 0, 1];

/// The usage of some hours in the last 90 days, as a pair of aggregators writes it.
fn stored_usage() -> Vec<Sample> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as i64;
    let mut samples = Vec::new();
    for hour in USED_HOURS {
        let at = (now / HOUR_MS + hour) * HOUR_MS;
        let mut add = |name: &str, labels: &str, value: f64| {
            samples.push((format!("{name}{{job=\"gaunt\",{labels}}}"), at, value.to_string()));
        };
        let starved =
            "exported_job=\"8812\",user=\"sam\",state=\"data_starved\",cause=\"data_starved\"";
        let computing = "exported_job=\"8812\",user=\"sam\",state=\"computing\"";
        // The second writer saw the last half of each hour, and one of them alone; another cluster is not asked for.
        let alone = hour == -1;
        for (writer, share) in [
            ("cluster=\"hall-7\"", f64::from(u8::from(!alone))),
            ("cluster=\"hall-7\",replica=\"b\"", if alone { 1.0 } else { 0.5 }),
            ("cluster=\"hall-8\"", 100.0),
        ] {
            for (labels, hours, lost) in [(computing, 6.0, 0.0), (starved, 2.0, 1.5)] {
                let labels = format!("{writer},{labels}");
                add("gaunt_job_gpu_hours", &labels, share * hours);
                add("gaunt_job_energy_joules", &labels, share * hours * 3.6e6);
                if lost > 0.0 {
                    add("gaunt_job_lost_gpu_hours", &labels, share * lost);
                }
            }
        }
        if hour == -1_000 {
            let labels = "cluster=\"hall-7\",exported_job=\"7001\",user=\"mira\",state=\"idle_allocated\",cause=\"idle\"";
            add("gaunt_job_gpu_hours", labels, 8.0);
            add("gaunt_job_lost_gpu_hours", labels, 8.0);
        }
    }
    samples.sort_unstable();
    samples
}

/// The report of 90 days: five hours of job 8812 are in it, and one of a job that ended long ago, whose energy nobody knows.
fn check_report_of_months(gaunt: &str) {
    let report = |form: &str| {
        let args = ["report", "--aggregator", gaunt, "--last", "90d", "--price", "2.50"];
        let output = run_gaunt(&[&args[..], &["--format", form]].concat());
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(!text.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
        text
    };
    let json: Value = serde_json::from_str(&report("json")).unwrap();
    let total = &json["total"];
    let sums = ["gpu_hours", "lost_gpu_hours", "energy_kwh", "cost"].map(|of| total[of].as_f64());
    assert_eq!(sums, [48.0, 15.5, 40.0, 120.0].map(Some), "{json}");
    assert_eq!(json["watched_seconds"], 18_000.0, "an hour without samples was not observed");
    let sum_of = |part: &str, of: &str| -> (f64, f64) {
        let sums = json[part].as_array().unwrap();
        let sum = sums.iter().find(|sum| sum["of"] == of).unwrap_or_else(|| panic!("{of}: {json}"));
        (sum["gpu_hours"].as_f64().unwrap(), sum["lost_gpu_hours"].as_f64().unwrap())
    };
    assert_eq!(sum_of("by_user", "sam"), (40.0, 7.5));
    assert_eq!(sum_of("by_job", "7001"), (8.0, 8.0));
    assert_eq!(sum_of("by_cause", "idle"), (8.0, 8.0));
    assert_eq!(sum_of("by_state", "computing"), (30.0, 0.0));
    let text = report("text");
    assert!(text.contains("hall-7") && text.contains("5h00 observed"), "{text}");
}

/// Starts the aggregator of the cluster whose verdicts are in this store.
fn start_beside_store(folder: &Path, server: &PastServer) -> TestProcess {
    let settings = folder.join("gaunt.toml");
    let text = format!(
        "[cluster]\nname = \"hall-7\"\n[gather]\ntargets = [\"127.0.0.1:1\"]\n[store]\nurl = \"{}/api/v1/write\"\n",
        server.url
    );
    std::fs::write(&settings, text).unwrap();
    TestProcess::start_aggregator(&["--config", settings.to_str().unwrap()])
}

/// Asks an aggregator, which has verdicts of the past in this store, about a time of which it has nothing itself.
fn check_stored_verdicts(server: PastServer) {
    let folder = tempfile::tempdir().unwrap();
    let aggregator = start_beside_store(folder.path(), &server);
    let gaunt = aggregator.served_address();
    wait_for("the aggregator", || get(&gaunt, "/readyz").filter(|(status, _)| *status == 200));
    check_report_of_months(&gaunt);
    let ask = |path: &str, at: i64| -> (u16, Value) {
        let (status, body) = get(&gaunt, &format!("/api/gaunt/v1/{path}at={at}")).unwrap();
        (status, serde_json::from_str(&body).unwrap_or(Value::String(body)))
    };
    let last = (START_MS / 15_000 + 2) * 15_000;
    let (status, overview) = ask("overview?", last + 7_000);
    assert_eq!((status, overview["at"].as_i64()), (200, Some(last)), "{overview}");
    let loss = &overview["lost"];
    let losses =
        ["gpus", "findings_gpus", "idle_gpus", "unexplained_gpus"].map(|of| loss[of].as_f64());
    assert_eq!(losses, [2.5, 2.0, 0.0, 0.5].map(Some));
    assert_eq!(loss["history"], serde_json::json!([0.5, 0.5, 2.5]));
    assert_eq!((&overview["nodes"]["live"], &overview["nodes"]["down"]), (&2.into(), &1.into()));
    assert_eq!(overview["heat"]["states"], "CCCCCCdd", "{}", overview["heat"]);
    let note = overview["source_notes"][0].as_str().unwrap();
    assert!(note.starts_with("past, from the verdicts of") && note.contains(&server.url), "{note}");
    let (_, findings) = ask("findings?", last + 7_000);
    let finding = &findings["findings"][0];
    assert_eq!(findings["total"], 1, "{findings}");
    assert_eq!(finding["id"], "data_starved/8812/gpu2", "{findings}");
    assert_eq!((&finding["severity"], &finding["lost_gpus"]), (&"critical".into(), &2.0.into()));
    assert!(finding["acknowledged"].is_object(), "{finding}");
    let (_, jobs) = ask("jobs?columns=job,gpus,lost,useful&", last);
    assert_eq!((&jobs["rows"], &jobs["at"]), (&1.into(), &last.into()), "{jobs}");
    let cell = |column: usize| &jobs["columns"][column]["cells"]["numbers"]["values"][0];
    assert_eq!((cell(1), cell(2), cell(3)), (&8.0.into(), &2.5.into(), &0.6875.into()), "{jobs}");
    let (_, nodes) = ask("nodes?", last);
    assert_eq!(nodes["nodes"][0]["node"], "gpu2", "{nodes}");
    check_stored_network(&ask, last);
    // The store sums up a span that is longer than what is in memory.
    let (_, history) = ask("history?metric=lost&span=1h&", last);
    let newest = |of: &str, points: usize| {
        let all = history[of].as_array().unwrap();
        all[all.len() - points..].to_vec()
    };
    assert_eq!(
        (&history["step_ms"], history["mean"].as_array().map(Vec::len)),
        (&15_000.into(), Some(240))
    );
    assert_eq!(newest("mean", 4), [Value::Null, 0.5.into(), 0.5.into(), 2.5.into()], "{history}");
    let of_gpu = "history?metric=power&filter=node%3Dgpu2%20and%20gpu%3D0&points=60&span=1h&";
    let (_, history) = ask(of_gpu, last);
    let newest = ["mean", "low", "high"].map(|of| history[of].as_array().unwrap().last().cloned());
    assert_eq!(newest, [410.0, 400.0, 420.0].map(|watts| Some(watts.into())), "{history}");
    let (status, refused) = ask("history?metric=power&span=1h&", last);
    let said = refused["message"].as_str().unwrap_or_default();
    assert!(status == 400 && said.contains("is of one device"), "{status} {refused}");
    // What verdicts do not hold, and times without them, are refused with the reason.
    for (path, at, why) in [
        ("nodes/gpu2?", last, "set prometheus.url"),
        ("fabric?filter=load%3E0.5&", last, "network without a filter"),
        ("overview?", last - 86_400_000, "no verdicts of the 5 minutes before"),
    ] {
        let (status, refused) = ask(path, at);
        let said = refused["message"].as_str().unwrap_or_default().to_lowercase();
        assert!(status == 400 && said.contains(why), "{status} {refused}");
    }
    drop(server);
    let (status, refused) = ask("overview?", last - 15_000);
    let said = refused["message"].as_str().unwrap_or_default();
    assert!(status == 400 && said.contains("the store cannot be read"), "{status} {refused}");
    assert_eq!(get(&gaunt, "/api/gaunt/v1/overview").unwrap().0, 200);
}

#[test]
fn verdicts_of_a_store_answer_about_its_past() {
    let mut samples = stored_verdicts();
    samples.extend(stored_usage());
    check_stored_verdicts(start_prometheus(&samples));
    check_stored_verdicts(start_victoria_metrics(&samples));
}
