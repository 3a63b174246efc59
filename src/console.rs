//! The console: asks a source once a period, draws what it answers, and obeys keys until it is told to end.

use std::{
    collections::VecDeque,
    future::pending,
    io,
    pin::Pin,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use gaunt_schema::{Safe, UnixMs};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    time::{MissedTickBehavior, interval},
};

use crate::{
    answer::{Answer, Question},
    source::{Player, Source, SourceError},
};

mod action;
mod cursor;
mod format;
mod keymap;
mod state;
mod terminal;
mod theme;
mod update;
mod view;
mod widget;

#[cfg(test)]
mod sample;
#[cfg(test)]
mod screens;
use action::{Action, Effect};
use keymap::Key;
use state::State;
use terminal::{Input, Pressed, Screen};
pub use theme::{Colour, Glyphs};

/// How the console behaves.
#[derive(Clone, Debug)]
pub struct Options {
    /// The time between two questions.
    pub period: Duration,
    /// How many colours are used.
    pub colour: Colour,
    /// Which characters are used.
    pub glyphs: Glyphs,
    /// The replay that is shown, if it is one: `z` holds it.
    pub player: Option<Player>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            period: Duration::from_secs(1),
            colour: Colour::Auto,
            glyphs: Glyphs::Auto,
            player: None,
        }
    }
}

/// The shortest time between two questions: nobody reads faster.
const MIN_PERIOD: Duration = Duration::from_millis(50);

/// Holds a replay, or lets it go on.
const HOLD: Key = Key::Char('z');

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
    let environment = |name: &str| std::env::var(name).ok();
    let theme = theme::Theme::new(options.colour, options.glyphs, environment);
    // Signals are caught before the terminal is taken: none may end us while it is in our hands.
    let mut signals = Signals::new()?;
    let mut screen = Screen::open()?;
    let mut input = Input::open()?;
    let mut state = State::new(source.address(), now()).of_replay(options.player.is_some());
    let mut asking = Asking::default();
    let mut ticks = interval(options.period.max(MIN_PERIOD));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut changed = true;
    loop {
        if screen.panicked() {
            return Err(ConsoleError::Panicked);
        }
        if changed && screen.is_ready() {
            let mut room = state.room;
            screen.draw(|buffer| room = view::draw(buffer, &state, theme))?;
            state.room = room;
            changed = false;
        }
        let mut actions = VecDeque::new();
        tokio::select! {
            pressed = input.next() => {
                // What was pressed meanwhile is taken at once: one frame for all of it.
                for pressed in std::iter::once(pressed).chain(std::iter::from_fn(|| input.waiting())) {
                    match pressed {
                        Pressed::HungUp => return Ok(()),
                        Pressed::Key(HOLD) if options.player.is_some() => {
                            state.held = options.player.as_ref().map(Player::toggle);
                            changed = true;
                        }
                        Pressed::Key(key) => actions.extend(keymap::intent(key).map(Action::Intent)),
                    }
                }
            }
            end = signals.next() => match end {
                Told::End => return Ok(()),
                Told::Resized => changed = true,
            },
            answer = asking.answer(&source) => actions.push_back(answered(answer)?),
            _ = ticks.tick() => actions.push_back(Action::Tick(now())),
            () = screen.ready(), if changed => {}
        }
        for action in actions {
            let outcome = update::update(&mut state, action);
            changed |= outcome.changed;
            for effect in outcome.effects {
                match effect {
                    Effect::Quit => return Ok(()),
                    Effect::Ask(questions) => asking.want(questions),
                    Effect::Redraw => screen.forget()?,
                    Effect::Suspend => {
                        screen.suspend()?;
                        changed = true;
                    }
                }
            }
        }
    }
}

/// What an answer means for the state; an owner that is gone will never answer again.
fn answered(answer: Result<Answer, SourceError>) -> Result<Action, ConsoleError> {
    match answer {
        Ok(answer) => Ok(Action::Answered(now(), answer)),
        Err(gone @ SourceError::Owner(_)) => Err(ConsoleError::Source(gone)),
        Err(error) => Ok(Action::Failed(now(), Safe::new(&error.to_string()))),
    }
}

/// The console's clock.
fn now() -> UnixMs {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixMs(since.as_millis() as i64)
}

/// A question on its way.
type Asked = Pin<Box<dyn Future<Output = Result<Answer, SourceError>> + Send>>;

/// The question that is out, at most one, and those that wait for it.
#[derive(Default)]
struct Asking {
    out: Option<Asked>,
    waiting: VecDeque<Question>,
}

impl Asking {
    /// These are to be asked now; others that wait are no longer of interest. What waited longer comes first, so that
    /// a slow source does not answer the same question for ever.
    fn want(&mut self, questions: Vec<Question>) {
        self.waiting.retain(|waiting| questions.contains(waiting));
        for question in questions {
            if !self.waiting.contains(&question) {
                self.waiting.push_back(question);
            }
        }
    }

    /// The next answer; never, while nothing is to be asked.
    async fn answer(&mut self, source: &Source) -> Result<Answer, SourceError> {
        if self.out.is_none() {
            let Some(question) = self.waiting.pop_front() else { return pending().await };
            let source = source.clone();
            self.out = Some(Box::pin(async move { source.ask(question).await }));
        }
        let Some(out) = &mut self.out else { return pending().await };
        let answer = out.await;
        self.out = None;
        answer
    }
}

/// What the operating system tells.
enum Told {
    /// To end.
    End,
    /// That the terminal has another size.
    Resized,
}

/// The signals that matter here.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
    resize: Signal,
}

impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
            resize: signal(SignalKind::window_change())?,
        })
    }

    async fn next(&mut self) -> Told {
        tokio::select! {
            _ = self.terminate.recv() => Told::End,
            _ = self.interrupt.recv() => Told::End,
            _ = self.hang_up.recv() => Told::End,
            _ = self.resize.recv() => Told::Resized,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waited_longer_is_asked_first_and_nothing_twice() {
        let node = Question::Node("gpu001".into());
        let mut asking = Asking::default();
        asking.want(vec![Question::Overview, node.clone()]);
        assert_eq!(asking.waiting.pop_front(), Some(Question::Overview));
        asking.want(vec![Question::Overview, node.clone()]);
        assert_eq!(asking.waiting, [node, Question::Overview]);
        asking.want(vec![Question::Overview, Question::Nodes]);
        assert_eq!(asking.waiting, [Question::Overview, Question::Nodes]);
    }
}
