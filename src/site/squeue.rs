//! Running jobs as `squeue --json` prints them, in the formats of Slurm's data parsers 0.0.37 to 0.0.43.
//!
//! The older ones print times and numbers bare and a state as one word; the newer ones wrap each number in
//! `{set, infinite, number}` and list states.

use gaunt_schema::{JobAllocation, JobList, SanitizedText, SchedulerJob, UnixMs};
use serde_json::Value;

use super::{name_expander::NameExpander, site_error::SiteFault};

/// The most running jobs that are read.
const MAX_JOBS: usize = 100_000;

/// The most GPUs of one node in an index list.
const MAX_GPUS: u32 = 64;

/// Parses the file. Jobs that are not running hold nothing and are left out.
pub(super) fn parse_jobs(text: &str, source: SanitizedText) -> Result<JobList, SiteFault> {
    let document: Value = serde_json::from_str(text)
        .map_err(|error| SiteFault::json(&error, "write it with `squeue --json`"))?;
    let Some(jobs) = document.get("jobs").and_then(Value::as_array) else {
        return Err(SiteFault::at_line(1, "no \"jobs\" in it; write it with `squeue --json`"));
    };
    // Slurm 22.05 ends with 0 and an empty list of jobs when its controller does not answer.
    if let Some(error) = find_error(&document) {
        let what = format!("squeue failed: {error}; check `scontrol ping`, then write it again");
        return Err(SiteFault::at_line(1, what));
    }
    let mut expander = NameExpander::default();
    let mut list = JobList { source, jobs: Vec::new() };
    for job in jobs.iter().filter(|job| is_running(job)) {
        if list.jobs.len() >= MAX_JOBS {
            return Err(SiteFault::at_line(1, format!("more than {MAX_JOBS} running jobs")));
        }
        list.jobs.extend(parse_job(job, &mut expander)?);
    }
    Ok(list)
}

/// The first error that squeue wrote beside its list.
fn find_error(document: &Value) -> Option<SanitizedText> {
    let error = document.get("errors")?.as_array()?.first()?;
    let text = ["description", "error"].iter().find_map(|key| error.get(key)?.as_str());
    Some(SanitizedText::new(text.unwrap_or("unknown error")))
}

fn is_running(job: &Value) -> bool {
    let state = |state: &Value| matches!(state.as_str(), Some("RUNNING" | "COMPLETING"));
    job.get("job_state").is_some_and(|value| match value.as_array() {
        Some(states) => states.iter().any(state),
        None => state(value),
    })
}

fn parse_job(job: &Value, expander: &mut NameExpander) -> Result<Option<SchedulerJob>, SiteFault> {
    let Some(id) = job.get("job_id").and_then(parse_number) else { return Ok(None) };
    let text = |key: &str| {
        let text = job.get(key)?.as_str()?.trim();
        (!text.is_empty()).then(|| SanitizedText::new(text))
    };
    let time = |key: &str| {
        let seconds = job.get(key).and_then(parse_number).filter(|seconds| *seconds > 0)?;
        Some(UnixMs(seconds.checked_mul(1_000)?))
    };
    Ok(Some(SchedulerJob {
        id: SanitizedText::new(&id.to_string()),
        name: text("name"),
        user: text("user_name"),
        account: text("account"),
        partition: text("partition"),
        started: time("start_time"),
        ends: time("end_time"),
        holds: parse_allocations(job, expander)?,
    }))
}

/// A number, bare or wrapped; none if it is not set or infinite.
fn parse_number(value: &Value) -> Option<i64> {
    if value.is_object() {
        let flag = |key: &str| value.get(key).and_then(Value::as_bool);
        if flag("set") == Some(false) || flag("infinite") == Some(true) {
            return None;
        }
        return value.get("number")?.as_i64();
    }
    value.as_i64()
}

/// Allocations of a job: node by node in list order, with the generic resources at the same index.
fn parse_allocations(
    job: &Value,
    expander: &mut NameExpander,
) -> Result<Vec<JobAllocation>, SiteFault> {
    let nodes = job.get("nodes").and_then(Value::as_str).unwrap_or_default();
    let nodes = expander.expand_list(nodes, 1)?;
    let details = job.get("gres_detail").and_then(Value::as_array);
    // A node without such resources has null among those that have some.
    let details: Vec<&str> =
        details.into_iter().flatten().map(|detail| detail.as_str().unwrap_or_default()).collect();
    let whole = is_exclusive(job);
    let allocation = |(index, node): (usize, &SanitizedText)| JobAllocation {
        node: node.clone(),
        // There must be one entry per node, or the assignment is unknown.
        gpus: (details.len() == nodes.len())
            .then(|| details.get(index).copied().and_then(parse_gpu_indices))
            .flatten(),
        whole: whole && details.is_empty(),
    };
    Ok(nodes.iter().enumerate().map(allocation).collect())
}

/// Whether the job has exclusive use of its nodes.
fn is_exclusive(job: &Value) -> bool {
    let resources = job.get("job_resources");
    let whole = || resources?.get("nodes")?.get("whole")?.as_bool();
    let exclusive = || {
        let shared = job.get("shared").or_else(|| job.get("exclusive"))?;
        let values: Vec<&str> = match shared.as_array() {
            Some(values) => values.iter().filter_map(Value::as_str).collect(),
            None => vec![shared.as_str()?],
        };
        // The older parsers write `none` for no sharing.
        Some(values.iter().any(|value| matches!(*value, "none" | "true")))
    };
    whole().or_else(exclusive).unwrap_or(false)
}

/// Indexes in `gpu:h100:4(IDX:0-1,4,7)`; other resources of the entry are ignored. None where Slurm knows only how many there
/// are, as in `gpu:h100(CNT:4)`.
fn parse_gpu_indices(detail: &str) -> Option<Vec<u32>> {
    let mut indices = Vec::new();
    for part in detail.split("gpu:").skip(1) {
        let Some((_, list)) = part.split_once("IDX:") else {
            if part.contains("(CNT:") {
                return None;
            }
            continue;
        };
        for range in list.split(')').next().unwrap_or_default().split(',') {
            let (from, to) = range.split_once('-').unwrap_or((range, range));
            let Ok(first) = from.parse::<u32>() else { continue };
            let Ok(until) = to.parse::<u32>() else { continue };
            indices.extend((first..=until).take_while(|index| *index < MAX_GPUS));
        }
    }
    Some(indices)
}

#[cfg(test)]
mod tests;
