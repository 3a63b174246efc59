//! What cables and switches do to a gang's packets in a step.

use gaunt_schema::catalogue::{ethernet, port};

use super::Gang;
use crate::{
    fabric::{PACKET_BYTES, RATE_BYTES_PER_S},
    fault::Effect,
    port::Wire,
};

/// Time in which a packet is on a line that is full.
const PACKET_S: f64 = PACKET_BYTES / RATE_BYTES_PER_S;

/// A pause frame stops a line for about as long.
const PAUSE_S: f64 = 80e-6;

impl Gang {
    /// What the cable of each port does at an instant; nothing if none does anything unusual.
    pub(super) fn wires_at(&self, at: f64) -> Option<Vec<Wire>> {
        let unusual =
            |fault: &&crate::fault::Affliction| fault.effect.is_of_wires() && fault.at(at);
        self.afflictions.iter().find(unusual)?;
        let members = self.nodes.len();
        let mut wires = vec![self.usual_wire; members * self.rails];
        for member in 0..members {
            for effect in self.effects(member, at) {
                for rail in (0..self.rails).filter(|rail| touches(effect, *rail)) {
                    // What is received badly here was sent by the neighbour in the ring.
                    let before = (member + members - 1) % members * self.rails + rail;
                    let noise = self.noise.child(7).child(self.step).child(before as u64);
                    Self::harm(
                        &mut wires,
                        member * self.rails + rail,
                        before,
                        effect,
                        noise.unit(),
                    );
                }
            }
        }
        Some(wires)
    }

    /// What one effect does to a port and to the one that sends to it; `luck` is from 0 to 1.
    fn harm(wires: &mut [Wire], here: usize, sender: usize, effect: Effect, luck: f64) {
        let add = |wire: &mut crate::port::Counts, metric, number: f64| {
            *wire = wire.and(metric, number);
        };
        match effect {
            Effect::RateLow { factor, .. } => wires[here].slow *= factor,
            Effect::LinkErrors { factor, errors, .. } => {
                // Losses come in showers: one step is hardly touched, the next twice as much.
                wires[here].slow *= 1.0 + (factor - 1.0) * 2.0 * luck;
                let errors = errors * (0.5 + luck);
                add(&mut wires[here].second, port::SYMBOL_ERRORS, errors);
                add(&mut wires[here].second, port::RECEIVE_ERRORS, errors * 0.2);
                add(&mut wires[here].second, ethernet::CORRECTED_BITS, errors * 5e4);
                add(&mut wires[here].received, port::OUT_OF_SEQUENCE, 2e-5);
                add(&mut wires[sender].sent, port::PACKET_SEQUENCE_ERRORS, 1.5e-5);
                add(&mut wires[sender].sent, port::ADAPTIVE_RETRANSMITS, 8e-6);
                add(&mut wires[sender].second, port::LOCAL_ACK_TIMEOUTS, 0.02 * errors.min(20.0));
            }
            Effect::LeafCongested { factor, .. } | Effect::RailSlow { factor, .. } => {
                wires[here].slow *= factor * (0.9 + 0.2 * luck);
                let deep = (1.0 - 1.0 / factor) * (0.7 + 0.6 * luck);
                add(&mut wires[here].received, port::ECN_MARKED, 0.25 * deep);
                add(&mut wires[here].received, port::CNP_SENT, 0.04 * deep);
                add(&mut wires[sender].sent, port::CNP_HANDLED, 0.04 * deep);
                add(&mut wires[sender].sent, port::TRANSMIT_WAIT, 9.0 * deep);
                add(&mut wires[sender].second, port::SLOW_RESTARTS, 0.4 * deep);
                // Before notifications take hold, the switch stops who sends into its full queues.
                let paused = 0.15 * deep * (factor - 1.0) * PACKET_S;
                add(&mut wires[sender].sent, ethernet::RECEIVE_PAUSED_3, paused);
                add(&mut wires[sender].sent, ethernet::RECEIVE_PAUSE_3, paused / PAUSE_S);
            }
            Effect::HostBlocks { factor } => {
                wires[here].slow *= factor * (0.9 + 0.2 * luck);
                let deep = 1.0 - 1.0 / factor;
                // A line that takes so many times longer stands still for the rest of the time.
                let paused = (factor - 1.0) * PACKET_S;
                add(&mut wires[here].received, ethernet::TRANSMIT_PAUSED_3, paused);
                add(&mut wires[here].received, ethernet::TRANSMIT_PAUSE_3, paused / PAUSE_S);
                add(&mut wires[sender].sent, ethernet::RECEIVE_PAUSED_3, paused * 0.6);
                add(&mut wires[sender].sent, ethernet::RECEIVE_PAUSE_3, paused * 0.6 / PAUSE_S);
                add(&mut wires[here].received, port::OUT_OF_BUFFER, 3e-5 * deep);
                add(&mut wires[sender].sent, port::RNR_NAK_RETRIES, 4e-5 * deep);
                add(&mut wires[sender].sent, port::TRANSMIT_WAIT, 12.0 * deep);
            }
            Effect::AdaptiveRouting => {
                add(&mut wires[here].received, port::OUT_OF_SEQUENCE, 0.02 * (0.5 + luck));
            }
            Effect::Crash => {
                add(&mut wires[here].second, port::LOCAL_ACK_TIMEOUTS, 6.0 * luck);
                add(&mut wires[here].second, port::RNR_NAK_RETRIES, 15.0 * luck);
                add(&mut wires[here].second, port::PACKET_SEQUENCE_ERRORS, 2.0 * luck);
            }
            _ => {}
        }
    }
}

/// Whether an effect on a node touches its port on this rail.
fn touches(effect: Effect, here: usize) -> bool {
    match effect {
        Effect::RateLow { rail, .. }
        | Effect::LinkErrors { rail, .. }
        | Effect::LeafCongested { rail, .. }
        | Effect::RailSlow { rail, .. } => rail == here,
        effect => effect.is_of_wires(),
    }
}
