//! Finding screen: summary sentence, next step, and the numbers that support the finding.

use gaunt_schema::{Entity, EntityKind, SanitizedText, UnixMs};
use ratatui::{buffer::Buffer, layout::Rect, text::Line};

use crate::{
    action::KeyIntent,
    console_state::{ConsoleState, ScreenLayout},
    cursor_rows, display_text,
    key_binding::{ACKNOWLEDGE, BACK, JOB, KeyBinding, OPEN, bind},
    key_press::KeyPress,
    screen::{
        DeviceScreen, ExplanationScreen, FindingScreen, JobScreen, ListScreen, NodeScreen, Screen,
    },
    screen_view::{ScreenOutcome, ScreenView},
    theme::{StyleRole, Theme},
    view::{draw_page, evidence_graph, finding_details},
};
use gaunt_api::{Finding, Question, Subject, filter::quote_text};

impl ScreenView for FindingScreen {
    fn header_title(&self) -> String {
        "finding".into()
    }

    fn keys(&self) -> &'static [&'static [KeyBinding]] {
        &[&[OPEN, BACK, ACKNOWLEDGE, EXPLAIN, JOB]]
    }

    fn questions(&self, state: &ConsoleState) -> Vec<Question> {
        finding_questions(&self.0, self.evidence_finding(state), state)
    }

    fn shown_at(&self, state: &ConsoleState) -> Option<UnixMs> {
        finding_at(&self.0, state)
    }

    fn finding_id(&self) -> Option<&SanitizedText> {
        Some(&self.0)
    }

    fn evidence_finding<'a>(&self, state: &'a ConsoleState) -> Option<&'a Finding> {
        let shown = state.data.finding.as_ref().map(|(finding, _)| finding);
        shown.filter(|finding| self.0 == *finding.id)
    }

    /// A finding opens the entity that it blames.
    fn item_target(&self, state: &ConsoleState) -> Option<Screen> {
        let (finding, _) = state.data.finding.as_ref()?;
        let entity = &finding.entity;
        if let Some((subject, _)) = entity_rows(entity) {
            return Some(ListScreen(subject).into());
        }
        match (entity.node.clone(), &entity.gpu) {
            (Some(node), Some(gpu)) => Some(DeviceScreen::of_gpu(node, gpu).into()),
            (Some(node), None) => Some(NodeScreen(node).into()),
            // Shared storage has no screen: the job that waits for it does.
            (None, _) => finding_job(state).map(|job| JobScreen(job).into()),
        }
    }

    fn open_item(&self, state: &mut ConsoleState) -> ScreenOutcome {
        let entity = state.data.finding.as_ref().map(|(finding, _)| &finding.entity);
        match entity.and_then(entity_rows) {
            Some((subject, filter)) => {
                ScreenOutcome::open_filtered_list(state, subject, Some(filter))
            }
            None => ScreenOutcome::open(self.item_target(state)),
        }
    }

    fn item_job(&self, state: &ConsoleState) -> Option<SanitizedText> {
        finding_job(state)
    }

    fn item_text(&self, state: &ConsoleState) -> Option<String> {
        finding_text(state)
    }

    fn copied_name(&self) -> String {
        self.0.to_string()
    }

    fn handle_intent(&self, state: &mut ConsoleState, intent: KeyIntent) -> ScreenOutcome {
        if intent == KeyIntent::Explain {
            return ScreenOutcome::Open(ExplanationScreen(self.0.clone()).into());
        }
        cursor_rows::scroll_by(state, cursor_rows::row_steps(state, intent));
        ScreenOutcome::Redraw
    }

    /// Draws the opened finding.
    ///
    /// ```text
    ///  ✖ port_down  gpu003 · mlx5_1/1                                    critical
    ///
    ///    port mlx5_1/1 of gpu003 is down since 11:57:32; its seven siblings are up
    ///
    ///  SINCE     11:57:32Z (6m10)   8 GPUs lost   confidence 97 %
    ///  NEXT      check the cable and the switch port of gpu003 mlx5_1
    ///
    ///  EVIDENCE                           now       limit  last 15m
    ///  IO pressure                       34 %        10 %  ▁▁▁▁▁▁▁▁▅▆▇▇▇▇▇  baseline 2 %
    ///
    ///  VICTIMS   8: gpu003 · GPU 0, gpu003 · GPU 1, …
    /// ```
    fn draw(
        &self,
        buffer: &mut Buffer,
        area: Rect,
        state: &ConsoleState,
        theme: Theme,
    ) -> ScreenLayout {
        let Some((finding, open)) = &state.data.finding else {
            return self.draw_waiting(buffer, area, "the finding", state, theme);
        };
        let width = usize::from(area.width);
        let mut lines = vec![finding_details::render_headline(finding, width, theme)];
        if !open {
            let text = match (state.past_instant, &state.data.refused) {
                (Some(_), _) => " ● not open at this time; shown as seen at another time",
                (None, Some(_)) => " ● closed and no longer stored; shown as last seen",
                (None, None) => " ● closed; shown as last seen",
            };
            lines.push(Line::styled(text, theme.style_for(StyleRole::Good)));
        }
        lines.push(Line::default());
        lines.extend(finding_details::render_details(finding, *open, state, width, theme));
        if let Some(target) = describe_target(state) {
            let text = format!(" Enter: open {target}   b: job   e: explain");
            let text = display_text::truncate_text(&text, width);
            lines.extend([Line::default(), Line::styled(text, theme.style_for(StyleRole::Dim))]);
        }
        let spare = usize::from(area.height).saturating_sub(lines.len());
        let histories = &state.data.histories;
        lines
            .extend(evidence_graph::render_evidence_graph(finding, histories, width, spare, theme));
        draw_page(buffer, area, &lines, state.scroll, theme)
    }
}

/// Explains the finding.
const EXPLAIN: KeyBinding = bind(
    &[KeyPress::Char('e')],
    "e",
    KeyIntent::Explain,
    "signals, peers, causes ruled out",
    Some("explain"),
);

/// Returns the rows that an entity of several devices stands for, as a filter.
fn entity_rows(entity: &Entity) -> Option<(Subject, String)> {
    let part = |field: &str, name: &Option<SanitizedText>| {
        name.as_ref().map(|name| format!("{field}={}", quote_text(name)))
    };
    let (leaf, rail) = (part("leaf", &entity.leaf), part("rail", &entity.rail));
    match entity.kind {
        EntityKind::Leaf | EntityKind::Rail => {
            let parts: Vec<String> = leaf.into_iter().chain(rail).collect();
            (!parts.is_empty()).then(|| (Subject::Ports, parts.join(" and ")))
        }
        EntityKind::Rack => part("rack", &entity.rack).map(|filter| (Subject::Nodes, filter)),
        EntityKind::NvlinkDomain => {
            part("domain", &entity.domain).map(|filter| (Subject::Gpus, filter))
        }
        _ => None,
    }
}

/// Returns what Enter opens, in words.
fn describe_target(state: &ConsoleState) -> Option<String> {
    let (finding, _) = state.data.finding.as_ref()?;
    if let Some((subject, filter)) = entity_rows(&finding.entity) {
        return Some(format!("{} {filter}", subject.as_str()));
    }
    let node = finding.entity.node.as_ref().map(ToString::to_string);
    node.or_else(|| finding_job(state).map(|job| format!("job {job}")))
}

/// Returns the questions for a finding: its explanation and the histories of its evidence. In a view of the past the list
/// says whether it was open, its severity and its cost.
pub(super) fn finding_questions(
    id: &SanitizedText,
    evidence: Option<&Finding>,
    state: &ConsoleState,
) -> Vec<Question> {
    let mut questions: Vec<Question> =
        state.past_instant.map(|_| Question::Findings).into_iter().collect();
    questions.push(Question::Finding(id.to_string()));
    questions.extend(state.evidence_questions(evidence));
    questions
}

/// Returns the instant of the explanation of a finding, or of the list of findings in a view of the past.
pub(super) fn finding_at(id: &SanitizedText, state: &ConsoleState) -> Option<UnixMs> {
    let explained = state.data.explained.as_deref();
    let explained = explained.filter(|explained| *id == *explained.finding.id);
    let listed = state.data.findings.as_deref().filter(|_| state.past_instant.is_some());
    explained.map(|explanation| explanation.at).or_else(|| listed.map(|list| list.at))
}

/// Returns the job that the opened finding blames, or else that it affects.
pub(super) fn finding_job(state: &ConsoleState) -> Option<SanitizedText> {
    let (finding, _) = state.data.finding.as_ref()?;
    let victim = finding.victims.iter().find_map(|victim| victim.job.clone());
    finding.entity.job.clone().or(victim)
}

/// Returns the opened finding as text.
pub(super) fn finding_text(state: &ConsoleState) -> Option<String> {
    let (finding, _) = state.data.finding.as_ref()?;
    Some(format!("{}: {} {}", finding.id, finding.summary, finding.next))
}
