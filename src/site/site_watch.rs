//! Site watch: polls the site files and delivers them when they change; files with errors change nothing.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use gaunt_schema::{Delivery, JobList, SourceTopology, TopologyOrigin};
use tokio::{
    sync::mpsc,
    task::AbortHandle,
    time::{MissedTickBehavior, interval},
};

use super::{SiteError, SiteOptions, read_jobs, read_topology, source_name};

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

/// Reads every file once, which must succeed, and watches them from then on.
pub async fn start_watching(
    options: SiteOptions,
    inbox: mpsc::Sender<Delivery>,
) -> Result<SiteWatch, SiteError> {
    let mut poller = SiteFilePoller { inbox, stamps: BTreeMap::new() };
    for path in &options.topology {
        let stamp = file_stamp(path);
        poller.deliver_file(path, stamp, Delivery::Topology(read_topology(path)?)).await;
    }
    for path in &options.jobs {
        let stamp = file_stamp(path);
        poller.deliver_file(path, stamp, Delivery::Jobs(read_jobs(path)?)).await;
    }
    let (reloads, reload_receiver) = mpsc::channel(RELOADS);
    let task = tokio::spawn(poller.run(options, reload_receiver)).abort_handle();
    Ok(SiteWatch { reloads, task })
}

/// Identifies a version of a file: size and date; of a directory, those of all its files.
type FileStamp = Option<(u64, SystemTime)>;

/// What was delivered, by file.
struct SiteFilePoller {
    inbox: mpsc::Sender<Delivery>,
    stamps: BTreeMap<PathBuf, FileStamp>,
}

impl SiteFilePoller {
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

    /// Delivers what changed.
    async fn poll_changes(&mut self, options: &SiteOptions) {
        for path in &options.topology {
            let stamp = file_stamp(path);
            if self.stamps.get(path) != Some(&stamp) {
                let result = read_blocking(path, read_topology).await;
                self.deliver_result(path, stamp, result.map(Delivery::Topology)).await;
            }
        }
        for path in &options.jobs {
            let stamp = file_stamp(path);
            let age = stamp.and_then(|(_, at)| SystemTime::now().duration_since(at).ok());
            if age.is_some_and(|age| age > JOBS_STAND) {
                // A list that is no longer written does not show running jobs.
                if self.stamps.insert(path.clone(), None) != Some(None) {
                    tracing::warn!(file = %path.display(), ?age, "job list is too old and ignored; is it still written?");
                    self.send_delivery(Delivery::Jobs(JobList {
                        source: source_name(path),
                        jobs: vec![],
                    }))
                    .await;
                }
            } else if self.stamps.get(path) != Some(&stamp) {
                let result = read_blocking(path, read_jobs).await;
                self.deliver_result(path, stamp, result.map(Delivery::Jobs)).await;
            }
        }
    }

    async fn deliver_result(
        &mut self,
        path: &Path,
        stamp: FileStamp,
        result: Result<Delivery, SiteError>,
    ) {
        match result {
            Ok(delivery) => {
                tracing::info!(file = %path.display(), "file loaded");
                self.deliver_file(path, stamp, delivery).await;
            }
            Err(error) => {
                // It is checked again when it changes.
                self.stamps.insert(path.to_owned(), stamp);
                tracing::error!("keeping the previous content: {error}");
            }
        }
    }

    async fn deliver_file(&mut self, path: &Path, stamp: FileStamp, delivery: Delivery) {
        self.stamps.insert(path.to_owned(), stamp);
        self.send_delivery(delivery).await;
    }

    /// Withdraws the deliveries of files that are no longer configured.
    async fn withdraw_removed(&mut self, previous: &SiteOptions, current: &SiteOptions) {
        let is_removed = |path: &&PathBuf, remaining: &[PathBuf]| !remaining.contains(path);
        for path in previous.topology.iter().filter(|path| is_removed(path, &current.topology)) {
            let empty = SourceTopology::new(source_name(path), TopologyOrigin::Declared);
            self.send_delivery(Delivery::Topology(empty)).await;
        }
        for path in previous.jobs.iter().filter(|path| is_removed(path, &current.jobs)) {
            self.send_delivery(Delivery::Jobs(JobList { source: source_name(path), jobs: vec![] }))
                .await;
        }
    }

    async fn send_delivery(&self, delivery: Delivery) {
        // Without an engine there is no receiver, and the watch is about to end.
        drop(self.inbox.send(delivery).await);
    }
}

/// Reads a file on a blocking thread.
async fn read_blocking<T: Send + 'static>(
    path: &Path,
    read: fn(&Path) -> Result<T, SiteError>,
) -> Result<T, SiteError> {
    let owned = path.to_owned();
    let read = tokio::task::spawn_blocking(move || read(&owned)).await;
    read.unwrap_or_else(|error| {
        tracing::error!(%error, "reading a file ended unexpectedly");
        let error = std::io::Error::other("reading it ended unexpectedly; see the log");
        Err(SiteError::Read { path: path.to_owned(), error })
    })
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

    #[tokio::test]
    async fn changed_file_is_delivered_again_and_invalid_one_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("site.toml");
        fs::write(&file, "[[nodes]]\nnames = \"a\"\nrack = \"r1\"\n").unwrap();
        let options = SiteOptions { topology: vec![file.clone()], jobs: vec![] };
        let (inbox, mut deliveries) = mpsc::channel(8);
        let mut poller = SiteFilePoller { inbox, stamps: BTreeMap::new() };
        poller.poll_changes(&options).await;
        let Delivery::Topology(first) = next(&mut deliveries).await else { panic!("a topology") };
        assert_eq!(first.nodes[0].rack.as_deref(), Some("r1"));
        poller.poll_changes(&options).await;
        fs::write(&file, "[[nodes]]\nnames = \"a\"\nrack = \n").unwrap();
        poller.poll_changes(&options).await;
        assert!(deliveries.try_recv().is_err(), "nothing was told");
        fs::write(&file, "[[nodes]]\nnames = \"a\"\nrack = \"r22\"\n").unwrap();
        poller.poll_changes(&options).await;
        let Delivery::Topology(second) = next(&mut deliveries).await else { panic!("a topology") };
        assert_eq!(second.nodes[0].rack.as_deref(), Some("r22"));
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
        let mut poller = SiteFilePoller { inbox, stamps: BTreeMap::new() };
        poller.poll_changes(&options).await;
        let Delivery::Jobs(list) = next(&mut deliveries).await else { panic!("jobs") };
        assert_eq!(list.jobs[0].id, "7");
        let old = SystemTime::now() - JOBS_STAND * 2;
        fs::File::options().write(true).open(&file).unwrap().set_modified(old).unwrap();
        poller.poll_changes(&options).await;
        let Delivery::Jobs(list) = next(&mut deliveries).await else { panic!("jobs") };
        assert!(list.jobs.is_empty());
    }
}
