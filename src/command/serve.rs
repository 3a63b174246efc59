//! `gaunt serve`: the aggregator, until it is told to stop.

use std::{net::SocketAddr, process::ExitCode};

use tokio::signal::unix::{SignalKind, signal};

use super::Scraping;
use crate::{serve::Server, source::Source};

/// Scrapes, judges and answers until SIGTERM or SIGINT.
pub async fn run(
    scraping: Scraping,
    listen: SocketAddr,
    names: &[String],
) -> anyhow::Result<ExitCode> {
    if scraping.places.is_empty() {
        anyhow::bail!(
            "no targets; name them with --targets 'gpu[001-064]', --targets-file FILE, or gather.targets \
             in the settings"
        );
    }
    // The port first: who cannot answer need not disturb the targets.
    let server = Server::bind(listen).await?.known_as(names);
    let (mut terminate, mut interrupt) =
        (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let (targets, period) = (scraping.places.len(), scraping.gather.period);
    let (owner, gatherer) = scraping.start().await;
    tracing::info!(address = %server.address()?, targets, ?period, "serving");
    let stop = async {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("stopping");
    };
    server.run(Source::Owner(owner), stop).await;
    drop(gatherer);
    Ok(ExitCode::SUCCESS)
}
