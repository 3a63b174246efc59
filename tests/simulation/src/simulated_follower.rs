//! A recording on another machine, which follows the recorder's stream over a connection that stalls or ends now and then.

use gaunt_engine::record::{RecorderFollowHandle, SegmentStream};
use gaunt_schema::UnixMs;
use hyper::body::Bytes;
use tokio::sync::mpsc::{Receiver, error::TryRecvError};

use crate::{seeded_random::SeededRandom, simulated_recording::delivery_key};

/// The longest stall, in seconds: the recorder disconnects a follower that is 64 blocks late.
const LONGEST_STALL: u64 = 90;

/// One follower.
pub(crate) struct SimulatedFollower {
    blocks: Receiver<Bytes>,
    stream: SegmentStream,
    random: SeededRandom,
    /// Seconds for which it reads nothing.
    stalls_for: u64,
    /// The batches that arrived since the last step, in order.
    pub(crate) read: Vec<u64>,
    /// The place behind the last of those before, among the batches that were given.
    pub(crate) found: usize,
}

impl SimulatedFollower {
    /// Starts to follow; none if there are too many.
    pub(crate) fn start(
        follow: &RecorderFollowHandle,
        now: UnixMs,
        random: SeededRandom,
    ) -> Option<Self> {
        let blocks = follow.start_following(now)?;
        let stream = SegmentStream::default();
        Some(Self { blocks, stream, random, stalls_for: 0, read: Vec::new(), found: 0 })
    }

    /// A second; whether it goes on, or what does not hold of what arrived.
    pub(crate) fn step(&mut self) -> Result<bool, String> {
        if self.random.once_in(60) {
            self.stalls_for = self.random.below(LONGEST_STALL);
        }
        if self.stalls_for > 0 {
            self.stalls_for -= 1;
            return Ok(true);
        }
        loop {
            match self.blocks.try_recv() {
                Ok(block) => self.read_block(&block)?,
                Err(TryRecvError::Empty) => return Ok(!self.random.once_in(60)),
                Err(TryRecvError::Disconnected) => return Ok(false),
            }
        }
    }

    /// Reads a block as it arrives: in parts.
    fn read_block(&mut self, block: &[u8]) -> Result<(), String> {
        let (first, rest) = block.split_at(self.random.below(block.len() as u64 + 1) as usize);
        for part in [first, rest] {
            let arrived = self.stream.decode_arrived(part);
            let arrived = arrived.map_err(|why| format!("a follower reads its stream: {why}"))?;
            let keys = arrived.iter().map(|(_, delivery)| delivery_key(delivery));
            self.read.extend(keys.filter(|key| *key != 0));
        }
        Ok(())
    }
}
