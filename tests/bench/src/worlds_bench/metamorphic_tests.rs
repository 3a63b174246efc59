//! Metamorphic tests: changes of a world after which every verdict is the same, or is not given any more. They need no
//! truth: what a cluster calls its machines, in which order they are scraped, and what else they serve decides nothing.

use std::{cell::Cell, collections::BTreeSet, sync::OnceLock};

use gaunt_schema::{FindingKind, ScrapeTarget, Severity, TargetId};
use gaunt_worlds::{
    draw::{WorldCase, draw_world},
    world::World,
};
use memchr::memmem::Finder;

use super::played_world::{Unchanged, WorldChange, run_world};

/// Small worlds of several families, with faults of ports, GPUs, hosts and storage.
const WORLDS: [(&str, u64); 6] = [
    ("roce_quiet", 10_001),
    ("other_ports", 30_009),
    ("slow_cadence", 50_006),
    ("gpu_mix", 100_003),
    ("deep_jobs", 110_005),
    ("deep_jobs", 110_007),
];

fn draw(family: &str, seed: u64) -> World {
    let case = WorldCase::Fault { kind: None, loss: None, course: None, second: false };
    draw_world(family, seed, case).unwrap()
}

/// Returns the ids of all warnings and worse.
fn verdicts(world: &World, seed: u64, change: &dyn WorldChange) -> BTreeSet<String> {
    let (run, _) = run_world(world, seed, change).unwrap();
    let episodes = run.finding_log().all_episodes().iter();
    let urgent = episodes.filter(|episode| episode.worst > Severity::Info);
    urgent.map(|episode| episode.finding.id.clone()).collect()
}

/// Returns the same of a world as it is: each is played once for all tests.
fn plain_verdicts(family: &str, seed: u64) -> BTreeSet<String> {
    static PLAIN: [OnceLock<BTreeSet<String>>; WORLDS.len()] =
        [const { OnceLock::new() }; WORLDS.len()];
    let play = || {
        let noted = Noted { change: &Unchanged, has_changed: Cell::new(false) };
        verdicts(&draw(family, seed), seed, &noted)
    };
    let at = WORLDS.iter().position(|world| *world == (family, seed));
    at.map_or_else(play, |at| PLAIN[at].get_or_init(play).clone())
}

/// A change that notes whether it changes any page.
struct Noted<'a> {
    change: &'a dyn WorldChange,
    has_changed: Cell<bool>,
}

impl WorldChange for Noted<'_> {
    fn change_text(&self, text: String) -> String {
        self.change.change_text(text)
    }

    fn change_targets(&self, targets: Vec<ScrapeTarget>) -> Vec<ScrapeTarget> {
        self.change.change_targets(targets)
    }

    fn change_page(&self, target: u32, scrape: usize, page: String) -> Vec<(u32, String)> {
        let changed = self.change.change_page(target, scrape, page.clone());
        if changed != [(target, page)] {
            self.has_changed.set(true);
        }
        changed
    }

    fn period_times(&self) -> u32 {
        self.change.period_times()
    }
}

/// Compares the verdicts of these worlds before a change, with their names changed, with those after it. It must change
/// the pages of several of them.
#[track_caller]
fn compare_verdicts(
    worlds: &[(&str, u64)],
    change_of: impl Fn(&World) -> Box<dyn WorldChange>,
    compare: impl Fn(&BTreeSet<String>, &BTreeSet<String>) -> bool,
) {
    let mut changed_worlds = 0;
    for &(family, seed) in worlds {
        let world = draw(family, seed);
        let change = change_of(&world);
        let before = plain_verdicts(family, seed).into_iter().map(|id| change.change_text(id));
        let before: BTreeSet<String> = before.collect();
        assert!(!before.is_empty(), "{family} {seed} has no verdict");
        let noted = Noted { change: &*change, has_changed: Cell::new(false) };
        let after = verdicts(&world, seed, &noted);
        assert!(compare(&before, &after), "{family} {seed}: {before:?}, then {after:?}");
        changed_worlds += usize::from(noted.has_changed.get());
    }
    assert!(changed_worlds > 1, "only {changed_worlds} worlds are changed");
}

/// Asserts that each verdict about a changed world is one about the world as it is, or that its cause is unknown now.
#[track_caller]
fn assert_no_new_verdicts(
    worlds: &[(&str, u64)],
    change_of: impl Fn(&World) -> Box<dyn WorldChange>,
) {
    let is_unknown = |id: &str| id.starts_with(FindingKind::UnexplainedSlowdown.as_str());
    compare_verdicts(worlds, change_of, |before, after| {
        after
            .iter()
            .all(|id| before.contains(id) || (is_unknown(id) && after.len() <= before.len()))
    });
}

/// The same, and that each verdict is still given.
#[track_caller]
fn assert_same_verdicts(change_of: impl Fn(&World) -> Box<dyn WorldChange>) {
    compare_verdicts(&WORLDS, change_of, |before, after| after == before);
}

/// Replaces a name wherever it is a word of its own.
fn replace_word(text: &str, name: &str, by: &str) -> String {
    let is_inside = |letter: char| letter.is_ascii_alphanumeric() || letter == '-' || letter == '_';
    let mut changed = String::with_capacity(text.len());
    let mut rest = text;
    // The search of the standard library is not optimised in tests, and pages are large.
    while let Some(at) = memchr::memmem::find(rest.as_bytes(), name.as_bytes()) {
        let (before, after) = (&rest[..at], &rest[at + name.len()..]);
        let is_word = !before.chars().next_back().is_some_and(is_inside)
            && !after.chars().next().is_some_and(is_inside);
        changed.push_str(before);
        changed.push_str(if is_word { by } else { name });
        rest = after;
    }
    changed + rest
}

/// New names, in another order than the old ones.
struct Renamed(Vec<(String, String)>);

impl Renamed {
    fn hosts(world: &World) -> Self {
        let names = world.exporters.nodes.iter().map(|node| node.name.clone());
        Self(names.enumerate().map(|(at, name)| (name, format!("box{:03}", 900 - at))).collect())
    }

    fn devices(world: &World) -> Self {
        let ports = world.exporters.nodes.iter().flat_map(|node| &node.ports);
        let names: BTreeSet<&String> = ports.map(|port| &port.device).collect();
        let renamed = |name: &str| format!("rdma{name}").replace('_', "x");
        // The bonds and functions of a card have a meaning of their own.
        let plain = names.into_iter().filter(|name| name.starts_with("mlx5_"));
        let plain = plain.filter(|name| name["mlx5_".len()..].bytes().all(|b| b.is_ascii_digit()));
        Self(plain.map(|name| (name.clone(), renamed(name))).collect())
    }
}

impl WorldChange for Renamed {
    fn change_text(&self, mut text: String) -> String {
        for (name, by) in &self.0 {
            text = replace_word(&text, name, by);
        }
        text
    }

    fn change_targets(&self, mut targets: Vec<ScrapeTarget>) -> Vec<ScrapeTarget> {
        for target in &mut targets {
            target.address = self.change_text(target.address.to_string()).into();
        }
        targets
    }

    fn change_page(&self, target: u32, _scrape: usize, page: String) -> Vec<(u32, String)> {
        vec![(target, self.change_text(page))]
    }
}

#[test]
fn names_of_hosts_decide_nothing() {
    assert_same_verdicts(|world| Box::new(Renamed::hosts(world)));
}

#[test]
fn names_of_devices_decide_nothing() {
    assert_same_verdicts(|world| Box::new(Renamed::devices(world)));
}

/// Worlds with the names of jobs in their labels and without a job list.
const LABELLED_WORLDS: [(&str, u64); 3] =
    [("deep_jobs", 110_005), ("deep_jobs", 110_007), ("input_bound", 120_003)];

/// Other names of jobs.
struct RenamedJobs;

impl WorldChange for RenamedJobs {
    fn change_text(&self, text: String) -> String {
        // The only finding about a whole job here.
        text.replace("unexplained_slowdown/", "unexplained_slowdown/run-")
    }

    fn change_page(&self, target: u32, _scrape: usize, page: String) -> Vec<(u32, String)> {
        vec![(target, page.replace("hpc_job=\"", "hpc_job=\"run-"))]
    }
}

#[test]
fn names_of_jobs_decide_nothing_about_machines() {
    let same = |before: &BTreeSet<String>, after: &BTreeSet<String>| after == before;
    compare_verdicts(&LABELLED_WORLDS, |_| Box::new(RenamedJobs), same);
}

/// The targets in reverse order.
struct Reversed(u32);

impl WorldChange for Reversed {
    fn change_targets(&self, targets: Vec<ScrapeTarget>) -> Vec<ScrapeTarget> {
        let renumber =
            |target: ScrapeTarget| ScrapeTarget { id: TargetId(self.0 - target.id.0), ..target };
        targets.into_iter().rev().map(renumber).collect()
    }

    fn change_page(&self, target: u32, _scrape: usize, page: String) -> Vec<(u32, String)> {
        vec![(self.0 - target, page)]
    }
}

#[test]
fn order_of_targets_decides_nothing() {
    assert_same_verdicts(|_| Box::new(Reversed(1_000)));
}

/// A change of each line of a page: writes what becomes of it.
struct Lines<F>(F);

impl<F: Fn(&str, &mut String)> WorldChange for Lines<F> {
    fn change_page(&self, target: u32, _scrape: usize, page: String) -> Vec<(u32, String)> {
        let mut changed = String::with_capacity(page.len() * 2);
        // The iterator over lines is not optimised in tests, and pages are large.
        let mut rest = &*page;
        while let Some(end) = memchr::memchr(b'\n', rest.as_bytes()) {
            (self.0)(&rest[..end], &mut changed);
            rest = &rest[end + 1..];
        }
        assert_eq!(rest, "", "a page ends with a line");
        vec![(target, changed)]
    }
}

fn write_line(line: &str, page: &mut String) {
    page.push_str(line);
    page.push('\n');
}

/// Searches lines for a text: prepared once, and the search of the standard library is not optimised in tests.
struct TextSearch(Finder<'static>);

impl TextSearch {
    fn of(text: &'static str) -> Self {
        Self(Finder::new(text))
    }

    fn finds_in(&self, line: &str) -> bool {
        self.0.find(line.as_bytes()).is_some()
    }
}

/// Adds an adapter that carries nothing, like the first one of each host but for its name.
fn add_idle_adapter() -> impl Fn(&str, &mut String) {
    const DEVICE: &str = "device=\"mlx5_0\"";
    let device = TextSearch::of(DEVICE);
    let ports = ["_infiniband_", "gaunt_port_"].map(TextSearch::of);
    move |line, page| {
        write_line(line, page);
        let is_port = ports.iter().any(|port| port.finds_in(line));
        if line.starts_with('#') || !is_port || !device.finds_in(line) {
            return;
        }
        let (series, value) = line.rsplit_once(' ').unwrap();
        let name = series.split('{').next().unwrap_or_default();
        let value = if name.ends_with("_total") { "1000" } else { value };
        let series = series.replace(DEVICE, "device=\"mlx5_77\"");
        write_line(&format!("{series} {value}"), page);
    }
}

#[test]
fn idle_storage_adapter_decides_nothing() {
    assert_same_verdicts(|_| Box::new(Lines(add_idle_adapter())));
}

/// Doubles every count of bytes.
fn double_bytes() -> impl Fn(&str, &mut String) {
    let bytes = TextSearch::of("bytes");
    move |line, page| {
        let doubled = || {
            let name = line.split(['{', ' ']).next().unwrap_or_default();
            let (series, value) = line.rsplit_once(' ').filter(|_| name.ends_with("_total"))?;
            Some(format!("{series} {}", value.parse::<f64>().ok()? * 2.0))
        };
        let name_end = memchr::memchr2(b'{', b' ', line.as_bytes()).unwrap_or(line.len());
        let doubled = if bytes.finds_in(&line[..name_end]) { doubled() } else { None };
        write_line(doubled.as_deref().unwrap_or(line), page);
    }
}

#[test]
fn twice_the_bytes_give_the_same_verdicts() {
    assert_same_verdicts(|_| Box::new(Lines(double_bytes())));
}

#[test]
fn fewer_metrics_give_no_new_verdicts() {
    assert_no_new_verdicts(&WORLDS, |_| Box::new(Lines(drop_lines("_GPU_TEMP"))));
    // With less than this slow storage is told as one host that starves its GPUs: nothing else shows what they wait for.
    for text in ["_POWER_USAGE", "_pressure_", "_PROF_"] {
        assert_no_new_verdicts(&WORLDS[..5], |_| Box::new(Lines(drop_lines(text))));
    }
}

/// Leaves out the lines with a text.
fn drop_lines(text: &'static str) -> impl Fn(&str, &mut String) {
    let search = TextSearch::of(text);
    move |line, page| {
        if !search.finds_in(line) {
            write_line(line, page);
        }
    }
}

/// Only every second scrape.
struct Halved;

impl WorldChange for Halved {
    fn change_page(&self, target: u32, scrape: usize, page: String) -> Vec<(u32, String)> {
        if scrape.is_multiple_of(2) { vec![(target, page)] } else { vec![] }
    }

    fn period_times(&self) -> u32 {
        2
    }
}

#[test]
fn half_of_the_scrapes_give_no_new_verdicts() {
    assert_no_new_verdicts(&WORLDS, |_| Box::new(Halved));
}
