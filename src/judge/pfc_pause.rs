//! PFC pause: for which share of the time a port is stopped, or stops the network.

use gaunt_cluster::Cluster;
use gaunt_schema::{MetricId, catalogue::ethernet};

/// PFC pause of a port in one direction, by priority.
pub(super) struct PauseCounters {
    /// For how long it stopped the flow.
    durations: [MetricId; 9],
    /// The frames, where no duration is counted.
    frames: [MetricId; 9],
}

/// Pause that a port receives: the network stops it.
pub(super) const PAUSED: PauseCounters = PauseCounters {
    durations: [
        ethernet::RECEIVE_PAUSED_0,
        ethernet::RECEIVE_PAUSED_1,
        ethernet::RECEIVE_PAUSED_2,
        ethernet::RECEIVE_PAUSED_3,
        ethernet::RECEIVE_PAUSED_4,
        ethernet::RECEIVE_PAUSED_5,
        ethernet::RECEIVE_PAUSED_6,
        ethernet::RECEIVE_PAUSED_7,
        ethernet::RECEIVE_GLOBAL_PAUSED,
    ],
    frames: [
        ethernet::RECEIVE_PAUSE_0,
        ethernet::RECEIVE_PAUSE_1,
        ethernet::RECEIVE_PAUSE_2,
        ethernet::RECEIVE_PAUSE_3,
        ethernet::RECEIVE_PAUSE_4,
        ethernet::RECEIVE_PAUSE_5,
        ethernet::RECEIVE_PAUSE_6,
        ethernet::RECEIVE_PAUSE_7,
        ethernet::RECEIVE_GLOBAL_PAUSE,
    ],
};

/// Pause that a port sends: it stops the network.
pub(super) const PAUSES: PauseCounters = PauseCounters {
    durations: [
        ethernet::TRANSMIT_PAUSED_0,
        ethernet::TRANSMIT_PAUSED_1,
        ethernet::TRANSMIT_PAUSED_2,
        ethernet::TRANSMIT_PAUSED_3,
        ethernet::TRANSMIT_PAUSED_4,
        ethernet::TRANSMIT_PAUSED_5,
        ethernet::TRANSMIT_PAUSED_6,
        ethernet::TRANSMIT_PAUSED_7,
        ethernet::TRANSMIT_GLOBAL_PAUSED,
    ],
    frames: [
        ethernet::TRANSMIT_PAUSE_0,
        ethernet::TRANSMIT_PAUSE_1,
        ethernet::TRANSMIT_PAUSE_2,
        ethernet::TRANSMIT_PAUSE_3,
        ethernet::TRANSMIT_PAUSE_4,
        ethernet::TRANSMIT_PAUSE_5,
        ethernet::TRANSMIT_PAUSE_6,
        ethernet::TRANSMIT_PAUSE_7,
        ethernet::TRANSMIT_GLOBAL_PAUSE,
    ],
};

/// Bytes that a port could have sent while one frame stops it: 65,535 quanta of 512 bits at most. A frame of every two only
/// lets it go on, and does so long before that time is over.
const STOPPED_BYTES: f64 = 65_535.0 * 64.0 / 4.0;

impl PauseCounters {
    /// Returns the share of the time for which the flow is stopped: as counted, else as the frames of this line rate make.
    pub(super) fn stopped_share(
        &self,
        cluster: &Cluster,
        netdev: u32,
        line: Option<f64>,
    ) -> Option<f64> {
        let most = |of: [MetricId; 9]| {
            let rates = of.into_iter().filter_map(|metric| cluster.current_rate(metric, netdev));
            rates.reduce(f64::max)
        };
        most(self.durations).or_else(|| Some((most(self.frames)? * STOPPED_BYTES / line?).min(1.0)))
    }
}
