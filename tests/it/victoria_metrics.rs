//! The shipped configuration in VictoriaMetrics' programs: vmagent loads the inventory, vmalert the rules.

use std::{
    fs,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use crate::{
    alerting_end_to_end::{FourPortNode, read_shipped, serve_webhook},
    prometheus_scrape::query_instant,
    test_process::{
        NO_LATENCY, RunToEnd, TestProcess, debian_program, free_port, get, start_victoria, wait_for,
    },
};

/// Time limit for what takes ten seconds on an idle machine.
const TIME_LIMIT: Duration = Duration::from_mins(2);

/// The shipped file or folder of this name.
fn shipped_path(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("config/prometheus").join(name).display().to_string()
}

/// Runs a VictoriaMetrics program, which logs to standard error, to completion.
fn run_checked(command: &mut Command) {
    let output = command.run_to_end();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn shipped_configuration_is_valid_for_victoriametrics() {
    let mut vmagent = debian_program("vmagent");
    vmagent.args([
        "-dryRun",
        "-promscrape.config.strictParse",
        "-remoteWrite.url=http://127.0.0.1:1/",
    ]);
    run_checked(vmagent.arg(format!("-promscrape.config={}", shipped_path("vmagent.yml"))));
    for pack in ["gaunt", "dcgm"] {
        let rules = format!("-rule={}/*.yml", shipped_path(&format!("rules/{pack}")));
        run_checked(debian_program("vmalert").args(["-dryRun", &rules]));
    }
}

/// Makes new series visible at once. VictoriaMetrics caches which series a filter matches, even if there are none, and
/// drops that cache every 10 s, and when series are deleted. These are vmagent's own, which it writes anew each second.
pub(crate) fn drop_filter_cache(store: &str) {
    _ = get(store, "/api/v1/admin/tsdb/delete_series?match[]=scrape_series_added");
}

#[test]
fn port_down_alert_is_sent_through_victoriametrics() {
    let machine = FourPortNode::start_node("gpu003");
    let aggregator =
        TestProcess::start_aggregator(&["--targets", &format!("gpu003={}", machine.address)]);
    let gaunt = aggregator.served_address();
    wait_for("the node is named", || {
        get(&gaunt, "/sd/http").filter(|(_, body)| body.contains(&machine.address))
    });

    let folder = tempfile::tempdir().unwrap();
    let store = format!("127.0.0.1:{}", free_port());
    let _store = start_victoria(folder.path(), &store, &[NO_LATENCY]);

    let config = folder.path().join("vmagent.yml");
    let text = read_shipped("config/prometheus/vmagent.yml")
        .replace("127.0.0.1:9771", &gaunt)
        .replace("scrape_interval: 15s", "scrape_interval: 1s");
    fs::write(&config, text).unwrap();
    let _agent = TestProcess::start_command(
        debian_program("vmagent")
            .arg(format!("-promscrape.config={}", config.display()))
            .arg(format!("-remoteWrite.url=http://{store}/api/v1/write"))
            .arg(format!("-remoteWrite.tmpDataPath={}", folder.path().join("queue").display()))
            .arg("-promscrape.httpSDCheckInterval=1s")
            .arg("-remoteWrite.flushInterval=1s")
            .arg(format!("-httpListenAddr=127.0.0.1:{}", free_port())),
    );
    wait_for("both jobs are scraped", || {
        drop_filter_cache(&store);
        (query_instant(&store, "up == 1").len() == 2).then_some(())
    });
    let node = wait_for("the node's own page", || {
        drop_filter_cache(&store);
        query_instant(&store, "gaunt_port_state_id == 4").pop()
    });
    assert_eq!((&*node.0["node"], &*node.0["job"]), ("gpu003", "gaunt-node"));

    let rules = folder.path().join("findings.yml");
    fs::write(&rules, read_shipped("config/prometheus/rules/gaunt/findings.yml")).unwrap();
    let (hook, posted) = serve_webhook();
    let _alerts = TestProcess::start_command(
        debian_program("vmalert")
            .arg(format!("-rule={}", rules.display()))
            .arg(format!("-datasource.url=http://{store}"))
            // Recorded series are read by other rules.
            .arg(format!("-remoteWrite.url=http://{store}"))
            .arg("-remoteWrite.flushInterval=1s")
            .arg(format!("-notifier.url=http://{hook}"))
            .arg("-evaluationInterval=1s")
            .arg(format!("-httpListenAddr=127.0.0.1:{}", free_port())),
    );
    machine.set_link(1, false);
    let end = Instant::now() + TIME_LIMIT;
    let (path, alerts) = loop {
        drop_filter_cache(&store);
        if let Ok(post) = posted.recv_timeout(Duration::from_millis(200)) {
            break post;
        }
        assert!(Instant::now() < end, "no alert within {TIME_LIMIT:?}");
    };
    assert_eq!(path, "/api/v2/alerts");
    let labels = &alerts[0]["labels"];
    assert_eq!(labels["alertname"], "GauntPortDown", "{alerts}");
    // No job uses the port, so it does not page.
    for (name, value) in [("node", "gpu003"), ("device", "mlx5_1"), ("severity", "warning")] {
        assert_eq!(labels[name], value, "{alerts}");
    }
}
