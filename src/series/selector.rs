//! Selectors: PromQL text of the queries, and a check of the operator's own matchers.

use std::fmt::Write as _;

use crate::QueryError;

/// The longest list of matchers that an operator may write, in bytes.
const MAX_SELECTOR: usize = 4 << 10;

/// How a matcher compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MatcherKind {
    /// `=`
    Equal,
    /// `!=`
    NotEqual,
    /// `=~`
    Like,
    /// `!~`
    NotLike,
}

/// A matcher: a label, how it is compared, and with what.
pub(crate) type Matcher = (String, MatcherKind, String);

/// Checks that the matchers stay within the braces of a selector: quotes are closed, and there are no braces outside.
/// Everything else is the server's to judge.
pub(crate) fn check_matchers(text: &str) -> Result<(), QueryError> {
    let selector_error =
        |why| Err(QueryError::Selector { selector: text.chars().take(200).collect(), why });
    if text.len() > MAX_SELECTOR {
        return selector_error("it is longer than 4 KiB");
    }
    let mut quote = None;
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match (character, quote) {
            ('\\', Some('"' | '\'')) => drop(characters.next()),
            (character, Some(open)) if character == open => quote = None,
            ('"' | '\'' | '`', None) => quote = Some(character),
            ('{' | '}' | '#', None) => return selector_error("it is written without braces"),
            _ => {}
        }
    }
    if quote.is_some() {
        return selector_error("a quote is not closed");
    }
    let is_blank = text.trim().is_empty();
    if !is_blank && !text.contains('=') && !text.contains('!') {
        return selector_error("it has no comparison");
    }
    Ok(())
}

/// The matchers of an operator one by one; none if they have a form that only a server's own parser reads.
pub(crate) fn parse_matchers(text: &str) -> Option<Vec<Matcher>> {
    let mut matchers = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let end = rest.find(['=', '!'])?;
        let (label, after) = rest.split_at(end);
        let label = label.trim();
        let kinds = [
            ("=~", MatcherKind::Like),
            ("!~", MatcherKind::NotLike),
            ("!=", MatcherKind::NotEqual),
            ("=", MatcherKind::Equal),
        ];
        let (sign, kind) = kinds.into_iter().find(|(sign, _)| after.starts_with(sign))?;
        let is_label = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        if label.is_empty() || !label.bytes().all(is_label) {
            return None;
        }
        let (value, after) = parse_quoted(after[sign.len()..].trim_start())?;
        matchers.push((label.to_owned(), kind, value));
        rest = after.trim_start();
        rest = match rest.strip_prefix(',') {
            Some(rest) => rest.trim_start(),
            None if rest.is_empty() => rest,
            None => return None,
        };
    }
    Some(matchers)
}

/// The value of a quoted text, and what follows it; escapes are those of a quote, a backslash and a line feed.
fn parse_quoted(text: &str) -> Option<(String, &str)> {
    let quote = text.chars().next().filter(|quote| matches!(quote, '"' | '\'' | '`'))?;
    let mut value = String::new();
    let mut characters = text.char_indices().skip(1);
    while let Some((at, character)) = characters.next() {
        match character {
            '\\' if quote != '`' => value.push(match characters.next()?.1 {
                'n' => '\n',
                escaped @ ('\\' | '"' | '\'') => escaped,
                _ => return None,
            }),
            character if character == quote => return Some((value, &text[at + 1..])),
            character => value.push(character),
        }
    }
    None
}

/// The selector of series with one of these names, from one of these instances if any are given.
pub(crate) fn select_names(names: &[&str], instances: &[&str], matchers: &str) -> String {
    let mut text = match names {
        [name] => format!("{{__name__=\"{name}\""),
        names => format!("{{__name__=~\"{}\"", names.join("|")),
    };
    if !instances.is_empty() {
        text.push(',');
        text.push_str(&match_instances(instances));
    }
    push_matchers(&mut text, matchers);
    text.push('}');
    text
}

/// The selectors of the series that name a job, as exporters name it: by a scheduler's label, by `gaunt_gpu_job_info`, or by
/// namespace and pods. A label that the server has too is `exported_`.
pub(crate) fn select_job(job: &str, matchers: &str) -> Vec<String> {
    let select = |own: &str| {
        let mut text = format!("{{{own}");
        push_matchers(&mut text, matchers);
        text.push('}');
        text
    };
    let named = |label: &str| match_values(label, &[job]);
    let mut selectors: Vec<String> =
        ["hpc_job", "job_id", "slurm_job_id"].map(|label| select(&named(label))).into();
    selectors.extend(
        ["job", "exported_job"]
            .map(|label| select(&format!("__name__=\"gaunt_gpu_job_info\",{}", named(label)))),
    );
    if let Some((namespace, owner)) = job.split_once('/') {
        for exported in ["", "exported_"] {
            let namespace = match_values(&format!("{exported}namespace"), &[namespace]);
            let mut pods = format!("{exported}pod=~\"");
            push_literal(&mut pods, owner);
            selectors.push(select(&format!("{namespace},{pods}(-.*)?\"")));
        }
    }
    selectors
}

/// The matcher of series from all exporters at the hosts of these instances.
pub(crate) fn match_hosts(instances: &[String]) -> String {
    let host = |instance: &str| match instance.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host.to_owned(),
        _ => instance.to_owned(),
    };
    let mut hosts: Vec<String> = instances.iter().map(|instance| host(instance)).collect();
    hosts.sort_unstable();
    hosts.dedup();
    let mut text = "instance=~\"(".to_owned();
    for (index, host) in hosts.iter().enumerate() {
        if index > 0 {
            text.push('|');
        }
        push_literal(&mut text, host);
    }
    text.push_str(")(:[0-9]+)?\"");
    text
}

fn push_matchers(text: &mut String, matchers: &str) {
    let matchers = matchers.trim().trim_matches(',').trim();
    if !matchers.is_empty() {
        // Writing to a string cannot fail.
        _ = write!(text, ",{matchers}");
    }
}

/// The matcher of series from these instances.
pub fn match_instances<T: AsRef<str>>(instances: &[T]) -> String {
    match_values("instance", instances)
}

/// The matcher of series whose label has one of these values.
pub(crate) fn match_values<T: AsRef<str>>(label: &str, values: &[T]) -> String {
    let mut text = format!("{label}=~\"");
    for (index, value) in values.iter().enumerate() {
        if index > 0 {
            text.push('|');
        }
        push_literal(&mut text, value.as_ref());
    }
    text.push('"');
    text
}

/// A regular expression of one of these texts, taken literally.
pub(crate) fn literal_pattern<T: AsRef<str>>(values: &[T]) -> String {
    // As in a quoted string, with its escapes undone.
    let quoted = match_values("", values);
    let pattern = parse_quoted(quoted.trim_start_matches("=~"));
    pattern.map_or_else(String::new, |(pattern, _)| pattern)
}

/// Adds text that a regular expression in a quoted string takes literally.
fn push_literal(text: &mut String, literal: &str) {
    for character in literal.chars() {
        match character {
            '\\' => text.push_str("\\\\\\\\"),
            '"' => text.push_str("\\\""),
            '\n' => text.push_str("\\n"),
            '.' | '+' | '*' | '?' | '(' | ')' | '|' | '[' | ']' | '{' | '}' | '^' | '$' => {
                text.push_str("\\\\");
                text.push(character);
            }
            character => text.push(character),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn job_is_selected_by_each_of_its_names_and_all_exporters_of_its_hosts() {
        assert_eq!(
            select_job("48.2", "cluster=\"a\",")[..4],
            [
                r#"{hpc_job=~"48\\.2",cluster="a"}"#,
                r#"{job_id=~"48\\.2",cluster="a"}"#,
                r#"{slurm_job_id=~"48\\.2",cluster="a"}"#,
                r#"{__name__="gaunt_gpu_job_info",job=~"48\\.2",cluster="a"}"#,
            ]
        );
        assert_eq!(
            select_job("train/llama", "")[5..],
            [
                r#"{namespace=~"train",pod=~"llama(-.*)?"}"#,
                r#"{exported_namespace=~"train",exported_pod=~"llama(-.*)?"}"#,
            ]
        );
        let instances = ["gpu1.example:9400", "gpu1.example:9100", "[::1]:9400", "gpu2"];
        let instances = instances.map(str::to_owned);
        let matcher = r#"instance=~"(\\[::1\\]|gpu1\\.example|gpu2)(:[0-9]+)?""#;
        assert_eq!(match_hosts(&instances), matcher);
        assert!(parse_matchers(matcher).is_some(), "it can be sent by remote read");
    }

    #[test]
    fn selector_names_series_and_instances_literally() {
        assert_eq!(select_names(&["up"], &[], ""), r#"{__name__="up"}"#);
        assert_eq!(
            select_names(&["a", "b:c"], &["10.0.0.7:9400", "gpu[1]\\\""], " cluster=\"hall-1\", "),
            r#"{__name__=~"a|b:c",instance=~"10\\.0\\.0\\.7:9400|gpu\\[1\\]\\\\\"",cluster="hall-1"}"#
        );
    }

    #[test]
    fn matchers_are_parsed_as_the_server_does_or_not_at_all() {
        use MatcherKind::{Equal, Like, NotEqual, NotLike};
        let parsed =
            parse_matchers(r#" cluster="hall-1", job=~'dcgm.*' ,pod!="a\"b\\c\n",x!~`\d{2}"` , "#);
        let expected = [
            ("cluster", Equal, "hall-1"),
            ("job", Like, "dcgm.*"),
            ("pod", NotEqual, "a\"b\\c\n"),
            ("x", NotLike, "\\d{2}\""),
        ];
        let expected =
            expected.map(|(label, kind, value)| (label.to_owned(), kind, value.to_owned()));
        assert_eq!(parsed.unwrap(), expected);
        assert_eq!(parse_matchers(" ").unwrap(), []);
        for unread in [
            "a=b",
            "a=\"b",
            "a=\"b\" c=\"d\"",
            "=\"b\"",
            "a~\"b\"",
            "a=\"\\u0041\"",
            "\"a.b\"=\"c\"",
        ] {
            assert_eq!(parse_matchers(unread), None, "{unread}");
        }
        assert_eq!(literal_pattern(&["10.0.0.7:9400", "a\\\"|b"]), r#"10\.0\.0\.7:9400|a\\"\|b"#);
    }

    #[test]
    fn matchers_that_leave_their_braces_are_refused() {
        for valid in
            ["", " ", "cluster=\"hall-1\"", "a!~\"}x\\\"{\", b='#'", "node=~`gpu{3}`", "job!=\"\""]
        {
            check_matchers(valid).unwrap();
        }
        for (invalid, why) in [
            ("{cluster=\"a\"}", "without braces"),
            ("a=\"b\"} or up{", "without braces"),
            ("a=\"b", "not closed"),
            ("hall-1", "no comparison"),
            ("a=\"b\" # c", "without braces"),
        ] {
            let error = check_matchers(invalid).unwrap_err().to_string();
            assert!(error.contains(why) && error.contains("write cluster="), "{error}");
        }
        let long = format!("a=\"{}\"", "x".repeat(5_000));
        assert!(check_matchers(&long).unwrap_err().to_string().contains("longer than 4 KiB"));
    }
}
