//! Every figure of an explanation has a source: a series, a limit of the settings, or a count of named entities.
//!
//! The test simulates faults and checks every explanation: a number that nothing else in the explanation accounts for
//! is invented.

use std::collections::BTreeMap;

use gaunt_api::{EvidenceItem, Explanation};
use gaunt_schema::{Entity, SanitizedText, unit::Unit};

use crate::scenario_findings::simulated_scenario;

/// The parts of an explanation without a source, a line each.
fn find_unsourced(explanation: &Explanation) -> Vec<String> {
    let finding = &explanation.finding;
    let limits: BTreeMap<&str, f64> =
        explanation.limits.iter().map(|limit| (limit.key.as_str(), limit.value)).collect();
    let mut unsourced = Vec::new();
    let mut add =
        |what: &str, why: String| unsourced.push(format!("{}: {what}: {why}", finding.id));
    for limit in explanation.limits.iter().filter(|limit| limit.why.is_empty()) {
        add(&limit.key, "a limit without a reason".to_owned());
    }
    if !is_confidence_accounted(finding.confidence, &limits) {
        add("confidence", format!("{} follows from no limit", finding.confidence));
    }
    let alternatives = explanation.chain.iter().flat_map(|chain| &chain.alternatives);
    for number in finding.evidence.iter().chain(alternatives.map(|other| &other.number)) {
        if number.source.is_empty() && number.threshold.is_empty() {
            add(&number.what, "neither a series nor a limit".to_owned());
        }
        let configured = limits.get(number.threshold.as_str()).copied();
        // Besides limits of the settings there are those derived from an entity's baseline or its peers.
        let is_configured = configured == number.limit || number.note.contains("limit");
        let is_derived = configured.is_none() && !number.threshold.is_empty();
        if number.limit.is_some() && !is_configured && !is_derived {
            add(&number.what, format!("its limit {:?} is nobody's", number.limit));
        }
    }
    for signal in explanation.chain.iter().flat_map(|chain| &chain.signals) {
        if signal.source.is_empty() {
            add(&signal.what, "a signal of no series".to_owned());
        }
    }
    for text in [&finding.summary, &finding.next] {
        for number in extract_numbers(text, &entity_names(explanation)) {
            if !is_accounted(&number, explanation) {
                add(text, format!("{number} is nowhere else"));
            }
        }
    }
    unsourced
}

/// Whether a confidence is a limit, or the posterior of prior odds and some kinds of evidence.
fn is_confidence_accounted(confidence: f64, limits: &BTreeMap<&str, f64>) -> bool {
    let priors = ["inferred_odds", "reported_odds"].iter().filter_map(|key| limits.get(key));
    let posteriors = priors.flat_map(|prior| {
        let factor = limits.get("evidence_odds").copied().unwrap_or(1.0);
        (0..6).map(move |kinds| prior * factor.powi(kinds)).map(|odds| odds / (1.0 + odds))
    });
    // What gaunt itself observes is certain.
    let certain = [1.0];
    let mut known = limits.values().copied().chain(posteriors).chain(certain);
    known.any(|known| (known - confidence).abs() < 1e-12)
}

/// Names that may contain digits, the longest first.
fn entity_names(explanation: &Explanation) -> Vec<String> {
    let entities = std::iter::once(&explanation.finding.entity).chain(&explanation.finding.victims);
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
    names.push(explanation.finding.since.to_time_of_day() + "Z");
    names.sort_by_key(|name| std::cmp::Reverse(name.len()));
    names.dedup();
    names
}

/// The numbers of a text that are no part of a word or of one of these names.
fn extract_numbers(text: &str, names: &[String]) -> Vec<String> {
    let stripped =
        names.iter().fold(text.to_owned(), |text, name| text.replace(name.as_str(), "_"));
    let words = stripped.split(|c: char| c.is_whitespace() || "()/;:".contains(c));
    let words: Vec<&str> =
        words.map(|word| word.trim_matches(|c: char| ".,`'".contains(c))).collect();
    // The other end of a cable is a name as well: `port 5 of leaf-00-r1`.
    let is_port = |at: usize| at > 0 && words[at - 1] == "port" && words.get(at + 1) == Some(&"of");
    let words = words.iter().enumerate().filter(|(at, _)| !is_port(*at)).map(|(_, word)| *word);
    let of_digits = |word: &&str| {
        word.starts_with(|c: char| c.is_ascii_digit())
            && word.chars().all(|c| c.is_ascii_digit() || c == '.' || c == ',')
    };
    words.filter(of_digits).map(|word| word.replace(',', "")).collect()
}

/// Whether a number is one of the evidence, of its notes, or of the limits, as written there or rounded.
fn is_accounted(number: &str, explanation: &Explanation) -> bool {
    let decimals = number.split_once('.').map_or(0, |(_, fraction)| fraction.len());
    let finding = &explanation.finding;
    let scaled = |item: &EvidenceItem| -> Vec<f64> {
        let values = item.value.into_iter().chain(item.limit);
        let scales: &[f64] = match item.unit {
            Unit::Ratio => &[1.0, 100.0],
            Unit::BytesPerSecond => &[1.0, 1e-9, 8e-9],
            Unit::Hertz => &[1.0, 1e-6, 1e-9],
            _ => &[1.0],
        };
        values.flat_map(|value| scales.iter().map(move |scale| value * scale)).collect()
    };
    let values = finding.evidence.iter().flat_map(scaled);
    let counted = [finding.victims.len() as f64];
    let noted = finding.evidence.iter().flat_map(|item| extract_numbers(&item.note, &[]));
    let noted: Vec<String> = noted.collect();
    let mut values =
        values.chain(explanation.limits.iter().map(|limit| limit.value)).chain(counted);
    noted.iter().any(|noted| noted == number)
        || values.any(|value| format!("{value:.decimals$}") == number)
}

fn check_sources(name: &'static str, nodes: Option<usize>) -> &'static [Explanation] {
    let explanations = &simulated_scenario(name, nodes).explanations;
    assert!(!explanations.is_empty(), "{name}: nothing is said");
    let mut unsourced: Vec<String> = explanations.iter().flat_map(find_unsourced).collect();
    unsourced.sort();
    unsourced.dedup();
    assert!(unsourced.is_empty(), "{name}:\n{}", unsourced.join("\n"));
    explanations
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
    slow_loader_explanation_has_sources: "data_starved", Some(16);
    slow_storage_explanation_has_sources: "storage_slow", Some(8);
    slow_gpu_explanation_has_sources: "slow_gpu", Some(8);
    slow_host_explanation_has_sources: "launch_bound", Some(8);
    narrow_link_explanation_has_sources: "F6", None;
    lost_links_explanation_has_sources: "F7", None;
    dead_port_explanation_has_sources: "port_down", Some(16);
    slow_port_explanation_has_sources: "F9", None;
    bad_cable_explanation_has_sources: "link_errors", Some(8);
    congested_leaf_explanation_has_sources: "leaf_congested", Some(16);
    slow_rail_explanation_has_sources: "F12", None;
    slow_receiver_explanation_has_sources: "F13", None;
    hang_explanation_has_sources: "hang", Some(8);
    lost_gpu_explanation_has_sources: "gpu_lost", Some(8);
    silent_job_explanation_has_sources: "F16", None;
    uneven_stages_explanation_has_sources: "F17", None;
    uneven_data_explanation_has_sources: "F18", None;
}

#[test]
fn hot_gpu_explanation_has_sources_and_invented_number_is_found() {
    let explanations = check_sources("throttled", Some(8));
    let explanation =
        explanations.iter().find(|explanation| explanation.finding.evidence.len() > 1).unwrap();
    let with = |change: fn(&mut Explanation)| {
        let mut explanation = explanation.clone();
        change(&mut explanation);
        find_unsourced(&explanation)
    };
    let with_number =
        with(|explanation| explanation.finding.summary.push_str(" It costs 4711 GPUs."));
    assert!(
        with_number.len() == 1 && with_number[0].ends_with("4711 is nowhere else"),
        "{with_number:?}"
    );
    let without_source = with(|explanation| {
        explanation.finding.evidence[0].source.clear();
        explanation.finding.evidence[0].threshold.clear();
    });
    assert!(!without_source.is_empty(), "a number of no series");
    let limit = with(|explanation| {
        for number in &mut explanation.finding.evidence {
            number.limit = number.limit.map(|limit| limit + 0.123);
        }
    });
    assert!(limit.iter().any(|line| line.contains("nobody's")), "{limit:?}");
    let without_reason =
        with(|explanation| explanation.limits.iter_mut().for_each(|limit| limit.why.clear()));
    assert!(!without_reason.is_empty(), "limits without reasons");
}
