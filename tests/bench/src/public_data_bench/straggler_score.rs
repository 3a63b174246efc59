//! Score of stragglers that are known: whether any finding was about them, named them, and blamed them.

use std::{collections::BTreeSet, io::Write, time::Duration};

use gaunt::command::judge_command::FindingEpisode;
use gaunt_schema::{Severity, UnixMs};
use serde_json::{Value, json};

/// After its end a straggler may still be found for this long: averages lag.
const GRACE: Duration = Duration::from_mins(2);

/// The longest time from when a straggler becomes slow to the finding about it: a later one is about something else.
const LIMIT: Duration = Duration::from_mins(5);

/// A slow worker, or several at a time.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct KnownStraggler {
    /// Their nodes.
    pub(super) nodes: BTreeSet<String>,
    /// When they became slow.
    pub(super) from: UnixMs,
    /// When they no longer were.
    pub(super) until: UnixMs,
}

/// Counts of known stragglers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct StragglerScore {
    /// Known ones.
    known: usize,
    /// Those during which a finding opened, whatever it says, or was open that names them.
    told: usize,
    /// Those whose node is named by a finding that was open meanwhile.
    named: usize,
    /// Those whose node is blamed by one that opened meanwhile.
    blamed: usize,
    /// Warnings and worse that blame another node, or that opened while no worker was slow.
    wrong: usize,
}

impl StragglerScore {
    /// Compares findings with the stragglers of one job.
    pub(super) fn of(stragglers: &[KnownStraggler], episodes: &[FindingEpisode]) -> Self {
        let mut score = Self { known: stragglers.len(), ..Self::default() };
        for straggler in stragglers {
            let opened = || episodes.iter().filter(|episode| straggler.is_during(episode));
            let is_named = episodes.iter().any(|episode| straggler.is_named(episode));
            score.told += usize::from(is_named || opened().next().is_some());
            score.named += usize::from(is_named);
            score.blamed += usize::from(opened().any(|episode| straggler.is_blamed(episode)));
        }
        let is_wrong = |episode: &&FindingEpisode| {
            let mut during = stragglers.iter().filter(|it| it.is_during(episode)).peekable();
            let has_node = episode.finding.entity.node.is_some();
            let is_right = during.peek().is_some()
                && (!has_node || during.any(|straggler| straggler.is_blamed(episode)));
            episode.worst >= Severity::Warning && !is_right
        };
        score.wrong = episodes.iter().filter(is_wrong).count();
        score
    }

    /// Writes the heading of the rows.
    pub(super) fn write_heading(out: &mut dyn Write) -> std::io::Result<()> {
        writeln!(
            out,
            "{:24} {:>6} {:>6} {:>6} {:>6} {:>6}",
            "stragglers", "known", "told", "named", "blamed", "wrong"
        )
    }

    /// Writes one row.
    pub(super) fn write_row(self, out: &mut dyn Write, name: &str) -> std::io::Result<()> {
        let Self { known, told, named, blamed, wrong } = self;
        writeln!(out, "{name:24} {known:>6} {told:>6} {named:>6} {blamed:>6} {wrong:>6}")
    }

    /// The counts as one JSON object.
    pub(super) fn to_json(self) -> Value {
        let Self { known, told, named, blamed, wrong } = self;
        json!({ "known": known, "told": told, "named": named, "blamed": blamed, "wrong": wrong })
    }
}

impl KnownStraggler {
    /// Writes one line about it.
    pub(super) fn write_line(&self, out: &mut dyn Write) -> std::io::Result<()> {
        let nodes: Vec<&str> = self.nodes.iter().map(String::as_str).collect();
        let (from, until) = (self.from.to_time_of_day(), self.until.to_time_of_day());
        writeln!(out, "    {from} to {until} slow: {}", nodes.join(", "))
    }

    fn is_during(&self, episode: &FindingEpisode) -> bool {
        episode.opened >= self.from && episode.opened <= self.latest()
    }

    /// The last instant at which a finding about it may open.
    fn latest(&self) -> UnixMs {
        (self.until + GRACE).min(self.from + LIMIT)
    }

    fn is_blamed(&self, episode: &FindingEpisode) -> bool {
        let node = episode.finding.entity.node.as_ref();
        node.is_some_and(|node| self.nodes.contains(node.as_str()))
    }

    /// Whether a finding that was open meanwhile blames one of its nodes, or has its name in the summary.
    fn is_named(&self, episode: &FindingEpisode) -> bool {
        let is_open = episode.opened <= self.latest()
            && episode.closed.is_none_or(|closed| closed >= self.from);
        let mut nodes = self.nodes.iter();
        let has_name = |node: &String| episode.finding.summary.contains(node.as_str());
        is_open && (self.is_blamed(episode) || nodes.any(has_name))
    }
}

#[cfg(test)]
mod tests {
    use gaunt_api::Finding;
    use gaunt_schema::{Entity, EntityKind, FindingKind, SanitizedText};

    use super::*;

    fn episode(entity: Entity, opened_s: i64, worst: Severity, summary: &str) -> FindingEpisode {
        let finding = Finding {
            summary: summary.to_owned(),
            ..Finding::new(FindingKind::UnexplainedSlowdown, worst, entity)
        };
        let opened = UnixMs(opened_s * 1_000);
        let closed = Some(UnixMs((opened_s + 40) * 1_000));
        FindingEpisode { opened, closed, worst, warned: None, paged: None, rank: 0, finding }
    }

    #[test]
    fn straggler_is_named_by_a_summary_and_blamed_by_an_entity() {
        let straggler = |name: &str, from: i64, until: i64| KnownStraggler {
            nodes: BTreeSet::from([name.to_owned()]),
            from: UnixMs(from * 1_000),
            until: UnixMs(until * 1_000),
        };
        let known = [
            straggler("a", 100, 200),
            straggler("b", 500, 600),
            straggler("c", 900, 950),
            straggler("e", 1_000, 2_000),
        ];
        let job = || Entity { job: Some("job".into()), ..Entity::new(EntityKind::Job) };
        let node = |name: &str| Entity::new_node(&SanitizedText::new(name));
        let episodes = [
            episode(node("a"), 50, Severity::Critical, "too early"),
            episode(job(), 150, Severity::Warning, "a came last"),
            episode(node("b"), 700, Severity::Info, "late, and within the grace"),
            episode(node("b"), 650, Severity::Warning, ""),
            episode(node("d"), 910, Severity::Critical, "another one"),
            episode(job(), 870, Severity::Info, "opened before, and names c later"),
            episode(job(), 1_301, Severity::Warning, "too late"),
        ];
        let score = StragglerScore::of(&known, &episodes);
        let expected = StragglerScore { known: 4, told: 3, named: 3, blamed: 1, wrong: 3 };
        assert_eq!(score, expected);
        assert_eq!(StragglerScore::of(&[], &episodes[1..2]).wrong, 1);
    }
}
