//! A page of HTML without references to anything else; text from outside is never markup.

use gaunt_schema::SanitizedText;

/// Style of the page: readable on screen and on paper, in light and dark.
const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:60rem;padding:0 1rem;\
color-scheme:light dark}h1{font-size:1.3rem;border-left:.4rem solid #888;padding-left:.6rem}\
figure{margin:1rem 0}figcaption{font-size:.9rem}svg{width:100%;height:auto}h1.critical{border-color:#c81414}h1.warning{border-color:#d9a400}h2{font-size:1.1rem}\
dl{display:grid;grid-template-columns:max-content 1fr;gap:.2rem 1rem}dt{font-weight:600}dd{margin:0}\
table{border-collapse:collapse;width:100%}th,td{text-align:left;padding:.2rem .6rem;border-bottom:1px solid #8884}";

/// Renders a page with this title, which is not yet escaped, around a body that is markup.
pub fn render_html_page(title: &str, body: &str) -> String {
    let title = escape_html(title);
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>{title}</title>\n\
         <style>{STYLE}</style>\n</head>\n<body>\n{body}</body>\n</html>\n"
    )
}

/// Renders a table; neither headings nor cells are escaped yet.
pub fn render_html_table(headings: &[&str], rows: &[Vec<String>]) -> String {
    let heads = headings.iter().map(|head| format!("<th>{}</th>", escape_html(head)));
    let mut out = vec![format!("<table>\n<tr>{}</tr>\n", heads.collect::<String>())];
    for row in rows {
        let cells = row.iter().map(|cell| format!("<td>{}</td>", escape_html(cell)));
        out.push(format!("<tr>{}</tr>\n", cells.collect::<String>()));
    }
    out.push("</table>\n".to_owned());
    out.concat()
}

/// Escapes what HTML would read as markup, and removes control characters and line breaks.
pub fn escape_html(text: &str) -> String {
    let mut out = String::new();
    for character in SanitizedText::new(text).chars() {
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
