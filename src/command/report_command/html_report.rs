//! The report as one page of HTML: totals, a bar for each cause of loss, and a table for each way to sum.

use std::fmt::Write as _;

use gaunt_api::html_page::{escape_html, render_html_page, render_html_table};

use super::{
    CostReport, CostReportSum, format_span,
    report_output::{format_costs, format_share},
};

/// Rows of a table; comma-separated values and JSON contain all of them.
const MAX_ROWS: usize = 100;

/// Bars of the drawing.
const MAX_BARS: usize = 12;

/// Size of a bar with its labels, in units of the drawing: width of all, height of one, left and right of the bar.
const BAR: (f64, f64, f64, f64) = (880.0, 24.0, 200.0, 150.0);

/// Headings of the tables, between the first and the costs.
const HEADINGS: [&str; 6] =
    ["GPU-hours", "share", "lost GPU-hours", "lost", "main cause", "energy, kWh"];

/// Renders the report.
pub(super) fn render_html(report: &CostReport) -> String {
    let cluster = if report.cluster.is_empty() { "the cluster" } else { report.cluster.as_str() };
    let title = format!("GPU time of {cluster}");
    let mut body = format!(
        "<h1>{}</h1>\n<p>{}, {} observed</p>\n",
        escape_html(&title),
        escape_html(&format_span(report.from, report.until)),
        report.format_watched()
    );
    if report.rows.is_empty() {
        body.push_str(if report.watched_seconds > 0.0 {
            "<p>no GPU is known in this period</p>\n"
        } else {
            "<p>no data yet; try again in a minute</p>\n"
        });
        return render_html_page(&title, &body);
    }
    push_totals(&mut body, report);
    push_bars(&mut body, &report.by_cause);
    for (title, sums) in [
        ("cause", &report.by_cause),
        ("job", &report.by_job),
        ("user", &report.by_user),
        ("state", &report.by_state),
        ("GPU model", &report.by_model),
        ("cluster", &report.by_cluster),
    ] {
        push_table(&mut body, title, sums, report);
    }
    render_html_page(&title, &body)
}

/// Appends the totals; what is not known is said, never zero.
fn push_totals(body: &mut String, report: &CostReport) {
    let total = &report.total;
    let share = format_share(total.lost_gpu_hours, total.gpu_hours);
    let facts = [
        (
            "GPU-hours",
            format!("{:.3}, {:.3} lost ({share})", total.gpu_hours, total.lost_gpu_hours),
        ),
        ("Cost", report.describe_cost()),
        (
            "Energy",
            total.energy_kwh.map_or("not reported".to_owned(), |kwh| format!("{kwh:.3} kWh")),
        ),
        ("CO2", report.describe_co2()),
    ];
    body.push_str("<dl>\n");
    for (label, text) in facts {
        _ = writeln!(body, "<dt>{label}</dt><dd>{}</dd>", escape_html(&text));
    }
    body.push_str("</dl>\n");
}

/// Appends a bar for the lost GPU-hours of each cause, the largest first; nothing if nothing is lost.
fn push_bars(body: &mut String, causes: &[CostReportSum]) {
    let lost: Vec<&CostReportSum> =
        causes.iter().filter(|sum| sum.lost_gpu_hours > 0.0).take(MAX_BARS).collect();
    let Some(largest) = lost.first().map(|sum| sum.lost_gpu_hours) else { return };
    let (width, height, left, right) = BAR;
    _ = writeln!(
        body,
        "<h2>Lost GPU-hours by cause</h2>\n<figure>\n<svg viewBox=\"0 0 {width} {}\" role=\"img\" font-size=\"13\">",
        height * lost.len() as f64
    );
    for (row, sum) in lost.iter().enumerate() {
        let top = height * row as f64;
        let length = (width - left - right) * sum.lost_gpu_hours / largest;
        let text = top + height * 0.7;
        _ = writeln!(
            body,
            "<text x=\"{}\" y=\"{text}\" text-anchor=\"end\" fill=\"currentColor\">{}</text>\n\
             <rect x=\"{left}\" y=\"{}\" width=\"{length:.1}\" height=\"{}\" fill=\"#c81414\"/>\n\
             <text x=\"{:.1}\" y=\"{text}\" fill=\"currentColor\">{:.3} GPU-hours</text>",
            left - 8.0,
            escape_html(&sum.of),
            top + 4.0,
            height - 8.0,
            left + length + 8.0,
            sum.lost_gpu_hours
        );
    }
    body.push_str("</svg>\n</figure>\n");
}

fn push_table(body: &mut String, title: &str, sums: &[CostReportSum], report: &CostReport) {
    if sums.is_empty() {
        return;
    }
    let number = |value: Option<f64>, digits: usize| {
        value.map_or_else(|| "–".to_owned(), |value| format!("{value:.digits$}"))
    };
    let currencies = report.currencies();
    let rows: Vec<Vec<String>> = sums
        .iter()
        .take(MAX_ROWS)
        .map(|sum| {
            let names = [&sum.name, &sum.user].into_iter().flatten();
            let names: Vec<&str> = std::iter::once(sum.of.as_str())
                .chain(names.map(gaunt_schema::SanitizedText::as_str))
                .collect();
            let mut cells = vec![
                names.join(" "),
                format!("{:.3}", sum.gpu_hours),
                format_share(sum.gpu_hours, report.total.gpu_hours),
                format!("{:.3}", sum.lost_gpu_hours),
                format_share(sum.lost_gpu_hours, sum.gpu_hours),
                sum.lost_most_to.unwrap_or("–").to_owned(),
                number(sum.energy_kwh, 3),
            ];
            cells.extend(format_costs(sum, &currencies, "–").into_iter().flatten());
            cells.push(number(sum.co2_kg, 3));
            cells
        })
        .collect();
    let costs: Vec<String> = currencies
        .iter()
        .flat_map(|of| [format!("cost, {of}"), format!("lost cost, {of}")])
        .collect();
    let mut headings: Vec<&str> = std::iter::once(title).chain(HEADINGS).collect();
    headings.extend(costs.iter().map(String::as_str));
    headings.push("CO2, kg");
    _ = writeln!(body, "<h2>By {title}</h2>\n{}", render_html_table(&headings, &rows).trim_end());
    if let Some(more) = sums.len().checked_sub(MAX_ROWS).filter(|more| *more > 0) {
        _ = writeln!(body, "<p>and {more} more; --format csv prints all</p>");
    }
}

#[cfg(test)]
mod tests {
    use gaunt_api::{LossCause, UsageReport, UsageRow};
    use gaunt_schema::{FindingKind, GpuState, SanitizedText};

    use super::*;
    use crate::command::report_command::GpuPrices;

    #[test]
    fn page_is_well_formed_and_names_are_never_markup() {
        let row = UsageRow {
            job: Some(SanitizedText::new("7")),
            name: Some(SanitizedText::new("<script>alert(1)</script>")),
            model: Some(SanitizedText::new("NVIDIA H100")),
            state: Some(GpuState::Waiting),
            gpu_seconds: 7_200.0,
            lost_gpu_seconds: 3_600.0,
            cause: Some(LossCause::Finding(FindingKind::PortDown)),
            ..UsageRow::default()
        };
        let usage =
            UsageReport { rows: vec![row], watched_seconds: 60.0, ..UsageReport::default() };
        let prices = GpuPrices { default: Some(2.0), ..GpuPrices::default() };
        let page = render_html(&CostReport::of(&usage, &prices, None));
        for part in [
            "<dt>GPU-hours</dt><dd>2.000, 1.000 lost (50.0 %)</dd>",
            "lost 2.00",
            "port_down</text>",
            "&lt;script&gt;alert(1)&lt;/script&gt;",
            "no factor set",
        ] {
            assert!(page.contains(part), "{part} in\n{page}");
        }
        assert!(!page.contains("<script") && !page.contains("http"), "{page}");
        for element in ["html", "body", "dl", "svg", "figure", "table", "tr", "td", "text"] {
            let opened = page.matches(&format!("<{element}>")).count()
                + page.matches(&format!("<{element} ")).count();
            assert_eq!(opened, page.matches(&format!("</{element}>")).count(), "{element}");
        }
        let nothing = render_html(&CostReport::of(&UsageReport::default(), &prices, None));
        assert!(nothing.contains("no data yet") && !nothing.contains("<svg"), "{nothing}");
    }
}
