//! Admission of HTTP connections: a limit per peer and a total limit. At the limit, the connection that has been idle
//! longest is evicted, so that silent clients never keep out active ones.

use std::{
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use tokio::{sync::Notify, time::Instant};

/// A connection that never sent a request is evicted before idle keep-alive ones once it is this old.
const SILENT_AFTER: Duration = Duration::from_secs(1);

/// The number of connections, and the timeout of each step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// Concurrent connections.
    pub seats: usize,
    /// Concurrent connections of one peer: an IPv4 address, or an IPv6 network of 64 bits.
    pub seats_per_peer: usize,
    /// Extra connections while all others are busy: only short requests are allowed on them.
    pub reserve: usize,
    /// The timeout of a request head, from its first byte; for the first one from the accept.
    pub head: Duration,
    /// The timeout until the next request on a keep-alive connection.
    pub idle: Duration,
    /// The timeout for write progress: the client must read something in this time.
    pub write: Duration,
    /// The timeout for the whole response, for responses that end.
    pub answer: Option<Duration>,
}

/// Admits connections. It belongs to the task that accepts them.
pub struct ConnectionAdmission {
    limits: ConnectionLimits,
    admitted: Vec<AdmittedConnection>,
}

/// An admitted connection.
struct AdmittedConnection {
    peer: IpAddr,
    reserve: bool,
    /// Dropped when the connection has ended.
    status: Weak<ConnectionStatus>,
}

/// The permit of one connection, released on drop.
pub struct ConnectionPermit(Arc<ConnectionStatus>);

pub(crate) struct ConnectionStatus {
    limits: ConnectionLimits,
    reserve: bool,
    eviction: Notify,
    activity: Mutex<ConnectionActivity>,
}

/// The current activity of a connection.
struct ConnectionActivity {
    /// When it was accepted, or finished its last response.
    idle_since: Instant,
    /// When the first byte of an incomplete request head arrived.
    head_since: Option<Instant>,
    /// When the newest request arrived that is being answered.
    answering_since: Option<Instant>,
    /// The number of responses of which the connection has not everything yet: with HTTP/2 several at once.
    open_responses: u32,
    /// Since when the client does not read pending data.
    blocked_since: Option<Instant>,
    /// Whether a request ever arrived.
    has_requested: bool,
    /// Whether it was asked to close.
    evicted: bool,
}

/// The eviction order: the kind, then since when.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum EvictionRank {
    /// No request yet.
    Silent(Instant),
    /// Waiting for the next request.
    Idle(Instant),
    /// The client does not read the response; since the request arrived.
    Blocked(Instant),
}

/// The step that timed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionTimeout {
    /// The request head.
    Head,
    /// The next request on a keep-alive connection.
    Idle,
    /// The client, which reads nothing of the response, or not all of it.
    Write,
}

impl ConnectionAdmission {
    /// No connections yet.
    pub fn new(limits: ConnectionLimits) -> Self {
        Self { limits, admitted: Vec::new() }
    }

    /// A permit for a connection from `peer`; none if all are busy, including the reserve.
    pub fn admit_connection(&mut self, peer: IpAddr, now: Instant) -> Option<ConnectionPermit> {
        let peer = client_network(peer);
        self.admitted.retain(AdmittedConnection::is_held);
        let limits = self.limits;
        let is_regular = |connection: &AdmittedConnection| !connection.reserve;
        let of_peer =
            |connection: &AdmittedConnection| !connection.reserve && connection.peer == peer;
        if self.ensure_capacity(limits.seats_per_peer, now, of_peer)
            && self.ensure_capacity(limits.seats, now, is_regular)
        {
            return Some(self.issue_permit(peer, false, now));
        }
        let has_capacity =
            self.ensure_capacity(limits.reserve, now, |connection| connection.reserve);
        has_capacity.then(|| self.issue_permit(peer, true, now))
    }

    /// Whether one more fits within the `limit` for those counted, after evicting the first of them in rank if necessary.
    fn ensure_capacity(
        &mut self,
        limit: usize,
        now: Instant,
        is_counted: impl Fn(&AdmittedConnection) -> bool,
    ) -> bool {
        if self.admitted.iter().filter(|connection| is_counted(connection)).count() < limit {
            return true;
        }
        let counted =
            self.admitted.iter().enumerate().filter(|(_, connection)| is_counted(connection));
        let ranked = counted.filter_map(|(index, connection)| {
            Some((connection.status.upgrade()?.eviction_rank(now)?, index))
        });
        let Some((_, index)) = ranked.min() else { return false };
        if let Some(evicted) = self.admitted.swap_remove(index).status.upgrade() {
            evicted.evict_connection();
        }
        true
    }

    fn issue_permit(&mut self, peer: IpAddr, reserve: bool, now: Instant) -> ConnectionPermit {
        let activity = ConnectionActivity {
            idle_since: now,
            head_since: None,
            answering_since: None,
            open_responses: 0,
            blocked_since: None,
            has_requested: false,
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

/// Addresses that one client can choose freely count as one.
pub(crate) fn client_network(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => {
            let bits = address.to_bits() & (u128::from(u64::MAX) << 64);
            std::net::Ipv6Addr::from_bits(bits).into()
        }
    }
}

impl ConnectionPermit {
    /// Whether it is a reserve connection, on which only short requests are allowed.
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

    /// Waits until the connection is evicted.
    pub(crate) async fn wait_for_eviction(&self) {
        self.eviction.notified().await;
    }

    fn evict_connection(&self) {
        self.lock_activity().evicted = true;
        self.eviction.notify_one();
    }

    /// Its eviction rank; none while it is answering.
    fn eviction_rank(&self, now: Instant) -> Option<EvictionRank> {
        let activity = self.lock_activity();
        match (activity.answering_since, activity.blocked_since) {
            (Some(since), Some(_)) => Some(EvictionRank::Blocked(since)),
            (Some(_), None) => None,
            (None, _)
                if !activity.has_requested
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

    /// The deadline if nothing happens, and the step that then times out.
    pub(crate) fn next_deadline(&self) -> Option<(Instant, ConnectionTimeout)> {
        let (activity, limits) = (self.lock_activity(), &self.limits);
        if let Some(since) = activity.answering_since {
            let write_end = activity.blocked_since.map(|since| since + limits.write);
            let answer_end = limits.answer.map(|limit| since + limit);
            let first = write_end.into_iter().chain(answer_end).min();
            return first.map(|deadline| (deadline, ConnectionTimeout::Write));
        }
        let deadline = match activity.head_since {
            _ if !activity.has_requested => {
                (activity.idle_since + limits.head, ConnectionTimeout::Head)
            }
            Some(since) => (since + limits.head, ConnectionTimeout::Head),
            None => (activity.idle_since + limits.idle, ConnectionTimeout::Idle),
        };
        Some(deadline)
    }

    /// Records a request.
    pub(crate) fn record_request(&self, now: Instant) {
        let mut activity = self.lock_activity();
        activity.head_since = None;
        activity.answering_since = Some(now);
        activity.open_responses += 1;
        activity.has_requested = true;
    }

    /// Records that the end of the response was handed over.
    pub(crate) fn record_body_end(&self) {
        let mut activity = self.lock_activity();
        activity.open_responses = activity.open_responses.saturating_sub(1);
    }

    /// Records received bytes.
    pub(crate) fn record_read(&self, now: Instant) {
        let mut activity = self.lock_activity();
        if activity.answering_since.is_none() {
            activity.head_since.get_or_insert(now);
        }
    }

    /// Records write progress, or that the client has `blocked` it.
    pub(crate) fn record_write(&self, blocked: bool, now: Instant) {
        let mut activity = self.lock_activity();
        if blocked {
            activity.blocked_since.get_or_insert(now);
        } else {
            activity.blocked_since = None;
        }
    }

    /// Records that all data was flushed.
    pub(crate) fn record_flush(&self, now: Instant) {
        let mut activity = self.lock_activity();
        activity.blocked_since = None;
        if activity.open_responses == 0 && activity.answering_since.is_some() {
            activity.mark_idle(now);
        }
    }

    /// Records that the last response was sent; only remaining input is drained.
    pub(crate) fn record_linger(&self, now: Instant) {
        self.lock_activity().mark_idle(now);
    }
}

impl ConnectionActivity {
    fn mark_idle(&mut self, now: Instant) {
        self.idle_since = now;
        (self.answering_since, self.blocked_since) = (None, None);
        self.open_responses = 0;
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

    fn was_evicted(permit: &ConnectionPermit) -> bool {
        permit.0.lock_activity().evicted
    }

    #[test]
    fn admission_evicts_oldest_idle_connection_and_silent_ones_first() {
        let (mut admission, mut now) = (ConnectionAdmission::new(LIMITS), Instant::now());
        let asking = admission.admit_connection(peer_address(1), now).unwrap();
        asking.0.record_request(now);
        asking.0.record_body_end();
        asking.0.record_flush(now);
        let mut silent = Vec::new();
        for number in 2..5 {
            now += 2 * SECOND;
            silent.push(admission.admit_connection(peer_address(number), now).unwrap());
        }
        now += SECOND;
        let fifth = admission.admit_connection(peer_address(5), now).unwrap();
        assert!(was_evicted(&silent[0]), "silent for the longest");
        assert!(!was_evicted(&asking) && !was_evicted(&silent[1]) && !was_evicted(&fifth));
        drop((silent, fifth));
        // Three of the peer itself: another one evicts its own oldest, never one of others.
        let same_peer: Vec<_> =
            (0..3).map(|_| admission.admit_connection(peer_address(9), now).unwrap()).collect();
        admission.admit_connection(peer_address(9), now).unwrap();
        assert!(
            same_peer.iter().filter(|permit| was_evicted(permit)).count() == 1
                && !was_evicted(&asking)
        );
    }

    #[test]
    fn admission_keeps_answering_connections_and_evicts_blocked_ones() {
        let (mut admission, mut now) = (ConnectionAdmission::new(LIMITS), Instant::now());
        let busy: Vec<_> = (0..4)
            .map(|number| admission.admit_connection(peer_address(number), now).unwrap())
            .collect();
        for permit in &busy {
            now += SECOND;
            permit.0.record_request(now);
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
        let permit = admission.admit_connection(peer_address(1), now).unwrap();
        let shared = permit.connection_status();
        let left = |now: Instant| {
            let (deadline, timeout) = shared.next_deadline().unwrap();
            ((deadline - now).as_secs(), timeout)
        };
        assert_eq!(left(now), (5, ConnectionTimeout::Head), "the first head, from the beginning");
        now += 3 * SECOND;
        shared.record_read(now);
        now += 2 * SECOND;
        shared.record_read(now);
        assert_eq!(
            left(now),
            (0, ConnectionTimeout::Head),
            "single bytes do not extend the timeout"
        );
        shared.record_request(now);
        assert_eq!(left(now), (60, ConnectionTimeout::Write), "the whole response");
        shared.record_write(true, now);
        now += SECOND;
        shared.record_write(true, now);
        assert_eq!(
            left(now),
            (4, ConnectionTimeout::Write),
            "the client read nothing for a second"
        );
        shared.record_write(false, now);
        shared.record_body_end();
        assert!(!shared.is_idle(), "written and not yet read");
        shared.record_flush(now);
        assert_eq!(left(now), (30, ConnectionTimeout::Idle));
        shared.record_read(now);
        assert_eq!(left(now), (5, ConnectionTimeout::Head), "the next head, from its first byte");
    }

    #[test]
    fn connection_is_idle_after_the_last_of_its_responses() {
        let now = Instant::now();
        let permit =
            ConnectionAdmission::new(LIMITS).admit_connection(peer_address(1), now).unwrap();
        let shared = permit.connection_status();
        shared.record_request(now);
        shared.record_request(now + SECOND);
        shared.record_body_end();
        shared.record_flush(now + SECOND);
        assert!(!shared.is_idle(), "the other response is open");
        let deadline = Some((now + SECOND + Duration::from_mins(1), ConnectionTimeout::Write));
        assert_eq!(shared.next_deadline(), deadline, "of the newest request");
        shared.record_body_end();
        shared.record_flush(now + 2 * SECOND);
        assert!(shared.is_idle());
    }

    #[test]
    fn peers_are_ipv4_addresses_and_ipv6_networks() {
        let network = |text: &str| client_network(text.parse().unwrap());
        assert_eq!(network("2001:db8::1"), network("2001:db8::ffff:1"));
        assert_ne!(network("2001:db8::1"), network("2001:db8:0:1::1"));
        assert_eq!(network("::ffff:10.0.0.1"), network("10.0.0.1"));
        assert_ne!(network("10.0.0.1"), network("10.0.0.2"));
    }
}
