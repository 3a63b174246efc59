//! What the reader types at the bottom: filters, commands, notes.

use std::path::PathBuf;

use gaunt_schema::Safe;

use super::{Outcome, confirm, say, time, travel};
use crate::{
    answer::{Field, Filter, Question, Subject, filter::MAX_ROWS},
    console::{
        action::{Effect, Intent},
        commands::{self, Command, Form},
        keymap::Key,
        place::Place,
        prompt::{Asks, Known, Prompt, Typed, Wrong},
        state::{Panel, State},
    },
};

/// Opens the line.
pub(super) fn begin(state: &mut State, intent: Intent) -> Outcome {
    let prompt = match intent {
        Intent::Filter => {
            let Some(subject) = state.place.subject() else { return Outcome::default() };
            let rows = state.list(subject).rows.clone();
            Prompt::new(Asks::Filter(subject), &rows)
        }
        Intent::Columns => {
            let Some(subject) = state.place.subject() else { return Outcome::default() };
            let columns = state.list(subject).columns();
            let names: Vec<&str> = columns.iter().map(|field| field.name.as_str()).collect();
            Prompt::new(Asks::Command, &format!("columns {}", names.join(",")))
        }
        Intent::Acknowledge => return acknowledge(state),
        _ => Prompt::new(Asks::Command, ""),
    };
    show(state, prompt);
    Outcome::drawn()
}

/// Shows the line with what could stand in it.
fn show(state: &mut State, mut prompt: Prompt) {
    prompt.offer = with_known(state, |known| prompt.offered(known));
    state.prompt = Some(prompt);
}

/// Asks for a note about the finding, or withdraws what was acknowledged.
fn acknowledge(state: &mut State) -> Outcome {
    let findings = state.to_acknowledge();
    let Some(first) = findings.first() else { return Outcome::default() };
    if state.then.is_some() {
        say(state, false, "the past cannot be acknowledged; . goes back to now");
        return Outcome::drawn();
    }
    let open: Vec<Safe> = findings
        .iter()
        .filter(|finding| finding.acknowledged.is_none())
        .map(|finding| Safe::new(&finding.id))
        .collect();
    let what = match &open[..] {
        // What others did is not undone by one key.
        [] => {
            state.confirm = Some(confirm::withdraw(state, &findings));
            return Outcome::drawn();
        }
        [one] => one.clone(),
        many => Safe::new(&format!("{} findings of {}", many.len(), first.kind)),
    };
    show(state, Prompt::new(Asks::Note(open, what), ""));
    Outcome::drawn()
}

/// Takes a key into the line.
pub(super) fn press(state: &mut State, key: Key) -> Outcome {
    let Some(mut prompt) = state.prompt.take() else { return Outcome::default() };
    let past = state.past.clone();
    let typed = with_known(state, |known| prompt.press(key, &past, known));
    match typed {
        Typed::Left => Outcome::drawn(),
        Typed::Goes => {
            state.prompt = Some(prompt);
            Outcome::drawn()
        }
        Typed::Entered(line) => {
            let asks = prompt.asks.clone();
            let taken = match &asks {
                Asks::Filter(subject) => narrow(state, &mut prompt, *subject, &line),
                Asks::Command => command(state, &mut prompt, &line),
                Asks::Note(findings, what) => Ok(note(state, findings.clone(), what, line.clone())),
            };
            if let Ok(outcome) = taken {
                state.past.remember(&asks, &line);
                outcome
            } else {
                // The line stays, with what is wrong with it.
                state.prompt = Some(prompt);
                Outcome::drawn()
            }
        }
    }
}

/// Acknowledges a finding with what was noted; many only after a question that names their number.
fn note(state: &mut State, findings: Vec<Safe>, what: &Safe, line: String) -> Outcome {
    if findings.len() < 2 {
        return Outcome::owing(Effect::Acknowledge(findings, Some(line)));
    }
    state.confirm = Some(confirm::acknowledge(findings, what, line));
    Outcome::drawn()
}

/// The line says itself why it was not taken.
struct NotTaken;

fn narrow(
    state: &mut State,
    prompt: &mut Prompt,
    subject: Subject,
    line: &str,
) -> Result<Outcome, NotTaken> {
    state.list_mut(subject).narrow(line).map_err(|error| {
        prompt.refuse(&error);
        NotTaken
    })?;
    Ok(Outcome::owing(Effect::Ask(state.questions())))
}

fn command(state: &mut State, prompt: &mut Prompt, line: &str) -> Result<Outcome, NotTaken> {
    if line.is_empty() {
        return Ok(Outcome::drawn());
    }
    let done = commands::parse(line).and_then(|command| run(state, command));
    done.map_err(|why| {
        prompt.wrong = Some(Wrong { place: None, why: Safe::new(&why) });
        NotTaken
    })
}

fn run(state: &mut State, command: Command) -> Result<Outcome, String> {
    Ok(match command {
        Command::Go(place) => travel::go(state, place),
        Command::At(None) => time::show(state, None),
        Command::At(Some(instant)) => time::name(state, instant)?,
        Command::Theme(palette) => {
            state.kept.theme = Some(palette.as_str().to_owned());
            Outcome::owing(Effect::Keep(state.kept.clone()))
        }
        Command::Write(form, path) => return write(state, form, path),
        Command::Columns(names) => return columns(state, &names),
        Command::Sort(words) => {
            let subject = listed(state)?;
            let text = format!("sort {words}");
            let filter = Filter::parse(subject, &text).map_err(|error| error.to_string())?;
            state.list_mut(subject).sort = filter.sorts().next();
            Outcome::owing(Effect::Ask(state.questions()))
        }
        Command::Filter(text) => {
            let subject = state.place.subject().ok_or("this screen has no rows to narrow")?;
            state.list_mut(subject).narrow(&text).map_err(|error| error.to_string())?;
            Outcome::owing(Effect::Ask(state.questions()))
        }
        Command::Colour(name) => {
            state.tint = match name {
                None => None,
                Some(name) => {
                    let field = Subject::Gpus.field(&name);
                    let number = |f: &&'static Field| !f.is_text();
                    Some(
                        field
                            .filter(number)
                            .ok_or_else(|| format!("GPUs have no number {name}"))?,
                    )
                }
            };
            state.panel = Panel::Heat;
            travel::go(state, Place::Overview);
            Outcome::owing(Effect::Ask(state.questions()))
        }
        Command::Mouse(on) => Outcome::owing(Effect::Mouse(on)),
        Command::Help => {
            state.help = true;
            Outcome::drawn()
        }
        Command::Quit => Outcome::owing(Effect::Quit),
    })
}

/// The subject of the list that is shown.
fn listed(state: &State) -> Result<Subject, String> {
    match state.place {
        Place::List(subject) => Ok(subject),
        _ => Err("this screen has no columns; 3, 5, 6, 7 and 9 do".into()),
    }
}

fn columns(state: &mut State, names: &str) -> Result<Outcome, String> {
    let subject = listed(state)?;
    state.list_mut(subject).choose(names).map_err(|error| error.to_string())?;
    let (key, kept) = (subject.as_str().to_owned(), &mut state.kept.columns);
    if names.trim().is_empty() {
        kept.remove(&key);
    } else {
        kept.insert(key, names.to_owned());
    }
    let effects = vec![Effect::Keep(state.kept.clone()), Effect::Ask(state.questions())];
    Ok(Outcome { changed: true, effects })
}

/// Asks for all rows; they are written when they come.
fn write(state: &mut State, form: Form, path: PathBuf) -> Result<Outcome, String> {
    let subject = state.place.subject().ok_or("this screen has no rows; open a list first")?;
    let list = state.list(subject);
    let names: Vec<&str> = list.columns().iter().map(|field| field.name.as_str()).collect();
    let sort = list.sort.map_or_else(String::new, |(field, falls)| {
        format!(" sort {}{}", field.name, if falls { " desc" } else { "" })
    });
    let text = format!("{}{sort} limit {MAX_ROWS} columns {}", list.rows, names.join(","));
    let filter = Filter::parse(subject, &text).map_err(|error| error.to_string())?;
    state.to_write = Some((Question::Table(filter), form, path));
    Ok(Outcome::owing(Effect::Ask(state.questions())))
}

/// Hands over what can be completed: the texts of the rows that are shown, and the names of nodes.
fn with_known<T>(state: &State, take: impl FnOnce(&Known<'_>) -> T) -> T {
    let table = state.place.subject().and_then(|subject| state.table(subject));
    let values = |field: &Field| -> Vec<Safe> {
        let column = table.and_then(|table| table.column(&field.name));
        match column.map(|column| &column.cells) {
            Some(crate::answer::Cells::Texts { words, .. }) => words.clone(),
            _ => Vec::new(),
        }
    };
    let nodes = state.data.overview.as_deref().map_or(&[][..], |overview| &overview.heat.nodes);
    take(&Known { values: &values, nodes, place: &state.place })
}
