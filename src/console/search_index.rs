//! Search over everything that has a name: findings, nodes, jobs, users, ports, screens and commands.

use std::collections::{BTreeMap, HashMap, HashSet};

use gaunt_schema::{DeviceClass, SanitizedText, Severity};

use super::{
    console_state::ConsoleState,
    prompt_commands,
    screen::{DeviceScreen, FindingScreen, JobScreen, NodeScreen},
    screens,
    search_match::{MAX_MATCHES, MatchKind, MatchTarget, SearchMatch},
};
use gaunt_api::{AnswerTable, Finding, FindingContext, filter::quote_text};

/// Returns the best matches of a text, best first; at equal quality what has the worst finding comes first. Without a
/// text, the open findings.
pub(crate) fn search_fleet(state: &ConsoleState, text: &str) -> Vec<SearchMatch> {
    let lower = text.to_lowercase();
    let mut search = FleetSearch {
        words: lower.split_whitespace().collect(),
        blamed: blamed_nodes(state),
        matches: Vec::new(),
    };
    search.add_findings(state);
    if !search.words.is_empty() {
        search.add_nodes(state);
        search.add_jobs_and_users(state);
        search.add_ports(state);
        search.add_commands(state);
    }
    let mut matches = search.matches;
    matches.sort_by(|a, b| {
        let rank = |one: &SearchMatch| one.score + severity_bonus(one.severity);
        rank(b).cmp(&rank(a)).then_with(|| a.kind.cmp(&b.kind))
    });
    matches.truncate(MAX_MATCHES);
    matches
}

/// Returns the worst severity on each node that an open finding names.
fn blamed_nodes(state: &ConsoleState) -> HashMap<&str, Severity> {
    let mut blamed: HashMap<&str, Severity> = HashMap::new();
    for finding in open_findings(state) {
        if let Some(node) = &finding.entity.node {
            let worst = blamed.entry(node).or_insert(finding.severity);
            *worst = (*worst).max(finding.severity);
        }
    }
    blamed
}

/// Returns the open findings of the latest answers, each once.
pub(crate) fn open_findings(state: &ConsoleState) -> Vec<&Finding> {
    let listed = state.data.findings.iter().flat_map(|list| &list.findings);
    let worst = state.data.overview.iter().flat_map(|overview| &overview.findings);
    let mut seen = HashSet::new();
    worst.chain(listed).filter(|finding| seen.insert(finding.id.as_str())).collect()
}

const fn severity_bonus(severity: Option<Severity>) -> i32 {
    match severity {
        Some(Severity::Critical) => 90,
        Some(Severity::Warning) => 60,
        Some(Severity::Info) => 20,
        None => 0,
    }
}

/// A search in progress.
struct FleetSearch<'a> {
    /// The words of the text, in lower case.
    words: Vec<&'a str>,
    blamed: HashMap<&'a str, Severity>,
    matches: Vec<SearchMatch>,
}

impl<'a> FleetSearch<'a> {
    /// Adds a match, if every word of the text matches one of the names.
    fn add_match(
        &mut self,
        kind: MatchKind,
        names: &[&str],
        severity: Option<Severity>,
        render: impl FnOnce() -> (String, String, MatchTarget),
    ) {
        let score = |word: &&str| names.iter().filter_map(|name| score_word(word, name)).max();
        let Some(total) = self.words.iter().map(score).sum::<Option<i32>>() else { return };
        let score = total / self.words.len().max(1) as i32;
        let (text, note, target) = render();
        let (text, note) = (SanitizedText::new(&text), SanitizedText::new(&note));
        self.matches.push(SearchMatch { kind, text, note, severity, target, score });
    }

    fn add_findings(&mut self, state: &'a ConsoleState) {
        for finding in open_findings(state) {
            let entity = finding.entity.to_string();
            let owner = state.finding_context(&finding.id).and_then(FindingContext::describe_jobs);
            let names = [finding.kind.as_str(), &entity, owner.as_deref().unwrap_or("")];
            self.add_match(MatchKind::Finding, &names, Some(finding.severity), || {
                let target =
                    MatchTarget::Screen(FindingScreen(SanitizedText::new(&finding.id)).into());
                (format!("{}  {entity}", finding.kind), finding.summary.clone(), target)
            });
        }
    }

    fn add_nodes(&mut self, state: &'a ConsoleState) {
        let Some(overview) = state.data.overview.as_deref() else { return };
        let worst = overview.worst.iter().map(|line| &line.node);
        let mut seen = HashSet::new();
        for node in overview.heat.nodes.iter().chain(worst) {
            if !seen.insert(node.as_str()) {
                continue;
            }
            let severity = self.blamed.get(node.as_str()).copied();
            self.add_match(MatchKind::Node, &[node], severity, || {
                let target = MatchTarget::Screen(NodeScreen(node.clone()).into());
                (node.to_string(), String::new(), target)
            });
        }
    }

    fn add_jobs_and_users(&mut self, state: &'a ConsoleState) {
        let Some(table) = state.data.users.as_deref() else { return };
        let text = |field: &str, row| column_text(table, field, row);
        let mut users: BTreeMap<&str, usize> = BTreeMap::new();
        for row in 0..table.rows as usize {
            let Some(job) = text("job", row) else { continue };
            let (name, user) = (text("job_name", row), text("user", row));
            if let Some(user) = user {
                *users.entry(user).or_default() += 1;
            }
            let names = [job, name.unwrap_or(""), user.unwrap_or("")];
            let lost = table.find_column("lost").and_then(|column| column.number_at(row));
            let severity = lost.filter(|lost| *lost >= 1.0).map(|_| Severity::Warning);
            self.add_match(MatchKind::Job, &names, severity, || {
                let note = [name, user].into_iter().flatten().collect::<Vec<_>>().join(" of ");
                let target = MatchTarget::Screen(JobScreen(SanitizedText::new(job)).into());
                (job.to_owned(), note, target)
            });
        }
        for (user, jobs) in users {
            self.add_match(MatchKind::User, &[user], None, || {
                let plural = if jobs == 1 { "" } else { "s" };
                let target = MatchTarget::Jobs(format!("user={}", quote_text(user)));
                (user.to_owned(), format!("{jobs} job{plural}"), target)
            });
        }
    }

    fn add_ports(&mut self, state: &'a ConsoleState) {
        let Some(table) = state.data.search_ports.as_ref().map(|(_, table)| &**table) else {
            return;
        };
        for row in 0..table.rows as usize {
            let text = |field: &str| column_text(table, field, row);
            let (Some(node), Some(device)) = (text("node"), text("device")) else { continue };
            let port = text("port").unwrap_or("1");
            let name = format!("{node} {device}/{port}");
            self.add_match(MatchKind::Port, &[device, &name], None, || {
                let device = SanitizedText::new(&format!("{device}/{port}"));
                let screen = DeviceScreen(SanitizedText::new(node), DeviceClass::Port, device);
                (name.clone(), String::new(), MatchTarget::Screen(screen.into()))
            });
        }
    }

    fn add_commands(&mut self, state: &'a ConsoleState) {
        for (name, command) in &state.preferences.saved {
            self.add_match(MatchKind::Command, &[name], None, || {
                (format!(":{name}"), command.clone(), MatchTarget::Command(name.clone()))
            });
        }
        let main = screens::main_commands().into_iter();
        let main = main.map(|command| (command.word, "", command.help));
        for (word, arguments, help) in main.chain(prompt_commands::listed_commands()) {
            self.add_match(MatchKind::Command, &[word], None, || {
                let gap = if arguments.is_empty() { "" } else { " " };
                let target = MatchTarget::Command(format!("{word}{gap}"));
                (format!(":{word}{gap}{arguments}"), help.to_owned(), target)
            });
        }
    }
}

fn column_text<'t>(table: &'t AnswerTable, field: &str, row: usize) -> Option<&'t str> {
    table.find_column(field)?.text_at(row).map(SanitizedText::as_str)
}

/// Returns how well a word in lower case matches a name: the whole name, its beginning, a part that begins after a
/// separator, any part, or its letters in order with gaps. None if it does not.
fn score_word(word: &str, name: &str) -> Option<i32> {
    let short = 40_usize.saturating_sub(name.len()) as i32;
    let at = find_ignoring_case(name, word);
    if let Some(at) = at {
        let begins = at == 0;
        let after = name[..at].chars().next_back().is_none_or(|c| !c.is_alphanumeric());
        return Some(match (begins, after, name.len() == word.len()) {
            (true, _, true) => 600,
            (true, ..) => 400 + short,
            (false, true, _) => 300 + short,
            _ => 200 + short,
        });
    }
    let mut letters = name.chars().flat_map(char::to_lowercase).enumerate();
    let (mut last, mut gaps) = (None::<usize>, 0);
    for wanted in word.chars() {
        let (at, _) = letters.find(|(_, letter)| *letter == wanted)?;
        gaps += last.map_or(0, |last| at - last - 1);
        last = Some(at);
    }
    // Letters that are spread over the whole name say nothing.
    (gaps <= 2 * word.len()).then(|| 60 + short - gaps as i32)
}

/// Returns where a part in lower case begins in a name, ignoring the case of ASCII letters.
fn find_ignoring_case(name: &str, part: &str) -> Option<usize> {
    let (name_bytes, part) = (name.as_bytes(), part.as_bytes());
    let last = name_bytes.len().checked_sub(part.len())?;
    (0..=last).find(|at| {
        name.is_char_boundary(*at) && name_bytes[*at..at + part.len()].eq_ignore_ascii_case(part)
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{preferences::ConsolePreferences, sample_answers};

    fn state_with_names() -> ConsoleState {
        let mut state = ConsoleState::new(None, sample_answers::AT, ConsolePreferences::default());
        state.data.overview = Some(Arc::new(sample_answers::two_faults_overview(32)));
        state.data.users = Some(Arc::new(sample_answers::job_table()));
        state
    }

    fn found(text: &str) -> Vec<(MatchKind, String)> {
        let matches = search_fleet(&state_with_names(), text).into_iter();
        matches.map(|found| (found.kind, found.text.to_string())).collect()
    }

    #[test]
    fn words_match_from_the_whole_name_to_letters_in_order() {
        let scores: Vec<_> = ["gpu003", "gpu", "003", "pu0", "g3", "xyz"]
            .map(|word| score_word(word, "gpu003"))
            .into_iter()
            .collect();
        let known: Vec<i32> = scores.iter().copied().flatten().collect();
        assert!(scores[5].is_none() && known.len() == 5, "{scores:?}");
        assert!(known[0] > known[1] && known[1] > known[2] && known[3] > known[4], "{known:?}");
        assert!(score_word("00", "東00").is_some());
        assert_eq!(score_word("abcdef", "a-----------------b-c-d-e-f"), None);
    }

    #[test]
    fn node_with_a_finding_comes_before_the_others() {
        let nodes = found("gpu0");
        let first_node = nodes.iter().find(|(kind, _)| *kind == MatchKind::Node).unwrap();
        assert_eq!(first_node.1, "gpu003", "{nodes:?}");
        assert!(nodes.len() <= MAX_MATCHES);
        assert_eq!(found("gpu017")[0], (MatchKind::Node, "gpu017".to_owned()));
    }

    #[test]
    fn findings_jobs_users_and_commands_are_found() {
        let first = |text: &str| found(text).into_iter().next().unwrap();
        assert_eq!(first("port down"), (MatchKind::Finding, "port_down  gpu003 · mlx5_1/1".into()));
        assert!(found("alice").iter().any(|(kind, _)| *kind == MatchKind::User));
        assert!(found("alice").iter().any(|(kind, _)| *kind == MatchKind::Finding));
        assert!(found("8812").iter().any(|(kind, name)| *kind == MatchKind::Job && name == "8812"));
        assert_eq!(first("theme").0, MatchKind::Command);
        assert_eq!(found(""), found(" "), "without a text the open findings are listed");
        assert_eq!(found("").len(), 2);
        assert!(found("no such thing anywhere").is_empty());
    }
}
