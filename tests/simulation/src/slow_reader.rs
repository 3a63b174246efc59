//! More targets than gaunt can read: every slot of every target is a page, or is said to be skipped or failed, and gaunt
//! says that it is behind.

use std::{sync::Arc, time::Duration};

use gaunt_api::{Answer, Question, TargetList, TargetState};
use gaunt_engine::{Engine, EngineOptions};
use gaunt_schema::{ClockFn, Delivery, FindingKind, UnixMs};
use gaunt_scrape::{
    Network, ScrapeManagerHandle, ScrapeOptions, ScrapePlan, spawn_manager_on_network,
};
use tokio::{
    sync::mpsc,
    task::yield_now,
    time::{Instant, advance, sleep},
};

use crate::{
    BEGAN, seeded_random::SeededRandom, simulated_aggregator::scrape_plan,
    simulated_fleet::SimulatedNode, simulated_network::SimulatedNetwork,
};

/// The number of targets, and the time between two slots of one.
const TARGETS: usize = 24;
const PERIOD: Duration = Duration::from_secs(1);

/// Deliveries that wait: a sixth of what a period brings, as the engine's inbox for a fleet that is too large.
const INBOX: usize = TARGETS / 6;

/// The time in which gaunt must say that it is behind, once it shows values as present ones that are older.
const SAID_WITHIN: u64 = 10;

/// Seconds for which gaunt is too slow.
const SLOW_FOR: u64 = 40;

/// Seconds in which gaunt reads everything again.
const RECOVERY: u64 = 10;

/// Slots without a page after which a target is old.
const OLD_SLOTS: u32 = 3;

/// An aggregator that reads the targets as it can.
struct SlowReader {
    engine: Engine,
    clock: ClockFn,
    deliveries: mpsc::Receiver<Delivery>,
    _manager: ScrapeManagerHandle,
}

impl SlowReader {
    fn start() -> Self {
        let booted = BEGAN - Duration::from_hours(10);
        let nodes = (0..TARGETS).map(|index| SimulatedNode::new(index, booted, 0)).collect();
        let network = SimulatedNetwork::new(nodes, BEGAN, SeededRandom::new(1), None);
        let begun = Instant::now();
        let clock: ClockFn = Arc::new(move || BEGAN + begun.elapsed());
        let mut engine = Engine::new(EngineOptions { period: PERIOD, ..EngineOptions::default() });
        engine.run_tick(BEGAN);
        let (inbox, deliveries) = mpsc::channel(INBOX);
        let plan =
            ScrapePlan { options: ScrapeOptions::with_period(PERIOD), ..scrape_plan(TARGETS) };
        let on: Arc<dyn Network> = Arc::new(network);
        let manager =
            spawn_manager_on_network(plan, inbox, clock.clone(), Arc::new(|_| false), Some(on));
        Self { engine, clock, deliveries, _manager: manager }
    }

    fn ingest_waiting(&mut self, most: usize) {
        for _ in 0..most {
            let Ok(delivery) = self.deliveries.try_recv() else { return };
            self.engine.ingest_delivery(delivery);
        }
    }

    fn target_list(&self) -> Arc<TargetList> {
        match self.engine.answer_question(&Question::Targets) {
            Answer::Targets(list) => list,
            other => panic!("no targets: {other:?}"),
        }
    }

    /// Results so far by outcome.
    fn count_of(&self, outcome: &str) -> u64 {
        self.target_list().totals.scrapes.get(outcome).copied().unwrap_or_default()
    }

    /// Ticks; checks that old values are not shown as present ones without a word.
    fn check_second(&mut self, second: u64) {
        let now = (self.clock)();
        self.engine.run_tick(now);
        let is_old =
            |at: Option<UnixMs>| at.is_none_or(|at| now.duration_since(at) > PERIOD * OLD_SLOTS);
        let list = self.target_list();
        let live = list.targets.iter().filter(|line| line.state == TargetState::Live);
        let old = live.filter(|line| is_old(line.last_success)).count();
        let is_said = self.is_behind();
        assert!(second < SAID_WITHIN || old == 0 || is_said, "at {second} s {old} are old");
    }

    /// Reads all targets for some seconds, and checks that every slot since the start is counted once.
    async fn check_all_counted(&mut self) {
        for _ in 0..10 * RECOVERY {
            sleep(PERIOD / 10).await;
            self.ingest_waiting(usize::MAX);
        }
        self.engine.run_tick((self.clock)());
        let seconds = (self.clock)().duration_since(BEGAN).as_secs();
        let (due, counted) =
            (seconds * TARGETS as u64, self.target_list().totals.scrapes.values().sum::<u64>());
        // A result is late by a part of a slot, and the last slot of each target is not over.
        assert!(
            due.abs_diff(counted) <= 2 * TARGETS as u64,
            "{counted} of {due} slots are counted"
        );
    }

    /// Whether gaunt says that it is behind.
    fn is_behind(&self) -> bool {
        let Answer::Findings(list) = self.engine.answer_question(&Question::Findings) else {
            panic!("no findings");
        };
        list.findings.iter().any(|finding| finding.kind == FindingKind::AggregatorLate)
    }
}

/// The engine takes so many deliveries a second, and no more.
async fn read_with_slow_engine(reader: &mut SlowReader, per_second: u32, seconds: u64) {
    let begun = (reader.clock)().duration_since(BEGAN).as_secs();
    for second in begun + 1..=begun + seconds {
        for _ in 0..per_second {
            sleep(PERIOD / per_second).await;
            reader.ingest_waiting(1);
        }
        reader.check_second(second);
    }
}

/// The process gets the processor rarely: each of its tasks makes a step, and then none does for so long.
async fn read_without_cpu(reader: &mut SlowReader, stall: Duration, seconds: u64) {
    let begun = (reader.clock)();
    for second in 1..=seconds {
        while (reader.clock)() < begun + Duration::from_secs(second) {
            advance(stall).await;
            yield_now().await;
            reader.ingest_waiting(usize::MAX);
        }
        reader.check_second(second);
    }
}

#[tokio::test(start_paused = true)]
async fn engine_that_takes_a_part_of_the_pages_counts_the_others_and_says_so() {
    for per_second in [8, 20] {
        let mut reader = SlowReader::start();
        read_with_slow_engine(&mut reader, per_second, SLOW_FOR).await;
        assert!(reader.is_behind() && reader.count_of("skipped") > 0, "{per_second}");
        reader.check_all_counted().await;
    }
}

#[tokio::test(start_paused = true)]
async fn process_without_cpu_counts_the_slots_that_it_leaves_out_and_says_so() {
    for stall in [250, 400] {
        let mut reader = SlowReader::start();
        read_with_slow_engine(&mut reader, 100, 5).await;
        read_without_cpu(&mut reader, Duration::from_millis(stall), SLOW_FOR).await;
        assert!(reader.is_behind() && reader.count_of("ok") > SLOW_FOR, "{stall}");
        reader.check_all_counted().await;
    }
}
