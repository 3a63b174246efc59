//! Access to targets: TLS and credentials of one group, read from files and reloaded when these change.
//!
//! Credentials belong to a group, not to a host: they are sent with requests to its targets and nowhere else.
//! Redirects are not followed, nothing here is ever logged, and secrets are never part of the settings.

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use base64::prelude::{BASE64_STANDARD, Engine as _};
use gaunt_schema::{SanitizedText, plain_error};
use hyper::header::HeaderValue;
use tokio::{sync::watch, task::JoinSet, time::sleep};
use tokio_rustls::{
    TlsConnector,
    rustls::{ClientConfig, pki_types::ServerName},
};

use super::file_polling;
use crate::tls::{self, TlsError, TlsOptions};

/// The time between two polls of credential files: a renewed certificate or token takes effect within it.
const LOOK: Duration = Duration::from_secs(5);

/// The largest secret, in bytes: a token with all its claims is some kilobytes.
const MAX_SECRET: u64 = 64 << 10;

/// Transport and credentials for the targets of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerAccess {
    /// TLS options, for the `https` scheme.
    pub tls: TlsOptions,
    /// The HTTP credentials.
    pub credentials: Option<HttpCredentials>,
    /// A Unix socket that takes the place of TCP for the API of a server, in a simulation.
    pub socket: Option<PathBuf>,
}

/// HTTP credentials for a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HttpCredentials {
    /// The bearer token in this file.
    Bearer(PathBuf),
    /// Basic authentication with the password in this file.
    Basic {
        /// The user name.
        user: String,
        /// The path of the password file.
        password_file: PathBuf,
    },
}

/// The loaded credentials of one group. Their text is never shown.
#[derive(Clone)]
pub struct LoadedCredentials {
    /// The `Authorization` header.
    pub authorization: Option<HeaderValue>,
    connector: TlsConnector,
    server_name: Option<ServerName<'static>>,
    /// As in the access.
    pub(super) socket: Option<PathBuf>,
}

impl fmt::Debug for LoadedCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Keys(not shown)")
    }
}

/// The credentials, or why there are none. A group with unreadable files is not scraped without them.
pub type CredentialState = Result<Arc<LoadedCredentials>, SanitizedText>;

impl LoadedCredentials {
    /// The trusted CAs and our client certificate.
    pub fn tls_config(&self) -> &ClientConfig {
        self.connector.config()
    }

    /// The TLS connector.
    pub(super) fn tls_connector(&self) -> &TlsConnector {
        &self.connector
    }

    /// The name that the certificate of a server on `host` must match.
    pub(super) fn server_name(&self, host: &str) -> Result<ServerName<'static>, String> {
        match &self.server_name {
            Some(name) => Ok(name.clone()),
            None => ServerName::try_from(host.to_owned())
                .map_err(|_| format!("{host:?} is not a valid certificate name; set server_name")),
        }
    }
}

impl ServerAccess {
    /// Reads all files.
    fn read_credentials(&self) -> Result<LoadedCredentials, TlsError> {
        let authorization =
            self.credentials.as_ref().map(HttpCredentials::authorization_header).transpose()?;
        let connector = TlsConnector::from(Arc::new(tls::client_config(&self.tls)?));
        let server_name = self.tls.server_name.clone().map(ServerName::try_from).transpose();
        let server_name = server_name.map_err(|error| TlsError::Content {
            path: self.tls.server_name.clone().unwrap_or_default().into(),
            why: {
                tracing::debug!(%error, "invalid server_name");
                "server_name is not a valid certificate name".to_owned()
            },
        })?;
        let socket = self.socket.clone();
        Ok(LoadedCredentials { authorization, connector, server_name, socket })
    }

    /// Reads all files once, and returns their number with the first error.
    pub fn check_files(&self) -> (usize, Option<String>) {
        let files = self.credential_files().len();
        let error = if files == 0 { None } else { self.read_credentials().err() };
        (files, error.map(|error| error.to_string()))
    }

    fn credential_files(&self) -> Vec<PathBuf> {
        let mut files: Vec<PathBuf> = self.tls.ca_file.iter().cloned().collect();
        files.extend(
            self.tls.client_certificate.iter().flat_map(|(cert, key)| [cert.clone(), key.clone()]),
        );
        match &self.credentials {
            Some(
                HttpCredentials::Bearer(path) | HttpCredentials::Basic { password_file: path, .. },
            ) => {
                files.push(path.clone());
            }
            None => {}
        }
        files
    }

    /// The credentials, kept up to date as long as `tasks` run.
    pub async fn watch_credentials(
        self,
        tasks: &mut JoinSet<()>,
    ) -> watch::Receiver<CredentialState> {
        let access = Arc::new(self);
        let (state, marks) = read_if_changed(&access, None).await;
        let (sender, receiver) =
            watch::channel(state.unwrap_or_else(|| Err("cannot read its credentials".into())));
        if !marks.is_empty() {
            tasks.spawn(refresh_credentials(access, marks, sender));
        }
        receiver
    }
}

/// The marks of the files when they were read.
type CredentialFileMarks = Vec<Option<file_polling::FileMark>>;

/// Reads the files if their marks changed, on a thread that may block on a disk.
async fn read_if_changed(
    access: &Arc<ServerAccess>,
    previous: Option<CredentialFileMarks>,
) -> (Option<CredentialState>, CredentialFileMarks) {
    let access = access.clone();
    let work = tokio::task::spawn_blocking(move || {
        let marks: CredentialFileMarks = access
            .credential_files()
            .iter()
            .map(|path| file_polling::FileMark::of(path).ok())
            .collect();
        if previous.as_ref() == Some(&marks) {
            return (None, marks);
        }
        let state = access
            .read_credentials()
            .map(Arc::new)
            .map_err(|error| SanitizedText::new(&error.to_string()));
        (Some(state), marks)
    });
    work.await.unwrap_or_else(|error| {
        tracing::error!(%error, "reading credentials ended unexpectedly");
        let why = SanitizedText::new("reading its credentials ended unexpectedly; see the log");
        (Some(Err(why)), CredentialFileMarks::new())
    })
}

/// Reloads changed files. Valid credentials stay until new valid ones replace them.
async fn refresh_credentials(
    access: Arc<ServerAccess>,
    mut marks: CredentialFileMarks,
    sender: watch::Sender<CredentialState>,
) {
    loop {
        sleep(LOOK).await;
        let (state, new_marks) = read_if_changed(&access, Some(marks)).await;
        marks = new_marks;
        match state {
            None => {}
            Some(Ok(credentials)) => {
                tracing::debug!("reloaded credentials");
                if sender.send(Ok(credentials)).is_err() {
                    return;
                }
            }
            Some(Err(why)) => {
                tracing::error!(%why, "cannot use changed credentials");
                sender.send_if_modified(|state| {
                    let has_no_valid = state.is_err();
                    if has_no_valid {
                        *state = Err(why);
                    }
                    has_no_valid
                });
            }
        }
        if sender.is_closed() {
            return;
        }
    }
}

impl HttpCredentials {
    fn authorization_header(&self) -> Result<HeaderValue, TlsError> {
        let (path, text) = match self {
            Self::Bearer(path) => (path, format!("Bearer {}", read_secret(path)?)),
            Self::Basic { user, password_file } => {
                let pair = format!("{user}:{}", read_secret(password_file)?);
                (password_file, format!("Basic {}", BASE64_STANDARD.encode(pair)))
            }
        };
        let mut header = HeaderValue::from_str(&text).map_err(|_| TlsError::Content {
            path: path.clone(),
            why: "it has characters that are not allowed in a header".to_owned(),
        })?;
        // Libraries that print requests leave it out.
        header.set_sensitive(true);
        Ok(header)
    }
}

/// The text of a secret's file, without the line end that editors add.
fn read_secret(path: &Path) -> Result<String, TlsError> {
    let text = file_polling::read_bounded(path, MAX_SECRET).map_err(|error| TlsError::Read {
        path: path.to_path_buf(),
        why: plain_error::io(&error),
    })?;
    let text = text.trim_end_matches(['\r', '\n']);
    if text.is_empty() {
        return Err(TlsError::Content { path: path.to_path_buf(), why: "it is empty".to_owned() });
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn secret_is_never_shown() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(&file, "hunter2\n").unwrap();
        let access = ServerAccess {
            credentials: Some(HttpCredentials::Bearer(file.path().to_path_buf())),
            tls: TlsOptions { insecure: true, ..TlsOptions::default() },
            socket: None,
        };
        let credentials = access.read_credentials().unwrap();
        assert_eq!(credentials.authorization.as_ref().unwrap(), "Bearer hunter2");
        for shown in [
            format!("{access:?}"),
            format!("{credentials:?}"),
            format!("{:?}", credentials.authorization),
        ] {
            assert!(!shown.contains("hunter2"), "{shown}");
        }
    }

    #[test]
    fn unusable_secret_file_is_named_without_its_content() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().to_path_buf();
        let header = |content: &str| {
            fs::write(&path, content).unwrap();
            HttpCredentials::Bearer(path.clone())
                .authorization_header()
                .map_err(|error| error.to_string())
        };
        for (content, why) in
            [("", "it is empty"), ("a\nb", "characters that are not allowed in a header")]
        {
            let error = header(content).unwrap_err();
            assert!(error.starts_with(path.to_str().unwrap()) && error.contains(why), "{error}");
        }
        let missing =
            HttpCredentials::Bearer("/nowhere/token".into()).authorization_header().unwrap_err();
        assert!(missing.to_string().starts_with("cannot read /nowhere/token: "), "{missing}");
        header(&"x".repeat(70_000)).unwrap_err();
    }
}
