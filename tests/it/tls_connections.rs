//! TLS connections: a real Alertmanager with TLS and a password, and an aggregator behind a TLS proxy.

#![expect(clippy::unwrap_used, reason = "what fails in here fails the test that called it")]

use std::{fs, path::PathBuf, process::Command, sync::Arc, thread};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd,
};
use rustix::process::Signal;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        ServerConfig,
        crypto::ring,
        pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    },
};

use crate::{
    alerting_end_to_end::{
        FourPortNode, expected_notification, fetch_alerts, next, serve_webhook, spawn_alertmanager,
    },
    binaries::program_path,
    test_process::{RunToEnd, TestProcess, free_port, get, run_gaunt_until, wait_for},
};

/// A password, and its bcrypt hash.
pub(crate) const PASSWORD: &str = "blue cable";
pub(crate) const HASH: &str = "$2b$04$y1PS.KEo9rrp1ESqdqjWKec6F.7edcn04kC8cyiUO/mNgLKw5Yqy2";

/// A CA, and a certificate for 127.0.0.1 that it has signed.
struct TlsTestCertificates {
    folder: tempfile::TempDir,
}

impl TlsTestCertificates {
    fn new() -> Self {
        Self::create(|_| ())
    }

    /// The same with another certificate of the server.
    fn create(change: impl FnOnce(&mut CertificateParams)) -> Self {
        let certificates = Self { folder: tempfile::tempdir().unwrap() };
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        let name = certificates.folder.path().display().to_string();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let key = KeyPair::generate().unwrap();
        let mut server = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        change(&mut server);
        let server = server.signed_by(&key, &authority).unwrap();
        certificates.write_file("ca.pem", &authority.pem());
        certificates.write_file("server.pem", &server.pem());
        certificates.write_file("server.key", &key.serialize_pem());
        certificates
    }

    fn file_path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write_file(&self, name: &str, text: &str) -> PathBuf {
        fs::write(self.file_path(name), text).unwrap();
        self.file_path(name)
    }

    /// A TLS proxy in front of `upstream`.
    fn serve_tls(&self, upstream: String) -> String {
        let chain = CertificateDer::from_pem_file(self.file_path("server.pem")).unwrap();
        let key = PrivateKeyDer::from_pem_file(self.file_path("server.key")).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![chain], key)
            .unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap().to_string();
        thread::spawn(move || {
            runtime.block_on(async move {
                while let Ok((stream, _)) = listener.accept().await {
                    let (acceptor, upstream) = (acceptor.clone(), upstream.clone());
                    tokio::spawn(async move {
                        let mut front = acceptor.accept(stream).await.ok()?;
                        let mut back = TcpStream::connect(upstream).await.ok()?;
                        tokio::io::copy_bidirectional(&mut front, &mut back).await.ok()
                    });
                }
            });
        });
        address
    }
}

#[test]
fn alertmanager_with_tls_and_password_is_notified_and_settings_are_reloaded() {
    let certificates = TlsTestCertificates::new();
    let machine = FourPortNode::start_node("gpu003");
    let web = certificates.write_file(
        "web.yml",
        &format!(
            "tls_server_config: {{cert_file: server.pem, key_file: server.key}}\n\
             basic_auth_users: {{gaunt: '{HASH}'}}\n"
        ),
    );
    let manager = format!("127.0.0.1:{}", free_port());
    let (hook, posted) = serve_webhook();
    let _manager = spawn_alertmanager(&hook, &manager, Some(&web));
    certificates.write_file("password", "red cable\n");
    let settings = format!(
        "[gather]\ntargets = ['gpu003={}']\n[alertmanager]\nurls = ['https://{manager}']\nevery = '1s'\n\
         tls = {{ ca_file = 'ca.pem' }}\nbasic = {{ user = 'gaunt', password_file = 'password' }}\n",
        machine.address
    );
    let file = certificates.write_file("gaunt.toml", &settings);
    let aggregator = TestProcess::start_aggregator(&["--config", file.to_str().unwrap()]);
    let address = aggregator.served_address();
    wait_for("the node is known", || {
        get(&address, "/node/gpu003/metrics").filter(|(status, _)| *status == 200)
    });
    machine.set_link(1, false);
    let failure = |expected: &str| {
        wait_for(expected, || {
            let failure = fetch_alerts(&address)?["servers"][0]["failure"].clone();
            failure.as_str().unwrap_or("none").contains(expected).then_some(())
        });
    };
    failure("HTTP status 401");
    // A corrected password is used without a restart.
    certificates.write_file("password", &format!("{PASSWORD}\n"));
    assert_eq!(next(&posted, "the alert"), expected_notification("firing"));
    failure("none");
    // A server with an untrusted certificate receives nothing.
    let stranger = TlsTestCertificates::new();
    fs::copy(stranger.file_path("ca.pem"), certificates.file_path("ca.pem")).unwrap();
    failure("certificate");
    let without_alertmanager = settings.split("[alertmanager]").next().unwrap();
    certificates.write_file("gaunt.toml", without_alertmanager);
    aggregator.send_signal(Signal::HUP);
    wait_for("nobody is alerted", || {
        fetch_alerts(&address)?["servers"].as_array()?.is_empty().then_some(())
    });
}

#[test]
fn aggregator_is_queried_over_tls_with_a_trusted_ca_only() {
    let certificates = TlsTestCertificates::new();
    let machine = FourPortNode::start_node("gpu003");
    let targets = format!("gpu003={}", machine.address);
    let aggregator = TestProcess::start_aggregator(&["--targets", &targets, "--name", "127.0.0.1"]);
    let front = certificates.serve_tls(aggregator.served_address());
    let empty = certificates.file_path("empty");
    fs::create_dir(&empty).unwrap();
    let ask = |ca_file: &str| {
        let mut command = Command::new(program_path("gaunt"));
        command.args(["snapshot", "--aggregator", &format!("https://{front}"), "--ask", "nodes"]);
        command.env("SSL_CERT_DIR", &empty);
        let output = command.env("SSL_CERT_FILE", certificates.file_path(ca_file)).run_to_end();
        let text =
            String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        (output.status.code().unwrap(), text.into_owned())
    };
    wait_for("the node is shown", || ask("ca.pem").1.contains("gpu003").then_some(()));
    let stranger = TlsTestCertificates::new();
    fs::copy(stranger.file_path("ca.pem"), certificates.file_path("other.pem")).unwrap();
    let (code, printed) = ask("other.pem");
    assert_eq!(code, 3, "{printed}");
    assert!(printed.contains("certificate"), "{printed}");

    // Without https, the error has the address with it.
    let mut command = Command::new(program_path("gaunt"));
    let output = command.args(["snapshot", "--aggregator", &front, "--ask", "nodes"]).run_to_end();
    let printed = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{printed}");
    assert!(printed.contains(&format!("; if it speaks TLS, use https://{front};")), "{printed}");

    // A system without CAs trusts no server, and still reads what is not encrypted.
    let (code, printed) = ask("none.pem");
    assert_eq!(code, 3, "{printed}");
    assert!(printed.contains("has no trusted CA certificates: install them"), "{printed}");
    let brief = ["snapshot", "--targets", &targets, "--period", "200ms", "--watch", "600ms"];
    wait_for("the node is read in plaintext", || {
        let mut command = Command::new(program_path("gaunt"));
        command.env("SSL_CERT_DIR", &empty);
        command.args(brief).env("SSL_CERT_FILE", certificates.file_path("none.pem"));
        String::from_utf8_lossy(&command.run_to_end().stdout).contains("1 live").then_some(())
    });
}

#[test]
fn doctor_names_what_is_wrong_with_the_certificate_of_a_target() {
    let valid_in = |years: (i32, i32)| {
        TlsTestCertificates::create(|params| {
            params.not_before = date_time_ymd(years.0, 1, 1);
            params.not_after = date_time_ymd(years.1, 1, 1);
        })
    };
    let (good, stranger) = (TlsTestCertificates::new(), TlsTestCertificates::new());
    let (expired, early) = (valid_in((2020, 2021)), valid_in((2120, 2121)));
    for (server, ca, name, cause, step) in [
        (
            &good,
            &stranger,
            "127.0.0.1",
            "is signed by an untrusted CA",
            "set ca_file of its group to the CA that signed it",
        ),
        (
            &good,
            &good,
            "gpu001",
            "is for another name",
            "set server_name of its group to a name that it has",
        ),
        (&expired, &expired, "127.0.0.1", "has expired", "renew it on that host"),
        (&early, &early, "127.0.0.1", "is not valid yet", "check the clocks of both hosts"),
    ] {
        // What is behind the proxy does not matter: no handshake succeeds.
        let address = server.serve_tls("127.0.0.1:9".to_owned());
        let settings = server.write_file(
            "doctor.toml",
            &format!(
                "[[gather.groups]]\nname = \"nodes\"\nscheme = \"https\"\ntargets = [\"gpu001={address}\"]\n\
                 tls = {{ ca_file = {:?}, server_name = {name:?} }}\n",
                ca.file_path("ca.pem")
            ),
        );
        let arguments = ["doctor", "--config", settings.to_str().unwrap()];
        let brief = [&arguments[..], &["--period", "200ms", "--watch", "600ms"]].concat();
        let expected = format!("TLS: its certificate {cause}; {step}");
        run_gaunt_until(&brief, |output| {
            let page = String::from_utf8_lossy(&output.stdout);
            let page = page.split_whitespace().collect::<Vec<_>>().join(" ");
            page.contains(&expected)
                && page.contains("-showcerts")
                && output.status.code() == Some(1)
        });
    }
}
