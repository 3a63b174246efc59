//! Model of a port: bytes, packets and counters, and the condition of its cable.

use gaunt_schema::{
    MetricId,
    catalogue::{ethernet, port},
};

use crate::{
    noise_key::NoiseKey,
    ring_routes::{PACKET_BYTES, PortLoad},
};

/// Counters of a port and its network device besides bytes and packets. RoCE uses priority 4 alone.
pub(crate) const COUNTED: [MetricId; 20] = [
    port::TRANSMIT_WAIT,
    port::SYMBOL_ERRORS,
    port::LINK_ERROR_RECOVERY,
    port::RECEIVE_ERRORS,
    port::TRANSMIT_DISCARDS,
    port::ECN_MARKED,
    port::CNP_SENT,
    port::CNP_HANDLED,
    port::OUT_OF_SEQUENCE,
    port::PACKET_SEQUENCE_ERRORS,
    port::LOCAL_ACK_TIMEOUTS,
    port::RNR_NAK_RETRIES,
    port::OUT_OF_BUFFER,
    port::ADAPTIVE_RETRANSMITS,
    port::SLOW_RESTARTS,
    ethernet::RECEIVE_PAUSE_3,
    ethernet::TRANSMIT_PAUSE_3,
    ethernet::RECEIVE_PAUSED_3,
    ethernet::TRANSMIT_PAUSED_3,
    ethernet::CORRECTED_BITS,
];

/// Shares of packets: ECN-marked, CNPs per packet, out of order.
const MARKED: f64 = 1.5e-5;
const NOTIFIED: f64 = 4e-6;
const REORDERED: f64 = 6e-7;

/// Wait ticks per packet sent: a loaded port waits at a low rate.
const WAIT_TICKS: f64 = 1.2e-6 * PACKET_BYTES;

/// A number for each of [`COUNTED`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct PortCounts([f64; COUNTED.len()]);

impl PortCounts {
    /// The same with a number added for one counter.
    pub(crate) fn with_count(mut self, metric: MetricId, number: f64) -> Self {
        for (index, counted) in COUNTED.into_iter().enumerate() {
            if counted == metric {
                self.0[index] += number;
            }
        }
        self
    }

    pub(crate) fn of(&self, metric: MetricId) -> f64 {
        let index = COUNTED.iter().position(|counted| *counted == metric);
        index.map_or(0.0, |index| self.0[index])
    }

    fn add_scaled(mut self, other: &Self, times: f64) -> Self {
        for (total, increase) in self.0.iter_mut().zip(other.0) {
            *total += increase * times;
        }
        self
    }
}

/// Condition of a port and its cable in a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct LinkCondition {
    /// Slowdown factor.
    pub(crate) slow: f64,
    /// Counts per packet sent.
    pub(crate) sent: PortCounts,
    /// Counts per packet received.
    pub(crate) received: PortCounts,
    /// Counts per second.
    pub(crate) second: PortCounts,
}

impl LinkCondition {
    /// A healthy cable.
    pub(crate) fn new_healthy() -> Self {
        Self {
            slow: 1.0,
            sent: PortCounts::default()
                .with_count(port::TRANSMIT_WAIT, WAIT_TICKS)
                .with_count(port::CNP_HANDLED, NOTIFIED),
            received: PortCounts::default()
                .with_count(port::ECN_MARKED, MARKED)
                .with_count(port::CNP_SENT, NOTIFIED)
                .with_count(port::OUT_OF_SEQUENCE, REORDERED),
            // Any cable has a low rate of FEC-corrected bits.
            second: PortCounts::default().with_count(ethernet::CORRECTED_BITS, 40.0),
        }
    }
}

/// Bytes in both directions.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct PortBytes {
    pub(crate) transmit: f64,
    pub(crate) receive: f64,
}

impl PortBytes {
    /// Adds what a load carries if each of its shares has moved `share` bytes.
    fn add_load(self, load: PortLoad, share: f64) -> Self {
        Self {
            transmit: self.transmit + f64::from(load.transmit) * share,
            receive: self.receive + f64::from(load.receive) * share,
        }
    }
}

/// A port and all its counters.
#[derive(Clone, Debug)]
pub(crate) struct SimPort {
    /// Bytes sent and received from the origin until the current step began. Separate from those before the origin, so
    /// that fractions are not lost in a large total.
    base: PortBytes,
    /// Bytes sent and received from the origin until the current instant.
    pub(crate) shown: PortBytes,
    /// Bytes sent and received before the origin.
    pub(crate) before_origin: PortBytes,
    base_counts: PortCounts,
    /// Its counters at the current instant.
    pub(crate) counts: PortCounts,
    /// When its link is down, in seconds since the origin.
    pub(crate) outages: Vec<(f64, f64)>,
    /// When its peer port goes down.
    pub(crate) peer_outages: Vec<f64>,
    /// When its rate is reduced, and by which factor.
    pub(crate) reduced_rates: Vec<(f64, f64, f64)>,
    /// Link-down events before the run.
    pub(crate) link_downed: f64,
}

impl SimPort {
    pub(crate) fn after_boot(noise: NoiseKey, uptime: f64) -> Self {
        // A port counts words of four bytes.
        let words = |mean_rate: f64| (uptime * mean_rate / 4.0).floor() * 4.0;
        let rate = noise.child_key(0).random_between(1e9, 2e9);
        let booted = PortBytes {
            transmit: words(rate),
            receive: words(rate * noise.child_key(1).random_factor(0.01)),
        };
        let healthy = LinkCondition::new_healthy();
        let mut counts = PortCounts::default()
            .add_scaled(&healthy.sent, booted.transmit / PACKET_BYTES)
            .add_scaled(&healthy.received, booted.receive / PACKET_BYTES)
            .with_count(port::SYMBOL_ERRORS, noise.child_key(2).random_below(4) as f64);
        // An external tool clears this counter when it is full.
        counts = counts.with_count(port::TRANSMIT_WAIT, -counts.of(port::TRANSMIT_WAIT));
        Self {
            base: PortBytes::default(),
            shown: PortBytes::default(),
            before_origin: booted,
            base_counts: counts,
            counts,
            outages: Vec::new(),
            peer_outages: Vec::new(),
            reduced_rates: Vec::new(),
            link_downed: noise.child_key(3).random_below(2) as f64,
        }
    }

    /// Advances the port to `elapsed` seconds into a step in which each share of its load moves `share` bytes.
    pub(crate) fn carry_load(
        &mut self,
        load: PortLoad,
        share: f64,
        condition: &LinkCondition,
        elapsed: f64,
        step_over: bool,
    ) {
        self.shown = self.base.add_load(load, share);
        let sent_packets = (self.shown.transmit - self.base.transmit) / PACKET_BYTES;
        let received_packets = (self.shown.receive - self.base.receive) / PACKET_BYTES;
        self.counts = self
            .base_counts
            .add_scaled(&condition.sent, sent_packets)
            .add_scaled(&condition.received, received_packets)
            .add_scaled(&condition.second, elapsed);
        if step_over {
            self.base = self.shown;
            self.base_counts = self.counts;
        }
    }

    /// Sets a counter to its value before the run.
    pub(crate) fn set_initial_count(&mut self, metric: MetricId, total: f64) {
        let change = total - self.base_counts.of(metric);
        self.base_counts = self.base_counts.with_count(metric, change);
        self.counts = self.base_counts;
    }

    pub(crate) fn is_up(&self, now: f64) -> bool {
        !self.outages.iter().any(|&(from, until)| from <= now && now < until)
    }

    /// Factor by which its rate is reduced.
    pub(crate) fn rate_divisor(&self, now: f64) -> f64 {
        let reduced =
            self.reduced_rates.iter().filter(|&&(from, until, _)| from <= now && now < until);
        reduced.map(|&(_, _, times)| times).fold(1.0, f64::max)
    }

    /// Number of times that the link has gone down and come up again in this run.
    pub(crate) fn count_link_changes(&self, now: f64) -> (usize, usize) {
        let down_count = self.outages.iter().filter(|(from, _)| *from <= now).count();
        let up_count = self.outages.iter().filter(|(_, until)| *until <= now).count();
        // A port that comes up at another rate was down for a moment.
        let rate_changes = self.reduced_rates.iter().filter(|(from, ..)| *from <= now).count();
        (down_count + rate_changes, up_count + rate_changes)
    }
}
