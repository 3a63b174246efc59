//! Runs one fuzz target in libFuzzer: that which the environment variable `GAUNT_FUZZ` names. `tests/fuzz/run` sets it.

#![no_main]

use std::sync::OnceLock;

use gaunt_fuzz::CHECKS;
use libfuzzer_sys::fuzz_target;

static CHECK: OnceLock<fn(&[u8])> = OnceLock::new();

fn named_check() -> fn(&[u8]) {
    let named = std::env::var("GAUNT_FUZZ").unwrap_or_default();
    let check = CHECKS.iter().find(|(name, _)| *name == named).map(|(_, check)| *check);
    check.unwrap_or_else(|| panic!("GAUNT_FUZZ={named:?} names no target; see `tests/fuzz/run`"))
}

fuzz_target!(|input: &[u8]| CHECK.get_or_init(named_check)(input));
