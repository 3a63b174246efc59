//! What is known as rows: the columns that the filter language chooses from and that tables are made of.

use std::collections::HashMap;

use gaunt_schema::{Absent, FindingKind, MetricId, Reading, Safe, unit::Kind};

use super::{Owner, sight::Sight};
use crate::answer::{
    Filter, FindingList, NodeList, Subject,
    filter::{NO_TEXT, Rows, Texts},
};

mod findings;
mod gpus;
mod jobs;
mod nodes;
mod ports;
mod processes;
mod targets;

pub(super) use gpus::Gpus;
pub(super) use ports::{Ports, load};

impl Owner {
    /// The rows of a filter's subject that can match it; `nodes` is the list of all nodes as of now.
    pub(super) fn rows<'a>(&'a self, filter: &Filter, nodes: &'a NodeList) -> Box<dyn Rows + 'a> {
        match filter.subject() {
            Subject::Gpus => Box::new(Gpus::new(self, filter)),
            Subject::Nodes => Box::new(nodes::Nodes::new(self, nodes)),
            Subject::Jobs => Box::new(jobs::Jobs::new(self)),
            Subject::Ports => Box::new(Ports::new(self)),
            Subject::Processes => Box::new(processes::Processes::new(self)),
            Subject::Findings => Box::new(findings::Findings::new(&self.findings)),
            Subject::Closed => Box::new(findings::Findings::new(&self.closed)),
            Subject::Targets => Box::new(targets::Targets::new(self)),
        }
    }
}

impl Owner {
    /// How many rows a subject has in all.
    pub(super) fn total(&self, subject: Subject, rows: &dyn Rows) -> u32 {
        match subject {
            // Fewer rows than there are stand for a filter that names nodes or jobs.
            Subject::Gpus => self.overview.gpus().max(rows.len() as u32),
            _ => rows.len() as u32,
        }
    }
}

/// What is shown of a metric of the device at a row: a gauge's value, or what a counter grows by in a second.
fn shown(cluster: Sight<'_>, metric: MetricId, row: u32) -> Option<f64> {
    match metric.row().kind {
        Kind::Counter(_) => cluster.rate(metric, row),
        Kind::Gauge | Kind::Info => cluster.value(metric, row),
    }
}

/// Why nothing is shown of it, where that is known.
fn reason(cluster: Sight<'_>, metric: MetricId, row: u32) -> Option<Absent> {
    cluster.reading(metric, row).and_then(Reading::reason)
}

/// Texts being collected, each different one once.
#[derive(Default)]
struct Collected {
    texts: Texts,
    known: HashMap<Safe, u32>,
}

impl Collected {
    /// Rows of one text each.
    fn of<'a>(texts: impl Iterator<Item = Option<&'a Safe>>) -> Texts {
        let mut collected = Self::default();
        for text in texts {
            let code = text.map_or(NO_TEXT, |text| collected.code(text));
            collected.texts.codes.push(code);
        }
        collected.texts
    }

    /// Rows of several texts each.
    fn of_many<'a, T: Iterator<Item = &'a Safe>>(rows: impl Iterator<Item = T>) -> Texts {
        let mut collected = Self::default();
        let mut starts = vec![0];
        for row in rows {
            let start = collected.texts.codes.len();
            for text in row {
                let code = collected.code(text);
                if !collected.texts.codes[start..].contains(&code) {
                    collected.texts.codes.push(code);
                }
            }
            starts.push(collected.texts.codes.len() as u32);
        }
        Texts { starts: Some(starts), ..collected.texts }
    }

    fn code(&mut self, text: &Safe) -> u32 {
        // Neighbours mostly say the same.
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

/// Rows of words of a closed list.
fn coded(words: &[&str], codes: impl Iterator<Item = Option<usize>>) -> Texts {
    Texts {
        words: words.iter().map(|word| Safe::new(word)).collect(),
        codes: codes.map(|code| code.map_or(NO_TEXT, |code| code as u32)).collect(),
        starts: None,
    }
}

/// Rows of kinds of findings.
fn kinds(kinds: impl Iterator<Item = Option<FindingKind>>) -> Texts {
    let words: Vec<&str> = FindingKind::ALL.iter().map(|kind| kind.as_str()).collect();
    coded(&words, kinds.map(|kind| kind.map(|kind| kind as usize)))
}

/// Numbers, of which those that are absent are none.
fn numbers(values: impl Iterator<Item = Option<f64>>) -> Vec<f64> {
    values.map(|value| value.unwrap_or(f64::NAN)).collect()
}

/// Whom the open findings blame, the worst first.
struct Blame<'a> {
    nodes: HashMap<&'a str, Vec<&'a crate::answer::Finding>>,
    jobs: HashMap<&'a str, FindingKind>,
}

impl<'a> Blame<'a> {
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

    /// The worst that blames a node or a part of it.
    fn node(&self, node: &str) -> Option<FindingKind> {
        self.nodes.get(node)?.first().map(|finding| finding.kind)
    }

    /// The worst that blames a GPU, or its node as a whole.
    fn gpu(&self, node: &str, gpu: &str) -> Option<FindingKind> {
        let about = |finding: &&&crate::answer::Finding| match &finding.entity.gpu {
            Some(blamed) => *blamed == *gpu,
            None => finding.entity.device.is_none(),
        };
        self.nodes.get(node)?.iter().find(about).map(|finding| finding.kind)
    }

    /// The worst that blames a port.
    fn port(&self, node: &str, device: &str, port: &str) -> Option<FindingKind> {
        let about = |finding: &&&crate::answer::Finding| {
            let entity = &finding.entity;
            entity.device.as_deref() == Some(device)
                && entity.port.as_deref().is_none_or(|blamed| blamed == port)
        };
        self.nodes.get(node)?.iter().find(about).map(|finding| finding.kind)
    }
}
