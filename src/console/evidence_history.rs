//! History of an evidence row: the question for the series behind its number, and that series beside its limit.

use gaunt_schema::UnixMs;

pub(crate) use gaunt_api::evidence_query::history_queries;
use gaunt_api::{HistoryQuery, MetricHistory, Question};

/// How far back the history of a number goes.
const SPAN_MS: u64 = 15 * 60_000;

/// Latest history of one evidence number.
#[derive(Clone, Debug)]
pub(crate) struct EvidenceHistory {
    /// The question.
    pub(crate) ask: HistoryQuery,
    /// When the answer arrived, by the console's clock.
    pub(crate) received_at: UnixMs,
    /// The answer; none if no history of this number is stored.
    pub(crate) history: Option<std::sync::Arc<MetricHistory>>,
}

impl EvidenceHistory {
    /// Returns the length of the known history, at most 15 minutes, in milliseconds.
    pub(crate) fn span_ms(history: &MetricHistory) -> u64 {
        Self::known_ms(history).min(SPAN_MS)
    }

    /// Returns the length of the known history in milliseconds.
    pub(crate) fn known_ms(history: &MetricHistory) -> u64 {
        let blank = history.mean.iter().take_while(|point| point.is_none()).count();
        ((history.mean.len() - blank) as u64).saturating_mul(history.step_ms)
    }

    /// Returns the points of the last `span_ms` milliseconds.
    pub(crate) fn newest_points(history: &MetricHistory, span_ms: u64) -> &[Option<f32>] {
        Self::newest_of(&history.mean, history.step_ms, span_ms)
    }

    /// Returns those of points that are `step_ms` apart.
    pub(crate) fn newest_of(points: &[Option<f32>], step_ms: u64, span_ms: u64) -> &[Option<f32>] {
        let count = span_ms.div_ceil(step_ms.max(1)) as usize;
        &points[points.len().saturating_sub(count)..]
    }
}

/// Returns the questions for the histories without an answer since an instant.
pub(crate) fn due_questions(
    queries: Vec<HistoryQuery>,
    histories: &[EvidenceHistory],
    since: UnixMs,
) -> Vec<Question> {
    let fresh = |ask: &HistoryQuery| {
        histories.iter().any(|entry| entry.ask == *ask && entry.received_at > since)
    };
    queries.into_iter().filter(|ask| !fresh(ask)).map(Question::History).collect()
}

#[cfg(test)]
mod tests {
    use gaunt_api::{
        EvidenceItem, Finding,
        evidence_query::{history_query, limit_in_unit},
    };
    use gaunt_schema::unit::Unit;

    use super::*;
    use crate::sample_answers;

    fn queries(finding: &Finding) -> Vec<HistoryQuery> {
        history_queries(finding).into_iter().flatten().collect()
    }

    fn describe_query(evidence: &EvidenceItem, finding: &Finding) -> Option<String> {
        history_query(finding, evidence)
            .map(|ask| format!("{} of {}", ask.metric, ask.of.source_text()))
    }

    #[test]
    fn port_and_host_evidence_is_requested_from_its_device() {
        let port = sample_answers::port_down_finding();
        let state = describe_query(&port.evidence[0], &port);
        assert_eq!(state.unwrap(), "state_id of node=gpu003 and device=mlx5_1 and port=1");
        assert_eq!(
            describe_query(&port.evidence[1], &port),
            None,
            "siblings have no history of their own"
        );
        let starved = sample_answers::starved_finding();
        let host = describe_query(&starved.evidence[0], &starved);
        assert_eq!(host.unwrap(), "io_pressure_some of node=gpu006");
        let job = Finding { entity: gaunt_schema::Entity::new_node(&"a b".into()), ..starved };
        let odd = describe_query(&job.evidence[0], &job);
        assert_eq!(odd.unwrap(), "io_pressure_some of node=\"a b\"");
    }

    #[test]
    fn history_is_shown_beside_its_own_number() {
        let mut finding = sample_answers::starved_finding();
        let exact = finding.evidence[0].clone();
        let part = EvidenceItem { past: gaunt_api::HistoryRelation::Part, ..exact.clone() };
        finding.evidence = vec![part.clone(), exact.clone()];
        assert_eq!(
            history_queries(&finding).iter().map(Option::is_some).collect::<Vec<_>>(),
            [false, true]
        );
        finding.evidence = vec![part.clone(), part];
        assert!(
            history_queries(&finding).iter().all(Option::is_some),
            "if no number has the series as its own"
        );
    }

    #[test]
    fn recent_history_is_not_requested_again() {
        let finding = sample_answers::starved_finding();
        let questions = due_questions(queries(&finding), &[], UnixMs(0));
        assert_eq!(questions.len(), 1);
        let ask = history_queries(&finding).swap_remove(0).unwrap();
        let histories = [EvidenceHistory { ask, received_at: UnixMs(5_000), history: None }];
        assert_eq!(due_questions(queries(&finding), &histories, UnixMs(4_000)), []);
        assert_eq!(due_questions(queries(&finding), &histories, UnixMs(5_000)), questions);
    }

    #[test]
    fn limit_is_drawn_only_in_the_unit_of_the_series() {
        let finding = sample_answers::starved_finding();
        let mut history = sample_answers::device_history(&[Some(0.1); 200]);
        let evidence = &finding.evidence[0];
        assert_eq!(limit_in_unit(&history, evidence), Some(0.1));
        let newest = |history: &MetricHistory| {
            EvidenceHistory::newest_points(history, EvidenceHistory::span_ms(history)).len()
        };
        assert_eq!(newest(&history), 90, "fifteen minutes of ten seconds");
        history.mean[..150].fill(None);
        assert_eq!(newest(&history), 50, "only the known points");
        history.unit = Unit::Count;
        assert_eq!(limit_in_unit(&history, evidence), None);
        history.unit = Unit::Ratio;
        let counted = EvidenceItem { past: gaunt_api::HistoryRelation::Part, ..evidence.clone() };
        assert_eq!(limit_in_unit(&history, &counted), None);
    }
}
