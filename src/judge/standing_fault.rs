//! Standing faults: what has been broken while a job ran as usual does not explain why that job is slow or stands now.

use gaunt_schema::{Finding, FindingKind};

use super::{JudgeState, job_group::JobGroup};

/// Seconds for which averages of a job that becomes slower, or stops, still show its usual pace.
const AVERAGED_SECONDS: f64 = 60.0;

/// Whether a fault is either there or not: it does not become worse while its finding is open.
const fn is_there_or_not(kind: FindingKind) -> bool {
    use FindingKind::{DataStale, DriverHung, GpuFailed, PortDown, PortRateLow, TargetDown};
    matches!(kind, PortDown | PortRateLow | GpuFailed | TargetDown | DriverHung | DataStale)
}

/// Whether a job ran as usual after the finding about such a fault was opened.
pub(super) fn is_harmless_to(judge: &JudgeState, fault: &Finding, group: &JobGroup) -> bool {
    if !is_there_or_not(fault.kind) {
        return false;
    }
    let opened = judge.tracker.open_one(&fault.id).map(|open| open.life.opened);
    let usual = judge.gangs.of(group).last_usual();
    opened.is_some_and(|opened| usual.duration_since(opened).as_secs_f64() > AVERAGED_SECONDS)
}
