//! The interactive console: polls a source once per period, draws the answers, and handles keys until it ends.

use std::{
    collections::VecDeque,
    io,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use gaunt_schema::{SanitizedText, UnixMs};
use tokio::time::{MissedTickBehavior, interval, sleep_until};

use gaunt_api::{Answer, Question};

mod acknowledge_findings;
mod action;
mod console_options;
mod console_signals;
mod console_source;
mod console_state;
mod csv_export;
mod cursor;
mod cursor_rows;
mod demo_tour;
mod display_text;
mod display_units;
mod evidence_history;
mod fabric_cables;
mod fabric_map;
mod fabric_peers;
mod failed_questions;
mod finding_list_rows;
mod frame_pacing;
mod freshness;
mod heat_index;
mod key_binding;
mod key_press;
mod keymap;
mod list_state;
mod node_events;
mod pair_matrix;
mod plugin_runner;
mod preferences;
mod prompt;
mod prompt_commands;
mod prompt_completion;
mod question_queue;
mod replay_control;
mod screen;
mod screen_frame;
mod screen_view;
mod screens;
mod search_index;
mod search_match;
mod terminal;
mod theme;
mod time_marks;
mod time_zoom;
mod update;
mod user_config;
mod user_totals;
mod view;
mod widget;

#[cfg(any(test, feature = "drawn_screens"))]
pub mod drawn_screens;
#[cfg(test)]
mod golden_screens;
#[cfg(test)]
mod panic_restore_test;
#[cfg(test)]
mod sample_answers;
use acknowledge_findings::{PendingAcknowledgement, acknowledge_findings, await_acknowledgement};
use action::{ConsoleAction, ConsoleEffect};
pub use console_options::ConsoleOptions;
pub use console_signals::install_end_handlers;
use console_signals::{ConsoleSignals, SignalEvent};
pub use console_source::{ConsoleSource, ContextConnection, PendingAnswer, SourceError};
use console_state::{ConsoleState, Restriction};
use frame_pacing::FramePacing;
use plugin_runner::RunningPlugin;
use question_queue::QuestionQueues;
pub use replay_control::{ReplayControl, ReplayProgress};
use screens::view_of;
use terminal::{InputEvent, TerminalInput, TerminalSession, next_input};
use theme::Theme;
pub use theme::{ColourDepth, GlyphSet, Palette};
pub use user_config::ContextAddress;
use user_config::{UserConfig, plugin_key::PluginCommand};

/// Minimum time between two polls: faster updates cannot be read.
const MIN_PERIOD: Duration = Duration::from_millis(50);

/// Error that ends the console.
#[derive(Debug, thiserror::Error)]
pub enum ConsoleError {
    /// The terminal is not usable.
    #[error("cannot use the terminal: {0}; run `gaunt snapshot` instead")]
    Terminal(#[from] io::Error),
    /// The source in this process ended, so there is no more data to show.
    #[error(transparent)]
    Source(SourceError),
    /// A thread panicked; its message is on the terminal.
    #[error("a thread of gaunt panicked; see its message above")]
    Panicked,
}

/// Shows the answers of `source` until the user quits, the terminal hangs up, or a signal ends the program.
pub async fn run(
    source: impl ConsoleSource + 'static,
    options: ConsoleOptions,
) -> Result<(), ConsoleError> {
    // Install the signal handlers before the terminal changes: no signal may end the process in raw mode.
    let signals = ConsoleSignals::new()?;
    let mut app = ConsoleApp::open_console(Arc::new(source), &options)?;
    app.run_event_loop(signals, options.period.max(MIN_PERIOD)).await
}

/// The terminal, the console state and the source.
struct ConsoleApp {
    source: Arc<dyn ConsoleSource>,
    /// The source of all clusters, while one of them is shown.
    joined: Option<Arc<dyn ConsoleSource>>,
    theme: Theme,
    palette: Palette,
    preferences_path: Option<PathBuf>,
    player: Option<ReplayControl>,
    contexts: Option<ContextConnection>,
    terminal: TerminalSession,
    /// None while a program of the user has the terminal.
    input: Option<TerminalInput>,
    state: ConsoleState,
    questions: QuestionQueues,
    /// The acknowledgement in progress, at most one at a time.
    acknowledging: Option<PendingAcknowledgement>,
    /// Number of moves between equal sources that were shown.
    moves_shown: u64,
    /// The program of the user that runs in the background, at most one at a time.
    running: Option<RunningPlugin>,
    /// The program of the user that is to run in the terminal next.
    foreground: Option<PluginCommand>,
    pacing: FramePacing,
}

impl ConsoleApp {
    fn open_console(
        source: Arc<dyn ConsoleSource>,
        options: &ConsoleOptions,
    ) -> Result<Self, ConsoleError> {
        let environment = |name: &str| std::env::var(name).ok();
        let theme = Theme::new(options.colour, options.glyphs, environment);
        let path = preferences::preferences_path(environment);
        let saved = path.as_deref().map(preferences::load_preferences).unwrap_or_default();
        let mut state = ConsoleState::new(source.display_address(), unix_now(), saved);
        let restriction = Restriction {
            confined: options.restricted,
            no_copy: options.restricted && !options.restricted_copy,
        };
        let config_path = user_config::config_path(environment);
        let mut config = UserConfig::load(config_path, options.restricted);
        prompt_commands::check_aliases(&mut config);
        state.apply_config(config, restriction);
        state.clusters = source.cluster_names();
        state.tour = options.tour.then(|| demo_tour::DemoTour::new(unix_now()));
        Ok(Self {
            player: options.player.clone(),
            theme,
            palette: options.palette,
            preferences_path: path,
            contexts: options.contexts.clone(),
            terminal: TerminalSession::open_terminal()?,
            input: Some(TerminalInput::open_input()?),
            state,
            questions: QuestionQueues::default(),
            acknowledging: None,
            moves_shown: 0,
            running: None,
            foreground: None,
            pacing: FramePacing::new(),
            joined: None,
            source,
        })
    }

    async fn run_event_loop(
        &mut self,
        mut signals: ConsoleSignals,
        period: Duration,
    ) -> Result<(), ConsoleError> {
        let mut ticks = interval(period);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            if self.terminal.has_panicked() {
                return Err(ConsoleError::Panicked);
            }
            let due = self.pacing.next_frame_at(self.terminal.last_write_duration());
            if self.pacing.changed && due <= Instant::now() && self.terminal.is_ready() {
                self.draw()?;
            }
            let mut actions = VecDeque::new();
            tokio::select! {
                pressed = next_input(&mut self.input) => {
                    self.pacing.urgent = true;
                    // Handle all queued keys at once: one frame for all of them.
                    let more = std::iter::from_fn(|| self.input.as_mut()?.try_next());
                    for pressed in std::iter::once(pressed).chain(more) {
                        match pressed {
                            InputEvent::HungUp => return Ok(()),
                            InputEvent::Key(key) => actions.push_back(ConsoleAction::Key(key)),
                            InputEvent::Mouse(mouse) => actions.push_back(ConsoleAction::Mouse(mouse)),
                        }
                    }
                }
                signal = signals.next() => match signal {
                    SignalEvent::End | SignalEvent::Interrupt => return Ok(()),
                    SignalEvent::Stop if self.state.restriction.confined => {}
                    SignalEvent::Resized => self.pacing.changed = true,
                    SignalEvent::Stop => self.suspend_console()?,
                    SignalEvent::Continued => {
                        self.terminal.take_terminal()?;
                        self.pacing.changed = true;
                    }
                },
                answer = self.questions.next_answer(&self.source) => {
                    let (question, answer) = answer;
                    actions.push_back(answer_to_action(question, answer)?);
                }
                done = await_acknowledgement(&mut self.acknowledging) => {
                    self.acknowledging = None;
                    self.show_result(done);
                }
                done = plugin_runner::await_plugin(&mut self.running) => {
                    self.running = None;
                    self.show_result(done);
                }
                _ = ticks.tick() => actions.push_back(ConsoleAction::Tick(unix_now())),
                () = sleep_until(due.into()), if self.pacing.changed && due > Instant::now() => {}
                () = self.terminal.wait_until_ready(), if self.pacing.changed && !self.terminal.is_ready() => {}
            }
            for action in actions {
                if self.handle_action(action)? {
                    return Ok(());
                }
            }
            if let Some(command) = self.foreground.take()
                && self.run_foreground(&command, &mut signals).await?
            {
                return Ok(());
            }
        }
    }

    fn draw(&mut self) -> Result<(), ConsoleError> {
        let begun = Instant::now();
        let chosen = self.state.preferences.theme.as_deref().and_then(Palette::parse);
        let file = self.state.config.theme.filter(|_| chosen.is_none());
        let palette = chosen.or(file.map(|theme| theme.palette)).unwrap_or(self.palette);
        let colours = file.and_then(|theme| theme.colours);
        let theme = self.theme.with_palette(palette).with_colours(colours);
        let theme = theme.with_units(self.state.config.units);
        let (state, mut layout) = (&self.state, None);
        let bytes =
            self.terminal.draw(|buffer| layout = Some(screen_frame::draw(buffer, state, theme)))?;
        tracing::trace!(micros = begun.elapsed().as_micros() as u64, bytes, "frame");
        let layout = layout.unwrap_or_default();
        // Request the data of the side pane as soon as the layout has space for it.
        let wider = layout.has_side_pane && !self.state.layout.has_side_pane;
        self.state.layout = layout;
        if wider {
            let shown = view_of(&self.state.screen);
            self.questions.enqueue_questions(shown.all_questions(&self.state));
        }
        self.pacing.record_frame(begun);
        Ok(())
    }

    fn suspend_console(&mut self) -> Result<(), ConsoleError> {
        self.terminal.suspend_process()?;
        self.pacing.changed = true;
        Ok(())
    }

    /// Applies an action and runs its effects. Returns whether the console ends.
    fn handle_action(&mut self, action: ConsoleAction) -> Result<bool, ConsoleError> {
        self.show_last_move();
        self.state.replay = self.player.as_ref().map(ReplayControl::current_progress);
        let was_loading = self.state.data.overview.is_none();
        let outcome = update::apply_action(&mut self.state, action);
        self.pacing.changed |= outcome.changed;
        // The first answer is awaited like that to a key.
        self.pacing.urgent |= was_loading && self.state.data.overview.is_some();
        for effect in outcome.effects {
            match effect {
                ConsoleEffect::Quit => return Ok(true),
                ConsoleEffect::Ask(questions) => self.questions.enqueue_questions(questions),
                ConsoleEffect::Redraw => self.terminal.force_redraw(),
                ConsoleEffect::Suspend => self.suspend_console()?,
                ConsoleEffect::ToggleReplay => self.control_replay(ReplayControl::toggle_pause),
                ConsoleEffect::SeekReplay(to) => self.control_replay(|player| player.seek_to(to)),
                ConsoleEffect::Bell => self.terminal.ring_bell()?,
                ConsoleEffect::Mouse(ours) => self.terminal.capture_mouse(ours)?,
                ConsoleEffect::Notify(form, text) => self.terminal.notify(form, &text)?,
                ConsoleEffect::Press(key) => {
                    if self.handle_action(ConsoleAction::OwnKey(key))? {
                        return Ok(true);
                    }
                }
                ConsoleEffect::Run(command) => self.run_plugin(command),
                ConsoleEffect::OpenContext(name) => self.open_context(&name),
                ConsoleEffect::OpenCluster(name) => self.open_cluster(name.as_deref()),
                ConsoleEffect::Copy(text) => {
                    self.terminal.copy_to_clipboard(&text)?;
                    let lines = text.lines().count();
                    let what = if lines > 1 { format!("{lines} lines") } else { text };
                    self.show_result(Ok(format!("copied: {what}")));
                }
                ConsoleEffect::SavePreferences(choices) => {
                    if let Some(path) = &self.preferences_path
                        && let Err(error) = preferences::save_preferences(path, &choices)
                    {
                        let text =
                            format!("cannot save preferences to {}: {error}", path.display());
                        self.show_result(Err(text));
                    }
                }
                ConsoleEffect::WriteFile(path, text) => {
                    self.show_result(csv_export::write_export(&path, &text));
                }
                ConsoleEffect::Acknowledge(findings, note) => {
                    self.send_acknowledgements(findings, note);
                }
            }
        }
        Ok(false)
    }

    /// Shows that another of several equal sources answers from now on.
    fn show_last_move(&mut self) {
        let moved = self.source.last_move().filter(|(moves, _)| *moves > self.moves_shown);
        if let Some((moves, notice)) = moved {
            self.moves_shown = moves;
            self.state.source = self.source.display_address().map(SanitizedText::new);
            self.show_result(Err(notice.to_string()));
        }
    }

    /// Runs a program of the user: in the background, or in the terminal as soon as the actions are handled.
    fn run_plugin(&mut self, command: PluginCommand) {
        if !command.background {
            self.foreground = Some(command);
        } else if self.running.is_some() {
            self.show_result(Err("the last program still runs".to_owned()));
        } else {
            self.running = Some(plugin_runner::start_background(command));
        }
    }

    /// Makes way for a program in the terminal until it ends. Returns whether the console ends.
    async fn run_foreground(
        &mut self,
        command: &PluginCommand,
        signals: &mut ConsoleSignals,
    ) -> Result<bool, ConsoleError> {
        if let Some(input) = self.input.take() {
            input.close();
        }
        self.terminal.release_terminal();
        let result = plugin_runner::run_foreground(command, signals).await;
        self.terminal.take_terminal()?;
        self.input = Some(TerminalInput::open_input()?);
        let ends = result.is_none();
        if let Some(result) = result {
            self.show_result(result);
        }
        self.pacing.changed = true;
        Ok(ends)
    }

    /// Changes to another aggregator of the user's file; on an error the present one stays.
    fn open_context(&mut self, name: &str) {
        let opened = match (&self.contexts, self.state.config.contexts.get(name)) {
            (Some(connection), Some(address)) => connection.open(address),
            (None, _) => Err("this console cannot change its source".to_owned()),
            (_, None) => Err(format!("{name} is not in [contexts]")),
        };
        match opened {
            Ok(source) => {
                self.joined = None;
                self.replace_source(source);
                self.show_result(Ok(format!("context {name}")));
            }
            Err(why) => self.show_result(Err(format!("context {name}: {why}"))),
        }
    }

    /// Shows one of the clusters that the source joins, or all of them.
    fn open_cluster(&mut self, name: Option<&str>) {
        let joined = self.joined.get_or_insert_with(|| self.source.clone()).clone();
        let source = match name {
            Some(name) => joined.select_cluster(name),
            None => Some(joined.clone()),
        };
        let shown = name.unwrap_or("all clusters");
        match source {
            Some(source) => {
                self.replace_source(source);
                self.state.clusters = joined.cluster_names();
                self.show_result(Ok(format!("cluster: {shown}")));
            }
            None => self.show_result(Err(format!("cluster {shown}: it is not joined here"))),
        }
    }

    /// Shows another source from the first screen on.
    fn replace_source(&mut self, source: Arc<dyn ConsoleSource>) {
        let preferences = self.state.preferences.clone();
        let mut state = ConsoleState::new(source.display_address(), unix_now(), preferences);
        state.apply_config(self.state.config.clone(), self.state.restriction);
        state.clusters = source.cluster_names();
        (self.source, self.state) = (source, state);
        (self.questions, self.acknowledging) = (QuestionQueues::default(), None);
        let shown = view_of(&self.state.screen);
        self.questions.enqueue_questions(shown.all_questions(&self.state));
    }

    /// Applies `how` to the replay controls, if the source is a replay.
    fn control_replay(&mut self, how: impl FnOnce(&ReplayControl)) {
        self.state.replay = self.player.as_ref().map(|player| {
            how(player);
            player.current_progress()
        });
    }

    /// Sends acknowledgements, or withdraws them if there is no note.
    fn send_acknowledgements(&mut self, findings: Vec<SanitizedText>, note: Option<String>) {
        if self.acknowledging.is_some() {
            return self.show_result(Err("the last acknowledgement is still pending".to_owned()));
        }
        self.acknowledging = Some(acknowledge_findings(self.source.clone(), findings, note));
    }

    /// Shows the result of an effect.
    fn show_result(&mut self, result: Result<String, String>) {
        let result = match result {
            Ok(text) => Ok(SanitizedText::new(&text)),
            Err(text) => Err(SanitizedText::new(&text)),
        };
        let outcome = update::apply_action(&mut self.state, ConsoleAction::Done(result));
        self.pacing.changed |= outcome.changed;
    }
}

/// Converts an answer to an action; a closed engine never answers again.
fn answer_to_action(
    question: Question,
    answer: Result<Answer, SourceError>,
) -> Result<ConsoleAction, ConsoleError> {
    match answer {
        Ok(answer) => Ok(ConsoleAction::Answered(unix_now(), Box::new(question), answer)),
        Err(gone @ SourceError::Ended(_)) => Err(ConsoleError::Source(gone)),
        Err(error) => Ok(ConsoleAction::Failed(
            unix_now(),
            Box::new(question),
            SanitizedText::new(&error.to_string()),
        )),
    }
}

/// Returns the current time by the console's clock.
fn unix_now() -> UnixMs {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixMs(since.as_millis() as i64)
}
