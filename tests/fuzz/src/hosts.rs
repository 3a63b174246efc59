//! Any text as a host list: it stays within the name limit, each name is valid on its own, and errors
//! point into the text.

use gaunt_scrape::{EndpointDefaults, EndpointList, expand_host_list};

/// The maximum number of names of one list here.
const MAX_HOSTS: usize = 500;

/// The maximum number of endpoints of a list that are written and parsed again.
const MAX_CHECKED: usize = 50;

/// The input is the list.
pub fn check_input(list: &[u8]) {
    let Ok(list) = std::str::from_utf8(list) else { return };
    match expand_host_list(list, MAX_HOSTS) {
        Ok(names) => {
            assert!(names.len() <= MAX_HOSTS);
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
    let mut endpoints = EndpointList::new(EndpointDefaults::default());
    if endpoints.add_list(list, &"a flag".into()).is_err() {
        return;
    }
    let endpoints = endpoints.into_vec();
    let shown: std::collections::HashSet<String> =
        endpoints.iter().map(ToString::to_string).collect();
    assert_eq!(shown.len(), endpoints.len(), "an address is listed once");
    // A list may have twenty thousand hosts: checking all of them is too slow.
    for endpoint in endpoints.iter().take(MAX_CHECKED) {
        assert!(!endpoint.host.is_empty() && endpoint.port != 0);
        // The displayed form can be used on the command line again.
        let mut again = EndpointList::new(EndpointDefaults::default());
        again
            .add_list(&endpoint.to_string(), &"a flag".into())
            .expect("an address that was parsed before");
        assert_eq!(again.into_vec()[0].to_string(), endpoint.to_string());
    }
}
