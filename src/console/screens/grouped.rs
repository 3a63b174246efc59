//! Many findings of one kind: one row, which unfolds, is acknowledged as a whole, and buries nothing.

use gaunt_schema::{Entity, Severity};

use super::*;
use crate::{
    answer::{Finding, FindingGroup, JobOwner, group::tests::idle},
    console::action::Mouse,
};

/// 83 jobs of one user that hold GPUs and do nothing, after a broken port and a starving node.
fn findings() -> Vec<Finding> {
    let big = [sample::port_down(), sample::starved()];
    big.into_iter().chain((0..83).map(idle)).collect()
}

fn groups(findings: &[Finding]) -> Vec<FindingGroup> {
    let sam = JobOwner { user: Some("sam".into()), account: Some("ml".into()) };
    FindingGroup::all(findings, |_: &Entity| sam.clone())
}

/// As the owner tells it: of the group only some members have a place in the overview.
fn showing() -> Desk {
    let mut overview = sample::two_faults(32);
    let findings = findings();
    overview.findings_open = findings.len() as u32;
    overview.groups = groups(&findings);
    overview.findings = findings.into_iter().take(32).collect();
    Desk::showing(overview)
}

fn list() -> Answer {
    let (findings, total) = (findings(), 85);
    let groups = groups(&findings);
    Answer::Findings(Arc::new(FindingList { at: AT, findings, total, matched: total, groups }))
}

fn line<'a>(screen: &'a [String], part: &str) -> &'a str {
    let mut found = screen.iter().filter(|line| line.contains(part));
    let first = found.next().unwrap_or_else(|| panic!("no {part} in {screen:#?}"));
    assert_eq!(found.next(), None, "{part} is there twice");
    first
}

#[test]
fn idle_jobs_of_one_user_are_one_row_below_what_is_urgent() {
    let mut desk = showing();
    for (width, height) in SIZES {
        let screen = desk.draw(width, height);
        let row = line(&screen, "idle_allocated");
        assert!(row.contains("× 83 jobs, 664 GPUs, user sam"), "{row}");
        assert!(line(&screen, "FINDINGS").contains("85 open"), "{screen:#?}");
        let place = |part: &str| screen.iter().position(|line| line.contains(part)).unwrap();
        assert!(place("✔ port_down") < place("▲ data_starved"), "{screen:#?}");
        assert!(place("▲ data_starved") < place("idle_allocated"), "{screen:#?}");
        assert!(screen.iter().any(|line| line.contains("HEAT")), "{screen:#?}");
    }
    desk.expect_at("grouped", 80, 24);
}

#[test]
fn info_takes_at_most_three_lines_of_the_overview() {
    let mut desk = showing();
    let mut overview = sample::two_faults(32);
    overview.findings.extend((0..3).map(idle));
    let other =
        |number: usize, kind| Finding { kind, id: format!("{kind}/{number}"), ..idle(number) };
    overview.findings.extend((3..6).map(|at| other(at, FindingKind::DataSkew)));
    overview.findings_open = overview.findings.len() as u32;
    desk.answer(Answer::Overview(Arc::new(overview)));
    for (width, height) in SIZES {
        let screen = desk.draw(width, height);
        let info = screen.iter().filter(|line| line.starts_with(" ● "));
        assert_eq!(info.count(), 2, "{screen:#?}");
        line(&screen, "and 4 more to know of: 2 lists them");
    }
}

#[test]
fn enter_unfolds_a_group_and_folds_it() {
    let mut desk = showing();
    desk.press(&[Key::Down, Key::Down, Key::Enter]);
    assert_eq!(desk.state.place, Place::Findings, "the overview has no room for members");
    desk.answer(list());
    let screen = desk.draw(160, 48);
    assert!(line(&screen, "●▾idle").contains("× 83 jobs"), "{screen:#?}");
    assert!(screen.iter().filter(|line| line.starts_with(" ●│idle_allocated")).count() > 5);
    desk.press(&[Key::Down, Key::Enter]);
    assert_eq!(desk.state.place, Place::Finding("idle_allocated/0".into()));
    desk.press(&[Key::Escape, Key::Up, Key::Enter]);
    let screen = desk.draw(160, 48);
    assert!(line(&screen, "●▸idle").contains("× 83 jobs"), "{screen:#?}");
    assert!(line(&screen, "Enter unfolds them").contains("a acknowledges all"), "{screen:#?}");
    let row = screen.iter().position(|line| line.contains("●▸idle")).unwrap() as u16;
    update(&mut desk.state, Action::Mouse(Mouse::Press(20, row)));
    assert!(desk.draw(160, 48).iter().any(|line| line.starts_with(" ●│")), "so does the mouse");
    desk.expect_at("grouped-findings", 80, 24);
}

#[test]
fn group_is_acknowledged_after_a_question_that_names_the_number() {
    let mut desk = showing();
    desk.press(&[Key::Char('2')]);
    desk.answer(list());
    desk.press(&[Key::Down, Key::Down, Key::Char('a')]);
    assert!(desk.draw(80, 24)[22].contains("acknowledge 83 findings of idle_allocated"));
    desk.type_text("sam is asked");
    assert_eq!(desk.press(&[Key::Enter]), [], "not before a yes");
    let screen = desk.draw(80, 24);
    let asked = " ? acknowledge 83 findings of idle_allocated with the note: sam is asked?";
    assert_eq!(screen[22], asked);
    assert_eq!(screen[23], "   y acknowledges   any other key does not");
    let effects = desk.press(&[Key::Char('y')]);
    let [Effect::Acknowledge(ids, Some(note))] = &effects[..] else { panic!("{effects:?}") };
    assert_eq!(
        (ids.len(), ids[0].as_str(), note.as_str()),
        (83, "idle_allocated/0", "sam is asked")
    );
}

#[test]
fn answer_of_an_older_aggregator_is_grouped_too() {
    let mut desk = showing();
    let mut overview = sample::two_faults(32);
    overview.findings = findings();
    desk.answer(Answer::Overview(Arc::new(overview)));
    let screen = desk.draw(80, 24);
    assert!(line(&screen, "idle_allocated").contains("× 83 jobs, 664 GPUs"), "{screen:#?}");
}

#[test]
fn bell_rings_for_a_new_member_of_a_critical_group() {
    let critical = |count: usize| -> Overview {
        let all = (0..count).map(|at| Finding { severity: Severity::Critical, ..idle(at) });
        let findings: Vec<Finding> = all.collect();
        let groups = groups(&findings);
        let findings = findings.into_iter().take(32).collect();
        Overview { findings, groups, ..sample::healthy(32) }
    };
    let mut desk = Desk::showing(critical(40));
    let effects = desk.answer(Answer::Overview(Arc::new(critical(41))));
    assert!(effects.contains(&Effect::Bell), "{effects:?}");
}
