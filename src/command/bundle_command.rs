//! `gaunt support-bundle`: one archive with the state of gaunt for whoever helps, without secrets.

use std::{
    fs::OpenOptions,
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::PathBuf,
    process::ExitCode,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::Context as _;
use flate2::{Compression, write::GzEncoder};
use gaunt_schema::UnixMs;
use serde_json::json;

use super::{
    ViewSource, doctor_command,
    snapshot_command::{print_page, wait_for_samples},
};
use crate::answer_source::AnswerSource;
use gaunt_api::{Answer, Question};
use redaction::{redact_settings, redact_text};
use tar_archive::TarArchive;

mod redaction;
mod tar_archive;

/// The questions whose answers are in the archive.
const QUESTIONS: [&str; 9] = [
    "overview", "coverage", "targets", "findings", "closed", "gpu_time", "nodes", "alerts", "probe",
];

/// The largest answer or file in the archive, in bytes; a larger one is left out, and named.
const MAX_PART: usize = 64 << 20;

/// What goes into the archive.
#[derive(Clone, Debug)]
pub struct BundleOptions {
    /// The archive; it must not exist.
    pub file: PathBuf,
    /// Settings files of gaunt and gaunt-node, in TOML.
    pub settings: Vec<PathBuf>,
    /// Sampling time if no aggregator is used.
    pub watch: Duration,
}

/// The parts so far.
struct BundleParts {
    archive: TarArchive,
    /// Each part that is missing, and why.
    missing: Vec<String>,
}

impl BundleParts {
    /// Adds a part, without secrets.
    fn add_part(&mut self, name: &str, text: anyhow::Result<String>) {
        let text = text.and_then(|text| {
            anyhow::ensure!(text.len() <= MAX_PART, "it has {} bytes", text.len());
            Ok(redact_text(&text))
        });
        match text {
            Ok(text) => self.archive.add_file(name, text.as_bytes()),
            Err(error) => self.missing.push(redact_text(&format!("{name}: {error:#}"))),
        }
    }
}

/// Writes the archive; what cannot be read is named in its manifest and printed.
pub async fn run(view: ViewSource, options: BundleOptions) -> anyhow::Result<ExitCode> {
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&options.file);
    let shown = options.file.display();
    let mut file = file.map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => {
            anyhow::anyhow!("{shown} exists and is kept; name another file with --to")
        }
        _ => anyhow::anyhow!("cannot create {shown}: {error}; check the path given with --to"),
    })?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = UnixMs(i64::try_from(now.as_millis()).unwrap_or(i64::MAX));
    let mut parts = BundleParts { archive: TarArchive::new(now), missing: Vec::new() };
    let view = view.resolve_default(true).await;
    match view.open_view().await {
        Ok(open) => {
            if open.needs_warmup {
                wait_for_samples(&open.source, options.watch).await?;
            }
            add_answers(&mut parts, &open.source).await;
        }
        Err(error) => parts.missing.push(redact_text(&format!("answers: {error:#}"))),
    }
    for path in &options.settings {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string());
        parts.add_part(&format!("settings/{name}"), text.and_then(|text| redact_settings(&text)));
    }
    for path in ["/proc/version", "/proc/meminfo", "/proc/loadavg", "/etc/os-release"] {
        let name = path.rsplit('/').next().unwrap_or_default();
        parts.add_part(&format!("host/{name}"), std::fs::read_to_string(path).context(path));
    }
    let manifest = json!({
        "gaunt": gaunt_schema::VERSION,
        "created": now.to_rfc3339(),
        "missing": &parts.missing,
    });
    parts.add_part("manifest.json", Ok(serde_json::to_string_pretty(&manifest)?));
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    gzip.write_all(&parts.archive.into_bytes())?;
    file.write_all(&gzip.finish()?).with_context(|| format!("cannot write {shown}"))?;
    let mut page =
        format!("{shown}: secrets are removed; names of hosts, jobs and users are not.\n");
    page.extend(parts.missing.iter().map(|missing| format!("missing: {missing}\n")));
    page += "Logs are not in it: journalctl -u gaunt -u gaunt-node --since -1h > gaunt.log\n";
    print_page(&page)?;
    Ok(ExitCode::SUCCESS)
}

/// Adds the answers, and the page of `gaunt doctor`.
async fn add_answers(parts: &mut BundleParts, source: &AnswerSource) {
    for path in QUESTIONS {
        let answer = match Question::parse_path(path, &[]) {
            Ok(question) => source.ask_question(question).await.map_err(anyhow::Error::from),
            Err(refusal) => Err(refusal.into()),
        };
        if let Ok(Answer::Coverage(coverage)) = &answer {
            parts.add_part("doctor.txt", Ok(doctor_command::render_page(coverage)));
        }
        let text = answer.and_then(|answer| match answer {
            Answer::Refused(refusal) => Err(refusal.into()),
            answer => Ok(serde_json::to_string(&answer)?),
        });
        parts.add_part(&format!("answers/{path}.json"), text);
    }
}
