//! The settings of an aggregator's targets: each node has a group with a source, a format and a transport drawn from the
//! seed. Files of targets and secrets are on the real disk, and are damaged now and then.

use std::{fmt::Write as _, fs, io, path::PathBuf, time::Duration};

use crate::{
    seed_folder::SeedFolder,
    seeded_random::SeededRandom,
    simulated_aggregator::scrape_options,
    simulated_exporter::{DISCOVERY_PORT, discovery_host, fleet_certificates, secret_of},
    simulated_fleet::{NODES, PLAIN_PORT, SimulatedNode, TLS_PORT, UNCHECKED_TLS_PORT},
};
use gaunt_schema::SanitizedText;
use gaunt_scrape::{
    AddressPolicy, DiscoverySource, DnsDiscovery, DnsRecordType, EndpointDefaults, HttpCredentials,
    HttpDiscovery, ScrapePlan, ServerAccess, TargetGroup, UrlScheme, parse_url, tls::TlsOptions,
};

/// Time between two requests to the discovery server.
const REFRESH: Duration = Duration::from_secs(5);

/// The longest time until a damaged file is mended, in seconds.
const DAMAGED_FOR: u64 = 20;

/// Files of one node's group.
const FILES: [&str; 7] = ["list", "json", "yml", "token", "ca", "cert", "key"];

/// Addresses at which no exporter is, most of them forbidden.
pub(crate) const HOSTILE_ADDRESSES: [&str; 12] = [
    "169.254.169.254:80",
    "0.0.0.0:9100",
    "127.0.0.1:9770",
    "[::ffff:10.0.0.77]:9770",
    "[64:ff9b::a9fe:a9fe]:9770",
    "[2002:a9fe:a9fe::1]:80",
    "[::1]:9770",
    "[fd00::9]:9770",
    "[fe80::1]:9770",
    "255.255.255.255:80",
    "100.100.100.200:80",
    "localhost:9770",
];

/// Lists of hosts that are wrong.
const WRONG_LISTS: [&str; 21] = [
    "[gpu\u{1}{ [1-\n\t- :\r\nx\n",
    "gpu[1-3",
    "gpu1]",
    "gpu[1[2]]",
    "gpu[9-1]",
    "gpu[1-8/0]",
    "gpu[1-064]",
    "gpu[1,x]",
    "[::g]:9770",
    "[::1]x",
    "::1:9770:2",
    "gpu1:99999",
    "=10.0.0.1",
    "gpu[1-2]=10.0.0.[1-3]",
    "a=10.0.0.1\nb=10.0.0.1",
    "http://10.0.0.1:9770/metrics",
    "gpu 1/metrics",
    ":9770",
    "gpu[1-99999]",
    "[1][1][1][1][1][1][1][1][1]",
    "gpu[fd00::1]:9770",
];

/// Labels of a target in the notation of Prometheus: some are wrong.
const HOSTILE_LABELS: [(&str, &str); 6] = [
    ("__scheme__", "ftp"),
    ("__scheme__", "http"),
    ("__metrics_path__", "no-path"),
    ("__metrics_path__", "/a b\u{e9}"),
    ("__param_target", "switch 1/2 \u{e9}"),
    ("node", "gpu\u{202e}9"),
];

/// The settings and files of one machine.
pub(crate) struct SimulatedSources {
    folder: SeedFolder,
    random: SeededRandom,
    /// Damaged files, and the second at which each is mended.
    damaged: Vec<(usize, &'static str, u64)>,
    /// Whether the settings lack a node, or have something wrong.
    is_partial: bool,
    /// Whether settings may be wrong now.
    is_faulty: bool,
    faults: u64,
}

impl SimulatedSources {
    /// Writes all files of this seed.
    pub(crate) fn new(seed: u64) -> io::Result<Self> {
        let sources = Self {
            folder: SeedFolder::create(seed)?,
            random: SeededRandom::new(seed ^ 0x0050_07ce),
            damaged: Vec::new(),
            is_partial: false,
            is_faulty: true,
            faults: 0,
        };
        for node in 0..NODES {
            FILES.iter().try_for_each(|kind| sources.write_file(node, kind))?;
        }
        Ok(sources)
    }

    /// Files that were damaged, and reloads.
    pub(crate) fn fault_count(&self) -> u64 {
        self.faults
    }

    fn path(&self, node: usize, kind: &str) -> PathBuf {
        self.folder.path().join(format!("node{node}.{kind}"))
    }

    /// Writes a file as it should be, and renames it into place.
    fn write_file(&self, node: usize, kind: &str) -> io::Result<()> {
        let address = SimulatedNode::host(node);
        let content = match kind {
            "list" => format!("# the node\n{}[{}]\n", &address[..address.len() - 1], node + 1),
            "json" => format!(r#"[{{"targets": ["{address}"], "labels": {{"rack": "r1"}}}}]"#),
            "yml" => format!("- targets: ['{address}']\n  labels:\n    rack: r1\n"),
            "token" => format!("{}\n", secret_of(node)),
            _ => {
                let certificates = fleet_certificates().map_err(io::Error::other)?;
                match kind {
                    "cert" => certificates.client.clone(),
                    "key" => certificates.client_key.clone(),
                    _ => certificates.authority.clone(),
                }
            }
        };
        let new = self.path(node, "new");
        fs::write(&new, content)?;
        fs::rename(new, self.path(node, kind))
    }

    /// Damages a file now and then, each second in another way, and mends those whose time has come.
    pub(crate) fn draw_faults(&mut self, second: u64) -> io::Result<()> {
        self.mend_files(second)?;
        if self.random.once_in(8) {
            let node = self.random.below(NODES as u64) as usize;
            let kind = FILES[self.random.below(FILES.len() as u64) as usize];
            self.damaged.push((node, kind, second + self.random.below(DAMAGED_FOR)));
            self.faults += 1;
        }
        for (node, kind, _) in self.damaged.clone() {
            self.damage_file(node, kind)?;
        }
        Ok(())
    }

    /// Removes a file, or gives it a content that is wrong, or that names more than the node.
    fn damage_file(&mut self, node: usize, kind: &str) -> io::Result<()> {
        let path = self.path(node, kind);
        let address = SimulatedNode::host(node);
        let content = match (self.random.below(6), kind) {
            (0, _) if path.exists() => return fs::remove_file(&path),
            (1, _) => String::new(),
            (2, "list") => format!("{address}\n{}\n", self.draw_hostile_addresses().join(",")),
            (2 | 3, "json" | "yml") => draw_hostile_list(&address, &mut self.random),
            (2 | 3, "cert") => fleet_certificates().map_err(io::Error::other)?.authority.clone(),
            _ => WRONG_LISTS[self.random.below(WRONG_LISTS.len() as u64) as usize].to_owned(),
        };
        fs::write(&path, content)
    }

    fn draw_hostile_addresses(&mut self) -> Vec<&'static str> {
        draw_some(&HOSTILE_ADDRESSES, &mut self.random)
    }

    fn mend_files(&mut self, second: u64) -> io::Result<()> {
        let damaged = std::mem::take(&mut self.damaged);
        let (due, later) = damaged.into_iter().partition(|(_, _, until)| *until <= second);
        self.damaged = later;
        due.into_iter().try_for_each(|(node, kind, _)| self.write_file(node, kind))
    }

    /// Mends all files; settings are right from now on.
    pub(crate) fn repair(&mut self) -> io::Result<()> {
        self.is_faulty = false;
        self.mend_files(u64::MAX)
    }

    /// The settings to reload, if any: of all nodes, or for a while of all but one.
    pub(crate) fn draw_reload(&mut self, is_faulty: bool) -> io::Result<Option<ScrapePlan>> {
        let is_due = if is_faulty { self.random.once_in(30) } else { self.is_partial };
        if !is_due {
            return Ok(None);
        }
        self.faults += 1;
        let mut plan = self.draw_plan()?;
        if is_faulty && self.random.once_in(4) {
            plan.groups.remove(self.random.below(NODES as u64) as usize);
            self.is_partial = true;
        }
        Ok(Some(plan))
    }

    /// Settings of all nodes.
    pub(crate) fn draw_plan(&mut self) -> io::Result<ScrapePlan> {
        self.is_partial = false;
        let groups = (0..NODES).map(|node| self.draw_group(node));
        let groups = groups.collect::<io::Result<_>>()?;
        let plan = ScrapePlan { options: scrape_options(), groups };
        // As `gaunt check-config` and a start do: a file that is damaged now is an error there, and no reason not to go on.
        drop(plan.list_file_errors());
        drop(plan.check_files());
        Ok(plan)
    }

    /// Whether something of the settings is wrong until they are reloaded without faults.
    fn draw_wrong(&mut self, once_in: u64) -> bool {
        let is_wrong = self.is_faulty && self.random.once_in(once_in);
        self.is_partial |= is_wrong;
        is_wrong
    }

    fn draw_group(&mut self, node: usize) -> io::Result<TargetGroup> {
        let is_tls = self.random.once_in(3);
        // Nobody sends a secret to a server that is not checked.
        let is_checked = !is_tls || !self.random.once_in(3);
        let (scheme, port) = match (is_tls, is_checked) {
            (false, _) => (UrlScheme::Http, PLAIN_PORT),
            (true, true) => (UrlScheme::Https, TLS_PORT),
            (true, false) => (UrlScheme::Https, UNCHECKED_TLS_PORT),
        };
        let source = match self.random.below(4) {
            0 => DiscoverySource::TargetsFile(self.path(node, "list")),
            1 => DiscoverySource::Files(self.path(node, "json")),
            2 => DiscoverySource::Files(self.folder.path().join(format!("node{node}.y*"))),
            _ => {
                let url =
                    format!("http://{}:{DISCOVERY_PORT}/{}/{port}", discovery_host(node), node + 1);
                let endpoint = parse_url(&url).map_err(io::Error::other)?;
                let access = ServerAccess { tls: insecure(), ..ServerAccess::default() };
                DiscoverySource::Http(HttpDiscovery { endpoint, refresh: REFRESH, access })
            }
        };
        let token = self.path(node, "token");
        let credentials = match self.random.below(4) {
            _ if !is_checked => None,
            0 => Some(HttpCredentials::Bearer(token)),
            1 => Some(HttpCredentials::Basic { user: "gaunt".to_owned(), password_file: token }),
            _ => None,
        };
        let tls = if is_tls && is_checked {
            let server_name = match self.random.below(3) {
                _ if self.draw_wrong(12) => Some("not a name".to_owned()),
                0 => Some(SimulatedNode::host(node)),
                _ => None,
            };
            let pair = (self.path(node, "cert"), self.path(node, "key"));
            TlsOptions {
                ca_file: Some(self.path(node, "ca")),
                server_name,
                client_certificate: self.random.once_in(2).then_some(pair),
                ..TlsOptions::default()
            }
        } else {
            // The certificates of the system need not be read.
            insecure()
        };
        let ranges: &[&str] = match self.random.below(3) {
            _ if self.draw_wrong(12) => &["10.7.0.0/16", "[fd00::]/8:9000-9999"],
            0 => &["fd00::/8", "10.0.0.0/24:9000-9999"],
            1 => &["[fd00::1]:9770", "10.0.0.0/8"],
            _ => &[],
        };
        let allow = ranges.iter().map(|range| range.parse().map_err(io::Error::other));
        let allow = allow.collect::<io::Result<_>>()?;
        let mut sources = vec![source];
        if self.draw_wrong(6) {
            // No name server is there.
            sources.push(DiscoverySource::Dns(DnsDiscovery {
                name: "_gaunt._tcp.hall-1.test".to_owned(),
                record: DnsRecordType::Srv,
                refresh: REFRESH,
                server: Some(([127, 0, 0, 1], 1).into()),
            }));
        }
        Ok(TargetGroup {
            name: SanitizedText::new(&format!("group {node}")),
            sources,
            defaults: EndpointDefaults { scheme, port, ..EndpointDefaults::default() },
            access: ServerAccess { tls, credentials, ..ServerAccess::default() },
            address_policy: AddressPolicy { allow },
            compress: self.random.once_in(3),
            open_metrics: self.random.once_in(4),
            frames: self.random.once_in(2),
        })
    }
}

/// Whether this is the host of an address at which no exporter is, or the name that a wrong list gives it.
pub(crate) fn is_hostile_host(host: &str) -> bool {
    host.contains('\u{fffd}')
        || HOSTILE_ADDRESSES.iter().any(|address| {
            let (named, _) = address.rsplit_once(':').unwrap_or_default();
            named.trim_matches(['[', ']']) == host.trim_matches(['[', ']'])
        })
}

/// Up to three of these, one after the other.
fn draw_some<T: Copy>(all: &[T], random: &mut SeededRandom) -> Vec<T> {
    let count = 1 + random.below(3) as usize;
    let first = random.below((all.len() - count) as u64 + 1) as usize;
    all[first..first + count].to_vec()
}

/// A list of targets in JSON, which is YAML too: the right one, and others with labels of all kinds.
pub(crate) fn draw_hostile_list(right: &str, random: &mut SeededRandom) -> String {
    let mut list = format!(r#"[{{"targets": ["{right}"], "labels": {{"rack": "r1"}}}}"#);
    for address in draw_some(&HOSTILE_ADDRESSES, random) {
        let (label, value) = HOSTILE_LABELS[random.below(HOSTILE_LABELS.len() as u64) as usize];
        // Writing to a string cannot fail.
        _ = write!(
            list,
            r#", {{"targets": ["{address}", "{address}/"], "labels": {{"{label}": "{value}"}}}}"#
        );
    }
    list + "]"
}

/// No certificates are read, of the system or others.
pub(crate) fn insecure() -> TlsOptions {
    TlsOptions { insecure: true, ..TlsOptions::default() }
}
