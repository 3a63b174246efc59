//! The certificates that the aggregator presents, read once a minute for when they expire.

use std::{path::PathBuf, sync::Arc, time::Duration};

use gaunt_node::web_access::{WebAccess, read_certificate_expiry};
use gaunt_schema::{CertificateLine, SanitizedText};
use tokio::{
    sync::watch,
    task::{JoinSet, spawn_blocking},
    time::interval,
};

/// The time between two looks at the files: certificates change every few weeks.
const EVERY: Duration = Duration::from_mins(1);

/// What certificates there are.
#[derive(Clone)]
pub(super) struct OwnCertificates {
    /// TLS of the server, if it has a web configuration.
    pub(super) access: Option<Arc<WebAccess>>,
    /// Files of client certificates.
    pub(super) clients: Vec<PathBuf>,
}

impl OwnCertificates {
    /// When each of them expires. A file that cannot be read is left out: whatever uses it says so.
    fn read_expiries(&self) -> Vec<CertificateLine> {
        let access = self.access.iter();
        let server = access.map(|access| (access.config_path(), access.certificate_expiry()));
        let clients = self.clients.iter();
        let clients = clients.map(|path| (path.as_path(), read_certificate_expiry(path)));
        let lines = server.chain(clients).filter_map(|(path, expiry)| {
            let file = SanitizedText::new(&path.display().to_string());
            Some(CertificateLine { file, expiry: expiry? })
        });
        lines.collect()
    }

    /// Starts to read them; the channel has the newest result.
    pub(super) fn start_watching(
        self,
        tasks: &mut JoinSet<()>,
    ) -> watch::Receiver<Vec<CertificateLine>> {
        let (sender, lines) = watch::channel(Vec::new());
        tasks.spawn(self.watch_expiries(sender));
        lines
    }

    /// Sends them, and again whenever they change, until nobody listens.
    async fn watch_expiries(self, lines: watch::Sender<Vec<CertificateLine>>) {
        let mut timer = interval(EVERY);
        loop {
            tokio::select! {
                _ = timer.tick() => {}
                () = lines.closed() => return,
            }
            let this = self.clone();
            let Ok(read) = spawn_blocking(move || this.read_expiries()).await else { return };
            lines.send_if_modified(|lines| std::mem::replace(lines, read.clone()) != read);
        }
    }
}
