//! Options of `gaunt certs`.

use std::path::PathBuf;

use clap::Args;

/// Options of `certs`.
#[derive(Args, Clone, Debug)]
pub struct CertsArguments {
    /// Folder of the CA, certificates and keys; the CA in it is used again.
    #[arg(long = "to", value_name = "FOLDER")]
    pub folder: PathBuf,
    /// Host list of servers, such as gpu[001-064]; one certificate for each host.
    #[arg(long = "server", value_name = "HOSTS")]
    pub servers: Vec<String>,
    /// Another name or address in each server's certificate.
    #[arg(long = "name", value_name = "NAME")]
    pub names: Vec<String>,
    /// Client that identifies itself by a certificate, such as the aggregator.
    #[arg(long = "client", value_name = "NAME")]
    pub clients: Vec<String>,
    /// Validity in days; renew certificates before it ends.
    #[arg(long, value_name = "DAYS", default_value_t = 365, value_parser = clap::value_parser!(u32).range(1..=3650))]
    pub days: u32,
    /// Replace existing certificates and keys, with the same CA.
    #[arg(long)]
    pub renew: bool,
}
