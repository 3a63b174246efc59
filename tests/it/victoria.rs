//! The shipped configuration in VictoriaMetrics' programs: vmagent reads the inventory, vmalert the rules.

use std::{fs, path::Path, process::Command};

use crate::{
    oncall::{Machine, shipped, webhook},
    prometheus::query,
    running::{Ends, Running, debian, free_port, get, until},
};

/// The shipped file or folder of this name.
fn path(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("config/prometheus").join(name).display().to_string()
}

/// Runs a program of VictoriaMetrics, which says everything on standard error, to its end.
fn checked(command: &mut Command) {
    let output = command.ended();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn what_is_shipped_is_understood() {
    let mut vmagent = debian("vmagent");
    vmagent.args([
        "-dryRun",
        "-promscrape.config.strictParse",
        "-remoteWrite.url=http://127.0.0.1:1/",
    ]);
    checked(vmagent.arg(format!("-promscrape.config={}", path("vmagent.yml"))));
    for pack in ["gaunt", "dcgm"] {
        let rules = format!("-rule={}/*.yml", path(&format!("rules/{pack}")));
        checked(debian("vmalert").args(["-dryRun", &rules]));
    }
}

#[test]
fn a_port_that_goes_down_is_alerted_through_victoriametrics() {
    let machine = Machine::start("gpu003");
    let aggregator = Running::aggregator(&["--targets", &format!("gpu003={}", machine.address)]);
    let gaunt = aggregator.address();
    until("the node is named", || {
        get(&gaunt, "/sd/http").filter(|(_, body)| body.contains(&machine.address))
    });

    let folder = tempfile::tempdir().unwrap();
    let store = format!("127.0.0.1:{}", free_port());
    let _store = Running::start(
        debian("victoria-metrics")
            .arg(format!("-storageDataPath={}", folder.path().join("data").display()))
            .arg(format!("-httpListenAddr={store}"))
            .arg("-search.latencyOffset=0s"),
    );
    until("the store", || get(&store, "/health").filter(|(status, _)| *status == 200));

    let config = folder.path().join("vmagent.yml");
    let text = shipped("config/prometheus/vmagent.yml")
        .replace("127.0.0.1:9771", &gaunt)
        .replace("scrape_interval: 15s", "scrape_interval: 1s");
    fs::write(&config, text).unwrap();
    let _agent = Running::start(
        debian("vmagent")
            .arg(format!("-promscrape.config={}", config.display()))
            .arg(format!("-remoteWrite.url=http://{store}/api/v1/write"))
            .arg(format!("-remoteWrite.tmpDataPath={}", folder.path().join("queue").display()))
            .arg("-promscrape.httpSDCheckInterval=1s")
            .arg("-remoteWrite.flushInterval=1s")
            .arg(format!("-httpListenAddr=127.0.0.1:{}", free_port())),
    );
    until("both jobs are scraped", || (query(&store, "up == 1").len() == 2).then_some(()));
    let node = until("the node's own page", || query(&store, "gaunt_port_state_id == 4").pop());
    assert_eq!((&*node.0["node"], &*node.0["job"]), ("gpu003", "gaunt-node"));

    let rules = folder.path().join("findings.yml");
    fs::write(&rules, shipped("config/prometheus/rules/gaunt/findings.yml")).unwrap();
    let (hook, posted) = webhook();
    let _alerts = Running::start(
        debian("vmalert")
            .arg(format!("-rule={}", rules.display()))
            .arg(format!("-datasource.url=http://{store}"))
            // What rules record is read by other rules.
            .arg(format!("-remoteWrite.url=http://{store}"))
            .arg("-remoteWrite.flushInterval=1s")
            .arg(format!("-notifier.url=http://{hook}"))
            .arg("-evaluationInterval=1s")
            .arg(format!("-httpListenAddr=127.0.0.1:{}", free_port())),
    );
    machine.link(1, false);
    let (path, alerts) = posted.recv_timeout(std::time::Duration::from_mins(2)).unwrap();
    assert_eq!(path, "/api/v2/alerts");
    let labels = &alerts[0]["labels"];
    assert_eq!(labels["alertname"], "GauntPortDown", "{alerts}");
    // Nobody uses the port, which wakes nobody.
    for (name, value) in [("node", "gpu003"), ("device", "mlx5_1"), ("severity", "warning")] {
        assert_eq!(labels[name], value, "{alerts}");
    }
}
