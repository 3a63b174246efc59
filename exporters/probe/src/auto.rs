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
pub fn run(folder: &Path, orders: &[MeasureRequest], budget: &ProbeBudget) -> MeasureResult {
    match run_locked(folder, orders, budget) {
        Ok(answer) => answer,
        Err(ending) => MeasureResult::from_exit(ending),
    }
}

fn run_locked(
    folder: &Path,
    orders: &[MeasureRequest],
    budget: &ProbeBudget,
) -> Result<MeasureResult, ProbeExit> {
    let _lock = lock_folder(folder)?;
    let path = baselines::state_path(folder);
    let mut past = ProbeState::load_state(&path)?;
    let answer = if let Err(ending) = past.check_due(unix_seconds(), budget) {
        past.record_skip(&ending);
        MeasureResult::from_exit(ending)
    } else {
        let mut answer = run_requests(orders);
        answer.ending = past.record_result(unix_seconds(), &answer);
        answer
    };
    past.save_state(&path)?;
    let page = folder.join(PAGE);
    baselines::replace_file(&page, &render_page(&past)).map_err(|error| {
        ProbeExit::new(ExitKind::Failed, format!("cannot write {}: {error}", page.display()))
    })?;
    Ok(answer)
}

/// The combined result of all requests.
fn run_requests(orders: &[MeasureRequest]) -> MeasureResult {
    let mut sum = MeasureResult::from_exit(ProbeExit::new_measured());
    for order in orders {
        let answer = run_supervised(order);
        sum.ending = answer.ending;
        sum.model = answer.model.or(sum.model);
        sum.measured.extend(answer.measured);
        sum.notes.extend(answer.notes);
        sum.cost.seconds += answer.cost.seconds;
        sum.cost.contexts_seconds += answer.cost.contexts_seconds;
        sum.cost.busy_seconds += answer.cost.busy_seconds;
        sum.cost.traffic_bytes += answer.cost.traffic_bytes;
        sum.cost.memory_bytes = sum.cost.memory_bytes.max(answer.cost.memory_bytes);
        if sum.ending.kind != ExitKind::Measured {
            break;
        }
    }
    sum
}

/// The page: the results of the last probe, and the cost of all probes.
fn render_page(past: &ProbeState) -> String {
    let mut report = Report::default();
    let node = report.ensure_device(Device::new_node());
    for (label, metric) in SKIPPED {
        let count = past.skipped.get(label).copied().unwrap_or(0);
        report.push(node, metric, count as f64);
    }
    report.push(node, RUNS, past.runs as f64);
    report.push(node, BUSY_TIME, past.busy_seconds);
    report.push(node, LAST_CODE, f64::from(past.last_code));
    if let Some(last) = past.last_run {
        report.push(node, LAST_RUN, last as f64);
        report.push(node, DURATION, past.last_seconds);
    }
    for (one, share) in &past.last {
        // The driver's copy within a GPU is only a reference.
        let name = match (one.collective.as_str(), one.tool.as_str()) {
            ("copy", "driver") => "driver_copy".to_owned(),
            (name, "nccl") => format!("nccl_{name}"),
            (name, _) => name.to_owned(),
        };
        let device = report.ensure_device(Device::new_probe(&name, &one.between));
        let (ranks, bytes) = (one.ranks.to_string(), one.bytes.to_string());
        let labels = [
            ("tool", one.tool.as_str()),
            ("path", one.way.as_str()),
            ("ranks", &ranks),
            ("bytes", &bytes),
            ("type", one.element.as_str()),
        ];
        report.add_info(device, INFO, &labels);
        report.push(device, ALGORITHM_BANDWIDTH, one.algbw);
        report.push(device, WRONG, one.wrong as f64);
        if let Some(busbw) = one.busbw.filter(|_| !one.virtual_ranks) {
            report.push(device, BUS_BANDWIDTH, busbw);
        }
        if let Some(share) = share {
            report.push(device, BASELINE_RATIO, *share);
        }
        if let Some(share) = one.share_of_reference() {
            report.push(device, REFERENCE_RATIO, share);
        }
    }
    let mut page = String::new();
    text::write_text(&report, &mut page);
    page
}

/// Creates the folder if necessary, and locks it.
fn lock_folder(folder: &Path) -> Result<File, ProbeExit> {
    let cannot = |error: io::Error| {
        let folder = folder.display();
        ProbeExit::new(
            ExitKind::Failed,
            format!("cannot use {folder}: {error}; set another folder with --state"),
        )
    };
    fs::create_dir_all(folder).map_err(cannot)?;
    let file = File::create(folder.join("lock")).map_err(cannot)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(baselines::folder_in_use(folder)),
        Err(TryLockError::Error(error)) => Err(cannot(error)),
    }
}

pub(crate) fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
