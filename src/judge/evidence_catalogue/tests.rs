//! Tests that every row has a label and known limits, and that every limit has a reason.

use std::collections::HashSet;

use gaunt_schema::FindingKind;

use super::{
    super::{
        Thresholds,
        detection_rules::{detection_rule, explain_limit},
    },
    *,
};

#[test]
fn limits_of_rows_and_rules_are_settings_with_a_reason() {
    let limits = Thresholds::default();
    assert!(FindingKind::ALL.iter().all(|kind| detection_rule(*kind).0.ends_with('.')));
    let rules = FindingKind::ALL.iter().flat_map(|kind| detection_rule(*kind).1.iter().copied());
    let rows = EvidenceRow::ALL.iter().map(|row| row.source().threshold);
    for key in rules.chain(rows).filter(|key| !key.is_empty()) {
        let (_, why) = explain_limit(&limits, key).unwrap_or_else(|| panic!("{key} is no limit"));
        assert!(why.ends_with('.') && why.len() > 20, "{key}: {why:?}");
    }
    assert_eq!(explain_limit(&limits, "no_such_limit"), None);
}

#[test]
fn labels_are_unique() {
    let labels: HashSet<_> = EvidenceRow::ALL.iter().map(|row| row.label().0).collect();
    assert_eq!(labels.len(), EvidenceRow::ALL.len());
}

/// The names and texts of all rules.
fn read_rule_sources() -> Vec<(String, String)> {
    let folder = env!("CARGO_MANIFEST_DIR");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let rules = files.filter(|path| {
        path.is_file()
            && !path.ends_with("evidence_catalogue.rs")
            && !path.ends_with("detection_rules.rs")
    });
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
fn texts_contain_no_figure() {
    // Power limits by GPU model, the saved form of a baseline, the allowed range of a limit.
    let tables = ["gpu_power_limits.rs", "baseline.rs", "tests.rs", "thresholds.rs"];
    // The next step is no evidence: so many files are enough for the largest fleet that is measured.
    let advice = "Raise it with `ulimit -n 27000`";
    let rules = read_rule_sources();
    assert!(rules.len() > 30, "only {} rules were found", rules.len());
    for (file, source) in rules.iter().filter(|(file, _)| !tables.contains(&file.as_str())) {
        for text in quoted_texts(source).into_iter().filter(|text| !text.starts_with(advice)) {
            let figure = text.chars().any(|letter| letter.is_ascii_digit());
            assert!(!figure, "{file}: a figure without a source in {text:?}");
        }
    }
    let says = quoted_texts(r#"says(format!("{node} lost {} of 4711 GPUs", 12), "{at:02}")"#);
    assert_eq!(says, [" lost  of 4711 GPUs", ""]);
}

#[test]
fn limit_is_explained_with_its_reason() {
    let (value, why) = explain_limit(&Thresholds::default(), "errors_per_second").unwrap();
    assert_eq!(value.to_string(), "0.5");
    assert!(why.contains("DCGM's health check"), "{why}");
}
