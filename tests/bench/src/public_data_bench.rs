//! Bench `public-data`: what the judge makes of public traces of real GPU clusters; PUBLIC_DATA.md says which, and how to
//! fetch them.

use std::{
    io::Write,
    path::{Path, PathBuf},
};

use anyhow::ensure;
use gaunt::command::judge_command::FindingEpisode;
use gaunt_schema::{Severity, UnixMs};
use serde_json::json;

mod batch_times;
mod csv_rows;
mod healthy_step;
mod modelled_gpu;
mod operation_trace;
mod page_player;
mod run_figures;
mod serving_pods;
mod straggler_score;
mod trace_pages;
mod traced_job;

use batch_times::BatchTimes;
use page_player::{PublicPages, PublicRun, play_public_pages};
use run_figures::RunFigures;
use serving_pods::ServingPods;
use straggler_score::{KnownStraggler, StragglerScore};
use traced_job::{TRACED_JOBS, TracedJob};

use crate::judge_bench::round_figure;

/// Where Alibaba's tables are in the repository.
const SERVING_PODS_FOLDER: &str = "cluster-trace-v2026-GenAI";
const BATCH_TIMES_FOLDER: &str = "cluster-trace-gpu-v2020/mini-batch-time/data";

/// Jobs with mini-batch times, by number.
const BATCH_TIME_JOBS: std::ops::RangeInclusive<u32> = 1..=4;

/// Where ByteDance's traces are in the repository.
const TRACES_FOLDER: &str = "data";

/// Folders of the data sets.
#[derive(clap::Args, Debug)]
pub(crate) struct PublicDataOptions {
    /// Clone of alibaba/clusterdata for `public-data`.
    #[arg(long, value_name = "DIR")]
    alibaba: Option<PathBuf>,
    /// Clone of ByteDance-Seed/StragglerAnalysis for `public-data`.
    #[arg(long, value_name = "DIR")]
    bytedance: Option<PathBuf>,
}

/// The figures of one data set, with its score if slow workers of it are known.
struct SetResult {
    figures: RunFigures,
    score: Option<StragglerScore>,
    /// Mean length of a step in seconds, where steps are known.
    step_s: Option<f64>,
}

/// Plays the data sets, and prints the tables and the JSON line.
pub(crate) fn run(
    options: &PublicDataOptions,
    explain: bool,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let mut results = Vec::new();
    let mut write_run = |name: &str, stragglers: &[KnownStraggler], run: &PublicRun| {
        if explain { write_episodes(out, name, stragglers, &run.episodes) } else { Ok(()) }
    };
    if let Some(folder) = &options.alibaba {
        results.extend(play_pods(&folder.join(SERVING_PODS_FOLDER), &mut write_run)?);
        for job in BATCH_TIME_JOBS {
            results.push(play_batches(&folder.join(BATCH_TIMES_FOLDER), job, &mut write_run)?);
        }
    }
    if let Some(folder) = &options.bytedance {
        for job in &TRACED_JOBS {
            results.extend(play_trace(&folder.join(TRACES_FOLDER), job, &mut write_run)?);
        }
    }
    ensure!(!results.is_empty(), "no data set is named: see tests/bench/PUBLIC_DATA.md");
    RunFigures::write_heading(out)?;
    for result in &results {
        result.figures.write_row(out)?;
    }
    writeln!(out)?;
    StragglerScore::write_heading(out)?;
    for SetResult { figures, score, .. } in &results {
        if let Some(score) = score {
            score.write_row(out, &figures.name)?;
        }
    }
    let sets = results.iter().map(|SetResult { figures, score, step_s }| {
        let mut set = figures.to_json();
        set["step_s"] = json!(round_figure(*step_s));
        set["stragglers"] = json!(score.map(StragglerScore::to_json));
        set
    });
    writeln!(out, "{}", json!({ "bench": "public-data", "sets": sets.collect::<Vec<_>>() }))?;
    Ok(())
}

/// Takes note of a run: its name, and the slow workers that are known.
type RunWriter<'a> = dyn FnMut(&str, &[KnownStraggler], &PublicRun) -> std::io::Result<()> + 'a;

/// Plays the pods as they are, and with a power.
fn play_pods(folder: &Path, write_run: &mut RunWriter<'_>) -> anyhow::Result<[SetResult; 2]> {
    let mut pods = ServingPods::read_folder(folder)?;
    let mut play = |name: &str, pods: &mut ServingPods| -> anyhow::Result<SetResult> {
        let run = play_public_pages(pods);
        write_run(name, &[], &run)?;
        let figures = RunFigures::of(name, pods.rows, pods.gpu_days(), pods, &run);
        Ok(SetResult { figures, score: None, step_s: None })
    };
    let as_is = play("alibaba image serving", &mut pods)?;
    let with_power = play("alibaba serving, power", &mut pods.with_power())?;
    Ok([as_is, with_power])
}

fn play_batches(
    folder: &Path,
    job: u32,
    write_run: &mut RunWriter<'_>,
) -> anyhow::Result<SetResult> {
    let name = format!("alibaba mini-batches {job}");
    let path = folder.join(format!("job_{job}_norm.csv"));
    let mut times = BatchTimes::read_file(&path, &format!("job{job}"))?;
    let run = play_public_pages(&mut times);
    let stragglers = times.list_stragglers();
    write_run(&name, &stragglers, &run)?;
    let gpu_days = days_of(&times) * times.worker_count() as f64;
    let score = StragglerScore::of(&stragglers, &run.episodes);
    let figures = RunFigures::of(&name, times.rows, gpu_days, &times, &run);
    Ok(SetResult { figures, score: Some(score), step_s: None })
}

/// Plays a traced job in all its variants.
fn play_trace(
    folder: &Path,
    job: &TracedJob,
    write_run: &mut RunWriter<'_>,
) -> anyhow::Result<Vec<SetResult>> {
    let trace = job.read_trace(folder)?;
    let mut results = Vec::new();
    for mut played in job.list_variants(&trace) {
        let run = play_public_pages(&mut played.pages);
        write_run(&played.name, &played.stragglers, &run)?;
        let gpu_days = days_of(&played.pages) * played.pages.gpu_count() as f64;
        let figures = RunFigures::of(&played.name, trace.rows, gpu_days, &played.pages, &run);
        let score = StragglerScore::of(&played.stragglers, &run.episodes);
        let step_s = Some(played.step_s);
        results.push(SetResult { figures, score: Some(score), step_s });
    }
    Ok(results)
}

/// Days from the first to the last page.
fn days_of(pages: &dyn PublicPages) -> f64 {
    let (from, until) = pages.time_span();
    until.duration_since(from).as_secs_f64() / 86_400.0
}

/// Writes the known stragglers of a run, and each finding with its severity and summary.
fn write_episodes(
    out: &mut dyn Write,
    name: &str,
    stragglers: &[KnownStraggler],
    episodes: &[FindingEpisode],
) -> std::io::Result<()> {
    writeln!(out, "{name}")?;
    for straggler in stragglers {
        straggler.write_line(out)?;
    }
    for FindingEpisode { opened, closed, worst, finding, .. } in episodes {
        let until = closed.map_or("the end".to_owned(), UnixMs::to_time_of_day);
        let (from, severity) = (opened.to_time_of_day(), worst.as_str());
        writeln!(out, "    {from} to {until} {severity} {} {}", finding.id, finding.summary)?;
        for item in finding.evidence.iter().filter(|_| *worst > Severity::Info) {
            let number = |value: Option<f64>| value.map_or("-".to_owned(), |it| format!("{it:.3}"));
            let (value, limit) = (number(item.value), number(item.limit));
            writeln!(out, "        {} {value}, limit {limit} {}", item.what, item.note)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A pod for ten minutes, and four jobs of three workers for five.
    fn write_alibaba(folder: &Path) {
        let (pods, jobs) = (folder.join(SERVING_PODS_FOLDER), folder.join(BATCH_TIMES_FOLDER));
        fs::create_dir_all(&pods).unwrap();
        fs::create_dir_all(&jobs).unwrap();
        let minutes = (0..10).map(|minute| {
            let second = 1_662_858_720 + minute * 60;
            format!("{},{second}.0,0123456789abcdef0123456789abcdef\n", 30 + minute)
        });
        let rows = format!("value,timestamp_anon,container_ip\n{}", minutes.collect::<String>());
        for table in ["pod_gpu_duty_cycle_anon.csv", "pod_gpu_memory_used_bytes_anon.csv"] {
            fs::write(pods.join(table), &rows).unwrap();
        }
        let batches = (1..300).step_by(10).flat_map(|second| {
            let row =
                move |worker| format!("0,{worker},25,{second},{}\n", 400 + second % 7 + worker);
            (0..3).map(row)
        });
        let rows = format!(",worker,gpu,time,batch_time_norm\n{}", batches.collect::<String>());
        for job in BATCH_TIME_JOBS {
            fs::write(jobs.join(format!("job_{job}_norm.csv")), &rows).unwrap();
        }
    }

    #[test]
    fn data_sets_of_one_repository_become_a_table_and_a_json_line() {
        let folder = tempfile::tempdir().unwrap();
        write_alibaba(folder.path());
        let alibaba = Some(folder.path().to_owned());
        let mut out = Vec::new();
        run(&PublicDataOptions { alibaba, bytedance: None }, true, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let line: serde_json::Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
        let sets = line["sets"].as_array().unwrap();
        let names: Vec<_> = sets.iter().map(|set| set["name"].as_str().unwrap()).collect();
        assert_eq!(
            names[..3],
            ["alibaba image serving", "alibaba serving, power", "alibaba mini-batches 1"]
        );
        assert_eq!((names.len(), &sets[0]["rows"], &sets[2]["rows"]), (6, &json!(20), &json!(90)));
        assert_eq!(sets[5]["stragglers"]["known"], 0);
        assert!(sets.iter().all(|set| set["lines_rejected"] == 0 && set["paged"] == 0), "{text}");
    }

    #[test]
    fn run_without_a_folder_says_where_the_data_are() {
        let options = PublicDataOptions { alibaba: None, bytedance: None };
        let error = run(&options, false, &mut Vec::new()).unwrap_err().to_string();
        assert!(error.ends_with("see tests/bench/PUBLIC_DATA.md"), "{error}");
    }
}
