//! Every screen as it is drawn of what an engine answers: for tests and fuzz targets, from a page to the screen.

use gaunt_api::{Answer, Question, Subject};
use gaunt_schema::{DeviceClass, SanitizedText, UnixMs};
use ratatui::{buffer::Buffer, layout::Rect};

use super::{
    action::ConsoleAction,
    console_state::ConsoleState,
    key_press::KeyPress,
    preferences::ConsolePreferences,
    screen::{
        CoverageScreen, DeviceScreen, EventsScreen, ExplanationScreen, FindingScreen,
        FindingsScreen, GraphScreen, JobScreen, ListScreen, NetworkScreen, NodeScreen,
        OverviewScreen, ProbeScreen, Screen, TopologyScreen, UsersScreen,
    },
    screen_frame,
    screens::view_of,
    theme::{ColourDepth, GlyphSet, Theme},
    update::apply_action,
};

/// Terminal sizes at which screens are drawn.
const SIZES: [(u16, u16); 2] = [(60, 18), (200, 50)];

/// A screen with what it shows.
#[derive(Clone, Debug)]
pub struct NamedScreen(Screen);

/// All screens, of what the answers have of each kind.
pub fn all_screens(ask: &dyn Fn(&Question) -> Answer) -> Vec<NamedScreen> {
    let finding = match ask(&Question::Findings) {
        Answer::Findings(list) => list.findings.first().map(|it| SanitizedText::new(&it.id)),
        _ => None,
    };
    let node = match ask(&Question::Nodes) {
        Answer::Nodes(list) => list.nodes.first().map(|line| line.node.clone()),
        _ => None,
    };
    let (finding, node) = (finding.unwrap_or_default(), node.unwrap_or_default());
    let (gpu, power) = ("GPU 0".into(), "power".into());
    let mut screens: Vec<Screen> = vec![
        OverviewScreen.into(),
        FindingsScreen.into(),
        FindingScreen(finding.clone()).into(),
        ExplanationScreen(finding).into(),
        NodeScreen(node.clone()).into(),
        DeviceScreen::of_gpu(node.clone(), "0").into(),
        GraphScreen(node.clone(), DeviceClass::Gpu, gpu, power).into(),
        TopologyScreen(node.clone()).into(),
        EventsScreen(node).into(),
        JobScreen("7000".into()).into(),
        UsersScreen.into(),
        NetworkScreen.into(),
        ProbeScreen.into(),
        CoverageScreen.into(),
    ];
    screens.extend(Subject::ALL.into_iter().map(|subject| ListScreen(subject).into()));
    screens.into_iter().map(NamedScreen).collect()
}

/// Draws a screen with the answers to all its questions; returns a cell that a terminal would interpret.
pub fn draw_screen(
    ask: &dyn Fn(&Question) -> Answer,
    screen: NamedScreen,
    now: UnixMs,
) -> Option<String> {
    let mut state = ConsoleState::new(None, now, ConsolePreferences::default());
    state.screen = screen.0;
    // Rows first, then what they name.
    for _ in 0..2 {
        for question in view_of(&state.screen).all_questions(&state) {
            let answer = ask(&question);
            let answered = ConsoleAction::Answered(now, Box::new(question), answer);
            apply_action(&mut state, answered);
        }
        apply_action(&mut state, ConsoleAction::Key(KeyPress::Down));
    }
    let is_hard = |letter: char| {
        letter.is_control() || matches!(letter, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    let theme = Theme::new(ColourDepth::Indexed, GlyphSet::Unicode, |_| None);
    SIZES.into_iter().find_map(|(width, height)| {
        let mut buffer = Buffer::empty(Rect { x: 0, y: 0, width, height });
        state.layout = screen_frame::draw(&mut buffer, &state, theme);
        let hard = buffer.content.iter().find(|cell| cell.symbol().contains(is_hard))?;
        Some(hard.symbol().to_owned())
    })
}
