//! The `[gather]` section: target sources, access, and quotas.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
};

use gaunt_schema::SanitizedText;
use serde::{Deserialize, Deserializer, de::Error as _};
use toml::Spanned;

use super::{
    access_section::{self, BasicAuthSection, TlsSection},
    setting_values::{SizeSetting, SpanSetting},
};
use gaunt_scrape::{
    AddressPolicy, AddressRange, DEFAULT_PATH, DEFAULT_PORT, DiscoverySource, DnsDiscovery,
    DnsRecordType, Endpoint, EndpointDefaults, HttpDiscovery, REFRESH, REMOVAL, ScrapeQuotas,
    TargetGroup, UrlScheme, check_host_list, check_path, parse_url,
};

/// What is scraped, and how.
#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct GatherSection {
    #[serde(deserialize_with = "host_lists")]
    targets: Vec<String>,
    targets_files: Vec<PathBuf>,
    file_sd: Vec<PathBuf>,
    pub(super) period: SpanSetting,
    pub(super) timeout: Option<Spanned<SpanSetting>>,
    pub(super) max_body: Spanned<SizeSetting>,
    compress: bool,
    open_metrics: bool,
    frames: bool,
    allow: Vec<Network>,
    removal_guard: ShareSetting,
    max_samples: u64,
    max_series: u64,
    max_new_series: u64,
    max_all_samples: u64,
    max_all_series: u64,
    max_all_new_series: u64,
    max_all_bytes: SizeSetting,
    pub(super) groups: Vec<Spanned<GroupSection>>,
}

impl Default for GatherSection {
    fn default() -> Self {
        let limits = ScrapeQuotas::default();
        Self {
            targets: Vec::new(),
            targets_files: Vec::new(),
            file_sd: Vec::new(),
            period: SpanSetting::from_seconds(1),
            timeout: None,
            max_body: Spanned::new(0..0, SizeSetting::new(16 << 20)),
            compress: false,
            open_metrics: false,
            frames: true,
            allow: Vec::new(),
            removal_guard: ShareSetting(REMOVAL),
            max_samples: limits.samples,
            max_series: limits.series,
            max_new_series: limits.new_series,
            max_all_samples: limits.all_samples,
            max_all_series: limits.all_series,
            max_all_new_series: limits.all_new_series,
            max_all_bytes: SizeSetting::new(limits.all_bytes),
            groups: Vec::new(),
        }
    }
}

impl GatherSection {
    /// Quotas of targets.
    pub(super) fn scrape_quotas(&self) -> ScrapeQuotas {
        ScrapeQuotas {
            samples: self.max_samples,
            series: self.max_series,
            new_series: self.max_new_series,
            all_samples: self.max_all_samples,
            all_series: self.max_all_series,
            all_new_series: self.max_all_new_series,
            all_bytes: self.max_all_bytes.to_bytes() as u64,
            ..ScrapeQuotas::default()
        }
    }

    /// The share of a source's targets that may disappear at once.
    pub(super) fn removal_share(&self) -> f64 {
        self.removal_guard.0
    }

    /// The section's own targets as a group, then the others. Paths are relative to the settings file at `path`.
    pub(super) fn target_groups(self, path: &Path) -> Vec<TargetGroup> {
        let folder = path.parent().unwrap_or(Path::new(""));
        let origin = SanitizedText::new(&path.display().to_string());
        let own_group = TargetGroup {
            name: SanitizedText::default(),
            sources: list_sources(
                self.targets,
                &origin,
                &self.targets_files,
                &self.file_sd,
                folder,
            ),
            defaults: EndpointDefaults::default(),
            address_policy: AddressPolicy { allow: address_ranges(self.allow) },
            access: gaunt_scrape::ServerAccess::default(),
            compress: self.compress,
            open_metrics: self.open_metrics,
            frames: self.frames,
        };
        let others =
            self.groups.into_iter().map(|group| group.into_inner().into_group(&origin, folder));
        std::iter::once(own_group).chain(others).collect()
    }
}

fn list_sources(
    lists: Vec<String>,
    origin: &SanitizedText,
    files: &[PathBuf],
    file_sd: &[PathBuf],
    folder: &Path,
) -> Vec<DiscoverySource> {
    let lists = lists.into_iter().map(|list| DiscoverySource::List(list, origin.clone()));
    let files = files.iter().map(|file| DiscoverySource::TargetsFile(folder.join(file)));
    let file_sd = file_sd.iter().map(|file| DiscoverySource::Files(folder.join(file)));
    lists.chain(files).chain(file_sd).collect()
}

fn address_ranges(allow: Vec<Network>) -> Vec<AddressRange> {
    allow.into_iter().map(|network| network.0).collect()
}

/// Targets with the same access settings.
#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct GroupSection {
    name: String,
    #[serde(deserialize_with = "host_lists")]
    targets: Vec<String>,
    targets_files: Vec<PathBuf>,
    file_sd: Vec<PathBuf>,
    http_sd: Vec<HttpSdSection>,
    dns_sd: Vec<DnsSdSection>,
    scheme: SchemeSetting,
    port: PortSetting,
    path: PagePath,
    compress: bool,
    open_metrics: bool,
    frames: bool,
    allow: Vec<Network>,
    tls: TlsSection,
    bearer_file: Option<PathBuf>,
    basic: Option<BasicAuthSection>,
}

impl Default for GroupSection {
    fn default() -> Self {
        Self {
            name: String::new(),
            targets: Vec::new(),
            targets_files: Vec::new(),
            file_sd: Vec::new(),
            http_sd: Vec::new(),
            dns_sd: Vec::new(),
            scheme: SchemeSetting::default(),
            port: PortSetting::default(),
            path: PagePath::default(),
            compress: false,
            open_metrics: false,
            frames: true,
            allow: Vec::new(),
            tls: TlsSection::default(),
            bearer_file: None,
            basic: None,
        }
    }
}

impl GroupSection {
    /// Checks across the keys of a group.
    pub(super) fn check_group(&self) -> Result<(), String> {
        let name = &self.name;
        let section = format!("group {name:?}");
        access_section::check_access(
            &section,
            &self.tls,
            self.bearer_file.as_ref(),
            self.basic.as_ref(),
        )?;
        let has_secret =
            self.bearer_file.is_some() || self.basic.is_some() || self.tls.has_client_certificate();
        let has_network_sources = !self.http_sd.is_empty() || !self.dns_sd.is_empty();
        if has_secret && has_network_sources && self.allow.is_empty() {
            return Err(format!(
                "group {name:?} sends its credentials to every target of http_sd and dns_sd; limit \
                 their networks with allow = [\"NETWORK/BITS\"]"
            ));
        }
        let section = format!("http_sd of group {name:?}");
        for http in &self.http_sd {
            access_section::check_access(
                &section,
                &http.tls,
                http.bearer_file.as_ref(),
                http.basic.as_ref(),
            )?;
        }
        Ok(())
    }

    fn into_group(self, origin: &SanitizedText, folder: &Path) -> TargetGroup {
        let mut sources =
            list_sources(self.targets, origin, &self.targets_files, &self.file_sd, folder);
        sources.extend(self.http_sd.into_iter().map(|http| http.into_source(folder)));
        sources.extend(self.dns_sd.into_iter().map(DnsSdSection::into_source));
        TargetGroup {
            name: SanitizedText::new(&self.name),
            sources,
            defaults: EndpointDefaults {
                scheme: self.scheme.into(),
                port: self.port.0,
                path: self.path.0,
            },
            address_policy: AddressPolicy { allow: address_ranges(self.allow) },
            access: access_section::of(self.tls, self.bearer_file, self.basic, folder),
            compress: self.compress,
            open_metrics: self.open_metrics,
            frames: self.frames,
        }
    }
}

/// An HTTP service discovery server.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct HttpSdSection {
    url: Url,
    #[serde(default)]
    refresh: RefreshSetting,
    #[serde(default)]
    tls: TlsSection,
    bearer_file: Option<PathBuf>,
    basic: Option<BasicAuthSection>,
}

impl HttpSdSection {
    fn into_source(self, folder: &Path) -> DiscoverySource {
        let access = access_section::of(self.tls, self.bearer_file, self.basic, folder);
        DiscoverySource::Http(HttpDiscovery {
            endpoint: self.url.0,
            refresh: self.refresh.0.to_duration(),
            access,
        })
    }
}

/// A DNS name that resolves to targets.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct DnsSdSection {
    name: String,
    #[serde(default, rename = "type")]
    record: DnsRecordSetting,
    #[serde(default)]
    refresh: RefreshSetting,
    server: Option<SocketAddr>,
}

impl DnsSdSection {
    fn into_source(self) -> DiscoverySource {
        let record = match self.record {
            DnsRecordSetting::Srv => DnsRecordType::Srv,
            DnsRecordSetting::A => DnsRecordType::A,
            DnsRecordSetting::Aaaa => DnsRecordType::Aaaa,
        };
        DiscoverySource::Dns(DnsDiscovery {
            name: self.name,
            record,
            refresh: self.refresh.0.to_duration(),
            server: self.server,
        })
    }
}

/// The schemes.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum SchemeSetting {
    #[default]
    Http,
    Https,
}

impl From<SchemeSetting> for UrlScheme {
    fn from(scheme: SchemeSetting) -> Self {
        match scheme {
            SchemeSetting::Http => Self::Http,
            SchemeSetting::Https => Self::Https,
        }
    }
}

/// The DNS record types.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
enum DnsRecordSetting {
    #[default]
    #[serde(rename = "SRV")]
    Srv,
    A,
    #[serde(rename = "AAAA")]
    Aaaa,
}

/// Refresh interval.
#[derive(Clone, Copy, Debug)]
struct RefreshSetting(SpanSetting);

impl Default for RefreshSetting {
    fn default() -> Self {
        Self(SpanSetting::from_seconds(REFRESH.as_secs()))
    }
}

impl<'de> Deserialize<'de> for RefreshSetting {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        SpanSetting::deserialize(deserializer).map(Self)
    }
}

/// Deserializes host lists; the error is about all that are invalid.
fn host_lists<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let lists = Vec::<String>::deserialize(deserializer)?;
    let invalid = lists.iter().filter_map(|list| check_host_list(list).err());
    let invalid: Vec<String> = invalid.map(|error| error.to_string()).collect();
    if invalid.is_empty() { Ok(lists) } else { Err(D::Error::custom(invalid.join("; "))) }
}

/// Deserializes a text by the type's own parser.
macro_rules! from_text {
    ($name:ident, $inner:ty, $parse:expr) => {
        #[derive(Clone, Debug)]
        struct $name($inner);

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                let parse: fn(String) -> Result<$inner, String> = $parse;
                parse(text).map(Self).map_err(D::Error::custom)
            }
        }
    };
}

from_text!(Network, AddressRange, |text| text
    .parse()
    .map_err(|error: gaunt_scrape::AddressRangeError| error.to_string()));
from_text!(Url, Endpoint, |text| parse_url(&text).map_err(|error| error.to_string()));
from_text!(PagePath, String, |text| check_path(&text).map(|()| text));

impl Default for PagePath {
    fn default() -> Self {
        Self(DEFAULT_PATH.to_owned())
    }
}

/// A valid port.
#[derive(Clone, Copy, Debug)]
struct PortSetting(u16);

impl Default for PortSetting {
    fn default() -> Self {
        Self(DEFAULT_PORT)
    }
}

impl<'de> Deserialize<'de> for PortSetting {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = i64::deserialize(deserializer)?;
        match u16::try_from(number) {
            Ok(port) if port > 0 => Ok(Self(port)),
            _ => Err(D::Error::custom(format!(
                "{number} is not a port; give a number from 1 to 65535"
            ))),
        }
    }
}

/// A share between 0 and 1.
#[derive(Clone, Copy, Debug)]
struct ShareSetting(f64);

impl<'de> Deserialize<'de> for ShareSetting {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let share = f64::deserialize(deserializer)?;
        if (0.0..=1.0).contains(&share) {
            return Ok(Self(share));
        }
        Err(D::Error::custom(format!("{share} is not a share; give a number from 0 to 1")))
    }
}
