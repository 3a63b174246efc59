//! Text from outside within Markdown: it is never markup.

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
