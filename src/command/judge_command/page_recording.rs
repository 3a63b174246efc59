//! Page recordings: a directory of pages as they were scraped, `DIR/<target>/<unix_ms>.prom`, in any exporter format.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Read as _},
    path::{Path, PathBuf},
    time::Duration,
};

use gaunt_schema::{
    Batch, SanitizedText, ScrapeTarget, TargetId, UnixMs,
    text::{self, TemplateState},
};

/// The longest recording that is judged: beyond it a file name is more likely a typo than a time.
const LONGEST: Duration = Duration::from_hours(31 * 24);

/// Period that is assumed if no target was scraped twice.
const USUAL_PERIOD: Duration = Duration::from_secs(1);

/// Limits of a period, as for live targets.
const SHORTEST_PERIOD: Duration = Duration::from_millis(100);
const LONGEST_PERIOD: Duration = Duration::from_hours(1);

/// File extension of a page.
const ENDING: &str = "prom";

/// Why a directory cannot be judged.
#[derive(Debug, thiserror::Error)]
pub enum PageRecordingError {
    /// A directory or file cannot be read.
    #[error("cannot read {}: {error}; check the path", path.display())]
    Read {
        /// Its path.
        path: PathBuf,
        /// The error.
        error: io::Error,
    },
    /// The file name of a page is not a time.
    #[error("{} is not named by its time; name it by Unix time in milliseconds, such as 1700000000000.prom", .0.display())]
    Name(PathBuf),
    /// The directory has no pages.
    #[error("no pages in {}; expected {}/TARGET/UNIX_MS.prom", .0.display(), .0.display())]
    Empty(PathBuf),
    /// The recording is too long.
    #[error("the pages span {days} days; at most {most} are allowed; check the names of the first and the last", days = span.as_secs() / 86_400, most = LONGEST.as_secs() / 86_400)]
    TooLong {
        /// Time from the first to the last page.
        span: Duration,
    },
}

/// Index of the pages of a recording, by time.
#[derive(Debug)]
pub(in crate::command) struct PageRecording {
    folder: PathBuf,
    /// Directory names, one per target.
    targets: Vec<String>,
    /// Time and target of each page.
    pages: Vec<(UnixMs, u32)>,
}

impl PageRecording {
    /// Scans the directory without reading a page.
    pub(in crate::command) fn open_folder(folder: &Path) -> Result<Self, PageRecordingError> {
        let mut targets = Vec::new();
        for path in list_entries(folder)? {
            if path.is_dir()
                && let Some(name) = path.file_name().and_then(|name| name.to_str())
            {
                targets.push(name.to_owned());
            }
        }
        targets.sort();
        let mut pages = Vec::new();
        for (number, target) in (0_u32..).zip(&targets) {
            for path in list_entries(&folder.join(target))? {
                if path.extension().is_some_and(|extension| extension == ENDING) {
                    pages.push((parse_instant(&path)?, number));
                }
            }
        }
        pages.sort_unstable();
        let (Some((first, _)), Some((last, _))) = (pages.first(), pages.last()) else {
            return Err(PageRecordingError::Empty(folder.to_owned()));
        };
        let span = last.duration_since(*first);
        if span > LONGEST {
            return Err(PageRecordingError::TooLong { span });
        }
        Ok(Self { folder: folder.to_owned(), targets, pages })
    }

    /// First and last time.
    pub(in crate::command) fn time_span(&self) -> (UnixMs, UnixMs) {
        let time_of =
            |page: Option<&(UnixMs, u32)>| page.map_or_else(UnixMs::default, |page| page.0);
        (time_of(self.pages.first()), time_of(self.pages.last()))
    }

    /// Scrape interval: the median gap between two pages, of the slowest target.
    pub(in crate::command) fn scrape_period(&self) -> Duration {
        let mut gaps: BTreeMap<u32, (UnixMs, Vec<Duration>)> = BTreeMap::new();
        for (at, target) in &self.pages {
            let (last, gaps) = gaps.entry(*target).or_insert((*at, Vec::new()));
            if *at > *last {
                gaps.push(at.duration_since(*last));
                *last = *at;
            }
        }
        let median = |mut gaps: Vec<Duration>| {
            gaps.sort_unstable();
            gaps.get(gaps.len() / 2).copied()
        };
        let slowest = gaps.into_values().filter_map(|(_, gaps)| median(gaps)).max();
        slowest.unwrap_or(USUAL_PERIOD).clamp(SHORTEST_PERIOD, LONGEST_PERIOD)
    }

    /// All targets, to be announced before their first page.
    pub(in crate::command) fn recorded_targets(&self) -> Vec<ScrapeTarget> {
        let target = |(number, name): (u32, &String)| ScrapeTarget {
            id: TargetId(number),
            address: SanitizedText::new(name),
            node: None,
            origin: "the recording".into(),
        };
        (0..).zip(&self.targets).map(target).collect()
    }

    /// All pages by time, read on demand.
    pub(in crate::command) fn read_batches(
        &self,
    ) -> impl Iterator<Item = Result<Batch, PageRecordingError>> {
        let (limits, templates) = (text::PageLimits::default(), text::TemplateCache::default());
        let mut states: Vec<_> = self.targets.iter().map(|_| TemplateState::default()).collect();
        self.pages.iter().map(move |(at, target)| {
            let name = &self.targets[*target as usize];
            let path = self.folder.join(name).join(format!("{}.{ENDING}", at.0));
            let body = read_body(&path, &limits)?;
            let outcome = templates.decode_page(&mut states[*target as usize], &body, &limits);
            Ok(Batch { target: TargetId(*target), at: *at, duration_ms: 0.0, outcome })
        })
    }
}

/// Reads one page, as much of it as is decoded.
fn read_body(path: &Path, limits: &text::PageLimits) -> Result<Vec<u8>, PageRecordingError> {
    let mut body = Vec::new();
    let max_bytes = limits.body_bytes as u64 + 1;
    let read = File::open(path).and_then(|file| file.take(max_bytes).read_to_end(&mut body));
    read.map_err(|error| PageRecordingError::Read { path: path.to_owned(), error })?;
    Ok(body)
}

fn list_entries(folder: &Path) -> Result<Vec<PathBuf>, PageRecordingError> {
    let paths = fs::read_dir(folder)
        .and_then(|entries| entries.map(|entry| entry.map(|entry| entry.path())).collect());
    paths.map_err(|error| PageRecordingError::Read { path: folder.to_owned(), error })
}

/// Parses the time in a file name. Leading zeros and signs are rejected, because two files could then have the same
/// time.
fn parse_instant(path: &Path) -> Result<UnixMs, PageRecordingError> {
    let stem = path.file_stem().and_then(|stem| stem.to_str());
    let instant = stem.and_then(|stem| stem.parse().ok().filter(|ms: &i64| ms.to_string() == stem));
    instant.map(UnixMs).ok_or_else(|| PageRecordingError::Name(path.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder_with_files(files: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for file in files {
            let path = folder.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "gaunt_node_cpus 64\n").unwrap();
        }
        folder
    }

    #[test]
    fn period_is_the_median_gap_of_the_slowest_target() {
        let folder = folder_with_files(&[
            "a/1000.prom",
            "a/2000.prom",
            "a/3000.prom",
            "a/9000.prom",
            "a/10000.prom",
            "b/1500.prom",
            "b/6500.prom",
            "once/7000.prom",
            "notes.txt",
            "a/readme.txt",
        ]);
        let recording = PageRecording::open_folder(folder.path()).unwrap();
        assert_eq!(recording.scrape_period(), Duration::from_secs(5));
        assert_eq!(recording.time_span(), (UnixMs(1_000), UnixMs(10_000)));
        let order: Vec<_> = recording
            .read_batches()
            .map(|batch| batch.map(|b| (b.at.0, b.target.0)).unwrap())
            .collect();
        let expected = [(1_000, 0), (1_500, 1), (2_000, 0), (3_000, 0), (6_500, 1), (7_000, 2)];
        assert_eq!(order[..6], expected);
        assert_eq!(recording.recorded_targets()[2].address.as_str(), "once");
    }

    #[test]
    fn invalid_recording_is_refused_with_the_next_step() {
        let error_of = |files: &[&str]| {
            let folder = folder_with_files(files);
            let root = folder.path().display().to_string();
            PageRecording::open_folder(folder.path()).unwrap_err().to_string().replace(&root, "DIR")
        };
        assert_eq!(error_of(&[]), "no pages in DIR; expected DIR/TARGET/UNIX_MS.prom");
        assert_eq!(
            error_of(&["a/noon.prom"]),
            "DIR/a/noon.prom is not named by its time; name it by Unix time in milliseconds, such \
             as 1700000000000.prom"
        );
        assert!(error_of(&["a/007.prom"]).contains("DIR/a/007.prom is not named"));
        assert!(error_of(&["a/0.prom", "a/1700000000000.prom"]).contains("span 19675 days"));
        let none = PageRecording::open_folder(Path::new("/nowhere")).unwrap_err().to_string();
        assert!(none.starts_with("cannot read /nowhere: No such file"), "{none}");
    }
}
