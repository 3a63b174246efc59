//! The mean times of collectives in windows of half a minute, as the inspector's own metrics files have them.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use super::log_record::LoggedOperation;
use crate::collector::inspector_file;

/// The time over which operations are averaged: that of the inspector's metrics files.
pub(super) const WINDOW: Duration = Duration::from_secs(30);

/// The units of message sizes, each 1,024 times the one before.
const SIZE_UNITS: [&str; 5] = ["B", "KB", "MB", "GB", "TB"];
const SIZE_STEP: u64 = 1_024;

/// One communicator, operation and range of message sizes of one rank.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LoggedCollective {
    pub(super) pid: u32,
    pub(super) rank: u32,
    /// Its name and hash; the hash alone if it has no name.
    pub(super) communicator: String,
    pub(super) operation: String,
    pub(super) message_size: String,
    /// Empty if the log does not state it.
    pub(super) algorithm: String,
    pub(super) ranks: u32,
    pub(super) nodes: u32,
    /// The scheduler's job, if the folder of the log names it.
    pub(super) job: String,
}

/// The means of a collective over one window.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct CollectiveMeans {
    pub(super) seconds: f64,
    /// Bytes per second; none if no operation states any.
    pub(super) algorithm_bandwidth: Option<f64>,
    pub(super) bus_bandwidth: Option<f64>,
}

/// Sums of one collective in the present window. Bandwidths are averaged geometrically, as in the metrics files.
#[derive(Clone, Copy, Debug, Default)]
struct CollectiveSums {
    count: u64,
    seconds: f64,
    algorithm: LogarithmSum,
    bus: LogarithmSum,
}

#[derive(Clone, Copy, Debug, Default)]
struct LogarithmSum {
    count: u64,
    sum: f64,
}

/// The present window, and the means of the last one.
#[derive(Debug, Default)]
pub(super) struct CollectiveWindow {
    began: Option<Instant>,
    sums: BTreeMap<LoggedCollective, CollectiveSums>,
    last: BTreeMap<LoggedCollective, CollectiveMeans>,
    /// The end of the last window.
    ended: Option<Instant>,
    /// Operations of the present window without space.
    left_out: usize,
}

impl CollectiveWindow {
    /// Adds an operation of a job.
    pub(super) fn add_operation(&mut self, operation: &LoggedOperation<'_>, job: &str) {
        let key = LoggedCollective::of(operation, job);
        if self.sums.len() >= inspector_file::MAX_COLLECTIVES && !self.sums.contains_key(&key) {
            self.left_out += 1;
            return;
        }
        let sums = self.sums.entry(key).or_default();
        sums.count += 1;
        sums.seconds += operation.times.microseconds as f64 / 1e6;
        sums.algorithm.add(operation.times.algorithm_gigabytes * 1e9);
        sums.bus.add(operation.times.bus_gigabytes * 1e9);
    }

    /// Ends the window if it is over, and returns how many operations it had no space for. The means of the last window are
    /// dropped once they are old.
    pub(super) fn end_when_over(&mut self, now: Instant) -> Option<usize> {
        let began = *self.began.get_or_insert(now);
        if now.duration_since(began) < WINDOW {
            return None;
        }
        self.began = Some(now);
        if !self.sums.is_empty() {
            let sums = std::mem::take(&mut self.sums).into_iter();
            self.last = sums.map(|(key, sums)| (key, sums.to_means())).collect();
            self.ended = Some(now);
        }
        if self.ended.is_some_and(|ended| now.duration_since(ended) > inspector_file::VALID) {
            self.last.clear();
        }
        Some(std::mem::take(&mut self.left_out))
    }

    /// The means of the last window.
    pub(super) fn last_means(&self) -> &BTreeMap<LoggedCollective, CollectiveMeans> {
        &self.last
    }
}

impl LoggedCollective {
    fn of(operation: &LoggedOperation<'_>, job: &str) -> Self {
        let LoggedOperation { header, metadata, times } = operation;
        let name = header.comm_name.as_deref().filter(|name| !matches!(*name, "" | "unknown"));
        let algorithm = times.algorithm.iter().chain(&times.protocol).map(String::as_str);
        Self {
            pid: metadata.pid,
            rank: header.rank,
            communicator: match name {
                Some(name) => format!("{name} {}", header.id),
                None => header.id.clone(),
            },
            operation: times.operation.clone(),
            message_size: format_size_range(times.message_bytes),
            algorithm: algorithm.collect::<Vec<&str>>().join("_"),
            ranks: header.n_ranks,
            nodes: header.nnodes,
            job: job.to_owned(),
        }
    }
}

impl CollectiveSums {
    fn to_means(self) -> CollectiveMeans {
        CollectiveMeans {
            seconds: self.seconds / self.count as f64,
            algorithm_bandwidth: self.algorithm.mean(),
            bus_bandwidth: self.bus.mean(),
        }
    }
}

impl LogarithmSum {
    fn add(&mut self, value: f64) {
        if value > 0.0 {
            self.count += 1;
            self.sum += value.ln();
        }
    }

    fn mean(self) -> Option<f64> {
        (self.count > 0).then(|| (self.sum / self.count as f64).exp())
    }
}

/// The range of a message size as the metrics files name it: `4-5MB`.
fn format_size_range(bytes: u64) -> String {
    if bytes == 0 {
        return "0B".to_owned();
    }
    let (mut lower, mut units) = (bytes, SIZE_UNITS.iter());
    let mut unit = units.next();
    while lower >= SIZE_STEP
        && let Some(next) = units.next()
    {
        (lower, unit) = (lower / SIZE_STEP, Some(next));
    }
    format!("{lower}-{}{}", lower + 1, unit.copied().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_sizes_are_named_as_in_the_metrics_files() {
        let named = [0, 1, 1_023, 1_024, 4 << 20, (5 << 20) - 1, 134 << 20, 1 << 50];
        let named = named.map(format_size_range);
        let expected =
            ["0B", "1-2B", "1023-1024B", "1-2KB", "4-5MB", "4-5MB", "134-135MB", "1024-1025TB"];
        assert_eq!(named, expected);
    }
}
