//! Guarded answers: a question on which gaunt fails is refused, and all others are answered as before.

use gaunt_api::{Answer, Refusal};
use gaunt_judge::run_guarded;

/// Returns the answer that is computed; a refusal with the error if that panics.
pub(super) fn answer_guarded(compute: impl FnOnce() -> Result<Answer, Refusal>) -> Answer {
    let answer = run_guarded(compute)
        .unwrap_or_else(|error| Err(Refusal::Failed { error: error.as_str().into() }));
    answer.unwrap_or_else(Answer::Refused)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn question_that_panics_is_refused_with_its_error() {
        let rows: Vec<u32> = Vec::new();
        let answer = answer_guarded(|| panic!("row {} of {}", 7, rows.len()));
        let Answer::Refused(refusal) = answer else { panic!("{answer:?}") };
        assert_eq!(refusal, Refusal::Failed { error: "row 7 of 0".into() });
        assert!(refusal.to_string().contains("row 7 of 0; report it"), "{refusal}");
    }
}
