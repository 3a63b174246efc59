//! Options of `gaunt support-bundle`.

use std::{path::PathBuf, time::Duration};

use clap::Args;

use super::{ViewArguments, parse_span};

/// Options of `support-bundle`.
#[derive(Args, Clone, Debug)]
pub struct BundleArguments {
    /// Data source.
    #[command(flatten)]
    pub view: ViewArguments,
    /// Archive to write, such as gaunt.tar.gz; it must not exist.
    #[arg(long = "to", value_name = "FILE")]
    pub file: PathBuf,
    /// Settings file of gaunt or gaunt-node to add, without its secrets and comments, such as /etc/gaunt/gaunt.toml.
    #[arg(long = "add", value_name = "FILE")]
    pub settings: Vec<PathBuf>,
    /// Sampling time before the answers, at least three periods (ignored with an aggregator).
    #[arg(long, value_name = "DURATION", default_value = "8s", value_parser = parse_span)]
    pub watch: Duration,
}
