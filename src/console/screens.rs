//! Golden screens: what is drawn for known answers, compared as pictures that a person can read.
//!
//! `GAUNT_BLESS=1 cargo test -p gaunt console` writes the pictures anew; look at them before they are committed.

use std::{fs, path::PathBuf, sync::Arc};

use gaunt_schema::{FindingKind, Safe, UnixMs, unit::Unit};
use ratatui::{Terminal, backend::TestBackend, buffer::Buffer, layout::Rect, style::Modifier};

use super::{
    action::{Action, Effect},
    kept::Kept,
    keymap::Key,
    place::Place,
    sample::{self, AT},
    state::State,
    theme::{Colour, Glyphs, Palette, Theme},
    update::update,
    view,
};
use crate::answer::{Answer, FindingList, History, NodeList, Overview, Question, Refusal, Subject};

mod journeys;
mod lists;

/// The sizes at which every screen must be good.
const SIZES: [(u16, u16); 3] = [(80, 24), (160, 48), (240, 60)];

/// A console under test: state, and the screen that it draws.
struct Desk {
    state: State,
    glyphs: Glyphs,
}

impl Desk {
    fn new() -> Self {
        Self { state: State::new(None, AT, Kept::default()), glyphs: Glyphs::Unicode }
    }

    fn showing(overview: Overview) -> Self {
        let mut desk = Self::new();
        desk.answer(Answer::Overview(Arc::new(overview)));
        desk
    }

    /// Answers the question that the shown screen asks for such an answer.
    fn answer(&mut self, answer: Answer) -> Vec<Effect> {
        let question = match &answer {
            Answer::Overview(_) => Question::Overview,
            Answer::Nodes(_) => Question::Nodes,
            Answer::Findings(_) => Question::Findings,
            _ => self.state.questions().pop().unwrap(),
        };
        self.answer_to(question, answer)
    }

    fn answer_to(&mut self, question: Question, answer: Answer) -> Vec<Effect> {
        update(&mut self.state, Action::Answered(AT, Box::new(question), answer)).effects
    }

    fn press(&mut self, keys: &[Key]) -> Vec<Effect> {
        let pressed = keys.iter().map(|key| update(&mut self.state, Action::Key(*key)));
        pressed.flat_map(|outcome| outcome.effects).collect()
    }

    fn type_text(&mut self, text: &str) {
        self.press(&text.chars().map(Key::Char).collect::<Vec<_>>());
    }

    fn draw(&mut self, width: u16, height: u16) -> Vec<String> {
        let theme = Theme::new(Colour::Indexed, self.glyphs, |_| None);
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        let mut room = None;
        terminal
            .draw(|frame| room = Some(view::draw(frame.buffer_mut(), &self.state, theme)))
            .unwrap();
        self.state.room = room.unwrap();
        lines(terminal.backend().buffer())
    }

    /// Compares the screen at every size with the pictures of this name.
    fn expect(&mut self, name: &str) {
        for (width, height) in SIZES {
            self.expect_at(name, width, height);
        }
    }

    fn expect_at(&mut self, name: &str, width: u16, height: u16) {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/screens");
        let path = folder.join(format!("{name}-{width}x{height}.txt"));
        let got = self.draw(width, height).join("\n") + "\n";
        if std::env::var_os("GAUNT_BLESS").is_some() {
            fs::write(&path, &got).unwrap();
        }
        let expected = fs::read_to_string(&path).unwrap_or_default();
        assert!(expected == got, "{} differs\nexpected:\n{expected}\ngot:\n{got}", path.display());
    }
}

/// The lines of a buffer without the blanks at their ends; the second half of a wide character is no blank.
fn lines(buffer: &Buffer) -> Vec<String> {
    let width = usize::from(buffer.area.width);
    let rows = buffer.content.chunks(width.max(1));
    rows.map(|row| {
        let mut line = String::new();
        let mut covered = 0;
        for cell in row {
            if covered == 0 {
                line.push_str(cell.symbol());
                covered = super::format::width(cell.symbol()).max(1);
            }
            covered -= 1;
        }
        line.trim_end().to_owned()
    })
    .collect()
}

fn findings() -> Answer {
    let findings = vec![sample::port_down(), sample::starved()];
    Answer::Findings(Arc::new(FindingList { at: AT, findings, ..FindingList::default() }))
}

#[test]
fn healthy_fleet() {
    Desk::showing(sample::healthy(32)).expect("healthy");
}

#[test]
fn two_faults() {
    Desk::showing(sample::two_faults(32)).expect("two-faults");
}

#[test]
fn large_fleet() {
    let mut overview = sample::two_faults(1_250);
    overview.nodes.stale = 2;
    overview.nodes.down = 1;
    overview.nodes.live -= 3;
    overview.trouble = vec![
        "10.0.4.7:9770: cannot connect: connection refused; is gaunt-node running there?".into(),
    ];
    Desk::showing(overview).expect("large");
}

#[test]
fn a_fleet_whose_names_do_not_fit_still_shows_every_gpu() {
    Desk::showing(sample::two_faults(200)).expect_at("nameless", 160, 48);
}

#[test]
fn single_box_without_gpu() {
    let (overview, detail) = sample::single_box();
    let mut desk = Desk::new();
    let asked = desk.answer(Answer::Overview(Arc::new(overview)));
    assert_eq!(asked, [Effect::Ask(vec![Question::Overview, Question::Nodes])]);
    let nodes = NodeList { at: AT, nodes: vec![detail.line.clone()], ..NodeList::default() };
    let asked = desk.answer(Answer::Nodes(Arc::new(nodes)));
    assert_eq!(asked, [Effect::Ask(vec![Question::Overview, Question::Node("workbench".into())])]);
    desk.answer(Answer::Node(Arc::new(detail)));
    desk.expect("single-box");
}

#[test]
fn node_screen() {
    let mut desk = Desk::showing(sample::two_faults(32));
    let asked = desk.press(&[Key::Tab, Key::Tab, Key::Down, Key::Down, Key::Down, Key::Enter]);
    let question = Question::Node("gpu003".into());
    assert_eq!(asked.last(), Some(&Effect::Ask(vec![Question::Overview, question])));
    desk.answer(Answer::Node(Arc::new(sample::node("gpu003"))));
    desk.expect("node");
}

#[test]
fn finding_screen() {
    let mut desk = Desk::showing(sample::two_faults(32));
    desk.press(&[Key::Enter]);
    let told = || Answer::Finding(Arc::new(sample::explained(sample::port_down())));
    let id = "port_down/gpu003/mlx5_1/1";
    desk.answer_to(Question::Finding(id.into()), told());
    let asked = desk.state.questions();
    let [_, _, Question::History(state), Question::History(traffic), Question::Alerts] = &asked[..]
    else {
        panic!("{asked:?}")
    };
    assert_eq!((state.metric.as_str(), traffic.metric.as_str()), ("state_id", "receive"));
    let fell = |up: f32, down: f32, unit| {
        let points: Vec<_> = (0..90).map(|at| Some(if at < 53 { up } else { down })).collect();
        Answer::History(Arc::new(History { unit, ..sample::history(&points) }))
    };
    desk.answer_to(asked[2].clone(), fell(4.0, 1.0, Unit::Count));
    desk.answer_to(asked[3].clone(), fell(20e9, 0.0, Unit::BytesPerSecond));
    desk.answer_to(Question::Alerts, Answer::Alerts(Arc::default()));
    assert_eq!(desk.state.questions().len(), 2, "the pasts are not asked for at every tick");
    desk.expect("finding");
    desk.press(&[Key::Char('e')]);
    assert_eq!(desk.state.place, Place::Explanation(id.into()));
    desk.expect("explanation");
    desk.press(&[Key::Escape]);
    assert_eq!(desk.state.place, Place::Finding(id.into()));
}

#[test]
fn all_findings() {
    let mut desk = Desk::showing(sample::two_faults(32));
    let asked = desk.press(&[Key::Char('2'), Key::Down]);
    let Some(Effect::Ask(questions)) = asked.first() else { panic!("{asked:?}") };
    assert!(questions.contains(&Question::Alerts), "{questions:?}");
    desk.answer(findings());
    desk.draw(80, 24);
    assert!(desk.state.proven().is_none(), "a low screen has room for the list only");
    desk.expect("findings");
    let asked = desk.press(&[Key::Down]);
    let asked = format!("{asked:?}");
    assert!(asked.contains("io_pressure_some") && !asked.contains("state_id"), "{asked}");
    desk.press(&[Key::Up]);
    desk.answer_to(Question::Alerts, Answer::Alerts(Arc::new(sample::alerts())));
    assert!(!desk.state.questions().contains(&Question::Alerts), "it is not asked at every tick");
    desk.expect("findings-alerts");
    desk.press(&[Key::Up, Key::Enter]);
    let told = Answer::Finding(Arc::new(sample::explained(sample::port_down())));
    desk.answer_to(Question::Finding(sample::port_down().id), told);
    desk.expect_at("finding-silenced", 80, 24);
}

#[test]
fn help() {
    let mut desk = Desk::showing(sample::healthy(4));
    desk.press(&[Key::Char('?')]);
    desk.expect("help");
    assert_eq!(desk.press(&[Key::Escape]), []);
    assert!(!desk.state.help);
}

#[test]
fn nothing_answered_yet() {
    Desk::new().expect_at("loading", 80, 24);
    let mut desk = Desk::new();
    desk.state.source = Some("10.0.0.5:9771".into());
    desk.fail(1_000);
    desk.expect_at("loading-unreachable", 80, 24);
}

impl Desk {
    fn fail(&mut self, after_ms: i64) {
        let why = "aggregator 10.0.0.5:9771 unreachable: Connection refused (os error 111); is \
                   `gaunt serve` running there?";
        update(&mut self.state, Action::Failed(UnixMs(AT.0 + after_ms), why.into()));
    }
}

#[test]
fn disconnected() {
    let mut desk = Desk::showing(sample::two_faults(32));
    desk.state.source = Some("10.0.0.5:9771".into());
    desk.fail(1_000);
    desk.fail(32_000);
    desk.expect("disconnected");
    desk.answer(Answer::Overview(Arc::new(sample::healthy(32))));
    assert!(!desk.draw(160, 48).iter().any(|line| line.contains("no answer")));
}

#[test]
fn an_answer_that_does_not_come_is_said() {
    let mut desk = Desk::showing(sample::healthy(32));
    let early = update(&mut desk.state, Action::Tick(UnixMs(AT.0 + 1_000)));
    assert!(!early.changed, "nothing new is shown, so nothing is drawn");
    let late = update(&mut desk.state, Action::Tick(UnixMs(AT.0 + 7_000)));
    assert!(late.changed);
    let screen = desk.draw(80, 24);
    assert!(screen[0].contains("12:03:41Z ○"), "{screen:#?}");
    assert!(screen[1].contains("waiting 7s for an answer, showing 12:03:41Z"), "{screen:#?}");
}

#[test]
fn a_node_that_nobody_knows_is_refused() {
    let mut desk = Desk::showing(sample::healthy(4));
    desk.press(&[Key::Tab, Key::Enter]);
    desk.answer(Answer::Refused(Refusal::UnknownNode { node: "gpu001".into() }));
    desk.expect_at("refused", 80, 24);
    desk.press(&[Key::Escape]);
    assert_eq!(desk.state.place, Place::Overview);
}

#[test]
fn a_fleet_of_nobody_says_how_to_name_some() {
    let mut desk = Desk::showing(sample::healthy(0));
    desk.expect_at("nobody", 80, 24);
    let mut overview = sample::healthy(0);
    overview.nodes.pending = 3;
    overview.trouble = vec!["10.0.4.7:9770: cannot connect: connection refused".into()];
    desk.answer(Answer::Overview(Arc::new(overview)));
    let screen = desk.draw(80, 24).join("\n");
    assert!(screen.contains("9 tells of each how that went"), "{screen}");
    assert!(screen.contains("connection refused"), "{screen}");
}

#[test]
fn too_small_and_no_size_makes_it_fail() {
    Desk::showing(sample::two_faults(32)).expect_at("too-small", 40, 8);
    for overview in [sample::two_faults(32), sample::healthy(0), sample::two_faults(1_250)] {
        let mut desk = Desk::showing(overview);
        for panel in 0..3 {
            for (width, height) in [(1, 1), (60, 12), (61, 13), (139, 14), (140, 12), (1_000, 400)]
            {
                assert_eq!(desk.draw(width, height).len(), usize::from(height), "panel {panel}");
            }
            desk.press(&[Key::Tab, Key::Down, Key::Right, Key::PageDown]);
        }
    }
}

#[test]
fn ascii_terminals_get_ascii_only() {
    let mut desk = Desk::showing(sample::two_faults(32));
    desk.glyphs = Glyphs::Ascii;
    desk.expect_at("ascii", 80, 24);
    assert!(desk.draw(160, 48).iter().all(|line| line.is_ascii()));
}

#[test]
fn hostile_and_wide_names_stay_in_their_columns() {
    let mut overview = sample::two_faults(8);
    for (at, name) in
        ["\x1b]0;owned\x07", "東京の計算機", "a\u{202e}b", &"n".repeat(300)].into_iter().enumerate()
    {
        overview.heat.nodes[at] = Safe::new(name);
        overview.worst[at].node = Safe::new(name);
    }
    overview.cluster = Safe::new("prod\x1b[2J\u{9b}31m");
    overview.findings[0].summary = "\x1b[31mred\u{202e} evil".into();
    overview.findings[0].entity.node = Some(Safe::new("東京の計算機\x1b[31m"));
    let mut desk = Desk::showing(overview);
    for (width, height) in SIZES {
        for line in desk.draw(width, height) {
            assert!(!line.chars().any(char::is_control), "{line:?}");
            assert!(!line.contains('\u{202e}'), "{line:?}");
            assert!(super::format::width(&line) <= usize::from(width), "{line:?}");
        }
    }
    desk.expect_at("hostile", 80, 24);
}

#[test]
fn every_screen_is_two_keys_away_and_esc_goes_back() {
    let mut desk = Desk::showing(sample::two_faults(32));
    let nodes = Place::List(Subject::Nodes);
    for (key, place) in [('2', Place::Findings), ('5', nodes), ('1', Place::Overview)] {
        desk.press(&[Key::Char(key)]);
        assert_eq!(desk.state.place, place);
    }
    desk.press(&[Key::Enter]);
    assert_eq!(desk.state.place, Place::Finding("port_down/gpu003/mlx5_1/1".into()));
    desk.press(&[Key::Enter]);
    assert_eq!(desk.state.place, Place::Node("gpu003".into()));
    desk.press(&[Key::Escape, Key::Escape]);
    assert_eq!(desk.state.place, Place::Overview);
    assert_eq!(desk.press(&[Key::Char('q')]), [Effect::Quit]);
    assert_eq!(desk.press(&[Key::Ctrl('z')]), [Effect::Suspend]);
}

#[test]
fn the_cursor_walks_the_heat_map_by_rows() {
    let mut desk = Desk::showing(sample::healthy(32));
    desk.draw(80, 24);
    desk.press(&[Key::Tab, Key::Down, Key::Right, Key::Enter]);
    let columns = desk.state.room.heat_row + 1;
    assert_eq!(desk.state.place, Place::Node(Safe::new(&format!("gpu{:03}", columns + 1))));
}

#[test]
fn the_cursor_is_seen_where_it_is_and_nowhere_else() {
    let mut desk = Desk::showing(sample::two_faults(32));
    desk.press(&[Key::Down]);
    let theme = Theme::new(Colour::None, Glyphs::Unicode, |_| None);
    let mut buffer = Buffer::empty(Rect::new(0, 0, 80, 24));
    view::draw(&mut buffer, &desk.state, theme);
    let reversed = (0..24).filter(|&y| buffer[(10, y)].modifier.contains(Modifier::REVERSED));
    assert_eq!(reversed.collect::<Vec<_>>(), [9], "only the second finding is chosen");
}

#[test]
fn a_finding_that_closes_stays_readable() {
    let mut desk = Desk::showing(sample::two_faults(32));
    desk.press(&[Key::Enter]);
    let mut closed = sample::explained(sample::port_down());
    closed.finding.life.closed = Some(AT);
    let question = || Question::Finding(closed.finding.id.clone());
    desk.answer_to(question(), Answer::Finding(Arc::new(closed.clone())));
    let screen = desk.draw(80, 24).join("\n");
    assert!(screen.contains("no longer open"), "{screen}");
    let finding = Safe::new(&closed.finding.id);
    desk.answer_to(question(), Answer::Refused(Refusal::UnknownFinding { finding }));
    let screen = desk.draw(80, 24).join("\n");
    assert!(screen.contains("over and forgotten"), "{screen}");
    assert!(screen.contains(FindingKind::PortDown.as_str()), "{screen}");
}

#[test]
fn pages_scroll_to_their_end_and_no_further() {
    let mut desk = Desk::showing(sample::two_faults(32));
    desk.press(&[Key::Tab, Key::Enter]);
    desk.answer(Answer::Node(Arc::new(sample::node("gpu001"))));
    let top = desk.draw(80, 24);
    desk.press(&[Key::Char('G')]);
    let end = desk.draw(80, 24);
    assert_ne!(top, end);
    assert!(end.iter().any(|line| line.contains("kernel 6.1.0-18-amd64")), "{end:#?}");
    desk.press(&[Key::PageDown]);
    assert_eq!(desk.draw(80, 24), end);
    desk.press(&[Key::Char('g')]);
    assert_eq!(desk.draw(80, 24), top);
}
