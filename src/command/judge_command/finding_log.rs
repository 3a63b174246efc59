//! Finding log: every finding of an engine in virtual time, with its opening and closing times.

use std::collections::{HashMap, HashSet};

use gaunt_schema::{
    Delivery, Severity, UnixMs,
    probe_pairing::{PairingReply, PairingRequest},
};
use serde::Serialize;

use gaunt_api::{Answer, CumulativeTotals, Finding, FindingAction, FindingList, Question};
use gaunt_engine::Engine;

/// The most episodes that are retained, about a kilobyte each: a longer log is useless.
pub const MAX_EPISODES: usize = 100_000;

/// One finding from opening to closing.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FindingEpisode {
    /// Tick at which it was first reported.
    pub opened: UnixMs,
    /// First tick at which it was no longer reported; none if it was open at the end.
    pub closed: Option<UnixMs>,
    /// Its highest severity.
    pub worst: Severity,
    /// First tick at which it was a warning or more severe.
    pub warned: Option<UnixMs>,
    /// First tick at which it was critical.
    pub paged: Option<UnixMs>,
    /// Number of findings listed before it at its opening: 0 means first in the list.
    pub rank: usize,
    /// Its last state.
    pub finding: Finding,
}

/// All episodes, by opening time.
#[derive(Debug, Default)]
pub struct FindingLog {
    episodes: Vec<FindingEpisode>,
    /// Index of each open episode, by finding id.
    open: HashMap<String, usize>,
    unlisted: u64,
}

impl FindingLog {
    /// Records the open findings of one tick.
    pub fn record_findings(&mut self, list: &FindingList) {
        let open_ids: HashSet<&str> = list.findings.iter().map(|f| f.id.as_str()).collect();
        let episodes = &mut self.episodes;
        self.open.retain(|id, index| {
            let is_open = open_ids.contains(id.as_str());
            if !is_open {
                episodes[*index].closed = Some(list.at);
            }
            is_open
        });
        for (rank, finding) in list.findings.iter().enumerate() {
            let index = self.open.get(&finding.id).copied();
            let index = index.or_else(|| self.begin_episode(finding, rank, list.at));
            let Some(episode) = index.and_then(|index| self.episodes.get_mut(index)) else {
                continue;
            };
            episode.worst = episode.worst.max(finding.severity);
            if finding.severity >= Severity::Warning {
                episode.warned.get_or_insert(list.at);
            }
            if finding.severity == Severity::Critical {
                episode.paged.get_or_insert(list.at);
            }
            if episode.finding != *finding {
                episode.finding.clone_from(finding);
            }
        }
    }

    /// All episodes, by opening time.
    pub fn all_episodes(&self) -> &[FindingEpisode] {
        &self.episodes
    }

    /// How often a finding was open at a tick and not recorded because of the limit.
    pub fn unlisted_count(&self) -> u64 {
        self.unlisted
    }

    /// Index of a new episode, if the limit allows it.
    fn begin_episode(&mut self, finding: &Finding, rank: usize, at: UnixMs) -> Option<usize> {
        if self.episodes.len() >= MAX_EPISODES {
            self.unlisted += 1;
            return None;
        }
        self.episodes.push(FindingEpisode {
            opened: at,
            closed: None,
            worst: finding.severity,
            warned: None,
            paged: None,
            rank,
            finding: finding.clone(),
        });
        self.open.insert(finding.id.clone(), self.episodes.len() - 1);
        Some(self.episodes.len() - 1)
    }
}

/// An engine in virtual time and the log of its findings.
#[derive(Debug)]
pub struct VirtualRun {
    engine: Engine,
    log: FindingLog,
}

impl VirtualRun {
    /// Creates a run with a new engine.
    pub fn new(options: gaunt_engine::EngineOptions) -> Self {
        Self::of(Engine::new(options))
    }

    /// Creates a run of an engine that may have state.
    pub fn of(engine: Engine) -> Self {
        Self { engine, log: FindingLog::default() }
    }

    /// Ingests a delivery.
    pub fn ingest_delivery(&mut self, delivery: Delivery) {
        self.engine.ingest_delivery(delivery);
    }

    /// Advances time to `now` and records the findings.
    pub fn run_tick(&mut self, now: UnixMs) {
        self.engine.run_tick(now);
        if let Answer::Findings(list) = self.engine.answer_question(&Question::Findings) {
            self.log.record_findings(&list);
        }
    }

    /// Applies an action to a finding.
    pub fn apply_action(&mut self, action: &FindingAction) -> Answer {
        self.engine.handle_action(action)
    }

    /// Handles a request of a probe.
    pub fn handle_pairing_request(&mut self, request: PairingRequest) -> PairingReply {
        self.engine.handle_pairing_request(request)
    }

    /// Answers a question as of the last tick.
    pub fn answer_question(&mut self, question: &Question) -> Answer {
        self.engine.answer_question(question)
    }

    /// The finding log.
    pub fn finding_log(&self) -> &FindingLog {
        &self.log
    }

    /// Consumes the run and returns its engine.
    pub fn into_engine(self) -> Engine {
        self.engine
    }

    /// Consumes the run and returns its finding log.
    pub fn into_finding_log(self) -> FindingLog {
        self.log
    }

    /// Cumulative totals.
    pub fn cumulative_totals(&mut self) -> CumulativeTotals {
        match self.engine.answer_question(&Question::Targets) {
            Answer::Targets(list) => list.totals.clone(),
            _ => CumulativeTotals::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use gaunt_schema::{Entity, FindingKind, SanitizedText};

    use super::*;

    fn test_finding(id: &str, severity: Severity) -> Finding {
        let entity = Entity::new_node(&SanitizedText::new(id));
        Finding {
            id: id.to_owned(),
            confidence: 0.5,
            ..Finding::new(FindingKind::DataStarved, severity, entity)
        }
    }

    #[test]
    fn episode_lasts_from_the_first_tick_to_the_first_without_its_finding() {
        use Severity::{Critical, Info, Warning};
        let ticks: [&[(&str, Severity)]; 6] = [
            &[],
            &[("a", Info)],
            &[("b", Warning), ("a", Warning)],
            &[("a", Critical)],
            &[("a", Info), ("b", Warning)],
            &[("b", Warning)],
        ];
        let mut log = FindingLog::default();
        for (tick, open) in (0..).zip(ticks) {
            let findings = open.iter().map(|(id, severity)| test_finding(id, *severity)).collect();
            log.record_findings(&FindingList {
                at: UnixMs(tick * 1_000),
                findings,
                ..FindingList::default()
            });
        }
        let episodes: Vec<_> = log
            .all_episodes()
            .iter()
            .map(|e| (e.finding.id.as_str(), e.opened.0, e.closed.map(|at| at.0), e.worst, e.rank))
            .collect();
        let expected = [
            ("a", 1_000, Some(5_000), Critical, 0),
            ("b", 2_000, Some(3_000), Warning, 0),
            ("b", 4_000, None, Warning, 1),
        ];
        assert_eq!(episodes, expected);
        let a = &log.all_episodes()[0];
        assert_eq!((a.warned, a.paged), (Some(UnixMs(2_000)), Some(UnixMs(3_000))));
        assert_eq!(a.finding.severity, Info);
    }
}
