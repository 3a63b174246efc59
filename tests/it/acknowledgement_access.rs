//! Acknowledging findings over HTTP and from the command line, with and without the token.

#![expect(clippy::unwrap_used, reason = "what fails in here fails the test that called it")]

use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpStream,
    os::unix::fs::PermissionsExt as _,
    process::{Command, Stdio},
};

use serde_json::{Value, json};

use crate::{
    binaries::program_path,
    test_process::{DEADLINE, RunToEnd, TestProcess, get, wait_for},
};

const TOKEN: &str = "correct-horse-battery-staple";

/// The finding of a target where nothing listens.
pub(crate) const FINDING: &str = "target_down/127.0.0.1";

const API: &str = "/api/gaunt/v1";

/// Status, head and body of the answer to a request.
fn send_request(
    address: &str,
    method: &str,
    path: &str,
    headers: &str,
    body: &str,
) -> (u16, String, Value) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    let length = body.len();
    let request = format!(
        "{method} {API}/{path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\
         Content-Length: {length}\r\n{headers}\r\n{body}"
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, head.to_lowercase(), serde_json::from_str(body).unwrap_or(Value::from(body)))
}

pub(crate) fn fetch_json(address: &str, path: &str) -> Value {
    let (status, body) = wait_for("an answer", || get(address, &format!("{API}/{path}")));
    assert_eq!(status, 200, "{body}");
    serde_json::from_str(&body).unwrap()
}

/// The finding once it is open.
pub(crate) fn wait_for_finding(address: &str, id: &str) -> Value {
    wait_for(id, || {
        let list = fetch_json(address, "findings");
        list["findings"].as_array().unwrap().iter().find(|finding| finding["id"] == id).cloned()
    })
}

/// An aggregator with an unreachable target and a token in a file, once the finding is open.
fn start_aggregator(folder: &tempfile::TempDir) -> (TestProcess, String, String) {
    let file = folder.path().join("token");
    fs::write(&file, format!("{TOKEN}\n")).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let file = file.to_str().unwrap().to_owned();
    let running =
        TestProcess::start_aggregator(&["--targets", "127.0.0.1:9", "--token-file", &file]);
    let address = running.served_address();
    wait_for_finding(&address, FINDING);
    (running, address, file)
}

fn bearer_header(token: &str) -> String {
    format!("Authorization: Bearer {token}\r\n")
}

#[test]
fn acknowledgement_needs_the_token_and_every_client_sees_it() {
    let folder = tempfile::tempdir().unwrap();
    let (running, address, _) = start_aggregator(&folder);
    let path = format!("findings/{FINDING}/acknowledge");
    let note =
        json!({"by": "alice", "note": "the node is being reinstalled\u{1b}[31m"}).to_string();
    for (headers, reason) in [
        (String::new(), "no_token"),
        (bearer_header("wrong-token-of-16-chars"), "wrong_token"),
        (bearer_header(""), "no_token"),
    ] {
        let (status, head, body) = send_request(&address, "POST", &path, &headers, &note);
        assert_eq!((status, body["refused"].as_str()), (401, Some(reason)), "{body}");
        assert!(head.contains("www-authenticate: bearer"), "{head}");
    }
    let bearer = bearer_header(TOKEN);
    let unknown_finding = "findings/port_down/nobody/acknowledge";
    for (method, path, body, status, reason) in [
        ("POST", path.as_str(), "{}", 400, "bad_parameter"),
        ("POST", path.as_str(), r#"{"by": ""}"#, 400, "bad_parameter"),
        ("POST", unknown_finding, &note, 404, "unknown_finding"),
        ("DELETE", path.as_str(), "", 400, "bad_parameter"),
        ("DELETE", &format!("{path}?by=bob"), "", 409, "not_acknowledged"),
    ] {
        let (got, _, answer) = send_request(&address, method, path, &bearer, body);
        assert_eq!(
            (got, answer["refused"].as_str()),
            (status, Some(reason)),
            "{method} {path}: {answer}"
        );
    }
    let long = "x".repeat(9 << 10);
    assert_eq!(send_request(&address, "POST", &path, &bearer, &long).0, 413);
    let elsewhere = send_request(&address, "POST", "overview", &bearer, "");
    assert_eq!(elsewhere.0, 405, "nothing else can be done");

    let (status, _, answer) = send_request(&address, "POST", &path, &bearer, &note);
    assert_eq!(status, 200, "{answer}");
    let ack = &answer["finding"]["acknowledged"];
    assert_eq!((&ack["by"], &ack["severity"]), (&json!("alice"), &json!("warning")));
    assert_eq!(ack["note"], "the node is being reinstalled\u{fffd}[31m");
    let line = running.line_with("gaunt::audit: acknowledged");
    assert!(line.contains("by=\"alice\"") && line.contains(FINDING), "{line}");
    let (status, _, again) = send_request(&address, "POST", &path, &bearer, &note);
    assert_eq!((status, again["refused"].as_str()), (409, Some("already_acknowledged")));

    // Every client sees the acknowledgement at once.
    assert_eq!(wait_for_finding(&address, FINDING)["acknowledged"]["by"], "alice");
    assert_eq!(fetch_json(&address, "overview")["findings_acknowledged"], 1);
    let page = get(&address, "/metrics").unwrap().1;
    let line = page.lines().find(|line| line.starts_with("gaunt_finding{")).unwrap();
    assert!(line.contains("acknowledged=\"true\""), "{line}");
    let rows = fetch_json(&address, "table/findings?columns=id,acknowledged,life");
    assert_eq!(rows["columns"][1]["cells"]["texts"]["words"], json!(["alice"]));
    let change_kinds = |answer: &Value| -> Vec<String> {
        let changes = answer["finding"]["life"]["changes"].as_array().unwrap();
        changes.iter().map(|change| change["what"].as_str().unwrap().to_owned()).collect()
    };
    let (status, _, answer) =
        send_request(&address, "DELETE", &format!("{path}?by=bob"), &bearer, "");
    assert_eq!((status, &answer["finding"]["acknowledged"]), (200, &Value::Null));
    assert_eq!(change_kinds(&answer), ["opened", "acknowledged", "withdrawn"]);
}

#[test]
fn acknowledgement_is_refused_without_a_token_file() {
    let running = TestProcess::start_aggregator(&["--targets", "127.0.0.1:9"]);
    let address = running.served_address();
    let path = format!("findings/{FINDING}/acknowledge");
    let (status, _, body) =
        send_request(&address, "POST", &path, &bearer_header(TOKEN), r#"{"by": "a"}"#);
    assert_eq!((status, body["refused"].as_str()), (403, Some("writing_off")));
    assert!(body["message"].as_str().unwrap().contains("serve.token_file"), "{body}");

    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    fs::write(&file, "short").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let refused = Command::new(program_path("gaunt"))
        .args(["serve", "--listen", "127.0.0.1:0", "--targets", "127.0.0.1:9", "--token-file"])
        .arg(&file)
        .run_to_end();
    assert_eq!(refused.status.code(), Some(3));
    let stderr = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(stderr.contains("has no token of at least 16 characters"), "{stderr}");
}

#[test]
fn actions_and_refusals_are_audited_as_json() {
    let folder = tempfile::tempdir().unwrap();
    let (token, audit) = (folder.path().join("token"), folder.path().join("audit.jsonl"));
    fs::write(&token, TOKEN).unwrap();
    fs::set_permissions(&token, fs::Permissions::from_mode(0o600)).unwrap();
    let settings = folder.path().join("gaunt.toml");
    fs::write(&settings, "[serve]\ntoken_file = \"token\"\naudit_file = \"audit.jsonl\"\n")
        .unwrap();
    let settings = settings.to_str().unwrap();
    let arguments = ["--targets", "127.0.0.1:9", "--config", settings];
    let running = TestProcess::start_aggregator(&arguments);
    let address = running.served_address();
    wait_for_finding(&address, FINDING);
    let path = format!("findings/{FINDING}/acknowledge");
    let post = |token: &str| {
        let body = r#"{"by": "alice", "note": "cable ordered"}"#;
        send_request(&address, "POST", &path, &bearer_header(token), body)
    };
    assert_eq!(post("wrong-token-of-16-chars").0, 401);
    assert_eq!(post(TOKEN).0, 200);
    assert_eq!(post(TOKEN).0, 409);

    let text = fs::read_to_string(&audit).unwrap();
    assert!(!text.contains("wrong-token") && !text.contains(TOKEN), "{text}");
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let outcomes: Vec<_> = lines.iter().map(|line| line["outcome"].as_str().unwrap()).collect();
    assert_eq!(outcomes, ["wrong_token", "done", "already_acknowledged"]);
    let done = &lines[1];
    assert_eq!((&done["action"], &done["by"]), (&json!("acknowledge"), &json!("alice")));
    assert_eq!((&done["finding"], &done["note"]), (&json!(FINDING), &json!("cable ordered")));
    assert!(done["peer"].as_str().unwrap().starts_with("127.0.0.1:"), "{done}");
    assert_eq!(fs::metadata(&audit).unwrap().permissions().mode() & 0o777, 0o600);
}

/// Runs `gaunt` with a token in its environment, or without.
fn run_with_token(token: Option<&str>, args: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(program_path("gaunt"));
    command.args(args).env("NO_COLOR", "1").env_remove("GAUNT_TOKEN").stdin(Stdio::null());
    if let Some(token) = token {
        command.env("GAUNT_TOKEN", token);
    }
    let output = command.run_to_end();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn finding_is_acknowledged_explained_and_withdrawn_on_the_command_line() {
    let folder = tempfile::tempdir().unwrap();
    let (_running, address, file) = start_aggregator(&folder);
    let aggregator_args = ["--aggregator", &address];
    let ack = |token: Option<&str>, arguments: &[&str]| {
        run_with_token(token, &[&["ack"], &aggregator_args[..], arguments].concat())
    };
    let (code, _, stderr) = ack(None, &["target_down", "--by", "alice"]);
    assert_eq!(code, Some(3));
    assert!(
        stderr.starts_with("gaunt: this action needs the aggregator's token: --token-file"),
        "{stderr}"
    );
    let (code, _, stderr) = ack(None, &["nothing_like_it", "--by", "alice", "--token-file", &file]);
    assert_eq!(code, Some(3));
    let list =
        format!("gaunt: no finding id contains nothing_like_it; known ids are\n  {FINDING}\n");
    assert_eq!(stderr, list);
    let note = ["target_down", "--by", "alice", "--note", "being reinstalled"];
    let (code, stdout, stderr) = ack(Some(TOKEN), &note);
    assert_eq!(
        (code, stdout.as_str()),
        (Some(0), "target_down/127.0.0.1 is acknowledged by alice\n"),
        "{stderr}"
    );

    let explain = |arguments: &[&str]| {
        run_with_token(None, &[&["explain"], &aggregator_args[..], arguments].concat())
    };
    let (code, page, _) = explain(&[]);
    assert_eq!(code, Some(0));
    for part in [
        "target_down  127.0.0.1\nwarning · open since ",
        "\nid target_down/127.0.0.1\n",
        "\nWHAT       ",
        "\nRULE       Scrapes of a target failed, or its target source is unreadable.\n",
        "\nACK BY     by alice at ",
        ": being reinstalled\n",
        "consecutive failed scrapes of 127.0.0.1:9",
        "limit target_failures\n",
        "\n  target_failures       = 2       Consecutive failed scrapes before a target is reported.\n",
        "\nLIFECYCLE\n",
        "  opened        as warning\n",
        "  acknowledged  by alice\n",
    ] {
        assert!(page.contains(part), "{part:?} is missing in\n{page}");
    }
    let incident = [&["report", "--incident", FINDING], &aggregator_args[..]].concat();
    let (code, page, error) = run_with_token(None, &incident);
    assert_eq!(code, Some(0), "{error}");
    assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>\n"), "{page}");
    assert!(page.contains("<h2>Timeline</h2>"), "{page}");
    assert!(!page.contains("src=") && !page.contains("<script"), "{page}");
    let (code, json, _) = explain(&[FINDING, "--format", "json"]);
    assert_eq!(code, Some(0));
    let explanation: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(explanation["finding"]["id"], json!(FINDING));
    let limits = explanation["limits"].as_array().unwrap();
    let limit = limits.iter().find(|limit| limit["key"] == "target_failures").unwrap();
    assert_eq!(limit["value"], json!(2.0));

    let (code, stdout, _) = ack(Some(TOKEN), &["target_down", "--by", "bob", "--withdraw"]);
    assert_eq!(
        (code, stdout.as_str()),
        (Some(0), "acknowledgement of target_down/127.0.0.1 is withdrawn\n")
    );
    let (code, _, stderr) = ack(Some(TOKEN), &["target_down", "--by", "bob", "--withdraw"]);
    assert_eq!(
        (code, stderr.as_str()),
        (Some(3), "gaunt: target_down/127.0.0.1 is not acknowledged\n")
    );
}

/// An aggregator that answers only those who have a role.
fn start_for_readers() -> (tempfile::TempDir, TestProcess, String) {
    let folder = tempfile::tempdir().unwrap();
    let settings = folder.path().join("gaunt.toml");
    let token = folder.path().join("token");
    fs::write(&token, TOKEN).unwrap();
    fs::set_permissions(&token, fs::Permissions::from_mode(0o600)).unwrap();
    let text = "[gather]\ntargets = [\"127.0.0.1:9\"]\n[serve]\ntoken_file = \"token\"\n\
                read_needs_role = true\n";
    fs::write(&settings, text).unwrap();
    let running = TestProcess::start_aggregator(&["--config", settings.to_str().unwrap()]);
    let address = running.served_address();
    (folder, running, address)
}

#[test]
fn commands_that_may_not_read_say_so() {
    let (_folder, _running, address) = start_for_readers();
    let commands = [vec!["snapshot"], vec!["snapshot", "--check"], vec!["explain", "port_down"]];
    for (token, message) in [
        (None, "gaunt: this action needs the aggregator's token: --token-file"),
        (Some("wrong-token-of-16-chars"), "gaunt: wrong token"),
    ] {
        for command in &commands {
            let line = [command.as_slice(), &["--aggregator", &address]].concat();
            let (code, stdout, stderr) = run_with_token(token, &line);
            assert_eq!((code, stdout.as_str()), (Some(3), ""), "{command:?}: {stderr}");
            assert!(stderr.starts_with(message), "{command:?}: {stderr}");
        }
    }
}

/// The brake on guesses: it never keeps out who has the token.
#[test]
fn wrong_tokens_are_slowed_down_and_the_right_one_is_not() {
    let (_folder, _running, address) = start_for_readers();
    let ask = |token: &str| send_request(&address, "GET", "overview", &bearer_header(token), "");
    let guess = |number: usize| ask(&format!("wrong-token-of-16-chars-{number}"));
    for number in 0..20 {
        assert_eq!(guess(number).0, 401, "{number}");
    }
    // One more is free every three seconds: a machine that is slower than that has other errors.
    let (_, head, why) =
        wait_for("the brake", || Some(guess(20)).filter(|(status, ..)| *status == 429));
    let wait = head.lines().find_map(|line| line.strip_prefix("retry-after: ")).unwrap();
    assert!((1..=4).contains(&wait.parse::<u64>().unwrap()), "{head}");
    assert!(why.as_str().unwrap().contains("too many wrong tokens"), "{why}");
    assert_eq!(ask(TOKEN).0, 200);
    // Without a token nothing is guessed.
    assert_eq!(send_request(&address, "GET", "overview", "", "").0, 401);
}
