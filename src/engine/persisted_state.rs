//! State that survives a restart: findings, acknowledgements, accounting and baselines.

use std::sync::Arc;

use gaunt_schema::{LifeState, SanitizedText, UnixMs};
use serde::{Deserialize, Deserializer, Serialize, de::Error as _};
use serde_json::Value;

use super::{
    Engine, EngineOptions,
    acknowledgements::Acknowledgements,
    finding_journal::FindingJournal,
    usage_accounting::{LostTimeTotals, UsageWindow},
};
use gaunt_api::{CumulativeTotals, Finding, JobLostTime, PeerAction};
use gaunt_judge::{BaselineSnapshot, FindingSnapshot};

/// Everything that survives a restart.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PersistedState {
    #[serde(deserialize_with = "read_findings")]
    pub(super) past: FindingSnapshot,
    pub(super) acknowledgements: Acknowledgements,
    spent: LostTimeTotals,
    totals: CumulativeTotals,
    /// When it was saved; an earlier version does not state it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) saved_at: Option<UnixMs>,
    /// Since when baselines are learned, restarts included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) learned_since: Option<UnixMs>,
    /// It is large, changes slowly, and is saved separately.
    #[serde(skip)]
    pub(super) usual: Option<Arc<BaselineSnapshot>>,
    /// Saved separately, too.
    #[serde(skip)]
    recent: UsageWindow,
    /// Saved by the day.
    #[serde(skip)]
    journal: FindingJournal,
}

/// Reads the findings, also those that an earlier version saved.
fn read_findings<'de, D: Deserializer<'de>>(source: D) -> Result<FindingSnapshot, D::Error> {
    let mut past = Value::deserialize(source)?;
    for record in past.get_mut("findings").and_then(Value::as_array_mut).into_iter().flatten() {
        convert_former_record(record);
    }
    serde_json::from_value(past).map_err(D::Error::custom)
}

/// Converts a record whose lifecycle is beside its finding, as earlier versions saved it; its explanation is dropped.
fn convert_former_record(record: &mut Value) -> Option<()> {
    let record = record.as_object_mut()?;
    let mut life = record.remove("life")?;
    let openings = life.get_mut("openings")?;
    record.insert("openings".to_owned(), openings.take());
    *openings = record["openings"].as_array()?.len().into();
    record.remove("chain");
    let finding = record.get_mut("finding")?.as_object_mut()?;
    let cost = finding.get("lost_gpus")?.clone();
    finding.insert("cost_gpu_hours_per_hour".to_owned(), cost);
    finding.insert("life".to_owned(), life);
    let jobs = finding.remove("jobs")?;
    record.insert("jobs".to_owned(), jobs);
    Some(())
}

impl PersistedState {
    /// Number of open and of closed findings.
    pub fn finding_counts(&self) -> (usize, usize) {
        let closed =
            |record: &&gaunt_judge::FindingRecord| record.finding.life.state == LifeState::Closed;
        let closed = self.past.findings.iter().filter(closed).count();
        (self.past.findings.len() - closed, closed)
    }

    /// When it was read from the engine; an earlier version does not state it.
    pub fn saved_at(&self) -> Option<UnixMs> {
        self.saved_at
    }

    /// The findings, open and closed.
    pub(super) fn findings(&self) -> &FindingSnapshot {
        &self.past
    }

    /// The actions to pass on to peers, where these findings are open.
    pub(super) fn actions_to_pass(&self, open: &[Finding], at: UnixMs) -> Vec<PeerAction> {
        self.acknowledgements.actions_to_pass(open, at)
    }

    /// The baselines, at most a minute old.
    pub fn learned_baselines(&self) -> Option<&Arc<BaselineSnapshot>> {
        self.usual.as_ref()
    }

    /// The same state with loaded baselines.
    #[must_use]
    pub fn with_baselines(self, usual: BaselineSnapshot) -> Self {
        Self { usual: Some(Arc::new(usual)), ..self }
    }

    /// Recent GPU usage.
    pub fn usage_window(&self) -> &UsageWindow {
        &self.recent
    }

    /// The same state with loaded usage.
    #[must_use]
    pub fn with_usage_window(self, recent: UsageWindow) -> Self {
        Self { recent, ..self }
    }

    /// The closed findings of the last 90 days.
    pub fn finding_journal(&self) -> &FindingJournal {
        &self.journal
    }

    /// The same state with a loaded journal.
    #[must_use]
    pub fn with_finding_journal(self, journal: FindingJournal) -> Self {
        Self { journal, ..self }
    }

    /// The lost time at that point.
    pub(super) fn lost_time_rows(&self) -> Vec<JobLostTime> {
        self.spent.sorted_rows()
    }
}

impl Engine {
    /// An engine that continues from saved state. It reports counters only once they are saved.
    pub fn from_persisted(options: EngineOptions, state: PersistedState) -> Self {
        let mut engine = Self::new(options);
        let PersistedState {
            past, acknowledgements, spent, totals, usual, recent, journal, ..
        } = state;
        engine.learned_since = state.learned_since;
        let usual = usual.map(|usual| (*usual).clone()).unwrap_or_default();
        engine.cluster.remember_addresses(usual.nodes_by_address());
        engine.judge = engine.judge.map(|judge| judge.with_findings(past).with_baselines(usual));
        engine.restore_journal(journal);
        engine.acknowledgements = acknowledgements;
        engine.usage.window = recent;
        engine.usage.lost_totals = spent.into_restored();
        engine.confirmed_lost_time = Some(engine.usage.lost_totals.sorted_rows());
        engine.baselines_opened = totals.findings_opened.values().sum();
        engine.totals = totals;
        engine
    }

    /// An engine that begins with what a peer knows, where no state is saved.
    pub fn from_peer(options: EngineOptions, state: PersistedState) -> Self {
        Self::from_recording(options, state)
    }

    /// An engine for a replay, which continues from the state at the start of the recording. It takes over findings
    /// and baselines; its counters are those of the recording alone.
    pub fn from_recording(options: EngineOptions, state: PersistedState) -> Self {
        let (spent, totals, recent) =
            (LostTimeTotals::default(), CumulativeTotals::default(), UsageWindow::default());
        let mut engine =
            Self::from_persisted(options, PersistedState { spent, totals, recent, ..state });
        engine.confirmed_lost_time = None;
        engine.journal = None;
        engine
    }

    /// Whether it has no earlier state and no finding yet.
    pub fn is_new(&self) -> bool {
        let state = self.persisted_state();
        self.confirmed_lost_time.is_none()
            && state.is_some_and(|state| state.finding_counts() == (0, 0))
    }

    /// The state to save; none while a judgement runs.
    pub fn persisted_state(&self) -> Option<PersistedState> {
        let judge = self.judge.as_ref()?;
        Some(PersistedState {
            past: judge.snapshot_findings(),
            acknowledgements: self.acknowledgements.clone(),
            spent: self.usage.lost_totals.clone(),
            totals: self.totals.clone(),
            saved_at: Some(self.cluster.now()),
            learned_since: self.learned_since,
            usual: self.baselines.clone(),
            recent: self.usage.window.clone(),
            journal: self.journal.clone().unwrap_or_default(),
        })
    }

    /// Confirms that this much lost time is saved and may be reported.
    pub(super) fn confirm_lost_time(&mut self, lost_time: Vec<JobLostTime>) {
        self.confirmed_lost_time = Some(lost_time);
    }

    /// Notes why the state is not saved, for the screens.
    pub(super) fn note_save_failure(&mut self, why: Option<SanitizedText>) {
        self.save_failure = why;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn finding_that_an_earlier_version_saved_is_read() {
        let number = json!({ "row": "io_pressure", "what": "IO pressure (PSI or iowait)", "value": 0.5, "unit": "ratio", "limit": 0.08, "note": "" });
        let saved = json!({ "past": { "findings": [{
            "finding": {
                "id": "storage_slow", "kind": "storage_slow", "severity": "critical", "entity": { "type": "storage" },
                "since": 1_000, "confidence": 0.9, "lost_gpus": 2.5, "victims": [], "jobs": ["8812"],
                "summary": "", "next": "", "evidence": [number],
            },
            "life": {
                "state": "flapping", "opened": 1_000, "seen": 9_000, "closed": null, "openings": [1_000, 5_000],
                "changes": [{ "at": 1_000, "what": "opened", "from": "", "to": "critical" }],
            },
            "chain": {
                "at": 9_000, "peers": "", "signals": [], "missing": [],
                "alternatives": [{ "kind": "link_errors", "beyond": false, "number": number, "threshold": "", "source": "" }],
            },
        }] } });
        let read: PersistedState = serde_json::from_value(saved.clone()).unwrap();
        let record = &read.past.findings[0];
        let (finding, life) = (&record.finding, &record.finding.life);
        assert_eq!((finding.cost_gpu_hours_per_hour, finding.evidence[0].limit), (2.5, Some(0.08)));
        assert_eq!((life.opened.0, life.openings, life.changes.len()), (1_000, 2, 1));
        assert_eq!((record.jobs.as_slice(), &record.chain), (&["8812".into()][..], &None));
        let again = serde_json::to_value(&read).unwrap();
        assert_eq!(again["past"]["findings"][0]["openings"], json!([1_000, 5_000]));
        assert_eq!(serde_json::from_value::<PersistedState>(again).unwrap(), read);
        let mut torn = saved;
        torn["past"]["findings"][0]["life"]["openings"] = json!(2);
        assert!(serde_json::from_value::<PersistedState>(torn).is_err());
    }
}
