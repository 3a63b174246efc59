//! Screens of the console: their titles, their main keys, and the entity that each of them shows.

use gaunt_schema::{DeviceClass, SanitizedText};

use gaunt_api::Subject;

/// Screen of the console.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Screen {
    /// Overview of the fleet.
    #[default]
    Overview,
    /// All open findings.
    Findings,
    /// One finding, by its id.
    Finding(SanitizedText),
    /// Explanation of one finding, by its id.
    Explanation(SanitizedText),
    /// Rows of a subject, as a table.
    List(Subject),
    /// One job.
    Job(SanitizedText),
    /// Users with the GPUs that their jobs hold and lose.
    Users,
    /// Network map: leaves by rails.
    Network,
    /// Measurements of the cross-node probe.
    Probe,
    /// One node.
    Node(SanitizedText),
    /// One GPU or port of a node, by its class and its name there.
    Device(SanitizedText, DeviceClass, SanitizedText),
    /// Topology of a node.
    Topology(SanitizedText),
    /// Recent events of a node.
    Events(SanitizedText),
}

/// The main screens: key, command name, and description.
pub(crate) const MAIN: [(u8, &str, &str); 9] = [
    (1, "overview", "fleet summary"),
    (2, "findings", "open findings"),
    (3, "jobs", "jobs, by GPUs lost"),
    (4, "network", "leaves by rails"),
    (5, "nodes", "all nodes, worst first"),
    (6, "gpus", "all GPUs"),
    (7, "ports", "all ports, by load"),
    (8, "users", "users, by GPUs lost"),
    (9, "targets", "scrape state of all targets"),
];

impl Screen {
    /// Returns the main screen of a number.
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

    /// Returns the main screen of a command name.
    pub(crate) fn from_word(word: &str) -> Option<Self> {
        let found = MAIN.iter().find(|(_, name, _)| *name == word);
        found.map(|(number, ..)| Self::main(*number))
    }

    /// Returns the id of the shown finding, if the screen shows one.
    pub(crate) const fn finding_id(&self) -> Option<&SanitizedText> {
        match self {
            Self::Finding(id) | Self::Explanation(id) => Some(id),
            _ => None,
        }
    }

    /// Returns the name of the shown node, if the screen shows one.
    pub(crate) const fn node_name(&self) -> Option<&SanitizedText> {
        match self {
            Self::Node(node)
            | Self::Device(node, ..)
            | Self::Topology(node)
            | Self::Events(node) => Some(node),
            _ => None,
        }
    }

    /// Returns the subject that a filter applies to on this screen.
    pub(crate) const fn filter_subject(&self) -> Option<Subject> {
        match self {
            Self::List(subject) => Some(*subject),
            Self::Findings => Some(Subject::Findings),
            _ => None,
        }
    }

    /// Returns the title of the screen for its header.
    pub(crate) fn header_title(&self) -> String {
        match self {
            Self::Overview => "overview".into(),
            Self::Findings => "findings".into(),
            Self::Finding(_) => "finding".into(),
            Self::Explanation(_) => "explain".into(),
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
