//! Servers with the web configurations of exporter-toolkit's own tests: clients are answered and refused as there.

use std::process::{Output, Stdio};

use super::*;

/// How a connection of OpenSSL ends.
#[derive(Clone, Copy)]
enum Ending {
    /// With a response of this status.
    Answered(u16),
    /// With 200, over this cipher suite.
    Over(&'static str),
    /// Without a response.
    Refused,
}

use Ending::{Answered, Over, Refused};

/// A file, OpenSSL's options, user and password, and how the connection ends.
type TlsCase = (&'static str, &'static str, &'static str, Ending);

const GOOD: &str = "web_config_noAuth.good.yml";
const SOME_CIPHERS: &str = "web_config_noAuth_someCiphers.good.yml";
const SOME_CURVES: &str = "web_config_noAuth_someCurves.good.yml";
const ANY_CERTIFICATE: &str = "tls_config_noAuth.requireanyclientcert.good.yml";
const KNOWN_CERTIFICATE: &str = "tls_config_noAuth.requireandverifyclientcert.good.yml";
const USERS: &str = "web_config_users.good.yml";
const TWO_SUITES: &str = "-tls1_2 -cipher ECDHE-RSA-AES128-GCM-SHA256:ECDHE-RSA-AES256-GCM-SHA384";
const FIRST: &str = "-cert client_selfsigned.pem -key client_selfsigned.key";
const SECOND: &str = "-cert client2_selfsigned.pem -key client2_selfsigned.key";

/// Upstream's cases, and further clients of the same files. Its list of one curve is where gaunt differs: it does not have
/// P-521, and offers P-384 in its place.
const TLS_CASES: [TlsCase; 31] = [
    (GOOD, "", "", Answered(200)),
    (GOOD, "-tls1_1 -cipher ALL:@SECLEVEL=0", "", Refused),
    ("web_config_noAuth_tlsInline.good.yml", "", "", Answered(200)),
    ("web_config_noAuth_allCiphers.good.yml", "", "", Answered(200)),
    (SOME_CIPHERS, "-cipher ECDHE-RSA-AES128-GCM-SHA256", "", Answered(200)),
    (SOME_CIPHERS, "-cipher ECDHE-RSA-AES256-SHA:@SECLEVEL=0", "", Refused),
    (SOME_CIPHERS, "-cipher ECDHE-RSA-CHACHA20-POLY1305", "", Refused),
    (SOME_CIPHERS, "-tls1_3", "", Refused),
    (SOME_CIPHERS, TWO_SUITES, "", Over("ECDHE-RSA-AES128-GCM-SHA256")),
    (
        "web_config_noAuth_someCiphers_noOrder.good.yml",
        TWO_SUITES,
        "",
        Over("ECDHE-RSA-AES128-GCM-SHA256"),
    ),
    ("web_config_noAuth_allCurves.good.yml", "", "", Answered(200)),
    (SOME_CURVES, "-curves P-521", "", Refused),
    (SOME_CURVES, "-curves P-384", "", Answered(200)),
    (SOME_CURVES, "-curves X25519:P-256", "", Refused),
    (SOME_CURVES, "-tls1_2", "", Refused),
    ("web_config_noAuth_noHTTP2.good.yml", "", "", Answered(200)),
    (ANY_CERTIFICATE, FIRST, "", Answered(200)),
    (ANY_CERTIFICATE, "", "", Refused),
    ("tls_config_noAuth.requireanyclientcertkeyinline.good.yml", FIRST, "", Answered(200)),
    (KNOWN_CERTIFICATE, FIRST, "", Answered(200)),
    (KNOWN_CERTIFICATE, SECOND, "", Refused),
    (KNOWN_CERTIFICATE, "", "", Refused),
    ("web_config_auth_client_san.good.yaml", SECOND, "", Answered(200)),
    ("web_config_auth_client_san.good.yaml", FIRST, "", Refused),
    ("web_config_auth_client_san.bad.yaml", SECOND, "", Refused),
    ("web_config_auth_clientCAs_missing.bad.yml", FIRST, "", Refused),
    (USERS, "", "", Answered(401)),
    (USERS, "", "dave:dave123", Answered(200)),
    (USERS, "", "carol:carol123", Answered(200)),
    (USERS, "", "dave:bad", Answered(401)),
    (USERS, "", "nonexistent:nonexistent", Answered(401)),
];

/// The head of a request.
fn request_head(user: &str) -> String {
    let header = match user {
        "" => String::new(),
        user => format!("Authorization: Basic {}\r\n", STANDARD.encode(user)),
    };
    format!("GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{header}\r\n")
}

impl SecureServer {
    /// Starts a server with one of the public files.
    async fn start_public(name: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let files = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/web_config");
        for file in fs::read_dir(files).unwrap() {
            let path = file.unwrap().path();
            fs::copy(&path, folder.path().join(path.file_name().unwrap())).unwrap();
        }
        Self::serve_folder(folder, name).await
    }

    /// What OpenSSL says and receives. It does not verify the server: the public CA is not one by its rules.
    async fn run_openssl(&self, options: &str, user: &str) -> Output {
        let mut command = Command::new("openssl");
        command.args(["s_client", "-brief", "-ign_eof", "-connect", &self.address.to_string()]);
        command.args(options.split_whitespace());
        let command = command.current_dir(self.folder.path()).stdin(Stdio::piped());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let request = request_head(user);
        let run = tokio::task::spawn_blocking(move || {
            // A server that refuses the handshake may have closed the connection.
            _ = io::Write::write_all(&mut child.stdin.take().unwrap(), request.as_bytes());
            child.wait_with_output()
        });
        run.await.unwrap().unwrap()
    }

    /// What a client without TLS receives.
    async fn ask_plainly(&self, user: &str) -> String {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let mut answer = Vec::new();
        // A server with TLS resets the connection.
        _ = stream.write_all(request_head(user).as_bytes()).await;
        _ = stream.read_to_end(&mut answer).await;
        String::from_utf8_lossy(&answer).into_owned()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn public_web_configurations_serve_clients_as_exporter_toolkit_does() {
    let mut servers = std::collections::BTreeMap::new();
    for (name, options, user, expected) in TLS_CASES {
        if !servers.contains_key(name) {
            servers.insert(name, SecureServer::start_public(name).await);
        }
        let output = servers[name].run_openssl(options, user).await;
        let said = String::from_utf8_lossy(&output.stderr);
        let answer = String::from_utf8_lossy(&output.stdout);
        let case = format!("{name} {options} {user}: {said}{answer}");
        match expected {
            Answered(status) => {
                assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{case}");
            }
            Over(suite) => {
                assert!(answer.starts_with("HTTP/1.1 200 "), "{case}");
                assert!(said.contains(&format!("Ciphersuite: {suite}\n")), "{case}");
            }
            Refused => assert!(!answer.contains("HTTP/1.1"), "{case}"),
        }
    }
}

#[tokio::test]
async fn public_web_configurations_without_tls_serve_clients_as_exporter_toolkit_does() {
    for (name, user, answers) in [
        (GOOD, "", ""),
        ("web_config_empty.yml", "", "HTTP/1.1 200 "),
        ("web_config_users_noTLS.good.yml", "", "HTTP/1.1 401 "),
        ("web_config_users_noTLS.good.yml", "dave:dave123", "HTTP/1.1 200 "),
        ("web_config_rate_limiter_one_second.yaml", "", "HTTP/1.1 429 "),
    ] {
        let answer = SecureServer::start_public(name).await.ask_plainly(user).await;
        let is_expected = match answers {
            "" => !answer.contains("HTTP/1.1"),
            head => answer.starts_with(head),
        };
        assert!(is_expected, "{name} {user}: {answer}");
    }
    let server = SecureServer::start_public("web_config_rate_limiter_nonblocking.yaml").await;
    for _ in 0..10 {
        let answer = server.ask_plainly("").await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }
    let server = SecureServer::start_public("web_config_headers.good.yml").await;
    let answer = server.ask_plainly("").await.to_lowercase();
    for header in [
        "x-frame-options: deny\r\n",
        "strict-transport-security: max-age=31536000; includesubdomains\r\n",
        "x-content-type-options: nosniff\r\n",
        "x-xss-protection: 1\r\n",
        "content-security-policy: default-src 'self' *.test.example.net\r\n",
    ] {
        assert!(answer.contains(header), "{header}: {answer}");
    }
}
