//! The fabric: which port carries which share of a gang's ring, and what the ports have counted.

use crate::{GPUS_PER_NODE as RAILS, noise::Noise};

/// Line rate of a port: 400 Gb/s.
pub(crate) const RATE_BYTES_PER_S: f64 = 50e9;
/// What the driver names as the rate of an Ethernet port without a link: four lanes of the oldest speed it has.
pub(crate) const RATE_DOWN_BYTES_PER_S: f64 = 5e9;
/// Payload of a RoCE packet.
pub(crate) const PACKET_BYTES: f64 = 4_096.0;

/// Ring shares that one port carries in a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Load {
    pub(crate) transmit: u8,
    pub(crate) receive: u8,
}

/// Where the flows of a gang go. On each rail, each node sends to the next one of the ring.
#[derive(Clone, Debug)]
pub(crate) struct Routes {
    /// For each node of the gang, the load of each of its ports.
    pub(crate) loads: Vec<[Load; RAILS]>,
    /// Which ports were down when these routes were laid.
    down: Vec<(usize, usize)>,
}

impl Routes {
    pub(crate) fn new(members: usize) -> Self {
        let mut routes = Self { loads: vec![[Load::default(); RAILS]; members], down: Vec::new() };
        routes.lay();
        routes
    }

    /// Lays the routes anew if other ports, as pairs of member and rail, are down than before.
    pub(crate) fn avoid(&mut self, down: Vec<(usize, usize)>) {
        if self.down != down {
            self.down = down;
            self.lay();
        }
    }

    /// The most shares that one port carries: it is done last.
    pub(crate) fn worst(&self) -> u8 {
        let ports = self.loads.iter().flatten();
        ports.map(|load| load.transmit.max(load.receive)).max().unwrap_or(0)
    }

    fn lay(&mut self) {
        let members = self.loads.len();
        self.loads.fill([Load::default(); RAILS]);
        if members < 2 {
            return; // A single node talks to itself over NVLink.
        }
        for from in 0..members {
            let to = (from + 1) % members;
            for rail in 0..RAILS {
                if let Some(rail) = self.rail_for(from, to, rail) {
                    self.loads[from][rail].transmit += 1;
                    self.loads[to][rail].receive += 1;
                }
            }
        }
    }

    /// The rail that a flow takes: its own, else that of the neighbour behind the same PCIe switch, else the next.
    fn rail_for(&self, from: usize, to: usize, rail: usize) -> Option<usize> {
        let up = |rail: &usize| {
            !self
                .down
                .iter()
                .any(|&(member, down)| down == *rail && (member == from || member == to))
        };
        (0..RAILS).map(|step| rail ^ step).find(up)
    }
}

/// A port and all that it has counted.
#[derive(Clone, Debug)]
pub(crate) struct Port {
    /// Bytes sent and received from the origin until the current step began. Apart from those before, so that
    /// fractions are not lost beside a large total.
    pub(crate) base: Bytes,
    /// Bytes sent and received from the origin until the instant that is shown.
    pub(crate) shown: Bytes,
    /// Bytes sent and received before the origin.
    pub(crate) booted: Bytes,
    /// When its link is down, in seconds since the origin.
    pub(crate) outages: Vec<(f64, f64)>,
    /// When the port that it talks to goes down.
    pub(crate) peer_outages: Vec<f64>,
    /// What the slow error counters stood at before the run.
    pub(crate) symbol_errors: f64,
    /// Times that the link went down before the run.
    pub(crate) link_downed: f64,
}

/// Bytes in both directions.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Bytes {
    pub(crate) transmit: f64,
    pub(crate) receive: f64,
}

impl Bytes {
    /// These, and what a load carries if each of its shares has moved `share` bytes.
    pub(crate) fn plus(self, load: Load, share: f64) -> Self {
        Self {
            transmit: self.transmit + f64::from(load.transmit) * share,
            receive: self.receive + f64::from(load.receive) * share,
        }
    }
}

impl Port {
    pub(crate) fn after_boot(noise: Noise, uptime: f64) -> Self {
        // A port counts words of four bytes.
        let words = |mean_rate: f64| (uptime * mean_rate / 4.0).floor() * 4.0;
        let rate = noise.child(0).between(1e9, 2e9);
        Self {
            base: Bytes::default(),
            shown: Bytes::default(),
            booted: Bytes {
                transmit: words(rate),
                receive: words(rate * noise.child(1).factor(0.01)),
            },
            outages: Vec::new(),
            peer_outages: Vec::new(),
            symbol_errors: noise.child(2).below(4) as f64,
            link_downed: noise.child(3).below(2) as f64,
        }
    }

    pub(crate) fn is_up(&self, now: f64) -> bool {
        !self.outages.iter().any(|&(from, until)| from <= now && now < until)
    }

    /// How often the link has gone down and come up again in this run.
    pub(crate) fn downs_and_ups(&self, now: f64) -> (usize, usize) {
        let downs = self.outages.iter().filter(|(from, _)| *from <= now).count();
        let ups = self.outages.iter().filter(|(_, until)| *until <= now).count();
        (downs, ups)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn total(routes: &Routes) -> (u32, u32) {
        routes.loads.iter().flatten().fold((0, 0), |(sent, received), load| {
            (sent + u32::from(load.transmit), received + u32::from(load.receive))
        })
    }

    #[test]
    fn every_share_that_is_sent_is_received_whatever_is_down() {
        let mut routes = Routes::new(6);
        assert_eq!((total(&routes), routes.worst()), ((48, 48), 1));
        routes.avoid(vec![(2, 3)]);
        assert_eq!((total(&routes), routes.worst()), ((48, 48), 2));
        assert_eq!(routes.loads[2][3], Load::default());
        assert_eq!(routes.loads[2][2], Load { transmit: 2, receive: 2 });
        assert_eq!(routes.loads[1][3], Load { transmit: 0, receive: 1 });
        assert_eq!(routes.loads[4][3], Load { transmit: 1, receive: 1 });
        routes.avoid((0..7).map(|rail| (2, rail)).collect());
        assert_eq!((total(&routes), routes.worst()), ((48, 48), 8));
        routes.avoid(Vec::new());
        assert_eq!(routes.worst(), 1);
    }

    #[test]
    fn a_node_alone_leaves_the_fabric_alone() {
        assert_eq!(Routes::new(1).worst(), 0);
    }
}
