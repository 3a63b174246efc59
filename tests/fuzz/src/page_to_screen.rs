//! Any page from several nodes, through cluster, judge and answers into every screen: each is drawn as plain text.

use gaunt_console::drawn_screens::{all_screens, draw_screen};

use super::page_engine::engine_of_page;

/// The input is the page.
pub fn check_input(page: &[u8]) {
    let (engine, now) = engine_of_page(page);
    let ask = |question: &_| engine.answer_question(question);
    for screen in all_screens(&ask) {
        let shown = draw_screen(&ask, screen.clone(), now);
        assert_eq!(shown, None, "{screen:?}");
    }
}
