//! Endpoints: the address of a target, how it is scraped, and which source named it.

use std::fmt;

use gaunt_schema::{SanitizedText, ScrapeTarget, TargetId};

use super::shown_address::shown_address;

mod endpoint_list;

pub use endpoint_list::{EndpointList, TargetListError, check_host_list};

/// The port of gaunt's own exporter, the default of an address without a port.
pub const DEFAULT_PORT: u16 = 9770;

/// The default path of a page, which the settings or a source can change.
pub const DEFAULT_PATH: &str = "/metrics";

/// The longest host name in DNS.
const MAX_HOST: usize = 253;

/// The longest path with its parameters, in bytes: it is sent with every request.
const MAX_PATH: usize = 1024;

/// Parts of a parameter's name that mark its value as a secret, which is not shown.
const SECRET: [&str; 5] = ["token", "key", "secret", "pass", "auth"];

/// Replaces a secret.
const HIDDEN: &str = "***";

/// The URL scheme of a target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum UrlScheme {
    /// Without TLS.
    #[default]
    Http,
    /// Over TLS.
    Https,
}

impl UrlScheme {
    /// The scheme as written before `://`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }

    /// Parses the name of a scheme.
    pub fn parse_scheme(name: &str) -> Option<Self> {
        [Self::Http, Self::Https]
            .into_iter()
            .find(|scheme| name.eq_ignore_ascii_case(scheme.as_str()))
    }
}

/// The kind of source that named an endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum EndpointNamedBy {
    /// The operator, in a flag or a local file.
    #[default]
    Operator,
    /// Another machine: an HTTP server or DNS. It must not make gaunt send requests to services of its own machine.
    Network,
}

/// Defaults for what an address leaves out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointDefaults {
    /// The URL scheme.
    pub scheme: UrlScheme,
    /// The port.
    pub port: u16,
    /// The path of the page, with its parameters.
    pub path: String,
}

impl Default for EndpointDefaults {
    fn default() -> Self {
        Self { scheme: UrlScheme::Http, port: DEFAULT_PORT, path: DEFAULT_PATH.to_owned() }
    }
}

/// One endpoint: address, node name and origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The URL scheme.
    pub scheme: UrlScheme,
    /// The host: a name, an IPv4 address, or an IPv6 address without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
    /// The path of the page, with its parameters.
    pub path: String,
    /// The node's name if the list gives one.
    pub node: Option<SanitizedText>,
    /// The origin of the list: `--targets`, a settings file, a targets file, a URL.
    pub origin: SanitizedText,
    /// The kind of source, which determines its trust.
    pub named_by: EndpointNamedBy,
}

/// Shows host and port, what differs from the defaults, and no secret.
impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.scheme == UrlScheme::Http && self.path == DEFAULT_PATH {
            return f.write_str(&self.host_and_port());
        }
        write!(f, "{}://{}", self.scheme.as_str(), self.host_and_port())?;
        let Some((path, parameters)) = self.path.split_once('?') else {
            return f.write_str(&self.path);
        };
        f.write_str(path)?;
        for (index, parameter) in parameters.split('&').enumerate() {
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            let lower = name.to_ascii_lowercase();
            let value = if SECRET.iter().any(|word| lower.contains(word)) { HIDDEN } else { value };
            write!(f, "{}{name}={value}", if index == 0 { '?' } else { '&' })?;
        }
        Ok(())
    }
}

impl Endpoint {
    /// Host and port, as in the `Host` header.
    pub(super) fn host_and_port(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }

    /// The URL, which identifies this endpoint.
    pub(super) fn to_url(&self) -> String {
        format!("{}://{}{}", self.scheme.as_str(), self.host_and_port(), self.path)
    }

    /// The target to announce for this endpoint.
    pub fn to_target(&self, id: TargetId) -> ScrapeTarget {
        ScrapeTarget {
            id,
            address: SanitizedText::new(&self.to_string()),
            node: self.node.clone(),
            origin: self.origin.clone(),
        }
    }
}

/// Host and port of an address: `gpu1`, `gpu1:9100`, `10.0.0.7:9770`, `[::1]:9770`.
pub(super) fn parse_address(text: &str, default_port: u16) -> Result<(String, u16), String> {
    if text.contains("://") || text.contains('/') {
        let shown = shown_address(text);
        return Err(format!("{shown:?} is a URL; write HOST:PORT, the page is /metrics over http"));
    }
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, after) = rest.split_once(']').unwrap_or((rest, ""));
            host.parse::<std::net::Ipv6Addr>()
                .map_err(|_| format!("{host:?} is not an IPv6 address; write [ADDRESS]:PORT"))?;
            if !after.is_empty() && !after.starts_with(':') {
                return Err(format!("{after:?} follows the IPv6 address; write [ADDRESS]:PORT"));
            }
            (host, after.strip_prefix(':'))
        }
        None => match text.split_once(':') {
            Some((_, rest)) if rest.contains(':') => {
                return Err(format!("{text:?} has two colons; write IPv6 as [ADDRESS]:PORT"));
            }
            Some((host, port)) => {
                check_host(host)?;
                (host, Some(port))
            }
            None => {
                check_host(text)?;
                (text, None)
            }
        },
    };
    let port = match port {
        None => default_port,
        Some(port) => port
            .parse()
            .ok()
            .filter(|port| *port != 0)
            .ok_or_else(|| format!("{port:?} is not a port; write a number from 1 to 65535"))?,
    };
    Ok((host.to_owned(), port))
}

/// Checks a host name or an IPv4 address.
pub(super) fn check_host(host: &str) -> Result<(), String> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    if host.is_empty() {
        return Err("address without a host; write HOST:PORT".to_owned());
    }
    if host.len() > MAX_HOST {
        return Err(format!("host name of {} characters; the maximum is {MAX_HOST}", host.len()));
    }
    match host.chars().find(|c| !c.is_ascii() || !is_allowed(*c as u8)) {
        None => Ok(()),
        Some(forbidden) => Err(format!(
            "{forbidden:?} in host name {host:?}; allowed are letters, digits, \"-\", \".\" and \"_\""
        )),
    }
}

/// Checks the path of a page: it becomes part of a request line.
pub fn check_path(path: &str) -> Result<(), String> {
    if !path.starts_with('/') {
        return Err(format!("{path:?} is not a path; it must begin with \"/\""));
    }
    if path.len() > MAX_PATH {
        return Err(format!("path of {} bytes; the maximum is {MAX_PATH}", path.len()));
    }
    match path.bytes().find(|byte| !byte.is_ascii_graphic() || *byte == b'#') {
        None => Ok(()),
        Some(forbidden) => {
            Err(format!("{:?} in path {path:?}; write it as %{forbidden:02X}", forbidden as char))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample_endpoint(scheme: UrlScheme, path: &str) -> Endpoint {
        Endpoint {
            scheme,
            host: "gpu1".to_owned(),
            port: 9100,
            path: path.to_owned(),
            node: None,
            origin: "test".into(),
            named_by: EndpointNamedBy::Operator,
        }
    }

    #[test]
    fn endpoint_shows_what_differs_from_defaults_and_no_secret() {
        let table = [
            (UrlScheme::Http, "/metrics", "gpu1:9100"),
            (UrlScheme::Https, "/metrics", "https://gpu1:9100/metrics"),
            (
                UrlScheme::Http,
                "/snmp?target=sw1&module=if_mib",
                "http://gpu1:9100/snmp?target=sw1&module=if_mib",
            ),
            (
                UrlScheme::Http,
                "/m?Access_Token=abc&x=1&apikey=d",
                "http://gpu1:9100/m?Access_Token=***&x=1&apikey=***",
            ),
        ];
        for (scheme, path, expected) in table {
            assert_eq!(sample_endpoint(scheme, path).to_string(), expected);
        }
        assert_ne!(
            sample_endpoint(UrlScheme::Http, "/m?key=1").to_url(),
            sample_endpoint(UrlScheme::Http, "/m?key=2").to_url()
        );
    }

    #[test]
    fn path_cannot_become_two_lines_of_a_request() {
        for wrong in
            ["metrics", "", "/a b", "/a\r\nX: y", "/ä", "/a#b", &format!("/{}", "x".repeat(1_100))]
        {
            assert!(check_path(wrong).is_err(), "{wrong:?}");
        }
        check_path("/snmp?target=10.0.0.1&module=if_mib").unwrap();
        assert_eq!(check_path("/a b").unwrap_err(), "' ' in path \"/a b\"; write it as %20");
    }
}
