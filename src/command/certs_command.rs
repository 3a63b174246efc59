//! `gaunt certs`: creates certificates for TLS between gaunt's programs, and a small CA that signs them.

use std::{
    fs::{self, DirBuilder, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    process::ExitCode,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::Context as _;
use gaunt_scrape::expand_host_list;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};

use super::snapshot_command::print_page;

/// Certificate and key of the CA.
const AUTHORITY: &str = "ca";

/// How long a new CA is valid: longer than the hosts that trust it.
const AUTHORITY_DAYS: u32 = 3_650;

/// Certificates are valid from this long ago on, for hosts whose clock is late.
const BACKDATED: Duration = Duration::from_hours(1);

/// The most certificates of one run: each takes about a millisecond, and two files.
const MAX_CERTIFICATES: usize = 20_000;

/// The most names of one certificate.
const MAX_NAMES: usize = 100;

/// Which certificates to create.
#[derive(Clone, Debug)]
pub struct CertsOptions {
    /// The folder of CA, certificates and keys.
    pub folder: PathBuf,
    /// Host lists of the servers, one certificate for each host.
    pub servers: Vec<String>,
    /// Further names and addresses in each server's certificate.
    pub names: Vec<String>,
    /// Names of clients, one certificate for each.
    pub clients: Vec<String>,
    /// Validity in days.
    pub days: u32,
    /// Replace existing certificates and keys.
    pub renew: bool,
}

/// One certificate to create.
struct CertificateRequest {
    /// The stem of its files.
    stem: String,
    /// Its names and addresses; the first is also its common name.
    names: Vec<String>,
    usage: ExtendedKeyUsagePurpose,
}

/// Creates the certificates, and the CA if the folder has none; prints what was written and what to do with it.
pub fn run(options: &CertsOptions) -> anyhow::Result<ExitCode> {
    let requests = plan_requests(options)?;
    let folder = &options.folder;
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .with_context(|| format!("cannot create {}", folder.display()))?;
    if !options.renew {
        refuse_existing(folder, &requests)?;
    }
    let (authority, is_new) = open_authority(folder)?;
    for request in &requests {
        create_certificate(folder, request, &authority, options)?;
    }
    print_page(&render_summary(options, &requests, is_new))?;
    Ok(ExitCode::SUCCESS)
}

fn plan_requests(options: &CertsOptions) -> anyhow::Result<Vec<CertificateRequest>> {
    let mut requests = Vec::new();
    for list in &options.servers {
        let room = MAX_CERTIFICATES - requests.len();
        for host in expand_host_list(list, room)? {
            let mut names = vec![host.clone()];
            names.extend(options.names.iter().filter(|name| **name != host).cloned());
            let usage = ExtendedKeyUsagePurpose::ServerAuth;
            requests.push(CertificateRequest { stem: file_stem(&host)?, names, usage });
        }
    }
    for client in &options.clients {
        let usage = ExtendedKeyUsagePurpose::ClientAuth;
        let stem = format!("client-{}", file_stem(client)?);
        requests.push(CertificateRequest { stem, names: vec![client.clone()], usage });
    }
    anyhow::ensure!(
        !requests.is_empty(),
        "no certificate to create; name servers with --server 'gpu[001-064]' or clients with \
         --client NAME"
    );
    anyhow::ensure!(
        requests.len() <= MAX_CERTIFICATES && options.names.len() < MAX_NAMES,
        "at most {MAX_CERTIFICATES} certificates with {MAX_NAMES} names each; create them in parts"
    );
    let mut stems: Vec<_> = requests.iter().map(|request| &request.stem).collect();
    stems.sort_unstable();
    if let Some((stem, _)) = stems.iter().zip(stems.iter().skip(1)).find(|(one, next)| one == next)
    {
        anyhow::bail!("{stem} is named twice; name it once, and its other names with --name");
    }
    Ok(requests)
}

/// The stem of the files of a name.
fn file_stem(name: &str) -> anyhow::Result<String> {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-._:".contains(letter);
    anyhow::ensure!(
        !name.is_empty() && name.chars().all(is_plain) && !name.starts_with(['.', '-']),
        "{name:?} is no host name or address; use letters, digits, - and ."
    );
    anyhow::ensure!(name != AUTHORITY, "{name:?} is the name of the CA's files; use another name");
    Ok(name.replace(':', "-"))
}

fn certificate_path(folder: &Path, stem: &str) -> PathBuf {
    folder.join(format!("{stem}.pem"))
}

fn key_path(folder: &Path, stem: &str) -> PathBuf {
    folder.join(format!("{stem}.key"))
}

fn refuse_existing(folder: &Path, requests: &[CertificateRequest]) -> anyhow::Result<()> {
    for request in requests {
        for path in [certificate_path(folder, &request.stem), key_path(folder, &request.stem)] {
            if fs::symlink_metadata(&path).is_ok() {
                anyhow::bail!(
                    "{} exists and is kept, nothing was written; --renew replaces it",
                    path.display()
                );
            }
        }
    }
    Ok(())
}

/// The CA of the folder, and whether it is new.
fn open_authority(folder: &Path) -> anyhow::Result<(Issuer<'static, KeyPair>, bool)> {
    let (certificate, key) = (certificate_path(folder, AUTHORITY), key_path(folder, AUTHORITY));
    match (certificate.exists(), key.exists()) {
        (true, true) => {
            let read = |path: &Path| {
                fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
            };
            // The library's message may quote the text.
            let pair = KeyPair::from_pem(&read(&key)?)
                .map_err(|_| anyhow::anyhow!("{} has no private key in PEM", key.display()))?;
            let issuer = Issuer::from_ca_cert_pem(&read(&certificate)?, pair).map_err(|_| {
                anyhow::anyhow!("{} has no certificate in PEM", certificate.display())
            })?;
            Ok((issuer, false))
        }
        (false, false) => {
            let mut params = CertificateParams::default();
            let created = time_since_epoch().as_secs();
            params.distinguished_name.push(DnType::CommonName, format!("gaunt CA {created}"));
            params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
            params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
            set_validity(&mut params, AUTHORITY_DAYS);
            let pair = KeyPair::generate().context("cannot create a key for the CA")?;
            let signed = params.self_signed(&pair).context("cannot create the CA")?;
            write_file(&key, &pair.serialize_pem())?;
            write_file(&certificate, &signed.pem())?;
            Ok((Issuer::new(params, pair), true))
        }
        (has_certificate, _) => {
            let (found, lacks) =
                if has_certificate { (certificate, key) } else { (key, certificate) };
            anyhow::bail!(
                "{} is there and {} is not; restore it, or use an empty folder",
                found.display(),
                lacks.display()
            )
        }
    }
}

fn create_certificate(
    folder: &Path,
    request: &CertificateRequest,
    authority: &Issuer<'static, KeyPair>,
    options: &CertsOptions,
) -> anyhow::Result<()> {
    let name = &request.names[0];
    let mut params = CertificateParams::new(request.names.clone())
        .map_err(|_| anyhow::anyhow!("{:?} has an invalid name; use ASCII", request.names))?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name.as_str());
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![request.usage.clone()];
    params.use_authority_key_identifier_extension = true;
    set_validity(&mut params, options.days);
    let failed = || format!("cannot create the certificate of {name}");
    let pair = KeyPair::generate().with_context(failed)?;
    let signed = params.signed_by(&pair, authority).with_context(failed)?;
    write_file(&key_path(folder, &request.stem), &pair.serialize_pem())?;
    write_file(&certificate_path(folder, &request.stem), &signed.pem())
}

fn set_validity(params: &mut CertificateParams, days: u32) {
    let now = date_time_ymd(1970, 1, 1) + time_since_epoch();
    params.not_before = now - BACKDATED;
    params.not_after = now + Duration::from_hours(24) * days;
}

fn time_since_epoch() -> Duration {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Duration::from_secs(now.as_secs())
}

/// Writes a file that only its owner may read, whole or not at all.
fn write_file(path: &Path, text: &str) -> anyhow::Result<()> {
    let mut new = path.to_path_buf().into_os_string();
    new.push(".new");
    let write = || -> io::Result<()> {
        match fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, path)
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}

/// What was written, and what to do with it.
fn render_summary(options: &CertsOptions, requests: &[CertificateRequest], is_new: bool) -> String {
    let folder = options.folder.display();
    let authority = if is_new { "new CA" } else { "CA" };
    let mut page = format!(
        "{authority} {folder}/{AUTHORITY}.pem; keep {folder}/{AUTHORITY}.key on this host alone\n"
    );
    for request in requests {
        let (stem, names) = (&request.stem, request.names.join(", "));
        let days = options.days;
        page += format!("{folder}/{stem}.pem, {stem}.key for {names}, {days} days\n").as_str();
    }
    page.push_str("next: copy ca.pem and the certificate and key of each host to it\n");
    page
}

#[cfg(test)]
mod tests {
    use std::{os::unix::fs::PermissionsExt as _, sync::Arc};

    use tokio_rustls::rustls::{
        RootCertStore,
        client::{WebPkiServerVerifier, danger::ServerCertVerifier as _},
        crypto::ring,
        pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject as _},
        server::WebPkiClientVerifier,
    };

    use super::*;

    fn sample_options(folder: &Path) -> CertsOptions {
        CertsOptions {
            folder: folder.to_owned(),
            servers: vec!["gpu[1-2]".to_owned(), "10.0.0.5".to_owned()],
            names: vec!["gaunt.example".to_owned()],
            clients: vec!["gaunt".to_owned()],
            days: 30,
            renew: false,
        }
    }

    fn read_pem(path: &Path) -> CertificateDer<'static> {
        CertificateDer::from_pem_file(path).unwrap()
    }

    fn read_roots(folder: &Path) -> Arc<RootCertStore> {
        let mut roots = RootCertStore::empty();
        roots.add(read_pem(&folder.join("ca.pem"))).unwrap();
        Arc::new(roots)
    }

    fn verify_server(folder: &Path, stem: &str, name: &str, at: UnixTime) -> bool {
        let provider = Arc::new(ring::default_provider());
        let verifier =
            WebPkiServerVerifier::builder_with_provider(read_roots(folder), provider).build();
        let certificate = read_pem(&folder.join(format!("{stem}.pem")));
        let name = ServerName::try_from(name.to_owned()).unwrap();
        verifier.unwrap().verify_server_cert(&certificate, &[], &name, &[], at).is_ok()
    }

    #[test]
    fn created_certificates_are_valid_for_their_names_and_purpose() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("certs");
        run(&sample_options(&folder)).unwrap();
        let now = UnixTime::since_unix_epoch(time_since_epoch());
        for (stem, name) in [
            ("gpu1", "gpu1"),
            ("gpu2", "gpu2"),
            ("gpu2", "gaunt.example"),
            ("10.0.0.5", "10.0.0.5"),
        ] {
            assert!(verify_server(&folder, stem, name, now), "{stem} {name}");
        }
        assert!(!verify_server(&folder, "gpu1", "gpu2", now), "another host");
        assert!(!verify_server(&folder, "client-gaunt", "gaunt", now), "no server");
        let later = UnixTime::since_unix_epoch(time_since_epoch() + Duration::from_hours(24 * 31));
        assert!(!verify_server(&folder, "gpu1", "gpu1", later), "expired");
        let provider = Arc::new(ring::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(read_roots(&folder), provider);
        let verifier = verifier.build().unwrap();
        let verify = |stem: &str| {
            let certificate = read_pem(&folder.join(format!("{stem}.pem")));
            verifier.verify_client_cert(&certificate, &[], now).is_ok()
        };
        assert!(verify("client-gaunt") && !verify("gpu1"));
        for name in ["ca.key", "gpu1.key", "client-gaunt.key"] {
            let mode = fs::metadata(folder.join(name)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{name}");
        }
    }

    #[test]
    fn existing_files_are_kept_and_the_ca_is_used_again() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("certs");
        let mut options = sample_options(&folder);
        run(&options).unwrap();
        let (authority, former) =
            (fs::read(folder.join("ca.pem")).unwrap(), fs::read(folder.join("gpu1.pem")).unwrap());
        options.servers.push("gpu3".to_owned());
        let error = run(&options).unwrap_err().to_string();
        assert!(
            error
                .ends_with("gpu1.pem exists and is kept, nothing was written; --renew replaces it")
        );
        assert!(!folder.join("gpu3.pem").exists());
        options.renew = true;
        run(&options).unwrap();
        assert_eq!(fs::read(folder.join("ca.pem")).unwrap(), authority);
        assert_ne!(fs::read(folder.join("gpu1.pem")).unwrap(), former);
        let now = UnixTime::since_unix_epoch(time_since_epoch());
        assert!(verify_server(&folder, "gpu3", "gpu3", now), "signed by the former CA");
        fs::remove_file(folder.join("ca.key")).unwrap();
        let error = run(&options).unwrap_err().to_string();
        assert!(error.contains("ca.pem is there and ") && error.contains("ca.key is not"));
    }

    #[test]
    fn invalid_names_are_rejected_before_anything_is_written() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("certs");
        for (servers, clients, expected) in [
            (vec![], vec![], "no certificate to create"),
            (vec!["../etc"], vec![], "\"../etc\" is no host name"),
            (vec!["ca"], vec![], "is the name of the CA's files"),
            (vec!["a", "a"], vec![], "a is named twice"),
            (vec!["gpu[1-"], vec![], "host list"),
            (vec![], vec!["a b"], "\"a b\" is no host name"),
        ] {
            let owned = |names: Vec<&str>| names.into_iter().map(str::to_owned).collect();
            let options = CertsOptions {
                servers: owned(servers),
                clients: owned(clients),
                ..sample_options(&folder)
            };
            let error = run(&options).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        assert!(!folder.exists());
    }
}
