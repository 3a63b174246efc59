//! Checks of the installation on fleets in which one part of it is broken: each check names that part and what to do.

use gaunt_api::{
    AlertList, AlertServer, CoverageCheck, CoverageKind, CoverageState, PeerLine, StoreLine,
};
use gaunt_schema::{
    CertificateLine, Device, NodeLocation, SiteFileStatus, SourceTopology, TargetSource,
    TopologyOrigin,
    catalogue::{host, port},
};
use tokio::sync::watch;

use super::*;

const DAY_MS: i64 = 86_400_000;

/// The checks of four healthy nodes of which `change` breaks something.
fn checks_of(
    change_engine: impl Fn(&mut Engine),
    change_page: impl Fn(usize, &mut gaunt_schema::Report),
) -> Vec<CoverageCheck> {
    let mut run = EngineTestRun::new("healthy", 4, 1);
    change_engine(&mut run.engine);
    for _ in 0..12 {
        run.step_with(|fleet, node| {
            let (mut report, rejected) = (fleet.node_report(node), RejectionCounts::default());
            change_page(node, &mut report);
            Ok(ScrapedPage { report, dialect: Dialect::Gaunt, bytes: 0, rejected })
        });
    }
    match run.engine.answer_question(&Question::Coverage) {
        Answer::Coverage(coverage) => coverage.checks.clone(),
        other => panic!("no coverage: {other:?}"),
    }
}

/// The state, the missing names and the next step of one check.
fn of_kind(checks: &[CoverageCheck], kind: CoverageKind) -> (CoverageState, String, String) {
    let check = checks.iter().find(|check| check.kind == kind);
    let check = check.unwrap_or_else(|| panic!("{kind:?} is not among {checks:?}"));
    (check.state, check.list_missing(), check.next.to_string())
}

fn watched<T>(value: T) -> watch::Receiver<T> {
    watch::channel(value).1
}

#[test]
fn broken_servers_and_files_are_named_with_their_own_next_step() {
    let trouble = |text: &str| Some(text.into());
    let checks = checks_of(
        |engine| {
            engine.options.alerts = Some(watched(Arc::new(AlertList {
                servers: vec![AlertServer {
                    address: "http://10.0.0.9:9093".into(),
                    failure: trouble("connection refused; check alertmanager.urls"),
                    ..AlertServer::default()
                }],
                alerts: Vec::new(),
            })));
            engine.options.store = Some(watched(Some(StoreLine {
                address: "http://10.0.0.9:9090/api/v1/write".into(),
                failure: trouble("HTTP status 404; check store.url"),
                ..StoreLine::default()
            })));
            engine.options.peers = Some(watched(vec![PeerLine {
                address: "https://head2:9771".into(),
                failure: trouble("wrong token; use the same token"),
                ..PeerLine::default()
            }]));
            engine.ingest_delivery(Delivery::Sources(vec![TargetSource {
                name: "sd/gpu.json".into(),
                targets: 4,
                taken: None,
                trouble: trouble("sd/gpu.json:3: not JSON; correct it"),
                failed_since: None,
                load: None,
            }]));
            engine.ingest_delivery(Delivery::SiteFiles(vec![SiteFileStatus {
                file: "topology.conf".into(),
                trouble: trouble("topology.conf:7: unknown switch; correct the line"),
            }]));
        },
        |_, _| {},
    );
    for (kind, name, next) in [
        (CoverageKind::Alertmanagers, "http://10.0.0.9:9093", "check alertmanager.urls"),
        (CoverageKind::Store, "http://10.0.0.9:9090/api/v1/write", "check store.url"),
        (CoverageKind::Peers, "https://head2:9771", "use the same token"),
        (CoverageKind::Sources, "sd/gpu.json", "sd/gpu.json:3"),
        (CoverageKind::SiteFiles, "topology.conf", "topology.conf:7"),
    ] {
        let (state, missing, step) = of_kind(&checks, kind);
        assert_eq!((state, missing.as_str()), (CoverageState::Missing, name), "{kind:?}");
        assert!(step.contains(next), "{kind:?}: {step}");
    }
}

#[test]
fn wrong_clocks_other_versions_and_expiring_certificates_are_named() {
    let own = env!("CARGO_PKG_VERSION");
    let checks = checks_of(
        |engine| {
            let expiry = UnixMs(START.0 + 400 * DAY_MS);
            engine.options.certificates =
                Some(watched(vec![CertificateLine { file: "web.yml".into(), expiry }]));
        },
        |node, report| {
            let device = report.ensure_device(Device::new_node());
            let infos = report.infos.iter().filter(|info| info.metric != host::NODE_INFO);
            report.infos = infos.cloned().collect::<Vec<_>>().into();
            let name = report.node.clone().unwrap_or_default();
            let version = if node == 1 { "0.1.0" } else { own };
            report.add_info(device, host::NODE_INFO, &[("node", &name), ("version", version)]);
            if node == 2 {
                report.node_time = report.node_time.map(|time| UnixMs(time.0 - 90_000));
            }
            let days = if node == 3 { 3 } else { 90 };
            let expiry = UnixMs(START.0 + days * DAY_MS);
            report.push(device, host::CERTIFICATE_EXPIRY, expiry.to_seconds());
        },
    );
    let (state, missing, next) = of_kind(&checks, CoverageKind::Versions);
    assert_eq!((state, missing.as_str()), (CoverageState::Note, "gpu002 (0.1.0)"));
    assert!(next.contains("Update gaunt first"), "{next}");
    let (state, missing, next) = of_kind(&checks, CoverageKind::Clocks);
    assert_eq!((state, missing.as_str()), (CoverageState::Missing, "gpu003 (-90 s)"));
    assert!(next.contains("check NTP"), "{next}");
    let (state, missing, next) = of_kind(&checks, CoverageKind::Certificates);
    assert_eq!(state, CoverageState::Missing);
    assert_eq!(missing, "gpu004 (2d23h left)");
    assert!(next.contains("gaunt certs --renew"), "{next}");
    let certificates = checks.iter().find(|check| check.kind == CoverageKind::Certificates);
    assert_eq!(certificates.map(|check| (check.known, check.total)), Some((4, 5)));
}

#[test]
fn whole_installation_has_nothing_to_do() {
    let checks = checks_of(|_| {}, |_, _| {});
    for kind in [CoverageKind::Sources, CoverageKind::Alertmanagers, CoverageKind::Certificates] {
        assert!(!checks.iter().any(|check| check.kind == kind), "{kind:?} does not apply");
    }
    assert_eq!(of_kind(&checks, CoverageKind::Clocks).0, CoverageState::Ok);
}

/// The leaf that a scheduler states for a node is that of its ports everywhere: in the check, the ports and the fabric.
#[test]
fn leaf_of_a_node_is_that_of_its_ports_on_every_screen() {
    let mut run = EngineTestRun::new("healthy", 4, 1);
    let mut topology = SourceTopology::new("topology.conf".into(), TopologyOrigin::Scheduler);
    let location = |node| NodeLocation {
        node: run.fleet.node_name(node).into(),
        leaf: Some("s0".into()),
        ..NodeLocation::default()
    };
    topology.nodes = (0..4).map(location).collect();
    run.engine.ingest_delivery(Delivery::Topology(topology));
    for _ in 0..12 {
        run.step_with(|fleet, node| {
            let (mut report, rejected) = (fleet.node_report(node), RejectionCounts::default());
            report.infos.retain(|info| info.metric != port::INFO);
            Ok(ScrapedPage { report, dialect: Dialect::Gaunt, bytes: 0, rejected })
        });
    }
    let ports = gaunt_api::Filter::parse(Subject::Ports, "leaf=s0").unwrap();
    let Answer::Table(table) = run.engine.answer_question(&Question::Table(ports.clone())) else {
        panic!()
    };
    assert_eq!((table.matched, table.total), (32, 32));
    let Answer::Fabric(fabric) = run.engine.answer_question(&Question::Fabric(ports)) else {
        panic!()
    };
    assert_eq!(fabric.leaves, ["s0"]);
}
