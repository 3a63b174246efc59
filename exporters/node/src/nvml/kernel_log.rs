//! The kernel log as the second source of XIDs: some errors never become a driver event.

use std::{
    fs::File,
    io::{self, Read},
    os::fd::OwnedFd,
    path::Path,
};

use gaunt_schema::UnixMs;
use rustix::fs::{Mode, OFlags, open};

use crate::{kernel_files::read_once, wall_clock};

/// The most records that are read in one tick: a burst takes several ticks, and the sampler continues.
const MAX_RECORDS: usize = 20_000;

/// The longest record of `/dev/kmsg`.
const MAX_RECORD: usize = 8 * 1024;

/// The prefix of an XID in the log.
const MARK: &str = "NVRM: Xid (PCI:";

/// An XID from the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KernelLogXid {
    /// The PCI address in the log's form, such as `0000:3b:00`.
    pub(super) pci: String,
    /// The XID.
    pub(super) code: u32,
    /// The time, in microseconds since boot.
    pub(super) micros: u64,
}

/// The kernel log, from its oldest record on.
pub(super) struct KernelLog {
    file: File,
    /// The bytes after the last complete record.
    rest: Vec<u8>,
}

impl KernelLog {
    /// Opens the log in non-blocking mode: later records are read in a later tick.
    pub(super) fn open_log(path: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file: OwnedFd = open(path, flags, Mode::empty())?;
        Ok(Self { file: file.into(), rest: Vec::new() })
    }

    /// The XIDs since the last call.
    pub(super) fn read_new_xids(&mut self) -> io::Result<Vec<KernelLogXid>> {
        let mut xids = Vec::new();
        let mut buffer = [0; MAX_RECORD];
        for _ in 0..MAX_RECORDS {
            match self.file.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => self.parse_bytes(&buffer[..count], &mut xids),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // Records were overwritten before they were read: the next read continues with the oldest.
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(xids)
    }

    fn parse_bytes(&mut self, bytes: &[u8], xids: &mut Vec<KernelLogXid>) {
        self.rest.extend_from_slice(bytes);
        let end = self.rest.iter().rposition(|byte| *byte == b'\n').map_or(0, |index| index + 1);
        let lines = self.rest[..end].split(|byte| *byte == b'\n');
        xids.extend(lines.filter_map(|line| parse(&String::from_utf8_lossy(line))));
        self.rest.drain(..end);
        if self.rest.len() > MAX_RECORD {
            self.rest.clear();
        }
    }
}

/// One record: `priority,sequence,microseconds,flags;message`.
fn parse(record: &str) -> Option<KernelLogXid> {
    let (head, message) = record.split_once(';')?;
    let micros = head.split(',').nth(2)?.parse().ok()?;
    let (_, xid) = message.split_once(MARK)?;
    let (pci, rest) = xid.split_once(')')?;
    let code = rest.trim_start_matches([':', ' ']);
    let end = code.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(code.len());
    Some(KernelLogXid { pci: pci.to_owned(), code: code[..end].parse().ok()?, micros })
}

/// Whether a PCI address of the log, `0000:3b:00` or with a function number, equals that of NVML, `00000000:3B:00.0`.
pub(super) fn is_same_device(log: &str, nvml: &str) -> bool {
    let parse_address = |text: &str| {
        let mut parts = text.split(['.']).next().unwrap_or_default().split(':');
        let mut number = || u32::from_str_radix(parts.next()?, 16).ok();
        Some((number()?, number()?, number()?))
    };
    parse_address(log).is_some_and(|address| Some(address) == parse_address(nvml))
}

/// The boot time, by the wall clock.
pub(super) fn read_boot_time(proc_root: &Path) -> Option<UnixMs> {
    let uptime = read_once(&proc_root.join("uptime"))?;
    let seconds: f64 = uptime.split(' ').next()?.parse().ok()?;
    Some(UnixMs(wall_clock::now().0 - (seconds * 1e3) as i64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn xids_are_found_among_other_records() {
        for (record, pci, code) in [
            (
                "4,812,93001122,-;NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', GPU has fallen off the bus.",
                "0000:3b:00",
                79,
            ),
            (
                "6,9,5,-;NVRM: Xid (PCI:0000:19:00): 31, pid=4242, name=python, Ch 00000008",
                "0000:19:00",
                31,
            ),
            ("6,9,5,c;[drm] NVRM: Xid (PCI:000f:01:00.0): 145", "000f:01:00.0", 145),
        ] {
            let line = parse(record).unwrap();
            assert_eq!((line.pci.as_str(), line.code), (pci, code));
        }
        for other in [
            "6,1,2,-;nvidia-nvlink: Nvlink Core is being initialized",
            "NVRM: Xid (PCI:0000:3b:00): 79",
            "6,1,x,-;NVRM: Xid (PCI:0000:3b:00): 79",
            "6,1,2,-;NVRM: Xid (PCI:0000:3b:00): none",
            "",
        ] {
            assert_eq!(parse(other), None, "{other}");
        }
    }

    #[test]
    fn addresses_of_log_and_driver_are_compared_as_numbers() {
        assert!(is_same_device("0000:3b:00", "00000000:3B:00.0"));
        assert!(is_same_device("000f:01:00.0", "0000000F:01:00.0"));
        assert!(!is_same_device("0000:3c:00", "00000000:3B:00.0"));
        assert!(!is_same_device("rubbish", "rubbish"));
    }

    #[test]
    fn kernel_log_read_continues_after_last_record() {
        use std::io::Write;
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let mut log = KernelLog::open_log(file.path()).unwrap();
        assert_eq!(log.read_new_xids().unwrap(), []);
        file.write_all(b"6,1,7,-;NVRM: Xid (PCI:0000:3b:00): 63, x\n6,2,9,-;NVRM: Xid (PCI:")
            .unwrap();
        let first = log.read_new_xids().unwrap();
        assert_eq!(first, [KernelLogXid { pci: "0000:3b:00".to_owned(), code: 63, micros: 7 }]);
        file.write_all(b"0000:4c:00): 48, x\n").unwrap();
        assert_eq!(log.read_new_xids().unwrap()[0].code, 48);
        assert_eq!(log.read_new_xids().unwrap(), []);
    }
}
