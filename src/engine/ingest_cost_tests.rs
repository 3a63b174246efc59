//! Scaling tests: the cost of ingesting a page grows at most linearly with its size, whatever its devices and changes
//! are.

use std::time::Duration;

use gaunt_schema::{
    Batch, Delivery, Device, DeviceClass, Dialect, MetricId, RejectionCounts, Report,
    SanitizedText, ScrapeTarget, ScrapedPage, TargetId, UnixMs, catalogue::gpu, unit::MetricKind,
};
use rustix::time::{ClockId, clock_gettime};

use super::{Engine, EngineOptions};

const START: UnixMs = UnixMs(1_700_000_000_000);

/// Long enough that periodic work is done at each step.
const PERIOD: Duration = Duration::from_secs(30);

/// The size of the larger page as a multiple of the smaller one, and the limit of its cost.
const TIMES: usize = 4;
const MOST_RATIO: f64 = 8.0;

/// Shorter durations are too small to be compared.
const LEAST: Duration = Duration::from_millis(4);

/// What changes from one page to the next.
#[derive(Clone, Copy, Debug, PartialEq)]
enum IngestPageChange {
    LabelFlips,
    AllLabelsFlip,
    Renamed,
    Reordered,
    ComeAndGo,
    IdentitiesSwap,
    JobsFlip,
}

const CHANGES: [IngestPageChange; 7] = [
    IngestPageChange::LabelFlips,
    IngestPageChange::AllLabelsFlip,
    IngestPageChange::Renamed,
    IngestPageChange::Reordered,
    IngestPageChange::ComeAndGo,
    IngestPageChange::IdentitiesSwap,
    IngestPageChange::JobsFlip,
];

/// The device of a class by its number: parts of GPUs are spread over eight GPUs.
fn device_by_number(class: DeviceClass, number: usize) -> Device {
    let name = SanitizedText::new(&number.to_string());
    let key: Vec<SanitizedText> = match class.key_label_names() {
        [] => Vec::new(),
        ["gpu"] => vec![name],
        [_] => vec![format!("d{number}").into()],
        ["gpu", ..] => vec![(number % 8).to_string().into(), name],
        [..] => vec![format!("d{number}").into(), "1".into()],
    };
    Device { class, key: key.into() }
}

/// One page: `size` devices of a class with values of all metrics, after so many changes.
fn build_report(class: DeviceClass, size: usize, round: usize, change: IngestPageChange) -> Report {
    let numbers = (0..size).map(|at| match change {
        IngestPageChange::Renamed => at + round * size,
        IngestPageChange::Reordered => (at + round * 7) % size,
        _ => at,
    });
    let all = numbers
        .filter(|at| change != IngestPageChange::ComeAndGo || (at + round).is_multiple_of(2));
    let mut report = Report { node: Some("n".into()), ..Report::default() };
    let numbers: Vec<usize> = all.collect();
    report.devices = numbers.iter().map(|number| device_by_number(class, *number)).collect();
    let metrics: Vec<MetricId> =
        MetricId::all_ids().filter(|id| id.catalogue_row().class == class).collect();
    for metric in metrics {
        for (at, number) in (0_u32..).zip(&numbers) {
            if metric.catalogue_row().kind != MetricKind::Info {
                // Counters grow, gauges change, and some have their worst value.
                let value = ((number * 7 + round * 13) % 5) as f64 + round as f64;
                report.push(at, metric, value);
                continue;
            }
            let flips = change == IngestPageChange::AllLabelsFlip
                || change == IngestPageChange::LabelFlips && at == 0;
            let swapped =
                if change == IngestPageChange::IdentitiesSwap { number + round } else { *number };
            let job = if change == IngestPageChange::JobsFlip { number + round } else { *number };
            let driver = if flips { format!("K{round}") } else { "K".to_owned() };
            if metric == gpu::JOB_INFO {
                report.add_info(at, metric, &[("job", &format!("j{job}"))]);
            } else {
                let (uuid, bus) = (format!("GPU-{swapped}"), format!("0000:{swapped:x}:00.0"));
                let netdev = format!("d{number}");
                let labels = [
                    ("uuid", uuid.as_str()),
                    ("pci_bus_id", &bus),
                    ("gpu_pci_bus_ids", &bus),
                    ("netdev", &netdev),
                    ("peer", &uuid),
                    ("driver", &driver),
                ];
                report.add_info(at, metric, &labels);
            }
        }
    }
    report
}

fn engine_with_nodes(nodes: usize) -> Engine {
    let mut engine = Engine::new(EngineOptions { period: PERIOD, ..EngineOptions::default() });
    engine.run_tick(START);
    let targets = (0..nodes).map(|node| ScrapeTarget {
        id: TargetId(node as u32),
        address: format!("127.1.0.{node}:9770").into(),
        node: (nodes > 1).then(|| format!("n{node}").into()),
        origin: "test".into(),
    });
    engine.ingest_delivery(Delivery::Targets(targets.collect()));
    engine
}

/// The CPU time of this thread: other load on the machine does not count.
fn thread_cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// The minimum CPU time of several runs over the same pages, the first two of each not counted.
fn measure_cost(nodes: usize, pages: &[Vec<Report>]) -> Duration {
    let run = || {
        let mut engine = engine_with_nodes(nodes);
        let mut cost = Duration::ZERO;
        for (round, reports) in pages.iter().enumerate() {
            let at = START + PERIOD * (round as u32 + 1);
            let batches: Vec<Batch> = (0..)
                .zip(reports)
                .map(|(target, report)| {
                    let report = report.clone();
                    let rejected = RejectionCounts::default();
                    let page = ScrapedPage { report, dialect: Dialect::Gaunt, bytes: 1, rejected };
                    Batch { target: TargetId(target), at, duration_ms: 1.0, outcome: Ok(page) }
                })
                .collect();
            let began = thread_cpu_time();
            for batch in batches {
                engine.ingest_delivery(Delivery::Batch(batch));
            }
            engine.run_tick(at);
            if round >= 2 {
                cost += thread_cpu_time().saturating_sub(began);
            }
        }
        cost
    };
    (0..2).map(|_| run()).min().unwrap()
}

fn assert_linear(what: &str, cost: impl Fn(usize) -> Duration, size: usize) {
    let (small, large) = (cost(size), cost(size * TIMES));
    let ratio = large.as_secs_f64() / small.as_secs_f64().max(1e-9);
    assert!(
        large < LEAST || ratio < MOST_RATIO,
        "{what}: {size} cost {small:?}, {} cost {large:?}: {ratio:.1} times as much",
        size * TIMES
    );
}

const ROUNDS: usize = 4;

#[test]
fn ingest_and_tick_of_one_page_grow_with_its_size() {
    for class in DeviceClass::ALL.into_iter().filter(|class| !class.key_label_names().is_empty()) {
        // Only GPUs have identities and jobs.
        let of_gpus = [IngestPageChange::IdentitiesSwap, IngestPageChange::JobsFlip];
        for change in
            CHANGES.into_iter().filter(|it| class == DeviceClass::Gpu || !of_gpus.contains(it))
        {
            let cost = |size: usize| {
                let page = |round| vec![build_report(class, size, round, change)];
                measure_cost(1, &(0..ROUNDS).map(page).collect::<Vec<_>>())
            };
            assert_linear(&format!("{class:?}, {change:?}"), cost, 96);
        }
    }
}

#[test]
fn ingest_and_tick_of_a_fleet_grow_with_its_jobs() {
    for change in [IngestPageChange::LabelFlips, IngestPageChange::JobsFlip] {
        let cost = |nodes: usize| {
            let page = |round: usize| {
                // Every GPU has a job of its own, on whatever node it is.
                let of = |node: usize| {
                    let mut page = build_report(DeviceClass::Gpu, 8, round, change);
                    for info in page.infos.iter().cloned().collect::<Vec<_>>() {
                        if info.metric == gpu::JOB_INFO {
                            let job = format!("j{node}.{}.{round}", info.device);
                            page.add_info(info.device, gpu::JOB_INFO, &[("job", &job)]);
                        }
                    }
                    page
                };
                (0..nodes).map(of).collect()
            };
            measure_cost(nodes, &(0..ROUNDS).map(page).collect::<Vec<_>>())
        };
        assert_linear(&format!("jobs, {change:?}"), cost, 64);
    }
}

#[test]
fn ingest_and_tick_of_a_fleet_grow_with_one_job_over_all_of_it() {
    let cost = |nodes: usize| {
        let page = |round: usize| {
            let mut page = build_report(DeviceClass::Gpu, 8, round, IngestPageChange::Reordered);
            for device in 0..8 {
                page.add_info(device, gpu::JOB_INFO, &[("job", "1")]);
            }
            vec![page; nodes]
        };
        measure_cost(nodes, &(0..ROUNDS).map(page).collect::<Vec<_>>())
    };
    assert_linear("one job", cost, 64);
}
