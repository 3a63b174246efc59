//! Web configurations that are accepted and rejected, and their reload.

use std::{fs, path::Path};

use rcgen::{CertificateParams, KeyPair};

use super::*;

mod public_cases;

/// A folder with `server.crt`, `server.key` and `client.pem`.
fn make_folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (certificate, key) in [("server.crt", "server.key"), ("client.pem", "client.key")] {
        write_certificate(folder.path(), certificate, key);
    }
    folder
}

fn write_certificate(folder: &Path, certificate: &str, key: &str) {
    let pair = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    fs::write(folder.join(certificate), params.self_signed(&pair).unwrap().pem()).unwrap();
    fs::write(folder.join(key), pair.serialize_pem()).unwrap();
}

fn load_text(folder: &Path, text: &str) -> Result<WebAccess, String> {
    let path = folder.join("web.yml");
    fs::write(&path, text).unwrap();
    let prefix = format!("{}/", folder.display());
    WebAccess::from_file(&path).map_err(|error| error.to_string().replace(&prefix, ""))
}

/// The section of TLS with these lines after certificate and key.
fn tls_section(lines: &str) -> String {
    format!("tls_server_config:\n  cert_file: server.crt\n  key_file: server.key\n{lines}")
}

/// Files with TLS that are accepted; `@` is the section with certificate and key.
const ACCEPTED_TLS: [&str; 9] = [
    "@  client_auth_type: VerifyClientCertIfGiven\n",
    "@  client_auth_type: RequireAndVerifyClientCert\n",
    "@  client_auth_type: RequireAnyClientCert\n",
    "@  client_auth_type: RequireClientCert\n",
    "@  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: client.pem\n  \
     client_allowed_sans: [localhost]\n",
    "@  cipher_suites:\n  - TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256\n  - TLS_AES_128_GCM_SHA256\n  - \
     TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA\n  max_version: TLS12\n  prefer_server_cipher_suites: false\n",
    "@  cipher_suites: [TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384]\n  max_version: \
     TLS12\nhttp_server_config:\n  http2: false\n",
    "@  curve_preferences: [CurveP256, CurveP384, CurveP521, X25519]\n",
    "@  min_version: TLS13\n",
];

/// Files without TLS that are accepted.
const ACCEPTED_PLAIN: [&str; 6] = [
    "",
    "# nothing\n",
    "rate_limit:\n  interval: 0\n  burst: 0\n",
    "rate_limit:\n  interval: 1m30s\n  burst: 5\n",
    "http_server_config:\n  headers:\n    X-Frame-Options: deny\n    X-XSS-Protection: 1\n    \
     Strict-Transport-Security: max-age=31536000; includeSubDomains\n    X-Content-Type-Options: \
     nosniff\n    Content-Security-Policy: \"default-src 'self'\"\n",
    "basic_auth_users:\n  bob: $2y$18$4VeFDzXIoPHKnKTU3O3GHuNwvZu06CVqczYZ8WvfzrddFU6tGqjRi\n",
];

/// Files that are rejected, and a part of the error.
const REJECTED: [(&str, &str); 24] = [
    ("abc\ndef\n", "web.yml: "),
    ("tls_server_config:\n  cert_filse: server.crt\n", "cert_filse"),
    ("tls_server_config:\n  cert_file: ''\n  key_file: server.key\n", "cert_file"),
    ("tls_server_config:\n  cert: ''\n  key_file: server.key\n", "cert_file"),
    ("tls_server_config:\n  cert_file: server.crt\n  key_file: ''\n", "key_file"),
    ("tls_server_config:\n  cert_file: server.crt\n  key: ''\n", "key_file"),
    ("tls_server_config:\n  cert_file: ''\n  key_file: ''\n  client_auth_type: x\n", "cert_file"),
    ("tls_server_config:\n  cert_file: none\n  key_file: server.key\n", "cannot read none"),
    ("tls_server_config:\n  cert_file: server.crt\n  key_file: none\n", "cannot read none"),
    ("tls_server_config:\n  cert_file: server.crt\n  key_file: client.key\n", "belong together"),
    ("tls_server_config:\n  cert_file: server.key\n  key_file: server.key\n", "no certificate"),
    ("@  client_ca_file: client.pem\n", "set RequireAndVerifyClientCert"),
    ("@  client_auth_type: RequireAnyClientCert\n  client_ca_file: none\n", "cannot read none"),
    ("@  client_auth_type: Sometimes\n", "\"Sometimes\" is unknown"),
    ("@  cipher_suites: [TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA2048]\n", "SHA2048\" is unknown"),
    (
        "@  cipher_suites: [TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384]\n  max_version: TLS12\n",
        "set http2: false",
    ),
    ("@  curve_preferences: [CurveP257]\n", "\"CurveP257\" is unknown"),
    ("@  min_version: TLS111\n", "\"TLS111\" is no version"),
    ("@  max_version: TLS11\n", "older ones are insecure"),
    ("@basic_auth_users:\n  john: doe\n", "\"john\" is no bcrypt hash"),
    ("http_server_config:\n  headers:\n    X-Content-Type-Options: sniff\n", "must be nosniff"),
    ("http_server_config:\n  headers:\n    X-Frame-Options: foo\n", "must be deny or sameorigin"),
    ("http_server_config:\n  headers:\n    Content-Type: foo\n", "cannot be set"),
    ("rate_limit:\n  interval: often\n", "duration with its unit"),
];

#[test]
fn web_configurations_in_its_format_are_accepted() {
    let folder = make_folder();
    let load = |text: &str| {
        let text = text.replace('@', &tls_section(""));
        load_text(folder.path(), &text).unwrap_or_else(|why| panic!("{text}: {why}"))
    };
    for text in ACCEPTED_TLS {
        assert!(load(text).server_tls().is_some(), "{text}");
    }
    for text in ACCEPTED_PLAIN {
        assert!(load(text).server_tls().is_none(), "{text}");
    }
    let indent = |name: &str| {
        let pem = fs::read_to_string(folder.path().join(name)).unwrap();
        pem.lines().flat_map(|line| ["    ", line, "\n"]).collect::<String>()
    };
    let (certificate, key) = (indent("server.crt"), indent("server.key"));
    let inline = format!("tls_server_config:\n  cert: |\n{certificate}  key: |\n{key}");
    assert!(load(&inline).server_tls().is_some());
}

#[test]
fn web_configurations_are_rejected_with_the_setting_and_the_next_step() {
    let folder = make_folder();
    for (text, expected) in REJECTED {
        let text = text.replace('@', &tls_section(""));
        let Err(error) = load_text(folder.path(), &text) else { panic!("accepted: {text}") };
        assert!(error.contains(expected), "{text}: {error}");
        assert!(!error.contains("doe"), "a secret is in the error: {error}");
    }
    let missing = WebAccess::from_file(&folder.path().join("none.yml"));
    assert!(missing.is_err_and(|error| error.to_string().contains("cannot read")));
}

/// Reads the files again now.
fn reload(access: &WebAccess) -> Arc<AccessRules> {
    access.current_rules(Instant::now() + LOOK_INTERVAL)
}

#[test]
fn web_configuration_is_reloaded_when_a_certificate_changes() {
    let folder = make_folder();
    let access = load_text(folder.path(), &tls_section("")).unwrap();
    let first = access.server_tls().unwrap();
    assert!(Arc::ptr_eq(&first, &reload(&access).tls.as_ref().unwrap().config), "nothing changed");
    // The certificate alone does not belong to the key: the previous one stays in use.
    let key = fs::read(folder.path().join("server.key")).unwrap();
    write_certificate(folder.path(), "server.crt", "server.key");
    let new_key = fs::read(folder.path().join("server.key")).unwrap();
    fs::write(folder.path().join("server.key"), key).unwrap();
    assert!(Arc::ptr_eq(&first, &reload(&access).tls.as_ref().unwrap().config));
    fs::remove_file(folder.path().join("server.key")).unwrap();
    fs::write(folder.path().join("server.key.new"), new_key).unwrap();
    fs::rename(folder.path().join("server.key.new"), folder.path().join("server.key")).unwrap();
    // The same instant would be within the interval of the last look.
    let rules = access.current_rules(Instant::now() + LOOK_INTERVAL * 3);
    assert!(!Arc::ptr_eq(&first, &rules.tls.as_ref().unwrap().config));
}

/// A pipe without a writer answers as a network file system that is away: never.
#[test]
fn files_that_do_not_answer_change_nothing_and_delay_one_request() {
    let folder = make_folder();
    let text = "http_server_config:\n  headers:\n    X-Frame-Options: deny\n";
    let access = load_text(folder.path(), text).unwrap();
    let (path, first) = (folder.path().join("web.yml"), reload(&access));
    fs::remove_file(&path).unwrap();
    let owner = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    let pipe = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, &path, pipe, owner, 0).unwrap();
    let mut now = Instant::now();
    // Each look that waited would take a second.
    for _ in 0..100 {
        now += LOOK_INTERVAL * 2;
        assert!(Arc::ptr_eq(&first, &access.current_rules(now)));
    }
    fs::write(&path, text.replace("deny", "sameorigin")).unwrap();
    let end = Instant::now() + Duration::from_mins(1);
    while Arc::ptr_eq(&first, &access.current_rules(now)) {
        assert!(Instant::now() < end, "it answers again");
    }
    let started = WebAccess::from_file_within(&path, Duration::from_millis(20));
    let error = started.err().unwrap().to_string();
    assert!(error.contains("web.yml: its file system does not answer within 0.02 s"), "{error}");
}

#[test]
fn reload_never_opens_the_server() {
    let folder = make_folder();
    let hash = bcrypt::hash("right", 4).unwrap();
    let users = format!("basic_auth_users:\n  alice: {hash}\n");
    let access = load_text(folder.path(), &tls_section(&users)).unwrap();
    for (step, text) in ["", &users, &tls_section(""), "junk"].into_iter().enumerate() {
        fs::write(folder.path().join("web.yml"), text).unwrap();
        let rules = access.current_rules(Instant::now() + LOOK_INTERVAL * (step as u32 * 2 + 1));
        assert!(rules.tls.is_some() && !rules.file.users.is_empty(), "{text}");
    }
}

#[tokio::test]
async fn requests_beyond_the_rate_limit_are_denied() {
    let folder = make_folder();
    let text = "rate_limit:\n  interval: 1h\n  burst: 2\n";
    let access = load_text(folder.path(), text).unwrap();
    let (headers, peer) = (HeaderMap::new(), [127, 0, 0, 1].into());
    for _ in 0..2 {
        assert_eq!(access.check_request(&headers, peer).await, Ok(()));
    }
    let denied = access.check_request(&headers, peer).await.unwrap_err();
    assert_eq!(denied.status, StatusCode::TOO_MANY_REQUESTS);
    let text = "rate_limit:\n  interval: 1s\n  burst: 0\n";
    let access = load_text(folder.path(), text).unwrap();
    assert!(
        access.check_request(&headers, peer).await.is_err(),
        "no request is within a burst of 0"
    );
}

#[test]
fn addresses_beyond_this_machine_need_tls_and_an_identity() {
    let folder = make_folder();
    let (outside, local) = ([0, 0, 0, 0].into(), [127, 0, 0, 1].into());
    assert_eq!(describe_open_address(local, None, false), None);
    assert!(describe_open_address(outside, None, false).is_some());
    let access = load_text(folder.path(), &tls_section("")).unwrap();
    assert!(describe_open_address(outside, Some(&access), false).is_some());
    assert_eq!(describe_open_address(outside, Some(&access), true), None);
    assert!(describe_open_address(outside, None, true).is_some());
    let lines = "  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: client.pem\n";
    let access = load_text(folder.path(), &tls_section(lines)).unwrap();
    assert_eq!(describe_open_address(outside, Some(&access), false), None);
}
