//! Command line parsing: options may precede or follow the command, and a value may begin with a minus.

use std::ffi::OsString;

use clap::{Arg, ArgAction, Command, CommandFactory as _, FromArgMatches as _};

use super::GauntArguments;

/// Parses a command line; its first word is the program name.
pub fn parse(line: impl IntoIterator<Item = OsString>) -> Result<GauntArguments, clap::Error> {
    let command = build_command();
    let line = move_options_behind(&command, line.into_iter().collect());
    let matches = command.try_get_matches_from(line)?;
    GauntArguments::from_arg_matches(&matches)
}

/// The command line definition. A value such as `-5m` is parsed by its option, which reports the error, and not as an
/// unknown option.
pub fn build_command() -> Command {
    let signed = |arg: Arg| {
        let takes_value = matches!(arg.get_action(), ArgAction::Set | ArgAction::Append);
        let is_option = takes_value && !arg.is_positional();
        // A word that is an option name is never a value: `--watch --check` reports a missing duration.
        if is_option && takes_number(&arg) { arg.allow_hyphen_values(true) } else { arg }
    };
    let command = GauntArguments::command().mut_args(signed);
    command.mut_subcommands(|sub| sub.mut_args(signed))
}

/// Whether an option takes a number or a duration.
fn takes_number(arg: &Arg) -> bool {
    let names = arg.get_value_names().unwrap_or_default();
    let is_number = |name: &str| {
        ["DURATION", "ROWS", "SIZE", "KG", "NODES", "SEED", "SPEED", "TIME", "[MODEL=]AMOUNT"]
            .contains(&name)
    };
    names.iter().any(|name| is_number(name.as_str()))
}

/// Moves options before the command behind it, where they are defined. A line without a command, or with a request for
/// help, is unchanged.
fn move_options_behind(command: &Command, line: Vec<OsString>) -> Vec<OsString> {
    let Some(position) = command_position(command, &line) else { return line };
    let mut moved = Vec::with_capacity(line.len());
    moved.push(line[0].clone());
    moved.push(line[position].clone());
    moved.extend_from_slice(&line[1..position]);
    moved.extend_from_slice(&line[position + 1..]);
    moved
}

/// Position of the command, if options precede it.
fn command_position(command: &Command, line: &[OsString]) -> Option<usize> {
    let mut index = 1;
    while let Some(word) = line.get(index).and_then(|word| word.to_str()) {
        if !word.starts_with('-') {
            let is_command = command.find_subcommand(word).is_some();
            return (is_command && index > 1).then_some(index);
        }
        if matches!(word, "--" | "-" | "-h" | "--help" | "-V" | "--version") {
            return None;
        }
        index += if takes_next(command, word) { 2 } else { 1 };
    }
    None
}

/// Whether the word after an option is its value.
fn takes_next(command: &Command, word: &str) -> bool {
    let Some(name) = word.strip_prefix("--").filter(|name| !name.contains('=')) else {
        return false;
    };
    let commands = std::iter::once(command).chain(command.get_subcommands());
    let mut matching =
        commands.flat_map(Command::get_arguments).filter(|arg| arg.get_long() == Some(name));
    matching.any(|arg| matches!(arg.get_action(), ArgAction::Set | ArgAction::Append))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli;

    fn parse_line(line: &str) -> Result<GauntArguments, String> {
        parse(line.split(' ').map(OsString::from)).map_err(|error| error.to_string())
    }

    #[test]
    fn definition_of_the_command_line_is_valid() {
        build_command().debug_assert();
    }

    #[test]
    fn options_may_precede_or_follow_the_command() {
        for line in [
            "gaunt snapshot --aggregator http://a:1 --check --watch 5s",
            "gaunt --aggregator http://a:1 snapshot --check --watch 5s",
            "gaunt --check --watch 5s --aggregator=http://a:1 snapshot",
        ] {
            let cli = parse_line(line).unwrap_or_else(|error| panic!("{line}: {error}"));
            let Some(cli::GauntCommand::Snapshot(snapshot)) = cli.command else { panic!("{line}") };
            assert_eq!(snapshot.view.aggregator, ["http://a:1"], "{line}");
            assert!(snapshot.check, "{line}");
        }
        let cli = parse_line("gaunt --aggregator http://a:1").unwrap();
        assert_eq!(cli.view.aggregator, ["http://a:1"]);
        assert!(cli.command.is_none());
    }

    #[test]
    fn option_that_the_command_lacks_is_refused() {
        let error = parse_line("gaunt --check metrics").unwrap_err();
        assert!(error.starts_with("error: unexpected argument '--check' found"), "{error}");
        let error = parse_line("gaunt --token-file a snapshot --token-file b").unwrap_err();
        assert!(error.contains("cannot be used multiple times"), "{error}");
    }

    #[test]
    fn negative_value_has_its_own_error() {
        for (line, expected) in [
            ("gaunt report --last -1", "-1 is negative; a duration has no sign, as in 5m"),
            ("gaunt report --last -5m", "-5m is negative; a duration has no sign, as in 5m"),
            ("gaunt --watch -8s snapshot", "-8s is negative"),
            ("gaunt snapshot --ask gpus --limit -1", "-1 is not in 1..=131072"),
            ("gaunt demo --nodes -3", "-3 is not in 1..=1250"),
            ("gaunt record --to f --max-bytes -1GB", "\"-1GB\" is not a size"),
        ] {
            let error = parse_line(line).unwrap_err();
            assert!(error.contains(expected), "{line}: {error}");
        }
    }
}
