//! What Ethernet cards count by themselves: pauses by priority and direction, discards, marks, the state of the wire.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    time::Instant,
};

use gaunt_schema::{Absent, Device, MetricId, Reading, Report};

use super::{CollectError, Collector, Outcome, absence};
use crate::{
    Options,
    ethtool::{Kernel, Statistics},
    exclude::Exclude,
    files::{names, read_once},
};

mod errors;
mod words;

use errors::Wire;
use words::meaning;

/// The most cards that are asked: each costs a command to its firmware.
const MAX_CARDS: usize = 32;

/// After this many ticks the cards are looked at again: their statistics change with their queues.
const TICKS_BETWEEN_LOOKS: u32 = 60;

/// Asks the drivers of the network devices in `SYS/class/net`.
pub(super) struct Ethernet {
    folder: PathBuf,
    exclude: Exclude,
    door: io::Result<Box<dyn Statistics>>,
    names: Vec<String>,
    cards: Vec<Card>,
    wires: BTreeMap<String, Wire>,
    ticks_to_look: u32,
    values: Vec<u64>,
}

/// One card, and which of its statistics mean something to us.
struct Card {
    name: String,
    device: Device,
    count: usize,
    /// Position, metric, and how many of the card's units make one of ours.
    wanted: Vec<(usize, MetricId, f64)>,
}

impl Ethernet {
    pub(super) fn new(options: &Options) -> Self {
        let door = Kernel::open().map(|door| Box::new(door) as Box<dyn Statistics>);
        Self::through(options, door)
    }

    fn through(options: &Options, door: io::Result<Box<dyn Statistics>>) -> Self {
        Self {
            folder: options.sys_root.join("class/net"),
            exclude: Exclude::new(&options.exclude),
            door,
            names: Vec::new(),
            cards: Vec::new(),
            wires: BTreeMap::new(),
            ticks_to_look: 0,
            values: Vec::new(),
        }
    }
}

/// The cards among the network devices that have something to say, by their names.
fn discover(
    folder: &Path,
    found: &[String],
    exclude: &Exclude,
    door: &dyn Statistics,
) -> Vec<Card> {
    let cards = found.iter().filter(|name| {
        let device = folder.join(name);
        // The tree may be of another network than the one that this process is in, or a copy.
        let index = read_once(&device.join("ifindex")).and_then(|index| index.parse().ok());
        !exclude.leaves_alone(name)
            && device.join("device").exists()
            && index.is_some_and(|index: u32| door.index(name).is_ok_and(|own| own == index))
    });
    cards.take(MAX_CARDS).filter_map(|name| Card::new(name, &door.names(name).ok()?)).collect()
}

impl Card {
    fn new(name: &str, statistics: &[String]) -> Option<Self> {
        let mut wanted: BTreeMap<MetricId, (usize, f64)> = BTreeMap::new();
        for (at, statistic) in statistics.iter().enumerate() {
            if let Some((metric, per)) = meaning(statistic) {
                wanted.entry(metric).or_insert((at, per));
            }
        }
        let wanted: Vec<_> = wanted.into_iter().map(|(id, (at, per))| (at, id, per)).collect();
        let device = Device::netdev(name);
        (!wanted.is_empty()).then(|| Self {
            name: name.to_owned(),
            device,
            count: statistics.len(),
            wanted,
        })
    }
}

impl Collector for Ethernet {
    fn name(&self) -> &'static str {
        "ethernet"
    }

    fn collect(&mut self, report: &mut Report) -> Result<Outcome, CollectError> {
        let door = match &self.door {
            Ok(door) => door.as_ref(),
            Err(error) => {
                let why = format!("cannot open a socket: {error}; allow AF_INET sockets");
                return Err(CollectError::Driver(why));
            }
        };
        let found = names(&self.folder)
            .map_err(|source| CollectError::Read { path: self.folder.clone(), source })?;
        if found != self.names || self.ticks_to_look == 0 {
            self.cards = discover(&self.folder, &found, &self.exclude, door);
            self.wires.retain(|name, _| found.contains(name));
            self.names = found;
            self.ticks_to_look = TICKS_BETWEEN_LOOKS;
        }
        self.ticks_to_look -= 1;
        if self.cards.is_empty() {
            let why = "no network driver with statistics of its own that gaunt knows";
            return Ok(Outcome::Nothing(why.to_owned()));
        }
        let (now, mut failed) = (Instant::now(), Vec::new());
        for card in &self.cards {
            let device = report.device(card.device.clone());
            let read = door.read(&card.name, card.count, &mut self.values);
            if let Err(error) = &read {
                failed.push(format!("{}: {error}", card.name));
                if error.kind() == io::ErrorKind::InvalidData {
                    // Its queues changed, and with them its statistics.
                    self.ticks_to_look = 0;
                }
            }
            for (at, metric, per) in &card.wanted {
                let reading = match &read {
                    Ok(()) => self.values.get(*at).map(|value| Reading::of(*value as f64 / per)),
                    Err(error) => Some(absence(error).into()),
                };
                let reading = reading.unwrap_or(Absent::Error.into());
                report.push(device, *metric, reading);
            }
            let wire = self.wires.entry(card.name.clone()).or_default();
            wire.tell(&card.device, now, report);
        }
        if failed.is_empty() {
            Ok(Outcome::Found)
        } else {
            Err(CollectError::Devices(failed.join("; ")))
        }
    }
}

#[cfg(test)]
mod tests;
