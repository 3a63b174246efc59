//! Fuzz target: any two answers: applying their difference to the first gives the second, and applying any other
//! difference does not panic.

#![no_main]

use gaunt_api::json_diff;
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

fuzz_target!(|input: (&str, &str)| {
    let (Ok(old), Ok(new)) =
        (serde_json::from_str::<Value>(input.0), serde_json::from_str::<Value>(input.1))
    else {
        return;
    };
    let mut value = old.clone();
    if let Some(difference) = json_diff::diff_values(&old, &new) {
        json_diff::apply_diff(&mut value, &difference).expect("it was made for this answer");
    }
    assert_eq!(value, new);
    _ = json_diff::apply_diff(&mut value, &old);
});
