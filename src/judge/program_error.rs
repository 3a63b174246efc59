//! Program errors: XIDs by which a program on a GPU failed, and whether its job stopped with it. Most are errors of the
//! program; a GPU on which program after program fails is to be tested.

use gaunt_cluster::Cluster;
use gaunt_schema::{DeviceClass, Entity, FindingKind, UnixMs, xid::describe_xid};
use serde::{Deserialize, Serialize};

use super::{
    EvidenceRow, JudgeState,
    finding_lifecycle::DetectorOutcome,
    job_group::JobGroup,
    pending_finding::{PendingFinding, format_time_of_day},
};

/// Seconds within which a job must stand still after the XID of a program: what stops later has another reason.
const STOPS_WITHIN_SECONDS: f64 = 120.0;

/// The XID of a program on a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct ProgramError {
    code: u32,
    at: UnixMs,
    /// When its job last stood still, if it did within [`STOPS_WITHIN_SECONDS`].
    stopped: Option<UnixMs>,
}

impl ProgramError {
    /// Returns the one that is kept after a new one: the first one of those that stopped a job is the cause of the others.
    pub(super) fn next(before: Option<Self>, code: u32, at: UnixMs) -> Self {
        before
            .filter(|before| {
                before.stopped.is_some() || seconds(before.at, at) <= STOPS_WITHIN_SECONDS
            })
            .unwrap_or(Self { code, at, stopped: None })
    }

    /// Records whether its job stands still, if that is known. One whose job goes on, or goes on again for so many seconds, is
    /// forgotten.
    pub(super) fn observe_job(
        self,
        stands: Option<bool>,
        settles: f64,
        now: UnixMs,
    ) -> Option<Self> {
        let stands_now = stands == Some(true);
        match self.stopped {
            _ if stands_now => Some(Self { stopped: Some(now), ..self }),
            Some(last) => (seconds(last, now) < settles).then_some(self),
            None => (seconds(self.at, now) <= STOPS_WITHIN_SECONDS).then_some(self),
        }
    }

    pub(super) fn clamp_times(self, now: UnixMs) -> Self {
        Self { at: self.at.min(now), stopped: self.stopped.map(|last| last.min(now)), ..self }
    }
}

fn seconds(from: UnixMs, to: UnixMs) -> f64 {
    to.duration_since(from).as_secs_f64()
}

/// Adds the programs that failed and stopped their jobs, of each job the first one.
pub(super) fn detect_program_errors(
    judge: &JudgeState,
    cluster: &Cluster,
    outcome: &mut DetectorOutcome,
) {
    for group in judge.job_groups.all_groups() {
        outcome.suspicions.extend(failed_program(judge, cluster, group));
    }
}

fn failed_program(
    judge: &JudgeState,
    cluster: &Cluster,
    group: &JobGroup,
) -> Option<PendingFinding> {
    let stopped = |row: &u32| {
        let errors = judge.health.of(*row);
        // What the GPU itself has is told of it already.
        let is_well = errors.is_working()
            && errors.remap.is_none()
            && errors.failing_rows(cluster.now()).is_none();
        Some((errors.program.filter(|program| program.stopped.is_some() && is_well)?, *row))
    };
    let failed: Vec<(ProgramError, u32)> = group.gpus.iter().filter_map(stopped).collect();
    // Where most of its programs fail, no GPU is to blame.
    if failed.len() > 1 && failed.len() * 2 > group.gpus.len() {
        return None;
    }
    let (program, row) = failed.into_iter().min_by_key(|(program, row)| (program.at, *row))?;
    let entry = cluster.device_at(DeviceClass::Gpu, row)?;
    let node = cluster.node_by_id(entry.node)?;
    let entity = Entity::new_gpu(&node.name, entry.device.key.first()?);
    let xid = describe_xid(program.code);
    let summary = format!(
        "A program on {entity} failed with XID {}, {}, at {}, and its job stopped.",
        program.code,
        xid.meaning,
        format_time_of_day(program.at),
    );
    let next = "Look at the log of the job: usually an application error; if programs of other jobs fail on this GPU too, drain its node and test it.";
    let mut pending = PendingFinding::of(FindingKind::GpuFailed, entity, 1, true);
    pending.cap_severity();
    let lost = if group.is_progressing() { 0.0 } else { group.lost_gpus() };
    Some(
        pending
            .with_hold_seconds(group.interval.two_sample_seconds(&judge.limits))
            .with_interval(group.interval)
            .with_cost(lost, group.list_victims(cluster, None))
            .with_summary(summary, next.to_owned())
            .with_evidence([EvidenceRow::Xid
                .to_evidence(Some(f64::from(program.code)), None)
                .with_note("NVIDIA driver error code")]),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_error_counts_once_its_job_stops_within_two_minutes() {
        let at = |second: i64| UnixMs(1_800_000_000_000 + second * 1_000);
        let error = ProgramError::next(None, 31, at(0));
        let observe =
            |error: ProgramError, stands, second| error.observe_job(stands, 60.0, at(second));
        assert_eq!(observe(error, Some(false), 60), Some(error));
        assert_eq!(observe(error, None, 121), None, "its job goes on");
        let stopped = observe(error, Some(true), 100).unwrap();
        assert_eq!(ProgramError::next(Some(stopped), 43, at(110)), stopped, "43 follows from 31");
        let still = observe(stopped, Some(true), 900).unwrap();
        assert!(observe(still, Some(false), 950).is_some() && observe(still, None, 960).is_none());
        assert_eq!(ProgramError::next(Some(error), 13, at(500)).code, 13);
    }
}
