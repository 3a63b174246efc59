//! `gaunt`: opens the console on a view, or prints one snapshot where there is no terminal.

use std::{
    io::{self, IsTerminal as _},
    process::ExitCode,
    time::Duration,
};

use super::{ViewSource, snapshot_command};
use gaunt_console::ConsoleOptions;

/// Whether standard output is a terminal.
pub fn has_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Runs the console until the user quits; without a terminal prints a snapshot after `watch`.
pub async fn run(
    view: ViewSource,
    options: ConsoleOptions,
    watch: Duration,
) -> anyhow::Result<ExitCode> {
    if !has_terminal() {
        let snapshot_options = snapshot_command::SnapshotOptions {
            question: None,
            form: snapshot_command::OutputFormat::Text,
            check: false,
            watch,
        };
        return Box::pin(snapshot_command::run(view, &snapshot_options)).await;
    }
    let open = view.resolve_default(false).await.open_view().await?;
    gaunt_console::run(open.source.clone().with_streams(), options).await?;
    Ok(ExitCode::SUCCESS)
}
