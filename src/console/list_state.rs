//! Selection of a list: filter, sort order, columns and cursor of the rows of a subject.
//!
//! Only a window of the rows is requested: the source filters and sorts, so the cost does not depend on the fleet
//! size.

use gaunt_api::{AnswerTable, Filter, FilterError, Question, Subject, SubjectField};

/// Number of rows requested at once: several screens full.
pub(crate) const WINDOW: u32 = 240;

/// Row selection of a subject.
#[derive(Clone, Debug)]
pub(crate) struct ListState {
    subject: Subject,
    /// Filter expression; empty for all rows.
    pub(crate) rows: String,
    /// Whether another screen set the filter when it opened the list.
    filter_of_screen: bool,
    /// Sort field, and whether the order is descending; none for the source's own order.
    pub(crate) sort: Option<(&'static SubjectField, bool)>,
    /// Columns, if the user chose any.
    pub(crate) chosen: Option<Vec<&'static SubjectField>>,
    /// Key of the row under the cursor; none until the cursor is moved.
    key: Option<String>,
    /// Index of the cursor among all matching rows.
    pub(crate) at: usize,
}

impl ListState {
    /// Creates a list of all rows of a subject in its default order.
    pub(crate) fn new(subject: Subject) -> Self {
        let sort = default_sort(subject).and_then(|name| Some((subject.find_field(name)?, true)));
        Self {
            subject,
            rows: String::new(),
            filter_of_screen: false,
            sort,
            chosen: None,
            key: None,
            at: 0,
        }
    }

    /// Returns the shown columns.
    pub(crate) fn shown_columns(&self) -> Vec<&'static SubjectField> {
        self.chosen.clone().unwrap_or_else(|| {
            if default_columns(self.subject).is_empty() {
                return self.subject.default_fields().collect();
            }
            default_columns(self.subject)
                .iter()
                .filter_map(|name| self.subject.find_field(name))
                .collect()
        })
    }

    /// Returns the question for the shown rows.
    pub(crate) fn rows_question(&self) -> Question {
        let filter = Filter::parse(self.subject, &self.filter_text(self.window_offset()));
        // The filter was validated when it was applied, so it parses again.
        Question::Table(filter.unwrap_or_else(|_| Filter::all_rows(self.subject)))
    }

    fn window_offset(&self) -> u32 {
        let half = WINDOW / 2;
        (self.at as u32 / half).saturating_sub(1) * half
    }

    fn filter_text(&self, from: u32) -> String {
        let mut names: Vec<&str> = identity_fields(self.subject)
            .iter()
            .copied()
            .filter(|name| self.subject.find_field(name).is_some())
            .collect();
        for field in self.shown_columns() {
            if !names.contains(&field.name.as_str()) {
                names.push(&field.name);
            }
        }
        let sort = match (self.sort, self.subject) {
            (None, Subject::Ports) => PORTS_WORST_FIRST.to_owned(),
            _ => self.sort_clause(),
        };
        format!("{}{sort} limit {WINDOW} offset {from} columns {}", self.rows, names.join(","))
    }

    /// Returns the rows, the order and the chosen columns as clauses of a filter.
    pub(crate) fn own_clauses(&self) -> String {
        let columns = self.chosen.as_ref().map_or_else(String::new, |chosen| {
            let names: Vec<&str> = chosen.iter().map(|field| field.name.as_str()).collect();
            format!(" columns {}", names.join(","))
        });
        format!("{}{}{columns}", self.rows, self.sort_clause()).trim().to_owned()
    }

    fn sort_clause(&self) -> String {
        self.sort.map_or_else(String::new, |(field, descending)| {
            format!(" sort {}{}", field.name, if descending { " desc" } else { "" })
        })
    }

    /// Applies a filter as the user typed it: clauses set the list's own order and columns. A single word without a
    /// comparison is searched for in the name of each row.
    pub(crate) fn apply_filter(&mut self, text: &str) -> Result<(), FilterError> {
        let text = text.trim();
        let filter = match Filter::parse(self.subject, text) {
            Ok(filter) => filter,
            Err(error) => {
                let name = identity_fields(self.subject)[0];
                let word = !text.is_empty()
                    && text.chars().all(|c| c.is_alphanumeric() || "-_.:*?".contains(c));
                match Filter::parse(self.subject, &format!("{name}~{text}")) {
                    Ok(filter) if word => filter,
                    _ => return Err(error),
                }
            }
        };
        let rows = filter.rows_text().to_owned();
        let mut updated = Self { rows, filter_of_screen: false, ..self.clone() };
        if let Some(sort) = filter.sort_fields().next() {
            updated.sort = Some(sort);
        }
        if filter.has_columns() {
            updated.chosen = Some(filter.shown_columns());
        }
        // The filter must also parse together with the clauses that the list adds.
        Filter::parse(self.subject, &updated.filter_text(0))?;
        (updated.key, updated.at) = (None, 0);
        *self = updated;
        Ok(())
    }

    /// Applies the filter of another screen, which opens the list for these rows.
    pub(crate) fn apply_screen_filter(&mut self, text: &str) -> Result<(), FilterError> {
        self.apply_filter(text)?;
        self.filter_of_screen = true;
        Ok(())
    }

    /// Returns whether the user entered the filter here.
    pub(crate) fn has_entered_filter(&self) -> bool {
        !self.rows.is_empty() && !self.filter_of_screen
    }

    /// Removes the filter, or only that of another screen; keeps order and columns.
    pub(crate) fn clear_filter(&mut self, only_of_screen: bool) {
        if self.rows.is_empty() || only_of_screen && !self.filter_of_screen {
            return;
        }
        (self.rows, self.filter_of_screen) = (String::new(), false);
        (self.key, self.at) = (None, 0);
    }

    /// Chooses columns by their names, or the default columns if there are none.
    pub(crate) fn choose_columns(&mut self, names: &str) -> Result<(), FilterError> {
        if names.trim().is_empty() {
            self.chosen = None;
            return Ok(());
        }
        let filter = Filter::parse(self.subject, &format!("columns {names}"))?;
        self.chosen = Some(filter.shown_columns());
        Ok(())
    }

    /// Sorts by a field; sorting by the current field reverses the order.
    pub(crate) fn sort_by(&mut self, field: &'static SubjectField) {
        let numeric = matches!(field.kind, gaunt_api::FieldKind::Number(_));
        self.sort = match self.sort {
            Some((current, descending)) if current == field => Some((field, !descending)),
            _ => Some((field, numeric)),
        };
    }

    /// Sorts by the column next to the current sort column.
    pub(crate) fn sort_by_neighbour(&mut self, next: bool) {
        let columns = self.shown_columns();
        if columns.is_empty() {
            return;
        }
        let at = self.sort.and_then(|(field, _)| columns.iter().position(|c| *c == field));
        let to = match (at, next) {
            (None, true) => 0,
            (None, false) => columns.len() - 1,
            (Some(at), true) => (at + 1) % columns.len(),
            (Some(at), false) => (at + columns.len() - 1) % columns.len(),
        };
        self.sort = None;
        self.sort_by(columns[to]);
    }

    /// Reverses the sort order.
    pub(crate) fn reverse_order(&mut self) {
        self.sort = self.sort.map(|(field, descending)| (field, !descending));
    }

    /// Moves the cursor by a number of rows of a table and stops at the ends.
    pub(crate) fn move_cursor_by(&mut self, by: isize, table: &AnswerTable) {
        let count = table.matched as usize;
        if count > 0 {
            let at = self.cursor_position(table).saturating_add_signed(by).min(count - 1);
            self.move_cursor_to(at, table);
        }
    }

    /// Moves the cursor to a row.
    pub(crate) fn move_cursor_to(&mut self, at: usize, table: &AnswerTable) {
        self.at = at;
        self.key = at.checked_sub(table.offset as usize).and_then(|row| row_key(table, row));
    }

    /// Returns the index of the cursor among all matching rows: it follows its row while the table contains it.
    pub(crate) fn cursor_position(&self, table: &AnswerTable) -> usize {
        let offset = table.offset as usize;
        let row_in_table = self.at.checked_sub(offset);
        if let Some(selected_key) = &self.key
            && row_in_table.and_then(|row| row_key(table, row)).as_ref() != Some(selected_key)
            && let Some(row) = (0..table.rows as usize)
                .find(|row| row_key(table, *row).as_ref() == Some(selected_key))
        {
            return offset + row;
        }
        self.at.min((table.matched as usize).saturating_sub(1))
    }

    /// Returns the row of a table under the cursor.
    pub(crate) fn cursor_row(&self, table: &AnswerTable) -> Option<usize> {
        let row = self.cursor_position(table).checked_sub(table.offset as usize)?;
        (row < table.rows as usize).then_some(row)
    }

    /// Moves the cursor to the index of its row in a new table.
    pub(crate) fn follow_row(&mut self, table: &AnswerTable) {
        self.at = self.cursor_position(table);
    }
}

/// Returns the unique key of a row.
fn row_key(table: &AnswerTable, row: usize) -> Option<String> {
    if row >= table.rows as usize {
        return None;
    }
    let parts = identity_fields(table.subject).iter().map(|name| {
        table
            .find_column(name)
            .and_then(|column| column.text_at(row))
            .map_or("", |text| text.as_str())
    });
    Some(parts.collect::<Vec<_>>().join("/"))
}

/// Returns the fields that identify a row, the name first.
pub(crate) const fn identity_fields(subject: Subject) -> &'static [&'static str] {
    match subject {
        Subject::Gpus => &["node", "gpu"],
        Subject::Nodes => &["node"],
        Subject::Jobs => &["job"],
        Subject::Ports => &["node", "device", "port"],
        Subject::Findings | Subject::Closed => &["id"],
        Subject::Processes => &["node", "gpu", "pid"],
        Subject::Targets => &["address"],
    }
}

const fn default_sort(subject: Subject) -> Option<&'static str> {
    match subject {
        Subject::Jobs | Subject::Gpus => Some("lost"),
        Subject::Processes => Some("memory"),
        _ => None,
    }
}

/// Returns the default columns of a list, the most important first: columns that do not fit are dropped from the end.
const fn default_columns(subject: Subject) -> &'static [&'static str] {
    match subject {
        Subject::Gpus => GPUS,
        Subject::Nodes => NODES,
        Subject::Jobs => JOBS,
        Subject::Ports => PORTS,
        Subject::Findings => &["severity", "finding", "entity", "age", "cost", "confidence"],
        Subject::Targets => TARGETS,
        // These subjects use their default fields.
        Subject::Closed | Subject::Processes => &[],
    }
}

#[rustfmt::skip]
const GPUS: &[&str] = &[
    "node", "gpu", "state", "job", "utilization", "lost", "power", "temperature", "memory_used",
    "finding", "recent_power", "sm_active", "tensor_active", "sm_clock", "user", "model",
];

#[rustfmt::skip]
const NODES: &[&str] = &[
    "node", "state", "gpu_states", "lost", "gpu_utilization", "finding", "ports_active", "ports",
    "gpu_power", "recent_power", "io_pressure_some", "rack", "job", "user",
];

#[rustfmt::skip]
const JOBS: &[&str] = &[
    "job", "job_name", "user", "gpus", "lost", "useful", "finding", "nodes", "gpu_utilization",
    "gpu_power", "recent_power", "runtime", "account", "partition",
];

#[rustfmt::skip]
const PORTS: &[&str] = &[
    "node", "device", "state", "load", "finding", "rail", "leaf", "receive", "transmit", "rate",
    "symbol_errors", "link_downed", "ecn_marked_packets",
];

/// Order of ports: those with findings, then those that are down, then the others by load.
const PORTS_WORST_FIRST: &str = " sort finding, state desc, load desc";

#[rustfmt::skip]
const TARGETS: &[&str] = &[
    "address", "node", "state", "age", "duration", "failure", "dialect", "samples", "rejected",
    "unknown_fields", "origin",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn question_text(list: &ListState) -> String {
        match list.rows_question() {
            Question::Table(filter) => filter.source_text().to_owned(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn list_questions_are_valid_for_each_subject() {
        for subject in Subject::ALL {
            let list = ListState::new(subject);
            let named = default_columns(subject).len();
            assert!(named == 0 || list.shown_columns().len() == named, "{subject:?}");
            assert!(!list.shown_columns().is_empty(), "{subject:?}");
            assert!(question_text(&list).contains("limit 240 offset 0 columns"), "{subject:?}");
        }
    }

    #[test]
    fn filter_sets_order_and_columns() {
        let mut list = ListState::new(Subject::Gpus);
        list.apply_filter("power>300W sort temperature desc columns gpu,power").unwrap();
        assert_eq!(
            question_text(&list),
            "power>300W sort temperature desc limit 240 offset 0 columns node,gpu,power"
        );
        list.apply_filter("gpu003").unwrap();
        assert!(
            question_text(&list).starts_with("node~gpu003 sort temperature desc"),
            "{}",
            question_text(&list)
        );
        let error = list.apply_filter("powr>3 and gpu=1").unwrap_err();
        assert_eq!((error.column, error.length), (1, 4));
        assert_eq!(list.rows, "node~gpu003", "an invalid filter changes nothing");
        list.apply_filter("").unwrap();
        assert_eq!(list.rows, "");
    }

    #[test]
    fn sort_key_cycles_through_the_columns_and_reverses() {
        let mut list = ListState::new(Subject::Nodes);
        assert!(list.sort.is_none());
        list.sort_by_neighbour(true);
        assert_eq!(
            list.sort.map(|(field, descending)| (field.name.as_str(), descending)),
            Some(("node", false))
        );
        list.sort_by_neighbour(false);
        assert_eq!(list.sort.unwrap().0.name, "user");
        list.sort_by(Subject::Nodes.find_field("lost").unwrap());
        assert!(list.sort.unwrap().1, "numbers sort descending first");
        list.reverse_order();
        assert!(!list.sort.unwrap().1);
    }

    #[test]
    fn rows_far_down_are_requested_when_the_cursor_comes_near() {
        let mut list = ListState::new(Subject::Gpus);
        list.at = 1_000;
        assert!(question_text(&list).contains("limit 240 offset 840 "), "{}", question_text(&list));
    }
}
