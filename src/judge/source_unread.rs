//! Unread target sources: while a source cannot be read, its targets are not monitored and would go unnoticed.

use gaunt_schema::{Entity, Finding, FindingKind, SanitizedText, Severity, TargetSource};

use super::{
    EvidenceRow, JudgeState,
    finding_lifecycle::DetectorOutcome,
    pending_finding::{CERTAIN, format_count, format_time_of_day},
};
use gaunt_cluster::Cluster;

/// The maximum of sources with a finding each.
const MAX_SOURCES: usize = 64;

/// Adds the sources that cannot be read: at once if one never listed a target, else when the failure lasts.
pub(super) fn detect_unread_sources(
    judge: &JudgeState,
    cluster: &Cluster,
    outcome: &mut DetectorOutcome,
) {
    let findings =
        cluster.target_sources().iter().filter_map(|source| source_finding(judge, cluster, source));
    outcome.findings.extend(findings.take(MAX_SOURCES));
}

fn source_finding(judge: &JudgeState, cluster: &Cluster, source: &TargetSource) -> Option<Finding> {
    let (since, limit) = (source.failed_since?, judge.limits.source_unread_seconds);
    let seconds = cluster.now().duration_since(since).as_secs_f64();
    if source.taken.is_some() && seconds < limit {
        return None;
    }
    let entity = Entity::new_source(&source.name);
    let still_scraped = match source.targets {
        0 => "none of its targets is scraped".to_owned(),
        count => {
            format!("its last {} are still scraped", format_count(count as usize, "target"))
        }
    };
    let why = source.trouble.as_ref().map_or("", SanitizedText::as_str);
    Some(Finding {
        summary: format!(
            "Target source {} is unreadable since {}: {still_scraped}.",
            source.name,
            format_time_of_day(since)
        ),
        since,
        confidence: CERTAIN,
        next: "Check that the source exists, that gaunt has permission to read it, and that it lists targets."
            .to_owned(),
        evidence: vec![
            EvidenceRow::SourceUnread.to_evidence(Some(seconds), Some(limit))
                .with_note(why),
        ],
        ..Finding::new(FindingKind::TargetDown, Severity::Warning, entity)
    })
}

#[cfg(test)]
mod tests {
    use gaunt_schema::{Delivery, UnixMs};

    use super::*;
    use crate::{Judge, Thresholds};

    fn target_source(targets: u32, taken: Option<i64>, failed_since: Option<i64>) -> TargetSource {
        TargetSource {
            name: "/etc/gaunt/targets.json".into(),
            targets,
            taken: taken.map(UnixMs),
            trouble: failed_since.map(|_| "cannot read it: no such file".into()),
            failed_since: failed_since.map(UnixMs),
            load: None,
        }
    }

    /// The findings at each of these seconds.
    fn findings_by_second(
        sources: &[(i64, TargetSource)],
        seconds: std::ops::Range<i64>,
    ) -> Vec<(i64, String)> {
        let mut cluster = Cluster::new(std::time::Duration::from_secs(1), 60);
        let mut judge = Judge::new(Thresholds::default());
        let mut found = Vec::new();
        for second in seconds {
            let now = UnixMs(second * 1_000);
            for (_, source) in sources.iter().filter(|(at, _)| *at == second) {
                cluster.ingest_delivery(Delivery::Sources(vec![source.clone()]));
            }
            cluster.advance_to(now);
            judge.evaluate_cluster(&cluster);
            let open = judge.open_findings();
            found.extend(open.iter().map(|finding| (second, finding.summary.clone())));
        }
        found
    }

    #[test]
    fn source_that_never_listed_a_target_is_a_finding_at_once() {
        let found = findings_by_second(&[(0, target_source(0, None, Some(0)))], 0..3);
        let summary = "Target source /etc/gaunt/targets.json is unreadable since 00:00:00Z: none of its targets is scraped.";
        assert_eq!(found.first(), Some(&(0, summary.to_owned())));
        assert_eq!(found.len(), 3);
    }

    #[test]
    fn source_that_fails_later_is_a_finding_when_that_lasts() {
        let found = findings_by_second(
            &[(0, target_source(3, Some(0), None)), (10, target_source(3, Some(0), Some(10_000)))],
            0..100,
        );
        let (first, summary) = found.first().unwrap();
        assert_eq!(*first, 70, "a minute after it failed");
        assert!(summary.ends_with("its last 3 targets are still scraped."), "{summary}");
        assert_eq!(found.len(), 30);
        let short = findings_by_second(
            &[
                (0, target_source(3, Some(0), None)),
                (10, target_source(3, Some(0), Some(10_000))),
                (40, target_source(3, Some(40_000), None)),
            ],
            0..200,
        );
        assert_eq!(short, [], "it was read again within the minute");
    }
}
