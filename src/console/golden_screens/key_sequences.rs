//! Tests of key sequences: keys in, shown screen and requested effects out.

use gaunt_schema::Severity;

use super::*;
use crate::{
    ReplayProgress, action::MouseEvent, console_state::OverviewPanel, screens::tests::all_screens,
};
use gaunt_api::TimeParam;

fn gpu_list_console() -> GoldenConsole {
    let mut desk = GoldenConsole::with_overview(sample_answers::two_faults_overview(32));
    desk.press_keys(&[KeyPress::Char('6')]);
    desk.deliver_answer(Answer::Table(Arc::new(sample_answers::gpu_table())));
    desk
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
fn a_filter_is_typed_completed_refused_and_taken() {
    let mut desk = gpu_list_console();
    desk.press_keys(&[KeyPress::Char('/')]);
    desk.type_text("pow");
    let screen = desk.draw(80, 24);
    assert!(screen[21].starts_with(" power  "), "{screen:#?}");
    assert!(screen[22].contains("Power draw of the board"), "{screen:#?}");
    desk.press_keys(&[KeyPress::Tab]);
    desk.type_text(">300Wx");
    desk.press_keys(&[KeyPress::Enter]);
    desk.expect_golden_at("filter-wrong", 80, 24);
    let effects = desk.press_keys(&[KeyPress::Backspace, KeyPress::Enter]);
    assert!(desk.state.prompt.is_none());
    assert!(
        asked_filter(&effects).starts_with("power>300W limit 240"),
        "{}",
        asked_filter(&effects)
    );
    desk.press_keys(&[KeyPress::Char('/'), KeyPress::Escape]);
    assert_eq!(desk.state.list_state(Subject::Gpus).rows, "power>300W", "Esc changes nothing");
}

#[test]
fn the_order_follows_keys_headings_and_commands() {
    let mut desk = gpu_list_console();
    assert!(asked_filter(&desk.press_keys(&[KeyPress::Char('s')])).contains("sort node limit"));
    assert!(
        asked_filter(&desk.press_keys(&[KeyPress::Char('r')])).contains("sort node desc limit")
    );
    desk.deliver_answer(Answer::Table(Arc::new(sample_answers::gpu_table())));
    let screen = desk.draw(80, 24);
    let power = screen[2].find("power W").unwrap() as u16;
    let pressed = apply_action(&mut desk.state, ConsoleAction::Mouse(MouseEvent::Press(power, 2)));
    assert!(asked_filter(&pressed.effects).contains("sort power desc "), "{:?}", pressed.effects);
    desk.press_keys(&[KeyPress::Char(':')]);
    desk.type_text("sort temperature");
    assert!(asked_filter(&desk.press_keys(&[KeyPress::Enter])).contains("sort temperature limit"));
}

#[test]
fn columns_are_chosen_and_kept() {
    let mut desk = gpu_list_console();
    desk.press_keys(&[KeyPress::Char('c')]);
    let typed = desk.state.prompt.as_ref().unwrap().text.clone();
    assert!(typed.starts_with("columns node,gpu,state,"), "{typed}");
    desk.press_keys(&[KeyPress::Ctrl('u')]);
    desk.type_text("columns gpu,power");
    let effects = desk.press_keys(&[KeyPress::Enter]);
    let Some(ConsoleEffect::SavePreferences(kept)) = effects.first() else { panic!("{effects:?}") };
    assert_eq!(kept.columns["gpus"], "gpu,power");
    let again = ConsoleState::new(None, AT, kept.clone());
    assert_eq!(again.list_state(Subject::Gpus).shown_columns().len(), 2);
}

#[test]
fn all_rows_are_written_when_they_come() {
    let mut desk = gpu_list_console();
    desk.press_keys(&[KeyPress::Char(':')]);
    desk.type_text("write csv rows.csv");
    let effects = desk.press_keys(&[KeyPress::Enter]);
    assert!(asked_filter(&effects).contains("limit 131072 columns node,gpu,state"), "{effects:?}");
    let effects = desk.deliver_answer(Answer::Table(Arc::new(sample_answers::gpu_table())));
    let [ConsoleEffect::WriteFile(path, text)] = &effects[..] else { panic!("{effects:?}") };
    assert_eq!((path.to_str(), text.lines().count()), (Some("rows.csv"), 17));
    let done = ConsoleAction::Done(Ok("wrote 17 lines to rows.csv".into()));
    apply_action(&mut desk.state, done);
    assert!(desk.draw(80, 24)[22].contains("✔ wrote 17 lines"));
    apply_action(&mut desk.state, ConsoleAction::Tick(UnixMs(AT.0 + 9_000)));
    assert!(!desk.draw(80, 24)[22].contains("wrote"));
}

#[test]
fn a_slip_in_a_command_stays_in_the_line() {
    let mut desk = GoldenConsole::with_overview(sample_answers::healthy_overview(4));
    desk.press_keys(&[KeyPress::Char(':')]);
    desk.type_text("theme pink");
    desk.press_keys(&[KeyPress::Enter]);
    let screen = desk.draw(80, 24);
    assert!(
        screen[22].contains("unknown theme; use dark, light, contrast, colourblind"),
        "{screen:#?}"
    );
    assert!(screen[23].starts_with(" :theme pink"), "{screen:#?}");
    desk.press_keys(&[KeyPress::Ctrl('w')]);
    desk.type_text("light");
    let effects = desk.press_keys(&[KeyPress::Enter]);
    assert!(
        matches!(&effects[..], [ConsoleEffect::SavePreferences(kept)] if kept.theme.as_deref() == Some("light"))
    );
}

#[test]
fn back_in_time_everything_is_asked_of_then_and_the_present_is_not_taken() {
    let mut desk = GoldenConsole::with_overview(sample_answers::two_faults_overview(32));
    let effects = desk.press_keys(&[KeyPress::Char('[')]);
    let then = UnixMs(AT.0 - 10_000);
    let past = |question| Question::AtTime(TimeParam::At(then), Box::new(question));
    assert_eq!(effects, [ConsoleEffect::Ask(vec![past(Question::Overview)])]);
    desk.deliver_answer(Answer::Overview(Arc::new(sample_answers::healthy_overview(4))));
    assert_eq!(
        desk.state.data.overview.as_ref().unwrap().heat.nodes.len(),
        32,
        "late, for another time"
    );
    let mut overview = sample_answers::healthy_overview(32);
    overview.at = then;
    desk.answer_question(past(Question::Overview), Answer::Overview(Arc::new(overview)));
    desk.expect_golden_at("past", 80, 24);
    desk.press_keys(&[KeyPress::Char(':')]);
    desk.type_text("at -20m");
    desk.press_keys(&[KeyPress::Enter]);
    assert_eq!(desk.state.past_instant, Some(UnixMs(AT.0 - 1_200_000)));
    let question = desk.screen_questions().remove(0);
    let refusal = Answer::Refused(Refusal::NotKept { seconds: 90 });
    let effects = desk.answer_question(question, refusal);
    assert_eq!(
        (desk.state.past_instant, effects),
        (None, vec![ConsoleEffect::Ask(vec![Question::Overview])])
    );
    assert!(desk.draw(80, 24)[22].contains("90 s ago"));
    desk.press_keys(&[KeyPress::Char('['), KeyPress::Char(']')]);
    assert_eq!(desk.state.past_instant, None, "forward to the present returns to it");
}

#[test]
fn a_replay_is_looked_back_at_and_led_forward_by_its_own_clock() {
    let mut desk = GoldenConsole::with_overview(sample_answers::two_faults_overview(32));
    let after = |seconds: i64| UnixMs(AT.0 + seconds * 1_000);
    let playing = ReplayProgress { now: AT, last: after(300), paused: false, seek_target: None };
    desk.state.replay = Some(playing);
    desk.press_keys(&[KeyPress::Char('['), KeyPress::Char('['), KeyPress::Char(']')]);
    assert_eq!(desk.state.past_instant, Some(after(-10)));
    // The replay, at 10 times the recorded speed, has advanced meanwhile.
    desk.state.replay = Some(ReplayProgress { now: after(60), ..playing });
    desk.press_keys(&[KeyPress::Char('}')]);
    assert_eq!(desk.state.past_instant, Some(after(50)));
    assert!(desk.draw(80, 24).iter().any(|line| line.contains("12:04:31Z, 10s ago")));
    desk.press_keys(&[KeyPress::Char(']')]);
    assert_eq!(desk.state.past_instant, None);

    assert_eq!(desk.press_keys(&[KeyPress::Char('}')]), [ConsoleEffect::SeekReplay(after(120))]);
    desk.state.replay =
        Some(ReplayProgress { now: after(60), seek_target: Some(after(120)), ..playing });
    assert!(desk.draw(80, 24)[0].contains("seek to 12:05:41Z"));
    assert_eq!(
        desk.press_keys(&[KeyPress::Char(']')]),
        [ConsoleEffect::SeekReplay(after(130))],
        "beyond the pending target"
    );
    desk.press_keys(&[KeyPress::Char(':')]);
    desk.type_text("at 12:08:41");
    let effects = desk.press_keys(&[KeyPress::Enter]);
    assert!(effects.contains(&ConsoleEffect::SeekReplay(after(300))), "{effects:?}");
    desk.press_keys(&[KeyPress::Char(':')]);
    desk.type_text("at 12:08:42");
    desk.press_keys(&[KeyPress::Enter]);
    assert!(
        desk.state.past_instant.is_some_and(|then| then < AT),
        "a time after the recording means yesterday"
    );
    desk.press_keys(&[KeyPress::Char('.')]);
    desk.state.replay = Some(ReplayProgress { now: after(300), ..playing });
    assert!(desk.draw(80, 24)[0].contains("end of the replay"));
}

#[test]
fn the_bell_rings_for_a_new_critical_finding_and_only_then() {
    let mut desk = GoldenConsole::with_overview(sample_answers::healthy_overview(32));
    let rings = |effects: Vec<ConsoleEffect>| effects.contains(&ConsoleEffect::Bell);
    let faulty = sample_answers::two_faults_overview(32);
    assert!(rings(desk.deliver_answer(Answer::Overview(Arc::new(faulty.clone())))));
    assert!(
        !rings(desk.deliver_answer(Answer::Overview(Arc::new(faulty.clone())))),
        "it is known now"
    );
    let mut warned = faulty;
    warned.findings[0].severity = Severity::Warning;
    warned.findings[1].id = "another".into();
    assert!(
        !rings(desk.deliver_answer(Answer::Overview(Arc::new(warned)))),
        "a warning does not ring"
    );
    let mut opened = GoldenConsole::new();
    assert!(!rings(
        opened.deliver_answer(Answer::Overview(Arc::new(sample_answers::two_faults_overview(32))))
    ));
}

#[test]
fn the_mouse_points_opens_and_presses_keys() {
    let mut desk = GoldenConsole::with_overview(sample_answers::two_faults_overview(32));
    let screen = desk.draw(80, 24);
    let row = screen.iter().position(|line| line.starts_with(" gpu005")).unwrap() as u16;
    let press = |desk: &mut GoldenConsole, x, y| {
        apply_action(&mut desk.state, ConsoleAction::Mouse(MouseEvent::Press(x, y)))
    };
    press(&mut desk, 10, row);
    assert_eq!(
        (desk.state.panel, desk.state.heat_node().unwrap().as_str()),
        (OverviewPanel::Heat, "gpu005")
    );
    desk.draw(80, 24);
    press(&mut desk, 10, row);
    assert_eq!(desk.state.screen, NodeScreen("gpu005".into()).into());
    let screen = desk.draw(80, 24);
    let back = screen[23].find("Esc").unwrap() as u16;
    press(&mut desk, back, 23);
    assert_eq!(desk.state.screen, Screen::default());
    apply_action(&mut desk.state, ConsoleAction::Mouse(MouseEvent::WheelDown(5, 10)));
    press(&mut desk, 79, 0);
}

#[test]
fn what_the_cursor_is_on_is_copied() {
    let mut desk = gpu_list_console();
    desk.press_keys(&[KeyPress::Down]);
    assert_eq!(desk.press_keys(&[KeyPress::Char('y')]), [ConsoleEffect::Copy("gpu001 1".into())]);
    desk.press_keys(&[KeyPress::Char('1')]);
    let copied = desk.press_keys(&[KeyPress::Char('y')]);
    assert_eq!(copied, [ConsoleEffect::Copy("port_down/gpu003/mlx5_1/1".into())]);
}

#[test]
fn the_keys_of_a_screen_are_those_that_work_there() {
    let mut desk = gpu_list_console();
    desk.press_keys(&[KeyPress::Char('?')]);
    let screen = desk.draw(240, 60).join("\n");
    for part in ["KEYS: gpus", "choose and save columns", ":theme NAME", "GPU STATES"] {
        assert!(screen.contains(part), "{part}\n{screen}");
    }
    assert!(!screen.contains("topology"), "{screen}");
    desk.press_keys(&[
        KeyPress::Escape,
        KeyPress::Char('/'),
        KeyPress::Escape,
        KeyPress::Char('1'),
        KeyPress::Char('?'),
    ]);
    assert!(!desk.draw(240, 60).join("\n").contains("choose and save columns"));
}

#[test]
fn every_place_survives_every_size_and_every_key() {
    let answers = || {
        [
            Answer::Finding(Arc::new(sample_answers::explanation_of(
                sample_answers::port_down_finding(),
            ))),
            Answer::Node(Arc::new(sample_answers::node_detail("gpu003"))),
            Answer::Job(Arc::new(sample_answers::job_detail())),
            Answer::Fabric(Arc::new(sample_answers::leaf_rail_fabric())),
            Answer::Probe(Arc::new(sample_answers::probe_matrix())),
        ]
    };
    for place in all_screens() {
        for size in [(60, 12), (81, 25), (300, 80)] {
            let mut desk = GoldenConsole::with_overview(sample_answers::two_faults_overview(32));
            desk.state.screen = place.clone();
            for answer in answers() {
                let question = desk.screen_questions().pop().unwrap();
                desk.answer_question(question, answer);
            }
            answer_tables(&mut desk);
            for key in [
                KeyPress::Down,
                KeyPress::Right,
                KeyPress::PageDown,
                KeyPress::Char('G'),
                KeyPress::Up,
                KeyPress::Left,
                KeyPress::Char('m'),
            ] {
                assert_eq!(desk.draw(size.0, size.1).len(), usize::from(size.1), "{place:?}");
                desk.press_keys(&[key]);
            }
            desk.glyphs = GlyphSet::Ascii;
            let screen = desk.draw(size.0, size.1);
            assert!(screen.iter().all(|line| line.is_ascii()), "{place:?}\n{screen:#?}");
            assert!(!screen.iter().any(|line| line.contains("??")), "{place:?}\n{screen:#?}");
        }
    }
}

fn answer_tables(desk: &mut GoldenConsole) {
    for table in [sample_answers::gpu_table(), sample_answers::job_table()] {
        let question = desk.state.list_state(table.subject).rows_question();
        desk.answer_question(question, Answer::Table(Arc::new(table)));
    }
}

#[test]
fn a_finding_is_acknowledged_with_a_note_and_that_is_withdrawn() {
    let mut desk = GoldenConsole::with_overview(sample_answers::two_faults_overview(32));
    desk.press_keys(&[KeyPress::Char('2')]);
    desk.deliver_answer(findings_answer());
    desk.press_keys(&[KeyPress::Down, KeyPress::Char('a')]);
    assert!(desk.draw(80, 24)[22].contains("acknowledge data_starved/gpu006"));
    desk.type_text("loader is being moved");
    let note = Some("loader is being moved".to_owned());
    let effects = desk.press_keys(&[KeyPress::Enter]);
    assert_eq!(effects, [ConsoleEffect::Acknowledge(vec!["data_starved/gpu006".into()], note)]);
    desk.press_keys(&[KeyPress::Up]);
    assert_eq!(
        desk.press_keys(&[KeyPress::Char('a')]),
        [],
        "another user's acknowledgement needs a confirmation"
    );
    let screen = desk.draw(120, 35);
    let asked = "? withdraw mira's acknowledgement of 2m ago: cable is on its way (port_down/";
    assert!(screen[33].contains(asked), "{screen:#?}");
    assert!(screen[34].contains("y: withdraw   any other key: cancel"), "{screen:#?}");
    assert_eq!(desk.press_keys(&[KeyPress::Char('n')]), []);
    assert!(desk.draw(120, 35)[33].contains("cancelled, nothing changed"));
    let effects = desk.press_keys(&[KeyPress::Char('a'), KeyPress::Char('y')]);
    let port_down = vec!["port_down/gpu003/mlx5_1/1".into()];
    assert_eq!(effects, [ConsoleEffect::Acknowledge(port_down, None)]);
    desk.press_keys(&[KeyPress::Char('['), KeyPress::Char('a')]);
    assert!(desk.state.prompt.is_none(), "no acknowledgement at a past time");
}
