//! Options of the commands that serve the installation.

use std::path::PathBuf;

use clap::Args;
use clap_complete::Shell;

/// Exit codes of `check-config`, for its help.
const CHECK_HELP: &str = "Exit codes: 0 no error, 1 a file has an error, 3 wrong command line";

/// Options of `completions`.
#[derive(Args, Clone, Copy, Debug)]
pub struct CompletionArguments {
    /// The shell. Packages install the completions of bash, zsh and fish.
    pub shell: Shell,
}

/// Options of `man`.
#[derive(Args, Clone, Debug)]
pub struct ManArguments {
    /// Write gaunt.1 and one page for each command, such as gaunt-serve.1, to this folder instead.
    #[arg(long, value_name = "FOLDER")]
    pub to: Option<PathBuf>,
}

/// Options of `check-config`.
#[derive(Args, Clone, Debug)]
#[command(after_help = CHECK_HELP)]
#[group(required = true, multiple = true)]
pub struct CheckArguments {
    /// Settings of gaunt, such as /etc/gaunt/gaunt.toml; the files that they name are checked too.
    #[arg(long, value_name = "FILE")]
    pub config: Vec<PathBuf>,
    /// Settings of gaunt-node, such as /etc/gaunt/node.toml.
    #[arg(long, value_name = "FILE")]
    pub node_config: Vec<PathBuf>,
    /// Topology in any supported format, besides the files that the settings name.
    #[arg(long, value_name = "FILE")]
    pub topology: Vec<PathBuf>,
    /// Prometheus rules, such as rules/*.yml: structure, brackets and quotes, and the names of gaunt's metrics in them.
    /// Check PromQL with `promtool check rules`.
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub rules: Vec<PathBuf>,
}
