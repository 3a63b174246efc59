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
fn panic_restores_the_terminal_before_its_message() {
    let program = env::current_exe().unwrap();
    for (panic_site, code) in
        [("task", "0"), ("blocking", "0"), ("thread", "0"), ("console", "101")]
    {
        let arguments =
            "--exact panic_restore_test::stand_in --ignored --nocapture --test-threads=1";
        let line = TestPty::start_program(
            &format!("env RUST_BACKTRACE=0 {WHERE}={panic_site}"),
            &program,
            arguments,
        );
        line.wait_for_screen("the console", |screen| screen.contains("Waiting for the first"));
        assert!(line.replay_from(0).screen().alternate_screen());
        kill_process(line.program_pid(), Signal::ALARM).unwrap();
        line.check_restored(code);
        assert!(line.screen_text().contains(SAID), "{panic_site}: {}", line.screen_text());
    }
}

/// Runs the console beside a thread or task that panics on request.
#[test]
#[ignore = "it panics; the test above runs it on a terminal"]
fn stand_in() {
    let runtime = Runtime::new().unwrap();
    let panic_site = env::var(WHERE).unwrap_or_default();
    let ended = runtime.block_on(async {
        let mut panic_signal = signal(SignalKind::alarm()).unwrap();
        // The console shows its error and keeps running.
        let console = run(UnreachableSource, ConsoleOptions::default());
        let panics = async move {
            panic_signal.recv().await;
            let panic_now = || panic!("{SAID}");
            match panic_site.as_str() {
                "task" => drop(tokio::spawn(async move { panic_now() }).await),
                "blocking" => drop(tokio::task::spawn_blocking(panic_now).await),
                "thread" => drop(thread::spawn(panic_now).join()),
                _ => panic_now(),
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
