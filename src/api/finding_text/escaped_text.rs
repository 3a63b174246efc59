//! Text from outside within Markdown and HTML: it is never markup.

use gaunt_schema::SanitizedText;

/// Removes control characters and line breaks.
pub(super) fn clean(text: &str) -> String {
    SanitizedText::new(text).to_string()
}

/// Escapes what Markdown would read as markup.
pub(super) fn escape_markdown(text: &str) -> String {
    let mut out = String::new();
    for character in clean(text).chars() {
        if matches!(character, '\\' | '`' | '*' | '_' | '[' | ']' | '<' | '>' | '|' | '#' | '~') {
            out.push('\\');
        }
        out.push(character);
    }
    out
}

/// Escapes what HTML would read as markup.
pub(super) fn escape_html(text: &str) -> String {
    let mut out = String::new();
    for character in clean(text).chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            other => out.push(other),
        }
    }
    out
}
