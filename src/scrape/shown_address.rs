//! Addresses as messages show them: a user and a password in one are for its server alone.

use std::borrow::Cow;

/// What replaces a user and a password.
const HIDDEN: &str = "(not shown)";

/// An address without what is before its `@`, but for the scheme. Of an invalid one, as of a list of them, more is hidden
/// than its user and password, and never less.
pub fn shown_address(address: &str) -> Cow<'_, str> {
    let Some(end) = address.rfind('@') else { return Cow::Borrowed(address) };
    let is_scheme = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let scheme = address[..end].split_once("://").map(|(scheme, _)| scheme);
    let scheme = scheme.filter(|scheme| is_scheme(scheme));
    let begin = scheme.map_or(0, |scheme| scheme.len() + "://".len());
    Cow::Owned(format!("{}{HIDDEN}{}", &address[..begin], &address[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_and_password_are_not_shown() {
        for (address, shown) in [
            ("http://10.0.0.5:9771", "http://10.0.0.5:9771"),
            ("gpu[001-064]:9770", "gpu[001-064]:9770"),
            ("https://bob:pass@10.0.0.5:9771/a", "https://(not shown)@10.0.0.5:9771/a"),
            ("bob:pass@10.0.0.5", "(not shown)@10.0.0.5"),
            ("https://bob:pa/ss@10.0.0.5", "https://(not shown)@10.0.0.5"),
            ("https://bob:p@ss@10.0.0.5", "https://(not shown)@10.0.0.5"),
            ("bob:pa://ss@10.0.0.5", "(not shown)@10.0.0.5"),
            ("a,https://bob:pass@b,https://c:pass@d", "(not shown)@d"),
            ("@", "(not shown)@"),
        ] {
            assert_eq!(shown_address(address), shown);
        }
    }
}
