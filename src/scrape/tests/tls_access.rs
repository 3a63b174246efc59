//! Tests of TLS and credentials: which CAs are trusted, which servers receive a secret, and reloads of changed files.

use std::{fs, path::PathBuf};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tokio::io::AsyncWriteExt as _;
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        RootCertStore, ServerConfig,
        crypto::ring,
        pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
        server::WebPkiClientVerifier,
    },
};

use super::{misbehaving_server::read_request, *};
use crate::tls::TlsOptions;

/// Two CAs, and certificates that the first has signed: a server for 127.0.0.1 and for `gpu.test`, and a client.
struct TestCertificates {
    folder: tempfile::TempDir,
    authority: CertifiedIssuer<'static, KeyPair>,
    server: (rcgen::Certificate, KeyPair),
}

impl TestCertificates {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let authority = new_authority();
        let server = sign_certificate(&authority, &["127.0.0.1", "gpu.test"]);
        let client = sign_certificate(&authority, &["gaunt.test"]);
        let put = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        put("ca.pem", &authority.pem());
        put("other.pem", &authority_pem());
        put("client.pem", &client.0.pem());
        put("client.key", &client.1.serialize_pem());
        put("token", "hunter2\n");
        Self { folder, authority, server }
    }

    fn file_path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A server that responds to every client and sends back the request heads; it may require a client certificate.
    async fn serve_tls(&self, client_auth: bool) -> (String, mpsc::Receiver<String>) {
        let provider = Arc::new(ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .unwrap();
        let builder = if client_auth {
            let mut roots = RootCertStore::empty();
            roots.add(self.authority.der().clone()).unwrap();
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                .build()
                .unwrap();
            builder.with_client_cert_verifier(verifier)
        } else {
            builder.with_no_client_auth()
        };
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(self.server.1.serialize_der()));
        let config = builder.with_single_cert(vec![self.server.0.der().clone()], key).unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (requests, received) = mpsc::channel(64);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, requests) = (acceptor.clone(), requests.clone());
                tokio::spawn(async move {
                    let mut stream = acceptor.accept(stream).await.ok()?;
                    loop {
                        drop(requests.try_send(read_request(&mut stream).await?));
                        stream.write_all(ok_response(GOOD).as_bytes()).await.ok()?;
                    }
                    #[expect(unreachable_code, reason = "says what the block would give")]
                    Some(())
                });
            }
        });
        (address, received)
    }
}

fn new_authority() -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

fn authority_pem() -> String {
    new_authority().pem()
}

fn sign_certificate(
    authority: &CertifiedIssuer<'static, KeyPair>,
    names: &[&str],
) -> (rcgen::Certificate, KeyPair) {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let key = KeyPair::generate().unwrap();
    (CertificateParams::new(names).unwrap().signed_by(&key, authority).unwrap(), key)
}

/// The first result of a target with this transport.
async fn first_outcome(address: &str, access: ServerAccess) -> Result<ScrapedPage, ScrapeFailure> {
    let group = TargetGroup {
        sources: vec![DiscoverySource::List(address.to_owned(), "test".into())],
        defaults: EndpointDefaults { scheme: UrlScheme::Https, ..EndpointDefaults::default() },
        access,
        ..TargetGroup::default()
    };
    let (inbox, mut deliveries) = mpsc::channel(64);
    let _manager = spawn_manager(
        ScrapePlan { options: test_options(), groups: vec![group] },
        inbox,
        test_clock(),
    );
    let outcome = async {
        loop {
            if let Some(Delivery::Batch(batch)) = deliveries.recv().await {
                return batch.outcome;
            }
        }
    };
    timeout(PATIENCE, outcome).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unverified_server_receives_no_credentials() {
    let certificates = TestCertificates::new();
    let (address, mut requests) = certificates.serve_tls(false).await;
    let tls = |ca: &str| TlsOptions {
        ca_file: Some(certificates.file_path(ca)),
        ..TlsOptions::default()
    };
    let credentials = || Some(HttpCredentials::Bearer(certificates.file_path("token")));
    let tls_for_name =
        |name: &str| TlsOptions { server_name: Some(name.to_owned()), ..tls("ca.pem") };
    for (tls, why) in [
        (tls("other.pem"), "connection broke: TLS: its certificate "),
        (
            tls_for_name("login.test"),
            "connection broke: TLS: its certificate is for another name; set server_name of its \
             group to a name that it has",
        ),
        (tls("missing.pem"), "not scraped: cannot read "),
        (tls("token"), "not scraped: "),
    ] {
        let failure =
            first_outcome(&address, ServerAccess { tls, credentials: credentials(), socket: None })
                .await
                .unwrap_err();
        assert!(failure.to_string().starts_with(why), "{failure}");
        assert!(!failure.to_string().contains("hunter2"), "{failure}");
    }
    assert!(requests.try_recv().is_err(), "nobody was shown anything");
    let insecure = TlsOptions { insecure: true, ..TlsOptions::default() };
    for tls in [tls("ca.pem"), tls_for_name("gpu.test"), insecure] {
        let page =
            first_outcome(&address, ServerAccess { tls, credentials: credentials(), socket: None })
                .await
                .unwrap();
        assert_eq!(cpu_count(&page), Some(64.0));
        assert!(requests.recv().await.unwrap().contains("\r\nauthorization: bearer hunter2\r\n"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_that_requires_a_client_certificate_receives_ours() {
    let certificates = TestCertificates::new();
    let (address, _requests) = certificates.serve_tls(true).await;
    let tls =
        TlsOptions { ca_file: Some(certificates.file_path("ca.pem")), ..TlsOptions::default() };
    let without_certificate = ServerAccess { tls: tls.clone(), credentials: None, socket: None };
    let failure = first_outcome(&address, without_certificate).await.unwrap_err().to_string();
    assert!(failure.contains("connection broke: "), "{failure}");
    let client = Some((certificates.file_path("client.pem"), certificates.file_path("client.key")));
    let with_certificate = ServerAccess {
        tls: TlsOptions { client_certificate: client, ..tls },
        credentials: None,
        socket: None,
    };
    assert_eq!(cpu_count(&first_outcome(&address, with_certificate).await.unwrap()), Some(64.0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_password_is_sent_once_its_file_changes() {
    let certificates = TestCertificates::new();
    let (address, mut requests) = certificates.serve_tls(false).await;
    let access = ServerAccess {
        tls: TlsOptions {
            ca_file: Some(certificates.file_path("ca.pem")),
            ..TlsOptions::default()
        },
        credentials: Some(HttpCredentials::Basic {
            user: "gaunt".into(),
            password_file: certificates.file_path("token"),
        }),
        socket: None,
    };
    let group = TargetGroup {
        sources: vec![DiscoverySource::List(address, "test".into())],
        defaults: EndpointDefaults { scheme: UrlScheme::Https, ..EndpointDefaults::default() },
        access,
        ..TargetGroup::default()
    };
    let (inbox, mut deliveries) = mpsc::channel(64);
    let _manager = spawn_manager(
        ScrapePlan { options: test_options(), groups: vec![group] },
        inbox,
        test_clock(),
    );
    tokio::spawn(async move { while deliveries.recv().await.is_some() {} });
    // Base64 of gaunt:hunter2 and of gaunt:hunter3, in lower case like the request heads.
    for (password, encoded) in
        [("hunter2", "z2f1bnq6ahvudgvymg=="), ("hunter3", "z2f1bnq6ahvudgvymw==")]
    {
        fs::write(certificates.file_path("token"), password).unwrap();
        let is_sent = async {
            while let Some(head) = requests.recv().await {
                if head.contains(&format!("\r\nauthorization: basic {encoded}\r\n")) {
                    return true;
                }
            }
            false
        };
        assert!(timeout(PATIENCE, is_sent).await.expect("the new password is shown"));
    }
}
