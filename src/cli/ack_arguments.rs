//! Options of `gaunt ack`.

use std::path::PathBuf;

use clap::Args;

/// Options of `ack`.
#[derive(Args, Clone, Debug)]
pub struct AckArguments {
    /// Finding id, or a part of it that is unique among open findings; of several clusters, ids begin with the cluster.
    pub finding: String,
    /// Note, such as the action taken, a deadline or a ticket.
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub note: String,
    /// Withdraw the acknowledgement.
    #[arg(long, conflicts_with = "note")]
    pub withdraw: bool,
    /// Make the present level the baseline of all that the finding names, and close it, because the job has changed.
    #[arg(long, conflicts_with = "withdraw")]
    pub accept: bool,
    /// User name; default: $USER.
    #[arg(long, value_name = "NAME")]
    pub by: Option<String>,
    /// Aggregator to query; overrides $GAUNT_AGGREGATOR. Several clusters: NAME=URL for each, repeated; the one that has
    /// the finding gets the action.
    #[arg(long, value_name = "URL")]
    pub aggregator: Vec<String>,
    /// CA certificates in PEM with which it is verified; default: $GAUNT_CA_FILE, else the system's.
    #[arg(long, value_name = "FILE")]
    pub ca_file: Option<PathBuf>,
    /// Settings file with the aggregator address.
    #[arg(long, value_name = "FILE", conflicts_with = "aggregator")]
    pub config: Option<PathBuf>,
    /// File with the aggregator's token; default: the token in GAUNT_TOKEN.
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
}
