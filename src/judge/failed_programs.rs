//! Failed programs: the first GPU of a job on which a program failed with an XID, where the job stopped with it.

use gaunt_cluster::Cluster;
use gaunt_schema::{DeviceClass, Entity, FindingKind, xid::describe_xid};

use super::{
    EvidenceRow, JudgeState,
    finding_lifecycle::DetectorOutcome,
    job_group::JobGroup,
    pending_finding::{PendingFinding, format_time_of_day},
    program_error::ProgramError,
};

/// Adds the programs that failed and stopped their jobs, of each job the first one.
pub(super) fn detect_failed_programs(
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
        let is_well = errors.is_well(cluster.now());
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
