//! The site: what an operator's files say of the wiring and of running jobs, read, watched and delivered.

use std::{
    fs,
    io::Read as _,
    path::{Path, PathBuf},
};

use gaunt_schema::{JobList, Origin, Safe, Topology};

mod declared;
mod fabric;
mod fault;
mod lldp;
mod names;
mod slurm;
mod squeue;
mod watch;

use fault::Fault;
pub use fault::SiteError;
pub use watch::{Watch, start};

/// The most files of one kind: a site has a handful.
pub const MAX_FILES: usize = 16;

/// The largest file: the cables of 100,000 ports take some 20 MB of `ibnetdiscover`, 20,000 jobs some 100 MB of JSON.
const MAX_BYTES: u64 = 256 << 20;

/// The most files in a folder of LLDP neighbours: as many nodes as there may be.
const MAX_NEIGHBOURS: usize = 25_000;

/// Which files are read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Files and folders that say how the cluster is wired.
    pub topology: Vec<PathBuf>,
    /// Files of `squeue --json`.
    pub jobs: Vec<PathBuf>,
}

impl Options {
    /// Whether nothing is to be read.
    pub fn is_empty(&self) -> bool {
        self.topology.is_empty() && self.jobs.is_empty()
    }
}

/// What one file or folder says of the wiring, in whichever format.
pub fn topology(path: &Path) -> Result<Topology, SiteError> {
    if path.is_dir() {
        return neighbours(path, name_of(path));
    }
    topology_in(path, &read(path)?)
}

/// What the text of the file at `path` says of the wiring.
pub fn topology_in(path: &Path, text: &str) -> Result<Topology, SiteError> {
    let source = name_of(path);
    let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
    let topology = match ending.to_ascii_lowercase().as_str() {
        "toml" => declared::read(text, source),
        "yaml" | "yml" => slurm::read_yaml(text, source),
        "json" => one_machine(path, text, source),
        _ if is_fabric(text) => fabric::read(text, source),
        _ if is_slurm(text) => slurm::read(text, source),
        _ => return Err(SiteError::Unknown(path.to_owned())),
    };
    topology.map_err(|fault| fault.in_file(path))
}

/// What one file says of running jobs.
pub fn jobs(path: &Path) -> Result<JobList, SiteError> {
    jobs_in(path, &read(path)?)
}

/// What the text of the file at `path` says of running jobs.
pub fn jobs_in(path: &Path, text: &str) -> Result<JobList, SiteError> {
    squeue::read(text, name_of(path)).map_err(|fault| fault.in_file(path))
}

/// The neighbours of every machine whose file is in a folder.
fn neighbours(folder: &Path, source: Safe) -> Result<Topology, SiteError> {
    let failed = |error| SiteError::Read { path: folder.to_owned(), error };
    let mut topology = Topology::new(source, Origin::Neighbour);
    let entries = fs::read_dir(folder).map_err(failed)?;
    let mut paths = Vec::new();
    for entry in entries.take(MAX_NEIGHBOURS) {
        let path = entry.map_err(failed)?.path();
        if path.extension().is_some_and(|ending| ending == "json") {
            paths.push(path);
        }
    }
    paths.sort();
    if paths.is_empty() {
        return Err(SiteError::Unknown(folder.to_owned()));
    }
    for path in paths {
        let places = lldp::read(&read(&path)?, machine_of(&path));
        topology.ports.extend(places.map_err(|fault| fault.in_file(&path))?);
    }
    Ok(topology)
}

fn one_machine(path: &Path, text: &str, source: Safe) -> Result<Topology, Fault> {
    let ports = lldp::read(text, machine_of(path))?;
    Ok(Topology { ports, ..Topology::new(source, Origin::Neighbour) })
}

/// The machine whose neighbours a file has: its name without the ending.
fn machine_of(path: &Path) -> &str {
    path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default()
}

fn name_of(path: &Path) -> Safe {
    Safe::new(&path.display().to_string())
}

fn is_fabric(text: &str) -> bool {
    text.lines().any(|line| line.starts_with("switchguid=") || line.starts_with("Switch\t"))
}

fn is_slurm(text: &str) -> bool {
    let key = |line: &str| {
        let line = line.trim_start().to_ascii_lowercase();
        ["switchname=", "blockname=", "blocksizes="].iter().any(|key| line.starts_with(key))
    };
    text.lines().any(key)
}

fn read(path: &Path) -> Result<String, SiteError> {
    let failed = |error| SiteError::Read { path: path.to_owned(), error };
    let mut text = String::new();
    let file = fs::File::open(path).map_err(failed)?;
    file.take(MAX_BYTES + 1).read_to_string(&mut text).map_err(failed)?;
    if text.len() as u64 > MAX_BYTES {
        return Err(SiteError::TooLarge { path: path.to_owned(), limit: MAX_BYTES });
    }
    Ok(text)
}
