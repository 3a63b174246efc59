//! Tests of narrow screens: what does not fit in a line follows in another one, and nothing covers anything else.

use super::*;
use crate::prompt_commands;

#[test]
fn help_on_a_narrow_screen_shows_each_command_with_its_description() {
    let mut console = GoldenConsole::with_overview(sample_answers::healthy_overview(4));
    console.press_keys(&[KeyPress::Char('?')]);
    for (width, height) in [(60, 12), (80, 24), (120, 35)] {
        let mut shown = String::new();
        console.press_keys(&[KeyPress::Char('g')]);
        for _ in 0..150 {
            shown.extend(console.draw(width, height).into_iter().chain(["\n".to_owned()]));
            console.press_keys(&[KeyPress::Down]);
        }
        for (word, _, description) in prompt_commands::listed_commands() {
            let both = [format!(":{word}"), description.to_owned()];
            assert!(both.iter().all(|part| shown.contains(part)), "{word} at {width}: {shown}");
        }
        assert!(shown.contains("GPU STATES") && shown.contains("12:03:41Z is UTC"), "{shown}");
    }
    console.draw(80, 24);
    console.press_keys(&[KeyPress::Char('G')]);
    console.expect_golden_at("help-end", 80, 24);
}

#[test]
fn topology_on_a_narrow_screen_keeps_load_and_leaf() {
    let mut console = GoldenConsole::with_overview(sample_answers::two_faults_overview(32));
    console.state.screen = crate::screen::TopologyScreen("gpu003".into()).into();
    console.deliver_answer(Answer::Node(Arc::new(sample_answers::node_detail("gpu003"))));
    for width in [60, 80, 103, 104] {
        let screen = console.draw(width, 24).join("\n");
        for part in ["40/38  %", "DOWN ", "leaf-07 r5", "leaf, rail"] {
            let shown = screen.contains(part) || width == 60 && part.starts_with("leaf");
            assert!(shown, "{part} at {width}:\n{screen}");
        }
    }
    console.expect_golden_at("topology", 60, 14);
}
