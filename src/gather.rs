//! Gathering: reaches the targets on a spread schedule and sends the owner one batch from each, every period.

use std::{sync::Arc, time::Duration};

use gaunt_schema::{Clock, Delivery, TargetId, text};
use tokio::{
    sync::{Semaphore, mpsc},
    task::JoinSet,
};

mod fetch;
mod hostlist;
mod place;
mod schedule;
mod scrape;
#[cfg(test)]
mod tests;

pub use hostlist::{HostListError, MAX_NAMES, expand};
pub use place::{DEFAULT_PORT, Place, PlaceError, Places};
pub use schedule::Slots;

use fetch::{LARGE_BODIES, Line, Rules};
use scrape::Scrape;

/// The longest deadline of one scrape unless the settings say otherwise: who needs longer is as good as down.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(4);

/// How targets are gathered.
#[derive(Clone, Debug)]
pub struct Options {
    /// The time between two scrapes of one target.
    pub period: Duration,
    /// The time for one scrape: connecting, headers, body and decoding together.
    pub timeout: Duration,
    /// The largest page, in bytes.
    pub max_body: usize,
}

impl Options {
    /// The usual options for a period.
    pub fn every(period: Duration) -> Self {
        let max_body = text::Limits::default().body_bytes;
        Self { period, timeout: timeout_for(period), max_body }
    }
}

/// The deadline that leaves room in the period for the next scrape: four fifths of it, at most 4 s.
pub fn timeout_for(period: Duration) -> Duration {
    (period * 4 / 5).min(LONGEST_TIMEOUT)
}

/// A running gatherer. Dropping it ends every scrape.
#[derive(Debug)]
pub struct Gatherer {
    _scrapes: JoinSet<()>,
}

/// Announces the places as targets, then reads each of them once a period until the gatherer is dropped.
pub async fn start(
    places: Vec<Place>,
    options: &Options,
    inbox: mpsc::Sender<Delivery>,
    clock: Clock,
) -> Gatherer {
    let numbered: Vec<_> = (0..).map(TargetId).zip(places).collect();
    let targets = numbered.iter().map(|(id, place)| place.target(*id)).collect();
    let mut scrapes = JoinSet::new();
    if inbox.send(Delivery::Targets(targets)).await.is_err() {
        return Gatherer { _scrapes: scrapes };
    }
    let limits = text::Limits { body_bytes: options.max_body, ..text::Limits::default() };
    let rules =
        Arc::new(Rules { timeout: options.timeout, limits, large: Semaphore::new(LARGE_BODIES) });
    for (target, place) in numbered {
        let scrape = Scrape {
            target,
            slots: Slots::new(&place.to_string(), options.period),
            line: Line::new(place),
            rules: rules.clone(),
            inbox: inbox.clone(),
            clock: clock.clone(),
        };
        scrapes.spawn(scrape.run());
    }
    Gatherer { _scrapes: scrapes }
}
