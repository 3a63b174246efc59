//! Role settings: further tokens, the proxy that states users, and whether reading needs a role.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    path::Path,
};

use axum::http::HeaderName;
use gaunt_api::AccessRole;
use serde::{Deserialize, Deserializer, de::Error as _};

use super::resolve_path;
use crate::serve::{RoleOptions, TokenOptions, TrustedProxy};

/// The name of the token in `serve.token_file`.
const FIRST_TOKEN: &str = "token_file";

/// The name of the token in `serve.receive_token_file`.
const SENDER_TOKEN: &str = "receive_token_file";

/// The most tokens: each request with a token reads all of them.
const MAX_TOKENS: usize = 64;

/// The most users with a role of their own.
const MAX_USERS: usize = 10_000;

/// One token.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TokenSection {
    name: String,
    role: AccessRole,
    file: String,
}

/// The proxy that authenticates users.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ProxySection {
    addresses: Vec<IpAddr>,
    user_header: HeaderSetting,
    role: AccessRole,
    #[serde(default)]
    users: BTreeMap<String, AccessRole>,
}

/// The name of a header.
#[derive(Debug)]
struct HeaderSetting(HeaderName);

impl<'de> Deserialize<'de> for HeaderSetting {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map(Self).map_err(|_| {
            D::Error::custom(format!("{text:?} is no header; write one such as X-Forwarded-User"))
        })
    }
}

/// Checks across tokens.
pub(super) fn check_tokens(tokens: &[TokenSection]) -> Result<(), String> {
    let mut names = BTreeSet::from([FIRST_TOKEN, SENDER_TOKEN]);
    if tokens.len() > MAX_TOKENS {
        return Err(format!("serve.tokens has {}; at most {MAX_TOKENS} are allowed", tokens.len()));
    }
    for token in tokens {
        if token.name.trim().is_empty() || token.file.is_empty() {
            return Err("serve.tokens: a token needs a name and a file".to_owned());
        }
        if !names.insert(&token.name) {
            return Err(format!("serve.tokens: {:?} is used twice; use another name", token.name));
        }
    }
    Ok(())
}

impl ProxySection {
    /// Checks across keys.
    pub(super) fn check_section(&self) -> Result<(), String> {
        if self.addresses.is_empty() {
            return Err("serve.trusted_proxy has no addresses; list those of the proxy".to_owned());
        }
        if self.users.len() > MAX_USERS {
            return Err(format!("serve.trusted_proxy has over {MAX_USERS} users; use its role"));
        }
        Ok(())
    }
}

/// Role options without the token in `serve.token_file`; relative paths are resolved against the settings file.
pub(super) fn role_options(
    tokens: Vec<TokenSection>,
    proxy: Option<ProxySection>,
    read_needs_role: bool,
    settings: &Path,
) -> RoleOptions {
    let token_options = |token: TokenSection| TokenOptions {
        file: resolve_path(settings, &token.file).unwrap_or_default(),
        name: token.name,
        role: token.role,
    };
    let proxy = proxy.map(|proxy| TrustedProxy {
        addresses: proxy.addresses.into_iter().map(|address| address.to_canonical()).collect(),
        user_header: proxy.user_header.0,
        role: proxy.role,
        users: proxy.users,
    });
    RoleOptions { tokens: tokens.into_iter().map(token_options).collect(), proxy, read_needs_role }
}

/// Adds the token in `serve.token_file`, which permits everything, and the one in `serve.receive_token_file`, which permits
/// to send measurements.
pub(super) fn with_named_tokens(
    mut roles: RoleOptions,
    token_file: Option<&Path>,
    receive_file: Option<&Path>,
) -> RoleOptions {
    let named = [
        (FIRST_TOKEN, AccessRole::Admin, token_file),
        (SENDER_TOKEN, AccessRole::Write, receive_file),
    ];
    let named = named.into_iter().filter_map(|(name, role, file)| {
        Some(TokenOptions { name: name.to_owned(), role, file: file?.to_path_buf() })
    });
    roles.tokens.splice(0..0, named);
    roles
}
