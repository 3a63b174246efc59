//! Rows of findings: single ones, groups, and below a group that is unfolded its members.

use std::collections::HashMap;

use gaunt_schema::{SanitizedText, Severity};

use super::{
    console_state::{ConsoleState, OverviewPanel},
    screen::Screen,
};
use crate::answer::{Finding, FindingGroup, FindingLine, finding_group};

/// Lines of the overview that findings take at most which are only worth knowing.
pub(crate) const INFO_LINES: usize = 3;

/// One row of a list of findings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum FindingRow<'a> {
    /// A finding of its own.
    Single(&'a Finding),
    /// Many findings of one kind.
    Group {
        /// What they have in common.
        group: &'a FindingGroup,
        /// The worst of them, if it is known here.
        worst: Option<&'a Finding>,
        /// Whether its members follow.
        unfolded: bool,
    },
    /// A finding of the unfolded group above.
    Member(&'a Finding),
}

impl<'a> FindingRow<'a> {
    /// What tells it from all other rows.
    pub(crate) fn row_key(self) -> &'a str {
        match self {
            Self::Single(finding) | Self::Member(finding) => &finding.id,
            Self::Group { group, .. } => &group.id,
        }
    }

    /// The finding, if it is one.
    pub(crate) const fn single_finding(self) -> Option<&'a Finding> {
        match self {
            Self::Single(finding) | Self::Member(finding) => Some(finding),
            Self::Group { .. } => None,
        }
    }

    /// How urgent it is.
    pub(crate) const fn severity(self) -> Severity {
        match self {
            Self::Single(finding) | Self::Member(finding) => finding.severity,
            Self::Group { group, .. } => group.severity,
        }
    }

    const fn finding_count(self) -> usize {
        match self {
            Self::Single(_) | Self::Member(_) => 1,
            Self::Group { group, .. } => group.members.len(),
        }
    }
}

impl ConsoleState {
    /// The rows of findings of the shown screen.
    pub(crate) fn finding_rows(&self) -> Vec<FindingRow<'_>> {
        match (&self.screen, self.data.findings.as_deref(), self.data.overview.as_deref()) {
            (Screen::Overview, _, Some(_)) => self.overview_rows().0,
            (_, Some(list), _) => self.build_finding_rows(&list.findings, &list.groups, true),
            _ => Vec::new(),
        }
    }

    /// The row of a finding or a group that has the cursor, if findings have it.
    pub(crate) fn finding_row(&self) -> Option<FindingRow<'_>> {
        let shown = match self.screen {
            Screen::Overview => self.panel == OverviewPanel::Findings,
            Screen::Findings => true,
            _ => false,
        };
        let rows = if shown { self.finding_rows() } else { Vec::new() };
        rows.get(self.cursors.findings.row_index(rows.len(), |at| rows[at].row_key())).copied()
    }

    /// The rows of the overview, and how many findings that are only worth knowing have none there.
    pub(crate) fn overview_rows(&self) -> (Vec<FindingRow<'_>>, usize) {
        let Some(overview) = self.data.overview.as_deref() else { return (Vec::new(), 0) };
        let mut rows = self.build_finding_rows(&overview.findings, &overview.groups, false);
        let urgent = rows.iter().filter(|row| row.severity() > Severity::Info).count();
        if rows.len() > urgent + INFO_LINES {
            // The last line says how many there are beside.
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

    /// Findings that an acknowledgement, or its withdrawal, would be about: those of the row with the cursor.
    pub(crate) fn findings_to_acknowledge(&self) -> Vec<&Finding> {
        if self.screen.finding_id().is_some() {
            return self.data.finding.iter().map(|(finding, _)| finding).collect();
        }
        let group = match self.finding_row() {
            Some(FindingRow::Group { group, .. }) => group,
            row => return row.and_then(FindingRow::single_finding).into_iter().collect(),
        };
        let list = self.data.findings.as_deref().map_or(&[][..], |list| &list.findings);
        let known: HashMap<&str, &Finding> =
            list.iter().map(|finding| (finding.id.as_str(), finding)).collect();
        group.members.iter().filter_map(|id| known.get(id.as_str()).copied()).collect()
    }
}

/// A text from an answer, as far as a row shows it.
pub(crate) fn group_title(group: &FindingGroup) -> SanitizedText {
    let cost = group.lost_gpus;
    let gpus = (cost > 0.0).then(|| super::display_text::format_gpu_count(cost));
    let (taken, all) = (group.acknowledged as usize, group.members.len());
    let taken =
        if taken == 0 || taken == all { String::new() } else { format!(" ({taken} acknowledged)") };
    SanitizedText::new(&format!("× {}{taken}", group.render_members(gpus.as_deref())))
}
