//! Commands of the `:` prompt: one table for parsing, completion and help.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use gaunt_schema::UnixMs;

use super::{
    csv_export::ExportFormat, key_press::KeyPress, screen::Screen, screens, theme::Palette,
    user_config::UserConfig,
};
use gaunt_api::TimeParam;

/// Parsed command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PromptCommand {
    /// Open a screen.
    OpenScreen(Screen),
    /// Open a screen with these rows.
    OpenRows(Screen, String),
    /// Save the shown rows as a command of this name.
    SaveRows(String),
    /// Remove a saved command.
    ForgetRows(String),
    /// Show an instant of the past; none for the present.
    ShowInstant(Option<TimeArgument>),
    /// Change the palette; none for that of the user's file or the settings.
    Theme(Option<Palette>),
    /// Export the shown rows to a file.
    Write(ExportFormat, PathBuf),
    /// Choose columns.
    Columns(String),
    /// Sort by a field.
    Sort(String),
    /// Filter the rows.
    Filter(String),
    /// Colour the heat map by a GPU field; none for GPU states.
    Colour(Option<String>),
    /// Open the aggregator of a name in the user's file; none to list them.
    Context(String),
    /// Show one of several clusters, or all of them.
    Cluster(String),
    /// Act as a key.
    Key(KeyPress),
    /// Capture or release the mouse.
    Mouse(bool),
    /// Show the help screen.
    Help,
    /// Quit the console.
    Quit,
}

/// Time argument of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimeArgument {
    /// Time in the syntax of the API.
    When(TimeParam),
    /// Time of day in the shown time zone, in seconds: the most recent one.
    Clock(i64),
    /// Time of day in UTC, in seconds: the most recent one.
    UtcClock(i64),
}

/// Commands that do not open a screen: name, argument, description.
const COMMANDS: [(&str, &str, &str); 15] = [
    ("at", "-20m | 12:03 | now", "show a past time"),
    ("live", "", "return to now"),
    ("filter", "FILTER", "filter rows, as with /"),
    ("save", "NAME", "keep these rows as the command :NAME"),
    ("forget", "NAME", "remove a saved command"),
    ("sort", "FIELD [desc]", "sort rows"),
    ("columns", "FIELD,…", "choose columns; none: default columns"),
    ("colour", "state | FIELD", "colour of the heat map"),
    ("theme", "NAME", "dark, light, contrast, colourblind, file"),
    ("write", "csv|json FILE", "write the rows to a new file"),
    ("ctx", "NAME", "aggregator of your config.toml"),
    ("key", "KEY", "act as a key, for bindings"),
    ("mouse", "on | off", "off: the terminal uses the mouse"),
    ("help", "", "keys of this screen"),
    ("quit", "", "quit"),
];

/// Returns the commands of the help: name, argument, description. Main screens have a key instead.
pub(crate) fn listed_commands() -> impl Iterator<Item = (&'static str, &'static str, &'static str)>
{
    screens::other_commands()
        .map(|command| (command.word, command.arguments, command.help))
        .chain(COMMANDS)
}

impl TimeArgument {
    /// Parses `-20m`, `12:03`, `12:03:41`, or a time of day in UTC: `12:03Z`.
    fn parse(text: &str) -> Option<Self> {
        if let Some(when) = TimeParam::parse(text) {
            return Some(Self::When(when));
        }
        let utc = text.strip_suffix('Z');
        let mut parts = utc.unwrap_or(text).split(':');
        let mut next = |limit: i64| parts.next()?.parse().ok().filter(|n| (0..limit).contains(n));
        let (hour, minute): (i64, i64) = (next(24)?, next(60)?);
        let second = if text.matches(':').count() == 2 { next(60)? } else { 0 };
        let second = hour * 3_600 + minute * 60 + second;
        let clock = if utc.is_some() { Self::UtcClock(second) } else { Self::Clock(second) };
        parts.next().is_none().then_some(clock)
    }

    /// Returns the argument with its time of day in UTC, where the shown time zone is `offset` seconds east of it.
    pub(crate) fn to_utc(self, offset: Option<i32>) -> Self {
        match (self, offset) {
            (Self::Clock(second), offset) => {
                Self::UtcClock((second - i64::from(offset.unwrap_or(0))).rem_euclid(86_400))
            }
            (utc, _) => utc,
        }
    }

    /// Resolves the argument at the time `now`; a time of day is the last one that has passed.
    pub(crate) fn resolve_instant(self, now: UnixMs) -> UnixMs {
        match self {
            Self::When(when) => when.to_instant(now),
            Self::Clock(second) | Self::UtcClock(second) => {
                let today = instant_today(now, second);
                if today > now { today - DAY } else { today }
            }
        }
    }

    /// Resolves the argument to an instant later today, if it is a time of day that is still to come.
    pub(crate) fn upcoming_instant(self, now: UnixMs) -> Option<UnixMs> {
        match self {
            Self::When(_) => None,
            Self::Clock(second) | Self::UtcClock(second) => {
                Some(instant_today(now, second)).filter(|today| *today > now)
            }
        }
    }
}

/// Letters of the longest name of a saved command.
const MAX_NAME: usize = 24;

const DAY: Duration = Duration::from_hours(24);

/// Returns a second of the day of `now`.
fn instant_today(now: UnixMs, second: i64) -> UnixMs {
    let day = DAY.as_millis() as i64;
    UnixMs(now.0.div_euclid(day) * day + second * 1_000)
}

/// Returns whether a word is a command.
pub(crate) fn is_command(word: &str) -> bool {
    // `cluster` is of use only where several are joined.
    let more = ["now", "color", "q", "exit", "cluster"];
    more.contains(&word)
        || screens::screen_commands().any(|command| command.word == word)
        || COMMANDS.iter().any(|(known, ..)| *known == word)
}

/// Drops aliases that are commands, with an error for each.
pub(crate) fn check_aliases(config: &mut UserConfig) {
    let (kept, commands) =
        std::mem::take(&mut config.aliases).into_iter().partition(|(word, _)| !is_command(word));
    config.aliases = kept;
    let commands: BTreeMap<String, String> = commands;
    let errors = commands
        .into_keys()
        .map(|word| format!("aliases.{word}: is a command of gaunt; choose another name"));
    config.errors.extend(errors);
}

/// Parses a command line, or returns why it is invalid.
pub(crate) fn parse(line: &str) -> Result<PromptCommand, String> {
    let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let rest = rest.trim();
    if let Some(command) = screens::screen_commands().find(|command| command.word == word) {
        // The rest of the command of a list are its rows: `nodes lost>0`.
        if command.arguments.is_empty()
            && !rest.is_empty()
            && let Ok(screen) = command.parse_arguments("")
            && screens::view_of(&screen).filter_subject().is_some()
        {
            return Ok(PromptCommand::OpenRows(screen, rest.to_owned()));
        }
        return command.parse_arguments(rest).map(PromptCommand::OpenScreen);
    }
    let needs =
        |what: &str| if rest.is_empty() { Err(format!("{word} needs {what}")) } else { Ok(rest) };
    Ok(match word {
        "at" if rest == "now" => PromptCommand::ShowInstant(None),
        "at" => {
            let instant = TimeArgument::parse(needs("a time: -20m, 12:03, now")?);
            PromptCommand::ShowInstant(Some(
                instant.ok_or("invalid time; use -20m, -90s, -7d, 12:03 or now")?,
            ))
        }
        "live" | "now" => PromptCommand::ShowInstant(None),
        "filter" => PromptCommand::Filter(rest.to_owned()),
        "save" => parse_saved_name(needs("a name, as in: save hot")?)?,
        "forget" => PromptCommand::ForgetRows(needs("the name of saved rows")?.to_owned()),
        "sort" => PromptCommand::Sort(needs("a field")?.to_owned()),
        "columns" => PromptCommand::Columns(rest.to_owned()),
        "colour" | "color" if rest == "state" || rest.is_empty() => PromptCommand::Colour(None),
        "colour" | "color" => PromptCommand::Colour(Some(rest.to_owned())),
        "theme" if rest == "file" => PromptCommand::Theme(None),
        "theme" => PromptCommand::Theme(Some(Palette::parse(rest).ok_or_else(|| {
            format!("unknown theme; use {}, file", Palette::ALL.map(Palette::as_str).join(", "))
        })?)),
        "write" => {
            let (form, path) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
            let form = match form {
                "csv" => ExportFormat::Csv,
                "json" => ExportFormat::Json,
                _ => return Err("write needs csv or json, and a file: write csv gpus.csv".into()),
            };
            match path.trim() {
                "" => return Err("write needs a file: write csv gpus.csv".into()),
                path => PromptCommand::Write(form, PathBuf::from(path)),
            }
        }
        "cluster" => PromptCommand::Cluster(needs("the name of a cluster, or all")?.to_owned()),
        "ctx" => {
            PromptCommand::Context(needs("a name of [contexts] in your config.toml")?.to_owned())
        }
        "key" => PromptCommand::Key(
            KeyPress::parse(needs("a key, such as Enter or Ctrl-F")?)
                .ok_or_else(|| format!("{rest} is not a key; use such as Enter, Ctrl-F or x"))?,
        ),
        "mouse" => PromptCommand::Mouse(match rest {
            "on" => true,
            "off" => false,
            _ => return Err("mouse needs on or off".into()),
        }),
        "help" => PromptCommand::Help,
        "quit" | "q" | "exit" => PromptCommand::Quit,
        _ => return Err(format!("unknown command {word}; Tab lists commands")),
    })
}

/// Parses the name under which rows are saved.
fn parse_saved_name(name: &str) -> Result<PromptCommand, String> {
    if name.contains(char::is_whitespace) || name.chars().count() > MAX_NAME {
        return Err(format!("a name is one word of at most {MAX_NAME} letters"));
    }
    if is_command(name) {
        return Err(format!("{name} is a command of gaunt; choose another name"));
    }
    Ok(PromptCommand::SaveRows(name.to_owned()))
}

#[cfg(test)]
mod tests {
    use gaunt_api::Subject;

    use super::*;
    use crate::screen::{DeviceScreen, JobScreen, ListScreen, NodeScreen};

    #[test]
    fn commands_of_the_table_are_parsed() {
        for (line, expected) in [
            ("jobs", PromptCommand::OpenScreen(ListScreen(Subject::Jobs).into())),
            ("node gpu003", PromptCommand::OpenScreen(NodeScreen("gpu003".into()).into())),
            (
                "gpu gpu003 5",
                PromptCommand::OpenScreen(DeviceScreen::of_gpu("gpu003".into(), "5").into()),
            ),
            ("live", PromptCommand::ShowInstant(None)),
            ("at now", PromptCommand::ShowInstant(None)),
            ("at 12:03", PromptCommand::ShowInstant(Some(TimeArgument::Clock(43_380)))),
            ("theme light", PromptCommand::Theme(Some(Palette::Light))),
            ("write csv a b.csv", PromptCommand::Write(ExportFormat::Csv, "a b.csv".into())),
            ("columns", PromptCommand::Columns(String::new())),
            ("colour power", PromptCommand::Colour(Some("power".into()))),
            ("mouse off", PromptCommand::Mouse(false)),
            ("ctx prod-a", PromptCommand::Context("prod-a".into())),
            ("cluster hall-1", PromptCommand::Cluster("hall-1".into())),
            ("key PgDn", PromptCommand::Key(KeyPress::PageDown)),
            ("sort power desc", PromptCommand::Sort("power desc".into())),
            ("filter lost>0", PromptCommand::Filter("lost>0".into())),
            (
                "nodes lost>0",
                PromptCommand::OpenRows(ListScreen(Subject::Nodes).into(), "lost>0".into()),
            ),
            ("save hot", PromptCommand::SaveRows("hot".into())),
            ("forget hot", PromptCommand::ForgetRows("hot".into())),
            ("help", PromptCommand::Help),
            ("job 8812", PromptCommand::OpenScreen(JobScreen("8812".into()).into())),
            ("quit", PromptCommand::Quit),
        ] {
            assert_eq!(parse(line), Ok(expected), "{line}");
        }
        for (word, ..) in listed_commands() {
            assert!(!parse(word).is_err_and(|why| why.contains("unknown command")), "{word}");
        }
    }

    #[test]
    fn unknown_command_is_refused_with_the_known_ones() {
        for (line, message) in [
            ("wibble", "unknown command wibble; Tab lists commands"),
            ("node", "node needs a name"),
            ("at 25:00", "invalid time; use -20m"),
            ("theme pink", "unknown theme; use dark, light"),
            ("write xml f", "write needs csv or json"),
            ("overview 3", "overview takes no argument"),
            ("save nodes", "nodes is a command of gaunt"),
            ("save a b", "a name is one word"),
        ] {
            let why = parse(line).unwrap_err();
            assert!(why.starts_with(message), "{line}: {why}");
        }
    }

    #[test]
    fn time_of_day_is_the_last_one_that_has_passed() {
        let now = UnixMs(10 * 86_400_000 + 43_421_000);
        assert_eq!(TimeArgument::parse("12:03:41").unwrap().resolve_instant(now), now);
        let later = TimeArgument::parse("23:00Z").unwrap().resolve_instant(now);
        assert_eq!(later, UnixMs(9 * 86_400_000 + 23 * 3_600_000));
        let local = TimeArgument::parse("01:00").unwrap().to_utc(Some(7_200));
        assert_eq!(local.resolve_instant(now), later);
        let utc = TimeArgument::parse("23:00Z").unwrap().to_utc(Some(7_200));
        assert_eq!(utc.resolve_instant(now), later);
        assert_eq!(TimeArgument::parse("-20m").unwrap().resolve_instant(now).0, now.0 - 1_200_000);
        assert_eq!(TimeArgument::parse("12:3:4:5"), None);
    }
}
