//! Groups of findings: many of one kind and severity become one line, so that small findings do not hide a large one.

use std::{
    cmp::Ordering,
    collections::{BTreeMap, HashMap, HashSet},
};

use gaunt_schema::{
    Entity, EntityKind, FindingKind, SanitizedText, Severity, UnixMs, natural_order,
};
use serde::{Deserialize, Serialize};

use super::Finding;

/// Minimum size of a group: fewer findings are read faster one by one.
pub const GROUP_FROM: usize = 4;

/// Open findings of one kind and severity as one line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FindingGroup {
    /// Id, stable while the group exists: `group/idle_allocated/info/sam`.
    pub id: String,
    /// Kind of each finding.
    pub kind: FindingKind,
    /// Severity of each finding.
    pub severity: Severity,
    /// Start of the oldest evidence, in engine time.
    pub since: UnixMs,
    /// The lowest confidence, from 0 to 1.
    pub confidence: f64,
    /// Lost GPUs attributed to them.
    pub lost_gpus: f64,
    /// The lost GPUs by which lists are sorted: the sum of those of the findings. Absent in groups of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listed_lost_gpus: Option<f64>,
    /// Number of acknowledged findings.
    pub acknowledged: u32,
    /// Type of the faulty entities, if it is the same for all.
    pub blames: Option<EntityKind>,
    /// The user of all their jobs, if it is the same one.
    pub user: Option<SanitizedText>,
    /// The account of all their jobs, if it is the same one.
    pub account: Option<SanitizedText>,
    /// The job that all of them are on.
    pub job: Option<SanitizedText>,
    /// The node that all of them are on.
    pub node: Option<SanitizedText>,
    /// The leaf switch that all of them are on.
    pub leaf: Option<SanitizedText>,
    /// Ids of all findings, worst first.
    pub members: Vec<String>,
}

/// User and account of the job that a finding is on; none where unknown.
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
    /// A single finding.
    Single(&'a Finding),
    /// A group of findings.
    Group(&'a FindingGroup),
}

impl FindingLine<'_> {
    /// Its severity.
    pub const fn severity(&self) -> Severity {
        match self {
            Self::Single(finding) => finding.severity,
            Self::Group(group) => group.severity,
        }
    }

    /// Lost GPUs by which it is listed.
    fn listed_cost(&self) -> f64 {
        match self {
            Self::Single(finding) => finding.listed_cost(),
            Self::Group(group) => group.listed_cost(),
        }
    }

    /// Number of findings it represents.
    pub const fn finding_count(&self) -> usize {
        match self {
            Self::Single(_) => 1,
            Self::Group(group) => group.members.len(),
        }
    }
}

impl FindingGroup {
    /// Groups open findings, worst group first. A user with many findings of a kind has a separate group; the others of
    /// that kind form one group.
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
            let large_user = |owner: &JobOwner| {
                let user = owner.user.as_ref()?;
                (users[user] >= GROUP_FROM).then(|| user.clone())
            };
            let mut parts: BTreeMap<Option<SanitizedText>, Vec<&(&Finding, JobOwner)>> =
                BTreeMap::new();
            for member in &owned {
                parts.entry(large_user(&member.1)).or_default().push(member);
            }
            let parts = parts.iter().filter(|(_, members)| members.len() >= GROUP_FROM);
            groups.extend(parts.filter_map(|(user, members)| Self::of(user.as_ref(), members)));
        }
        groups.sort_by(|a: &Self, b| {
            compare_urgency((a.severity, a.listed_cost()), (b.severity, b.listed_cost()))
                .then_with(|| natural_order(&a.id, &b.id))
        });
        groups
    }

    /// The lost GPUs by which lists are sorted.
    pub fn listed_cost(&self) -> f64 {
        self.listed_lost_gpus.unwrap_or(self.lost_gpus)
    }

    fn of(user: Option<&SanitizedText>, members: &[&(&Finding, JobOwner)]) -> Option<Self> {
        let (first, _) = members.first()?;
        let findings = || members.iter().map(|(finding, _)| *finding);
        let common_name = |name_of: fn(&Entity) -> &Option<SanitizedText>| {
            common_value(findings().map(|finding| name_of(&finding.entity).as_ref()))
        };
        let user_suffix = user.map_or_else(String::new, |user| format!("/{user}"));
        Some(Self {
            id: format!("group/{}/{}{user_suffix}", first.kind.as_str(), first.severity.as_str()),
            kind: first.kind,
            severity: first.severity,
            since: findings().map(|finding| finding.since).min()?,
            confidence: findings().map(|finding| finding.confidence).fold(1.0, f64::min),
            lost_gpus: findings().map(|f| f.lost_gpus).sum(),
            listed_lost_gpus: Some(findings().map(Finding::listed_cost).sum()),
            acknowledged: findings().filter(|f| f.acknowledged.is_some()).count() as u32,
            blames: common_value(findings().map(|finding| Some(&finding.entity.kind))),
            user: common_value(members.iter().map(|(_, owner)| owner.user.as_ref())),
            account: common_value(members.iter().map(|(_, owner)| owner.account.as_ref())),
            job: common_name(|entity| &entity.job),
            node: common_name(|entity| &entity.node),
            leaf: common_name(|entity| &entity.leaf),
            members: findings().map(|finding| finding.id.clone()).collect(),
        })
    }

    /// Describes the members without their kind: `83 jobs, 664 GPUs, user sam`. `gpus` is the formatted cost; none
    /// where it is shown elsewhere or is zero.
    pub fn render_members(&self, gpus: Option<&str>) -> String {
        let what = match self.blames {
            Some(EntityKind::Job) => "jobs",
            Some(EntityKind::Node) => "nodes",
            Some(EntityKind::Gpu) => "GPUs",
            Some(EntityKind::Port) => "ports",
            Some(EntityKind::Leaf) => "leaves",
            Some(EntityKind::Rail) => "rails",
            Some(EntityKind::NvlinkDomain) => "NVLink domains",
            _ => "findings",
        };
        let mut parts = vec![format!("{} {what}", self.members.len())];
        let is_gpu_group = self.blames == Some(EntityKind::Gpu);
        let noun = if is_gpu_group { "lost" } else { "GPUs" };
        parts.extend(gpus.map(|gpus| format!("{gpus} {noun}")));
        let common_values = [
            ("user", &self.user),
            ("account", &self.account),
            ("job", &self.job),
            ("node", &self.node),
            ("leaf", &self.leaf),
        ];
        let present = common_values.iter().filter_map(|(word, name)| Some((word, name.as_ref()?)));
        // The first is sufficient: the account follows from the user.
        parts.extend(present.take(1).map(|(word, name)| format!("{word} {name}")));
        parts.join(", ")
    }
}

/// Findings in the order of `findings`, and each group before the first one that is less urgent: by severity, then by
/// cost. Members of a group are not listed again.
pub fn collect_lines<'a>(
    findings: &'a [Finding],
    groups: &'a [FindingGroup],
) -> Vec<FindingLine<'a>> {
    let grouped: HashSet<&str> =
        groups.iter().flat_map(|group| &group.members).map(String::as_str).collect();
    let mut groups = groups.iter().map(FindingLine::Group).peekable();
    let mut lines = Vec::with_capacity(findings.len());
    for finding in findings.iter().filter(|finding| !grouped.contains(finding.id.as_str())) {
        let urgency = (finding.severity, finding.listed_cost());
        let is_before = |group: &FindingLine<'a>| {
            compare_urgency((group.severity(), group.listed_cost()), urgency).is_lt()
        };
        while let Some(group) = groups.next_if(is_before) {
            lines.push(group);
        }
        lines.push(FindingLine::Single(finding));
    }
    lines.extend(groups);
    lines
}

fn compare_urgency(a: (Severity, f64), b: (Severity, f64)) -> Ordering {
    b.0.cmp(&a.0).then_with(|| b.1.total_cmp(&a.1))
}

/// The common value of all, if there is one.
fn common_value<'a, T: Clone + PartialEq + 'a>(
    mut values: impl Iterator<Item = Option<&'a T>>,
) -> Option<T> {
    let first = values.next().flatten()?;
    values.all(|value| value == Some(first)).then(|| first.clone())
}

#[cfg(test)]
mod tests;
