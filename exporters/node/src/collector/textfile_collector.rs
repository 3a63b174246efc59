//! Exports metrics files of other programs unchanged: probe results, NCCL statistics. The collectives of NCCL's
//! inspector are in the report as well.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use gaunt_schema::{
    ExtraSample, Report, SanitizedText,
    catalogue::find_rows,
    text::{PageLimits, PageLine, TextReader},
};

use super::{CollectError, CollectOutcome, Collector, inspector_file};
use crate::kernel_files::list_names;

/// The suffix of the files that are read; others are being written, and renamed when they are complete.
const ENDING: &str = ".prom";

/// The most files, the longest file, and the most samples of all files: a runaway program must not flood the page.
const MAX_FILES: usize = 64;
const MAX_BYTES: u64 = 1 << 20;
const MAX_SAMPLES: usize = 2_000;

/// The modification time of each file: it shows which files are no longer updated.
const WRITTEN: &str = "gaunt_textfile_mtime_seconds";

/// Names that other parts of the page use.
const TAKEN: [&str; 4] = ["gaunt_absent", WRITTEN, "DCGM_", "node_infiniband_"];

/// Reads `FOLDER/*.prom`.
pub(super) struct TextfileCollector {
    folder: PathBuf,
    files: BTreeMap<String, CachedTextfile>,
}

/// A file as it was last read.
struct CachedTextfile {
    modified: SystemTime,
    length: u64,
    samples: Vec<ExtraSample>,
    /// The collectives in it, if it is a file of NCCL's inspector.
    collectives: Option<Report>,
    /// The first rejected line, and the reason.
    error: Option<String>,
}

impl CachedTextfile {
    /// The collectives of a file that is still written.
    fn valid_collectives(&self, now: SystemTime) -> Option<&Report> {
        // A file of the future is of another clock.
        let age = now.duration_since(self.modified).unwrap_or_default();
        self.collectives.as_ref().filter(|_| age <= inspector_file::VALID)
    }
}

impl TextfileCollector {
    pub(super) fn new(folder: &Path) -> Self {
        Self { folder: folder.to_path_buf(), files: BTreeMap::new() }
    }

    /// Reads the file again if it changed.
    fn refresh_file(&mut self, name: &str) -> io::Result<()> {
        let path = self.folder.join(name);
        let metadata = fs::metadata(&path)?;
        let (modified, length) = (metadata.modified()?, metadata.len());
        let is_unchanged =
            |cached: &CachedTextfile| cached.modified == modified && cached.length == length;
        if self.files.get(name).is_some_and(is_unchanged) {
            return Ok(());
        }
        let mut body = Vec::new();
        File::open(&path)?.take(MAX_BYTES + 1).read_to_end(&mut body)?;
        let (samples, error) = if body.len() as u64 > MAX_BYTES {
            (Vec::new(), Some("longer than 1 MiB".to_owned()))
        } else {
            parse(&body)
        };
        let is_inspector =
            samples.iter().any(|sample| inspector_file::is_inspector_series(&sample.name));
        let collectives = is_inspector.then(|| inspector_file::decode_collectives(name, &body));
        let cached = CachedTextfile { modified, length, samples, collectives, error };
        self.files.insert(name.to_owned(), cached);
        Ok(())
    }
}

/// The samples of a file, and the error of the first rejected line.
fn parse(body: &[u8]) -> (Vec<ExtraSample>, Option<String>) {
    let mut reader = TextReader::new(body, &PageLimits::default());
    let (mut samples, mut first_error) = (Vec::new(), None);
    loop {
        let result = match reader.next() {
            None => break,
            Some(Ok(PageLine::Sample(sample))) => {
                let is_reserved = TAKEN.iter().any(|prefix| sample.name.starts_with(prefix));
                if is_reserved || find_rows(sample.name).is_some() {
                    Err(format!("the name {} is reserved", SanitizedText::new(sample.name)))
                } else if !sample.value.is_finite() {
                    Err(format!("{} is not a finite number", SanitizedText::new(sample.digits)))
                } else {
                    let labels = sample.labels.iter();
                    let labels = labels
                        .map(|label| (label.name.into(), (*label.unescaped_value()).into()))
                        .collect();
                    samples.push(ExtraSample {
                        name: sample.name.into(),
                        labels,
                        value: sample.value,
                    });
                    Ok(())
                }
            }
            Some(Ok(_)) => Ok(()),
            Some(Err(reject)) => Err(reject.reason.as_str().to_owned()),
        };
        if let (Err(why), None) = (result, &first_error) {
            first_error = Some(format!("line {}: {why}", reader.line_number()));
        }
    }
    (samples, first_error)
}

impl Collector for TextfileCollector {
    fn name(&self) -> &'static str {
        "textfiles"
    }

    fn collect_readings(&mut self, report: &mut Report) -> Result<CollectOutcome, CollectError> {
        let mut names = list_names(&self.folder)
            .map_err(|source| CollectError::Read { path: self.folder.clone(), source })?;
        names.retain(|name| name.ends_with(ENDING));
        names.truncate(MAX_FILES);
        self.files.retain(|name, _| names.contains(name));
        let mut errors = Vec::new();
        for name in &names {
            if let Err(error) = self.refresh_file(name) {
                self.files.remove(name);
                errors.push(format!("{name}: {error}"));
            }
        }
        for (name, file) in &self.files {
            let modified = file.modified.duration_since(UNIX_EPOCH).unwrap_or_default();
            report.extra.push(ExtraSample {
                name: WRITTEN.into(),
                labels: vec![("file".into(), name.as_str().into())],
                value: modified.as_secs_f64(),
            });
            let capacity = MAX_SAMPLES.saturating_sub(report.extra.len());
            report.extra.extend(file.samples.iter().take(capacity).cloned());
            errors.extend(file.error.iter().map(|error| format!("{name}, {error}")));
        }
        let now = SystemTime::now();
        let collectives = self.files.values().filter_map(|file| file.valid_collectives(now));
        let left_out = inspector_file::add_collectives(collectives, report);
        if left_out > 0 {
            errors.push(format!(
                "{left_out} collectives of NCCL are left out: repeated, or more than {}",
                inspector_file::MAX_COLLECTIVES
            ));
        }
        if !errors.is_empty() {
            return Err(CollectError::Devices(errors.join("; ")));
        }
        if self.files.is_empty() {
            return Ok(CollectOutcome::Nothing(
                "no *.prom file in the textfiles folder".to_owned(),
            ));
        }
        Ok(CollectOutcome::Found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn textfile_rejects_non_numbers_and_reserved_names_only() {
        let text = b"# HELP x y\nnccl_bus_bandwidth_gbs{rank=\"0\"} 471.5\n\
                     gaunt_port_state_id{device=\"a\",port=\"1\"} 4\nnccl_nan NaN\nbroken{ 1\nlast 1\n";
        let (samples, error) = parse(text);
        let names: Vec<_> = samples.iter().map(|extra| extra.name.as_str()).collect();
        assert_eq!(names, ["nccl_bus_bandwidth_gbs", "last"]);
        assert_eq!(samples[0].labels, [("rank".into(), "0".into())]);
        assert_eq!(error.unwrap(), "line 3: the name gaunt_port_state_id is reserved");
        assert_eq!(parse(b"nccl_nan NaN\n").1.unwrap(), "line 1: NaN is not a finite number");
        assert_eq!(parse(b"DCGM_FI_DEV_GPU_UTIL{gpu=\"0\"} 1\n").0, []);
    }
}
