//! Peer snapshot: what an aggregator that starts takes over from one that runs.

use std::{
    io::{self, Read as _, Write as _},
    sync::Arc,
    time::Duration,
};

use gaunt_api::PeerAction;
use gaunt_judge::{BaselineSnapshot, FindingSnapshot};
use gaunt_schema::{
    LifeState, PREAMBLE_VERSION, UnixMs, plain_error, sanitized_text::sanitize_json,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{PersistedState, RecordedPast};

/// The fastest regular level of zstd.
const LEVEL: i32 = 1;

/// The largest snapshot as received, and unpacked: baselines of 100,000 GPUs are 60 MB of JSON, a tenth of that packed.
pub const MAX_PEER_SNAPSHOT: usize = 64 << 20;
const MAX_UNPACKED: u64 = 256 << 20;

/// Bytes of history in a snapshot: a quarter of an hour of some ten thousand GPUs at ten seconds.
pub const MAX_PEER_PAST: usize = 32 << 20;

/// Own baselines that are older than the peer's by less than this stay.
const FRESH: Duration = Duration::from_mins(1);

/// A peer that learned its baselines for at least this long knows what is usual.
const LEARNED: Duration = Duration::from_mins(15);

/// Findings, actions, baselines and history of an aggregator.
#[derive(Debug, Serialize, Deserialize)]
pub struct PeerSnapshot {
    version: u32,
    /// When it was made.
    at: UnixMs,
    /// Since when baselines are learned.
    learned_since: UnixMs,
    /// The findings: JSON until its texts are sanitized.
    findings: Value,
    actions: Vec<PeerAction>,
    baselines: Option<Arc<BaselineSnapshot>>,
    /// History, which follows the rest.
    #[serde(skip)]
    past: RecordedPast,
}

/// What was taken over from a peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerStateReport {
    /// Number of open findings that were not known here.
    pub open_findings: usize,
    /// Number of actions on open findings.
    pub actions: usize,
    /// Whether its baselines replace those of this aggregator.
    pub baselines: bool,
}

impl PeerSnapshot {
    /// The state as sent to a peer, with its history.
    pub fn pack_state(
        state: &PersistedState,
        past: &RecordedPast,
        at: UnixMs,
    ) -> Result<Vec<u8>, String> {
        let findings = state.findings();
        let open = findings.findings.iter().map(|record| &record.finding);
        let open: Vec<_> =
            open.filter(|finding| finding.life.state != LifeState::Closed).cloned().collect();
        let snapshot = Self {
            version: PREAMBLE_VERSION,
            at,
            learned_since: state.learned_since.unwrap_or(at),
            findings: serde_json::to_value(findings).map_err(|error| error.to_string())?,
            actions: state.actions_to_pass(&open, at),
            baselines: state.learned_baselines().cloned(),
            past: RecordedPast::default(),
        };
        let mut packer = zstd::Encoder::new(Vec::new(), LEVEL).map_err(|why| why.to_string())?;
        serde_json::to_writer(&mut packer, &snapshot).map_err(|error| error.to_string())?;
        packer.write_all(&past.to_bytes()).map_err(|why| why.to_string())?;
        packer.finish().map_err(|why| why.to_string())
    }

    /// Reads what a peer sent.
    pub fn unpack(bytes: &[u8]) -> Result<Self, String> {
        let other_version = "use the same version of gaunt on both";
        let unpack = || -> io::Result<Vec<u8>> {
            let mut unpacked = Vec::new();
            let decoder = zstd::Decoder::new(bytes)?;
            decoder.take(MAX_UNPACKED + 1).read_to_end(&mut unpacked)?;
            Ok(unpacked)
        };
        let unpacked =
            unpack().map_err(|_| format!("it is not packed by zstd; {other_version}"))?;
        if unpacked.len() as u64 > MAX_UNPACKED {
            return Err(format!("it has more than {MAX_UNPACKED} bytes"));
        }
        let mut values = serde_json::Deserializer::from_slice(&unpacked).into_iter::<Self>();
        let snapshot = values.next().ok_or_else(|| format!("it is empty; {other_version}"))?;
        let mut snapshot =
            snapshot.map_err(|error| format!("{}; {other_version}", plain_error::json(&error)))?;
        if snapshot.version != PREAMBLE_VERSION {
            let version = snapshot.version;
            return Err(format!(
                "it has version {version}, not {PREAMBLE_VERSION}; {other_version}"
            ));
        }
        sanitize_json(&mut snapshot.findings);
        let past = &unpacked[values.byte_offset()..];
        // A peer of version 0.1.0 sends no history.
        if !past.is_empty() {
            snapshot.past =
                RecordedPast::from_bytes(past).map_err(|why| format!("its history {why}"))?;
        }
        Ok(snapshot)
    }

    /// Takes its history.
    pub fn take_past(&mut self) -> RecordedPast {
        std::mem::take(&mut self.past)
    }
}

impl PersistedState {
    /// The same state with what a peer knows better at `now`, the start of this aggregator.
    pub fn join_peer(
        mut self,
        peer: PeerSnapshot,
        now: UnixMs,
    ) -> Result<(Self, PeerStateReport), String> {
        let findings: FindingSnapshot = serde_json::from_value(peer.findings)
            .map_err(|error| format!("its findings: {}", plain_error::json(&error)))?;
        let (open_before, _) = self.finding_counts();
        let known_until = self.saved_at.unwrap_or(UnixMs(0));
        self.past = std::mem::take(&mut self.past).join_peer(findings, known_until);
        let mut takeover = PeerStateReport {
            open_findings: self.finding_counts().0.saturating_sub(open_before),
            ..PeerStateReport::default()
        };
        for action in &peer.actions {
            let record = self.past.findings.iter().find(|record| {
                let is_open = record.finding.life.state != LifeState::Closed;
                is_open && record.finding.id == action.finding
            });
            if let Some(record) = record {
                self.acknowledgements.merge_action(action, &record.finding);
                takeover.actions += 1;
            }
        }
        let knows_usual = peer.at.duration_since(peer.learned_since) >= LEARNED;
        let is_better = match self.saved_at {
            Some(saved) => knows_usual && peer.at.duration_since(saved) >= FRESH,
            None => peer.learned_since < now,
        };
        if let Some(baselines) = peer.baselines.filter(|_| is_better) {
            self.usual = Some(baselines);
            self.learned_since = Some(peer.learned_since);
            takeover.baselines = true;
        }
        Ok((self, takeover))
    }
}
