//! `gaunt`: opens the console on a view, or prints one snapshot where there is no terminal.

use std::{
    io::{self, IsTerminal as _},
    path::PathBuf,
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use super::{ViewSource, ack_command, snapshot_command};
use crate::answer_source::AnswerSource;
use gaunt_console::{ConsoleOptions, ContextConnection};

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

/// Opens the aggregators of the user's file, each with its own token, verified with these CA certificates.
pub fn connect_contexts(ca_file: Option<PathBuf>) -> ContextConnection {
    ContextConnection::new(move |context| {
        let open = || -> anyhow::Result<AnswerSource> {
            let token = match &context.token_file {
                Some(file) => ack_command::read_token(Some(file.clone()))?,
                None => None,
            };
            let source =
                AnswerSource::open_address(&context.aggregator, ca_file.as_deref(), token, None)?;
            Ok(source.with_streams())
        };
        let source = open().map_err(|error| format!("{error:#}"))?;
        Ok(Arc::new(source))
    })
}
