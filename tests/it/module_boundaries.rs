//! The walls of the house: import direction, the nevers, and what every file owes its reader.
//!
//! ARCHITECTURE.md draws the same table for people. A file is read up to its first `#[cfg(test)]`: tests may reach
//! over walls, programs may not.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Which rooms of `gaunt` each room may name with `crate::`.
const MAY_NAME: &[(&str, &[&str])] = &[
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

/// Which other crates of this house each crate may depend on when it is built.
const MAY_DEPEND: &[(&str, &[&str])] = &[
    ("exporters/schema", &[]),
    ("exporters/node", &["gaunt-schema"]),
    ("exporters/probe", &["gaunt-schema"]),
    ("exporters/sim", &["gaunt-schema"]),
    ("tests/fake-driver", &[]),
];

/// Words that a place must never say, and why.
const NEVERS: &[(&str, &[&str], &str)] = &[
    ("src/cluster", IMPURE, "what is known does no I/O and has no clock"),
    ("src/judge", IMPURE, "what it means does no I/O and has no clock"),
    ("src/pairing_scheduler", IMPURE, "who meets whom does no I/O and has no clock"),
    ("src/answer", IMPURE, "answers are types only"),
    ("exporters/schema/src", IMPURE, "the ground floor does no I/O and has no clock"),
    ("src/console/widget", &["crate::answer", "gaunt_schema", "tokio::"], "widgets know numbers"),
    ("src/console", &["crate::cluster", "crate::judge", "crate::engine"], "it knows answers"),
    ("src/command", &["crate::settings"], "only main names settings"),
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

/// How JSON becomes a value without its texts being made safe.
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

/// The doors to foreign code: the only files that may say `unsafe`.
const DOORS: &[&str] = &[
    "exporters/node/src/ethtool.rs",
    "exporters/node/src/nvml/nvml_ffi.rs",
    "exporters/probe/src/cuda/cuda_ffi.rs",
    "exporters/probe/src/nccl_ffi.rs",
    "tests/fake-driver/src",
];

/// The most lines that a file may have; past half of it one looks for the seam.
const MAX_LINES: usize = 500;

#[test]
fn every_room_names_only_the_rooms_below_it() {
    let mut broken = Vec::new();
    for (path, code) in program_sources(&["src"]) {
        let Some((_, allowed)) = MAY_NAME.iter().find(|(room, _)| module_of(&path) == *room) else {
            assert!(is_crate_root(&path), "{} belongs to no room", path.display());
            continue;
        };
        for (number, line) in code.lines().enumerate() {
            for named in line.split("crate::").skip(1) {
                let is_name = |letter: &char| letter.is_ascii_alphanumeric() || *letter == '_';
                let named: String = named.chars().take_while(is_name).collect();
                let foreign = named != module_of(&path) && !allowed.contains(&named.as_str());
                if foreign && MAY_NAME.iter().any(|(room, _)| *room == named) {
                    broken.push(format!("{}:{}: {}", path.display(), number + 1, line.trim()));
                }
            }
        }
    }
    assert!(broken.is_empty(), "arrows that point upward:\n{}", broken.join("\n"));
}

#[test]
fn every_room_stands() {
    for (room, _) in MAY_NAME {
        let file = repository_root().join("src").join(room).with_extension("rs");
        assert!(file.exists(), "{} is in the table and not in the house", file.display());
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
fn nobody_says_what_his_room_must_never_say() {
    let mut broken = Vec::new();
    for (path, code) in program_sources(&["src", "exporters"]) {
        for (place, words, why) in NEVERS {
            if !path.starts_with(place) && path != Path::new(&format!("{place}.rs")) {
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
fn unsafe_lives_in_the_doors_and_gives_its_reason() {
    for (path, code) in program_sources(&["src", "exporters", "tests"]) {
        let lines: Vec<&str> = code.lines().collect();
        for (number, line) in lines.iter().enumerate().filter(|(_, line)| !is_comment(line)) {
            let is_block = line.contains("unsafe {") || line.contains("unsafe impl");
            if !is_block || line.contains('"') {
                continue;
            }
            let door = DOORS.iter().any(|door| path.starts_with(door));
            assert!(door, "{}:{}: unsafe outside the doors", path.display(), number + 1);
            let above = &lines[number.saturating_sub(6)..=number];
            let said = above.iter().any(|line| line.contains("SAFETY:"));
            assert!(said, "{}:{}: unsafe without a SAFETY sentence", path.display(), number + 1);
        }
    }
}

#[test]
fn every_file_opens_with_its_idea_and_stays_small() {
    for path in rust_files(&["src", "exporters", "tests"]) {
        let text = read_source(&repository_root().join(&path));
        let first = text.lines().next().unwrap_or_default();
        let idea = first.strip_prefix("//! ").is_some_and(|idea| idea.len() > 20);
        assert!(idea, "{}: the first line must say what the file is for", path.display());
        let lines = text.lines().count();
        assert!(lines <= MAX_LINES, "{}: {lines} lines hold two ideas", path.display());
        assert!(!path.ends_with("mod.rs"), "{}: name the file after its room", path.display());
    }
}

/// How a channel, or a queue for permits, is made.
const PIPES: &[&str] = &["channel(", "channel::<", "watch::Sender::new(", "Semaphore::new("];

/// Where a channel without a length is: nothing is sent on it, or each sender has one message under way at most.
const WITHOUT_LENGTH: &[&str] = &[
    "src/command/demo_command.rs",
    "exporters/node/src/node_sampler.rs",
    "exporters/node/src/collector/collector_runner.rs",
];

#[test]
fn every_pipe_has_a_length_and_stands_in_the_architecture() {
    let told = read_source(&repository_root().join("ARCHITECTURE.md"));
    let mut broken = Vec::new();
    let mut found = 0;
    for (path, code) in program_sources(&["src", "exporters"]) {
        let name = path.to_string_lossy().into_owned();
        let lines = code.lines().filter(|line| !is_comment(line));
        let code: String = lines.flat_map(|line| [line, "\n"]).collect();
        // One answer comes back on these.
        let code = code.replace("oneshot::channel(", "");
        if !PIPES.iter().any(|made| code.contains(made)) {
            continue;
        }
        found += 1;
        let short = name.strip_prefix("src/").or(name.strip_prefix("exporters/")).unwrap_or(&name);
        if !told.contains(&format!("`{short}`")) {
            broken.push(format!(
                "{name} makes a pipe that ARCHITECTURE.md does not name as `{short}`"
            ));
        }
        let is_endless = code.contains("unbounded_channel")
            || [" channel()", "mpsc::channel()", "channel::<()>()"]
                .iter()
                .any(|it| code.contains(it));
        if is_endless && !WITHOUT_LENGTH.contains(&name.as_str()) {
            broken.push(format!("{name} makes a channel without a length"));
        }
    }
    assert!(found > 20, "the walk found only {found} files with pipes");
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

/// The room of `gaunt` that a source file belongs to: `src/judge/gpu_state_rules.rs` and `src/judge.rs` are `judge`.
fn module_of(path: &Path) -> &str {
    let below = path.strip_prefix("src").unwrap_or(path);
    let first = below.components().next().and_then(|part| part.as_os_str().to_str());
    first.unwrap_or_default().trim_end_matches(".rs")
}

/// The two files that stand before all rooms.
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
    assert!(sources.len() > 5, "the walk found almost nothing in {folders:?}");
    sources
}

/// Whether a file holds only tests: it is named so by the `#[cfg(test)] mod` line of its parent.
fn is_test_file(path: &Path) -> bool {
    let (Some(folder), Some(stem)) = (path.parent(), path.file_stem()) else { return false };
    let declared = format!("#[cfg(test)]\nmod {};", stem.to_string_lossy());
    let parents = [folder.with_extension("rs"), folder.join("lib.rs"), folder.join("main.rs")];
    let named = parents
        .iter()
        .map(|parent| repository_root().join(parent))
        .any(|parent| fs::read_to_string(parent).is_ok_and(|text| text.contains(&declared)));
    // What lies in the folder of a test file is test too.
    named
        || (folder.components().count() > 2 && is_test_file(folder.with_extension("rs").as_path()))
}

/// Every Rust file below `folders`, as paths from the root, in order.
pub(crate) fn rust_files(folders: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open: Vec<PathBuf> =
        folders.iter().map(|folder| repository_root().join(folder)).collect();
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(&folder).expect("a folder of the house can be read") {
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
