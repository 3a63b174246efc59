//! Any text as a Prometheus discovery list, in JSON or YAML. It is rejected with a one-line error, or
//! lists addresses that can be scraped and displayed.

use gaunt_scrape::{MAX_NAMES, TargetListNotation, parse_addresses};

/// The input is the list, in one notation or the other.
pub fn check_input(text: &[u8]) {
    let Ok(text) = std::str::from_utf8(text) else { return };
    for notation in [TargetListNotation::Json, TargetListNotation::Yaml] {
        check_list(text, notation);
    }
}

fn check_list(text: &str, notation: TargetListNotation) {
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
}
