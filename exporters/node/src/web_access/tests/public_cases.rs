//! The web configurations of exporter-toolkit's own tests: each is accepted or rejected as there.

use super::*;

/// What becomes of a file.
enum Reading {
    /// It is accepted, without TLS.
    Plain,
    /// It is accepted, with TLS.
    Tls,
    /// It is rejected, with this text in the error.
    Rejected(&'static str),
}

use Reading::{Plain, Rejected, Tls};

/// Why a section of TLS without one of its files is rejected.
const NO_CERTIFICATE: Reading = Rejected("has neither cert nor cert_file");
const NO_KEY: Reading = Rejected("has neither key nor key_file");

/// All files, and what upstream's test of each expects. One is called bad and has the settings of one that is called good:
/// upstream accepts both, and refuses the clients.
const FILES: [(&str, Reading); 41] = [
    ("tls_config_noAuth.requireandverifyclientcert.good.yml", Tls),
    ("tls_config_noAuth.requireanyclientcert.good.yml", Tls),
    ("tls_config_noAuth.requireanyclientcertkeyinline.good.yml", Tls),
    ("web_config_auth_clientCAs_invalid.bad.yml", Rejected("cannot read somefile")),
    ("web_config_auth_clientCAs_missing.bad.yml", Tls),
    ("web_config_auth_client_san.bad.yaml", Tls),
    ("web_config_auth_client_san.good.yaml", Tls),
    ("web_config_auth_user_list_invalid.bad.yml", Rejected("\"john\" is no bcrypt hash")),
    ("web_config_empty.yml", Plain),
    ("web_config_headers.good.yml", Plain),
    ("web_config_headers_content_type_options.bad.yml", Rejected("must be nosniff")),
    ("web_config_headers_extra_header.bad.yml", Rejected("\"Content-Type\" cannot be set")),
    ("web_config_headers_frame_options.bad.yml", Rejected("must be deny or sameorigin")),
    ("web_config_junk.yml", Rejected("see exporter-toolkit's web-configuration.md")),
    ("web_config_junk_key.yml", Rejected("cert_filse")),
    ("web_config_noAuth.bad.yml", Rejected("client_ca_file: is set without client_auth_type")),
    ("web_config_noAuth.good.blocking.yml", Tls),
    ("web_config_noAuth.good.yml", Tls),
    ("web_config_noAuth_allCiphers.good.yml", Tls),
    ("web_config_noAuth_allCurves.good.yml", Tls),
    ("web_config_noAuth_certPath_empty.bad.yml", NO_CERTIFICATE),
    ("web_config_noAuth_certPath_invalid.bad.yml", Rejected("cannot read somefile")),
    ("web_config_noAuth_certPath_keyPath_empty.bad.yml", NO_CERTIFICATE),
    ("web_config_noAuth_certPath_keyPath_invalid.bad.yml", Rejected("cannot read somefile")),
    ("web_config_noAuth_cert_empty.bad.yml", NO_CERTIFICATE),
    ("web_config_noAuth_inventedCiphers.bad.yml", Rejected("GCM_SHA2048\" is unknown")),
    ("web_config_noAuth_inventedCurves.bad.yml", Rejected("\"CurveP257\" is unknown")),
    ("web_config_noAuth_keyPath_empty.bad.yml", NO_KEY),
    ("web_config_noAuth_keyPath_invalid.bad.yml", Rejected("cannot read server.cert")),
    ("web_config_noAuth_key_empty.bad.yml", NO_KEY),
    ("web_config_noAuth_noHTTP2.good.yml", Tls),
    ("web_config_noAuth_noHTTP2Cipher.bad.yml", Rejected("set http2: false")),
    ("web_config_noAuth_someCiphers.good.yml", Tls),
    ("web_config_noAuth_someCiphers_noOrder.good.yml", Tls),
    ("web_config_noAuth_someCurves.good.yml", Tls),
    ("web_config_noAuth_tlsInline.good.yml", Tls),
    ("web_config_noAuth_wrongTLSVersion.bad.yml", Rejected("\"TLS111\" is no version")),
    ("web_config_rate_limiter_nonblocking.yaml", Plain),
    ("web_config_rate_limiter_one_second.yaml", Plain),
    ("web_config_users.good.yml", Tls),
    ("web_config_users_noTLS.good.yml", Plain),
];

#[test]
fn public_web_configurations_are_accepted_and_rejected_as_by_exporter_toolkit() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/web_config");
    for (name, expected) in FILES {
        let read = WebAccess::from_file(&folder.join(name));
        match (expected, read) {
            (Plain, Ok(access)) => assert!(access.server_tls().is_none(), "{name} has TLS"),
            (Tls, Ok(access)) => assert!(access.server_tls().is_some(), "{name} has no TLS"),
            (Rejected(_), Ok(_)) => panic!("{name} is accepted"),
            (Rejected(part), Err(error)) => {
                let error = error.to_string().replace(&format!("{}/", folder.display()), "");
                assert!(error.contains(part), "{name}: {error}");
                assert!(!error.contains("doe"), "{name}: a secret is in the error: {error}");
            }
            (Plain | Tls, Err(error)) => panic!("{name} is rejected: {error}"),
        }
    }
    let names = fs::read_dir(folder).unwrap().map(|file| file.unwrap().file_name());
    let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
    names.retain(|name| {
        Path::new(name).extension().is_some_and(|end| end == "yml" || end == "yaml")
    });
    names.sort_unstable();
    assert_eq!(names, FILES.map(|(name, _)| name), "each file is in the table");
}
