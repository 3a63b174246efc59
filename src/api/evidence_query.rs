//! Evidence query: the question for the series behind a number of a finding.

use gaunt_schema::{DeviceClass, MetricId, SanitizedText};

use super::{
    EvidenceItem, Filter, Finding, HistoryAggregation, HistoryQuery, HistoryRelation,
    MetricHistory, Subject, filter::quote_text, history_answer::USUAL_POINTS,
};

/// Maximum number of histories requested for one finding; an aggregator accepts at most sixteen streams.
const MOST: usize = 6;

/// Returns the history question of each number of a finding; none for a number without a history. A series that is
/// another number's own is shown only there: a rising count of GPUs beside their falling utilization would be
/// confusing.
pub fn history_queries(finding: &Finding) -> Vec<Option<HistoryQuery>> {
    let mut remaining = MOST;
    let exact_queries =
        finding.evidence.iter().filter(|evidence| evidence.past == HistoryRelation::Same);
    let exact_queries: Vec<_> =
        exact_queries.filter_map(|evidence| history_query(finding, evidence)).collect();
    let queries = finding.evidence.iter().map(|evidence| {
        let is_exact = evidence.past == HistoryRelation::Same;
        let ask = history_query(finding, evidence)
            .filter(|ask| remaining > 0 && (is_exact || !exact_queries.contains(ask)))?;
        remaining -= 1;
        Some(ask)
    });
    queries.collect()
}

/// Returns the history question of one number; none for a number without a history.
pub fn history_query(finding: &Finding, evidence: &EvidenceItem) -> Option<HistoryQuery> {
    if evidence.past == HistoryRelation::Nothing {
        return None;
    }
    let source = evidence.source.split(", ").next().filter(|source| !source.is_empty())?;
    let metric = MetricId::all_ids().find(|id| id.series_key() == source)?;
    let entity = &finding.entity;
    let clause = |field: &str, value: &Option<SanitizedText>| {
        value.as_deref().map(|value| format!("{field}={}", quote_text(value)))
    };
    let node = clause("node", &entity.node);
    let (subject, parts) = match metric.catalogue_row().class {
        DeviceClass::Gpu if node.is_some() => {
            (Subject::Gpus, vec![node, clause("gpu", &entity.gpu)])
        }
        DeviceClass::Gpu => (Subject::Gpus, vec![clause("job", &entity.job)]),
        DeviceClass::Node if node.is_some() => (Subject::Nodes, vec![node]),
        DeviceClass::Node => (Subject::Nodes, vec![clause("job", &entity.job)]),
        DeviceClass::Port if node.is_some() => {
            let parts = vec![node, clause("device", &entity.device), clause("port", &entity.port)];
            (Subject::Ports, parts)
        }
        DeviceClass::Port => {
            (Subject::Ports, vec![clause("leaf", &entity.leaf), clause("rail", &entity.rail)])
        }
        _ => return None,
    };
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    // Without a location this would be the mean of the fleet, which is no evidence.
    if parts.is_empty() {
        return None;
    }
    let field = subject.find_field(&metric.series_key())?;
    Some(HistoryQuery {
        metric: SanitizedText::new(&field.name),
        of: Filter::parse(subject, &parts.join(" and ")).ok()?,
        together: HistoryAggregation::Mean,
        points: USUAL_POINTS,
        span: None,
    })
}

/// Returns the limit in the unit of the points, if the number is the series itself.
pub fn limit_in_unit(history: &MetricHistory, evidence: &EvidenceItem) -> Option<f32> {
    let limit = evidence.limit.filter(|limit| limit.is_finite() && *limit > 0.0)?;
    let is_same_series = history.unit == evidence.unit && evidence.past == HistoryRelation::Same;
    is_same_series.then_some(limit as f32)
}
