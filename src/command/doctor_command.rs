//! `gaunt doctor`: checks what telemetry is missing, and prints the next step for each check that fails.

use std::{process::ExitCode, time::Duration};

use unicode_width::UnicodeWidthStr as _;

use super::{
    ViewSource,
    snapshot_command::{print_page, wait_for_samples},
};
use gaunt_api::{Answer, CoverageCheck, Question, TelemetryCoverage};

/// Exit code if a check misses something.
const MISSING: u8 = 1;

/// The widest line.
const WIDTH: usize = 100;

/// Options of `doctor`.
#[derive(Clone, Copy, Debug)]
pub struct DoctorOptions {
    /// Print the answer of the API as one JSON object.
    pub json: bool,
    /// Sampling time if no aggregator is used.
    pub watch: Duration,
}

/// Prints all checks; the exit code says whether anything is missing.
pub async fn run(view: ViewSource, options: DoctorOptions) -> anyhow::Result<ExitCode> {
    let view = view.resolve_default(true).await;
    let aggregator = view.aggregator_address();
    let result = Box::pin(ask_coverage(view, options.watch)).await;
    let coverage = result.map_err(|error| super::explain_error(aggregator.as_ref(), error))?;
    let page = if options.json {
        serde_json::to_string(&coverage)? + "\n"
    } else {
        render_page(&coverage)
    };
    print_page(&page)?;
    Ok(ExitCode::from(if coverage.missing_checks() > 0 { MISSING } else { 0 }))
}

async fn ask_coverage(view: ViewSource, watch: Duration) -> anyhow::Result<TelemetryCoverage> {
    let open = view.open_view().await?;
    if open.needs_warmup {
        wait_for_samples(&open.source, watch).await?;
    }
    match open.source.ask_question(Question::Coverage).await? {
        Answer::Coverage(coverage) => Ok(coverage.as_ref().clone()),
        Answer::Refused(refusal) => Err(anyhow::anyhow!("{refusal}")),
        _ => anyhow::bail!("the aggregator returned no coverage; update it"),
    }
}

/// Renders the checks, the delays of findings, and the sum.
pub(super) fn render_page(coverage: &TelemetryCoverage) -> String {
    let mut lines: Vec<String> = coverage.checks.iter().flat_map(render_check).collect();
    lines.push(String::new());
    lines.extend(coverage.describe_delays().iter().flat_map(|text| wrap_words("", text)));
    lines.push(String::new());
    lines.push(match coverage.missing_checks() {
        0 => format!("Nothing is missing in {} checks.", coverage.checks.len()),
        1 => format!("1 of {} checks misses something.", coverage.checks.len()),
        missing => format!("{missing} of {} checks miss something.", coverage.checks.len()),
    });
    lines.join("\n") + "\n"
}

/// Renders the state and the sentence of a check; below it the names, who states what is known, and the next step.
fn render_check(check: &CoverageCheck) -> Vec<String> {
    let mut lines = wrap_words(&format!("{:<9}", check.state.as_str()), &check.summary);
    let mut add = |head: &str, text: &str| {
        if !text.is_empty() {
            lines.extend(wrap_words(&format!("{:9}{head}", ""), text));
        }
    };
    add("", &check.list_missing());
    add("stated by ", &check.list_origins());
    add("→ ", &check.next);
    lines
}

/// Wraps words behind a head; further lines are indented like it.
fn wrap_words(head: &str, text: &str) -> Vec<String> {
    let indent = " ".repeat(head.width());
    let mut lines = vec![head.to_owned()];
    let mut is_first = true;
    for word in text.split_whitespace() {
        let Some(line) = lines.last_mut() else { break };
        if !is_first && line.width() + 1 + word.width() > WIDTH {
            lines.push(format!("{indent}{word}"));
            continue;
        }
        if !is_first {
            line.push(' ');
        }
        line.push_str(word);
        is_first = false;
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_check_has_its_names_and_the_next_step() {
        let page = render_page(&gaunt_api::samples::telemetry_coverage());
        let lines: Vec<&str> = page.lines().collect();
        assert_eq!(lines[0], "ok       all 64 targets are read");
        assert!(lines[1].starts_with("missing  3 of 32 nodes with GPUs have no host metrics: "));
        assert!(
            page.contains("\n         gpu001, gpu002, gpu017\n         → Run node_exporter or ")
        );
        assert!(page.ends_with("\n3 of 5 checks miss something.\n"), "{page}");
        assert!(lines.iter().all(|line| line.width() <= WIDTH), "{page}");
    }
}
