//! The settings of an aggregator's targets: each node has a group with a source, a format and a transport drawn from the
//! seed. Files of targets and secrets are on the real disk, and are damaged now and then.

use std::{fs, io, path::PathBuf, time::Duration};

use gaunt_schema::SanitizedText;
use gaunt_scrape::{
    AddressPolicy, DiscoverySource, EndpointDefaults, HttpCredentials, HttpDiscovery,
    ScrapeOptions, ScrapePlan, ServerAccess, TargetGroup, UrlScheme, parse_url, tls::TlsOptions,
};
use tempfile::TempDir;

use crate::{
    seeded_random::SeededRandom,
    simulated_aggregator::PERIOD,
    simulated_exporter::{DISCOVERY_PORT, discovery_host, fleet_certificates, secret_of},
    simulated_fleet::{NODES, PLAIN_PORT, SimulatedNode, TLS_PORT},
};

/// Time between two requests to the discovery server.
const REFRESH: Duration = Duration::from_secs(5);

/// The longest time until a damaged file is mended, in seconds.
const DAMAGED_FOR: u64 = 20;

/// Files of one node's group.
const FILES: [&str; 5] = ["list", "json", "yml", "token", "ca"];

/// The settings and files of one machine.
pub(crate) struct SimulatedSources {
    folder: TempDir,
    random: SeededRandom,
    /// Damaged files, and the second at which each is mended.
    damaged: Vec<(usize, &'static str, u64)>,
    /// Whether the settings lack a node.
    is_partial: bool,
    faults: u64,
}

impl SimulatedSources {
    /// Writes all files.
    pub(crate) fn new(random: SeededRandom) -> io::Result<Self> {
        let folder = tempfile::Builder::new().prefix("gaunt-targets").tempdir()?;
        let sources = Self { folder, random, damaged: Vec::new(), is_partial: false, faults: 0 };
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
            _ => fleet_certificates().map_err(io::Error::other)?.authority.clone(),
        };
        let new = self.path(node, "new");
        fs::write(&new, content)?;
        fs::rename(new, self.path(node, kind))
    }

    /// Damages a file now and then, and mends those whose time has come.
    pub(crate) fn draw_faults(&mut self, second: u64) -> io::Result<()> {
        self.mend_files(second)?;
        if !self.random.once_in(15) {
            return Ok(());
        }
        let node = self.random.below(NODES as u64) as usize;
        let kind = FILES[self.random.below(FILES.len() as u64) as usize];
        let path = self.path(node, kind);
        match self.random.below(3) {
            0 if path.exists() => fs::remove_file(&path)?,
            1 => fs::write(&path, "")?,
            _ => fs::write(&path, "[gpu\u{1}{ [1-\n\t- :\r\nx\n")?,
        }
        self.damaged.push((node, kind, second + self.random.below(DAMAGED_FOR)));
        self.faults += 1;
        Ok(())
    }

    fn mend_files(&mut self, second: u64) -> io::Result<()> {
        let damaged = std::mem::take(&mut self.damaged);
        let (due, later) = damaged.into_iter().partition(|(_, _, until)| *until <= second);
        self.damaged = later;
        due.into_iter().try_for_each(|(node, kind, _)| self.write_file(node, kind))
    }

    /// Mends all files.
    pub(crate) fn repair(&mut self) -> io::Result<()> {
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
        Ok(ScrapePlan { options: ScrapeOptions::with_period(PERIOD), groups })
    }

    fn draw_group(&mut self, node: usize) -> io::Result<TargetGroup> {
        let is_tls = self.random.once_in(3);
        let (scheme, port) =
            if is_tls { (UrlScheme::Https, TLS_PORT) } else { (UrlScheme::Http, PLAIN_PORT) };
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
            0 => Some(HttpCredentials::Bearer(token)),
            1 => Some(HttpCredentials::Basic { user: "gaunt".to_owned(), password_file: token }),
            _ => None,
        };
        let tls = if is_tls {
            TlsOptions { ca_file: Some(self.path(node, "ca")), ..TlsOptions::default() }
        } else {
            // The certificates of the system need not be read.
            insecure()
        };
        let ranges: &[&str] = match self.random.below(3) {
            0 => &["fd00::/8", "10.0.0.0/24:9000-9999"],
            1 => &["[fd00::1]:9770", "10.0.0.0/8"],
            _ => &[],
        };
        let allow = ranges.iter().map(|range| range.parse().map_err(io::Error::other));
        let allow = allow.collect::<io::Result<_>>()?;
        Ok(TargetGroup {
            name: SanitizedText::new(&format!("group {node}")),
            sources: vec![source],
            defaults: EndpointDefaults { scheme, port, ..EndpointDefaults::default() },
            access: ServerAccess { tls, credentials, ..ServerAccess::default() },
            address_policy: AddressPolicy { allow },
            compress: self.random.once_in(3),
            open_metrics: self.random.once_in(4),
            frames: self.random.once_in(2),
        })
    }
}

fn insecure() -> TlsOptions {
    TlsOptions { insecure: true, ..TlsOptions::default() }
}
