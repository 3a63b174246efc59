//! An installation as the Helm chart configures it by default: TLS everywhere, exporters that answer only the aggregators, an
//! aggregator that answers only known clients; probed with OpenSSL, and no secret in anything that it writes.

#![expect(clippy::unwrap_used, reason = "what fails in here fails the test that called it")]

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use serde_json::Value;

use crate::{
    binaries::program_path,
    kubernetes_manifests::read_setting_files,
    test_process::{RunToEnd, TestProcess, debian_program, free_port, run_gaunt, wait_for},
    tls_connections::{HASH, PASSWORD},
};

const ADMIN: &str = "token-of-the-administrator";
const READER: &str = "token-of-the-console-users";
const ON_CALL: &str = "token-of-those-on-call-now";
const STORE_BEARER: &str = "bearer-of-the-remote-store";
const ALERT_PASSWORD: &str = "password-of-alertmanager";
const URL_PASSWORD: &str = "password-within-an-address";

/// The user of the second node with its password, and how a client sends them.
const SCRAPER: (&str, &str) = ("scraper", PASSWORD);
const SCRAPER_CREDENTIALS: &str = "c2NyYXBlcjpibHVlIGNhYmxl";

/// A node with `gaunt-node` and an aggregator, both with the settings of the default manifests; and a second node that asks
/// for a user.
struct SecuredInstall {
    folder: tempfile::TempDir,
    node: TestProcess,
    node_address: String,
    user_node: TestProcess,
    user_node_address: String,
    aggregator: TestProcess,
    address: String,
}

impl SecuredInstall {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let certs = path("security");
        // The command of the chart's notes.
        let made = run_gaunt(&[
            "certs",
            "--to",
            certs.to_str().unwrap(),
            "--server",
            "gaunt",
            "--server",
            "gaunt-node",
            "--name",
            "127.0.0.1",
            "--client",
            "gaunt",
            // Soon to be renewed.
            "--days",
            "7",
        ]);
        assert!(made.status.success(), "{made:?}");
        for (name, secret) in [
            ("token", ADMIN),
            ("reader", READER),
            ("on-call", ON_CALL),
            ("store", STORE_BEARER),
            ("alerts", ALERT_PASSWORD),
            ("scraper", SCRAPER.1),
        ] {
            fs::write(certs.join(name), format!("{secret}\n")).unwrap();
            fs::set_permissions(certs.join(name), fs::Permissions::from_mode(0o600)).unwrap();
        }
        let port = free_port();
        let files = read_setting_files("default");
        let here = |text: &str| text.replace("/etc/gaunt", folder.path().to_str().unwrap());
        let [node_settings, node_web, settings, web] = files.map(|text| here(&text));
        fs::write(path("node.toml"), node_settings).unwrap();
        fs::write(path("web.yml"), node_web).unwrap();
        let node_address = format!("127.0.0.1:{port}");
        let node = TestProcess::start_command(
            Command::new(program_path("gaunt-node"))
                .args(["--config", path("node.toml").to_str().unwrap()])
                .args(["--listen", &node_address, "--node", "gpu001", "--disable", "nvml,kubelet"]),
        );
        node.line_with("serving /metrics");
        let (user_node, user_node_address) = start_user_node(folder.path());
        // Each program has its own folder in a pod.
        fs::write(path("aggregator.yml"), web).unwrap();
        let settings = settings.replace("/web.yml", "/aggregator.yml");
        let names = settings.lines().find(|line| line.starts_with("dns_sd = ")).unwrap();
        let settings = settings
            .replace(names, &format!("targets = [\"gpu001={node_address}\"]"))
            .replace("[\"10.0.0.0/8\"", "[\"127.0.0.0/8\"")
            .replace("0.0.0.0:9771", "127.0.0.1:0")
            .replace("\"/var/lib/gaunt\"", &format!("\"{}\"", path("state").display()));
        fs::write(path("gaunt.toml"), settings + &further_servers(&user_node_address)).unwrap();
        let mut command = Command::new(program_path("gaunt"));
        command.args(["serve", "--log", "debug", "--config", path("gaunt.toml").to_str().unwrap()]);
        let aggregator = TestProcess::start_command(&mut command);
        let address = aggregator.served_address();
        Self { folder, node, node_address, user_node, user_node_address, aggregator, address }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Status and body of a request to the aggregator with this token.
    fn request(&self, method: &str, path: &str, token: &str, body: &str) -> (String, String) {
        self.send_request(
            &self.address,
            &format!("{method} {path}"),
            &format!("Bearer {token}"),
            body,
        )
    }

    /// Status and body of a request to this address with these credentials.
    fn send_request(&self, address: &str, line: &str, sent: &str, body: &str) -> (String, String) {
        let path = |name: &str| self.path("security").join(name).to_str().unwrap().to_owned();
        let mut command = debian_program("openssl");
        command.args(["s_client", "-quiet", "-verify_return_error", "-connect", address]);
        command.args(["-CAfile", &path("ca.pem"), "-cert", &path("client-gaunt.pem")]);
        command.args(["-key", &path("client-gaunt.key")]);
        let request = format!(
            "{line} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Length: {}\r\n\
             Authorization: {sent}\r\n\r\n{body}",
            body.len()
        );
        let answer = with_input(command, &request);
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        (head.split(' ').nth(1).unwrap_or_default().to_owned(), body.to_owned())
    }

    fn run_client(&self, arguments: &[&str], token: &str) -> Output {
        let mut command = Command::new(program_path("gaunt"));
        command.args(arguments).args(["--aggregator", &format!("https://{}", self.address)]);
        command.args(["--ca-file", self.path("security/ca.pem").to_str().unwrap()]);
        command.args(["--token-file", self.path("security").join(token).to_str().unwrap()]);
        command.run_to_end()
    }
}

/// A node whose page is for a user, and which logs all that it can, with its address.
fn start_user_node(folder: &Path) -> (TestProcess, String) {
    let web = folder.join("users.yml");
    let text = format!(
        "tls_server_config: {{cert_file: security/gaunt-node.pem, key_file: security/gaunt-node.key}}\n\
         basic_auth_users: {{{}: '{HASH}'}}\n",
        SCRAPER.0
    );
    fs::write(&web, text).unwrap();
    let node = TestProcess::start_command(
        Command::new(program_path("gaunt-node"))
            .env("RUST_LOG", "debug")
            .args(["--listen", "127.0.0.1:0", "--web-config", web.to_str().unwrap()])
            .args(["--node", "gpu002", "--disable", "nvml,kubelet"]),
    );
    let address = node.served_address();
    (node, address)
}

/// The settings of the second node, and of a node and servers that are away: errors quote what could not be reached.
fn further_servers(user_node: &str) -> String {
    format!(
        "\n[[gather.groups]]\nname = \"users\"\nscheme = \"https\"\ntargets = [\"gpu002={user_node}\", \
         \"gpu003=127.0.0.1:9\"]\n\
         tls = {{ ca_file = \"security/ca.pem\" }}\n\
         basic = {{ user = \"{}\", password_file = \"security/scraper\" }}\n\
         [alertmanager]\nurls = [\"https://127.0.0.1:1\"]\n\
         basic = {{ user = \"alerts\", password_file = \"security/alerts\" }}\n\
         [store]\nurl = \"https://127.0.0.1:1/api/v1/write\"\nevery = \"1s\"\n\
         bearer_file = \"security/store\"\n",
        SCRAPER.0
    )
}

/// What a program prints when it gets this input.
pub(crate) fn with_input(mut command: Command, input: &str) -> String {
    use std::{io::Write as _, process::Stdio};

    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // The server may have refused the handshake before all is written.
    _ = stdin.write_all(input.as_bytes());
    let output = child.wait_with_output().unwrap();
    drop(stdin);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Whether a handshake with these options of OpenSSL succeeds, down to a response to a request.
fn is_answered(address: &str, options: &[&str]) -> bool {
    let mut command = debian_program("openssl");
    command.args(["s_client", "-quiet", "-connect", address]).args(options);
    with_input(command, "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        .starts_with("HTTP/1.1 200")
}

#[test]
fn default_installation_is_encrypted_and_answers_known_clients_only() {
    let install = SecuredInstall::start();
    let live = wait_for("a refusal", || {
        let output = install.run_client(&["snapshot", "--ask", "nodes"], "reader");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        // No token of the settings yet.
        (output.status.code() == Some(3)).then_some(text)
    });
    assert!(live.is_empty(), "{live}");

    // Another token is read on SIGHUP.
    let settings = fs::read_to_string(install.path("gaunt.toml")).unwrap();
    let tokens = [("reader", "read"), ("on-call", "acknowledge")].map(|(name, role)| {
        let file = install.path("security").join(name);
        format!("[[serve.tokens]]\nname = \"{name}\"\nrole = \"{role}\"\nfile = {file:?}\n")
    });
    fs::write(install.path("gaunt.toml"), settings + "\n" + &tokens.concat()).unwrap();
    install.aggregator.send_signal(rustix::process::Signal::HUP);
    install.aggregator.line_with("reloaded targets, credentials, roles");
    wait_for("the nodes that are read over mTLS and with a password", || {
        let output = install.run_client(&["snapshot", "--ask", "nodes"], "reader");
        let text = String::from_utf8_lossy(&output.stdout);
        (text.contains("gpu001") && text.contains("gpu002")).then_some(())
    });

    let api = "/api/gaunt/v1";
    let ack = format!("{api}/findings/target_down/gpu001/acknowledge");
    for (method, path, token, status) in [
        ("GET", "/healthz", "", "200"),
        ("GET", "/metrics", "", "401"),
        ("GET", "/metrics", "wrong-token-of-16-chars", "401"),
        ("GET", "/metrics", READER, "200"),
        ("GET", &format!("{api}/overview"), ON_CALL, "200"),
        ("POST", &ack, READER, "403"),
        // No such finding is open.
        ("POST", &ack, ON_CALL, "404"),
        ("GET", &format!("{api}/peer"), ON_CALL, "403"),
        ("POST", &format!("{api}/probe/meeting"), ON_CALL, "403"),
        ("GET", &format!("{api}/recording"), "", "401"),
    ] {
        let body = if method == "POST" { r#"{"by": "alice"}"# } else { "" };
        let (answered, text) = install.request(method, path, token, body);
        assert_eq!(answered, status, "{method} {path} with {token}: {text}");
    }
    check_protocols(&install);
    check_expiry(&install);
    check_secrets(install);
}

/// What `testssl` would complain about.
fn check_protocols(install: &SecuredInstall) {
    let security = |name: &str| install.path("security").join(name).to_str().unwrap().to_owned();
    let (cert, key) = (security("client-gaunt.pem"), security("client-gaunt.key"));
    let known = ["-cert", &cert, "-key", &key];
    assert!(!is_answered(&install.node_address, &[]), "without a certificate");
    for (address, identity) in [(&install.node_address, &known[..]), (&install.address, &[][..])] {
        let is_answered = |options: &[&str]| is_answered(address, &[options, identity].concat());
        for accepted in [
            &["-tls1_3"][..],
            &["-tls1_2"],
            &["-tls1_2", "-cipher", "ECDHE-ECDSA-AES128-GCM-SHA256"],
            &["-tls1_2", "-cipher", "ECDHE-ECDSA-CHACHA20-POLY1305"],
        ] {
            assert!(is_answered(accepted), "{address}: {accepted:?}");
        }
        for refused in [
            // OpenSSL itself offers these only at its lowest security level.
            &["-tls1", "-cipher", "ALL:@SECLEVEL=0"][..],
            &["-tls1_1", "-cipher", "ALL:@SECLEVEL=0"],
            &["-tls1_2", "-cipher", "AES128-SHA256:AES256-GCM-SHA384"],
            &["-tls1_2", "-cipher", "ECDHE-ECDSA-AES128-SHA:ECDHE-ECDSA-AES256-SHA384"],
            &["-tls1_2", "-cipher", "aNULL:eNULL:@SECLEVEL=0"],
            &["-tls1_2", "-cipher", "DHE:3DES:RC4:@SECLEVEL=0"],
        ] {
            assert!(!is_answered(refused), "{address}: {refused:?}");
        }
    }
}

/// The certificates of both nodes and of the aggregator end within a week: each is a finding.
fn check_expiry(install: &SecuredInstall) {
    wait_for("a finding of each certificate", || {
        let (_, text) = install.request("GET", "/api/gaunt/v1/findings", READER, "");
        let list: Value = serde_json::from_str(&text).ok()?;
        let findings = list["findings"].as_array()?.iter();
        let mut expiring: Vec<String> = findings
            .filter(|finding| finding["kind"] == "certificate_expiring")
            .filter(|finding| finding["summary"].as_str().unwrap().contains(" expires in 6d23h"))
            .map(|finding| finding["id"].as_str().unwrap().to_owned())
            .collect();
        expiring.sort_unstable();
        (expiring.len() == 3).then_some(expiring)
    });
}

/// Neither logs, arguments, metrics, errors, state nor a support bundle has a token, a password, a hash or a key.
fn check_secrets(install: SecuredInstall) {
    let key = fs::read_to_string(install.path("security/client-gaunt.key")).unwrap();
    let key_line = key.lines().nth(1).unwrap().to_owned();
    let secrets = [
        ADMIN,
        READER,
        ON_CALL,
        STORE_BEARER,
        ALERT_PASSWORD,
        URL_PASSWORD,
        SCRAPER.1,
        SCRAPER_CREDENTIALS,
        HASH,
        &key_line,
        "BEGIN PRIVATE KEY",
    ];
    let check = |what: &str, text: &str| {
        for secret in secrets {
            assert!(!text.contains(secret), "{what} has {secret}");
        }
    };
    wait_for("errors of the servers that are away", || {
        let (_, text) = install.request("GET", "/api/gaunt/v1/coverage", ADMIN, "");
        let coverage: Value = serde_json::from_str(&text).ok()?;
        let checks = coverage["checks"].as_array()?;
        let is_missing =
            |kind: &str| checks.iter().any(|it| it["kind"] == kind && it["state"] == "missing");
        (is_missing("alertmanagers") && is_missing("store")).then_some(())
    });
    check_errors(&install, &check);
    check_bundle(&install, &check);

    for path in ["/metrics", "/api/gaunt/v1/targets", "/sd/http", "/api/gaunt/v1/coverage"] {
        check(path, &install.request("GET", path, ADMIN, "").1);
    }
    let (_, page) = install.request("GET", "/metrics", ADMIN, "");
    assert!(page.contains("gaunt_certificate_expiry_timestamp_seconds{file="), "{page}");
    let basic = format!("Basic {SCRAPER_CREDENTIALS}");
    for address in [&install.node_address, &install.user_node_address] {
        let (status, page) = install.send_request(address, "GET /metrics", &basic, "");
        assert_eq!(status, "200", "{page}");
        check("the page of a node", &page);
    }
    let wrong = format!("Basic {}", &SCRAPER_CREDENTIALS[..8]);
    let (status, text) =
        install.send_request(&install.user_node_address, "GET /metrics", &wrong, "");
    assert_eq!(status, "401", "{text}");
    check("a refusal", &text);
    visit_files(&install.path("state"), &mut |path| {
        check("the state", &String::from_utf8_lossy(&fs::read(path).unwrap()));
    });
    let processes = [install.aggregator, install.node, install.user_node];
    for process in &processes {
        let pid = process.process_id().as_raw_nonzero();
        let arguments = fs::read(format!("/proc/{pid}/cmdline")).unwrap();
        check("the arguments", &String::from_utf8_lossy(&arguments));
    }
    for process in processes {
        check("the log", &process.lines_until_end());
    }
}

/// Errors of programs that are given a secret in an address, or in the environment.
fn check_errors(install: &SecuredInstall, check: &dyn Fn(&str, &str)) {
    let url = format!("https://user:{URL_PASSWORD}@127.0.0.1:1");
    let settings = install.path("addresses.toml");
    for section in [
        format!("[alertmanager]\nurls = [\"{url}\"]\n"),
        format!("[store]\nurl = \"{url}/api/v1/write\"\n"),
        format!("[prometheus]\nurl = \"{url}\"\n"),
        format!("[serve.peers]\nurls = [\"{url}\"]\n"),
        format!("[console]\naggregator = \"{url}\"\n"),
        format!("[[gather.groups]]\nname = \"a\"\nhttp_sd = [{{ url = \"{url}/sd\" }}]\n"),
        format!("[[gather.groups]]\nname = \"a\"\ntargets = [\"{url}\"]\n"),
    ] {
        fs::write(&settings, &section).unwrap();
        let settings = settings.to_str().unwrap();
        for arguments in [
            &["check-config", "--config", settings][..],
            &["serve", "--log", "debug", "--listen", "127.0.0.1:1", "--config", settings],
            &["snapshot", "--log", "debug", "--config", settings],
        ] {
            let output = run_gaunt(arguments);
            let text = [output.stdout, output.stderr].concat();
            check(&format!("{arguments:?} of {section:?}"), &String::from_utf8_lossy(&text));
        }
    }
    let mut command = Command::new(program_path("gaunt"));
    command.args([
        "doctor",
        "--log",
        "debug",
        "--aggregator",
        &format!("https://{}", install.address),
    ]);
    command.args(["--ca-file", install.path("security/ca.pem").to_str().unwrap()]);
    let output = command.env("GAUNT_TOKEN", READER).run_to_end();
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    // The servers that are away are among the checks: the token was right.
    assert!(text.contains("https://127.0.0.1:1"), "{text}");
    check("a doctor with a token in its environment", &text);
}

/// The support bundle with the settings.
fn check_bundle(install: &SecuredInstall, check: &dyn Fn(&str, &str)) {
    let bundle = install.path("bundle.tar.gz");
    let added = ["gaunt.toml", "addresses.toml"].map(|name| install.path(name));
    let added = added.iter().flat_map(|path| ["--add", path.to_str().unwrap()]);
    let arguments: Vec<&str> =
        ["support-bundle", "--to", bundle.to_str().unwrap()].into_iter().chain(added).collect();
    let made = install.run_client(&arguments, "on-call");
    assert!(made.status.success(), "{made:?}");
    assert_eq!(fs::metadata(&bundle).unwrap().permissions().mode() & 0o777, 0o600);
    let unpacked = install.path("unpacked");
    fs::create_dir(&unpacked).unwrap();
    let tar = Command::new("tar").arg("-xzf").arg(&bundle).arg("-C").arg(&unpacked).run_to_end();
    assert!(tar.status.success(), "{tar:?}");
    let mut names = Vec::new();
    visit_files(&unpacked, &mut |path| {
        check("the bundle", &String::from_utf8_lossy(&fs::read(path).unwrap()));
        names.push(path.file_name().unwrap().to_str().unwrap().to_owned());
    });
    for name in ["overview.json", "coverage.json", "doctor.txt", "gaunt.toml", "manifest.json"] {
        assert!(names.iter().any(|it| it == name), "{name} is not among {names:?}");
    }
    let manifest = unpacked.join("gaunt-support/manifest.json");
    let manifest: Value = serde_json::from_str(&fs::read_to_string(manifest).unwrap()).unwrap();
    assert_eq!(manifest["missing"], serde_json::json!([]));
}

fn visit_files(folder: &Path, visit: &mut dyn FnMut(&Path)) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { visit_files(&path, visit) } else { visit(&path) }
    }
}
