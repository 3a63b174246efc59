//! Tests of the metrics page of a small fleet, line by line.

use std::sync::Arc;

use gaunt_schema::{
    FindingKind, RecordingStatus, RecordingStop, RecordingStopReason, SanitizedText, Severity,
    UnixMs, text,
};

use super::*;
use gaunt_api::{
    Acknowledgement, CumulativeTotals, Finding, JobLostTime, JobTime, NodeCounts, NodeLine,
    StateCount, TargetLine,
};

fn sample_answers() -> MetricsAnswers {
    let node = SanitizedText::new("gpu\\1 \"a\"");
    let finding = sample_finding(&node);
    let overview = Overview {
        nodes: NodeCounts { live: 1, ..NodeCounts::default() },
        states: vec![
            StateCount { state: GpuState::Computing, gpus: 1 },
            StateCount { state: GpuState::DataStarved, gpus: 1 },
        ],
        ..Overview::default()
    };
    let line = NodeLine {
        node: node.clone(),
        state: NodeState::Live,
        age_ms: Some(3),
        gpu_states: "Cd".to_owned(),
        lost_gpus: 1.0,
        utilization_ratio: None,
        power_watts: None,
        ports: (0, 0),
        jobs: Vec::new(),
        finding: Some(FindingKind::PortDown),
    };
    let target = TargetLine {
        address: "10.0.0.1:9770".into(),
        node: Some(node),
        origin: "--targets".into(),
        state: TargetState::Live,
        dialect: None,
        last_attempt: None,
        last_success: None,
        failure: None,
        message: None,
        duration_ms: None,
        samples: 2,
        bytes: 0,
        rejected: gaunt_schema::RejectionCounts::default(),
        missed: 0,
        dropped_batches: 0,
    };
    let untried =
        TargetLine { address: "b:1".into(), state: TargetState::Pending, ..target.clone() };
    let totals = CumulativeTotals {
        scrapes: [("ok".into(), 7), ("timeout".into(), 1)].into(),
        samples: 14,
        rejected: [("bad_value".into(), 2)].into(),
        findings_opened: [(FindingKind::PortDown, 1)].into(),
    };
    MetricsAnswers {
        overview: Arc::new(overview),
        nodes: Arc::new(NodeList { nodes: vec![line], ..NodeList::default() }),
        findings: Arc::new(FindingList { findings: vec![finding], ..FindingList::default() }),
        targets: Arc::new(TargetList {
            targets: vec![target, untried],
            sources: Vec::new(),
            totals,
            keeping: Some(sample_recording_status()),
            ..TargetList::default()
        }),
        time: Arc::new(sample_gpu_time()),
        store: None,
        receive: None,
    }
}

fn sample_gpu_time() -> GpuTime {
    GpuTime {
        jobs: vec![JobTime {
            job: "8812".into(),
            gpus: 2,
            states: vec![StateCount { state: GpuState::Waiting, gpus: 1 }],
            lost_gpus: 0.5,
        }],
        starved: vec![
            JobLostTime { job: "(nobody)".into(), cause: "unexplained".into(), gpu_seconds: 2.5 },
            JobLostTime { job: "8812".into(), cause: "port_down".into(), gpu_seconds: 120.0 },
        ],
        ..GpuTime::default()
    }
}

fn sample_recording_status() -> RecordingStatus {
    RecordingStatus {
        written: 40,
        bytes: 900,
        dropped_behind: 3,
        dropped_stopped: 8,
        stopped: Some(RecordingStop { reason: RecordingStopReason::NoSpace, since: UnixMs(0) }),
        ..RecordingStatus::default()
    }
}

fn sample_finding(node: &SanitizedText) -> Finding {
    let entity = Entity::new_port(node, &"mlx5_1".into(), &"1".into());
    Finding {
        id: "port_down/gpu1/mlx5_1/1".to_owned(),
        confidence: 1.0,
        acknowledged: Some(Acknowledgement {
            by: "alice".into(),
            at: UnixMs(1),
            note: "on it".into(),
            severity: Severity::Critical,
        }),
        ..Finding::new(FindingKind::PortDown, Severity::Critical, entity)
    }
}

#[test]
fn page_shows_the_values_of_the_answers() {
    let page = sample_answers().render_page(ExpositionFormat::Text);
    let lines: Vec<_> = page.lines().filter(|line| !line.starts_with('#')).collect();
    for expected in [
        concat!("gaunt_build_info{version=\"", env!("CARGO_PKG_VERSION"), "\"} 1"),
        "gaunt_targets{state=\"live\"} 1",
        "gaunt_targets{state=\"down\"} 0",
        "gaunt_targets{state=\"pending\"} 1",
        r#"gaunt_target_up{target="10.0.0.1:9770",node="gpu\\1 \"a\""} 1"#,
        "gaunt_scrapes_total{outcome=\"ok\"} 7",
        "gaunt_scrapes_total{outcome=\"timeout\"} 1",
        "gaunt_samples_total 14",
        "gaunt_rejected_lines_total{reason=\"bad_value\"} 2",
        "gaunt_record_active{reason=\"no_space\"} 0",
        "gaunt_record_bytes_total 900",
        "gaunt_record_written_batches_total 40",
        "gaunt_record_dropped_batches_total{reason=\"behind\"} 3",
        "gaunt_record_dropped_batches_total{reason=\"stopped\"} 8",
        "gaunt_nodes{state=\"live\"} 1",
        "gaunt_gpus{state=\"computing\"} 1",
        "gaunt_gpus{state=\"lost\"} 0",
        r#"gaunt_gpu_state{node="gpu\\1 \"a\"",gpu="1",state="data_starved"} 1"#,
        "gaunt_lost_gpus 0",
        "gaunt_cause_lost_gpus{cause=\"port_down\"} 0",
        "gaunt_cause_lost_gpus{cause=\"idle\"} 0",
        "gaunt_cause_lost_gpus{cause=\"unexplained\"} 0",
        r#"gaunt_finding_lost_gpus{id="port_down/gpu1/mlx5_1/1",kind="port_down"} 0"#,
        r#"gaunt_node_lost_gpus{node="gpu\\1 \"a\""} 1"#,
        "gaunt_job_lost_gpus{job=\"8812\"} 0.5",
        "gaunt_job_gpus{job=\"8812\",state=\"waiting\"} 1",
        "gaunt_gpu_state_ratio{state=\"computing\"} 0.5",
        "gaunt_gpu_state_ratio{state=\"lost\"} 0",
        "gaunt_gpu_state_ratio{job=\"8812\",state=\"waiting\"} 0.5",
        "gaunt_starved_gpu_seconds_total{job=\"(nobody)\",cause=\"unexplained\"} 2.5",
        "gaunt_starved_gpu_seconds_total{job=\"8812\",cause=\"port_down\"} 120",
        r#"gaunt_finding{id="port_down/gpu1/mlx5_1/1",kind="port_down",severity="critical",acknowledged="true",entity="port",node="gpu\\1 \"a\"",device="mlx5_1",port="1"} 1"#,
        "gaunt_findings_opened_total{kind=\"port_down\"} 1",
    ] {
        assert!(lines.contains(&expected), "{expected}\nis missing in\n{page}");
    }
    assert!(!page.contains("target=\"b:1\""), "a target that was not tried is neither up nor down");
}

#[test]
fn family_has_one_header_and_contiguous_lines() {
    let page = sample_answers().render_page(ExpositionFormat::Text);
    let mut families = Vec::new();
    for line in page.lines() {
        let name = match line.strip_prefix("# HELP ") {
            Some(rest) => {
                let name = rest.split(' ').next().unwrap();
                assert!(!families.contains(&name), "{name} has two heads");
                families.push(name);
                continue;
            }
            None => line.trim_start_matches("# TYPE ").split([' ', '{']).next().unwrap(),
        };
        assert_eq!(families.last(), Some(&name), "{line}");
    }
}

#[test]
fn page_is_accepted_by_our_own_parser() {
    let page = sample_answers().render_page(ExpositionFormat::Text);
    let mut reader = text::TextReader::new(page.as_bytes(), &text::PageLimits::default());
    while let Some(line) = reader.next() {
        assert!(line.is_ok(), "{line:?}");
    }
}

#[test]
fn page_of_open_metrics_has_the_samples_of_the_text_page() {
    let (page, open) = (
        sample_answers().render_page(ExpositionFormat::Text),
        sample_answers().render_page(ExpositionFormat::OpenMetrics),
    );
    let samples = |page: &str| -> Vec<String> {
        page.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
    };
    assert_eq!(samples(&open), samples(&page));
    assert!(open.ends_with("\n# EOF\n") && !page.contains("# EOF"), "{open}");
    assert!(open.contains("# TYPE gaunt_scrapes counter\n"), "{open}");
    assert!(open.contains("# TYPE gaunt_build info\n"), "{open}");
    text::decode_open_metrics(open.as_bytes(), &text::PageLimits::default()).unwrap();
}

/// Lost GPUs of each breakdown add up to the total of the page.
#[test]
fn lost_gpus_of_a_page_add_up() {
    let start = UnixMs(1_700_000_000_000);
    let mut fleet = gaunt_sim::ScenarioRun {
        name: "demo".into(),
        nodes: Some(16),
        seed: 1,
        level: gaunt_sim::suite::FaultLevel::Hard,
        dialect: gaunt_schema::Dialect::Gaunt,
    }
    .build_fleet(start)
    .unwrap();
    let mut engine = gaunt_engine::Engine::new(gaunt_engine::EngineOptions::default());
    let targets = (0..16).map(|id| gaunt_schema::ScrapeTarget {
        id: gaunt_schema::TargetId(id),
        address: format!("{}:1", fleet.node_name(id as usize)).into(),
        node: None,
        origin: "test".into(),
    });
    engine.ingest_delivery(gaunt_schema::Delivery::Targets(targets.collect()));
    let mut lost = 0.0;
    for second in 1..=75 {
        let at = start + std::time::Duration::from_secs(second);
        fleet.advance_to(at);
        for id in 0..16_u32 {
            let Some((_, page)) = fleet.scraped_pages(id as usize).pop() else { continue };
            let outcome = text::decode_page(page.as_bytes(), &text::PageLimits::default());
            let target = gaunt_schema::TargetId(id);
            let batch = gaunt_schema::Batch { target, at, duration_ms: 1.0, outcome };
            engine.ingest_delivery(gaunt_schema::Delivery::Batch(batch));
        }
        engine.run_tick(at);
        if second % 5 != 0 {
            continue;
        }
        let mut answers = sample_answers();
        for question in [Question::Overview, Question::Nodes, Question::Findings, Question::GpuTime]
        {
            match engine.answer_question(&question) {
                Answer::Overview(overview) => answers.overview = overview,
                Answer::Nodes(nodes) => answers.nodes = nodes,
                Answer::Findings(findings) => answers.findings = findings,
                Answer::GpuTime(time) => answers.time = time,
                _ => panic!("another answer"),
            }
        }
        let page = answers.render_page(ExpositionFormat::Text);
        let sum = |family: &str| -> f64 {
            let lines = page.lines().filter(|line| line.split(['{', ' ']).next() == Some(family));
            lines.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum()
        };
        lost = sum("gaunt_lost_gpus");
        let findings = sum("gaunt_finding_lost_gpus")
            + answers.overview.lost.idle_gpus
            + answers.overview.lost.unexplained_gpus;
        let sums = [sum("gaunt_cause_lost_gpus"), sum("gaunt_node_lost_gpus"), findings];
        for sum in sums.into_iter().chain([sum("gaunt_job_lost_gpus")]) {
            assert!((sum - lost).abs() < 1e-6, "second {second}: {sum} beside {lost}");
        }
    }
    assert!(lost > 10.0, "{lost}");
}

#[test]
fn dropped_batches_are_named_for_the_targets_with_most() {
    let mut answers = sample_answers();
    let line = answers.targets.targets[0].clone();
    let list = Arc::make_mut(&mut answers.targets);
    list.targets = (0..100)
        .map(|index| TargetLine {
            address: format!("t{index}:1").into(),
            dropped_batches: index,
            ..line.clone()
        })
        .collect();
    let page = answers.render_page(ExpositionFormat::Text);
    let lines: Vec<_> = page
        .lines()
        .filter(|line| line.starts_with("gaunt_target_dropped_batches_total"))
        .collect();
    assert_eq!(lines.len(), MAX_DROPPING);
    assert!(lines[0].contains(r#"target="t99:1""#) && lines[0].ends_with(" 99"), "{lines:?}");
    assert!(lines[19].contains(r#"target="t80:1""#), "{lines:?}");
    answers.targets = Arc::default();
    assert!(
        !answers.render_page(ExpositionFormat::Text).contains("gaunt_target_dropped"),
        "none without drops"
    );
}

#[test]
fn numbers_of_states_are_those_of_the_help_text() {
    let help = fleet_metrics::GPU_STATE_CODE.catalogue_row().help;
    for state in GpuState::ALL {
        let word = format!("{} {}", state.number_code(), state.as_str());
        assert!(help.contains(&word), "{word}");
    }
    let help = fleet_metrics::FLAGGED_PORT.catalogue_row().help;
    for (place, state) in gaunt_api::PORT_STATES.iter().enumerate() {
        assert!(help.contains(&format!("{} {state}", place + 1)), "{state}");
    }
}

#[test]
fn state_of_the_store_is_on_the_page() {
    let mut answers = sample_answers();
    Arc::make_mut(&mut answers.overview).at = UnixMs(100_000);
    let page = answers.render_page(ExpositionFormat::Text);
    assert!(!page.contains("gaunt_store_"), "no store, no metrics of it");
    answers.store = Some(StoreStatus {
        sent_samples: 7,
        other_replica_samples: 2,
        refused_samples: [(400, 3)].into(),
        dropped_samples: [("backlog_full", 5)].into(),
        failed_attempts: 4,
        waiting_bytes: 900,
        oldest: Some(UnixMs(40_000)),
        ..StoreStatus::default()
    });
    let page = answers.render_page(ExpositionFormat::Text);
    for expected in [
        "gaunt_store_sent_samples_total 7",
        "gaunt_store_refused_samples_total{status=\"202\"} 2",
        "gaunt_store_refused_samples_total{status=\"400\"} 3",
        "gaunt_store_dropped_samples_total{reason=\"backlog_full\"} 5",
        "gaunt_store_failed_requests_total 4",
        "gaunt_store_waiting_bytes 900",
        "gaunt_store_waiting_seconds 60",
    ] {
        assert!(page.lines().any(|line| line == expected), "{expected}\nis missing in\n{page}");
    }
}
