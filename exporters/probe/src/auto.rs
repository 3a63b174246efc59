//! Scheduled probes: if one is due and the GPUs are idle, measures a ring and the matrix, and compares with baselines.

use std::{
    fs::{self, File, TryLockError},
    io,
    path::Path,
    time::{SystemTime, UNIX_EPOCH},
};

use gaunt_schema::{
    Device, Report,
    catalogue::probe_results::{
        ALGORITHM_BANDWIDTH, BASELINE_RATIO, BUS_BANDWIDTH, BUSY_TIME, DURATION, INFO, LAST_CODE,
        LAST_RUN, REFERENCE_RATIO, RUNS, SKIPPED, WRONG,
    },
    text,
};

use crate::{
    baselines::{self, ProbeBudget, ProbeState},
    exit_code::{ExitKind, ProbeExit},
    request::{MeasureRequest, MeasureResult},
    run_supervised,
};

/// The results page, in the state folder: gaunt-node reads it.
pub const PAGE: &str = "probe.prom";

/// Runs the requests one after the other if a probe is due, stores the results, and writes the page. The first request
/// that fails is the last.
pub fn run(folder: &Path, requests: &[MeasureRequest], budget: &ProbeBudget) -> MeasureResult {
    match run_locked(folder, requests, budget) {
        Ok(result) => result,
        Err(exit) => MeasureResult::from_exit(exit),
    }
}

fn run_locked(
    folder: &Path,
    requests: &[MeasureRequest],
    budget: &ProbeBudget,
) -> Result<MeasureResult, ProbeExit> {
    let _lock = lock_folder(folder)?;
    let path = baselines::state_path(folder);
    let mut state = ProbeState::load_state(&path)?;
    let result = if let Err(exit) = state.check_due(unix_seconds(), budget) {
        state.record_skip(&exit);
        MeasureResult::from_exit(exit)
    } else {
        let mut result = run_requests(requests);
        result.ending = state.record_result(unix_seconds(), &result);
        result
    };
    state.save_state(&path)?;
    let page = folder.join(PAGE);
    baselines::replace_file(&page, &render_page(&state)).map_err(|error| {
        ProbeExit::new(ExitKind::Failed, format!("cannot write {}: {error}", page.display()))
    })?;
    Ok(result)
}

/// The combined result of all requests.
fn run_requests(requests: &[MeasureRequest]) -> MeasureResult {
    let mut total = MeasureResult::from_exit(ProbeExit::new_measured());
    for request in requests {
        let result = run_supervised(request);
        total.ending = result.ending;
        total.model = result.model.or(total.model);
        total.measured.extend(result.measured);
        total.notes.extend(result.notes);
        total.cost.seconds += result.cost.seconds;
        total.cost.contexts_seconds += result.cost.contexts_seconds;
        total.cost.busy_seconds += result.cost.busy_seconds;
        total.cost.traffic_bytes += result.cost.traffic_bytes;
        total.cost.memory_bytes = total.cost.memory_bytes.max(result.cost.memory_bytes);
        if total.ending.kind != ExitKind::Measured {
            break;
        }
    }
    total
}

/// The page: the results of the last probe, and the cost of all probes.
fn render_page(state: &ProbeState) -> String {
    let mut report = Report::default();
    let node = report.ensure_device(Device::new_node());
    for (label, metric) in SKIPPED {
        let count = state.skipped.get(label).copied().unwrap_or(0);
        report.push(node, metric, count as f64);
    }
    report.push(node, RUNS, state.runs as f64);
    report.push(node, BUSY_TIME, state.busy_seconds);
    report.push(node, LAST_CODE, f64::from(state.last_code));
    if let Some(last) = state.last_run {
        report.push(node, LAST_RUN, last as f64);
        report.push(node, DURATION, state.last_seconds);
    }
    for (measurement, ratio) in &state.last {
        // The driver's copy within a GPU is only a reference.
        let name = match (measurement.collective.as_str(), measurement.tool.as_str()) {
            ("copy", "driver") => "driver_copy".to_owned(),
            (name, "nccl") => format!("nccl_{name}"),
            (name, _) => name.to_owned(),
        };
        let device = report.ensure_device(Device::new_probe(&name, &measurement.between));
        let (ranks, bytes) = (measurement.ranks.to_string(), measurement.bytes.to_string());
        let labels = [
            ("tool", measurement.tool.as_str()),
            ("path", measurement.way.as_str()),
            ("ranks", &ranks),
            ("bytes", &bytes),
            ("type", measurement.element.as_str()),
        ];
        report.add_info(device, INFO, &labels);
        report.push(device, ALGORITHM_BANDWIDTH, measurement.algbw);
        report.push(device, WRONG, measurement.wrong as f64);
        if let Some(busbw) = measurement.busbw.filter(|_| !measurement.virtual_ranks) {
            report.push(device, BUS_BANDWIDTH, busbw);
        }
        if let Some(ratio) = ratio {
            report.push(device, BASELINE_RATIO, *ratio);
        }
        if let Some(ratio) = measurement.share_of_reference() {
            report.push(device, REFERENCE_RATIO, ratio);
        }
    }
    let mut page = String::new();
    text::write_text(&report, &mut page);
    page
}

/// Creates the folder if necessary, and locks it.
fn lock_folder(folder: &Path) -> Result<File, ProbeExit> {
    let folder_error = |error: io::Error| {
        let folder = folder.display();
        ProbeExit::new(
            ExitKind::Failed,
            format!("cannot use {folder}: {error}; set another folder with --state"),
        )
    };
    fs::create_dir_all(folder).map_err(folder_error)?;
    let file = File::create(folder.join("lock")).map_err(folder_error)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(baselines::folder_in_use(folder)),
        Err(TryLockError::Error(error)) => Err(folder_error(error)),
    }
}

pub(crate) fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_secs())
}
