//! State of the console: answers, cursors and the shown screen. Plain data; only `update` changes it.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::Arc,
    time::Duration,
};

use gaunt_schema::{SanitizedText, UnixMs};
use ratatui::layout::Rect;

use super::{
    action::KeyIntent,
    csv_export::ExportFormat,
    cursor::RowCursor,
    demo_tour::DemoTour,
    evidence_history::EvidenceHistory,
    failed_questions::FailedQuestions,
    heat_index::{HeatAnswers, HeatGrouping, HeatIndex},
    list_state::ListState,
    preferences::ConsolePreferences,
    prompt::{self, Prompt},
    screen::Screen,
    search_match::SearchState,
    time_marks::TimeMark,
    user_config::{UserConfig, plugin_key::PluginCommand},
};
use crate::ReplayProgress;
use gaunt_api::{
    AlertList, AnswerTable, Explanation, FabricMatrix, Finding, FindingContext, FindingList,
    JobDetail, NodeDetail, NodeList, Overview, ProbeMatrix, Question, Refusal, Subject,
    SubjectField, TelemetryCoverage,
};

/// Maximum length of the back stack; the oldest screens are dropped first.
pub(super) const TRAIL: usize = 16;

/// How long a message stays.
const MESSAGE: Duration = Duration::from_secs(8);

mod screen_questions;
pub(crate) mod source_clock;

/// All state that screens are drawn from.
#[derive(Debug)]
pub(crate) struct ConsoleState {
    /// The current screen.
    pub(crate) screen: Screen,
    /// Screens that Esc returns to, the most recent one last.
    pub(super) back_stack: Vec<Screen>,
    /// Whether the help screen is shown.
    pub(crate) help: bool,
    /// The latest answers of the source.
    pub(crate) data: LatestAnswers,
    /// Connection status of the source.
    pub(crate) source_status: SourceStatus,
    /// Questions whose last attempt failed.
    pub(super) failed: FailedQuestions,
    /// When the newest overview arrived by the console's clock, and its instant by the source's clock.
    pub(super) newest_overview: Option<(UnixMs, UnixMs)>,
    /// When the current screen was opened.
    pub(crate) entered: UnixMs,
    /// Name of the source; none for the engine in this process.
    pub(crate) source: Option<SanitizedText>,
    /// The clusters that the source joins, also while one of them is shown; empty for one.
    pub(crate) clusters: Vec<SanitizedText>,
    /// The instant of the past that is shown; none for the present.
    pub(crate) past_instant: Option<UnixMs>,
    /// When that instant was asked for, by the console's clock; none once its overview has arrived.
    pub(crate) instant_asked: Option<UnixMs>,
    /// The mark that the user stepped to, while its instant is shown.
    pub(crate) shown_mark: Option<TimeMark>,
    /// What happened in the last minutes, oldest first, as of the newest present that was shown.
    pub(crate) marks: Vec<TimeMark>,
    /// The oldest instant of the history, as the source reported it last.
    pub(super) history_start: Option<UnixMs>,
    /// When the source's present was last seen by the console's clock, and its value; none before the first view of
    /// the past.
    pub(super) last_present: Option<(UnixMs, UnixMs)>,
    /// The overview panel that has the cursor.
    pub(crate) panel: OverviewPanel,
    /// Grouping of the heat map.
    pub(crate) grouping: HeatGrouping,
    /// Field that colours the heat map; none for GPU states.
    pub(crate) tint: Option<&'static SubjectField>,
    /// What the heat map shows, as of the last action.
    pub(crate) heat: HeatIndex,
    /// Measure of the network map.
    pub(crate) measure: NetworkMeasure,
    /// Cursors outside the tables.
    pub(crate) cursors: ScreenCursors,
    /// Rows, order, columns and cursor of each subject.
    lists: [ListState; Subject::ALL.len()],
    /// Rows to export as soon as their answer arrives.
    pub(super) to_write: Option<(Question, ExportFormat, std::path::PathBuf)>,
    /// Expanded finding groups, by their ids.
    pub(crate) unfolded: BTreeSet<String>,
    /// The open confirmation dialog, if any.
    pub(crate) confirm: Option<ConfirmDialog>,
    /// The open prompt, if any.
    pub(crate) prompt: Option<Prompt>,
    /// Lines entered earlier.
    pub(super) prompt_history: prompt::PromptHistory,
    /// Matches of the open search.
    pub(crate) search: SearchState,
    /// Result of the last operation, shown until its expiry.
    pub(crate) message: Option<StatusMessage>,
    /// The tour of the demo, until it ends or the user presses a key.
    pub(crate) tour: Option<DemoTour>,
    /// The user's own file.
    pub(crate) config: UserConfig,
    /// Whether nothing outside the console may be reached: no files, no programs, no other aggregator.
    pub(crate) restriction: Restriction,
    /// The user's saved preferences.
    pub(crate) preferences: ConsolePreferences,
    /// Critical findings seen so far; none before the first answer.
    pub(super) seen_critical: Option<HashSet<String>>,
    /// Scroll offset of a page without a cursor, in lines.
    pub(crate) scroll: usize,
    /// Layout of the last frame.
    pub(crate) layout: ScreenLayout,
    /// The console's clock, as of the last action.
    pub(crate) now: UnixMs,
    /// Seconds of the shown time zone east of UTC, as of the last tick; none for UTC. It applies to all shown times, also
    /// to those before a change of daylight saving time.
    pub(crate) utc_offset: Option<i32>,
    /// Progress of the replay, which has its own clock; none if the source is not a replay.
    pub(crate) replay: Option<ReplayProgress>,
}

/// Cursors outside the tables.
#[derive(Debug, Default)]
pub(crate) struct ScreenCursors {
    /// Cursors of rows, by names that the screens choose.
    rows: BTreeMap<&'static str, RowCursor>,
    /// Cursor in the network map: leaf and rail; none for the worst cell.
    pub(crate) cell: Option<(usize, usize)>,
    /// Index of the graph that has the cursor on the screen of a device.
    pub(crate) graph: usize,
    /// Span of a graph in minutes; none for all that is kept.
    pub(crate) graph_span: Option<u64>,
    /// Span of the time bar in minutes; none for the shortest one that has all that the overview knows.
    pub(crate) bar_span: Option<u64>,
    /// Index of the shown rail of the probe matrix.
    pub(crate) rail: usize,
    /// Whether the probe matrix is grouped by leaf; none until the user chooses.
    pub(crate) by_leaf: Option<bool>,
}

impl ScreenCursors {
    /// Returns the cursor of this name.
    pub(crate) fn of(&self, name: &'static str) -> &RowCursor {
        self.rows.get(name).unwrap_or(&RowCursor::UNMOVED)
    }

    /// Returns the cursor of this name to move it.
    pub(crate) fn of_mut(&mut self, name: &'static str) -> &mut RowCursor {
        self.rows.entry(name).or_default()
    }
}

/// Name of the cursor in the nodes of the heat map.
pub(crate) const HEAT_CURSOR: &str = "heat";

/// Panel of the overview.
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

/// Measure of the network map.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum NetworkMeasure {
    /// Load of the busier direction as a share of the line rate.
    #[default]
    Load,
    /// PFC pause time received or sent.
    Pauses,
    /// CNPs and ECN marks.
    Congestion,
    /// Link errors.
    Errors,
    /// Link flaps.
    Flaps,
}

/// The latest answers. A later failure does not discard an answer: it is shown with its age.
#[derive(Debug, Default)]
pub(crate) struct LatestAnswers {
    /// Overview of the fleet.
    pub(crate) overview: Option<Arc<Overview>>,
    /// All nodes; requested only for a fleet of one node.
    pub(crate) nodes: Option<Arc<NodeList>>,
    /// The node of the latest answer.
    pub(crate) node: Option<Arc<NodeDetail>>,
    /// The job of the latest answer.
    pub(crate) job: Option<Arc<JobDetail>>,
    /// The network map.
    pub(crate) fabric: Option<Arc<FabricMatrix>>,
    /// Cables of a cell of the network map, and the question for them.
    pub(crate) cables: Option<(Question, Arc<AnswerTable>)>,
    /// GPUs in NVLink domains that are larger than a node, and when they arrived.
    pub(crate) domains: Option<(UnixMs, Arc<AnswerTable>)>,
    /// Measurements of the cross-node probe, and when they arrived.
    pub(crate) probe: Option<(UnixMs, Arc<ProbeMatrix>)>,
    /// What is not known of the fleet, and when that arrived.
    pub(crate) coverage: Option<(UnixMs, Arc<TelemetryCoverage>)>,
    /// Findings that match the filter.
    pub(crate) findings: Option<Arc<FindingList>>,
    /// The finding opened last, kept after it closes, and whether it is still open.
    pub(crate) finding: Option<(Finding, bool)>,
    /// Alertmanager status of findings, and when it arrived.
    pub(crate) alerts: Option<(UnixMs, Arc<AlertList>)>,
    /// Latest explanation of the opened finding.
    pub(crate) explained: Option<Arc<Explanation>>,
    /// Histories of the evidence of the opened finding.
    pub(crate) histories: Vec<EvidenceHistory>,
    /// Latest window of rows of each subject.
    pub(crate) tables: [Option<Arc<AnswerTable>>; Subject::ALL.len()],
    /// All jobs, for the users screen.
    pub(crate) users: Option<Arc<AnswerTable>>,
    /// Names of all ports, for the search, and when they arrived.
    pub(crate) search_ports: Option<(UnixMs, Arc<AnswerTable>)>,
    /// The GPU field that colours the heat map, its values, and when they arrived.
    pub(crate) tint: Option<(&'static SubjectField, UnixMs, Arc<AnswerTable>)>,
    /// Leaf and rack of every node, and when they arrived.
    pub(crate) sites: Option<(UnixMs, Arc<AnswerTable>)>,
    /// Why the last question was refused.
    pub(crate) refused: Option<Refusal>,
}

/// Connection status of the source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum SourceStatus {
    /// No answer yet.
    #[default]
    Loading,
    /// The last question was answered at this instant, by the console's clock.
    Fresh(UnixMs),
    /// The last question failed.
    Lost {
        /// Time of the first failure.
        since: UnixMs,
        /// Time of the last answer, if any.
        last: Option<UnixMs>,
        /// Reason, in one sentence.
        why: SanitizedText,
    },
}

/// Operation that requires a confirmation by the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConfirmDialog {
    /// Text of the question.
    pub(crate) question: SanitizedText,
    /// Label of the confirming key.
    pub(crate) yes: &'static str,
    /// The operation.
    pub(crate) operation: ConfirmedOperation,
}

/// Operation that runs once the user confirms it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ConfirmedOperation {
    /// Acknowledges these findings with a note, or withdraws their acknowledgements without one.
    Acknowledge(Vec<SanitizedText>, Option<String>),
    /// Runs a program.
    Run(PluginCommand),
}

/// What the console may not do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Restriction {
    /// No file is written but the saved preferences, no program is run, no other aggregator is opened, and the console is
    /// not suspended.
    pub(crate) confined: bool,
    /// Nothing is copied to the clipboard of the terminal.
    pub(crate) no_copy: bool,
}

/// Result of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StatusMessage {
    /// Whether the operation succeeded.
    pub(crate) succeeded: bool,
    /// The result in one sentence.
    pub(crate) text: SanitizedText,
    /// When the message disappears.
    pub(crate) until: UnixMs,
}

/// Layout of a drawn frame.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ScreenLayout {
    /// Nodes in one row of the heat map.
    pub(crate) heat_row: usize,
    /// Nodes per cell of the heat map.
    pub(crate) heat_step: usize,
    /// Lines of a page.
    pub(crate) page: usize,
    /// Lines of a page without a cursor that do not fit on the screen.
    pub(crate) hidden: usize,
    /// Whether a side pane shows the node under the cursor of the heat map.
    pub(crate) has_side_pane: bool,
    /// Areas that accept clicks.
    pub(crate) click_areas: Vec<ClickArea>,
}

/// Area that accepts clicks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClickArea {
    /// Position and size.
    pub(crate) area: Rect,
    /// Target of a click.
    pub(crate) target: ClickTarget,
}

/// Target of a click.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClickTarget {
    /// Row of the shown list, by index.
    Row(usize),
    /// Row of an overview panel, by index.
    Panel(OverviewPanel, usize),
    /// Column heading, by the index among the list's columns.
    Heading(usize),
    /// Cell of the network map.
    Cell(usize, usize),
    /// Key of the footer.
    Key(KeyIntent),
}

impl ConsoleState {
    /// Creates a console that has no answers yet.
    pub(crate) fn new(source: Option<&str>, now: UnixMs, preferences: ConsolePreferences) -> Self {
        let mut lists = Subject::ALL.map(ListState::new);
        for (list, subject) in lists.iter_mut().zip(Subject::ALL) {
            if let Some(columns) = preferences.columns.get(subject.as_str()) {
                // Columns saved by another version may be unknown: the default columns are used then.
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
            clusters: Vec::new(),
            past_instant: None,
            instant_asked: None,
            shown_mark: None,
            marks: Vec::new(),
            history_start: None,
            last_present: None,
            panel: OverviewPanel::default(),
            grouping: HeatGrouping::default(),
            tint: None,
            heat: HeatIndex::default(),
            measure: NetworkMeasure::default(),
            cursors: ScreenCursors::default(),
            lists,
            to_write: None,
            unfolded: BTreeSet::new(),
            confirm: None,
            prompt: None,
            prompt_history: prompt::PromptHistory::default(),
            search: SearchState::default(),
            message: None,
            tour: None,
            config: UserConfig::default(),
            restriction: Restriction::default(),
            preferences,
            seen_critical: None,
            scroll: 0,
            layout: ScreenLayout::default(),
            now,
            utc_offset: None,
            replay: None,
        }
    }

    /// Applies the user's own file; columns that were saved later in the console take precedence.
    pub(crate) fn apply_config(&mut self, config: UserConfig, restriction: Restriction) {
        for (list, subject) in self.lists.iter_mut().zip(Subject::ALL) {
            let saved = self.preferences.columns.contains_key(subject.as_str());
            if let Some(columns) = config.columns.get(subject.as_str()).filter(|_| !saved) {
                // The columns were checked when the file was read.
                _ = list.choose_columns(columns);
            }
        }
        if let Some(errors) = config.describe_errors() {
            self.show_message(false, &errors);
        }
        self.utc_offset = config.zone.offset_seconds(self.now);
        (self.config, self.restriction) = (config, restriction);
    }

    /// Shows a message for a limited time.
    pub(super) fn show_message(&mut self, succeeded: bool, text: &str) {
        self.show_message_for(succeeded, text, MESSAGE);
    }

    /// Shows a message for this long.
    pub(super) fn show_message_for(&mut self, succeeded: bool, text: &str, lasts: Duration) {
        let until = self.now + lasts;
        self.message = Some(StatusMessage { succeeded, text: SanitizedText::new(text), until });
    }

    /// Removes the warning of an operation that another one has followed.
    pub(super) fn clear_warning(&mut self) {
        self.message.take_if(|message| !message.succeeded);
    }

    /// Returns the row selection of a subject.
    pub(crate) fn list_state(&self, subject: Subject) -> &ListState {
        &self.lists[subject as usize]
    }

    pub(super) fn list_state_mut(&mut self, subject: Subject) -> &mut ListState {
        &mut self.lists[subject as usize]
    }

    /// Returns the rows of a subject, if an answer arrived.
    pub(crate) fn subject_table(&self, subject: Subject) -> Option<&Arc<AnswerTable>> {
        self.data.tables[subject as usize].as_ref()
    }

    /// Returns the only node of a fleet of one node: the overview then shows it in full.
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

    /// Returns the node of this name, if the latest node answer is about it.
    pub(crate) fn node_detail(&self, name: &SanitizedText) -> Option<&Arc<NodeDetail>> {
        self.data.node.as_ref().filter(|detail| detail.line.node == *name)
    }

    /// Computes what the heat map shows, if that has changed.
    pub(super) fn renew_heat_index(&mut self) {
        let stored = self.data.tint.as_ref().filter(|(field, ..)| self.tint == Some(*field));
        self.heat.renew(&HeatAnswers {
            overview: self.data.overview.as_ref(),
            grouping: self.grouping,
            sites: self.data.sites.as_ref().map(|(_, table)| table),
            values: stored.map(|(field, _, table)| (*field, table)),
        });
    }

    /// Returns the node under the cursor of the heat map.
    pub(crate) fn heat_node(&self) -> Option<&SanitizedText> {
        let nodes = &self.data.overview.as_deref()?.heat.nodes;
        nodes.get(self.cursors.of(HEAT_CURSOR).row_index(nodes.len(), |at| &nodes[at]))
    }

    /// Returns the owners, the cost and the nearby changes of a finding, from the newest answer about it.
    pub(crate) fn finding_context(&self, id: &str) -> Option<&FindingContext> {
        let explained = self.data.explained.as_deref();
        let explained = explained.and_then(|explanation| explanation.context.as_ref());
        let listed = self.data.findings.iter().flat_map(|list| &list.contexts);
        let worst = self.data.overview.iter().flat_map(|overview| &overview.contexts);
        explained.into_iter().chain(listed).chain(worst).find(|context| context.id == id)
    }

    /// Returns the Alertmanager status of findings, if it is known and the present is shown.
    pub(crate) fn current_alerts(&self) -> Option<&AlertList> {
        self.data.alerts.as_ref().map(|(_, list)| &**list).filter(|_| self.past_instant.is_none())
    }
}
