//! `gaunt serve`: runs the aggregator until it is stopped.

use std::{net::SocketAddr, path::PathBuf, process::ExitCode, sync::Arc};

use tokio::{
    signal::unix::{SignalKind, signal},
    sync::watch,
};

use super::{
    EngineFeed, ScrapingSetup,
    persist_task::{self, PersistTask},
};
use crate::{
    alert::{self, AlertError, AlertingTasks},
    answer_source::AnswerSource,
    serve::AggregatorServer,
};
use gaunt_api::AlertList;
use gaunt_engine::Engine;

/// Listen address, access and persistence of the aggregator.
#[derive(Debug)]
pub struct ServeOptions {
    /// Listen address.
    pub listen: SocketAddr,
    /// Host names that are accepted in requests, in addition to its addresses.
    pub names: Vec<String>,
    /// Directory of the state that outlives a restart (findings, acknowledgements, counters), if set.
    pub state_folder: Option<PathBuf>,
    /// File of the token that permits acknowledging findings, if set.
    pub token_file: Option<PathBuf>,
}

/// Reloads the settings: what to scrape from now on.
pub type ReloadSettingsFn = Box<dyn Fn() -> anyhow::Result<ScrapingSetup>>;

/// Scrapes, judges and answers until SIGTERM or SIGINT. SIGHUP reloads targets and settings.
pub async fn run(
    mut scraping: ScrapingSetup,
    serving: ServeOptions,
    reload: ReloadSettingsFn,
) -> anyhow::Result<ExitCode> {
    if scraping.plan.is_empty() {
        anyhow::bail!(
            "no targets; name them with --targets 'gpu[001-064]', --targets-file FILE, or gather.targets \
             in the settings"
        );
    }
    super::catch_file_size_signal()?;
    // Bind the port first: a server that cannot bind must not disturb the targets.
    let mut server =
        AggregatorServer::bind_address(serving.listen).await?.with_host_names(&serving.names);
    if let Some(path) = &serving.token_file {
        server = server.with_token_file(path)?;
    }
    let kept = serving.state_folder.as_deref().map(persist_task::load_state).transpose()?;
    let (mut terminate, mut interrupt, mut hang_up) = (
        signal(SignalKind::terminate())?,
        signal(SignalKind::interrupt())?,
        signal(SignalKind::hangup())?,
    );
    scraping.plan.check_lists()?;
    let (sources, period) = (scraping.plan.source_count(), scraping.plan.options.period);
    let alerting = scraping.alerting.take();
    alerting.as_ref().map(alert::check_servers).transpose()?;
    let (say, said) = watch::channel(Arc::default());
    scraping.engine.alerts = Some(said);
    scraping.engine.says_usual = true;
    let options = scraping.engine.clone();
    let (memory, owner) = match kept {
        Some((memory, known)) => (Some(memory), Engine::from_persisted(options, known)),
        None => (None, Engine::new(options)),
    };
    let (mut owner, feeding) = scraping.feed_engine(owner).await?;
    let mut keeper = None;
    if let Some(memory) = memory {
        let (started, kept) = PersistTask::start_persisting(memory, &owner);
        (keeper, owner) = (Some(started), kept);
    }
    let source = AnswerSource::Engine(owner);
    let mut telling =
        AlertingControl { source: source.clone(), alerts_sender: say, running_alerting: None };
    telling.apply_options(alerting).await?;
    let (follow, now) = (feeding.follow.clone(), feeding.clock.clone());
    let server = server.with_recording(Arc::new(move || follow.start_following(now())));
    tracing::info!(address = %server.local_address()?, sources, ?period, "serving");
    let stop = async {
        loop {
            tokio::select! {
                _ = terminate.recv() => break,
                _ = interrupt.recv() => break,
                _ = hang_up.recv() => reload_settings(&feeding, &mut telling, &reload).await,
            }
        }
        tracing::info!("stopping");
    };
    server.run(source, stop).await;
    if let Some(keeper) = keeper {
        keeper.finish_persisting().await;
    }
    drop((telling, feeding));
    Ok(ExitCode::SUCCESS)
}

/// Applies reloaded settings; a settings file with errors changes nothing.
async fn reload_settings(
    feeding: &EngineFeed,
    telling: &mut AlertingControl,
    reload: &ReloadSettingsFn,
) {
    let scraping = reload().and_then(|scraping| {
        scraping.plan.check_lists()?;
        anyhow::ensure!(!scraping.plan.is_empty(), "no targets");
        scraping.alerting.as_ref().map(alert::check_servers).transpose()?;
        Ok(scraping)
    });
    match scraping {
        Ok(scraping) => {
            feeding.scrape_manager.reload_plan(scraping.plan).await;
            feeding.watch.reload_options(scraping.site).await;
            if let Err(error) = telling.apply_options(scraping.alerting).await {
                tracing::error!("alerting is disabled: {error}");
            }
            tracing::info!("reloaded settings and targets");
        }
        Err(error) => {
            tracing::error!("cannot apply the settings, keeping the previous ones: {error:#}");
        }
    }
}

/// The alerting tasks, as configured.
struct AlertingControl {
    source: AnswerSource,
    alerts_sender: watch::Sender<Arc<AlertList>>,
    running_alerting: Option<(alert::AlertOptions, AlertingTasks)>,
}

impl AlertingControl {
    /// Starts alerting to the servers configured now. A server that was removed resolves its alerts after a while.
    async fn apply_options(
        &mut self,
        options: Option<alert::AlertOptions>,
    ) -> Result<(), AlertError> {
        if self.running_alerting.as_ref().map(|(options, _)| options) == options.as_ref() {
            return Ok(());
        }
        self.running_alerting = None;
        self.alerts_sender.send_replace(Arc::default());
        if let Some(options) = options {
            let (source, say) = (self.source.clone(), self.alerts_sender.clone());
            let alerting = alert::start_alerting(options.clone(), source, say).await?;
            self.running_alerting = Some((options, alerting));
        }
        Ok(())
    }
}
