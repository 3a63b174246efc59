//! What the console knows and where the reader is: plain data, drawn by `view`, changed only by `update`.

use std::{
    collections::{BTreeSet, HashSet},
    sync::Arc,
};

use gaunt_schema::{SanitizedText, UnixMs};
use ratatui::layout::Rect;

use super::{
    action::KeyIntent,
    cursor::RowCursor,
    evidence_history::EvidenceHistory,
    freshness::FailedQuestions,
    list_state::ListState,
    pair_matrix::PairMatrix,
    preferences::ConsolePreferences,
    prompt::{self, Prompt},
    prompt_commands::ExportFormat,
    screen::Screen,
};
use crate::{
    answer::{
        AlertList, AnswerTable, Explanation, FabricMatrix, Finding, FindingList, JobDetail,
        NodeDetail, NodeList, Overview, ProbeMatrix, Question, RailMatrix, Refusal, Subject,
        SubjectField,
    },
    answer_source::ReplayProgress,
};

/// Places that can be gone back to; more are forgotten, the oldest first.
pub(super) const TRAIL: usize = 16;

mod screen_questions;

pub(super) use screen_questions::{sites_question, tint_question, users_question};

/// A probe matrix of more nodes is shown by leaf.
const MANY_ENDS: usize = 120;

/// Everything that a screen is drawn from.
#[derive(Debug)]
pub(crate) struct ConsoleState {
    /// The screen that is shown.
    pub(crate) screen: Screen,
    /// The screens that Esc goes back to, the last one first to be taken.
    pub(super) back_stack: Vec<Screen>,
    /// Whether the keys are shown over everything.
    pub(crate) help: bool,
    /// What was answered.
    pub(crate) data: LatestAnswers,
    /// How the source fares.
    pub(crate) source_status: SourceStatus,
    /// Questions that have no answer at the moment.
    pub(super) failed: FailedQuestions,
    /// When the newest overview came by the console's clock, and of which instant of the source's it was.
    pub(super) newest_overview: Option<(UnixMs, UnixMs)>,
    /// When the shown screen was opened.
    pub(crate) entered: UnixMs,
    /// Who is asked; none for the owner in this process.
    pub(crate) source: Option<SanitizedText>,
    /// The instant of the past that is shown; none for now.
    pub(crate) past_instant: Option<UnixMs>,
    /// When the source's present was last seen by the console's clock, and what it was then; none before a look back.
    pub(super) last_present: Option<(UnixMs, UnixMs)>,
    /// The panel of the overview that has the cursor.
    pub(crate) panel: OverviewPanel,
    /// How the heat map is put together.
    pub(crate) grouping: HeatGrouping,
    /// What colours the heat map; none for states.
    pub(crate) tint: Option<&'static SubjectField>,
    /// What the map of the network shows.
    pub(crate) measure: NetworkMeasure,
    /// The cursors that are not in a list.
    pub(crate) cursors: ScreenCursors,
    /// The rows, order, columns and cursor of each subject.
    lists: [ListState; Subject::ALL.len()],
    /// Rows that are to be written into a file as soon as they are answered.
    pub(super) to_write: Option<(Question, ExportFormat, std::path::PathBuf)>,
    /// Groups of findings whose members are shown, by their ids.
    pub(crate) unfolded: BTreeSet<String>,
    /// What is asked before it is done, if something is.
    pub(crate) confirm: Option<ConfirmDialog>,
    /// The line that is typed into, if one is.
    pub(crate) prompt: Option<Prompt>,
    /// Lines that were typed before.
    pub(super) prompt_history: prompt::PromptHistory,
    /// What was done last, or why not, until an instant.
    pub(crate) message: Option<StatusMessage>,
    /// What the reader chose and finds again.
    pub(crate) preferences: ConsolePreferences,
    /// Critical findings that were seen; none before the first answer.
    pub(super) seen_critical: Option<HashSet<String>>,
    /// How far a page that is only read is scrolled down.
    pub(crate) scroll: usize,
    /// What the last drawing found out about the room there is.
    pub(crate) layout: ScreenLayout,
    /// The console's clock, as of the last thing that happened.
    pub(crate) now: UnixMs,
    /// How far the replay is that is shown, which has a time of its own; none if it is no replay.
    pub(crate) replay: Option<ReplayProgress>,
}

/// The cursors that are not in a list.
#[derive(Debug, Default)]
pub(crate) struct ScreenCursors {
    /// Among findings.
    pub(crate) findings: RowCursor,
    /// In the heat map, by node.
    pub(crate) heat: RowCursor,
    /// Among the worst nodes.
    pub(crate) worst: RowCursor,
    /// Among the devices of a node, by name.
    pub(crate) devices: RowCursor,
    /// Among users, by name.
    pub(crate) users: RowCursor,
    /// Among the strips of a job, by GPU.
    pub(crate) timelines: RowCursor,
    /// In the map of the network: leaf and rail.
    pub(crate) cell: (usize, usize),
    /// In the probe matrix: the end of the row and that of the column, by name.
    pub(crate) pair: (RowCursor, RowCursor),
    /// Which rail of the probe matrix is shown.
    pub(crate) rail: usize,
    /// Whether the probe matrix is by leaf; none as long as the reader leaves it open.
    pub(crate) by_leaf: Option<bool>,
}

/// A panel of the overview.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum OverviewPanel {
    /// The worst findings.
    #[default]
    Findings,
    /// The heat map.
    Heat,
    /// The worst nodes.
    Worst,
}

/// What the cells of the heat map are put together by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum HeatGrouping {
    /// By node.
    #[default]
    Node,
    /// By leaf switch.
    Leaf,
    /// By rack.
    Rack,
}

/// What the map of the network shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum NetworkMeasure {
    /// The busier direction as a share of the rate.
    #[default]
    Load,
    /// The time that the network stops the ports, or they stop it.
    Pauses,
    /// Congestion notifications and marks.
    Congestion,
    /// Errors of links.
    Errors,
    /// Links that went down.
    Flaps,
}

/// What was answered last. Nothing is thrown away because a later question failed: it is shown with its age.
#[derive(Debug, Default)]
pub(crate) struct LatestAnswers {
    /// The fleet.
    pub(crate) overview: Option<Arc<Overview>>,
    /// All nodes; asked for where there is only one.
    pub(crate) nodes: Option<Arc<NodeList>>,
    /// The node that was asked for last.
    pub(crate) node: Option<Arc<NodeDetail>>,
    /// The job that was asked for last.
    pub(crate) job: Option<Arc<JobDetail>>,
    /// The map of the network.
    pub(crate) fabric: Option<Arc<FabricMatrix>>,
    /// What probes between nodes measured, and when that came.
    pub(crate) probe: Option<(UnixMs, Arc<ProbeMatrix>)>,
    /// Findings, as many as the filter leaves.
    pub(crate) findings: Option<Arc<FindingList>>,
    /// The finding that was opened last, kept when it closes, and whether it is still open.
    pub(crate) finding: Option<(Finding, bool)>,
    /// What Alertmanager does about findings, and when that came.
    pub(crate) alerts: Option<(UnixMs, Arc<AlertList>)>,
    /// Everything that is known of it, as it was last answered.
    pub(crate) explained: Option<Arc<Explanation>>,
    /// The pasts behind its numbers.
    pub(crate) histories: Vec<EvidenceHistory>,
    /// The newest window of the rows of each subject.
    pub(crate) tables: [Option<Arc<AnswerTable>>; Subject::ALL.len()],
    /// Every job, for the users.
    pub(crate) users: Option<Arc<AnswerTable>>,
    /// The field of every GPU that colours the heat map, and when it came.
    pub(crate) tint: Option<(&'static SubjectField, UnixMs, Arc<AnswerTable>)>,
    /// Where every node stands, and when that came.
    pub(crate) sites: Option<(UnixMs, Arc<AnswerTable>)>,
    /// Why what was asked for last has no answer.
    pub(crate) refused: Option<Refusal>,
}

/// How the source fares.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum SourceStatus {
    /// Nothing was answered yet.
    #[default]
    Loading,
    /// The last question was answered at this instant, by the console's clock.
    Fresh(UnixMs),
    /// The last question was not answered.
    Lost {
        /// When that was first so.
        since: UnixMs,
        /// When something was last answered, if ever.
        last: Option<UnixMs>,
        /// Why, in a sentence.
        why: SanitizedText,
    },
}

/// Something that is only done once the reader said yes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConfirmDialog {
    /// What is asked.
    pub(crate) question: SanitizedText,
    /// What a yes does, in a word.
    pub(crate) yes: &'static str,
    /// The findings that it is about.
    pub(crate) findings: Vec<SanitizedText>,
    /// The note of the acknowledgement; none to withdraw it.
    pub(crate) note: Option<String>,
}

/// What was done, or why it was not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StatusMessage {
    /// Whether it was done.
    pub(crate) succeeded: bool,
    /// In a sentence.
    pub(crate) text: SanitizedText,
    /// When it goes.
    pub(crate) until: UnixMs,
}

/// What a drawing found out about the room there is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ScreenLayout {
    /// Nodes in one row of the heat map.
    pub(crate) heat_row: usize,
    /// Nodes behind one cell of the heat map.
    pub(crate) heat_step: usize,
    /// Lines of a page.
    pub(crate) page: usize,
    /// Lines that a page that is only read has beyond its end.
    pub(crate) hidden: usize,
    /// Whether the node under the cursor of the heat map is shown beside it.
    pub(crate) has_side_pane: bool,
    /// What can be pointed at.
    pub(crate) click_areas: Vec<ClickArea>,
}

/// Something that can be pointed at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClickArea {
    /// Where.
    pub(crate) area: Rect,
    /// What.
    pub(crate) target: ClickTarget,
}

/// What can be pointed at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClickTarget {
    /// A row of what is listed here, by its place.
    Row(usize),
    /// A row of a panel of the overview, by its place.
    Panel(OverviewPanel, usize),
    /// The heading of a column, by its place among the list's.
    Heading(usize),
    /// A cell of the map of the network.
    Cell(usize, usize),
    /// A key of the footer.
    Key(KeyIntent),
}

impl ConsoleState {
    /// A console that has asked nothing yet.
    pub(crate) fn new(source: Option<&str>, now: UnixMs, kept: ConsolePreferences) -> Self {
        let mut lists = Subject::ALL.map(ListState::new);
        for (list, subject) in lists.iter_mut().zip(Subject::ALL) {
            if let Some(columns) = kept.columns.get(subject.as_str()) {
                // Columns of another version may be unknown by now: then the usual ones are shown.
                _ = list.choose_columns(columns);
            }
        }
        Self {
            screen: Screen::default(),
            back_stack: Vec::new(),
            help: false,
            data: LatestAnswers::default(),
            source_status: SourceStatus::default(),
            failed: FailedQuestions::default(),
            newest_overview: None,
            entered: now,
            source: source.map(SanitizedText::new),
            past_instant: None,
            last_present: None,
            panel: OverviewPanel::default(),
            grouping: HeatGrouping::default(),
            tint: None,
            measure: NetworkMeasure::default(),
            cursors: ScreenCursors::default(),
            lists,
            to_write: None,
            unfolded: BTreeSet::new(),
            confirm: None,
            prompt: None,
            prompt_history: prompt::PromptHistory::default(),
            message: None,
            preferences: kept,
            seen_critical: None,
            scroll: 0,
            layout: ScreenLayout::default(),
            now,
            replay: None,
        }
    }

    /// What is wanted of a subject's rows.
    pub(crate) fn list_state(&self, subject: Subject) -> &ListState {
        &self.lists[subject as usize]
    }

    pub(super) fn list_state_mut(&mut self, subject: Subject) -> &mut ListState {
        &mut self.lists[subject as usize]
    }

    /// The rows of a subject, if they were answered.
    pub(crate) fn subject_table(&self, subject: Subject) -> Option<&Arc<AnswerTable>> {
        self.data.tables[subject as usize].as_ref()
    }

    /// The only node, if the whole fleet is one: then the overview shows it in full.
    pub(crate) fn only_node(&self) -> Option<&SanitizedText> {
        let counts = self.data.overview.as_deref()?.nodes;
        if counts.live + counts.stale + counts.down != 1 {
            return None;
        }
        match self.data.nodes.as_deref()?.nodes.as_slice() {
            [only] => Some(&only.node),
            _ => None,
        }
    }

    /// The node of this name, if it is the one that was answered last.
    pub(crate) fn node_detail(&self, name: &SanitizedText) -> Option<&Arc<NodeDetail>> {
        self.data.node.as_ref().filter(|detail| detail.line.node == *name)
    }

    /// The node under the cursor of the heat map.
    pub(crate) fn heat_node(&self) -> Option<&SanitizedText> {
        let nodes = &self.data.overview.as_deref()?.heat.nodes;
        nodes.get(self.cursors.heat.row_index(nodes.len(), |at| &nodes[at]))
    }

    /// What Alertmanager does about findings, if it is known and is of now.
    pub(crate) fn current_alerts(&self) -> Option<&AlertList> {
        self.data.alerts.as_ref().map(|(_, list)| &**list).filter(|_| self.past_instant.is_none())
    }

    /// What probes between nodes measured.
    pub(crate) fn probe_matrix(&self) -> Option<&ProbeMatrix> {
        self.data.probe.as_ref().map(|(_, matrix)| &**matrix)
    }

    /// The rail of the probe matrix that is shown, and its square; none while nothing was measured.
    pub(crate) fn shown_matrix(&self) -> Option<(&RailMatrix, PairMatrix)> {
        let rails = &self.probe_matrix()?.rails;
        let rail = rails.get(self.cursors.rail % rails.len().max(1))?;
        let square = PairMatrix::of(rail, self.cursors.by_leaf.unwrap_or(false));
        // So many nodes are no picture any more.
        let many = self.cursors.by_leaf.is_none() && square.ends.len() > MANY_ENDS;
        Some((rail, if many { PairMatrix::of(rail, true) } else { square }))
    }

    /// The row and the column of the probe matrix with the cursor; at first the first of its pairs.
    pub(crate) fn selected_pair(&self, square: &PairMatrix) -> (usize, usize) {
        let of =
            |cursor: &RowCursor| cursor.row_index(square.ends.len(), |at| &square.ends[at].name);
        let (row, column) = (of(&self.cursors.pair.0), of(&self.cursors.pair.1));
        let first = (row, column) == (0, 0) && square.cell_between(0, 0).is_none();
        if first && square.ends.len() > 1 { (0, 1) } else { (row, column) }
    }

    /// What is now for the source, whose clock may differ from the console's.
    pub(crate) fn newest_now(&self) -> Option<UnixMs> {
        if let Some(replay) = self.replay {
            return Some(replay.now);
        }
        match self.last_present {
            Some((seen, at)) if self.past_instant.is_some() => {
                Some(at + self.now.duration_since(seen))
            }
            _ => self.data.overview.as_deref().map(|overview| overview.at),
        }
    }
}
