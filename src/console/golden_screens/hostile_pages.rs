//! From page to screen: whatever exporters serve, every screen is drawn, without anything that a terminal would interpret.

use std::path::Path;

use gaunt_api::{Answer, Question};

use crate::drawn_screens::{all_screens, draw_screen};

#[path = "../../../tests/fuzz/src/page_engine.rs"]
#[expect(unreachable_pub, reason = "the crate of the fuzz targets compiles the same file")]
mod page_engine;

/// Names and values that are hard to show: of a terminal, right to left, wide, combined, long and empty.
const HARD_TEXTS: [&str; 9] = [
    "\u{1b}[2J\u{1b}]0;owned\u{7}",
    "\u{202e}gpu\u{2066}",
    "\u{9b}31m",
    "e\u{301}\u{301}\u{301}\u{301}",
    "\u{4e2d}\u{6587}\u{1f525}",
    "\u{0}\u{8}\u{7f}",
    "\u{feff}\u{200b}",
    "%s%n{}$(reboot)`id`",
    "",
];
const HARD_VALUES: [&str; 9] =
    ["NaN", "+Inf", "-Inf", "1e308", "-1e308", "5e-324", "18446744073709551615", "-0", "0"];

/// Pages of known exporters in which each label value and each value is a hard one, by turns.
fn hard_pages() -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/scrapes");
    let paths = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut paths: Vec<_> =
        paths.filter(|it| it.extension().is_some_and(|it| it == "prom")).collect();
    paths.sort();
    assert!(paths.len() > 10, "{} pages", paths.len());
    let pages = paths.iter().map(|path| std::fs::read_to_string(path).unwrap());
    pages.enumerate().map(|(turn, page)| harden_page(&page, turn)).collect()
}

/// Replaces some label values and values of a page, others from page to page.
fn harden_page(page: &str, turn: usize) -> String {
    let (mut hard, mut count) = (String::new(), turn);
    for line in page.lines() {
        let Some((series, value)) = line.rsplit_once(' ').filter(|_| !line.starts_with('#')) else {
            hard.push_str(line);
            hard.push('\n');
            continue;
        };
        for (part, text) in series.split('"').enumerate() {
            count += 1;
            // Between quotes is a label value: one in seven is replaced, one begins like the original.
            match (part % 2 == 1, count % 7) {
                (true, 0) => hard.push_str(HARD_TEXTS[count / 7 % HARD_TEXTS.len()]),
                (true, 1) => hard.extend([text, HARD_TEXTS[count / 7 % HARD_TEXTS.len()]]),
                _ => hard.push_str(text),
            }
            hard.push('"');
        }
        hard.pop();
        let value = if count % 5 == 0 { HARD_VALUES[count / 5 % HARD_VALUES.len()] } else { value };
        hard.extend([" ", value, "\n"]);
    }
    hard
}

#[test]
fn every_screen_of_hostile_pages_is_drawn_as_plain_text() {
    let mut taken = 0;
    for page in hard_pages() {
        let (engine, now) = page_engine::engine_of_page(page.as_bytes());
        let ask = |question: &_| engine.answer_question(question);
        for screen in all_screens(&ask) {
            let shown = draw_screen(&ask, screen.clone(), now);
            assert_eq!(shown, None, "{screen:?}");
        }
        let Answer::Overview(overview) = engine.answer_question(&Question::Overview) else {
            panic!("no overview")
        };
        taken += usize::from(overview.nodes.live > 0);
    }
    assert!(taken > 10, "of {taken} pages only is anything shown");
}
