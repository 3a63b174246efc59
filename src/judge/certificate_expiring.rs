//! Certificates that expire soon: those of exporters, as their pages state them, and those of gaunt itself.

use std::time::Duration;

use gaunt_schema::{
    CertificateLine, Entity, EntityKind, EvidenceItem, Finding, FindingKind, Severity, UnixMs,
    catalogue::host, time::format_duration,
};

use super::{
    EvidenceRow, JudgeState, finding_lifecycle::DetectorOutcome, pending_finding::CERTAIN,
};
use gaunt_cluster::Cluster;

/// Adds nodes whose exporter has a certificate that expires soon, and gaunt itself if one of its own does.
pub(super) fn detect_expiring_certificates(
    judge: &JudgeState,
    cluster: &Cluster,
    outcome: &mut DetectorOutcome,
) {
    let limit = judge.limits.certificate_seconds;
    for (_, node) in cluster.sorted_nodes() {
        let Some(row) = node.own_row() else { continue };
        let expiry = cluster.current_value(host::CERTIFICATE_EXPIRY, row);
        let Some(expiry) = expiry.map(UnixMs::from_seconds) else { continue };
        if seconds_left(cluster, expiry) < limit {
            let what = format!("The certificate of gaunt-node on {}", node.name);
            let evidence = [expiry_evidence(judge, cluster, expiry)];
            outcome.findings.push(expiring_finding(
                (judge, cluster),
                Entity::new_node(&node.name),
                (&what, expiry),
                "Renew the certificate in its web_config, with `gaunt certs --renew` where gaunt's CA signed it; \
                 gaunt-node reads it again by itself.",
                evidence.into(),
            ));
        }
    }
    let soon = cluster.own_certificates().iter();
    let mut soon: Vec<_> = soon.filter(|line| seconds_left(cluster, line.expiry) < limit).collect();
    soon.sort_by_key(|line| line.expiry);
    let Some(first) = soon.first() else { return };
    let named = |line: &&CertificateLine| {
        expiry_evidence(judge, cluster, line.expiry).with_name(&line.file)
    };
    outcome.findings.push(expiring_finding(
        (judge, cluster),
        Entity::new(EntityKind::Aggregator),
        (&format!("gaunt's certificate {}", first.file), first.expiry),
        "Renew the certificate, with `gaunt certs --renew` where gaunt's CA signed it; gaunt reads it again by itself.",
        soon.iter().map(named).collect(),
    ));
}

/// Seconds until a certificate expires; negative afterwards.
fn seconds_left(cluster: &Cluster, expiry: UnixMs) -> f64 {
    (expiry.0 - cluster.now().0) as f64 / 1e3
}

fn expiry_evidence(judge: &JudgeState, cluster: &Cluster, expiry: UnixMs) -> EvidenceItem {
    let limit = judge.limits.certificate_seconds;
    EvidenceRow::CertificateTime.to_evidence(Some(seconds_left(cluster, expiry)), Some(limit))
}

fn expiring_finding(
    (judge, cluster): (&JudgeState, &Cluster),
    entity: Entity,
    (what, expiry): (&str, UnixMs),
    next: &str,
    evidence: Vec<EvidenceItem>,
) -> Finding {
    let (left, limit) = (seconds_left(cluster, expiry), judge.limits.certificate_seconds);
    let span = format_duration(Duration::from_secs(left.abs() as u64));
    let when =
        if left < 0.0 { format!("expired {span} ago") } else { format!("expires in {span}") };
    Finding {
        since: UnixMs(expiry.0 - (limit * 1e3) as i64).min(cluster.now()),
        confidence: CERTAIN,
        summary: format!("{what} {when}: then no client that checks certificates reads it."),
        next: next.to_owned(),
        evidence,
        ..Finding::new(FindingKind::CertificateExpiring, Severity::Warning, entity)
    }
}
