//! Checks of Prometheus rule files: their structure, and the names of gaunt's metrics in their expressions.
//!
//! Of PromQL only brackets and quotes are checked. The rest is left to promtool, which knows nothing of names: a misspelt
//! metric makes an alert that never fires.

use std::{collections::BTreeSet, fs, io::Read as _, path::Path};

use gaunt_schema::catalogue::{CATALOGUE, exporter::ABSENT};
use serde::Deserialize;
use serde_saphyr::Spanned;

/// The largest rule file: thousands of rules.
const MAX_BYTES: u64 = 8 << 20;

/// Endings of the series of a histogram.
const SERIES_ENDINGS: [&str; 3] = ["_bucket", "_sum", "_count"];

/// A rule file, as far as it is checked.
#[derive(Deserialize)]
struct RuleFile {
    groups: Vec<RuleGroup>,
}

#[derive(Deserialize)]
struct RuleGroup {
    name: String,
    #[serde(default)]
    rules: Vec<RuleEntry>,
}

#[derive(Deserialize)]
struct RuleEntry {
    record: Option<String>,
    alert: Option<String>,
    expr: Spanned<String>,
}

/// Reads a rule file; the error names it.
pub(super) fn read_rules(path: &Path) -> Result<String, String> {
    let mut text = String::new();
    let read =
        fs::File::open(path).and_then(|file| file.take(MAX_BYTES + 1).read_to_string(&mut text));
    read.map_err(|error| format!("cannot read {}: {error}; check the path", path.display()))?;
    if text.len() as u64 > MAX_BYTES {
        let path = path.display();
        return Err(format!(
            "{path} is larger than {MAX_BYTES} bytes; check that it is a rule file"
        ));
    }
    Ok(text)
}

/// The errors of a rule file, each with file and line.
pub(super) fn list_errors(path: &Path, text: &str) -> Vec<String> {
    let file = path.display();
    let rules: RuleFile = match serde_saphyr::from_str(text) {
        Ok(rules) => rules,
        Err(error) => {
            let line = error.location().map_or(1, |location| location.line());
            let message = error.to_string();
            let message = message.lines().next().unwrap_or_default();
            return vec![format!(
                "{file}:{line}: {message}; write groups with rules, each with record or alert, and expr"
            )];
        }
    };
    let mut errors = Vec::new();
    for group in &rules.groups {
        for rule in &group.rules {
            let line = rule.expr.referenced.line();
            if rule.record.is_some() == rule.alert.is_some() {
                let group = &group.name;
                errors.push(format!(
                    "{file}:{line}: a rule of the group {group:?} needs record or alert, and not both"
                ));
            }
            if let Some(fault) = find_syntax_fault(&rule.expr.value) {
                let name = rule.alert.as_ref().or(rule.record.as_ref()).unwrap_or(&group.name);
                errors.push(format!(
                    "{file}:{line}: the expression of {name:?} {fault}; `promtool check rules` says more"
                ));
            }
            for name in gaunt_metrics(&rule.expr.value).iter().filter(|name| !is_known(name)) {
                // A block expression begins at its first line; the name may be further down.
                let first = usize::try_from(line).unwrap_or(1);
                let below = text.lines().skip(first.saturating_sub(1));
                let line = first + below.take_while(|line| !line.contains(*name)).count();
                errors.push(format!(
                    "{file}:{line}: {name} is no metric of gaunt; `gaunt metrics` lists all"
                ));
            }
        }
    }
    errors
}

/// What is wrong with the brackets and quotes of an expression, or that it is empty.
fn find_syntax_fault(expression: &str) -> Option<String> {
    let (mut open, mut is_empty) = (Vec::new(), true);
    let mut letters = expression.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '#' => {
                letters.find(|letter| *letter == '\n');
                continue;
            }
            '"' | '\'' | '`' if !skip_quoted(&mut letters, letter) => {
                return Some(format!("has an unclosed {letter}"));
            }
            '(' | '[' | '{' => open.push(letter),
            ')' | ']' | '}' => {
                let pairs = [('(', ')'), ('[', ']'), ('{', '}')];
                if !open.pop().is_some_and(|opening| pairs.contains(&(opening, letter))) {
                    return Some(format!("has a {letter} that closes nothing"));
                }
            }
            _ => {}
        }
        is_empty &= letter.is_whitespace();
    }
    match open.pop() {
        Some(letter) => Some(format!("has an unclosed {letter}")),
        None => is_empty.then(|| "is empty".to_owned()),
    }
}

/// Skips the rest of a quoted value; false if it does not end.
fn skip_quoted(letters: &mut std::str::Chars<'_>, quote: char) -> bool {
    while let Some(letter) = letters.next() {
        match letter {
            '\\' if quote != '`' => _ = letters.next(),
            _ if letter == quote => return true,
            _ => {}
        }
    }
    false
}

/// The names of gaunt's metrics in an expression, outside of quoted values.
fn gaunt_metrics(expression: &str) -> BTreeSet<&str> {
    let unquoted = expression.split('"').step_by(2);
    let words = unquoted.flat_map(|part| {
        part.split(|letter: char| !(letter.is_ascii_alphanumeric() || "_:".contains(letter)))
    });
    words.filter(|word| word.starts_with("gaunt_")).collect()
}

fn is_known(name: &str) -> bool {
    let has_row = |name: &str| CATALOGUE.iter().any(|row| row.name == name);
    let series = SERIES_ENDINGS.iter().filter_map(|ending| name.strip_suffix(ending));
    name == ABSENT || has_row(name) || series.into_iter().any(has_row)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errors(text: &str) -> Vec<String> {
        list_errors(Path::new("rules.yml"), text)
    }

    #[test]
    fn rule_needs_one_name_and_an_expression() {
        let both = "groups:\n- name: a\n  rules:\n  - alert: A\n    record: b\n    expr: up\n";
        assert!(errors(both)[0].starts_with("rules.yml:6: a rule of the group \"a\""));
        let none = "groups:\n- name: a\n  rules:\n  - expr: up\n";
        assert!(errors(none)[0].starts_with("rules.yml:4: "), "{:?}", errors(none));
        let no_expression = "groups:\n- name: a\n  rules:\n  - alert: A\n";
        assert!(errors(no_expression)[0].contains("expr"), "{:?}", errors(no_expression));
        assert!(errors("groups: [")[0].starts_with("rules.yml:"));
    }

    #[test]
    fn misspelt_metric_has_the_line_of_its_block() {
        let text = "groups:\n- name: a\n  rules:\n  - alert: A\n    expr: |\n      up == 0\n      or \
                    gaunt_finding{job=\"gaunt_x\"} and gaunt_findig\n";
        let found = errors(text);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("rules.yml:7: gaunt_findig is no metric"), "{found:?}");
    }

    #[test]
    fn expression_that_cannot_parse_is_named_with_its_rule() {
        let fault = |expression: &str| {
            let text =
                format!("groups:\n- name: a\n  rules:\n  - alert: A\n    expr: {expression}\n");
            errors(&text).pop().unwrap_or_default()
        };
        for (expression, expected) in [
            ("sum(", "has an unclosed ("),
            ("\"\"", "is empty"),
            ("\" # nothing\"", "is empty"),
            ("up[5m) > 0", "has a ) that closes nothing"),
            ("up} > 0", "has a } that closes nothing"),
            ("up{job=\"a}", "has an unclosed \""),
        ] {
            let expected = format!("rules.yml:5: the expression of \"A\" {expected}; `promtool");
            assert!(
                fault(expression).starts_with(&expected),
                "{expression}: {}",
                fault(expression)
            );
        }
        for valid in [
            r#"up{job=~"a(\\\"b", env='[', x=`\`} > 0"#,
            "sum by (node) (rate(up[5m])) or vector(1)",
        ] {
            assert_eq!(fault(valid), "", "{valid}");
        }
    }
}
