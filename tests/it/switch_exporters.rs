//! Switch metrics: switch exporters' series appear port by port, with rates.

#![expect(clippy::unwrap_used, reason = "what fails in here fails the test that called it")]

use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpListener,
    path::Path,
    thread,
    time::Instant,
};

use serde_json::Value;

use crate::test_process::{TestProcess, get, wait_for};

/// Growth of every byte counter, in bytes per second.
const GROWTH: f64 = 1e9;

/// Serves a page whose byte counters grow.
fn serve_fixture(fixture: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/scrapes").join(fixture);
    let page = fs::read_to_string(path).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let start = Instant::now();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let (mut head, mut byte) = (Vec::new(), [0]);
            while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|n| n == 1) {
                head.push(byte[0]);
            }
            let growth = start.elapsed().as_secs_f64() * GROWTH;
            let grow_counter = |line: &str| match line.rsplit_once(' ') {
                Some((series, value))
                    if !series.starts_with('#')
                        && (series.contains("bytes_total") || series.contains("Octets")) =>
                {
                    format!("{series} {}\n", (value.parse::<f64>().unwrap() + growth).floor())
                }
                _ => format!("{line}\n"),
            };
            let body: String = page.lines().map(grow_counter).collect();
            // The other side may have gone.
            _ = write!(
                stream,
                "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            );
        }
    });
    address
}

/// The switch ports that a node's exporter reports, once they have rates.
fn wait_for_ports(aggregator: &str, node: &str) -> Vec<Value> {
    wait_for("ports with rates", || {
        let (status, body) = get(aggregator, &format!("/api/gaunt/v1/nodes/{node}"))?;
        let answer: Value = (status == 200).then(|| serde_json::from_str(&body).unwrap())?;
        let devices = answer["devices"].as_array().unwrap().clone();
        let rate =
            |port: &Value| port["rates"]["gaunt_switch_port_receive_bytes_total"].is_number();
        devices.iter().any(rate).then_some(devices)
    })
}

#[test]
fn switch_ports_have_rates_and_a_peer() {
    let (fabric, leaf) =
        (serve_fixture("infiniband_exporter.prom"), serve_fixture("snmp_exporter.prom"));
    let targets = format!("fabric={fabric},leaf7={leaf}");
    let aggregator = TestProcess::start_aggregator(&["--targets", &targets]);
    let address = aggregator.served_address();
    let infiniband = wait_for_ports(&address, "fabric");
    assert_eq!(infiniband.len(), 3, "{infiniband:#?}");
    let port = infiniband.iter().find(|port| port["labels"]["port"] == "10").unwrap();
    assert_eq!(port["class"], "switch_port");
    assert_eq!(port["labels"]["switch"], "ib-i1l1s01");
    assert_eq!(port["info"]["gaunt_switch_port_info"]["peer"], "o0001");
    assert_eq!(port["info"]["gaunt_switch_port_info"]["peer_device"], "mlx5_0");
    let rate = port["rates"]["gaunt_switch_port_receive_bytes_total"].as_f64().unwrap();
    assert!((rate / GROWTH - 1.0).abs() < 0.5, "{rate}");
    // Counters saturate at 255 with eight bits and at the maximum of 32 bits.
    for metric in ["link_downed", "transmit_wait"] {
        let value = &port["values"][format!("gaunt_switch_port_{metric}_total")];
        assert_eq!(value["absent"], "saturated", "{metric}: {value}");
    }
    let ethernet = wait_for_ports(&address, "leaf7");
    let swp1 = ethernet.iter().find(|port| port["labels"]["port"] == "swp1").unwrap();
    assert_eq!(swp1["labels"]["switch"], "leaf7", "the page does not say which switch it is of");
    assert_eq!(swp1["values"]["gaunt_switch_port_rate_bytes_per_second"], 5e10);
    assert_eq!(swp1["info"]["gaunt_switch_port_info"]["description"], "gpu007 rail 0");
    let swp2 = ethernet.iter().find(|port| port["labels"]["port"] == "swp2").unwrap();
    assert_eq!(swp2["values"]["gaunt_switch_port_up"], 0.0);
}
