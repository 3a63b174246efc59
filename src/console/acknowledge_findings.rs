//! Acknowledgements: sends findings one after the other and reports the combined result in one sentence.

use std::{future::pending, pin::Pin, sync::Arc};

use gaunt_schema::SanitizedText;

use super::{ConsoleSource, SourceError};
use gaunt_api::{Answer, FindingAction, FindingCommand};

/// An acknowledgement in progress; resolves to a result sentence or an error.
pub(super) type PendingAcknowledgement =
    Pin<Box<dyn Future<Output = Result<String, String>> + Send>>;

/// Acknowledges findings with a note, or withdraws their acknowledgements without one.
pub(super) fn acknowledge_findings(
    source: Arc<dyn ConsoleSource>,
    findings: Vec<SanitizedText>,
    note: Option<String>,
) -> PendingAcknowledgement {
    let by = std::env::var("USER").ok().filter(|name| !name.is_empty());
    let by = SanitizedText::new(by.as_deref().unwrap_or("console"));
    let command = note.map_or(FindingCommand::Withdraw, |note| FindingCommand::Acknowledge {
        note: SanitizedText::new(&note),
    });
    Box::pin(async move {
        let mut outcome =
            AcknowledgementOutcome { count: findings.len(), ..AcknowledgementOutcome::default() };
        for finding in findings {
            let action = FindingAction {
                finding: finding.to_string(),
                by: by.clone(),
                command: command.clone(),
                seen: None,
            };
            if !outcome.record_answer(source.clone().send_action(action).await) {
                break;
            }
        }
        outcome.render_sentence()
    })
}

/// Waits for the result of the pending acknowledgement; pends forever if there is none.
pub(super) async fn await_acknowledgement(
    in_progress: &mut Option<PendingAcknowledgement>,
) -> Result<String, String> {
    match in_progress {
        Some(in_progress) => in_progress.await,
        None => pending().await,
    }
}

/// Combined result of several acknowledgements.
#[derive(Debug, Default)]
struct AcknowledgementOutcome {
    count: usize,
    done: usize,
    /// The last operation that succeeded and its finding.
    last: Option<(&'static str, String)>,
    /// Reason of the first failure.
    refused: Option<String>,
}

impl AcknowledgementOutcome {
    /// Records the answer for one finding. Returns whether the next one can be sent.
    fn record_answer(&mut self, answer: Result<Answer, SourceError>) -> bool {
        let why = match answer {
            Ok(Answer::Refused(refusal)) if refusal.is_denied() => {
                self.refused = Some(refusal.to_string());
                return false;
            }
            // A finding that closed meanwhile does not block the others.
            Ok(Answer::Refused(refusal)) => refusal.to_string(),
            Ok(Answer::Finding(explanation)) => {
                let finding = &explanation.finding;
                let is_acknowledged = finding.acknowledged.is_some();
                self.last = Some((
                    if is_acknowledged { "acknowledged" } else { "withdrawn" },
                    finding.id.clone(),
                ));
                self.done += 1;
                return true;
            }
            Ok(_) => {
                self.done += 1;
                return true;
            }
            Err(error) => {
                self.refused = Some(error.to_string());
                return false;
            }
        };
        self.refused.get_or_insert(why);
        true
    }

    fn render_sentence(self) -> Result<String, String> {
        let (what, last) = self.last.unwrap_or(("done", String::new()));
        match (self.refused, self.count) {
            (Some(why), 1) => Err(why),
            (Some(why), count) => {
                Err(format!("{} of {count} {what}; first refusal: {why}", self.done))
            }
            (None, 1) if last.is_empty() => Ok(what.to_owned()),
            (None, 1) => Ok(format!("{what}: {last}")),
            (None, count) => Ok(format!("{what}: {count} findings")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample_answers;
    use gaunt_api::Refusal;

    #[test]
    fn outcome_of_many_is_one_sentence_with_its_numbers() {
        let acknowledged = || {
            Ok(Answer::Finding(Arc::new(sample_answers::explanation_of(
                sample_answers::port_down_finding(),
            ))))
        };
        let closed = || Ok(Answer::Refused(Refusal::ClosedFinding { finding: "a".into() }));
        let mut all = AcknowledgementOutcome { count: 2, ..AcknowledgementOutcome::default() };
        assert!(all.record_answer(acknowledged()) && all.record_answer(acknowledged()));
        assert_eq!(all.render_sentence(), Ok("acknowledged: 2 findings".into()));
        let mut some = AcknowledgementOutcome { count: 3, ..AcknowledgementOutcome::default() };
        assert!(
            some.record_answer(acknowledged()) && some.record_answer(closed()),
            "a closed finding does not stop the others"
        );
        assert!(
            !some.record_answer(Ok(Answer::Refused(Refusal::NoToken))),
            "a denied request stops the others"
        );
        let why = some.render_sentence().unwrap_err();
        assert!(why.starts_with("1 of 3 acknowledged; first refusal: "), "{why}");
        let mut one = AcknowledgementOutcome { count: 1, ..AcknowledgementOutcome::default() };
        assert!(one.record_answer(acknowledged()));
        assert_eq!(one.render_sentence(), Ok("acknowledged: port_down/gpu003/mlx5_1/1".into()));
    }
}
