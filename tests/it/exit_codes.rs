//! Exit codes for scripts, and which aggregator a command connects to.

#![expect(clippy::unwrap_used, reason = "what fails in here fails the test that called it")]

use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpListener,
    process::{Command, Output, Stdio},
    thread,
};

use serde_json::Value;

use crate::{
    binaries::program_path,
    test_process::{run_gaunt, run_gaunt_until},
};

fn exit_code(output: &Output) -> Option<i32> {
    output.status.code()
}

fn stderr_text(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// Samples briefly, as often as it takes until the output is as expected; the exit code is 3 each time.
fn run_incomplete(args: &[&str], is_expected: impl Fn(&Output) -> bool) -> Output {
    let args = [args, &["--period", "100ms", "--watch", "300ms"]].concat();
    run_gaunt_until(&args, |output| {
        assert_eq!(exit_code(output), Some(3), "{args:?}: {}", stderr_text(output));
        is_expected(output)
    })
}

/// The first finding of a snapshot in JSON.
fn first_finding(output: &Output) -> Value {
    let page: Value = serde_json::from_slice(&output.stdout).unwrap();
    page["findings"]["findings"][0].clone()
}

#[test]
fn check_ends_with_3_and_a_finding_where_discovery_cannot_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let suffix = folder.path().join("targets.conf");
    fs::write(&suffix, "n1:9770\n").unwrap();
    let missing = folder.path().join("missing.json");
    for (flag, source) in [
        ("--file-sd", missing.to_str().unwrap()),
        ("--file-sd", suffix.to_str().unwrap()),
        ("--http-sd", "http://127.0.0.1:1/targets"),
    ] {
        let args = ["snapshot", flag, source, "--check", "--format", "json"];
        let output = run_incomplete(&args, |output| !first_finding(output).is_null());
        let finding = first_finding(&output);
        assert_eq!(finding["kind"], "target_down", "{source}: {finding}");
        assert_eq!(finding["entity"]["type"], "source", "{source}: {finding}");
        let source_name = finding["entity"]["source"].as_str().unwrap();
        assert!(source.contains(source_name.trim_end_matches('/')), "{source}: {source_name}");
        let warning = "partial data: 1 of 1 target sources cannot be read completely; first: ";
        assert!(stderr_text(&output).contains(warning), "{source}: {}", stderr_text(&output));
    }
    run_incomplete(&["report", "--file-sd", missing.to_str().unwrap()], |report| {
        stderr_text(report).contains("cannot be read completely; first: ")
    });
    // A pattern that matches no file names no target: that is not a healthy fleet.
    let pattern = folder.path().join("*.yml");
    run_incomplete(&["snapshot", "--file-sd", pattern.to_str().unwrap(), "--check"], |none| {
        let text = stderr_text(none);
        text.contains("partial data: no targets: ") && text.contains("*.yml lists none")
    });
}

#[test]
fn wrong_command_line_ends_every_program_with_3() {
    for name in ["gaunt", "gaunt-node", "gaunt-probe", "gaunt-sim"] {
        let run = |arg: &str| {
            let mut command = Command::new(program_path(name));
            command.arg(arg).stdin(Stdio::null()).output().unwrap()
        };
        let wrong = run("--bogus");
        assert_eq!(exit_code(&wrong), Some(3), "{name}: {}", stderr_text(&wrong));
        assert!(stderr_text(&wrong).contains("unexpected argument '--bogus'"), "{name}");
        let help = run("--help");
        assert_eq!((exit_code(&help), stderr_text(&help).as_str()), (Some(0), ""), "{name}");
        let help = String::from_utf8(help.stdout).unwrap();
        assert!(help.contains("xit codes:"), "{name}: {help}");
    }
    let node =
        Command::new(program_path("gaunt-node")).args(["--config", "/nowhere"]).output().unwrap();
    assert_eq!(exit_code(&node), Some(3), "{}", stderr_text(&node));
}

#[test]
fn aggregator_is_the_flag_or_the_environment_or_that_of_the_settings() {
    let folder = tempfile::tempdir().unwrap();
    let settings = folder.path().join("gaunt.toml");
    fs::write(&settings, "[console]\naggregator = \"127.0.0.1:3\"\n").unwrap();
    let settings = settings.to_str().unwrap();
    let run = |args: &[&str], variable: Option<&str>| {
        let mut command = Command::new(program_path("gaunt"));
        command.args(args).stdin(Stdio::null()).env_remove("GAUNT_AGGREGATOR").env("USER", "mira");
        if let Some(url) = variable {
            command.env("GAUNT_AGGREGATOR", url);
        }
        command.output().unwrap()
    };
    for subcommand in [&["snapshot"][..], &["report"], &["explain"], &["ack", "x"]] {
        for (flags, variable, message) in [
            (
                &["--aggregator", "127.0.0.1:1"][..],
                Some("127.0.0.1:2"),
                "gaunt: aggregator 127.0.0.1:1 unreachable",
            ),
            (&[], Some("127.0.0.1:2"), "gaunt: aggregator 127.0.0.1:2 unreachable"),
            (
                &["--config", settings],
                Some("127.0.0.1:2"),
                "gaunt: aggregator 127.0.0.1:2 unreachable",
            ),
            (&["--config", settings], None, "gaunt: aggregator 127.0.0.1:3 unreachable"),
        ] {
            for args in [[subcommand, flags].concat(), [flags, subcommand].concat()] {
                let output = run(&args, variable);
                assert_eq!(exit_code(&output), Some(3), "{args:?}");
                let error = stderr_text(&output);
                assert!(error.starts_with(message), "{args:?}: {error}");
                let names_variable = error.contains("(address from GAUNT_AGGREGATOR)");
                assert_eq!(names_variable, message.contains(":2 "), "{args:?}: {error}");
            }
        }
    }
}

#[test]
fn messages_are_in_words_of_gaunt_and_name_the_next_step() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let mut head = [0; 4096];
            if stream.read(&mut head).is_ok_and(|read| read > 0) {
                let page = "<html>nginx</html>";
                let length = page.len();
                let head = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length:";
                // The program may have gone.
                _ = write!(stream, "{head} {length}\r\n\r\n{page}");
            }
        }
    });
    let output = run_gaunt(&["snapshot", "--aggregator", &address]);
    let message = format!(
        "gaunt: aggregator {address} sent an invalid answer: it is not JSON; is it gaunt of this \
         version?\n"
    );
    assert_eq!((exit_code(&output), stderr_text(&output)), (Some(3), message));
    let output = run_gaunt(&["snapshot", "--log", "gaunt=loud"]);
    assert_eq!(exit_code(&output), Some(3));
    let message =
        "gaunt: \"gaunt=loud\" is not a log filter; write a level such as debug, or MODULE=LEVEL";
    assert!(stderr_text(&output).starts_with(message), "{}", stderr_text(&output));
}
