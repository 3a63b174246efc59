//! Passwords of users against bcrypt hashes. The answers are cached and new computations limited, so that guessing
//! costs the server little and a user whose password was right before always gets in.

use std::{
    collections::{BTreeMap, HashSet},
    net::IpAddr,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hyper::header::HeaderValue;
use sha2::{Digest as _, Sha256};
use tokio::{sync::Semaphore, task::spawn_blocking, time::timeout};
use tokio_rustls::rustls::crypto::ring;

use crate::peer_rate::PeerRateLimit;

/// The most cached answers of each kind, 32 bytes each.
const MAX_CACHED: usize = 1_024;

/// New passwords of one peer: so many at once, then one each interval. A computation of cost 10 takes about 0.1 s.
const BURST: u32 = 5;
const INTERVAL: Duration = Duration::from_secs(2);

/// The most requests that wait for the one computation at a time, and how long.
const MAX_WAITING: usize = 16;
const MAX_WAIT: Duration = Duration::from_secs(5);

/// The hash that is computed for unknown users, so that they take as long as known ones. It belongs to no password.
const UNKNOWN_USER: &str = "$2b$10$abcdefghijklmnopqrstuuabcdefghijklmnopqrstuvwxyzABCDG";

/// The result of a password check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PasswordOutcome {
    /// User and password are right.
    Right,
    /// They are missing or wrong.
    Wrong,
    /// Not checked: the peer or all peers tried too many.
    Limited {
        /// When to try again.
        retry_after: Duration,
    },
}

/// Checks passwords.
pub(super) struct PasswordCheck {
    /// Secret of this process: a cached answer says nothing about its password.
    salt: [u8; 32],
    cached: Mutex<CachedAnswers>,
    peers: PeerRateLimit,
    computing: Semaphore,
    waiting: Semaphore,
}

/// The digests of user, hash and password that were right and wrong.
#[derive(Default)]
struct CachedAnswers {
    right: HashSet<[u8; 32]>,
    wrong: HashSet<[u8; 32]>,
}

impl PasswordCheck {
    /// Nothing is cached yet. None if the system gives no random numbers.
    pub(super) fn new() -> Option<Self> {
        let mut salt = [0; 32];
        ring::default_provider().secure_random.fill(&mut salt).ok()?;
        Some(Self {
            salt,
            cached: Mutex::default(),
            peers: PeerRateLimit::new(INTERVAL, BURST),
            computing: Semaphore::new(1),
            waiting: Semaphore::new(MAX_WAITING),
        })
    }

    /// Checks the header `Authorization` of a request.
    pub(super) async fn check_header(
        &self,
        users: &BTreeMap<String, String>,
        header: Option<&HeaderValue>,
        peer: IpAddr,
    ) -> PasswordOutcome {
        let Some((user, password)) = header.and_then(decode_credentials) else {
            return PasswordOutcome::Wrong;
        };
        let hash = users.get(&user).map_or(UNKNOWN_USER, String::as_str);
        let key = self.compute_key(&user, hash, &password);
        if let Some(right) = self.find_answer(&key) {
            return if right { PasswordOutcome::Right } else { PasswordOutcome::Wrong };
        }
        if let Err(retry_after) = self.peers.take_event(peer, Instant::now()) {
            return PasswordOutcome::Limited { retry_after };
        }
        let limited = PasswordOutcome::Limited { retry_after: MAX_WAIT };
        let Ok(_place) = self.waiting.try_acquire() else { return limited };
        let Ok(Ok(_turn)) = timeout(MAX_WAIT, self.computing.acquire()).await else {
            return limited;
        };
        let is_known = users.contains_key(&user);
        let hash = hash.to_owned();
        let computed =
            spawn_blocking(move || bcrypt::verify(&password, &hash).unwrap_or(false)).await;
        let right = is_known && computed.unwrap_or(false);
        self.store_answer(key, right);
        if right { PasswordOutcome::Right } else { PasswordOutcome::Wrong }
    }

    fn compute_key(&self, user: &str, hash: &str, password: &[u8]) -> [u8; 32] {
        let mut digest = Sha256::new();
        digest.update(self.salt);
        for part in [user.as_bytes(), hash.as_bytes(), password] {
            digest.update((part.len() as u64).to_le_bytes());
            digest.update(part);
        }
        digest.finalize().into()
    }

    fn find_answer(&self, key: &[u8; 32]) -> Option<bool> {
        let cached = self.cached.lock().unwrap_or_else(PoisonError::into_inner);
        if cached.right.contains(key) {
            return Some(true);
        }
        cached.wrong.contains(key).then_some(false)
    }

    fn store_answer(&self, key: [u8; 32], right: bool) {
        let mut cached = self.cached.lock().unwrap_or_else(PoisonError::into_inner);
        let answers = if right { &mut cached.right } else { &mut cached.wrong };
        if answers.len() >= MAX_CACHED {
            answers.clear();
        }
        answers.insert(key);
    }
}

/// User and password of the scheme Basic.
fn decode_credentials(header: &HeaderValue) -> Option<(String, Vec<u8>)> {
    let (scheme, encoded) = header.to_str().ok()?.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let bytes = STANDARD.decode(encoded.trim()).ok()?;
    let colon = bytes.iter().position(|byte| *byte == b':')?;
    let user = str::from_utf8(&bytes[..colon]).ok()?.to_owned();
    Some((user, bytes[colon + 1..].to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn basic_header(user: &str, password: &str) -> HeaderValue {
        let encoded = STANDARD.encode(format!("{user}:{password}"));
        HeaderValue::from_str(&format!("Basic {encoded}")).unwrap()
    }

    fn make_users() -> BTreeMap<String, String> {
        BTreeMap::from([("alice".to_owned(), bcrypt::hash("right", 4).unwrap())])
    }

    #[test]
    fn hash_of_unknown_users_is_computable() {
        assert_eq!(bcrypt::verify("x", &UNKNOWN_USER.replace("$10$", "$04$")).ok(), Some(false));
    }

    #[tokio::test]
    async fn password_is_right_only_for_its_user() {
        let (check, users) = (PasswordCheck::new().unwrap(), make_users());
        let peer = [10, 0, 0, 1].into();
        for (header, expected) in [
            (None, PasswordOutcome::Wrong),
            (Some(HeaderValue::from_static("Basic !")), PasswordOutcome::Wrong),
            (Some(HeaderValue::from_static("Bearer right")), PasswordOutcome::Wrong),
            (Some(basic_header("alice", "right")), PasswordOutcome::Right),
            (Some(basic_header("alice", "wrong")), PasswordOutcome::Wrong),
            (Some(basic_header("alice", "")), PasswordOutcome::Wrong),
        ] {
            assert_eq!(check.check_header(&users, header.as_ref(), peer).await, expected);
        }
    }

    #[tokio::test]
    async fn guessing_is_cheap_and_locks_nobody_out() {
        let (check, users) = (PasswordCheck::new().unwrap(), make_users());
        let peer = [10, 0, 0, 1].into();
        let right = basic_header("alice", "right");
        assert_eq!(check.check_header(&users, Some(&right), peer).await, PasswordOutcome::Right);
        let (mut computed, started) = (0, Instant::now());
        for number in 0..100_000 {
            let wrong = basic_header("alice", &number.to_string());
            let outcome = check.check_header(&users, Some(&wrong), peer).await;
            computed += u32::from(outcome == PasswordOutcome::Wrong);
        }
        let allowed = BURST + (started.elapsed().as_secs_f64() / INTERVAL.as_secs_f64()) as u32;
        assert!(computed <= allowed, "{computed} computations, {allowed} allowed");
        assert_eq!(check.check_header(&users, Some(&right), peer).await, PasswordOutcome::Right);
        let other = [10, 0, 0, 2].into();
        let wrong = basic_header("alice", "other");
        assert_eq!(check.check_header(&users, Some(&wrong), other).await, PasswordOutcome::Wrong);
    }
}
