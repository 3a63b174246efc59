//! Plug-in keys of the user: collects the values of the item under the cursor, asks for a text, and confirms.

use std::collections::BTreeMap;

use gaunt_schema::{DeviceClass, Entity, SanitizedText};

use super::update_outcome::UpdateOutcome;
use crate::{
    action::ConsoleEffect,
    console_state::{ConfirmDialog, ConfirmedOperation, ConsoleState},
    prompt::{Prompt, PromptKind},
    screen::{
        DeviceScreen, EventsScreen, ExplanationScreen, FindingScreen, JobScreen, NodeScreen,
        Screen, TopologyScreen,
    },
    screens::view_of,
    search_index::open_findings,
};

/// Starts a plug-in: asks for its text, or else goes on to its question.
pub(super) fn start_plugin(state: &mut ConsoleState, plugin: usize) -> UpdateOutcome {
    let Some(known) = state.config.plugins.get(plugin) else { return UpdateOutcome::default() };
    match known.input.clone() {
        Some(asked) => {
            let asked = SanitizedText::new(&asked);
            state.prompt = Some(Prompt::new(PromptKind::PluginInput(plugin, asked), ""));
            UpdateOutcome::with_redraw()
        }
        None => enter_input(state, plugin, ""),
    }
}

/// Goes on with the entered text: shows the whole command and asks whether to run it.
pub(super) fn enter_input(state: &mut ConsoleState, plugin: usize, text: &str) -> UpdateOutcome {
    let Some(known) = state.config.plugins.get(plugin).cloned() else {
        return UpdateOutcome::default();
    };
    let mut values = item_values(state);
    if !text.is_empty() {
        values.insert("input", text.to_owned());
    }
    let command = match known.fill_in(&values) {
        Ok(command) => command,
        Err(why) => {
            state.show_message(false, &why);
            return UpdateOutcome::with_redraw();
        }
    };
    if !known.confirm {
        return UpdateOutcome::with_effect(ConsoleEffect::Run(command));
    }
    state.confirm = Some(ConfirmDialog {
        question: SanitizedText::new(&format!("run {}?", command.render())),
        yes: "run",
        operation: ConfirmedOperation::Run(command),
    });
    UpdateOutcome::with_redraw()
}

/// Returns the values of the shown item, or of the one under the cursor, by the names of their placeholders.
fn item_values(state: &ConsoleState) -> BTreeMap<&'static str, String> {
    let mut values = BTreeMap::new();
    if let Some(source) = &state.source {
        values.insert("aggregator", source.to_string());
    }
    let view = view_of(&state.screen);
    if let Some(job) = view.item_job(state) {
        values.insert("job", job.to_string());
    }
    let target = view.item_target(state);
    let heat = matches!(state.screen, Screen::Overview(_)).then(|| state.heat_node()).flatten();
    let shown = [Some(state.screen.clone()), target];
    for screen in shown.into_iter().flatten() {
        add_screen_values(state, &screen, &mut values);
    }
    if let Some(node) = heat {
        values.entry("node").or_insert_with(|| node.to_string());
    }
    if let Some(user) = values.get("job").and_then(|job| user_of_job(state, job)) {
        values.insert("user", user);
    }
    values
}

fn add_screen_values(
    state: &ConsoleState,
    screen: &Screen,
    values: &mut BTreeMap<&'static str, String>,
) {
    match screen {
        Screen::Node(NodeScreen(node))
        | Screen::Topology(TopologyScreen(node))
        | Screen::Events(EventsScreen(node)) => _ = values.insert("node", node.to_string()),
        Screen::Device(DeviceScreen(node, class, device)) => {
            values.insert("node", node.to_string());
            if *class == DeviceClass::Port {
                values.insert("port", device.to_string());
            } else if let Some(gpu) = device.strip_prefix("GPU ") {
                values.insert("gpu", gpu.to_owned());
            }
        }
        Screen::Job(JobScreen(job)) => _ = values.insert("job", job.to_string()),
        Screen::Finding(FindingScreen(id)) | Screen::Explanation(ExplanationScreen(id)) => {
            values.insert("finding", id.to_string());
            let opened = state.data.finding.iter().map(|(finding, _)| finding);
            let mut all = opened.chain(open_findings(state));
            if let Some(finding) = all.find(|finding| *id == *finding.id) {
                values.insert("kind", finding.kind.to_string());
                add_entity_values(&finding.entity, values);
            }
            let context = state.finding_context(id);
            if let Some(job) = context.and_then(|context| context.jobs.first()) {
                values.entry("job").or_insert_with(|| job.job.to_string());
            }
        }
        _ => {}
    }
}

fn add_entity_values(entity: &Entity, values: &mut BTreeMap<&'static str, String>) {
    let port = match (&entity.device, &entity.port) {
        (Some(device), Some(port)) => Some(format!("{device}/{port}")),
        (device, _) => device.as_ref().map(ToString::to_string),
    };
    let text = |value: &Option<SanitizedText>| value.as_ref().map(ToString::to_string);
    let parts = [
        ("node", text(&entity.node)),
        ("gpu", text(&entity.gpu)),
        ("job", text(&entity.job)),
        ("port", port),
    ];
    values.extend(parts.into_iter().filter_map(|(name, value)| Some((name, value?))));
}

/// Returns the user of a job, as the latest answers show it.
fn user_of_job(state: &ConsoleState, job: &str) -> Option<String> {
    let contexts = state.data.overview.iter().flat_map(|overview| &overview.contexts);
    let mut jobs = contexts.flat_map(|context| &context.jobs);
    jobs.find(|known| *known.job == *job)?.user.as_ref().map(ToString::to_string)
}
