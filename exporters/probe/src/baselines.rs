//! Results and costs of earlier probes: baselines, the daily budget, the cool-down, and the reported counts.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

use gaunt_schema::{SanitizedText, plain_error};
use serde::{Deserialize, Serialize};

use crate::{
    exit_code::{ExitKind, ProbeExit, SkipReason},
    request::{BandwidthMeasurement, MeasureResult, min_median_max},
};

/// The maximum results in a baseline: at one every ten minutes, those of the last five hours.
const KEPT: usize = 32;

/// The fewest results for a baseline.
const ENOUGH: usize = 3;

/// Below this ratio to the baseline a result is a drop; two probes of the same links differ by a few per cent.
pub const DROP: f64 = 0.9;

/// After so many drops in a row the new level is the baseline: a cable was moved, a driver was updated.
const ACCEPTED: u32 = 16;

/// The maximum series: a matrix of 16 GPUs has 544 routes.
const MAX_SERIES: usize = 1_024;

const SECONDS_OF_A_DAY: u64 = 86_400;

/// The budget of a node for scheduled probes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProbeBudget {
    /// Seconds between two probes.
    pub cool_down_seconds: u64,
    /// Seconds of GPU time per day.
    pub daily_seconds: f64,
}

/// The persistent state of probes.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ProbeState {
    /// The day, since the epoch, that `today_seconds` is about.
    day: u64,
    /// GPU time of today.
    today_seconds: f64,
    /// When the last probe that measured something ended.
    pub(crate) last_run: Option<u64>,
    /// How long the last one took.
    pub(crate) last_seconds: f64,
    /// The exit code of the last attempt.
    pub(crate) last_code: u8,
    /// Probes that measured something.
    pub(crate) runs: u64,
    /// GPU time of all probes.
    pub(crate) busy_seconds: f64,
    /// Attempts that measured nothing, by reason.
    pub(crate) skipped: BTreeMap<String, u64>,
    /// The baselines, by series.
    series: BTreeMap<String, BaselineSeries>,
    /// The last results, each with its ratio to the baseline.
    pub(crate) last: Vec<(BandwidthMeasurement, Option<f64>)>,
}

/// The results of one kind of transfer between the same GPUs.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct BaselineSeries {
    /// Bytes per second, oldest first; drops are left out.
    reached: Vec<f64>,
    /// Drops since the last normal result.
    drops: u32,
}

impl BaselineSeries {
    /// Adds a result; returns its ratio to the baseline.
    fn add_result(&mut self, bandwidth: f64) -> Option<f64> {
        let baseline = min_median_max(self.reached.clone()).map(|[_, median, _]| median);
        let baseline = baseline.filter(|_| self.reached.len() >= ENOUGH);
        let ratio = baseline.map(|baseline| bandwidth / baseline);
        if ratio.is_some_and(|ratio| ratio < DROP) {
            self.drops += 1;
            if self.drops < ACCEPTED {
                return ratio;
            }
            self.reached.clear();
        }
        self.drops = 0;
        self.reached.push(bandwidth);
        let excess = self.reached.len().saturating_sub(KEPT);
        self.reached.drain(..excess);
        ratio
    }
}

impl ProbeState {
    /// Reads the file; without a file the state is empty.
    pub fn load_state(path: &Path) -> Result<Self, ProbeExit> {
        let broken = |why: String| {
            let path = path.display();
            ProbeExit::new(
                ExitKind::Failed,
                format!("cannot read {path}: {why}; delete it to start with new baselines"),
            )
        };
        match fs::read_to_string(path) {
            Ok(text) => {
                serde_json::from_str(&text).map_err(|error| broken(plain_error::json(&error)))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(broken(plain_error::io(&error))),
        }
    }

    /// Writes the file atomically.
    pub fn save_state(&self, path: &Path) -> Result<(), ProbeExit> {
        let text = serde_json::to_string(self).map_err(io::Error::from);
        text.and_then(|text| replace_file(path, &text)).map_err(|error| {
            ProbeExit::new(ExitKind::Failed, format!("cannot write {}: {error}", path.display()))
        })
    }

    /// Whether another probe is due.
    pub fn check_due(&mut self, now: u64, budget: &ProbeBudget) -> Result<(), ProbeExit> {
        let today = now / SECONDS_OF_A_DAY;
        if self.day != today {
            (self.day, self.today_seconds) = (today, 0.0);
        }
        let too_soon = |reason, why: String| {
            Err(ProbeExit { kind: ExitKind::Resting, ..ProbeExit::new_refused(reason, why) })
        };
        // A clock that was set back must not block probes for ever.
        let elapsed = self.last_run.and_then(|last| now.checked_sub(last));
        if let Some(elapsed) = elapsed.filter(|elapsed| *elapsed < budget.cool_down_seconds) {
            let remaining = budget.cool_down_seconds - elapsed;
            return too_soon(
                SkipReason::CoolDown,
                format!("the last probe was {elapsed} s ago; the cool-down ends in {remaining} s"),
            );
        }
        if self.today_seconds >= budget.daily_seconds {
            let (spent, limit) = (self.today_seconds, budget.daily_seconds);
            return too_soon(
                SkipReason::Budget,
                format!("today's GPU time is used up: {spent:.1} s of {limit} s"),
            );
        }
        Ok(())
    }

    /// Stores the result of a probe and compares it with the baselines: a drop has its own exit code.
    pub fn record_result(&mut self, now: u64, result: &MeasureResult) -> ProbeExit {
        self.last_code = result.ending.kind.exit_code();
        self.today_seconds += result.cost.busy_seconds;
        self.busy_seconds += result.cost.busy_seconds;
        if let Some(reason) = result.ending.reason {
            *self.skipped.entry(reason.as_str().to_owned()).or_insert(0) += 1;
        }
        if result.measured.is_empty() {
            return result.ending.clone();
        }
        self.last_run = Some(now);
        self.last_seconds = result.cost.seconds;
        self.runs += 1;
        self.last.clear();
        let mut worst: Option<(f64, String)> = None;
        for measurement in &result.measured {
            let key = series_key(measurement);
            let is_stored = self.series.len() < MAX_SERIES || self.series.contains_key(&key);
            // Wrong data carries no information about speed.
            let ratio = (is_stored && measurement.wrong == 0)
                .then(|| {
                    self.series
                        .entry(key)
                        .or_default()
                        .add_result(measurement.effective_bandwidth())
                })
                .flatten();
            if let Some(ratio) = ratio.filter(|ratio| *ratio < DROP)
                && worst.as_ref().is_none_or(|(lowest, _)| ratio < *lowest)
            {
                let name = format!("{} {}", measurement.collective, measurement.between);
                worst = Some((ratio, name));
            }
            self.last.push((measurement.clone(), ratio));
        }
        let exit = match worst {
            Some((ratio, name)) if result.ending.kind == ExitKind::Measured => {
                let percent = ratio * 100.0;
                ProbeExit::new_slow(&format!("slow: {name} reaches {percent:.0} % of its baseline"))
            }
            _ => result.ending.clone(),
        };
        self.last_code = exit.kind.exit_code();
        exit
    }

    /// Counts an attempt that measured nothing.
    pub fn record_skip(&mut self, exit: &ProbeExit) {
        self.last_code = exit.kind.exit_code();
        if let Some(reason) = exit.reason {
            *self.skipped.entry(reason.as_str().to_owned()).or_insert(0) += 1;
        }
    }
}

/// The key of a series: two results with the same key are comparable.
fn series_key(measurement: &BandwidthMeasurement) -> String {
    let (tool, path, element) =
        (measurement.tool.as_str(), measurement.way.as_str(), measurement.element.as_str());
    format!(
        "{} {} {tool} {path} {} {element} {}",
        measurement.collective, measurement.between, measurement.ranks, measurement.bytes
    )
}

/// Writes a temporary file and renames it, so that readers never see a partial file.
pub(crate) fn replace_file(path: &Path, text: &str) -> io::Result<()> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".new");
    let temporary = PathBuf::from(temporary);
    let mut file = fs::File::create(&temporary)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(temporary, path)
}

/// The path of a node's state file.
pub(crate) fn state_path(folder: &Path) -> PathBuf {
    folder.join("past.json")
}

/// The exit when another probe has locked the folder.
pub(crate) fn folder_in_use(folder: &Path) -> ProbeExit {
    let why = SanitizedText::new(&format!("another probe uses {}", folder.display()));
    ProbeExit { kind: ExitKind::Resting, reason: Some(SkipReason::CoolDown), message: why }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::MeasureCost;

    fn sample_result(gigabytes: f64) -> MeasureResult {
        let measurement = BandwidthMeasurement {
            collective: "all_reduce".into(),
            between: "gpu0..7".into(),
            tool: crate::request::MeasureTool::Gaunt,
            way: crate::request::DataPath::Peer,
            ranks: 8,
            virtual_ranks: false,
            bytes: 1 << 26,
            element: crate::ElementType::F32,
            seconds: [0.1; 3],
            runs: 5,
            algbw: gigabytes * 1e9 / 1.75,
            busbw: Some(gigabytes * 1e9),
            reference: None,
            wrong: 0,
            wrong_at: None,
        };
        MeasureResult {
            ending: ProbeExit::new_measured(),
            model: None,
            measured: vec![measurement],
            notes: Vec::new(),
            cost: MeasureCost { busy_seconds: 0.5, ..MeasureCost::default() },
        }
    }

    #[test]
    fn bandwidth_drop_is_reported_until_baseline_adapts() {
        let mut state = ProbeState::default();
        for now in 0..5 {
            assert_eq!(state.record_result(now, &sample_result(400.0)).kind, ExitKind::Measured);
        }
        assert_eq!(state.last[0].1, Some(1.0));
        let dropped = state.record_result(5, &sample_result(200.0));
        assert_eq!((dropped.kind, state.last_code), (ExitKind::Slow, 5));
        assert_eq!(
            dropped.message.as_str(),
            "slow: all_reduce gpu0..7 reaches 50 % of its baseline"
        );
        // One normal result in between resets the count.
        assert_eq!(state.record_result(6, &sample_result(390.0)).kind, ExitKind::Measured);
        for now in 0..u64::from(ACCEPTED) {
            assert_eq!(state.record_result(now, &sample_result(200.0)).kind, ExitKind::Slow);
        }
        for now in 0..5 {
            assert_eq!(state.record_result(now, &sample_result(200.0)).kind, ExitKind::Measured);
        }
    }

    #[test]
    fn probe_waits_between_runs_and_when_daily_budget_is_spent() {
        let budget = ProbeBudget { cool_down_seconds: 600, daily_seconds: 1.0 };
        let mut state = ProbeState::default();
        let day = 20_000 * SECONDS_OF_A_DAY;
        state.check_due(day, &budget).unwrap();
        state.record_result(day, &sample_result(400.0));
        let reason =
            |state: &mut ProbeState, now| state.check_due(now, &budget).unwrap_err().reason;
        assert_eq!(reason(&mut state, day + 599), Some(SkipReason::CoolDown));
        state.check_due(day + 600, &budget).unwrap();
        state.record_result(day + 600, &sample_result(400.0));
        assert_eq!(reason(&mut state, day + 1200), Some(SkipReason::Budget));
        state.check_due(day + SECONDS_OF_A_DAY, &budget).unwrap();
        // The clock was set back by a day.
        state.check_due(day - SECONDS_OF_A_DAY, &budget).unwrap();
    }

    #[test]
    fn baselines_file_round_trip_and_broken_file_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let path = state_path(folder.path());
        let mut state = ProbeState::load_state(&path).unwrap();
        state.record_result(7, &sample_result(400.0));
        state.save_state(&path).unwrap();
        assert_eq!(ProbeState::load_state(&path).unwrap().last, state.last);
        fs::write(&path, "{").unwrap();
        assert!(
            ProbeState::load_state(&path)
                .unwrap_err()
                .message
                .contains("delete it to start with new baselines")
        );
    }
}
