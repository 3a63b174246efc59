//! gaunt's own lateness: targets that it did not come to read say nothing, and are nobody's fault but its own.

use gaunt_schema::{Entity, EntityKind, FindingKind, UnixMs, unit::Unit};

use super::{
    Judge,
    finding::{Evidence, Suspicion, count},
    life::Seen,
    target_down::down,
};
use crate::cluster::{Cluster, Scraped};

/// Adds gaunt itself if it reads targets too late.
pub(super) fn find(judge: &Judge, cluster: &Cluster, seen: &mut Seen) {
    if !is_late(judge, cluster) {
        return;
    }
    let targets = not_read(judge, cluster);
    let all = cluster.targets().len();
    let since = down(judge, cluster).filter(|target| target.is_missed());
    let since: Option<UnixMs> = since.filter_map(|target| target.down_since).min();
    let limit = Some(judge.limits.untried_targets);
    let suspicion =
        Suspicion::of(FindingKind::AggregatorLate, Entity::new(EntityKind::Aggregator), 1, true)
            .says(
                format!(
                    "gaunt itself is late: {} of {all} not read in time, and nothing is said of their nodes.",
                    count(targets, "target"),
                ),
                "Give gaunt more CPU, a longer period, or fewer targets.".to_owned(),
            )
            .on([Evidence::new(
                "targets that gaunt did not come to read",
                Some(targets as f64),
                Unit::Count,
                limit,
            )]);
    let mut finding = suspicion.finding;
    finding.confidence = judge.limits.sure_of_own_ratio;
    finding.since = since.unwrap_or_else(|| cluster.now());
    seen.findings.push(finding);
}

/// Whether gaunt did not come to read several targets at once. A single one that nobody tried may be stuck.
pub(super) fn is_late(judge: &Judge, cluster: &Cluster) -> bool {
    not_read(judge, cluster) as f64 >= judge.limits.untried_targets.max(1.0)
}

/// Targets that were not read, or not given their time, as often as others would have to fail.
fn not_read(judge: &Judge, cluster: &Cluster) -> usize {
    let least = judge.limits.target_failures.max(1);
    let unjudged = |target: &&Scraped| target.unjudged >= least && !target.is_missed();
    let unjudged = cluster.targets().iter().filter(unjudged).count();
    unjudged + down(judge, cluster).filter(|target| target.is_missed()).count()
}
