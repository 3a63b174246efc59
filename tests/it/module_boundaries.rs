//! Module boundaries: import direction, the nevers, and the rules that hold for every file.
//!
//! ARCHITECTURE.md has the same table. A file is checked up to its first `#[cfg(test)]`: the rules apply to programs,
//! not to tests.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    sync::LazyLock,
};

use crate::import_graph::CrateImports;

/// The root file of each crate.
const CRATE_ROOTS: &[&str] = &[
    "exporters/node/src/lib.rs",
    "exporters/node/src/main.rs",
    "exporters/probe/src/main.rs",
    "exporters/schema/src/lib.rs",
    "exporters/signals/src/lib.rs",
    "exporters/sim/src/lib.rs",
    "exporters/sim/src/main.rs",
    "src/api/lib.rs",
    "src/cluster/lib.rs",
    "src/console/lib.rs",
    "src/engine/lib.rs",
    "src/judge/lib.rs",
    "src/lib.rs",
    "src/main.rs",
    "src/scrape/lib.rs",
    "src/series/lib.rs",
    "src/site/lib.rs",
    "src/store/lib.rs",
    "tests/bench/src/main.rs",
    "tests/fake-driver/src/lib.rs",
];

/// The crates of this workspace that each crate may depend on, dev-dependencies excluded. Cargo ensures that nothing else
/// is imported, and that there is no circle between crates.
const MAY_DEPEND: &[(&str, &[&str])] = &[
    ("exporters/schema", &[]),
    ("exporters/signals", &[]),
    ("exporters/node", &["gaunt-schema", "gaunt-signals"]),
    ("exporters/probe", &["gaunt-schema", "gaunt-signals"]),
    ("exporters/sim", &["gaunt-schema", "gaunt-signals"]),
    ("src/api", &["gaunt-schema"]),
    ("src/cluster", &["gaunt-schema"]),
    ("src/judge", &["gaunt-cluster", "gaunt-schema"]),
    ("src/scrape", &["gaunt-schema"]),
    ("src/series", &["gaunt-schema", "gaunt-scrape", "gaunt-store"]),
    ("src/site", &["gaunt-schema", "gaunt-scrape"]),
    ("src/store", &["gaunt-schema", "gaunt-scrape"]),
    ("src/engine", &["gaunt-api", "gaunt-cluster", "gaunt-judge", "gaunt-schema"]),
    ("src/console", &["gaunt-api", "gaunt-schema", "gaunt-signals"]),
    ("tests/fake-driver", &[]),
];

/// Paths that the files of a folder must not name, and the reason.
const NEVERS: &[(&str, &[&str], &str)] = &[
    ("src/cluster", IMPURE, "cluster does no I/O and has no clock"),
    ("src/judge", IMPURE, "judge does no I/O and has no clock"),
    ("src/engine/pairing_scheduler", IMPURE, "pairing_scheduler does no I/O and has no clock"),
    ("src/api", IMPURE, "api has types only"),
    ("exporters/schema/src", IMPURE, "schema does no I/O and has no clock"),
    ("src/console/widget", &["gaunt_api", "gaunt_schema", "tokio"], "widgets get plain values"),
    ("src/command", &["crate::settings"], "only main uses settings"),
];

/// What does I/O or reads a clock; types such as `std::io::Error` and `std::net::IpAddr` do neither.
const IMPURE: &[&str] = &[
    "std::fs",
    "std::io::stderr",
    "std::io::stdin",
    "std::io::stdout",
    "std::net::TcpListener",
    "std::net::TcpStream",
    "std::net::ToSocketAddrs",
    "std::net::UdpSocket",
    "std::os",
    "std::process",
    "std::thread",
    "std::time::Instant",
    "std::time::SystemTime",
    "tokio",
];

/// Files that read answers of an aggregator: they decode JSON with `answer_source::safe_json` alone.
const SAFE_DECODING: &[&str] = &[
    "src/answer_source/aggregator_client.rs",
    "src/answer_source/aggregator_connection.rs",
    "src/answer_source/aggregator_streams.rs",
];

/// Calls that decode JSON without sanitizing its texts.
const DECODING: &[&str] = &["serde_json::from_s", "serde_json::from_reader", ".json()", ".text()"];

/// The FFI bindings, and the allocator of tests: the only files that may contain `unsafe`.
const FFI_FILES: &[&str] = &[
    "exporters/node/src/ethtool.rs",
    "exporters/node/src/nvml/nvml_ffi.rs",
    "exporters/probe/src/cuda/cuda_ffi.rs",
    "exporters/probe/src/nccl_ffi.rs",
    "exporters/signals/src/signal_mask.rs",
    "tests/fake-driver/src",
    "tests/simulation/src/counting_allocator.rs",
];

/// The maximum lines of a file; from half of it on consider a split.
const MAX_LINES: usize = 500;

/// The imports of each crate by its root file; all crates are parsed once.
fn all_crates() -> &'static BTreeMap<&'static str, CrateImports> {
    static CRATES: LazyLock<BTreeMap<&'static str, CrateImports>> = LazyLock::new(|| {
        CRATE_ROOTS.iter().map(|root| (*root, CrateImports::read(root))).collect()
    });
    &CRATES
}

#[test]
fn files_import_each_other_without_circles() {
    let crates = all_crates();
    let found: usize = crates
        .values()
        .map(|it| it.file_imports().values().map(BTreeSet::len).sum::<usize>())
        .sum();
    assert!(found > 1_000, "read only {found} imports");
    let circles: Vec<String> = crates
        .values()
        .flat_map(CrateImports::circles)
        .map(|files| {
            let lines: Vec<String> =
                files.iter().map(|file| format!("\n  {}", file.display())).collect();
            lines.concat()
        })
        .collect();
    assert!(circles.is_empty(), "{} circles of imports:{}", circles.len(), circles.join("\n"));
}

/// What the root of the judge defines composes the detectors; they read `JudgeState`, which is below them.
#[test]
fn detectors_name_nothing_that_the_judge_defines() {
    let root = Path::new("src/judge/lib.rs");
    let imports = all_crates()["src/judge/lib.rs"].file_imports();
    assert!(imports[root].len() > 20, "the root names its modules");
    let upward: Vec<&Path> =
        imports.iter().filter(|(_, named)| named.contains(root)).map(|(file, _)| *file).collect();
    assert!(upward.is_empty(), "files that name what {} defines: {upward:?}", root.display());
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
fn files_name_no_forbidden_paths() {
    let mut broken = Vec::new();
    for imports in all_crates().values() {
        for (file, path) in imports.named_paths() {
            let path = path.join("::");
            // The file beside a folder belongs to it.
            let module = file.with_extension("");
            for (_, words, why) in NEVERS.iter().filter(|(folder, ..)| module.starts_with(folder)) {
                if words.iter().any(|word| path == *word || path.starts_with(&format!("{word}::")))
                {
                    broken.push(format!("{}: {path}: {why}", file.display()));
                }
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
    for file in SAFE_DECODING {
        let code = read_source(&repository_root().join(file));
        let code = code.split("#[cfg(test)]").next().unwrap_or_default();
        let found = DECODING.iter().find(|word| code.contains(**word));
        assert_eq!(found, None, "{file}: answers are decoded by answer_source::safe_json alone");
    }
}

/// Examples in the documentation of these crates are run; those of others are not, which saves a run of rustdoc for each.
const RUN_EXAMPLES: &[&str] = &["src/api"];

#[test]
fn examples_are_in_crates_whose_examples_are_run() {
    for (path, code) in program_sources(&["src", "exporters", "tests"]) {
        if RUN_EXAMPLES.iter().any(|folder| path.starts_with(folder)) {
            continue;
        }
        let lines = code.lines().map(str::trim_start);
        let documented = lines.filter_map(|line| {
            line.strip_prefix("///").or_else(|| line.strip_prefix("//!")).map(str::trim)
        });
        // Every other fence closes a block.
        let opening = documented.filter_map(|line| line.strip_prefix("```")).step_by(2);
        let run: Vec<&str> = opening.filter(|language| *language != "text").collect();
        assert!(run.is_empty(), "{}: its examples {run:?} would not be run", path.display());
    }
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
fn files_begin_with_their_purpose_and_are_short() {
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
fn channels_are_bounded_and_in_architecture() {
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

#[test]
fn files_in_architecture_exist() {
    let architecture = read_source(&repository_root().join("ARCHITECTURE.md"));
    let quoted = architecture.split('`').skip(1).step_by(2);
    let named = quoted.filter(|name| Path::new(name).extension().is_some_and(|it| it == "rs"));
    let folders = ["", "src", "exporters"].map(|folder| repository_root().join(folder));
    let missing = named.filter(|name| !folders.iter().any(|folder| folder.join(name).is_file()));
    assert_eq!(missing.collect::<Vec<_>>(), [""; 0]);
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
