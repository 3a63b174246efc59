//! Report output: plain columns and comma-separated values.

use std::fmt::Write as _;

use gaunt_api::csv_line;
use gaunt_schema::SanitizedText;

use super::{CostReport, CostReportSum, format_span};

/// Lines per section in text output; comma-separated values and JSON contain all of them.
const MAX_LINES: usize = 20;

/// Renders the report as text.
pub(super) fn render_text(report: &CostReport) -> String {
    let mut page = String::new();
    let total = &report.total;
    let cluster = if report.cluster.is_empty() { "the cluster" } else { report.cluster.as_str() };
    push_line(
        &mut page,
        format_args!(
            "gaunt report  {cluster} · {} · {} observed",
            format_span(report.from, report.until),
            report.format_watched()
        ),
    );
    if report.rows.is_empty() {
        let reason = if report.watched_seconds > 0.0 {
            "no GPU is known in this period"
        } else {
            "no data yet; try again in a minute"
        };
        push_line(&mut page, format_args!("{reason}"));
        return page;
    }
    let lost = format_share(total.lost_gpu_hours, total.gpu_hours);
    push_line(
        &mut page,
        format_args!(
            "GPU-hours     {:.3} total, {:.3} lost ({lost})",
            total.gpu_hours, total.lost_gpu_hours
        ),
    );
    push_line(&mut page, format_args!("cost          {}", report.describe_cost()));
    let energy = total.energy_kwh.map_or("not reported".to_owned(), |kwh| format!("{kwh:.3} kWh"));
    push_line(&mut page, format_args!("energy        {energy}, CO2 {}", report.describe_co2()));
    for (title, sums) in [
        ("STATE", &report.by_state),
        ("CAUSE", &report.by_cause),
        ("JOB", &report.by_job),
        ("USER", &report.by_user),
        ("GPU MODEL", &report.by_model),
        ("CLUSTER", &report.by_cluster),
    ] {
        if title == "CLUSTER" && sums.is_empty() {
            continue;
        }
        render_part(&mut page, title, sums, report);
    }
    page
}

/// Renders one table. Columns of a price or of CO2 are left out where none is known.
fn render_part(page: &mut String, title: &str, sums: &[CostReportSum], report: &CostReport) {
    let currencies = report.currencies();
    let has_co2 = sums.iter().any(|sum| sum.co2_kg.is_some());
    let render_money = |costs: &[[String; 2]], co2: &str| {
        let costs = costs.iter().map(|[cost, lost]| format!(" {cost:>10} {lost:>13}"));
        let co2 = if has_co2 { format!(" {co2:>8}") } else { String::new() };
        costs.collect::<String>() + &co2
    };
    let titles: Vec<[String; 2]> =
        currencies.iter().map(|of| [format!("COST {of}"), format!("LOST COST {of}")]).collect();
    push_line(
        page,
        format_args!(
            "\n{title:<28} {:>10} {:>7} {:>10} {:>7}  {:<19} {:>9}{}",
            "GPU-HOURS",
            "SHARE",
            "LOST",
            "LOST %",
            "MAIN CAUSE",
            "KWH",
            render_money(&titles, "CO2 KG"),
        ),
    );
    for sum in sums.iter().take(MAX_LINES) {
        let mut label = sum.of.clone();
        for more in [&sum.name, &sum.user].into_iter().flatten() {
            _ = write!(label, " {more}");
        }
        let label: String = label.chars().take(28).collect();
        let number = |value: Option<f64>, digits: usize| {
            value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
        };
        push_line(
            page,
            format_args!(
                "{label:<28} {:>10.3} {:>7} {:>10.3} {:>7}  {:<19} {:>9}{}",
                sum.gpu_hours,
                format_share(sum.gpu_hours, report.total.gpu_hours),
                sum.lost_gpu_hours,
                format_share(sum.lost_gpu_hours, sum.gpu_hours),
                sum.lost_most_to.unwrap_or("-"),
                number(sum.energy_kwh, 3),
                render_money(&format_costs(sum, &currencies, "-"), &number(sum.co2_kg, 3)),
            ),
        );
    }
    if let Some(more) = sums.len().checked_sub(MAX_LINES).filter(|more| *more > 0) {
        push_line(page, format_args!("and {more} more; --format csv prints all"));
    }
}

/// Formats cost and lost cost of a sum in each currency.
pub(super) fn format_costs(
    sum: &CostReportSum,
    currencies: &[&str],
    absent: &str,
) -> Vec<[String; 2]> {
    let amount =
        |value: Option<f64>| value.map_or_else(|| absent.to_owned(), |value| format!("{value:.2}"));
    let costs_in = |currency: &&str| {
        let costs = sum.costs.iter().find(|costs| costs.currency == *currency);
        [costs.and_then(|costs| costs.cost), costs.and_then(|costs| costs.lost_cost)].map(amount)
    };
    currencies.iter().map(costs_in).collect()
}

/// Formats a part as a percentage.
pub(super) fn format_share(part: f64, whole: f64) -> String {
    if whole > 0.0 { format!("{:.1} %", part / whole * 100.0) } else { "-".to_owned() }
}

/// Renders one line for each job in each state on each GPU model.
pub(super) fn render_csv(report: &CostReport) -> String {
    let mut page =
        "job,name,user,account,model,state,lost,cause,gpu_hours,energy_kwh,cost,currency,co2_kg,lost_gpu_hours,cluster\n"
            .to_owned();
    for row in &report.rows {
        let text = |value: &Option<SanitizedText>| value.as_deref().unwrap_or("").to_owned();
        let number = |value: Option<f64>| value.map_or_else(String::new, |value| value.to_string());
        let cells = [
            text(&row.job),
            text(&row.name),
            text(&row.user),
            text(&row.account),
            text(&row.model),
            row.state.to_string(),
            row.lost.to_string(),
            row.cause.unwrap_or("").to_owned(),
            row.gpu_hours.to_string(),
            number(row.energy_kwh),
            number(row.cost),
            row.currency.clone().unwrap_or_default(),
            number(row.co2_kg),
            row.lost_gpu_hours.to_string(),
            text(&row.cluster),
        ];
        push_line(&mut page, format_args!("{}", csv_line(cells)));
    }
    page
}

fn push_line(page: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    _ = writeln!(page, "{text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn share_of_nothing_is_not_shown() {
        assert_eq!(format_share(1.0, 4.0), "25.0 %");
        assert_eq!(format_share(0.0, 0.0), "-");
    }
}
