//! NFS mounts, from `mountstats`: a block of lines for each mount.

use super::{MountCounts, MountedFileSystem};

/// The client counts times in milliseconds.
const MILLISECONDS: f64 = 1e3;

/// The NFS mounts in the text of `mountstats`. A file system with several mount points is named after the first.
pub(super) fn parse(text: &str) -> Vec<MountedFileSystem> {
    let mut mounts: Vec<MountedFileSystem> = Vec::new();
    let mut current: Option<MountedFileSystem> = None;
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("device ") {
            mounts.extend(current.take());
            current = parse_header(rest)
                .filter(|mount| mounts.iter().all(|other| other.name != mount.name));
        } else if let Some(mount) = &mut current {
            add_line_counts(line, &mut mount.counts);
        }
    }
    mounts.extend(current);
    mounts
}

/// The mount that begins with a line such as `server:/export mounted on /data with fstype nfs4 statvers=1.1`.
fn parse_header(line: &str) -> Option<MountedFileSystem> {
    let (source, rest) = line.split_once(" mounted on ")?;
    let (name, kind) = rest.rsplit_once(" with fstype ")?;
    let kind = kind.split(' ').next()?;
    let is_nfs = kind == "nfs" || kind == "nfs4";
    let (name, kind) = (name.to_owned(), kind.to_owned());
    is_nfs.then(|| MountedFileSystem {
        name,
        kind,
        source: source.to_owned(),
        counts: MountCounts::default(),
    })
}

/// Adds the counts of a line. `bytes:` has those of programs and those of servers; each operation has its requests,
/// transmissions, timeouts, bytes sent and received, and times: queued, round trip and total.
fn add_line_counts(line: &str, counts: &mut MountCounts) {
    let Some((key, rest)) = line.trim().split_once(':') else { return };
    let numbers: Vec<u64> =
        rest.split_ascii_whitespace().map_while(|number| number.parse().ok()).collect();
    if key == "bytes" {
        if let [_, _, _, _, read, written, ..] = numbers[..] {
            counts.read_bytes = Some(read as f64);
            counts.write_bytes = Some(written as f64);
        }
        return;
    }
    let [requests, sent, timeouts, _, _, _, _, took, ..] = numbers[..] else { return };
    if key.is_empty() || !key.chars().all(|letter| letter.is_ascii_uppercase() || letter == '_') {
        return;
    }
    let (number, time) = match key {
        "READ" => (&mut counts.reads, &mut counts.read_seconds),
        "WRITE" => (&mut counts.writes, &mut counts.write_seconds),
        _ => (&mut counts.metadata, &mut counts.metadata_seconds),
    };
    *number.get_or_insert(0.0) += requests as f64;
    *time.get_or_insert(0.0) += took as f64 / MILLISECONDS;
    *counts.retransmits.get_or_insert(0.0) += sent.saturating_sub(requests) as f64;
    *counts.timeouts.get_or_insert(0.0) += timeouts as f64;
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
device rootfs mounted on / with fstype rootfs
device nas:/data set mounted on /mnt/data set with fstype nfs4 statvers=1.1
	opts:	rw,vers=4.2
	age:	5000
	bytes:	10 20 30 40 1000000 2000000 70 80
	RPC iostats version: 1.1  p/v: 100003/4 (nfs)
	xprt:	tcp 875 1 1 0 0 102 102 0 102 0 2 0 0
	per-op statistics
	        NULL: 1 1 0 44 24 0 0 0 0
	        READ: 100 103 2 20000 1000000 5 300 2500 0
	       WRITE: 10 10 0 2000000 1000 1 20 500 0
	     GETATTR: 50 50 1 1 1 1 1 250 0
	        junk: 1 2 3
device nas:/data set mounted on /mnt/data set with fstype nfs4 statvers=1.1
	bytes:	1 1 1 1 1 1 1 1
device old:/x mounted on /x with fstype nfs statvers=1.1
	bytes:	garbage
";

    #[test]
    fn nfs_mount_has_bytes_requests_and_times() {
        let mounts = parse(TEXT);
        let counts = MountCounts {
            read_bytes: Some(1e6),
            write_bytes: Some(2e6),
            reads: Some(100.0),
            writes: Some(10.0),
            read_seconds: Some(2.5),
            write_seconds: Some(0.5),
            metadata: Some(51.0),
            metadata_seconds: Some(0.25),
            retransmits: Some(3.0),
            timeouts: Some(3.0),
        };
        let data = MountedFileSystem {
            name: "/mnt/data set".to_owned(),
            kind: "nfs4".to_owned(),
            source: "nas:/data set".to_owned(),
            counts,
        };
        let old = MountedFileSystem {
            name: "/x".to_owned(),
            kind: "nfs".to_owned(),
            source: "old:/x".to_owned(),
            counts: MountCounts::default(),
        };
        assert_eq!(mounts, [data, old]);
    }
}
