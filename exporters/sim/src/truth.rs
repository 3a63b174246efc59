//! The truth: what is really wrong in a run, which only the simulator and the scorer ever see.

use std::time::Duration;

use gaunt_schema::{Entity, FindingKind, UnixMs};

/// What is really wrong: the answer that a judge should come to.
#[derive(Clone, Debug, PartialEq)]
pub struct Truth {
    /// What happened.
    pub kind: FindingKind,
    /// The thing to blame.
    pub blamed: Entity,
    /// Other things that may be blamed as rightly, because the signals cannot tell them apart.
    pub also: Vec<Entity>,
    /// Other kinds that say the same as rightly.
    pub kinds: Vec<FindingKind>,
    /// When it began.
    pub onset: UnixMs,
    /// When it is over, if ever.
    pub ends: Option<UnixMs>,
    /// How long after its onset it should have been found.
    pub limit: Duration,
    /// Who suffers: the other nodes of the jobs that it slows.
    pub victims: Vec<Entity>,
}
