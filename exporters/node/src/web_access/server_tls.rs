//! TLS of a server from its web configuration: certificate, versions, cipher suites, curves, client certificates.

use std::{path::Path, sync::Arc};

use gaunt_schema::{UnixMs, plain_error};
use tokio_rustls::rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, RootCertStore, ServerConfig,
    SignatureScheme, SupportedCipherSuite, SupportedProtocolVersion,
    client::danger::HandshakeSignatureValid,
    crypto::{
        CryptoProvider, SupportedKxGroup, ring, verify_tls12_signature, verify_tls13_signature,
    },
    pki_types::{CertificateDer, PrivateKeyDer, UnixTime, pem::PemObject as _},
    server::{
        WebPkiClientVerifier,
        danger::{ClientCertVerified, ClientCertVerifier},
    },
    version::{TLS12, TLS13},
};

use crate::server_stream::HTTP2;

use super::{
    certificate_fields::{read_alternative_names, read_validity},
    certificate_list::CertificateList,
    config_error::WebConfigError,
    config_file::{ConfigFile, TlsSettings, read_bounded},
};

/// The most certificates in one file.
const MAX_CERTIFICATES: usize = 1_000;

/// Suites that the format allows and gaunt does not have: CBC with SHA-1 is weak.
const WEAK_SUITES: [&str; 4] = [
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
];

/// The suites of TLS 1.2 of which HTTP/2 requires one.
const HTTP2_SUITES: [&str; 2] =
    ["TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"];

/// The TLS of a server.
pub(super) struct ServerTls {
    pub(super) config: Arc<ServerConfig>,
    /// Its own certificates.
    pub(super) chain: CertificateList,
}

/// Builds the server's TLS, if the file has it.
pub(super) fn build_tls(file: &ConfigFile) -> Result<Option<ServerTls>, WebConfigError> {
    let Some(tls) = &file.tls else { return Ok(None) };
    let failed = |setting: &str, why: &str| WebConfigError::of_setting(&file.path, setting, why);
    if tls.cert.is_empty() && tls.cert_file.is_empty() {
        return Err(failed("tls_server_config", "has neither cert nor cert_file; set one of them"));
    }
    if tls.key.is_empty() && tls.key_file.is_empty() {
        return Err(failed("tls_server_config", "has neither key nor key_file; set one of them"));
    }
    let versions = choose_versions(&file.path, tls)?;
    let provider = Arc::new(CryptoProvider {
        cipher_suites: choose_suites(file, tls, &versions)?,
        kx_groups: choose_curves(&file.path, tls)?,
        ..ring::default_provider()
    });
    let pem = load_pem(file, &tls.cert, &tls.cert_file)?;
    let chain = read_certificates(&file.path, "cert", &pem)?;
    let pem = load_pem(file, &tls.key, &tls.key_file)?;
    let key = PrivateKeyDer::from_pem_slice(&pem)
        .map_err(|_| failed("key", "no private key in PEM; convert it with `openssl pkey`"))?;
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&versions)
        .map_err(|_| failed("cipher_suites", "no suite is left for the versions; add one"))?;
    let builder = match build_client_verifier(file, tls, &provider)? {
        Some(verifier) => builder.with_client_cert_verifier(verifier),
        None => builder.with_no_client_auth(),
    };
    let mut config = builder.with_single_cert(chain.clone(), key).map_err(|error| {
        tracing::debug!(%error, "certificate and key rejected");
        failed("cert", "certificate and key are invalid or do not belong together; check both")
    })?;
    config.ignore_client_order = tls.prefer_server_cipher_suites.unwrap_or(true);
    let protocols: &[&[u8]] = if file.http2 { &[HTTP2, b"http/1.1"] } else { &[b"http/1.1"] };
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    Ok(Some(ServerTls { config: Arc::new(config), chain: CertificateList(chain) }))
}

/// When the first certificate in a file of PEM expires; none if it has none that can be read.
pub fn read_certificate_expiry(path: &Path) -> Option<UnixMs> {
    let pem = read_bounded(path).ok()?;
    let certificates = CertificateDer::pem_slice_iter(&pem).take(MAX_CERTIFICATES).flatten();
    CertificateList(certificates.collect()).first_expiry()
}

/// The bytes of a setting that is inline or in a file.
fn load_pem(file: &ConfigFile, inline: &str, name: &str) -> Result<Vec<u8>, WebConfigError> {
    if name.is_empty() {
        return Ok(inline.as_bytes().to_vec());
    }
    read_bounded(&file.resolve_path(name))
}

fn read_certificates(
    path: &Path,
    setting: &str,
    pem: &[u8],
) -> Result<Vec<CertificateDer<'static>>, WebConfigError> {
    let certificates: Result<Vec<_>, _> =
        CertificateDer::pem_slice_iter(pem).take(MAX_CERTIFICATES).collect();
    certificates.ok().filter(|certificates| !certificates.is_empty()).ok_or_else(|| {
        let why = "no certificate in PEM; convert it with `openssl x509`";
        WebConfigError::of_setting(path, setting, why)
    })
}

fn choose_versions(
    path: &Path,
    tls: &TlsSettings,
) -> Result<Vec<&'static SupportedProtocolVersion>, WebConfigError> {
    let number = |setting: &str, text: &Option<String>, default| match text.as_deref() {
        None => Ok(default),
        Some("TLS10") => Ok(0),
        Some("TLS11") => Ok(1),
        Some("TLS12") => Ok(2),
        Some("TLS13") => Ok(3),
        Some(other) => {
            let why = format!("{other:?} is no version; use TLS12 or TLS13");
            Err(WebConfigError::of_setting(path, setting, why))
        }
    };
    let min = number("min_version", &tls.min_version, 2)?;
    let max = number("max_version", &tls.max_version, 3)?;
    let versions: Vec<_> = [(2, &TLS12), (3, &TLS13)]
        .into_iter()
        .filter(|(number, _)| (min..=max).contains(number))
        .map(|(_, version)| version)
        .collect();
    if versions.is_empty() {
        let why = "leaves no version; gaunt has TLS12 and TLS13, older ones are insecure";
        return Err(WebConfigError::of_setting(path, "max_version", why));
    }
    Ok(versions)
}

/// The suites of TLS 1.2 that are listed, in their order, and all of TLS 1.3, which cannot be chosen.
fn choose_suites(
    file: &ConfigFile,
    tls: &TlsSettings,
    versions: &[&'static SupportedProtocolVersion],
) -> Result<Vec<SupportedCipherSuite>, WebConfigError> {
    if tls.cipher_suites.is_empty() {
        return Ok(ring::ALL_CIPHER_SUITES.to_vec());
    }
    let failed = |why: String| WebConfigError::of_setting(&file.path, "cipher_suites", why);
    let mut chosen: Vec<SupportedCipherSuite> =
        ring::ALL_CIPHER_SUITES.iter().filter(|suite| suite.tls13().is_some()).copied().collect();
    for name in &tls.cipher_suites {
        let suite = ring::ALL_CIPHER_SUITES.iter().find(|suite| suite_name(suite) == *name);
        match suite {
            Some(suite) if suite.tls13().is_none() => chosen.push(*suite),
            Some(_) => {}
            None if WEAK_SUITES.contains(&name.as_str()) => {
                tracing::warn!(suite = name, "weak cipher suite is not offered");
            }
            None => return Err(failed(format!("{name:?} is unknown; remove it"))),
        }
    }
    let with_tls12 = versions.iter().any(|version| **version == TLS12);
    let is_listed = |suite: &&str| tls.cipher_suites.iter().any(|name| name == suite);
    if file.http2 && with_tls12 && !HTTP2_SUITES.iter().any(is_listed) {
        let names = HTTP2_SUITES.join(" or ");
        return Err(failed(format!("HTTP/2 requires {names}; add one, or set http2: false")));
    }
    Ok(chosen)
}

/// The suite's registered name.
fn suite_name(suite: &SupportedCipherSuite) -> String {
    format!("{:?}", suite.suite()).replacen("TLS13_", "TLS_", 1)
}

/// The curves of a handshake that gaunt has, by their names in the file.
fn known_curves() -> [(&'static str, &'static dyn SupportedKxGroup); 3] {
    use ring::kx_group::{SECP256R1, SECP384R1, X25519};
    [("X25519", X25519), ("CurveP256", SECP256R1), ("CurveP384", SECP384R1)]
}

/// The curve that the format allows and gaunt does not have, and the one that is offered if no other is listed.
const ABSENT_CURVE: &str = "CurveP521";
const NEXT_CURVE: &str = "CurveP384";

fn choose_curves(
    path: &Path,
    tls: &TlsSettings,
) -> Result<Vec<&'static dyn SupportedKxGroup>, WebConfigError> {
    if tls.curve_preferences.is_empty() {
        return Ok(ring::ALL_KX_GROUPS.to_vec());
    }
    let (absent, mut names): (Vec<&str>, Vec<&str>) =
        tls.curve_preferences.iter().map(String::as_str).partition(|name| *name == ABSENT_CURVE);
    if names.is_empty() {
        names.push(NEXT_CURVE);
    }
    let find_curve = |name: &&str| {
        let curve = known_curves().into_iter().find(|(known, _)| known == name);
        let why = || format!("{name:?} is unknown; remove it");
        curve
            .map(|(_, curve)| curve)
            .ok_or_else(|| WebConfigError::of_setting(path, "curve_preferences", why()))
    };
    let curves = names.iter().map(find_curve).collect::<Result<_, _>>()?;
    if !absent.is_empty() {
        tracing::warn!(
            "{}, curve_preferences: gaunt does not have {ABSENT_CURVE}; offered instead: {}",
            path.display(),
            names.join(", ")
        );
    }
    Ok(curves)
}

fn build_client_verifier(
    file: &ConfigFile,
    tls: &TlsSettings,
    provider: &Arc<CryptoProvider>,
) -> Result<Option<Arc<dyn ClientCertVerifier>>, WebConfigError> {
    let failed = |setting: &str, why: &str| WebConfigError::of_setting(&file.path, setting, why);
    let has_authorities = !tls.client_ca.is_empty() || !tls.client_ca_file.is_empty();
    let authorities = if has_authorities {
        Some(load_pem(file, &tls.client_ca, &tls.client_ca_file)?)
    } else {
        None
    };
    let (is_mandatory, is_verified) = match tls.client_auth_type.as_str() {
        "" | "NoClientCert" if has_authorities => {
            let why = "is set without client_auth_type; set RequireAndVerifyClientCert";
            return Err(failed("client_ca_file", why));
        }
        "" | "NoClientCert" => return Ok(None),
        "RequestClientCert" => (false, false),
        "RequireAnyClientCert" | "RequireClientCert" => (true, false),
        "VerifyClientCertIfGiven" => (false, true),
        "RequireAndVerifyClientCert" => (true, true),
        other => {
            let why = format!("{other:?} is unknown; use RequireAndVerifyClientCert");
            return Err(failed("client_auth_type", &why));
        }
    };
    let mut chain_verifier = None;
    let mut listed = Vec::new();
    if let Some(pem) = authorities.filter(|_| is_verified) {
        let mut store = RootCertStore::empty();
        listed = read_certificates(&file.path, "client_ca_file", &pem)?;
        for certificate in listed.clone() {
            let invalid = |error: Error| {
                let why =
                    plain_error::tls(&error.to_string()).unwrap_or("a certificate is invalid");
                failed("client_ca_file", why)
            };
            store.add(certificate).map_err(invalid)?;
        }
        let builder =
            WebPkiClientVerifier::builder_with_provider(Arc::new(store), Arc::clone(provider));
        let verifier = builder.build();
        chain_verifier =
            Some(verifier.map_err(|_| failed("client_ca_file", "has no usable certificate"))?);
    }
    Ok(Some(Arc::new(ClientPolicy {
        provider: Arc::clone(provider),
        is_mandatory,
        is_verified,
        chain_verifier,
        listed,
        allowed_names: tls.client_allowed_sans.clone(),
    })))
}

/// Which client certificates are accepted.
#[derive(Debug)]
struct ClientPolicy {
    provider: Arc<CryptoProvider>,
    is_mandatory: bool,
    /// Whether a certificate must be signed by a client CA.
    is_verified: bool,
    /// Verifies against the client CAs; without any, no certificate is verified.
    chain_verifier: Option<Arc<dyn ClientCertVerifier>>,
    /// The client CAs. One of them may be a client's own certificate: `openssl req -x509` makes such ones, and the chain
    /// verifier takes no CA for a client.
    listed: Vec<CertificateDer<'static>>,
    /// The subject alternative names of which a certificate must have one.
    allowed_names: Option<Vec<String>>,
}

/// Checks that a certificate is valid at this time.
fn check_validity(certificate: &CertificateDer<'_>, now: UnixTime) -> Result<(), Error> {
    let now = UnixMs(now.as_secs() as i64 * 1_000);
    let (from, to) = read_validity(certificate)
        .ok_or(Error::InvalidCertificate(CertificateError::BadEncoding))?;
    if now < from {
        return Err(Error::InvalidCertificate(CertificateError::NotValidYet));
    }
    if now > to {
        return Err(Error::InvalidCertificate(CertificateError::Expired));
    }
    Ok(())
}

impl ClientCertVerifier for ClientPolicy {
    fn client_auth_mandatory(&self) -> bool {
        self.is_mandatory
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.chain_verifier.as_ref().map_or(&[], |verifier| verifier.root_hint_subjects())
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        if self.is_verified && self.listed.iter().any(|listed| listed == end_entity) {
            check_validity(end_entity, now)?;
        } else if self.is_verified {
            let verifier = self.chain_verifier.as_ref();
            let verifier = verifier
                .ok_or_else(|| Error::General("no client CA is set: client_ca_file".to_owned()))?;
            verifier.verify_client_cert(end_entity, intermediates, now)?;
        }
        if let Some(allowed) = &self.allowed_names {
            let names = read_alternative_names(end_entity);
            if !names.iter().any(|name| allowed.contains(name)) {
                return Err(Error::General("no name is in client_allowed_sans".to_owned()));
            }
        }
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, cert, dss, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
