//! Fabric routes: which port carries which share of a job group's ring.

/// Line rate of a port: 400 Gb/s.
pub(crate) const RATE_BYTES_PER_S: f64 = 50e9;
/// The rate that the driver reports for an Ethernet port without a link: four lanes of its lowest speed.
pub(crate) const RATE_DOWN_BYTES_PER_S: f64 = 5e9;
/// Payload of a RoCE packet.
pub(crate) const PACKET_BYTES: f64 = 4_096.0;

/// Ring shares that one port carries in a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PortLoad {
    pub(crate) transmit: u8,
    pub(crate) receive: u8,
}

/// Routes of a job group. Each GPU of a node sends to its peer on the next node of the ring, over its rail.
#[derive(Clone, Debug)]
pub(crate) struct RingRoutes {
    /// The load of each port, node by node.
    loads: Vec<PortLoad>,
    members: usize,
    rails: usize,
    /// Flows of one rail of one node, equal to the GPUs that share it.
    flows: usize,
    /// Ports that were down when these routes were computed.
    down_ports: Vec<(usize, usize)>,
}

impl RingRoutes {
    pub(crate) fn new(members: usize, rails: usize, gpus: usize) -> Self {
        let mut routes = Self {
            loads: vec![PortLoad::default(); members * rails],
            members,
            rails,
            flows: (gpus / rails).max(1),
            down_ports: Vec::new(),
        };
        routes.compute_loads();
        routes
    }

    /// Recomputes the routes if the set of failed ports, as pairs of member and rail, has changed.
    pub(crate) fn avoid_ports(&mut self, down_ports: Vec<(usize, usize)>) {
        if self.down_ports != down_ports {
            self.down_ports = down_ports;
            self.compute_loads();
        }
    }

    /// The load of one port.
    pub(crate) fn port_load(&self, member: usize, rail: usize) -> PortLoad {
        self.loads[member * self.rails + rail]
    }

    /// Shares that a port carries without faults.
    pub(crate) fn usual_load(&self) -> u8 {
        self.flows as u8
    }

    /// The highest load of a port of this rail, as a multiple of the normal load: it finishes last.
    pub(crate) fn worst_load(&self, rail: usize, slowdown: impl Fn(usize) -> f64) -> f64 {
        let ports = (0..self.members).map(|member| {
            let load = self.port_load(member, rail);
            f64::from(load.transmit.max(load.receive)) / self.flows as f64 * slowdown(member)
        });
        ports.fold(0.0, f64::max)
    }

    fn compute_loads(&mut self) {
        self.loads.fill(PortLoad::default());
        if self.members < 2 {
            return; // A single node communicates over NVLink only.
        }
        for from in 0..self.members {
            let to = (from + 1) % self.members;
            for rail in 0..self.rails {
                if let Some(rail) = self.rail_for(from, to, rail) {
                    self.loads[from * self.rails + rail].transmit += self.flows as u8;
                    self.loads[to * self.rails + rail].receive += self.flows as u8;
                }
            }
        }
    }

    /// The rail of a flow: its own, else that of the neighbour behind the same PCIe switch, else the next.
    fn rail_for(&self, from: usize, to: usize, rail: usize) -> Option<usize> {
        let is_up = |rail: &usize| {
            !self
                .down_ports
                .iter()
                .any(|&(member, down_rail)| down_rail == *rail && (member == from || member == to))
        };
        (0..8).map(|step| rail ^ step).filter(|rail| *rail < self.rails).find(is_up)
    }
}

#[cfg(test)]
#[expect(clippy::float_cmp, reason = "shares are small whole numbers")]
mod tests {
    use super::*;

    fn total_load(routes: &RingRoutes) -> (u32, u32) {
        routes.loads.iter().fold((0, 0), |(sent, received), load| {
            (sent + u32::from(load.transmit), received + u32::from(load.receive))
        })
    }

    fn worst_of_rails(routes: &RingRoutes) -> f64 {
        (0..routes.rails).map(|rail| routes.worst_load(rail, |_| 1.0)).fold(0.0, f64::max)
    }

    #[test]
    fn sent_shares_are_received_with_any_port_down() {
        for (rails, gpus) in [(8, 8), (4, 8), (4, 4), (2, 8)] {
            let mut routes = RingRoutes::new(6, rails, gpus);
            let flows = 6 * gpus as u32;
            assert_eq!((total_load(&routes), worst_of_rails(&routes)), ((flows, flows), 1.0));
            routes.avoid_ports(vec![(2, 1)]);
            assert_eq!((total_load(&routes), worst_of_rails(&routes)), ((flows, flows), 2.0));
            assert_eq!(routes.port_load(2, 1), PortLoad::default());
            let share = routes.usual_load();
            assert_eq!(
                routes.port_load(2, 0),
                PortLoad { transmit: 2 * share, receive: 2 * share }
            );
            assert_eq!(routes.port_load(1, 1), PortLoad { transmit: 0, receive: share });
            assert_eq!(routes.port_load(3, 1), PortLoad { transmit: share, receive: 0 });
            routes.avoid_ports((1..rails).map(|rail| (2, rail)).collect());
            assert_eq!(
                (total_load(&routes), worst_of_rails(&routes)),
                ((flows, flows), rails as f64)
            );
            routes.avoid_ports(Vec::new());
            assert_eq!(worst_of_rails(&routes), 1.0);
        }
    }

    #[test]
    fn single_node_job_does_not_use_the_fabric() {
        assert_eq!(worst_of_rails(&RingRoutes::new(1, 8, 8)), 0.0);
    }
}
