//! The judge's findings in the words of answers, and the explanation of one of them.

use std::{collections::HashMap, sync::Arc};

use gaunt_schema::{FindingKind, Safe};

use super::Owner;
use crate::{
    answer::{self, Change, Explanation, FindingList, Life, Limit, Refusal, Ruling},
    judge::{self, Chain, Judge, Lived, Told},
};

/// A finding as an answer: a GPU whose time is lost costs one GPU-hour in an hour.
pub(super) fn answer(told: &Told) -> answer::Finding {
    let finding = &told.finding;
    answer::Finding {
        id: finding.id.clone(),
        kind: finding.kind,
        severity: finding.severity,
        entity: finding.entity.clone(),
        since: finding.since,
        confidence: finding.confidence,
        lost_gpus: finding.lost_gpus,
        cost_gpu_hours_per_hour: finding.lost_gpus,
        victims: finding.victims.clone(),
        summary: finding.summary.clone(),
        next: finding.next.clone(),
        evidence: finding.evidence.iter().map(|number| of_kind(finding.kind, number)).collect(),
        missing: told.chain.as_ref().map(|chain| chain.missing.clone()).unwrap_or_default(),
        life: life(&told.life),
        acknowledged: None,
    }
}

/// A number of a finding, with what it is made of.
fn of_kind(kind: FindingKind, number: &judge::Evidence) -> answer::Evidence {
    let ground = judge::ground(kind, &number.what);
    let series: Vec<String> = ground.series.iter().map(|id| id.key()).collect();
    let threshold = ground.threshold.to_owned();
    let past = match (ground.own && !series.is_empty(), ground.alike) {
        (false, _) => answer::Behind::Nothing,
        (true, false) => answer::Behind::Part,
        (true, true) => answer::Behind::Same,
    };
    answer::Evidence { source: series.join(", "), threshold, past, ..evidence(number) }
}

fn evidence(number: &judge::Evidence) -> answer::Evidence {
    answer::Evidence {
        what: number.what.clone(),
        value: number.value,
        unit: number.unit,
        limit: number.limit,
        note: number.note.clone(),
        source: String::new(),
        threshold: String::new(),
        past: answer::Behind::default(),
    }
}

fn life(lived: &Lived) -> Life {
    let changes = lived.changes.iter().map(|turn| Change {
        at: turn.at,
        what: turn.what,
        from: turn.from.clone(),
        to: turn.to.clone(),
    });
    Life {
        state: lived.state,
        opened: lived.opened,
        seen: lived.seen,
        closed: lived.closed,
        openings: lived.openings.len() as u32,
        changes: changes.collect(),
    }
}

fn chain(seen: &Chain) -> answer::Chain {
    let signals = seen.signals.iter().map(|signal| answer::Signal {
        what: signal.what.clone(),
        source: signal.source.clone(),
        unit: signal.unit,
        value: signal.value,
        absent: signal.absent,
        usual: signal.usual,
        peers: signal.peers,
        quartiles: signal.quartiles,
    });
    let alternatives = seen.alternatives.iter().map(|other| answer::Alternative {
        kind: other.kind,
        ruling: match other.beyond {
            Some(true) => Ruling::AlsoThere,
            Some(false) => Ruling::RuledOut,
            None => Ruling::Unknown,
        },
        number: answer::Evidence {
            source: other.source.clone(),
            threshold: other.threshold.clone(),
            ..evidence(&other.number)
        },
    });
    answer::Chain {
        at: seen.at,
        peers: seen.peers.clone(),
        signals: signals.collect(),
        alternatives: alternatives.collect(),
    }
}

/// Chains of evidence, by the ids of their findings.
pub(super) type Chains = HashMap<String, Arc<Chain>>;

/// The chain of every finding that has one.
pub(super) fn chains(judge: &Judge) -> Chains {
    let all = judge.open().into_iter().chain(judge.closed());
    let chained = all.filter_map(|told| Some((told.finding.id.clone(), told.chain.clone()?)));
    chained.collect()
}

impl Owner {
    /// Takes what the judge says now; closed findings only if they are others than before.
    pub(super) fn take_findings(
        &mut self,
        mut open: Vec<answer::Finding>,
        closed: Option<Vec<answer::Finding>>,
    ) {
        let at = self.cluster.now();
        self.acknowledgements.apply(&mut open, at);
        let list = |findings: Vec<answer::Finding>| {
            let total = findings.len() as u32;
            Arc::new(FindingList { at, findings, total, matched: total })
        };
        if let Some(mut closed) = closed {
            self.acknowledgements.apply(&mut closed, at);
            let known = open.iter().chain(&closed).map(|finding| finding.id.as_str());
            self.acknowledgements.keep_only(&known.collect());
            self.closed = list(closed);
        } else {
            Arc::make_mut(&mut self.closed).at = at;
        }
        self.findings = list(open);
    }

    /// The finding of this id, open or closed.
    pub(super) fn finding(&self, id: &str) -> Option<&answer::Finding> {
        let of = |list: &FindingList| list.findings.iter().position(|finding| finding.id == id);
        let open = of(&self.findings).map(|at| &self.findings.findings[at]);
        open.or_else(|| of(&self.closed).map(|at| &self.closed.findings[at]))
    }

    /// Everything that is known of one finding.
    pub(super) fn explanation(&self, id: &str) -> Result<Arc<Explanation>, Refusal> {
        let unknown = || Refusal::UnknownFinding { finding: Safe::new(id) };
        let finding = self.finding(id).ok_or_else(unknown)?.clone();
        let (rule, keys) = judge::rule(finding.kind);
        let chain = self.chains.get(id).map(|seen| chain(seen));
        let mut named: Vec<&str> = keys.to_vec();
        named.extend(finding.evidence.iter().map(|number| number.threshold.as_str()));
        named.extend(judge::sure(&self.options.thresholds, finding.confidence));
        named.sort_unstable();
        named.dedup();
        let limit = |key: &&str| {
            let (value, why) = judge::limit(&self.options.thresholds, key)?;
            Some(Limit { key: (*key).to_owned(), value, why })
        };
        let limits = named.iter().filter_map(limit).collect();
        let (at, rule) = (self.cluster.now(), rule.to_owned());
        Ok(Arc::new(Explanation { at, finding, rule, limits, chain }))
    }
}
