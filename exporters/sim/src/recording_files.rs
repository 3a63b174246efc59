//! Recordings of a run as files: pages as `DIR/<target>/<unix_ms>.prom`, with topology and ground truth.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context;
use gaunt_schema::{Dialect, Entity, FindingKind, UnixMs};
use gaunt_sim::{GroundTruth, SimFleet};
use serde::Serialize;

/// One actual fault of a recording, an object of `truth.json`.
#[derive(Debug, Serialize)]
struct TruthRecord<'a> {
    kind: FindingKind,
    entity: &'a Entity,
    also: &'a [Entity],
    kinds: &'a [FindingKind],
    onset_unix_ms: i64,
    ends_unix_ms: Option<i64>,
    limit_seconds: f64,
    victims: &'a [Entity],
}

/// Simulates `span` in virtual time and writes the page of every target once a period.
pub(crate) fn write_pages(
    fleet: &mut SimFleet,
    folder: &Path,
    period: Duration,
    span: Duration,
) -> anyhow::Result<u64> {
    let until = fleet.current_time() + span;
    let mut written = 0;
    while fleet.current_time() < until {
        fleet.advance_to(fleet.current_time() + period);
        for node in 0..fleet.node_count() {
            for (dialect, page) in fleet.scraped_pages(node) {
                let target = target_folder(folder, fleet.node_name(node), dialect);
                if written < 2 * fleet.node_count() as u64 || !target.exists() {
                    fs::create_dir_all(&target)
                        .with_context(|| format!("cannot create {}", target.display()))?;
                }
                let file = target.join(format!("{}.prom", fleet.current_time().0));
                fs::write(&file, page)
                    .with_context(|| format!("cannot write {}", file.display()))?;
                written += 1;
            }
        }
    }
    Ok(written)
}

/// Writes `DIR/truth.json`.
pub(crate) fn write_truth(fleet: &SimFleet, folder: &Path) -> anyhow::Result<()> {
    let file = folder.join("truth.json");
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    fs::write(&file, render_truth(fleet)?)
        .with_context(|| format!("cannot write {}", file.display()))
}

/// Writes `DIR/topology.toml`: the topology that foreign exporters do not report.
pub(crate) fn write_topology(text: &str, folder: &Path) -> anyhow::Result<()> {
    let file = folder.join("topology.toml");
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))
}

/// The ground truth of a run as JSON.
pub(crate) fn render_truth(fleet: &SimFleet) -> anyhow::Result<String> {
    let lines: Vec<_> = fleet.ground_truths().iter().map(truth_record).collect();
    Ok(serde_json::to_string_pretty(&lines)? + "\n")
}

fn truth_record(truth: &GroundTruth) -> TruthRecord<'_> {
    let ms = |time: UnixMs| time.0;
    TruthRecord {
        kind: truth.kind,
        entity: &truth.blamed,
        also: &truth.also,
        kinds: &truth.kinds,
        onset_unix_ms: ms(truth.onset),
        ends_unix_ms: truth.ends.map(ms),
        limit_seconds: truth.limit.as_secs_f64(),
        victims: &truth.victims,
    }
}

/// The folder of a target: the node's name, and the exporter if the node has two.
fn target_folder(folder: &Path, node: &str, dialect: Dialect) -> PathBuf {
    folder.join(match dialect {
        Dialect::Gaunt | Dialect::Unknown => node.to_owned(),
        other => format!("{node}.{}", other.as_str()),
    })
}
