//! File systems on the node's own disks, and its shared memory: how large they are, and what is left of them. Network file
//! systems are left out, because a server that is away would never answer.

use std::{
    io,
    path::Path,
    time::{Duration, Instant},
};

use gaunt_schema::{
    Device, Report,
    catalogue::hardware::{self, LOCAL_FILESYSTEMS},
};

use super::{CollectError, CollectOutcome, Collector};
use crate::{SamplerOptions, kernel_files::KernelFile};

/// How often the list of mounts is read again.
const LIST_PERIOD: Duration = Duration::from_secs(30);

/// The most file systems that are reported.
const MAX_FILESYSTEMS: usize = 32;

/// The folder in a line of `mountinfo`.
const FOLDER_FIELD: usize = 4;

/// The kind of file systems in memory, of which only shared memory is reported: loaders of input data pass it on there, and
/// fail once it is full.
const IN_MEMORY: &str = "tmpfs";
const SHARED_MEMORY: &str = "/dev/shm";

/// A mounted file system.
#[derive(Clone, Debug, PartialEq)]
struct LocalFilesystem {
    /// Major and minor number of its device: it may be mounted in several places.
    device: String,
    folder: String,
    kind: String,
    source: String,
    is_read_only: bool,
}

/// Reads `PROC/self/mountinfo`, and asks the kernel about each local file system.
pub(super) struct FilesystemCollector {
    list: KernelFile,
    buffer: Vec<u8>,
    known: Vec<LocalFilesystem>,
    listed: Option<Instant>,
}

impl FilesystemCollector {
    pub(super) fn new(options: &SamplerOptions) -> Self {
        Self {
            list: KernelFile::new(options.proc_root.join("self/mountinfo"), false),
            buffer: Vec::new(),
            known: Vec::new(),
            listed: None,
        }
    }

    fn list_filesystems(&mut self) -> io::Result<()> {
        if self.listed.is_some_and(|at| at.elapsed() < LIST_PERIOD) {
            return Ok(());
        }
        self.known = match self.list.read_text(&mut self.buffer) {
            Ok(text) => parse_mounts(text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(error),
        };
        self.listed = Some(Instant::now());
        Ok(())
    }
}

impl Collector for FilesystemCollector {
    fn name(&self) -> &'static str {
        "filesystems"
    }

    fn collect_readings(&mut self, report: &mut Report) -> Result<CollectOutcome, CollectError> {
        self.list_filesystems().map_err(|source| {
            let path = self.list.path().to_path_buf();
            CollectError::Read { path, source }
        })?;
        let mut any = false;
        for mounted in &self.known {
            // One that is gone by now, or that this user may not see, is left out.
            let Ok(state) = rustix::fs::statvfs(Path::new(&mounted.folder)) else { continue };
            any = true;
            let device = report.ensure_device(Device::new_mount(&mounted.folder));
            let labels = [("kind", mounted.kind.as_str()), ("source", mounted.source.as_str())];
            report.add_info(device, hardware::MOUNT_INFO, &labels);
            let bytes = |blocks: u64| blocks as f64 * state.f_frsize as f64;
            report.push(device, hardware::MOUNT_SIZE, bytes(state.f_blocks));
            report.push(device, hardware::MOUNT_AVAILABLE, bytes(state.f_bavail));
            report.push(device, hardware::MOUNT_INODES, state.f_files as f64);
            report.push(device, hardware::MOUNT_FREE_INODES, state.f_favail as f64);
            report.push(
                device,
                hardware::MOUNT_READ_ONLY,
                f64::from(u8::from(mounted.is_read_only)),
            );
        }
        if any {
            return Ok(CollectOutcome::Found);
        }
        Ok(CollectOutcome::Nothing("no file system on a disk of this node is mounted".to_owned()))
    }
}

/// The local file systems in the text of `mountinfo`, each once, by the shortest of the folders where all of it is mounted.
fn parse_mounts(text: &str) -> Vec<LocalFilesystem> {
    let mut all: Vec<LocalFilesystem> = Vec::new();
    for line in text.lines() {
        // A later mount on the same folder hides the earlier one, of whatever kind it is.
        let Some(folder) = line.split(' ').nth(FOLDER_FIELD).map(unescape_path) else { continue };
        all.retain(|known| known.folder != folder);
        let Some(mounted) = parse_line(line) else { continue };
        match all.iter_mut().find(|known| known.device == mounted.device) {
            Some(known) if known.folder.len() > mounted.folder.len() => *known = mounted,
            Some(_) => {}
            None => all.push(mounted),
        }
    }
    all.truncate(MAX_FILESYSTEMS);
    all
}

/// Reads a line such as `36 35 98:0 / /scratch rw,noatime shared:1 - xfs /dev/sdb1 rw,attr2`. Whether nothing can be written
/// is what its end says of the file system: the flags before it are those of this folder only.
fn parse_line(line: &str) -> Option<LocalFilesystem> {
    let (mount, filesystem) = line.split_once(" - ")?;
    let mut mount = mount.split(' ').skip(2);
    let (device, root, folder) = (mount.next()?, mount.next()?, unescape_path(mount.next()?));
    let mut filesystem = filesystem.split(' ');
    let (kind, source, flags) = (filesystem.next()?, filesystem.next()?, filesystem.next()?);
    let is_local =
        LOCAL_FILESYSTEMS.contains(&kind) && (kind != IN_MEMORY || folder == SHARED_MEMORY);
    // A folder or file of a file system that is mounted elsewhere too has a root of its own; so has a subvolume of Btrfs.
    let is_whole = root == "/" || kind == "btrfs";
    (is_local && is_whole).then(|| LocalFilesystem {
        device: device.to_owned(),
        folder,
        kind: kind.to_owned(),
        source: unescape_path(source),
        is_read_only: flags.split(',').any(|flag| flag == "ro"),
    })
}

/// A path in which the kernel wrote white space and backslashes as octal numbers.
fn unescape_path(path: &str) -> String {
    let mut plain = path.to_owned();
    for (written, letter) in [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")] {
        plain = plain.replace(written, letter);
    }
    plain
}

#[cfg(test)]
mod tests {
    use gaunt_schema::Reading;

    use super::*;

    const TEXT: &str = "\
22 27 0:21 / /sys rw,nosuid - sysfs sysfs rw
27 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw,errors=remount-ro
29 27 0:24 / /dev/shm rw,nosuid,nodev shared:3 - tmpfs hidden ro
30 27 0:25 / /dev/shm rw,nosuid,nodev shared:3 - tmpfs tmpfs rw
31 27 0:26 / /run rw,nosuid,nodev shared:4 - tmpfs tmpfs rw
40 27 259:5 / /mnt/local\\040scratch ro,noatime shared:9 - xfs /dev/nvme1n1 rw,attr2
41 27 259:5 / /scratch rw,noatime shared:9 - xfs /dev/nvme1n1 rw,attr2
42 27 259:2 /etc/hosts /etc/hosts rw - ext4 /dev/nvme0n1p2 rw
43 27 0:50 /@ /pool rw - btrfs /dev/sdc ro,subvol=/@
44 27 0:60 / /data rw - nfs4 10.0.0.5:/data rw,vers=4.2
46 27 8:3 / /home rw - ext4 /dev/sda3 rw
47 27 0:26 /systemd/inaccessible/dir /home ro - tmpfs tmpfs rw
45 27 7:1 / /snap/core/1 ro - squashfs /dev/loop1 ro
garbage
";

    #[test]
    fn local_file_systems_are_listed_once_by_their_shortest_folder() {
        let listed = parse_mounts(TEXT);
        let shown: Vec<_> = listed
            .iter()
            .map(|it| (it.folder.as_str(), it.kind.as_str(), it.source.as_str(), it.is_read_only))
            .collect();
        let wanted = [
            ("/", "ext4", "/dev/nvme0n1p2", false),
            ("/dev/shm", "tmpfs", "tmpfs", false),
            ("/scratch", "xfs", "/dev/nvme1n1", false),
            ("/pool", "btrfs", "/dev/sdc", true),
        ];
        assert_eq!(shown, wanted);
        assert_eq!(unescape_path("/a\\040b\\134c"), "/a b\\c");
    }

    #[test]
    fn file_system_has_its_size_and_what_is_left_and_one_that_is_gone_is_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let here = folder.path().display().to_string();
        let process = folder.path().join("self");
        std::fs::create_dir(&process).unwrap();
        let gone = "50 1 8:1 / /nowhere/at/all rw - ext4 /dev/sda1 rw\n";
        let text = format!("{gone}51 1 8:2 / {here} rw - ext4 /dev/sda2 rw\n");
        std::fs::write(process.join("mountinfo"), text).unwrap();
        let options =
            SamplerOptions { proc_root: folder.path().into(), ..SamplerOptions::default() };
        let mut collector = FilesystemCollector::new(&options);
        let mut report = Report::default();
        assert!(matches!(collector.collect_readings(&mut report), Ok(CollectOutcome::Found)));
        assert_eq!(report.devices, [Device::new_mount(&here)]);
        let value = |metric| match report.find_reading(&report.devices[0], metric) {
            Some(Reading::Value(value)) => value,
            other => panic!("{other:?}"),
        };
        let (size, left) = (value(hardware::MOUNT_SIZE), value(hardware::MOUNT_AVAILABLE));
        assert!(size > 0.0 && left <= size, "{left} of {size}");
        assert!(value(hardware::MOUNT_FREE_INODES) <= value(hardware::MOUNT_INODES));
        assert!(value(hardware::MOUNT_READ_ONLY).abs() < f64::EPSILON);
    }

    #[test]
    fn node_without_a_list_of_mounts_has_none() {
        let folder = tempfile::tempdir().unwrap();
        let options =
            SamplerOptions { proc_root: folder.path().into(), ..SamplerOptions::default() };
        let mut report = Report::default();
        let outcome = FilesystemCollector::new(&options).collect_readings(&mut report);
        assert!(matches!(outcome, Ok(CollectOutcome::Nothing(_))));
    }
}
