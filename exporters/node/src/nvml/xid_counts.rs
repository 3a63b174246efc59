//! XID counts in the worker: sent as sums, at most a few times a period, so that a burst never fills the pipe.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use gaunt_schema::UnixMs;

use super::worker_pipe::{WorkerMessage, XidCount};

/// The most kinds of errors in one message; what comes beyond is not counted. The driver knows about 170.
const MAX_KINDS: usize = 1_024;

/// The errors since the last message.
#[derive(Default)]
pub(super) struct XidCounts {
    counts: BTreeMap<(u32, u32), (u64, UnixMs)>,
    /// When the last message was created.
    last_message: Option<Instant>,
}

impl XidCounts {
    /// Adds one error of the GPU at a position in the inventory.
    pub(super) fn add_xid(&mut self, gpu: u32, code: u32, at: UnixMs) {
        if self.counts.len() >= MAX_KINDS && !self.counts.contains_key(&(gpu, code)) {
            return;
        }
        let (count, last) = self.counts.entry((gpu, code)).or_insert((0, at));
        (*count, *last) = (*count + 1, at);
    }

    /// The message if it is due: immediately after a quiet time, then no more often than `interval`.
    pub(super) fn due_message(
        &mut self,
        now: Instant,
        interval: Duration,
    ) -> Option<WorkerMessage> {
        let is_due =
            self.last_message.is_none_or(|last| now.saturating_duration_since(last) >= interval);
        if is_due { self.take_message(now) } else { None }
    }

    /// The message with all unsent counts.
    pub(super) fn take_message(&mut self, now: Instant) -> Option<WorkerMessage> {
        if self.counts.is_empty() {
            return None;
        }
        self.last_message = Some(now);
        let counts = std::mem::take(&mut self.counts).into_iter();
        let counts = counts.map(|((gpu, code), (count, at))| XidCount { gpu, code, count, at });
        Some(WorkerMessage::Xids { counts: counts.collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn xid_storm_becomes_few_messages_that_count_all() {
        let (mut counts, start) = (XidCounts::default(), Instant::now());
        let (interval, mut counted, mut messages) = (Duration::from_millis(100), 0, 0);
        let mut receive = |message: Option<WorkerMessage>| {
            if let Some(WorkerMessage::Xids { counts }) = message {
                messages += 1;
                counted += counts.iter().map(|count| count.count).sum::<u64>();
            }
        };
        // 10,000 a second for a second.
        for number in 0..10_000_u64 {
            let now = start + Duration::from_micros(100 * number);
            counts.add_xid((number % 8) as u32, 13, UnixMs((number / 10) as i64));
            receive(counts.due_message(now, interval));
        }
        receive(counts.take_message(start + Duration::from_secs(1)));
        receive(counts.take_message(start + Duration::from_secs(2)));
        assert_eq!(counted, 10_000);
        assert!(messages <= 11, "{messages} messages");
    }

    #[test]
    fn first_xid_is_sent_at_once_and_kinds_are_limited() {
        let (mut counts, now) = (XidCounts::default(), Instant::now());
        counts.add_xid(3, 79, UnixMs(7));
        let message = counts.due_message(now, Duration::from_secs(1));
        let count = XidCount { gpu: 3, code: 79, count: 1, at: UnixMs(7) };
        assert_eq!(message, Some(WorkerMessage::Xids { counts: vec![count] }));
        for code in 0..5_000 {
            counts.add_xid(0, code, UnixMs(8));
        }
        assert_eq!(counts.due_message(now, Duration::from_secs(1)), None);
        assert_eq!(counts.counts.len(), MAX_KINDS);
    }
}
