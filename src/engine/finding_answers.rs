//! Answers about findings, and the explanation of one of them.

use std::{collections::HashMap, sync::Arc};

use gaunt_schema::SanitizedText;

use super::{Engine, view::View};
use gaunt_api::{
    AlternativeOutcome, Explanation, FindingGroup, FindingLifecycle, FindingList, JobOwner,
    LifecycleChange, LimitDetail, Refusal,
};
use gaunt_cluster::Cluster;
use gaunt_judge::{FindingExplanation, FindingHistory, FindingRecord, Judge};

/// Converts a finding to an answer: a GPU whose whole time is lost costs one GPU hour per hour.
pub(super) fn convert_finding(told: &FindingRecord) -> gaunt_api::Finding {
    let finding = &told.finding;
    gaunt_api::Finding {
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
        evidence: finding.evidence.iter().map(convert_sourced_evidence).collect(),
        missing: told.chain.as_ref().map(|chain| chain.missing.clone()).unwrap_or_default(),
        life: convert_lifecycle(&told.life),
        acknowledged: None,
    }
}

/// Converts a number of a finding with its source.
fn convert_sourced_evidence(number: &gaunt_judge::FindingEvidence) -> gaunt_api::EvidenceItem {
    let origin = number.row.source();
    let series: Vec<String> = origin.series.iter().map(|id| id.series_key()).collect();
    let threshold = origin.threshold.to_owned();
    let past = match (origin.own && !series.is_empty(), origin.same_unit) {
        (false, _) => gaunt_api::HistoryRelation::Nothing,
        (true, false) => gaunt_api::HistoryRelation::Part,
        (true, true) => gaunt_api::HistoryRelation::Same,
    };
    gaunt_api::EvidenceItem {
        source: series.join(", "),
        threshold,
        past,
        ..convert_evidence(number)
    }
}

fn convert_evidence(number: &gaunt_judge::FindingEvidence) -> gaunt_api::EvidenceItem {
    gaunt_api::EvidenceItem {
        what: number.what.clone(),
        value: number.value,
        unit: number.unit,
        limit: number.limit,
        note: number.note.clone(),
        source: String::new(),
        threshold: String::new(),
        past: gaunt_api::HistoryRelation::default(),
    }
}

fn convert_lifecycle(lived: &FindingHistory) -> FindingLifecycle {
    let changes = lived.changes.iter().map(|turn| LifecycleChange {
        at: turn.at,
        what: turn.what,
        from: turn.from.clone(),
        to: turn.to.clone(),
    });
    FindingLifecycle {
        state: lived.state,
        opened: lived.opened,
        seen: lived.seen,
        closed: lived.closed,
        openings: lived.openings.len() as u32,
        changes: changes.collect(),
    }
}

fn convert_context(seen: &FindingExplanation) -> gaunt_api::EvidenceContext {
    let signals = seen.signals.iter().map(|signal| gaunt_api::SignalDetail {
        what: signal.what.clone(),
        source: signal.source.clone(),
        unit: signal.unit,
        value: signal.value,
        absent: signal.absent,
        usual: signal.usual,
        peers: signal.peers,
        quartiles: signal.quartiles,
    });
    let alternatives = seen.alternatives.iter().map(|other| gaunt_api::AlternativeDetail {
        kind: other.kind,
        ruling: match other.beyond {
            Some(true) => AlternativeOutcome::AlsoThere,
            Some(false) => AlternativeOutcome::RuledOut,
            None => AlternativeOutcome::Unknown,
        },
        number: gaunt_api::EvidenceItem {
            source: other.source.clone(),
            threshold: other.threshold.clone(),
            ..convert_evidence(&other.number)
        },
    });
    gaunt_api::EvidenceContext {
        at: seen.at,
        peers: seen.peers.clone(),
        signals: signals.collect(),
        alternatives: alternatives.collect(),
    }
}

/// Explanations by finding id.
pub(super) type ExplanationsById = HashMap<String, Arc<FindingExplanation>>;

/// The explanation of every finding that has one.
pub(super) fn collect_explanations(judge: &Judge) -> ExplanationsById {
    let all = judge.open_records().into_iter().chain(judge.closed_records());
    let chained = all.filter_map(|told| Some((told.finding.id.clone(), told.chain.clone()?)));
    chained.collect()
}

impl Engine {
    /// Stores the judge's findings; closed findings only if they changed.
    pub(super) fn store_findings(
        &mut self,
        mut open: Vec<gaunt_api::Finding>,
        closed: Option<Vec<gaunt_api::Finding>>,
    ) {
        let at = self.cluster.now();
        self.acknowledgements.apply_to_findings(&mut open, at);
        let list = |findings: Vec<gaunt_api::Finding>, groups| {
            let total = findings.len() as u32;
            Arc::new(FindingList { at, findings, total, matched: total, groups })
        };
        if let Some(mut closed) = closed {
            self.acknowledgements.apply_to_findings(&mut closed, at);
            let known = open.iter().chain(&closed).map(|finding| finding.id.as_str());
            self.acknowledgements.retain_known(&known.collect());
            self.closed = list(closed, Vec::new());
        } else {
            Arc::make_mut(&mut self.closed).at = at;
        }
        let groups = group_findings(&self.cluster, &open);
        self.findings = list(open, groups);
    }

    /// The explanation of one finding of a view; of the past no context is kept.
    pub(super) fn explain_finding(
        &self,
        view: &View<'_>,
        id: &str,
    ) -> Result<Arc<Explanation>, Refusal> {
        let unknown = || Refusal::UnknownFinding { finding: SanitizedText::new(id) };
        let finding = view.find_finding(id).ok_or_else(unknown)?.clone();
        let (rule, keys) = gaunt_judge::detection_rule(finding.kind);
        let chain = self.explanations.get(id).filter(|_| view.past.is_none());
        let chain = chain.map(|seen| convert_context(seen));
        let mut named: Vec<&str> = keys.to_vec();
        named.extend(finding.evidence.iter().map(|number| number.threshold.as_str()));
        named.extend(gaunt_judge::confidence_limit(&self.options.thresholds, finding.confidence));
        named.sort_unstable();
        named.dedup();
        let limit = |key: &&str| {
            let (value, why) = gaunt_judge::explain_limit(&self.options.thresholds, key)?;
            Some(LimitDetail { key: (*key).to_owned(), value, why })
        };
        let limits = named.iter().filter_map(limit).collect();
        let (at, rule) = (self.cluster.now(), rule.to_owned());
        Ok(Arc::new(Explanation { at, finding, rule, limits, chain }))
    }
}

impl View<'_> {
    /// The finding with this id, open or closed.
    pub(super) fn find_finding(&self, id: &str) -> Option<&gaunt_api::Finding> {
        let mut all = self.findings.findings.iter().chain(&self.closed.findings);
        all.find(|finding| finding.id == id)
    }
}

/// Groups of open findings, by kind and by the users of their jobs.
pub(super) fn group_findings(
    cluster: &Cluster,
    findings: &[gaunt_api::Finding],
) -> Vec<FindingGroup> {
    FindingGroup::group_findings(findings, |entity| {
        let told = entity.job.as_ref().and_then(|job| cluster.job_attributes(job));
        told.map_or_else(JobOwner::default, |told| JobOwner {
            user: told.user.clone(),
            account: told.account.clone(),
        })
    })
}
