//! The exporters of the simulated nodes, and a discovery server. Formats, compression and frames of the pages are those of
//! gaunt-node; TLS is rustls with certificates of the run's own authority.

use std::{
    cell::RefCell,
    net::{IpAddr, Ipv4Addr},
    sync::{Arc, LazyLock},
};

use gaunt_node::{
    MetricsPage,
    host_check::HostNames,
    metrics_server::{ServedPages, answer_request},
};
use gaunt_schema::{Report, text::CompatOptions};
use http_body_util::{BodyExt as _, Collected};
use hyper::{
    Request,
    body::Bytes,
    header::{ACCEPT_ENCODING, CONTENT_ENCODING},
};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tokio::sync::watch;
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        RootCertStore, ServerConfig,
        crypto::ring,
        pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
        server::WebPkiClientVerifier,
    },
};

use zstd::bulk::Compressor;

use crate::{
    seeded_random::SeededRandom,
    simulated_fleet::{NODES, SimulatedNode},
    simulated_sources::draw_hostile_list,
};

/// The port of the servers that list targets.
pub(crate) const DISCOVERY_PORT: u16 = 8080;

/// The address of the server that lists the target of a node, at `/NODE/PORT`.
pub(crate) fn discovery_host(node: usize) -> String {
    format!("10.0.9.{}", node + 1)
}

/// The exporter of one node; clones are the same.
#[derive(Clone)]
pub(crate) struct SimulatedExporter {
    pages: watch::Sender<Arc<MetricsPage>>,
    served: ServedPages,
}

/// An answer, before any fault.
pub(crate) struct ExporterAnswer {
    /// Status line and headers, but the length and the empty line.
    pub(crate) head: String,
    pub(crate) body: Bytes,
}

impl SimulatedExporter {
    /// An exporter without a page.
    pub(crate) fn new(names: watch::Receiver<HostNames>) -> Self {
        let page = MetricsPage::new(Arc::default(), CompatOptions::default());
        let (pages, shown) = watch::channel(Arc::new(page));
        let (ras_requests, access) = (watch::Sender::new(0), watch::channel(None).1);
        let served = ServedPages { pages: shown, names, ras_requests, access };
        Self { pages, served }
    }

    /// Publishes the page of this report.
    pub(crate) fn publish(&self, report: Report) {
        let compat = CompatOptions::default();
        let page = MetricsPage::from_previous(&self.pages.borrow(), Arc::new(report), compat);
        self.pages.send_replace(Arc::new(page));
    }

    /// Whether there was a page before.
    pub(crate) fn has_page(&self) -> bool {
        self.served.pages.has_changed().unwrap_or(false)
    }

    /// Answers a request from the newest page.
    pub(crate) async fn answer(&self, request: &Request<()>) -> ExporterAnswer {
        let client = IpAddr::V4(Ipv4Addr::new(10, 0, 1, 1));
        let response = answer_request(request, &self.served, client).await;
        let lines = response.headers().iter().map(|(name, value)| {
            [name.as_str(), ": ", value.to_str().unwrap_or_default(), "\r\n"].concat()
        });
        let head = format!("HTTP/1.1 {}\r\n", response.status()) + &lines.collect::<String>();
        let is_plain = !response.headers().contains_key(CONTENT_ENCODING);
        // A body in memory has no errors.
        let body = response.into_body().collect().await;
        let body = body.map(Collected::to_bytes).unwrap_or_default();
        let accepted = request.headers().get(ACCEPT_ENCODING).map(|it| it.to_str());
        if is_plain
            && accepted.is_some_and(|it| it.is_ok_and(|it| it.contains("zstd")))
            && let Some(packed) = compress_zstd(&body)
        {
            // As a proxy before an exporter may do.
            return ExporterAnswer {
                head: head + "content-encoding: zstd\r\n",
                body: packed.into(),
            };
        }
        ExporterAnswer { head, body }
    }
}

/// Compresses with the memory of this thread, which is larger than any page.
fn compress_zstd(body: &[u8]) -> Option<Vec<u8>> {
    thread_local! {
        static PACKER: RefCell<Option<Compressor<'static>>> = RefCell::new(Compressor::new(1).ok());
    }
    PACKER.with_borrow_mut(|packer| packer.as_mut()?.compress(body).ok())
}

/// The discovery server's answer to a request for the list of a node; with `hostile`, others are listed beside it, or the
/// answer is of another type.
pub(crate) fn list_node(
    request: &Request<()>,
    hostile: Option<&mut SeededRandom>,
) -> ExporterAnswer {
    let path = request.uri().path().trim_start_matches('/');
    let (node, port) = path.split_once('/').unwrap_or_default();
    let right = format!("10.0.0.{node}:{port}");
    let mut form = "application/json";
    let list = match hostile {
        None => format!(
            r#"[{{"targets": ["{right}"], "labels": {{"rack": "r1"}}}}, {{"labels": {{}}}}]"#
        ),
        Some(random) => {
            if random.once_in(3) {
                form = "text/html";
            }
            draw_hostile_list(&right, random)
        }
    };
    let head = format!("HTTP/1.1 200 OK\r\ncontent-type: {form}\r\n");
    ExporterAnswer { head, body: list.into() }
}

/// Parses the head of a request.
pub(crate) fn parse_request(head: &[u8]) -> Option<Request<()>> {
    let head = str::from_utf8(head).ok()?;
    let mut lines = head.split("\r\n");
    let mut words = lines.next()?.split(' ');
    let mut request = Request::builder().method(words.next()?).uri(words.next()?);
    for (name, value) in lines.filter_map(|line| line.split_once(": ")) {
        request = request.header(name, value);
    }
    request.body(()).ok()
}

/// The secret that clients may send to a node: no other node may ever see it.
pub(crate) fn secret_of(node: usize) -> String {
    format!("secret-of-{}", SimulatedNode::name_of(node))
}

/// An authority with its key.
type FleetAuthority = CertifiedIssuer<'static, KeyPair>;

/// What the nodes present to clients over TLS.
pub(crate) struct FleetCertificates {
    /// The authority that clients trust, in PEM.
    pub(crate) authority: String,
    /// The certificate and key of a client, in PEM.
    pub(crate) client: String,
    pub(crate) client_key: String,
    pub(crate) nodes: TlsAcceptor,
    /// A certificate for the same addresses by an authority that nobody trusts.
    pub(crate) impostor: TlsAcceptor,
}

/// The certificates of all runs of this process.
pub(crate) fn fleet_certificates() -> Result<&'static FleetCertificates, String> {
    static CERTIFICATES: LazyLock<Result<FleetCertificates, String>> =
        LazyLock::new(|| create_certificates().map_err(|error| error.to_string()));
    CERTIFICATES.as_ref().map_err(Clone::clone)
}

/// The private key of this number, the same in every process. Signatures of Ed25519 have one length and no random part, so
/// that messages of a handshake, whose nonces stay random, have the same lengths in every run.
fn fixed_key(number: u8) -> Result<KeyPair, rcgen::Error> {
    // PKCS#8 of a key of Ed25519, without its 32 bytes.
    let mut der = b"\x30\x2e\x02\x01\x00\x30\x05\x06\x03\x2b\x65\x70\x04\x22\x04\x20".to_vec();
    der.extend_from_slice(&[number; 32]);
    KeyPair::try_from(der)
}

fn create_certificates() -> Result<FleetCertificates, Box<dyn std::error::Error>> {
    let (authority, nodes) = create_acceptor([1, 2])?;
    let (_, impostor) = create_acceptor([3, 4])?;
    let key = fixed_key(5)?;
    let client = CertificateParams::new(vec!["gaunt".to_owned()])?.signed_by(&key, &authority)?;
    let (client, client_key) = (client.pem(), key.serialize_pem());
    Ok(FleetCertificates { authority: authority.pem(), client, client_key, nodes, impostor })
}

/// An authority, and a server with its certificate for the addresses of all nodes, which asks clients for theirs; both with
/// the keys of these numbers.
fn create_acceptor(
    [authority, server]: [u8; 2],
) -> Result<(FleetAuthority, TlsAcceptor), Box<dyn std::error::Error>> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, fixed_key(authority)?)?;
    let names: Vec<String> = (0..NODES).map(SimulatedNode::host).collect();
    let key = fixed_key(server)?;
    let certificate = CertificateParams::new(names)?.signed_by(&key, &authority)?;
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let provider = Arc::new(ring::default_provider());
    let mut trusted = RootCertStore::empty();
    trusted.add(authority.der().clone())?;
    let clients = WebPkiClientVerifier::builder_with_provider(trusted.into(), provider.clone())
        .allow_unauthenticated()
        .build()?;
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(clients)
        .with_single_cert(vec![certificate.der().clone()], key)?;
    Ok((authority, TlsAcceptor::from(Arc::new(config))))
}
