//! gaunt: reads the command line and the settings, and starts one command.

use std::{
    io::{self, IsTerminal as _, Write as _},
    process::ExitCode,
    time::Duration,
};

use anyhow::Context as _;
use gaunt::{
    cli::{self, Cli, Command, Format, Judge, Page, Scrape, SnapshotFormat, View},
    command::{
        self, AGGREGATOR_VARIABLE, AggregatorAddress, FAILED, NamedBy, Scraping, ack, console,
        demo, explain, judge, metrics, replay, report, serve, snapshot,
    },
    gather::{Access, Dns, Group, Http, REFRESH, Record, Source, parse_url},
    record,
    settings::Settings,
    site,
};
use gaunt_schema::{Safe, safe::safe_lines};
use tracing_subscriber::EnvFilter;

/// What is logged unless told otherwise.
const LOG: &str = "gaunt=info,gaunt_node=info,warn";

/// The same for a command that prints one page: only what is wrong.
const QUIET_LOG: &str = "error";

fn main() -> ExitCode {
    // The worker that talks to the driver is this program again; it starts nothing else.
    if gaunt_node::worker::requested() {
        return gaunt_node::worker::run();
    }
    let cli = match cli::parse(std::env::args_os()) {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are answers, everything else is a wrong command line.
            let code = if error.use_stderr() { FAILED } else { 0 };
            return if error.print().is_ok() {
                ExitCode::from(code)
            } else {
                ExitCode::from(FAILED)
            };
        }
    };
    match start(cli) {
        Ok(code) => code,
        Err(error) => {
            // When even the standard error is closed, the exit code is all that is left to say it.
            let said = safe_lines(&format!("gaunt: {error:#}"));
            drop(writeln!(io::stderr(), "{said}"));
            ExitCode::from(FAILED)
        }
    }
}

fn start(cli: Cli) -> anyhow::Result<ExitCode> {
    let on_screen = console::has_terminal() && matches!(cli.command, None | Some(Command::Demo(_)));
    let quiet = !matches!(cli.command, Some(Command::Serve(_)));
    log(cli.log.as_deref(), quiet, on_screen)?;
    if let Some(Command::Metrics) = cli.command {
        return metrics::run();
    }
    if let Some(Command::Judge(options)) = cli.command {
        return judge_recording(options);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let code = runtime.block_on(run(cli))?;
    // A name lookup or a driver call that hangs must not hold the exit.
    runtime.shutdown_background();
    Ok(code)
}

async fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    match cli.command {
        None => {
            let settings = settings(&cli.view.scrape)?;
            let options = settings.console.clone();
            console::run(view(cli.view, settings)?, options, snapshot::WATCH).await
        }
        Some(Command::Demo(story)) => {
            let settings = Settings::default();
            let story = demo::Story {
                nodes: story.nodes.map(usize::from),
                scenario: story.scenario,
                seed: story.seed,
                level: gaunt_sim::suite::Level::Hard,
                snapshot_after: story.snapshot_after,
            };
            demo::run(story, settings.owner, settings.console).await
        }
        Some(Command::Serve(options)) => Box::pin(served(options)).await,
        Some(Command::Snapshot(options)) => shown(options).await,
        Some(Command::Explain(options)) => explained(options).await,
        Some(Command::Ack(options)) => {
            let settings = Settings::load(options.config.as_deref())?;
            ack::run(ack::Wanted {
                finding: options.finding,
                by: options.by,
                note: (!options.withdraw).then_some(options.note),
                accept: options.accept,
                aggregator: aggregator(options.aggregator, &settings),
                token_file: options.token_file,
            })
            .await
        }
        Some(Command::Report(options)) => report::run(reported(options)?).await,
        Some(Command::Record(options)) => record(options).await,
        Some(Command::Replay(options)) => {
            let settings = Settings::load(options.config.as_deref())?;
            let wanted =
                replay::Wanted { from: options.from, speed: options.speed, seek: options.seek };
            replay::run(wanted, settings.owner, settings.console).await
        }
        Some(Command::Judge(options)) => judge_recording(options),
        Some(Command::Metrics) => metrics::run(),
    }
}

async fn served(options: cli::Serve) -> anyhow::Result<ExitCode> {
    let mut settings = settings(&options.scrape)?;
    let listen = options.listen.unwrap_or(settings.listen);
    let mut names = std::mem::take(&mut settings.names);
    names.extend(options.names);
    let serving = serve::Serving {
        listen,
        names,
        state_folder: options.state.or(settings.state_folder.take()),
        token_file: options.token_file.or(settings.token_file.take()),
    };
    let flags = options.scrape.clone();
    let reload = move || scraping(&flags, self::settings(&flags)?);
    let scraping = scraping(&options.scrape, settings)?;
    serve::run(scraping, serving, Box::new(reload)).await
}

async fn shown(options: cli::Snapshot) -> anyhow::Result<ExitCode> {
    let settings = settings(&options.view.scrape)?;
    let wanted = snapshot::Wanted {
        one: options.ask.map(|ask| snapshot::One {
            ask,
            filter: options.filter,
            limit: options.limit,
        }),
        form: match options.format {
            SnapshotFormat::Text => snapshot::Form::Text,
            SnapshotFormat::Json => snapshot::Form::Json,
            SnapshotFormat::Csv => snapshot::Form::Csv,
            SnapshotFormat::Columns => snapshot::Form::Columns,
        },
        check: options.check,
        watch: options.watch,
    };
    snapshot::run(view(options.view, settings)?, &wanted).await
}

async fn record(options: cli::Record) -> anyhow::Result<ExitCode> {
    let settings = settings(&options.scrape)?;
    let keep = kept(&options, settings.period);
    let address = aggregator(options.aggregator.clone(), &settings);
    let asks = address.named_by == NamedBy::Flag
        || address.named_by != NamedBy::Default && named(&options.scrape)?.is_empty();
    let from = if asks {
        command::record::From::Aggregator(address.client()?)
    } else {
        command::record::From::Targets(Box::new(scraping(&options.scrape, settings)?))
    };
    command::record::run(from, keep, options.duration).await
}

fn kept(options: &cli::Record, period: Duration) -> record::Options {
    let folder = options.to.clone();
    record::Options { folder, max_size: options.max_bytes, max_age: options.max_age, period }
}

async fn explained(options: cli::Explain) -> anyhow::Result<ExitCode> {
    let settings = Settings::load(options.config.as_deref())?;
    let from = match options.from {
        None => explain::From::Aggregator(aggregator(options.aggregator, &settings)),
        Some(from) => explain::From::Recording(judge::Wanted {
            from,
            site: site::Options { topology: options.topology, jobs: options.jobs },
            period: options.period,
            json: false,
        }),
    };
    let json = options.format == Format::Json;
    explain::run(explain::Wanted { finding: options.finding, from, json }, settings.owner).await
}

/// What is to be reported: flags go before the settings' price table.
fn reported(options: cli::Report) -> anyhow::Result<report::Wanted> {
    let settings = settings(&options.view.scrape)?;
    let mut prices = settings.prices.clone();
    let named = options.price.iter().filter_map(|(model, price)| {
        model.clone().map(|model| report::Price { model, per_gpu_hour: *price })
    });
    prices.by_model.splice(0..0, named);
    let usual = options.price.iter().find(|(model, _)| model.is_none());
    prices.usual = usual.map(|(_, price)| *price).or(prices.usual);
    prices.currency = options.currency.unwrap_or(prices.currency);
    let co2_kg_per_kwh = options.co2.or(settings.co2_kg_per_kwh);
    let of = match options.from {
        Some(folder) => report::Of::Recording(folder, Box::new(settings.owner)),
        None => report::Of::Last(Box::new(view(options.view, settings)?), options.last),
    };
    let (form, watch) = (form(options.format), options.watch);
    Ok(report::Wanted { of, form, watch, prices, co2_kg_per_kwh })
}

fn form(page: Page) -> snapshot::Form {
    match page {
        Page::Text => snapshot::Form::Text,
        Page::Json => snapshot::Form::Json,
        Page::Csv => snapshot::Form::Csv,
    }
}

fn judge_recording(options: Judge) -> anyhow::Result<ExitCode> {
    let settings = Settings::load(options.config.as_deref())?;
    let wanted = judge::Wanted {
        from: options.from,
        site: site::Options { topology: options.topology, jobs: options.jobs },
        period: options.period,
        json: options.format == Format::Json,
    };
    judge::run(&wanted, settings.owner)
}

/// The settings of a file with the flags laid over them.
fn settings(flags: &Scrape) -> anyhow::Result<Settings> {
    let mut settings = Settings::load(flags.config.as_deref())?;
    if let Some(period) = flags.period {
        settings.set_period(period);
    }
    Ok(settings)
}

/// What is to be scraped: what the flags name if they name anything, else what the settings do.
fn scraping(flags: &Scrape, mut settings: Settings) -> anyhow::Result<Scraping> {
    let sources = named(flags)?;
    if !sources.is_empty() {
        settings.groups = vec![Group { sources, ..settings.groups.swap_remove(0) }];
    }
    let plan = settings.plan();
    plan.check()?;
    let (site, keep) = (settings.site.clone(), settings.record());
    let alerting = settings.alerting;
    Ok(Scraping { owner: settings.owner, plan, site, keep, alerting })
}

/// Who names targets, as the flags say.
fn named(flags: &Scrape) -> anyhow::Result<Vec<Source>> {
    let origin = Safe::new("--targets");
    let mut sources: Vec<Source> =
        flags.targets.iter().map(|list| Source::List(list.clone(), origin.clone())).collect();
    sources.extend(flags.targets_file.iter().cloned().map(Source::TargetsFile));
    sources.extend(flags.file_sd.iter().cloned().map(Source::Files));
    for url in &flags.http_sd {
        let place = parse_url(url).context("--http-sd")?;
        let access = Access::default();
        sources.push(Source::Http(Http { place, refresh: REFRESH, access }));
    }
    for name in &flags.dns_sd {
        let (record, name) = match name.split_once(' ') {
            None => (Record::Srv, name.as_str()),
            Some((record, name)) => (
                Record::named(record).with_context(|| {
                    format!("--dns-sd: {record:?} is no type; SRV, A and AAAA are possible")
                })?,
                name.trim(),
            ),
        };
        let name = name.to_owned();
        sources.push(Source::Dns(Dns { name, record, refresh: REFRESH, server: None }));
    }
    Ok(sources)
}

/// The aggregator that is asked, by the one rule of all commands.
fn aggregator(flag: Option<String>, settings: &Settings) -> AggregatorAddress {
    let variable = std::env::var(AGGREGATOR_VARIABLE).ok();
    AggregatorAddress::choose(flag, variable, settings.aggregator.clone())
}

/// What a console or a snapshot looks at: the aggregator of the flag, else the targets of the flags, else an aggregator
/// that somebody named, else the targets of the settings, else the aggregator on this machine or this box.
fn view(flags: View, settings: Settings) -> anyhow::Result<command::View> {
    let address = aggregator(flags.aggregator, &settings);
    let targets = address.named_by != NamedBy::Flag && !named(&flags.scrape)?.is_empty();
    if address.named_by != NamedBy::Default && !targets {
        return Ok(command::View::Aggregator(address, ack::token(flags.token_file)?));
    }
    let period = settings.period;
    let scraping = scraping(&flags.scrape, settings)?;
    if !scraping.plan.is_empty() {
        return Ok(command::View::Targets(Box::new(scraping)));
    }
    let own = cli::ThisBox::default();
    // Who says how this box is read means this box.
    let is_this_box = flags.this_box.nvml_library.is_some()
        || flags.this_box.sys_root != own.sys_root
        || flags.this_box.proc_root != own.proc_root;
    let aggregator = (!is_this_box).then_some((address, ack::token(flags.token_file)?));
    let node = gaunt_node::Options {
        sys_root: flags.this_box.sys_root,
        proc_root: flags.this_box.proc_root,
        nvml_library: flags.this_box.nvml_library,
        period,
        ..gaunt_node::Options::default()
    };
    let (options, node) = (Box::new(scraping.owner), Box::new(node));
    Ok(command::View::ThisBox { options, node, aggregator })
}

/// Logs go to the standard error, and nowhere if the console is to cover it.
fn log(filter: Option<&str>, quiet: bool, on_screen: bool) -> anyhow::Result<()> {
    let given = filter.map(str::to_owned).or_else(|| std::env::var("RUST_LOG").ok());
    let usual = if quiet { QUIET_LOG } else { LOG };
    let filter = given.as_deref().unwrap_or(usual);
    let filter = EnvFilter::try_new(filter).map_err(|_| {
        anyhow::anyhow!(
            "{filter:?} is not a log filter; write a level such as debug, or MODULE=LEVEL such as \
             gaunt::gather=trace, separated by commas (--log, or RUST_LOG)"
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
