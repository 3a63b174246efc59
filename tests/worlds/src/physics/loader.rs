//! Data loaders: a queue of prefetched batches on each node, filled from the node's processors and shared storage.

/// The prefetch queue of one node of a gang.
#[derive(Clone, Copy, Debug)]
pub(super) struct LoaderQueue {
    /// Batches in the queue, in steps.
    queued: f64,
    /// Its size.
    room: f64,
    /// Batches per second that arrive.
    pub(super) filled_per_s: f64,
    /// Whether the queue is empty and the loader sets the pace.
    pub(super) is_limiting: bool,
}

impl LoaderQueue {
    /// A full queue of so many steps.
    pub(super) fn new(room: f64) -> Self {
        let room = room.max(0.05);
        Self { queued: room, room, filled_per_s: 0.0, is_limiting: false }
    }

    /// The highest pace for some seconds, when batches arrive at so many per second.
    pub(super) fn highest_pace(&self, supply: f64, seconds: f64) -> f64 {
        supply + self.queued / seconds
    }

    /// Goes on for some seconds at a pace.
    pub(super) fn advance(&mut self, supply: f64, pace: f64, seconds: f64) {
        let before = self.queued;
        self.queued = (before + (supply - pace) * seconds).clamp(0.0, self.room);
        self.filled_per_s = ((self.queued - before) / seconds + pace).clamp(0.0, supply);
        self.is_limiting = self.queued <= 1e-9 && supply < pace * 1.000_001 && pace > 0.0;
    }
}

/// Time from call to answer of a read, in seconds: a server with a capacity, and readers that wait when it is slow.
pub(super) fn response_s(base_s: f64, load: f64, readers: f64, reads_per_s: f64) -> f64 {
    let queued_s = base_s / (1.0 - load.clamp(0.0, 0.85));
    if load < 0.999 {
        return queued_s;
    }
    // All readers wait for an answer all the time.
    (readers / reads_per_s.max(0.1)).clamp(queued_s, 20.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loader_sets_the_pace_once_the_queue_is_empty() {
        let mut queue = LoaderQueue::new(10.0);
        let mut paces = Vec::new();
        for _ in 0..200 {
            let pace = queue.highest_pace(1.0, 0.5).min(2.0);
            queue.advance(1.0, pace, 0.5);
            paces.push(pace);
        }
        assert!((paces[0] - 2.0).abs() < 1e-9);
        assert!((paces[199] - 1.0).abs() < 1e-9);
        assert!(queue.is_limiting);
        // Ten batches of reserve last for ten seconds.
        let full = paces.iter().filter(|pace| **pace > 1.9).count();
        assert!((19..=21).contains(&full), "{full}");
    }
}
