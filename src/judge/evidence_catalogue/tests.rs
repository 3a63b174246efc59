//! Tests that every value of a finding has a source, and every limit in it an explanation.

use super::*;

#[test]
fn every_limit_that_is_named_is_one_and_says_why() {
    let limits = Thresholds::default();
    assert!(FindingKind::ALL.iter().all(|kind| detection_rule(*kind).0.ends_with('.')));
    let rules = FindingKind::ALL.iter().flat_map(|kind| detection_rule(*kind).1);
    let numbers = NUMBERS.iter().chain(BEGINNINGS).map(|(_, threshold, _)| threshold);
    let special = ["target_failures", "pcie_replays_per_second"];
    for key in rules.chain(numbers).chain(&special).filter(|key| !key.is_empty()) {
        let (_, why) = explain_limit(&limits, key).unwrap_or_else(|| panic!("{key} is no limit"));
        assert!(why.ends_with('.') && why.len() > 20, "{key}: {why:?}");
    }
    assert_eq!(explain_limit(&limits, "no_such_limit"), None);
}

#[test]
fn what_is_said_of_pasts_is_said_of_numbers_that_there_are() {
    let is_number = |what: &&str| NUMBERS.iter().any(|(known, ..)| known == what);
    assert_eq!(OF_OTHERS.iter().find(|what| !is_number(what)), None);
    let is_limit = |key: &&str| NUMBERS.iter().any(|(_, threshold, _)| threshold == key);
    let no_limit: Vec<_> = ALIKE.iter().filter(|key| !is_limit(key)).collect();
    assert_eq!(no_limit, [&"pcie_replays_per_second"], "which stands apart");
}

/// The names and texts of all rules.
fn read_rule_sources() -> Vec<(String, String)> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/judge");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let rules = files.filter(|path| path.is_file() && !path.ends_with("evidence_catalogue.rs"));
    let read = |path: &std::path::PathBuf| std::fs::read_to_string(path).unwrap();
    let name = |path: &std::path::Path| path.file_name().unwrap().to_string_lossy().into_owned();
    rules.map(|path| (name(&path), read(&path))).collect()
}

/// The string literals of a source, without their placeholders and without tests.
fn quoted_texts(source: &str) -> Vec<String> {
    let code = source.split("#[cfg(test)]").next().unwrap_or_default();
    let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    let code = lines.collect::<Vec<_>>().join("\n").replace("\\\"", "");
    let quoted = code.split('"').skip(1).step_by(2);
    let bare = |text: &str| {
        let parts = text.split('{').enumerate();
        let outside = |(at, part): (usize, &str)| {
            let after = part.split_once('}').map_or("", |(_, after)| after);
            (if at == 0 { part } else { after }).to_owned()
        };
        parts.map(outside).collect::<String>()
    };
    quoted.map(bare).collect()
}

#[test]
fn no_figure_is_written_into_what_is_said() {
    // Power limits by GPU model, the saved form of a baseline, the allowed range of a limit.
    let tables = ["gpu_power_limits.rs", "baseline.rs", "tests.rs", "thresholds.rs"];
    // The next step is no evidence: so many files are enough for the largest fleet that is measured.
    let advice = "Raise it with `ulimit -n 27000`";
    let rules = read_rule_sources();
    assert!(rules.len() > 30, "only {} rules were found", rules.len());
    for (file, source) in rules.iter().filter(|(file, _)| !tables.contains(&file.as_str())) {
        for words in quoted_texts(source).into_iter().filter(|words| !words.starts_with(advice)) {
            let figure = words.chars().any(|letter| letter.is_ascii_digit());
            assert!(!figure, "{file}: a figure without a source in {words:?}");
        }
    }
    let says = quoted_texts(r#"says(format!("{node} lost {} of 4711 GPUs", 12), "{at:02}")"#);
    assert_eq!(says, [" lost  of 4711 GPUs", ""]);
}

/// Every value that some rule adds to a finding, by the text in its source.
fn named_numbers() -> Vec<(String, String)> {
    read_rule_sources()
        .into_iter()
        .flat_map(|(file, source)| {
            // Of a text that ends in a name only the prefix is fixed.
            let words = |call: &str| {
                let quoted = call.trim_start().trim_start_matches("&format!(").strip_prefix('"')?;
                Some(quoted.split(['"', '{']).next()?.to_owned())
            };
            let calls = source.split("Evidence::new(").skip(1).chain(source.split(" of(").skip(1));
            let calls: Vec<String> = calls.filter_map(words).collect();
            calls.into_iter().map(move |what| (file.clone(), what)).collect::<Vec<_>>()
        })
        .collect()
}

#[test]
fn every_number_of_a_finding_has_a_source() {
    let named = named_numbers();
    assert!(named.len() > 60, "only {} numbers were found in the rules", named.len());
    for (file, what) in named {
        let ground = evidence_row(FindingKind::LinkErrors, &what);
        assert!(
            !ground.series.is_empty() || !ground.threshold.is_empty(),
            "{file}: {what:?} stands in no row of the grounds"
        );
    }
}

#[test]
fn a_limit_is_told_in_the_words_of_the_settings() {
    let (value, why) = explain_limit(&Thresholds::default(), "pcie_replays_per_second").unwrap();
    assert_eq!(value.to_string(), "0.5");
    assert!(why.contains("DCGM's health check"), "{why}");
}

#[test]
fn the_same_words_of_a_port_and_of_a_board_are_two_numbers() {
    let what = "packets sent again in a second";
    let board = evidence_row(FindingKind::PcieDegraded, what);
    assert_eq!(board.series, [gpu_health::PCIE_REPLAYS]);
    assert_eq!(evidence_row(FindingKind::LinkErrors, what).series, RESENT);
    assert_eq!(evidence_row(FindingKind::LinkErrors, "nonsense"), EvidenceRow::default());
}
