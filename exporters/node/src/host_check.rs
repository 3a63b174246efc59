//! The check of a request's `Host` header before any response: foreign web pages must not read the metrics.
//!
//! A web page can make a browser send requests to any address that the browser reaches, and can map its own name to any
//! address (DNS rebinding). The check prevents that: it rejects requests for another host name, and requests that
//! the browser marks as cross-site.

use std::{fs, net::IpAddr, sync::Arc};

use hyper::{
    HeaderMap, StatusCode, Uri,
    header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, HOST, HeaderValue, X_CONTENT_TYPE_OPTIONS},
    http::uri::Authority,
};

/// The resolver's search domains; this machine's full name is in one of them.
const RESOLV_CONF: &str = "/etc/resolv.conf";

/// The most domains that are read; the resolver itself uses six.
const MAX_DOMAINS: usize = 16;

/// The host names of a server, in addition to its addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostNames {
    names: Arc<[String]>,
    server: &'static str,
    option: &'static str,
}

/// Why a request is rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MisdirectedRequest {
    /// The response status.
    pub status: StatusCode,
    /// The response text.
    pub why: String,
}

impl HostNames {
    /// These names, `localhost`, and those of this machine. `server` and `option` are for the rejection message: the
    /// server's name, and the option that adds a host name.
    pub fn new(extra_names: &[String], server: &'static str, option: &'static str) -> Self {
        let machine = rustix::system::uname().nodename().to_string_lossy().to_ascii_lowercase();
        let resolver = fs::read_to_string(RESOLV_CONF).unwrap_or_default();
        let mut names = machine_names(&machine, &resolver);
        names.push("localhost".to_owned());
        names
            .extend(extra_names.iter().map(|name| name.trim_end_matches('.').to_ascii_lowercase()));
        Self { names: names.into(), server, option }
    }

    /// Rejects requests for another host, and requests from a page of another site.
    pub fn check_request(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), MisdirectedRequest> {
        if headers.get("sec-fetch-site").is_some_and(|site| site == "cross-site") {
            let why = "cross-site request rejected; open the address itself\n".to_owned();
            return Err(MisdirectedRequest { status: StatusCode::FORBIDDEN, why });
        }
        // The request line takes precedence over the header. A client that sends no host is no browser.
        let line = uri.authority().map(Authority::as_str);
        let header = || headers.get(HOST).map(|host| host.to_str().unwrap_or(""));
        let Some(host) = line.or_else(header) else { return Ok(()) };
        if headers.get_all(HOST).iter().count() > 1 {
            let why = "the request has several Host headers; send one\n".to_owned();
            return Err(MisdirectedRequest { status: StatusCode::BAD_REQUEST, why });
        }
        if self.contains(host) {
            return Ok(());
        }
        let host: String = host.chars().filter(char::is_ascii_graphic).collect();
        let why = format!(
            "{} does not accept the host name {host:?}; use its address, or add the name with {}\n",
            self.server, self.option
        );
        Err(MisdirectedRequest { status: StatusCode::MISDIRECTED_REQUEST, why })
    }

    /// Whether a `Host` header names this server. Addresses are always accepted: only names can be rebound.
    fn contains(&self, host: &str) -> bool {
        let name = without_port(host);
        if name.parse::<IpAddr>().is_ok() {
            return true;
        }
        let name = name.trim_end_matches('.').to_ascii_lowercase();
        self.names.contains(&name)
    }
}

/// A machine's name as it is, without its domain, and in each search domain of the resolver.
fn machine_names(machine: &str, resolver: &str) -> Vec<String> {
    let machine = machine.trim_end_matches('.');
    if machine.is_empty() {
        return Vec::new();
    }
    let short = machine.split('.').next().unwrap_or(machine);
    let domains = resolver.lines().filter_map(|line| {
        let (keyword, domains) = line.trim().split_once([' ', '\t'])?;
        matches!(keyword, "search" | "domain").then_some(domains)
    });
    let domains = domains.flat_map(str::split_whitespace).take(MAX_DOMAINS);
    let domain = domains.map(|domain| domain.trim_matches('.').to_ascii_lowercase());
    let domain = domain.filter(|domain| !domain.is_empty());
    let mut names: Vec<_> = domain.map(|domain| format!("{short}.{domain}")).collect();
    names.extend([machine.to_owned(), short.to_owned()]);
    names
}

/// A host without its port and without the brackets of an IPv6 address.
fn without_port(host: &str) -> &str {
    if let Some(inner) = host.strip_prefix('[') {
        return inner.split(']').next().unwrap_or(inner);
    }
    host.rsplit_once(':').map_or(host, |(name, _)| name)
}

/// Response headers that forbid other sites to read the response, and caches to store it.
pub fn protect_from_browsers(headers: &mut HeaderMap) {
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static("default-src 'none'"));
    headers.insert("cross-origin-resource-policy", HeaderValue::from_static("same-origin"));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_host(host: Option<&str>) -> Result<(), StatusCode> {
        let names = HostNames::new(&["Gaunt.example".to_owned()], "it", "--name");
        let mut headers = HeaderMap::new();
        if let Some(host) = host {
            headers.insert(HOST, host.parse().unwrap());
        }
        names
            .check_request(&Uri::from_static("/metrics"), &headers)
            .map_err(|refused| refused.status)
    }

    #[test]
    fn host_names_include_addresses_and_given_names_only() {
        for host in [
            "localhost:9771",
            "127.0.0.1:9771",
            "[::1]:9771",
            "10.0.0.5",
            "gaunt.example:9771",
            "GAUNT.example.",
        ] {
            assert_eq!(check_host(Some(host)), Ok(()), "{host}");
        }
        assert_eq!(check_host(None), Ok(()), "a browser always names a host");
        for host in ["evil.example", "localhost.evil.example:9771", "", "127.0.0.1.evil.example"] {
            assert_eq!(check_host(Some(host)), Err(StatusCode::MISDIRECTED_REQUEST), "{host}");
        }
    }

    #[test]
    fn host_check_refuses_second_hosts_and_cross_site_requests() {
        let names = HostNames::new(&[], "it", "--name");
        let mut headers = HeaderMap::new();
        headers.append(HOST, HeaderValue::from_static("localhost"));
        headers.append(HOST, HeaderValue::from_static("evil.example"));
        let refused = names.check_request(&Uri::from_static("/"), &headers).unwrap_err();
        assert_eq!(refused.status, StatusCode::BAD_REQUEST);
        headers.clear();
        headers.insert("sec-fetch-site", HeaderValue::from_static("cross-site"));
        let refused = names.check_request(&Uri::from_static("/"), &headers).unwrap_err();
        assert_eq!(refused.status, StatusCode::FORBIDDEN);
    }

    #[test]
    fn host_names_of_machine_include_search_domains() {
        let resolver = "nameserver 10.0.0.1\nsearch cluster.local. Example.org\n# domain no\n";
        let names = machine_names("gpu-0417", resolver);
        assert_eq!(
            names,
            ["gpu-0417.cluster.local", "gpu-0417.example.org", "gpu-0417", "gpu-0417"]
        );
        assert_eq!(machine_names("gpu-0417.hall", ""), ["gpu-0417.hall", "gpu-0417"]);
        assert!(machine_names("", resolver).is_empty());
    }
}
