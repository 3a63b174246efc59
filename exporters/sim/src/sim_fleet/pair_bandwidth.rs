//! What a probe would measure between the ports of two nodes at the instant that the fleet was last advanced to.

use super::SimFleet;
use crate::{ring_routes::RATE_BYTES_PER_S, sim_machine::NodeRole};

/// Share of the link rate that a transfer between two idle nodes reaches.
const USUAL_SHARE: f64 = 0.94;

/// How much measurements of one pair differ.
const SPREAD: f64 = 0.01;

impl SimFleet {
    /// Nodes in no job, on which probes may run: positions as in [`SimFleet::node_report`].
    pub fn free_nodes(&self) -> impl Iterator<Item = usize> {
        let machines = self.machines.iter().enumerate();
        machines.filter(|(_, machine)| machine.role == NodeRole::Free).map(|(node, _)| node)
    }

    /// The bandwidth between two ports, each a node's position and a rail, in bytes per second; none if the fleet has no
    /// such port, or if one of the links is down.
    pub fn pair_bandwidth(&self, ends: [(usize, usize); 2]) -> Option<f64> {
        let now = self.window.now;
        let mut noise = self.window.noise.child_key(now.to_bits());
        let mut rate = RATE_BYTES_PER_S;
        for (node, rail) in ends {
            let port = self.machines.get(node)?.ports.get(rail)?;
            if !port.is_up(now) {
                return None;
            }
            rate = rate.min(RATE_BYTES_PER_S / port.rate_divisor(now));
            noise = noise.child_key(node as u64).child_key(rail as u64);
        }
        Some(rate * USUAL_SHARE * noise.random_factor(SPREAD))
    }
}
