//! A finding as a text for tickets and chats, in Markdown, or as a page of HTML that needs nothing else.

use gaunt_schema::{FindingEvent, UnixMs, time::format_duration, unit::Unit};

use super::{
    AlternativeOutcome, EvidenceItem, Explanation, Finding, FindingContext,
    html_page::{escape_html, render_html_page, render_html_table},
    victim_groups::describe_victims,
};

mod escaped_text;
mod evidence_plot;

use escaped_text::{clean, escape_markdown};
pub use evidence_plot::EvidencePlot;

/// A finding with what is known around it, to be written as a text.
#[derive(Clone, Copy)]
pub struct FindingText<'a> {
    /// The finding.
    pub finding: &'a Finding,
    /// The time to which its age counts.
    pub at: UnixMs,
    /// Owners, cost and nearby changes.
    pub context: Option<&'a FindingContext>,
    /// Its explanation, for signals and causes that were ruled out.
    pub explanation: Option<&'a Explanation>,
    /// Histories of its evidence, for the page of HTML.
    pub plots: &'a [EvidencePlot],
    /// Where it can be read in full.
    pub link: Option<&'a str>,
    /// Formats a number with its unit.
    pub format: &'a dyn Fn(f64, Unit) -> String,
}

/// One table of the text.
struct TextTable {
    title: &'static str,
    headings: &'static [&'static str],
    rows: Vec<Vec<String>>,
}

impl FindingText<'_> {
    /// Renders it as Markdown: what, since when, owner, cost, what changed, evidence, next step and link.
    pub fn render_markdown(&self) -> String {
        let mut out = vec![format!("### {}\n\n", escape_markdown(&self.title()))];
        out.push(escape_markdown(&self.finding.summary) + "\n\n");
        for (label, text) in self.facts() {
            out.push(format!("- **{label}**: {}\n", escape_markdown(&text)));
        }
        for table in self.tables() {
            let headings = table.headings.join(" | ");
            out.push(format!("\n| {headings} |\n|{}\n", "---|".repeat(table.headings.len())));
            for row in &table.rows {
                let cells: Vec<String> = row.iter().map(|cell| escape_markdown(cell)).collect();
                out.push(format!("| {} |\n", cells.join(" | ")));
            }
        }
        out.push(format!("\nFinding `{}`", clean(&self.finding.id).replace('`', "'")));
        if let Some(link) = self.link {
            out.push(format!(" · <{}>", clean(link).replace(['<', '>', ' '], "")));
        }
        out.push("\n".to_owned());
        out.concat()
    }

    /// Renders it as one page of HTML without references to anything else.
    pub fn render_html(&self) -> String {
        let title = escape_html(&self.title());
        let mut out = vec![format!(
            "<h1 class=\"{}\">{title}</h1>\n<p>{}</p>\n<dl>\n",
            self.finding.severity.as_str(),
            escape_html(&self.finding.summary)
        )];
        for (label, text) in self.facts() {
            out.push(format!("<dt>{label}</dt><dd>{}</dd>\n", escape_html(&text)));
        }
        out.push("</dl>\n".to_owned());
        if !self.plots.is_empty() {
            out.push("<h2>History</h2>\n".to_owned());
        }
        for plot in self.plots {
            let (title, svg) = plot.render_svg(self.finding, self.format);
            let title = escape_html(&title);
            out.push(format!("<figure>\n<figcaption>{title}</figcaption>\n{svg}</figure>\n"));
        }
        let changes = self.lifecycle_rows();
        if !changes.is_empty() {
            out.push(
                "<h2>Timeline</h2>\n<table>\n<tr><th>time (UTC)</th><th>what</th></tr>\n"
                    .to_owned(),
            );
            for (at, what) in changes {
                out.push(format!("<tr><td>{at}</td><td>{}</td></tr>\n", escape_html(&what)));
            }
            out.push("</table>\n".to_owned());
        }
        for table in self.tables() {
            out.push(format!("<h2>{}</h2>\n", table.title));
            out.push(render_html_table(table.headings, &table.rows));
        }
        out.push(format!("<p>Finding <code>{}</code>", escape_html(&self.finding.id)));
        if let Some(link) = self.link.filter(|link| is_web_address(link)) {
            let link = escape_html(link);
            out.push(format!(" · <a href=\"{link}\">{link}</a>"));
        }
        out.push("</p>\n".to_owned());
        render_html_page(&self.title(), &out.concat())
    }

    fn title(&self) -> String {
        let Finding { kind, entity, severity, confidence, .. } = self.finding;
        let sure = (confidence * 100.0).round();
        format!("{kind} on {entity} ({severity}, confidence {sure} %)")
    }

    /// The facts in the order of reading, each with its label.
    fn facts(&self) -> Vec<(&'static str, String)> {
        let finding = self.finding;
        let mut facts = vec![("Since", self.describe_span())];
        facts.push(("Cost", self.describe_cost()));
        if let Some(context) = self.context {
            facts.extend(context.describe_jobs().map(|jobs| ("Owner", jobs)));
            let changes = context.describe_changes(finding.since);
            facts.extend(changes.into_iter().map(|change| ("Changed", change)));
        }
        let victims = describe_victims(&finding.victims).join("; ");
        facts.extend((!victims.is_empty()).then_some(("Victims", victims)));
        if !finding.next.is_empty() {
            facts.push(("Next", finding.next.clone()));
        }
        if let Some(ack) = &finding.acknowledged {
            let note = if ack.note.is_empty() { String::new() } else { format!(": {}", ack.note) };
            facts.push(("Acknowledged", format!("by {} at {}{note}", ack.by, instant(ack.at))));
        }
        if let Some(repeats) = self.explanation.and_then(Explanation::describe_repeats) {
            facts.push(("Repeated", repeats));
        }
        if !finding.missing.is_empty() {
            facts.push(("Missing", finding.missing.join(", ")));
        }
        facts
    }

    /// What happened to the finding and near its start, in the order of time.
    fn lifecycle_rows(&self) -> Vec<(String, String)> {
        let finding = self.finding;
        let mut rows = vec![(finding.since, "the evidence began".to_owned())];
        rows.extend(finding.life.changes.iter().map(|change| (change.at, change.describe())));
        if let Some(context) = self.context {
            rows.extend(context.changes.iter().map(|change| (change.at, change.describe())));
        }
        if let Some(ack) = &finding.acknowledged {
            rows.push((ack.at, format!("acknowledged by {}", ack.by)));
        }
        rows.sort_by_key(|(at, _)| *at);
        rows.into_iter().map(|(at, what)| (instant(at).replace(" UTC", ""), what)).collect()
    }

    fn describe_span(&self) -> String {
        let finding = self.finding;
        let since = instant(finding.since);
        let Some(closed) = finding.life.closed else {
            let lasted = format_duration(self.at.duration_since(finding.since));
            return format!("{since} ({lasted})");
        };
        let lasted = format_duration(closed.duration_since(finding.since));
        let mut ends = finding.life.changes.iter().rev();
        let reason = ends.find(|change| change.what == FindingEvent::Closed);
        let reason = reason.map(|change| change.to.as_str()).filter(|reason| !reason.is_empty());
        let reason = reason.map_or_else(String::new, |reason| format!(": {reason}"));
        format!("{since}, closed {} after {lasted}{reason}", instant(closed))
    }

    fn describe_cost(&self) -> String {
        let lost = format!("{:.1} GPUs lost", self.finding.lost_gpus);
        let context = self.context;
        match context.and_then(|context| Some((context.cost_per_hour?, &context.currency))) {
            Some((cost, currency)) => format!("{lost}, {cost:.2} {currency} per hour"),
            None => lost,
        }
    }

    fn tables(&self) -> Vec<TextTable> {
        let mut tables = Vec::new();
        if !self.finding.evidence.is_empty() {
            let rows = self.finding.evidence.iter().map(|item| self.evidence_row(item));
            let headings = &["evidence", "now", "limit", "note"];
            tables.push(TextTable { title: "Evidence", headings, rows: rows.collect() });
        }
        let chain = self.explanation.and_then(|explanation| explanation.chain.as_ref());
        let Some(chain) = chain else { return tables };
        let number = |value: Option<f64>, unit| {
            value.map_or_else(String::new, |value| (self.format)(value, unit))
        };
        let ruled_out =
            chain.alternatives.iter().filter(|other| other.ruling == AlternativeOutcome::RuledOut);
        let rows: Vec<Vec<String>> = ruled_out
            .map(|other| {
                let item = &other.number;
                vec![other.kind.to_string(), item.what.clone(), number(item.value, item.unit)]
            })
            .collect();
        if !rows.is_empty() {
            let headings = &["ruled out", "because", "now"];
            tables.push(TextTable { title: "Ruled out", headings, rows });
        }
        let signals = chain.signals.iter().map(|signal| {
            let of = |value| number(value, signal.unit);
            vec![signal.what.clone(), of(signal.value), of(signal.usual), of(signal.peers)]
        });
        let rows: Vec<Vec<String>> = signals.collect();
        if !rows.is_empty() {
            let headings = &["signal", "now", "baseline", "peers"];
            tables.push(TextTable { title: "Signals", headings, rows });
        }
        tables
    }

    fn evidence_row(&self, item: &EvidenceItem) -> Vec<String> {
        let number = |value: f64| (self.format)(value, item.unit);
        vec![
            item.what.clone(),
            item.value.map_or_else(|| "–".to_owned(), number),
            item.limit.map_or_else(String::new, |limit| item.side.render_limit(&number(limit))),
            item.describe(),
        ]
    }
}

/// Date and time of day in UTC.
fn instant(at: UnixMs) -> String {
    let (year, month, day) = at.to_date();
    format!("{year:04}-{month:02}-{day:02} {} UTC", at.to_time_of_day())
}

fn is_web_address(link: &str) -> bool {
    link.starts_with("https://") || link.starts_with("http://")
}

#[cfg(test)]
mod tests;
