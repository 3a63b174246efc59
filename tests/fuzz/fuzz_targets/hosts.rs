//! Fuzz target: any text as a host list: it stays within the name limit, each name is valid on its own, and errors
//! point into the text.

#![no_main]

use gaunt_scrape::{EndpointDefaults, EndpointList, expand_host_list};
use libfuzzer_sys::fuzz_target;

/// The maximum number of names of one list here.
const ROOM: usize = 500;

/// The maximum number of endpoints of a list that are written and parsed again.
const LOOKED_AT: usize = 50;

fuzz_target!(|list: &str| {
    match expand_host_list(list, ROOM) {
        Ok(names) => {
            assert!(names.len() <= ROOM);
            for name in &names {
                assert!(
                    !name.is_empty() && !name.contains(',') && !name.contains(char::is_whitespace)
                );
                assert_eq!(
                    expand_host_list(name, 1).as_deref(),
                    Ok(std::slice::from_ref(name)),
                    "{list:?}"
                );
            }
        }
        Err(error) => {
            assert!(error.at >= 1 && error.at <= list.chars().count() + 1, "{error}");
            assert!(!error.why.is_empty());
        }
    }
    let mut places = EndpointList::new(EndpointDefaults::default());
    if places.add_list(list, &"a flag".into()).is_err() {
        return;
    }
    let places = places.into_vec();
    let shown: std::collections::HashSet<String> = places.iter().map(ToString::to_string).collect();
    assert_eq!(shown.len(), places.len(), "an address is taken once");
    // A list may name twenty thousand hosts: checking all of them would take all the time.
    for place in places.iter().take(LOOKED_AT) {
        assert!(!place.host.is_empty() && place.port != 0);
        // The displayed form can be used on the command line again.
        let mut again = EndpointList::new(EndpointDefaults::default());
        again.add_list(&place.to_string(), &"a flag".into()).expect("an address that was taken");
        assert_eq!(again.into_vec()[0].to_string(), place.to_string());
    }
});
