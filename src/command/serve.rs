//! `gaunt serve`: the aggregator, until it is told to stop.

use std::{net::SocketAddr, process::ExitCode, sync::Arc};

use tokio::{
    signal::unix::{SignalKind, signal},
    sync::watch,
};

use super::{Feeding, Scraping};
use crate::{alert, serve::Server, source::Source};

/// Reads the settings again: what is to be gathered from now on.
pub type Reload = Box<dyn Fn() -> anyhow::Result<Scraping>>;

/// Scrapes, judges and answers until SIGTERM or SIGINT. SIGHUP reads targets and settings again.
pub async fn run(
    mut scraping: Scraping,
    listen: SocketAddr,
    names: &[String],
    reload: Reload,
) -> anyhow::Result<ExitCode> {
    if scraping.plan.is_empty() {
        anyhow::bail!(
            "no targets; name them with --targets 'gpu[001-064]', --targets-file FILE, or gather.targets \
             in the settings"
        );
    }
    super::outlive_file_limits()?;
    // The port first: who cannot answer need not disturb the targets.
    let server = Server::bind(listen).await?.known_as(names);
    let (mut terminate, mut interrupt, mut hang_up) = (
        signal(SignalKind::terminate())?,
        signal(SignalKind::interrupt())?,
        signal(SignalKind::hangup())?,
    );
    scraping.plan.check()?;
    let (sources, period) = (scraping.plan.sources(), scraping.plan.options.period);
    let alerting = scraping.alerting.take();
    alerting.as_ref().map(alert::check).transpose()?;
    let (say, said) = watch::channel(std::sync::Arc::default());
    scraping.owner.alerts = Some(said);
    let (owner, feeding) = scraping.start().await?;
    let source = Source::Owner(owner);
    let alerting =
        alerting.map(|options| alert::start(&options, source.clone(), say)).transpose()?;
    let follow = feeding.follow.clone();
    let server = server.passing_on(Arc::new(move || follow.start()));
    tracing::info!(address = %server.address()?, sources, ?period, "serving");
    let stop = async {
        loop {
            tokio::select! {
                _ = terminate.recv() => break,
                _ = interrupt.recv() => break,
                _ = hang_up.recv() => take_up(&feeding, &reload).await,
            }
        }
        tracing::info!("stopping");
    };
    server.run(source, stop).await;
    drop((alerting, feeding));
    Ok(ExitCode::SUCCESS)
}

/// Takes up what the settings say now; what cannot be read changes nothing.
async fn take_up(feeding: &Feeding, reload: &Reload) {
    let scraping = reload().and_then(|scraping| {
        scraping.plan.check()?;
        anyhow::ensure!(!scraping.plan.is_empty(), "they name no targets");
        Ok(scraping)
    });
    match scraping {
        Ok(scraping) => {
            feeding.gatherer.reload(scraping.plan).await;
            feeding.watch.reload(scraping.site).await;
            tracing::info!("settings and targets are read again");
        }
        Err(error) => {
            tracing::error!("the settings cannot be taken up, the old ones stand: {error:#}");
        }
    }
}
