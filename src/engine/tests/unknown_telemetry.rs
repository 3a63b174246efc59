//! Coverage of simulated fleets whose pages lack something: each check names the nodes, and only those.

use gaunt_schema::{DeviceClass, FieldCounts, catalogue::gpu};

use super::*;
use gaunt_api::{CoverageCheck, CoverageKind, CoverageState, TelemetryCoverage};

/// The coverage of four nodes after twelve periods, of which these pages are changed.
fn coverage_of(
    period: u64,
    change: impl Fn(usize, &mut gaunt_schema::Report),
) -> TelemetryCoverage {
    coverage_of_pages(period, |node, page| change(node, &mut page.report))
}

/// The same, of changed pages.
fn coverage_of_pages(period: u64, change: impl Fn(usize, &mut ScrapedPage)) -> TelemetryCoverage {
    let mut run = EngineTestRun::with_period(period, "healthy", 4, 1);
    for _ in 0..12 {
        run.step_with(|fleet, node| {
            let (report, rejected) = (fleet.node_report(node), RejectionCounts::default());
            let mut page = ScrapedPage { report, dialect: Dialect::Gaunt, bytes: 0, rejected };
            change(node, &mut page);
            Ok(page)
        });
    }
    match run.engine.answer_question(&Question::Coverage) {
        Answer::Coverage(coverage) => coverage.as_ref().clone(),
        other => panic!("no coverage: {other:?}"),
    }
}

fn check_of(coverage: &TelemetryCoverage, kind: CoverageKind) -> &CoverageCheck {
    coverage.checks.iter().find(|check| check.kind == kind).unwrap_or_else(|| panic!("{kind:?}"))
}

/// Removes the samples of a class of devices.
fn remove_class(report: &mut gaunt_schema::Report, class: DeviceClass) {
    report.samples.retain(|sample| sample.metric.catalogue_row().class != class);
}

#[test]
fn complete_fleet_misses_nothing_and_rare_pages_delay_findings() {
    for (period, gpus, hosts) in [(1, 5.0, 14.0), (30, 30.0, 35.0)] {
        let coverage = coverage_of(period, |_, _| {});
        assert_eq!(coverage.missing_checks(), 0, "{:#?}", coverage.checks);
        assert!(coverage.checks.iter().all(|check| check.missing.is_empty()));
        assert_eq!((coverage.gpu_nodes, coverage.gpus), (4, 32));
        for (class, expected) in [(DeviceClass::Gpu, gpus), (DeviceClass::Node, hosts)] {
            let group = coverage.intervals.iter().find(|group| group.class == class).unwrap();
            assert_eq!((group.nodes, group.renewal_seconds), (4, Some(period as f64)));
            assert_eq!(group.inferred_seconds, Some(expected), "{class:?} every {period} s");
        }
    }
}

#[test]
fn fields_that_are_not_understood_are_named_and_missed_where_they_are_most() {
    let check = |known: u32| {
        let coverage = coverage_of_pages(1, |node, page| {
            page.dialect = Dialect::Dcgm;
            if node == 2 {
                let names = ["DCGM_FI_DEV_A", "DCGM_FI_DEV_B"].map(Into::into).into();
                page.rejected.fields = FieldCounts { known, unknown: 2, names };
            }
        });
        check_of(&coverage, CoverageKind::ExporterFields).clone()
    };
    let custom_list = check(25);
    assert_eq!((custom_list.known, custom_list.total), (3, 4), "{custom_list:?}");
    assert_eq!(custom_list.list_missing().as_str(), "DCGM_FI_DEV_A, DCGM_FI_DEV_B");
    assert_eq!(custom_list.state, CoverageState::Note);
    let other_version = check(1);
    assert_eq!(other_version.state, CoverageState::Missing);
    let summary = "1 of 4 pages of dcgm-exporter has fields that are not understood: ";
    assert!(other_version.summary.starts_with(summary), "{other_version:?}");
}

#[test]
fn page_with_a_renamed_field_of_each_default_list_is_missed_and_not_noted() {
    let coverage = coverage_of_pages(1, |node, page| {
        page.dialect = Dialect::Dcgm;
        if node == 2 {
            let names = ["DCGM_FI_DEV_DIE_TEMP_KELVIN".into()].into();
            page.rejected.fields = FieldCounts { known: 25, unknown: 1, names };
            page.report.samples.retain(|sample| sample.metric != gpu::TEMPERATURE);
        }
    });
    let check = check_of(&coverage, CoverageKind::ExporterFields);
    assert_eq!((check.state, check.known), (CoverageState::Missing, 3), "{check:?}");
}

#[test]
fn target_with_a_page_of_an_unknown_format_counts_as_not_read() {
    let coverage = coverage_of_pages(1, |node, page| {
        if node == 3 {
            let names = ["go_goroutines".into(), "jvm_threads".into()].into();
            let fields = FieldCounts { known: 0, unknown: 2, names };
            let rejected = RejectionCounts { fields, ..RejectionCounts::default() };
            let (report, dialect) = (gaunt_schema::Report::default(), Dialect::Unknown);
            *page = ScrapedPage { report, dialect, bytes: 9, rejected };
        }
    });
    let targets = check_of(&coverage, CoverageKind::Targets);
    assert_eq!((targets.state, targets.known), (CoverageState::Missing, 3), "{targets:?}");
    assert!(targets.next.contains("no known metric (go_goroutines, jvm_threads)"), "{targets:?}");
    assert!(!coverage.checks.iter().any(|check| check.kind == CoverageKind::ExporterFields));
}

#[test]
fn node_without_a_host_page_is_named_and_has_no_pressure_to_miss() {
    let coverage = coverage_of(1, |node, report| {
        if node == 0 {
            remove_class(report, DeviceClass::Node);
            remove_class(report, DeviceClass::Port);
        }
    });
    for kind in [CoverageKind::HostMetrics, CoverageKind::PortMetrics] {
        let check = check_of(&coverage, kind);
        assert_eq!((check.known, check.total, check.missing.len()), (3, 4, 1), "{check:?}");
        assert_eq!(check.missing[0].as_str(), "gpu001");
        assert!(!check.next.is_empty(), "{check:?}");
    }
    let pressure = check_of(&coverage, CoverageKind::PressureMetrics);
    assert_eq!((pressure.state, pressure.total), (CoverageState::Ok, 3));
}

#[test]
fn gpus_in_use_without_a_label_and_hosts_without_gpus_are_told_apart() {
    let coverage = coverage_of(1, |node, report| {
        let infos = report.infos.iter().filter(|info| info.metric != gpu::JOB_INFO);
        report.infos = infos.cloned().collect::<Vec<_>>().into();
        if node == 3 {
            report
                .samples
                .retain(|sample| sample.metric.catalogue_row().class == DeviceClass::Node);
        }
    });
    let labels = check_of(&coverage, CoverageKind::JobLabels);
    assert_eq!((labels.state, labels.known), (CoverageState::Missing, 0), "{labels:?}");
    let hosts = check_of(&coverage, CoverageKind::GpuMetrics);
    assert_eq!((hosts.state, hosts.known, hosts.total), (CoverageState::Note, 3, 4), "{hosts:?}");
    assert_eq!(hosts.list_missing(), "gpu004");
}

/// Kinds that are inferred from samples, and not reported by a device.
const INFERRED: [FindingKind; 9] = [
    FindingKind::DataStarved,
    FindingKind::StorageSlow,
    FindingKind::HostBound,
    FindingKind::ComputeStraggler,
    FindingKind::LeafCongested,
    FindingKind::RailSlow,
    FindingKind::HostBlocksNetwork,
    FindingKind::StageImbalance,
    FindingKind::UnexplainedSlowdown,
];

/// Seconds from the onset of a scenario's fault until an inferred finding is open, and the least that the coverage states
/// then; none if there is none in time.
fn inferred_after(scenario: &str, period: u64) -> Option<(f64, f64)> {
    let mut run = EngineTestRun::with_period(period, scenario, 32, 1);
    let onset = run.fleet.ground_truths().iter().map(|truth| truth.onset).min()?;
    let onset = onset.duration_since(START).as_secs() as i64;
    while run.second < onset + 120 {
        run.step_period();
        let findings = run.open_findings();
        if run.second >= onset && findings.iter().any(|it| INFERRED.contains(&it.kind)) {
            return match run.engine.answer_question(&Question::Coverage) {
                Answer::Coverage(coverage) => {
                    Some(((run.second - onset) as f64, coverage.inferred_seconds?))
                }
                other => panic!("no coverage: {other:?}"),
            };
        }
    }
    None
}

#[test]
fn nothing_inferred_opens_before_the_stated_delay() {
    let scenarios = ["data_starved", "storage_slow", "slow_gpu", "launch_bound", "leaf_congested"];
    for period in [1, 10] {
        let delays = scenarios.map(|scenario| inferred_after(scenario, period));
        for (scenario, (after, least)) in
            scenarios.iter().zip(delays).filter_map(|(s, d)| Some((s, d?)))
        {
            assert!(
                after >= least,
                "{scenario} every {period} s: after {after} s, least {least} s"
            );
        }
        let opened = delays.iter().flatten().count();
        assert!(opened > 2, "every {period} s: {delays:?}");
    }
}

#[test]
fn targets_that_were_not_tried_are_noted_and_not_missing() {
    let mut run = EngineTestRun::new("healthy", 4, 1);
    let coverage_now = |run: &EngineTestRun| match run.engine.answer_question(&Question::Coverage) {
        Answer::Coverage(coverage) => coverage.as_ref().clone(),
        other => panic!("no coverage: {other:?}"),
    };
    let coverage = coverage_now(&run);
    let targets = check_of(&coverage, CoverageKind::Targets);
    assert_eq!((targets.state, targets.known, targets.total), (CoverageState::Note, 0, 4));
    assert_eq!(targets.summary.as_str(), "4 targets are not tried yet");
    assert_eq!((targets.missing_total, coverage.missing_checks()), (0, 0), "{coverage:#?}");

    // One of four fails, and two more are named meanwhile.
    run.step_with(|fleet, node| {
        let (report, rejected) = (fleet.node_report(node), RejectionCounts::default());
        let page = ScrapedPage { report, dialect: Dialect::Gaunt, bytes: 0, rejected };
        if node == 3 { Err(ScrapeFailure::Status(500)) } else { Ok(page) }
    });
    run.engine.ingest_delivery(targets_of(6));
    let coverage = coverage_now(&run);
    let targets = check_of(&coverage, CoverageKind::Targets);
    assert_eq!((targets.state, targets.known, targets.total), (CoverageState::Missing, 3, 6));
    assert_eq!(targets.missing_total, 1, "{targets:?}");
    assert!(targets.summary.ends_with("; 2 targets are not tried yet"), "{targets:?}");
}

#[test]
fn nodes_that_do_not_answer_lack_their_targets_and_nothing_else() {
    let mut run = EngineTestRun::new("healthy", 4, 1);
    let step = |run: &mut EngineTestRun, silent: usize| {
        run.step_with(|fleet, node| {
            let (report, rejected) = (fleet.node_report(node), RejectionCounts::default());
            let page = ScrapedPage { report, dialect: Dialect::Gaunt, bytes: 0, rejected };
            if node < silent { Err(ScrapeFailure::Status(500)) } else { Ok(page) }
        });
    };
    for (silent, checks) in [(0, 0), (2, 1), (4, 1)] {
        (0..20).for_each(|_| step(&mut run, silent));
        let Answer::Coverage(coverage) = run.engine.answer_question(&Question::Coverage) else {
            panic!("no coverage");
        };
        assert_eq!(coverage.missing_checks(), checks, "{silent} are silent: {coverage:#?}");
        let Answer::Nodes(list) = run.engine.answer_question(&Question::Nodes) else {
            panic!("no nodes");
        };
        let unknown = list.nodes.iter().filter(|line| line.ports == (0, 0)).count();
        assert_eq!(unknown, silent, "ports of a node that does not answer are not down");
    }
}
