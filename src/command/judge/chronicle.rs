//! A chronicle: every finding that an owner in virtual time came to, with the instants at which it opened and closed.

use std::collections::{HashMap, HashSet};

use gaunt_schema::{Delivery, Severity, UnixMs};
use serde::Serialize;

use crate::{
    answer::{Act, Answer, Finding, FindingList, Question, Totals},
    owner::{self, Owner},
};

/// The most episodes that are kept, about a kilobyte each: a judge that says more than this says nothing.
pub const MAX_EPISODES: usize = 100_000;

/// One finding from its opening to its close.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Episode {
    /// The tick at which it was first said.
    pub opened: UnixMs,
    /// The tick at which it was first said no more; none if it was open to the end.
    pub closed: Option<UnixMs>,
    /// The worst severity that it had.
    pub worst: Severity,
    /// The first tick at which it was a warning or worse.
    pub warned: Option<UnixMs>,
    /// The first tick at which it was critical.
    pub paged: Option<UnixMs>,
    /// How many findings stood before it when it was opened: 0 is the judge's first word.
    pub rank: usize,
    /// What was said last.
    pub finding: Finding,
}

/// What was said, in the order in which it was opened.
#[derive(Debug, Default)]
pub struct Chronicle {
    episodes: Vec<Episode>,
    /// Position of each open episode, by the finding's id.
    open: HashMap<String, usize>,
    unlisted: u64,
}

impl Chronicle {
    /// Notes what is open at one tick.
    pub fn note(&mut self, list: &FindingList) {
        let still: HashSet<&str> = list.findings.iter().map(|f| f.id.as_str()).collect();
        let episodes = &mut self.episodes;
        self.open.retain(|id, at| {
            let stays = still.contains(id.as_str());
            if !stays {
                episodes[*at].closed = Some(list.at);
            }
            stays
        });
        for (rank, finding) in list.findings.iter().enumerate() {
            let at = self.open.get(&finding.id).copied();
            let at = at.or_else(|| self.begin(finding, rank, list.at));
            let Some(episode) = at.and_then(|at| self.episodes.get_mut(at)) else { continue };
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

    /// Every episode, in the order in which they were opened.
    pub fn episodes(&self) -> &[Episode] {
        &self.episodes
    }

    /// How often a finding was open at a tick and not noted for want of room.
    pub fn unlisted(&self) -> u64 {
        self.unlisted
    }

    /// The place of a new episode, if there is room.
    fn begin(&mut self, finding: &Finding, rank: usize, at: UnixMs) -> Option<usize> {
        if self.episodes.len() >= MAX_EPISODES {
            self.unlisted += 1;
            return None;
        }
        self.episodes.push(Episode {
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

/// An owner in virtual time and the chronicle of what it says.
#[derive(Debug)]
pub struct Witness {
    owner: Owner,
    chronicle: Chronicle,
}

impl Witness {
    /// A witness who has seen nothing yet.
    pub fn new(options: owner::Options) -> Self {
        Self::of(Owner::new(options))
    }

    /// A witness of an owner that may know something already.
    pub fn of(owner: Owner) -> Self {
        Self { owner, chronicle: Chronicle::default() }
    }

    /// Takes what a sender brought.
    pub fn accept(&mut self, delivery: Delivery) {
        self.owner.accept(delivery);
    }

    /// Lets time pass until `now` and notes what is said then.
    pub fn tick(&mut self, now: UnixMs) {
        self.owner.tick(now);
        if let Answer::Findings(list) = self.owner.answer(&Question::Findings) {
            self.chronicle.note(&list);
        }
    }

    /// Does something to a finding.
    pub fn act(&mut self, act: &Act) -> Answer {
        self.owner.act(act)
    }

    /// Asks about the last tick.
    pub fn ask(&mut self, question: &Question) -> Answer {
        self.owner.answer(question)
    }

    /// What was said.
    pub fn chronicle(&self) -> &Chronicle {
        &self.chronicle
    }

    /// The same, for who needs the owner no longer.
    pub fn into_chronicle(self) -> Chronicle {
        self.chronicle
    }

    /// What was done.
    pub fn totals(&mut self) -> Totals {
        match self.owner.answer(&Question::Targets) {
            Answer::Targets(list) => list.totals.clone(),
            _ => Totals::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use gaunt_schema::{Entity, FindingKind, Safe};

    use super::*;
    use crate::answer::Life;

    fn finding(id: &str, severity: Severity) -> Finding {
        Finding {
            id: id.to_owned(),
            kind: FindingKind::DataStarved,
            severity,
            entity: Entity::node(&Safe::new(id)),
            since: UnixMs(0),
            confidence: 0.5,
            lost_gpus: 0.0,
            cost_gpu_hours_per_hour: 0.0,
            victims: Vec::new(),
            summary: String::new(),
            next: String::new(),
            evidence: Vec::new(),
            missing: Vec::new(),
            life: Life::default(),
            acknowledged: None,
        }
    }

    #[test]
    fn an_episode_lasts_from_the_first_tick_to_the_first_without_it() {
        use Severity::{Critical, Info, Warning};
        let ticks: [&[(&str, Severity)]; 6] = [
            &[],
            &[("a", Info)],
            &[("b", Warning), ("a", Warning)],
            &[("a", Critical)],
            &[("a", Info), ("b", Warning)],
            &[("b", Warning)],
        ];
        let mut chronicle = Chronicle::default();
        for (tick, open) in (0..).zip(ticks) {
            let findings = open.iter().map(|(id, severity)| finding(id, *severity)).collect();
            chronicle.note(&FindingList {
                at: UnixMs(tick * 1_000),
                findings,
                ..FindingList::default()
            });
        }
        let told: Vec<_> = chronicle
            .episodes()
            .iter()
            .map(|e| (e.finding.id.as_str(), e.opened.0, e.closed.map(|at| at.0), e.worst, e.rank))
            .collect();
        let expected = [
            ("a", 1_000, Some(5_000), Critical, 0),
            ("b", 2_000, Some(3_000), Warning, 0),
            ("b", 4_000, None, Warning, 1),
        ];
        assert_eq!(told, expected);
        let a = &chronicle.episodes()[0];
        assert_eq!((a.warned, a.paged), (Some(UnixMs(2_000)), Some(UnixMs(3_000))));
        assert_eq!(a.finding.severity, Info);
    }
}
