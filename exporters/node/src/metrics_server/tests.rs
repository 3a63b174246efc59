//! The server with a web configuration, over real connections.

use std::{fs, path::Path, process::Command};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use http_body_util::{BodyExt as _, Empty};
use hyper::{Version, client::conn::http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{CertificateParams, KeyPair};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    task::JoinHandle,
};
use tokio_rustls::{
    TlsConnector,
    client::TlsStream,
    rustls::{
        ClientConfig, RootCertStore,
        crypto::ring,
        pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject as _},
    },
};

use super::*;

mod public_connections;

/// A server, and the folder with its `server.crt`, `server.key` and `web.yml`.
struct SecureServer {
    folder: tempfile::TempDir,
    address: SocketAddr,
    serving: JoinHandle<()>,
    /// Keeps what is served.
    _senders: SenderSet,
}

type SenderSet = (
    watch::Sender<Arc<MetricsPage>>,
    watch::Sender<HostNames>,
    watch::Sender<Option<Arc<WebAccess>>>,
);

impl SecureServer {
    /// Starts a server with TLS and these further lines of its configuration.
    async fn start_server(lines: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        write_server_files(folder.path(), lines);
        Self::serve_folder(folder, "web.yml").await
    }

    /// Starts a server with a web configuration of this folder.
    async fn serve_folder(folder: tempfile::TempDir, name: &str) -> Self {
        let access = WebAccess::from_file(&folder.path().join(name)).unwrap();
        let page = MetricsPage::new(Arc::default(), gaunt_schema::text::CompatOptions::default());
        let senders = (
            watch::Sender::new(Arc::new(page)),
            watch::Sender::new(host_names(&[])),
            watch::Sender::new(Some(Arc::new(access))),
        );
        let served = ServedPages {
            pages: senders.0.subscribe(),
            names: senders.1.subscribe(),
            ras_requests: watch::Sender::new(0),
            access: senders.2.subscribe(),
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let serving = tokio::spawn(serve_pages(listener, served));
        Self { folder, address, serving, _senders: senders }
    }

    async fn connect(&self, config: ClientConfig) -> io::Result<TlsStream<TcpStream>> {
        let stream = TcpStream::connect(self.address).await?;
        let name = ServerName::try_from("localhost").unwrap();
        TlsConnector::from(Arc::new(config)).connect(name, stream).await
    }

    /// A connection of a client that offers HTTP/2 too, and whether it was chosen.
    async fn connect_http2(&self) -> (TlsStream<TcpStream>, bool) {
        let mut config = client_config(self.folder.path(), false);
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let stream = self.connect(config).await.unwrap();
        let is_chosen = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        (stream, is_chosen)
    }

    /// The answer to a request with these header lines, or the error.
    async fn send_request(&self, headers: &str, with_certificate: bool) -> io::Result<String> {
        let config = client_config(self.folder.path(), with_certificate);
        let mut stream = self.connect(config).await?;
        let request = format!(
            "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}\r\n"
        );
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok(answer)
    }
}

/// Writes a new certificate, its key, and a web configuration with TLS and these further lines.
fn write_server_files(folder: &Path, lines: &str) {
    let pair = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    fs::write(folder.join("server.crt"), params.self_signed(&pair).unwrap().pem()).unwrap();
    fs::write(folder.join("server.key"), pair.serialize_pem()).unwrap();
    let text =
        format!("tls_server_config:\n  cert_file: server.crt\n  key_file: server.key\n{lines}");
    fs::write(folder.join("web.yml"), text).unwrap();
}

fn client_config(folder: &Path, with_certificate: bool) -> ClientConfig {
    let certificate = CertificateDer::from_pem_file(folder.join("server.crt")).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(certificate.clone()).unwrap();
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    if !with_certificate {
        return builder.with_no_client_auth();
    }
    let key = PrivateKeyDer::from_pem_file(folder.join("server.key")).unwrap();
    builder.with_client_auth_cert(vec![certificate], key).unwrap()
}

#[tokio::test]
async fn page_is_served_over_tls_to_users_with_the_configured_headers() {
    let hash = bcrypt::hash("right", 4).unwrap();
    let lines = format!(
        "basic_auth_users:\n  alice: {hash}\nhttp_server_config:\n  headers:\n    X-Frame-Options: \
         deny\n"
    );
    let server = SecureServer::start_server(&lines).await;
    let header = |user: &str| format!("Authorization: Basic {}\r\n", STANDARD.encode(user));
    let answer = server.send_request(&header("alice:right"), false).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("ok\n"), "{answer}");
    assert!(answer.contains("x-frame-options: deny\r\n"), "{answer}");
    for wrong in [String::new(), header("alice:wrong"), header("bob:right")] {
        let answer = server.send_request(&wrong, false).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 401 "), "{wrong}: {answer}");
        assert!(answer.contains("www-authenticate: Basic"), "{answer}");
        assert!(!answer.contains("right") && !answer.contains(&hash), "{answer}");
    }
    let mut plain = TcpStream::connect(server.address).await.unwrap();
    plain.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    // Closed or reset: nothing is answered in plaintext.
    _ = plain.read_to_end(&mut answer).await;
    assert!(!answer.starts_with(b"HTTP"), "answered in plaintext");
}

#[tokio::test]
async fn running_server_uses_a_changed_certificate_and_changed_users() {
    let users = |name: &str| {
        format!("basic_auth_users:\n  {name}: {}\n", bcrypt::hash("right", 4).unwrap())
    };
    let header = |user: &str| format!("Authorization: Basic {}\r\n", STANDARD.encode(user));
    let server = SecureServer::start_server(&users("alice")).await;
    let answer = server.send_request(&header("alice:right"), false).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    write_server_files(server.folder.path(), &users("bob"));
    // The client trusts the new certificate alone: until the files are read again, it rejects the server.
    let answer = tokio::time::timeout(Duration::from_mins(1), async {
        loop {
            match server.send_request(&header("bob:right"), false).await {
                Ok(answer) if answer.starts_with("HTTP/1.1 200 ") => break answer,
                _ => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    });
    assert!(answer.await.unwrap().ends_with("ok\n"));
    let answer = server.send_request(&header("alice:right"), false).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 401 "), "{answer}");
}

#[tokio::test]
async fn client_certificate_is_required_and_must_have_an_allowed_name() {
    for (names, is_accepted) in [("localhost", true), ("other", false)] {
        let lines = format!(
            "  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: server.crt\n  \
             client_allowed_sans: [{names}]\n"
        );
        let server = SecureServer::start_server(&lines).await;
        let answer = server.send_request("", true).await;
        let is_answered = answer.is_ok_and(|answer| answer.starts_with("HTTP/1.1 200 "));
        assert_eq!(is_answered, is_accepted, "{names}");
        assert!(server.send_request("", false).await.is_err(), "without a certificate");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls_has_no_old_versions_and_no_weak_suites() {
    let server = SecureServer::start_server("").await;
    for (arguments, is_accepted) in [
        (vec!["-tls1_3"], true),
        (vec!["-tls1_2"], true),
        (vec!["-tls1_2", "-cipher", "ECDHE-ECDSA-AES128-GCM-SHA256"], true),
        (vec!["-tls1_1", "-cipher", "ALL:@SECLEVEL=0"], false),
        (vec!["-tls1", "-cipher", "ALL:@SECLEVEL=0"], false),
        (vec!["-tls1_2", "-cipher", "ECDHE-ECDSA-AES128-SHA:@SECLEVEL=0"], false),
        (vec!["-tls1_2", "-cipher", "aNULL:eNULL:@SECLEVEL=0"], false),
        (vec!["-tls1_2", "-cipher", "kRSA:kDHE:@SECLEVEL=0"], false),
    ] {
        let mut command = Command::new("openssl");
        command.args(["s_client", "-brief", "-connect", &server.address.to_string()]);
        command.args(&arguments).stdin(std::process::Stdio::null());
        let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap();
        let output = output.expect("openssl is installed");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        let is_connected = text.contains("CONNECTION ESTABLISHED");
        assert_eq!(is_connected, is_accepted, "{arguments:?}: {text}");
    }
}

#[tokio::test]
async fn http2_answers_many_requests_of_one_connection_and_ends_with_a_notice() {
    let server = SecureServer::start_server("").await;
    let (stream, is_chosen) = server.connect_http2().await;
    assert!(is_chosen);
    let handshake = http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
    let (sender, connection) = handshake.await.unwrap();
    let connection = tokio::spawn(connection);
    let send = |uri: &'static str, header: String| {
        let mut sender = sender.clone();
        let request = Request::get(uri).header("x-header", header).body(Empty::<Bytes>::new());
        async move {
            sender.ready().await.unwrap();
            let response = sender.send_request(request.unwrap()).await.unwrap();
            assert_eq!(response.version(), Version::HTTP_2);
            let status = response.status();
            (status, response.into_body().collect().await.unwrap().to_bytes())
        }
    };
    let (status, _) = send("https://evil.example/healthz", String::new()).await;
    assert_eq!(status, StatusCode::MISDIRECTED_REQUEST);
    // The client knows the server's limits now, and asks for more than it answers at once.
    let answers: Vec<_> =
        (0..40).map(|_| tokio::spawn(send("https://localhost/healthz", String::new()))).collect();
    for answer in answers {
        assert_eq!(answer.await.unwrap(), (StatusCode::OK, Bytes::from_static(b"ok\n")));
    }
    let (status, _) = send("https://localhost/healthz", "x".repeat(20 << 10)).await;
    assert_eq!(status, StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
    // The client that holds it is told that it ends, which no error of the connection does.
    server.serving.abort();
    connection.await.unwrap().unwrap();

    let server = SecureServer::start_server("http_server_config:\n  http2: false\n").await;
    let (_, is_chosen) = server.connect_http2().await;
    assert!(!is_chosen, "switched off");
}
