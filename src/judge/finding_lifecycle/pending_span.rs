//! The time for which the evidence of a pending finding was present.

use std::collections::HashSet;

use gaunt_schema::UnixMs;
use serde::{Deserialize, Serialize};

/// A pending finding: since when and until when its evidence was present.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct PendingSpan {
    pub(super) since: UnixMs,
    pub(super) last_seen: UnixMs,
    /// Those that had the evidence all the time, where several are seen.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) members: Vec<String>,
    /// Milliseconds since then without evaluation, because of restarts.
    #[serde(skip_serializing_if = "is_zero")]
    unseen_ms: u64,
    /// When it was seen again after the last restart.
    #[serde(skip)]
    pub(super) again: Option<UnixMs>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks it so")]
const fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl PendingSpan {
    /// Starts one that is seen for the first time.
    pub(super) fn new(now: UnixMs, members: &[String]) -> Self {
        Self { since: now, last_seen: now, members: members.to_vec(), ..Self::default() }
    }

    /// Resumes one from before a restart: time without evaluation does not count.
    pub(super) fn resume_after_restart(mut self, now: UnixMs) -> Self {
        (self.since, self.last_seen) = (self.since.min(now), self.last_seen.min(now));
        self.unseen_ms += now.duration_since(self.last_seen).as_millis() as u64;
        self.again = Some(now);
        self
    }

    /// Seconds for which its evidence was observed, as of now.
    pub(super) fn lasted_seconds(&self, now: UnixMs) -> f64 {
        now.duration_since(self.since).as_secs_f64() - self.unseen_ms as f64 / 1e3
    }

    /// Records that its evidence is present, for these members.
    pub(super) fn observe_members(&mut self, now: UnixMs, members: &[String]) {
        self.last_seen = now;
        let seen: HashSet<&String> = members.iter().collect();
        self.members.retain(|member| seen.contains(member));
        if self.members.is_empty() && !members.is_empty() {
            // Another member shows now what one showed before.
            *self = Self::new(now, members);
        }
    }
}
