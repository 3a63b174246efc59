//! Figures of a played data set: its size, and its findings by kind and severity.

use std::{collections::BTreeMap, io::Write};

use gaunt_schema::{FindingKind, Severity};
use serde_json::{Value, json};

use super::{
    csv_rows::RowCounts,
    page_player::{PublicPages, PublicRun},
};
use crate::judge_bench::round_figure;

/// The figures of one data set.
#[derive(Debug)]
pub(super) struct RunFigures {
    /// Its name.
    pub(super) name: String,
    /// Rows of its tables.
    rows: RowCounts,
    /// GPUs times the time for which they are in the data.
    gpu_days: f64,
    /// Seconds between two pages of a target.
    period_s: f64,
    /// Pages that were played, and lines of them that were rejected.
    pages: u64,
    rejected_lines: u64,
    /// Findings by kind and highest severity.
    findings: BTreeMap<(FindingKind, Severity), usize>,
    /// Findings that paged.
    paged: usize,
}

impl RunFigures {
    /// The figures of a run.
    pub(super) fn of(
        name: &str,
        rows: RowCounts,
        gpu_days: f64,
        pages: &dyn PublicPages,
        run: &PublicRun,
    ) -> Self {
        let mut findings = BTreeMap::new();
        for episode in &run.episodes {
            *findings.entry((episode.finding.kind, episode.worst)).or_default() += 1;
        }
        Self {
            name: name.to_owned(),
            rows,
            gpu_days,
            period_s: pages.scrape_period().as_secs_f64(),
            pages: run.pages,
            rejected_lines: run.rejected_lines,
            findings,
            paged: run.episodes.iter().filter(|episode| episode.paged.is_some()).count(),
        }
    }

    fn count_severity(&self, severity: Severity) -> usize {
        self.findings.iter().filter(|((_, worst), _)| *worst == severity).map(|(_, n)| n).sum()
    }

    /// Findings that paged per 1,000 GPU-days; none without a day.
    fn pages_per_1000_gpu_days(&self) -> Option<f64> {
        round_figure((self.gpu_days > 0.0).then(|| self.paged as f64 * 1e3 / self.gpu_days))
    }

    /// Writes the heading of the rows.
    pub(super) fn write_heading(out: &mut dyn Write) -> std::io::Result<()> {
        writeln!(
            out,
            "{:24} {:>8} {:>8} {:>8} {:>8} {:>7} {:>5} {:>8} {:>8} {:>10}  kinds",
            "data set",
            "rows",
            "rejected",
            "GPU-days",
            "period",
            "pages",
            "info",
            "warning",
            "critical",
            "per 1,000"
        )
    }

    /// Writes one row.
    pub(super) fn write_row(&self, out: &mut dyn Write) -> std::io::Result<()> {
        let per_1000 =
            self.pages_per_1000_gpu_days().map_or("-".to_owned(), |pages| format!("{pages:.1}"));
        let kinds = self.findings.iter();
        let kinds: Vec<String> =
            kinds.map(|((kind, worst), n)| format!("{kind} {} {n}", worst.as_str())).collect();
        writeln!(
            out,
            "{:24} {:>8} {:>8} {:>8.2} {:>6.0} s {:>7} {:>5} {:>8} {:>8} {per_1000:>10}  {}",
            self.name,
            self.rows.read,
            self.rows.rejected,
            self.gpu_days,
            self.period_s,
            self.pages,
            self.count_severity(Severity::Info),
            self.count_severity(Severity::Warning),
            self.count_severity(Severity::Critical),
            kinds.join(", "),
        )
    }

    /// The figures as one JSON object.
    pub(super) fn to_json(&self) -> Value {
        let kinds = self.findings.iter().map(|((kind, worst), count)| {
            json!({ "kind": kind.as_str(), "severity": worst.as_str(), "count": count })
        });
        json!({
            "name": self.name,
            "rows": self.rows.read,
            "rows_rejected": self.rows.rejected,
            "gpu_days": round_figure(Some(self.gpu_days)),
            "period_s": self.period_s,
            "pages": self.pages,
            "lines_rejected": self.rejected_lines,
            "findings": kinds.collect::<Vec<_>>(),
            "paged": self.paged,
            "paged_per_1000_gpu_days": self.pages_per_1000_gpu_days(),
        })
    }
}
