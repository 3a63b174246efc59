//! Paths of the programs and the fake driver for the tests: the same target folder as the tests.
//!
//! Cargo builds no binaries of other workspace members for a test, so `tests/run` builds the workspace first.

use std::{
    env,
    path::{Path, PathBuf},
};

/// The folder with the programs of this build: `target/debug`, or where the target folder is.
fn build_folder() -> PathBuf {
    let test = env::current_exe().expect("a running test knows its own path");
    let deps = test.parent().expect("a test is in a folder");
    deps.parent().expect("tests are in target/PROFILE/deps").to_path_buf()
}

/// A file of this build, which must exist.
fn built_file(name: &str) -> PathBuf {
    let path = build_folder().join(name);
    assert!(
        Path::new(&path).exists(),
        "{} is not built: run `cargo build --workspace` first, or `tests/run`, which does",
        path.display()
    );
    path
}

/// A program of this workspace: `gaunt`, `gaunt-node` or `gaunt-sim`.
pub(crate) fn program_path(name: &str) -> PathBuf {
    built_file(name)
}

/// The fake driver library, loaded in place of `libnvidia-ml.so.1`.
pub(crate) fn fake_driver() -> PathBuf {
    built_file("libgaunt_fake_driver.so")
}
