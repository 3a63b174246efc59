//! Tests of steps through time: to marks of the time bar, and to an instant that is typed.

use super::*;

#[test]
fn bracket_jumps_from_mark_to_mark() {
    let mut console = GoldenConsole::with_overview(sample_answers::two_faults_overview(32));
    let mut ages = Vec::new();
    for key in ['[', '[', '[', ']'] {
        console.press_keys(&[KeyPress::Char(key)]);
        ages.push((AT.0 - console.state.past_instant.unwrap().0) / 1_000);
    }
    assert_eq!(ages, [40, 368, 385, 368], "two findings, a job start, and back");
    let screen = console.draw(160, 48).join("\n");
    assert!(screen.contains(" past: 11:57:33Z, 6m08 ago: port_down gpu003 · mlx5_1/1"), "{screen}");
    console.press_keys(&[KeyPress::Char('['), KeyPress::Char('[')]);
    assert_eq!((AT.0 - console.state.past_instant.unwrap().0) / 1_000, 395, "else 10 s");
}

#[test]
fn finding_of_the_mark_is_on_a_low_screen() {
    let mut console = GoldenConsole::with_overview(sample_answers::two_faults_overview(32));
    console.press_keys(&[KeyPress::Char('[')]);
    let screen = console.draw(80, 14).join("\n");
    assert!(screen.contains("▲ data_starved"), "{screen}");
}

#[test]
fn stepping_to_a_mark_shows_an_instant_at_or_after_it() {
    let mut console = GoldenConsole::with_overview(sample_answers::two_faults_overview(32));
    console.press_keys(&[KeyPress::Char('['), KeyPress::Char('[')]);
    let opened = AT.0 - 368_000;
    let overview_at = |at| {
        let mut overview = sample_answers::two_faults_overview(32);
        overview.at = UnixMs(at);
        Answer::Overview(Arc::new(overview))
    };
    // The source keeps one instant of ten seconds, the one before the mark first.
    let question = console.screen_questions().remove(0);
    console.answer_question(question, overview_at(opened - 4_000));
    assert_eq!(console.state.past_instant, Some(UnixMs(opened + 10_000)));
    let question = console.screen_questions().remove(0);
    console.answer_question(question, overview_at(opened + 6_000));
    let screen = console.draw(160, 48);
    let (header, footer) = (&screen[0], &screen[46]);
    assert!(header.contains("11:57:39Z ○ past"), "{header}");
    assert!(footer.contains(" past: 11:57:39Z, 6m02 ago: port_down gpu003"), "{footer}");
    console.press_keys(&[KeyPress::Char('[')]);
    assert_eq!(console.state.past_instant, Some(UnixMs(AT.0 - 385_000)), "the mark before");
}

#[test]
fn wrong_time_lists_every_form() {
    let mut console = GoldenConsole::with_overview(sample_answers::two_faults_overview(32));
    console.press_keys(&[KeyPress::Char(':')]);
    console.type_text("at lunch");
    console.press_keys(&[KeyPress::Enter]);
    let screen = console.draw(80, 24).join("\n");
    assert!(screen.contains("use -20m, -90s, -7d, 12:03 or now"), "{screen}");
}
