//! What every screen has: title, commands, keys, questions, rows, drawing, and what its keys and clicks do.

use std::{fmt::Debug, time::Duration};

use gaunt_schema::{SanitizedText, UnixMs};
use ratatui::{buffer::Buffer, layout::Rect};

use super::{
    action::KeyIntent,
    console_state::{ClickTarget, ConsoleState, ScreenLayout},
    cursor_rows::{CursorRows, row_steps, scroll_by},
    evidence_history,
    failed_questions::FailedQuestion,
    finding_list_rows::{FINDINGS_CURSOR, FindingRow, group_title},
    key_binding::KeyBinding,
    screen::{ListScreen, Screen},
    theme::Theme,
    view::placeholders,
};
use gaunt_api::{Finding, HistoryQuery, Question, Subject};

/// A screen: its parameters are the fields of the type that implements this trait.
pub(crate) trait ScreenView: Debug {
    /// Returns the commands and numbers that open the screen.
    fn commands() -> &'static [ScreenCommand]
    where
        Self: Sized,
    {
        &[]
    }

    /// Returns the title of the screen for its header.
    fn header_title(&self) -> String;

    /// Returns the keys of the screen, in the order of the help; the keys of every screen follow them.
    fn keys(&self) -> &'static [&'static [KeyBinding]];

    /// Returns the questions that the screen asks beside the overview.
    fn questions(&self, _state: &ConsoleState) -> Vec<Question> {
        self.node_name().cloned().map(Question::Node).into_iter().collect()
    }

    /// Returns all questions while the screen is shown.
    fn all_questions(&self, state: &ConsoleState) -> Vec<Question> {
        state.complete_questions(self.questions(state))
    }

    /// Returns the question of the screen whose last attempt failed.
    fn failed_question<'a>(&self, state: &'a ConsoleState) -> Option<&'a FailedQuestion> {
        state.failed.find_failure(&self.all_questions(state))
    }

    /// Returns the instant of the shown rows; none before their first answer.
    fn shown_at(&self, state: &ConsoleState) -> Option<UnixMs> {
        self.node_name().and_then(|name| state.node_detail(name)).map(|node| node.at)
    }

    /// Returns the additional age allowed for the answers: more than zero if they are polled less often.
    fn extra_age(&self) -> Duration {
        Duration::ZERO
    }

    /// Returns the shown and the matching number of rows and their name, if the answer may leave rows out.
    fn row_counts(&self, _state: &ConsoleState) -> Option<(u64, u64, &'static str)> {
        None
    }

    /// Draws the screen and returns its layout. The overview has been answered.
    fn draw(
        &self,
        buffer: &mut Buffer,
        area: Rect,
        state: &ConsoleState,
        theme: Theme,
    ) -> ScreenLayout;

    /// Draws the screen while it waits for its answer or will get none.
    fn draw_waiting(
        &self,
        buffer: &mut Buffer,
        area: Rect,
        what: &str,
        state: &ConsoleState,
        theme: Theme,
    ) -> ScreenLayout {
        let failed = self.failed_question(state);
        placeholders::draw_waiting(buffer, area, what, failed, state, theme)
    }

    /// Returns the id of the shown finding, if the screen shows one.
    fn finding_id(&self) -> Option<&SanitizedText> {
        None
    }

    /// Returns the name of the shown node, if the screen shows one.
    fn node_name(&self) -> Option<&SanitizedText> {
        None
    }

    /// Returns the subject whose order and columns the user chooses on this screen.
    fn table_subject(&self) -> Option<Subject> {
        None
    }

    /// Returns the subject that a filter applies to on this screen.
    fn filter_subject(&self) -> Option<Subject> {
        self.table_subject()
    }

    /// Returns the command that opens this screen with rows: `nodes lost>0`.
    fn rows_command(&self) -> Option<&'static str> {
        None
    }

    /// Returns whether Esc clears the user's filter of this screen before it leaves the screen.
    fn has_entered_filter(&self, state: &ConsoleState) -> bool {
        let subject = self.filter_subject();
        subject.is_some_and(|subject| state.list_state(subject).has_entered_filter())
    }

    /// Returns the finding rows: those of the screen, or else of the latest list.
    fn finding_rows<'a>(&self, state: &'a ConsoleState) -> Vec<FindingRow<'a>> {
        state.listed_finding_rows()
    }

    /// Returns whether the cursor is in the finding rows.
    fn has_finding_cursor(&self, _state: &ConsoleState) -> bool {
        false
    }

    /// Returns the finding or group row under the cursor, if the finding rows have the cursor.
    fn finding_row<'a>(&self, state: &'a ConsoleState) -> Option<FindingRow<'a>> {
        let shown = self.has_finding_cursor(state);
        let rows = if shown { self.finding_rows(state) } else { Vec::new() };
        let cursor = state.cursors.of(FINDINGS_CURSOR);
        rows.get(cursor.row_index(rows.len(), |at| rows[at].row_key())).copied()
    }

    /// Returns the finding whose evidence is shown with its histories.
    fn evidence_finding<'a>(&self, _state: &'a ConsoleState) -> Option<&'a Finding> {
        None
    }

    /// Returns the histories that the screen shows, apart from those of a node.
    fn history_queries(&self, state: &ConsoleState) -> Vec<HistoryQuery> {
        let shown = self.evidence_finding(state);
        shown.into_iter().flat_map(evidence_history::history_queries).flatten().collect()
    }

    /// Returns the rows that the cursor moves over; a screen without them scrolls.
    fn cursor_rows(&self, _state: &ConsoleState) -> Option<CursorRows> {
        None
    }

    /// Returns the screen that the item under the cursor opens.
    fn item_target(&self, _state: &ConsoleState) -> Option<Screen> {
        None
    }

    /// Opens the item under the cursor.
    fn open_item(&self, state: &mut ConsoleState) -> ScreenOutcome {
        ScreenOutcome::open(self.item_target(state))
    }

    /// Returns the job of the item under the cursor.
    fn item_job(&self, state: &ConsoleState) -> Option<SanitizedText> {
        state.node_detail(self.node_name()?)?.line.jobs.first().cloned()
    }

    /// Returns the item under the cursor as text; none for the name of the screen that it opens.
    fn item_text(&self, state: &ConsoleState) -> Option<String> {
        let FindingRow::Group { group, .. } = self.finding_row(state)? else { return None };
        Some(format!("{} {}: {}", group.kind, group_title(group, true), group.members.join(" ")))
    }

    /// Returns the name of the shown entity as text, for a row that opens this screen.
    fn copied_name(&self) -> String {
        self.header_title()
    }

    /// Handles a key of the screen or of the cursor.
    fn handle_intent(&self, state: &mut ConsoleState, intent: KeyIntent) -> ScreenOutcome {
        let by = row_steps(state, intent);
        match self.cursor_rows(state) {
            Some(rows) => rows.move_by(state, by),
            None => scroll_by(state, by),
        }
        ScreenOutcome::Redraw
    }

    /// Handles a click on an area of the screen: the first one moves the cursor there, the second one opens the item.
    fn handle_click(&self, state: &mut ConsoleState, target: ClickTarget) -> ScreenOutcome {
        match (target, self.cursor_rows(state)) {
            (ClickTarget::Row(row), Some(rows)) if rows.move_to(state, row) => {
                self.open_item(state)
            }
            (ClickTarget::Row(_), Some(_)) => ScreenOutcome::Ask,
            _ => ScreenOutcome::Unchanged,
        }
    }
}

/// What a screen wants after a key or a click.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) enum ScreenOutcome {
    /// Nothing.
    #[default]
    Unchanged,
    /// To be redrawn.
    Redraw,
    /// To be redrawn, and to ask its questions.
    Ask,
    /// Another screen to be opened.
    Open(Screen),
}

impl ScreenOutcome {
    /// Opens the screen of an item; only redraws if there is no item.
    pub(crate) fn open(target: Option<Screen>) -> Self {
        target.map_or(Self::Redraw, Self::Open)
    }

    /// Opens the list of a subject with a filter, for an item that represents several rows; none if there is no item.
    pub(crate) fn open_filtered_list(
        state: &mut ConsoleState,
        subject: Subject,
        filter: Option<String>,
    ) -> Self {
        Self::open(filter.map(|filter| {
            // The filter consists of quoted names; if it does not parse, the list stays unfiltered.
            _ = state.list_state_mut(subject).apply_screen_filter(&filter);
            ListScreen(subject).into()
        }))
    }
}

/// Command that opens a screen.
#[derive(Debug)]
pub(crate) struct ScreenCommand {
    /// Name of the command.
    pub(crate) word: &'static str,
    /// Arguments as in the help; empty if the command takes none.
    pub(crate) arguments: &'static str,
    /// What an empty argument lacks.
    pub(crate) needs: &'static str,
    /// Whether the first argument is the name of a node.
    pub(crate) takes_node: bool,
    /// Short description.
    pub(crate) help: &'static str,
    /// Number of a main screen, and the description of its key.
    pub(crate) main: Option<(u8, &'static str)>,
    /// Returns the screen of the arguments, or why they are invalid.
    pub(crate) open: fn(&str) -> Result<Screen, String>,
}

impl ScreenCommand {
    /// Defines the command of a main screen.
    pub(crate) const fn main(
        number: u8,
        word: &'static str,
        help: &'static str,
        key_help: &'static str,
        open: fn(&str) -> Result<Screen, String>,
    ) -> Self {
        Self { main: Some((number, key_help)), ..Self::other(word, help, open) }
    }

    /// Defines a command without arguments.
    pub(crate) const fn other(
        word: &'static str,
        help: &'static str,
        open: fn(&str) -> Result<Screen, String>,
    ) -> Self {
        Self { word, arguments: "", needs: "", takes_node: false, help, main: None, open }
    }

    /// Adds arguments, what a command without them lacks, and whether the first one is a node.
    pub(crate) const fn with_arguments(
        self,
        arguments: &'static str,
        needs: &'static str,
        takes_node: bool,
    ) -> Self {
        Self { arguments, needs, takes_node, ..self }
    }

    /// Returns the number of a main screen.
    pub(crate) fn number(&self) -> Option<u8> {
        self.main.map(|(number, _)| number)
    }

    /// Returns the screen of these arguments, or why they are invalid.
    pub(crate) fn parse_arguments(&self, arguments: &str) -> Result<Screen, String> {
        match (self.arguments.is_empty(), arguments.is_empty()) {
            (true, false) => Err(format!("{} takes no argument", self.word)),
            (false, true) => Err(format!("{} needs {}", self.word, self.needs)),
            _ => (self.open)(arguments),
        }
    }
}
