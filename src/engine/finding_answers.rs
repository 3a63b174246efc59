//! Answers about findings, and the explanation of one of them.

use std::{collections::HashMap, sync::Arc, time::Duration};

use gaunt_schema::{LifeState, SanitizedText, UnixMs};

use super::{Engine, finding_journal::FindingJournal, view::View};
use gaunt_api::{
    EvidenceContext, Explanation, Finding, FindingGroup, FindingList, JobOwner, LimitDetail,
    Refusal,
};
use gaunt_cluster::Cluster;
use gaunt_judge::{FindingRecord, Judge};

/// The time for which a closed finding may still be in the verdicts of a store, which are written in steps.
const CLOSED_LATE: Duration = Duration::from_mins(1);

/// Explanations by finding id.
pub(super) type ExplanationsById = HashMap<String, Arc<EvidenceContext>>;

/// The findings of these records, as answers contain them.
pub(super) fn collect_findings(records: Vec<&FindingRecord>) -> Vec<Finding> {
    records.into_iter().map(|record| record.finding.clone()).collect()
}

/// The explanation of every finding that has one.
pub(super) fn collect_explanations(judge: &Judge) -> ExplanationsById {
    let all = judge.open_records().into_iter().chain(judge.closed_records());
    let chained = all.filter_map(|record| Some((record.finding.id.clone(), record.chain.clone()?)));
    chained.collect()
}

impl Engine {
    /// Stores the judge's findings; closed findings only if they changed.
    pub(super) fn store_findings(&mut self, mut open: Vec<Finding>, closed: Option<Vec<Finding>>) {
        let at = self.cluster.now();
        self.waiting_actions.apply_to_open(&mut self.acknowledgements, &open, at);
        self.acknowledgements.apply_to_findings(&mut open, at);
        let list = |findings: Vec<Finding>, groups, contexts| {
            let total = findings.len() as u32;
            Arc::new(FindingList { at, findings, total, matched: total, groups, contexts })
        };
        if let Some(mut closed) = closed {
            self.acknowledgements.apply_to_findings(&mut closed, at);
            let known = open.iter().chain(&closed).map(|finding| finding.id.as_str());
            self.acknowledgements.retain_known(&known.collect());
            if let Some(journal) = &mut self.journal {
                journal.record_closed(&closed, |id| self.explanations.get(id).cloned(), at);
                closed.extend(journal.earlier_findings(open.iter().chain(&closed)));
            }
            self.closed = list(closed, Vec::new(), Vec::new());
        } else {
            Arc::make_mut(&mut self.closed).at = at;
        }
        let groups = group_findings(&self.cluster, &open);
        let contexts = self.finding_contexts(&open);
        self.findings = list(open, groups, contexts);
    }

    /// Lists the findings of a loaded journal as closed, until the judge has closed ones.
    pub(super) fn restore_journal(&mut self, journal: FindingJournal) {
        let findings = journal.earlier_findings(std::iter::empty());
        let (at, total) = (self.cluster.now(), findings.len() as u32);
        let list = FindingList { at, findings, total, matched: total, ..FindingList::default() };
        self.closed = Arc::new(list);
        self.journal = Some(journal);
    }

    /// The explanation of one finding of a view; of the past no context is kept.
    pub(super) fn explain_finding(
        &self,
        view: &View<'_>,
        id: &str,
    ) -> Result<Arc<Explanation>, Refusal> {
        let unknown = || Refusal::UnknownFinding { finding: SanitizedText::new(id) };
        let finding = view.find_finding(id).ok_or_else(unknown)?.clone();
        let journal = self.journal.as_ref().filter(|_| view.past.is_none());
        let chain = self.explanations.get(id).filter(|_| view.past.is_none()).cloned();
        let chain = chain.or_else(|| journal?.explanation_of(&finding));
        let context = view.past.is_none().then(|| self.finding_context(&finding));
        let explanation = self.build_explanation(finding, chain, journal);
        Ok(Arc::new(Explanation { context, ..explanation }))
    }

    /// The explanation of a finding that was open at an instant of which no view is kept: of the one that is open since, or
    /// of what the journal has. Its context of then is not kept.
    pub(super) fn explain_earlier_finding(&self, id: &str, at: UnixMs) -> Option<Arc<Explanation>> {
        let all = self.findings.findings.iter().chain(&self.closed.findings);
        let mut same = all.filter(|finding| finding.id == id);
        let newest = same.clone().next()?.life.opened;
        let was_open = |finding: &&Finding| {
            let closed = finding.life.closed;
            finding.life.opened <= at && closed.is_none_or(|closed| closed + CLOSED_LATE >= at)
        };
        let finding = same.find(was_open)?.clone();
        let journal = self.journal.as_ref();
        let recorded = journal.and_then(|journal| journal.explanation_of(&finding));
        let chain = recorded.or_else(|| {
            self.explanations.get(id).filter(|_| finding.life.opened == newest).cloned()
        });
        let mut explanation = self.build_explanation(finding, chain, journal);
        let life = &mut explanation.finding.life;
        (life.state, life.closed) = (LifeState::Open, None);
        Some(Arc::new(Explanation { at, ..explanation }))
    }

    /// The explanation without context.
    fn build_explanation(
        &self,
        finding: Finding,
        chain: Option<Arc<EvidenceContext>>,
        journal: Option<&FindingJournal>,
    ) -> Explanation {
        let (rule, keys) = gaunt_judge::detection_rule(finding.kind);
        let chain = chain.map(|context| (*context).clone());
        let (earlier_count, earlier) =
            journal.map_or_else(Default::default, |journal| journal.count_earlier(&finding));
        let mut named: Vec<&str> = keys.to_vec();
        named.extend(finding.evidence.iter().map(|number| number.threshold.as_str()));
        named.extend(gaunt_judge::confidence_limits(
            &self.options.thresholds,
            finding.kind,
            finding.confidence,
        ));
        named.sort_unstable();
        named.dedup();
        let limit = |key: &&str| {
            let (value, why) = gaunt_judge::explain_limit(&self.options.thresholds, key)?;
            Some(LimitDetail { key: (*key).to_owned(), value, why })
        };
        let limits = named.iter().filter_map(limit).collect();
        let (at, rule, context) = (self.cluster.now(), rule.to_owned(), None);
        Explanation { at, finding, rule, limits, chain, earlier_count, earlier, context }
    }
}

impl View<'_> {
    /// The finding with this id, open or closed.
    pub(super) fn find_finding(&self, id: &str) -> Option<&Finding> {
        let mut all = self.findings.findings.iter().chain(&self.closed.findings);
        all.find(|finding| finding.id == id)
    }
}

/// Groups of open findings, by kind and by the users of their jobs.
pub(super) fn group_findings(cluster: &Cluster, findings: &[Finding]) -> Vec<FindingGroup> {
    FindingGroup::group_findings(findings, |entity| {
        let attributes = entity.job.as_ref().and_then(|job| cluster.job_attributes(job));
        attributes.map_or_else(JobOwner::default, |attributes| JobOwner {
            user: attributes.user.clone(),
            account: attributes.account.clone(),
        })
    })
}
