//! Tests of key sequences: keys in, shown screen and requested effects out.

use gaunt_schema::Severity;

use super::*;
use crate::{
    ReplayProgress,
    action::MouseEvent,
    console_state::OverviewPanel,
    screen::{DeviceScreen, JobScreen},
    screens::tests::all_screens,
};
use gaunt_api::TimeParam;

fn gpu_list_console() -> GoldenConsole {
    let mut console = GoldenConsole::with_overview(sample_answers::two_faults_overview(32));
    console.press_keys(&[KeyPress::Char('6')]);
    console.deliver_answer(Answer::Table(Arc::new(sample_answers::gpu_table())));
    console
}

fn asked_filter(effects: &[ConsoleEffect]) -> String {
    let last = effects.iter().rev().find_map(|effect| match effect {
        ConsoleEffect::Ask(questions) => questions.last().cloned(),
        _ => None,
    });
    match last {
        Some(Question::Table(filter)) => filter.source_text().to_owned(),
        other => format!("{other:?}"),
    }
}

#[test]
fn filter_is_typed_completed_refused_and_applied() {
    let mut console = gpu_list_console();
    console.press_keys(&[KeyPress::Char('/')]);
    console.type_text("pow");
    let screen = console.draw(80, 24);
    assert!(screen[21].starts_with(" power  "), "{screen:#?}");
    assert!(screen[22].contains("Power draw of the board"), "{screen:#?}");
    console.press_keys(&[KeyPress::Tab]);
    console.type_text(">300Wx");
    console.press_keys(&[KeyPress::Enter]);
    console.expect_golden_at("filter-wrong", 80, 24);
    let effects = console.press_keys(&[KeyPress::Backspace, KeyPress::Enter]);
    assert!(console.state.prompt.is_none());
    assert!(
        asked_filter(&effects).starts_with("power>300W sort lost desc limit 240"),
        "{}",
        asked_filter(&effects)
    );
    console.press_keys(&[KeyPress::Char('/'), KeyPress::Escape]);
    assert_eq!(console.state.list_state(Subject::Gpus).rows, "power>300W", "Esc changes nothing");
}

#[test]
fn heading_of_the_sorted_column_is_whole() {
    let mut console = gpu_list_console();
    console.press_keys(&[KeyPress::Char(':')]);
    console.type_text("sort gpu");
    console.press_keys(&[KeyPress::Enter]);
    console.deliver_answer(Answer::Table(Arc::new(sample_answers::gpu_table())));
    let heading = console.draw(120, 35)[2].clone();
    assert!(heading.contains(" GPU▲ "), "{heading}");
}

#[test]
fn filter_is_replaced_recalled_and_cleared() {
    let mut console = gpu_list_console();
    let rows = |console: &GoldenConsole| console.state.list_state(Subject::Gpus).rows.clone();
    console.press_keys(&[KeyPress::Char('/')]);
    console.type_text("lost>0");
    console.press_keys(&[KeyPress::Enter, KeyPress::Char('/')]);
    let screen = console.draw(80, 24);
    assert!(screen[22].contains("Enter: all rows   Esc: cancel   Up: edit lost>0"), "{screen:#?}");
    console.type_text("gpu003");
    console.press_keys(&[KeyPress::Enter]);
    assert_eq!(rows(&console), "node~gpu003", "typing replaces the filter");
    console.press_keys(&[KeyPress::Char('/'), KeyPress::Up]);
    console.type_text("x");
    console.press_keys(&[KeyPress::Enter]);
    assert_eq!(rows(&console), "node~gpu003x", "Up recalls the filter");
    assert!(console.draw(80, 24)[23].contains("Esc clear filter"));
    let effects = console.press_keys(&[KeyPress::Escape]);
    assert!(
        asked_filter(&effects).starts_with("sort lost desc limit 240"),
        "{}",
        asked_filter(&effects)
    );
    assert_eq!(console.state.screen, ListScreen(Subject::Gpus).into(), "the list stays open");
    assert!(console.draw(80, 24)[23].contains("Esc back"));
    console.press_keys(&[KeyPress::Escape]);
    assert_eq!(console.state.screen, Screen::default());
}

#[test]
fn filter_of_another_screen_goes_with_its_list() {
    let mut console = GoldenConsole::with_overview(sample_answers::two_faults_overview(32));
    console.press_keys(&[KeyPress::Tab, KeyPress::Enter, KeyPress::Char('p')]);
    let rows = |console: &GoldenConsole| console.state.list_state(Subject::Processes).rows.clone();
    assert_eq!(rows(&console), "node=gpu001");
    assert!(console.draw(80, 24)[23].contains("Esc back"));
    console.press_keys(&[KeyPress::Escape]);
    assert_eq!(console.state.screen, NodeScreen("gpu001".into()).into());
    assert_eq!(rows(&console), "");
}

#[test]
fn sort_follows_keys_headings_and_commands() {
    let mut console = gpu_list_console();
    let next = asked_filter(&console.press_keys(&[KeyPress::Char('s')]));
    assert!(next.contains("sort power desc limit"), "the column after that of GPUs lost: {next}");
    assert!(asked_filter(&console.press_keys(&[KeyPress::Char('r')])).contains("sort power limit"));
    console.deliver_answer(Answer::Table(Arc::new(sample_answers::gpu_table())));
    let screen = console.draw(80, 24);
    let power = screen[2].find("power W").unwrap() as u16;
    let pressed =
        apply_action(&mut console.state, ConsoleAction::Mouse(MouseEvent::Press(power, 2)));
    assert!(asked_filter(&pressed.effects).contains("sort power desc "), "{:?}", pressed.effects);
    console.press_keys(&[KeyPress::Char(':')]);
    console.type_text("sort temperature");
    assert!(
        asked_filter(&console.press_keys(&[KeyPress::Enter])).contains("sort temperature limit")
    );
}

#[test]
fn columns_are_chosen_and_saved() {
    let mut console = gpu_list_console();
    console.press_keys(&[KeyPress::Char('c')]);
    let typed = console.state.prompt.as_ref().unwrap().text.clone();
    assert!(typed.starts_with("columns node,gpu,state,"), "{typed}");
    console.press_keys(&[KeyPress::Ctrl('u')]);
    console.type_text("columns gpu,power");
    let effects = console.press_keys(&[KeyPress::Enter]);
    let Some(ConsoleEffect::SavePreferences(saved)) = effects.first() else {
        panic!("{effects:?}")
    };
    assert_eq!(saved.columns["gpus"], "gpu,power");
    let again = ConsoleState::new(None, AT, saved.clone());
    assert_eq!(again.list_state(Subject::Gpus).shown_columns().len(), 2);
}

#[test]
fn csv_export_writes_all_rows_when_they_arrive() {
    let mut console = gpu_list_console();
    console.press_keys(&[KeyPress::Char(':')]);
    console.type_text("write csv rows.csv");
    let effects = console.press_keys(&[KeyPress::Enter]);
    assert!(asked_filter(&effects).contains("limit 131072 columns node,gpu,state"), "{effects:?}");
    let effects = console.deliver_answer(Answer::Table(Arc::new(sample_answers::gpu_table())));
    let [ConsoleEffect::WriteFile(path, text)] = &effects[..] else { panic!("{effects:?}") };
    assert_eq!((path.to_str(), text.lines().count()), (Some("rows.csv"), 17));
    let done = ConsoleAction::Done(Ok("wrote 17 lines to rows.csv".into()));
    apply_action(&mut console.state, done);
    assert!(console.draw(80, 24)[22].contains("✔ wrote 17 lines"));
    apply_action(&mut console.state, ConsoleAction::Tick(UnixMs(AT.0 + 9_000)));
    assert!(!console.draw(80, 24)[22].contains("wrote"));
}

#[test]
fn invalid_command_stays_in_the_prompt() {
    let mut console = GoldenConsole::with_overview(sample_answers::healthy_overview(4));
    console.press_keys(&[KeyPress::Char(':')]);
    console.type_text("theme pink");
    console.press_keys(&[KeyPress::Enter]);
    let screen = console.draw(80, 24);
    assert!(
        screen[22].contains("unknown theme; use dark, light, contrast, colourblind"),
        "{screen:#?}"
    );
    assert!(screen[23].starts_with(" :theme pink"), "{screen:#?}");
    console.press_keys(&[KeyPress::Ctrl('w')]);
    console.type_text("light");
    let effects = console.press_keys(&[KeyPress::Enter]);
    assert!(
        matches!(&effects[..], [ConsoleEffect::SavePreferences(saved)] if saved.theme.as_deref() == Some("light"))
    );
}

#[test]
fn past_view_asks_for_that_time_and_ignores_present_answers() {
    let mut console = GoldenConsole::with_overview(sample_answers::two_faults_overview(32));
    let effects = console.press_keys(&[KeyPress::Char('(')]);
    let then = UnixMs(AT.0 - 10_000);
    let at_then = |question| Question::AtTime(TimeParam::At(then), Box::new(question));
    assert_eq!(effects, [ConsoleEffect::Ask(vec![at_then(Question::Overview)])]);
    console.deliver_answer(Answer::Overview(Arc::new(sample_answers::healthy_overview(4))));
    assert_eq!(
        console.state.data.overview.as_ref().unwrap().heat.nodes.len(),
        32,
        "late, for another time"
    );
    let mut overview = sample_answers::healthy_overview(32);
    overview.at = then;
    console.answer_question(at_then(Question::Overview), Answer::Overview(Arc::new(overview)));
    console.expect_golden_at("past", 80, 24);
    console.press_keys(&[KeyPress::Char(':')]);
    console.type_text("at -20m");
    console.press_keys(&[KeyPress::Enter]);
    assert_eq!(console.state.past_instant, Some(UnixMs(AT.0 - 1_200_000)));
    let question = console.screen_questions().remove(0);
    let start = UnixMs(AT.0 - 90_000);
    let refusal = Answer::Refused(Refusal::NotKept { seconds: 90, oldest: Some(start) });
    let effects = console.answer_question(question, refusal);
    let ask_start = Question::AtTime(TimeParam::At(start), Box::new(Question::Overview));
    assert_eq!(
        (console.state.past_instant, effects),
        (Some(start), vec![ConsoleEffect::Ask(vec![ask_start])])
    );
    assert!(console.draw(80, 24)[22].contains("▲ history starts at 12:02:11Z"));
    console.press_keys(&[KeyPress::Char('.'), KeyPress::Char('('), KeyPress::Char(')')]);
    assert_eq!(console.state.past_instant, None, "forward to the present returns to it");
}

#[test]
fn steps_back_stop_at_the_oldest_frame() {
    let mut console = GoldenConsole::with_overview(sample_answers::two_faults_overview(32));
    let start = UnixMs(AT.0 - 75_000);
    let refusal = || Answer::Refused(Refusal::NotKept { seconds: 75, oldest: Some(start) });
    console.press_keys(&[KeyPress::Char('{'), KeyPress::Char('{'), KeyPress::Char('{')]);
    let question = console.screen_questions().remove(0);
    console.answer_question(question, refusal());
    assert_eq!(console.state.past_instant, Some(start));
    // The start is known now: no later press asks for an instant before it.
    console.press_keys(&[KeyPress::Char('('), KeyPress::Char('{')]);
    assert_eq!(console.state.past_instant, Some(start));
    assert!(console.draw(80, 24)[22].contains("history starts at 12:02:26Z"));
    console.press_keys(&[KeyPress::Char(')')]);
    assert_eq!(console.state.past_instant, Some(UnixMs(AT.0 - 65_000)));
    assert!(console.draw(80, 24)[22].contains("past: 12:02:36Z"), "the warning is gone");
    // An older aggregator reports the age only.
    let mut console = GoldenConsole::with_overview(sample_answers::two_faults_overview(32));
    console.press_keys(&[KeyPress::Char('{')]);
    let question = console.screen_questions().remove(0);
    let refusal = Answer::Refused(Refusal::NotKept { seconds: 30, oldest: None });
    console.answer_question(question, refusal);
    assert_eq!(console.state.past_instant, Some(UnixMs(AT.0 - 29_000)));
}

#[test]
fn past_that_cannot_be_read_is_never_shown_as_the_present_rows() {
    let mut console = GoldenConsole::with_overview(sample_answers::two_faults_overview(32));
    console.press_keys(&[KeyPress::Char(':')]);
    console.type_text("at -7d");
    console.press_keys(&[KeyPress::Enter]);
    let question = console.screen_questions().remove(0);
    let later = UnixMs(console.state.now.0 + 1_000);
    apply_action(&mut console.state, ConsoleAction::Tick(later));
    let line = console.draw(80, 24)[22].clone();
    assert!(line.contains("loading; rows are of 12:03:41Z"), "{line}");
    let why = "the past cannot be read: http://prometheus:9090 has no series that gaunt reads";
    let refusal = Refusal::BadParameter { parameter: "at".into(), why: why.into() };
    console.answer_question(question, Answer::Refused(refusal));
    assert_eq!(console.state.past_instant, None);
    let screen = console.draw(80, 24).join(" ");
    assert!(screen.contains("the past cannot be read"), "{screen}");
}

#[test]
fn replay_seeks_back_and_forward_by_its_own_clock() {
    let mut console = GoldenConsole::with_overview(sample_answers::two_faults_overview(32));
    let after = |seconds: i64| UnixMs(AT.0 + seconds * 1_000);
    let playing = ReplayProgress { now: AT, last: after(300), paused: false, seek_target: None };
    console.state.replay = Some(playing);
    console.press_keys(&[KeyPress::Char('('), KeyPress::Char('('), KeyPress::Char(')')]);
    assert_eq!(console.state.past_instant, Some(after(-10)));
    // The replay, at 10 times the recorded speed, has advanced meanwhile.
    console.state.replay = Some(ReplayProgress { now: after(60), ..playing });
    console.press_keys(&[KeyPress::Char('}')]);
    assert_eq!(console.state.past_instant, Some(after(50)));
    assert!(console.draw(80, 24).iter().any(|line| line.contains("12:04:31Z, 10s ago")));
    console.press_keys(&[KeyPress::Char(')')]);
    assert_eq!(console.state.past_instant, None);

    assert_eq!(console.press_keys(&[KeyPress::Char('}')]), [ConsoleEffect::SeekReplay(after(120))]);
    console.state.replay =
        Some(ReplayProgress { now: after(60), seek_target: Some(after(120)), ..playing });
    assert!(console.draw(80, 24)[0].contains("seek to 12:05:41Z"));
    assert_eq!(
        console.press_keys(&[KeyPress::Char(')')]),
        [ConsoleEffect::SeekReplay(after(130))],
        "beyond the pending target"
    );
    console.press_keys(&[KeyPress::Char(':')]);
    console.type_text("at 12:08:41");
    let effects = console.press_keys(&[KeyPress::Enter]);
    assert!(effects.contains(&ConsoleEffect::SeekReplay(after(300))), "{effects:?}");
    console.press_keys(&[KeyPress::Char(':')]);
    console.type_text("at 12:08:42");
    console.press_keys(&[KeyPress::Enter]);
    assert!(
        console.state.past_instant.is_some_and(|then| then < AT),
        "a time after the recording means yesterday"
    );
    console.press_keys(&[KeyPress::Char('.')]);
    console.state.replay = Some(ReplayProgress { now: after(300), ..playing });
    assert!(console.draw(80, 24)[0].contains("end of the replay"));
}

#[test]
fn bell_rings_only_for_a_new_critical_finding() {
    let mut console = GoldenConsole::with_overview(sample_answers::healthy_overview(32));
    let rings = |effects: Vec<ConsoleEffect>| effects.contains(&ConsoleEffect::Bell);
    let faulty = sample_answers::two_faults_overview(32);
    assert!(rings(console.deliver_answer(Answer::Overview(Arc::new(faulty.clone())))));
    assert!(
        !rings(console.deliver_answer(Answer::Overview(Arc::new(faulty.clone())))),
        "it is known now"
    );
    let mut warned = faulty;
    warned.findings[0].severity = Severity::Warning;
    warned.findings[1].id = "another".into();
    assert!(
        !rings(console.deliver_answer(Answer::Overview(Arc::new(warned)))),
        "a warning does not ring"
    );
    let mut opened = GoldenConsole::new();
    assert!(!rings(
        opened.deliver_answer(Answer::Overview(Arc::new(sample_answers::two_faults_overview(32))))
    ));
}

#[test]
fn mouse_selects_opens_and_presses_keys() {
    let mut console = GoldenConsole::with_overview(sample_answers::two_faults_overview(32));
    let screen = console.draw(80, 24);
    let row = screen.iter().position(|line| line.starts_with(" gpu009")).unwrap() as u16;
    let press = |console: &mut GoldenConsole, x, y| {
        apply_action(&mut console.state, ConsoleAction::Mouse(MouseEvent::Press(x, y)))
    };
    press(&mut console, 10, row);
    assert_eq!(
        (console.state.panel, console.state.heat_node().unwrap().as_str()),
        (OverviewPanel::Heat, "gpu009")
    );
    console.draw(80, 24);
    press(&mut console, 10, row);
    assert_eq!(console.state.screen, NodeScreen("gpu009".into()).into());
    let screen = console.draw(80, 24);
    let back = screen[23].find("Esc").unwrap() as u16;
    press(&mut console, back, 23);
    assert_eq!(console.state.screen, Screen::default());
    apply_action(&mut console.state, ConsoleAction::Mouse(MouseEvent::WheelDown(5, 10)));
    press(&mut console, 79, 0);
}

#[test]
fn copy_takes_the_row_at_the_cursor() {
    let mut console = gpu_list_console();
    console.press_keys(&[KeyPress::Down]);
    assert_eq!(
        console.press_keys(&[KeyPress::Char('y')]),
        [ConsoleEffect::Copy("gpu001 1".into())]
    );
    console.press_keys(&[KeyPress::Char('1')]);
    let copied = console.press_keys(&[KeyPress::Char('y')]);
    assert_eq!(copied, [ConsoleEffect::Copy("port_down/gpu003/mlx5_1/1".into())]);
}

#[test]
fn key_bar_shows_the_keys_that_work_on_the_screen() {
    let mut console = gpu_list_console();
    console.press_keys(&[KeyPress::Char('?')]);
    let screen = console.draw(240, 60).join("\n");
    for part in ["KEYS: gpus", "choose and save columns", ":theme NAME", "GPU STATES"] {
        assert!(screen.contains(part), "{part}\n{screen}");
    }
    assert!(!screen.contains("topology"), "{screen}");
    console.press_keys(&[
        KeyPress::Escape,
        KeyPress::Char('/'),
        KeyPress::Escape,
        KeyPress::Char('1'),
        KeyPress::Char('?'),
    ]);
    assert!(!console.draw(240, 60).join("\n").contains("choose and save columns"));
}

#[test]
fn screens_survive_each_size_and_key() {
    let answers = || {
        [
            Answer::Finding(Arc::new(sample_answers::explanation_of(
                sample_answers::port_down_finding(),
            ))),
            Answer::Node(Arc::new(sample_answers::node_detail("gpu003"))),
            Answer::Job(Arc::new(sample_answers::job_detail())),
            Answer::Fabric(Arc::new(sample_answers::leaf_rail_fabric())),
            Answer::Probe(Arc::new(sample_answers::probe_matrix())),
            Answer::Coverage(Arc::new(gaunt_api::samples::telemetry_coverage())),
        ]
    };
    for target in all_screens() {
        for size in [(60, 12), (81, 25), (300, 80)] {
            let mut console = GoldenConsole::with_overview(sample_answers::two_faults_overview(32));
            console.state.screen = target.clone();
            for answer in answers() {
                let question = console.screen_questions().pop().unwrap();
                console.answer_question(question, answer);
            }
            answer_tables(&mut console);
            for key in [
                KeyPress::Down,
                KeyPress::Right,
                KeyPress::PageDown,
                KeyPress::Char('G'),
                KeyPress::Up,
                KeyPress::Left,
                KeyPress::Char('m'),
            ] {
                assert_eq!(console.draw(size.0, size.1).len(), usize::from(size.1), "{target:?}");
                console.press_keys(&[key]);
            }
            console.glyphs = GlyphSet::Ascii;
            let screen = console.draw(size.0, size.1);
            assert!(screen.iter().all(|line| line.is_ascii()), "{target:?}\n{screen:#?}");
            assert!(!screen.iter().any(|line| line.contains("??")), "{target:?}\n{screen:#?}");
        }
    }
}

fn answer_tables(console: &mut GoldenConsole) {
    for table in [sample_answers::gpu_table(), sample_answers::job_table()] {
        let question = console.state.list_state(table.subject).rows_question();
        console.answer_question(question, Answer::Table(Arc::new(table)));
    }
}

#[test]
fn finding_is_acknowledged_with_a_note_and_withdrawn() {
    let mut console = GoldenConsole::with_overview(sample_answers::two_faults_overview(32));
    console.press_keys(&[KeyPress::Char('2')]);
    console.deliver_answer(findings_answer());
    console.press_keys(&[KeyPress::Down, KeyPress::Char('a')]);
    assert!(console.draw(80, 24)[22].contains("acknowledge data_starved/gpu006"));
    console.type_text("loader is being moved");
    let note = Some("loader is being moved".to_owned());
    let effects = console.press_keys(&[KeyPress::Enter]);
    assert_eq!(effects, [ConsoleEffect::Acknowledge(vec!["data_starved/gpu006".into()], note)]);
    console.press_keys(&[KeyPress::Up]);
    assert_eq!(
        console.press_keys(&[KeyPress::Char('a')]),
        [],
        "another user's acknowledgement needs a confirmation"
    );
    let screen = console.draw(120, 35);
    let confirmation =
        "? withdraw mira's acknowledgement of 2m ago: cable is on its way (port_down/";
    assert!(screen[33].contains(confirmation), "{screen:#?}");
    assert!(screen[34].contains("y: withdraw   any other key: cancel"), "{screen:#?}");
    assert_eq!(console.press_keys(&[KeyPress::Char('n')]), []);
    assert!(console.draw(120, 35)[33].contains("cancelled, nothing changed"));
    let effects = console.press_keys(&[KeyPress::Char('a'), KeyPress::Char('y')]);
    let port_down = vec!["port_down/gpu003/mlx5_1/1".into()];
    assert_eq!(effects, [ConsoleEffect::Acknowledge(port_down, None)]);
    console.press_keys(&[KeyPress::Down, KeyPress::Char('a'), KeyPress::Up]);
    let note = console.state.prompt.as_ref().map(|prompt| prompt.text.as_str());
    assert_eq!(note, Some("loader is being moved"), "a note that was refused is not lost");
    console.press_keys(&[KeyPress::Escape, KeyPress::Up]);
    console.press_keys(&[KeyPress::Char('('), KeyPress::Char('a')]);
    assert!(console.state.prompt.is_none(), "no acknowledgement at a past time");
}

#[test]
fn culprit_is_two_keys_from_the_overview() {
    use gaunt_schema::{Entity, EntityKind};
    let (node, job) = (|| SanitizedText::new("gpu003"), || Some(SanitizedText::new("8812")));
    let of_node = Entity { node: Some(node()), ..Entity::new(EntityKind::Node) };
    let of_job = Entity { job: job(), ..Entity::new(EntityKind::Job) };
    for (entity, culprit) in [
        (Entity::new_gpu(&node(), &"5".into()), DeviceScreen::of_gpu(node(), "5").into()),
        (Entity::new_port(&node(), &"mlx5_1".into(), &"1".into()), NodeScreen(node()).into()),
        (of_node, Screen::from(NodeScreen(node()))),
        (of_job, JobScreen("8812".into()).into()),
    ] {
        let mut overview = sample_answers::two_faults_overview(32);
        overview.findings[0].entity = entity;
        let mut console = GoldenConsole::with_overview(overview);
        let first = console.draw(120, 35)[..6].join("\n");
        for part in ["port_down", "alice", "$280/h", "is down since", "next: check the cable"] {
            assert!(first.contains(part), "{part}: who, whose, cost, why and next in\n{first}");
        }
        console.press_keys(&[KeyPress::Enter, KeyPress::Enter]);
        assert_eq!(console.state.screen, culprit);
    }
}

#[test]
fn beginning_of_one_command_only_runs_that_command() {
    let mut console = GoldenConsole::with_overview(sample_answers::two_faults_overview(32));
    for (typed, screen) in [("cov", Some("coverage")), ("no", None)] {
        console.press_keys(&[KeyPress::Escape, KeyPress::Char(':')]);
        console.type_text(typed);
        console.press_keys(&[KeyPress::Enter]);
        let shown = view_of(&console.state.screen).header_title();
        assert_eq!(console.state.prompt.is_none(), screen.is_some(), "{typed}: {shown}");
        assert!(screen.is_none_or(|screen| shown.contains(screen)), "{typed}: {shown}");
    }
}
