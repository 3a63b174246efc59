//! What the fuzz targets check: whatever an input holds, nothing panics, and what is stated there holds.
//!
//! `fuzz_targets` runs them in libFuzzer, with sanitizers; a test of `tests/simulation` runs them on the corpora and on random
//! changes of those.

pub mod dialect_fuzz;
pub mod discovery_fuzz;
pub mod filter_fuzz;
pub mod frame_fuzz;
pub mod frame_session;
pub mod hosts;
pub mod json_diff_fuzz;
pub mod open_metrics;
pub mod page_engine;
pub mod page_to_answer;
pub mod page_to_screen;
pub mod repeat;
pub mod segments;
pub mod site_fuzz;
pub mod text_fuzz;

/// A fuzz target: its name, which is that of its corpus too, and what it checks of an input.
pub type FuzzCheck = (&'static str, fn(&[u8]));

/// All targets. That of the screens has the corpus of the answers.
pub const CHECKS: [FuzzCheck; 14] = [
    ("text", text_fuzz::check_input),
    ("repeat", repeat::check_input),
    ("dialect", dialect_fuzz::check_input),
    ("open_metrics", open_metrics::check_input),
    ("filter", filter_fuzz::check_input),
    ("change", json_diff_fuzz::check_input),
    ("hosts", hosts::check_input),
    ("discovery", discovery_fuzz::check_input),
    ("segments", segments::check_input),
    ("site", site_fuzz::check_input),
    ("frame", frame_fuzz::check_input),
    ("frame_session", frame_session::check_input),
    ("page_to_answer", page_to_answer::check_input),
    ("page_to_screen", page_to_screen::check_input),
];
