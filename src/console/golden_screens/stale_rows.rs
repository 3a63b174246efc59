//! Tests of stale rows: the screen shows their age, by the instant of their own answer, and the reason.

use gaunt_schema::Severity;

use super::*;
use crate::action::MouseEvent;
use gaunt_api::TimeParam;

/// Source whose clock the test controls: every screen has its own answer instant.
struct TimedConsole {
    console: GoldenConsole,
    now: UnixMs,
}

impl TimedConsole {
    fn new() -> Self {
        let mut console = GoldenConsole::new();
        console.state.source = Some("10.0.0.5:9771".into());
        Self { console, now: AT }
    }

    fn advance_clock(&mut self, seconds: i64) {
        self.now = UnixMs(self.now.0 + seconds * 1_000);
        apply_action(&mut self.console.state, ConsoleAction::Tick(self.now));
    }

    fn deliver_answer(&mut self, question: Question, answer: Answer) {
        apply_action(
            &mut self.console.state,
            ConsoleAction::Answered(self.now, Box::new(question), answer),
        );
    }

    fn answer_overview(&mut self) {
        let overview = Overview { at: self.now, ..sample_answers::two_faults_overview(32) };
        self.deliver_answer(Question::Overview, Answer::Overview(Arc::new(overview)));
    }

    fn answer_gpus(&mut self) {
        let table = gaunt_api::AnswerTable { at: self.now, ..sample_answers::gpu_table() };
        let question = self.console.state.list_state(Subject::Gpus).rows_question();
        self.deliver_answer(question, Answer::Table(Arc::new(table)));
    }

    fn fail_question(&mut self, question: Question, why: &str) {
        let failed = ConsoleAction::Failed(self.now, Box::new(question), why.into());
        apply_action(&mut self.console.state, failed);
    }

    fn draw_lines(&mut self) -> Vec<String> {
        self.console.draw(80, 24)
    }
}

#[test]
fn rows_of_a_screen_visited_before_say_their_age_while_the_aggregator_is_away() {
    let mut clock = TimedConsole::new();
    clock.answer_overview();
    clock.console.press_keys(&[KeyPress::Char('6')]);
    clock.answer_gpus();
    assert!(clock.draw_lines()[0].ends_with("12:03:41Z ● 1 s"));
    clock.console.press_keys(&[KeyPress::Char('1')]);
    clock.advance_clock(600);
    clock.answer_overview();
    assert!(clock.draw_lines()[0].ends_with("12:13:41Z ● 1 s"));
    let why = "aggregator 10.0.0.5:9771 unreachable: Connection refused (os error 111); is \
               `gaunt serve` running there?";
    clock.advance_clock(1);
    clock.fail_question(Question::Overview, why);
    clock.console.press_keys(&[KeyPress::Char('6')]);
    let screen = clock.draw_lines();
    assert!(screen.iter().any(|line| line.contains("gpu001")), "{screen:#?}");
    assert!(screen[0].ends_with("12:03:41Z ○ 10m old"), "{screen:#?}");
    assert!(screen[0].contains("✖ aggregator 10.0.0.5:9771: no answer for 0s"), "{screen:#?}");
    assert!(screen[19..23].join(" ").contains("Connection refused"), "{screen:#?}");
    clock.console.press_keys(&[KeyPress::Char('1')]);
    clock.advance_clock(30);
    assert!(clock.draw_lines()[0].ends_with("12:13:41Z ○ 31s old"), "the overview has its own age");
    clock.console.press_keys(&[KeyPress::Char('5')]);
    let screen = clock.draw_lines();
    assert!(screen[0].ends_with("12:13:41Z ○ 31s old"), "never answered: {screen:#?}");
}

#[test]
fn rows_whose_question_alone_fails_say_why_and_since_when() {
    let mut clock = TimedConsole::new();
    clock.answer_overview();
    clock.console.press_keys(&[KeyPress::Char('6')]);
    clock.answer_gpus();
    let question = clock.console.state.list_state(Subject::Gpus).rows_question();
    for _ in 0..20 {
        clock.advance_clock(1);
        clock.answer_overview();
        clock.fail_question(question.clone(), "the answer is torn: EOF while parsing a list");
    }
    let screen = clock.draw_lines();
    assert!(screen[0].ends_with("12:03:41Z ○ 20s old"), "{screen:#?}");
    let why = " ✖ gpus: no answer since 12:03:42Z (19s): the answer is torn: EOF while parsing";
    assert!(screen[20..22].iter().any(|line| line.starts_with(&why[..60])), "{screen:#?}");
    clock.console.press_keys(&[KeyPress::Char('1')]);
    let screen = clock.draw_lines();
    assert!(screen[0].ends_with("12:04:01Z ● 1 s"), "the overview is current: {screen:#?}");
    assert!(screen[22].starts_with(" 1 overview 2 findings"), "and it did not fail: {screen:#?}");
    clock.console.press_keys(&[KeyPress::Char('6')]);
    clock.answer_gpus();
    let screen = clock.draw_lines();
    let is_fresh = screen[0].ends_with("● 1 s") && screen[22].starts_with(" 1 overview");
    assert!(is_fresh, "{screen:#?}");
}

#[test]
fn same_answer_again_and_again_ages() {
    let mut clock = TimedConsole::new();
    clock.answer_overview();
    let overview = clock.console.state.data.overview.clone().unwrap();
    for _ in 0..12 {
        clock.advance_clock(1);
        clock.deliver_answer(Question::Overview, Answer::Overview(overview.clone()));
    }
    let screen = clock.draw_lines();
    assert!(screen[0].ends_with("12:03:41Z ○ 12s old"), "{screen:#?}");
    assert!(screen[22].contains("rows are 12s old, no newer data"), "{screen:#?}");
}

#[test]
fn aggregator_with_another_clock_has_current_rows() {
    let mut clock = TimedConsole::new();
    for at in [AT.0 + 7_200_000, AT.0 + 7_201_000, AT.0 - 3_600_000] {
        let overview = Overview { at: UnixMs(at), ..sample_answers::healthy_overview(4) };
        clock.deliver_answer(Question::Overview, Answer::Overview(Arc::new(overview)));
        let screen = clock.draw_lines();
        assert!(screen[0].ends_with("● 1 s"), "{screen:#?}");
        clock.advance_clock(1);
    }
}

#[test]
fn awaited_or_partial_answer_is_named_on_its_screen() {
    let mut clock = TimedConsole::new();
    clock.answer_overview();
    clock.console.press_keys(&[KeyPress::Char('5')]);
    for _ in 0..9 {
        clock.advance_clock(1);
        clock.answer_overview();
    }
    let screen = clock.draw_lines();
    assert!(screen.iter().any(|line| line.contains("Loading the nodes … for 9s")), "{screen:#?}");
    assert!(screen[22].contains("nodes: waiting 9s for an answer"), "{screen:#?}");
    clock.console.press_keys(&[KeyPress::Char('2')]);
    let findings = vec![sample_answers::port_down_finding(), sample_answers::starved_finding()];
    let list =
        FindingList { at: clock.now, findings, total: 9, matched: 7, ..FindingList::default() };
    clock.deliver_answer(Question::Findings, Answer::Findings(Arc::new(list)));
    let screen = clock.draw_lines();
    assert!(screen[22].contains("partial: 2 of 7 findings are shown"), "{screen:#?}");
}

#[test]
fn rows_do_not_move_when_a_message_appears() {
    let mut clock = TimedConsole::new();
    clock.answer_overview();
    let before = clock.draw_lines();
    let rows = |screen: &[String]| screen[1..22].to_vec();
    apply_action(
        &mut clock.console.state,
        ConsoleAction::Done(Ok("wrote 17 lines to rows.csv".into())),
    );
    let with_message = clock.draw_lines();
    assert!(with_message[22].contains("wrote 17 lines"), "{with_message:#?}");
    assert_eq!(rows(&with_message), rows(&before));
    clock.advance_clock(9);
    clock.fail_question(Question::Overview, "no answer within 5 s");
    let lost = clock.draw_lines();
    assert!(lost[22].contains("no answer within 5 s"), "{lost:#?}");
    assert_eq!(rows(&lost), rows(&before));
    let row = before.iter().position(|line| line.starts_with(" gpu009")).unwrap() as u16;
    apply_action(&mut clock.console.state, ConsoleAction::Mouse(MouseEvent::Press(10, row)));
    assert_eq!(clock.console.state.heat_node().unwrap().as_str(), "gpu009");
}

#[test]
fn heat_map_of_old_values_says_their_age() {
    let mut clock = TimedConsole::new();
    clock.answer_overview();
    clock.console.press_keys(&[KeyPress::Char('m')]);
    let tint =
        crate::screens::overview_screen::tint_question(clock.console.state.tint.unwrap()).unwrap();
    let table = gaunt_api::AnswerTable { at: clock.now, ..sample_answers::gpu_table() };
    clock.deliver_answer(tint.clone(), Answer::Table(Arc::new(table)));
    for _ in 0..60 {
        clock.advance_clock(1);
        clock.answer_overview();
    }
    clock.fail_question(tint, "the answer is torn: EOF while parsing a list");
    let screen = clock.draw_lines();
    assert!(screen[0].ends_with("12:03:41Z ○ 1m old"), "{screen:#?}");
    assert!(screen[19..23].join(" ").contains("the answer is torn"), "{screen:#?}");
}

#[test]
fn overview_keeps_map_and_nodes_with_three_lines_of_states_and_many_findings() {
    use gaunt_schema::GpuState;
    let states = GpuState::ALL;
    let mut overview =
        sample_answers::fleet_overview(32, 8, |node, gpu| states[(node + gpu) % states.len()]);
    overview.worst = sample_answers::two_faults_overview(32).worst;
    overview.trouble = vec!["10.0.4.7:9770: cannot connect".into(), "10.0.4.8:9770: torn".into()];
    overview.findings =
        vec![sample_answers::port_down_finding(), sample_answers::starved_finding()];
    overview.findings.extend((0..3).map(gaunt_api::samples::idle_finding));
    overview.findings_open = 5;
    let screen = GoldenConsole::with_overview(overview).draw(80, 24);
    for part in ["LOST", "port_down", "data_starved", "HEAT", " gpu0", "NODES", "torn"] {
        assert!(screen.iter().any(|line| line.contains(part)), "{part} {screen:#?}");
    }
    assert!(screen[22].starts_with(" 1 overview"), "no message: {screen:#?}");
}

/// The list says what was open then, and how severe it was; the explanation is that of the journal or of a replay.
#[test]
fn finding_of_the_past_is_explained_as_it_was() {
    let mut console = GoldenConsole::with_overview(sample_answers::two_faults_overview(32));
    console.press_keys(&[KeyPress::Enter, KeyPress::Char('('), KeyPress::Char('e')]);
    let then = UnixMs(AT.0 - 10_000);
    let at_then = |question| Question::AtTime(TimeParam::At(then), Box::new(question));
    let explain = at_then(Question::Finding("port_down/gpu003/mlx5_1/1".into()));
    assert!(console.screen_questions().contains(&explain));
    let refusal = Refusal::BadParameter { parameter: "at".into(), why: "no journal".into() };
    console.answer_question(explain.clone(), Answer::Refused(refusal));
    assert!(console.draw(120, 35).join(" ").contains("no journal"));
    console.answer_question(at_then(Question::Findings), findings_answer());
    let mut later = sample_answers::port_down_finding();
    later.severity = Severity::Info;
    let explanation = Answer::Finding(Arc::new(sample_answers::explanation_of(later)));
    console.answer_question(explain, explanation);
    let screen = console.draw(120, 35).join(" ");
    assert!(screen.contains("SIGNALS") && screen.contains("RULED OUT"), "{screen}");
    console.press_keys(&[KeyPress::Escape]);
    let (finding, open) = console.state.data.finding.as_ref().unwrap();
    assert_eq!((finding.severity, *open), (Severity::Critical, true));
}

#[test]
fn reader_without_a_token_sees_why_there_is_no_answer() {
    let mut console = GoldenConsole::new();
    console.state.source = Some("10.0.0.5:9771".into());
    console.deliver_answer(Answer::Refused(Refusal::NoToken));
    let screen = console.draw(80, 24).join("\n");
    assert!(screen.contains("--token-file FILE or GAUNT_TOKEN"), "{screen}");
    let mut console = GoldenConsole::with_overview(sample_answers::healthy_overview(4));
    console.answer_question(Question::Overview, Answer::Refused(Refusal::WrongToken));
    let screen = console.draw(80, 24).join("\n");
    assert!(screen.contains("wrong token"), "what is shown is no longer the present: {screen}");
}
