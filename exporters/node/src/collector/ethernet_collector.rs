//! Counters of Ethernet cards themselves: PFC pauses by priority and direction, discards, ECN marks, link quality.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    time::Instant,
};

use gaunt_schema::{AbsenceReason, Device, MetricId, Reading, Report};

use super::{CollectError, CollectOutcome, Collector, absent_reason};
use crate::{
    SamplerOptions,
    device_exclusions::DeviceExclusions,
    ethtool::{DriverStatistics, EthtoolSocket},
    kernel_files::{list_names, read_once},
};

mod bit_error_ratios;
mod statistic_names;

use bit_error_ratios::BitErrorWindow;
use statistic_names::metric_of_statistic;

/// The most cards that are read: each costs a firmware command.
const MAX_CARDS: usize = 32;

/// After this many ticks the cards are discovered again: their statistics change with their queues.
const TICKS_BETWEEN_LOOKS: u32 = 60;

/// Reads the driver statistics of the network devices in `SYS/class/net`.
pub(super) struct EthernetCollector {
    folder: PathBuf,
    exclude: DeviceExclusions,
    statistics: io::Result<Box<dyn DriverStatistics>>,
    names: Vec<String>,
    cards: Vec<EthernetCard>,
    bit_errors: BTreeMap<String, BitErrorWindow>,
    ticks_to_look: u32,
    values: Vec<u64>,
}

/// One card, and which of its statistics are reported.
struct EthernetCard {
    name: String,
    device: Device,
    count: usize,
    /// Position, metric, and how many of the card's units make one of ours.
    metrics: Vec<(usize, MetricId, f64)>,
}

impl EthernetCollector {
    pub(super) fn new(options: &SamplerOptions) -> Self {
        let socket = EthtoolSocket::open_socket()
            .map(|socket| Box::new(socket) as Box<dyn DriverStatistics>);
        Self::with_statistics(options, socket)
    }

    fn with_statistics(
        options: &SamplerOptions,
        statistics: io::Result<Box<dyn DriverStatistics>>,
    ) -> Self {
        Self {
            folder: options.sys_root.join("class/net"),
            exclude: DeviceExclusions::new(&options.exclude),
            statistics,
            names: Vec::new(),
            cards: Vec::new(),
            bit_errors: BTreeMap::new(),
            ticks_to_look: 0,
            values: Vec::new(),
        }
    }
}

/// The cards with known statistics among the network devices, by name.
fn discover_cards(
    folder: &Path,
    names: &[String],
    exclude: &DeviceExclusions,
    statistics: &dyn DriverStatistics,
) -> Vec<EthernetCard> {
    let cards = names.iter().filter(|name| {
        let device = folder.join(name);
        // The tree may be of another network namespace, or a copy.
        let index = read_once(&device.join("ifindex")).and_then(|index| index.parse().ok());
        !exclude.is_excluded(name)
            && device.join("device").exists()
            && index.is_some_and(|index: u32| {
                statistics.device_index(name).is_ok_and(|device_index| device_index == index)
            })
    });
    cards
        .take(MAX_CARDS)
        .filter_map(|name| EthernetCard::new(name, &statistics.statistic_names(name).ok()?))
        .collect()
}

impl EthernetCard {
    fn new(name: &str, statistics: &[String]) -> Option<Self> {
        let mut by_metric: BTreeMap<MetricId, (usize, f64)> = BTreeMap::new();
        for (position, statistic) in statistics.iter().enumerate() {
            if let Some((metric, divisor)) = metric_of_statistic(statistic) {
                by_metric.entry(metric).or_insert((position, divisor));
            }
        }
        let metrics: Vec<_> = by_metric
            .into_iter()
            .map(|(id, (position, divisor))| (position, id, divisor))
            .collect();
        let device = Device::new_netdev(name);
        (!metrics.is_empty()).then(|| Self {
            name: name.to_owned(),
            device,
            count: statistics.len(),
            metrics,
        })
    }
}

impl Collector for EthernetCollector {
    fn name(&self) -> &'static str {
        "ethernet"
    }

    fn collect_readings(&mut self, report: &mut Report) -> Result<CollectOutcome, CollectError> {
        let statistics = match &self.statistics {
            Ok(statistics) => statistics.as_ref(),
            Err(error) => {
                let why = format!("cannot open a socket: {error}; allow AF_INET sockets");
                return Err(CollectError::Driver(why));
            }
        };
        let names = list_names(&self.folder)
            .map_err(|source| CollectError::Read { path: self.folder.clone(), source })?;
        if names != self.names || self.ticks_to_look == 0 {
            self.cards = discover_cards(&self.folder, &names, &self.exclude, statistics);
            self.bit_errors.retain(|name, _| names.contains(name));
            self.names = names;
            self.ticks_to_look = TICKS_BETWEEN_LOOKS;
        }
        self.ticks_to_look -= 1;
        if self.cards.is_empty() {
            let why = "no network device with supported driver statistics";
            return Ok(CollectOutcome::Nothing(why.to_owned()));
        }
        let (now, mut failed) = (Instant::now(), Vec::new());
        for card in &self.cards {
            let device = report.ensure_device(card.device.clone());
            let read = statistics.read_statistics(&card.name, card.count, &mut self.values);
            if let Err(error) = &read {
                failed.push(format!("{}: {error}", card.name));
                if error.kind() == io::ErrorKind::InvalidData {
                    // The number of queues changed, and with it the statistics.
                    self.ticks_to_look = 0;
                }
            }
            for (position, metric, divisor) in &card.metrics {
                let reading = match &read {
                    Ok(()) => {
                        self.values.get(*position).map(|value| Reading::of(*value as f64 / divisor))
                    }
                    Err(error) => Some(absent_reason(error).into()),
                };
                let reading = reading.unwrap_or(AbsenceReason::Error.into());
                report.push(device, *metric, reading);
            }
            let window = self.bit_errors.entry(card.name.clone()).or_default();
            window.report_error_ratios(&card.device, now, report);
        }
        if failed.is_empty() {
            Ok(CollectOutcome::Found)
        } else {
            Err(CollectError::Devices(failed.join("; ")))
        }
    }
}

#[cfg(test)]
mod tests;
