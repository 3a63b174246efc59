//! The web configuration file in the format of Prometheus' exporter-toolkit: its settings, read strictly.

use std::{
    collections::BTreeMap,
    fs::File,
    io::Read as _,
    path::{Path, PathBuf},
    time::Duration,
};

use gaunt_schema::{plain_error, time};
use hyper::header::{HeaderName, HeaderValue};
use serde::Deserialize;

use super::config_error::WebConfigError;

/// The largest file that is read: a web configuration with inline certificates has some kilobytes.
const MAX_FILE: u64 = 1 << 20;

/// The most users, and the longest user name.
const MAX_USERS: usize = 1_000;
const MAX_USER_NAME: usize = 255;

/// The highest bcrypt cost. Each step doubles the time; 18 takes about ten seconds.
const MAX_COST: u32 = 18;

/// The headers that may be set, and the values that they may have if these are fixed.
const HEADERS: [(&str, &[&str]); 5] = [
    ("Strict-Transport-Security", &[]),
    ("X-Content-Type-Options", &["nosniff"]),
    ("X-Frame-Options", &["deny", "sameorigin"]),
    ("X-XSS-Protection", &[]),
    ("Content-Security-Policy", &[]),
];

/// The content of the file.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct ConfigDocument {
    tls_server_config: Option<TlsSettings>,
    http_server_config: Option<HttpSettings>,
    rate_limit: Option<RateSettings>,
    basic_auth_users: Option<BTreeMap<String, String>>,
}

/// The section `tls_server_config`. Empty texts count as absent.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct TlsSettings {
    pub(super) cert: String,
    pub(super) key: String,
    pub(super) client_ca: String,
    pub(super) cert_file: String,
    pub(super) key_file: String,
    pub(super) client_auth_type: String,
    pub(super) client_ca_file: String,
    pub(super) cipher_suites: Vec<String>,
    pub(super) curve_preferences: Vec<String>,
    pub(super) min_version: Option<String>,
    pub(super) max_version: Option<String>,
    pub(super) prefer_server_cipher_suites: Option<bool>,
    pub(super) client_allowed_sans: Option<Vec<String>>,
}

/// The section `http_server_config`.
#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
struct HttpSettings {
    http2: bool,
    headers: BTreeMap<String, String>,
}

impl Default for HttpSettings {
    fn default() -> Self {
        Self { http2: true, headers: BTreeMap::new() }
    }
}

/// The section `rate_limit`.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct RateSettings {
    burst: u32,
    interval: String,
}

/// A rate limit on requests: one more each interval, and so many at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RequestRate {
    pub(super) interval: Duration,
    pub(super) burst: u32,
}

/// The settings of a file, checked except for certificates and keys.
pub(super) struct ConfigFile {
    /// Where it was read; relative paths in it begin at its folder.
    pub(super) path: PathBuf,
    /// TLS, if the section is in use.
    pub(super) tls: Option<TlsSettings>,
    /// Whether clients may choose HTTP/2, with TLS. It decides which cipher suites are required.
    pub(super) http2: bool,
    /// Headers of each response.
    pub(super) headers: Vec<(HeaderName, HeaderValue)>,
    /// The rate limit, if set.
    pub(super) rate: Option<RequestRate>,
    /// The bcrypt hash of each user's password.
    pub(super) users: BTreeMap<String, String>,
}

impl TlsSettings {
    /// Whether any setting asks for TLS.
    fn is_enabled(&self) -> bool {
        [
            &self.cert,
            &self.cert_file,
            &self.key,
            &self.key_file,
            &self.client_ca,
            &self.client_ca_file,
            &self.client_auth_type,
        ]
        .into_iter()
        .any(|text| !text.is_empty())
    }
}

impl ConfigFile {
    /// Reads and checks the file.
    pub(super) fn read_file(path: &Path) -> Result<Self, WebConfigError> {
        let bytes = read_bounded(path)?;
        let invalid = |why: &str| WebConfigError::Format { path: path.into(), why: why.to_owned() };
        let text = str::from_utf8(&bytes).map_err(|_| invalid("is not UTF-8 text"))?;
        let document: Option<ConfigDocument> = serde_saphyr::from_str(text).map_err(|error| {
            let parses = serde_saphyr::from_str::<serde::de::IgnoredAny>(text).is_ok();
            // The parser shows the lines around the error, which may have a key: only the first line is told.
            let message = error.to_string();
            let message = message.lines().next().unwrap_or_default();
            invalid(&plain_error::document(message, "YAML", parses))
        })?;
        let document = document.unwrap_or_default();
        let http = document.http_server_config.unwrap_or_default();
        let users = document.basic_auth_users.unwrap_or_default();
        check_users(path, &users)?;
        Ok(Self {
            path: path.to_path_buf(),
            tls: document.tls_server_config.filter(TlsSettings::is_enabled),
            http2: http.http2,
            headers: check_headers(path, &http.headers)?,
            rate: document.rate_limit.map_or(Ok(None), |rate| check_rate(path, &rate))?,
            users,
        })
    }

    /// A path in the file.
    pub(super) fn resolve_path(&self, text: &str) -> PathBuf {
        self.path.parent().unwrap_or(Path::new("")).join(text)
    }
}

/// Reads a file of at most [`MAX_FILE`] bytes.
pub(super) fn read_bounded(path: &Path) -> Result<Vec<u8>, WebConfigError> {
    let failed = |error| WebConfigError::Read { path: path.into(), why: plain_error::io(&error) };
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(failed)?;
    file.take(MAX_FILE + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > MAX_FILE {
        let why = format!("has more than {MAX_FILE} bytes");
        return Err(WebConfigError::Format { path: path.into(), why });
    }
    Ok(bytes)
}

fn check_headers(
    path: &Path,
    headers: &BTreeMap<String, String>,
) -> Result<Vec<(HeaderName, HeaderValue)>, WebConfigError> {
    let check = |(name, value): (&String, &String)| {
        let failed = |why: String| WebConfigError::of_setting(path, "headers", why);
        let known = HEADERS.iter().find(|(known, _)| known == name);
        let Some((_, values)) = known else {
            let names = HEADERS.map(|(name, _)| name).join(", ");
            return Err(failed(format!("{name:?} cannot be set; use one of {names}")));
        };
        if !values.is_empty() && !values.contains(&value.as_str()) {
            return Err(failed(format!("{name} must be {}", values.join(" or "))));
        }
        let invalid =
            |_| failed(format!("the value of {name} has characters that no header may have"));
        let value = HeaderValue::from_str(value).map_err(invalid)?;
        let header = HeaderName::from_bytes(name.as_bytes());
        Ok((header.map_err(|_| failed(format!("{name:?} is no header name")))?, value))
    };
    headers.iter().map(check).collect()
}

/// The rate limit; none with an interval of zero.
fn check_rate(path: &Path, rate: &RateSettings) -> Result<Option<RequestRate>, WebConfigError> {
    let text = rate.interval.trim();
    if text.is_empty() || text == "0" {
        return Ok(None);
    }
    let failed = || {
        let why = "must be a duration with its unit, such as 100ms or 1s, of at most 1h";
        WebConfigError::of_setting(path, "rate_limit.interval", why)
    };
    let interval = time::parse_duration(text).ok_or_else(failed)?;
    if interval > Duration::from_hours(1) {
        return Err(failed());
    }
    Ok((!interval.is_zero()).then_some(RequestRate { interval, burst: rate.burst }))
}

fn check_users(path: &Path, users: &BTreeMap<String, String>) -> Result<(), WebConfigError> {
    let failed = |why: String| WebConfigError::of_setting(path, "basic_auth_users", why);
    if users.len() > MAX_USERS {
        return Err(failed(format!("{} users; at most {MAX_USERS} are allowed", users.len())));
    }
    for (user, hash) in users {
        if user.len() > MAX_USER_NAME || user.contains(':') {
            let why =
                format!("user {user:?}: a name has no colon and at most {MAX_USER_NAME} bytes");
            return Err(failed(why));
        }
        let Ok(parts) = hash.parse::<bcrypt::HashParts>() else {
            let why = format!(
                "the password of {user:?} is no bcrypt hash; create one with `htpasswd -nBC 10 {user}`"
            );
            return Err(failed(why));
        };
        let cost = parts.get_cost();
        if !(4..=MAX_COST).contains(&cost) {
            let why = format!(
                "the hash of {user:?} has cost {cost}; use 4 to {MAX_COST}: `htpasswd -nBC 10 {user}`"
            );
            return Err(failed(why));
        }
    }
    Ok(())
}
