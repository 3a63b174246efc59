//! Places: every screen there is, what it is called, and how many keys away it is.

use gaunt_schema::{DeviceClass, SanitizedText};

use crate::answer::Subject;

/// A screen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Screen {
    /// The fleet at a glance.
    #[default]
    Overview,
    /// Every open finding.
    Findings,
    /// One finding, by its id.
    Finding(SanitizedText),
    /// Everything that is known of one finding, by its id.
    Explanation(SanitizedText),
    /// The rows of a subject, as a table.
    List(Subject),
    /// One job.
    Job(SanitizedText),
    /// Users with what their jobs hold and lose.
    Users,
    /// Leaves by rails.
    Network,
    /// What probes between nodes measured.
    Probe,
    /// One node.
    Node(SanitizedText),
    /// One GPU or port of a node, by its class and its name there.
    Device(SanitizedText, DeviceClass, SanitizedText),
    /// How the parts of a node hang together.
    Topology(SanitizedText),
    /// What happened on a node of late.
    Events(SanitizedText),
}

/// The main screens: the key, the word that `:` takes too, and what they show.
pub(crate) const MAIN: [(u8, &str, &str); 9] = [
    (1, "overview", "the fleet at a glance"),
    (2, "findings", "every open finding"),
    (3, "jobs", "jobs, by what they lose"),
    (4, "network", "leaves by rails"),
    (5, "nodes", "every node, worst first"),
    (6, "gpus", "every GPU"),
    (7, "ports", "every port, by its load"),
    (8, "users", "users and what their jobs lose"),
    (9, "targets", "what is read, and how that went"),
];

impl Screen {
    /// The main screen of a number.
    pub(crate) const fn main(number: u8) -> Self {
        match number {
            2 => Self::Findings,
            3 => Self::List(Subject::Jobs),
            4 => Self::Network,
            5 => Self::List(Subject::Nodes),
            6 => Self::List(Subject::Gpus),
            7 => Self::List(Subject::Ports),
            8 => Self::Users,
            9 => Self::List(Subject::Targets),
            _ => Self::Overview,
        }
    }

    /// The main screen of a word.
    pub(crate) fn from_word(word: &str) -> Option<Self> {
        let found = MAIN.iter().find(|(_, name, _)| *name == word);
        found.map(|(number, ..)| Self::main(*number))
    }

    /// The finding that is shown, if it is one.
    pub(crate) const fn finding_id(&self) -> Option<&SanitizedText> {
        match self {
            Self::Finding(id) | Self::Explanation(id) => Some(id),
            _ => None,
        }
    }

    /// The node that is shown, if it is one.
    pub(crate) const fn node_name(&self) -> Option<&SanitizedText> {
        match self {
            Self::Node(node)
            | Self::Device(node, ..)
            | Self::Topology(node)
            | Self::Events(node) => Some(node),
            _ => None,
        }
    }

    /// What a filter would choose from here.
    pub(crate) const fn filter_subject(&self) -> Option<Subject> {
        match self {
            Self::List(subject) => Some(*subject),
            Self::Findings => Some(Subject::Findings),
            _ => None,
        }
    }

    /// The name of the screen, for its head.
    pub(crate) fn header_title(&self) -> String {
        match self {
            Self::Overview => "overview".into(),
            Self::Findings => "findings".into(),
            Self::Finding(_) => "finding".into(),
            Self::Explanation(_) => "explained".into(),
            Self::List(subject) => subject.as_str().into(),
            Self::Job(job) => format!("job {job}"),
            Self::Users => "users".into(),
            Self::Network => "network".into(),
            Self::Probe => "probe".into(),
            Self::Node(node) => node.to_string(),
            Self::Device(node, _, name) => format!("{node} {name}"),
            Self::Topology(node) => format!("{node} topology"),
            Self::Events(node) => format!("{node} events"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_main_screen_has_a_number_and_a_word_of_its_own() {
        for (at, (number, word, _)) in MAIN.iter().enumerate() {
            assert_eq!(Screen::from_word(word), Some(Screen::main(*number)));
            assert!(MAIN[at + 1..].iter().all(|(_, other, _)| other != word));
            assert!(number == &1 || Screen::main(*number) != Screen::Overview, "{word}");
        }
        assert_eq!(Screen::from_word("wibble"), None);
    }
}
