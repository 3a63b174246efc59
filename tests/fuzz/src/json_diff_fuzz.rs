//! Any two answers: applying their difference to the first gives the second, and applying any other
//! difference does not panic.

use gaunt_api::json_diff;
use serde_json::Value;

/// The two answers are lines.
pub fn check_input(input: &[u8]) {
    let Some(end) = input.iter().position(|byte| *byte == b'\n') else { return };
    let (Ok(old), Ok(new)) = (
        serde_json::from_slice::<Value>(&input[..end]),
        serde_json::from_slice::<Value>(&input[end..]),
    ) else {
        return;
    };
    let mut value = old.clone();
    if let Some(difference) = json_diff::diff_values(&old, &new) {
        json_diff::apply_diff(&mut value, &difference).expect("it was made for this answer");
    }
    assert_eq!(value, new);
    _ = json_diff::apply_diff(&mut value, &old);
}
