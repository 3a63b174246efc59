//! Site files: topology and running jobs, read from the operator's files, watched and delivered.

use std::{
    fs,
    io::Read as _,
    path::{Path, PathBuf},
};

use gaunt_schema::{JobList, SanitizedText, SourceTopology, TopologyOrigin};

mod declared;
mod ibnetdiscover;
mod lldp;
mod name_expander;
mod site_error;
mod site_watch;
mod slurm;
mod squeue;

pub use site_error::SiteError;
use site_error::SiteFault;
pub use site_watch::{SiteWatch, start_watching};

/// The most files of one kind: a site has a handful.
pub const MAX_FILES: usize = 16;

/// The largest file: the cables of 100,000 ports take some 20 MB of `ibnetdiscover` output, 20,000 jobs some 100 MB of
/// JSON.
const MAX_BYTES: u64 = 256 << 20;

/// The most files in a directory of LLDP neighbours: the limit of nodes.
const MAX_NEIGHBOURS: usize = 25_000;

/// Which files are read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SiteOptions {
    /// Files and directories of the topology.
    pub topology: Vec<PathBuf>,
    /// Files of `squeue --json`.
    pub jobs: Vec<PathBuf>,
}

impl SiteOptions {
    /// Whether there is nothing to read.
    pub fn is_empty(&self) -> bool {
        self.topology.is_empty() && self.jobs.is_empty()
    }
}

/// What a file or directory states.
#[derive(Debug)]
pub struct SiteFileData<T> {
    /// Its content.
    pub content: T,
    /// What was skipped in it, with the line and the next step, as a sentence; none if nothing was.
    pub skipped: Option<SanitizedText>,
}

impl<T> SiteFileData<T> {
    /// Content with the errors of what was skipped.
    fn new(content: T, skipped: &[SiteError]) -> Self {
        let skipped = skipped.first().map(|first| {
            let more = match skipped.len() - 1 {
                0 => String::new(),
                more => format!("; {more} more"),
            };
            SanitizedText::new(&format!("{first}; skipped{more}"))
        });
        Self { content, skipped }
    }
}

/// Reads the topology from a file or directory in any supported format.
pub fn read_topology(path: &Path) -> Result<SiteFileData<SourceTopology>, SiteError> {
    if path.is_dir() {
        return read_neighbours(path, source_name(path));
    }
    let (topology, skipped) = parse_with_skipped(path, &read_file(path)?)?;
    Ok(SiteFileData::new(topology, &skipped))
}

/// Parses the topology from the text of the file at `path`.
pub fn parse_topology(path: &Path, text: &str) -> Result<SourceTopology, SiteError> {
    parse_with_skipped(path, text).map(|(topology, _)| topology)
}

/// The same, with the errors of what was skipped.
fn parse_with_skipped(
    path: &Path,
    text: &str,
) -> Result<(SourceTopology, Vec<SiteError>), SiteError> {
    let source = source_name(path);
    let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    let parsed = match extension.to_ascii_lowercase().as_str() {
        "toml" => declared::parse_topology(text, source).map(without_skipped),
        "yaml" | "yml" => slurm::read_yaml(text, source),
        "json" => machine_topology(path, text, source).map(without_skipped),
        _ if is_ibnetdiscover(text) => ibnetdiscover::parse_topology(text, source),
        _ if is_slurm_conf(text) => slurm::parse_topology(text, source),
        _ => return Err(SiteError::Unknown(path.to_owned())),
    };
    let (topology, skipped) = parsed.map_err(|fault| fault.into_site_error(path))?;
    let skipped = skipped.into_iter().map(|fault| fault.into_site_error(path)).collect();
    Ok((topology, skipped))
}

fn without_skipped(topology: SourceTopology) -> (SourceTopology, Vec<SiteFault>) {
    (topology, Vec::new())
}

/// Reads running jobs from a file.
pub fn read_jobs(path: &Path) -> Result<SiteFileData<JobList>, SiteError> {
    Ok(SiteFileData::new(parse_jobs(path, &read_file(path)?)?, &[]))
}

/// Parses running jobs from the text of the file at `path`.
pub fn parse_jobs(path: &Path, text: &str) -> Result<JobList, SiteError> {
    squeue::parse_jobs(text, source_name(path)).map_err(|fault| fault.into_site_error(path))
}

/// Reads the LLDP neighbours of every machine that has a file in a directory. Files with errors are skipped, unless
/// all have some.
fn read_neighbours(
    folder: &Path,
    source: SanitizedText,
) -> Result<SiteFileData<SourceTopology>, SiteError> {
    let failed = |error| SiteError::Read { path: folder.to_owned(), error };
    let mut topology = SourceTopology::new(source, TopologyOrigin::Neighbour);
    let entries = fs::read_dir(folder).map_err(failed)?;
    let mut paths = Vec::new();
    for entry in entries.take(MAX_NEIGHBOURS) {
        let path = entry.map_err(failed)?.path();
        if path.extension().is_some_and(|extension| extension == "json") {
            paths.push(path);
        }
    }
    paths.sort();
    if paths.is_empty() {
        return Err(SiteError::Unknown(folder.to_owned()));
    }
    let (mut skipped, files) = (Vec::new(), paths.len());
    for path in paths {
        let locations = read_file(&path).and_then(|text| {
            let locations = lldp::parse_neighbours(&text, machine_of(&path));
            locations.map_err(|fault| fault.into_site_error(&path))
        });
        match locations {
            Ok(locations) => topology.ports.extend(locations),
            Err(error) if files == 1 => return Err(error),
            Err(error) => skipped.push(error),
        }
    }
    if skipped.len() == files {
        return Err(skipped.swap_remove(0));
    }
    Ok(SiteFileData::new(topology, &skipped))
}

fn machine_topology(
    path: &Path,
    text: &str,
    source: SanitizedText,
) -> Result<SourceTopology, SiteFault> {
    let ports = lldp::parse_neighbours(text, machine_of(path))?;
    Ok(SourceTopology { ports, ..SourceTopology::new(source, TopologyOrigin::Neighbour) })
}

/// The machine whose neighbours a file contains: the file name without its extension.
fn machine_of(path: &Path) -> &str {
    path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default()
}

fn source_name(path: &Path) -> SanitizedText {
    SanitizedText::new(&path.display().to_string())
}

fn is_ibnetdiscover(text: &str) -> bool {
    text.lines().any(|line| line.starts_with("switchguid=") || line.starts_with("Switch\t"))
}

fn is_slurm_conf(text: &str) -> bool {
    let key = |line: &str| {
        let line = line.trim_start().to_ascii_lowercase();
        ["switchname=", "blockname=", "blocksizes=", "ringname="]
            .iter()
            .any(|key| line.starts_with(key))
    };
    text.lines().any(key)
}

fn read_file(path: &Path) -> Result<String, SiteError> {
    let failed = |error| SiteError::Read { path: path.to_owned(), error };
    let mut text = String::new();
    let file = fs::File::open(path).map_err(failed)?;
    file.take(MAX_BYTES + 1).read_to_string(&mut text).map_err(failed)?;
    if text.len() as u64 > MAX_BYTES {
        return Err(SiteError::TooLarge { path: path.to_owned(), limit: MAX_BYTES });
    }
    Ok(text)
}
