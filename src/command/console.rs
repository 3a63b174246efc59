//! `gaunt`: the console on a view, or one plain snapshot where there is no terminal.

use std::{
    io::{self, IsTerminal as _},
    process::ExitCode,
    time::Duration,
};

use super::{View, snapshot};
use crate::console::{self, Options};

/// Whether there is a terminal to draw on.
pub fn has_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Opens the console until the user leaves it; without a terminal prints what a snapshot shows after `watch`.
pub async fn run(view: View, options: Options, watch: Duration) -> anyhow::Result<ExitCode> {
    if !has_terminal() {
        let wanted =
            snapshot::Wanted { one: None, form: snapshot::Form::Text, check: false, watch };
        return snapshot::run(view, &wanted).await;
    }
    let open = view.chosen(false).await.open().await?;
    console::run(open.source.clone().following(), options).await?;
    Ok(ExitCode::SUCCESS)
}
