//! A rate limit per peer: each peer has a budget that refills with time. The number of peers is bounded.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use crate::connection_admission::client_network;

/// The most peers that are remembered, 64 bytes each: the longest unused one is forgotten first.
const MAX_PEERS: usize = 4_096;

/// Counts events by peer and says which one exceeds the rate.
#[derive(Debug)]
pub struct PeerRateLimit {
    burst: u32,
    interval: Duration,
    /// The instant at which the budget of a peer is full again.
    full_at: Mutex<HashMap<IpAddr, Instant>>,
}

impl PeerRateLimit {
    /// One event each `interval`, and `burst` at once.
    pub fn new(interval: Duration, burst: u32) -> Self {
        Self { burst, interval, full_at: Mutex::default() }
    }

    /// Takes one event from the budget of a peer. If it is used up, nothing is taken, and the time until the next one
    /// is returned.
    pub fn take_event(&self, peer: IpAddr, now: Instant) -> Result<(), Duration> {
        let peer = client_network(peer);
        let mut peers = self.full_at.lock().unwrap_or_else(PoisonError::into_inner);
        let full = self.interval * self.burst;
        let used_until = peers.get(&peer).map_or(now, |at| (*at).max(now)) + self.interval;
        let used = used_until - now;
        if used > full {
            return Err(used.saturating_sub(full));
        }
        if peers.len() >= MAX_PEERS && !peers.contains_key(&peer) {
            peers.retain(|_, at| *at > now);
            if peers.len() >= MAX_PEERS
                && let Some(oldest) = peers.iter().min_by_key(|(_, at)| **at).map(|(peer, _)| *peer)
            {
                peers.remove(&oldest);
            }
        }
        peers.insert(peer, used_until);
        Ok(())
    }

    /// The time until the next event of a peer is allowed, if its budget is used up.
    pub fn find_wait(&self, peer: IpAddr, now: Instant) -> Option<Duration> {
        let peers = self.full_at.lock().unwrap_or_else(PoisonError::into_inner);
        let used_until = (*peers.get(&client_network(peer))?).max(now) + self.interval;
        (used_until - now).checked_sub(self.interval * self.burst).filter(|wait| !wait.is_zero())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn peer_rate_is_limited_and_refills() {
        let rate = PeerRateLimit::new(SECOND, 3);
        let (peer, other) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        let now = Instant::now();
        for _ in 0..3 {
            assert_eq!(rate.find_wait(peer, now), None);
            assert_eq!(rate.take_event(peer, now), Ok(()));
        }
        assert_eq!(rate.take_event(peer, now), Err(SECOND));
        assert_eq!(rate.find_wait(peer, now), Some(SECOND));
        assert_eq!(rate.take_event(other, now), Ok(()), "peers are counted apart");
        assert_eq!(rate.take_event(peer, now + SECOND), Ok(()));
        assert_eq!(rate.take_event(peer, now + SECOND), Err(SECOND));
    }

    #[test]
    fn peers_are_bounded_and_the_longest_unused_is_forgotten() {
        let rate = PeerRateLimit::new(SECOND, 1);
        let now = Instant::now();
        for number in 0..MAX_PEERS as u32 + 100 {
            let at = now + Duration::from_micros(number.into());
            assert_eq!(rate.take_event(IpAddr::V4(number.into()), at), Ok(()));
        }
        assert_eq!(rate.full_at.lock().unwrap().len(), MAX_PEERS);
        assert!(rate.take_event(IpAddr::V4((MAX_PEERS as u32).into()), now).is_err());
    }
}
