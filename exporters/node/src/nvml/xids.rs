//! The XIDs of this node: told by the driver and by the kernel log, each counted once.

use std::collections::{BTreeMap, VecDeque};

use gaunt_schema::{Class, Device, Report, UnixMs, catalogue::gpu_parts as parts, xid::xid};

/// How far apart the driver and the kernel log may tell of the same error, in milliseconds: a tick of the slowest
/// sampler, and what a busy node adds.
const SAME: i64 = 10_000;

/// The most kinds of errors that are told apart; what comes beyond is not counted. The driver knows about 170.
const MAX_KINDS: usize = 1_024;

/// The most errors of one kind that wait for the other source to tell them too; in a storm the oldest are forgotten.
const MAX_UNMATCHED: usize = 4_096;

/// How far back errors are counted as recent, in milliseconds.
const RECENT: i64 = 300_000;

/// How long a kind of error is not logged again, in milliseconds: a storm is counted, and not written down.
const QUIET: i64 = 60_000;

/// Who told of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// An event of the driver.
    Driver,
    /// A line of the kernel log.
    KernelLog,
}

/// What is known of one kind of error of one GPU.
#[derive(Default)]
struct Kind {
    count: u64,
    last: Option<UnixMs>,
    /// When those of the last minutes were told.
    recent: VecDeque<UnixMs>,
    /// When it was last worth a line in the log.
    logged: Option<UnixMs>,
    /// Errors that one source told and the other did not yet: who, and when.
    unmatched: VecDeque<(Source, UnixMs)>,
}

/// The errors of all GPUs, by number of the GPU and of the error.
#[derive(Default)]
pub(super) struct Xids(BTreeMap<(u32, u32), Kind>);

impl Xids {
    /// Takes one error; says whether it is worth a line in the log: it is not what the other source told before, and
    /// its like was not logged a moment ago.
    pub(super) fn take(&mut self, gpu: u32, code: u32, source: Source, at: UnixMs) -> bool {
        if self.0.len() >= MAX_KINDS && !self.0.contains_key(&(gpu, code)) {
            return false;
        }
        let kind = self.0.entry((gpu, code)).or_default();
        kind.last = kind.last.max(Some(at));
        while kind.unmatched.len() >= MAX_UNMATCHED {
            kind.unmatched.pop_front();
        }
        let near = |then: UnixMs| (then.0 - at.0).abs() <= SAME;
        let told = kind.unmatched.iter().position(|(who, then)| *who != source && near(*then));
        if let Some(told) = told {
            kind.unmatched.remove(told);
            return false;
        }
        kind.unmatched.push_back((source, at));
        kind.count += 1;
        while kind.recent.len() >= MAX_UNMATCHED {
            kind.recent.pop_front();
        }
        kind.recent.push_back(at);
        let news = kind.logged.is_none_or(|logged| at.since(logged).as_millis() >= QUIET as u128);
        if news {
            kind.logged = Some(at);
        }
        news
    }

    /// Adds every kind of error to the report.
    pub(super) fn write(&mut self, now: UnixMs, report: &mut Report) {
        for ((gpu, code), kind) in &mut self.0 {
            // The two sources do not tell in the order of time.
            kind.recent.retain(|at| now.0 - at.0 <= RECENT);
            let device = report.device(Device::part(Class::Xid, *gpu, *code));
            let row = xid(*code);
            let labels = [
                ("severity", row.severity.as_str()),
                ("meaning", row.meaning),
                ("action", row.action),
            ];
            report.info(device, parts::XID_INFO, &labels);
            report.push(device, parts::XID_ERRORS, kind.count as f64);
            report.push(device, parts::XID_RECENT, kind.recent.len() as f64);
            if let Some(last) = kind.last {
                report.push(device, parts::XID_LAST_SEEN, last.seconds());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(xids: &Xids, gpu: u32, code: u32) -> u64 {
        xids.0.get(&(gpu, code)).map_or(0, |kind| kind.count)
    }

    #[test]
    fn what_both_sources_tell_is_counted_once_in_either_order() {
        let mut xids = Xids::default();
        assert!(xids.take(0, 79, Source::Driver, UnixMs(1_000)));
        assert!(!xids.take(0, 79, Source::KernelLog, UnixMs(1_400)));
        assert!(!xids.take(0, 79, Source::KernelLog, UnixMs(60_000)), "logged a moment ago");
        assert!(!xids.take(0, 79, Source::Driver, UnixMs(60_100)));
        assert!(xids.take(0, 31, Source::Driver, UnixMs(60_100)), "of another kind");
        assert_eq!(count(&xids, 0, 79), 2);
    }

    #[test]
    fn what_only_one_source_tells_is_counted_too() {
        let mut xids = Xids::default();
        for (code, source, at) in [
            (31, Source::Driver, 0),
            (31, Source::Driver, 100),
            (62, Source::KernelLog, 0),
            (31, Source::KernelLog, 20_000),
        ] {
            xids.take(3, code, source, UnixMs(at));
        }
        assert_eq!((count(&xids, 3, 31), count(&xids, 3, 62), count(&xids, 4, 31)), (3, 1, 0));
    }

    #[test]
    fn errors_are_recent_for_five_minutes() {
        let mut xids = Xids::default();
        for (source, at) in [(Source::Driver, 0), (Source::KernelLog, 9), (Source::Driver, 200_000)]
        {
            xids.take(0, 31, source, UnixMs(at));
        }
        let mut recent = |now| {
            let mut report = Report::default();
            xids.write(UnixMs(now), &mut report);
            report.reading(&Device::part(Class::Xid, 0, 31), parts::XID_RECENT).unwrap().value()
        };
        let counts = [recent(250_000), recent(350_000), recent(600_000)];
        assert_eq!(counts, [Some(2.0), Some(1.0), Some(0.0)]);
    }

    #[test]
    fn a_storm_is_counted_and_costs_bounded_memory() {
        let mut xids = Xids::default();
        for at in 0..100_000 {
            xids.take(0, 13, Source::KernelLog, UnixMs(at));
        }
        assert_eq!(count(&xids, 0, 13), 100_000);
        assert_eq!(xids.0[&(0, 13)].unmatched.len(), MAX_UNMATCHED);
        for code in 0..2_000 {
            xids.take(1, code, Source::Driver, UnixMs(0));
        }
        assert_eq!(xids.0.len(), MAX_KINDS);
    }
}
