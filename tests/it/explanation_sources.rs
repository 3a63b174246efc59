//! Every figure of an explanation has a source: a series, a limit of the settings, or a count of named entities.
//!
//! The test simulates faults and checks every explanation: a number that nothing else in the explanation accounts for
//! is invented.

#![expect(clippy::unwrap_used, reason = "what fails in here fails the test that called it")]

use std::collections::BTreeMap;

use gaunt::command::judge_command::VirtualRun;
use gaunt_api::{Answer, EvidenceItem, Explanation, Question};
use gaunt_schema::{
    Batch, Delivery, Dialect, Entity, RejectionCounts, SanitizedText, ScrapeTarget, ScrapedPage,
    TargetId, UnixMs, text, unit::Unit,
};
use gaunt_sim::{ScenarioRun, suite::FaultLevel};

/// 2025-10-09 13:41:51 UTC.
const START: UnixMs = UnixMs(1_760_017_311_000);

/// Sampling interval of a finding in seconds: its text changes with its numbers.
const LOOK_S: i64 = 10;

/// Minimum duration of a scenario: by then delayed findings are open.
const LEAST_S: u64 = 150;

/// All explanations of a scenario run, by finding kind.
fn collect_explanations(name: &str, nodes: Option<usize>) -> Vec<Explanation> {
    let (seed, level, dialect) = (1, FaultLevel::Hard, Dialect::Gaunt);
    let story = ScenarioRun { name: name.into(), nodes, seed, level, dialect };
    let mut fleet = story.build_fleet(START).unwrap();
    let end = story.run_timing().unwrap().look.as_secs().max(LEAST_S) as i64;
    let mut witness = VirtualRun::new(gaunt_engine::EngineOptions::default());
    let target = |node: usize| ScrapeTarget {
        id: TargetId(node as u32),
        address: SanitizedText::new(&format!("10.0.0.{node}:9770")),
        node: None,
        origin: "the test".into(),
    };
    witness.ingest_delivery(Delivery::Targets((0..fleet.node_count()).map(target).collect()));
    let mut told = Vec::new();
    for second in 1..=end {
        let at = UnixMs(START.0 + second * 1_000);
        fleet.advance_to(at);
        for node in 0..fleet.node_count() {
            let outcome = match fleet.scraped_report(node) {
                Some(report) => Ok(ScrapedPage {
                    report,
                    dialect: Dialect::Gaunt,
                    bytes: 0,
                    rejected: RejectionCounts::default(),
                }),
                None => match fleet.scraped_pages(node).first() {
                    Some((_, page)) => {
                        text::decode_page(page.as_bytes(), &text::PageLimits::default())
                    }
                    None => Err(gaunt_schema::ScrapeFailure::Connect("connection refused".into())),
                },
            };
            let target = TargetId(node as u32);
            witness.ingest_delivery(Delivery::Batch(Batch {
                target,
                at,
                duration_ms: 1.0,
                outcome,
            }));
        }
        witness.run_tick(at);
        if second % LOOK_S != 0 && second != end {
            continue;
        }
        let Answer::Findings(list) = witness.answer_question(&Question::Findings) else {
            panic!("no list")
        };
        for finding in &list.findings {
            let Answer::Finding(one) =
                witness.answer_question(&Question::Finding(finding.id.clone()))
            else {
                panic!("{} is not explained", finding.id)
            };
            told.push((*one).clone());
        }
    }
    told
}

/// The parts of an explanation without a source, a line each.
fn find_unsourced(told: &Explanation) -> Vec<String> {
    let finding = &told.finding;
    let limits: BTreeMap<&str, f64> =
        told.limits.iter().map(|limit| (limit.key.as_str(), limit.value)).collect();
    let mut wrong = Vec::new();
    let mut say = |what: &str, why: String| wrong.push(format!("{}: {what}: {why}", finding.id));
    for limit in told.limits.iter().filter(|limit| limit.why.is_empty()) {
        say(&limit.key, "a limit without a reason".to_owned());
    }
    if !limits.values().any(|limit| limit.total_cmp(&finding.confidence).is_eq()) {
        say("confidence", format!("{} is no limit", finding.confidence));
    }
    let others = told.chain.iter().flat_map(|chain| &chain.alternatives);
    for number in finding.evidence.iter().chain(others.map(|other| &other.number)) {
        if number.source.is_empty() && number.threshold.is_empty() {
            say(&number.what, "neither a series nor a limit".to_owned());
        }
        let of = limits.get(number.threshold.as_str()).copied();
        // Besides limits of the settings there are those derived from an entity's baseline or its peers.
        let told = of == number.limit || number.note.contains("limit");
        let elsewhere = of.is_none() && !number.threshold.is_empty();
        if number.limit.is_some() && !told && !elsewhere {
            say(&number.what, format!("its limit {:?} is nobody's", number.limit));
        }
    }
    for signal in told.chain.iter().flat_map(|chain| &chain.signals) {
        if signal.source.is_empty() {
            say(&signal.what, "a signal of no series".to_owned());
        }
    }
    for text in [&finding.summary, &finding.next] {
        for number in extract_numbers(text, &entity_names(told)) {
            if !is_accounted(&number, told) {
                say(text, format!("{number} is nowhere else"));
            }
        }
    }
    wrong
}

/// Names that may contain digits, the longest first.
fn entity_names(told: &Explanation) -> Vec<String> {
    let entities = std::iter::once(&told.finding.entity).chain(&told.finding.victims);
    let parts = |entity: &Entity| {
        let parts = [
            &entity.job,
            &entity.leaf,
            &entity.rail,
            &entity.node,
            &entity.gpu.as_ref().map(|gpu| SanitizedText::new(&format!("GPU {gpu}"))),
            &entity.device,
        ];
        let parts: Vec<String> = parts.into_iter().flatten().map(ToString::to_string).collect();
        let port = entity.device.as_ref().zip(entity.port.as_ref());
        let port = port.map(|(device, port)| format!("{device}/{port}"));
        parts.into_iter().chain(port).chain([entity.to_string()]).collect::<Vec<_>>()
    };
    let mut names: Vec<String> = entities.flat_map(parts).collect();
    names.push(format_time_of_day(told.finding.since));
    names.sort_by_key(|name| std::cmp::Reverse(name.len()));
    names.dedup();
    names
}

fn format_time_of_day(at: UnixMs) -> String {
    let seconds = at.0.div_euclid(1_000).rem_euclid(86_400);
    format!("{:02}:{:02}:{:02} UTC", seconds / 3_600, seconds / 60 % 60, seconds % 60)
}

/// The numbers of a text that are no part of a word or of one of these names.
fn extract_numbers(text: &str, names: &[String]) -> Vec<String> {
    let bare = names.iter().fold(text.to_owned(), |text, name| text.replace(name.as_str(), "_"));
    let words = bare.split(|c: char| c.is_whitespace() || "()/;:".contains(c));
    let words = words.map(|word| word.trim_matches(|c: char| ".,`'".contains(c)));
    let of_digits = |word: &&str| {
        word.starts_with(|c: char| c.is_ascii_digit())
            && word.chars().all(|c| c.is_ascii_digit() || c == '.' || c == ',')
    };
    words.filter(of_digits).map(|word| word.replace(',', "")).collect()
}

/// Whether a number is one of the evidence, of its notes, or of the limits, as written there or rounded.
fn is_accounted(number: &str, told: &Explanation) -> bool {
    let decimals = number.split_once('.').map_or(0, |(_, behind)| behind.len());
    let finding = &told.finding;
    let scaled = |proof: &EvidenceItem| -> Vec<f64> {
        let values = proof.value.into_iter().chain(proof.limit);
        let scales: &[f64] = match proof.unit {
            Unit::Ratio => &[1.0, 100.0],
            Unit::BytesPerSecond => &[1.0, 1e-9, 8e-9],
            Unit::Hertz => &[1.0, 1e-6, 1e-9],
            _ => &[1.0],
        };
        values.flat_map(|value| scales.iter().map(move |scale| value * scale)).collect()
    };
    let values = finding.evidence.iter().flat_map(scaled);
    let counted = [finding.victims.len() as f64];
    let noted = finding.evidence.iter().flat_map(|proof| extract_numbers(&proof.note, &[]));
    let noted: Vec<String> = noted.collect();
    let mut values = values.chain(told.limits.iter().map(|limit| limit.value)).chain(counted);
    noted.iter().any(|noted| noted == number)
        || values.any(|value| format!("{value:.decimals$}") == number)
}

fn check_sources(name: &str, nodes: Option<usize>) {
    let told = collect_explanations(name, nodes);
    assert!(!told.is_empty(), "{name}: nothing is said");
    let mut wrong: Vec<String> = told.iter().flat_map(find_unsourced).collect();
    wrong.sort();
    wrong.dedup();
    assert!(wrong.is_empty(), "{name}:\n{}", wrong.join("\n"));
}

macro_rules! sources {
    ($($test:ident: $name:expr, $nodes:expr;)*) => {
        $(
            #[test]
            fn $test() {
                check_sources($name, $nodes);
            }
        )*
    };
}

sources! {
    what_is_said_of_a_slow_loader_has_sources: "data_starved", Some(8);
    what_is_said_of_slow_storage_has_sources: "storage_slow", Some(8);
    what_is_said_of_a_slow_gpu_has_sources: "slow_gpu", Some(8);
    what_is_said_of_a_hot_gpu_has_sources: "throttled", Some(8);
    what_is_said_of_a_slow_host_has_sources: "launch_bound", Some(8);
    what_is_said_of_a_narrow_link_has_sources: "F6", None;
    what_is_said_of_lost_links_has_sources: "F7", None;
    what_is_said_of_a_dead_port_has_sources: "port_down", Some(8);
    what_is_said_of_a_slow_port_has_sources: "F9", None;
    what_is_said_of_a_bad_cable_has_sources: "link_errors", Some(8);
    what_is_said_of_a_full_leaf_has_sources: "leaf_congested", Some(16);
    what_is_said_of_a_slow_rail_has_sources: "F12", None;
    what_is_said_of_a_slow_receiver_has_sources: "F13", None;
    what_is_said_of_a_hang_has_sources: "hang", Some(8);
    what_is_said_of_a_lost_gpu_has_sources: "gpu_lost", Some(8);
    what_is_said_of_a_silent_job_has_sources: "F16", None;
    what_is_said_of_uneven_stages_has_sources: "F17", None;
    what_is_said_of_uneven_data_has_sources: "F18", None;
}

#[test]
fn a_number_that_was_made_up_is_found() {
    let told = collect_explanations("throttled", Some(8));
    let told = told.iter().find(|told| told.finding.evidence.len() > 1).unwrap();
    assert_eq!(find_unsourced(told), [""; 0]);
    let with = |change: fn(&mut Explanation)| {
        let mut told = told.clone();
        change(&mut told);
        find_unsourced(&told)
    };
    let says = with(|told| told.finding.summary.push_str(" It costs 4711 GPUs."));
    assert!(says.len() == 1 && says[0].ends_with("4711 is nowhere else"), "{says:?}");
    let bare = with(|told| {
        told.finding.evidence[0].source.clear();
        told.finding.evidence[0].threshold.clear();
    });
    assert!(!bare.is_empty(), "a number of no series");
    let limit = with(|told| {
        for number in &mut told.finding.evidence {
            number.limit = number.limit.map(|limit| limit + 0.123);
        }
    });
    assert!(limit.iter().any(|line| line.contains("nobody's")), "{limit:?}");
    let unsaid = with(|told| told.limits.iter_mut().for_each(|limit| limit.why.clear()));
    assert!(!unsaid.is_empty(), "limits without reasons");
}
