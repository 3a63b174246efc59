//! Golden-file tests: compares the screens drawn for known answers with readable text files.
//!
//! `GAUNT_BLESS=1 cargo test -p gaunt-console golden` rewrites the files; review them before the commit.

use std::{fs, path::PathBuf, sync::Arc};

use gaunt_schema::{FindingKind, SanitizedText, UnixMs, unit::Unit};
use ratatui::{buffer::Buffer, layout::Rect, style::Modifier};

use super::{
    action::{ConsoleAction, ConsoleEffect},
    console_state::ConsoleState,
    key_press::KeyPress,
    preferences::ConsolePreferences,
    sample_answers::{self, AT},
    screen::{ExplanationScreen, FindingScreen, FindingsScreen, ListScreen, NodeScreen, Screen},
    screen_frame,
    screens::view_of,
    theme::{ColourDepth, GlyphSet, Palette, Theme},
    update::apply_action,
};
use gaunt_api::{
    Answer, FindingList, MetricHistory, NodeList, Overview, Question, Refusal, Subject,
};

mod golden_lists;
mod grouped_findings;
mod hostile_pages;
mod key_sequences;
mod mark_steps;
mod narrow_screens;
mod plain_terminals;
mod scenario_screens;
mod search_screens;
mod stale_rows;
mod user_file;
mod waiting_screens;

/// Terminal sizes at which every screen is tested.
const SIZES: [(u16, u16); 5] = [(60, 18), (80, 24), (120, 35), (200, 50), (300, 80)];

/// Console under test: its state and the screen that it draws.
struct GoldenConsole {
    state: ConsoleState,
    glyphs: GlyphSet,
}

impl GoldenConsole {
    fn new() -> Self {
        Self {
            state: ConsoleState::new(None, AT, ConsolePreferences::default()),
            glyphs: GlyphSet::Unicode,
        }
    }

    fn with_overview(overview: Overview) -> Self {
        let mut console = Self::new();
        console.deliver_answer(Answer::Overview(Arc::new(overview)));
        console
    }

    /// Returns the questions of the shown screen.
    fn screen_questions(&self) -> Vec<Question> {
        view_of(&self.state.screen).all_questions(&self.state)
    }

    /// Answers the question that the shown screen asks for this kind of answer.
    fn deliver_answer(&mut self, answer: Answer) -> Vec<ConsoleEffect> {
        let question = match &answer {
            Answer::Overview(_) => Question::Overview,
            Answer::Nodes(_) => Question::Nodes,
            Answer::Findings(_) => Question::Findings,
            _ => self.screen_questions().pop().unwrap(),
        };
        self.answer_question(question, answer)
    }

    fn answer_question(&mut self, question: Question, answer: Answer) -> Vec<ConsoleEffect> {
        apply_action(&mut self.state, ConsoleAction::Answered(AT, Box::new(question), answer))
            .effects
    }

    fn press_keys(&mut self, keys: &[KeyPress]) -> Vec<ConsoleEffect> {
        let outcomes =
            keys.iter().map(|key| apply_action(&mut self.state, ConsoleAction::Key(*key)));
        outcomes.flat_map(|outcome| outcome.effects).collect()
    }

    fn type_text(&mut self, text: &str) {
        self.press_keys(&text.chars().map(KeyPress::Char).collect::<Vec<_>>());
    }

    fn draw(&mut self, width: u16, height: u16) -> Vec<String> {
        let theme = Theme::new(ColourDepth::Indexed, self.glyphs, |_| None);
        buffer_lines(&self.draw_buffer(width, height, theme))
    }

    fn draw_buffer(&mut self, width: u16, height: u16, theme: Theme) -> Buffer {
        let mut buffer = Buffer::empty(Rect { x: 0, y: 0, width, height });
        self.state.layout = screen_frame::draw(&mut buffer, &self.state, theme);
        buffer
    }

    /// Compares the screen at every size with the golden files of this name.
    fn expect_golden(&mut self, name: &str) {
        for (width, height) in SIZES {
            self.expect_golden_at(name, width, height);
            self.expect_plain_at(width, height);
        }
    }

    fn expect_golden_at(&mut self, name: &str, width: u16, height: u16) {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/screens");
        let path = folder.join(format!("{name}-{width}x{height}.txt"));
        let got = self.draw(width, height).join("\n") + "\n";
        if std::env::var_os("GAUNT_BLESS").is_some() {
            fs::write(&path, &got).unwrap();
        }
        let expected = fs::read_to_string(&path).unwrap_or_default();
        assert!(expected == got, "{} differs\nexpected:\n{expected}\ngot:\n{got}", path.display());
    }
}

/// Returns the lines of a buffer without trailing blanks; the second half of a wide character is not a blank.
fn buffer_lines(buffer: &Buffer) -> Vec<String> {
    let width = usize::from(buffer.area.width);
    let rows = buffer.content.chunks(width.max(1));
    rows.map(|row| {
        let mut line = String::new();
        let mut covered = 0;
        for cell in row {
            if covered == 0 {
                line.push_str(cell.symbol());
                covered = super::display_text::text_width(cell.symbol()).max(1);
            }
            covered -= 1;
        }
        line.trim_end().to_owned()
    })
    .collect()
}

fn findings_answer() -> Answer {
    let findings = vec![sample_answers::port_down_finding(), sample_answers::starved_finding()];
    let contexts = sample_answers::finding_contexts();
    Answer::Findings(Arc::new(FindingList { at: AT, findings, contexts, ..FindingList::default() }))
}

#[test]
fn healthy_fleet() {
    GoldenConsole::with_overview(sample_answers::healthy_overview(32)).expect_golden("healthy");
}

#[test]
fn two_faults() {
    GoldenConsole::with_overview(sample_answers::two_faults_overview(32))
        .expect_golden("two-faults");
}

#[test]
fn large_fleet() {
    let mut overview = sample_answers::two_faults_overview(1_250);
    overview.nodes.stale = 2;
    overview.nodes.down = 1;
    overview.nodes.live -= 3;
    overview.trouble = vec![
        "10.0.4.7:9770: cannot connect: connection refused; is gaunt-node running there?".into(),
    ];
    GoldenConsole::with_overview(overview).expect_golden("large");
}

#[test]
fn fleet_with_long_names_shows_each_gpu() {
    GoldenConsole::with_overview(sample_answers::two_faults_overview(200))
        .expect_golden_at("nameless", 160, 48);
}

#[test]
fn single_box_without_gpu() {
    let (overview, detail) = sample_answers::single_node();
    let mut console = GoldenConsole::new();
    let effects = console.deliver_answer(Answer::Overview(Arc::new(overview)));
    assert_eq!(effects, [ConsoleEffect::Ask(vec![Question::Overview, Question::Nodes])]);
    let nodes = NodeList { at: AT, nodes: vec![detail.line.clone()], ..NodeList::default() };
    let effects = console.deliver_answer(Answer::Nodes(Arc::new(nodes)));
    assert_eq!(
        effects,
        [ConsoleEffect::Ask(vec![Question::Overview, Question::Node("workbench".into())])]
    );
    console.deliver_answer(Answer::Node(Arc::new(detail)));
    console.expect_golden("single-box");
}

#[test]
fn node_screen() {
    let mut console = GoldenConsole::with_overview(sample_answers::two_faults_overview(32));
    let effects = console.press_keys(&[
        KeyPress::Tab,
        KeyPress::Tab,
        KeyPress::Down,
        KeyPress::Down,
        KeyPress::Down,
        KeyPress::Enter,
    ]);
    let question = Question::Node("gpu003".into());
    assert_eq!(effects.last(), Some(&ConsoleEffect::Ask(vec![Question::Overview, question])));
    console.deliver_answer(Answer::Node(Arc::new(sample_answers::node_detail("gpu003"))));
    console.expect_golden("node");
}

#[test]
fn finding_screen() {
    let mut console = GoldenConsole::with_overview(sample_answers::two_faults_overview(32));
    console.press_keys(&[KeyPress::Enter]);
    let explained = || {
        Answer::Finding(Arc::new(sample_answers::explanation_of(
            sample_answers::port_down_finding(),
        )))
    };
    let id = "port_down/gpu003/mlx5_1/1";
    console.answer_question(Question::Finding(id.into()), explained());
    let questions = console.screen_questions();
    let [_, _, Question::History(state), Question::History(traffic), Question::Alerts] =
        &questions[..]
    else {
        panic!("{questions:?}")
    };
    assert_eq!((state.metric.as_str(), traffic.metric.as_str()), ("state_id", "receive"));
    let dropped_history = |up: f32, down: f32, unit| {
        let points: Vec<_> = (0..90).map(|at| Some(if at < 53 { up } else { down })).collect();
        Answer::History(Arc::new(MetricHistory { unit, ..sample_answers::device_history(&points) }))
    };
    console.answer_question(questions[2].clone(), dropped_history(4.0, 1.0, Unit::Count));
    console.answer_question(questions[3].clone(), dropped_history(20e9, 0.0, Unit::BytesPerSecond));
    console.answer_question(Question::Alerts, Answer::Alerts(Arc::default()));
    assert_eq!(console.screen_questions().len(), 2, "histories are not requested at every tick");
    console.expect_golden("finding");
    console.press_keys(&[KeyPress::Char('e')]);
    assert_eq!(console.state.screen, ExplanationScreen(id.into()).into());
    console.expect_golden("explanation");
    console.press_keys(&[KeyPress::Escape]);
    assert_eq!(console.state.screen, FindingScreen(id.into()).into());
}

#[test]
fn all_findings() {
    let mut console = GoldenConsole::with_overview(sample_answers::two_faults_overview(32));
    let effects = console.press_keys(&[KeyPress::Char('2'), KeyPress::Down]);
    let Some(ConsoleEffect::Ask(questions)) = effects.first() else { panic!("{effects:?}") };
    assert!(questions.contains(&Question::Alerts), "{questions:?}");
    console.deliver_answer(findings_answer());
    console.draw(60, 18);
    assert!(
        view_of(&console.state.screen).evidence_finding(&console.state).is_none(),
        "a low screen has space for the list only"
    );
    console.expect_golden("findings");
    let effects = console.press_keys(&[KeyPress::Down]);
    let effects = format!("{effects:?}");
    assert!(effects.contains("io_pressure_some") && !effects.contains("state_id"), "{effects}");
    console.press_keys(&[KeyPress::Up]);
    console
        .answer_question(Question::Alerts, Answer::Alerts(Arc::new(sample_answers::alert_list())));
    assert!(
        !console.screen_questions().contains(&Question::Alerts),
        "it is not requested at every tick"
    );
    console.expect_golden("findings-alerts");
    console.press_keys(&[KeyPress::Up, KeyPress::Enter]);
    let explained = Answer::Finding(Arc::new(sample_answers::explanation_of(
        sample_answers::port_down_finding(),
    )));
    console.answer_question(Question::Finding(sample_answers::port_down_finding().id), explained);
    console.expect_golden_at("finding-silenced", 80, 24);
}

#[test]
fn help() {
    let mut console = GoldenConsole::with_overview(sample_answers::healthy_overview(4));
    console.press_keys(&[KeyPress::Char('?')]);
    console.expect_golden("help");
    assert_eq!(console.press_keys(&[KeyPress::Escape]), []);
    assert!(!console.state.help);
}

#[test]
fn loading_screen_before_any_answer() {
    GoldenConsole::new().expect_golden_at("loading", 80, 24);
    let mut console = GoldenConsole::new();
    console.state.source = Some("10.0.0.5:9771".into());
    console.fail_overview(1_000);
    console.expect_golden_at("loading-unreachable", 80, 24);
}

impl GoldenConsole {
    fn fail_overview(&mut self, after_ms: i64) {
        let why = "aggregator 10.0.0.5:9771 unreachable: Connection refused (os error 111); is \
                   `gaunt serve` running there?";
        apply_action(
            &mut self.state,
            ConsoleAction::Failed(
                UnixMs(AT.0 + after_ms),
                Box::new(Question::Overview),
                why.into(),
            ),
        );
    }
}

#[test]
fn disconnected() {
    let mut console = GoldenConsole::with_overview(sample_answers::two_faults_overview(32));
    console.state.source = Some("10.0.0.5:9771".into());
    console.fail_overview(1_000);
    console.fail_overview(32_000);
    console.expect_golden("disconnected");
    console.deliver_answer(Answer::Overview(Arc::new(sample_answers::healthy_overview(32))));
    assert!(!console.draw(160, 48).iter().any(|line| line.contains("no answer")));
}

#[test]
fn missing_answer_is_reported() {
    let mut console = GoldenConsole::with_overview(sample_answers::healthy_overview(32));
    let early = apply_action(&mut console.state, ConsoleAction::Tick(UnixMs(AT.0 + 1_000)));
    assert!(!early.changed, "nothing new is shown, so nothing is drawn");
    let late = apply_action(&mut console.state, ConsoleAction::Tick(UnixMs(AT.0 + 7_000)));
    assert!(late.changed);
    let screen = console.draw(80, 24);
    assert!(screen[0].contains("12:03:41Z ○"), "{screen:#?}");
    assert!(screen[0].contains("12:03:41Z ○ 7s old"), "{screen:#?}");
    assert!(screen[22].contains("waiting 7s for an answer"), "{screen:#?}");
}

#[test]
fn unknown_node_is_refused() {
    let mut console = GoldenConsole::with_overview(sample_answers::healthy_overview(4));
    console.press_keys(&[KeyPress::Tab, KeyPress::Enter]);
    console.deliver_answer(Answer::Refused(Refusal::UnknownNode { node: "gpu001".into() }));
    console.expect_golden_at("refused", 80, 24);
    console.press_keys(&[KeyPress::Char(':')]);
    console.type_text("job 1");
    console.press_keys(&[KeyPress::Enter]);
    console.deliver_answer(Answer::Refused(Refusal::UnknownJob { job: "1".into() }));
    let screen = console.draw(80, 24).join("\n");
    assert!(screen.contains("no job 1 holds a GPU now\n   Esc: back   3: jobs"), "{screen}");
    console.press_keys(&[KeyPress::Escape]);
    console.press_keys(&[KeyPress::Escape]);
    assert_eq!(console.state.screen, Screen::default());
}

#[test]
fn empty_fleet_says_how_to_add_targets() {
    let mut console = GoldenConsole::with_overview(sample_answers::healthy_overview(0));
    console.expect_golden_at("nobody", 80, 24);
    let mut overview = sample_answers::healthy_overview(0);
    overview.nodes.pending = 3;
    overview.trouble = vec!["10.0.4.7:9770: cannot connect: connection refused".into()];
    console.deliver_answer(Answer::Overview(Arc::new(overview)));
    let screen = console.draw(80, 24).join("\n");
    assert!(screen.contains("Press 9 for the error of each target"), "{screen}");
    assert!(screen.contains("connection refused"), "{screen}");
}

#[test]
fn screens_never_panic_at_any_size() {
    GoldenConsole::with_overview(sample_answers::two_faults_overview(32)).expect_golden_at(
        "too-small",
        40,
        8,
    );
    for overview in [
        sample_answers::two_faults_overview(32),
        sample_answers::healthy_overview(0),
        sample_answers::two_faults_overview(1_250),
    ] {
        let mut console = GoldenConsole::with_overview(overview);
        for panel in 0..3 {
            for (width, height) in [(1, 1), (60, 12), (61, 13), (139, 14), (140, 12), (1_000, 400)]
            {
                assert_eq!(console.draw(width, height).len(), usize::from(height), "panel {panel}");
            }
            console.press_keys(&[
                KeyPress::Tab,
                KeyPress::Down,
                KeyPress::Right,
                KeyPress::PageDown,
            ]);
        }
    }
}

#[test]
fn ascii_terminals_get_ascii_only() {
    let mut console = GoldenConsole::with_overview(sample_answers::two_faults_overview(32));
    console.glyphs = GlyphSet::Ascii;
    console.expect_golden_at("ascii", 80, 24);
    assert!(console.draw(160, 48).iter().all(|line| line.is_ascii()));
}

#[test]
fn hostile_and_wide_names_stay_in_their_columns() {
    let mut overview = sample_answers::two_faults_overview(8);
    for (at, name) in
        ["\x1b]0;owned\x07", "東京の計算機", "a\u{202e}b", &"n".repeat(300)].into_iter().enumerate()
    {
        overview.heat.nodes[at] = SanitizedText::new(name);
        overview.worst[at].node = SanitizedText::new(name);
    }
    overview.cluster = SanitizedText::new("prod\x1b[2J\u{9b}31m");
    overview.findings[0].summary = "\x1b[31mred\u{202e} evil".into();
    overview.findings[0].entity.node = Some(SanitizedText::new("東京の計算機\x1b[31m"));
    let mut console = GoldenConsole::with_overview(overview);
    for (width, height) in SIZES {
        for line in console.draw(width, height) {
            assert!(!line.chars().any(char::is_control), "{line:?}");
            assert!(!line.contains('\u{202e}'), "{line:?}");
            assert!(super::display_text::text_width(&line) <= usize::from(width), "{line:?}");
        }
    }
    console.expect_golden_at("hostile", 80, 24);
}

#[test]
fn screens_are_two_keys_away_and_esc_goes_back() {
    let mut console = GoldenConsole::with_overview(sample_answers::two_faults_overview(32));
    let nodes = ListScreen(Subject::Nodes).into();
    for (key, screen) in [('2', FindingsScreen.into()), ('5', nodes), ('1', Screen::default())] {
        console.press_keys(&[KeyPress::Char(key)]);
        assert_eq!(console.state.screen, screen);
    }
    console.press_keys(&[KeyPress::Enter]);
    assert_eq!(console.state.screen, FindingScreen("port_down/gpu003/mlx5_1/1".into()).into());
    console.press_keys(&[KeyPress::Enter]);
    assert_eq!(console.state.screen, NodeScreen("gpu003".into()).into());
    console.press_keys(&[KeyPress::Escape, KeyPress::Escape]);
    assert_eq!(console.state.screen, Screen::default());
    assert_eq!(console.press_keys(&[KeyPress::Char('q')]), [ConsoleEffect::Quit]);
    assert_eq!(console.press_keys(&[KeyPress::Ctrl('z')]), [ConsoleEffect::Suspend]);
}

#[test]
fn cursor_moves_over_the_heat_map_by_rows() {
    let mut console = GoldenConsole::with_overview(sample_answers::healthy_overview(32));
    console.draw(80, 24);
    console.press_keys(&[KeyPress::Tab, KeyPress::Down, KeyPress::Right, KeyPress::Enter]);
    let columns = console.state.layout.heat_row + 1;
    assert_eq!(
        console.state.screen,
        NodeScreen(SanitizedText::new(&format!("gpu{:03}", columns + 1))).into()
    );
}

#[test]
fn cursor_is_highlighted_only_at_its_row() {
    let mut console = GoldenConsole::with_overview(sample_answers::two_faults_overview(32));
    console.press_keys(&[KeyPress::Down]);
    let theme = Theme::new(ColourDepth::None, GlyphSet::Unicode, |_| None);
    let mut buffer = Buffer::empty(Rect::new(0, 0, 80, 24));
    screen_frame::draw(&mut buffer, &console.state, theme);
    let reversed = (0..24).filter(|&y| buffer[(10, y)].modifier.contains(Modifier::REVERSED));
    assert_eq!(reversed.collect::<Vec<_>>(), [7], "only the second finding is selected");
}

#[test]
fn closed_finding_stays_readable() {
    let mut console = GoldenConsole::with_overview(sample_answers::two_faults_overview(32));
    console.press_keys(&[KeyPress::Enter]);
    let mut closed = sample_answers::explanation_of(sample_answers::port_down_finding());
    closed.finding.life.closed = Some(AT);
    let question = || Question::Finding(closed.finding.id.clone());
    console.answer_question(question(), Answer::Finding(Arc::new(closed.clone())));
    let screen = console.draw(80, 24).join("\n");
    assert!(screen.contains("closed; shown as last seen"), "{screen}");
    let finding = SanitizedText::new(&closed.finding.id);
    console.answer_question(question(), Answer::Refused(Refusal::UnknownFinding { finding }));
    let screen = console.draw(80, 24).join("\n");
    assert!(screen.contains("no longer stored"), "{screen}");
    assert!(screen.contains(FindingKind::PortDown.as_str()), "{screen}");
}

#[test]
fn pages_scroll_to_their_end_and_no_further() {
    let mut console = GoldenConsole::with_overview(sample_answers::two_faults_overview(32));
    console.press_keys(&[KeyPress::Tab, KeyPress::Enter]);
    console.deliver_answer(Answer::Node(Arc::new(sample_answers::node_detail("gpu001"))));
    let top = console.draw(80, 24);
    console.press_keys(&[KeyPress::Char('G')]);
    let end = console.draw(80, 24);
    assert_ne!(top, end);
    assert!(end.iter().any(|line| line.contains("kernel 6.1.0-18-amd64")), "{end:#?}");
    console.press_keys(&[KeyPress::PageDown]);
    assert_eq!(console.draw(80, 24), end);
    console.press_keys(&[KeyPress::Char('g')]);
    assert_eq!(console.draw(80, 24), top);
}
