//! Source choice: which aggregator, Prometheus or targets the flags and the settings name.

use std::time::Duration;

use anyhow::Context as _;
use gaunt::{
    answer_source::CLUSTER_SEPARATOR,
    cli::{self, ScrapeArguments, ViewArguments},
    command::{
        self, AGGREGATOR_VARIABLE, AUTHORITIES_VARIABLE, AggregatorAddress, AggregatorNamedBy,
        SeriesSetup, ack_command,
    },
    settings::Settings,
};

use crate::scrape_flags::build_checked_setup;

/// A span of the past of the server that the flags or the settings name.
pub(crate) fn past_options(
    server: cli::PrometheusArguments,
    past: &cli::PastSpanArguments,
    settings: &Settings,
) -> anyhow::Result<command::PastOptions> {
    let now = gaunt_engine::monotonic_clock()();
    let until = past.at.map_or(now, |at| at.to_instant(now));
    let series = settings.series_options(server.prometheus, server.matchers);
    let series = series.context("no server is named; pass --prometheus URL")?;
    anyhow::ensure!(until <= now, "--at is in the future; write it in UTC");
    Ok(command::PastOptions { series, from: until - past.span(), until })
}

/// Opens the Prometheus of the flags, or that of the settings if nothing else is named; its scrape interval is the
/// period. What runs for long waits for the first scrape of a server that was just started; a view says at once that there
/// is none.
pub(crate) async fn open_series(
    flags: &ScrapeArguments,
    settings: &mut Settings,
    recent: Duration,
    runs_for_long: bool,
) -> anyhow::Result<Option<Box<SeriesSetup>>> {
    let (url, matchers) = (flags.server.prometheus.clone(), flags.server.matchers.clone());
    let has_targets =
        !cli::sources_from_flags(flags)?.is_empty() || !settings.scrape_plan().is_empty();
    if url.is_none() && has_targets {
        return Ok(None);
    }
    let Some(options) = settings.series_options(url, matchers) else { return Ok(None) };
    let setup = if runs_for_long {
        SeriesSetup::open_patiently(&options, settings.series_refresh, recent).await?
    } else {
        SeriesSetup::open(&options, settings.series_refresh, recent).await?
    };
    settings.set_period(flags.period.unwrap_or_else(|| setup.scrape_period()));
    Ok(Some(Box::new(setup)))
}

/// Resolves the aggregator address by the rule that all commands share.
pub(crate) fn choose_aggregator(flag: Option<String>, settings: &Settings) -> AggregatorAddress {
    let variable = std::env::var(AGGREGATOR_VARIABLE).ok();
    AggregatorAddress::choose_address(flag, variable, settings.aggregator.clone())
        .with_authorities(settings.ca_file.clone(), std::env::var_os(AUTHORITIES_VARIABLE))
}

/// One address of all that `--aggregator` names; none without one.
pub(crate) fn join_clusters(named: &[String]) -> Option<String> {
    Some(named.join(&CLUSTER_SEPARATOR.to_string())).filter(|address| !address.is_empty())
}

/// Resolves the source of a console or snapshot: the aggregator of the flag, else the targets of the flags, else an
/// aggregator from the environment or settings, else the targets of the settings, else the aggregator on this machine
/// or this machine itself.
pub(crate) async fn choose_view(
    flags: ViewArguments,
    mut settings: Settings,
    recent: Duration,
) -> anyhow::Result<command::ViewSource> {
    let address = choose_aggregator(join_clusters(&flags.aggregator), &settings);
    let has_flags = flags.scrape.server.prometheus.is_some()
        || !cli::sources_from_flags(&flags.scrape)?.is_empty();
    let targets = address.named_by != AggregatorNamedBy::Flag && has_flags;
    if address.named_by != AggregatorNamedBy::Default && !targets {
        return Ok(command::ViewSource::Aggregator(
            address,
            ack_command::read_token(flags.token_file)?,
        ));
    }
    let series = open_series(&flags.scrape, &mut settings, recent, false).await?;
    let period = settings.period;
    let mut scraping = build_checked_setup(&flags.scrape, settings)?;
    scraping.series = series;
    if !scraping.plan.is_empty() || scraping.series.is_some() {
        return Ok(command::ViewSource::Targets(Box::new(scraping)));
    }
    let defaults = cli::ThisBoxArguments::default();
    // Flags that set how this machine is sampled select this machine.
    let is_this_box = flags.this_box.nvml_library.is_some()
        || flags.this_box.sys_root != defaults.sys_root
        || flags.this_box.proc_root != defaults.proc_root;
    let aggregator =
        (!is_this_box).then_some((address, ack_command::read_token(flags.token_file)?));
    let node = gaunt_node::SamplerOptions {
        sys_root: flags.this_box.sys_root,
        proc_root: flags.this_box.proc_root,
        nvml_library: flags.this_box.nvml_library,
        period,
        ..gaunt_node::SamplerOptions::default()
    };
    let (options, node) = (Box::new(scraping.engine), Box::new(node));
    Ok(command::ViewSource::ThisBox { options, node, aggregator })
}
