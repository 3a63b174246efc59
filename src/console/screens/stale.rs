//! Rows that are older than the screen: their age is said, by the instant of their own answer, with the reason.

use super::*;
use crate::console::action::Mouse;

/// A source whose clock the test owns: every screen is answered as of an instant of its own.
struct Clock {
    desk: Desk,
    now: UnixMs,
}

impl Clock {
    fn new() -> Self {
        let mut desk = Desk::new();
        desk.state.source = Some("10.0.0.5:9771".into());
        Self { desk, now: AT }
    }

    fn pass(&mut self, seconds: i64) {
        self.now = UnixMs(self.now.0 + seconds * 1_000);
        update(&mut self.desk.state, Action::Tick(self.now));
    }

    fn answer(&mut self, question: Question, answer: Answer) {
        update(&mut self.desk.state, Action::Answered(self.now, Box::new(question), answer));
    }

    fn overview(&mut self) {
        let overview = Overview { at: self.now, ..sample::two_faults(32) };
        self.answer(Question::Overview, Answer::Overview(Arc::new(overview)));
    }

    fn gpus(&mut self) {
        let table = crate::answer::Table { at: self.now, ..sample::gpu_table() };
        let question = self.desk.state.list(Subject::Gpus).question();
        self.answer(question, Answer::Table(Arc::new(table)));
    }

    fn fail(&mut self, question: Question, why: &str) {
        let failed = Action::Failed(self.now, Box::new(question), why.into());
        update(&mut self.desk.state, failed);
    }

    fn screen(&mut self) -> Vec<String> {
        self.desk.draw(80, 24)
    }
}

#[test]
fn rows_of_a_screen_visited_before_say_their_age_while_the_aggregator_is_away() {
    let mut clock = Clock::new();
    clock.overview();
    clock.desk.press(&[Key::Char('6')]);
    clock.gpus();
    assert!(clock.screen()[0].ends_with("12:03:41Z ● 1 s"));
    clock.desk.press(&[Key::Char('1')]);
    clock.pass(600);
    clock.overview();
    assert!(clock.screen()[0].ends_with("12:13:41Z ● 1 s"));
    let why = "aggregator 10.0.0.5:9771 unreachable: Connection refused (os error 111); is \
               `gaunt serve` running there?";
    clock.pass(1);
    clock.fail(Question::Overview, why);
    clock.desk.press(&[Key::Char('6')]);
    let screen = clock.screen();
    assert!(screen.iter().any(|line| line.contains("gpu001")), "{screen:#?}");
    assert!(screen[0].ends_with("12:03:41Z ○ 10m old"), "{screen:#?}");
    assert!(screen[0].contains("✖ aggregator 10.0.0.5:9771: no answer for 0s"), "{screen:#?}");
    assert!(screen[22].contains("Connection refused"), "{screen:#?}");
    clock.desk.press(&[Key::Char('1')]);
    clock.pass(30);
    assert!(clock.screen()[0].ends_with("12:13:41Z ○ 31s old"), "the overview has its own age");
    clock.desk.press(&[Key::Char('5')]);
    let screen = clock.screen();
    assert!(screen[0].ends_with("12:13:41Z ○ 31s old"), "never answered: {screen:#?}");
}

#[test]
fn rows_whose_question_alone_fails_say_why_and_since_when() {
    let mut clock = Clock::new();
    clock.overview();
    clock.desk.press(&[Key::Char('6')]);
    clock.gpus();
    let question = clock.desk.state.list(Subject::Gpus).question();
    for _ in 0..20 {
        clock.pass(1);
        clock.overview();
        clock.fail(question.clone(), "the answer is torn: EOF while parsing a list");
    }
    let screen = clock.screen();
    assert!(screen[0].ends_with("12:03:41Z ○ 20s old"), "{screen:#?}");
    let why = " ✖ gpus: no answer since 12:03:42Z (19s): the answer is torn: EOF while parsing";
    assert!(screen[22].starts_with(&why[..70]), "{screen:#?}");
    clock.desk.press(&[Key::Char('1')]);
    let screen = clock.screen();
    assert!(screen[0].ends_with("12:04:01Z ● 1 s"), "the overview is of now: {screen:#?}");
    assert_eq!(screen[22], "", "and it did not fail");
    clock.desk.press(&[Key::Char('6')]);
    clock.gpus();
    let screen = clock.screen();
    assert_eq!((screen[0].ends_with("● 1 s"), screen[22].as_str()), (true, ""), "{screen:#?}");
}

#[test]
fn same_answer_again_and_again_ages() {
    let mut clock = Clock::new();
    clock.overview();
    let held = clock.desk.state.data.overview.clone().unwrap();
    for _ in 0..12 {
        clock.pass(1);
        clock.answer(Question::Overview, Answer::Overview(held.clone()));
    }
    let screen = clock.screen();
    assert!(screen[0].ends_with("12:03:41Z ○ 12s old"), "{screen:#?}");
    assert!(screen[22].contains("these rows are 12s old and no newer ones come"), "{screen:#?}");
}

#[test]
fn aggregator_whose_clock_is_another_has_rows_of_now() {
    let mut clock = Clock::new();
    for at in [AT.0 + 7_200_000, AT.0 + 7_201_000, AT.0 - 3_600_000] {
        let overview = Overview { at: UnixMs(at), ..sample::healthy(4) };
        clock.answer(Question::Overview, Answer::Overview(Arc::new(overview)));
        let screen = clock.screen();
        assert!(screen[0].ends_with("● 1 s"), "{screen:#?}");
        clock.pass(1);
    }
}

#[test]
fn answer_that_is_awaited_or_partial_is_said_on_its_screen() {
    let mut clock = Clock::new();
    clock.overview();
    clock.desk.press(&[Key::Char('5')]);
    for _ in 0..9 {
        clock.pass(1);
        clock.overview();
    }
    let screen = clock.screen();
    assert!(screen.iter().any(|line| line.contains("Reading the nodes … for 9s")), "{screen:#?}");
    assert!(screen[22].contains("nodes: waiting 9s for an answer"), "{screen:#?}");
    clock.desk.press(&[Key::Char('2')]);
    let findings = vec![sample::port_down(), sample::starved()];
    let list = FindingList { at: clock.now, findings, total: 9, matched: 7, groups: Vec::new() };
    clock.answer(Question::Findings, Answer::Findings(Arc::new(list)));
    let screen = clock.screen();
    assert!(screen[22].contains("partial: 2 of 7 findings are shown"), "{screen:#?}");
}

#[test]
fn no_row_moves_because_something_is_said() {
    let mut clock = Clock::new();
    clock.overview();
    let before = clock.screen();
    let rows = |screen: &[String]| screen[1..22].to_vec();
    update(&mut clock.desk.state, Action::Done(Ok("wrote 17 lines into rows.csv".into())));
    let said = clock.screen();
    assert!(said[22].contains("wrote 17 lines"), "{said:#?}");
    assert_eq!(rows(&said), rows(&before));
    clock.pass(9);
    clock.fail(Question::Overview, "no answer within 5 s");
    let lost = clock.screen();
    assert!(lost[22].contains("no answer within 5 s"), "{lost:#?}");
    assert_eq!(rows(&lost), rows(&before));
    let row = before.iter().position(|line| line.starts_with(" gpu005")).unwrap() as u16;
    update(&mut clock.desk.state, Action::Mouse(Mouse::Press(10, row)));
    assert_eq!(clock.desk.state.heat_node().unwrap().as_str(), "gpu005");
}

#[test]
fn map_that_is_coloured_by_old_values_says_their_age() {
    let mut clock = Clock::new();
    clock.overview();
    clock.desk.press(&[Key::Char('m')]);
    let tint = crate::console::state::tint_question(clock.desk.state.tint.unwrap()).unwrap();
    let table = crate::answer::Table { at: clock.now, ..sample::gpu_table() };
    clock.answer(tint.clone(), Answer::Table(Arc::new(table)));
    for _ in 0..60 {
        clock.pass(1);
        clock.overview();
    }
    clock.fail(tint, "the answer is torn: EOF while parsing a list");
    let screen = clock.screen();
    assert!(screen[0].ends_with("12:03:41Z ○ 1m old"), "{screen:#?}");
    assert!(screen[22].contains("the answer is torn"), "{screen:#?}");
}

#[test]
fn overview_keeps_map_and_nodes_with_three_lines_of_states_and_many_findings() {
    use gaunt_schema::GpuState;
    let states = GpuState::ALL;
    let mut overview = sample::fleet(32, 8, |node, gpu| states[(node + gpu) % states.len()]);
    overview.worst = sample::two_faults(32).worst;
    overview.trouble = vec!["10.0.4.7:9770: cannot connect".into(), "10.0.4.8:9770: torn".into()];
    overview.findings = vec![sample::port_down(), sample::starved()];
    overview.findings.extend((0..3).map(crate::answer::group::tests::idle));
    overview.findings_open = 5;
    let screen = Desk::showing(overview).draw(80, 24);
    for part in ["LOST", "port_down", "data_starved", "HEAT", " gpu0", "NODES", "torn"] {
        assert!(screen.iter().any(|line| line.contains(part)), "{part} {screen:#?}");
    }
    assert_eq!(screen[22], "");
}
