//! Site watch: polls the site files and delivers them when they change; files with errors change nothing.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use gaunt_schema::{
    Delivery, JobList, SanitizedText, SiteFileStatus, SourceTopology, TopologyOrigin,
};
use tokio::{
    sync::mpsc,
    task::AbortHandle,
    time::{Instant, MissedTickBehavior, interval},
};

use gaunt_scrape::{READ_DEADLINE, RepeatedRead};

use super::{SiteError, SiteFileData, SiteOptions, read_jobs, read_topology, source_name};

/// Poll interval. A poll reads only date and size from the file system.
const LOOK: Duration = Duration::from_secs(5);

/// Job lists that were not rewritten for this long are withdrawn: the jobs may have ended.
const JOBS_STAND: Duration = Duration::from_mins(15);

/// Reloads that may be queued: the operator reloads by hand.
const RELOADS: usize = 4;

/// A running watch. Dropping it ends it; what was delivered remains.
#[derive(Debug)]
pub struct SiteWatch {
    reloads: mpsc::Sender<SiteOptions>,
    task: AbortHandle,
}

impl Drop for SiteWatch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl SiteWatch {
    /// Replaces the options, and reads all files again.
    pub async fn reload_options(&self, options: SiteOptions) {
        // The watch ends only with the engine.
        drop(self.reloads.send(options).await);
    }
}

/// Reads every file once, and watches them from then on. What is wrong with a file is delivered as its status; the
/// others are read. One whose file system does not answer is waited for up to [`READ_DEADLINE`].
pub async fn start_watching(options: SiteOptions, inbox: mpsc::Sender<Delivery>) -> SiteWatch {
    let mut poller = SiteFilePoller::new(inbox);
    poller.poll_changes(&options).await;
    let (reloads, reload_receiver) = mpsc::channel(RELOADS);
    let task = tokio::spawn(poller.run(options, reload_receiver)).abort_handle();
    SiteWatch { reloads, task }
}

/// Identifies a version of a file: size and date; of a directory, those of all its files.
type FileStamp = Option<(u64, SystemTime)>;

/// What was delivered, by file.
struct SiteFilePoller {
    inbox: mpsc::Sender<Delivery>,
    stamps: BTreeMap<PathBuf, FileStamp>,
    /// The files whose content was delivered.
    loaded: BTreeSet<PathBuf>,
    /// What is wrong with each file.
    troubles: BTreeMap<PathBuf, SanitizedText>,
    /// The statuses as last delivered.
    statuses: Vec<SiteFileStatus>,
    /// The read of each file; one of a file system that does not answer is not started again.
    topology_reads: BTreeMap<PathBuf, RepeatedRead<PolledFile<SourceTopology>>>,
    job_reads: BTreeMap<PathBuf, RepeatedRead<PolledFile<JobList>>>,
}

impl SiteFilePoller {
    fn new(inbox: mpsc::Sender<Delivery>) -> Self {
        Self {
            inbox,
            stamps: BTreeMap::new(),
            loaded: BTreeSet::new(),
            troubles: BTreeMap::new(),
            statuses: Vec::new(),
            topology_reads: BTreeMap::new(),
            job_reads: BTreeMap::new(),
        }
    }

    async fn run(mut self, mut options: SiteOptions, mut reloads: mpsc::Receiver<SiteOptions>) {
        let mut ticks = interval(LOOK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = ticks.tick() => self.poll_changes(&options).await,
                new_options = reloads.recv() => {
                    let Some(new_options) = new_options else { return };
                    self.withdraw_removed(&options, &new_options).await;
                    options = new_options;
                    self.stamps.clear();
                    self.poll_changes(&options).await;
                }
            }
        }
    }

    /// Delivers what changed. All files are read at the same time, each on a thread of its own.
    async fn poll_changes(&mut self, options: &SiteOptions) {
        for path in &options.topology {
            let (file, known) = (path.clone(), self.stamps.get(path).copied());
            let read = self.topology_reads.entry(path.clone()).or_default();
            read.start_read(move || poll_file(&file, known, None, read_topology));
        }
        for path in &options.jobs {
            let (file, known) = (path.clone(), self.stamps.get(path).copied());
            let read = self.job_reads.entry(path.clone()).or_default();
            read.start_read(move || poll_file(&file, known, Some(JOBS_STAND), read_jobs));
        }
        let deadline = Instant::now() + READ_DEADLINE;
        for path in &options.topology {
            let Some(read) = self.topology_reads.get_mut(path) else { continue };
            let polled = read.wait_until(deadline).await;
            self.deliver_polled(path, polled, Delivery::Topology).await;
        }
        for path in &options.jobs {
            let Some(read) = self.job_reads.get_mut(path) else { continue };
            let polled = read.wait_until(deadline).await;
            self.deliver_polled(path, polled, Delivery::Jobs).await;
        }
        self.deliver_statuses(options).await;
    }

    async fn deliver_polled<T>(
        &mut self,
        path: &Path,
        polled: io::Result<PolledFile<T>>,
        delivery: impl FnOnce(T) -> Delivery,
    ) {
        match polled {
            Ok(PolledFile::Unchanged) => {}
            Ok(PolledFile::TooOld) => self.withdraw_old_jobs(path).await,
            Ok(PolledFile::Read(stamp, result)) => {
                self.deliver_result(path, stamp, result, delivery).await;
            }
            Err(error) => {
                let error = SiteError::Read { path: path.to_owned(), error };
                self.deliver_result(path, None, Err(error), delivery).await;
            }
        }
    }

    /// Withdraws a list that is no longer written: it does not show running jobs.
    async fn withdraw_old_jobs(&mut self, path: &Path) {
        if self.stamps.insert(path.to_owned(), None) == Some(None) {
            return;
        }
        self.set_trouble(path, Some("is too old and ignored; check that it is still written"));
        self.send_delivery(Delivery::Jobs(JobList { source: source_name(path), jobs: vec![] }))
            .await;
    }

    /// Delivers the statuses of all files if they changed.
    async fn deliver_statuses(&mut self, options: &SiteOptions) {
        let files = options.topology.iter().chain(&options.jobs);
        let status = |path: &PathBuf| SiteFileStatus {
            file: source_name(path),
            trouble: self.troubles.get(path).cloned(),
        };
        let statuses: Vec<SiteFileStatus> = files.map(status).collect();
        if statuses != self.statuses {
            self.statuses.clone_from(&statuses);
            self.send_delivery(Delivery::SiteFiles(statuses)).await;
        }
    }

    /// Records what is wrong with a file, if anything is, and logs it once.
    fn set_trouble(&mut self, path: &Path, trouble: Option<&str>) {
        let name = source_name(path);
        let trouble = trouble.map(|why| {
            let names_file = why.contains(name.as_str());
            SanitizedText::new(&if names_file { why.to_owned() } else { format!("{name} {why}") })
        });
        let before = match &trouble {
            Some(trouble) => self.troubles.insert(path.to_owned(), trouble.clone()),
            None => self.troubles.remove(path),
        };
        if let Some(trouble) = trouble.filter(|trouble| before.as_ref() != Some(trouble)) {
            tracing::error!("{trouble}");
        }
    }

    async fn deliver_result<T>(
        &mut self,
        path: &Path,
        stamp: FileStamp,
        result: Result<SiteFileData<T>, SiteError>,
        delivery: impl FnOnce(T) -> Delivery,
    ) {
        match result {
            Ok(SiteFileData { content, skipped }) => {
                tracing::info!(file = %path.display(), "file loaded");
                self.set_trouble(path, skipped.as_deref());
                self.deliver_file(path, stamp, delivery(content)).await;
            }
            Err(error) => {
                // One with invalid content is read again when it changes; permissions may change without that.
                if !matches!(error, SiteError::Read { .. }) {
                    self.stamps.insert(path.to_owned(), stamp);
                }
                let is_kept = self.loaded.contains(path);
                let suffix = if is_kept { "; what was read before is kept" } else { "" };
                self.set_trouble(path, Some(&format!("{error}{suffix}")));
            }
        }
    }

    async fn deliver_file(&mut self, path: &Path, stamp: FileStamp, delivery: Delivery) {
        self.stamps.insert(path.to_owned(), stamp);
        self.loaded.insert(path.to_owned());
        self.send_delivery(delivery).await;
    }

    /// Withdraws the deliveries of files that are no longer configured.
    async fn withdraw_removed(&mut self, previous: &SiteOptions, current: &SiteOptions) {
        let is_removed = |path: &&PathBuf, remaining: &[PathBuf]| !remaining.contains(path);
        for path in previous.topology.iter().filter(|path| is_removed(path, &current.topology)) {
            let empty = SourceTopology::new(source_name(path), TopologyOrigin::Declared);
            self.troubles.remove(path);
            self.loaded.remove(path);
            self.topology_reads.remove(path);
            self.send_delivery(Delivery::Topology(empty)).await;
        }
        for path in previous.jobs.iter().filter(|path| is_removed(path, &current.jobs)) {
            self.troubles.remove(path);
            self.loaded.remove(path);
            self.job_reads.remove(path);
            self.send_delivery(Delivery::Jobs(JobList { source: source_name(path), jobs: vec![] }))
                .await;
        }
    }

    async fn send_delivery(&self, delivery: Delivery) {
        // Without an engine there is no receiver, and the watch is about to end.
        drop(self.inbox.send(delivery).await);
    }
}

/// What a poll of a file found.
#[derive(Debug)]
enum PolledFile<T> {
    /// The version that was delivered.
    Unchanged,
    /// A version older than its longest age.
    TooOld,
    /// Another version, with its content.
    Read(FileStamp, Result<SiteFileData<T>, SiteError>),
}

/// Reads a file if its version is not the one that is known.
fn poll_file<T>(
    path: &Path,
    known: Option<FileStamp>,
    longest_age: Option<Duration>,
    read: fn(&Path) -> Result<SiteFileData<T>, SiteError>,
) -> PolledFile<T> {
    let stamp = file_stamp(path);
    let age = stamp.and_then(|(_, at)| SystemTime::now().duration_since(at).ok());
    if longest_age.is_some_and(|longest| age.is_some_and(|age| age > longest)) {
        return PolledFile::TooOld;
    }
    if known == Some(stamp) {
        return PolledFile::Unchanged;
    }
    PolledFile::Read(stamp, read(path))
}

fn file_stamp(path: &Path) -> FileStamp {
    let stamp_of = |path: &Path| {
        let meta = fs::metadata(path).ok()?;
        Some((meta.len(), meta.modified().ok()?))
    };
    if !path.is_dir() {
        return stamp_of(path);
    }
    let files = fs::read_dir(path).ok()?.filter_map(|entry| stamp_of(&entry.ok()?.path()));
    files.reduce(|(size, last), (added_size, modified)| {
        (size.wrapping_add(added_size), last.max(modified))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn next(inbox: &mut mpsc::Receiver<Delivery>) -> Delivery {
        tokio::time::timeout(Duration::from_secs(30), inbox.recv()).await.unwrap().unwrap()
    }

    /// The trouble of the only file in the next delivery, which must be of statuses.
    async fn next_trouble(inbox: &mut mpsc::Receiver<Delivery>) -> Option<SanitizedText> {
        let Delivery::SiteFiles(files) = next(inbox).await else { panic!("statuses") };
        files.into_iter().next().unwrap().trouble
    }

    #[tokio::test]
    async fn broken_files_stop_neither_start_nor_the_other_files() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("broken.toml"), "[[nodes]\n").unwrap();
        fs::write(path("good.toml"), "[[nodes]]\nnames = \"a\"\nrack = \"r1\"\n").unwrap();
        fs::write(path("squeue.json"), "{").unwrap();
        let topology = ["missing.conf", "broken.toml", "good.toml"].map(path).to_vec();
        let options = SiteOptions { topology, jobs: vec![path("squeue.json")] };
        let (inbox, mut deliveries) = mpsc::channel(8);
        let _watch = start_watching(options, inbox).await;
        let Delivery::Topology(good) = next(&mut deliveries).await else { panic!("a topology") };
        assert_eq!(good.nodes[0].rack.as_deref(), Some("r1"));
        let Delivery::SiteFiles(files) = next(&mut deliveries).await else { panic!("statuses") };
        let troubles: Vec<String> =
            files.iter().map(|file| file.trouble.as_deref().unwrap_or("none").to_owned()).collect();
        assert!(troubles[0].contains("missing.conf: No such file"), "{troubles:?}");
        assert!(troubles[1].contains("broken.toml:1: "), "{troubles:?}");
        assert!(!troubles[1].contains("kept"), "nothing was read before: {troubles:?}");
        assert_eq!(troubles[2], "none");
        assert!(troubles[3].contains("squeue.json:1: "), "{troubles:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn file_that_never_answers_stops_neither_start_nor_the_other_files() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        // While a pipe is open for writing, a read of it waits.
        let writers = ["topology.toml", "squeue.json"].map(|pipe| {
            rustix::fs::mkfifoat(rustix::fs::CWD, path(pipe), rustix::fs::Mode::RWXU).unwrap();
            fs::File::options().read(true).write(true).open(path(pipe)).unwrap()
        });
        fs::write(path("good.toml"), "[[nodes]]\nnames = \"a\"\nrack = \"r1\"\n").unwrap();
        let options = SiteOptions {
            topology: ["topology.toml", "good.toml"].map(path).to_vec(),
            jobs: vec![path("squeue.json")],
        };
        let (inbox, mut deliveries) = mpsc::channel(8);
        let start = tokio::spawn(start_watching(options, inbox));
        while !start.is_finished() {
            tokio::time::advance(Duration::from_millis(100)).await;
        }
        let mut statuses = Vec::new();
        while let Ok(delivery) = deliveries.try_recv() {
            if let Delivery::SiteFiles(files) = delivery {
                statuses = files;
            }
        }
        let trouble = |name: usize| statuses[name].trouble.as_deref().unwrap_or_default();
        for hung in [0, 2] {
            assert!(trouble(hung).contains("does not answer within 5 s"), "{}", trouble(hung));
        }
        // The reads end, so that the test can: one that begins now finds no file, and does not wait for a writer.
        for pipe in ["topology.toml", "squeue.json"] {
            fs::remove_file(path(pipe)).unwrap();
        }
        drop(writers);
    }

    #[tokio::test]
    async fn changed_file_is_delivered_again_and_invalid_one_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("site.toml");
        fs::write(&file, "[[nodes]]\nnames = \"a\"\nrack = \"r1\"\n").unwrap();
        let options = SiteOptions { topology: vec![file.clone()], jobs: vec![] };
        let (inbox, mut deliveries) = mpsc::channel(8);
        let mut poller = SiteFilePoller::new(inbox);
        poller.poll_changes(&options).await;
        let Delivery::Topology(first) = next(&mut deliveries).await else { panic!("a topology") };
        assert_eq!(first.nodes[0].rack.as_deref(), Some("r1"));
        assert_eq!(next_trouble(&mut deliveries).await, None);
        poller.poll_changes(&options).await;
        fs::write(&file, "[[nodes]]\nnames = \"a\"\nrack = \n").unwrap();
        poller.poll_changes(&options).await;
        let trouble = next_trouble(&mut deliveries).await.unwrap();
        assert!(trouble.contains("site.toml:3: "), "{trouble}");
        assert!(trouble.ends_with("; what was read before is kept"), "{trouble}");
        assert!(deliveries.try_recv().is_err(), "its content stays");
        fs::write(&file, "[[nodes]]\nnames = \"a\"\nrack = \"r22\"\n").unwrap();
        poller.poll_changes(&options).await;
        let Delivery::Topology(second) = next(&mut deliveries).await else { panic!("a topology") };
        assert_eq!(second.nodes[0].rack.as_deref(), Some("r22"));
        assert_eq!(next_trouble(&mut deliveries).await, None);
        poller.withdraw_removed(&options, &SiteOptions::default()).await;
        let Delivery::Topology(last) = next(&mut deliveries).await else { panic!("a topology") };
        assert!(last.is_empty() && last.source == first.source);
    }

    #[tokio::test]
    async fn old_list_of_jobs_is_withdrawn() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("squeue.json");
        fs::write(&file, r#"{"jobs":[{"job_id":7,"job_state":["RUNNING"],"nodes":"a"}]}"#).unwrap();
        let options = SiteOptions { topology: vec![], jobs: vec![file.clone()] };
        let (inbox, mut deliveries) = mpsc::channel(8);
        let mut poller = SiteFilePoller::new(inbox);
        poller.poll_changes(&options).await;
        let Delivery::Jobs(list) = next(&mut deliveries).await else { panic!("jobs") };
        assert_eq!(list.jobs[0].id, "7");
        assert_eq!(next_trouble(&mut deliveries).await, None);
        let old = SystemTime::now() - JOBS_STAND * 2;
        fs::File::options().write(true).open(&file).unwrap().set_modified(old).unwrap();
        poller.poll_changes(&options).await;
        let Delivery::Jobs(list) = next(&mut deliveries).await else { panic!("jobs") };
        assert!(list.jobs.is_empty());
        let trouble = next_trouble(&mut deliveries).await.unwrap();
        assert!(trouble.contains("squeue.json is too old"), "{trouble}");
    }
}
