//! Groups of findings: many of one kind and severity are one line, so that small ones never bury a big one.

use std::{
    cmp::Ordering,
    collections::{BTreeMap, HashMap, HashSet},
};

use gaunt_schema::{
    Entity, EntityKind, FindingKind, SanitizedText, Severity, UnixMs, natural_order,
};
use serde::{Deserialize, Serialize};

use super::Finding;

/// Findings of one kind and severity from which on they are one group: fewer are read faster one by one.
pub const GROUP_FROM: usize = 4;

/// Open findings of one kind and severity as one line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FindingGroup {
    /// Stable while there is such a group: `group/idle_allocated/info/sam`.
    pub id: String,
    /// What is wrong with each.
    pub kind: FindingKind,
    /// How urgent each is.
    pub severity: Severity,
    /// When the evidence of the oldest began, by the owner's clock.
    pub since: UnixMs,
    /// The confidence of the least certain, from 0 to 1.
    pub confidence: f64,
    /// Lost GPUs that are attributed to them.
    pub lost_gpus: f64,
    /// How many of them are acknowledged.
    pub acknowledged: u32,
    /// What they blame, if it is of one type.
    pub blames: Option<EntityKind>,
    /// The user of all their jobs, if it is the same one.
    pub user: Option<SanitizedText>,
    /// The account of all their jobs, if it is the same one.
    pub account: Option<SanitizedText>,
    /// The job that all of them blame.
    pub job: Option<SanitizedText>,
    /// The node that all of them are on.
    pub node: Option<SanitizedText>,
    /// The leaf switch that all of them are on.
    pub leaf: Option<SanitizedText>,
    /// The ids of all of them, worst first.
    pub members: Vec<String>,
}

/// Who submitted the job that a finding blames, and who pays for it; none where that is not known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobOwner {
    /// The user.
    pub user: Option<SanitizedText>,
    /// The account.
    pub account: Option<SanitizedText>,
}

/// One line of a list of findings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FindingLine<'a> {
    /// A finding of its own.
    Single(&'a Finding),
    /// Many as one.
    Group(&'a FindingGroup),
}

impl FindingLine<'_> {
    /// How urgent it is.
    pub const fn severity(&self) -> Severity {
        match self {
            Self::Single(finding) => finding.severity,
            Self::Group(group) => group.severity,
        }
    }

    /// Lost GPUs that are attributed to it.
    pub const fn lost_gpus(&self) -> f64 {
        match self {
            Self::Single(finding) => finding.lost_gpus,
            Self::Group(group) => group.lost_gpus,
        }
    }

    /// How many findings it stands for.
    pub const fn finding_count(&self) -> usize {
        match self {
            Self::Single(_) => 1,
            Self::Group(group) => group.members.len(),
        }
    }
}

impl FindingGroup {
    /// Groups what is open, worst group first. A user with many findings of a kind has a group of his own; the others
    /// of that kind are one group together.
    pub fn group_findings(
        findings: &[Finding],
        owner_of: impl Fn(&Entity) -> JobOwner,
    ) -> Vec<Self> {
        let mut kinds: BTreeMap<(Severity, FindingKind), Vec<&Finding>> = BTreeMap::new();
        for finding in findings {
            kinds.entry((finding.severity, finding.kind)).or_default().push(finding);
        }
        let mut groups = Vec::new();
        for findings in kinds.into_values().filter(|findings| findings.len() >= GROUP_FROM) {
            let owned: Vec<(&Finding, JobOwner)> =
                findings.into_iter().map(|finding| (finding, owner_of(&finding.entity))).collect();
            let mut users: HashMap<&SanitizedText, usize> = HashMap::new();
            for user in owned.iter().filter_map(|(_, owner)| owner.user.as_ref()) {
                *users.entry(user).or_default() += 1;
            }
            let own = |owner: &JobOwner| {
                let user = owner.user.as_ref()?;
                (users[user] >= GROUP_FROM).then(|| user.clone())
            };
            let mut parts: BTreeMap<Option<SanitizedText>, Vec<&(&Finding, JobOwner)>> =
                BTreeMap::new();
            for member in &owned {
                parts.entry(own(&member.1)).or_default().push(member);
            }
            let parts = parts.iter().filter(|(_, members)| members.len() >= GROUP_FROM);
            groups.extend(parts.filter_map(|(user, members)| Self::of(user.as_ref(), members)));
        }
        groups.sort_by(|a: &Self, b| {
            compare_urgency((a.severity, a.lost_gpus), (b.severity, b.lost_gpus))
                .then_with(|| natural_order(&a.id, &b.id))
        });
        groups
    }

    fn of(user: Option<&SanitizedText>, members: &[&(&Finding, JobOwner)]) -> Option<Self> {
        let (first, _) = members.first()?;
        let findings = || members.iter().map(|(finding, _)| *finding);
        let place = |of: fn(&Entity) -> &Option<SanitizedText>| {
            common_value(findings().map(|finding| of(&finding.entity).as_ref()))
        };
        let whose = user.map_or_else(String::new, |user| format!("/{user}"));
        Some(Self {
            id: format!("group/{}/{}{whose}", first.kind.as_str(), first.severity.as_str()),
            kind: first.kind,
            severity: first.severity,
            since: findings().map(|finding| finding.since).min()?,
            confidence: findings().map(|finding| finding.confidence).fold(1.0, f64::min),
            lost_gpus: findings().map(|f| f.lost_gpus).sum(),
            acknowledged: findings().filter(|f| f.acknowledged.is_some()).count() as u32,
            blames: common_value(findings().map(|finding| Some(&finding.entity.kind))),
            user: common_value(members.iter().map(|(_, owner)| owner.user.as_ref())),
            account: common_value(members.iter().map(|(_, owner)| owner.account.as_ref())),
            job: place(|entity| &entity.job),
            node: place(|entity| &entity.node),
            leaf: place(|entity| &entity.leaf),
            members: findings().map(|finding| finding.id.clone()).collect(),
        })
    }

    /// What it stands for, without its kind: `83 jobs, 664 GPUs, user sam`. `gpus` is its cost as the reader writes it;
    /// none where it is told elsewhere or is nothing.
    pub fn render_members(&self, gpus: Option<&str>) -> String {
        let what = match self.blames {
            Some(EntityKind::Job) => "jobs",
            Some(EntityKind::Node) => "nodes",
            Some(EntityKind::Gpu) => "GPUs",
            Some(EntityKind::Port) => "ports",
            Some(EntityKind::Leaf) => "leaves",
            Some(EntityKind::Rail) => "rails",
            _ => "findings",
        };
        let mut parts = vec![format!("{} {what}", self.members.len())];
        let own = self.blames == Some(EntityKind::Gpu);
        let noun = if own { "lost" } else { "GPUs" };
        parts.extend(gpus.map(|gpus| format!("{gpus} {noun}")));
        let places = [
            ("user", &self.user),
            ("account", &self.account),
            ("job", &self.job),
            ("node", &self.node),
            ("leaf", &self.leaf),
        ];
        let known = places.iter().filter_map(|(word, name)| Some((word, name.as_ref()?)));
        // The first says enough: who knows the user can look up the account.
        parts.extend(known.take(1).map(|(word, name)| format!("{word} {name}")));
        parts.join(", ")
    }
}

/// Findings and groups, worst first: by severity, then by cost. Members of a group are not told a second time; of
/// equals the order of `findings` is kept.
pub fn collect_lines<'a>(
    findings: &'a [Finding],
    groups: &'a [FindingGroup],
) -> Vec<FindingLine<'a>> {
    let grouped: HashSet<&str> =
        groups.iter().flat_map(|group| &group.members).map(String::as_str).collect();
    let single = findings.iter().filter(|finding| !grouped.contains(finding.id.as_str()));
    let single = single.map(FindingLine::Single);
    let mut lines: Vec<FindingLine<'a>> =
        single.chain(groups.iter().map(FindingLine::Group)).collect();
    lines.sort_by(|a, b| {
        compare_urgency((a.severity(), a.lost_gpus()), (b.severity(), b.lost_gpus()))
    });
    lines
}

fn compare_urgency(a: (Severity, f64), b: (Severity, f64)) -> Ordering {
    b.0.cmp(&a.0).then_with(|| b.1.total_cmp(&a.1))
}

/// The value that all have.
fn common_value<'a, T: Clone + PartialEq + 'a>(
    mut values: impl Iterator<Item = Option<&'a T>>,
) -> Option<T> {
    let first = values.next().flatten()?;
    values.all(|value| value == Some(first)).then(|| first.clone())
}

#[cfg(test)]
pub(crate) mod tests;
