//! Fuzz target: any bytes as an OpenMetrics page: it is rejected or parsed; a strict text parser that ignores metric
//! families finds the same samples.

#![no_main]

use gaunt_schema::{
    Failure,
    text::{Limits, decode, decode_open_metrics},
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|body: &[u8]| {
    let limits = Limits { samples: 100, line_bytes: 4_000, ..Limits::default() };
    match decode_open_metrics(body, &limits) {
        Ok(page) => {
            let as_text = decode(body, &limits);
            let told = as_text.map(|page| page.report.samples.len()).unwrap_or_default();
            assert!(told <= page.report.samples.len());
        }
        Err(Failure::NotAPage(why)) => assert!(why.starts_with("not OpenMetrics: ")),
        Err(Failure::TooLarge(_)) => {}
        Err(other) => panic!("{other:?}"),
    }
});
