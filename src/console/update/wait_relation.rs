//! From a culprit to what waits for it, and from what waits to its culprit.

use gaunt_schema::SanitizedText;

use super::{navigation, update_outcome::UpdateOutcome};
use crate::{
    console_state::ConsoleState,
    screen::{
        DeviceScreen, EventsScreen, ExplanationScreen, FindingScreen, JobScreen, ListScreen,
        NodeScreen, Screen, TopologyScreen,
    },
    screens::view_of,
    search_index::open_findings,
};
use gaunt_api::{Finding, Subject, filter::quote_text};

/// States of GPUs that wait for something.
const WAITING: &str = "waiting,slowed,hung,data_starved,launch_bound,communicating";

/// Opens the GPUs that wait for a finding, or the finding that a node, GPU or job waits for.
pub(super) fn open_relation(state: &mut ConsoleState) -> UpdateOutcome {
    let shown = match &state.screen {
        Screen::Finding(_)
        | Screen::Explanation(_)
        | Screen::Node(_)
        | Screen::Device(_)
        | Screen::Topology(_)
        | Screen::Events(_)
        | Screen::Job(_) => Some(state.screen.clone()),
        other => view_of(other).item_target(state),
    };
    match shown {
        Some(Screen::Finding(FindingScreen(id)) | Screen::Explanation(ExplanationScreen(id))) => {
            open_waiting_gpus(state, &id)
        }
        Some(
            Screen::Node(NodeScreen(node))
            | Screen::Device(DeviceScreen(node, ..))
            | Screen::Topology(TopologyScreen(node))
            | Screen::Events(EventsScreen(node)),
        ) => open_culprit(state, Some(&node)),
        Some(Screen::Job(_)) => open_culprit(state, None),
        _ => show_problem(state, "choose a finding, node, GPU or job first"),
    }
}

/// Lists the GPUs of the jobs that a finding affects and that wait.
fn open_waiting_gpus(state: &mut ConsoleState, id: &str) -> UpdateOutcome {
    let shown = state.data.finding.iter().map(|(finding, _)| finding);
    let finding = shown.chain(open_findings(state)).find(|finding| finding.id == id);
    let mut jobs: Vec<String> = Vec::new();
    let context = state.finding_context(id).into_iter().flat_map(|context| &context.jobs);
    jobs.extend(context.map(|job| quote_text(&job.job)));
    let victims = finding.into_iter().flat_map(|finding| &finding.victims);
    jobs.extend(victims.filter_map(|victim| victim.job.as_ref().map(|job| quote_text(job))));
    jobs.sort_unstable();
    jobs.dedup();
    if jobs.is_empty() {
        return show_problem(state, "no job is known that waits for this");
    }
    let filter = format!("job={} and state={WAITING}", jobs.join(","));
    if state.list_state_mut(Subject::Gpus).apply_screen_filter(&filter).is_err() {
        return show_problem(state, "too many jobs wait for this; press 3 for all jobs");
    }
    navigation::open_screen(state, ListScreen(Subject::Gpus).into())
}

/// Opens the finding that explains why a node or a job waits: one that blames the node, else one that affects its job.
fn open_culprit(state: &mut ConsoleState, node: Option<&SanitizedText>) -> UpdateOutcome {
    let job = match &state.screen {
        Screen::Job(JobScreen(job)) => Some(job.clone()),
        screen => {
            let item = view_of(screen).item_job(state);
            item.or_else(|| match view_of(screen).item_target(state) {
                Some(Screen::Job(JobScreen(job))) => Some(job),
                _ => job_of_node(state, node?),
            })
        }
    };
    let found = find_culprit(state, node, job.as_ref()).map(|finding| finding.id.clone());
    match found {
        Some(id) => navigation::open_screen(state, FindingScreen(SanitizedText::new(&id)).into()),
        None => show_problem(state, "no open finding explains why this waits"),
    }
}

/// Returns the job of a node, as the latest answers show it.
fn job_of_node(state: &ConsoleState, node: &SanitizedText) -> Option<SanitizedText> {
    let detail = state.node_detail(node).map(|detail| &detail.line);
    let worst = state.data.overview.iter().flat_map(|overview| &overview.worst);
    let mut lines = detail.into_iter().chain(worst).filter(|line| line.node == *node);
    lines.find_map(|line| line.jobs.first().cloned())
}

fn find_culprit<'a>(
    state: &'a ConsoleState,
    node: Option<&SanitizedText>,
    job: Option<&SanitizedText>,
) -> Option<&'a Finding> {
    let findings = open_findings(state);
    let blames_node = |finding: &&&Finding| node.is_some() && finding.entity.node.as_ref() == node;
    let affects = |finding: &&&Finding| {
        let context = state.finding_context(&finding.id);
        let is_job = |other: Option<&SanitizedText>| job.is_some() && other == job;
        is_job(finding.entity.job.as_ref())
            || context.is_some_and(|context| context.jobs.iter().any(|it| is_job(Some(&it.job))))
            || finding.victims.iter().any(|victim| {
                is_job(victim.job.as_ref()) || node.is_some() && victim.node.as_ref() == node
            })
    };
    let found = findings.iter().find(blames_node).or_else(|| findings.iter().find(affects));
    found.copied()
}

fn show_problem(state: &mut ConsoleState, text: &str) -> UpdateOutcome {
    state.show_message(false, text);
    UpdateOutcome::with_redraw()
}
