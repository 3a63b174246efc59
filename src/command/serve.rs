//! `gaunt serve`: the aggregator, until it is told to stop.

use std::{net::SocketAddr, path::PathBuf, process::ExitCode, sync::Arc};

use tokio::{
    signal::unix::{SignalKind, signal},
    sync::watch,
};

use super::{
    Feeding, Scraping,
    keep::{self, Keeper},
};
use crate::{
    alert::{self, AlertError, Alerting},
    answer::AlertList,
    owner::Owner,
    serve::Server,
    source::Source,
};

/// Where the aggregator answers, to whom, and what it keeps.
#[derive(Debug)]
pub struct Serving {
    /// Where it listens.
    pub listen: SocketAddr,
    /// The names under which it is asked, beside its addresses.
    pub names: Vec<String>,
    /// Where findings, acknowledgements and counters outlive a restart, if they do.
    pub state_folder: Option<PathBuf>,
    /// The file of the token that lets its holder acknowledge findings, if anybody may.
    pub token_file: Option<PathBuf>,
}

/// Reads the settings again: what is to be gathered from now on.
pub type Reload = Box<dyn Fn() -> anyhow::Result<Scraping>>;

/// Scrapes, judges and answers until SIGTERM or SIGINT. SIGHUP reads targets and settings again.
pub async fn run(
    mut scraping: Scraping,
    serving: Serving,
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
    let mut server = Server::bind(serving.listen).await?.known_as(&serving.names);
    if let Some(path) = &serving.token_file {
        server = server.opened_by(path)?;
    }
    let kept = serving.state_folder.as_deref().map(keep::open).transpose()?;
    let (mut terminate, mut interrupt, mut hang_up) = (
        signal(SignalKind::terminate())?,
        signal(SignalKind::interrupt())?,
        signal(SignalKind::hangup())?,
    );
    scraping.plan.check()?;
    let (sources, period) = (scraping.plan.sources(), scraping.plan.options.period);
    let alerting = scraping.alerting.take();
    alerting.as_ref().map(alert::check).transpose()?;
    let (say, said) = watch::channel(Arc::default());
    scraping.owner.alerts = Some(said);
    scraping.owner.says_usual = true;
    let options = scraping.owner.clone();
    let (memory, owner) = match kept {
        Some((memory, known)) => (Some(memory), Owner::resuming(options, known)),
        None => (None, Owner::new(options)),
    };
    let (mut owner, feeding) = scraping.start_with(owner).await?;
    let mut keeper = None;
    if let Some(memory) = memory {
        let (started, kept) = Keeper::start(memory, &owner);
        (keeper, owner) = (Some(started), kept);
    }
    let source = Source::Owner(owner);
    let mut telling = Telling { source: source.clone(), say, running: None };
    telling.take_up(alerting).await?;
    let (follow, now) = (feeding.follow.clone(), feeding.clock.clone());
    let server = server.passing_on(Arc::new(move || follow.start(now())));
    tracing::info!(address = %server.address()?, sources, ?period, "serving");
    let stop = async {
        loop {
            tokio::select! {
                _ = terminate.recv() => break,
                _ = interrupt.recv() => break,
                _ = hang_up.recv() => take_up(&feeding, &mut telling, &reload).await,
            }
        }
        tracing::info!("stopping");
    };
    server.run(source, stop).await;
    if let Some(keeper) = keeper {
        keeper.finish().await;
    }
    drop((telling, feeding));
    Ok(ExitCode::SUCCESS)
}

/// Takes up what the settings say now; what cannot be read changes nothing.
async fn take_up(feeding: &Feeding, telling: &mut Telling, reload: &Reload) {
    let scraping = reload().and_then(|scraping| {
        scraping.plan.check()?;
        anyhow::ensure!(!scraping.plan.is_empty(), "they name no targets");
        scraping.alerting.as_ref().map(alert::check).transpose()?;
        Ok(scraping)
    });
    match scraping {
        Ok(scraping) => {
            feeding.gatherer.reload(scraping.plan).await;
            feeding.watch.reload(scraping.site).await;
            if let Err(error) = telling.take_up(scraping.alerting).await {
                tracing::error!("nobody is alerted: {error}");
            }
            tracing::info!("settings and targets are read again");
        }
        Err(error) => {
            tracing::error!("the settings cannot be taken up, the old ones stand: {error:#}");
        }
    }
}

/// Who is alerted, as the settings say.
struct Telling {
    source: Source,
    say: watch::Sender<Arc<AlertList>>,
    running: Option<(alert::Options, Alerting)>,
}

impl Telling {
    /// Begins to alert those that are named now. Who is named no longer takes what is open for over after a while.
    async fn take_up(&mut self, options: Option<alert::Options>) -> Result<(), AlertError> {
        if self.running.as_ref().map(|(options, _)| options) == options.as_ref() {
            return Ok(());
        }
        self.running = None;
        self.say.send_replace(Arc::default());
        if let Some(options) = options {
            let (source, say) = (self.source.clone(), self.say.clone());
            let alerting = alert::start(options.clone(), source, say).await?;
            self.running = Some((options, alerting));
        }
        Ok(())
    }
}
