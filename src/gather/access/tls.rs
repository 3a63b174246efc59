//! TLS towards targets: who is believed, and by what gaunt is known. ring does the arithmetic.

use std::{fs::File, io::BufReader, path::Path, sync::Arc};

use tokio_rustls::rustls::{
    ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject as _},
};

use super::{AccessError, Tls};

/// The configuration of every connection of a group.
pub(super) fn client(tls: &Tls) -> Result<ClientConfig, AccessError> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| unusable(tls.ca_file.as_deref(), &error))?;
    let builder = if tls.insecure {
        builder.dangerous().with_custom_certificate_verifier(Arc::new(Anybody(provider)))
    } else {
        builder.with_root_certificates(authorities(tls.ca_file.as_deref())?)
    };
    let mut config = match &tls.client {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => builder
            .with_client_auth_cert(certificates(certificate)?, private_key(key)?)
            .map_err(|error| unusable(Some(certificate), &error))?,
    };
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

fn unusable(path: Option<&Path>, error: &dyn std::fmt::Display) -> AccessError {
    AccessError::Content {
        path: path.unwrap_or(Path::new("TLS")).to_path_buf(),
        why: error.to_string(),
    }
}

/// The authorities that are believed: those of the file, else the system's.
fn authorities(file: Option<&Path>) -> Result<RootCertStore, AccessError> {
    let mut store = RootCertStore::empty();
    if let Some(path) = file {
        for certificate in certificates(path)? {
            store.add(certificate).map_err(|error| unusable(Some(path), &error))?;
        }
        return Ok(store);
    }
    // What the system keeps and cannot be read is left out; without any, nobody could be believed.
    let (added, _) =
        store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if added == 0 { Err(AccessError::NoAuthorities) } else { Ok(store) }
}

fn open(path: &Path) -> Result<BufReader<File>, AccessError> {
    File::open(path)
        .map(BufReader::new)
        .map_err(|error| AccessError::Read { path: path.to_path_buf(), why: error.to_string() })
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, AccessError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_reader_iter(open(path)?).collect();
    let found = found.map_err(|error| unusable(Some(path), &error))?;
    if found.is_empty() {
        return Err(AccessError::Empty { path: path.to_path_buf(), what: "certificate" });
    }
    Ok(found)
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, AccessError> {
    PrivateKeyDer::from_pem_reader(open(path)?)
        .map_err(|_| AccessError::Empty { path: path.to_path_buf(), what: "private key" })
}

/// Believes any server. Only where the settings say `insecure`.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
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
            &self.0.signature_verification_algorithms,
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
            &self.0.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
