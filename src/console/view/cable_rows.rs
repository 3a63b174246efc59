//! Below the network map: the numbers of a cell, its cables with both of their ends, and the NVLink domains of the fleet.

use gaunt_schema::{SanitizedText, Severity};
use ratatui::text::{Line, Span};

use crate::{
    display_text,
    fabric_cables::DomainTotals,
    fabric_peers::value_at,
    theme::{self, StyleRole, Theme},
};
use gaunt_api::{AnswerTable, FabricMatrix, Finding};

/// Most columns of either end of a cable where the screen is narrow: `gpu003 mlx5_3/1`, `leaf-00-r3 port 17`.
const END: usize = 26;

/// Columns of a row beside the two ends of its cable.
const BESIDE_ENDS: usize = 52;

/// Columns of the name of an NVLink domain.
const DOMAIN: usize = 28;

/// Most domains that are listed.
const SHOWN_DOMAINS: usize = 6;

/// Returns the worst severity of the open findings of a kind, on a node if one of them is there; a kind that is not
/// listed is critical.
pub(crate) fn severity_of(findings: &[Finding], kind: &str, node: Option<&str>) -> Severity {
    let of_kind = || findings.iter().filter(|finding| finding.kind.as_str() == kind);
    let is_there = |finding: &&Finding| node.is_some() && finding.entity.node.as_deref() == node;
    let there = of_kind().filter(is_there).map(|finding| finding.severity).max();
    let any = || of_kind().map(|finding| finding.severity).max();
    there.or_else(any).unwrap_or(Severity::Critical)
}

/// Renders the name of a finding with the sign of its severity.
fn render_kind(severity: Severity, kind: &str, theme: Theme) -> Span<'static> {
    let text = format!("{} {kind}", theme::severity_sign(severity));
    Span::styled(text, theme.severity_style(severity))
}

/// Renders all numbers of the cell under the cursor.
pub(crate) fn render_cell_numbers(
    fabric: &FabricMatrix,
    cell: Option<usize>,
    findings: &[Finding],
    width: usize,
    theme: Theme,
) -> Vec<Line<'static>> {
    let cells = &fabric.cells;
    let Some(index) = cell else {
        return vec![Line::styled("   no port here", theme.style_for(StyleRole::Dim))];
    };
    let name = |names: &[SanitizedText], at: u32, word: &str| match names.get(at as usize) {
        Some(name) if !name.is_empty() => format!("{word}{name}"),
        _ => format!("{word}unknown"),
    };
    let leaf = name(&fabric.leaves, cells.leaf[index], "");
    let head = format!(" {leaf} · {}", name(&fabric.rails, cells.rail[index], "rail "));
    let share = |column: &[Option<f32>]| {
        value_at(column, index)
            .map_or_else(|| display_text::ABSENT.into(), |v| format!("{:.1}", v * 100.0))
    };
    let rate = |column: &[Option<f32>]| {
        value_at(column, index).map_or_else(
            || display_text::ABSENT.into(),
            |v| display_text::format_short_rate(v.into()),
        )
    };
    let groups = [
        format!("{} ports, {} active", cells.ports[index], cells.active[index]),
        format!(
            "load: in {} %, out {} %, busiest {} %",
            share(&cells.receive_ratio),
            share(&cells.transmit_ratio),
            share(&cells.busiest_ratio)
        ),
        format!(
            "PFC pause: received {} %, sent {} %",
            share(&cells.pause_received_ratio),
            share(&cells.pause_sent_ratio)
        ),
        format!(
            "CNP {}/s, ECN {}/s",
            rate(&cells.cnp_handled_per_second),
            rate(&cells.ecn_marked_per_second)
        ),
        format!(
            "link: errors {}/s, downs {}/s",
            rate(&cells.errors_per_second),
            rate(&cells.downs_per_second)
        ),
    ];
    let mut lines = vec![Line::styled(head, theme.style_for(StyleRole::Title))];
    let text = display_text::join_groups(&groups, "  ·  ", width.saturating_sub(3));
    lines.extend(text.into_iter().map(|line| Line::raw(format!("   {line}"))));
    if let Some(kind) = cells.finding.get(index).copied().flatten() {
        let kind = kind.as_str();
        let name = render_kind(severity_of(findings, kind, None), kind, theme);
        lines.push(Line::from(vec![Span::raw("   "), name]));
    }
    lines.push(Line::styled("   Enter: list the ports", theme.style_for(StyleRole::Dim)));
    lines
}

/// Renders the cables, the worst first; nothing before their answer.
///
/// ```text
///    gpu003 mlx5_3/1 ─ leaf-00-r3 port 17   down             ✖ port_down
///    gpu004 mlx5_3/1 ─ leaf-00-r3 port 18   active  load 38 %
/// ```
pub(crate) fn render_cables(
    ports: &AnswerTable,
    findings: &[Finding],
    width: usize,
    theme: Theme,
) -> Vec<Line<'static>> {
    let text = |name: &str, row| ports.find_column(name).and_then(|column| column.text_at(row));
    let words = |text: Option<&SanitizedText>| text.map_or_else(String::new, ToString::to_string);
    let rows = 0..ports.rows as usize;
    let ends = |row| {
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
        (near, far)
    };
    let ends: Vec<(String, String)> = rows.map(ends).collect();
    let most = END.max(width.saturating_sub(BESIDE_ENDS) / 2);
    let columns = |texts: &mut dyn Iterator<Item = &String>| {
        texts.map(|text| display_text::text_width(text)).max().unwrap_or(0).min(most)
    };
    let near_width = columns(&mut ends.iter().map(|(near, _)| near));
    let far_width = columns(&mut ends.iter().map(|(_, far)| far));
    let lines = ends.iter().enumerate().map(|(row, (near, far))| {
        let state = words(text("state", row));
        let load = ports.find_column("load").and_then(|column| column.number_at(row));
        let load = load.filter(|_| state == "active").map_or_else(String::new, |load| {
            format!("load {} %", display_text::format_whole_percent(Some(load)))
        });
        let meaning = if state == "active" { StyleRole::Dim } else { StyleRole::Bad };
        let mut spans = vec![
            Span::raw(format!("   {} ─ ", display_text::align_left(near, near_width))),
            Span::raw(format!("{}  ", display_text::align_left(far, far_width))),
            Span::styled(format!("{state:<8} {load:<10}  "), theme.style_for(meaning)),
        ];
        if let Some(kind) = text("finding", row) {
            let node = text("node", row).map(SanitizedText::as_str);
            spans.push(render_kind(severity_of(findings, kind, node), kind, theme));
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
pub(crate) fn render_domains(
    gpus: &AnswerTable,
    findings: &[Finding],
    theme: Theme,
) -> Vec<Line<'static>> {
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
            spans.push(render_kind(severity_of(findings, kind, None), kind, theme));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        sample_answers::{self, build_table, number_cells, text_cells},
        theme::{ColourDepth, GlyphSet},
    };
    use gaunt_api::Subject;

    #[test]
    fn cable_has_the_severity_of_its_finding_apart_from_its_load() {
        let mut finding = sample_answers::port_down_finding();
        finding.severity = Severity::Warning;
        let ports = build_table(
            Subject::Ports,
            vec![
                ("node", text_cells(&["gpu003"])),
                ("state", text_cells(&["active"])),
                ("load", number_cells(&[Some(1.03)])),
                ("finding", text_cells(&["port_down"])),
            ],
        );
        let theme = Theme::new(ColourDepth::None, GlyphSet::Unicode, |_| None);
        let line = |findings: &[Finding]| render_cables(&ports, findings, 80, theme)[0].to_string();
        let shown = line(&[finding]);
        assert!(shown.ends_with("load 103 %  ▲ port_down"), "{shown}");
        assert!(line(&[]).ends_with("✖ port_down"), "a finding that is not listed");
    }

    #[test]
    fn ends_of_cables_are_whole_where_the_screen_is_wide_enough() {
        let ports = build_table(
            Subject::Ports,
            vec![
                ("node", text_cells(&["hall-1/gpu003"])),
                ("leaf", text_cells(&["hall-1/leaf-00-r3"])),
                ("state", text_cells(&["active"])),
            ],
        );
        let theme = Theme::new(ColourDepth::None, GlyphSet::Unicode, |_| None);
        let line = |width| render_cables(&ports, &[], width, theme)[0].to_string();
        assert!(line(120).contains("hall-1/leaf-00-r3 port unknown"), "{}", line(120));
        assert!(line(80).contains("hall-1/leaf-00-r3 port un…"), "{}", line(80));
    }
}
