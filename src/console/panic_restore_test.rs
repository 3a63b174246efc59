//! Tests that a panic restores the terminal, wherever it happens: the test runs itself again on a terminal and panics
//! there.

use std::{env, thread, time::Duration};

use rustix::process::{Signal, kill_process};
use tokio::{
    runtime::Runtime,
    signal::unix::{SignalKind, signal},
};

use super::{ConsoleError, ConsoleOptions, run};
use crate::sample_answers::UnreachableSource;

#[path = "../../tests/it/pty.rs"]
#[expect(dead_code, reason = "the other functions serve the integration tests")]
mod pty;

use pty::TestPty;

/// Environment variable that selects where to panic.
const WHERE: &str = "GAUNT_TEST_PANIC";

/// Message of the panic.
const SAID: &str = "expected test panic";

#[test]
fn a_panic_anywhere_gives_the_terminal_back_before_it_is_told() {
    let me = env::current_exe().unwrap();
    for (place, code) in [("task", "0"), ("blocking", "0"), ("thread", "0"), ("console", "101")] {
        let arguments =
            "--exact panic_restore_test::stand_in --ignored --nocapture --test-threads=1";
        let line = TestPty::start_program(
            &format!("env RUST_BACKTRACE=0 {WHERE}={place}"),
            &me,
            arguments,
        );
        line.wait_for_screen("the console", |screen| screen.contains("Waiting for the first"));
        assert!(line.replay_from(0).screen().alternate_screen());
        kill_process(line.program_pid(), Signal::USR1).unwrap();
        line.check_restored(code);
        assert!(line.screen_text().contains(SAID), "{place}: {}", line.screen_text());
    }
}

/// Runs the console beside a thread or task that panics on request.
#[test]
#[ignore = "it panics; the test above runs it on a terminal"]
fn stand_in() {
    let runtime = Runtime::new().unwrap();
    let place = env::var(WHERE).unwrap_or_default();
    let ended = runtime.block_on(async {
        let mut told = signal(SignalKind::user_defined1()).unwrap();
        // The console shows its error and keeps running.
        let console = run(UnreachableSource, ConsoleOptions::default());
        let panics = async move {
            told.recv().await;
            let blow = || panic!("{SAID}");
            match place.as_str() {
                "task" => drop(tokio::spawn(async move { blow() }).await),
                "blocking" => drop(tokio::task::spawn_blocking(blow).await),
                "thread" => drop(thread::spawn(blow).join()),
                _ => blow(),
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            ended = console => ended,
            () = panics => Ok(()),
        }
    });
    runtime.shutdown_timeout(Duration::from_secs(1));
    assert!(matches!(ended, Err(ConsoleError::Panicked)), "{ended:?}");
}
