//! Rows of the finding list: single findings, groups, and the members of an expanded group below it.

use std::collections::HashMap;

use gaunt_schema::{SanitizedText, Severity};

use super::console_state::ConsoleState;
use gaunt_api::{Finding, FindingGroup, FindingLine, finding_group};

/// Maximum number of overview lines for informational findings.
pub(crate) const INFO_LINES: usize = 3;

/// Name of the cursor in the findings.
pub(crate) const FINDINGS_CURSOR: &str = "findings";

/// Row of a list of findings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum FindingRow<'a> {
    /// Single finding.
    Single(&'a Finding),
    /// Group of findings of one kind.
    Group {
        /// What the findings have in common.
        group: &'a FindingGroup,
        /// The worst finding of the group, if it is part of the answer.
        worst: Option<&'a Finding>,
        /// Whether the group is expanded: its members follow.
        unfolded: bool,
    },
    /// Finding of the expanded group above.
    Member(&'a Finding),
}

impl<'a> FindingRow<'a> {
    /// Returns the unique key of the row.
    pub(crate) fn row_key(self) -> &'a str {
        match self {
            Self::Single(finding) | Self::Member(finding) => &finding.id,
            Self::Group { group, .. } => &group.id,
        }
    }

    /// Returns the finding of the row, unless it is a group.
    pub(crate) const fn single_finding(self) -> Option<&'a Finding> {
        match self {
            Self::Single(finding) | Self::Member(finding) => Some(finding),
            Self::Group { .. } => None,
        }
    }

    /// Returns the severity of the row.
    pub(crate) const fn severity(self) -> Severity {
        match self {
            Self::Single(finding) | Self::Member(finding) => finding.severity,
            Self::Group { group, .. } => group.severity,
        }
    }

    /// Returns how many findings the row represents.
    pub(crate) const fn finding_count(self) -> usize {
        match self {
            Self::Single(_) | Self::Member(_) => 1,
            Self::Group { group, .. } => group.members.len(),
        }
    }
}

impl ConsoleState {
    /// Returns the rows of the latest list of findings.
    pub(crate) fn listed_finding_rows(&self) -> Vec<FindingRow<'_>> {
        self.data.findings.as_deref().map_or_else(Vec::new, |list| {
            self.build_finding_rows(&list.findings, &list.groups, true)
        })
    }

    /// Returns the rows of the overview, and the number of informational findings that have no row there.
    pub(crate) fn overview_rows(&self) -> (Vec<FindingRow<'_>>, usize) {
        let Some(overview) = self.data.overview.as_deref() else { return (Vec::new(), 0) };
        let mut rows = self.build_finding_rows(&overview.findings, &overview.groups, false);
        let urgent = rows.iter().filter(|row| row.severity() > Severity::Info).count();
        if rows.len() > urgent + INFO_LINES {
            // The last line shows how many more there are.
            rows.truncate(urgent + INFO_LINES - 1);
        }
        let shown: usize = rows.iter().map(|row| row.finding_count()).sum();
        let cut = rows.len() == urgent + INFO_LINES - 1;
        (rows, if cut { (overview.findings_open as usize).saturating_sub(shown) } else { 0 })
    }

    fn build_finding_rows<'a>(
        &self,
        findings: &'a [Finding],
        groups: &'a [FindingGroup],
        unfolds: bool,
    ) -> Vec<FindingRow<'a>> {
        let known: HashMap<&str, &Finding> = if groups.is_empty() {
            HashMap::new()
        } else {
            findings.iter().map(|finding| (finding.id.as_str(), finding)).collect()
        };
        let mut rows = Vec::with_capacity(findings.len());
        for line in finding_group::collect_lines(findings, groups) {
            let group = match line {
                FindingLine::Single(finding) => {
                    rows.push(FindingRow::Single(finding));
                    continue;
                }
                FindingLine::Group(group) => group,
            };
            let members = group.members.iter().filter_map(|id| known.get(id.as_str()).copied());
            let unfolded = unfolds && self.unfolded.contains(&group.id);
            rows.push(FindingRow::Group { group, worst: members.clone().next(), unfolded });
            if unfolded {
                rows.extend(members.map(FindingRow::Member));
            }
        }
        rows
    }
}

/// Returns the title of a group of findings, `with_gpus` if the lost GPUs are not shown beside it.
pub(crate) fn group_title(group: &FindingGroup, with_gpus: bool) -> SanitizedText {
    let cost = group.lost_gpus;
    let gpus = (with_gpus && cost > 0.0).then(|| super::display_text::format_gpu_count(cost));
    let (acknowledged, all) = (group.acknowledged as usize, group.members.len());
    let acknowledged = if acknowledged == 0 || acknowledged == all {
        String::new()
    } else {
        format!(" ({acknowledged} acknowledged)")
    };
    SanitizedText::new(&format!("× {}{acknowledged}", group.render_members(gpus.as_deref())))
}
