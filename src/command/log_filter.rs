//! Logging: to standard error, or nowhere while the console covers it.

use std::io::{self, IsTerminal as _};

use tracing_subscriber::EnvFilter;

/// Logs to standard error, or nowhere while the console covers it.
pub fn init_logging(
    filter: Option<&str>,
    default_filter: &str,
    on_screen: bool,
) -> anyhow::Result<()> {
    let configured = filter.map(str::to_owned).or_else(|| std::env::var("RUST_LOG").ok());
    let filter = configured.as_deref().unwrap_or(default_filter);
    let filter = EnvFilter::try_new(filter).map_err(|_| {
        anyhow::anyhow!(
            "{filter:?} is not a log filter; write a level such as debug, or MODULE=LEVEL such as \
             gaunt_scrape=trace, separated by commas (--log, or RUST_LOG)"
        )
    })?;
    if on_screen && io::stderr().is_terminal() {
        return Ok(());
    }
    let colour = io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let result = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(colour)
        .try_init();
    result.map_err(|error| anyhow::anyhow!("cannot start logging: {error}"))
}
