//! What packages install beside the programs: completions, manual pages, and the version that they name.

#![expect(clippy::unwrap_used, reason = "what fails in here fails the test that called it")]

use std::{
    fs,
    process::{Command, Stdio},
};

use crate::{
    binaries::program_path,
    test_process::{RunToEnd, debian_program},
};

const PROGRAMS: [&str; 3] = ["gaunt", "gaunt-node", "gaunt-probe"];

/// Standard output of a program, which must succeed.
fn output_of(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program_path(program)).args(arguments).run_to_end();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn completions_are_valid_for_their_shell_and_name_every_command() {
    let folder = tempfile::tempdir().unwrap();
    for program in PROGRAMS {
        let known_command = if program == "gaunt" { "snapshot" } else { "completions" };
        for shell in ["bash", "zsh", "fish"] {
            let script = output_of(program, &["completions", shell]);
            assert!(script.contains(known_command), "{program} {shell}");
            let path = folder.path().join(format!("{program}.{shell}"));
            fs::write(&path, script).unwrap();
            let checked = debian_program(shell).arg("-n").arg(&path).run_to_end();
            let errors = String::from_utf8_lossy(&checked.stderr);
            assert!(checked.status.success(), "{program} {shell}: {errors}");
        }
    }
}

#[test]
fn bash_completes_a_command_and_its_option() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("gaunt");
    fs::write(&script, output_of("gaunt", &["completions", "bash"])).unwrap();
    for (words, expected) in [("gaunt snap", "snapshot"), ("gaunt serve --token", "--token-file")] {
        let asked = format!(
            "source {}; COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); \
             _gaunt gaunt \"${{COMP_WORDS[COMP_CWORD]}}\" \"${{COMP_WORDS[COMP_CWORD-1]}}\"; \
             printf '%s\\n' \"${{COMPREPLY[@]}}\"",
            script.display()
        );
        let output = Command::new("bash").args(["--norc", "-c", &asked]).run_to_end();
        let offered = String::from_utf8(output.stdout).unwrap();
        assert_eq!(
            offered.trim(),
            expected,
            "{words}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

#[test]
fn manual_pages_are_written_for_every_program_and_command() {
    let folder = tempfile::tempdir().unwrap();
    output_of("gaunt", &["man", "--to", folder.path().to_str().unwrap()]);
    for name in ["gaunt", "gaunt-serve", "gaunt-snapshot", "gaunt-doctor", "gaunt-man"] {
        let page = fs::read_to_string(folder.path().join(format!("{name}.1"))).unwrap();
        assert!(page.contains(&format!(".TH {name} 1")), "{page}");
        assert!(page.contains(".SH SYNOPSIS"), "{name}");
    }
    for program in PROGRAMS {
        let page = output_of(program, &["man"]);
        assert!(page.contains(&format!(".TH {program} 1")), "{page}");
    }
}

#[test]
fn manual_page_that_cannot_be_written_is_an_error_with_the_next_step() {
    let output = Command::new(program_path("gaunt"))
        .args(["man", "--to", "/proc/none"])
        .stdin(Stdio::null())
        .run_to_end();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(3), "{errors}");
    assert!(errors.contains("cannot write manual pages to /proc/none; check --to"), "{errors}");
}

#[test]
fn programs_state_the_same_version() {
    for program in PROGRAMS.into_iter().chain(["gaunt-sim"]) {
        let version = output_of(program, &["--version"]);
        let stated = version.trim().strip_prefix(program).unwrap().trim();
        assert!(stated.starts_with(env!("CARGO_PKG_VERSION")), "{version}");
    }
}
