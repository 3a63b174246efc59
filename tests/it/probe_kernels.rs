//! The committed PTX equals the compiled kernel sources, and ptxas accepts it for every GPU that it knows.

use std::{path::Path, process::Command};

use crate::test_process::RunToEnd;

/// Targets for which ptxas must accept a file: sm_121 and all before it.
const TARGETS: [u32; 13] = [70, 72, 75, 80, 86, 87, 89, 90, 100, 101, 103, 120, 121];

#[test]
fn ptx_is_current_and_taken_by_every_target() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let venv = root.join("target/cuda");
    assert!(
        venv.join("complete").exists(),
        "{} has no CUDA compiler: run exporters/probe/kernels/make, or tests/run, which does",
        venv.display()
    );
    let output =
        Command::new(root.join("exporters/probe/kernels/make")).arg("--check").run_to_end();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    let stdout = String::from_utf8(output.stdout).unwrap();
    for (file, oldest) in [("copy", 70), ("f32", 70), ("bf16", 80)] {
        for target in TARGETS.into_iter().filter(|target| *target >= oldest) {
            let line = format!("{file}.ptx sm_{target}: ");
            assert!(stdout.contains(&line), "{line} is missing from\n{stdout}");
        }
    }
}
