//! Screens of a time that no aggregator keeps: replayed out of a real Prometheus.

use serde_json::Value;

use crate::{
    foreign_site::START_MS,
    prometheus_past::{HALLS, SECONDS, start_prometheus},
    test_process::{TestProcess, get, wait_for},
};

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
