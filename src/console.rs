//! The console: asks a source once a period, draws what it answers, and obeys keys until it is told to end.

use std::{
    collections::VecDeque,
    io,
    path::PathBuf,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use gaunt_schema::{Safe, UnixMs};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    time::{MissedTickBehavior, interval, sleep_until},
};

use crate::{
    answer::{Answer, Question},
    source::{Player, Source, SourceError},
};

mod acting;
mod action;
mod asking;
mod commands;
mod cursor;
mod events;
mod format;
mod freshness;
mod kept;
mod keymap;
mod list;
mod matrix;
mod place;
mod prompt;
mod proof;
mod rows;
mod sheet;
mod state;
mod terminal;
mod theme;
mod update;
mod users;
mod view;
mod widget;
mod wiring;

#[cfg(test)]
mod sample;
#[cfg(test)]
mod screens;
#[cfg(test)]
mod ways_out;
use acting::{Acting, acknowledge, acted};
use action::{Action, Effect};
use asking::Asking;
use state::State;
use terminal::{Input, Pressed, Screen};
use theme::Theme;
pub use theme::{Colour, Glyphs, Palette};

/// How the console behaves.
#[derive(Clone, Debug)]
pub struct Options {
    /// The time between two questions.
    pub period: Duration,
    /// How many colours are used.
    pub colour: Colour,
    /// Which characters are used.
    pub glyphs: Glyphs,
    /// Which colours stand for which meaning; what the reader chose himself wins.
    pub palette: Palette,
    /// The replay that is shown, if it is one: `z` holds it.
    pub player: Option<Player>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            period: Duration::from_secs(1),
            colour: Colour::Auto,
            glyphs: Glyphs::Auto,
            palette: Palette::default(),
            player: None,
        }
    }
}

/// The shortest time between two questions: nobody reads faster.
const MIN_PERIOD: Duration = Duration::from_millis(50);

/// Why the console ended other than by being told to.
#[derive(Debug, thiserror::Error)]
pub enum ConsoleError {
    /// The terminal cannot be used.
    #[error("the terminal cannot be used: {0}; `gaunt snapshot` needs none")]
    Terminal(#[from] io::Error),
    /// The source in this process ended, and with it everything there is to show.
    #[error(transparent)]
    Source(SourceError),
    /// A part of the program panicked; its message is on the terminal.
    #[error("a part of gaunt panicked; its message stands above")]
    Panicked,
}

/// Shows what `source` answers until the reader quits, the terminal hangs up, or a signal ends the program.
pub async fn run(source: Source, options: Options) -> Result<(), ConsoleError> {
    // Signals are caught before the terminal is taken: none may end us while it is in our hands.
    let signals = Signals::new()?;
    let mut desk = Desk::open(source, &options)?;
    desk.sit(signals, options.period.max(MIN_PERIOD)).await
}

/// The shortest time between two frames that nobody asked for by a key: twenty a second are more than anybody reads.
const FRAME: Duration = Duration::from_millis(50);

/// The shortest time between two frames when keys are pressed.
const KEY_FRAME: Duration = Duration::from_millis(8);

/// After a frame the link rests so many times as long as it took to take it: a slow one gets fewer frames.
const REST: u32 = 2;

/// The longest such rest: even the slowest link shows something.
const LONGEST_REST: Duration = Duration::from_secs(5);

/// The terminal, what is drawn on it, and who is asked.
struct Desk {
    source: Source,
    theme: Theme,
    palette: Palette,
    keep: Option<PathBuf>,
    player: Option<Player>,
    screen: Screen,
    input: Input,
    state: State,
    asking: Asking,
    /// What is being done to findings, at most one thing at a time.
    acting: Option<Acting>,
    /// Whether the screen must be drawn.
    changed: bool,
    /// Whether a key waits for its frame.
    urgent: bool,
    /// When the last frame was drawn.
    drawn: Option<Instant>,
}

impl Desk {
    fn open(source: Source, options: &Options) -> Result<Self, ConsoleError> {
        let environment = |name: &str| std::env::var(name).ok();
        let theme = Theme::new(options.colour, options.glyphs, environment);
        let keep = kept::place(environment);
        let kept = keep.as_deref().map(kept::read).unwrap_or_default();
        let state = State::new(source.address(), now(), kept);
        Ok(Self {
            player: options.player.clone(),
            theme,
            palette: options.palette,
            keep,
            screen: Screen::open()?,
            input: Input::open()?,
            state,
            asking: Asking::default(),
            acting: None,
            changed: true,
            urgent: true,
            drawn: None,
            source,
        })
    }

    async fn sit(&mut self, mut signals: Signals, period: Duration) -> Result<(), ConsoleError> {
        let mut ticks = interval(period);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            if self.screen.panicked() {
                return Err(ConsoleError::Panicked);
            }
            let due = self.due();
            if self.changed && due <= Instant::now() && self.screen.is_ready() {
                self.draw()?;
            }
            let mut actions = VecDeque::new();
            tokio::select! {
                pressed = self.input.next() => {
                    self.urgent = true;
                    // What was pressed meanwhile is taken at once: one frame for all of it.
                    let more = std::iter::from_fn(|| self.input.waiting());
                    for pressed in std::iter::once(pressed).chain(more) {
                        match pressed {
                            Pressed::HungUp => return Ok(()),
                            Pressed::Key(key) => actions.push_back(Action::Key(key)),
                            Pressed::Mouse(mouse) => actions.push_back(Action::Mouse(mouse)),
                        }
                    }
                }
                told = signals.next() => match told {
                    Told::End => return Ok(()),
                    Told::Resized => self.changed = true,
                    Told::Stop => self.suspend()?,
                    Told::Continued => {
                        self.screen.retake()?;
                        self.changed = true;
                    }
                },
                answer = self.asking.answer(&self.source) => {
                    let (question, answer) = answer;
                    actions.push_back(answered(question, answer)?);
                }
                done = acted(&mut self.acting) => {
                    self.acting = None;
                    self.done(done);
                }
                _ = ticks.tick() => actions.push_back(Action::Tick(now())),
                () = sleep_until(due.into()), if self.changed && due > Instant::now() => {}
                () = self.screen.ready(), if self.changed && !self.screen.is_ready() => {}
            }
            for action in actions {
                if self.act(action)? {
                    return Ok(());
                }
            }
        }
    }

    /// When the next frame may be drawn.
    fn due(&self) -> Instant {
        let Some(drawn) = self.drawn else { return Instant::now() };
        let rest = (self.screen.took() * (REST + 1)).min(LONGEST_REST);
        drawn + if self.urgent { KEY_FRAME } else { FRAME.max(rest) }
    }

    fn draw(&mut self) -> Result<(), ConsoleError> {
        let begun = Instant::now();
        let chosen = self.state.kept.theme.as_deref().and_then(Palette::parse);
        let theme = self.theme.painted(chosen.unwrap_or(self.palette));
        let (state, mut room) = (&self.state, None);
        let bytes = self.screen.draw(|buffer| room = Some(view::draw(buffer, state, theme)))?;
        tracing::trace!(micros = begun.elapsed().as_micros() as u64, bytes, "frame");
        let room = room.unwrap_or_default();
        // What is beside the map must be asked for as soon as it is known that there is room for it.
        let wider = room.beside && !self.state.room.beside;
        self.state.room = room;
        if wider {
            self.asking.want(self.state.questions());
        }
        (self.changed, self.urgent, self.drawn) = (false, false, Some(begun));
        Ok(())
    }

    fn suspend(&mut self) -> Result<(), ConsoleError> {
        self.screen.suspend()?;
        self.changed = true;
        Ok(())
    }

    /// Takes an action and does what is owed; whether that ends the console.
    fn act(&mut self, action: Action) -> Result<bool, ConsoleError> {
        self.state.replay = self.player.as_ref().map(Player::playing);
        let outcome = update::update(&mut self.state, action);
        self.changed |= outcome.changed;
        for effect in outcome.effects {
            match effect {
                Effect::Quit => return Ok(true),
                Effect::Ask(questions) => self.asking.want(questions),
                Effect::Redraw => self.screen.forget(),
                Effect::Suspend => self.suspend()?,
                Effect::Hold => self.lead(Player::toggle),
                Effect::Lead(to) => self.lead(|player| player.lead(to)),
                Effect::Bell => self.screen.ring()?,
                Effect::Mouse(ours) => self.screen.take_mouse(ours)?,
                Effect::Copy(text) => {
                    self.screen.copy(&text)?;
                    self.done(Ok(format!("copied: {text}")));
                }
                Effect::Keep(choices) => {
                    if let Some(path) = &self.keep
                        && let Err(error) = kept::write(path, &choices)
                    {
                        let text = format!("this cannot be kept in {}: {error}", path.display());
                        self.done(Err(text));
                    }
                }
                Effect::Write(path, text) => {
                    let result = kept::write_new(&path, &text);
                    let (path, lines) = (path.display(), text.lines().count());
                    self.done(match result {
                        Ok(()) => Ok(format!("wrote {lines} lines into {path}")),
                        Err(error) => Err(format!("cannot write {path}: {error}")),
                    });
                }
                Effect::Acknowledge(findings, note) => self.acknowledge(findings, note),
            }
        }
        Ok(false)
    }

    /// Does something to the replay, if it is one.
    fn lead(&mut self, how: impl FnOnce(&Player)) {
        self.state.replay = self.player.as_ref().map(|player| {
            how(player);
            player.playing()
        });
    }

    /// Sends acknowledgements, or with no note withdraws them.
    fn acknowledge(&mut self, findings: Vec<Safe>, note: Option<String>) {
        if self.acting.is_some() {
            return self.done(Err("the last acknowledgement is still on its way".to_owned()));
        }
        self.acting = Some(acknowledge(self.source.clone(), findings, note));
    }

    /// Says what became of something that was owed.
    fn done(&mut self, result: Result<String, String>) {
        let result = match result {
            Ok(text) => Ok(Safe::new(&text)),
            Err(text) => Err(Safe::new(&text)),
        };
        let outcome = update::update(&mut self.state, Action::Done(result));
        self.changed |= outcome.changed;
    }
}

/// What an answer means for the state; an owner that is gone will never answer again.
fn answered(
    question: Question,
    answer: Result<Answer, SourceError>,
) -> Result<Action, ConsoleError> {
    match answer {
        Ok(answer) => Ok(Action::Answered(now(), Box::new(question), answer)),
        Err(gone @ SourceError::Owner(_)) => Err(ConsoleError::Source(gone)),
        Err(error) => Ok(Action::Failed(now(), Box::new(question), Safe::new(&error.to_string()))),
    }
}

/// The console's clock.
fn now() -> UnixMs {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixMs(since.as_millis() as i64)
}

/// What the operating system tells.
enum Told {
    /// To end.
    End,
    /// That the terminal has another size.
    Resized,
    /// To stop until it is continued.
    Stop,
    /// That it goes on after it was stopped.
    Continued,
}

/// The signals that matter here.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    quit: Signal,
    hang_up: Signal,
    resize: Signal,
    stop: Signal,
    go_on: Signal,
}

impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            quit: signal(SignalKind::quit())?,
            hang_up: signal(SignalKind::hangup())?,
            resize: signal(SignalKind::window_change())?,
            stop: signal(SignalKind::from_raw(rustix::process::Signal::TSTP.as_raw()))?,
            go_on: signal(SignalKind::from_raw(rustix::process::Signal::CONT.as_raw()))?,
        })
    }

    async fn next(&mut self) -> Told {
        tokio::select! {
            _ = self.terminate.recv() => Told::End,
            _ = self.interrupt.recv() => Told::End,
            _ = self.quit.recv() => Told::End,
            _ = self.hang_up.recv() => Told::End,
            _ = self.resize.recv() => Told::Resized,
            _ = self.stop.recv() => Told::Stop,
            _ = self.go_on.recv() => Told::Continued,
        }
    }
}
