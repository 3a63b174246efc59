//! Answers about findings, and the explanation of one of them.

use std::{collections::HashMap, sync::Arc};

use gaunt_schema::SanitizedText;

use super::{Engine, finding_journal::FindingJournal, view::View};
use gaunt_api::{
    EvidenceContext, Explanation, Finding, FindingGroup, FindingList, JobOwner, LimitDetail,
    Refusal,
};
use gaunt_cluster::Cluster;
use gaunt_judge::{FindingRecord, Judge};

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
        let (rule, keys) = gaunt_judge::detection_rule(finding.kind);
        let journal = self.journal.as_ref().filter(|_| view.past.is_none());
        let chain = self.explanations.get(id).filter(|_| view.past.is_none()).cloned();
        let chain = chain.or_else(|| journal?.explanation_of(&finding));
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
        let (at, rule) = (self.cluster.now(), rule.to_owned());
        let context = view.past.is_none().then(|| self.finding_context(&finding));
        Ok(Arc::new(Explanation {
            at,
            finding,
            rule,
            limits,
            chain,
            earlier_count,
            earlier,
            context,
        }))
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
