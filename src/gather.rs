//! Gathering: finds the targets, reaches each on a spread schedule, and sends the owner one batch of it every period.

use std::time::Duration;

use gaunt_schema::{Clock, Delivery, Safe, text};
use tokio::{sync::mpsc, task::AbortHandle};

mod access;
mod budget;
mod desk;
mod fetch;
mod file;
mod form;
mod hostlist;
mod identity;
mod lateness;
mod place;
mod reach;
mod rest;
mod roster;
mod schedule;
mod scrape;
mod source;
#[cfg(test)]
mod tests;
mod widening;

pub use access::{Access, Credentials, Keys, Ring};
pub use budget::Limits;
pub use hostlist::{HostListError, MAX_NAMES, expand};
pub use place::{
    DEFAULT_PATH, DEFAULT_PORT, NamedBy, Place, PlaceError, Places, Scheme, Usual, check_path,
};
pub use reach::{Range, RangeError, Reach};
pub use roster::MAX_TARGETS;
pub use schedule::Slots;
pub use source::{
    Dns, Http, REFRESH, Record, Source, UrlError, parse_url,
    prometheus::{Notation, addresses},
};

/// The longest deadline of one scrape unless the settings say otherwise: who needs longer is as good as down.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(4);

/// The share of a source's targets that may vanish at once: a rack of five goes, a broken list does not.
pub const REMOVAL: f64 = 0.2;

/// Plans that may wait: the operator reloads by hand.
const PLANS: usize = 4;

/// How targets are gathered.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// The time between two scrapes of one target.
    pub period: Duration,
    /// The time for one scrape: connecting, headers, body and decoding together.
    pub timeout: Duration,
    /// The largest page, in bytes.
    pub max_body: usize,
    /// What targets may use.
    pub limits: Limits,
    /// The share of a source's targets that may vanish at once; 1 lets all of them go.
    pub removal: f64,
}

impl Options {
    /// The usual options for a period.
    pub fn every(period: Duration) -> Self {
        Self {
            period,
            timeout: timeout_for(period),
            max_body: text::Limits::default().body_bytes,
            limits: Limits::default(),
            removal: REMOVAL,
        }
    }

    /// Whether something differs that does not change while gaunt runs.
    fn is_fixed_unlike(&self, other: &Self) -> bool {
        Self { removal: 0.0, ..self.clone() } != Self { removal: 0.0, ..other.clone() }
    }
}

/// The deadline that leaves room in the period for the next scrape: four fifths of it, at most 4 s.
pub fn timeout_for(period: Duration) -> Duration {
    (period * 4 / 5).min(LONGEST_TIMEOUT)
}

/// Targets that are reached in one way, and who names them.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// What the operator calls it.
    pub name: Safe,
    /// Who names its targets.
    pub sources: Vec<Source>,
    /// What their addresses do not say.
    pub usual: Usual,
    /// Where they may be.
    pub reach: Reach,
    /// Encryption and credentials.
    pub access: Access,
    /// Whether compressed pages are asked for.
    pub compress: bool,
    /// Whether OpenMetrics is asked for before text.
    pub open_metrics: bool,
    /// Whether frames are asked for before text, unless OpenMetrics is.
    pub frames: bool,
}

impl Default for Group {
    fn default() -> Self {
        Self {
            name: Safe::default(),
            sources: Vec::new(),
            usual: Usual::default(),
            reach: Reach::default(),
            access: Access::default(),
            compress: false,
            open_metrics: false,
            frames: true,
        }
    }
}

impl Group {
    /// Whether targets of both are reached in the same way, so that their connections may stay.
    fn is_reached_like(&self, other: &Self) -> bool {
        let manners = |group: &Self| (group.compress, group.open_metrics, group.frames);
        self.reach == other.reach && self.access == other.access && manners(self) == manners(other)
    }
}

/// Everything that is gathered.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// How.
    pub options: Options,
    /// What.
    pub groups: Vec<Group>,
}

impl Plan {
    /// Whether nobody is named who could name a target.
    pub fn is_empty(&self) -> bool {
        self.sources() == 0
    }

    /// How many there are who name targets.
    pub fn sources(&self) -> usize {
        self.groups.iter().map(|group| group.sources.len()).sum()
    }

    /// Reads what can be read at once, and says what is wrong with it.
    pub fn check(&self) -> Result<(), PlaceError> {
        for group in &self.groups {
            for source in &group.sources {
                source.places(&group.usual)?;
            }
        }
        Ok(())
    }
}

/// A running gatherer. Dropping it ends every scrape.
#[derive(Debug)]
pub struct Gatherer {
    plans: mpsc::Sender<Plan>,
    desk: AbortHandle,
}

impl Drop for Gatherer {
    fn drop(&mut self) {
        self.desk.abort();
    }
}

impl Gatherer {
    /// Takes another plan: sources are read anew, and what they name now is believed even if much of it is gone.
    pub async fn reload(&self, plan: Plan) {
        // The desk ends only with the owner.
        drop(self.plans.send(plan).await);
    }
}

/// Reads the targets that the plan's sources name, each once a period, until the gatherer is dropped.
pub fn start(plan: Plan, inbox: mpsc::Sender<Delivery>, clock: Clock) -> Gatherer {
    let (plans, reloads) = mpsc::channel(PLANS);
    let desk = tokio::spawn(desk::Desk::new(plan, inbox, clock).run(reloads)).abort_handle();
    Gatherer { plans, desk }
}
