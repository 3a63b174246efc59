//! TLS towards servers: trusted CAs and our client certificate. Cryptography by ring.

use std::{
    fs::File,
    io::BufReader,
    path::{Path, PathBuf},
    sync::Arc,
};

use gaunt_schema::plain_error;
use tokio_rustls::rustls::{
    ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject as _},
};

/// How a server is verified, and which certificate gaunt presents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsOptions {
    /// Trusted CA certificates in PEM; the system's by default.
    pub ca_file: Option<PathBuf>,
    /// Expected server name; by default the host of the address.
    pub server_name: Option<String>,
    /// Client certificate with its chain, in PEM, and its key.
    pub client_certificate: Option<(PathBuf, PathBuf)>,
    /// Skip verification (insecure): a man in the middle can read and change everything.
    pub insecure: bool,
}

/// Error of a certificate or key file.
#[derive(Clone, Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("cannot read {}: {why}; check the path and its permissions", path.display())]
    Read {
        /// Its path.
        path: PathBuf,
        /// The system's error.
        why: String,
    },
    /// A file has no entry of the expected type.
    #[error("{} has no {what}; it must be in PEM", path.display())]
    Empty {
        /// Its path.
        path: PathBuf,
        /// What it should hold.
        what: &'static str,
    },
    /// A file has invalid content.
    #[error("{} is invalid: {why}", path.display())]
    Content {
        /// Its path.
        path: PathBuf,
        /// The error.
        why: String,
    },
}

/// Why a server is refused where no CA is trusted; [`plain_error::tls`] has the text for people.
const NO_AUTHORITIES: &str = "no trusted CA certificates";

/// The configuration of TLS connections. Without a trusted CA it refuses every server; plaintext connections need none.
pub fn client_config(tls: &TlsOptions) -> Result<ClientConfig, TlsError> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| unusable_error(tls.ca_file.as_deref(), &error))?;
    let authorities =
        if tls.insecure { None } else { Some(load_authorities(tls.ca_file.as_deref())?) };
    let builder = match authorities {
        Some(store) if !store.is_empty() => builder.with_root_certificates(store),
        none => {
            let verifier = FixedVerifier { provider, refuses: none.is_some() };
            builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier))
        }
    };
    let mut config = match &tls.client_certificate {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => builder
            .with_client_auth_cert(load_certificates(certificate)?, load_private_key(key)?)
            .map_err(|error| unusable_error(Some(certificate), &error))?,
    };
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

/// The configuration of plaintext connections: it trusts no CA.
pub fn plaintext_config() -> Result<ClientConfig, TlsError> {
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| unusable_error(None, &error))?;
    Ok(builder.with_root_certificates(RootCertStore::empty()).with_no_client_auth())
}

fn unusable_error(path: Option<&Path>, error: &dyn std::fmt::Display) -> TlsError {
    TlsError::Content {
        path: path.unwrap_or(Path::new("TLS")).to_path_buf(),
        why: tls_problem(error),
    }
}

/// The TLS problem, in plain words.
fn tls_problem(error: &dyn std::fmt::Display) -> String {
    tracing::debug!(%error, "invalid certificate or key");
    let message = error.to_string();
    if message.contains("inconsistent") || message.contains("KeyMismatch") {
        return "the key does not match the certificate".to_owned();
    }
    let plain_text =
        plain_error::tls(&message).map(|why| why.replace("its certificate", "a certificate in it"));
    plain_text
        .unwrap_or_else(|| "it is not a valid certificate or key; convert it to PEM".to_owned())
}

/// Loads the trusted CAs: those of the file, else the system's, which may have none.
fn load_authorities(file: Option<&Path>) -> Result<RootCertStore, TlsError> {
    let mut store = RootCertStore::empty();
    if let Some(path) = file {
        for certificate in load_certificates(path)? {
            store.add(certificate).map_err(|error| unusable_error(Some(path), &error))?;
        }
        return Ok(store);
    }
    // Unreadable system certificates are skipped.
    store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    Ok(store)
}

fn open_pem(path: &Path) -> Result<BufReader<File>, TlsError> {
    File::open(path)
        .map(BufReader::new)
        .map_err(|error| TlsError::Read { path: path.to_path_buf(), why: plain_error::io(&error) })
}

fn load_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let certificates: Result<Vec<_>, _> =
        CertificateDer::pem_reader_iter(open_pem(path)?).collect();
    let certificates = certificates.map_err(|error| unusable_error(Some(path), &error))?;
    if certificates.is_empty() {
        return Err(TlsError::Empty { path: path.to_path_buf(), what: "certificate" });
    }
    Ok(certificates)
}

fn load_private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_reader(open_pem(path)?)
        .map_err(|_| TlsError::Empty { path: path.to_path_buf(), what: "private key" })
}

/// Accepts any server certificate, only where the settings set `insecure`; or refuses any, where no CA is trusted.
#[derive(Debug)]
struct FixedVerifier {
    provider: Arc<CryptoProvider>,
    refuses: bool,
}

impl ServerCertVerifier for FixedVerifier {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if self.refuses {
            return Err(Error::General(NO_AUTHORITIES.to_owned()));
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(
            message,
            certificate,
            signed,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(
            message,
            certificate,
            signed,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
