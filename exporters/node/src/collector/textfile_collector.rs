//! Exports metrics files of other programs unchanged: probe results, NCCL statistics.

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

use super::{CollectError, CollectOutcome, Collector};
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
    written: SystemTime,
    length: u64,
    samples: Vec<ExtraSample>,
    /// The first rejected line, and the reason.
    trouble: Option<String>,
}

impl TextfileCollector {
    pub(super) fn new(folder: &Path) -> Self {
        Self { folder: folder.to_path_buf(), files: BTreeMap::new() }
    }

    /// Reads the file again if it changed.
    fn refresh_file(&mut self, name: &str) -> io::Result<()> {
        let path = self.folder.join(name);
        let about = fs::metadata(&path)?;
        let (written, length) = (about.modified()?, about.len());
        let same = |kept: &CachedTextfile| kept.written == written && kept.length == length;
        if self.files.get(name).is_some_and(same) {
            return Ok(());
        }
        let mut body = Vec::new();
        File::open(&path)?.take(MAX_BYTES + 1).read_to_end(&mut body)?;
        let (samples, trouble) = if body.len() as u64 > MAX_BYTES {
            (Vec::new(), Some("longer than 1 MiB".to_owned()))
        } else {
            parse(&body)
        };
        self.files.insert(name.to_owned(), CachedTextfile { written, length, samples, trouble });
        Ok(())
    }
}

/// The samples of a file, and the error of the first rejected line.
fn parse(body: &[u8]) -> (Vec<ExtraSample>, Option<String>) {
    let mut reader = TextReader::new(body, &PageLimits::default());
    let (mut samples, mut trouble) = (Vec::new(), None);
    loop {
        let taken = match reader.next() {
            None => break,
            Some(Ok(PageLine::Sample(sample))) => {
                let taken = TAKEN.iter().any(|word| sample.name.starts_with(word));
                if taken || find_rows(sample.name).is_some() {
                    Err(format!("the name {} is reserved", SanitizedText::new(sample.name)))
                } else if !sample.value.is_finite() {
                    Err(format!("{} is not a finite number", SanitizedText::new(sample.digits)))
                } else {
                    let labels = sample.labels.iter();
                    let labels =
                        labels.map(|it| (it.name.into(), (*it.unescaped_value()).into())).collect();
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
        if let (Err(why), None) = (taken, &trouble) {
            trouble = Some(format!("line {}: {why}", reader.line_number()));
        }
    }
    (samples, trouble)
}

impl Collector for TextfileCollector {
    fn name(&self) -> &'static str {
        "textfiles"
    }

    fn collect_readings(&mut self, report: &mut Report) -> Result<CollectOutcome, CollectError> {
        let mut found = list_names(&self.folder)
            .map_err(|source| CollectError::Read { path: self.folder.clone(), source })?;
        found.retain(|name| name.ends_with(ENDING));
        found.truncate(MAX_FILES);
        self.files.retain(|name, _| found.contains(name));
        let mut troubles = Vec::new();
        for name in &found {
            if let Err(error) = self.refresh_file(name) {
                self.files.remove(name);
                troubles.push(format!("{name}: {error}"));
            }
        }
        for (name, kept) in &self.files {
            let since = kept.written.duration_since(UNIX_EPOCH).unwrap_or_default();
            report.extra.push(ExtraSample {
                name: WRITTEN.into(),
                labels: vec![("file".into(), name.as_str().into())],
                value: since.as_secs_f64(),
            });
            let room = MAX_SAMPLES.saturating_sub(report.extra.len());
            report.extra.extend(kept.samples.iter().take(room).cloned());
            troubles.extend(kept.trouble.iter().map(|trouble| format!("{name}, {trouble}")));
        }
        if !troubles.is_empty() {
            return Err(CollectError::Devices(troubles.join("; ")));
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
    fn what_is_no_number_or_no_name_of_its_own_is_refused_and_the_rest_passed_on() {
        let text = b"# HELP x y\nnccl_bus_bandwidth_gbs{rank=\"0\"} 471.5\n\
                     gaunt_port_state_id{device=\"a\",port=\"1\"} 4\nnccl_nan NaN\nbroken{ 1\nlast 1\n";
        let (samples, trouble) = parse(text);
        let names: Vec<_> = samples.iter().map(|extra| extra.name.as_str()).collect();
        assert_eq!(names, ["nccl_bus_bandwidth_gbs", "last"]);
        assert_eq!(samples[0].labels, [("rank".into(), "0".into())]);
        assert_eq!(trouble.unwrap(), "line 3: the name gaunt_port_state_id is reserved");
        assert_eq!(parse(b"nccl_nan NaN\n").1.unwrap(), "line 1: NaN is not a finite number");
        assert_eq!(parse(b"DCGM_FI_DEV_GPU_UTIL{gpu=\"0\"} 1\n").0, []);
    }
}
