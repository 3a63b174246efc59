//! Tests of leaf switches most of whose links have errors.

use gaunt_schema::{Device, Report, Severity, catalogue::port};

use super::{super::telemetry_tests::push_reading, fixture, page_of_ports};

/// The page of a node whose ports have had this many symbol errors, and have recovered a tenth as often.
fn page_of_errors(node: usize, errors: [f64; 2]) -> Report {
    let mut page = page_of_ports(node, &[]);
    for (name, errors) in ["mlx5_0", "mlx5_1"].into_iter().zip(errors) {
        for (metric, value) in
            [(port::SYMBOL_ERRORS, errors), (port::LINK_ERROR_RECOVERY, (errors / 10.0).floor())]
        {
            push_reading(&mut page, Device::new_port(name, "1"), metric, value);
        }
    }
    page
}

/// What is told after two minutes if the ports of a node have this many errors per second from the first minute on.
fn told(are_known: bool, rates: fn(usize) -> [f64; 2]) -> Vec<(String, Severity)> {
    let mut fixture = fixture(are_known);
    fixture.run(120, |second, node| {
        page_of_errors(node, rates(node).map(|rate| rate * (second - 60).max(0) as f64))
    });
    let open = fixture.judge.open_findings().into_iter();
    open.map(|finding| (finding.id.clone(), finding.severity)).collect()
}

#[test]
fn links_with_errors_below_one_leaf_are_one_finding_about_it() {
    // One port of eight has none; those below the other leaf have none either.
    let most = |node: usize| [f64::from(node < 3) * 4.0, f64::from(node < 4) * 2.0];
    assert_eq!(told(true, most), [("link_errors/s0".to_owned(), Severity::Critical)]);
}

#[test]
fn few_links_with_errors_or_those_of_one_node_are_told_for_themselves() {
    let ids = |told: Vec<(String, Severity)>| -> Vec<String> {
        told.into_iter().map(|(id, _)| id).filter(|id| id.starts_with("link_errors")).collect()
    };
    let few = |node: usize| [f64::from(node < 3) * 4.0, 0.0];
    let of_ports =
        ["gpu000", "gpu001", "gpu002"].map(|node| format!("link_errors/{node}/mlx5_0/1"));
    assert_eq!(ids(told(true, few)), of_ports, "three of eight");
    let of_all = |node: usize| [4.0, 2.0].map(|rate| rate * f64::from(node < 4));
    assert_eq!(ids(told(false, of_all)).len(), 8, "which leaf they share is not known");
}
