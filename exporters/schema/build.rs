//! Puts the version into the programs: of a release with its commit, from `GAUNT_COMMIT` or the repository's files.
//!
//! Other builds have none: every commit would compile the whole workspace again.

use std::{
    env,
    io::{self, Write as _},
    path::Path,
};

#[path = "src/build_commit.rs"]
mod build_commit;

fn main() -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "cargo::rerun-if-changed=build.rs")?;
    writeln!(out, "cargo::rerun-if-changed=src/build_commit.rs")?;
    writeln!(out, "cargo::rerun-if-env-changed=GAUNT_COMMIT")?;
    let named = env::var("GAUNT_COMMIT").ok();
    let mut commit = named.as_deref().and_then(build_commit::abbreviate_commit);
    let is_release = env::var("PROFILE").is_ok_and(|profile| profile == "release");
    if commit.is_none() && is_release {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        if let Some(git) = build_commit::git_folder(&root) {
            // The log of HEAD grows with each commit; HEAD itself only names the branch.
            for file in ["HEAD", "logs/HEAD"] {
                writeln!(out, "cargo::rerun-if-changed={}", git.join(file).display())?;
            }
            commit = build_commit::read_commit(&git);
        }
    }
    let suffix = commit.map(|commit| format!(" ({commit})")).unwrap_or_default();
    writeln!(out, "cargo::rustc-env=GAUNT_VERSION={}{suffix}", env!("CARGO_PKG_VERSION"))
}
