//! Removes secrets from texts: of settings by their keys, of all else by where secrets stand.

use anyhow::Context as _;
use gaunt_schema::plain_error;

/// What replaces a secret.
const REMOVED: &str = "(removed)";

/// Parts of the names of settings whose values are secrets; one that ends in `_file` names a file.
const SECRET_KEYS: [&str; 6] = ["password", "token", "secret", "credential", "bearer", "api_key"];

/// Authentication schemes; a secret follows.
const SCHEMES: [&str; 2] = ["bearer ", "basic "];

/// Parameters of URLs whose values are secrets.
const SECRET_PARAMETERS: [&str; 5] = ["token=", "password=", "key=", "secret=", "signature="];

/// The settings in TOML without comments and secrets. A file with errors is left out: where its secrets are is unknown.
pub(super) fn redact_settings(text: &str) -> anyhow::Result<String> {
    let mut table: toml::Table = toml::from_str(text)
        .map_err(|error| anyhow::anyhow!(plain_error::document(error.message(), "TOML", false)))?;
    redact_table(&mut table);
    toml::to_string(&table).context("cannot be written as TOML")
}

fn redact_table(table: &mut toml::Table) {
    for (key, value) in table.iter_mut() {
        let key = key.to_lowercase();
        let is_secret =
            !key.ends_with("_file") && SECRET_KEYS.iter().any(|secret| key.contains(secret));
        redact_value(value, is_secret);
    }
}

fn redact_value(value: &mut toml::Value, is_secret: bool) {
    match value {
        toml::Value::String(text) if is_secret => REMOVED.clone_into(text),
        toml::Value::String(text) => *text = redact_text(text),
        toml::Value::Array(values) => {
            for value in values {
                redact_value(value, is_secret);
            }
        }
        toml::Value::Table(table) => redact_table(table),
        _ => {}
    }
}

/// A text without what follows an authentication scheme, users and passwords in URLs, and secret parameters of URLs.
pub(super) fn redact_text(text: &str) -> String {
    let mut redacted = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((at, length)) = find_secret(rest) {
        redacted.push_str(&rest[..at]);
        redacted.push_str(REMOVED);
        rest = &rest[at + length..];
    }
    redacted.push_str(rest);
    redacted
}

/// Where the first secret begins, and its length.
fn find_secret(text: &str) -> Option<(usize, usize)> {
    let lower = text.to_ascii_lowercase();
    let user = lower.match_indices("://").find_map(|(at, mark)| {
        let begin = at + mark.len();
        let authority = until(&text[begin..], |c| c.is_whitespace() || "/?#\"'<>".contains(c));
        let end = authority.rfind('@')?;
        (&authority[..end] != REMOVED).then_some((begin, end))
    });
    let after = |words: &[&str], ends: &str, begins: &str| {
        let found = words.iter().filter_map(|word| {
            lower.match_indices(word).find_map(|(at, word)| {
                let before = lower[..at].chars().next_back();
                if !begins.is_empty() && !before.is_some_and(|c| begins.contains(c)) {
                    return None;
                }
                let begin = at + word.len();
                let secret = until(&text[begin..], |c| c.is_whitespace() || ends.contains(c));
                (secret.len() >= 8 && secret != REMOVED).then_some((begin, secret.len()))
            })
        });
        found.min()
    };
    let scheme = after(&SCHEMES, "\"',;", "");
    let parameter = after(&SECRET_PARAMETERS, "&\"'#", "?&_");
    [user, scheme, parameter].into_iter().flatten().min()
}

/// The text before the first such character.
fn until(text: &str, ends: impl Fn(char) -> bool) -> &str {
    &text[..text.find(ends).unwrap_or(text.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_of_texts_are_removed() {
        for (text, expected) in [
            ("https://bob:pass@10.0.0.5:9090/x", "https://(removed)@10.0.0.5:9090/x"),
            ("http://10.0.0.5/a@b", "http://10.0.0.5/a@b"),
            ("Authorization: Bearer abcdefgh12345\n", "Authorization: Bearer (removed)\n"),
            ("authorization: basic Ym9iOnBhc3M=,", "authorization: basic (removed),"),
            (
                "http://sd/targets?x=1&token=abcdefgh&y=2",
                "http://sd/targets?x=1&token=(removed)&y=2",
            ),
            ("a basic idea, and a bearer is", "a basic idea, and a bearer is"),
            ("http://a:b@c http://d:e@f", "http://(removed)@c http://(removed)@f"),
            ("größe://ü:ä@ö", "größe://(removed)@ö"),
        ] {
            assert_eq!(redact_text(text), expected);
        }
    }

    #[test]
    fn secrets_of_settings_are_removed_by_their_keys() {
        let text = "# token of the night: hunter2hunter2\n[serve]\ntoken_file = \"/etc/gaunt/token\"\n\
                    [store]\nurl = \"https://u:p4ss@store/write\"\npassword = \"hunter2\"\n\
                    list = [{ api_key = \"k1\", name = \"n\" }]\n";
        let redacted = redact_settings(text).unwrap();
        for secret in ["hunter2", "p4ss", "k1"] {
            assert!(!redacted.contains(secret), "{redacted}");
        }
        assert!(redacted.contains("token_file = \"/etc/gaunt/token\""), "{redacted}");
        let error = redact_settings("password = \"hunter2\nx").unwrap_err().to_string();
        assert!(!error.contains("hunter2"), "{error}");
    }
}
