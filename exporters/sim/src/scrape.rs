//! Scrapes: what does not come, comes twice or comes late, and clocks that disagree.

use std::time::Duration;

use gaunt_schema::{Dialect, UnixMs};

use crate::{Effect, Scenario, fault::WARM_UP, noise::Noise, shape::Shape};

/// dcgm-exporter asks its GPUs this often and tells the same until then.
pub(crate) const COLLECT_S: f64 = 30.0;

/// Trouble changes its form this often.
const SPELL_S: f64 = 15.0;

/// Clocks of nodes differ by at most this much; that of a troubled node by this much.
const SKEW_S: f64 = 0.2;
const TROUBLED_SKEW_S: f64 = 80.0;

/// The pages of one exporter or two.
pub(crate) type Pages = Vec<(Dialect, String)>;

/// How the nodes of a fleet answer their scrapers.
#[derive(Debug)]
pub(crate) struct Scrapes {
    noise: Noise,
    dialect: Dialect,
    /// What each node told last that it will tell again, and under which key.
    kept: Vec<(Option<u64>, Pages)>,
    /// Nodes in trouble, from when until when, in seconds since the start.
    troubled: Vec<(usize, f64, f64)>,
    /// Nodes that are started anew, from when until when.
    rebooted: Vec<(std::ops::Range<usize>, f64, f64)>,
}

/// What a node in trouble does for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Spell {
    Answers,
    Silent,
    /// It tells again what it told first in this spell.
    Repeats(u64),
}

impl Scrapes {
    pub(crate) fn new(noise: Noise, scenario: &Scenario, shape: &Shape, dialect: Dialect) -> Self {
        let (mut troubled, mut rebooted) = (Vec::new(), Vec::new());
        for fault in &scenario.faults {
            let Some(gang) = fault.gang.checked_rem(shape.jobs.len()) else { continue };
            let job = &shape.jobs[gang].nodes;
            let node = job.start + fault.member % job.len();
            let from = WARM_UP.as_secs_f64() + fault.onset_s;
            let until = fault.lasts_s.map_or(f64::INFINITY, |lasts| from + lasts);
            match fault.effect {
                Effect::ScrapeTrouble => troubled.push((node, from, until)),
                Effect::Reboot => rebooted.push((job.clone(), from, until)),
                _ => {}
            }
        }
        Self { noise, dialect, kept: vec![(None, Vec::new()); shape.nodes], troubled, rebooted }
    }

    /// Whether what the node tells now is to be kept, because it will be told again.
    pub(crate) fn wants(&self, node: usize, now: f64) -> bool {
        let key = self.key(node, now);
        key.is_some() && self.kept[node].0 != key
    }

    pub(crate) fn keep(&mut self, node: usize, now: f64, pages: Pages) {
        self.kept[node] = (self.key(node, now), pages);
    }

    /// What a scraper gets from a node that would tell `fresh` if it told what is.
    pub(crate) fn pages(&self, node: usize, now: f64, fresh: impl FnOnce() -> Pages) -> Pages {
        match self.spell(node, now) {
            Spell::Silent => return Vec::new(),
            Spell::Repeats(_) => return self.kept[node].1.clone(),
            Spell::Answers => {}
        }
        let mut pages = fresh();
        if self.dialect == Dialect::Dcgm {
            let kept = self.kept[node].1.iter().find(|(dialect, _)| *dialect == Dialect::Dcgm);
            if let (Some(old), Some(new)) =
                (kept, pages.iter_mut().find(|(dialect, _)| *dialect == Dialect::Dcgm))
            {
                new.1.clone_from(&old.1);
            }
        }
        pages
    }

    /// Whether a scraper reads what is: in gaunt's own words, and not what was told before.
    pub(crate) fn tells_what_is(&self, node: usize, now: f64) -> bool {
        self.dialect == Dialect::Gaunt && self.spell(node, now) == Spell::Answers
    }

    /// What the clock of a node shows when it is `time`.
    pub(crate) fn clock(&self, node: usize, time: UnixMs) -> UnixMs {
        let most = if self.troubled.iter().any(|(troubled, ..)| *troubled == node) {
            TROUBLED_SKEW_S
        } else {
            SKEW_S
        };
        let skew = self.noise.child(0).child(node as u64).unit() * most;
        time - Duration::from_millis((skew * 1e3) as u64)
    }

    /// Under which key a page is told again: the number of the collection, or of the spell.
    fn key(&self, node: usize, now: f64) -> Option<u64> {
        if let Spell::Repeats(key) = self.spell(node, now) {
            return Some(key);
        }
        let lag = self.noise.child(1).child(node as u64).unit() * COLLECT_S;
        (self.dialect == Dialect::Dcgm).then_some(((now + lag) / COLLECT_S) as u64)
    }

    fn spell(&self, node: usize, now: f64) -> Spell {
        let away = |(nodes, from, until): &(std::ops::Range<usize>, f64, f64)| {
            nodes.contains(&node) && *from <= now && now < *until
        };
        if self.rebooted.iter().any(away) {
            return Spell::Silent;
        }
        let here = |&&(troubled, from, until): &&(usize, f64, f64)| {
            troubled == node && from <= now && now < until
        };
        let Some((_, from, _)) = self.troubled.iter().find(here) else { return Spell::Answers };
        let number = ((now - from) / SPELL_S) as u64;
        let noise = self.noise.child(2).child(node as u64).child(number);
        // Half of the spells are only part of their length, so that single scrapes fail too.
        let whole = noise.child(0).unit() < 0.5;
        if !whole && (now - from) % SPELL_S > 3.0 {
            return Spell::Answers;
        }
        match noise.child(1).below(3) {
            0 => Spell::Silent,
            // Beyond the number of any collection.
            1 => Spell::Repeats((1 << 32) + number),
            _ => Spell::Answers,
        }
    }
}
