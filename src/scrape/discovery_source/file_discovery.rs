//! File discovery: polls target files once a second, reads changed ones, and keeps the last valid list of each.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use gaunt_schema::{SanitizedText, plain_error};
use tokio::time::{Instant, sleep};

use super::{
    DiscoveredTargets, DiscoveryError, DiscoverySender, GroupDefaults, LOOK,
    prometheus_targets::{self, TargetListContext, TargetListNotation},
};
use crate::{
    deadline_read::{READ_DEADLINE, RepeatedRead},
    endpoint::{EndpointList, EndpointNamedBy},
    file_polling::{self, FileMark},
    host_list::MAX_NAMES,
};

/// The largest target file: enough for the maximum number of targets, at 400 bytes each.
const MAX_FILE: u64 = 400 * MAX_NAMES as u64;

/// Consecutive polls that must find no file before its targets are removed: replacing a file may remove it for a
/// moment.
const MISSING_LOOKS: u32 = 2;

/// The format of the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TargetFileKind {
    /// A host list on each line.
    HostLists,
    /// Prometheus's format.
    Prometheus,
}

/// Sends the targets of the files, now and whenever one of them changes.
pub(super) async fn watch_files(
    kind: TargetFileKind,
    pattern: PathBuf,
    common: GroupDefaults,
    sender: DiscoverySender,
) {
    let what = pattern.display().to_string();
    let files = WatchedFiles { kind, pattern, common, files: BTreeMap::new(), last_sent: None };
    let mut reads = RepeatedRead::default();
    reads.start_read(move || files.into_polled());
    let mut answers = true;
    loop {
        // A file system that does not answer blocks only the thread of the read.
        match reads.wait_until(Instant::now() + READ_DEADLINE).await {
            Ok((mut files, update)) => {
                if !std::mem::replace(&mut answers, true) && update.is_none() {
                    // The list follows the failure, changed or not.
                    files.last_sent = None;
                }
                if let Some(update) = update
                    && !sender.send_update(update).await
                {
                    return;
                }
                sleep(LOOK).await;
                reads.start_read(move || files.into_polled());
            }
            Err(error) => {
                let why = plain_error::io(&error);
                let failed = DiscoveryError::Read { what: what.clone(), why };
                if std::mem::replace(&mut answers, false) && !sender.send_update(Err(failed)).await
                {
                    return;
                }
            }
        }
    }
}

/// Reads the files of a pattern once, and returns their number with the first error of each.
pub(super) fn check_files(
    kind: TargetFileKind,
    pattern: &Path,
    common: GroupDefaults,
) -> (usize, Vec<String>) {
    let pattern = pattern.to_path_buf();
    let mut watched =
        WatchedFiles { kind, pattern, common, files: BTreeMap::new(), last_sent: None };
    if let Err(error @ DiscoveryError::Read { .. }) = watched.read_files() {
        return (1, vec![error.to_string()]);
    }
    let errors = watched.files.iter().filter_map(|(path, file)| {
        let trouble = || file.last_valid.trouble.as_ref().map(ToString::to_string);
        Some(name_file(&path.display().to_string(), &file.error.clone().or_else(trouble)?))
    });
    (watched.files.len(), errors.collect())
}

/// A message about a file: those of host lists begin with its name already.
pub(super) fn name_file(what: &str, why: &str) -> String {
    let is_named = why.strip_prefix(what).is_some_and(|rest| rest.starts_with(':'));
    if is_named { why.to_owned() } else { format!("{what}: {why}") }
}

/// The files of one pattern.
struct WatchedFiles {
    kind: TargetFileKind,
    pattern: PathBuf,
    common: GroupDefaults,
    files: BTreeMap<PathBuf, WatchedFile>,
    /// The last update: the list, or the message of the failure.
    last_sent: Option<Result<DiscoveredTargets, String>>,
}

/// State of a file.
#[derive(Default)]
struct WatchedFile {
    mark: Option<FileMark>,
    text: Option<String>,
    last_valid: DiscoveredTargets,
    error: Option<String>,
    missing: u32,
}

/// What changed since the last poll.
type PolledUpdate = Option<Result<DiscoveredTargets, DiscoveryError>>;

impl WatchedFiles {
    /// Polls every file, and returns the files with what changed.
    fn into_polled(mut self) -> (Self, PolledUpdate) {
        let update = self.poll_changes();
        (self, update)
    }

    /// Polls every file and returns what changed.
    fn poll_changes(&mut self) -> PolledUpdate {
        let update = self.read_files();
        let comparable = update.as_ref().map(Clone::clone).map_err(ToString::to_string);
        if self.last_sent.as_ref() == Some(&comparable) {
            return None;
        }
        self.last_sent = Some(comparable);
        Some(update)
    }

    fn read_files(&mut self) -> Result<DiscoveredTargets, DiscoveryError> {
        let what = self.pattern.display().to_string();
        let unreadable = |error| {
            let why = format!("{}; check the path", plain_error::io(&error));
            DiscoveryError::Read { what, why }
        };
        let paths = file_polling::matching_files(&self.pattern).map_err(unreadable)?;
        for (path, file) in &mut self.files {
            file.missing = if paths.contains(path) { 0 } else { file.missing + 1 };
        }
        self.files.retain(|_, file| file.missing < MISSING_LOOKS);
        let mut merged = DiscoveredTargets::default();
        for path in &paths {
            self.files.entry(path.clone()).or_default().refresh_file(path, self.kind, &self.common);
        }
        let (mut first_error, mut lists) = (None, 0);
        for (path, file) in &self.files {
            let has_text = file.text.is_some();
            merged.endpoints.extend(file.last_valid.endpoints.iter().cloned());
            merged.trouble = merged.trouble.or_else(|| file.last_valid.trouble.clone());
            lists += usize::from(has_text);
            first_error =
                first_error.or_else(|| Some((path.display().to_string(), file.error.clone()?)));
        }
        match first_error {
            // A single unreadable file gives no new list; with several files, the others still count.
            Some((what, why)) if lists == 0 || paths == [self.pattern.as_path()] => {
                Err(DiscoveryError::Content { what, why })
            }
            Some((what, why)) => {
                let problem = name_file(&what, &why);
                merged.trouble =
                    Some(SanitizedText::new(&format!("{problem}; its previous list is kept")));
                Ok(merged)
            }
            None => Ok(merged),
        }
    }
}

impl WatchedFile {
    /// Reads the file again if it changed. Its last list stays if it cannot be read.
    fn refresh_file(&mut self, path: &Path, kind: TargetFileKind, common: &GroupDefaults) {
        let mark = match FileMark::of(path) {
            Ok(mark) => mark,
            Err(error) => {
                self.error = Some(format!("{error}; check the path"));
                return;
            }
        };
        if self.mark.as_ref().is_some_and(|earlier| mark.is_same(earlier)) {
            return;
        }
        let text = match file_polling::read_bounded(path, MAX_FILE) {
            Ok(text) => text,
            Err(error) => {
                self.error = Some(format!("cannot be read: {}", plain_error::io(&error)));
                return;
            }
        };
        self.mark = Some(mark);
        if self.text.as_ref() == Some(&text) && self.error.is_none() {
            return;
        }
        match parse(&text, path, kind, common) {
            Ok(targets) => (self.last_valid, self.text, self.error) = (targets, Some(text), None),
            Err(why) => self.error = Some(why),
        }
    }
}

fn parse(
    text: &str,
    path: &Path,
    kind: TargetFileKind,
    common: &GroupDefaults,
) -> Result<DiscoveredTargets, String> {
    if kind == TargetFileKind::HostLists {
        let mut endpoints = EndpointList::new(common.defaults.clone());
        endpoints.add_text(text, path).map_err(|error| error.to_string())?;
        return Ok(DiscoveredTargets { endpoints: endpoints.into_vec(), trouble: None });
    }
    let notation = match path.extension().and_then(|extension| extension.to_str()) {
        Some("json") => TargetListNotation::Json,
        Some("yml" | "yaml") => TargetListNotation::Yaml,
        _ => return Err("its name must end in .json, .yml or .yaml".to_owned()),
    };
    let origin = SanitizedText::new(&path.display().to_string());
    prometheus_targets::parse_targets(
        text,
        notation,
        TargetListContext { common, origin: &origin, named_by: EndpointNamedBy::Operator },
    )
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::endpoint::EndpointDefaults;

    fn watch_pattern(kind: TargetFileKind, pattern: PathBuf) -> WatchedFiles {
        let common = GroupDefaults { defaults: EndpointDefaults::default(), may_downgrade: true };
        WatchedFiles { kind, pattern, common, files: BTreeMap::new(), last_sent: None }
    }

    /// The update, as lines of addresses, or as the message of the failure.
    fn poll_lines(watched: &mut WatchedFiles) -> Option<Result<String, String>> {
        Some(match watched.poll_changes()? {
            Ok(targets) => Ok(targets
                .endpoints
                .iter()
                .flat_map(|endpoint| [endpoint.to_string(), " ".to_owned()])
                .collect()),
            Err(error) => Err(error.to_string()),
        })
    }

    fn replace_file(path: &Path, text: &str) {
        let other = path.with_extension("new");
        fs::write(&other, text).unwrap();
        fs::rename(&other, path).unwrap();
    }

    #[test]
    fn replaced_file_is_read_and_invalid_one_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sd.json");
        let mut watched = watch_pattern(TargetFileKind::Prometheus, path.clone());
        assert!(poll_lines(&mut watched).unwrap().unwrap_err().contains("No such file"));
        replace_file(&path, r#"[{"targets": ["a:1", "b:1"]}]"#);
        assert_eq!(poll_lines(&mut watched), Some(Ok("a:1 b:1 ".to_owned())));
        assert_eq!(poll_lines(&mut watched), None);
        replace_file(&path, r#"[{"targets": ["a:1", "#);
        let error = poll_lines(&mut watched).unwrap().unwrap_err();
        assert!(error.contains("sd.json: line 1, column 21: incomplete JSON; write ["), "{error}");
        replace_file(&path, r#"[{"targets": ["a:1"]}]"#);
        assert_eq!(poll_lines(&mut watched), Some(Ok("a:1 ".to_owned())));
        fs::write(&path, r#"[{"targets": ["c:1"]}]"#).unwrap();
        assert_eq!(
            poll_lines(&mut watched),
            Some(Ok("c:1 ".to_owned())),
            "written in place, same size"
        );
    }

    #[test]
    fn invalid_file_does_not_stop_the_other_files_of_its_source() {
        let folder = tempfile::tempdir().unwrap();
        let mut watched = watch_pattern(TargetFileKind::Prometheus, folder.path().join("*.yml"));
        assert_eq!(poll_lines(&mut watched), Some(Ok(String::new())));
        replace_file(&folder.path().join("a.yml"), "- targets: [a:1]");
        replace_file(&folder.path().join("b.yml"), "- targets: [b:1]");
        assert_eq!(poll_lines(&mut watched), Some(Ok("a:1 b:1 ".to_owned())));
        replace_file(&folder.path().join("a.yml"), "- targets: [");
        replace_file(&folder.path().join("b.yml"), "- targets: [b:2]");
        assert_eq!(poll_lines(&mut watched), Some(Ok("a:1 b:2 ".to_owned())));
        let trouble = watched.last_sent.clone().unwrap().unwrap().trouble.unwrap();
        assert!(
            trouble.contains("a.yml: ") && trouble.ends_with("its previous list is kept"),
            "{trouble}"
        );
        fs::remove_file(folder.path().join("b.yml")).unwrap();
        assert_eq!(poll_lines(&mut watched), None, "it may come back at once");
        assert_eq!(poll_lines(&mut watched), Some(Ok("a:1 ".to_owned())));
    }

    #[tokio::test(start_paused = true)]
    async fn file_that_never_answers_is_reported_until_it_does() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("targets");
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::RWXU).unwrap();
        // While it is open for writing, a read of the pipe waits.
        let writer = fs::File::options().read(true).write(true).open(&path).unwrap();
        let (updates, mut received) = tokio::sync::mpsc::channel(4);
        let sender = DiscoverySender { source: 1, updates };
        let WatchedFiles { kind, pattern, common, .. } =
            watch_pattern(TargetFileKind::HostLists, path.clone());
        let task = tokio::spawn(watch_files(kind, pattern, common, sender));
        tokio::task::yield_now().await;
        tokio::time::advance(READ_DEADLINE * 2).await;
        let error = received.recv().await.unwrap().list.unwrap_err().to_string();
        assert!(error.ends_with("targets: its file system does not answer within 5 s"), "{error}");
        // The read that waits ends with nothing, and the next one reads the file.
        replace_file(&path, "later:1");
        drop(writer);
        loop {
            let list = received.recv().await.unwrap().list;
            let first = list.ok().and_then(|list| list.endpoints.first().map(ToString::to_string));
            if first.is_some_and(|first| first.starts_with("later")) {
                break;
            }
        }
        task.abort();
    }

    #[test]
    fn host_lists_are_read_line_by_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("targets");
        replace_file(&path, "gpu[1-2] # racks\n\nx=b:1\n");
        let mut watched = watch_pattern(TargetFileKind::HostLists, path.clone());
        assert_eq!(poll_lines(&mut watched), Some(Ok("gpu1:9770 gpu2:9770 b:1 ".to_owned())));
        replace_file(&path, "gpu[1-");
        assert!(poll_lines(&mut watched).unwrap().unwrap_err().contains("targets:1: host list"));
    }

    #[test]
    fn file_behind_a_changed_symbolic_link_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        for (name, target) in [("one", "a:1"), ("two", "b:1")] {
            fs::create_dir(folder.path().join(name)).unwrap();
            fs::write(folder.path().join(name).join("sd.yml"), format!("- targets: [{target}]"))
                .unwrap();
        }
        let link = folder.path().join("current");
        std::os::unix::fs::symlink(folder.path().join("one"), &link).unwrap();
        let mut watched = watch_pattern(TargetFileKind::Prometheus, link.join("sd.yml"));
        assert_eq!(poll_lines(&mut watched), Some(Ok("a:1 ".to_owned())));
        let new_link = folder.path().join("turned");
        std::os::unix::fs::symlink(folder.path().join("two"), &new_link).unwrap();
        fs::rename(new_link, link).unwrap();
        assert_eq!(poll_lines(&mut watched), Some(Ok("b:1 ".to_owned())));
    }
}
