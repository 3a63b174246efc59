//! Link conditions: what cables and switches do to a job group's packets in a step.

use gaunt_schema::catalogue::{ethernet, port};

use super::SimJobGroup;
use crate::{
    ring_routes::{PACKET_BYTES, RATE_BYTES_PER_S},
    sim_fault::FaultEffect,
    sim_port::LinkCondition,
};

/// Transmission time of a packet at line rate.
const PACKET_S: f64 = PACKET_BYTES / RATE_BYTES_PER_S;

/// Approximate time for which a PFC pause frame stops a link.
const PAUSE_S: f64 = 80e-6;

impl SimJobGroup {
    /// Link condition of each port at an instant; none if all are normal.
    pub(super) fn link_conditions_at(&self, time: f64) -> Option<Vec<LinkCondition>> {
        let is_active = |fault: &&crate::sim_fault::ScheduledFault| {
            fault.effect.is_link_effect() && fault.is_active_at(time)
        };
        self.current_faults.iter().find(is_active)?;
        let members = self.nodes.len();
        let mut conditions = vec![self.usual_link; members * self.rails];
        for member in 0..members {
            for effect in self.active_effects(member, time) {
                for rail in (0..self.rails).filter(|rail| is_rail_affected(effect, *rail)) {
                    // Receive errors here belong to packets of the neighbour in the ring.
                    let sender = (member + members - 1) % members * self.rails + rail;
                    let noise =
                        self.noise.child_key(7).child_key(self.step).child_key(sender as u64);
                    Self::apply_link_effect(
                        &mut conditions,
                        member * self.rails + rail,
                        sender,
                        effect,
                        noise.random_unit(),
                    );
                }
            }
        }
        Some(conditions)
    }

    /// Applies one effect to a port and to the port that sends to it; `draw` is from 0 to 1.
    fn apply_link_effect(
        conditions: &mut [LinkCondition],
        receiver: usize,
        sender: usize,
        effect: FaultEffect,
        draw: f64,
    ) {
        let add = |counts: &mut crate::sim_port::PortCounts, metric, number: f64| {
            *counts = counts.with_count(metric, number);
        };
        match effect {
            FaultEffect::RateLow { factor, .. } => conditions[receiver].slow *= factor,
            FaultEffect::LinkErrors { factor, errors, .. } => {
                // Losses come in bursts: one step is hardly affected, the next twice as much.
                conditions[receiver].slow *= 1.0 + (factor - 1.0) * 2.0 * draw;
                let errors = errors * (0.5 + draw);
                add(&mut conditions[receiver].second, port::SYMBOL_ERRORS, errors);
                add(&mut conditions[receiver].second, port::RECEIVE_ERRORS, errors * 0.2);
                add(&mut conditions[receiver].second, ethernet::CORRECTED_BITS, errors * 5e4);
                add(&mut conditions[receiver].received, port::OUT_OF_SEQUENCE, 2e-5);
                add(&mut conditions[sender].sent, port::PACKET_SEQUENCE_ERRORS, 1.5e-5);
                add(&mut conditions[sender].sent, port::ADAPTIVE_RETRANSMITS, 8e-6);
                add(
                    &mut conditions[sender].second,
                    port::LOCAL_ACK_TIMEOUTS,
                    0.02 * errors.min(20.0),
                );
            }
            FaultEffect::LeafCongested { factor, .. } | FaultEffect::RailSlow { factor, .. } => {
                conditions[receiver].slow *= factor * (0.9 + 0.2 * draw);
                let severity = (1.0 - 1.0 / factor) * (0.7 + 0.6 * draw);
                add(&mut conditions[receiver].received, port::ECN_MARKED, 0.25 * severity);
                add(&mut conditions[receiver].received, port::CNP_SENT, 0.04 * severity);
                add(&mut conditions[sender].sent, port::CNP_HANDLED, 0.04 * severity);
                add(&mut conditions[sender].sent, port::TRANSMIT_WAIT, 9.0 * severity);
                add(&mut conditions[sender].second, port::SLOW_RESTARTS, 0.4 * severity);
                // Before CNPs take effect, the switch pauses the senders to its full queues (PFC).
                let paused = 0.15 * severity * (factor - 1.0) * PACKET_S;
                add(&mut conditions[sender].sent, ethernet::RECEIVE_PAUSED_3, paused);
                add(&mut conditions[sender].sent, ethernet::RECEIVE_PAUSE_3, paused / PAUSE_S);
            }
            FaultEffect::HostBlocks { factor } => {
                conditions[receiver].slow *= factor * (0.9 + 0.2 * draw);
                let severity = 1.0 - 1.0 / factor;
                // A link that is slower by a factor is paused for the rest of the time.
                let paused = (factor - 1.0) * PACKET_S;
                add(&mut conditions[receiver].received, ethernet::TRANSMIT_PAUSED_3, paused);
                add(
                    &mut conditions[receiver].received,
                    ethernet::TRANSMIT_PAUSE_3,
                    paused / PAUSE_S,
                );
                add(&mut conditions[sender].sent, ethernet::RECEIVE_PAUSED_3, paused * 0.6);
                add(
                    &mut conditions[sender].sent,
                    ethernet::RECEIVE_PAUSE_3,
                    paused * 0.6 / PAUSE_S,
                );
                add(&mut conditions[receiver].received, port::OUT_OF_BUFFER, 3e-5 * severity);
                add(&mut conditions[sender].sent, port::RNR_NAK_RETRIES, 4e-5 * severity);
                add(&mut conditions[sender].sent, port::TRANSMIT_WAIT, 12.0 * severity);
            }
            FaultEffect::AdaptiveRouting => {
                add(&mut conditions[receiver].received, port::OUT_OF_SEQUENCE, 0.02 * (0.5 + draw));
            }
            FaultEffect::Crash => {
                add(&mut conditions[receiver].second, port::LOCAL_ACK_TIMEOUTS, 6.0 * draw);
                add(&mut conditions[receiver].second, port::RNR_NAK_RETRIES, 15.0 * draw);
                add(&mut conditions[receiver].second, port::PACKET_SEQUENCE_ERRORS, 2.0 * draw);
            }
            _ => {}
        }
    }
}

/// Whether an effect on a node affects its port on this rail.
fn is_rail_affected(effect: FaultEffect, port_rail: usize) -> bool {
    match effect {
        FaultEffect::RateLow { rail, .. }
        | FaultEffect::LinkErrors { rail, .. }
        | FaultEffect::LeafCongested { rail, .. }
        | FaultEffect::RailSlow { rail, .. } => rail == port_rail,
        effect => effect.is_link_effect(),
    }
}
