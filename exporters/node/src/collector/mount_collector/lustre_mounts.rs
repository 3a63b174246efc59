//! Lustre mounts, from the `stats` file of the client.

use super::{MountCounts, MountedFileSystem};

/// The client counts times in microseconds.
const MICROSECONDS: f64 = 1e6;

/// The file system of a client folder with this name, `scratch-ffff8a0123456789`, with its statistics.
pub(super) fn parse(folder: &str, text: &str) -> MountedFileSystem {
    let mut counts = MountCounts::default();
    for line in text.lines() {
        let fields: Vec<_> = line.split_ascii_whitespace().collect();
        // `read_bytes 5 samples [bytes] 4096 1048576 2113536`: number, unit, least, most, sum.
        let [name, number, "samples", unit, ref rest @ ..] = fields[..] else { continue };
        let Ok(number) = number.parse::<u64>() else { continue };
        let number = number as f64;
        let sum = rest.get(2).and_then(|sum| sum.parse::<u64>().ok()).map(|sum| sum as f64);
        let seconds = sum.filter(|_| unit.starts_with("[usec")).map(|sum| sum / MICROSECONDS);
        match name {
            "read_bytes" => (counts.reads, counts.read_bytes) = (Some(number), sum),
            "write_bytes" => (counts.writes, counts.write_bytes) = (Some(number), sum),
            "read" => counts.read_seconds = seconds,
            "write" => counts.write_seconds = seconds,
            _ if unit == "[regs]" || seconds.is_some() => {
                *counts.metadata.get_or_insert(0.0) += number;
                if let Some(seconds) = seconds {
                    *counts.metadata_seconds.get_or_insert(0.0) += seconds;
                }
            }
            _ => {}
        }
    }
    let name = folder.rsplit_once('-').map_or(folder, |(name, _)| name).to_owned();
    MountedFileSystem { source: name.clone(), name, kind: "lustre".to_owned(), counts }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lustre_statistics_of_new_and_old_clients_are_parsed() {
        let new = "\
snapshot_time             1730000000.123456789 secs.nsecs
read_bytes                5 samples [bytes] 4096 1048576 2113536
write_bytes               2 samples [bytes] 100 200 300
read                      5 samples [usecs] 1 900 1500000 99
open                      7 samples [usecs] 1 900 250000 99
broken                    x samples [usecs]
";
        let mount = parse("scratch-ffff8a0123456789", new);
        assert_eq!((mount.name.as_str(), mount.kind.as_str()), ("scratch", "lustre"));
        let expected = MountCounts {
            read_bytes: Some(2_113_536.0),
            write_bytes: Some(300.0),
            reads: Some(5.0),
            writes: Some(2.0),
            read_seconds: Some(1.5),
            metadata: Some(7.0),
            metadata_seconds: Some(0.25),
            ..MountCounts::default()
        };
        assert_eq!(mount.counts, expected);
        let old = parse("s", "open 7 samples [regs]\ngetattr 3 samples [regs]\n");
        assert_eq!(old.counts, MountCounts { metadata: Some(10.0), ..MountCounts::default() });
    }
}
