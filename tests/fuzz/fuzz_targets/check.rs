//! Runs one fuzz target in libFuzzer: that which the environment variable `GAUNT_FUZZ` names. `tests/fuzz/run` sets it.

#![no_main]

use std::sync::OnceLock;

use gaunt_console::drawn_screens::{all_screens, draw_screen};
use gaunt_fuzz::{CHECKS, page_engine::engine_of_page};
use libfuzzer_sys::fuzz_target;

static CHECK: OnceLock<fn(&[u8])> = OnceLock::new();

/// Any page from several nodes, through cluster, judge and answers into every screen: each is drawn as plain text.
fn check_screens(page: &[u8]) {
    let (engine, now) = engine_of_page(page);
    let ask = |question: &_| engine.answer_question(question);
    for screen in all_screens(&ask) {
        let shown = draw_screen(&ask, screen.clone(), now);
        assert_eq!(shown, None, "{screen:?}");
    }
}

fn named_check() -> fn(&[u8]) {
    let named = std::env::var("GAUNT_FUZZ").unwrap_or_default();
    let mut checks = CHECKS.into_iter().chain([("page_to_screen", check_screens as fn(&[u8]))]);
    let check = checks.find(|(name, _)| *name == named).map(|(_, check)| check);
    check.unwrap_or_else(|| panic!("GAUNT_FUZZ={named:?} names no target; see `tests/fuzz/run`"))
}

fuzz_target!(|input: &[u8]| CHECK.get_or_init(named_check)(input));
