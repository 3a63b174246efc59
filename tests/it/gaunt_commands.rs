//! The commands of `gaunt` as a user types them: output and exit code.

#![expect(clippy::unwrap_used, reason = "what fails in here fails the test that called it")]

use std::{
    io::{Read as _, Write as _},
    net::TcpListener,
    process::Output,
    thread,
};

use serde_json::Value;

use crate::test_process::{TestProcess, get, run_gaunt, run_gaunt_until, wait_for};

fn exit_code(output: &Output) -> i32 {
    output.status.code().expect("gaunt ends by itself")
}

fn stdout_text(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr_text(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn invalid_command_ends_with_3_and_names_the_next_step() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("gaunt.toml");
    std::fs::write(&config, "[gather]\nperod = \"1s\"\n").unwrap();
    let config = config.to_str().unwrap();
    let cases: &[(&[&str], &str)] = &[
        (&["--bogus"], "error: unexpected argument '--bogus' found\n"),
        (
            &["demo", "--nodes", "0"],
            "error: invalid value '0' for '--nodes <NODES>': 0 is not in 1..=1250\n",
        ),
        (
            &["demo", "--scenario", "nope"],
            "gaunt: no scenario is called \"nope\"; choose one of demo, healthy, port_down, \
             data_starved, storage_slow, slow_gpu, throttled, launch_bound, leaf_congested, \
             link_errors, hang, gpu_lost, checkpoint, tour, or a case F1 to F19 or H1 to H16\n",
        ),
        (
            &["serve"],
            "gaunt: no targets; name them with --targets 'gpu[001-064]', --targets-file FILE, or \
             gather.targets in the settings, a Prometheus that scrapes them with --prometheus URL, or let \
             one send what it scrapes with --receive-token-file FILE\n",
        ),
        (
            &["serve", "--targets", "gpu[1-"],
            "gaunt: --targets: host list \"gpu[1-\", character 4: unclosed bracket; add \"]\"\n",
        ),
        (
            &["snapshot", "--targets", "gpu[1-99999]"],
            "gaunt: --targets: host list \"gpu[1-99999]\", character 1: gpu[1-99999] expands to \
             99999 names, but only 20000 more are allowed (20000 in total); check the range\n",
        ),
        (
            &["snapshot", "--targets-file", "/nowhere"],
            "gaunt: cannot read targets file /nowhere: No such file or directory (os error 2); check the path\n",
        ),
        (
            &["snapshot", "--aggregator", "http://127.0.0.1:1"],
            "gaunt: aggregator 127.0.0.1:1 unreachable: Connection refused (os error 111); is `gaunt \
             serve` running there?\n",
        ),
        (
            &["snapshot", "--aggregator", "ftp://a"],
            "gaunt: \"ftp://a\" is not an aggregator address; use http://HOST:9771, or https://HOST",
        ),
        (
            &["serve", "--period", "0s"],
            "error: invalid value '0s' for '--period <DURATION>': 0s is out of range",
        ),
    ];
    for (args, expected) in cases {
        let output = run_gaunt(args);
        assert_eq!(exit_code(&output), 3, "{args:?}: {}", stderr_text(&output));
        assert!(
            stderr_text(&output).starts_with(expected),
            "{args:?} says\n{}",
            stderr_text(&output)
        );
        assert_eq!(stdout_text(&output), "", "{args:?}");
    }
    let output = run_gaunt(&["serve", "--config", config, "--targets", "a"]);
    assert_eq!(exit_code(&output), 3);
    let expected = format!("gaunt: {config}:2: unknown key `perod`, known keys are `targets`");
    assert!(stderr_text(&output).starts_with(&expected), "{}", stderr_text(&output));
}

#[test]
fn help_and_version_end_with_0() {
    for args in [&["--help"][..], &["--version"], &["snapshot", "--help"], &["metrics"]] {
        let output = run_gaunt(args);
        assert_eq!((exit_code(&output), stderr_text(&output).as_str()), (0, ""), "{args:?}");
        assert!(!output.stdout.is_empty(), "{args:?}");
    }
}

#[test]
fn demo_without_a_terminal_shows_all_faults_at_once() {
    let output = run_gaunt(&["demo"]);
    assert_eq!(exit_code(&output), 0, "{}", stderr_text(&output));
    let page = stdout_text(&output);
    assert!(page.starts_with("gaunt  demo · 32 nodes · 256 GPUs · 32 live"), "{page}");
    for fault in
        ["port_down ", "data_starved ", "throttled ", "gpu_failed ", "FINDINGS  4 open", "USD/h"]
    {
        assert!(page.contains(fault), "{fault}\n{page}");
    }
    assert!(!page.contains('\x1b'), "{page}");
    let healthy = stdout_text(&run_gaunt(&["demo", "--scenario", "healthy", "--nodes", "4"]));
    assert!(healthy.contains("FINDINGS  0 open"), "{healthy}");
}

/// A target that answers every request with the same page.
fn serve_page(page: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || {
                let mut head = [0; 4096];
                while stream.read(&mut head).is_ok_and(|read| read > 0) {
                    let answer =
                        format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{page}", page.len());
                    if stream.write_all(answer.as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

/// Samples these targets briefly, as often as it takes until the snapshot is as expected.
fn sample_targets(list: &str, args: &[&str], is_expected: impl Fn(&Output) -> bool) -> Output {
    let brief = ["snapshot", "--targets", list, "--period", "200ms", "--watch", "600ms"];
    run_gaunt_until(&[&brief[..], args].concat(), is_expected)
}

#[test]
fn snapshot_of_targets_needs_no_aggregator() {
    let good = serve_page("gaunt_node_info{node=\"box\"} 1\ngaunt_node_cpus 64\n");
    let parse = |output: &Output| -> Value { serde_json::from_slice(&output.stdout).unwrap() };
    let output = sample_targets(&good, &["--format", "json", "--check"], |output| {
        exit_code(output) == 0 && parse(output)["overview"]["nodes"]["live"] == 1
    });
    let json = parse(&output);
    assert_eq!(json["nodes"][0]["line"]["node"], "box");
    assert_eq!(json["nodes"][0]["devices"][0]["values"]["gaunt_node_cpus"], 64.0);
    assert_eq!(json["findings"]["findings"], Value::Array(Vec::new()));
    assert_eq!(json["targets"]["targets"][0]["state"], "live");
    assert_eq!(json["overview"]["nodes"]["live"], 1);
}

#[test]
fn partial_data_ends_with_3_and_shows_what_there_is() {
    let good = serve_page("gaunt_node_info{node=\"box\"} 1\ngaunt_node_cpus 64\n");
    let list = format!("{good},127.0.0.1:1");
    let output = sample_targets(&list, &[], |output| {
        stdout_text(output).contains("127.0.0.1:1: cannot connect: connection refused")
            && stderr_text(output).contains("partial data: 1 of 2 targets is down")
    });
    assert_eq!(exit_code(&output), 3);
}

#[test]
fn aggregator_answers_every_path_and_stops_on_sigterm() {
    let good = serve_page("gaunt_node_info{node=\"rack 1 / box\"} 1\ngaunt_node_cpus 64\n");
    let aggregator = TestProcess::start_aggregator(&["--targets", &format!("{good},127.0.0.1:1")]);
    let address = aggregator.served_address();
    let ready = wait_for("every target was tried", || {
        get(&address, "/readyz").filter(|(status, _)| *status == 200)
    });
    assert_eq!(ready.1, "ready: 2 of 2 targets tried\n");
    assert_eq!(get(&address, "/healthz").unwrap(), (200, "alive\n".to_owned()));
    for path in ["overview", "nodes", "findings", "targets", "nodes/rack%201%20%2F%20box"] {
        let (status, body) = get(&address, &format!("/api/gaunt/v1/{path}")).unwrap();
        let json: Value = serde_json::from_str(&body).unwrap();
        assert!(json["at"].as_i64().unwrap() > 0 && status == 200, "{path}: {status} {body}");
    }
    let (status, refusal) = get(&address, "/api/gaunt/v1/nodes/nope").unwrap();
    let refusal: Value = serde_json::from_str(&refusal).unwrap();
    assert_eq!(
        (status, &refusal["refused"], &refusal["node"]),
        (404, &"unknown_node".into(), &"nope".into())
    );
    assert!(refusal["message"].as_str().unwrap().starts_with("no node is named nope; "));
    assert_eq!(get(&address, "/nope").unwrap().0, 404);
    assert!(get(&address, "/").unwrap().1.contains("/metrics"));
    let taken = run_gaunt(&["serve", "--targets", "a", "--listen", &address]);
    assert_eq!(exit_code(&taken), 3);
    assert!(
        stderr_text(&taken).contains(&format!(
            "gaunt: cannot listen on {address}: the address is in use; pass --listen ADDRESS:PORT or \
             set serve.listen\n"
        )),
        "{}",
        stderr_text(&taken)
    );
    assert!(aggregator.terminate_and_wait().success());
}
