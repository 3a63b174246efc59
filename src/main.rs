//! gaunt: reads the command line and the settings, and starts one command.

use std::{
    io::{self, Write as _},
    path::PathBuf,
    pin::Pin,
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use anyhow::Context as _;
use gaunt::{
    cli::{
        self, ExplainFormatArgument, FormatArgument, GauntArguments, GauntCommand, JudgeArguments,
        ReportFormatArgument, SnapshotFormatArgument,
    },
    command::{
        self, AggregatorNamedBy, FAILED, RECENT, ScrapingSetup, ack_command, bundle_command,
        certs_command, check_command, console_command, demo_command, doctor_command,
        explain_command, flight_recorder_command, installation_command, judge_command,
        metrics_command, replay_command, report_command, serve_command, snapshot_command,
    },
    settings::{Settings, SettingsError},
};
use gaunt_engine::record;
use gaunt_schema::sanitized_text::sanitize_lines;
use gaunt_signals::{HangUpAction, HeldSignals, ServiceSignals};

mod scrape_flags;
mod source_choice;

use scrape_flags::{build_checked_setup, build_scraping_setup, load_settings};
use source_choice::{choose_aggregator, choose_view, join_clusters, open_series, past_options};

/// Default log filter.
const LOG: &str = "gaunt=info,gaunt_node=info,warn";

/// Log filter of commands that print one page: errors only.
const QUIET_LOG: &str = "error";

/// Why a program that handles signals cannot start.
const NO_HANDLERS: &str = "cannot install signal handlers; raise the limit on open files";

/// Log filter of a replay, which also warns about what the recording lacks.
const REPLAY_LOG: &str = "warn";

fn main() -> ExitCode {
    let held_signals = HeldSignals::hold();
    // The driver worker is this executable started again; it runs nothing else.
    if gaunt_node::nvml_worker::is_worker_process() {
        drop(held_signals);
        return gaunt_node::nvml_worker::run();
    }
    let cli = match cli::parse(std::env::args_os()) {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are successful output; everything else is a usage error.
            let code = if error.use_stderr() { FAILED } else { 0 };
            return if error.print().is_ok() {
                ExitCode::from(code)
            } else {
                ExitCode::from(FAILED)
            };
        }
    };
    match start_command(cli, held_signals) {
        Ok(code) => code,
        Err(error) => {
            // If standard error is closed too, only the exit code reports the failure.
            let message = sanitize_lines(&format!("gaunt: {error:#}"));
            drop(writeln!(io::stderr(), "{message}"));
            ExitCode::from(FAILED)
        }
    }
}

fn start_command(cli: GauntArguments, held_signals: HeldSignals) -> anyhow::Result<ExitCode> {
    let on_screen = console_command::has_terminal()
        && matches!(cli.command, None | Some(GauntCommand::Demo(_) | GauntCommand::Replay(_)));
    let default_filter = match cli.command {
        Some(GauntCommand::Serve(_)) => LOG,
        // A replay reports what its recording lacks.
        Some(GauntCommand::Replay(_)) => REPLAY_LOG,
        _ => QUIET_LOG,
    };
    if on_screen {
        gaunt_console::install_end_handlers().context(NO_HANDLERS)?;
    }
    command::init_logging(cli.log.as_deref(), default_filter, on_screen)?;
    if let Some(GauntCommand::Judge(options)) = cli.command {
        drop(held_signals);
        return run_judge(options);
    }
    let command = prepare_command(cli, held_signals)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let code = runtime.block_on(command);
    // A hanging name lookup, read or driver call must not delay the exit.
    runtime.shutdown_background();
    code
}

fn create_certificates(options: cli::CertsArguments) -> anyhow::Result<ExitCode> {
    certs_command::run(&certs_command::CertsOptions {
        folder: options.folder,
        servers: options.servers,
        names: options.names,
        clients: options.clients,
        days: options.days,
        renew: options.renew,
    })
}

/// What a command does once it is polled.
type CommandFuture = Pin<Box<dyn Future<Output = anyhow::Result<ExitCode>>>>;

/// Prepares the command, before there are other threads. Signals that it does not receive have their default effect from
/// now on.
fn prepare_command(
    cli: GauntArguments,
    held_signals: HeldSignals,
) -> anyhow::Result<CommandFuture> {
    let receive = |hang_up| held_signals.receive(hang_up).context(NO_HANDLERS);
    Ok(match cli.command {
        None => Box::pin(run_console(cli.view, cli.restricted)),
        Some(GauntCommand::Demo(options)) => Box::pin(run_demo(options)),
        Some(GauntCommand::Serve(options)) => {
            Box::pin(run_serve(options, receive(HangUpAction::Reload)?))
        }
        Some(GauntCommand::Snapshot(options)) => Box::pin(run_snapshot(options)),
        Some(GauntCommand::Doctor(options)) => Box::pin(run_doctor(options)),
        Some(GauntCommand::SupportBundle(options)) => Box::pin(run_bundle(options)),
        Some(GauntCommand::Explain(options)) => Box::pin(run_explain(options)),
        Some(GauntCommand::Ack(options)) => Box::pin(run_ack(options)),
        Some(GauntCommand::Report(options)) if options.incident.is_some() => {
            Box::pin(run_incident(options))
        }
        Some(GauntCommand::Report(options)) => {
            Box::pin(async { report_command::run(report_options(options).await?).await })
        }
        Some(GauntCommand::Record(options)) if options.past.is_named() => {
            Box::pin(run_past_record(options))
        }
        Some(GauntCommand::Record(options)) => {
            Box::pin(run_record(options, receive(HangUpAction::End)?))
        }
        Some(GauntCommand::Replay(options)) => Box::pin(run_replay(options)),
        Some(GauntCommand::Judge(options)) => Box::pin(async { run_judge(options) }),
        Some(GauntCommand::Certs(options)) => Box::pin(async { create_certificates(options) }),
        Some(GauntCommand::Metrics(options)) => {
            Box::pin(async move { metrics_command::run(options.dialects) })
        }
        Some(GauntCommand::CheckConfig(options)) => Box::pin(async { run_check(options) }),
        Some(GauntCommand::Completions(options)) => Box::pin(async move {
            installation_command::print_completions(cli::build_command(), options.shell)
        }),
        Some(GauntCommand::Man(options)) => Box::pin(async move {
            installation_command::print_manual(cli::build_command(), options.to.as_deref())
        }),
    })
}

async fn run_console(view: cli::ViewArguments, restricted: bool) -> anyhow::Result<ExitCode> {
    let settings = load_settings(&view.scrape)?;
    let mut options = settings.console.clone();
    options.restricted |= restricted;
    options.contexts = Some(console_command::connect_contexts(settings.ca_file.clone()));
    // A token in the environment is not meant for whoever uses a restricted console.
    let drops_token = options.restricted && view.token_file.is_none();
    let view = choose_view(view, settings, RECENT).await?;
    let view = if drops_token { view.without_token() } else { view };
    console_command::run(view, options, snapshot_command::WATCH).await
}

async fn run_replay(options: cli::ReplayArguments) -> anyhow::Result<ExitCode> {
    let mut settings = Settings::load_file(options.config.as_deref())?;
    settings.console.restricted |= options.restricted;
    let from = match options.from {
        Some(folder) => replay_command::ReplaySource::Folder(folder),
        None => replay_command::ReplaySource::Prometheus(Box::new(past_options(
            options.server,
            &options.past,
            &settings,
        )?)),
    };
    let replay = replay_command::ReplayOptions { from, speed: options.speed, seek: options.seek };
    replay_command::run(replay, settings.engine, settings.console).await
}

async fn run_demo(arguments: cli::DemoArguments) -> anyhow::Result<ExitCode> {
    let mut settings = Settings::default();
    settings.console.restricted = arguments.restricted;
    settings.console.tour = arguments.tour;
    let options = demo_command::DemoOptions {
        nodes: arguments.nodes.map(usize::from),
        scenario: arguments.scenario,
        seed: arguments.seed,
        level: gaunt_sim::suite::FaultLevel::Hard,
        snapshot_after: arguments.snapshot_after,
    };
    demo_command::run(options, settings.engine, settings.console).await
}

async fn run_ack(options: cli::AckArguments) -> anyhow::Result<ExitCode> {
    let mut settings = Settings::load_file(options.config.as_deref())?;
    settings.trust_authorities(options.ca_file);
    ack_command::run(ack_command::AckOptions {
        finding: options.finding,
        by: options.by,
        note: (!options.withdraw).then_some(options.note),
        accept: options.accept,
        aggregator: choose_aggregator(join_clusters(&options.aggregator), &settings),
        token_file: options.token_file,
    })
    .await
}

async fn run_serve(
    options: cli::ServeArguments,
    signals: ServiceSignals,
) -> anyhow::Result<ExitCode> {
    let mut settings = load_settings(&options.scrape)?;
    let is_receiving =
        options.receive_token_file.is_some() || settings.receive_token_file.is_some();
    let has_period = settings.period != Settings::default().period;
    if is_receiving && options.scrape.period.is_none() && !has_period {
        settings.set_period(serve_command::RECEIVED_PERIOD);
    }
    let series = open_series(&options.scrape, &mut settings, RECENT, true).await?;
    let listen = options.listen.unwrap_or(settings.listen);
    let mut names = std::mem::take(&mut settings.names);
    names.extend(options.names);
    let mut serve_options = serve_command::ServeOptions {
        listen,
        names,
        state_folder: options.state.or(settings.state_folder.take()),
        roles: settings
            .role_options(options.token_file.as_deref(), options.receive_token_file.as_deref()),
        web_config: options.web_config.or(settings.web_config.take()),
        client_certificates: settings.client_certificates(),
        audit_file: settings.audit_file.take(),
        store: None,
        peers: settings.peer_options(options.token_file.as_deref())?,
    };
    serve_options.store =
        settings.store_options(options.store, serve_options.state_folder.as_deref());
    let mut scraping = build_scraping_setup(&options.scrape, settings)?;
    (scraping.series, scraping.is_receiving) = (series, is_receiving);
    let reload = move || {
        let settings = load_settings(&options.scrape)?;
        let roles = settings
            .role_options(options.token_file.as_deref(), options.receive_token_file.as_deref());
        Ok((build_checked_setup(&options.scrape, settings)?, roles))
    };
    Box::pin(serve_command::run(scraping, serve_options, Arc::new(reload), signals)).await
}

async fn run_snapshot(options: cli::SnapshotArguments) -> anyhow::Result<ExitCode> {
    let settings = load_settings(&options.view.scrape)?;
    let snapshot_options = snapshot_command::SnapshotOptions {
        question: options.ask.map(|ask| snapshot_command::SnapshotQuestion {
            text: ask,
            filter: options.filter,
            limit: options.limit,
        }),
        form: match options.format {
            SnapshotFormatArgument::Text => snapshot_command::OutputFormat::Text,
            SnapshotFormatArgument::Json => snapshot_command::OutputFormat::Json,
            SnapshotFormatArgument::Csv => snapshot_command::OutputFormat::Csv,
            SnapshotFormatArgument::Columns => snapshot_command::OutputFormat::Columns,
        },
        check: options.check,
        watch: options.watch,
    };
    let view = choose_view(options.view, settings, RECENT).await?;
    Box::pin(snapshot_command::run(view, &snapshot_options)).await
}

async fn run_doctor(options: cli::DoctorArguments) -> anyhow::Result<ExitCode> {
    let settings = load_settings(&options.view.scrape)?;
    let json = options.format == FormatArgument::Json;
    let doctor_options = doctor_command::DoctorOptions { json, watch: options.watch };
    let view = choose_view(options.view, settings, RECENT).await?;
    Box::pin(doctor_command::run(view, doctor_options)).await
}

async fn run_bundle(options: cli::BundleArguments) -> anyhow::Result<ExitCode> {
    let cli::BundleArguments { view, file, settings, watch } = options;
    let loaded = load_settings(&view.scrape)?;
    let view = choose_view(view, loaded, RECENT).await?;
    Box::pin(bundle_command::run(view, bundle_command::BundleOptions { file, settings, watch }))
        .await
}

async fn run_record(
    options: cli::RecordArguments,
    signals: ServiceSignals,
) -> anyhow::Result<ExitCode> {
    let mut settings = load_settings(&options.scrape)?;
    if options.scrape.server.prometheus.is_some() {
        let series = open_series(&options.scrape, &mut settings, RECENT, true).await?;
        let record_options = recording_options(&options, settings.period);
        let setup = build_checked_setup(&options.scrape, settings)?;
        let setup = Box::new(ScrapingSetup { series, ..setup });
        let source = command::record_command::RecordSource::Targets(setup);
        let duration = options.duration;
        return command::record_command::run(source, record_options, duration, signals).await;
    }
    let record_options = recording_options(&options, settings.period);
    let address = choose_aggregator(options.aggregator.clone(), &settings);
    let uses_aggregator = address.named_by == AggregatorNamedBy::Flag
        || address.named_by != AggregatorNamedBy::Default
            && cli::sources_from_flags(&options.scrape)?.is_empty();
    let source = if uses_aggregator {
        command::record_command::RecordSource::Aggregator(address.build_client()?)
    } else {
        command::record_command::RecordSource::Targets(Box::new(build_checked_setup(
            &options.scrape,
            settings,
        )?))
    };
    command::record_command::run(source, record_options, options.duration, signals).await
}

/// Records the past of a Prometheus.
async fn run_past_record(options: cli::RecordArguments) -> anyhow::Result<ExitCode> {
    let settings = load_settings(&options.scrape)?;
    let record_options = recording_options(&options, settings.period);
    let past = past_options(options.scrape.server.clone(), &options.past, &settings)?;
    command::record_command::record_past(past, record_options).await
}

fn recording_options(options: &cli::RecordArguments, period: Duration) -> record::RecordOptions {
    let folder = options.to.clone();
    record::RecordOptions { folder, max_size: options.max_bytes, max_age: options.max_age, period }
}

async fn run_explain(options: cli::ExplainArguments) -> anyhow::Result<ExitCode> {
    let mut settings = Settings::load_file(options.config.as_deref())?;
    settings.trust_authorities(options.ca_file);
    let json = options.format == ExplainFormatArgument::Json;
    if let Some(folder) = options.flight_recorder {
        let plain = [ExplainFormatArgument::Text, ExplainFormatArgument::Json];
        anyhow::ensure!(
            plain.contains(&options.format),
            "--flight-recorder has the formats text and json"
        );
        let address = choose_aggregator(join_clusters(&options.aggregator), &settings);
        let is_named = address.named_by != AggregatorNamedBy::Default;
        let (aggregator, job) = (is_named.then_some(address), options.job);
        let dumps =
            flight_recorder_command::FlightRecorderOptions { folder, aggregator, job, json };
        return flight_recorder_command::run(dumps).await;
    }
    let from = match (options.from, &options.server.prometheus) {
        (None, None) => explain_command::ExplainSource::Aggregator(choose_aggregator(
            join_clusters(&options.aggregator),
            &settings,
        )),
        (folder, _) => explain_command::ExplainSource::Recording(judge_command::JudgeOptions {
            from: judge_source(folder, options.server, &options.past, &settings)?,
            site: gaunt_site::SiteOptions { topology: options.topology, jobs: options.jobs },
            period: options.period,
            json: false,
        }),
    };
    explain_command::run(
        explain_command::ExplainOptions {
            finding: options.finding,
            from,
            form: match options.format {
                ExplainFormatArgument::Text => explain_command::ExplanationFormat::Text,
                ExplainFormatArgument::Json => explain_command::ExplanationFormat::Json,
                ExplainFormatArgument::Markdown => explain_command::ExplanationFormat::Markdown,
                ExplainFormatArgument::Html => explain_command::ExplanationFormat::Html,
            },
        },
        settings.engine,
    )
    .await
}

/// Prints the page of one finding.
async fn run_incident(options: cli::ReportArguments) -> anyhow::Result<ExitCode> {
    let settings = load_settings(&options.view.scrape)?;
    let site = recorded_site(&options, &settings);
    let from = if let Some(folder) = options.from {
        explain_command::ExplainSource::Recording(judge_command::JudgeOptions {
            from: judge_command::JudgeSource::Folder(folder),
            site,
            period: None,
            json: false,
        })
    } else {
        let aggregator = join_clusters(&options.view.aggregator);
        explain_command::ExplainSource::Aggregator(choose_aggregator(aggregator, &settings))
    };
    let (finding, form) = (options.incident, explain_command::ExplanationFormat::Html);
    let options = explain_command::ExplainOptions { finding, from, form };
    explain_command::run(options, settings.engine).await
}

/// Topology and jobs of a recording: the files of the flags, else those of the settings.
fn recorded_site(options: &cli::ReportArguments, settings: &Settings) -> gaunt_site::SiteOptions {
    let choose = |flags: &[PathBuf], settings: &[PathBuf]| {
        if flags.is_empty() { settings.to_vec() } else { flags.to_vec() }
    };
    gaunt_site::SiteOptions {
        topology: choose(&options.topology, &settings.site.topology),
        jobs: choose(&options.jobs, &settings.site.jobs),
    }
}

/// Builds the report options: flags take precedence over the price table of the settings.
async fn report_options(
    options: cli::ReportArguments,
) -> anyhow::Result<report_command::ReportOptions> {
    let settings = load_settings(&options.view.scrape)?;
    let site = recorded_site(&options, &settings);
    let prices = settings.prices.clone().with_flags(options.price, options.currency);
    let co2_kg_per_kwh = options.co2.or(settings.co2_kg_per_kwh);
    let scope = match options.from {
        Some(folder) => {
            report_command::ReportScope::Recording(folder, Box::new((site, settings.engine)))
        }
        None => report_command::ReportScope::Recent(
            Box::new(choose_view(options.view, settings, options.last).await?),
            options.last,
        ),
    };
    let (format, watch) = (report_format(options.format), options.watch);
    Ok(report_command::ReportOptions { of: scope, form: format, watch, prices, co2_kg_per_kwh })
}

fn report_format(format: ReportFormatArgument) -> report_command::ReportFormat {
    match format {
        ReportFormatArgument::Text => report_command::ReportFormat::Text,
        ReportFormatArgument::Json => report_command::ReportFormat::Json,
        ReportFormatArgument::Csv => report_command::ReportFormat::Csv,
        ReportFormatArgument::Html => report_command::ReportFormat::Html,
    }
}

fn run_judge(options: JudgeArguments) -> anyhow::Result<ExitCode> {
    let settings = Settings::load_file(options.config.as_deref())?;
    let from = judge_source(options.from, options.server, &options.past, &settings)?;
    let judge_options = judge_command::JudgeOptions {
        from,
        site: gaunt_site::SiteOptions { topology: options.topology, jobs: options.jobs },
        period: options.period,
        json: options.format == FormatArgument::Json,
    };
    judge_command::run(&judge_options, settings.engine)
}

/// A recording, or the past of a Prometheus.
fn judge_source(
    folder: Option<PathBuf>,
    server: cli::PrometheusArguments,
    past: &cli::PastSpanArguments,
    settings: &Settings,
) -> anyhow::Result<judge_command::JudgeSource> {
    Ok(match folder {
        Some(folder) => judge_command::JudgeSource::Folder(folder),
        None => judge_command::JudgeSource::Past(Box::new(past_options(server, past, settings)?)),
    })
}

/// Checks files without starting anything.
fn run_check(options: cli::CheckArguments) -> anyhow::Result<ExitCode> {
    let files = check_command::CheckPaths {
        settings: options.config,
        node_settings: options.node_config,
        topology: options.topology,
        rules: options.rules,
    };
    check_command::run(&files, |path| {
        let settings = Settings::load_file(Some(path)).map_err(SettingsError::into_messages)?;
        let (plan, roles) = (settings.scrape_plan(), settings.role_options(None, None));
        let servers = settings.server_accesses();
        let (site, web_config) = (settings.site, settings.web_config);
        Ok(check_command::NamedFiles { site, roles, web_config, plan, servers })
    })
}
