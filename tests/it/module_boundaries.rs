//! Module boundaries: import direction, the nevers, and the rules that hold for every file.
//!
//! ARCHITECTURE.md has the same table. A file is checked up to its first `#[cfg(test)]`: the rules apply to programs,
//! not to tests.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// The modules of `gaunt` that each module may import with `crate::`.
const MAY_IMPORT: &[(&str, &[&str])] = &[
    ("alert", &["answer", "gather", "answer_source"]),
    ("answer", &[]),
    ("cluster", &[]),
    ("gather", &["tls"]),
    ("tls", &[]),
    ("site", &["gather"]),
    ("record", &[]),
    ("state_store", &[]),
    ("judge", &["cluster"]),
    ("pairing_scheduler", &["answer"]),
    ("engine", &["answer", "cluster", "judge", "pairing_scheduler"]),
    ("answer_source", &["answer", "engine", "tls"]),
    ("serve", &["answer", "answer_source"]),
    ("console", &["answer", "answer_source"]),
    (
        "command",
        &[
            "alert",
            "answer",
            "cli",
            "console",
            "gather",
            "state_store",
            "engine",
            "record",
            "serve",
            "site",
            "answer_source",
        ],
    ),
    (
        "settings",
        &[
            "alert", "cli", "command", "console", "gather", "judge", "engine", "record", "serve",
            "site", "tls",
        ],
    ),
    ("cli", &[]),
];

/// The crates of this workspace that each crate may depend on, dev-dependencies excluded.
const MAY_DEPEND: &[(&str, &[&str])] = &[
    ("exporters/schema", &[]),
    ("exporters/node", &["gaunt-schema"]),
    ("exporters/probe", &["gaunt-schema"]),
    ("exporters/sim", &["gaunt-schema"]),
    ("tests/fake-driver", &[]),
];

/// Words that a folder or file must not contain, and the reason.
const NEVERS: &[(&str, &[&str], &str)] = &[
    ("src/cluster", IMPURE, "cluster does no I/O and has no clock"),
    ("src/judge", IMPURE, "judge does no I/O and has no clock"),
    ("src/pairing_scheduler", IMPURE, "pairing_scheduler does no I/O and has no clock"),
    ("src/answer", IMPURE, "answer has types only"),
    ("exporters/schema/src", IMPURE, "schema does no I/O and has no clock"),
    (
        "src/console/widget",
        &["crate::answer", "gaunt_schema", "tokio::"],
        "widgets get plain values",
    ),
    ("src/console", &["crate::cluster", "crate::judge", "crate::engine"], "console gets answers"),
    ("src/command", &["crate::settings"], "only main uses settings"),
    (
        "src/answer_source/aggregator_client.rs",
        DECODING,
        "answers are decoded by answer_source::safe_json alone",
    ),
    (
        "src/answer_source/aggregator_streams.rs",
        DECODING,
        "answers are decoded by answer_source::safe_json alone",
    ),
];

/// Calls that decode JSON without sanitizing its texts.
const DECODING: &[&str] = &["serde_json::from_s", "serde_json::from_reader", ".json()", ".text()"];

const IMPURE: &[&str] = &[
    "tokio",
    "ratatui",
    "crossterm",
    "reqwest",
    "hyper::",
    "std::fs",
    "std::net",
    "std::io",
    "Instant::now",
    "SystemTime",
    "thread::",
];

/// The FFI bindings: the only files that may contain `unsafe`.
const FFI_FILES: &[&str] = &[
    "exporters/node/src/ethtool.rs",
    "exporters/node/src/nvml/nvml_ffi.rs",
    "exporters/probe/src/cuda/cuda_ffi.rs",
    "exporters/probe/src/nccl_ffi.rs",
    "tests/fake-driver/src",
];

/// The maximum lines of a file; from half of it on consider a split.
const MAX_LINES: usize = 500;

#[test]
fn module_imports_only_modules_below_it() {
    let mut broken = Vec::new();
    for (path, code) in program_sources(&["src"]) {
        let Some((_, allowed)) = MAY_IMPORT.iter().find(|(module, _)| module_of(&path) == *module)
        else {
            assert!(is_crate_root(&path), "{} is in no listed module", path.display());
            continue;
        };
        for (number, line) in code.lines().enumerate() {
            for named in line.split("crate::").skip(1) {
                let is_name = |letter: &char| letter.is_ascii_alphanumeric() || *letter == '_';
                let named: String = named.chars().take_while(is_name).collect();
                let foreign = named != module_of(&path) && !allowed.contains(&named.as_str());
                if foreign && MAY_IMPORT.iter().any(|(module, _)| *module == named) {
                    broken.push(format!("{}:{}: {}", path.display(), number + 1, line.trim()));
                }
            }
        }
    }
    assert!(broken.is_empty(), "imports against the arrows:\n{}", broken.join("\n"));
}

#[test]
fn every_listed_module_exists() {
    for (module, _) in MAY_IMPORT {
        let file = repository_root().join("src").join(module).with_extension("rs");
        assert!(file.exists(), "{} is in the table but does not exist", file.display());
    }
}

#[test]
fn crates_depend_downward_only() {
    for (folder, allowed) in MAY_DEPEND {
        let manifest = read_source(&repository_root().join(folder).join("Cargo.toml"));
        let built = manifest.split("[dev-dependencies]").next().unwrap_or_default();
        let built = built.split_once("[dependencies]").expect("a dependency table").1;
        for line in built.lines().filter(|line| line.starts_with("gaunt")) {
            let name = line.split(['.', ' ', '=']).next().unwrap_or_default();
            assert!(allowed.contains(&name), "{folder} must not depend on {name}");
        }
    }
}

#[test]
fn no_file_contains_its_forbidden_words() {
    let mut broken = Vec::new();
    for (path, code) in program_sources(&["src", "exporters"]) {
        for (scope, words, why) in NEVERS {
            if !path.starts_with(scope) && path != Path::new(&format!("{scope}.rs")) {
                continue;
            }
            for (number, line) in code.lines().enumerate().filter(|(_, line)| !is_comment(line)) {
                for word in words.iter().filter(|word| line.contains(**word)) {
                    broken.push(format!("{}:{}: {word}: {why}", path.display(), number + 1));
                }
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn unsafe_is_in_ffi_files_only_and_has_a_safety_comment() {
    for (path, code) in program_sources(&["src", "exporters", "tests"]) {
        let lines: Vec<&str> = code.lines().collect();
        for (number, line) in lines.iter().enumerate().filter(|(_, line)| !is_comment(line)) {
            let is_block = line.contains("unsafe {") || line.contains("unsafe impl");
            if !is_block || line.contains('"') {
                continue;
            }
            let is_ffi = FFI_FILES.iter().any(|file| path.starts_with(file));
            assert!(is_ffi, "{}:{}: unsafe outside the FFI files", path.display(), number + 1);
            let above = &lines[number.saturating_sub(6)..=number];
            let has_comment = above.iter().any(|line| line.contains("SAFETY:"));
            assert!(
                has_comment,
                "{}:{}: unsafe without a SAFETY comment",
                path.display(),
                number + 1
            );
        }
    }
}

#[test]
fn every_file_begins_with_its_purpose_and_is_short() {
    for path in rust_files(&["src", "exporters", "tests"]) {
        let text = read_source(&repository_root().join(&path));
        let first = text.lines().next().unwrap_or_default();
        let has_purpose = first.strip_prefix("//! ").is_some_and(|purpose| purpose.len() > 20);
        assert!(has_purpose, "{}: the first line must describe the file's purpose", path.display());
        let lines = text.lines().count();
        assert!(
            lines <= MAX_LINES,
            "{}: {lines} lines, the limit is {MAX_LINES}: split it",
            path.display()
        );
        assert!(!path.ends_with("mod.rs"), "{}: name the file after its module", path.display());
    }
}

/// Calls that create a channel or a semaphore.
const CHANNELS: &[&str] = &["channel(", "channel::<", "watch::Sender::new(", "Semaphore::new("];

/// Files with unbounded channels: nothing is sent on them, or each sender has at most one message in flight.
const UNBOUNDED_ALLOWED: &[&str] = &[
    "src/command/demo_command.rs",
    "exporters/node/src/node_sampler.rs",
    "exporters/node/src/collector/collector_runner.rs",
];

#[test]
fn every_channel_is_bounded_and_in_architecture() {
    let architecture = read_source(&repository_root().join("ARCHITECTURE.md"));
    let mut broken = Vec::new();
    let mut found = 0;
    for (path, code) in program_sources(&["src", "exporters"]) {
        let name = path.to_string_lossy().into_owned();
        let lines = code.lines().filter(|line| !is_comment(line));
        let code: String = lines.flat_map(|line| [line, "\n"]).collect();
        // A oneshot channel carries one answer.
        let code = code.replace("oneshot::channel(", "");
        if !CHANNELS.iter().any(|call| code.contains(call)) {
            continue;
        }
        found += 1;
        let short = name.strip_prefix("src/").or(name.strip_prefix("exporters/")).unwrap_or(&name);
        if !architecture.contains(&format!("`{short}`")) {
            broken.push(format!(
                "{name} creates a channel that ARCHITECTURE.md does not list as `{short}`"
            ));
        }
        let is_unbounded = code.contains("unbounded_channel")
            || [" channel()", "mpsc::channel()", "channel::<()>()"]
                .iter()
                .any(|it| code.contains(it));
        if is_unbounded && !UNBOUNDED_ALLOWED.contains(&name.as_str()) {
            broken.push(format!("{name} creates an unbounded channel"));
        }
    }
    assert!(found > 20, "found only {found} files with channels");
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

/// The top-level module of a source file: `src/judge/gpu_state_rules.rs` and `src/judge.rs` are `judge`.
fn module_of(path: &Path) -> &str {
    let below = path.strip_prefix("src").unwrap_or(path);
    let first = below.components().next().and_then(|part| part.as_os_str().to_str());
    first.unwrap_or_default().trim_end_matches(".rs")
}

/// The two crate roots, which are in no module.
fn is_crate_root(path: &Path) -> bool {
    path == Path::new("src/main.rs") || path == Path::new("src/lib.rs")
}

fn is_comment(line: &str) -> bool {
    line.trim_start().starts_with("//")
}

/// Each program source below `folders` with its text up to the tests, paths from the root.
fn program_sources(folders: &[&str]) -> Vec<(PathBuf, String)> {
    let sources: Vec<_> = rust_files(folders)
        .into_iter()
        .filter(|path| !path.starts_with("tests/it") && !is_test_file(path))
        .map(|path| {
            let text = read_source(&repository_root().join(&path));
            let code = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default().to_owned();
            (path, code)
        })
        .collect();
    assert!(sources.len() > 5, "found almost no files in {folders:?}");
    sources
}

/// Whether a file contains only tests: its parent declares it with `#[cfg(test)] mod`.
fn is_test_file(path: &Path) -> bool {
    let (Some(folder), Some(stem)) = (path.parent(), path.file_stem()) else { return false };
    let declared = format!("#[cfg(test)]\nmod {};", stem.to_string_lossy());
    let parents = [folder.with_extension("rs"), folder.join("lib.rs"), folder.join("main.rs")];
    let named = parents
        .iter()
        .map(|parent| repository_root().join(parent))
        .any(|parent| fs::read_to_string(parent).is_ok_and(|text| text.contains(&declared)));
    // Files in the folder of a test file are tests too.
    named
        || (folder.components().count() > 2 && is_test_file(folder.with_extension("rs").as_path()))
}

/// Every Rust file below `folders`, as paths from the root, in order.
pub(crate) fn rust_files(folders: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open: Vec<PathBuf> =
        folders.iter().map(|folder| repository_root().join(folder)).collect();
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(&folder).expect("a folder of the repository can be read") {
            let path = entry.expect("an entry can be read").path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                found.push(
                    path.strip_prefix(repository_root()).expect("below the root").to_path_buf(),
                );
            }
        }
    }
    found.sort();
    found
}

pub(crate) fn read_source(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

pub(crate) fn repository_root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}
