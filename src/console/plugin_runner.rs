//! Runs the programs of plug-in keys: their arguments as they are, without a shell.

use std::{
    io::{self, BufRead as _, Read as _, Write as _},
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Signal, kill_current_process_group};
use tokio::task::{JoinHandle, spawn_blocking};

use super::{
    console_signals::{ConsoleSignals, SignalEvent},
    user_config::plugin_key::PluginCommand,
};

/// How long a program in the background may run before it is killed.
const TIME_LIMIT: Duration = Duration::from_mins(1);

/// Maximum part of its error output that is kept, in bytes.
const MAX_OUTPUT: u64 = 16 << 10;

/// Time between two looks at a program in the background.
const LOOK: Duration = Duration::from_millis(20);

/// Result of a program, in one sentence.
pub(crate) type PluginResult = Result<String, String>;

/// A program that runs in the background.
pub(crate) type RunningPlugin = JoinHandle<PluginResult>;

/// Starts a program in the background, without a terminal, for at most a minute.
pub(crate) fn start_background(command: PluginCommand) -> RunningPlugin {
    spawn_blocking(move || run_background(&command, TIME_LIMIT))
}

/// Waits for the program in the background; forever if there is none.
pub(crate) async fn await_plugin(running: &mut Option<RunningPlugin>) -> PluginResult {
    match running {
        Some(task) => task.await.unwrap_or_else(|error| Err(error.to_string())),
        None => std::future::pending().await,
    }
}

fn build_command(command: &PluginCommand) -> Result<Command, String> {
    let (program, arguments) = command.argv.split_first().ok_or("no program to run")?;
    let mut process = Command::new(program);
    process.args(arguments);
    Ok(process)
}

fn explain_start(command: &PluginCommand, error: &io::Error) -> String {
    let program = command.argv.first().map_or("", String::as_str);
    format!("{}: cannot run {program}: {error}; check run in your config.toml", command.name)
}

fn run_background(command: &PluginCommand, limit: Duration) -> PluginResult {
    let mut process = build_command(command)?;
    process.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = process.spawn().map_err(|error| explain_start(command, &error))?;
    let errors = child.stderr.take();
    let reader = thread::spawn(move || {
        let mut kept = Vec::new();
        let Some(mut errors) = errors else { return kept };
        // What cannot be read has no reader; the exit code still tells.
        let _ = errors.by_ref().take(MAX_OUTPUT).read_to_end(&mut kept);
        let _ = io::copy(&mut errors, &mut io::sink());
        kept
    });
    let Some(status) = wait_until(&mut child, Instant::now() + limit) else {
        // It may have ended just now.
        let _ = child.kill();
        let _ = child.wait();
        return Err(format!("{}: killed after {} s", command.name, limit.as_secs()));
    };
    if status.success() {
        return Ok(format!("{}: done", command.name));
    }
    let kept = reader.join().unwrap_or_default();
    let output = String::from_utf8_lossy(&kept).trim().to_owned();
    let last = output.lines().next_back().unwrap_or("no error output");
    Err(format!("{}: {}: {last}", command.name, describe_status(status)))
}

/// Waits for a process until a time; none if it still runs.
fn wait_until(child: &mut Child, end: Instant) -> Option<ExitStatus> {
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) if Instant::now() < end => thread::sleep(LOOK),
            Ok(None) | Err(_) => return None,
        }
    }
}

fn describe_status(status: ExitStatus) -> String {
    status.code().map_or_else(|| status.to_string(), |code| format!("exit code {code}"))
}

/// Runs a program in the terminal until it ends; the terminal is not configured for the console meanwhile. Returns its
/// result; none if the console must end.
pub(crate) async fn run_foreground(
    command: &PluginCommand,
    signals: &mut ConsoleSignals,
) -> Option<PluginResult> {
    let child = build_command(command)
        .and_then(|mut process| process.spawn().map_err(|error| explain_start(command, &error)));
    let mut child = match child {
        Ok(child) => child,
        Err(why) => return Some(Err(why)),
    };
    let mut waiting = spawn_blocking(move || child.wait());
    let status = loop {
        tokio::select! {
            ended = &mut waiting => break ended.map_err(io::Error::other).and_then(|status| status),
            event = signals.next() => match event {
                SignalEvent::End => return None,
                // The shell must see the whole group stop, as if the program ran without the console.
                SignalEvent::Stop => drop(kill_current_process_group(Signal::STOP)),
                // These are for the program.
                SignalEvent::Interrupt | SignalEvent::Resized | SignalEvent::Continued => {}
            },
        }
    };
    Some(match status {
        Ok(status) if status.success() => Ok(format!("{}: done", command.name)),
        Ok(status) => {
            let why = format!("{}: {}", command.name, describe_status(status));
            wait_for_enter(&why).await;
            Err(why)
        }
        Err(error) => Err(format!("{}: {error}", command.name)),
    })
}

/// Lets the user read what the program printed.
async fn wait_for_enter(why: &str) {
    let text = format!("\n{}; Enter returns to gaunt ", gaunt_schema::SanitizedText::new(why));
    let read = spawn_blocking(move || {
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())?;
        out.flush()?;
        io::stdin().lock().read_line(&mut String::new())
    });
    // Without an answer the console returns at once.
    drop(read.await);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(argv: &[&str]) -> PluginCommand {
        let argv = argv.iter().map(|argument| (*argument).to_owned()).collect();
        PluginCommand { name: "drain".to_owned(), argv, background: true }
    }

    #[test]
    fn arguments_reach_the_program_without_a_shell() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("touched");
        let evil = format!("$(touch {0}); touch {0}", path.display());
        let limit = Duration::from_secs(30);
        assert_eq!(run_background(&command(&["true", &evil]), limit), Ok("drain: done".into()));
        assert!(!path.exists());
        let test = ["test", "a b", "=", "a b"];
        assert_eq!(run_background(&command(&test), limit), Ok("drain: done".into()));
    }

    #[test]
    fn failures_are_named() {
        let limit = Duration::from_secs(30);
        let failed =
            run_background(&command(&["sh", "-c", "echo no such node >&2; exit 3"]), limit);
        assert_eq!(failed, Err("drain: exit code 3: no such node".into()));
        let missing = run_background(&command(&["/no/such/program"]), limit).unwrap_err();
        assert!(missing.starts_with("drain: cannot run /no/such/program: "), "{missing}");
        assert!(missing.ends_with("check run in your config.toml"), "{missing}");
        let slow = run_background(&command(&["sleep", "600"]), Duration::ZERO);
        assert_eq!(slow, Err("drain: killed after 0 s".into()));
    }
}
