//! The causes that lost time is attributed to: the open findings that name a GPU, its node or its job. The best of them
//! is the cause; where the next best are nearly as probable, the cause is undecided and each has its share.

use std::{
    cmp::Ordering,
    collections::{BTreeMap, HashMap},
};

use gaunt_schema::{DeviceClass, Entity, EntityKind, Finding, FindingKind, LossShare, Severity};

use super::{
    JudgeState,
    finding_lifecycle::FindingRecord,
    gpu_failed::works_in_spite_of_it,
    gpu_loss::{AttributedCause, GpuLoss, UNEXPLAINED, WHOLE},
};
use gaunt_cluster::Cluster;

/// Two causes whose odds differ by this factor or less are undecided.
const UNDECIDED_ODDS_RATIO: f64 = 3.0;

/// Causes that share a loss at most.
const MAX_SHARING: usize = 3;

/// Numbers from here on are those of splits; below it, of findings: there are at most a thousand.
const SPLITS: u16 = 1 << 15;

/// An undecided cause: the findings with their shares, in ten-thousandths, whose sum is [`WHOLE`].
type Split = Vec<(u16, u16)>;

/// What the cause numbers of one step mean.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LossCauses {
    /// Findings that were open, by id and kind.
    findings: Vec<(String, FindingKind)>,
    splits: Vec<Split>,
}

impl LossCauses {
    /// Returns the kind of the finding at an index.
    pub fn finding_kind(&self, index: u16) -> Option<FindingKind> {
        self.findings.get(usize::from(index)).map(|(_, kind)| *kind)
    }

    /// Iterates the causes of a GPU's loss with the ten-thousandths of its time that each has. Their sum is exact.
    pub fn attributed_parts(&self, gpu: GpuLoss) -> impl Iterator<Item = (AttributedCause, u16)> {
        // Without parts the number of its cause means nothing, and there is nothing to split.
        let code = gpu.cause_code();
        let split = if gpu.lost_parts() > 0 { self.split(code) } else { &[] };
        let single = (gpu.lost_parts() > 0 && split.is_empty())
            .then(|| (AttributedCause::from_code(code), gpu.lost_parts()));
        let mut left = gpu.lost_parts();
        let shared = split.iter().zip(1..).map(move |((index, share), position)| {
            let part = u32::from(gpu.lost_parts()) * u32::from(*share) / u32::from(WHOLE);
            let part = if position == split.len() { left } else { part as u16 };
            left -= part;
            (AttributedCause::Finding(*index), part)
        });
        single.into_iter().chain(shared)
    }

    /// Returns the shares of an undecided cause; none where one finding is the cause, or none is.
    fn split(&self, code: u16) -> &[(u16, u16)] {
        let split = code.checked_sub(SPLITS).and_then(|at| self.splits.get(usize::from(at)));
        split.map_or(&[], Vec::as_slice)
    }

    /// Returns the number of a cause, or of an undecided one.
    fn encode(&mut self, candidates: &Candidates) -> Option<u16> {
        let best = candidates.best()?;
        let sharing = candidates.undecided();
        if sharing.len() < 2 {
            return Some(best.index);
        }
        let sum: f64 = sharing.iter().map(CauseRank::odds).sum();
        let mut left = WHOLE;
        let mut split: Split = Vec::with_capacity(sharing.len());
        for rank in &sharing {
            let share = (rank.odds() / sum * f64::from(WHOLE)).round() as u16;
            split.push((rank.index, share.min(left)));
            left -= share.min(left);
        }
        split[0].1 += left;
        let known = self.splits.iter().position(|known| *known == split);
        let at = known.unwrap_or(self.splits.len());
        if at >= usize::from(UNEXPLAINED - SPLITS) {
            return Some(best.index);
        }
        if known.is_none() {
            self.splits.push(split);
        }
        Some(SPLITS + at as u16)
    }

    /// Returns, for each finding by index and for those of an undecided cause, the shares of the loss that it explains.
    pub(super) fn undecided_shares(
        &self,
        lost_by_code: &BTreeMap<u16, u64>,
    ) -> Vec<Vec<LossShare>> {
        let mut lost = vec![BTreeMap::<u16, f64>::new(); self.findings.len()];
        for (code, parts) in lost_by_code {
            let single = [(*code, WHOLE)];
            let split = match self.split(*code) {
                [] => &single[..],
                split => split,
            };
            for (index, _) in split {
                let Some(of) = lost.get_mut(usize::from(*index)) else { continue };
                for (other, share) in split {
                    *of.entry(*other).or_default() += *parts as f64 * f64::from(*share);
                }
            }
        }
        lost.into_iter().map(|of| self.name_shares(&of)).collect()
    }

    fn name_shares(&self, lost: &BTreeMap<u16, f64>) -> Vec<LossShare> {
        if lost.len() < 2 {
            return Vec::new();
        }
        let sum: f64 = lost.values().sum();
        let mut shares: Vec<LossShare> = lost
            .iter()
            .filter_map(|(index, parts)| {
                let (id, _) = self.findings.get(usize::from(*index))?;
                Some(LossShare { id: id.clone(), share: (parts / sum * 100.0).round() / 100.0 })
            })
            .collect();
        shares.sort_by(|a, b| b.share.total_cmp(&a.share));
        shares
    }

    /// Iterates the ids of the findings.
    pub(super) fn finding_ids(&self) -> impl Iterator<Item = &String> {
        self.findings.iter().map(|(id, _)| id)
    }
}

/// How well a finding explains loss; the greatest is the cause.
#[derive(Clone, Copy, Debug, PartialEq)]
struct CauseRank {
    /// Whether its detector estimates a cost.
    costs: bool,
    severity: Severity,
    confidence: f64,
    /// How closely it names the GPU: 3 itself, 2 its node, 1 its job.
    specificity: u8,
    /// The order of the list decides between equals: earlier is greater.
    index: u16,
    kind: FindingKind,
}

impl CauseRank {
    fn of(finding: &Finding, estimate: f64, specificity: u8, index: u16) -> Self {
        Self {
            // Whatever explains the loss is a better cause than a finding that says that nothing does.
            costs: estimate > 0.0 && finding.kind != FindingKind::UnexplainedSlowdown,
            severity: finding.severity,
            confidence: finding.confidence,
            specificity,
            index,
            kind: finding.kind,
        }
    }

    fn compare(&self, other: &Self) -> Ordering {
        let of = |rank: &Self| (rank.costs, rank.severity);
        let order = of(self).cmp(&of(other));
        let order = order.then_with(|| self.confidence.total_cmp(&other.confidence));
        let order = order.then_with(|| self.specificity.cmp(&other.specificity));
        order.then_with(|| other.index.cmp(&self.index))
    }

    /// Whether it explains idle GPUs in a job at its baseline speed: what slows a job down does not.
    fn explains_idle(&self) -> bool {
        use FindingKind::{CollectiveHang, CrashLoop, GpuFailed, IdleAllocated};
        self.specificity > 1
            || matches!(self.kind, CollectiveHang | CrashLoop | GpuFailed | IdleAllocated)
    }

    fn odds(&self) -> f64 {
        let confidence = self.confidence.clamp(0.01, 0.99);
        confidence / (1.0 - confidence)
    }

    /// Whether it may as well be the cause as the best one.
    fn is_undecided_against(&self, best: &Self) -> bool {
        let is_told = |rank: &Self| rank.severity > Severity::Info;
        let ratio = self.odds() / best.odds();
        self.costs
            && best.costs
            && is_told(self) == is_told(best)
            && (1.0 / UNDECIDED_ODDS_RATIO..=UNDECIDED_ODDS_RATIO).contains(&ratio)
    }
}

/// The best causes of a GPU, of a node or of a job, best first.
#[derive(Clone, Copy, Debug, Default)]
struct Candidates([Option<CauseRank>; MAX_SHARING]);

impl Candidates {
    /// Adds a cause; the same finding counts once.
    fn add(&mut self, rank: CauseRank) {
        let mut ranks: Vec<CauseRank> = self.iter().collect();
        match ranks.iter_mut().find(|known| known.index == rank.index) {
            Some(known) if rank.compare(known) == Ordering::Greater => *known = rank,
            Some(_) => {}
            None => ranks.push(rank),
        }
        ranks.sort_by(|a, b| b.compare(a));
        let mut ranks = ranks.into_iter();
        self.0 = std::array::from_fn(|_| ranks.next());
    }

    fn iter(&self) -> impl Iterator<Item = CauseRank> {
        self.0.into_iter().flatten()
    }

    fn best(&self) -> Option<CauseRank> {
        self.0[0]
    }

    /// Returns the best and those that are nearly as probable.
    fn undecided(&self) -> Vec<CauseRank> {
        let Some(best) = self.best() else { return Vec::new() };
        let is_near =
            |rank: &CauseRank| rank.index == best.index || rank.is_undecided_against(&best);
        self.iter().filter(is_near).collect()
    }
}

/// The candidates of each entity that findings name.
#[derive(Default)]
pub(super) struct CauseCandidates {
    gpus: HashMap<u32, Candidates>,
    groups: Vec<Candidates>,
    /// Those that explain idle GPUs in a job at its baseline speed.
    idle: Vec<Candidates>,
    /// What the numbers mean.
    pub(super) causes: LossCauses,
    /// The cause of each group, and of its idle GPUs.
    known: HashMap<(usize, bool), Option<u16>>,
}

impl CauseCandidates {
    pub(super) fn of(judge: &JudgeState, cluster: &Cluster) -> Self {
        let all = judge.job_groups.all_groups();
        let none = vec![Candidates::default(); all.len()];
        let mut named = Self { groups: none.clone(), idle: none, ..Self::default() };
        let mut by_name: HashMap<String, usize> = HashMap::new();
        for (record, estimate) in judge.tracker.open_with_estimates() {
            if by_name.is_empty() {
                by_name.extend(all.iter().enumerate().map(|(at, group)| (group.group_key(), at)));
            }
            let finding = &record.finding;
            let index = named.causes.findings.len().min(usize::from(SPLITS) - 1) as u16;
            named.causes.findings.push((finding.id.clone(), finding.kind));
            if explains_nothing(finding.kind) || works_in_spite_of_it(finding.kind, estimate) {
                continue;
            }
            let rank = |specificity| CauseRank::of(finding, estimate, specificity, index);
            named.rank_culprit(cluster, &finding.entity, rank);
            for group in affected_groups(judge, cluster, &by_name, record) {
                named.groups[group].add(rank(1));
                if rank(1).explains_idle() {
                    named.idle[group].add(rank(1));
                }
            }
        }
        named
    }

    /// Ranks a cause for GPUs that are blamed themselves, or are on a blamed node.
    fn rank_culprit(&mut self, cluster: &Cluster, entity: &Entity, rank: impl Fn(u8) -> CauseRank) {
        let Some((_, node)) = entity.node.as_ref().and_then(|name| cluster.node_by_name(name))
        else {
            return;
        };
        let (specificity, gpu) = match (entity.kind, &entity.gpu) {
            (EntityKind::Gpu, Some(gpu)) => (3, Some(gpu)),
            (EntityKind::Node, _) => (2, None),
            _ => return,
        };
        for row in node.device_rows(DeviceClass::Gpu) {
            let key = || cluster.device_at(DeviceClass::Gpu, *row)?.device.key.first();
            if gpu.is_none() || key() == gpu {
                self.gpus.entry(*row).or_default().add(rank(specificity));
            }
        }
    }

    /// Returns the number of the cause of a GPU's loss, and whether its job hangs.
    pub(super) fn find_cause(
        &mut self,
        row: u32,
        group: Option<usize>,
        idle: bool,
    ) -> (Option<u16>, bool) {
        let of = if idle { &self.idle } else { &self.groups };
        let shared = group.and_then(|group| of.get(group).copied()).unwrap_or_default();
        let hangs = |candidates: &Candidates| {
            candidates.best().is_some_and(|best| best.kind == FindingKind::CollectiveHang)
        };
        if let Some(own) = self.gpus.get(&row) {
            let mut all = *own;
            shared.iter().for_each(|rank| all.add(rank));
            return (self.causes.encode(&all), hangs(&all));
        }
        let Some(group) = group else { return (None, false) };
        let code = self.known.entry((group, idle)).or_insert_with(|| self.causes.encode(&shared));
        (*code, hangs(&shared))
    }
}

/// Returns the groups of the jobs that a finding affects.
fn affected_groups(
    judge: &JudgeState,
    cluster: &Cluster,
    by_name: &HashMap<String, usize>,
    record: &FindingRecord,
) -> Vec<usize> {
    let finding = &record.finding;
    let whole = Some(&finding.entity).filter(|entity| entity.kind == EntityKind::Job);
    let victims = finding.victims.iter().chain(whole);
    let of_victims = victims.filter_map(|entity| group_of_entity(judge, cluster, by_name, entity));
    let of_jobs = record.jobs.iter().filter_map(|job| by_name.get(job.as_str()).copied());
    of_victims.chain(of_jobs).collect()
}

/// Findings about telemetry and certificates explain unknown states, not lost time; a finding that summarises others has no loss of its
/// own.
fn explains_nothing(kind: FindingKind) -> bool {
    use FindingKind::{
        AggregatorLate, CertificateExpiring, DataStale, DriverHung, FindingsOverLimit,
        JudgementFailed, TargetDown,
    };
    matches!(
        kind,
        TargetDown
            | DataStale
            | DriverHung
            | AggregatorLate
            | JudgementFailed
            | FindingsOverLimit
            | CertificateExpiring
    )
}

/// Returns the job group of an entity: its job; without job labels, the group of an affected node.
fn group_of_entity(
    judge: &JudgeState,
    cluster: &Cluster,
    by_name: &HashMap<String, usize>,
    entity: &Entity,
) -> Option<usize> {
    if let Some(job) = &entity.job {
        return by_name.get(job.as_str()).copied();
    }
    if entity.gpu.is_some() || entity.device.is_some() {
        return None;
    }
    let (_, node) = cluster.node_by_name(entity.node.as_ref()?)?;
    let group = node
        .device_rows(DeviceClass::Gpu)
        .iter()
        .find_map(|row| judge.job_groups.group_index(*row))?;
    judge.job_groups.all_groups()[group].job.is_none().then_some(group)
}

#[cfg(test)]
mod tests {
    use gaunt_schema::GpuState;

    use super::*;

    /// The causes of findings with these confidences, and the number of their common cause.
    fn encode_causes(confidences: &[f64], severities: [Severity; 3]) -> (LossCauses, u16) {
        let kind = FindingKind::ComputeStraggler;
        let mut candidates = Candidates::default();
        let mut causes = LossCauses::default();
        for ((confidence, severity), index) in confidences.iter().zip(severities).zip(0..) {
            let (costs, confidence) = (true, *confidence);
            causes.findings.push((format!("compute_straggler/gpu00{index}"), kind));
            candidates.add(CauseRank { costs, severity, confidence, specificity: 1, index, kind });
        }
        let code = causes.encode(&candidates).unwrap();
        (causes, code)
    }

    fn parts_of(causes: &LossCauses, code: u16, parts: u16) -> Vec<(AttributedCause, u16)> {
        causes.attributed_parts(GpuLoss::from_parts(GpuState::Slowed, parts, code)).collect()
    }

    #[test]
    fn causes_within_a_factor_three_share_a_loss_by_their_odds() {
        let (causes, code) = encode_causes(&[0.8, 0.9], [Severity::Warning; 3]);
        let shares = [(AttributedCause::Finding(1), 2307), (AttributedCause::Finding(0), 1026)];
        assert_eq!(parts_of(&causes, code, 3333), shares, "odds of 9 and 4");
        let lost = BTreeMap::from([(code, 3333)]);
        let named = |id: &str, share| LossShare { id: id.to_owned(), share };
        let expected =
            vec![named("compute_straggler/gpu001", 0.69), named("compute_straggler/gpu000", 0.31)];
        assert_eq!(causes.undecided_shares(&lost), [expected.clone(), expected]);
        // Another GPU loses to the second alone.
        let lost = BTreeMap::from([(code, 3333), (1, 3333)]);
        assert_eq!(causes.undecided_shares(&lost)[1][0], named("compute_straggler/gpu001", 0.85));
    }

    #[test]
    fn cause_that_is_much_more_probable_has_the_whole_loss() {
        let (causes, code) = encode_causes(&[0.8, 0.95], [Severity::Warning; 3]);
        assert_eq!(parts_of(&causes, code, 3333), [(AttributedCause::Finding(1), 3333)]);
        assert!(causes.undecided_shares(&BTreeMap::from([(code, 1)])).iter().all(Vec::is_empty));
        let of = [Severity::Info, Severity::Warning, Severity::Warning];
        let (causes, code) = encode_causes(&[0.9, 0.9], of);
        assert_eq!(parts_of(&causes, code, 10), [(AttributedCause::Finding(1), 10)]);
    }

    #[test]
    fn shares_of_three_causes_sum_to_the_loss() {
        let (causes, code) = encode_causes(&[0.9; 3], [Severity::Warning; 3]);
        let parts: Vec<u16> = parts_of(&causes, code, 10_000).iter().map(|of| of.1).collect();
        assert_eq!(parts, [3334, 3333, 3333]);
        assert_eq!(parts_of(&causes, code, 1).iter().map(|of| of.1).sum::<u16>(), 1);
        assert_eq!(parts_of(&causes, code, 0), [], "without parts the number means nothing");
    }
}
