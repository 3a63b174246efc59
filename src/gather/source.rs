//! Sources of targets: who names them, how they are asked again, and what is said when they cannot be read.

use std::{path::PathBuf, sync::Arc, time::Duration};

use gaunt_schema::Safe;
use tokio::{sync::mpsc, task::JoinSet, time::sleep};

use super::{
    place::{Place, PlaceError, Places, Usual},
    reach::Reach,
};

mod dns;
mod files;
mod http;
pub(super) mod prometheus;

pub use dns::{Dns, Record};
pub use http::{Http, UrlError, parse_url};

/// The time between two readings of a source on the network unless it says otherwise, as Prometheus has it.
pub const REFRESH: Duration = Duration::from_secs(30);

/// The time between two looks at a file.
const LOOK: Duration = Duration::from_secs(1);

/// Who names targets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A host list of a flag or of the settings, with where it stands.
    List(String, Safe),
    /// A file with a host list on each line.
    TargetsFile(PathBuf),
    /// Files in Prometheus's format; `*` and `?` in the last part of the path name several.
    Files(PathBuf),
    /// An HTTP server that answers in Prometheus's format.
    Http(Http),
    /// A name in DNS.
    Dns(Dns),
}

/// What all places of a group have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Common {
    /// What an address does not say itself.
    pub(super) usual: Usual,
    /// Whether a source may take the encryption away: not where credentials would go in the clear.
    pub(super) may_downgrade: bool,
}

/// What a source names now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Listing {
    /// The places.
    pub(super) places: Vec<Place>,
    /// What in the list is no place, if anything; the rest is taken.
    pub(super) trouble: Option<Safe>,
}

/// Why a source brought no list.
#[derive(Debug, thiserror::Error)]
pub(super) enum SourceError {
    #[error(transparent)]
    Places(#[from] PlaceError),
    #[error("cannot read {what}: {why}")]
    Read { what: String, why: String },
    #[error("{what}: {why}")]
    Content { what: String, why: String },
}

/// What a source has to say: news of the one with this number.
#[derive(Debug)]
pub(super) struct News {
    pub(super) source: u64,
    pub(super) list: Result<Listing, SourceError>,
}

impl Source {
    /// What its targets have as their origin, and what it is called in sentences.
    pub fn name(&self) -> Safe {
        match self {
            Self::List(_, origin) => origin.clone(),
            Self::TargetsFile(path) | Self::Files(path) => Safe::new(&path.display().to_string()),
            Self::Http(http) => Safe::new(&http.place.to_string()),
            Self::Dns(dns) => Safe::new(&dns.to_string()),
        }
    }

    /// What can be read at once: host lists, and files of them. The other sources may come up later.
    pub(super) fn places(&self, usual: &Usual) -> Result<Option<Vec<Place>>, PlaceError> {
        let mut places = Places::new(usual.clone());
        match self {
            Self::List(list, origin) => places.add_list(list, origin)?,
            Self::TargetsFile(path) => places.add_file(path)?,
            Self::Files(_) | Self::Http(_) | Self::Dns(_) => return Ok(None),
        }
        Ok(Some(places.into_vec()))
    }

    /// Tells what the source names, now and whenever it changes, until nobody listens or the task is ended.
    pub(super) async fn run(self, source: u64, common: Common, news: mpsc::Sender<News>) {
        let tell = Teller { source, news };
        match self {
            Self::List(..) => {
                let places = self.places(&common.usual);
                let list = places
                    .map(|places| Listing { places: places.unwrap_or_default(), trouble: None });
                tell.tell(list.map_err(SourceError::from)).await;
            }
            Self::TargetsFile(path) => {
                files::watch(files::Kind::HostLists, path, common, tell).await;
            }
            Self::Files(path) => files::watch(files::Kind::Prometheus, path, common, tell).await,
            Self::Http(http) => {
                let mut tasks = JoinSet::new();
                let mut line = http.line(Arc::new(Reach::default()), &mut tasks).await;
                while tell.tell(http.read(&mut line, &common).await).await {
                    sleep(http.refresh).await;
                }
            }
            Self::Dns(dns) => {
                while tell.tell(dns.read(&common).await).await {
                    sleep(dns.refresh).await;
                }
            }
        }
    }
}

/// The way by which a source tells its news.
pub(super) struct Teller {
    source: u64,
    news: mpsc::Sender<News>,
}

impl Teller {
    /// Tells; false if nobody listens any more.
    async fn tell(&self, list: Result<Listing, SourceError>) -> bool {
        self.news.send(News { source: self.source, list }).await.is_ok()
    }
}
