//! TLS and credentials: who is believed, who is shown a secret, and what happens when files of keys change.

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

use super::{server::request, *};
use crate::tls::Tls;

/// Two authorities, and what the first has signed: a server for 127.0.0.1 and for `gpu.test`, and a client.
struct Papers {
    folder: tempfile::TempDir,
    authority: CertifiedIssuer<'static, KeyPair>,
    server: (rcgen::Certificate, KeyPair),
}

impl Papers {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let authority = authority();
        let server = signed(&authority, &["127.0.0.1", "gpu.test"]);
        let client = signed(&authority, &["gaunt.test"]);
        let put = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        put("ca.pem", &authority.pem());
        put("other.pem", &authority_pem());
        put("client.pem", &client.0.pem());
        put("client.key", &client.1.serialize_pem());
        put("token", "hunter2\n");
        Self { folder, authority, server }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A server that answers whoever comes, and tells the heads of requests; it may ask for a client's certificate.
    async fn serve(&self, ask: bool) -> (String, mpsc::Receiver<String>) {
        let provider = Arc::new(ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .unwrap();
        let builder = if ask {
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
        let (told, heard) = mpsc::channel(64);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, told) = (acceptor.clone(), told.clone());
                tokio::spawn(async move {
                    let mut stream = acceptor.accept(stream).await.ok()?;
                    loop {
                        drop(told.try_send(request(&mut stream).await?));
                        stream.write_all(ok(GOOD).as_bytes()).await.ok()?;
                    }
                    #[expect(unreachable_code, reason = "says what the block would give")]
                    Some(())
                });
            }
        });
        (address, heard)
    }
}

fn authority() -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

fn authority_pem() -> String {
    authority().pem()
}

fn signed(by: &CertifiedIssuer<'static, KeyPair>, names: &[&str]) -> (rcgen::Certificate, KeyPair) {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let key = KeyPair::generate().unwrap();
    (CertificateParams::new(names).unwrap().signed_by(&key, by).unwrap(), key)
}

/// The first thing that comes of a target that is reached in this way.
async fn first(address: &str, access: Access) -> Result<Page, Failure> {
    let group = Group {
        sources: vec![Source::List(address.to_owned(), "test".into())],
        usual: Usual { scheme: Scheme::Https, ..Usual::default() },
        access,
        ..Group::default()
    };
    let (inbox, mut deliveries) = mpsc::channel(64);
    let _gatherer = start(Plan { options: options(), groups: vec![group] }, inbox, owner::clock());
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
async fn only_who_proves_his_name_is_asked() {
    let papers = Papers::new();
    let (address, mut heard) = papers.serve(false).await;
    let tls = |ca: &str| Tls { ca_file: Some(papers.path(ca)), ..Tls::default() };
    let credentials = || Some(Credentials::Bearer(papers.path("token")));
    let named = |name: &str| Tls { server_name: Some(name.to_owned()), ..tls("ca.pem") };
    for (tls, why) in [
        (tls("other.pem"), "connection broke: TLS: its certificate "),
        (
            named("login.test"),
            "connection broke: TLS: its certificate is for another name; see ca_file and server_name of its group",
        ),
        (tls("missing.pem"), "not asked: cannot read "),
        (tls("token"), "not asked: "),
    ] {
        let failure =
            first(&address, Access { tls, credentials: credentials() }).await.unwrap_err();
        assert!(failure.to_string().starts_with(why), "{failure}");
        assert!(!failure.to_string().contains("hunter2"), "{failure}");
    }
    assert!(heard.try_recv().is_err(), "nobody was shown anything");
    let insecure = Tls { insecure: true, ..Tls::default() };
    for tls in [tls("ca.pem"), named("gpu.test"), insecure] {
        let page = first(&address, Access { tls, credentials: credentials() }).await.unwrap();
        assert_eq!(cpus(&page), Some(64.0));
        assert!(heard.recv().await.unwrap().contains("\r\nauthorization: bearer hunter2\r\n"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_asks_is_shown_our_certificate() {
    let papers = Papers::new();
    let (address, _heard) = papers.serve(true).await;
    let tls = Tls { ca_file: Some(papers.path("ca.pem")), ..Tls::default() };
    let without = Access { tls: tls.clone(), credentials: None };
    let failure = first(&address, without).await.unwrap_err().to_string();
    assert!(failure.contains("connection broke: "), "{failure}");
    let client = Some((papers.path("client.pem"), papers.path("client.key")));
    let with = Access { tls: Tls { client, ..tls }, credentials: None };
    assert_eq!(cpus(&first(&address, with).await.unwrap()), Some(64.0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_password_is_taken_up_and_no_redirect_is_shown_the_old_one() {
    let papers = Papers::new();
    let (address, mut heard) = papers.serve(false).await;
    let access = Access {
        tls: Tls { ca_file: Some(papers.path("ca.pem")), ..Tls::default() },
        credentials: Some(Credentials::Basic {
            user: "gaunt".into(),
            password_file: papers.path("token"),
        }),
    };
    let group = Group {
        sources: vec![Source::List(address, "test".into())],
        usual: Usual { scheme: Scheme::Https, ..Usual::default() },
        access,
        ..Group::default()
    };
    let (inbox, mut deliveries) = mpsc::channel(64);
    let _gatherer = start(Plan { options: options(), groups: vec![group] }, inbox, owner::clock());
    tokio::spawn(async move { while deliveries.recv().await.is_some() {} });
    // Base64 of gaunt:hunter2 and of gaunt:hunter3, in lower case as heads are told.
    for (password, coded) in
        [("hunter2", "z2f1bnq6ahvudgvymg=="), ("hunter3", "z2f1bnq6ahvudgvymw==")]
    {
        fs::write(papers.path("token"), password).unwrap();
        let shown = async {
            while let Some(head) = heard.recv().await {
                if head.contains(&format!("\r\nauthorization: basic {coded}\r\n")) {
                    return true;
                }
            }
            false
        };
        assert!(timeout(PATIENCE, shown).await.expect("the new password is shown"));
    }
}
