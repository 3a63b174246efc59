//! Sample answers for tests, of this crate and of others (feature `samples`).

use gaunt_schema::{
    DeviceClass, Dialect, Entity, EntityKind, FindingKind, SanitizedText, Severity, UnixMs,
};

use crate::{
    CoverageCheck, CoverageKind, CoverageState, Finding, OriginCount, RenewalGroup,
    TelemetryCoverage,
};

/// A job that holds eight idle GPUs.
pub fn idle_finding(number: usize) -> Finding {
    let job = SanitizedText::new(&number.to_string());
    let entity = Entity { job: Some(job), ..Entity::new(EntityKind::Job) };
    let finding = Finding {
        since: UnixMs(1_000 * number as i64),
        confidence: 0.6,
        summary: format!("job {number} holds 8 GPUs and does nothing with them"),
        next: "ask its user".into(),
        ..Finding::new(FindingKind::IdleAllocated, Severity::Info, entity)
    };
    finding.with_lost_gpus(8.0)
}

/// The coverage of a fleet of 32 nodes with dcgm-exporter and node_exporter: three lack host metrics.
pub fn telemetry_coverage() -> TelemetryCoverage {
    TelemetryCoverage {
        at: UnixMs(1_700_000_000_000),
        nodes: 34,
        gpu_nodes: 32,
        gpus: 256,
        period_ms: 1_000,
        checks: node_checks().into_iter().chain([rail_check()]).collect(),
        intervals: vec![
            renewal_group(Dialect::Dcgm, DeviceClass::Gpu, 32, Some((30.0, 30.0))),
            renewal_group(Dialect::NodeExporter, DeviceClass::Node, 29, Some((1.0, 14.0))),
            renewal_group(Dialect::NodeExporter, DeviceClass::Port, 29, Some((1.0, 8.0))),
            renewal_group(Dialect::NodeExporter, DeviceClass::Node, 2, None),
        ],
        intervals_total: 4,
        inferred_seconds: Some(8.0),
        reported_seconds: 2.0,
    }
}

fn renewal_group(
    dialect: Dialect,
    class: DeviceClass,
    nodes: u32,
    seconds: Option<(f64, f64)>,
) -> RenewalGroup {
    let (renewal_seconds, inferred_seconds) = seconds.unzip();
    RenewalGroup { dialect, class, nodes, renewal_seconds, inferred_seconds }
}

fn coverage_check(
    kind: CoverageKind,
    (known, total): (u32, u32),
    summary: &str,
    next: &str,
    missing: &[&str],
) -> CoverageCheck {
    CoverageCheck {
        kind,
        state: if known == total { CoverageState::Ok } else { CoverageState::Missing },
        known,
        total,
        summary: SanitizedText::new(summary),
        next: SanitizedText::new(next),
        missing_total: missing.len() as u32,
        missing: missing.iter().map(|name| (*name).into()).collect(),
        origins: Vec::new(),
    }
}

fn node_checks() -> Vec<CoverageCheck> {
    const SAME_NAME: &str =
        "Give both targets of a machine the same node name (NODE=ADDRESS, or the label `node`).";
    let mut hosts = coverage_check(
        CoverageKind::GpuMetrics,
        (29, 31),
        "2 of 31 nodes with host metrics have no GPU metrics: GPUs on them, if any, are not watched",
        "Run dcgm-exporter or gaunt-node on those that have GPUs.",
        &["login1", "login2"],
    );
    hosts.state = CoverageState::Note;
    vec![
        coverage_check(CoverageKind::Targets, (64, 64), "all 64 targets are read", "", &[]),
        coverage_check(
            CoverageKind::HostMetrics,
            (29, 32),
            "3 of 32 nodes with GPUs have no host metrics: CPU, memory and IO of the host are unknown",
            "Run node_exporter or gaunt-node there, or give both targets of a machine the same node \
             name (NODE=ADDRESS, or the label `node`).",
            &["gpu001", "gpu002", "gpu017"],
        ),
        hosts,
        coverage_check(
            CoverageKind::JoinedNodes,
            (31, 32),
            "1 of 32 nodes with GPUs may have its host metrics on another node: name or address match, \
             but not clearly enough to join them",
            SAME_NAME,
            &["gpu017 (GPUs) + gpu017.hpc.example (host metrics)"],
        ),
    ]
}

fn rail_check() -> CoverageCheck {
    let mut rails = coverage_check(
        CoverageKind::Rails,
        (192, 256),
        "64 of 256 active RDMA ports have no known rail: ports with equal device numbers count as \
         one rail",
        "Add a topology file to `topology.files` in the settings, like config/topology.toml or the \
         output of ibnetdiscover.",
        &["gpu001", "gpu002", "gpu003"],
    );
    rails.missing_total = 8;
    rails.origins = vec![OriginCount { origin: "declared topology.toml".into(), count: 192 }];
    rails
}
