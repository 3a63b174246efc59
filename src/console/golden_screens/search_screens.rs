//! Search and relations: keys before, screen or question after.

use gaunt_api::NodeLine;
use gaunt_schema::FindingKind;

use super::*;
use crate::{
    screen::{JobScreen, ListScreen},
    search_match::ports_question,
    user_totals::users_question,
};

fn searching_console() -> GoldenConsole {
    let mut console = GoldenConsole::with_overview(sample_answers::two_faults_overview(32));
    console.press_keys(&[KeyPress::Char(';')]);
    let jobs = Answer::Table(Arc::new(sample_answers::job_table()));
    console.answer_question(users_question(), jobs);
    console
}

#[test]
fn search_asks_for_the_names_and_opens_what_it_finds() {
    let mut console = GoldenConsole::with_overview(sample_answers::two_faults_overview(32));
    let effects = console.press_keys(&[KeyPress::Char(';')]);
    let Some(ConsoleEffect::Ask(questions)) = effects.first() else { panic!("{effects:?}") };
    assert!(questions.contains(&users_question()), "{questions:?}");
    assert!(questions.contains(&ports_question().unwrap()), "{questions:?}");
    console.press_keys(&[KeyPress::Escape]);
    assert!(
        console.state.prompt.is_none() && !console.screen_questions().contains(&users_question())
    );

    let mut console = searching_console();
    console.type_text("gpu0");
    console.expect_golden("search");
    console.type_text("17");
    console.press_keys(&[KeyPress::Enter]);
    assert_eq!(console.state.screen, NodeScreen("gpu017".into()).into());
}

#[test]
fn search_opens_jobs_of_a_user_and_fills_in_a_command() {
    let mut console = searching_console();
    console.type_text("alice");
    let is_user = |found: &crate::search_match::SearchMatch| found.text.as_str() == "alice";
    let at = console.state.search.matches.iter().position(is_user).unwrap();
    console.press_keys(&vec![KeyPress::Down; at]);
    console.press_keys(&[KeyPress::Enter]);
    assert_eq!(console.state.screen, ListScreen(Subject::Jobs).into());
    assert_eq!(console.state.list_state(Subject::Jobs).rows, "user=alice");
    console.press_keys(&[KeyPress::Ctrl('p')]);
    console.type_text(":theme".trim_start_matches(':'));
    console.press_keys(&[KeyPress::Enter]);
    assert_eq!(console.state.prompt.as_ref().unwrap().text, "theme ");
    console.press_keys(&[KeyPress::Escape, KeyPress::Char(';')]);
    console.type_text("nothing is called so");
    let screen = console.draw(80, 24).join("\n");
    assert!(screen.contains("no match"), "{screen}");
    console.press_keys(&[KeyPress::Enter]);
    assert!(console.draw(80, 24).join("\n").contains("nothing has this name"));
}

#[test]
fn culprit_leads_to_what_waits_and_back() {
    let mut console = GoldenConsole::with_overview(sample_answers::two_faults_overview(32));
    console.press_keys(&[KeyPress::Char('w')]);
    assert_eq!(console.state.screen, ListScreen(Subject::Gpus).into());
    let rows = console.state.list_state(Subject::Gpus).rows.clone();
    assert!(rows.starts_with("job=8812 and state=waiting"), "{rows}");
    console.press_keys(&[KeyPress::Char('1'), KeyPress::Char(':')]);
    console.type_text("node gpu003");
    console.press_keys(&[KeyPress::Enter, KeyPress::Char('w')]);
    let port_down = FindingScreen("port_down/gpu003/mlx5_1/1".into());
    assert_eq!(console.state.screen, port_down.into());
    console.state.screen = JobScreen("8812".into()).into();
    console.press_keys(&[KeyPress::Char('w')]);
    assert!(matches!(console.state.screen, Screen::Finding(_)), "{:?}", console.state.screen);
    console.state.screen = NodeScreen("gpu024".into()).into();
    console.press_keys(&[KeyPress::Char('w')]);
    assert_eq!(console.state.screen, NodeScreen("gpu024".into()).into());
    assert!(console.draw(80, 24).join("\n").contains("no open finding explains why this waits"));
}

#[test]
fn node_that_waits_for_another_has_an_arrow_before_the_finding() {
    let mut overview = sample_answers::two_faults_overview(32);
    let template = overview.worst[0].clone();
    let line = |node: &str| NodeLine {
        node: node.into(),
        finding: Some(FindingKind::PortDown),
        ..template.clone()
    };
    overview.worst = vec![line("gpu003"), line("gpu004")];
    let screen = GoldenConsole::with_overview(overview).draw(120, 35);
    let row =
        |node: &str| screen.iter().find(|line| line.starts_with(&format!(" {node}   "))).unwrap();
    assert!(row("gpu003").contains("  port_down"), "{screen:#?}");
    assert!(row("gpu004").contains("  ← port_down"), "{screen:#?}");
}

#[test]
fn heat_cells_with_a_finding_are_marked() {
    let mut console = GoldenConsole::with_overview(sample_answers::two_faults_overview(32));
    let screen = console.draw(160, 48).join("\n");
    assert!(screen.contains("gpu003✖") && screen.contains("gpu006▲"), "{screen}");
    assert!(!screen.contains("gpu001✖") && !screen.contains("gpu001▲"), "{screen}");
    let theme = Theme::new(ColourDepth::None, GlyphSet::Unicode, |_| None);
    let mut buffer = Buffer::empty(Rect::new(0, 0, 80, 24));
    screen_frame::draw(&mut buffer, &console.state, theme);
    let underlined =
        buffer.content.iter().filter(|cell| cell.modifier.contains(Modifier::UNDERLINED));
    assert_eq!(underlined.count(), 16, "the 8 GPUs of each of two nodes");
}
