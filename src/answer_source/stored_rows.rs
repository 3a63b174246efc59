//! Rows of a stored fleet: the columns that its verdicts fill; all others are absent.

use gaunt_api::{
    AnswerTable, BuiltinField, FieldKey, Filter, NodeLine, NodeList, Subject,
    filter::{NO_TEXT, RowSource, TextColumn, USUAL_ROWS, select_rows},
};
use gaunt_engine::{finding_rows, table_of_rows};
use gaunt_schema::{GpuState, SanitizedText};

use super::{
    stored_fabric::FlaggedPort,
    stored_fleet::{JobLine, StoredFleet},
};

impl StoredFleet {
    /// The nodes that match a filter.
    pub(super) fn matching_nodes(&self, filter: &Filter) -> NodeList {
        let list = self.node_list();
        let rows = StoredRows::Nodes(list.nodes);
        let selected = select_rows(filter, &rows, USUAL_ROWS);
        let StoredRows::Nodes(lines) = rows else { return NodeList::default() };
        let nodes = selected.rows.iter().filter_map(|row| lines.get(*row as usize).cloned());
        NodeList {
            nodes: nodes.collect(),
            matched: selected.matched,
            at: list.at,
            total: list.total,
        }
    }

    /// The rows that match a filter, as columns; none for a subject that is not stored.
    pub(super) fn build_table(&self, filter: &Filter) -> Option<AnswerTable> {
        let table =
            |rows: &dyn RowSource| Some(table_of_rows(self.at, filter, rows.len() as u32, rows));
        match filter.subject() {
            Subject::Jobs => table(&StoredRows::Jobs(self.job_lines())),
            Subject::Nodes => table(&StoredRows::Nodes(self.node_list().nodes)),
            Subject::Gpus => table(&StoredRows::Gpus(gpu_lines(&self.node_list().nodes))),
            Subject::Findings => table(&finding_rows(&self.finding_list())),
            // Ports that are not listed were active and had no finding.
            Subject::Ports => {
                let rows = StoredRows::Ports(self.fabric.flagged_ports());
                Some(table_of_rows(self.at, filter, self.fabric.port_count(), &rows))
            }
            Subject::Closed | Subject::Processes | Subject::Targets => None,
        }
    }
}

/// Node, index and state of a GPU.
type GpuLine = (SanitizedText, SanitizedText, SanitizedText);

fn gpu_lines(nodes: &[NodeLine]) -> Vec<GpuLine> {
    let of_node = |line: &NodeLine| {
        let states = line.gpu_states.chars().enumerate();
        let gpus = states.map(|(gpu, code)| {
            let state = GpuState::from_letter_code(code).unwrap_or(GpuState::Unknown);
            (line.node.clone(), SanitizedText::new(&gpu.to_string()), state.as_str().into())
        });
        gpus.collect::<Vec<_>>()
    };
    nodes.iter().flat_map(of_node).collect()
}

fn port_text(port: &FlaggedPort, field: BuiltinField) -> Option<SanitizedText> {
    let known = |text: &SanitizedText| (!text.is_empty()).then(|| text.clone());
    match field {
        BuiltinField::Node => known(&port.name[0]),
        BuiltinField::Device => known(&port.name[1]),
        BuiltinField::Port => known(&port.name[2]),
        BuiltinField::Leaf => known(&port.leaf),
        BuiltinField::Rail => known(&port.rail),
        BuiltinField::State => port.state.map(Into::into),
        BuiltinField::Finding => Some(port.finding?.as_str().into()),
        _ => None,
    }
}

/// Rows of one subject.
enum StoredRows {
    Jobs(Vec<JobLine>),
    Nodes(Vec<NodeLine>),
    Gpus(Vec<GpuLine>),
    Ports(Vec<FlaggedPort>),
}

impl StoredRows {
    fn number(&self, field: BuiltinField, row: usize) -> Option<f64> {
        match self {
            Self::Jobs(lines) => {
                let line = lines.get(row)?;
                let known = f64::from(line.known);
                match field {
                    BuiltinField::Gpus => Some(f64::from(line.gpus)),
                    BuiltinField::Lost => Some(line.lost),
                    BuiltinField::Useful => (known > 0.0).then(|| (known - line.lost) / known),
                    _ => None,
                }
            }
            Self::Nodes(lines) => match field {
                BuiltinField::Gpus => Some(lines.get(row)?.gpu_states.chars().count() as f64),
                BuiltinField::Lost => Some(lines.get(row)?.lost_gpus),
                _ => None,
            },
            Self::Gpus(_) | Self::Ports(_) => None,
        }
    }

    fn text(&self, field: BuiltinField, row: usize) -> Option<SanitizedText> {
        match (self, field) {
            (Self::Jobs(lines), BuiltinField::Job) => Some(lines.get(row)?.job.clone()),
            (Self::Jobs(lines), BuiltinField::Finding) => {
                Some(lines.get(row)?.finding?.as_str().into())
            }
            (Self::Nodes(lines), BuiltinField::Node) => Some(lines.get(row)?.node.clone()),
            (Self::Nodes(lines), BuiltinField::State) => {
                Some(lines.get(row)?.state.as_str().into())
            }
            (Self::Nodes(lines), BuiltinField::Finding) => {
                Some(lines.get(row)?.finding?.as_str().into())
            }
            (Self::Nodes(lines), BuiltinField::GpuStates) => {
                Some(SanitizedText::new(&lines.get(row)?.gpu_states))
            }
            (Self::Gpus(lines), BuiltinField::Node) => Some(lines.get(row)?.0.clone()),
            (Self::Gpus(lines), BuiltinField::Gpu) => Some(lines.get(row)?.1.clone()),
            (Self::Gpus(lines), BuiltinField::State) => Some(lines.get(row)?.2.clone()),
            (Self::Ports(ports), field) => port_text(ports.get(row)?, field),
            _ => None,
        }
    }
}

impl RowSource for StoredRows {
    fn len(&self) -> usize {
        match self {
            Self::Jobs(lines) => lines.len(),
            Self::Nodes(lines) => lines.len(),
            Self::Gpus(lines) => lines.len(),
            Self::Ports(ports) => ports.len(),
        }
    }

    fn collect_numbers(&self, key: FieldKey, rows: &[u32]) -> Vec<f64> {
        let number = |row: &u32| match key {
            FieldKey::Builtin(field) => self.number(field, *row as usize),
            FieldKey::Metric(_) => None,
        };
        rows.iter().map(|row| number(row).unwrap_or(f64::NAN)).collect()
    }

    fn collect_texts(&self, key: FieldKey, rows: &[u32]) -> TextColumn {
        let mut texts = TextColumn::default();
        let FieldKey::Builtin(field) = key else { return texts };
        let mut codes = std::collections::HashMap::new();
        for row in rows {
            let code = match self.text(field, *row as usize) {
                Some(text) => *codes.entry(text).or_insert_with_key(|text| {
                    texts.words.push(text.clone());
                    texts.words.len() as u32 - 1
                }),
                None => NO_TEXT,
            };
            texts.codes.push(code);
        }
        texts
    }
}
