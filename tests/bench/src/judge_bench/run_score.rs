//! Score of one run: which faults were found, which entities were blamed, and which findings were false.
//!
//! A *flag* is a finding that is a warning or worse. It answers a fault if it is of an accepted kind, opens between the
//! fault's onset and its limit, and concerns the fault: it blames an accepted entity, a node that the fault affects, or
//! names such a node among its victims. The first such flag is the answer, in the judge's own order within one tick;
//! the entity that it blames is the judge's first choice. Every other flag is false, unless it blames an accepted
//! entity while the fault lasts, or reports a consequence of the fault.

use std::{collections::BTreeSet, time::Duration};

use gaunt::command::judge_command::FindingEpisode;
use gaunt_api::Finding;
use gaunt_schema::{Entity, EntityKind, FindingKind, SanitizedText, Severity, UnixMs};
use gaunt_sim::GroundTruth;

/// Kinds that cost money or time and never page: an info finding answers them.
const QUIET: [FindingKind; 3] =
    [FindingKind::IdleAllocated, FindingKind::StageImbalance, FindingKind::DataSkew];

/// Kinds about gaunt's own telemetry: a warning of theirs, where pages really stop, is not a false accusation.
const OWN_TELEMETRY: [FindingKind; 3] =
    [FindingKind::TargetDown, FindingKind::DriverHung, FindingKind::DataStale];

/// What the judge can know, and its time limits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScoreTerms {
    /// Whether the pages report the job of each GPU; without it a judge cannot name a job.
    pub(crate) labels: bool,
    /// Added to every limit to account for slow scrapes.
    pub(crate) grace: Duration,
}

/// The answer to one fault.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FaultAnswer {
    /// The fault's kind.
    pub(crate) kind: FindingKind,
    /// Its time limit for detection.
    pub(crate) limit: Duration,
    /// The first right flag, in time or late; none if there was none.
    pub(crate) flag: Option<AnsweringFlag>,
    /// The kind for which the right entity was blamed instead, if there was no right finding in time.
    pub(crate) misnamed: Option<FindingKind>,
}

/// The flag that answers a fault.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct AnsweringFlag {
    /// Time from onset to flag.
    pub(crate) delay: Duration,
    /// Whether it blames an accepted entity.
    pub(crate) is_blame_right: bool,
    /// The kind of the finding.
    pub(crate) kind: FindingKind,
}

impl FaultAnswer {
    /// The answer, if it came in time.
    pub(crate) fn in_time(&self) -> Option<AnsweringFlag> {
        self.flag.filter(|found| found.delay <= self.limit)
    }
}

/// The score of one run.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct RunScore {
    /// Each fault with its answer.
    pub(crate) answers: Vec<FaultAnswer>,
    /// Kinds of the false flags: each kind on each entity once.
    pub(crate) false_flags: Vec<FindingKind>,
    /// False critical flags, counted for each opening: each pages someone.
    pub(crate) false_pages: u32,
}

/// Scores the findings of a run.
pub(crate) fn score_run(
    truths: &[GroundTruth],
    episodes: &[FindingEpisode],
    terms: ScoreTerms,
) -> RunScore {
    let faults: Vec<ScoredFault<'_>> =
        truths.iter().map(|truth| ScoredFault { truth, terms }).collect();
    let mut order: Vec<&FindingEpisode> = episodes.iter().collect();
    order.sort_by_key(|episode| (episode.opened, episode.rank));
    let mut used = BTreeSet::new();
    let mut score = RunScore::default();
    for fault in &faults {
        let mut candidates: Vec<_> = order
            .iter()
            .enumerate()
            .filter_map(|(index, episode)| Some((fault.answered_at(episode)?, index)))
            .filter(|(_, index)| {
                !used.contains(index) && !is_of_another(&faults, fault, order[*index])
            })
            .collect();
        candidates.sort_by_key(|(when, index)| (*when, order[*index].rank));
        let found = candidates.first().map(|(when, index)| {
            used.insert(*index);
            let finding = &order[*index].finding;
            let is_blame_right = fault.accepts_entity(&finding.entity, &finding.victims);
            AnsweringFlag {
                delay: when.duration_since(fault.truth.onset),
                is_blame_right,
                kind: finding.kind,
            }
        });
        let limit = fault.detection_limit();
        let late = found.is_none_or(|found| found.delay > limit);
        let misnamed = order.iter().find(|episode| fault.is_misnamed_by(episode));
        let misnamed = misnamed.filter(|_| late).map(|episode| episode.finding.kind);
        score.answers.push(FaultAnswer { kind: fault.truth.kind, limit, flag: found, misnamed });
    }
    let mut false_flags = BTreeSet::new();
    for (index, episode) in order.iter().enumerate() {
        let is_answer = used.contains(&index);
        if is_answer || faults.iter().any(|fault| fault.is_about(episode)) {
            continue;
        }
        let Some(_) = flagged_at(episode) else { continue };
        score.false_pages += u32::from(episode.paged.is_some());
        if false_flags.insert((episode.finding.kind, &episode.finding.entity)) {
            score.false_flags.push(episode.finding.kind);
        }
    }
    score
}

/// Whether blaming this entity is right for a fault, where the pages name every job.
pub(crate) fn accepts_entity(truth: &GroundTruth, entity: &Entity, victims: &[Entity]) -> bool {
    let terms = ScoreTerms { labels: true, grace: Duration::ZERO };
    ScoredFault { truth, terms }.accepts_entity(entity, victims)
}

/// Whether a finding during a fault is about it, or about its consequences.
pub(crate) fn is_about(truth: &GroundTruth, finding: &Finding) -> bool {
    let follows = |(kind, entity): &(FindingKind, Entity)| {
        *kind == finding.kind && is_same_entity(entity, &finding.entity)
    };
    accepts_entity(truth, &finding.entity, &finding.victims) || truth.follows.iter().any(follows)
}

/// Whether a flag blames the entity of another fault of the run, and not of this one.
fn is_of_another(
    faults: &[ScoredFault<'_>],
    fault: &ScoredFault<'_>,
    episode: &FindingEpisode,
) -> bool {
    let others = faults.iter().filter(|other| !std::ptr::eq(*other, fault));
    !fault.is_about(episode) && others.into_iter().any(|other| other.is_about(episode))
}

/// When a finding became a flag, if it did: what gaunt only says of its own telemetry is none.
pub(crate) fn flagged_at(episode: &FindingEpisode) -> Option<UnixMs> {
    let is_own_telemetry =
        OWN_TELEMETRY.contains(&episode.finding.kind) && episode.worst < Severity::Critical;
    episode.warned.filter(|_| !is_own_telemetry)
}

/// A fault as the scorer sees it.
struct ScoredFault<'a> {
    truth: &'a GroundTruth,
    terms: ScoreTerms,
}

impl ScoredFault<'_> {
    fn detection_limit(&self) -> Duration {
        self.truth.limit + self.terms.grace
    }

    /// Whether a flag at this instant can be about the fault: it lasts, or ended less than its limit ago.
    fn lasts_at(&self, at: UnixMs) -> bool {
        at >= self.truth.onset
            && self.truth.ends.is_none_or(|end| at <= end + self.detection_limit())
    }

    /// The instant at which an episode answers the fault, if it does.
    fn answered_at(&self, episode: &FindingEpisode) -> Option<UnixMs> {
        let finding = &episode.finding;
        let kind = finding.kind == self.truth.kind || self.truth.kinds.contains(&finding.kind);
        let quiet = QUIET.contains(&finding.kind).then_some(episode.opened);
        let when = quiet.or(episode.warned)?;
        // A finding that was open before the fault cannot be about it, even if its severity rises later.
        let is_new = episode.opened >= self.truth.onset;
        (kind && is_new && self.lasts_at(when) && self.is_touched_by(episode)).then_some(when)
    }

    /// Whether an episode during the fault blames an accepted entity, of any kind, or reports a consequence.
    fn is_about(&self, episode: &FindingEpisode) -> bool {
        let finding = &episode.finding;
        let follows = self.truth.follows.iter().any(|(kind, entity)| {
            *kind == finding.kind && self.matches_entity(entity, &finding.entity, &finding.victims)
        });
        let accepted = follows || self.accepts_entity(&finding.entity, &finding.victims);
        self.lasts_at(episode.opened) && accepted
    }

    /// Whether an accepted entity is blamed in time, but for another kind.
    fn is_misnamed_by(&self, episode: &FindingEpisode) -> bool {
        let in_time = |at: UnixMs| at.duration_since(self.truth.onset) <= self.detection_limit();
        let kind = episode.finding.kind;
        kind != self.truth.kind
            && !self.truth.kinds.contains(&kind)
            && flagged_at(episode).is_some_and(in_time)
            && self.is_about(episode)
    }

    fn is_touched_by(&self, episode: &FindingEpisode) -> bool {
        let finding = &episode.finding;
        let affected: Vec<&SanitizedText> = self.affected_nodes().collect();
        let is_affected =
            |entity: &Entity| entity.node.as_ref().is_some_and(|n| affected.contains(&n));
        self.accepts_entity(&finding.entity, &finding.victims)
            || is_affected(&finding.entity)
            || finding.victims.iter().any(is_affected)
    }

    /// Whether blaming this entity is right.
    fn accepts_entity(&self, entity: &Entity, victims: &[Entity]) -> bool {
        let accepted = std::iter::once(&self.truth.blamed).chain(&self.truth.also);
        accepted.into_iter().any(|expected| self.matches_entity(expected, entity, victims))
    }

    /// Whether the entity of a finding is this one.
    fn matches_entity(&self, expected: &Entity, entity: &Entity, victims: &[Entity]) -> bool {
        let is_unnamed =
            !self.terms.labels && is_of_job(expected.kind) && expected.kind == entity.kind;
        if is_unnamed {
            // Without job labels, a job is identified by its nodes.
            let affected: Vec<&SanitizedText> = self.affected_nodes().collect();
            return victims.iter().filter_map(|v| v.node.as_ref()).any(|n| affected.contains(&n));
        }
        is_same_entity(expected, entity)
    }

    /// The nodes that the fault affects.
    fn affected_nodes(&self) -> impl Iterator<Item = &SanitizedText> {
        let truth = self.truth;
        let entities = std::iter::once(&truth.blamed).chain(&truth.also).chain(&truth.victims);
        entities.filter_map(|entity| entity.node.as_ref())
    }
}

fn is_of_job(kind: EntityKind) -> bool {
    matches!(kind, EntityKind::Job | EntityKind::Stage)
}

/// Whether a pair, such as `2-5`, has the GPU of the other among its numbers.
fn pair_has(pair: &Entity, single: &Entity) -> bool {
    let (Some(pair), Some(single)) = (&pair.gpu, &single.gpu) else { return false };
    pair.split(|c: char| !c.is_ascii_digit()).any(|number| number == single.as_str())
}

/// Whether two entities are the same: of one type, with the same key. Additional labels, such as the leaf of a port,
/// are ignored.
fn is_same_entity(entity: &Entity, other: &Entity) -> bool {
    type EntityPart = fn(&Entity) -> Option<&SanitizedText>;
    if entity.kind == EntityKind::GpuPair {
        return entity.kind == other.kind && entity.node == other.node && pair_has(other, entity);
    }
    let parts: &[EntityPart] = match entity.kind {
        EntityKind::Gpu | EntityKind::GpuPair => &[|e| e.node.as_ref(), |e| e.gpu.as_ref()],
        EntityKind::Node | EntityKind::NvlinkDomain => &[|e| e.node.as_ref()],
        EntityKind::Port => &[|e| e.node.as_ref(), |e| e.device.as_ref(), |e| e.port.as_ref()],
        EntityKind::Leaf => &[|e| e.leaf.as_ref()],
        EntityKind::Rail => &[|e| e.rail.as_ref()],
        EntityKind::Job | EntityKind::Stage => &[|e| e.job.as_ref()],
        EntityKind::Spine
        | EntityKind::Rack
        | EntityKind::Storage
        | EntityKind::Aggregator
        | EntityKind::Source => &[],
    };
    // What a site has no name for, gaunt calls unnamed.
    let name = |part: &EntityPart, of: &Entity| {
        part(of).filter(|name| name.as_str() != "unnamed").map(ToString::to_string)
    };
    entity.kind == other.kind && parts.iter().all(|part| name(part, entity) == name(part, other))
}

#[cfg(test)]
mod tests;
