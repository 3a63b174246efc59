//! Counters of RDMA ports: traffic, congestion, losses, errors, and who notices them.

use super::{
    impairment::{Impairment, PortImpairment},
    noise::Noise,
    wiring::{Wiring, rail_of},
};
use crate::{
    cluster_plan::{ClusterPlan, FabricPlan, LinkLayer, PortPlan, PortRole},
    node_state::{NodeState, PortState},
    random::RandomKey,
};

/// Bytes of a packet with its headers.
const PACKET_BYTES: f64 = 4_150.0;
/// CNPs that a receiver sends per second at most.
const CNPS_PER_S: f64 = 25_000.0;

/// Rates of one port that hold until the next refresh.
#[derive(Clone, Debug, Default)]
struct PortRates {
    /// Bytes per second that belong to no collective, received and sent.
    other_in: f64,
    other_out: f64,
    /// Share of received packets with a mark.
    marks: f64,
    /// Share of received packets that come out of sequence although nothing is lost.
    reordered: f64,
    /// Share of received packets that are lost first.
    lost: f64,
    /// Share of received packets for which the host has no buffer.
    unbuffered: f64,
    /// Seconds for which each sent byte waits for credits.
    wait_per_byte: f64,
    /// Seconds for which received pause frames stop each sent byte.
    paused_per_byte: f64,
    /// Seconds for which this port stops its switch, for each received byte.
    pausing_per_byte: f64,
    /// Symbol errors per second.
    symbols: f64,
    /// Bits corrected per second.
    corrected: f64,
    /// Acknowledgements that do not come, per second.
    timeouts: f64,
    /// "Receiver not ready" answers per second.
    not_ready: f64,
    /// How strongly it shows congestion at this time.
    response: f64,
    /// Whether many ports send to it at once.
    is_overloaded: bool,
    /// Whether the link is up.
    is_up: bool,
    /// Its rate in Gbit/s.
    rate_gbps: f64,
}

/// What a port is like for ever.
#[derive(Clone, Debug)]
struct PortNature {
    noise: Noise,
    /// Share of its time at full rate in which it waits for credits, with nothing wrong.
    base_wait: f64,
    /// Corrected bits per second.
    base_corrected: f64,
    /// Pause seconds for each second of congestion.
    pause_share: f64,
    /// How strongly it shows congestion.
    response: f64,
}

/// All ports.
#[derive(Clone, Debug)]
pub(super) struct PortBank {
    /// Bytes of collectives that each port sends and receives in the next interval.
    pub(super) job_bytes: Vec<f64>,
    /// Bytes per second of storage that each port receives and sends.
    pub(super) storage: Vec<(f64, f64)>,
    /// Instants until which each port has lost its peers.
    pub(super) crashed_until_s: Vec<f64>,
    rates: Vec<PortRates>,
    natures: Vec<PortNature>,
    /// Senders to ports that many send to.
    senders: Vec<Vec<usize>>,
    /// Share of a port's waiting that spreads to the port that sends to it.
    spill: f64,
    /// CNPs for each marked packet.
    cnp_share: f64,
    plans: Vec<PortPlan>,
    fabric: FabricPlan,
}

impl PortBank {
    /// The ports of a plan.
    pub(super) fn new(plan: &ClusterPlan, key: RandomKey) -> Self {
        let plans: Vec<PortPlan> =
            plan.nodes.iter().flat_map(|node| node.ports.iter().cloned()).collect();
        let pause_gain = key.child("pauses").log_uniform(0.05, 0.6);
        let natures = (0..plans.len()).map(|port| {
            let key = key.child("port").child_index(port);
            PortNature {
                noise: Noise::new(key.child("noise")),
                base_wait: key.child("wait").log_uniform(0.003, 0.2),
                base_corrected: key.child("corrected").log_uniform(10.0, 1e5),
                pause_share: pause_gain * key.child("pause").uniform(0.7, 1.3),
                response: (0.3 * key.child("response").normal()).exp().clamp(0.4, 1.8),
            }
        });
        Self {
            job_bytes: vec![0.0; plans.len()],
            storage: vec![(0.0, 0.0); plans.len()],
            crashed_until_s: vec![f64::NEG_INFINITY; plans.len()],
            rates: vec![PortRates::default(); plans.len()],
            natures: natures.collect(),
            senders: vec![vec![]; plans.len()],
            spill: key.child("spill").uniform(0.05, 0.5),
            cnp_share: key.child("cnps").log_uniform(0.08, 1.0),
            plans,
            fabric: plan.fabric.clone(),
        }
    }

    /// Finds the ports of a job that send to one port at once when it is overloaded: those of its rail.
    pub(super) fn find_senders(&mut self, port: usize, wiring: &Wiring) {
        let rail = rail_of(&self.plans[port]);
        let is_sender = |other: &usize| {
            wiring.job_of_port[*other] == wiring.job_of_port[port]
                && rail_of(&self.plans[*other]) == rail
                && wiring.node_of_port[*other] != wiring.node_of_port[port]
        };
        self.senders[port] = (0..self.plans.len()).filter(is_sender).collect();
    }

    /// The port of a node through which it reaches its storage, if it has one of its own.
    pub(super) fn storage_port(&self, wiring: &Wiring, node: usize) -> Option<usize> {
        let first = wiring.first_port[node];
        let mut ports = (first..self.plans.len())
            .take_while(|port| wiring.node_of_port[*port] == node)
            .filter(|port| !self.plans[*port].is_never_up);
        ports.find(|port| self.plans[*port].role == PortRole::Storage)
    }

    /// Sets the rates for the time from an instant on.
    pub(super) fn refresh(&mut self, t_s: f64, impairment: &Impairment, wiring: &Wiring) {
        for port in 0..self.rates.len() {
            let state = impairment.ports[port];
            self.rates[port] = self.base_rates(port, t_s, &state, wiring);
        }
        for port in 0..self.rates.len() {
            let state = impairment.ports[port];
            if state.queue > 0.0 {
                self.fill_queue(port, state.queue, wiring);
            }
            if state.incast > 0.0 {
                self.overload(port, state.incast, wiring);
            }
            if state.slow_receiver > 0.0 {
                self.slow_down_receiver(port, state.slow_receiver, wiring);
            }
        }
        for port in 0..self.rates.len() {
            if self.crashed_until_s[port] > t_s {
                self.rates[port].timeouts += 1.5;
                self.rates[port].not_ready += 4.0;
            }
            // Peers of a port that goes down wait for its answers.
            let sender = wiring.upstream[port].filter(|_| !self.rates[port].is_up);
            if let Some(sender) = sender.filter(|_| !self.plans[port].is_never_up) {
                self.rates[sender].timeouts += 0.3;
            }
        }
    }

    /// The rates of a port, but for congestion.
    fn base_rates(
        &self,
        port: usize,
        t_s: f64,
        state: &PortImpairment,
        wiring: &Wiring,
    ) -> PortRates {
        let (plan, nature) = (&self.plans[port], &self.natures[port]);
        let noise = nature.noise;
        let is_up = !state.is_down && !plan.is_never_up && plan.role != PortRole::Unused;
        let is_ethernet = !wiring.is_infiniband;
        if !is_up {
            let rate_gbps = if is_ethernet { 40.0 } else { 10.0 };
            return PortRates { rate_gbps, ..PortRates::default() };
        }
        let wobble = (0.35 * noise.wave(t_s, 17.0)).exp();
        let background = plan.background_bytes_per_s * wobble;
        let (storage_in, storage_out) = self.storage[port];
        let has_marks = is_ethernet && self.fabric.has_ecn;
        let rate = wiring.rate[port];
        let dirt = if state.is_dirty { 1.0 + state.errors } else { 0.0 };
        let symbols = dirt * 10.0_f64.powf(0.8 + 1.6 * noise.unit(1)) * wobble;
        PortRates {
            response: nature.response * wobble,
            other_in: background + storage_in,
            other_out: 0.8 * background + storage_out,
            marks: if has_marks { plan.background_mark_share * wobble } else { 0.0 },
            reordered: plan.background_out_of_sequence_ppm * 1e-6 * wobble,
            lost: dirt * 2e-5 + if state.errors > 0.0 { 3e-4 * state.errors } else { 0.0 },
            wait_per_byte: if is_ethernet { 0.0 } else { nature.base_wait * wobble / rate },
            symbols,
            corrected: nature.base_corrected * wobble * (1.0 + 300.0 * dirt),
            timeouts: 0.01 * dirt,
            is_up,
            rate_gbps: plan.rate_gbps * (1.0 - state.lost_rate),
            ..PortRates::default()
        }
    }

    /// A full queue behind a port: whatever it receives is marked, and whatever it sends is stopped.
    fn fill_queue(&mut self, port: usize, slow: f64, wiring: &Wiring) {
        self.rates[port].marks += self.marks_of(port, slow);
        self.stop(port, slow, 1.0, wiring);
        // Whoever sends into a full queue waits too.
        if let Some(sender) = wiring.upstream[port] {
            self.stop(sender, slow, self.spill, wiring);
        }
    }

    /// Share of received packets that get a mark in a queue.
    fn marks_of(&self, port: usize, slow: f64) -> f64 {
        let has_marks = self.fabric.link_layer == LinkLayer::Ethernet && self.fabric.has_ecn;
        let gain = self.fabric.mark_gain * self.rates[port].response;
        if has_marks { gain * slow / (1.0 + slow) } else { 0.0 }
    }

    /// A port must wait before it sends: for credits, for pauses, or for what was dropped.
    fn stop(&mut self, port: usize, slow: f64, share: f64, wiring: &Wiring) {
        let share = share * self.rates[port].response;
        let seconds_per_byte = share * slow / wiring.rate[port];
        let pause_share = self.natures[port].pause_share;
        let rates = &mut self.rates[port];
        match self.fabric.link_layer {
            LinkLayer::InfiniBand => rates.wait_per_byte += 0.7 * seconds_per_byte,
            LinkLayer::Ethernet if self.fabric.has_pfc => {
                rates.paused_per_byte += pause_share * seconds_per_byte;
            }
            LinkLayer::Ethernet => rates.lost += 2e-4 * share * slow / (1.0 + slow),
        }
    }

    /// Many senders to one port: its link is full, and all of them are told so.
    fn overload(&mut self, port: usize, slow: f64, wiring: &Wiring) {
        let share = slow / (1.0 + slow);
        let fullness = 0.25 + 0.65 * self.natures[port].noise.unit(2);
        let extra = fullness * share * wiring.rate[port];
        self.rates[port].other_in += extra;
        self.rates[port].is_overloaded = true;
        self.rates[port].marks += self.marks_of(port, slow);
        let senders = std::mem::take(&mut self.senders[port]);
        for sender in &senders {
            self.rates[*sender].other_out += extra / senders.len() as f64;
            self.stop(*sender, slow, 0.6, wiring);
        }
        self.senders[port] = senders;
    }

    /// A host that takes packets too slowly: it pauses its switch, and those who send to it wait.
    fn slow_down_receiver(&mut self, port: usize, slow: f64, wiring: &Wiring) {
        let share = slow / (1.0 + slow);
        let is_ethernet = self.fabric.link_layer == LinkLayer::Ethernet;
        self.rates[port].marks += 0.5 * self.marks_of(port, slow);
        self.rates[port].unbuffered += 2e-6 * share;
        self.rates[port].not_ready += 0.02 * share;
        if is_ethernet && self.fabric.has_pfc {
            self.rates[port].pausing_per_byte += 0.8 * slow / wiring.rate[port];
        } else if is_ethernet {
            self.rates[port].unbuffered += 1e-4 * share;
            self.rates[port].lost += 1e-4 * share;
        }
        if let Some(sender) = wiring.upstream[port] {
            self.stop(sender, slow, 0.6, wiring);
        }
    }

    /// Adds what happened in some seconds, of which `job_bytes` says the collectives' part.
    pub(super) fn integrate(&mut self, seconds: f64, wiring: &Wiring, nodes: &mut [NodeState]) {
        for port in 0..self.rates.len() {
            let node = wiring.node_of_port[port];
            let index = port - wiring.first_port[node];
            let bytes = std::mem::take(&mut self.job_bytes[port]);
            let tick_s = self.fabric.wait_tick_s.max(1e-12);
            let state = &mut nodes[node].ports[index];
            let told = self.rates[port].integrate(state, bytes, seconds, (tick_s, self.cnp_share));
            let senders: &[usize] = match wiring.upstream[port].as_ref() {
                _ if self.rates[port].is_overloaded => &self.senders[port],
                Some(sender) => std::slice::from_ref(sender),
                None => &[],
            };
            for sender in senders {
                let node = wiring.node_of_port[*sender];
                let state = &mut nodes[node].ports[*sender - wiring.first_port[node]];
                let share = 1.0 / senders.len() as f64;
                state.cnp_handled += told.cnps * share;
                state.packet_sequence_errors += 0.3 * told.lost * share;
                state.adaptive_retransmits += 0.2 * told.lost * share;
                state.rnr_naks += told.not_ready * share;
            }
        }
    }
}

/// What a receiver tells its senders.
struct Feedback {
    cnps: f64,
    lost: f64,
    not_ready: f64,
}

impl PortRates {
    fn integrate(
        &self,
        state: &mut PortState,
        bytes: f64,
        seconds: f64,
        (tick_s, cnp_share): (f64, f64),
    ) -> Feedback {
        self.follow_link(state);
        let silent = Feedback { cnps: 0.0, lost: 0.0, not_ready: 0.0 };
        if !self.is_up {
            state.ack_timeouts += self.timeouts * seconds;
            return silent;
        }
        let most = self.rate_gbps * 0.125e9 * seconds;
        let received = (bytes + self.other_in * seconds).min(most);
        let sent = (bytes + self.other_out * seconds).min(most);
        let (packets_in, packets_out) = (received / PACKET_BYTES, sent / PACKET_BYTES);
        // One acknowledgement answers several packets.
        state.receive_bytes += received;
        state.transmit_bytes += sent;
        state.receive_packets += packets_in + packets_out / 16.0;
        state.transmit_packets += packets_out + packets_in / 16.0;
        let marked = packets_in * self.marks.min(0.95);
        let cnps = (cnp_share * marked).min(CNPS_PER_S * seconds);
        let lost = packets_in * self.lost.min(0.05);
        state.ecn_marked_packets += marked;
        state.cnp_sent += cnps;
        state.out_of_sequence += packets_in * self.reordered.min(0.5) + lost;
        state.out_of_buffer += packets_in * self.unbuffered;
        let waited_s = (sent * self.wait_per_byte).min(0.95 * seconds);
        let paused_s = (sent * self.paused_per_byte).min(0.9 * seconds);
        let pausing_s = (received * self.pausing_per_byte).min(0.9 * seconds);
        state.transmit_wait_ticks += (waited_s + paused_s) / tick_s;
        state.pause_received_s += paused_s;
        state.pause_received += paused_s / 20e-6;
        state.pause_sent_s += pausing_s;
        state.pause_sent += pausing_s / 20e-6;
        state.symbol_errors += self.symbols * seconds;
        state.receive_errors += 0.1 * self.symbols * seconds;
        state.transmit_discards += 0.02 * self.symbols * seconds;
        state.link_error_recoveries += 4e-4 * self.symbols.min(100.0) * seconds;
        state.corrected_bits += self.corrected * seconds;
        state.ack_timeouts += self.timeouts * seconds;
        Feedback { cnps, lost, not_ready: self.not_ready * seconds }
    }

    /// State and rate of the link.
    fn follow_link(&self, state: &mut PortState) {
        let was_up = state.state == 4;
        if was_up && !self.is_up {
            state.link_downed += 1.0;
        }
        (state.state, state.physical_state) = if self.is_up { (4, 5) } else { (1, 2) };
        state.rate_gbps = self.rate_gbps;
    }
}
