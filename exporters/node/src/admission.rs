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
pub struct Admission {
    limits: ConnectionLimits,
    taken: Vec<Taken>,
}

/// A seat that was given.
struct Taken {
    peer: IpAddr,
    reserve: bool,
    /// Gone once the connection has ended.
    seat: Weak<Shared>,
}

/// The place of one connection, free again when it is dropped.
pub struct Seat(Arc<Shared>);

pub(crate) struct Shared {
    limits: ConnectionLimits,
    reserve: bool,
    gives_way: Notify,
    activity: Mutex<Activity>,
}

/// What a connection does now.
struct Activity {
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
enum Rank {
    /// It never sent a request.
    Silent(Instant),
    /// It waits for the next request.
    Idle(Instant),
    /// Its client does not take the answer; since the request came.
    Blocked(Instant),
}

/// What took too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Late {
    /// The request head.
    Head,
    /// The next request on a kept connection.
    Idle,
    /// The client, which takes nothing of the answer, or not all of it.
    Write,
}

impl Admission {
    /// Nobody is admitted yet.
    pub fn new(limits: ConnectionLimits) -> Self {
        Self { limits, taken: Vec::new() }
    }

    /// A seat for a connection that comes from `peer` now; none if every one is busy answering, the reserve too.
    pub fn admit(&mut self, peer: IpAddr, now: Instant) -> Option<Seat> {
        let peer = network(peer);
        self.taken.retain(Taken::is_held);
        let limits = self.limits;
        let seated = |taken: &Taken| !taken.reserve;
        let of_peer = |taken: &Taken| !taken.reserve && taken.peer == peer;
        if self.makes_room(limits.seats_per_peer, now, of_peer)
            && self.makes_room(limits.seats, now, seated)
        {
            return Some(self.seat(peer, false, now));
        }
        let room = self.makes_room(limits.reserve, now, |taken| taken.reserve);
        room.then(|| self.seat(peer, true, now))
    }

    /// Whether one more fits beside those that are `among`, after the first of them in rank gave way where need be.
    fn makes_room(&mut self, most: usize, now: Instant, among: impl Fn(&Taken) -> bool) -> bool {
        if self.taken.iter().filter(|taken| among(taken)).count() < most {
            return true;
        }
        let ranked = self.taken.iter().enumerate().filter(|(_, taken)| among(taken));
        let ranked = ranked.filter_map(|(at, taken)| Some((taken.seat.upgrade()?.rank(now)?, at)));
        let Some((_, at)) = ranked.min() else { return false };
        if let Some(seat) = self.taken.swap_remove(at).seat.upgrade() {
            seat.evict();
        }
        true
    }

    fn seat(&mut self, peer: IpAddr, reserve: bool, now: Instant) -> Seat {
        let activity = Activity {
            idle_since: now,
            head_since: None,
            answering_since: None,
            written: false,
            blocked_since: None,
            asked: false,
            evicted: false,
        };
        let shared = Arc::new(Shared {
            limits: self.limits,
            reserve,
            gives_way: Notify::new(),
            activity: Mutex::new(activity),
        });
        self.taken.push(Taken { peer, reserve, seat: Arc::downgrade(&shared) });
        Seat(shared)
    }
}

impl Taken {
    fn is_held(&self) -> bool {
        self.seat.strong_count() > 0
    }
}

/// The addresses that one client can have at will count as one.
fn network(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => {
            let bits = address.to_bits() & (u128::from(u64::MAX) << 64);
            std::net::Ipv6Addr::from_bits(bits).into()
        }
    }
}

impl Seat {
    /// Whether all others are busy, so that only what is short may be asked.
    pub fn is_reserve(&self) -> bool {
        self.0.reserve
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.0
    }
}

impl Shared {
    fn activity(&self) -> MutexGuard<'_, Activity> {
        self.activity.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the connection is to give way.
    pub(crate) async fn gives_way(&self) {
        self.gives_way.notified().await;
    }

    fn evict(&self) {
        self.activity().evicted = true;
        self.gives_way.notify_one();
    }

    /// Its rank among those that can give way; none while it is answering.
    fn rank(&self, now: Instant) -> Option<Rank> {
        let activity = self.activity();
        match (activity.answering_since, activity.blocked_since) {
            (Some(since), Some(_)) => Some(Rank::Blocked(since)),
            (Some(_), None) => None,
            (None, _)
                if !activity.asked
                    && now.saturating_duration_since(activity.idle_since) >= SILENT_AFTER =>
            {
                Some(Rank::Silent(activity.idle_since))
            }
            (None, _) => Some(Rank::Idle(activity.idle_since)),
        }
    }

    /// Whether no request is being answered.
    pub(crate) fn is_idle(&self) -> bool {
        self.activity().answering_since.is_none()
    }

    /// When the connection is too late if nothing happens, and with what.
    pub(crate) fn deadline(&self) -> Option<(Instant, Late)> {
        let (activity, limits) = (self.activity(), &self.limits);
        if let Some(since) = activity.answering_since {
            let blocked = activity.blocked_since.map(|since| since + limits.write);
            let whole = limits.answer.map(|limit| since + limit);
            let first = blocked.into_iter().chain(whole).min();
            return first.map(|at| (at, Late::Write));
        }
        let at = match activity.head_since {
            _ if !activity.asked => (activity.idle_since + limits.head, Late::Head),
            Some(since) => (since + limits.head, Late::Head),
            None => (activity.idle_since + limits.idle, Late::Idle),
        };
        Some(at)
    }

    /// A request came.
    pub(crate) fn begins(&self, now: Instant) {
        let mut activity = self.activity();
        activity.head_since = None;
        activity.answering_since = Some(now);
        (activity.written, activity.asked) = (false, true);
    }

    /// The last of an answer was handed over.
    pub(crate) fn ends(&self) {
        self.activity().written = true;
    }

    /// Bytes came.
    pub(crate) fn read(&self, now: Instant) {
        let mut activity = self.activity();
        if activity.answering_since.is_none() {
            activity.head_since.get_or_insert(now);
        }
    }

    /// The client took something, or `waits`.
    pub(crate) fn wrote(&self, waits: bool, now: Instant) {
        let mut activity = self.activity();
        if waits {
            activity.blocked_since.get_or_insert(now);
        } else {
            activity.blocked_since = None;
        }
    }

    /// Everything that was written is on its way.
    pub(crate) fn flushed(&self, now: Instant) {
        let mut activity = self.activity();
        activity.blocked_since = None;
        if activity.written {
            activity.rests(now);
        }
    }

    /// The last answer is sent; only what the client still sends is read.
    pub(crate) fn lingers(&self, now: Instant) {
        self.activity().rests(now);
    }
}

impl Activity {
    fn rests(&mut self, now: Instant) {
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

    fn peer(number: u8) -> IpAddr {
        [10, 0, 0, number].into()
    }

    fn gave_way(seat: &Seat) -> bool {
        seat.0.activity().evicted
    }

    #[test]
    fn admission_evicts_oldest_idle_connection_and_silent_ones_first() {
        let (mut admission, mut now) = (Admission::new(LIMITS), Instant::now());
        let kept = admission.admit(peer(1), now).unwrap();
        kept.0.begins(now);
        kept.0.ends();
        kept.0.flushed(now);
        let mut silent = Vec::new();
        for number in 2..5 {
            now += 2 * SECOND;
            silent.push(admission.admit(peer(number), now).unwrap());
        }
        now += SECOND;
        let fifth = admission.admit(peer(5), now).unwrap();
        assert!(gave_way(&silent[0]), "silent for the longest");
        assert!(!gave_way(&kept) && !gave_way(&silent[1]) && !gave_way(&fifth));
        drop((silent, fifth));
        // Three of the peer itself: another one costs its own oldest, never one of others.
        let own: Vec<_> = (0..3).map(|_| admission.admit(peer(9), now).unwrap()).collect();
        admission.admit(peer(9), now).unwrap();
        assert!(own.iter().filter(|seat| gave_way(seat)).count() == 1 && !gave_way(&kept));
    }

    #[test]
    fn admission_keeps_answering_connections_and_evicts_blocked_ones() {
        let (mut admission, mut now) = (Admission::new(LIMITS), Instant::now());
        let busy: Vec<_> = (0..4).map(|at| admission.admit(peer(at), now).unwrap()).collect();
        for seat in &busy {
            now += SECOND;
            seat.0.begins(now);
        }
        let reserve = admission.admit(peer(9), now).unwrap();
        assert!(reserve.is_reserve(), "all others are answering");
        reserve.0.begins(now);
        assert!(admission.admit(peer(10), now).is_none(), "the reserve too");
        busy[2].0.wrote(true, now);
        busy[1].0.wrote(true, now);
        let next = admission.admit(peer(10), now).unwrap();
        assert!(gave_way(&busy[1]), "its request is the older one");
        assert!(!gave_way(&busy[2]) && !next.is_reserve());
    }

    #[test]
    fn connection_deadline_follows_each_step() {
        let (mut admission, mut now) = (Admission::new(LIMITS), Instant::now());
        let seat = admission.admit(peer(1), now).unwrap();
        let shared = seat.shared();
        let left = |now: Instant| {
            let (at, late) = shared.deadline().unwrap();
            ((at - now).as_secs(), late)
        };
        assert_eq!(left(now), (5, Late::Head), "the first head, from the beginning");
        now += 3 * SECOND;
        shared.read(now);
        now += 2 * SECOND;
        shared.read(now);
        assert_eq!(left(now), (0, Late::Head), "bytes one by one give no more time");
        shared.begins(now);
        assert_eq!(left(now), (60, Late::Write), "the whole answer");
        shared.wrote(true, now);
        now += SECOND;
        shared.wrote(true, now);
        assert_eq!(left(now), (4, Late::Write), "nothing was taken for a second");
        shared.wrote(false, now);
        shared.ends();
        assert!(!shared.is_idle(), "written and not yet taken");
        shared.flushed(now);
        assert_eq!(left(now), (30, Late::Idle));
        shared.read(now);
        assert_eq!(left(now), (5, Late::Head), "the next head, from its first byte");
    }

    #[test]
    fn peers_are_ipv4_addresses_and_ipv6_networks() {
        let of = |text: &str| network(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
        assert_ne!(of("10.0.0.1"), of("10.0.0.2"));
    }
}
