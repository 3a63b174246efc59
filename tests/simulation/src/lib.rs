//! An aggregator, or a pair of them, in simulated time with faults of network, disk, store and clock. One seed is one run.
//!
//! Scraping, decoding, engine, judge, state store, recording, the thread that writes to a store and the queues of actions
//! for a peer are those of the program. Simulated are the clock (tokio's, paused), the network with the exporters behind
//! it, the store, the connection of a pair, and the disk, which loses with the power what was not synchronised. At every
//! step all invariants are checked; a violation is reported with its seed.
//!
//! What seeds have found in the product. Where the length of runs has changed since, a seed is another run now; those that
//! still are the same run in every test run (`FAILED_ONCE`, `PAIRS_FAILED_ONCE`), as a seed that fails from now on shall.
//!
//! | Seeds | What broke |
//! | --- | --- |
//! | 0, 15, 17 | a segment of a recording whose process was killed was never synchronised: a loss of power took all of it |
//! | 11 of 1,000 | a page without a length that was cut off within a number was believed: a counter seemed to be reset |
//! | 14 of 40 | the finding of a node that was never read stayed open under its address for minutes after a restart |
//! | 5 of 60 | a replay from the middle of a segment did not know the targets that were reloaded within it |
//! | 57 | at a clock of 1970 the saved state of another version was written over |
//! | 3, 57 in two processes | what was saved, and the rows of replaced targets, depended on the order of hash maps |
//! | pair 10004 | a withdrawal that a cut link delivered late withdrew a later acknowledgement |

use std::{fmt, io, time::Duration};

use gaunt_api::{FindingAction, FindingCommand};
use gaunt_schema::UnixMs;
use tokio::time::sleep;

mod console_user;
#[cfg(test)]
mod cost_oracle;
mod counting_allocator;
mod deliberate_bug;
#[cfg(test)]
mod fleet_outage;
#[cfg(test)]
mod fuzz_corpora;
mod invariants;
#[cfg(test)]
mod job_churn;
#[cfg(test)]
mod known_faults;
mod mistaken_consoles;
mod other_clients;
#[cfg(test)]
mod rolling_upgrade;
mod run_memory;
mod run_pace;
mod seed_folder;
mod seeded_random;
mod served_aggregator;
mod served_host;
mod served_pace;
mod served_run;
mod simulated_aggregator;
mod simulated_alertmanager;
mod simulated_disk;
mod simulated_exporter;
mod simulated_fleet;
mod simulated_follower;
mod simulated_host;
mod simulated_link;
mod simulated_network;
mod simulated_pair;
mod simulated_recording;
mod simulated_site;
mod simulated_sources;
mod simulated_store;
#[cfg(test)]
mod slow_reader;
#[cfg(test)]
mod tests;
mod traced_second;

pub use counting_allocator::bytes_in_use;
pub use deliberate_bug::DeliberateBug;
use run_memory::RunMemory;
use run_pace::{RunPace, SETTLED};
use seeded_random::{SeededRandom, continue_hash};
pub use served_run::{
    ServedReport, run_served_seed, run_served_seed_with_bug, run_short_served_seed,
};
use simulated_fleet::{NODES, SimulatedNode};
use simulated_host::{HostFaults, SimulatedHost};
use simulated_network::SimulatedNetwork;
use simulated_pair::SimulatedPair;
pub use traced_second::TracedSecond;

/// The true time at which every run begins.
const BEGAN: UnixMs = UnixMs(1_700_000_000_000);

/// One seed in so many is a pair of aggregators.
const PAIR_EVERY: u64 = 4;

/// Folder of the state.
const STATE: &str = "state";

/// Steps of the clock at a restart, in milliseconds: none, an hour either way, a day and an hour, and 1970.
const CLOCK_STEPS: [i64; 6] = [0, 0, 3_600_000, -3_600_000, 90_000_000, -BEGAN.0];

/// What a run showed.
#[derive(Clone, Debug, Default)]
pub struct SimulationReport {
    /// Its seed.
    pub seed: u64,
    /// Simulated seconds.
    pub virtual_seconds: u64,
    /// Faults that occurred.
    pub faults: u64,
    /// What did not hold, with the second; at most one for each step.
    pub violations: Vec<String>,
    /// A hash of what happened: two runs of one seed have the same.
    pub trace: u64,
    /// What it consists of, for each second: where two runs part.
    pub seconds: Vec<TracedSecond>,
    /// The most memory that all processes had at a time, in bytes, with what simulates their surroundings but the disks.
    pub most_bytes: i64,
}

impl fmt::Display for SimulationReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed {}: {} violations", self.seed, self.violations.len())?;
        self.violations.iter().take(3).try_for_each(|violation| write!(f, "; {violation}"))
    }
}

/// Runs one seed.
pub fn run_seed(seed: u64) -> SimulationReport {
    run_seed_with_bug(seed, None)
}

/// Runs one seed of an aggregator with a bug.
pub fn run_seed_with_bug(seed: u64, bug: Option<DeliberateBug>) -> SimulationReport {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    // One thread reads files, so that their order is that of the requests.
    let runtime = runtime.enable_all().start_paused(true).max_blocking_threads(1).build();
    let ran = runtime.and_then(|runtime| runtime.block_on(SimulatedRun::run(seed, bug)));
    ran.unwrap_or_else(|error| SimulationReport {
        seed,
        violations: vec![format!("cannot run: {error}")],
        ..SimulationReport::default()
    })
}

/// The state of a run.
struct SimulatedRun {
    random: SeededRandom,
    network: SimulatedNetwork,
    /// One machine, or the two of a pair.
    hosts: Vec<SimulatedHost>,
    pair: SimulatedPair,
    pace: RunPace,
    /// Seconds since everything has recovered.
    settled: u64,
    memory: RunMemory,
    report: SimulationReport,
}

impl SimulatedRun {
    fn new(seed: u64, bug: Option<DeliberateBug>) -> io::Result<Self> {
        let memory = RunMemory::new(bytes_in_use());
        let pace = RunPace::of_seed(seed);
        let mut random = SeededRandom::new(seed);
        let nodes = (0..NODES)
            .map(|index| {
                let up = Duration::from_secs(1_000 + random.below(1_000_000));
                SimulatedNode::new(index, BEGAN - up, random.below(4_000) as i64 - 2_000)
            })
            .collect();
        let network = SimulatedNetwork::new(nodes, BEGAN, SeededRandom::new(!seed), bug);
        let is_pair = seed % PAIR_EVERY == PAIR_EVERY - 1;
        let has_disk_faults = !random.once_in(3);
        let faults = HostFaults {
            has_disk_faults,
            // Without faults of the disk nothing is lost with the power but what was not synchronised yet.
            has_power_cuts: has_disk_faults || seed.is_multiple_of(2),
            has_settings_faults: !seed.is_multiple_of(3),
            // Of two actions the later one holds, so that the clocks of a pair must agree.
            clock_steps: if is_pair { &[0] } else { &CLOCK_STEPS },
            density: pace.density,
        };
        let hosts = (0..=u64::from(is_pair))
            .map(|host| SimulatedHost::new(&network, faults, seed ^ (host << 32), bug))
            .collect::<io::Result<_>>()?;
        let report = SimulationReport { seed, ..SimulationReport::default() };
        let pair = SimulatedPair::default();
        Ok(Self { random, network, hosts, pair, pace, settled: 0, memory, report })
    }

    async fn run(seed: u64, bug: Option<DeliberateBug>) -> io::Result<SimulationReport> {
        let mut run = Self::new(seed, bug)?;
        // A run has all kinds of faults, or few of them often.
        let every = 2 + run.random.below(30);
        run.network.set_faults(Some(every));
        let RunPace { faulty, quiet, .. } = run.pace;
        let mut end = faulty + quiet;
        for second in 0..end {
            if second == faulty {
                run.end_faults(second);
            }
            run.step(second, second < faulty).await?;
            if second >= faulty && run.is_over(second) {
                end = second + 1;
                break;
            }
        }
        let mut broken = SimulatedPair::check_agreement(&run.hosts);
        for host in &mut run.hosts {
            broken.extend(host.check_end(run.pace.closes_all()));
            run.report.faults += host.fault_count();
        }
        run.note_violations(end, broken);
        run.report.virtual_seconds = end;
        run.report.faults += run.network.counts().faults + run.pair.fault_count();
        Ok(run.report)
    }

    /// No fault occurs from now on. In a long run those that last go on; in a short one they are over.
    fn end_faults(&mut self, second: u64) {
        self.network.set_faults(None);
        self.hosts.iter_mut().for_each(SimulatedHost::repair);
        if self.pace.is_short() {
            self.network.end_outages();
            self.pair.join(second);
        }
    }

    /// Whether it is a short run in which everything has recovered for long enough.
    fn is_over(&mut self, second: u64) -> bool {
        if !self.pace.is_short() {
            return false;
        }
        let has_recovered = self.pair.is_together(second)
            && self.hosts.iter().all(SimulatedHost::has_recovered)
            && SimulatedPair::check_agreement(&self.hosts).is_empty();
        self.settled = if has_recovered { self.settled + 1 } else { 0 };
        self.settled > SETTLED
    }

    async fn step(&mut self, second: u64, is_faulty: bool) -> io::Result<()> {
        // Threads read files at instants that follow a start or a reload by whole seconds; files change at others.
        sleep(Duration::from_millis(250)).await;
        for host in &mut self.hosts {
            host.reload_settings(is_faulty).await?;
        }
        sleep(Duration::from_millis(350)).await;
        for host in &mut self.hosts {
            host.change_files(second, is_faulty)?;
        }
        sleep(Duration::from_millis(400)).await;
        let mut broken = Vec::new();
        if is_faulty {
            self.draw_network_faults();
            self.pair.draw_faults(second, self.pace.density, &mut self.random);
            for host in &mut self.hosts {
                broken.extend(host.draw_faults(second, &mut self.random));
            }
        }
        for number in 0..self.hosts.len() {
            let (before, rest) = self.hosts.split_at_mut(number);
            let Some((host, after)) = rest.split_first_mut() else { continue };
            let peer = before.first().or(after.first());
            let peer = peer.filter(|_| self.pair.is_together(second));
            broken.extend(host.start_if_due(second, peer.and_then(|it| it.aggregator.as_ref())));
        }
        for host in &mut self.hosts {
            broken.extend(host.step(second, &mut self.random));
        }
        if is_faulty {
            self.act();
        }
        self.pair.exchange(&mut self.hosts, second, is_faulty, &mut self.random);
        broken.extend(self.check_memory(second));
        self.note_violations(second, broken);
        self.update_trace();
        Ok(())
    }

    fn draw_network_faults(&mut self) {
        let density = self.pace.density;
        if self.random.once_in(25 / density) {
            let (node, lasts) = (self.draw_node(), self.random.below(40));
            self.network.cut_node(node, Duration::from_secs(lasts));
        }
        if self.random.once_in(90 / density) {
            let (node, lasts) = (self.draw_node(), self.random.below(20));
            self.network.replace_node(node, Duration::from_secs(lasts));
        }
        if self.random.once_in(120 / density) {
            // All nodes lose their network, or their power.
            let (lasts, reboots) =
                (Duration::from_secs(self.random.below(30)), self.random.once_in(2));
            for node in 0..NODES {
                if reboots {
                    self.network.reboot_node(node, lasts);
                } else {
                    self.network.cut_node(node, lasts);
                }
            }
        }
        if self.random.once_in(60 / density) {
            let (node, off) = (self.draw_node(), self.random.below(30));
            self.network.reboot_node(node, Duration::from_secs(off));
        }
    }

    fn draw_node(&mut self) -> usize {
        self.random.below(NODES as u64) as usize
    }

    /// Users act on findings, at one of the machines.
    fn act(&mut self) {
        let chosen_host = self.random.below(self.hosts.len() as u64) as usize;
        if !self.random.once_in(8) {
            return;
        }
        let Some(aggregator) = &self.hosts[chosen_host].aggregator else { return };
        let list = aggregator.findings();
        if list.findings.is_empty() {
            return;
        }
        let chosen = self.random.below(list.findings.len() as u64) as usize;
        let id = list.findings[chosen].id.clone();
        let (command, acknowledges) = match self.random.below(8) {
            0 | 1 => (FindingCommand::Withdraw, false),
            // Its level is usual from now on: what can be accepted closes.
            2 => (FindingCommand::Accept { note: "new batch size".into() }, false),
            _ => (FindingCommand::Acknowledge { note: "seen".into() }, true),
        };
        let action = FindingAction { finding: id.clone(), by: "sam".into(), command, seen: None };
        self.hosts.iter_mut().for_each(|host| host.invariants.forget(&id));
        let SimulatedHost { aggregator, invariants, .. } = &mut self.hosts[chosen_host];
        if let Some(aggregator) = aggregator
            && aggregator.act(&action)
            && acknowledges
        {
            invariants.note_acknowledged(aggregator, &id);
        }
    }

    /// Checks the memory of all processes and of what simulates their surroundings, but the disks.
    fn check_memory(&mut self, second: u64) -> Vec<String> {
        let disks: u64 = self.hosts.iter().map(SimulatedHost::disk_bytes).sum();
        let bytes = bytes_in_use().wrapping_sub(self.memory.before) as i64 - disks as i64;
        self.report.most_bytes = self.report.most_bytes.max(bytes);
        let ends = self.hosts.iter().map(SimulatedHost::end_count).sum();
        self.memory.check(second, ends, bytes / self.hosts.len() as i64)
    }

    fn note_violations(&mut self, second: u64, broken: Vec<String>) {
        let first = broken.into_iter().next();
        self.report.violations.extend(first.map(|what| format!("at {second} s {what}")));
    }

    /// Adds what disks were told and what is open now to the trace.
    fn update_trace(&mut self) {
        let mut second = TracedSecond::default();
        for host in &self.hosts {
            second.disks = continue_hash(second.disks, &host.disk_trace().to_le_bytes());
        }
        for host in &self.hosts {
            let Some(aggregator) = &host.aggregator else { continue };
            let list = aggregator.findings();
            // Ids may contain the random name of a folder.
            let shown = list.findings.iter().map(|finding| {
                let (kind, node) = (finding.kind, finding.entity.node.as_deref());
                format!("{kind} {} {}", node.unwrap_or_default(), finding.life.opened.0)
            });
            let shown = host.invariants.last_attempts().to_string() + &shown.collect::<String>();
            second.findings = continue_hash(second.findings, shown.as_bytes());
        }
        for part in [second.disks, second.findings] {
            self.report.trace = continue_hash(self.report.trace, &part.to_le_bytes());
        }
        self.report.seconds.push(second);
    }
}
