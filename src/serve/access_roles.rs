//! Access roles of clients: by a token, whose file is read at each use and compared in constant time, or by the user that a
//! trusted proxy states.

use std::{
    collections::BTreeMap,
    io::{self, Read as _},
    net::IpAddr,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use axum::http::{HeaderMap, HeaderName, header::AUTHORIZATION};
use gaunt_api::{AccessRole, Refusal};
use gaunt_node::thread_read::read_on_thread;
use gaunt_schema::SanitizedText;
use gaunt_scrape::{READ_DEADLINE, RepeatedRead};
use subtle::ConstantTimeEq as _;
use tokio::{
    sync::{Mutex, watch},
    time::{Instant, timeout_at},
};

/// The shortest token that is accepted: 16 random characters cannot be guessed over a network.
const SHORTEST_TOKEN: usize = 16;

/// The largest token file, in bytes.
const LARGEST_TOKEN: u64 = 4_096;

/// The longest user name of a proxy, in bytes: an email address has at most 254.
const LONGEST_USER: usize = 254;

/// The bit of a file's mode by which every user can read it.
const WORLD_READABLE: u32 = 0o004;

/// Who may do what.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RoleOptions {
    /// The tokens; each has one role.
    pub tokens: Vec<TokenOptions>,
    /// The proxy that states users, if any.
    pub proxy: Option<TrustedProxy>,
    /// Whether reading needs a role, a password or a client certificate.
    pub read_needs_role: bool,
}

/// A token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenOptions {
    /// Its name in the audit log.
    pub name: String,
    /// What it permits.
    pub role: AccessRole,
    /// The file with it.
    pub file: PathBuf,
}

/// A proxy that authenticates users, such as one for OpenID Connect, and states them in a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrustedProxy {
    /// Its addresses. From others, the header means nothing.
    pub addresses: Vec<IpAddr>,
    /// The header with the user.
    pub user_header: HeaderName,
    /// What every user may do.
    pub role: AccessRole,
    /// What some users may do instead.
    pub users: BTreeMap<String, AccessRole>,
}

/// A client that was recognised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KnownClient {
    /// What it may do.
    pub(super) role: AccessRole,
    /// The name of its token, or the user.
    pub(super) name: SanitizedText,
    /// Whether the name is a user that the proxy authenticated.
    pub(super) is_user: bool,
}

/// The roles in use. Their options may be replaced while the server runs.
#[derive(Clone, Debug)]
pub(super) struct AccessRoles {
    options: watch::Receiver<Arc<RoleOptions>>,
    /// Requests read the files one after the other: one that does not answer occupies one thread.
    reads: Arc<Mutex<RepeatedRead<Vec<ReadToken>>>>,
}

/// A token, and what its file holds.
type ReadToken = (TokenOptions, Result<String, TokenFileError>);

/// Why a token cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TokenFileError {
    /// The file cannot be read.
    #[error("cannot read the token in {}: {error}; check the path and its permissions", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: std::io::Error,
    },
    /// The file holds no valid token.
    #[error(
        "{} has no token of at least {SHORTEST_TOKEN} characters; create one with `openssl rand \
         -hex 24`",
        .0.display()
    )]
    Short(PathBuf),
    /// Every user of the machine can read the file.
    #[error(
        "every user can read the token in {path}; `chmod o-r {path}`, in Kubernetes defaultMode: 0440",
        path = .0.display()
    )]
    WorldReadable(PathBuf),
}

/// Checks that the file holds a token that is long enough.
pub fn check_token_file(path: &Path) -> Result<(), TokenFileError> {
    let file = path.to_path_buf();
    let read = read_on_thread(READ_DEADLINE, move || read_token(&file));
    let failed = |error| Err(TokenFileError::Read { path: path.to_path_buf(), error });
    read.unwrap_or_else(failed).map(drop)
}

impl RoleOptions {
    /// Checks that each file holds a token that is long enough.
    pub fn check_files(&self) -> Result<(), TokenFileError> {
        self.tokens.iter().try_for_each(|token| check_token_file(&token.file))
    }
}

impl TrustedProxy {
    /// The user of a request of this peer. A header that occurs twice may have been added by the client.
    fn find_client(&self, headers: &HeaderMap, peer: IpAddr) -> Option<KnownClient> {
        if !self.addresses.contains(&peer.to_canonical()) {
            return None;
        }
        let mut stated = headers.get_all(&self.user_header).iter();
        let (user, None) = (stated.next()?.to_str().ok()?.trim(), stated.next()) else {
            return None;
        };
        if user.is_empty() || user.len() > LONGEST_USER {
            return None;
        }
        let role = self.users.get(user).copied().unwrap_or(self.role);
        Some(KnownClient { role, name: SanitizedText::new(user), is_user: true })
    }
}

impl AccessRoles {
    /// Uses the newest of these options.
    pub(super) fn new(options: watch::Receiver<Arc<RoleOptions>>) -> Self {
        Self { options, reads: Arc::default() }
    }

    /// Whether reading needs a role, a password or a client certificate.
    pub(super) fn read_needs_role(&self) -> bool {
        self.options.borrow().read_needs_role
    }

    /// Recognises a client that may do what needs this role.
    pub(super) async fn check_client(
        &self,
        headers: &HeaderMap,
        peer: IpAddr,
        needed: AccessRole,
    ) -> Result<KnownClient, Refusal> {
        let options = Arc::clone(&self.options.borrow());
        let client = match options.proxy.as_ref().and_then(|proxy| proxy.find_client(headers, peer))
        {
            Some(client) => client,
            None => self.find_token(&options, headers).await?,
        };
        if client.role.permits(needed) {
            return Ok(client);
        }
        Err(Refusal::RoleTooLow { name: client.name, role: client.role, needed })
    }

    /// Finds the token of a request.
    async fn find_token(
        &self,
        options: &RoleOptions,
        headers: &HeaderMap,
    ) -> Result<KnownClient, Refusal> {
        if options.tokens.is_empty() && options.proxy.is_none() {
            return Err(Refusal::WritingOff);
        }
        let presented = headers.get(AUTHORIZATION).and_then(|presented| presented.to_str().ok());
        let presented = presented.and_then(|presented| {
            let (scheme, token) = presented.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then(|| token.trim().to_owned())
        });
        let presented =
            presented.filter(|presented| !presented.is_empty()).ok_or(Refusal::NoToken)?;
        let read = self.read_tokens(options).await.map_err(|error| {
            tracing::error!(%error, "requests with a token are refused until this is fixed");
            Refusal::WritingOff
        })?;
        compare_tokens(&read, &presented)
    }

    /// Reads the files of all tokens again.
    async fn read_tokens(&self, options: &RoleOptions) -> io::Result<Vec<ReadToken>> {
        let deadline = Instant::now() + READ_DEADLINE;
        let read = async {
            let mut reads = self.reads.lock().await;
            let tokens = options.tokens.clone();
            reads.start_read(move || {
                let read = |token: TokenOptions| {
                    let text = read_token(&token.file);
                    (token, text)
                };
                tokens.into_iter().map(read).collect()
            });
            reads.wait_until(deadline).await
        };
        let waiting = || io::Error::other("earlier requests still wait for the token files");
        timeout_at(deadline, read).await.map_err(|_| waiting())?
    }
}

/// Compares with every token, each in constant time: one that is nearly right takes as long as one that is entirely wrong.
fn compare_tokens(tokens: &[ReadToken], presented: &str) -> Result<KnownClient, Refusal> {
    let (mut found, mut readable) = (None, false);
    for (token, text) in tokens {
        match text {
            Ok(text) => {
                readable = true;
                if bool::from(text.as_bytes().ct_eq(presented.as_bytes())) && found.is_none() {
                    let name = SanitizedText::new(&token.name);
                    found = Some(KnownClient { role: token.role, name, is_user: false });
                }
            }
            Err(error) => {
                tracing::error!(token = token.name, %error, "requests with this token are refused");
            }
        }
    }
    let refusal =
        if readable || tokens.is_empty() { Refusal::WrongToken } else { Refusal::WritingOff };
    found.ok_or(refusal)
}

fn read_token(path: &Path) -> Result<String, TokenFileError> {
    let failed = |error| TokenFileError::Read { path: path.to_path_buf(), error };
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(failed)?;
    if file.metadata().map_err(failed)?.mode() & WORLD_READABLE != 0 {
        return Err(TokenFileError::WorldReadable(path.to_path_buf()));
    }
    file.take(LARGEST_TOKEN).read_to_string(&mut text).map_err(failed)?;
    let token = text.trim();
    if token.len() < SHORTEST_TOKEN || token.contains(char::is_whitespace) {
        return Err(TokenFileError::Short(path.to_path_buf()));
    }
    Ok(token.to_owned())
}

#[cfg(test)]
mod tests;
