//! Acknowledging: findings are sent one after the other, and what became of all of them is told in one sentence.

use std::{future::pending, pin::Pin};

use gaunt_schema::Safe;

use crate::{
    answer::{Act, Answer, Deed},
    source::{Source, SourceError},
};

/// What is being done to findings; what became of it in a sentence, or why it was not done.
pub(super) type Acting = Pin<Box<dyn Future<Output = Result<String, String>> + Send>>;

/// Acknowledges findings with a note, or without one withdraws that.
pub(super) fn acknowledge(source: Source, findings: Vec<Safe>, note: Option<String>) -> Acting {
    let by = std::env::var("USER").ok().filter(|name| !name.is_empty());
    let by = Safe::new(by.as_deref().unwrap_or("console"));
    let deed = note.map_or(Deed::Withdraw, |note| Deed::Acknowledge { note: Safe::new(&note) });
    Box::pin(async move {
        let mut outcome = Outcome { count: findings.len(), ..Outcome::default() };
        for finding in findings {
            let act = Act { finding: finding.to_string(), by: by.clone(), deed: deed.clone() };
            if !outcome.take(source.act(act).await) {
                break;
            }
        }
        outcome.sentence()
    })
}

/// What comes back of an act; never, while none is on its way.
pub(super) async fn acted(acting: &mut Option<Acting>) -> Result<String, String> {
    match acting {
        Some(acting) => acting.await,
        None => pending().await,
    }
}

/// What became of several acts.
#[derive(Debug, Default)]
struct Outcome {
    count: usize,
    done: usize,
    /// What was done, and to which finding last.
    last: Option<(&'static str, String)>,
    /// Why the first that was not done was not.
    refused: Option<String>,
}

impl Outcome {
    /// Takes the answer to one; whether the next can be sent.
    fn take(&mut self, answer: Result<Answer, SourceError>) -> bool {
        let why = match answer {
            Ok(Answer::Refused(refusal)) if refusal.is_denied() => {
                self.refused = Some(refusal.to_string());
                return false;
            }
            // One that closed meanwhile does not hold up the others.
            Ok(Answer::Refused(refusal)) => refusal.to_string(),
            Ok(Answer::Finding(explanation)) => {
                let finding = &explanation.finding;
                let taken = finding.acknowledged.is_some();
                self.last =
                    Some((if taken { "acknowledged" } else { "withdrawn" }, finding.id.clone()));
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

    fn sentence(self) -> Result<String, String> {
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
    use std::sync::Arc;

    use super::*;
    use crate::{answer::Refusal, console::sample};

    #[test]
    fn outcome_of_many_is_one_sentence_with_its_numbers() {
        let taken = || Ok(Answer::Finding(Arc::new(sample::explained(sample::port_down()))));
        let closed = || Ok(Answer::Refused(Refusal::ClosedFinding { finding: "a".into() }));
        let mut all = Outcome { count: 2, ..Outcome::default() };
        assert!(all.take(taken()) && all.take(taken()));
        assert_eq!(all.sentence(), Ok("acknowledged: 2 findings".into()));
        let mut some = Outcome { count: 3, ..Outcome::default() };
        assert!(some.take(taken()) && some.take(closed()), "one that closed holds nothing up");
        assert!(!some.take(Ok(Answer::Refused(Refusal::NoToken))), "no other will be allowed");
        let why = some.sentence().unwrap_err();
        assert!(why.starts_with("1 of 3 acknowledged; first refusal: "), "{why}");
        let mut one = Outcome { count: 1, ..Outcome::default() };
        assert!(one.take(taken()));
        assert_eq!(one.sentence(), Ok("acknowledged: port_down/gpu003/mlx5_1/1".into()));
    }
}
