//! An aggregator, or a pair of them, in simulated time with faults of network, disk, store and clock. One seed is one run.
//!
//! Scraping, decoding, engine, judge, state store, recording, the thread that writes to a store and the queues of actions
//! for a peer are those of the program. Simulated are the clock (tokio's, paused), the network with the exporters behind
//! it, the store, the connection of a pair, and the disk, which loses with the power what was not synchronised. At every
//! step all invariants are checked; a violation is reported with its seed.

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
mod fuzz_corpora;
mod invariants;
mod mistaken_consoles;
mod other_clients;
#[cfg(test)]
mod rolling_upgrade;
mod seed_folder;
mod seeded_random;
mod served_aggregator;
mod served_host;
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
mod traced_second;

pub use counting_allocator::bytes_in_use;
pub use deliberate_bug::DeliberateBug;
use seeded_random::{SeededRandom, continue_hash};
pub use served_run::{ServedReport, run_served_seed, run_served_seed_with_bug};
use simulated_fleet::{NODES, SimulatedNode};
use simulated_host::{HostFaults, SimulatedHost};
use simulated_network::SimulatedNetwork;
use simulated_pair::SimulatedPair;
pub use traced_second::TracedSecond;

/// The true time at which every run begins.
const BEGAN: UnixMs = UnixMs(1_700_000_000_000);

/// Seconds with faults, and seconds after them in which everything must recover.
const FAULTY: u64 = 150;
const QUIET: u64 = 100;

/// The same for some seeds. A node may stay cut off for 40 s of it, and is read again within 16 s; after 180 s without
/// evidence a finding that came and went often is closed, too.
const LONG_QUIET: u64 = 270;

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
    quiet: u64,
    report: SimulationReport,
}

impl SimulatedRun {
    fn new(seed: u64, bug: Option<DeliberateBug>) -> io::Result<Self> {
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
        };
        let hosts = (0..=u64::from(is_pair))
            .map(|host| SimulatedHost::new(&network, faults, seed ^ (host << 32), bug))
            .collect::<io::Result<_>>()?;
        let report = SimulationReport { seed, ..SimulationReport::default() };
        let quiet = if matches!(seed % 8, 1 | 2) { LONG_QUIET } else { QUIET };
        Ok(Self { random, network, hosts, pair: SimulatedPair::default(), quiet, report })
    }

    async fn run(seed: u64, bug: Option<DeliberateBug>) -> io::Result<SimulationReport> {
        let mut run = Self::new(seed, bug)?;
        // A run has all kinds of faults, or few of them often.
        let every = 2 + run.random.below(30);
        run.network.set_faults(Some(every));
        let end = FAULTY + run.quiet;
        for second in 0..end {
            if second == FAULTY {
                run.network.set_faults(None);
                run.hosts.iter_mut().for_each(SimulatedHost::repair);
            }
            run.step(second, second < FAULTY).await?;
        }
        let mut broken = SimulatedPair::check_agreement(&run.hosts);
        for host in &mut run.hosts {
            broken.extend(host.check_end(run.quiet == LONG_QUIET));
            run.report.faults += host.fault_count();
        }
        run.note_violations(end, broken);
        run.report.virtual_seconds = end;
        run.report.faults += run.network.counts().faults + run.pair.fault_count();
        Ok(run.report)
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
            self.pair.draw_faults(second, &mut self.random);
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
        self.note_violations(second, broken);
        self.update_trace();
        Ok(())
    }

    fn draw_network_faults(&mut self) {
        if self.random.once_in(25) {
            let (node, lasts) = (self.draw_node(), self.random.below(40));
            self.network.cut_node(node, Duration::from_secs(lasts));
        }
        if self.random.once_in(90) {
            let (node, lasts) = (self.draw_node(), self.random.below(20));
            self.network.replace_node(node, Duration::from_secs(lasts));
        }
        if self.random.once_in(120) {
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
        if self.random.once_in(60) {
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

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, process::Command};

    use super::*;

    /// Seeds that every test run has, a minute of a processor in all; GAUNT_SEEDS overrides it. Among them are pairs. A night
    /// has more: `gaunt-bench simulation --runs 100000 --pairs 10000`.
    const SEEDS: u64 = 100;

    /// Seeds that failed once: at a clock of 1970 the state of another version was written over, of a day that no start had
    /// looked at.
    const FAILED_ONCE: [u64; 1] = [57];

    fn describe_run(report: &SimulationReport) -> String {
        format!("seed {}: {} faults, trace {:016x}", report.seed, report.faults, report.trace)
    }

    /// With GAUNT_SECONDS, its hashes of each second.
    fn describe_seconds(report: &SimulationReport) -> Vec<String> {
        let seconds = report.seconds.iter().zip(0_u64..);
        let line = |(second, number)| format!("seed {} at {number} s: {second}", report.seed);
        seconds.map(line).collect()
    }

    /// Runs the seeds of a half, in groups with one pair each: the halves run at the same time.
    fn check_half_of_seeds(half: u64) {
        let count = std::env::var("GAUNT_SEEDS").map_or(SEEDS, |seeds| seeds.parse().unwrap());
        let first = std::env::var("GAUNT_FIRST").map_or(0, |first| first.parse().unwrap());
        let seeds = (first..first + count).chain(FAILED_ONCE);
        let seeds = seeds.filter(|seed| seed / PAIR_EVERY % 2 == half);
        let reports: Vec<SimulationReport> = seeds.map(run_seed).collect();
        let tells_seconds = std::env::var_os("GAUNT_SECONDS").is_some();
        for report in &reports {
            println!("{}", describe_run(report));
            if tells_seconds {
                println!("{}", describe_seconds(report).join("\n"));
            }
        }
        let broken: Vec<String> = reports
            .iter()
            .filter(|report| !report.violations.is_empty())
            .map(ToString::to_string)
            .collect();
        assert!(broken.is_empty(), "{}", broken.join("\n"));
        let faults: u64 = reports.iter().map(|report| report.faults).sum();
        assert!(faults >= 20 * reports.len() as u64, "{faults} faults are few");
    }

    #[test]
    fn no_seed_violates_an_invariant() {
        check_half_of_seeds(0);
    }

    #[test]
    fn no_other_seed_violates_an_invariant() {
        check_half_of_seeds(1);
    }

    /// Seeds of pairs that failed once, five seconds of a processor each: a request to withdraw an acknowledgement waited in a
    /// link that was cut, and withdrew a later one; a stream fell silent just before its link was whole again, and broke later.
    /// GAUNT_PAIRS adds others.
    const PAIRS_FAILED_ONCE: [u64; 2] = [10_004, 10_055];

    #[test]
    fn no_served_pair_violates_an_invariant() {
        let pairs = std::env::var("GAUNT_PAIRS").map_or(0, |pairs| pairs.parse().unwrap());
        let first = std::env::var("GAUNT_FIRST").map_or(0, |first| first.parse().unwrap());
        let seeds = (first..first + pairs).chain(PAIRS_FAILED_ONCE);
        let reports: Vec<ServedReport> = seeds.map(run_served_seed).collect();
        let count = reports.len() as u64;
        let broken: Vec<String> = reports
            .iter()
            .filter(|report| !report.report.violations.is_empty())
            .map(|report| report.report.to_string())
            .collect();
        assert!(broken.is_empty(), "{}", broken.join("\n"));
        let sum = |count: fn(&ServedReport) -> u64| reports.iter().map(count).sum::<u64>();
        let (kills, pages) = (sum(|it| it.kills), sum(|it| it.pages as u64));
        let (answers, told) = (sum(|it| it.answers.0), sum(|it| it.told as u64));
        println!("{count} pairs: {kills} kills, {pages} pages, {answers} answers, {told} actions");
        assert!(kills > 5 * count && pages > 0 && answers > 100 * count);
    }

    #[test]
    #[ignore = "some minutes"]
    fn thousand_kills_of_either_of_a_pair_lose_no_acknowledgement_and_page_once() {
        let (mut kills, mut broken) = (0, Vec::new());
        for seed in 10_000.. {
            let report = run_served_seed(seed);
            kills += report.kills;
            broken
                .extend((!report.report.violations.is_empty()).then(|| report.report.to_string()));
            if kills >= 1_000 {
                println!("{kills} kills in {} pairs", seed - 9_999);
                break;
            }
        }
        assert!(broken.is_empty(), "{}", broken.join("\n"));
    }

    /// Runs each bug until a seed finds it, and fails for those that no seed finds.
    fn check_bugs(
        bugs: &[DeliberateBug],
        seeds: u64,
        run: fn(u64, DeliberateBug) -> SimulationReport,
    ) {
        let mut missed = Vec::new();
        for bug in bugs {
            let found = (0..seeds).map(|seed| run(seed, *bug)).find(|it| !it.violations.is_empty());
            match found {
                Some(SimulationReport { seed, violations, .. }) => {
                    println!("{bug:?} is found by {seed}: {}", violations[0]);
                }
                None => missed.push(format!("{bug:?} is not found by {seeds} seeds")),
            }
        }
        assert!(missed.is_empty(), "{}", missed.join("\n"));
    }

    #[test]
    #[ignore = "up to 1,000 seeds for each bug, minutes in all; GAUNT_BUGS names some"]
    fn each_deliberate_bug_is_found() {
        // At the end of a seed no finding is open that the two of a pair could disagree about.
        let mut bugs = DeliberateBug::ALL.to_vec();
        bugs.retain(|bug| *bug != DeliberateBug::IgnoresPeerActions);
        if let Ok(names) = std::env::var("GAUNT_BUGS") {
            bugs.retain(|bug| names.split(',').any(|name| name == format!("{bug:?}")));
        }
        assert!(!bugs.is_empty(), "GAUNT_BUGS names none");
        check_bugs(&bugs, 1_000, |seed, bug| run_seed_with_bug(seed, Some(bug)));
    }

    #[test]
    #[ignore = "up to 30 pairs for each bug, minutes in all"]
    fn each_deliberate_bug_of_a_served_pair_is_found() {
        let bugs = [
            DeliberateBug::ForgetsState,
            DeliberateBug::IgnoresPeerActions,
            DeliberateBug::NoFileSync,
        ];
        check_bugs(&bugs, 30, |seed, bug| run_served_seed_with_bug(seed, Some(bug)).report);
    }

    /// Seeds that are run twice: a pair, two with files, one with TLS, and those that failed once.
    const FIRST_OF_TWICE: u64 = 3;
    const TWICE: u64 = 3;

    /// The runs of a process of its own, whose temporary files are in another folder.
    fn runs_of_a_process() -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["seed_violates_an_invariant", "--nocapture", "--test-threads=1"])
            .env("GAUNT_FIRST", FIRST_OF_TWICE.to_string())
            .env("GAUNT_SEEDS", TWICE.to_string())
            .env("GAUNT_SECONDS", "1")
            .env("TMPDIR", folder.path())
            .output()
            .unwrap();
        let lines = String::from_utf8_lossy(&output.stdout).into_owned();
        // The name of a test may be before it.
        lines.lines().filter_map(|line| Some(line[line.find("seed ")?..].to_owned())).collect()
    }

    #[test]
    fn one_seed_is_one_run_in_every_process() {
        let seeds = (FIRST_OF_TWICE..FIRST_OF_TWICE + TWICE).chain(FAILED_ONCE);
        let describe = |seed| {
            let report = run_seed(seed);
            [vec![describe_run(&report)], describe_seconds(&report)].concat()
        };
        let here: Vec<String> = seeds.flat_map(describe).collect();
        let there: BTreeSet<String> = runs_of_a_process().into_iter().collect();
        assert_eq!(here.len(), there.len());
        // The process runs one half of its seeds after the other.
        let others: Vec<&String> =
            here.iter().filter(|line| !there.contains(*line)).take(4).collect();
        assert!(others.is_empty(), "the other process does not say: {others:#?}");
    }
}
