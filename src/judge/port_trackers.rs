//! Port trackers: whether each port is active, was active before, and since when it is down.

use gaunt_cluster::Cluster;
use gaunt_schema::{
    DeviceClass, SanitizedText, UnixMs,
    catalogue::{host, port},
};
use serde::{Deserialize, Serialize};

use super::{
    Thresholds,
    compact_value::{CompactValue, NodeTag},
    host_averages::LEAST_TRAFFIC,
    link_averages::{LinkAverages, LinkTable, current_value},
    moving_average::CompactTimestamp,
    port_link::is_port_active,
};

/// What a link counts within so many seconds belongs to one stop.
const ONE_STOP_SECONDS: f64 = 30.0;

/// The state of each port, by row.
#[derive(Debug, Default)]
pub(super) struct PortTrackers {
    ports: Vec<Option<PortTracker>>,
}

/// The state of one port: thirty-six bytes.
#[derive(Clone, Debug)]
pub(super) struct PortTracker {
    /// The node that it is on: a row may be reassigned.
    pub(super) node: NodeTag,
    last_sampled: CompactTimestamp,
    past: PortUse,
    /// `link_downed` and `link_error_recovery` when it was last active: the device counts neither far.
    downed_before: CompactValue,
    recovered_before: CompactValue,
    /// The rate when it was last active.
    rate_before: CompactValue,
    /// Consecutive samples that show it down, and the time of the first.
    down: u16,
    since: CompactTimestamp,
    /// When its link last stopped between two samples that show it active, and when before that: it went down and came up
    /// again, or recovered from errors while its state stayed active.
    fell_at: [CompactTimestamp; 2],
    /// What told of the last time.
    pub(super) stop: LinkStop,
}

/// What a port was seen to do while it was active.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum PortUse {
    /// It was never seen active.
    #[default]
    NeverActive,
    /// Nobody counts what it carries.
    Unknown,
    /// It has carried next to nothing.
    Idle,
    /// It has carried the traffic of a job.
    Carries,
}

/// What tells that a link stopped between two samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum LinkStop {
    /// The port counts that it went down.
    #[default]
    Down,
    /// The port counts that it recovered from errors, and did not go down.
    Recovery,
    /// Its network device counts that the carrier went or came.
    Carrier,
}

/// One sample of a port, or of a network device that stands for a port.
#[derive(Clone, Copy, Debug)]
pub(super) struct PortSample {
    pub(super) at: UnixMs,
    pub(super) is_active: bool,
    /// How often it went down, as it counts itself.
    pub(super) downed: Option<f64>,
    /// How often it recovered from errors.
    pub(super) recovered: Option<f64>,
    /// Whether its network device counts a change of the carrier since the sample before.
    pub(super) has_carrier_changed: bool,
    /// The line rate.
    pub(super) rate: Option<f64>,
    /// The share of that which it carries.
    pub(super) load: Option<f64>,
}

/// The last values of an active port, as saved over a restart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct LastActive {
    /// Its `link_downed` counter.
    #[serde(skip_serializing_if = "Option::is_none")]
    downed: Option<f64>,
    /// Its line rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    rate: Option<f64>,
    /// Since when it is down, if it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    down_since: Option<UnixMs>,
    /// Whether it has carried next to nothing.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    idle: bool,
}

impl PortTracker {
    /// Creates the state of a port that is not known to have been active.
    pub(super) fn new(node: NodeTag, at: UnixMs) -> Self {
        Self {
            node,
            last_sampled: CompactTimestamp::NEVER,
            past: PortUse::NeverActive,
            downed_before: CompactValue::default(),
            recovered_before: CompactValue::default(),
            rate_before: CompactValue::default(),
            down: 0,
            since: CompactTimestamp::of(at),
            fell_at: [CompactTimestamp::default(); 2],
            stop: LinkStop::default(),
        }
    }

    /// Creates the state of a port that was active before a restart.
    pub(super) fn restored(node: NodeTag, last: LastActive, now: UnixMs) -> Self {
        // A clock that was set back must not leave the start in the future.
        let since = last.down_since.unwrap_or(now).min(now);
        Self {
            past: if last.idle { PortUse::Idle } else { PortUse::Carries },
            downed_before: last.downed.into(),
            rate_before: last.rate.into(),
            // It was down then; one sample now confirms that it still is.
            down: u16::from(last.down_since.is_some()),
            ..Self::new(node, since)
        }
    }

    /// Whether it was ever seen active.
    pub(super) fn was_active(&self) -> bool {
        self.past != PortUse::NeverActive
    }

    /// Whether it was active, and may have carried the traffic of a job.
    pub(super) fn was_used(&self) -> bool {
        self.was_active() && self.past != PortUse::Idle
    }

    /// Returns its last active values, if it ever was active.
    pub(super) fn last_active(&self, now: UnixMs) -> Option<LastActive> {
        let down_since = (self.down > 0).then(|| self.down_since(now));
        self.was_active().then(|| LastActive {
            idle: self.past == PortUse::Idle,
            downed: self.downed_before(),
            rate: self.rate_before(),
            down_since,
        })
    }

    /// Returns its `link_downed` counter when it was last active.
    pub(super) fn downed_before(&self) -> Option<f64> {
        self.downed_before.known().map(f64::from)
    }

    /// Returns the consecutive samples that show it down.
    pub(super) fn down_samples(&self) -> u32 {
        u32::from(self.down)
    }

    /// Returns the time of the first of them, or of the first sample of all.
    pub(super) fn down_since(&self, now: UnixMs) -> UnixMs {
        self.since.to_instant(now)
    }

    /// Returns its rate when it was last active.
    pub(super) fn rate_before(&self) -> Option<f64> {
        self.rate_before.known().map(f64::from)
    }

    /// Adds that its link stopped: a link that goes down may count a recovery a moment later.
    fn add_stop(&mut self, at: UnixMs, stop: LinkStop) {
        let at = CompactTimestamp::of(at);
        let [last, _] = self.fell_at;
        if last.is_set() && at.seconds_since(last) < ONE_STOP_SECONDS {
            return;
        }
        self.fell_at = [at, last];
        self.stop = stop;
    }

    /// Returns the last two times at which its link stopped between two samples, if both are within this span.
    pub(super) fn recent_falls(&self, now: UnixMs, span_s: f64) -> Option<[UnixMs; 2]> {
        let is_recent = |at: &CompactTimestamp| {
            at.is_set() && CompactTimestamp::of(now).seconds_since(*at) <= span_s
        };
        self.fell_at.iter().all(is_recent).then(|| self.fell_at.map(|at| at.to_instant(now)))
    }

    /// Whether its first sample is later than an instant; of a port that was down since then that is not known.
    pub(super) fn appeared_after(&self, at: UnixMs) -> bool {
        self.since.is_after(CompactTimestamp::of(at))
    }

    /// Whether a sample of this time is later than the last one.
    pub(super) fn is_new(&self, at: UnixMs) -> bool {
        CompactTimestamp::of(at).is_after(self.last_sampled)
    }

    /// Ingests a sample that is later than the last one.
    pub(super) fn add_sample(&mut self, sample: PortSample, limits: &Thresholds) {
        let is_first = !self.last_sampled.is_set();
        self.last_sampled = CompactTimestamp::of(sample.at);
        let rose = |was: CompactValue, now: Option<f64>| {
            was.known().zip(now).is_some_and(|(was, now)| now as f32 > was)
        };
        let fell = rose(self.downed_before, sample.downed);
        let stop = if fell {
            Some(LinkStop::Down)
        } else if rose(self.recovered_before, sample.recovered) {
            Some(LinkStop::Recovery)
        } else {
            (sample.has_carrier_changed && !is_first).then_some(LinkStop::Carrier)
        };
        if sample.is_active {
            if let Some(stop) = stop.filter(|_| self.down == 0) {
                self.add_stop(sample.at, stop);
            }
            self.past = match (self.past, sample.load) {
                (PortUse::Carries, _) => PortUse::Carries,
                (_, Some(load)) if load >= LEAST_TRAFFIC => PortUse::Carries,
                (_, Some(_)) => PortUse::Idle,
                (PortUse::NeverActive, None) => PortUse::Unknown,
                (past, None) => past,
            };
            self.down = 0;
            self.downed_before = sample.downed.into();
            self.recovered_before = sample.recovered.into();
            self.rate_before = sample.rate.into();
            return;
        }
        if self.down == 0 {
            self.since = CompactTimestamp::of(sample.at);
        }
        self.down = self.down.saturating_add(1);
        // The link itself counted that it went down: no second sample is needed.
        if fell || stop == Some(LinkStop::Carrier) {
            self.down = self.down.max(u16::try_from(limits.port_samples).unwrap_or(u16::MAX));
        }
    }
}

impl PortTrackers {
    /// Returns the state of the port at this row.
    pub(super) fn of(&self, row: u32) -> Option<&PortTracker> {
        self.ports.get(row as usize)?.as_ref()
    }

    /// Returns the last active values of every port that was ever active, by row.
    pub(super) fn snapshot_active(&self, now: UnixMs) -> impl Iterator<Item = (u32, LastActive)> {
        let trackers = (0..).zip(&self.ports);
        trackers.filter_map(move |(row, port)| Some((row, port.as_ref()?.last_active(now)?)))
    }

    /// Restores a port of this node that was active before a restart.
    pub(super) fn restore_port(
        &mut self,
        node: &SanitizedText,
        row: u32,
        last: LastActive,
        now: UnixMs,
    ) {
        if self.ports.len() <= row as usize {
            self.ports.resize(row as usize + 1, None);
        }
        let port = &mut self.ports[row as usize];
        let node = NodeTag::of(node);
        if port.as_ref().is_none_or(|port| port.node != node) {
            *port = Some(PortTracker::restored(node, last, now));
        }
    }

    /// Ingests the newest sample of every port.
    pub(super) fn observe_ports(
        &mut self,
        cluster: &Cluster,
        links: &LinkTable,
        limits: &Thresholds,
    ) {
        self.ports.resize(cluster.row_count(DeviceClass::Port), None);
        for (_, node) in cluster.sorted_nodes() {
            let Some(at) = node.last_fed(DeviceClass::Port) else { continue };
            let tag = NodeTag::of(&node.name);
            for row in node.device_rows(DeviceClass::Port) {
                let Some(is_active) = is_port_active(cluster, *row) else { continue };
                let slot = &mut self.ports[*row as usize];
                if slot.as_ref().is_some_and(|port| port.node != tag) {
                    *slot = None;
                }
                let port = slot.get_or_insert_with(|| PortTracker::new(tag, at));
                if !port.is_new(at) {
                    continue;
                }
                let value = |metric| cluster.current_value(metric, *row);
                let netdev = links.of(*row).and_then(LinkAverages::netdev_row);
                let fed = node.last_fed(DeviceClass::Netdev).filter(|fed| port.is_new(*fed));
                let changes = netdev.zip(fed).and_then(|(netdev, _)| {
                    cluster.current_rate(host::NETDEV_CARRIER_CHANGES, netdev)
                });
                let sample = PortSample {
                    at,
                    is_active,
                    downed: value(port::LINK_DOWNED),
                    recovered: value(port::LINK_ERROR_RECOVERY),
                    has_carrier_changed: changes.is_some_and(|rate| rate > 0.0),
                    rate: value(port::RATE),
                    load: links.of(*row).and_then(|link| current_value(link.utilization, cluster)),
                };
                port.add_sample(sample, limits);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_takes_little_and_knows_since_when_it_is_down() {
        assert_eq!(size_of::<Option<PortTracker>>(), 36);
        let at = |millis: i64| UnixMs(1_800_000_000_000 + millis);
        let port = PortTracker::new(NodeTag::of(&SanitizedText::new("gpu001")), at(7_000));
        assert_eq!(port.down_since(at(7_000)), at(7_000));
        assert_eq!(port.down_since(at(95_030)), at(7_000));
    }

    #[test]
    fn port_that_was_used_before_a_restart_is_used_while_its_job_pauses() {
        let (node, at) = (NodeTag::of(&SanitizedText::new("gpu001")), UnixMs(1_800_000_000_000));
        let used_after = |idle: bool| {
            let saved = LastActive { idle, ..LastActive::default() };
            let mut port = PortTracker::restored(node, saved, at);
            let sample = PortSample {
                at: UnixMs(at.0 + 10_000),
                is_active: true,
                downed: None,
                recovered: None,
                has_carrier_changed: false,
                rate: None,
                load: Some(0.0),
            };
            port.add_sample(sample, &Thresholds::default());
            port.was_used()
        };
        assert_eq!([used_after(false), used_after(true)], [true, false]);
    }

    #[test]
    fn link_that_stops_twice_is_told_and_one_stop_that_is_counted_twice_is_not() {
        let at = |second: i64| UnixMs(1_800_000_000_000 + second * 1_000);
        let mut port = PortTracker::new(NodeTag::of(&SanitizedText::new("gpu001")), at(0));
        port.add_stop(at(10), LinkStop::Down);
        port.add_stop(at(15), LinkStop::Recovery);
        assert_eq!(port.recent_falls(at(20), 60.0), None);
        port.add_stop(at(50), LinkStop::Recovery);
        assert_eq!(port.recent_falls(at(60), 60.0), Some([at(50), at(10)]));
        assert_eq!(port.stop, LinkStop::Recovery);
        assert_eq!(port.recent_falls(at(200), 60.0), None, "long ago");
    }
}
