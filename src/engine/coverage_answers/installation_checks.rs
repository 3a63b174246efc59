//! Checks of the installation: what gaunt reads and writes besides pages, clocks, versions and certificates.

use gaunt_api::{CoverageCheck, CoverageKind, CoverageState};
use gaunt_schema::{DeviceClass, SanitizedText, UnixMs, catalogue::host, time::format_duration};

use super::{CoveredNode, KnownCount, coverage_texts};
use crate::view::View;

/// The difference of a node's clock from which its times mislead, transport time included: two scrapes.
const MAX_SKEW_MS: u64 = 2_000;

/// A check whose next step is in the failure.
fn with_next(
    check: Option<CoverageCheck>,
    failure: Option<SanitizedText>,
) -> Option<CoverageCheck> {
    let check = check?;
    Some(CoverageCheck { next: failure.unwrap_or_else(|| check.next.clone()), ..check })
}

/// A check of things with a name and perhaps a failure, whose text is the next step.
fn check_failures<'a>(
    kind: CoverageKind,
    things: impl Iterator<Item = (&'a SanitizedText, Option<&'a SanitizedText>)>,
) -> Option<CoverageCheck> {
    let (mut counted, mut first) = (KnownCount::default(), None);
    for (name, failure) in things {
        counted.count(name, failure.is_none());
        first = first.or_else(|| failure.cloned());
    }
    with_next(counted.into_check(kind), first)
}

impl View<'_> {
    /// All of them that apply.
    pub(super) fn installation_checks(
        &self,
        nodes: &[CoveredNode<'_>],
    ) -> impl Iterator<Item = CoverageCheck> {
        let sources = self.cluster.target_sources();
        let files = self.cluster.site_files();
        let (alerts, peers) = (self.options.alert_list(), self.peer_lines());
        let store = self.store_line();
        [
            check_failures(
                CoverageKind::Sources,
                sources.iter().map(|source| (&source.name, source.trouble.as_ref())),
            ),
            check_failures(
                CoverageKind::SiteFiles,
                files.iter().map(|file| (&file.file, file.trouble.as_ref())),
            ),
            self.check_clocks(nodes),
            check_versions(self, nodes),
            self.check_certificates(nodes),
            check_failures(
                CoverageKind::Alertmanagers,
                alerts.servers.iter().map(|server| (&server.address, server.failure.as_ref())),
            ),
            check_failures(
                CoverageKind::Peers,
                peers.iter().map(|peer| (&peer.address, peer.failure.as_ref())),
            ),
            check_failures(
                CoverageKind::Store,
                store.iter().map(|store| (&store.address, store.failure.as_ref())),
            ),
        ]
        .into_iter()
        .flatten()
    }

    /// Nodes whose clock is known and right. Only an exporter that states its time has one.
    fn check_clocks(&self, nodes: &[CoveredNode<'_>]) -> Option<CoverageCheck> {
        let mut counted = KnownCount::default();
        for it in nodes {
            let Some(skew) = it.node.clock_skew_ms.filter(|_| self.past.is_none()) else {
                continue;
            };
            let is_right = skew.unsigned_abs() <= MAX_SKEW_MS;
            let seconds = skew as f64 / 1e3;
            let name = if is_right {
                it.node.name.to_string()
            } else {
                format!("{} ({seconds:+.0} s)", it.node.name)
            };
            counted.count(&SanitizedText::new(&name), is_right);
        }
        counted.into_check(CoverageKind::Clocks)
    }

    /// Certificates of exporters and of gaunt that are valid for longer than the limit.
    fn check_certificates(&self, nodes: &[CoveredNode<'_>]) -> Option<CoverageCheck> {
        let mut counted = KnownCount::default();
        let mut count = |name: &SanitizedText, expiry: UnixMs| {
            let left = (expiry.0 - self.at.0) as f64 / 1e3;
            let is_valid = left >= self.options.thresholds.certificate_seconds;
            let span = format_duration(std::time::Duration::from_secs(left.abs() as u64));
            let name = match (is_valid, left < 0.0) {
                (true, _) => name.to_string(),
                (false, true) => format!("{name} (expired {span} ago)"),
                (false, false) => format!("{name} ({span} left)"),
            };
            counted.count(&SanitizedText::new(&name), is_valid);
        };
        for it in nodes {
            let row = it.node.own_row();
            let value =
                row.and_then(|row| self.cluster.current_value(host::CERTIFICATE_EXPIRY, row));
            if let Some(expiry) = value {
                count(&it.node.name, UnixMs::from_seconds(expiry));
            }
        }
        for line in self.cluster.own_certificates() {
            count(&line.file, line.expiry);
        }
        counted.into_check(CoverageKind::Certificates)
    }
}

/// Nodes whose gaunt-node has the version of this program. Others work, but may lack metrics: a note. Their versions are
/// listed with how many nodes have each.
fn check_versions(view: &View<'_>, nodes: &[CoveredNode<'_>]) -> Option<CoverageCheck> {
    let own = env!("CARGO_PKG_VERSION");
    let mut counted = KnownCount::default();
    for it in nodes {
        let entry =
            it.node.own_row().and_then(|row| view.cluster.device_at(DeviceClass::Node, row));
        let version = entry.and_then(|entry| entry.info_label(host::NODE_INFO, "version"));
        let Some(version) = version.filter(|version| !version.is_empty()) else { continue };
        let is_own = version.as_str() == own;
        let name =
            if is_own { it.node.name.to_string() } else { format!("{} ({version})", it.node.name) };
        counted.count(&SanitizedText::new(&name), is_own);
        *counted.origins.entry(format!("version {version}")).or_default() += 1;
    }
    let mut check = counted.into_check(CoverageKind::Versions)?;
    if check.state == CoverageState::Missing {
        check.state = CoverageState::Note;
        check.next = SanitizedText::new(coverage_texts::VERSIONS_NEXT);
    }
    Some(check)
}
