//! Access settings: TLS and credentials for targets, target sources and Alertmanagers.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use gaunt_scrape::{HttpCredentials, ServerAccess, tls::TlsOptions};

/// TLS settings of a group of servers.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct TlsSection {
    ca_file: Option<PathBuf>,
    server_name: Option<String>,
    cert_file: Option<PathBuf>,
    key_file: Option<PathBuf>,
    insecure: bool,
}

impl TlsSection {
    /// Whether a client certificate is configured.
    pub(super) fn has_client_certificate(&self) -> bool {
        self.cert_file.is_some()
    }

    /// The expected server name, if it is not the host of the address.
    pub(super) fn server_name(&self) -> Option<&str> {
        self.server_name.as_deref()
    }
}

/// User name and password file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BasicAuthSection {
    user: String,
    password_file: PathBuf,
}

/// Checks across keys; `section` names it, such as `group "a"`.
pub(super) fn check_access(
    section: &str,
    tls: &TlsSection,
    bearer: Option<&PathBuf>,
    basic: Option<&BasicAuthSection>,
) -> Result<(), String> {
    if bearer.is_some() && basic.is_some() {
        return Err(format!("{section} has bearer_file and basic; keep one"));
    }
    if tls.cert_file.is_some() != tls.key_file.is_some() {
        return Err(format!("{section} has one of tls.cert_file and tls.key_file; give both"));
    }
    if tls.insecure && tls.ca_file.is_some() {
        return Err(format!("{section} has tls.insecure and tls.ca_file; keep one"));
    }
    Ok(())
}

/// Converts these keys to options; relative paths are resolved against the settings file.
pub(super) fn of(
    tls: TlsSection,
    bearer_file: Option<PathBuf>,
    basic: Option<BasicAuthSection>,
    folder: &Path,
) -> ServerAccess {
    let bearer = bearer_file.map(|file| HttpCredentials::Bearer(folder.join(file)));
    let basic = basic.map(|basic| HttpCredentials::Basic {
        user: basic.user,
        password_file: folder.join(basic.password_file),
    });
    let client = tls.cert_file.zip(tls.key_file);
    ServerAccess {
        tls: TlsOptions {
            ca_file: tls.ca_file.map(|file| folder.join(file)),
            server_name: tls.server_name,
            client_certificate: client.map(|(cert, key)| (folder.join(cert), folder.join(key))),
            insecure: tls.insecure,
        },
        credentials: bearer.or(basic),
        socket: None,
    }
}
