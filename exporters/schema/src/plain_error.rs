//! Library errors in plain words: messages for people state what is wrong by these functions, and the library's own
//! message is logged at debug level.

use std::{error::Error, fmt::Display, io};

use serde_json::error::Category;

/// Logs the library's own message, visible with `RUST_LOG=debug`.
fn log(error: &dyn Display) {
    tracing::debug!(%error, "library error");
}

/// What is wrong with a JSON text, with its position: `line 3, column 7: invalid JSON`.
pub fn json(error: &serde_json::Error) -> String {
    let message = json_without_place(error);
    match (error.line(), error.column()) {
        (0, _) => message,
        (line, column) => format!("line {line}, column {column}: {message}"),
    }
}

/// The same without the position, for texts where the line is of no use, such as an answer on one line.
pub fn json_without_place(error: &serde_json::Error) -> String {
    log(error);
    match error.classify() {
        Category::Io => "incomplete read".to_owned(),
        Category::Syntax => "invalid JSON".to_owned(),
        Category::Eof => "incomplete JSON".to_owned(),
        Category::Data => field(&error.to_string()),
    }
}

/// A deserialisation error in plain words: which field is missing, unknown or of another type. For errors of the syntax
/// itself see [`document`].
pub fn field(message: &str) -> String {
    let message = message.lines().next().unwrap_or_default();
    let message = message.rsplit_once(" at line ").map_or(message, |(text, _)| text);
    let name =
        |rest: &str| rest.trim_start().trim_start_matches('`').split('`').next().map(String::from);
    if let Some(name) = message.strip_prefix("missing field").and_then(name) {
        return format!("missing field {name:?}");
    }
    if let Some(name) = message.strip_prefix("duplicate field").and_then(name) {
        return format!("duplicate field {name:?}");
    }
    if let Some(rest) = message.strip_prefix("unknown field") {
        let names = known(rest).map_or_else(String::new, |names| format!("; {names}"));
        return name(rest)
            .map_or_else(String::new, |name| format!("unknown field {name:?}{names}"));
    }
    if let Some(rest) = message.strip_prefix("unknown variant") {
        let names = known(rest).map_or_else(String::new, |names| format!("; {names}"));
        return name(rest).map_or_else(String::new, |name| format!("{name:?} is invalid{names}"));
    }
    let prefixes = ["invalid type: ", "invalid value: ", "invalid length "];
    if let Some(rest) = prefixes.iter().find_map(|prefix| message.strip_prefix(prefix)) {
        let Some((found, expected)) = rest.split_once(", expected ") else {
            return "a value has the wrong type".to_owned();
        };
        return format!("{} is invalid; write {}", found_as(found), type_as(expected));
    }
    // All other messages come from our own types: a duration, an address, a limit.
    message.to_owned()
}

/// The possible names, as listed in the library's message.
fn known(rest: &str) -> Option<String> {
    let (_, expected) = rest.split_once(", expected ")?;
    let names: Vec<&str> = expected.split('`').skip(1).step_by(2).collect();
    (!names.is_empty()).then(|| format!("known: {}", names.join(", ")))
}

/// A value as the library shows it.
fn found_as(found: &str) -> String {
    let quoted =
        |prefix: &str| found.strip_prefix(prefix).map(|rest| rest.trim_matches('`').to_owned());
    let number =
        ["integer ", "floating point ", "boolean "].iter().find_map(|prefix| quoted(prefix));
    if let Some(value) = number.or_else(|| quoted("string ")) {
        return value;
    }
    match found {
        "null" | "unit value" => "null".to_owned(),
        "sequence" => "a list".to_owned(),
        "map" => "an object".to_owned(),
        _ => "the value".to_owned(),
    }
}

/// A type as the library names it.
fn type_as(expected: &str) -> String {
    match expected.split(' ').next().unwrap_or_default() {
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number from 0".to_owned(),
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number".to_owned(),
        "f32" | "f64" => "a number".to_owned(),
        "struct" | "map" | "enum" => "an object with its fields".to_owned(),
        "sequence" | "tuple" => "a list".to_owned(),
        "string" | "str" => "a string".to_owned(),
        "borrowed" | "identifier" | "unit" | "newtype" | "Option" | "option" => {
            "another value".to_owned()
        }
        _ => match expected {
            "a string" | "a borrowed string" => "a string in quotes".to_owned(),
            "a sequence" => "a list".to_owned(),
            "a map" => "an object with its fields".to_owned(),
            "a boolean" => "true or false".to_owned(),
            other => other.to_owned(),
        },
    }
}

/// A TOML or YAML error in plain words on one line: what the parser expected if the syntax is wrong, and what [`field`]
/// returns if the text `parses` and a value in it is wrong.
pub fn document(message: &str, format: &str, parses: bool) -> String {
    log(&message);
    let first = message.lines().next().unwrap_or_default();
    if parses {
        return field(first);
    }
    if first.starts_with("duplicate key") {
        return "this key is there twice; keep one".to_owned();
    }
    match first.rsplit_once(", expected ") {
        Some((_, expected)) => format!("invalid {format}: expected {expected}"),
        None => format!("invalid {format}"),
    }
}

/// The key of the line at this offset of a TOML text, or its section: an error about a value does not name it.
pub fn toml_key(text: &str, offset: usize) -> Option<&str> {
    let start = text.get(..offset)?.rfind('\n').map_or(0, |end| end + 1);
    let line = text.get(start..)?.lines().next()?.trim();
    let key = match line.strip_prefix('[') {
        Some(section) => section.trim_matches(['[', ']']),
        None => line.split_once('=')?.0,
    };
    Some(key.trim()).filter(|key| !key.is_empty())
}

/// The cause of an answer that broke off.
pub const CLOSED_EARLY: &str = "connection closed before the end of the response";

/// The cause of an answer that is not HTTP.
pub const INVALID_HTTP: &str = "invalid HTTP response";

/// Why a connection failed: the innermost error of the system, else the kind of failure.
pub fn network(error: &(dyn Error + 'static)) -> String {
    log(&error);
    let mut messages = String::new();
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref::<io::Error>()
            && error.raw_os_error().is_some()
        {
            return error.to_string();
        }
        messages.push_str(&error.to_string());
        messages.push('\n');
        next = error.source();
    }
    let contains_any =
        |patterns: &[&str]| patterns.iter().any(|pattern| messages.contains(pattern));
    let cause = if let Some(tls) = tls(&messages) {
        tls
    } else if contains_any(&["dns error", "failed to lookup", "no record", "NXDOMAIN"]) {
        "DNS lookup failed"
    } else if contains_any(&["timed out", "deadline", "timeout"]) {
        "timeout"
    } else if contains_any(&[
        "closed before",
        "incomplete message",
        "UnexpectedEof",
        "unexpected end of file",
        "early eof",
    ]) {
        CLOSED_EARLY
    } else if contains_any(&[
        "invalid HTTP",
        "parse",
        "invalid header",
        "http2 error",
        "invalid chunk",
        "Invalid chunk",
        "invalid content-length",
    ]) {
        INVALID_HTTP
    } else {
        "the connection broke"
    };
    cause.to_owned()
}

/// Why a TLS connection failed, if TLS is the cause.
pub fn tls(message: &str) -> Option<&'static str> {
    let contains_any = |patterns: &[&str]| patterns.iter().any(|pattern| message.contains(pattern));
    Some(if contains_any(&["no trusted CA certificates"]) {
        "this system has no trusted CA certificates: install them, or set ca_file (--ca-file)"
    } else if contains_any(&["UnknownIssuer", "UnknownCA", "unknown CA"]) {
        "its certificate is signed by an untrusted CA"
    } else if contains_any(&["not valid for name", "NotValidForName"]) {
        "its certificate is for another name"
    } else if contains_any(&["certificate expired", "Expired"]) {
        "its certificate has expired"
    } else if contains_any(&["not valid yet", "NotValidYet"]) {
        "its certificate is not valid yet"
    } else if contains_any(&["CertificateRequired", "certificate required"]) {
        "it requires a client certificate"
    } else if contains_any(&["invalid peer certificate", "BadEncoding", "BadSignature"]) {
        "its certificate is invalid"
    } else if contains_any(&["corrupt message", "InvalidContentType", "InvalidMessage"]) {
        "it does not speak TLS"
    } else if contains_any(&[
        "received fatal alert",
        "HandshakeFailure",
        "peer is incompatible",
        "tls handshake",
    ]) {
        "it rejects the TLS handshake"
    } else {
        return None;
    })
}

/// Why a file or a pipe cannot be read or written: the system's reason, or the error kind.
pub fn io(error: &io::Error) -> String {
    if error.raw_os_error().is_some() {
        return error.to_string();
    }
    match error.kind() {
        // This message is gaunt's own.
        io::ErrorKind::Other => error.to_string(),
        io::ErrorKind::InvalidData => "not UTF-8 text".to_owned(),
        io::ErrorKind::UnexpectedEof => "unexpected end".to_owned(),
        io::ErrorKind::WriteZero => "nothing more can be written".to_owned(),
        io::ErrorKind::TimedOut => "timeout".to_owned(),
        _ => network(error),
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only the errors are tested")]
    struct Note {
        by: String,
        count: u32,
        inner: Option<Box<Note>>,
    }

    fn json_error(text: &str) -> String {
        json(&serde_json::from_str::<Note>(text).unwrap_err())
    }

    #[test]
    fn key_of_a_toml_line_is_that_before_its_value_or_its_section() {
        let text = "a = 1\n\n[b.c]\n d = [\n 2,\n]\n";
        let key_at = |part: &str| toml_key(text, text.find(part).unwrap());
        assert_eq!([key_at("a"), key_at("1"), key_at("b.c")], [Some("a"), Some("a"), Some("b.c")]);
        assert_eq!([key_at("[\n 2"), key_at("2,")], [Some("d"), None]);
        assert_eq!((toml_key(text, 99), toml_key("", 0)), (None, None));
    }

    #[test]
    fn json_error_has_position_and_plain_message() {
        assert_eq!(json_error("{\n  x"), "line 2, column 3: invalid JSON");
        assert_eq!(json_error(r#"{"by": "#), "line 1, column 7: incomplete JSON");
        assert_eq!(json_error(r#"{"by": "a"}"#), r#"line 1, column 11: missing field "count""#);
        assert_eq!(
            json_error(r#"{"by": 7, "count": 1}"#),
            "line 1, column 8: 7 is invalid; write a string in quotes"
        );
        assert_eq!(
            json_error(r#"{"by": "a", "count": -1}"#),
            "line 1, column 23: -1 is invalid; write a whole number from 0"
        );
        assert_eq!(
            json_error(r#"{"by": "a", "count": 1, "whom": 2}"#),
            r#"line 1, column 30: unknown field "whom"; known: by, count, inner"#
        );
        assert_eq!(
            json_error(r#"{"by": "a", "count": 1, "inner": [1]}"#).split(": ").nth(1),
            Some("1 is invalid; write a string in quotes")
        );
    }

    #[test]
    fn toml_and_yaml_errors_omit_parser_internals() {
        assert_eq!(document("missing field `name`\n", "TOML", true), r#"missing field "name""#);
        assert_eq!(
            document("unclosed table, expected `]`", "TOML", false),
            "invalid TOML: expected `]`"
        );
        assert_eq!(
            document("invalid type: integer `1`, expected a string", "TOML", true),
            "1 is invalid; write a string in quotes"
        );
    }

    #[derive(Debug, thiserror::Error)]
    #[error("error sending request for url (http://10.0.0.5:9771/)")]
    struct Outer(#[source] io::Error);

    #[test]
    fn network_error_is_system_message_or_known_cause() {
        let refused = Outer(io::Error::from_raw_os_error(111));
        assert_eq!(network(&refused), "Connection refused (os error 111)");
        let network_text = |text: &str| network(&Outer(io::Error::other(text.to_owned())));
        assert_eq!(network_text("early eof"), "connection closed before the end of the response");
        assert_eq!(network_text("invalid HTTP version parsed"), "invalid HTTP response");
        assert_eq!(
            network_text("invalid peer certificate: UnknownIssuer"),
            "its certificate is signed by an untrusted CA"
        );
        assert_eq!(network_text("received corrupt message of type X"), "it does not speak TLS");
        assert_eq!(network_text("something else of a library"), "the connection broke");
        assert_eq!(io(&io::ErrorKind::InvalidData.into()), "not UTF-8 text");
    }
}
