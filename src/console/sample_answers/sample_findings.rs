//! Sample findings, explanations and Alertmanager states for tests of screens.

use gaunt_schema::{
    AbsenceReason, Entity, EntityKind, FindingEvent, FindingKind, SanitizedText, Severity, UnixMs,
    catalogue::{host, port},
    unit::Unit,
};

use super::AT;
use gaunt_api::{
    Acknowledgement, AlertLine, AlertList, AlertServer, AlertSilence, AlertState,
    AlternativeDetail, AlternativeOutcome, EvidenceContext, EvidenceItem, EvidenceRole,
    Explanation, Finding, FindingContext, FindingLifecycle, FleetChange, FleetChangeKind,
    HistoryAggregation, HistoryRelation, LifecycleChange, LimitDetail, LimitSide, MetricHistory,
    SignalDetail, VictimJob,
};

pub(crate) fn port_down_finding() -> Finding {
    let victims =
        (0..8).map(|n| Entity::new_gpu(&"gpu003".into(), &SanitizedText::new(&n.to_string())));
    Finding {
        id: "port_down/gpu003/mlx5_1/1".into(),
        kind: FindingKind::PortDown,
        severity: Severity::Critical,
        entity: Entity::new_port(&"gpu003".into(), &"mlx5_1".into(), &"1".into()),
        since: UnixMs(AT.0 - 370_000),
        confidence: 0.97,
        lost_gpus: 112.0,
        cost_gpu_hours_per_hour: 112.0,
        listed_lost_gpus: None,
        victims: victims.collect(),
        summary: "port mlx5_1/1 of gpu003 is down since 11:57:31Z; its 7 siblings are up".into(),
        next: "check the cable and the switch port of gpu003 mlx5_1".into(),
        evidence: port_evidence(),
        missing: vec!["switch counters".into()],
        loss_shares: Vec::new(),
        life: FindingLifecycle {
            opened: UnixMs(AT.0 - 368_000),
            seen: AT,
            openings: 1,
            changes: vec![
                LifecycleChange {
                    at: UnixMs(AT.0 - 368_000),
                    what: FindingEvent::Opened,
                    from: SanitizedText::default(),
                    to: "warning".into(),
                },
                LifecycleChange {
                    at: UnixMs(AT.0 - 340_000),
                    what: FindingEvent::Severity,
                    from: "warning".into(),
                    to: "critical".into(),
                },
            ],
            ..FindingLifecycle::default()
        },
        acknowledged: Some(Acknowledgement {
            by: "mira".into(),
            at: UnixMs(AT.0 - 120_000),
            note: "cable is on its way".into(),
            severity: Severity::Critical,
        }),
    }
}

fn port_evidence() -> Vec<EvidenceItem> {
    vec![
        EvidenceItem {
            what: "logical state".into(),
            value: Some(1.0),
            unit: Unit::Count,
            limit: Some(4.0),
            side: LimitSide::Below,
            role: EvidenceRole::Proof,
            note: "1 down, 4 active".into(),
            source: port::STATE.series_key(),
            threshold: "port_samples".into(),
            past: HistoryRelation::Same,
        },
        EvidenceItem {
            what: "active sibling ports".into(),
            value: Some(7.0),
            unit: Unit::Count,
            limit: None,
            side: LimitSide::Unknown,
            role: EvidenceRole::Context,
            note: "rules out the node".into(),
            source: port::STATE.series_key(),
            threshold: String::new(),
            past: HistoryRelation::Nothing,
        },
        EvidenceItem {
            what: "receive traffic".into(),
            value: None,
            unit: Unit::BytesPerSecond,
            limit: None,
            side: LimitSide::Unknown,
            role: EvidenceRole::Context,
            note: "no counters while the port is down".into(),
            source: port::RECEIVE_BYTES.series_key(),
            threshold: String::new(),
            past: HistoryRelation::Part,
        },
    ]
}

/// Builds the start of the job that the samples affect.
pub(crate) fn job_start() -> FleetChange {
    FleetChange {
        at: UnixMs(AT.0 - 385_000),
        kind: FleetChangeKind::JobStarted,
        job: Some("8812".into()),
        nodes: Vec::new(),
        node_count: 16,
        what: SanitizedText::default(),
    }
}

/// Builds the contexts of both findings: their job, its owner, and its start just before the port went down.
pub(crate) fn finding_contexts() -> Vec<FindingContext> {
    let job = VictimJob {
        job: "8812".into(),
        name: Some("llama-pt".into()),
        user: Some("alice".into()),
        account: Some("ml".into()),
        gpus: 8,
    };
    let context = |finding: &Finding, changes| FindingContext {
        id: finding.id.clone(),
        jobs: vec![job.clone()],
        job_count: 1,
        cost_per_hour: Some(2.5 * finding.lost_gpus),
        currency: "USD".into(),
        changes,
    };
    vec![context(&port_down_finding(), vec![job_start()]), context(&starved_finding(), Vec::new())]
}

pub(crate) fn starved_finding() -> Finding {
    let entity = Entity { job: Some("8812".into()), ..Entity::new_node(&"gpu006".into()) };
    Finding {
        id: "data_starved/gpu006".into(),
        kind: FindingKind::DataStarved,
        severity: Severity::Warning,
        entity,
        since: UnixMs(AT.0 - 40_000),
        confidence: 0.71,
        lost_gpus: 7.4,
        cost_gpu_hours_per_hour: 7.4,
        listed_lost_gpus: None,
        victims: vec![Entity { job: Some("8812".into()), ..Entity::new(EntityKind::Job) }],
        summary: "gpu006 is data-starved: all 8 allocated GPUs wait for input (IO pressure 34 %)"
            .into(),
        next: "check the data loader of job 8812 on gpu006".into(),
        evidence: vec![EvidenceItem {
            what: "IO pressure (PSI or iowait)".into(),
            value: Some(0.34),
            unit: Unit::Ratio,
            limit: Some(0.1),
            side: LimitSide::AtLeast,
            role: EvidenceRole::Proof,
            note: String::new(),
            source: host::IO_PRESSURE.series_key(),
            threshold: "io_pressure_ratio".into(),
            past: HistoryRelation::Same,
        }],
        missing: Vec::new(),
        loss_shares: Vec::new(),
        life: FindingLifecycle::default(),
        acknowledged: None,
    }
}

/// Builds the explanation of a finding.
pub(crate) fn explanation_of(finding: Finding) -> Explanation {
    let evidence = finding.evidence[0].clone();
    let signal = |what: &str, value: Option<f64>| SignalDetail {
        what: what.into(),
        source: port::RECEIVE_BYTES.series_key(),
        unit: Unit::Ratio,
        value,
        absent: value.is_none().then_some(AbsenceReason::NoPermission),
        usual: Some(0.41),
        peers: Some(0.4),
        quartiles: Some((0.38, 0.42)),
    };
    let other = |kind, ruling| AlternativeDetail { kind, ruling, number: evidence.clone() };
    Explanation {
        context: finding_contexts().into_iter().find(|context| context.id == finding.id),
        at: AT,
        finding,
        rule:
            "A port that was active, or whose siblings are, is down: its link-down counter rose, or \
               two samples show it."
                .into(),
        limits: vec![LimitDetail {
            key: "port_samples".into(),
            value: 2.0,
            why: "Consecutive samples that must show a port down.".into(),
        }],
        chain: Some(EvidenceContext {
            at: AT,
            peers: "7 sibling ports".into(),
            signals: vec![
                signal("port utilization (busier direction)", Some(0.0)),
                signal("retransmitted packets (sequence errors) per second", None),
            ],
            alternatives: vec![
                other(FindingKind::PortRateLow, AlternativeOutcome::RuledOut),
                other(FindingKind::LinkErrors, AlternativeOutcome::AlsoThere),
                other(FindingKind::LeafCongested, AlternativeOutcome::Unknown),
            ],
        }),
        earlier_count: 0,
        earlier: Vec::new(),
    }
}

/// Builds the answer of two Alertmanagers, one of which fails; the finding about the port is silenced.
pub(crate) fn alert_list() -> AlertList {
    let server = |address: &str, failure: Option<&str>| AlertServer {
        address: address.into(),
        posted: 12,
        failed: u64::from(failure.is_some()),
        failure: failure.map(SanitizedText::new),
    };
    AlertList {
        servers: vec![
            server("http://10.0.0.5:9093", None),
            server("http://10.0.0.6:9093", Some("cannot connect: connection refused")),
        ],
        alerts: vec![AlertLine {
            finding: "port_down/gpu003/mlx5_1/1".into(),
            name: "GauntPortDown".into(),
            severity: Some(Severity::Critical),
            state: AlertState::Suppressed,
            since: "1970-01-01T11:57:31.000Z".into(),
            receivers: vec!["pager".into()],
            silences: vec![AlertSilence {
                id: "7f3c".into(),
                by: "mira".into(),
                comment: "cable is on its way".into(),
                until: "1970-01-01T14:00:00.000Z".into(),
            }],
            inhibited_by: 0,
        }],
    }
}

/// Builds a history of one device with ten seconds per point.
pub(crate) fn device_history(points: &[Option<f32>]) -> MetricHistory {
    MetricHistory {
        at: AT,
        metric: "io_pressure_some".into(),
        unit: Unit::Ratio,
        devices: 1,
        together: HistoryAggregation::Mean,
        step_ms: 10_000,
        mean: points.to_vec(),
        low: Vec::new(),
        high: Vec::new(),
    }
}
