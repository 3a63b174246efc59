//! Safe JSON: decodes what an aggregator sends, and is the only place where its bytes become values. The aggregator is
//! not trusted, and its texts are shown on a terminal: every text is sanitized before any other use.

use gaunt_schema::sanitized_text::sanitize_json;
use serde::de::DeserializeOwned;
use serde_json::{Error, Value};

/// Decodes JSON with every text and member name sanitized at its full length.
pub(super) fn decode_json(bytes: &[u8]) -> Result<Value, Error> {
    let mut value = serde_json::from_slice(bytes)?;
    sanitize_json(&mut value);
    Ok(value)
}

/// Decodes a value of a gaunt type from sanitized JSON; error messages are sanitized too.
pub(super) fn decode_value<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Error> {
    serde_json::from_value(decode_json(bytes)?)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn decoding_makes_texts_and_names_safe_at_their_full_length() {
        let long = "C".repeat(5_000);
        let input = json!({ "a": [{ "b\u{9b}31m": "x\u{1b}]52;c;aGk=\u{7}y" }, long], "c": 1.5 });
        let decoded = decode_json(&serde_json::to_vec(&input).unwrap()).unwrap();
        assert_eq!(decoded, json!({ "a": [{ "b�31m": "x�]52;c;aGk=�y" }, long], "c": 1.5 }));
    }

    #[test]
    fn decoding_errors_repeat_nothing_unsafe() {
        let input = serde_json::to_vec("\u{1b}[31m\u{202e}no state").unwrap();
        let error = decode_value::<gaunt_schema::GpuState>(&input).unwrap_err().to_string();
        assert!(error.contains("no state") && !error.contains(['\u{1b}', '\u{202e}']), "{error:?}");
    }
}
