//! Spellings of machine names: which names differ only in case or in their domain.

use std::net::IpAddr;

use gaunt_schema::SanitizedText;

/// The name without its domain in lower case; an IP address is whole.
pub(super) fn short_name(name: &str) -> SanitizedText {
    let is_address = name.parse::<IpAddr>().is_ok();
    let short = name.split_once('.').filter(|_| !is_address).map_or(name, |(short, _)| short);
    SanitizedText::from(short.to_ascii_lowercase())
}

/// Whether two names are those of one machine: equal but for case, or one is the other without its domain.
pub(super) fn is_same_name(a: &str, b: &str) -> bool {
    let is_domain_left_out =
        || a.contains('.') != b.contains('.') && short_name(a) == short_name(b);
    a.eq_ignore_ascii_case(b) || is_domain_left_out()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_differ_in_case_or_domain_only() {
        assert!(is_same_name("gpu007", "GPU007"));
        assert!(is_same_name("gpu007.hpc.example", "gpu007"));
        assert!(!is_same_name("gpu007.a.example", "gpu007.b.example"));
        assert!(!is_same_name("gpu007", "gpu070"));
        assert!(!is_same_name("10.0.0.7", "10.0.0.8"));
        assert!(!is_same_name("10.0.0.7", "10"));
    }
}
