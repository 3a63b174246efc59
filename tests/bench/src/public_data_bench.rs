//! Bench `public-data`: what the judge makes of public traces of real GPU clusters; PUBLIC_DATA.md says which, and how to
//! fetch them.

use std::{io::Write, path::PathBuf};

use anyhow::ensure;
use serde_json::json;

mod csv_rows;
mod page_player;
mod run_figures;
mod serving_pods;

use page_player::{PublicPages, play_public_pages};
use run_figures::RunFigures;
use serving_pods::ServingPods;

/// Where the pods are in Alibaba's repository.
const SERVING_PODS_FOLDER: &str = "cluster-trace-v2026-GenAI";

/// Folders of the data sets.
#[derive(clap::Args, Debug)]
pub(crate) struct PublicDataOptions {
    /// Clone of alibaba/clusterdata for `public-data`.
    #[arg(long, value_name = "DIR")]
    alibaba: Option<PathBuf>,
}

/// Plays the data sets, and prints the tables and the JSON line.
pub(crate) fn run(
    options: &PublicDataOptions,
    explain: bool,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let mut sets = Vec::new();
    if let Some(folder) = &options.alibaba {
        let mut pods = ServingPods::read_folder(&folder.join(SERVING_PODS_FOLDER))?;
        let (rows, gpu_days) = (pods.rows, pods.gpu_days());
        let period_s = pods.scrape_period().as_secs_f64();
        let run = play_public_pages(&mut pods);
        if explain {
            write_episodes(out, &run.episodes)?;
        }
        sets.push(RunFigures::of("alibaba image serving", rows, gpu_days, period_s, &run));
    }
    ensure!(!sets.is_empty(), "no data set is named: see tests/bench/PUBLIC_DATA.md");
    RunFigures::write_heading(out)?;
    for figures in &sets {
        figures.write_row(out)?;
    }
    let sets: Vec<_> = sets.iter().map(RunFigures::to_json).collect();
    writeln!(out, "{}", json!({ "bench": "public-data", "sets": sets }))?;
    Ok(())
}

/// Writes each finding with its severity and summary.
fn write_episodes(
    out: &mut dyn Write,
    episodes: &[gaunt::command::judge_command::FindingEpisode],
) -> std::io::Result<()> {
    for episode in episodes {
        writeln!(
            out,
            "    {} {} {} {}",
            episode.opened.to_time_of_day(),
            episode.worst.as_str(),
            episode.finding.id,
            episode.finding.summary
        )?;
    }
    Ok(())
}
