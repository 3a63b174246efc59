//! Tests of finding groups: many findings of one kind share a row, which expands, is acknowledged as one, and hides no
//! other finding.

use gaunt_schema::{Entity, Severity};

use super::*;
use crate::action::MouseEvent;
use gaunt_api::{Finding, FindingGroup, JobOwner, samples::idle_finding};

/// 83 jobs of one user that hold idle GPUs, after a port that is down and a data-starved node.
fn many_findings() -> Vec<Finding> {
    let big = [sample_answers::port_down_finding(), sample_answers::starved_finding()];
    big.into_iter().chain((0..83).map(idle_finding)).collect()
}

fn group_findings(findings: &[Finding]) -> Vec<FindingGroup> {
    let sam = JobOwner { user: Some("sam".into()), account: Some("ml".into()) };
    FindingGroup::group_findings(findings, |_: &Entity| sam.clone())
}

/// As the engine reports it: the overview contains only some members of the group.
fn grouped_console() -> GoldenConsole {
    let mut overview = sample_answers::two_faults_overview(32);
    let findings = many_findings();
    overview.findings_open = findings.len() as u32;
    overview.groups = group_findings(&findings);
    overview.findings = findings.into_iter().take(32).collect();
    GoldenConsole::with_overview(overview)
}

fn grouped_answer() -> Answer {
    let (findings, total) = (many_findings(), 85);
    let groups = group_findings(&findings);
    let contexts = Vec::new();
    Answer::Findings(Arc::new(FindingList {
        at: AT,
        findings,
        total,
        matched: total,
        groups,
        contexts,
    }))
}

fn only_line_with<'a>(screen: &'a [String], part: &str) -> &'a str {
    let mut found = screen.iter().filter(|line| line.contains(part));
    let first = found.next().unwrap_or_else(|| panic!("no {part} in {screen:#?}"));
    assert_eq!(found.next(), None, "{part} occurs twice");
    first
}

#[test]
fn idle_jobs_of_one_user_are_one_row_below_what_is_urgent() {
    let mut console = grouped_console();
    for (width, height) in SIZES.into_iter().skip(1) {
        let screen = console.draw(width, height);
        let row = only_line_with(&screen, "idle_allocated");
        assert!(row.contains("× 83 jobs, user sam") && row.contains("  664"), "{row}");
        assert!(only_line_with(&screen, "FINDINGS").contains("85 open"), "{screen:#?}");
        let line_of = |part: &str| screen.iter().position(|line| line.contains(part)).unwrap();
        assert!(line_of("✔ port_down") < line_of("▲ data_starved"), "{screen:#?}");
        assert!(line_of("▲ data_starved") < line_of("idle_allocated"), "{screen:#?}");
        assert!(screen.iter().any(|line| line.contains("HEAT")), "{screen:#?}");
    }
    console.expect_golden_at("grouped", 80, 24);
}

#[test]
fn info_findings_take_at_most_three_lines_of_the_overview() {
    let mut console = grouped_console();
    let mut overview = sample_answers::two_faults_overview(32);
    overview.findings.extend((0..3).map(idle_finding));
    let other = |number: usize, kind| Finding {
        kind,
        id: format!("{kind}/{number}"),
        ..idle_finding(number)
    };
    overview.findings.extend((3..6).map(|at| other(at, FindingKind::DataSkew)));
    overview.findings_open = overview.findings.len() as u32;
    console.deliver_answer(Answer::Overview(Arc::new(overview)));
    for (width, height) in SIZES.into_iter().skip(1) {
        let screen = console.draw(width, height);
        let info = screen.iter().filter(|line| line.starts_with(" ● ")).count();
        assert!((1..=2).contains(&info), "{screen:#?}");
        only_line_with(&screen, &format!("and {} more findings; press 2 to list", 6 - info));
    }
}

#[test]
fn group_is_unfolded_and_folded_by_enter() {
    let mut console = grouped_console();
    console.press_keys(&[KeyPress::Down, KeyPress::Down, KeyPress::Enter]);
    assert_eq!(
        console.state.screen,
        FindingsScreen.into(),
        "the overview has no space for members"
    );
    console.deliver_answer(grouped_answer());
    let screen = console.draw(160, 48);
    assert!(only_line_with(&screen, "●▾idle").contains("× 83 jobs"), "{screen:#?}");
    assert!(screen.iter().filter(|line| line.starts_with(" ●│idle_allocated")).count() > 5);
    console.press_keys(&[KeyPress::Down, KeyPress::Enter]);
    assert_eq!(console.state.screen, FindingScreen("idle_allocated/0".into()).into());
    console.press_keys(&[KeyPress::Escape, KeyPress::Up, KeyPress::Enter]);
    let screen = console.draw(160, 48);
    assert!(only_line_with(&screen, "●▸idle").contains("× 83 jobs"), "{screen:#?}");
    assert!(only_line_with(&screen, "Enter: expand").contains("a: acknowledge all"), "{screen:#?}");
    let row = screen.iter().position(|line| line.contains("●▸idle")).unwrap() as u16;
    apply_action(&mut console.state, ConsoleAction::Mouse(MouseEvent::Press(20, row)));
    assert!(
        console.draw(160, 48).iter().any(|line| line.starts_with(" ●│")),
        "a click expands it too"
    );
    console.expect_golden_at("grouped-findings", 80, 24);
}

#[test]
fn group_is_acknowledged_after_a_question_that_names_the_number() {
    let mut console = grouped_console();
    console.press_keys(&[KeyPress::Char('2')]);
    console.deliver_answer(grouped_answer());
    console.press_keys(&[KeyPress::Down, KeyPress::Down, KeyPress::Char('a')]);
    assert!(console.draw(80, 24)[22].contains("acknowledge 83 findings of idle_allocated"));
    console.type_text("sam is asked");
    assert_eq!(console.press_keys(&[KeyPress::Enter]), [], "not before the confirmation");
    let screen = console.draw(80, 24);
    let confirmation = " ? acknowledge 83 findings of idle_allocated with the note: sam is asked?";
    assert_eq!(screen[22], confirmation);
    assert_eq!(screen[23], "   y: acknowledge   any other key: cancel");
    let effects = console.press_keys(&[KeyPress::Char('y')]);
    let [ConsoleEffect::Acknowledge(ids, Some(note))] = &effects[..] else { panic!("{effects:?}") };
    assert_eq!(
        (ids.len(), ids[0].as_str(), note.as_str()),
        (83, "idle_allocated/0", "sam is asked")
    );
}

#[test]
fn answer_of_an_older_aggregator_is_grouped_too() {
    let mut console = grouped_console();
    let mut overview = sample_answers::two_faults_overview(32);
    overview.findings = many_findings();
    console.deliver_answer(Answer::Overview(Arc::new(overview)));
    let screen = console.draw(80, 24);
    assert!(only_line_with(&screen, "idle_allocated").contains("× 83 jobs"), "{screen:#?}");
}

#[test]
fn bell_rings_for_a_new_member_of_a_critical_group() {
    let critical = |count: usize| -> Overview {
        let all = (0..count).map(|at| Finding { severity: Severity::Critical, ..idle_finding(at) });
        let findings: Vec<Finding> = all.collect();
        let groups = group_findings(&findings);
        let findings = findings.into_iter().take(32).collect();
        Overview { findings, groups, ..sample_answers::healthy_overview(32) }
    };
    let mut console = GoldenConsole::with_overview(critical(40));
    let effects = console.deliver_answer(Answer::Overview(Arc::new(critical(41))));
    assert!(effects.contains(&ConsoleEffect::Bell), "{effects:?}");
}
