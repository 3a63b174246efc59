//! `gaunt explain --flight-recorder`: names the rank for which a job waits, from the dumps that PyTorch's flight
//! recorder writes when a collective times out.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use super::{AggregatorAddress, FAILED, snapshot_command};

mod data_arena;
mod dump_folder;
mod lag_report;
mod lagging_ranks;
mod pickle_reader;
mod rank_dump;
mod rank_owners;

use dump_folder::DumpFolder;
use lag_report::LagReport;
use lagging_ranks::{GroupTable, LagAnalysis};

/// Where the dumps are, and how the result is printed.
#[derive(Debug)]
pub struct FlightRecorderOptions {
    /// Folder with one dump a rank.
    pub folder: PathBuf,
    /// Aggregator that knows the GPUs of the ranks, if the user named one.
    pub aggregator: Option<AggregatorAddress>,
    /// The job whose ranks they are.
    pub job: Option<String>,
    /// Print one JSON object instead of text.
    pub json: bool,
}

/// Reads the dumps and prints the ranks for which others wait. The exit code tells whether all dumps could be read.
pub async fn run(options: FlightRecorderOptions) -> anyhow::Result<ExitCode> {
    let (mut report, analysis) = read_folder(&options.folder)?;
    report.add_lagging(analysis);
    if let Some(address) = &options.aggregator {
        let ranks: Vec<u32> = report.lagging.iter().map(|line| line.lag.rank).collect();
        // Without the aggregator the rank is still known.
        match rank_owners::find_owners(address, options.job.as_deref(), &ranks).await {
            Ok(owners) => report.add_owners(&owners),
            Err(error) => report.add_problem(&format!("GPUs of the ranks are unknown: {error}")),
        }
    }
    let page = if options.json {
        serde_json::to_string(&report)? + "\n"
    } else {
        lag_report::render_text(&report, options.aggregator.is_some())
    };
    snapshot_command::print_page(&page)?;
    let is_complete = report.problems.is_empty();
    Ok(if is_complete { ExitCode::SUCCESS } else { ExitCode::from(FAILED) })
}

/// Reads all dumps, one after the other.
fn read_folder(path: &Path) -> anyhow::Result<(LagReport, LagAnalysis)> {
    let folder = DumpFolder::list_files(path)?;
    let mut report = LagReport::new(path);
    let mut groups = GroupTable::default();
    for (rank, file) in &folder.files {
        let dump = dump_folder::read_file(&file.path)
            .map_err(|error| gaunt_schema::plain_error::io(&error))
            .and_then(|bytes| rank_dump::parse_dump(&bytes).map_err(|error| error.to_string()));
        match dump {
            Ok(dump) => {
                report.add_dump(*rank, file.host.clone(), &dump);
                groups.add_dump(*rank, dump);
            }
            Err(fault) => {
                report.add_problem(&format!("{}: {fault}", file.path.display()));
            }
        }
    }
    for older in &folder.older {
        let text = format!(
            "{}: older than another dump of its rank, not read; keep the dumps of one job in a folder",
            older.display()
        );
        report.add_problem(&text);
    }
    if report.dumps == 0 {
        let first = report.problems.first();
        let detail = first.map(|problem| format!("; first: {problem}")).unwrap_or_default();
        anyhow::bail!(
            "{} has no readable dump of PyTorch's flight recorder{detail}; name a folder with the files \
             that PyTorch wrote, such as nccl_trace_rank_0 (TORCH_FR_DUMP_TEMP_FILE)",
            path.display()
        );
    }
    let analysis = groups.find_lagging();
    Ok((report, analysis))
}
