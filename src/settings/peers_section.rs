//! Peer settings: the other aggregators of the cluster.

use std::path::{Path, PathBuf};

use gaunt_schema::SanitizedText;
use serde::Deserialize;

use super::access_section::{self, TlsSection};
use crate::peers::{self, PeerOptions};

/// Addresses of the peers, TLS and the token.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct PeersSection {
    urls: Vec<String>,
    tls: TlsSection,
    bearer_file: Option<PathBuf>,
}

impl PeersSection {
    /// Checks across keys.
    pub(super) fn check_section(&self) -> Result<(), String> {
        access_section::check_access("serve.peers", &self.tls, self.bearer_file.as_ref(), None)?;
        peers::check_peers(&self.urls).map_err(|error| error.to_string())?;
        match self.tls.server_name() {
            None => Ok(()),
            Some(name) => Err(format!(
                "serve.peers has tls.server_name; write {name:?} in serve.peers.urls instead"
            )),
        }
    }

    /// Peer options; without URLs if there are no peers.
    pub(super) fn peer_options(self, settings: &Path, cluster: &str) -> PeerOptions {
        let folder = settings.parent().unwrap_or(Path::new(""));
        PeerOptions {
            urls: self.urls,
            access: access_section::of(self.tls, self.bearer_file, None, folder),
            cluster: SanitizedText::new(cluster),
        }
    }
}
