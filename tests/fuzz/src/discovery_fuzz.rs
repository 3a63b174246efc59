//! Fuzz target: any text as a Prometheus discovery list, in JSON or YAML. It is rejected with a one-line error, or
//! lists addresses that can be scraped and displayed.

#![no_main]

use gaunt_scrape::{MAX_NAMES, TargetListNotation, parse_addresses};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (bool, &str)| {
    let (json, text) = input;
    let notation = if json { TargetListNotation::Json } else { TargetListNotation::Yaml };
    match parse_addresses(text, notation) {
        Ok(named) => {
            assert!(named.len() <= MAX_NAMES);
            for address in &named {
                assert!(
                    !address.is_empty() && !address.chars().any(char::is_control),
                    "{address:?}"
                );
            }
            assert_eq!(parse_addresses(text, notation).as_ref(), Ok(&named));
        }
        Err(why) => assert!(!why.is_empty() && !why.contains('\n'), "{why:?}"),
    }
});
