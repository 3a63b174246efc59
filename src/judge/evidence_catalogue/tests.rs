//! Tests that every row has a label and known limits, and that every limit has a reason.

use std::{collections::HashSet, path::Path};

use gaunt_schema::{FindingKind, catalogue::CATALOGUE};

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

/// The names and texts of the sources in a folder.
fn read_sources(folder: &Path) -> Vec<(String, String)> {
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let name = |path: &Path| path.file_name().unwrap().to_string_lossy().into_owned();
    let sources = files.filter(|path| path.extension().is_some_and(|ending| ending == "rs"));
    sources.map(|path| (name(&path), std::fs::read_to_string(&path).unwrap())).collect()
}

/// The names and texts of all rules.
fn read_rule_sources() -> Vec<(String, String)> {
    let mut rules = read_sources(Path::new(env!("CARGO_MANIFEST_DIR")));
    rules.retain(|(name, _)| name != "evidence_catalogue.rs" && name != "detection_rules.rs");
    rules
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
    let tables = ["gpu_ratings.rs", "baseline.rs", "tests.rs", "thresholds.rs"];
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

/// How long ago a value that changes rarely may have been read: a queried server is asked for it each five minutes.
const RARE_REFRESH_SECONDS: f64 = 300.0;

#[test]
fn no_evidence_is_measured_from_what_changes_rarely() {
    let limits = Thresholds::default();
    for row in EvidenceRow::ALL {
        let source = row.source();
        // The other series of a row are what the first one is compared with.
        let Some(measured) = source.series.first().map(|metric| metric.catalogue_row()) else {
            continue;
        };
        if measured.changes_rarely {
            let limit = explain_limit(&limits, source.threshold).map_or(0.0, |(limit, _)| limit);
            assert!(
                row.label().1 == Unit::Seconds && limit > 100.0 * RARE_REFRESH_SECONDS,
                "{row:?}: {} is read each five minutes from a Prometheus; unmark it in the catalogue",
                measured.name
            );
        }
    }
}

/// What rules read although it changes rarely: limits and sizes that another value is compared with, labels, and a date.
const RARE_REFERENCES: [&str; 14] = [
    "gpu::INFO",
    "gpu::MEMORY_TOTAL",
    "gpu::POWER_LIMIT",
    "gpu::SM_CLOCK_MAX",
    "gpu_health::PCIE_GENERATION_MAX",
    "gpu_health::PCIE_WIDTH_MAX",
    "hardware::MOUNT_INFO",
    "hardware::MOUNT_INODES",
    "hardware::MOUNT_READ_ONLY",
    "hardware::MOUNT_SIZE",
    "host::CERTIFICATE_EXPIRY",
    "host::CPUS",
    "port::INFO",
    "switch_port::INFO",
];

/// The constants of the rows that change rarely, as the catalogue declares them.
fn rare_constants() -> Vec<String> {
    let catalogue = concat!(env!("CARGO_MANIFEST_DIR"), "/../../exporters/schema/src/catalogue");
    let mut constants = Vec::new();
    for (file, text) in read_sources(Path::new(catalogue)) {
        let class = file.strip_suffix(".rs").unwrap();
        let rows = text.split("rows! {").nth(1).unwrap_or_default();
        for row in rows.split(";\n").filter(|row| row.contains(".with_rare_changes()")) {
            let (name, _) = row.trim_start().split_once(',').unwrap();
            constants.push(format!("{class}::{name}"));
        }
    }
    constants
}

#[test]
fn rules_compare_with_what_changes_rarely_and_wait_for_none_of_it() {
    let rare = rare_constants();
    let marked = CATALOGUE.iter().filter(|row| row.changes_rarely).count();
    assert_eq!(rare.len(), marked, "all rows are declared with a constant: {rare:?}");
    let folders = ["", "port_down", "gpu_state_rules", "finding_lifecycle", "explanation_builder"];
    let folders = folders.map(|folder| Path::new(env!("CARGO_MANIFEST_DIR")).join(folder));
    let code: String =
        folders.iter().flat_map(|folder| read_sources(folder)).map(|it| it.1).collect();
    let code = &code;
    let names = |constant: &str| {
        // Modules are also imported under a shorter name.
        let name = constant.strip_prefix("gpu_").unwrap_or(constant);
        let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
        code.match_indices(name).any(|(at, _)| {
            let (before, after) = (&code[..at], &code[at + name.len()..]);
            let before = before.strip_suffix("gpu_").unwrap_or(before);
            !before.ends_with(is_part) && !after.starts_with(is_part)
        })
    };
    let read: Vec<&str> = rare.iter().map(String::as_str).filter(|name| names(name)).collect();
    for constant in &read {
        assert!(
            RARE_REFERENCES.contains(constant),
            "{constant} changes rarely, and a Prometheus is asked for it each five minutes: unmark it in the catalogue, \
             or list it here if a rule only compares another value with it"
        );
    }
    for constant in RARE_REFERENCES {
        assert!(read.contains(&constant), "no rule reads {constant}");
    }
}
