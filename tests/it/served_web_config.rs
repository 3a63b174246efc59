//! `gaunt serve` with a web configuration: users, client certificates, headers, HTTP/2 and a rate limit over real
//! connections, and what changes while it runs.

#![expect(clippy::unwrap_used, reason = "what fails in here fails the test that called it")]

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::PathBuf,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use tempfile::TempDir;

use crate::{
    binaries::program_path,
    secured_install::with_input,
    test_process::{TestProcess, debian_program, run_gaunt, wait_for},
    tls_connections::{HASH, PASSWORD},
};

/// The token with the role to read, and that of the administrator.
const READER: &str = "token-of-those-who-read";
const ADMIN: &str = "token-of-the-administrator";

/// `alice` and her password, as a client sends them, with a wrong password, and another user.
const ALICE: &str = "Basic YWxpY2U6Ymx1ZSBjYWJsZQ==";
const WRONG: &str = "Basic YWxpY2U6cmVkIGNhYmxl";
const OTHER: &str = "Basic Ym9iOmJsdWUgY2FibGU=";

/// An aggregator with TLS, and the folder of its files.
pub(crate) struct WebAggregator {
    folder: TempDir,
    process: TestProcess,
    pub(crate) address: String,
    /// The folder within it of the CA that its client trusts.
    certs: &'static str,
}

/// Status, headers in lower case, and body.
type Answer = (String, String, String);

impl WebAggregator {
    /// Starts it with TLS and these further lines of its web configuration.
    pub(crate) fn start(lines: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        create_certificates(&folder, "certs");
        write_web(&folder, "certs", lines);
        for (name, token) in [("reader", READER), ("admin", ADMIN)] {
            let path = folder.path().join(name);
            fs::write(&path, token).unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
        }
        let settings = "[gather]\ntargets = [\"127.0.0.1:9\"]\n[serve]\nlisten = \"127.0.0.1:0\"\nweb_config = \
                        \"web.yml\"\ntoken_file = \"admin\"\n[[serve.tokens]]\nname = \"reader\"\nrole = \
                        \"read\"\nfile = \"reader\"\n";
        let path = folder.path().join("gaunt.toml");
        fs::write(&path, settings).unwrap();
        let mut command = Command::new(program_path("gaunt"));
        let process =
            TestProcess::start_command(command.args(["serve", "--config", path.to_str().unwrap()]));
        let address = process.served_address();
        Self { folder, process, address, certs: "certs" }
    }

    /// A file of its folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// OpenSSL's client, which verifies the server, with these options.
    fn client(&self, options: &[&str]) -> Command {
        let mut command = debian_program("openssl");
        command.args(["s_client", "-connect", &self.address, "-verify_return_error"]);
        command.args(["-verify_ip", "127.0.0.1", "-CAfile", &format!("{}/ca.pem", self.certs)]);
        command.args(options).current_dir(self.folder.path());
        command
    }

    /// The answer to a request with this header `Authorization`; none if the connection is refused.
    fn request(&self, line: &str, sent: &str, options: &[&str]) -> Option<Answer> {
        let sent =
            if sent.is_empty() { String::new() } else { format!("Authorization: {sent}\r\n") };
        let text = format!(
            "{line} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Length: 0\r\n{sent}\r\n",
            self.address
        );
        let answer = with_input(self.client(&[&["-quiet"], options].concat()), &text);
        let (head, body) = answer.split_once("\r\n\r\n")?;
        let status = head.split(' ').nth(1)?.to_owned();
        Some((status, head.to_lowercase(), body.to_owned()))
    }

    /// The status of a request for the overview.
    fn status(&self, sent: &str) -> String {
        self.request("GET /api/gaunt/v1/overview", sent, &[]).map_or_else(String::new, |it| it.0)
    }

    /// The protocol that the server chooses among these.
    fn chosen_protocol(&self, offered: &str) -> String {
        let mut command = self.client(&["-alpn", offered]);
        let output = command.stdin(Stdio::null()).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let line = text.lines().find_map(|line| line.strip_prefix("ALPN protocol: "));
        line.unwrap_or_default().to_owned()
    }
}

/// A CA, and certificates of one server and two clients.
fn create_certificates(folder: &TempDir, name: &str) {
    let certs = folder.path().join(name);
    let made = run_gaunt(&[
        "certs",
        "--to",
        certs.to_str().unwrap(),
        "--server",
        "127.0.0.1",
        "--client",
        "known",
        "--client",
        "stranger",
    ]);
    assert!(made.status.success(), "{made:?}");
}

/// Writes the web configuration with these certificates and further lines, at once.
fn write_web(folder: &TempDir, certs: &str, lines: &str) {
    let text = format!(
        "tls_server_config:\n  cert_file: {certs}/127.0.0.1.pem\n  key_file: {certs}/127.0.0.1.key\n{lines}"
    );
    fs::write(folder.path().join("web.new"), text).unwrap();
    fs::rename(folder.path().join("web.new"), folder.path().join("web.yml")).unwrap();
}

/// The section of users.
fn users(names: &[&str]) -> String {
    let lines = names.iter().map(|name| format!("  {name}: '{HASH}'\n"));
    format!("basic_auth_users:\n{}", lines.collect::<String>())
}

#[test]
fn users_headers_and_http2_of_gaunt_serve_are_those_of_its_web_configuration_and_change_with_it() {
    assert_eq!(PASSWORD, "blue cable", "the one in the headers above");
    let headers = "http_server_config:\n  headers:\n    X-Frame-Options: sameorigin\n";
    let mut server = WebAggregator::start(&(users(&["alice"]) + headers));
    let bearer = |token: &str| format!("Bearer {token}");
    for (sent, status) in [
        ("", "401"),
        (ALICE, "200"),
        (WRONG, "401"),
        (OTHER, "401"),
        (&bearer(READER), "200"),
        (&bearer(ADMIN), "200"),
        (&bearer("token-of-nobody-at-all"), "401"),
    ] {
        assert_eq!(server.status(sent), status, "{sent}");
    }
    let (_, head, _) = server.request("GET /metrics", "", &[]).unwrap();
    assert!(head.contains("\r\nwww-authenticate: basic realm="), "{head}");
    assert!(head.contains("\r\nx-frame-options: sameorigin"), "{head}");
    let (status, head, page) = server.request("GET /metrics", ALICE, &[]).unwrap();
    assert!(status == "200" && page.contains("gaunt_"), "{head}");
    assert!(head.contains("\r\nx-frame-options: sameorigin"), "{head}");
    // A user may read: acting needs a token with a role.
    let act = "DELETE /api/gaunt/v1/findings/target_down/nothing/acknowledge?by=alice";
    for (sent, status) in [(ALICE, "401"), (&bearer(READER), "403"), (&bearer(ADMIN), "404")] {
        assert_eq!(server.request(act, sent, &[]).unwrap().0, status, "{sent}");
    }
    assert_eq!(server.chosen_protocol("h2,http/1.1"), "h2");
    assert_eq!(server.chosen_protocol("http/1.1"), "http/1.1");

    // A user who leaves, another header, HTTP/2 off, and another certificate, without a restart.
    create_certificates(&server.folder, "new");
    let lines =
        headers.replace("sameorigin", "deny").replace("  headers", "  http2: false\n  headers");
    write_web(&server.folder, "new", &(users(&["bob"]) + &lines));
    server.certs = "new";
    // Until it is read again the new CA does not know the server.
    wait_for("the new certificate and users", || (server.status(OTHER) == "200").then_some(()));
    assert_eq!(server.status(ALICE), "401", "she left");
    assert_eq!(server.status(&bearer(READER)), "200");
    let (_, head, _) = server.request("GET /metrics", OTHER, &[]).unwrap();
    assert!(head.contains("\r\nx-frame-options: deny"), "{head}");
    assert_eq!(server.chosen_protocol("h2,http/1.1"), "http/1.1");
    // A file with an error changes nothing, and is reported.
    write_web(&server.folder, "new", "basic_auth_users:\n  alice: blue cable\n");
    let written = Instant::now();
    // Files are looked at once a second, when a request arrives.
    wait_for("the next look", || {
        assert_eq!(server.status(OTHER), "200");
        (written.elapsed() > Duration::from_secs(1)).then_some(())
    });
    assert_eq!(server.status(OTHER), "200");
    server.process.line_with("web configuration not reloaded");
}

#[test]
fn rate_limit_of_gaunt_serve_counts_from_the_next_reading_of_its_web_configuration() {
    let server = WebAggregator::start("");
    for _ in 0..8 {
        assert_eq!(server.status(""), "200");
    }
    write_web(&server.folder, "certs", "rate_limit:\n  interval: 1h\n  burst: 2\n");
    let limited = wait_for("the limit", || {
        server.request("GET /metrics", "", &[]).filter(|(status, _, _)| status == "429")
    });
    let (_, head, body) = limited;
    let wait = head.lines().find_map(|line| line.strip_prefix("retry-after: ")).unwrap();
    assert!((3_000..=3_600).contains(&wait.parse::<u32>().unwrap()), "{head}");
    assert_eq!(body, "too many requests; try again later\n");
    // A token does not lift it.
    assert_eq!(server.status(&format!("Bearer {ADMIN}")), "429");
}

#[test]
fn client_certificates_of_gaunt_serve_are_required_and_must_have_an_allowed_name() {
    let server = WebAggregator::start(
        "  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: certs/ca.pem\n  \
         client_allowed_sans: [known]\n",
    );
    let overview = "GET /api/gaunt/v1/overview";
    let files =
        |name: &str| [format!("certs/client-{name}.pem"), format!("certs/client-{name}.key")];
    let [cert, key] = files("known");
    let known = ["-cert", &cert, "-key", &key];
    let (status, _, body) = server.request(overview, "", &known).unwrap();
    assert_eq!(status, "200", "a certificate is enough to read: {body}");
    let act = "DELETE /api/gaunt/v1/findings/target_down/nothing/acknowledge?by=alice";
    assert_eq!(server.request(act, "", &known).unwrap().0, "401", "and not to act");
    let [cert, key] = files("stranger");
    for refused in [&["-cert", &cert, "-key", &key][..], &[]] {
        assert_eq!(server.request(overview, "", refused), None, "{refused:?}");
    }
    // Another CA's.
    let other = tempfile::tempdir().unwrap();
    create_certificates(&other, "certs");
    let [cert, key] = files("known").map(|file| other.path().join(file).display().to_string());
    assert_eq!(server.request(overview, "", &["-cert", &cert, "-key", &key]), None);
}
