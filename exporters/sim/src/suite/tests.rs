//! Tests: every case can be simulated, costs what its level requires, and passes the strict parser.

use std::time::Duration;

use gaunt_schema::{DeviceClass, EntityKind, catalogue::port, text};

use super::*;
use crate::fleet_shape::JobWorkload;

const START: UnixMs = UnixMs(1_790_000_000_000);

fn after_start(seconds: f64) -> UnixMs {
    START + Duration::from_secs_f64(seconds)
}

#[test]
fn seeds_are_in_one_split_and_all_variants_are_used() {
    let (tune, test) = (list_cases(SuiteSplit::Tune), list_cases(SuiteSplit::Test));
    assert_eq!(tune.len(), SCENARIOS.len() * 3 * SEEDS as usize);
    let seeds: std::collections::HashSet<_> = tune.iter().map(|case| case.seed).collect();
    assert_eq!(seeds.len(), tune.len());
    assert!(test.iter().all(|case| !seeds.contains(&case.seed)));
    for (scenario, _) in SCENARIOS {
        let mut variants: Vec<_> = tune
            .iter()
            .filter(|case| case.scenario == scenario)
            .map(|case| (case.gpm, case.labels, case.dialect))
            .collect();
        variants.sort_unstable();
        variants.dedup();
        assert_eq!(variants.len(), 8, "{scenario}");
    }
}

#[test]
fn shapes_are_in_both_splits_and_their_pages_differ() {
    for split in [SuiteSplit::Tune, SuiteSplit::Test] {
        let cases = list_cases(split);
        let any_shape = |is_wanted: &dyn Fn(&FleetShape) -> bool| {
            cases.iter().any(|case| is_wanted(&case.shape))
        };
        let first_job = |nodes| move |shape: &FleetShape| shape.jobs[0].nodes.len() == nodes;
        assert!(any_shape(&first_job(2)) && any_shape(&first_job(512)), "two nodes and many");
        for rails in [1, 2, 4, 8] {
            assert!(any_shape(&|shape| shape.rails == rails), "{rails} rails");
        }
        assert!(any_shape(&|shape| shape.gpus == 4 && shape.domain_nodes == 1), "small boxes");
        assert!(any_shape(&|shape| shape.gpus == 4 && shape.domain_nodes > 1), "trays");
        assert!(any_shape(&|shape| shape.jobs.iter().any(|job| job.experts)), "experts");
        assert!(any_shape(&|shape| shape.jobs.iter().any(|job| job.stages > 1)), "a pipeline");
        assert!(any_shape(&|shape| !shape.held.is_empty()), "held nodes");
        assert!(
            any_shape(&|shape| shape.jobs.iter().any(|job| job.work == JobWorkload::Serve)),
            "inference"
        );
        let models =
            |shape: &FleetShape| (0..shape.nodes).map(|node| shape.gpu_model(node).name).collect();
        let mixed = |shape: &FleetShape| {
            let models: std::collections::BTreeSet<_> = models(shape);
            models.len() > 1
        };
        assert!(any_shape(&mixed), "mixed generations");
    }
    let leaves = |split| -> std::collections::BTreeSet<usize> {
        let cases =
            list_cases(split).into_iter().filter(|case| case.shape.jobs[0].nodes.len() < 512);
        cases.map(|case| case.shape.leaf_nodes).collect()
    };
    assert!(leaves(SuiteSplit::Tune).is_disjoint(&leaves(SuiteSplit::Test)));
}

#[test]
fn first_seeds_cover_every_scenario_variant() {
    let first = SCENARIOS.len() * FaultLevel::ALL.len() * 3;
    for split in [SuiteSplit::Tune, SuiteSplit::Test] {
        let cases: Vec<_> = list_cases(split).into_iter().take(first).collect();
        for (scenario, _) in SCENARIOS {
            let variants = cases.iter().filter(|case| case.scenario == scenario);
            let variants =
                variants.map(|case| (case.gpm, case.labels, case.dialect == Dialect::Gaunt));
            let variants: std::collections::BTreeSet<_> = variants.collect();
            assert_eq!(variants.len(), 8, "{scenario}");
        }
    }
}

#[test]
fn faults_have_one_ground_truth_and_harmless_cases_none() {
    for case in list_cases(SuiteSplit::Test).into_iter().take(SCENARIOS.len() * 3) {
        let truths = case.fleet_plan().ground_truths(START);
        assert_eq!(truths.len(), usize::from(case.scenario.starts_with('F')), "{case:?}");
        for truth in truths {
            assert!(truth.onset > START && truth.limit > Duration::ZERO);
            assert!(after_start(f64::from(case.seconds)) > truth.onset + truth.limit);
            let number = |text: &Option<gaunt_schema::SanitizedText>, prefix: &str| {
                text.as_ref().map(|text| text.trim_start_matches(prefix).parse::<usize>().unwrap())
            };
            let blamed = &truth.blamed;
            assert!(number(&blamed.node, "gpu").is_none_or(|node| node <= case.shape.nodes));
            assert!(number(&blamed.gpu, "").is_none_or(|gpu| gpu < case.shape.gpus));
            assert!(number(&blamed.device, "mlx5_").is_none_or(|rail| rail < case.shape.rails));
            assert!(blamed.kind != EntityKind::Job || blamed.job.is_some());
        }
    }
}

/// Bytes sent by the ports of the first job.
fn sent_bytes(fleet: &SimFleet, case: &SuiteCase) -> f64 {
    let ports = case.shape.jobs[0].nodes.clone().flat_map(|node| {
        let report = fleet.node_report(node);
        let is_port = |index: u32| report.devices[index as usize].class == DeviceClass::Port;
        let samples = report.samples.iter();
        let sent_samples = samples
            .filter(|sample| sample.metric == port::TRANSMIT_BYTES && is_port(sample.device));
        sent_samples.filter_map(|sample| sample.reading.value()).collect::<Vec<_>>()
    });
    ports.sum()
}

#[test]
fn fault_level_is_its_share_of_lost_throughput() {
    for scenario in ["F1", "F2", "F3", "F4", "F5", "F6", "F7", "F11", "F12", "F13", "F17", "F18"] {
        for level in [FaultLevel::Mild, FaultLevel::Hard] {
            let case = SuiteCase::from_name(scenario, level, 1).unwrap();
            let mut fleet = case.build_fleet(START);
            let onset = fleet.ground_truths()[0].onset;
            let mut rate = |from: UnixMs| {
                fleet.advance_to(from);
                let before = sent_bytes(&fleet, &case);
                fleet.advance_to(from + Duration::from_secs(200));
                (sent_bytes(&fleet, &case) - before) / 200.0
            };
            let healthy = rate(START);
            // The healthy time may extend past the onset: its share is subtracted.
            let share = (onset.duration_since(START).as_secs_f64() / 200.0).min(1.0);
            let faulty = rate(START + Duration::from_secs(200));
            let healthy = (healthy - faulty * (1.0 - share)) / share;
            let lost = 1.0 - faulty / healthy;
            let expected = [0.14, 0.295, 0.585][level as usize];
            assert!(
                (lost - expected).abs() < 0.06,
                "{scenario} {level:?}: lost {lost}, expected {expected}"
            );
        }
    }
}

/// Every page of every scenario in this dialect is accepted.
fn check_pages(dialect: Dialect) {
    for (index, (scenario, _)) in SCENARIOS.into_iter().enumerate() {
        let case = SuiteCase {
            dialect,
            ..SuiteCase::from_name(scenario, FaultLevel::Hard, index as u64 % 7).unwrap()
        };
        let mut fleet = case.build_fleet(START);
        for second in [1, 215, 260] {
            fleet.advance_to(after_start(f64::from(second)));
            for node in 0..fleet.node_count() {
                for (dialect, page) in fleet.scraped_pages(node) {
                    let page =
                        text::decode_page(page.as_bytes(), &text::PageLimits::default()).unwrap();
                    assert_eq!(page.rejected.total_count(), 0, "{scenario}: {:?}", page.rejected);
                    assert_eq!(page.dialect, dialect);
                    assert_eq!(page.report.node.unwrap().as_str(), fleet.node_name(node));
                }
            }
        }
    }
}

#[test]
fn scenarios_run_in_own_dialect_without_rejected_lines() {
    check_pages(Dialect::Gaunt);
}

#[test]
fn scenarios_run_in_foreign_dialects_without_rejected_lines() {
    check_pages(Dialect::Dcgm);
}

#[test]
fn port_traffic_sent_equals_received_in_every_scenario() {
    for (scenario, _) in SCENARIOS {
        let case = SuiteCase::from_name(scenario, FaultLevel::Hard, 2).unwrap();
        let mut fleet = case.build_fleet(START);
        let total = |fleet: &SimFleet, metric| -> f64 {
            let reports = (0..fleet.node_count()).map(|node| fleet.node_report(node));
            let sum = |report: gaunt_schema::Report| -> f64 {
                let samples = report.samples.iter().filter(|sample| sample.metric == metric);
                samples.filter_map(|sample| sample.reading.value()).sum()
            };
            reports.map(sum).sum()
        };
        let traffic = |fleet: &SimFleet| {
            (total(fleet, port::TRANSMIT_BYTES), total(fleet, port::RECEIVE_BYTES))
        };
        let before = traffic(&fleet);
        fleet.advance_to(after_start(211.3));
        let now = traffic(&fleet);
        let (sent, received) = (now.0 - before.0, now.1 - before.1);
        let rounding = 8.0 * (fleet.node_count() * case.shape.rails) as f64;
        assert!(
            (sent - received).abs() <= rounding,
            "{scenario}: sent {sent}, received {received}"
        );
    }
}

#[test]
fn case_does_not_depend_on_sampling_interval() {
    for scenario in ["F4", "F10", "F15", "H3", "H6", "H10", "H13", "H16"] {
        let case = SuiteCase::from_name(scenario, FaultLevel::Medium, 3).unwrap();
        let (mut one_step, mut many_steps) = (case.build_fleet(START), case.build_fleet(START));
        one_step.advance_to(after_start(251.0));
        for second in 1..=251_u32 {
            many_steps.advance_to(after_start(f64::from(second)));
        }
        let counters = |fleet: &SimFleet| -> Vec<gaunt_schema::MetricSample> {
            let samples = (0..fleet.node_count()).flat_map(|node| fleet.node_report(node).samples);
            let counts = |sample: &gaunt_schema::MetricSample| {
                matches!(
                    sample.metric.catalogue_row().kind,
                    gaunt_schema::unit::MetricKind::Counter(_)
                )
            };
            samples.filter(counts).collect()
        };
        assert_eq!(counters(&one_step), counters(&many_steps), "{scenario}");
    }
}

#[test]
fn fault_free_days_have_no_ground_truth_and_steady_traffic() {
    let case = calm_case(SuiteSplit::Tune, 0);
    let mut fleet = case.build_fleet(START);
    assert_eq!((fleet.ground_truths(), case.seconds), (&[][..], 259_200));
    let mut last = 0.0;
    for hour in 1..=4 {
        fleet.advance_to(after_start(f64::from(hour) * 3_600.0));
        let now = sent_bytes(&fleet, &case);
        assert!(now > last, "nothing moved in hour {hour}");
        last = now;
    }
}
