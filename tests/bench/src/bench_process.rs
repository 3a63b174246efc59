//! A program under test: CPU and memory use of it and its children, from the operating system.

use std::{
    fs,
    process::{Child, Command, Stdio},
};

use anyhow::Context;

/// Clock ticks of `/proc/PID/stat` in a second: fixed in the kernel's interface.
const TICKS: f64 = 100.0;

/// Bytes of a page of memory.
const PAGE: u64 = 4096;

/// A program that is killed when this value is dropped.
pub(crate) struct BenchProcess {
    child: Child,
    /// The address that it serves.
    pub(crate) address: String,
}

/// Percent of a core; before [`CpuUsage::percent_since`] seconds of CPU time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CpuUsage {
    /// The program's own use.
    pub(crate) own: f64,
    /// Use of its children.
    pub(crate) children: f64,
}

impl CpuUsage {
    /// Use since `before`, in percent of `seconds`.
    pub(crate) fn percent_since(self, before: Self, seconds: f64) -> Self {
        let percent = |now: f64, before: f64| (now - before) / seconds * 100.0;
        Self {
            own: percent(self.own, before.own),
            children: percent(self.children, before.children),
        }
    }

    /// The sum of both.
    pub(crate) fn total_percent(self) -> f64 {
        self.own + self.children
    }
}

impl BenchProcess {
    pub(crate) fn start_command(mut command: Command, address: String) -> anyhow::Result<Self> {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().with_context(|| format!("cannot start {command:?}"))?;
        Ok(Self { child, address })
    }

    /// CPU time of it and its children, in seconds.
    pub(crate) fn read_cpu_usage(&self) -> anyhow::Result<CpuUsage> {
        let id = self.child.id();
        let children = self.child_ids()?;
        let children: Result<Vec<f64>, _> = children.into_iter().map(cpu_seconds).collect();
        Ok(CpuUsage { own: cpu_seconds(id)?, children: children?.iter().sum() })
    }

    /// Memory of it and its children in bytes, with shared pages divided among their users, without the mappings of
    /// files called `excluded`.
    pub(crate) fn memory_bytes(&self, excluded: &str) -> anyhow::Result<u64> {
        let mut bytes = 0;
        for id in self.child_ids()?.into_iter().chain([self.child.id()]) {
            let path = format!("/proc/{id}/smaps");
            let maps = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
            bytes += sum_pss(&maps, excluded);
        }
        Ok(bytes)
    }

    /// Resident memory in bytes, shared pages included.
    pub(crate) fn resident_bytes(&self) -> anyhow::Result<u64> {
        resident_bytes(self.child.id())
    }

    /// Open files and threads of the program itself.
    pub(crate) fn count_files_and_threads(&self) -> anyhow::Result<[usize; 2]> {
        let count = |folder: &str| -> anyhow::Result<usize> {
            let path = format!("/proc/{}/{folder}", self.child.id());
            Ok(fs::read_dir(&path).with_context(|| format!("cannot read {path}"))?.count())
        };
        Ok([count("fd")?, count("task")?])
    }

    fn child_ids(&self) -> anyhow::Result<Vec<u32>> {
        let mut children = Vec::new();
        let tasks = format!("/proc/{}/task", self.child.id());
        for task in fs::read_dir(&tasks).with_context(|| format!("cannot read {tasks}"))? {
            let list = fs::read_to_string(task?.path().join("children"))?;
            children.extend(list.split_whitespace().flat_map(str::parse::<u32>));
        }
        Ok(children)
    }
}

impl Drop for BenchProcess {
    fn drop(&mut self) {
        // It may have ended already.
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// CPU time of a process in seconds, kernel time included.
pub(crate) fn cpu_seconds(id: u32) -> anyhow::Result<f64> {
    let path = format!("/proc/{id}/stat");
    let stat = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    cpu_ticks(&stat)
        .map(|ticks| ticks as f64 / TICKS)
        .with_context(|| format!("{path} has an unexpected format"))
}

/// Resident memory of a process in bytes, shared pages included.
pub(crate) fn resident_bytes(id: u32) -> anyhow::Result<u64> {
    let path = format!("/proc/{id}/statm");
    let statm = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    let pages: Option<u64> = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok());
    Ok(pages.with_context(|| format!("{path} has an unexpected format"))? * PAGE)
}

/// User and system time: fields 14 and 15; field 2 may contain spaces.
fn cpu_ticks(stat: &str) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut fields = rest.split(' ').skip(11);
    let mut next = || fields.next()?.parse::<u64>().ok();
    Some(next()? + next()?)
}

fn sum_pss(maps: &str, excluded: &str) -> u64 {
    let mut is_counted = true;
    let mut kilobytes = 0;
    for line in maps.lines() {
        let first = line.split(' ').next().unwrap_or_default();
        if !first.ends_with(':') {
            is_counted = !line.contains(excluded);
        } else if first == "Pss:" && is_counted {
            let number = line.split_whitespace().nth(1).and_then(|number| number.parse().ok());
            kilobytes += number.unwrap_or(0_u64);
        }
    }
    kilobytes * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_ticks_are_read_after_a_name_with_spaces_and_brackets() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194304 100 0 0 0 12 30 0 0 20 0 1 0 5 0 0";
        assert_eq!(cpu_ticks(stat), Some(42));
    }

    #[test]
    fn memory_leaves_out_the_named_library() {
        let maps = "55d0-55d1 r--p 00000000 fe:00 1 /usr/bin/gaunt-node\nSize: 4 kB\nPss: 3 kB\n\
                    Pss_Dirty: 1 kB\n7f00-7f01 r-xp 0 fe:00 2 /t/libfake.so\nPss: 100 kB\n\
                    7f02-7f03 rw-p 0 00:00 0\nPss: 2 kB\n";
        assert_eq!(sum_pss(maps, "libfake.so"), 5 * 1024);
    }
}
