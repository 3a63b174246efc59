//! The token of the write API: read from its file at each request, and compared in constant time.

use std::{
    io::{self, Read as _},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use axum::http::{HeaderMap, header::AUTHORIZATION};
use gaunt_api::Refusal;
use gaunt_scrape::{READ_DEADLINE, RepeatedRead};
use subtle::ConstantTimeEq as _;
use tokio::{
    sync::Mutex,
    time::{Instant, timeout_at},
};

/// The shortest token that is accepted: 16 random characters cannot be guessed over a network.
const SHORTEST_TOKEN: usize = 16;

/// The largest token file, in bytes.
const LARGEST_TOKEN: u64 = 4_096;

/// The bit of a file's mode by which every user can read it.
const WORLD_READABLE: u32 = 0o004;

/// Path of the token file; without one all actions are refused.
#[derive(Clone, Debug, Default)]
pub(super) struct WriteToken(Option<Arc<TokenFile>>);

/// The token file. Requests read it one after the other: one that does not answer occupies one thread.
#[derive(Debug)]
struct TokenFile {
    path: PathBuf,
    reads: Mutex<RepeatedRead<Result<String, WriteTokenError>>>,
}

/// Why the token cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum WriteTokenError {
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
pub fn check_token_file(path: &Path) -> Result<(), WriteTokenError> {
    read_token(path).map(drop)
}

impl WriteToken {
    /// Checks that the file holds a token that is long enough. It is read again at each action.
    pub(super) fn from_file(path: &Path) -> Result<Self, WriteTokenError> {
        read_token(path)?;
        let file = TokenFile { path: path.to_owned(), reads: Mutex::default() };
        Ok(Self(Some(Arc::new(file))))
    }

    /// Whether the request headers carry the token.
    pub(super) async fn check_headers(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let file = self.0.as_ref().ok_or(Refusal::WritingOff)?;
        let presented = headers.get(AUTHORIZATION).and_then(|presented| presented.to_str().ok());
        let presented = presented.and_then(|presented| {
            let (scheme, token) = presented.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then(|| token.trim().to_owned())
        });
        let presented =
            presented.filter(|presented| !presented.is_empty()).ok_or(Refusal::NoToken)?;
        let token = file.read_again().await.map_err(|error| {
            tracing::error!(%error, "write requests are refused until this is fixed");
            Refusal::WritingOff
        })?;
        // Constant-time comparison: a token that is nearly right takes as long as one that is entirely wrong.
        if bool::from(token.as_bytes().ct_eq(presented.as_bytes())) {
            return Ok(());
        }
        Err(Refusal::WrongToken)
    }
}

impl TokenFile {
    async fn read_again(&self) -> Result<String, WriteTokenError> {
        let deadline = Instant::now() + READ_DEADLINE;
        let read = async {
            let mut reads = self.reads.lock().await;
            let path = self.path.clone();
            reads.start_read(move || read_token(&path));
            reads.wait_until(deadline).await
        };
        let failed = |error| WriteTokenError::Read { path: self.path.clone(), error };
        let waiting = || failed(io::Error::other("earlier requests still wait for it"));
        timeout_at(deadline, read).await.map_err(|_| waiting())?.map_err(failed)?
    }
}

fn read_token(path: &Path) -> Result<String, WriteTokenError> {
    let failed = |error| WriteTokenError::Read { path: path.to_path_buf(), error };
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(failed)?;
    if file.metadata().map_err(failed)?.mode() & WORLD_READABLE != 0 {
        return Err(WriteTokenError::WorldReadable(path.to_path_buf()));
    }
    file.take(LARGEST_TOKEN).read_to_string(&mut text).map_err(failed)?;
    let token = text.trim();
    if token.len() < SHORTEST_TOKEN || token.contains(char::is_whitespace) {
        return Err(WriteTokenError::Short(path.to_path_buf()));
    }
    Ok(token.to_owned())
}

#[cfg(test)]
mod tests {
    use std::{fs::Permissions, os::unix::fs::PermissionsExt as _};

    use super::*;

    /// Writes a file that others cannot read.
    fn write_private(path: &Path, text: &str) {
        std::fs::write(path, text).unwrap();
        std::fs::set_permissions(path, Permissions::from_mode(0o640)).unwrap();
    }

    #[test]
    fn token_that_everybody_can_read_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        write_private(&path, "0123456789abcdef\n");
        assert!(WriteToken::from_file(&path).is_ok());
        std::fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        let error = WriteToken::from_file(&path).unwrap_err().to_string();
        assert!(error.contains("chmod o-r"), "{error}");
    }

    #[tokio::test]
    async fn requests_with_the_right_token_are_accepted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        assert!(matches!(WriteToken::from_file(&path), Err(WriteTokenError::Read { .. })));
        write_private(&path, "short\n");
        assert!(matches!(WriteToken::from_file(&path), Err(WriteTokenError::Short(_))));
        write_private(&path, "0123456789abcdef\n");
        let token = WriteToken::from_file(&path).unwrap();
        let mut headers = HeaderMap::new();
        assert_eq!(WriteToken::default().check_headers(&headers).await, Err(Refusal::WritingOff));
        assert_eq!(token.check_headers(&headers).await, Err(Refusal::NoToken));
        for (header, expected) in [
            ("Bearer 0123456789abcdef", Ok(())),
            ("bearer  0123456789abcdef ", Ok(())),
            ("Bearer 0123456789abcdeg", Err(Refusal::WrongToken)),
            ("Bearer 0123456789abcde", Err(Refusal::WrongToken)),
            ("Bearer ", Err(Refusal::NoToken)),
            ("Basic 0123456789abcdef", Err(Refusal::NoToken)),
        ] {
            headers.insert(AUTHORIZATION, header.parse().unwrap());
            assert_eq!(token.check_headers(&headers).await, expected, "{header}");
        }
        write_private(&path, "another-token-now");
        headers.insert(AUTHORIZATION, "Bearer another-token-now".parse().unwrap());
        assert_eq!(token.check_headers(&headers).await, Ok(()), "it is read again");
        std::fs::remove_file(&path).unwrap();
        assert_eq!(token.check_headers(&headers).await, Err(Refusal::WritingOff));
    }
}
