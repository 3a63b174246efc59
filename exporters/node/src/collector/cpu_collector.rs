//! CPUs of the node, from `stat`: busy time, IO wait, and the busiest CPU since the last tick.

use std::{collections::BTreeMap, path::Path};

use gaunt_schema::{Device, MetricId, Report, catalogue::host};

use super::{CollectError, CollectOutcome, Collector};
use crate::kernel_files::KernelFile;

/// USER_HZ: the kernel reports CPU time in hundredths of a second on every platform that has GPUs.
const TICKS_PER_SECOND: f64 = 100.0;

/// Each line with its metric of tasks.
const TASKS: [(&str, MetricId); 2] =
    [("procs_running ", host::TASKS_RUNNABLE), ("procs_blocked ", host::TASKS_BLOCKED)];

/// Reads `PROC/stat`.
pub(super) struct CpuCollector {
    file: KernelFile,
    buffer: Vec<u8>,
    /// The times of each CPU at the last tick, by its number.
    last: BTreeMap<u32, CpuTimes>,
    /// The highest reported IO wait: the kernel's own sum sometimes decreases.
    iowait: f64,
}

/// Times of one CPU or of all, in USER_HZ ticks.
#[derive(Clone, Copy, Debug, PartialEq)]
struct CpuTimes {
    busy: u64,
    /// The part of it in the kernel.
    kernel: u64,
    iowait: u64,
    idle: u64,
}

impl CpuCollector {
    pub(super) fn new(proc_root: &Path) -> Self {
        Self {
            file: KernelFile::new(proc_root.join("stat"), true),
            buffer: Vec::new(),
            last: BTreeMap::new(),
            iowait: 0.0,
        }
    }
}

impl Collector for CpuCollector {
    fn name(&self) -> &'static str {
        "cpu"
    }

    fn collect_readings(&mut self, report: &mut Report) -> Result<CollectOutcome, CollectError> {
        let path = self.file.path().to_path_buf();
        let text = match self.file.read_text(&mut self.buffer) {
            Ok(text) => text,
            Err(source) => return Err(CollectError::Read { path, source }),
        };
        let node = report.ensure_device(Device::new_node());
        for (field, metric) in TASKS {
            let count = text.lines().find_map(|line| line.strip_prefix(field));
            if let Some(count) = count.and_then(|count| count.trim().parse::<u32>().ok()) {
                report.push(node, metric, f64::from(count));
            }
        }
        let mut sum = None;
        let mut now = BTreeMap::new();
        for line in text.lines() {
            let Some(line) = line.strip_prefix("cpu") else { continue };
            let Some((number, times)) = line.split_once(' ') else { continue };
            let Some(times) = parse(times) else { continue };
            match number.parse() {
                Ok(number) => _ = now.insert(number, times),
                Err(_) => sum = Some(times),
            }
        }
        let Some(sum) = sum else {
            return Err(CollectError::Malformed { path, what: "no line of all CPUs" });
        };
        self.iowait = self.iowait.max(sum.iowait as f64 / TICKS_PER_SECOND);
        report.push(node, host::CPUS, now.len() as f64);
        report.push(node, host::CPU_BUSY, sum.busy as f64 / TICKS_PER_SECOND);
        report.push(node, host::CPU_KERNEL, sum.kernel as f64 / TICKS_PER_SECOND);
        report.push(node, host::CPU_IOWAIT, self.iowait);
        if let Some(share) = busiest_share(&self.last, &now) {
            report.push(node, host::CPU_BUSIEST, share);
        }
        self.last = now;
        Ok(CollectOutcome::Found)
    }
}

/// The times of a line: user, nice, system, idle, iowait, irq, softirq, steal. Guest time is part of user and nice.
fn parse(times: &str) -> Option<CpuTimes> {
    let mut fields = times.split_ascii_whitespace().map(str::parse::<u64>);
    let mut next = || fields.next()?.ok();
    let (user, nice, system, idle) = (next()?, next()?, next()?, next()?);
    let (iowait, irq, softirq) = (next().unwrap_or(0), next().unwrap_or(0), next().unwrap_or(0));
    let steal = next().unwrap_or(0);
    let kernel = system + irq + softirq;
    Some(CpuTimes { busy: user + nice + kernel + steal, kernel, iowait, idle })
}

/// The busy ratio of the busiest CPU between two ticks; none if no CPU's time advanced.
fn busiest_share(last: &BTreeMap<u32, CpuTimes>, now: &BTreeMap<u32, CpuTimes>) -> Option<f64> {
    let share = |(number, now): (&u32, &CpuTimes)| {
        let last = last.get(number)?;
        let busy = now.busy.checked_sub(last.busy)?;
        let total =
            busy + now.idle.saturating_sub(last.idle) + now.iowait.saturating_sub(last.iowait);
        (total > 0).then(|| busy as f64 / total as f64)
    };
    now.iter().filter_map(share).reduce(f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guest_time_is_not_counted_twice() {
        let times = parse(" 100 20 30 4000 50 6 7 8 90 10").unwrap();
        assert_eq!(times, CpuTimes { busy: 171, kernel: 43, iowait: 50, idle: 4000 });
        assert_eq!(parse("1 2"), None);
    }

    #[test]
    fn busiest_cpu_is_found_and_new_cpu_needs_two_ticks() {
        let cpu_times = |busy, idle| CpuTimes { busy, kernel: 0, iowait: 0, idle };
        let last = BTreeMap::from([(0, cpu_times(100, 100)), (1, cpu_times(100, 100))]);
        let now = BTreeMap::from([
            (0, cpu_times(110, 190)),
            (1, cpu_times(175, 125)),
            (2, cpu_times(900, 0)),
        ]);
        assert_eq!(busiest_share(&last, &now), Some(0.75));
        assert_eq!(busiest_share(&BTreeMap::new(), &now), None);
        assert_eq!(busiest_share(&now, &now), None);
    }
}
