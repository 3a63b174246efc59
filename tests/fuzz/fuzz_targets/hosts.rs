//! Any text as a host list: it names no more than it may, each name stands for itself alone, and a fault is pointed at.

#![no_main]

use gaunt::gather::{Places, Usual, expand};
use libfuzzer_sys::fuzz_target;

/// The most names of one list here.
const ROOM: usize = 500;

/// The most places of a list that are written and read again.
const LOOKED_AT: usize = 50;

fuzz_target!(|list: &str| {
    match expand(list, ROOM) {
        Ok(names) => {
            assert!(names.len() <= ROOM);
            for name in &names {
                assert!(!name.is_empty() && !name.contains(',') && !name.contains(char::is_whitespace));
                assert_eq!(expand(name, 1).as_deref(), Ok(std::slice::from_ref(name)), "{list:?}");
            }
        }
        Err(error) => {
            assert!(error.at >= 1 && error.at <= list.chars().count() + 1, "{error}");
            assert!(!error.why.is_empty());
        }
    }
    let mut places = Places::new(Usual::default());
    if places.add_list(list, &"a flag".into()).is_err() {
        return;
    }
    let places = places.into_vec();
    let shown: std::collections::HashSet<String> = places.iter().map(ToString::to_string).collect();
    assert_eq!(shown.len(), places.len(), "an address is taken once");
    // A list may name twenty thousand: to look at so many each time is all that would be done.
    for place in places.iter().take(LOOKED_AT) {
        assert!(!place.host.is_empty() && place.port != 0);
        // As it is shown it can be written on the command line again.
        let mut again = Places::new(Usual::default());
        again.add_list(&place.to_string(), &"a flag".into()).expect("an address that was taken");
        assert_eq!(again.into_vec()[0].to_string(), place.to_string());
    }
});
