//! State as rows: the columns for the filter language and for tables.

use std::collections::HashMap;

use gaunt_schema::{
    AbsenceReason, FindingKind, MetricId, Reading, SanitizedText, unit::MetricKind,
};

use super::view::View;
use gaunt_api::{
    Filter, FindingList, Subject,
    filter::{NO_TEXT, RowSource, TextColumn},
};

mod finding_rows;
mod gpu_rows;
mod job_rows;
mod node_rows;
mod port_rows;
mod process_rows;
mod target_rows;

pub(super) use gpu_rows::GpuRows;
pub(super) use port_rows::{PortRows, port_load};

impl<'a> View<'a> {
    /// The rows of a filter's subject that can match it.
    pub(super) fn subject_rows(self, filter: &Filter) -> Box<dyn RowSource + 'a> {
        match filter.subject() {
            Subject::Gpus => Box::new(GpuRows::new(self, filter)),
            Subject::Nodes => Box::new(node_rows::NodeRows::new(self)),
            Subject::Jobs => Box::new(job_rows::JobRows::new(self)),
            Subject::Ports => Box::new(PortRows::new(self)),
            Subject::Processes => Box::new(process_rows::ProcessRows::new(self)),
            Subject::Findings => Box::new(finding_rows::FindingRows::new(self.findings)),
            Subject::Closed => Box::new(finding_rows::FindingRows::new(self.closed)),
            Subject::Targets => Box::new(target_rows::TargetRows::new(self)),
        }
    }

    /// Total number of rows of a subject.
    pub(super) fn total_rows(&self, subject: Subject, rows: &dyn RowSource) -> u32 {
        match subject {
            // A filter that names nodes or jobs has fewer rows.
            Subject::Gpus => self.gpu_count.max(rows.len() as u32),
            _ => rows.len() as u32,
        }
    }
}

/// The value to show for a metric of the device at a row: of a gauge its value, of a counter its rate per second.
fn shown_value(view: &View<'_>, metric: MetricId, row: u32) -> Option<f64> {
    match metric.catalogue_row().kind {
        MetricKind::Counter(_) => view.counter_rate(metric, row),
        MetricKind::Gauge | MetricKind::Info => view.metric_value(metric, row),
    }
}

/// Why no value is shown, if known.
fn absent_reason(view: &View<'_>, metric: MetricId, row: u32) -> Option<AbsenceReason> {
    view.last_reading(metric, row).and_then(Reading::absence_reason)
}

/// Interns texts: each different one is stored once.
#[derive(Default)]
struct TextColumnBuilder {
    texts: TextColumn,
    known: HashMap<SanitizedText, u32>,
}

impl TextColumnBuilder {
    /// One text per row.
    fn of<'a>(texts: impl Iterator<Item = Option<&'a SanitizedText>>) -> TextColumn {
        let mut collected = Self::default();
        for text in texts {
            let code = text.map_or(NO_TEXT, |text| collected.intern_text(text));
            collected.texts.codes.push(code);
        }
        collected.texts
    }

    /// Several texts per row.
    fn of_many<'a, T: Iterator<Item = &'a SanitizedText>>(
        rows: impl Iterator<Item = T>,
    ) -> TextColumn {
        let mut collected = Self::default();
        let mut starts = vec![0];
        for row in rows {
            let start = collected.texts.codes.len();
            for text in row {
                let code = collected.intern_text(text);
                if !collected.texts.codes[start..].contains(&code) {
                    collected.texts.codes.push(code);
                }
            }
            starts.push(collected.texts.codes.len() as u32);
        }
        TextColumn { starts: Some(starts), ..collected.texts }
    }

    fn intern_text(&mut self, text: &SanitizedText) -> u32 {
        // Neighbours usually have the same text.
        if let Some(last) = self.texts.codes.last()
            && self.texts.words.get(*last as usize) == Some(text)
        {
            return *last;
        }
        if let Some(code) = self.known.get(text) {
            return *code;
        }
        let code = self.texts.words.len() as u32;
        self.texts.words.push(text.clone());
        self.known.insert(text.clone(), code);
        code
    }
}

/// Rows of texts from a fixed list.
fn coded_texts(words: &[&str], codes: impl Iterator<Item = Option<usize>>) -> TextColumn {
    TextColumn {
        words: words.iter().map(|word| SanitizedText::new(word)).collect(),
        codes: codes.map(|code| code.map_or(NO_TEXT, |code| code as u32)).collect(),
        starts: None,
    }
}

/// Rows of finding kinds.
fn kind_texts(kinds: impl Iterator<Item = Option<FindingKind>>) -> TextColumn {
    let words: Vec<&str> = FindingKind::ALL.iter().map(|kind| kind.as_str()).collect();
    coded_texts(&words, kinds.map(|kind| kind.map(|kind| kind as usize)))
}

/// Numbers; absent ones are NaN.
fn number_column(values: impl Iterator<Item = Option<f64>>) -> Vec<f64> {
    values.map(|value| value.unwrap_or(f64::NAN)).collect()
}

/// Open findings by what they blame, the worst first.
struct BlameIndex<'a> {
    nodes: HashMap<&'a str, Vec<&'a gaunt_api::Finding>>,
    jobs: HashMap<&'a str, FindingKind>,
}

impl<'a> BlameIndex<'a> {
    fn of(list: &'a FindingList) -> Self {
        let mut blame = Self { nodes: HashMap::new(), jobs: HashMap::new() };
        for finding in &list.findings {
            if let Some(node) = finding.entity.node.as_deref() {
                blame.nodes.entry(node).or_default().push(finding);
            }
            if let Some(job) = finding.entity.job.as_deref() {
                blame.jobs.entry(job).or_insert(finding.kind);
            }
        }
        blame
    }

    /// The worst finding that blames a node or a part of it.
    fn worst_of_node(&self, node: &str) -> Option<FindingKind> {
        self.nodes.get(node)?.first().map(|finding| finding.kind)
    }

    /// The worst finding that blames a GPU, or its node as a whole.
    fn worst_of_gpu(&self, node: &str, gpu: &str) -> Option<FindingKind> {
        let about = |finding: &&&gaunt_api::Finding| match &finding.entity.gpu {
            Some(blamed) => *blamed == *gpu,
            None => finding.entity.device.is_none(),
        };
        self.nodes.get(node)?.iter().find(about).map(|finding| finding.kind)
    }

    /// The worst finding that blames a port.
    fn worst_of_port(&self, node: &str, device: &str, port: &str) -> Option<FindingKind> {
        let about = |finding: &&&gaunt_api::Finding| {
            let entity = &finding.entity;
            entity.device.as_deref() == Some(device)
                && entity.port.as_deref().is_none_or(|blamed| blamed == port)
        };
        self.nodes.get(node)?.iter().find(about).map(|finding| finding.kind)
    }
}
