//! Scrape flags: the settings with the flags of the command line, and what is scraped by them.

use anyhow::Context as _;
use gaunt::{
    cli::{self, ScrapeArguments},
    command::ScrapingSetup,
    settings::Settings,
};
use gaunt_node::thread_read::{READ_DEADLINE, read_on_thread};
use gaunt_scrape::TargetGroup;

/// Loads the settings file and applies the flags.
pub(crate) fn load_settings(flags: &ScrapeArguments) -> anyhow::Result<Settings> {
    let mut settings = Settings::load_file(flags.config.as_deref())?;
    if let Some(period) = flags.period {
        settings.set_period(period);
    }
    settings.trust_authorities(flags.ca_file.clone());
    Ok(settings)
}

/// Builds the scraping setup: from the flags if they name any source, else from the settings.
pub(crate) fn build_scraping_setup(
    flags: &ScrapeArguments,
    mut settings: Settings,
) -> anyhow::Result<ScrapingSetup> {
    let sources = cli::sources_from_flags(flags)?;
    if !sources.is_empty() {
        settings.groups = vec![TargetGroup { sources, ..settings.groups.swap_remove(0) }];
    }
    let plan = settings.scrape_plan();
    plan.check_lists()?;
    let (site, recording) = (settings.site.clone(), settings.recording_options());
    let past =
        settings.series_options(flags.server.prometheus.clone(), flags.server.matchers.clone());
    Ok(ScrapingSetup {
        engine: settings.engine,
        plan,
        site,
        recording,
        alerting: settings.alerting,
        series: None,
        past,
        is_receiving: false,
    })
}

/// The same, and reads the files of host lists: one that cannot be read is an error, except when a service starts.
pub(crate) fn build_checked_setup(
    flags: &ScrapeArguments,
    settings: Settings,
) -> anyhow::Result<ScrapingSetup> {
    let scraping = build_scraping_setup(flags, settings)?;
    let plan = scraping.plan.clone();
    let checked = read_on_thread(READ_DEADLINE, move || plan.check_files());
    checked.context("cannot read the host lists in the settings; check their mounts")??;
    Ok(scraping)
}
