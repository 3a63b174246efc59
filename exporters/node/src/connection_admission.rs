//! Admission of HTTP connections: a limited number of seats, per peer and in all. When they are taken, the connection
//! that has been idle longest gives way, so that silent clients never keep out one that asks.

use std::{
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::{Duration, Instant},
};

use tokio::sync::Notify;

/// A connection that never sent a request gives way before kept ones once it is this old.
const SILENT_AFTER: Duration = Duration::from_secs(1);

/// How many connections there may be, and how long each step of one may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// Connections at a time.
    pub seats: usize,
    /// Connections of one peer at a time: an IPv4 address, or an IPv6 network of 64 bits.
    pub seats_per_peer: usize,
    /// Connections beyond that, while every seat is busy answering: what is asked on them must be short.
    pub reserve: usize,
    /// The time for a request head, from its first byte; for the first one from the beginning of the connection.
    pub head: Duration,
    /// The time until the next request on a kept connection.
    pub idle: Duration,
    /// The time in which a client must take something of an answer.
    pub write: Duration,
    /// The time in which a client must take a whole answer, where answers have an end.
    pub answer: Option<Duration>,
}

/// Gives seats to connections. It belongs to the task that accepts them.
pub struct ConnectionAdmission {
    limits: ConnectionLimits,
    admitted: Vec<AdmittedConnection>,
}

/// A seat that was given.
struct AdmittedConnection {
    peer: IpAddr,
    reserve: bool,
    /// Gone once the connection has ended.
    status: Weak<ConnectionStatus>,
}

/// The place of one connection, free again when it is dropped.
pub struct ConnectionPermit(Arc<ConnectionStatus>);

pub(crate) struct ConnectionStatus {
    limits: ConnectionLimits,
    reserve: bool,
    eviction: Notify,
    activity: Mutex<ConnectionActivity>,
}

/// What a connection does now.
struct ConnectionActivity {
    /// When it was accepted, or had sent its last answer.
    idle_since: Instant,
    /// When the first byte of a request head came that is not whole yet.
    head_since: Option<Instant>,
    /// When the request came that is being answered.
    answering_since: Option<Instant>,
    /// Whether the whole answer is written, as far as the client takes it.
    written: bool,
    /// Since when the client takes nothing of what waits for it.
    blocked_since: Option<Instant>,
    /// Whether a request ever came.
    asked: bool,
    /// Whether it was told to give way.
    evicted: bool,
}

/// Which connection gives way first: the kind, then since when.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum EvictionRank {
    /// It never sent a request.
    Silent(Instant),
    /// It waits for the next request.
    Idle(Instant),
    /// Its client does not take the answer; since the request came.
    Blocked(Instant),
}

/// What took too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionTimeout {
    /// The request head.
    Head,
    /// The next request on a kept connection.
    Idle,
    /// The client, which takes nothing of the answer, or not all of it.
    Write,
}

impl ConnectionAdmission {
    /// Nobody is admitted yet.
    pub fn new(limits: ConnectionLimits) -> Self {
        Self { limits, admitted: Vec::new() }
    }

    /// A seat for a connection that comes from `peer` now; none if every one is busy answering, the reserve too.
    pub fn admit_connection(&mut self, peer: IpAddr, now: Instant) -> Option<ConnectionPermit> {
        let peer = client_network(peer);
        self.admitted.retain(AdmittedConnection::is_held);
        let limits = self.limits;
        let seated = |taken: &AdmittedConnection| !taken.reserve;
        let of_peer = |taken: &AdmittedConnection| !taken.reserve && taken.peer == peer;
        if self.ensure_capacity(limits.seats_per_peer, now, of_peer)
            && self.ensure_capacity(limits.seats, now, seated)
        {
            return Some(self.issue_permit(peer, false, now));
        }
        let room = self.ensure_capacity(limits.reserve, now, |taken| taken.reserve);
        room.then(|| self.issue_permit(peer, true, now))
    }

    /// Whether one more fits beside those that are `among`, after the first of them in rank gave way where need be.
    fn ensure_capacity(
        &mut self,
        most: usize,
        now: Instant,
        among: impl Fn(&AdmittedConnection) -> bool,
    ) -> bool {
        if self.admitted.iter().filter(|taken| among(taken)).count() < most {
            return true;
        }
        let ranked = self.admitted.iter().enumerate().filter(|(_, taken)| among(taken));
        let ranked = ranked
            .filter_map(|(at, taken)| Some((taken.status.upgrade()?.eviction_rank(now)?, at)));
        let Some((_, at)) = ranked.min() else { return false };
        if let Some(seat) = self.admitted.swap_remove(at).status.upgrade() {
            seat.evict_connection();
        }
        true
    }

    fn issue_permit(&mut self, peer: IpAddr, reserve: bool, now: Instant) -> ConnectionPermit {
        let activity = ConnectionActivity {
            idle_since: now,
            head_since: None,
            answering_since: None,
            written: false,
            blocked_since: None,
            asked: false,
            evicted: false,
        };
        let shared = Arc::new(ConnectionStatus {
            limits: self.limits,
            reserve,
            eviction: Notify::new(),
            activity: Mutex::new(activity),
        });
        self.admitted.push(AdmittedConnection { peer, reserve, status: Arc::downgrade(&shared) });
        ConnectionPermit(shared)
    }
}

impl AdmittedConnection {
    fn is_held(&self) -> bool {
        self.status.strong_count() > 0
    }
}

/// The addresses that one client can have at will count as one.
fn client_network(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => {
            let bits = address.to_bits() & (u128::from(u64::MAX) << 64);
            std::net::Ipv6Addr::from_bits(bits).into()
        }
    }
}

impl ConnectionPermit {
    /// Whether all others are busy, so that only what is short may be asked.
    pub fn is_reserve(&self) -> bool {
        self.0.reserve
    }

    pub(crate) fn connection_status(&self) -> &Arc<ConnectionStatus> {
        &self.0
    }
}

impl ConnectionStatus {
    fn lock_activity(&self) -> MutexGuard<'_, ConnectionActivity> {
        self.activity.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the connection is to give way.
    pub(crate) async fn wait_for_eviction(&self) {
        self.eviction.notified().await;
    }

    fn evict_connection(&self) {
        self.lock_activity().evicted = true;
        self.eviction.notify_one();
    }

    /// Its rank among those that can give way; none while it is answering.
    fn eviction_rank(&self, now: Instant) -> Option<EvictionRank> {
        let activity = self.lock_activity();
        match (activity.answering_since, activity.blocked_since) {
            (Some(since), Some(_)) => Some(EvictionRank::Blocked(since)),
            (Some(_), None) => None,
            (None, _)
                if !activity.asked
                    && now.saturating_duration_since(activity.idle_since) >= SILENT_AFTER =>
            {
                Some(EvictionRank::Silent(activity.idle_since))
            }
            (None, _) => Some(EvictionRank::Idle(activity.idle_since)),
        }
    }

    /// Whether no request is being answered.
    pub(crate) fn is_idle(&self) -> bool {
        self.lock_activity().answering_since.is_none()
    }

    /// When the connection is too late if nothing happens, and with what.
    pub(crate) fn next_deadline(&self) -> Option<(Instant, ConnectionTimeout)> {
        let (activity, limits) = (self.lock_activity(), &self.limits);
        if let Some(since) = activity.answering_since {
            let blocked = activity.blocked_since.map(|since| since + limits.write);
            let whole = limits.answer.map(|limit| since + limit);
            let first = blocked.into_iter().chain(whole).min();
            return first.map(|at| (at, ConnectionTimeout::Write));
        }
        let at = match activity.head_since {
            _ if !activity.asked => (activity.idle_since + limits.head, ConnectionTimeout::Head),
            Some(since) => (since + limits.head, ConnectionTimeout::Head),
            None => (activity.idle_since + limits.idle, ConnectionTimeout::Idle),
        };
        Some(at)
    }

    /// A request came.
    pub(crate) fn record_request(&self, now: Instant) {
        let mut activity = self.lock_activity();
        activity.head_since = None;
        activity.answering_since = Some(now);
        (activity.written, activity.asked) = (false, true);
    }

    /// The last of an answer was handed over.
    pub(crate) fn record_body_end(&self) {
        self.lock_activity().written = true;
    }

    /// Bytes came.
    pub(crate) fn record_read(&self, now: Instant) {
        let mut activity = self.lock_activity();
        if activity.answering_since.is_none() {
            activity.head_since.get_or_insert(now);
        }
    }

    /// The client took something, or `waits`.
    pub(crate) fn record_write(&self, waits: bool, now: Instant) {
        let mut activity = self.lock_activity();
        if waits {
            activity.blocked_since.get_or_insert(now);
        } else {
            activity.blocked_since = None;
        }
    }

    /// Everything that was written is on its way.
    pub(crate) fn record_flush(&self, now: Instant) {
        let mut activity = self.lock_activity();
        activity.blocked_since = None;
        if activity.written {
            activity.mark_idle(now);
        }
    }

    /// The last answer is sent; only what the client still sends is read.
    pub(crate) fn record_linger(&self, now: Instant) {
        self.lock_activity().mark_idle(now);
    }
}

impl ConnectionActivity {
    fn mark_idle(&mut self, now: Instant) {
        self.idle_since = now;
        (self.answering_since, self.blocked_since) = (None, None);
        self.written = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: ConnectionLimits = ConnectionLimits {
        seats: 4,
        seats_per_peer: 3,
        reserve: 1,
        head: Duration::from_secs(5),
        idle: Duration::from_secs(30),
        write: Duration::from_secs(5),
        answer: Some(Duration::from_mins(1)),
    };

    const SECOND: Duration = Duration::from_secs(1);

    fn peer_address(number: u8) -> IpAddr {
        [10, 0, 0, number].into()
    }

    fn was_evicted(seat: &ConnectionPermit) -> bool {
        seat.0.lock_activity().evicted
    }

    #[test]
    fn admission_evicts_oldest_idle_connection_and_silent_ones_first() {
        let (mut admission, mut now) = (ConnectionAdmission::new(LIMITS), Instant::now());
        let kept = admission.admit_connection(peer_address(1), now).unwrap();
        kept.0.record_request(now);
        kept.0.record_body_end();
        kept.0.record_flush(now);
        let mut silent = Vec::new();
        for number in 2..5 {
            now += 2 * SECOND;
            silent.push(admission.admit_connection(peer_address(number), now).unwrap());
        }
        now += SECOND;
        let fifth = admission.admit_connection(peer_address(5), now).unwrap();
        assert!(was_evicted(&silent[0]), "silent for the longest");
        assert!(!was_evicted(&kept) && !was_evicted(&silent[1]) && !was_evicted(&fifth));
        drop((silent, fifth));
        // Three of the peer itself: another one costs its own oldest, never one of others.
        let own: Vec<_> =
            (0..3).map(|_| admission.admit_connection(peer_address(9), now).unwrap()).collect();
        admission.admit_connection(peer_address(9), now).unwrap();
        assert!(own.iter().filter(|seat| was_evicted(seat)).count() == 1 && !was_evicted(&kept));
    }

    #[test]
    fn admission_keeps_answering_connections_and_evicts_blocked_ones() {
        let (mut admission, mut now) = (ConnectionAdmission::new(LIMITS), Instant::now());
        let busy: Vec<_> =
            (0..4).map(|at| admission.admit_connection(peer_address(at), now).unwrap()).collect();
        for seat in &busy {
            now += SECOND;
            seat.0.record_request(now);
        }
        let reserve = admission.admit_connection(peer_address(9), now).unwrap();
        assert!(reserve.is_reserve(), "all others are answering");
        reserve.0.record_request(now);
        assert!(admission.admit_connection(peer_address(10), now).is_none(), "the reserve too");
        busy[2].0.record_write(true, now);
        busy[1].0.record_write(true, now);
        let next = admission.admit_connection(peer_address(10), now).unwrap();
        assert!(was_evicted(&busy[1]), "its request is the older one");
        assert!(!was_evicted(&busy[2]) && !next.is_reserve());
    }

    #[test]
    fn connection_deadline_follows_each_step() {
        let (mut admission, mut now) = (ConnectionAdmission::new(LIMITS), Instant::now());
        let seat = admission.admit_connection(peer_address(1), now).unwrap();
        let shared = seat.connection_status();
        let left = |now: Instant| {
            let (at, late) = shared.next_deadline().unwrap();
            ((at - now).as_secs(), late)
        };
        assert_eq!(left(now), (5, ConnectionTimeout::Head), "the first head, from the beginning");
        now += 3 * SECOND;
        shared.record_read(now);
        now += 2 * SECOND;
        shared.record_read(now);
        assert_eq!(left(now), (0, ConnectionTimeout::Head), "bytes one by one give no more time");
        shared.record_request(now);
        assert_eq!(left(now), (60, ConnectionTimeout::Write), "the whole answer");
        shared.record_write(true, now);
        now += SECOND;
        shared.record_write(true, now);
        assert_eq!(left(now), (4, ConnectionTimeout::Write), "nothing was taken for a second");
        shared.record_write(false, now);
        shared.record_body_end();
        assert!(!shared.is_idle(), "written and not yet taken");
        shared.record_flush(now);
        assert_eq!(left(now), (30, ConnectionTimeout::Idle));
        shared.record_read(now);
        assert_eq!(left(now), (5, ConnectionTimeout::Head), "the next head, from its first byte");
    }

    #[test]
    fn peers_are_ipv4_addresses_and_ipv6_networks() {
        let of = |text: &str| client_network(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
        assert_ne!(of("10.0.0.1"), of("10.0.0.2"));
    }
}
