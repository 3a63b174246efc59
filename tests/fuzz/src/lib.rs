//! What the fuzz targets check: whatever an input holds, nothing panics, and what is stated there holds.
//!
//! `fuzz_targets` runs them in libFuzzer, with sanitizers; a test of `tests/simulation` runs them on the corpora and on random
//! changes of those.

pub mod dialect_fuzz;
#[cfg(feature = "lists")]
pub mod discovery_fuzz;
pub mod filter_fuzz;
pub mod frame_fuzz;
pub mod frame_session;
#[cfg(feature = "lists")]
pub mod hosts;
pub mod json_diff_fuzz;
pub mod open_metrics;
#[cfg(feature = "pages")]
pub mod page_engine;
#[cfg(feature = "pages")]
pub mod page_to_answer;
#[cfg(feature = "pages")]
pub mod page_to_screen;
pub mod repeat;
#[cfg(feature = "pages")]
pub mod segments;
#[cfg(feature = "lists")]
pub mod site_fuzz;
pub mod text_fuzz;

/// A fuzz target: its name, which is that of its corpus too, and what it checks of an input.
pub type FuzzCheck = (&'static str, fn(&[u8]));

/// All targets; those of the screens have the corpus of the answers. Without the feature `lists` those that need the scraping
/// crate are left out, and without `pages` those that need engine and console: the others need a fifth of the crates.
pub const CHECKS: &[FuzzCheck] = &[
    ("text", text_fuzz::check_input),
    ("repeat", repeat::check_input),
    ("dialect", dialect_fuzz::check_input),
    ("open_metrics", open_metrics::check_input),
    ("filter", filter_fuzz::check_input),
    ("change", json_diff_fuzz::check_input),
    ("frame", frame_fuzz::check_input),
    ("frame_session", frame_session::check_input),
    #[cfg(feature = "lists")]
    ("hosts", hosts::check_input),
    #[cfg(feature = "lists")]
    ("discovery", discovery_fuzz::check_input),
    #[cfg(feature = "lists")]
    ("site", site_fuzz::check_input),
    #[cfg(feature = "pages")]
    ("segments", segments::check_input),
    #[cfg(feature = "pages")]
    ("page_to_answer", page_to_answer::check_input),
    #[cfg(feature = "pages")]
    ("page_to_screen", page_to_screen::check_input),
];
