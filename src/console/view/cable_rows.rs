//! Cables of a cell of the network map with both of their ends, and the NVLink domains of the fleet.

use gaunt_schema::SanitizedText;
use ratatui::text::{Line, Span};

use crate::{
    display_text,
    fabric_cables::DomainTotals,
    theme::{StyleRole, Theme},
};
use gaunt_api::AnswerTable;

/// Columns of either end of a cable: `gpu003 mlx5_3/1`, `leaf-00-r3 port 17`.
const END: usize = 26;

/// Columns of the name of an NVLink domain.
const DOMAIN: usize = 28;

/// Most domains that are listed.
const SHOWN_DOMAINS: usize = 6;

/// Renders the cables, the worst first; nothing before their answer.
///
/// ```text
///    gpu003 mlx5_3/1 ─ leaf-00-r3 port 17   down             ✖ port_down
///    gpu004 mlx5_3/1 ─ leaf-00-r3 port 18   active  load 38 %
/// ```
pub(crate) fn render_cables(ports: &AnswerTable, theme: Theme) -> Vec<Line<'static>> {
    let text = |name: &str, row| ports.find_column(name).and_then(|column| column.text_at(row));
    let words = |text: Option<&SanitizedText>| text.map_or_else(String::new, ToString::to_string);
    let rows = 0..ports.rows as usize;
    let lines = rows.map(|row| {
        let near = format!(
            "{} {}/{}",
            words(text("node", row)),
            words(text("device", row)),
            words(text("port", row))
        );
        let leaf = text("leaf", row).map_or_else(|| "leaf unknown".to_owned(), ToString::to_string);
        let far = match text("switch_port", row) {
            Some(port) => format!("{leaf} port {port}"),
            None => format!("{leaf} port unknown"),
        };
        let state = words(text("state", row));
        let load = ports.find_column("load").and_then(|column| column.number_at(row));
        let load = load.filter(|_| state == "active").map_or_else(String::new, |load| {
            format!("load {} %", display_text::format_whole_percent(Some(load)))
        });
        let meaning = if state == "active" { StyleRole::Dim } else { StyleRole::Bad };
        let mut spans = vec![
            Span::raw(format!("   {} ─ ", display_text::align_left(&near, END))),
            Span::raw(display_text::align_left(&far, END)),
            Span::styled(format!(" {state:<8} {load:<10}"), theme.style_for(meaning)),
        ];
        if let Some(kind) = text("finding", row) {
            spans.push(Span::styled(format!("✖ {kind}"), theme.style_for(StyleRole::Bad)));
        }
        Line::from(spans)
    });
    lines.collect()
}

/// Renders the NVLink domains that are larger than a node, the worst first; nothing without one.
///
/// ```text
///  NVLINK   18 domains larger than a node
///    domain-03                      72 GPUs   3.2 GPUs lost   ✖ nvlink_degraded
/// ```
pub(crate) fn render_domains(gpus: &AnswerTable, theme: Theme) -> Vec<Line<'static>> {
    let domains = DomainTotals::of(gpus);
    if domains.is_empty() {
        return Vec::new();
    }
    let count = display_text::format_count(domains.len() as u64);
    let noun = if domains.len() == 1 { "domain" } else { "domains" };
    let mut lines = vec![
        Line::default(),
        Line::from(vec![
            Span::styled(" NVLINK   ", theme.style_for(StyleRole::Title)),
            Span::raw(format!("{count} {noun} larger than a node, by GPUs lost")),
        ]),
    ];
    for domain in domains.iter().take(SHOWN_DOMAINS) {
        let lost = display_text::format_gpu_count(domain.lost);
        let name = display_text::align_left(&domain.name, DOMAIN);
        let mut spans =
            vec![Span::raw(format!("   {name} {:>5} GPUs {lost:>8} GPUs lost   ", domain.gpus))];
        if let Some(kind) = &domain.finding {
            spans.push(Span::styled(format!("✖ {kind}"), theme.style_for(StyleRole::Bad)));
        }
        lines.push(Line::from(spans));
    }
    let more = domains.len().saturating_sub(SHOWN_DOMAINS);
    if more > 0 {
        let text = format!("   and {more} more; :gpus has domain lists their GPUs");
        lines.push(Line::styled(text, theme.style_for(StyleRole::Dim)));
    }
    lines
}
