//! The result of comparing dumps: as text for a person, as JSON for a program.

use std::{collections::BTreeMap, fmt::Write as _, path::Path};

use gaunt_schema::SanitizedText;
use serde::Serialize;

use super::{
    lagging_ranks::{LagAnalysis, LagReason, LaggingRank, StuckGroup},
    rank_dump::{LastCall, RankDump},
    rank_owners::RankOwner,
};

/// How many lines a text has of each kind, and ranks one of them lists.
const MAX_LINES: usize = 16;

/// How many faults are kept by name.
const MAX_PROBLEMS: usize = 256;

/// What all dumps of a folder show.
#[derive(Debug, Default, Serialize)]
pub(super) struct LagReport {
    folder: SanitizedText,
    /// The version of the recorder; of several, the first one.
    version: SanitizedText,
    /// The dumps that were read.
    pub(super) dumps: u32,
    compared_groups: u32,
    /// The ranks for which others wait, the causes first.
    pub(super) lagging: Vec<LaggingRankLine>,
    stuck_groups: Vec<StuckGroup>,
    /// What could not be read or asked for.
    pub(super) problems: Vec<SanitizedText>,
    /// The hosts and last operations of all ranks.
    #[serde(skip)]
    ranks: BTreeMap<u32, RankCall>,
}

#[derive(Debug, Default)]
struct RankCall {
    host: Option<SanitizedText>,
    last_call: Option<LastCall>,
}

/// A rank for which others wait, with all that is known of it.
#[derive(Debug, Serialize)]
pub(super) struct LaggingRankLine {
    #[serde(flatten)]
    pub(super) lag: LaggingRank,
    /// The subfolder of its dump.
    host: Option<SanitizedText>,
    /// Its GPUs: several where jobs have this rank.
    gpus: Vec<RankOwner>,
    last_call: Option<LastCall>,
}

impl LagReport {
    pub(super) fn new(folder: &Path) -> Self {
        Self { folder: SanitizedText::new(&folder.to_string_lossy()), ..Self::default() }
    }

    /// Notes whose dump was read.
    pub(super) fn add_dump(&mut self, rank: u32, host: Option<SanitizedText>, dump: &RankDump) {
        if self.dumps == 0 {
            self.version = dump.version.clone();
        }
        self.dumps += 1;
        self.ranks.insert(rank, RankCall { host, last_call: dump.last_call.clone() });
    }

    /// Notes what could not be read.
    pub(super) fn add_problem(&mut self, text: &str) {
        if self.problems.len() < MAX_PROBLEMS {
            self.problems.push(SanitizedText::new(text));
        }
    }

    /// Adds the ranks for which others wait.
    pub(super) fn add_lagging(&mut self, analysis: LagAnalysis) {
        self.compared_groups = analysis.compared_groups as u32;
        self.stuck_groups = analysis.stuck;
        let lines = analysis.lagging.into_iter().map(|lag| {
            let call = self.ranks.get(&lag.rank);
            LaggingRankLine {
                host: call.and_then(|call| call.host.clone()),
                last_call: call.and_then(|call| call.last_call.clone()),
                gpus: Vec::new(),
                lag,
            }
        });
        self.lagging = lines.collect();
    }

    /// Adds the GPUs of these ranks.
    pub(super) fn add_owners(&mut self, owners: &BTreeMap<u32, Vec<RankOwner>>) {
        for line in &mut self.lagging {
            line.gpus = owners.get(&line.lag.rank).cloned().unwrap_or_default();
        }
    }
}

/// Renders the report as text.
pub(super) fn render_text(report: &LagReport, has_aggregator: bool) -> String {
    let mut page = format!(
        "{}: {}, flight recorder {}, {} compared\n",
        report.folder,
        format_count(report.dumps as usize, "dump"),
        report.version,
        format_count(report.compared_groups as usize, "process group"),
    );
    let causes: Vec<_> = report.lagging.iter().filter(|line| !line.lag.waits_elsewhere).collect();
    for line in causes.iter().take(MAX_LINES) {
        page.push('\n');
        page += &render_cause(line, has_aggregator);
    }
    add_omitted(&mut page, causes.len(), "rank");
    if causes.is_empty() {
        page.push('\n');
        page += &describe_no_cause(report);
    }
    page += &render_stuck(&report.stuck_groups);
    for problem in report.problems.iter().take(MAX_LINES) {
        _ = writeln!(page, "not read: {problem}");
    }
    add_omitted(&mut page, report.problems.len(), "file");
    page
}

fn render_cause(line: &LaggingRankLine, has_aggregator: bool) -> String {
    let lag = &line.lag;
    let named = lag.operation.as_ref().map(|name| format!(" ({name})")).unwrap_or_default();
    let (collective, group) = (format!("collective {}{named}", lag.sequence), &lag.group);
    let what = match (lag.reason, &lag.other_operation) {
        (LagReason::NotCalled, _) => format!("did not call {collective}"),
        (LagReason::OtherOperation, Some(other)) => format!("called {other} as {collective}"),
        (LagReason::OtherOperation, None) => format!("called another operation as {collective}"),
        (LagReason::NotStarted, _) => format!("called {collective}, but its GPU did not start it"),
        (LagReason::NotCompleted, _) => format!("did not complete {collective}, others did"),
        (LagReason::NoDump, _) => format!("left no dump; all others are in {collective}"),
    };
    let waiting = format_count(lag.waiting_ranks as usize, "rank");
    let mut text = format!("rank {} {what} of group {group}; {waiting} wait.\n", lag.rank);
    let gpus: Vec<String> = line.gpus.iter().take(MAX_LINES).map(render_owner).collect();
    let gpu = match (gpus.is_empty(), has_aggregator) {
        (false, _) => gpus.join(", "),
        (true, true) => "unknown: no GPU reports this rank (gaunt_gpu_job_info)".to_owned(),
        (true, false) => "unknown: name --aggregator URL and --job JOB".to_owned(),
    };
    _ = writeln!(text, "  GPU        {gpu}");
    if let Some(host) = &line.host {
        _ = writeln!(text, "  host       {host}");
    }
    if let Some(call) = &line.last_call {
        let caller = call.caller.as_ref().map(|caller| format!(", {caller}")).unwrap_or_default();
        _ = writeln!(
            text,
            "  last call  {} {} of group {}, {}{caller}",
            call.operation, call.sequence, call.group, call.state
        );
    }
    _ = writeln!(text, "  next       {}", next_step(lag.reason));
    text
}

fn render_owner(owner: &RankOwner) -> String {
    let job = owner.job.as_ref().map(|job| format!(" (job {job})")).unwrap_or_default();
    format!("{}/{}{job}", owner.node, owner.gpu)
}

fn next_step(reason: LagReason) -> &'static str {
    match reason {
        LagReason::NotCalled => {
            "Find what its process does (py-spy dump --pid PID), and whether its node has a finding."
        }
        LagReason::OtherOperation => {
            "Compare the calls of the ranks in the training program: all must call the same operation."
        }
        LagReason::NotStarted => {
            "Check its GPU (nvidia-smi, XIDs) and which kernel or collective runs before on its stream."
        }
        LagReason::NotCompleted => "Check its GPU, its NVLinks and the ports of its node.",
        LagReason::NoDump => "Check whether its process and its node are alive; add its dump.",
    }
}

/// Why no rank is named.
fn describe_no_cause(report: &LagReport) -> String {
    if report.stuck_groups.is_empty() {
        return "No rank waits: every collective is completed, or its group has no other dump.\n"
            .to_owned();
    }
    if report.lagging.is_empty() {
        return "No rank is behind: all ranks run the same collective.\n  next       Check the \
                network and the NVLinks between them (port_down, link_errors, nvlink_degraded).\n"
            .to_owned();
    }
    "Ranks wait for each other: each one that is behind waits in another group.\n  next       Compare \
     the order in which the ranks call the collectives of several groups; it must be the same.\n"
        .to_owned()
}

fn render_stuck(groups: &[StuckGroup]) -> String {
    let mut text = String::new();
    for group in groups.iter().take(MAX_LINES) {
        let operation = group.operation.as_ref().map(|name| format!(" {name}"));
        let description = match group.description.as_str() {
            "" => String::new(),
            description => format!(" ({description})"),
        };
        _ = write!(
            text,
            "\ngroup {}{description}, {}: collective {}{}\n  waiting    {}\n  behind     {}\n",
            group.group,
            format_count(group.ranks as usize, "rank"),
            group.sequence,
            operation.unwrap_or_default(),
            list_ranks(&group.waiting),
            list_ranks(&group.lagging),
        );
        if !group.without_dump.is_empty() {
            _ = writeln!(text, "  no dump    {}", list_ranks(&group.without_dump));
        }
        if !group.unknown.is_empty() {
            _ = writeln!(text, "  unknown    {}", list_ranks(&group.unknown));
        }
    }
    add_omitted(&mut text, groups.len(), "group");
    text
}

/// Lists ranks as ranges: `0-4, 6`.
fn list_ranks(ranks: &[u32]) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for rank in ranks {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == *rank => *last = *rank,
            _ => ranges.push((*rank, *rank)),
        }
    }
    let total = ranges.len();
    let range = |(first, last): (u32, u32)| match last - first {
        0 => first.to_string(),
        _ => format!("{first}-{last}"),
    };
    let mut text: Vec<String> = ranges.into_iter().take(MAX_LINES).map(range).collect();
    if total > MAX_LINES {
        text.push("…".to_owned());
    }
    if text.is_empty() { "none".to_owned() } else { text.join(", ") }
}

fn add_omitted(page: &mut String, total: usize, what: &str) {
    if let Some(more) = total.checked_sub(MAX_LINES).filter(|more| *more > 0) {
        _ = writeln!(page, "and {} more; --format json lists them", format_count(more, what));
    }
}

fn format_count(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_listed_as_ranges_of_bounded_number() {
        assert_eq!(list_ranks(&[]), "none");
        assert_eq!(list_ranks(&[0, 1, 2, 4, 6, 7]), "0-2, 4, 6-7");
        let odd: Vec<u32> = (0..100).map(|number| number * 2 + 1).collect();
        assert!(list_ranks(&odd).ends_with("29, 31, …"));
    }
}
