//! Who may connect to a server, and how: TLS, client certificates, users, response headers and a rate limit, from a web
//! configuration in the format of Prometheus' exporter-toolkit. It is read again when one of its files changes.

use std::{
    fs,
    net::IpAddr,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use gaunt_schema::UnixMs;
use hyper::{
    HeaderMap, StatusCode,
    header::{AUTHORIZATION, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE},
};
use tokio_rustls::rustls::ServerConfig;

mod certificate_fields;
mod certificate_list;
mod config_error;
mod config_file;
mod password_check;
mod server_tls;
#[cfg(test)]
mod tests;

pub use certificate_list::{CertificateFault, CertificateList};
pub use config_error::WebConfigError;
use config_file::{ConfigFile, RequestRate};
use password_check::{PasswordCheck, PasswordOutcome};
use server_tls::ServerTls;
pub use server_tls::read_certificate_expiry;

use crate::thread_read::{READ_DEADLINE, ThreadRead, no_answer, read_on_thread};

/// How often the files are looked at, at most: when a connection or a request arrives.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// How long the request that looks at the files waits for them. While they do not answer, no other request waits.
const LOOK_WAIT: Duration = Duration::from_secs(1);

/// The access rules of one server.
pub struct WebAccess {
    path: PathBuf,
    passwords: PasswordCheck,
    state: Mutex<AccessState>,
}

/// The rules in use, and what is known of their files.
struct AccessState {
    rules: Arc<AccessRules>,
    versions: Vec<FileVersion>,
    next_look: Instant,
    /// The look that runs, and when it began; none if it is known that it does not answer.
    look: Option<(ThreadRead<FileLook>, Option<Instant>)>,
    /// The instant at which the budget of the rate limit is full again.
    rate_full_at: Instant,
}

/// What a file with its certificates and keys asks for.
struct AccessRules {
    file: ConfigFile,
    tls: Option<ServerTls>,
}

/// What distinguishes two versions of a file; none without the file.
type FileVersion = Option<(u64, i64, i64, u64)>;

/// Rules, and the versions of their files.
type VersionedRules = (AccessRules, Vec<FileVersion>);

/// What a look at the files found: their versions, and the new rules if a file has changed.
type FileLook = (Vec<FileVersion>, Option<Result<VersionedRules, WebConfigError>>);

/// Why a request is not answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeniedRequest {
    /// The response status.
    pub status: StatusCode,
    /// The response text.
    pub why: &'static str,
    /// When to try again.
    pub retry_after: Option<Duration>,
}

impl WebAccess {
    /// Reads the file. Its errors are fatal now; later the previous rules stay in use.
    pub fn from_file(path: &Path) -> Result<Self, WebConfigError> {
        Self::from_file_within(path, READ_DEADLINE)
    }

    fn from_file_within(path: &Path, deadline: Duration) -> Result<Self, WebConfigError> {
        let file = path.to_path_buf();
        let read = read_on_thread(deadline, move || AccessRules::read_versioned(&file));
        let (rules, versions) = read.unwrap_or_else(|error| {
            let why = format!("{error}, or that of a certificate or key in it; check its mount");
            Err(WebConfigError::Read { path: path.to_path_buf(), why })
        })?;
        let now = Instant::now();
        let state = AccessState {
            rules: Arc::new(rules),
            versions,
            next_look: now + LOOK_INTERVAL,
            look: None,
            rate_full_at: now,
        };
        let no_random = || WebConfigError::of_setting(path, "basic_auth_users", NO_RANDOM);
        let passwords = PasswordCheck::new().ok_or_else(no_random)?;
        Ok(Self { path: path.to_path_buf(), passwords, state: Mutex::new(state) })
    }

    /// The file.
    pub fn config_path(&self) -> &Path {
        &self.path
    }

    /// The TLS that connections must use from now on, if it is enabled.
    pub fn server_tls(&self) -> Option<Arc<ServerConfig>> {
        self.current_rules(Instant::now()).tls.as_ref().map(|tls| Arc::clone(&tls.config))
    }

    /// When the first certificate of its chain expires; none without TLS.
    pub fn certificate_expiry(&self) -> Option<UnixMs> {
        self.server_certificates()?.first_expiry()
    }

    /// The certificates that the server presents; none without TLS.
    pub fn server_certificates(&self) -> Option<CertificateList> {
        self.current_rules(Instant::now()).tls.as_ref().map(|tls| tls.chain.clone())
    }

    /// Whether clients must present a password or a certificate.
    pub fn requires_identity(&self) -> bool {
        let rules = self.current_rules(Instant::now());
        let certificate = rules.file.tls.as_ref().map(|tls| tls.client_auth_type.as_str());
        !rules.file.users.is_empty() || certificate == Some("RequireAndVerifyClientCert")
    }

    /// Takes a request from the rate limit, then checks its user and password.
    pub async fn check_request(
        &self,
        headers: &HeaderMap,
        peer: IpAddr,
    ) -> Result<(), DeniedRequest> {
        let now = Instant::now();
        let rules = self.current_rules(now);
        if let Some(rate) = rules.file.rate {
            self.take_request(rate, now).map_err(|wait| DeniedRequest {
                status: StatusCode::TOO_MANY_REQUESTS,
                why: "too many requests; try again later\n",
                retry_after: Some(wait),
            })?;
        }
        if rules.file.users.is_empty() {
            return Ok(());
        }
        let header = headers.get(AUTHORIZATION);
        match self.passwords.check_header(&rules.file.users, header, peer).await {
            PasswordOutcome::Right => Ok(()),
            PasswordOutcome::Wrong => Err(DeniedRequest {
                status: StatusCode::UNAUTHORIZED,
                why: "user and password required\n",
                retry_after: None,
            }),
            PasswordOutcome::Limited { retry_after } => Err(DeniedRequest {
                status: StatusCode::TOO_MANY_REQUESTS,
                why: "too many passwords were tried; try again later\n",
                retry_after: Some(retry_after),
            }),
        }
    }

    /// Adds the configured headers to a response.
    pub fn add_headers(&self, headers: &mut HeaderMap) {
        for (name, value) in &self.current_rules(Instant::now()).file.headers {
            headers.insert(name.clone(), value.clone());
        }
    }

    /// The rules in use. Once a second they are read again if a file changed. Files that do not answer change nothing.
    fn current_rules(&self, now: Instant) -> Arc<AccessRules> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((look, began)) = state.look.take() {
            match look.wait_for(Duration::ZERO) {
                Some(found) => self.apply_look(&mut state, found),
                None => state.look = Some((look, self.report_hang(began, now))),
            }
        }
        if now < state.next_look || state.look.is_some() {
            return Arc::clone(&state.rules);
        }
        state.next_look = now + LOOK_INTERVAL;
        let (path, rules, known) =
            (self.path.clone(), Arc::clone(&state.rules), state.versions.clone());
        let look = ThreadRead::start_read(move || {
            let versions = rules.file_versions();
            let is_changed = versions != known;
            (versions, is_changed.then(|| AccessRules::read_versioned(&path)))
        });
        match look.map(|look| (look.wait_for(LOOK_WAIT), look)) {
            Ok((Some(found), _)) => self.apply_look(&mut state, found),
            Ok((None, look)) => state.look = Some((look, Some(now))),
            Err(error) => tracing::error!(%error, "cannot look at the web configuration"),
        }
        Arc::clone(&state.rules)
    }

    /// Reports files that have not answered since `began`, once; returns the time until then.
    fn report_hang(&self, began: Option<Instant>, now: Instant) -> Option<Instant> {
        let began = began?;
        if now.saturating_duration_since(began) < READ_DEADLINE {
            return Some(began);
        }
        tracing::error!(
            "web configuration not looked at, the previous one stays in effect: {}: {}, or that of a certificate \
             or key in it; check its mount",
            self.path.display(),
            no_answer(READ_DEADLINE)
        );
        None
    }

    /// Uses what a look found. With errors, the previous rules stay in use.
    fn apply_look(&self, state: &mut AccessState, found: std::io::Result<FileLook>) {
        let read = match found {
            Ok((versions, read)) => {
                state.versions = versions;
                read
            }
            Err(error) => return tracing::error!(%error, "cannot read the web configuration"),
        };
        let Some(read) = read else { return };
        let checked =
            read.and_then(|(rules, versions)| Ok((self.check_change(state, rules)?, versions)));
        match checked {
            Ok((rules, versions)) => {
                // The new file may name other files than those just compared.
                state.versions = versions;
                state.rules = Arc::new(rules);
                tracing::info!(path = %self.path.display(), "web configuration reloaded");
            }
            Err(error) => {
                tracing::error!(
                    "web configuration not reloaded, the previous one stays in effect: {error}"
                );
            }
        }
    }

    /// Rejects rules that would open the server: a file that is empty while it is being written must not do that.
    fn check_change(
        &self,
        state: &AccessState,
        rules: AccessRules,
    ) -> Result<AccessRules, WebConfigError> {
        let failed = |setting| WebConfigError::of_setting(&self.path, setting, NEEDS_RESTART);
        let previous = &state.rules;
        if previous.tls.is_some() != rules.tls.is_some() {
            return Err(failed("tls_server_config"));
        }
        if !previous.file.users.is_empty() && rules.file.users.is_empty() {
            return Err(failed("basic_auth_users"));
        }
        Ok(rules)
    }

    fn take_request(&self, rate: RequestRate, now: Instant) -> Result<(), Duration> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let used_until = state.rate_full_at.max(now) + rate.interval;
        let (used, full) = (used_until - now, rate.interval * rate.burst);
        if used > full {
            return Err(used.saturating_sub(full).max(rate.interval));
        }
        state.rate_full_at = used_until;
        Ok(())
    }
}

/// What an address beyond this machine lacks; none if it has TLS and asks clients for an identity, here or with tokens of
/// the server's own.
pub fn describe_open_address(
    address: IpAddr,
    access: Option<&WebAccess>,
    needs_token: bool,
) -> Option<&'static str> {
    if address.to_canonical().is_loopback() {
        return None;
    }
    let (tls, identity) = access.map_or((false, false), |access| {
        (access.server_tls().is_some(), access.requires_identity())
    });
    match (tls, identity || needs_token) {
        (true, true) => None,
        (true, false) => Some("other machines can read without a password or certificate"),
        (false, true) => Some("passwords and tokens are sent without TLS"),
        (false, false) => Some("other machines can read without TLS and without a password"),
    }
}

/// Why rules that would open the server are not reloaded.
const NEEDS_RESTART: &str = "cannot be switched on or off while the server runs; restart it";

/// Why no password could be checked.
const NO_RANDOM: &str = "the system gives no random numbers; check /dev/urandom";

impl AccessRules {
    fn read_file(path: &Path) -> Result<Self, WebConfigError> {
        let file = ConfigFile::read_file(path)?;
        let tls = server_tls::build_tls(&file)?;
        Ok(Self { file, tls })
    }

    /// Reads the file, then the versions of its files: a change between the two is unlikely, and read at the next one.
    fn read_versioned(path: &Path) -> Result<VersionedRules, WebConfigError> {
        let rules = Self::read_file(path)?;
        let versions = rules.file_versions();
        Ok((rules, versions))
    }

    /// The versions of the file and of those that it names.
    fn file_versions(&self) -> Vec<FileVersion> {
        let mut paths = vec![self.file.path.clone()];
        if let Some(tls) = &self.file.tls {
            let named = [&tls.cert_file, &tls.key_file, &tls.client_ca_file];
            let named = named.into_iter().filter(|name| !name.is_empty());
            paths.extend(named.map(|name| self.file.resolve_path(name)));
        }
        paths.iter().map(|path| read_version(path)).collect()
    }
}

fn read_version(path: &Path) -> FileVersion {
    let meta = fs::metadata(path).ok()?;
    Some((meta.ino(), meta.mtime(), meta.mtime_nsec(), meta.len()))
}

impl DeniedRequest {
    /// Adds the headers that belong to the response.
    pub fn add_headers(&self, headers: &mut HeaderMap) {
        if self.status == StatusCode::UNAUTHORIZED {
            let challenge = HeaderValue::from_static("Basic realm=\"gaunt\"");
            headers.insert(WWW_AUTHENTICATE, challenge);
        }
        if let Some(wait) = self.retry_after {
            let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
    }
}
