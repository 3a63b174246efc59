//! The `[gather]` section as it is written: who names targets, how they are reached, and what they may use.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
};

use gaunt_schema::Safe;
use serde::{Deserialize, Deserializer, de::Error as _};
use toml::Spanned;

use super::{
    access::{self, FileBasic, FileTls},
    file::{Size, Span},
};
use crate::gather::{
    self, DEFAULT_PATH, DEFAULT_PORT, Dns, Group, Http, Limits, Place, REFRESH, REMOVAL, Range,
    Reach, Record, Scheme, Source, Usual, check_path, parse_url,
};

/// What is read, and how.
#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Gather {
    targets: Vec<String>,
    targets_files: Vec<PathBuf>,
    file_sd: Vec<PathBuf>,
    pub(super) period: Span,
    pub(super) timeout: Option<Spanned<Span>>,
    pub(super) max_body: Spanned<Size>,
    compress: bool,
    open_metrics: bool,
    frames: bool,
    allow: Vec<Network>,
    removal_guard: Share,
    max_samples: u64,
    max_series: u64,
    max_new_series: u64,
    max_all_samples: u64,
    max_all_series: u64,
    max_all_new_series: u64,
    max_all_bytes: Size,
    pub(super) groups: Vec<Spanned<FileGroup>>,
}

impl Default for Gather {
    fn default() -> Self {
        let limits = Limits::default();
        Self {
            targets: Vec::new(),
            targets_files: Vec::new(),
            file_sd: Vec::new(),
            period: Span::seconds(1),
            timeout: None,
            max_body: Spanned::new(0..0, Size::new(16 << 20)),
            compress: false,
            open_metrics: false,
            frames: true,
            allow: Vec::new(),
            removal_guard: Share(REMOVAL),
            max_samples: limits.samples,
            max_series: limits.series,
            max_new_series: limits.new_series,
            max_all_samples: limits.all_samples,
            max_all_series: limits.all_series,
            max_all_new_series: limits.all_new_series,
            max_all_bytes: Size::new(limits.all_bytes),
            groups: Vec::new(),
        }
    }
}

impl Gather {
    /// What targets may use.
    pub(super) fn limits(&self) -> Limits {
        Limits {
            samples: self.max_samples,
            series: self.max_series,
            new_series: self.max_new_series,
            all_samples: self.max_all_samples,
            all_series: self.max_all_series,
            all_new_series: self.max_all_new_series,
            all_bytes: self.max_all_bytes.bytes() as u64,
            ..Limits::default()
        }
    }

    /// The share of a source's targets that may vanish at once.
    pub(super) fn removal(&self) -> f64 {
        self.removal_guard.0
    }

    /// The section's own targets as a group, then the others. Paths are relative to the settings file at `path`.
    pub(super) fn groups(self, path: &Path) -> Vec<Group> {
        let folder = path.parent().unwrap_or(Path::new(""));
        let origin = Safe::new(&path.display().to_string());
        let own = Group {
            name: Safe::default(),
            sources: sources(self.targets, &origin, &self.targets_files, &self.file_sd, folder),
            usual: Usual::default(),
            reach: Reach { allow: networks(self.allow) },
            access: gather::Access::default(),
            compress: self.compress,
            open_metrics: self.open_metrics,
            frames: self.frames,
        };
        let others = self.groups.into_iter().map(|group| group.into_inner().group(&origin, folder));
        std::iter::once(own).chain(others).collect()
    }
}

fn sources(
    lists: Vec<String>,
    origin: &Safe,
    files: &[PathBuf],
    file_sd: &[PathBuf],
    folder: &Path,
) -> Vec<Source> {
    let lists = lists.into_iter().map(|list| Source::List(list, origin.clone()));
    let files = files.iter().map(|file| Source::TargetsFile(folder.join(file)));
    let file_sd = file_sd.iter().map(|file| Source::Files(folder.join(file)));
    lists.chain(files).chain(file_sd).collect()
}

fn networks(allow: Vec<Network>) -> Vec<Range> {
    allow.into_iter().map(|network| network.0).collect()
}

/// Targets that are reached in one way.
#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct FileGroup {
    name: String,
    targets: Vec<String>,
    targets_files: Vec<PathBuf>,
    file_sd: Vec<PathBuf>,
    http_sd: Vec<FileHttp>,
    dns_sd: Vec<FileDns>,
    scheme: FileScheme,
    port: Port,
    path: PagePath,
    compress: bool,
    open_metrics: bool,
    frames: bool,
    allow: Vec<Network>,
    tls: FileTls,
    bearer_file: Option<PathBuf>,
    basic: Option<FileBasic>,
}

impl Default for FileGroup {
    fn default() -> Self {
        Self {
            name: String::new(),
            targets: Vec::new(),
            targets_files: Vec::new(),
            file_sd: Vec::new(),
            http_sd: Vec::new(),
            dns_sd: Vec::new(),
            scheme: FileScheme::default(),
            port: Port::default(),
            path: PagePath::default(),
            compress: false,
            open_metrics: false,
            frames: true,
            allow: Vec::new(),
            tls: FileTls::default(),
            bearer_file: None,
            basic: None,
        }
    }
}

impl FileGroup {
    /// What no single key of a group can know.
    pub(super) fn check(&self) -> Result<(), String> {
        let name = &self.name;
        let whose = format!("group {name:?}");
        access::check(&whose, &self.tls, self.bearer_file.as_ref(), self.basic.as_ref())?;
        let secret = self.bearer_file.is_some() || self.basic.is_some() || self.tls.proves_itself();
        let foreign = !self.http_sd.is_empty() || !self.dns_sd.is_empty();
        if secret && foreign && self.allow.is_empty() {
            return Err(format!(
                "group {name:?} shows its credentials to whomever http_sd or dns_sd names; say where its targets may \
                 be with allow = [\"NETWORK/BITS\"]"
            ));
        }
        let whose = format!("http_sd of group {name:?}");
        for http in &self.http_sd {
            access::check(&whose, &http.tls, http.bearer_file.as_ref(), http.basic.as_ref())?;
        }
        Ok(())
    }

    fn group(self, origin: &Safe, folder: &Path) -> Group {
        let mut sources = sources(self.targets, origin, &self.targets_files, &self.file_sd, folder);
        sources.extend(self.http_sd.into_iter().map(|http| http.source(folder)));
        sources.extend(self.dns_sd.into_iter().map(FileDns::source));
        Group {
            name: Safe::new(&self.name),
            sources,
            usual: Usual { scheme: self.scheme.into(), port: self.port.0, path: self.path.0 },
            reach: Reach { allow: networks(self.allow) },
            access: access::of(self.tls, self.bearer_file, self.basic, folder),
            compress: self.compress,
            open_metrics: self.open_metrics,
            frames: self.frames,
        }
    }
}

/// A server that names targets.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileHttp {
    url: Url,
    #[serde(default)]
    refresh: Refresh,
    #[serde(default)]
    tls: FileTls,
    bearer_file: Option<PathBuf>,
    basic: Option<FileBasic>,
}

impl FileHttp {
    fn source(self, folder: &Path) -> Source {
        let access = access::of(self.tls, self.bearer_file, self.basic, folder);
        Source::Http(Http { place: self.url.0, refresh: self.refresh.0.value(), access })
    }
}

/// A name that stands for targets.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileDns {
    name: String,
    #[serde(default, rename = "type")]
    record: FileRecord,
    #[serde(default)]
    refresh: Refresh,
    server: Option<SocketAddr>,
}

impl FileDns {
    fn source(self) -> Source {
        let record = match self.record {
            FileRecord::Srv => Record::Srv,
            FileRecord::A => Record::A,
            FileRecord::Aaaa => Record::Aaaa,
        };
        Source::Dns(Dns {
            name: self.name,
            record,
            refresh: self.refresh.0.value(),
            server: self.server,
        })
    }
}

/// The schemes as the file names them.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum FileScheme {
    #[default]
    Http,
    Https,
}

impl From<FileScheme> for Scheme {
    fn from(scheme: FileScheme) -> Self {
        match scheme {
            FileScheme::Http => Self::Http,
            FileScheme::Https => Self::Https,
        }
    }
}

/// The types of records as the file names them.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
enum FileRecord {
    #[default]
    #[serde(rename = "SRV")]
    Srv,
    A,
    #[serde(rename = "AAAA")]
    Aaaa,
}

/// The time between two questions.
#[derive(Clone, Copy, Debug)]
struct Refresh(Span);

impl Default for Refresh {
    fn default() -> Self {
        Self(Span::seconds(REFRESH.as_secs()))
    }
}

impl<'de> Deserialize<'de> for Refresh {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Span::deserialize(deserializer).map(Self)
    }
}

/// Reads a text as something that knows its own form.
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

from_text!(Network, Range, |text| text
    .parse()
    .map_err(|error: gather::RangeError| error.to_string()));
from_text!(Url, Place, |text| parse_url(&text).map_err(|error| error.to_string()));
from_text!(PagePath, String, |text| check_path(&text).map(|()| text));

impl Default for PagePath {
    fn default() -> Self {
        Self(DEFAULT_PATH.to_owned())
    }
}

/// A port that is one.
#[derive(Clone, Copy, Debug)]
struct Port(u16);

impl Default for Port {
    fn default() -> Self {
        Self(DEFAULT_PORT)
    }
}

impl<'de> Deserialize<'de> for Port {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let port = u16::deserialize(deserializer)?;
        if port == 0 {
            return Err(D::Error::custom("0 is not a port; give a number from 1 to 65535"));
        }
        Ok(Self(port))
    }
}

/// A share of a whole.
#[derive(Clone, Copy, Debug)]
struct Share(f64);

impl<'de> Deserialize<'de> for Share {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let share = f64::deserialize(deserializer)?;
        if (0.0..=1.0).contains(&share) {
            return Ok(Self(share));
        }
        Err(D::Error::custom(format!("{share} is not a share; give a number from 0 to 1")))
    }
}
