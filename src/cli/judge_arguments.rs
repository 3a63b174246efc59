//! Arguments of `judge`.

use std::{path::PathBuf, time::Duration};

use clap::{ArgGroup, Args};

use super::{FormatArgument, PastSpanArguments, PrometheusArguments, parse_span};

/// Options of `judge`.
#[derive(Args, Clone, Debug)]
#[command(group = ArgGroup::new("judged").args(["from", "prometheus"]).required(true))]
pub struct JudgeArguments {
    /// Recording of `gaunt record` or of an aggregator, or pages of any supported exporter as
    /// FOLDER/TARGET/UNIX_MS.prom, where an empty file is a failed scrape.
    #[arg(long, value_name = "FOLDER")]
    pub from: Option<PathBuf>,
    /// A Prometheus whose past is judged.
    #[command(flatten)]
    pub server: PrometheusArguments,
    /// The span that is judged.
    #[command(flatten)]
    pub past: PastSpanArguments,
    /// Output format.
    #[arg(long, value_enum, default_value_t = FormatArgument::Text)]
    pub format: FormatArgument,
    /// Topology: Slurm's topology.conf or topology.yaml, the output of ibnetdiscover, LLDP neighbours, or gaunt's own
    /// TOML.
    #[arg(long, value_name = "FILE")]
    pub topology: Vec<PathBuf>,
    /// Running jobs: output of `squeue --json`.
    #[arg(long, value_name = "FILE")]
    pub jobs: Vec<PathBuf>,
    /// Scrape interval of a target; default: the interval of the recording or of the file names.
    #[arg(long, value_name = "DURATION", value_parser = parse_span)]
    pub period: Option<Duration>,
    /// Settings file with the detector limits; config/gaunt.toml is a complete sample.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}
