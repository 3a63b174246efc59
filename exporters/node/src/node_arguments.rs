//! The command line of gaunt-node.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

use crate::{
    ReadingSource,
    setting_values::{CompatExporter, parse_compat, parse_period},
};

/// Exit codes, for the help.
const EXIT_CODES: &str = "Exit codes: 0 done, 1 doctor: a check misses something, 3 wrong command line, invalid settings, or cannot start";

/// Exports metrics of the GPUs, RDMA ports, network devices and pressure (PSI) of this node to gaunt and Prometheus.
#[derive(Debug, Parser)]
#[command(name = "gaunt-node", version = gaunt_schema::VERSION, after_help = EXIT_CODES)]
pub struct NodeArguments {
    /// The command; by default the exporter runs.
    #[command(subcommand)]
    pub command: Option<NodeCommand>,
    /// Settings file; flags override it. Reloaded on SIGHUP
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Listen address of the metrics page [default: 127.0.0.1:9770]
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub listen: Option<SocketAddr>,
    /// Web configuration with TLS and users, in the format of exporter-toolkit [default: none]
    #[arg(long, value_name = "FILE")]
    pub web_config: Option<PathBuf>,
    /// Sampling interval, 100ms to 60s [default: 1s]
    #[arg(long, value_name = "TIME", value_parser = parse_period)]
    pub period: Option<Duration>,
    /// Also export metrics under the names of these exporters: dcgm (dcgm-exporter before 4.9), dcgm=4.9, node
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = parse_compat)]
    pub compat: Option<Vec<CompatExporter>>,
    /// Mount point of sysfs [default: /sys]
    #[arg(long, value_name = "FOLDER")]
    pub sys_root: Option<PathBuf>,
    /// Mount point of procfs [default: /proc]
    #[arg(long, value_name = "FOLDER")]
    pub proc_root: Option<PathBuf>,
    /// NVML library to load [default: libnvidia-ml.so.1]
    #[arg(long, value_name = "PATH")]
    pub nvml_library: Option<PathBuf>,
    /// Name of this node [default: the host name]
    #[arg(long, value_name = "NAME")]
    pub node: Option<String>,
    /// Accepted name in the Host header, besides addresses, localhost and the names of this host. Other names are
    /// rejected to prevent DNS rebinding by web pages
    #[arg(long, value_name = "HOST")]
    pub name: Option<Vec<String>>,
    /// RDMA or network device that is not read; * matches any text
    #[arg(long, value_name = "NAME")]
    pub exclude: Option<Vec<String>>,
    /// Collectors to disable, as named in gaunt_collector_success, or parts of nvml: gpm, fast-sampling, xid,
    /// kernel_log, imex, processes
    #[arg(long, alias = "without", value_name = "NAMES", value_delimiter = ',')]
    pub disable: Option<Vec<ReadingSource>>,
    /// Folder with *.prom files to export unchanged
    #[arg(long, value_name = "FOLDER")]
    pub textfiles: Option<PathBuf>,
    /// Print the page after one full sampling interval, and exit
    #[arg(long)]
    pub once: bool,
}

/// Commands beside the exporter itself.
#[derive(Debug, Subcommand)]
pub enum NodeCommand {
    /// Check what this node lacks: driver, kernel modules, permissions, counters, PSI, kubelet, address; each with the
    /// next step. Run it as the user of the service
    Doctor(NodeDoctorArguments),
    /// Check the settings of --config and the flags before the command, without starting
    CheckConfig,
    /// Print the completions of a shell
    Completions {
        /// The shell. Packages install the completions of bash, zsh and fish
        shell: Shell,
    },
    /// Print the manual page
    Man,
}

/// Options of `doctor`.
#[derive(Args, Clone, Copy, Debug)]
pub struct NodeDoctorArguments {
    /// Output format
    #[arg(long, value_enum, default_value_t = NodeDoctorFormat::Text)]
    pub format: NodeDoctorFormat,
}

/// Output format of `doctor`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum NodeDoctorFormat {
    /// A line for each check.
    Text,
    /// One JSON array of checks.
    Json,
}
