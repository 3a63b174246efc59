//! The XIDs of this node from the driver and from the kernel log, each counted once.

use std::collections::{BTreeMap, VecDeque};

use gaunt_schema::{
    Device, DeviceClass, Report, UnixMs, catalogue::gpu_parts as parts, xid::describe_xid,
};

/// The largest time between the driver's and the kernel log's report of the same error, in milliseconds: a tick of the
/// slowest sampler, and the delay of a busy node.
const SAME: i64 = 10_000;

/// The most distinct kinds of errors; further ones are not counted. The driver knows about 170.
const MAX_KINDS: usize = 1_024;

/// Errors of one kind within this time are kept as one entry with a count, in milliseconds.
const TOGETHER: i64 = 1_000;

/// The most entries of one kind, unmatched and recent: five minutes of a burst that both sources report. The oldest are
/// dropped.
const MAX_ENTRIES: usize = 600;

/// How far back errors are counted as recent, in milliseconds.
const RECENT: i64 = 300_000;

/// How long a kind of error is not logged again, in milliseconds: a burst is counted, and not logged.
const QUIET: i64 = 60_000;

/// The source of an XID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum XidSource {
    /// An event of the driver.
    Driver,
    /// A line of the kernel log.
    KernelLog,
}

/// The history of one kind of error of one GPU.
#[derive(Default)]
struct XidHistory {
    count: u64,
    last: Option<UnixMs>,
    /// The recent ones.
    recent: VecDeque<XidBurst>,
    /// When it was last logged.
    logged: Option<UnixMs>,
    /// Errors that only one source has reported so far.
    unmatched: VecDeque<XidBurst>,
}

/// Errors of one kind at about the same time.
#[derive(Clone, Copy)]
struct XidBurst {
    source: XidSource,
    at: UnixMs,
    count: u64,
}

impl XidBurst {
    /// Appends these errors to a list.
    fn add_to(self, list: &mut VecDeque<Self>) {
        if let Some(last) = list.back_mut()
            && last.source == self.source
            && (last.at.0 - self.at.0).abs() < TOGETHER
        {
            last.count += self.count;
            return;
        }
        while list.len() >= MAX_ENTRIES {
            list.pop_front();
        }
        list.push_back(self);
    }
}

/// The errors of all GPUs, by number of the GPU and of the error.
#[derive(Default)]
pub(super) struct XidTracker(BTreeMap<(u32, u32), XidHistory>);

impl XidTracker {
    /// Records errors of one GPU and code; returns whether to log them: the other source has not reported them before,
    /// and this kind was not logged recently.
    pub(super) fn record_xids(
        &mut self,
        error: (u32, u32),
        count: u64,
        source: XidSource,
        at: UnixMs,
    ) -> bool {
        if self.0.len() >= MAX_KINDS && !self.0.contains_key(&error) {
            return false;
        }
        let kind = self.0.entry(error).or_default();
        kind.last = kind.last.max(Some(at));
        let mut new = count;
        let is_near = |other: UnixMs| (other.0 - at.0).abs() <= SAME;
        for burst in
            kind.unmatched.iter_mut().filter(|burst| burst.source != source && is_near(burst.at))
        {
            let matched = burst.count.min(new);
            (burst.count, new) = (burst.count - matched, new - matched);
        }
        if new < count {
            kind.unmatched.retain(|burst| burst.count > 0);
        }
        if new == 0 {
            return false;
        }
        let burst = XidBurst { source, at, count: new };
        burst.add_to(&mut kind.unmatched);
        burst.add_to(&mut kind.recent);
        kind.count += new;
        let should_log =
            kind.logged.is_none_or(|logged| at.duration_since(logged).as_millis() >= QUIET as u128);
        if should_log {
            kind.logged = Some(at);
        }
        should_log
    }

    /// Adds every kind of error to the report.
    pub(super) fn report_xids(&mut self, now: UnixMs, report: &mut Report) {
        for ((gpu, code), kind) in &mut self.0 {
            // The reports of the two sources are not in time order.
            kind.recent.retain(|burst| now.0 - burst.at.0 <= RECENT);
            let recent: u64 = kind.recent.iter().map(|burst| burst.count).sum();
            let device = report.ensure_device(Device::new_gpu_part(DeviceClass::Xid, *gpu, *code));
            let row = describe_xid(*code);
            let labels = [
                ("severity", row.severity.as_str()),
                ("meaning", row.meaning),
                ("action", row.action),
            ];
            report.add_info(device, parts::XID_INFO, &labels);
            report.push(device, parts::XID_ERRORS, kind.count as f64);
            report.push(device, parts::XID_RECENT, recent as f64);
            if let Some(last) = kind.last {
                report.push(device, parts::XID_LAST_SEEN, last.to_seconds());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn xid_count(xids: &XidTracker, gpu: u32, code: u32) -> u64 {
        xids.0.get(&(gpu, code)).map_or(0, |kind| kind.count)
    }

    #[test]
    fn xid_of_both_sources_is_counted_once_in_either_order() {
        let mut xids = XidTracker::default();
        assert!(xids.record_xids((0, 79), 1, XidSource::Driver, UnixMs(1_000)));
        assert!(!xids.record_xids((0, 79), 1, XidSource::KernelLog, UnixMs(1_400)));
        assert!(
            !xids.record_xids((0, 79), 1, XidSource::KernelLog, UnixMs(60_000)),
            "logged a moment ago"
        );
        assert!(!xids.record_xids((0, 79), 1, XidSource::Driver, UnixMs(60_100)));
        assert!(xids.record_xids((0, 31), 1, XidSource::Driver, UnixMs(60_100)), "of another kind");
        assert_eq!(xid_count(&xids, 0, 79), 2);
    }

    #[test]
    fn xid_of_one_source_is_counted() {
        let mut xids = XidTracker::default();
        for (code, source, at) in [
            (31, XidSource::Driver, 0),
            (31, XidSource::Driver, 100),
            (62, XidSource::KernelLog, 0),
            (31, XidSource::KernelLog, 20_000),
        ] {
            xids.record_xids((3, code), 1, source, UnixMs(at));
        }
        assert_eq!(
            (xid_count(&xids, 3, 31), xid_count(&xids, 3, 62), xid_count(&xids, 4, 31)),
            (3, 1, 0)
        );
    }

    #[test]
    fn xids_are_recent_for_five_minutes() {
        let mut xids = XidTracker::default();
        for (source, at) in
            [(XidSource::Driver, 0), (XidSource::KernelLog, 9), (XidSource::Driver, 200_000)]
        {
            xids.record_xids((0, 31), 1, source, UnixMs(at));
        }
        let mut recent = |now| {
            let mut report = Report::default();
            xids.report_xids(UnixMs(now), &mut report);
            report
                .find_reading(&Device::new_gpu_part(DeviceClass::Xid, 0, 31), parts::XID_RECENT)
                .unwrap()
                .value()
        };
        let counts = [recent(250_000), recent(350_000), recent(600_000)];
        assert_eq!(counts, [Some(2.0), Some(1.0), Some(0.0)]);
    }

    #[test]
    fn xid_storm_is_counted_in_bounded_memory() {
        let mut xids = XidTracker::default();
        for millis in 0..100_000 {
            xids.record_xids((0, 13), 1, XidSource::KernelLog, UnixMs(millis));
        }
        assert_eq!(xid_count(&xids, 0, 13), 100_000);
        let kind = &xids.0[&(0, 13)];
        assert!(kind.unmatched.len() <= 100 && kind.recent.len() <= 100);
        for code in 0..2_000 {
            xids.record_xids((1, code), 1, XidSource::Driver, UnixMs(0));
        }
        assert_eq!(xids.0.len(), MAX_KINDS);
    }

    #[test]
    fn xid_storm_of_both_sources_counts_each_error_once() {
        let second_of = |second: i64, millis: i64| UnixMs(second * 1_000 + millis);
        let mut xids = XidTracker::default();
        // 10,000 a second, then few, for long enough to reach the most entries.
        for second in 0..700 {
            let at = |millis| second_of(second, millis);
            let in_a_tenth = if second < 20 { 1_000 } else { 10 };
            for tenth in 0..10 {
                xids.record_xids((0, 13), in_a_tenth, XidSource::Driver, at(tenth * 100));
            }
            // The log is read once a tick, line by line, and lost a tenth of its records.
            let lines = 9 * in_a_tenth as i64;
            for line in 0..lines {
                xids.record_xids((0, 13), 1, XidSource::KernelLog, at(line * 1_000 / lines));
            }
        }
        assert_eq!(xid_count(&xids, 0, 13), 20 * 10_000 + 680 * 100);
        let kind = &xids.0[&(0, 13)];
        assert_eq!((kind.unmatched.len(), kind.recent.len()), (MAX_ENTRIES, MAX_ENTRIES));
    }
}
