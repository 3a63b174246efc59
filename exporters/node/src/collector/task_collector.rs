//! Tasks of the node: the load average, and the processes in uninterruptible sleep.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use gaunt_schema::{AbsenceReason, Device, Reading, Report, catalogue::host};

use super::{CollectError, CollectOutcome, Collector};
use crate::kernel_files::{KernelFile, list_names};

/// All processes are scanned once in this many ticks: with thousands of them a scan takes milliseconds.
const TICKS_BETWEEN_LOOKS: u32 = 10;

/// The most processes that are scanned.
const MAX_PROCESSES: usize = 32_768;

/// Reads `PROC/loadavg` and `PROC/*/stat`.
pub(super) struct TaskCollector {
    folder: PathBuf,
    load: KernelFile,
    ticks_to_look: u32,
    /// The processes in uninterruptible sleep at the last scan.
    uninterruptible: u32,
    buffer: Vec<u8>,
}

impl TaskCollector {
    pub(super) fn new(proc_root: &Path) -> Self {
        Self {
            folder: proc_root.to_path_buf(),
            load: KernelFile::new(proc_root.join("loadavg"), true),
            ticks_to_look: 0,
            uninterruptible: 0,
            buffer: Vec::new(),
        }
    }

    fn count_uninterruptible(&mut self) -> io::Result<()> {
        self.uninterruptible = 0;
        let processes = list_names(&self.folder)?;
        let processes =
            processes.iter().filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()));
        for process in processes.take(MAX_PROCESSES) {
            // A process may end between the two calls.
            if let Ok(stat) = fs::read(self.folder.join(process).join("stat"))
                && parse_state(&stat) == Some(b'D')
            {
                self.uninterruptible += 1;
            }
        }
        Ok(())
    }
}

impl Collector for TaskCollector {
    fn name(&self) -> &'static str {
        "tasks"
    }

    fn collect_readings(&mut self, report: &mut Report) -> Result<CollectOutcome, CollectError> {
        if self.ticks_to_look == 0 {
            self.count_uninterruptible()
                .map_err(|source| CollectError::Read { path: self.folder.clone(), source })?;
            self.ticks_to_look = TICKS_BETWEEN_LOOKS;
        }
        self.ticks_to_look -= 1;
        let node = report.ensure_device(Device::new_node());
        report.push(node, host::TASKS_UNINTERRUPTIBLE, f64::from(self.uninterruptible));
        match self.load.read_text(&mut self.buffer) {
            Ok(text) => {
                let load = parse_load(text);
                report.push(node, host::LOAD, load);
                if load.value().is_none() {
                    let path = self.load.path().to_path_buf();
                    return Err(CollectError::Malformed { path, what: "no load average" });
                }
            }
            Err(source) => {
                return Err(CollectError::Read { path: self.load.path().to_path_buf(), source });
            }
        }
        Ok(CollectOutcome::Found)
    }
}

/// The state of a process: the letter after its name, which is in parentheses and may contain any character.
fn parse_state(stat: &[u8]) -> Option<u8> {
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    stat.get(end + 2).copied()
}

/// The first of the averages in `0.20 0.18 0.12 1/80 11206`.
fn parse_load(text: &str) -> Reading {
    let first = text.split(' ').next().and_then(|first| first.parse().ok());
    first.map_or(AbsenceReason::Error.into(), Reading::of)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn task_state_is_parsed_after_any_name() {
        assert_eq!(parse_state(b"7 (python) D 1 7"), Some(b'D'));
        assert_eq!(parse_state(b"7 (a) D) ) S 1 7"), Some(b'S'));
        assert_eq!(parse_state(b"7 python"), None);
        assert_eq!(parse_state(b"7 (x)"), None);
    }

    #[test]
    fn load_is_average_of_last_minute() {
        assert_eq!(parse_load("0.20 0.18 0.12 1/80 11206"), Reading::of(0.2));
        assert_eq!(parse_load("nan"), AbsenceReason::Error.into());
        assert_eq!(parse_load(""), AbsenceReason::Error.into());
    }
}
