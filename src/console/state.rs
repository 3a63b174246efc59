//! What the console knows and where the reader is: plain data, drawn by `view`, changed only by `update`.

use std::sync::Arc;

use gaunt_schema::{Safe, UnixMs};

use super::cursor::Cursor;
use crate::answer::{Finding, FindingList, NodeDetail, NodeList, Overview, Question, Refusal};

/// Places that can be gone back to; more are forgotten, the oldest first.
pub(super) const TRAIL: usize = 16;

/// Everything that a screen is drawn from.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// The screen that is shown.
    pub(crate) place: Place,
    /// The screens that Esc goes back to, the last one first to be taken.
    pub(super) trail: Vec<Place>,
    /// Whether the keys are shown over everything.
    pub(crate) help: bool,
    /// What was answered.
    pub(crate) data: Data,
    /// How the source fares.
    pub(crate) link: Link,
    /// Who is asked; none for the owner in this process.
    pub(crate) source: Option<Safe>,
    /// The panel of the overview that has the cursor.
    pub(crate) panel: Panel,
    /// Where the cursor is among findings.
    pub(crate) findings: Cursor,
    /// Where the cursor is in the heat map, by node.
    pub(crate) heat: Cursor,
    /// Where the cursor is among the worst nodes.
    pub(crate) worst: Cursor,
    /// Where the cursor is among all nodes.
    pub(crate) nodes: Cursor,
    /// How far a page that is only read is scrolled down.
    pub(crate) scroll: usize,
    /// What the last drawing found out about the room there is.
    pub(crate) room: Room,
    /// The console's clock, as of the last thing that happened.
    pub(crate) now: UnixMs,
    /// Whether the replay that is shown is held; none if it is no replay.
    pub(crate) held: Option<bool>,
}

/// A screen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Place {
    /// The fleet at a glance.
    #[default]
    Overview,
    /// Every open finding.
    Findings,
    /// One finding, by its id.
    Finding(String),
    /// Every node.
    Nodes,
    /// One node.
    Node(Safe),
}

/// A panel of the overview.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Panel {
    /// The worst findings.
    #[default]
    Findings,
    /// The heat map.
    Heat,
    /// The worst nodes.
    Worst,
}

/// What was answered last. Nothing is thrown away because a later question failed: it is shown with its age.
#[derive(Debug, Default)]
pub(crate) struct Data {
    /// The fleet.
    pub(crate) overview: Option<Arc<Overview>>,
    /// All nodes.
    pub(crate) nodes: Option<Arc<NodeList>>,
    /// The node that was asked for last.
    pub(crate) node: Option<Arc<NodeDetail>>,
    /// All open findings.
    pub(crate) findings: Option<Arc<FindingList>>,
    /// The finding that was opened last, kept when it closes, and whether it is still open.
    pub(crate) finding: Option<(Finding, bool)>,
    /// Why the node that was asked for last has no answer.
    pub(crate) refused: Option<Refusal>,
}

/// How the source fares.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Link {
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
        why: Safe,
    },
}

/// What a drawing found out about the room there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Room {
    /// Nodes in one row of the heat map.
    pub(crate) heat_row: usize,
    /// Nodes behind one cell of the heat map.
    pub(crate) heat_step: usize,
    /// Lines of a page.
    pub(crate) page: usize,
    /// Lines that a page that is only read has beyond its end.
    pub(crate) hidden: usize,
}

impl State {
    /// A console that has asked nothing yet.
    pub(crate) fn new(source: Option<&str>, now: UnixMs) -> Self {
        Self { source: source.map(Safe::new), now, ..Self::default() }
    }

    /// The same of a replay, if it is one.
    pub(crate) fn of_replay(self, is_replay: bool) -> Self {
        Self { held: is_replay.then_some(false), ..self }
    }

    /// The only node, if the whole fleet is one: then the overview shows it in full.
    pub(crate) fn only_node(&self) -> Option<&Safe> {
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
    pub(crate) fn node(&self, name: &Safe) -> Option<&Arc<NodeDetail>> {
        self.data.node.as_ref().filter(|detail| detail.line.node == *name)
    }

    /// What the shown screen needs to be asked.
    pub(super) fn questions(&self) -> Vec<Question> {
        let mut questions = vec![Question::Overview];
        match &self.place {
            Place::Overview => {
                let one = self.data.overview.as_deref().is_some_and(|overview| {
                    overview.nodes.live + overview.nodes.stale + overview.nodes.down == 1
                });
                match self.only_node() {
                    Some(name) => questions.push(Question::Node(name.clone())),
                    None if one => questions.push(Question::Nodes),
                    None => {}
                }
            }
            Place::Findings | Place::Finding(_) => questions.push(Question::Findings),
            Place::Nodes => questions.push(Question::Nodes),
            Place::Node(name) => questions.push(Question::Node(name.clone())),
        }
        questions
    }
}
