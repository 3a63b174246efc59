//! Screen, keys, screen: what a reader does, and what is shown and owed then.

use gaunt_schema::Severity;

use super::*;
use crate::{
    answer::When,
    console::{action::Mouse, state::Panel},
    source::Playing,
};

fn listing() -> Desk {
    let mut desk = Desk::showing(sample::two_faults(32));
    desk.press(&[Key::Char('6')]);
    desk.answer(Answer::Table(Arc::new(sample::gpu_table())));
    desk
}

fn asked(effects: &[Effect]) -> String {
    let last = effects.iter().rev().find_map(|effect| match effect {
        Effect::Ask(questions) => questions.last().cloned(),
        _ => None,
    });
    match last {
        Some(Question::Table(filter)) => filter.text().to_owned(),
        other => format!("{other:?}"),
    }
}

#[test]
fn a_filter_is_typed_completed_refused_and_taken() {
    let mut desk = listing();
    desk.press(&[Key::Char('/')]);
    desk.type_text("pow");
    let screen = desk.draw(80, 24);
    assert!(screen[21].starts_with(" power  "), "{screen:#?}");
    assert!(screen[22].contains("Power draw of the board"), "{screen:#?}");
    desk.press(&[Key::Tab]);
    desk.type_text(">300Wx");
    desk.press(&[Key::Enter]);
    desk.expect_at("filter-wrong", 80, 24);
    let effects = desk.press(&[Key::Backspace, Key::Enter]);
    assert!(desk.state.prompt.is_none());
    assert!(asked(&effects).starts_with("power>300W limit 240"), "{}", asked(&effects));
    desk.press(&[Key::Char('/'), Key::Escape]);
    assert_eq!(desk.state.list(Subject::Gpus).rows, "power>300W", "Esc changes nothing");
}

#[test]
fn the_order_follows_keys_headings_and_commands() {
    let mut desk = listing();
    assert!(asked(&desk.press(&[Key::Char('s')])).contains("sort node limit"));
    assert!(asked(&desk.press(&[Key::Char('r')])).contains("sort node desc limit"));
    desk.answer(Answer::Table(Arc::new(sample::gpu_table())));
    let screen = desk.draw(80, 24);
    let power = screen[2].find("power W").unwrap() as u16;
    let pressed = update(&mut desk.state, Action::Mouse(Mouse::Press(power, 2)));
    assert!(asked(&pressed.effects).contains("sort power desc "), "{:?}", pressed.effects);
    desk.press(&[Key::Char(':')]);
    desk.type_text("sort temperature");
    assert!(asked(&desk.press(&[Key::Enter])).contains("sort temperature limit"));
}

#[test]
fn columns_are_chosen_and_kept() {
    let mut desk = listing();
    desk.press(&[Key::Char('c')]);
    let typed = desk.state.prompt.as_ref().unwrap().text.clone();
    assert!(typed.starts_with("columns node,gpu,state,"), "{typed}");
    desk.press(&[Key::Ctrl('u')]);
    desk.type_text("columns gpu,power");
    let effects = desk.press(&[Key::Enter]);
    let Some(Effect::Keep(kept)) = effects.first() else { panic!("{effects:?}") };
    assert_eq!(kept.columns["gpus"], "gpu,power");
    let again = State::new(None, AT, kept.clone());
    assert_eq!(again.list(Subject::Gpus).columns().len(), 2);
}

#[test]
fn all_rows_are_written_when_they_come() {
    let mut desk = listing();
    desk.press(&[Key::Char(':')]);
    desk.type_text("write csv rows.csv");
    let effects = desk.press(&[Key::Enter]);
    assert!(asked(&effects).contains("limit 131072 columns node,gpu,state"), "{effects:?}");
    let effects = desk.answer(Answer::Table(Arc::new(sample::gpu_table())));
    let [Effect::Write(path, text)] = &effects[..] else { panic!("{effects:?}") };
    assert_eq!((path.to_str(), text.lines().count()), (Some("rows.csv"), 17));
    let done = Action::Done(Ok("wrote 17 lines into rows.csv".into()));
    update(&mut desk.state, done);
    assert!(desk.draw(80, 24)[22].contains("✔ wrote 17 lines"));
    update(&mut desk.state, Action::Tick(UnixMs(AT.0 + 9_000)));
    assert!(!desk.draw(80, 24)[22].contains("wrote"));
}

#[test]
fn a_slip_in_a_command_stays_in_the_line() {
    let mut desk = Desk::showing(sample::healthy(4));
    desk.press(&[Key::Char(':')]);
    desk.type_text("theme pink");
    desk.press(&[Key::Enter]);
    let screen = desk.draw(80, 24);
    assert!(
        screen[22].contains("the themes are dark, light, contrast, colourblind"),
        "{screen:#?}"
    );
    assert!(screen[23].starts_with(" :theme pink"), "{screen:#?}");
    desk.press(&[Key::Ctrl('w')]);
    desk.type_text("light");
    let effects = desk.press(&[Key::Enter]);
    assert!(matches!(&effects[..], [Effect::Keep(kept)] if kept.theme.as_deref() == Some("light")));
}

#[test]
fn back_in_time_everything_is_asked_of_then_and_the_present_is_not_taken() {
    let mut desk = Desk::showing(sample::two_faults(32));
    let effects = desk.press(&[Key::Char('[')]);
    let then = UnixMs(AT.0 - 10_000);
    let past = |question| Question::Then(When::At(then), Box::new(question));
    assert_eq!(effects, [Effect::Ask(vec![past(Question::Overview)])]);
    desk.answer(Answer::Overview(Arc::new(sample::healthy(4))));
    assert_eq!(desk.state.data.overview.as_ref().unwrap().heat.nodes.len(), 32, "late, and of now");
    let mut overview = sample::healthy(32);
    overview.at = then;
    desk.answer_to(past(Question::Overview), Answer::Overview(Arc::new(overview)));
    desk.expect_at("past", 80, 24);
    desk.press(&[Key::Char(':')]);
    desk.type_text("at -20m");
    desk.press(&[Key::Enter]);
    assert_eq!(desk.state.then, Some(UnixMs(AT.0 - 1_200_000)));
    let question = desk.state.questions().remove(0);
    let refusal = Answer::Refused(Refusal::NotKept { seconds: 90 });
    let effects = desk.answer_to(question, refusal);
    assert_eq!((desk.state.then, effects), (None, vec![Effect::Ask(vec![Question::Overview])]));
    assert!(desk.draw(80, 24)[22].contains("the past that is kept begins 90 s ago"));
    desk.press(&[Key::Char('['), Key::Char(']')]);
    assert_eq!(desk.state.then, None, "forward to now is now");
}

#[test]
fn a_replay_is_looked_back_at_and_led_forward_by_its_own_clock() {
    let mut desk = Desk::showing(sample::two_faults(32));
    let after = |seconds: i64| UnixMs(AT.0 + seconds * 1_000);
    let playing = Playing { now: AT, last: after(300), held: false, led: None };
    desk.state.replay = Some(playing);
    desk.press(&[Key::Char('['), Key::Char('['), Key::Char(']')]);
    assert_eq!(desk.state.then, Some(after(-10)));
    // Ten times as fast as it was, the replay went on meanwhile.
    desk.state.replay = Some(Playing { now: after(60), ..playing });
    desk.press(&[Key::Char('}')]);
    assert_eq!(desk.state.then, Some(after(50)));
    assert!(desk.draw(80, 24).iter().any(|line| line.contains("12:04:31Z, 10s ago")));
    desk.press(&[Key::Char(']')]);
    assert_eq!(desk.state.then, None);

    assert_eq!(desk.press(&[Key::Char('}')]), [Effect::Lead(after(120))]);
    desk.state.replay = Some(Playing { now: after(60), led: Some(after(120)), ..playing });
    assert!(desk.draw(80, 24)[0].contains("forward to 12:05:41Z"));
    assert_eq!(desk.press(&[Key::Char(']')]), [Effect::Lead(after(130))], "and still further");
    desk.press(&[Key::Char(':')]);
    desk.type_text("at 12:08:41");
    let effects = desk.press(&[Key::Enter]);
    assert!(effects.contains(&Effect::Lead(after(300))), "{effects:?}");
    desk.press(&[Key::Char(':')]);
    desk.type_text("at 12:08:42");
    desk.press(&[Key::Enter]);
    assert!(desk.state.then.is_some_and(|then| then < AT), "what never comes is of yesterday");
    desk.press(&[Key::Char('.')]);
    desk.state.replay = Some(Playing { now: after(300), ..playing });
    assert!(desk.draw(80, 24)[0].contains("end of the replay"));
}

#[test]
fn the_bell_rings_for_a_new_critical_finding_and_only_then() {
    let mut desk = Desk::showing(sample::healthy(32));
    let rings = |effects: Vec<Effect>| effects.contains(&Effect::Bell);
    let faulty = sample::two_faults(32);
    assert!(rings(desk.answer(Answer::Overview(Arc::new(faulty.clone())))));
    assert!(!rings(desk.answer(Answer::Overview(Arc::new(faulty.clone())))), "it is known now");
    let mut warned = faulty;
    warned.findings[0].severity = Severity::Warning;
    warned.findings[1].id = "another".into();
    assert!(!rings(desk.answer(Answer::Overview(Arc::new(warned)))), "a warning wakes nobody");
    let mut opened = Desk::new();
    assert!(!rings(opened.answer(Answer::Overview(Arc::new(sample::two_faults(32))))));
}

#[test]
fn the_mouse_points_opens_and_presses_keys() {
    let mut desk = Desk::showing(sample::two_faults(32));
    let screen = desk.draw(80, 24);
    let row = screen.iter().position(|line| line.starts_with(" gpu005")).unwrap() as u16;
    let press = |desk: &mut Desk, x, y| update(&mut desk.state, Action::Mouse(Mouse::Press(x, y)));
    press(&mut desk, 10, row);
    assert_eq!(
        (desk.state.panel, desk.state.heat_node().unwrap().as_str()),
        (Panel::Heat, "gpu005")
    );
    desk.draw(80, 24);
    press(&mut desk, 10, row);
    assert_eq!(desk.state.place, Place::Node("gpu005".into()));
    let screen = desk.draw(80, 24);
    let back = screen[23].find("Esc").unwrap() as u16;
    press(&mut desk, back, 23);
    assert_eq!(desk.state.place, Place::Overview);
    update(&mut desk.state, Action::Mouse(Mouse::WheelDown(5, 10)));
    press(&mut desk, 79, 0);
}

#[test]
fn what_the_cursor_is_on_is_copied() {
    let mut desk = listing();
    desk.press(&[Key::Down]);
    assert_eq!(desk.press(&[Key::Char('y')]), [Effect::Copy("gpu001 1".into())]);
    desk.press(&[Key::Char('1')]);
    let copied = desk.press(&[Key::Char('y')]);
    assert_eq!(copied, [Effect::Copy("port_down/gpu003/mlx5_1/1".into())]);
}

#[test]
fn the_keys_of_a_screen_are_those_that_work_there() {
    let mut desk = listing();
    desk.press(&[Key::Char('?')]);
    let screen = desk.draw(240, 60).join("\n");
    for part in ["KEYS HERE: gpus", "choose columns", ":theme NAME", "WHAT A GPU DOES"] {
        assert!(screen.contains(part), "{part}\n{screen}");
    }
    assert!(!screen.contains("topology"), "{screen}");
    desk.press(&[Key::Escape, Key::Char('/'), Key::Escape, Key::Char('1'), Key::Char('?')]);
    assert!(!desk.draw(240, 60).join("\n").contains("choose columns"));
}

#[test]
fn every_place_survives_every_size_and_every_key() {
    let answers = || {
        [
            Answer::Finding(Arc::new(sample::explained(sample::port_down()))),
            Answer::Node(Arc::new(sample::node("gpu003"))),
            Answer::Job(Arc::new(sample::job())),
            Answer::Fabric(Arc::new(sample::fabric())),
            Answer::Probe(Arc::new(sample::probe())),
        ]
    };
    let node = || gaunt_schema::Safe::from("gpu003");
    let gpu = Place::Device(node(), gaunt_schema::Class::Gpu, "GPU 0".into());
    let mut places = vec![
        Place::Job("8812".into()),
        Place::Node(node()),
        gpu,
        Place::Topology(node()),
        Place::List(Subject::Processes),
        Place::Events(node()),
        Place::Finding("none".into()),
        Place::Explanation("none".into()),
        Place::Probe,
    ];
    places.extend((1..=9).map(Place::main));
    for place in places {
        for size in [(60, 12), (81, 25), (300, 80)] {
            let mut desk = Desk::showing(sample::two_faults(32));
            desk.state.place = place.clone();
            for answer in answers() {
                let question = desk.state.questions().pop().unwrap();
                desk.answer_to(question, answer);
            }
            answer_tables(&mut desk);
            for key in [
                Key::Down,
                Key::Right,
                Key::PageDown,
                Key::Char('G'),
                Key::Up,
                Key::Left,
                Key::Char('m'),
            ] {
                assert_eq!(desk.draw(size.0, size.1).len(), usize::from(size.1), "{place:?}");
                desk.press(&[key]);
            }
            desk.glyphs = Glyphs::Ascii;
            let screen = desk.draw(size.0, size.1);
            assert!(screen.iter().all(|line| line.is_ascii()), "{place:?}\n{screen:#?}");
            assert!(!screen.iter().any(|line| line.contains("??")), "{place:?}\n{screen:#?}");
        }
    }
}

fn answer_tables(desk: &mut Desk) {
    for table in [sample::gpu_table(), sample::job_table()] {
        let question = desk.state.list(table.subject).question();
        desk.answer_to(question, Answer::Table(Arc::new(table)));
    }
}

#[test]
fn a_finding_is_acknowledged_with_a_note_and_that_is_withdrawn() {
    let mut desk = Desk::showing(sample::two_faults(32));
    desk.press(&[Key::Char('2')]);
    desk.answer(findings());
    desk.press(&[Key::Down, Key::Char('a')]);
    assert!(desk.draw(80, 24)[22].contains("acknowledge data_starved/gpu006"));
    desk.type_text("loader is being moved");
    let note = Some("loader is being moved".to_owned());
    let effects = desk.press(&[Key::Enter]);
    assert_eq!(effects, [Effect::Acknowledge(vec!["data_starved/gpu006".into()], note)]);
    desk.press(&[Key::Up]);
    assert_eq!(desk.press(&[Key::Char('a')]), [], "what another one did is not undone by one key");
    let screen = desk.draw(120, 35);
    let asked = "? withdraw mira's acknowledgement of 2m ago: cable is on its way (port_down/";
    assert!(screen[33].contains(asked), "{screen:#?}");
    assert!(screen[34].contains("y withdraws   any other key does not"), "{screen:#?}");
    assert_eq!(desk.press(&[Key::Char('n')]), []);
    assert!(desk.draw(120, 35)[33].contains("nothing was changed"));
    let effects = desk.press(&[Key::Char('a'), Key::Char('y')]);
    let port_down = vec!["port_down/gpu003/mlx5_1/1".into()];
    assert_eq!(effects, [Effect::Acknowledge(port_down, None)]);
    desk.press(&[Key::Char('['), Key::Char('a')]);
    assert!(desk.state.prompt.is_none(), "the past is not acknowledged");
}
