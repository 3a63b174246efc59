//! Settings: reads the TOML file, refuses what cannot be meant, and fills each room's own options.

use std::{
    fs, io,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use gaunt_schema::Safe;

use crate::{
    console,
    gather::{self, Places},
    owner,
};

mod file;

use file::File;

/// The largest settings file: a list of 20,000 targets fits many times.
const MAX_FILE: u64 = 16 << 20;

/// The address of the aggregator unless told otherwise: this machine only.
pub const LISTEN: &str = "127.0.0.1:9771";

/// What is wrong with a settings file.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// It cannot be read.
    #[error("cannot read settings file {}: {error}; check the path given with --config", path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// Something in it is not known or not possible.
    #[error("{}:{line}: {what}", path.display())]
    Content {
        /// Which file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong there, what is allowed, and the next step.
        what: String,
    },
}

/// All settings, with the usual values where nothing is said.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What the owner is to know and judge by.
    pub owner: owner::Options,
    /// The time between two scrapes of one target.
    pub period: Duration,
    /// The time for one scrape; none for what suits the period.
    pub timeout: Option<Duration>,
    /// The largest page, in bytes.
    pub max_body: usize,
    /// Where `gaunt serve` listens.
    pub listen: SocketAddr,
    /// The names under which `gaunt serve` is asked, beside its addresses and the names of this machine.
    pub names: Vec<String>,
    /// How the console behaves.
    pub console: console::Options,
    /// Host lists of targets, each with where it stands.
    pub targets: Vec<(String, Safe)>,
    /// Files with host lists, relative to the settings file.
    pub targets_files: Vec<PathBuf>,
}

impl Default for Settings {
    fn default() -> Self {
        Self::of(File::default(), Path::new(""))
    }
}

impl Settings {
    /// Reads a file; without one, the usual values.
    pub fn load(path: Option<&Path>) -> Result<Self, SettingsError> {
        let Some(path) = path else { return Ok(Self::default()) };
        let text =
            read(path).map_err(|error| SettingsError::Read { path: path.to_path_buf(), error })?;
        Self::parse(&text, path)
    }

    /// Reads the text of a file that lies at `path`.
    pub fn parse(text: &str, path: &Path) -> Result<Self, SettingsError> {
        let file = File::parse(text).map_err(|fault| SettingsError::Content {
            path: path.to_path_buf(),
            line: fault.line(text),
            what: fault.what,
        })?;
        Ok(Self::of(file, path))
    }

    fn of(file: File, path: &Path) -> Self {
        let folder = path.parent().unwrap_or(Path::new(""));
        let origin = Safe::new(&path.display().to_string());
        let period = file.gather.period.value();
        Self {
            owner: owner::Options {
                cluster: Safe::new(&file.cluster.name),
                period,
                price_per_gpu_hour: file.cluster.price_per_gpu_hour.map(file::Price::value),
                currency: Safe::new(&file.cluster.currency),
                thresholds: file.judge,
                ..owner::Options::default()
            },
            period,
            timeout: file.gather.timeout.map(|timeout| timeout.get_ref().value()),
            max_body: file.gather.max_body.bytes(),
            listen: file.serve.listen.address(),
            names: file.serve.names,
            console: file.console.options(),
            targets: file.gather.targets.into_iter().map(|list| (list, origin.clone())).collect(),
            targets_files: file.gather.targets_files.iter().map(|file| folder.join(file)).collect(),
        }
    }

    /// How the targets are gathered.
    pub fn gather(&self) -> gather::Options {
        gather::Options {
            period: self.period,
            timeout: self.timeout.unwrap_or_else(|| gather::timeout_for(self.period)),
            max_body: self.max_body,
        }
    }

    /// Every place that the settings name.
    pub fn places(&self) -> Result<Places, gather::PlaceError> {
        let mut places = Places::default();
        for (list, origin) in &self.targets {
            places.add_list(list, origin)?;
        }
        for file in &self.targets_files {
            places.add_file(file)?;
        }
        Ok(places)
    }

    /// Another period, as a flag gives it. A timeout of the file that no longer fits gives way to the usual one.
    pub fn set_period(&mut self, period: Duration) {
        self.period = period;
        self.owner.period = period;
        self.timeout = self.timeout.filter(|timeout| *timeout <= period);
    }
}

fn read(path: &Path) -> io::Result<String> {
    use io::Read as _;

    let mut text = String::new();
    fs::File::open(path)?.take(MAX_FILE + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_FILE {
        return Err(io::Error::other(format!("it is larger than {MAX_FILE} bytes")));
    }
    Ok(text)
}

#[cfg(test)]
mod tests;
