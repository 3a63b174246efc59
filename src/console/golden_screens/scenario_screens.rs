//! Every scenario of the simulator as the console shows it, in virtual time: who, why, cost and next step are in the first
//! lines, and the culprit is two keys away.
//!
//! Reports reach the engine without being encoded as pages; a test of the demo compares both.

use std::{fmt::Write as _, fs, path::PathBuf, time::Duration};

use gaunt_api::Question;
use gaunt_engine::{Engine, EngineOptions};
use gaunt_schema::{
    Batch, Delivery, Dialect, RejectionCounts, SanitizedText, ScrapeFailure, ScrapeTarget,
    ScrapedPage, TargetId, UnixMs,
};
use gaunt_sim::{GroundTruth, Scenario, SimFleet, fleet_shape::FleetShape};

use super::GoldenConsole;
use crate::{
    action::{ConsoleAction, ConsoleEffect},
    key_press::KeyPress,
    screens::view_of,
    update::apply_action,
};

/// 2025-10-09 13:41:51 UTC.
const START: UnixMs = UnixMs(1_760_017_311_000);

/// Nodes of each fleet.
const NODES: usize = 8;

/// The scenarios: a healthy fleet, ten faults, and a pause that is no fault.
const SCENARIOS: [&str; 12] = [
    "healthy",
    "port_down",
    "data_starved",
    "storage_slow",
    "slow_gpu",
    "throttled",
    "launch_bound",
    "leaf_congested",
    "link_errors",
    "hang",
    "gpu_lost",
    "checkpoint",
];

/// Seconds after the start of the scenario at which the screens are captured, each with the scrape period: until minute 31
/// a period of 10 s takes a tenth of the time. Faults begin at second 15.
const INSTANTS: [(u64, u64); 4] = [(1, 1), (15, 1), (60, 1), (31 * 60, 10)];

/// Periods before the start of the scenario: the aggregator has seen the fleet without the fault.
const BEFORE: u64 = 45;

/// Lines in which all is said.
const HEAD: usize = 6;

/// Lines of a finding and of its culprit that are captured.
const SHOWN: usize = 12;

/// A scenario, its engine and the console.
struct ScenarioConsole {
    fleet: SimFleet,
    engine: Engine,
    console: GoldenConsole,
    period: Duration,
    now: UnixMs,
}

impl ScenarioConsole {
    fn new(scenario: &str, period: Duration) -> Self {
        let before = period.as_secs() * BEFORE;
        let mut scenario = Scenario::from_name(scenario).unwrap();
        for fault in &mut scenario.faults {
            fault.onset_s += before as f64;
        }
        let fleet = SimFleet::new(scenario, NODES, 1, START - Duration::from_secs(before));
        let mut engine = Engine::new(EngineOptions {
            cluster: SanitizedText::new("demo"),
            period,
            price_per_gpu_hour: Some(2.5),
            ..EngineOptions::default()
        });
        let target = |node| ScrapeTarget {
            id: TargetId(node as u32),
            address: SanitizedText::new(&format!("demo:{}", fleet.node_name(node))),
            node: None,
            origin: "the demo".into(),
        };
        let targets = (0..fleet.node_count()).map(target).collect();
        engine.ingest_delivery(Delivery::Targets(targets));
        let topology = FleetShape::new_usual(NODES).to_topology();
        engine.ingest_delivery(Delivery::Topology(topology));
        let now = fleet.current_time();
        Self { fleet, engine, console: GoldenConsole::new(), period, now }
    }

    /// Advances fleet and engine.
    fn run_until(&mut self, second: u64) {
        while self.now < START + Duration::from_secs(second) {
            self.now = self.now + self.period;
            self.fleet.advance_to(self.now);
            for node in 0..self.fleet.node_count() {
                let page = |report| ScrapedPage {
                    report,
                    dialect: Dialect::Gaunt,
                    bytes: 0,
                    rejected: RejectionCounts::default(),
                };
                let report = self.fleet.scraped_report(node);
                let outcome = report
                    .map(page)
                    .ok_or_else(|| ScrapeFailure::Connect("connection refused".into()));
                let (target, at) = (TargetId(node as u32), self.now);
                let batch = Batch { target, at, duration_ms: 0.0, outcome };
                self.engine.ingest_delivery(Delivery::Batch(batch));
            }
            self.engine.run_tick(self.now);
        }
    }

    /// Applies an action, and answers all questions that follow from it.
    fn apply(&mut self, action: ConsoleAction) {
        let mut effects = apply_action(&mut self.console.state, action).effects;
        // A screen asks twice at most: for its rows, and for what they name.
        for _ in 0..4 {
            let asked = effects.into_iter().filter_map(|effect| match effect {
                ConsoleEffect::Ask(questions) => Some(questions),
                _ => None,
            });
            let questions: Vec<Question> = asked.flatten().collect();
            effects = Vec::new();
            for question in questions {
                let answer = self.engine.answer_question(&question);
                let action = ConsoleAction::Answered(self.now, Box::new(question), answer);
                effects.extend(apply_action(&mut self.console.state, action).effects);
            }
        }
    }

    fn draw(&mut self) -> Vec<String> {
        self.apply(ConsoleAction::Tick(self.now));
        self.console.draw(120, 35)
    }

    /// The fault that has begun, and whether it must have been found by now.
    fn begun_truth(&self) -> Option<(&GroundTruth, bool)> {
        let begun = self.fleet.ground_truths().iter().find(|truth| truth.onset <= self.now);
        begun.map(|truth| (truth, truth.onset + truth.limit <= self.now))
    }
}

/// The names of what may be blamed for a fault.
fn blamed_names(truth: &GroundTruth) -> Vec<String> {
    std::iter::once(&truth.blamed).chain(&truth.also).map(ToString::to_string).collect()
}

/// What the first lines of a screen leave open; nothing if they say all.
fn unanswered(lines: &[String], truth: Option<(&GroundTruth, bool)>) -> Vec<String> {
    let head = lines[..HEAD].join("\n");
    let (is_calm, is_found) = (head.contains("LOST      none"), !head.contains("none open"));
    let lacks = |word: &str, what: &str| (!head.contains(word)).then(|| what.to_owned());
    let mut open = Vec::new();
    let Some((truth, is_due)) = truth else {
        open.extend((is_found || !is_calm).then(|| "nothing is wrong".to_owned()));
        return open;
    };
    if is_found {
        let names = blamed_names(truth);
        if !names.iter().any(|name| head.contains(name)) {
            open.push(format!("who: none of {names:?}"));
        }
        let kinds = std::iter::once(&truth.kind).chain(&truth.kinds);
        let kinds: Vec<&str> = kinds.map(|kind| kind.as_str()).collect();
        if !kinds.iter().any(|kind| head.contains(kind)) {
            open.push(format!("why: none of {kinds:?}"));
        }
        open.extend(lacks("GPUs lost", "cost").or_else(|| lacks("/h", "cost per hour")));
        open.extend(lacks("next: ", "next step"));
    } else if is_due {
        open.push("the fault is not found".to_owned());
    } else if !is_calm {
        open.extend(lacks(" on gpu", "who").or_else(|| lacks("/h", "cost per hour")));
        open.extend(lacks("next: ", "next step"));
    }
    open
}

/// The screens of one scenario, and what they do not say.
fn capture_scenario(scenario: &str) -> (String, String) {
    let (mut captured, mut problems) = (String::new(), String::new());
    let mut console = ScenarioConsole::new(scenario, Duration::from_secs(1));
    for (second, period) in INSTANTS {
        if console.period != Duration::from_secs(period) {
            console = ScenarioConsole::new(scenario, Duration::from_secs(period));
        }
        console.run_until(second);
        let lines = console.draw();
        let heat = lines.iter().position(|line| line.starts_with(" HEAT"));
        let shown = lines[..heat.unwrap_or(lines.len())].join("\n");
        _ = write!(captured, "## {scenario}, second {second}\n\n{shown}\n\n");
        for problem in unanswered(&lines, console.begun_truth()) {
            _ = writeln!(problems, "{scenario}, second {second}: {problem}");
        }
    }
    let Some(truth) = console.begun_truth().map(|(truth, _)| truth.clone()) else {
        return (captured, problems);
    };
    for keys in ["Enter", "Enter, Enter"] {
        console.apply(ConsoleAction::Key(KeyPress::Enter));
        let shown = console.draw()[..SHOWN].join("\n");
        _ = write!(captured, "## {scenario}, {keys}\n\n{}\n\n", shown.trim_end());
    }
    let state = &console.console.state;
    let shown = view_of(&state.screen);
    let rows = shown.table_subject().map_or("", |subject| &*state.list_state(subject).rows);
    let title = format!("{} {rows}", shown.header_title());
    let blamed = std::iter::once(&truth.blamed).chain(&truth.also);
    let parts = blamed.flat_map(|entity| [&entity.node, &entity.job, &entity.leaf]);
    let names: Vec<&SanitizedText> = parts.flatten().collect();
    if !names.iter().any(|name| title.contains(name.as_str())) {
        _ = writeln!(problems, "{scenario}: two keys open {title:?}, not {names:?}");
    }
    (captured, problems)
}

#[test]
fn scenario_screens_say_who_why_cost_and_next_step_in_the_first_lines() {
    let parts: Vec<(String, String)> = std::thread::scope(|scope| {
        let threads = SCENARIOS.map(|scenario| scope.spawn(move || capture_scenario(scenario)));
        threads.map(|thread| thread.join().unwrap()).into()
    });
    let (captured, problems): (Vec<String>, Vec<String>) = parts.into_iter().unzip();
    let (captured, problems) = (captured.concat(), problems.concat());
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/fixtures/screens/scenarios-120x35.txt");
    if std::env::var_os("GAUNT_BLESS").is_some() {
        fs::write(&path, &captured).unwrap();
    }
    assert!(problems.is_empty(), "{problems}");
    let expected = fs::read_to_string(&path).unwrap_or_default();
    assert!(expected == captured, "{} differs; got:\n{captured}", path.display());
}
