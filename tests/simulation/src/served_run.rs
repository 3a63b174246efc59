//! A pair of aggregators as `gaunt serve` runs them, with Alertmanager and a console, in simulated time: server, peers,
//! alerting and the clients of all three are those of the program, and talk HTTP over links with faults.

use std::{collections::BTreeMap, io, net::SocketAddr, path::Path, time::Duration};

use gaunt::answer_source::AggregatorClient;
use gaunt_api::FindingList;
use gaunt_schema::LifeState;
use tempfile::TempDir;
use tokio::{
    task::JoinSet,
    time::{interval, sleep},
};

use crate::{
    BEGAN, SimulationReport,
    console_user::ConsoleUser,
    deliberate_bug::DeliberateBug,
    mistaken_consoles::MistakenConsoles,
    other_clients::OtherClients,
    seeded_random::{SeededRandom, continue_hash},
    served_aggregator::{ServedSurroundings, token_file},
    served_host::{ServedHost, ServedProcess},
    served_pace::ServedPace,
    simulated_alertmanager::{GROUP_INTERVAL, SimulatedAlertmanager, draw_outage},
    simulated_disk::SimulatedDisk,
    simulated_fleet::{NODES, SimulatedNode},
    simulated_link::{HOP, ServicePlace, SimulatedLink},
    simulated_network::SimulatedNetwork,
};

/// The second at which the node goes away.
const NODE_LEAVES: u64 = 20;

/// The longest partition of a link, in seconds.
const APART: u64 = 60;

/// The longest time until a killed process starts again, in seconds.
const LONGEST_DOWN: u64 = 20;

/// The most connections of a link that are open at once: those of a console, and two a second that it has given up, whose
/// end is seen when the link is not cut any more.
const MAX_CONNECTIONS: usize = 40 + 2 * APART as usize;

/// Seconds between two requests of other clients.
const OTHERS_ASK_EVERY: u64 = 2;

/// One end of a process in so many is a stop, in which open requests are answered.
const STOP_EVERY: u64 = 4;

/// Some seeds have losses of power of the whole site, one in so many seconds.
const SITE_POWER_EVERY: u64 = 50;

/// The token of the pair.
const TOKEN: &str = "a-token-of-a-simulated-pair";

/// The names of the two.
const NAMES: [&str; 2] = ["a", "b"];

/// What a run of a pair showed.
#[derive(Clone, Debug, Default)]
pub struct ServedReport {
    /// Seed, time, faults and violations.
    pub report: SimulationReport,
    /// Kills of either of the two.
    pub kills: u64,
    /// Notifications of Alertmanager that an alert is open.
    pub pages: usize,
    /// Answers that the console got, and errors.
    pub answers: (u64, u64),
    /// Actions of which the user was told that they are saved.
    pub told: usize,
}

/// Links by their client.
struct PairLinks {
    /// From each to the other.
    peers: [SimulatedLink; 2],
    /// From each to Alertmanager.
    alerts: [SimulatedLink; 2],
    /// From the console to each.
    console: [SimulatedLink; 2],
}

/// The state of a run.
struct ServedRun {
    random: SeededRandom,
    hosts: [ServedHost; 2],
    links: PairLinks,
    alertmanager: SimulatedAlertmanager,
    user: ConsoleUser,
    others: OtherClients,
    mistaken: MistakenConsoles,
    /// For the other clients and for stops.
    others_random: SeededRandom,
    has_stops: bool,
    has_site_power_cuts: bool,
    /// What opened and ended, for a violation.
    log: Vec<String>,
    kills: u64,
    violations: Vec<String>,
    trace: u64,
    bug: Option<DeliberateBug>,
    tasks: JoinSet<()>,
    _folder: TempDir,
}

/// Runs one seed of a pair that is served.
pub fn run_served_seed(seed: u64) -> ServedReport {
    run_served_seed_with_bug(seed, None)
}

/// Runs one seed of a pair that is served, with less time for faults and after them.
pub fn run_short_served_seed(seed: u64) -> ServedReport {
    run_at_pace(seed, None, ServedPace::SHORT)
}

/// Runs one seed of a pair with a bug: of the disk's, or that each start forgets the state, or that no action of a peer is
/// applied.
pub fn run_served_seed_with_bug(seed: u64, bug: Option<DeliberateBug>) -> ServedReport {
    run_at_pace(seed, bug, ServedPace::LONG)
}

fn run_at_pace(seed: u64, bug: Option<DeliberateBug>, pace: ServedPace) -> ServedReport {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    let ran = runtime.and_then(|runtime| runtime.block_on(ServedRun::run(seed, bug, pace)));
    ran.unwrap_or_else(|error| {
        let violations = vec![format!("cannot start: {error}")];
        let report = SimulationReport { seed, violations, ..SimulationReport::default() };
        ServedReport { report, ..ServedReport::default() }
    })
}

/// Lets time pass hop by hop.
async fn tick_hops() {
    let mut hops = interval(HOP);
    loop {
        hops.tick().await;
    }
}

/// Writes the file with the token of the pair.
fn write_token(folder: &Path) -> io::Result<()> {
    let file = token_file(folder);
    std::fs::write(&file, TOKEN)?;
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600))
}

impl ServedRun {
    fn new(seed: u64, bug: Option<DeliberateBug>) -> io::Result<Self> {
        let mut random = SeededRandom::new(seed ^ 0x005e_47ed);
        let folder = tempfile::Builder::new().prefix("gaunt-pair").tempdir()?;
        write_token(folder.path())?;
        let up = Duration::from_secs(1_000 + random.below(1_000_000));
        let nodes: Vec<SimulatedNode> =
            (0..NODES).map(|index| SimulatedNode::new(index, BEGAN - up, 0)).collect();
        let mut tasks = JoinSet::new();
        let places = [ServicePlace::default(), ServicePlace::default()];
        let host = |which: usize| ServedHost {
            around: ServedSurroundings {
                name: NAMES[which],
                peer: NAMES[1 - which],
                disk: SimulatedDisk::with_bug(bug),
                network: SimulatedNetwork::new(
                    nodes.clone(),
                    BEGAN,
                    SeededRandom::new(!seed ^ which as u64),
                    None,
                ),
                place: places[which].clone(),
                folder: folder.path().to_owned(),
            },
            process: ServedProcess::Down(0),
        };
        let hosts = [host(0), host(1)];
        let alertmanager = SimulatedAlertmanager::new(SeededRandom::new(seed ^ 0xa1e47));
        let pager = ServicePlace::default();
        tasks.spawn(alertmanager.clone().serve(pager.start_program()));
        let mut open = |from: &str, number: u8, to: &str, place: &ServicePlace| {
            let path = SimulatedLink::socket(folder.path(), from, to);
            let client = SocketAddr::from(([10, 0, 1, number], 40_000));
            let random = SeededRandom::new(random.below(u64::MAX));
            SimulatedLink::open(&path, client, place, random, &mut tasks)
        };
        let links = PairLinks {
            peers: [open("a", 1, "b", &places[1])?, open("b", 2, "a", &places[0])?],
            alerts: [open("a", 1, "alerts", &pager)?, open("b", 2, "alerts", &pager)?],
            console: [open("console", 3, "a", &places[0])?, open("console", 3, "b", &places[1])?],
        };
        let sockets = NAMES.map(|name| SimulatedLink::socket(folder.path(), "console", name));
        let members = [("http://a:9771", &*sockets[0]), ("http://b:9771", &*sockets[1])];
        let client = AggregatorClient::through_sockets(&members).map_err(io::Error::other)?;
        let client = client.with_token(Some(TOKEN.to_owned()));
        let user = ConsoleUser::new(client.with_streams(), hosts[0].around.network.clone());
        tasks.spawn(user.clone().watch());
        let mistaken = MistakenConsoles::open(folder.path(), &places[0], TOKEN, &mut tasks)?;
        tasks.spawn(mistaken.clone().watch());
        tasks.spawn(tick_hops());
        Ok(Self {
            random,
            hosts,
            links,
            alertmanager,
            user,
            others: OtherClients::default(),
            mistaken,
            others_random: SeededRandom::new(seed ^ 0x07_4e25),
            has_stops: seed % 2 == 1,
            has_site_power_cuts: seed % 4 == 2,
            log: Vec::new(),
            kills: 0,
            violations: Vec::new(),
            trace: 0,
            bug,
            tasks,
            _folder: folder,
        })
    }

    async fn run(
        seed: u64,
        bug: Option<DeliberateBug>,
        pace: ServedPace,
    ) -> io::Result<ServedReport> {
        let mut run = Self::new(seed, bug)?;
        // Work of the programs is done by the time of a step.
        sleep(Duration::from_millis(500)).await;
        let late = run.random.below(2) as usize;
        let agreed_at = pace.fault + pace.agreement;
        let returned_at = agreed_at + pace.returning;
        let end = returned_at + pace.end;
        let links_fail = run.random.once_in(2).then(|| 5 + run.random.below(60));
        let node = run.random.below(NODES as u64) as usize;
        for second in 0..end {
            let is_faulty = second < pace.fault || (agreed_at..returned_at).contains(&second);
            if second == 0 || second == agreed_at {
                run.set_faults(links_fail);
            } else if second == pace.fault || second == returned_at {
                run.set_faults(None);
            }
            if second == NODE_LEAVES {
                for (which, host) in run.hosts.iter().enumerate() {
                    let later = if which == late { run.random.below(pace.late_sight) } else { 0 };
                    let away = Duration::from_secs(agreed_at - NODE_LEAVES + later);
                    host.around.network.cut_node(node, away);
                }
            }
            run.step(second, is_faulty).await;
            if second + 1 == agreed_at {
                run.check_agreement(second, node).await;
            }
        }
        run.check_end(end).await;
        Ok(run.into_report(seed, end))
    }

    fn set_faults(&self, every: Option<u64>) {
        let PairLinks { peers, alerts, console } = &self.links;
        peers.iter().chain(alerts).chain(console).for_each(|link| link.set_faults(every));
        self.alertmanager.set_faults(every);
    }

    async fn step(&mut self, second: u64, is_faulty: bool) {
        sleep(Duration::from_secs(1)).await;
        if is_faulty {
            self.draw_kill(second);
            self.draw_site_power_cut(second);
            self.draw_partitions();
        }
        if self.bug == Some(DeliberateBug::IgnoresPeerActions) {
            self.links.peers.iter().for_each(|link| link.cut(Duration::from_mins(1)));
        }
        for host in &mut self.hosts {
            let broken = host.start_if_due(second).await;
            self.violations.extend(broken.map(|what| format!("at {second} s {what}")));
        }
        let reachable = [0, 1].map(|which| {
            let is_running = matches!(self.hosts[which].process, ServedProcess::Running(_));
            let link = &self.links.console[which];
            is_running && !link.is_cut() && !link.has_faults()
        });
        self.user.note_reachable(reachable);
        if is_faulty && !self.user.is_acting() && self.random.once_in(30) {
            self.act().await;
        }
        if second.is_multiple_of(OTHERS_ASK_EVERY) {
            let which = self.others_random.below(2) as usize;
            let to = (NAMES[which], &self.hosts[which].around.place);
            self.others.send_one(to, &mut self.others_random, &mut self.tasks);
        }
        if second.is_multiple_of(GROUP_INTERVAL) {
            let news = self.alertmanager.notify_groups();
            self.log.extend(news.into_iter().map(|what| format!("{second} s: {what}")));
        }
        let mut broken = self.user.take_broken();
        broken.extend(self.others.take_broken());
        broken.extend(self.mistaken.take_broken());
        broken.extend(self.alertmanager.take_broken());
        broken.extend(self.hosts.iter().filter_map(ServedHost::check_peer_alerts));
        let PairLinks { peers, alerts, console } = &self.links;
        let open = peers.iter().chain(alerts).chain(console).map(SimulatedLink::open_count).max();
        if open.is_some_and(|open| open > MAX_CONNECTIONS) {
            broken.push(format!("{open:?} connections of one link are open"));
        }
        self.violations.extend(broken.into_iter().map(|what| format!("at {second} s {what}")));
        self.update_trace().await;
    }

    /// Kills one of the two, if the other one runs; half of the time it loses its power.
    fn draw_kill(&mut self, second: u64) {
        let (which, chance) = (self.random.below(2) as usize, self.random.below(15));
        let both = self.hosts.iter().all(|host| matches!(host.process, ServedProcess::Running(_)));
        if chance != 0 || !both {
            return;
        }
        let power = self.random.once_in(2);
        let stops = self.has_stops && self.others_random.once_in(STOP_EVERY);
        if stops && self.hosts[which].stop() {
            return self.log.push(format!("{second} s: {} is stopped", NAMES[which]));
        }
        self.kill(which, second, power);
    }

    /// The whole site loses its power: neither of the two can tell the other what it knows.
    fn draw_site_power_cut(&mut self, second: u64) {
        let is_due = self.has_site_power_cuts && self.others_random.once_in(SITE_POWER_EVERY);
        for which in 0..self.hosts.len() {
            if is_due && matches!(self.hosts[which].process, ServedProcess::Running(_)) {
                self.kill(which, second, true);
            }
        }
    }

    fn kill(&mut self, which: usize, second: u64, power: bool) {
        let host = &mut self.hosts[which];
        host.process = ServedProcess::Down(second + 1 + self.random.below(LONGEST_DOWN));
        host.around.place.end_program(power);
        if power {
            host.around.disk.cut_power(&mut self.random);
        }
        if self.bug == Some(DeliberateBug::ForgetsState) {
            host.around.disk = SimulatedDisk::default();
        }
        self.kills += 1;
        self.log.push(format!("{second} s: {} is killed, power {power}", NAMES[which]));
    }

    /// Cuts links: between the two, from one or both to Alertmanager, or from the console to one.
    fn draw_partitions(&mut self) {
        if self.random.once_in(60) {
            let lasts = Duration::from_secs(self.random.below(APART));
            self.links.peers.iter().for_each(|link| link.cut(lasts));
        }
        if self.random.once_in(90) {
            let which = self.random.below(3) as usize;
            let lasts = draw_outage(&mut self.random);
            let cut = self.links.alerts.iter().enumerate().filter(|(at, _)| *at != which);
            cut.for_each(|(_, link)| link.cut(lasts));
        }
        if self.random.once_in(60) {
            let which = self.random.below(2) as usize;
            let lasts = Duration::from_secs(self.random.below(APART));
            self.links.console[which].cut(lasts);
        }
    }

    /// The user acts on a finding that one of the two shows.
    async fn act(&mut self) {
        let which = self.random.below(2) as usize;
        let Some(list) = self.hosts[which].findings().await else { return };
        if list.findings.is_empty() {
            return;
        }
        let chosen = self.random.below(list.findings.len() as u64) as usize;
        let withdraws = self.random.once_in(3);
        self.user.act(&list, chosen, withdraws, &mut self.tasks);
    }

    /// Checks what must hold after a while in which only the node is away.
    async fn check_agreement(&mut self, second: u64, node: usize) {
        let mut lists = Vec::new();
        for host in &self.hosts {
            lists.extend(host.findings().await);
        }
        let mut broken = Vec::new();
        let [first, other] = &lists[..] else {
            self.violations.push(format!("at {second} s {} of two run", lists.len()));
            return;
        };
        // One that lost its state before it wrote it, and does not reach the other, knows the node by its address only.
        let (name, address) = (SimulatedNode::name_of(node), SimulatedNode::address(node));
        let is_named = |of: &str| of == name || address.strip_suffix(":9770") == Some(of);
        let ids = |list: &FindingList| -> Vec<String> {
            let open = list.findings.iter().filter(|it| it.life.state != LifeState::Closed);
            let of_node = open.filter(|it| it.entity.node.as_deref().is_some_and(is_named));
            of_node.map(|it| it.id.clone()).collect()
        };
        if ids(first).is_empty() || ids(other).is_empty() {
            broken.push(format!("{name} is {:?} and {:?}", ids(first), ids(other)));
        }
        for finding in &first.findings {
            let same = other.findings.iter().find(|same| same.id == finding.id);
            let is_handled = finding.acknowledged.is_some();
            if same.is_some_and(|same| same.acknowledged.is_some() != is_handled) {
                broken.push(format!("the pair disagrees about who handles {}", finding.id));
            }
        }
        for (id, told) in self.user.told() {
            let finding = first.findings.iter().find(|finding| finding.id == id);
            let holds = finding.is_some_and(|finding| {
                finding.severity <= told.severity && finding.life.opened == told.opened
            });
            if holds && finding.is_some_and(|it| it.acknowledged.is_some() != told.is_acknowledged)
            {
                broken.push(format!("an action on {id} is lost: {told:?}"));
            }
        }
        self.violations.extend(broken.into_iter().map(|what| format!("at {second} s {what}")));
    }

    /// Checks what must hold at the end.
    async fn check_end(&mut self, second: u64) {
        let mut broken = Vec::new();
        for (name, host) in NAMES.iter().zip(&self.hosts) {
            let Some(list) = host.findings().await else {
                broken.push(format!("{name} does not run"));
                continue;
            };
            let open = list.findings.iter().filter(|it| it.life.state == LifeState::Open);
            broken.extend(open.map(|it| format!("{name}: {} is open without a fault", it.id)));
        }
        let mut pages: BTreeMap<String, usize> = BTreeMap::new();
        for (alert, count) in self.alertmanager.pages() {
            pages.insert(alert.clone(), count);
            let finding = alert.rsplit_once(' ').map_or(&*alert, |(finding, _)| finding);
            let may_be = 1 + self.user.withdrawal_count(finding);
            if count > may_be {
                let log = self.log.join("\n");
                broken.push(format!("{count} pages of {alert} instead of {may_be}:\n{log}"));
            }
        }
        if self.user.counts().0 == 0 || self.others.answered() == 0 {
            broken.push("the clients have no answer".to_owned());
        }
        self.violations.extend(broken.into_iter().map(|what| format!("at {second} s {what}")));
    }

    async fn update_trace(&mut self) {
        for host in &self.hosts {
            let Some(list) = host.findings().await else { continue };
            for finding in &list.findings {
                self.trace = continue_hash(self.trace, finding.id.as_bytes());
            }
        }
    }

    fn into_report(self, seed: u64, end: u64) -> ServedReport {
        let PairLinks { peers, alerts, console } = &self.links;
        let links = peers.iter().chain(alerts).chain(console);
        let faults = self.kills + links.map(SimulatedLink::fault_count).sum::<u64>();
        ServedReport {
            report: SimulationReport {
                seed,
                virtual_seconds: end,
                faults,
                violations: self.violations,
                trace: self.trace,
                seconds: Vec::new(),
                most_bytes: 0,
            },
            kills: self.kills,
            pages: self.alertmanager.pages().values().sum(),
            answers: self.user.counts(),
            told: self.user.told().len(),
        }
    }
}

#[cfg(test)]
mod tests;
