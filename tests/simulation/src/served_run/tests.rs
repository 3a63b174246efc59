//! Tests: a pair as it is served, in situations of its own.

use super::*;

/// Runs a pair for some seconds without faults.
async fn run_quiet_pair(seconds: u64) -> ServedRun {
    let mut run = ServedRun::new(1, None).unwrap();
    for second in 0..seconds {
        run.step(second, false).await;
    }
    run
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().start_paused(true).build().unwrap().block_on(work)
}

/// A second while a thread hangs in the disk: the paused clock then does not move by itself.
async fn pass_hung_second() {
    for _ in 0..Duration::from_secs(1).div_duration_f64(HOP) as u32 {
        tokio::time::advance(HOP).await;
        std::thread::sleep(Duration::from_micros(100));
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
    }
}

/// A write of the state that never returns is said on the screens, and does not keep the process from stopping.
#[test]
fn state_that_a_disk_never_writes_is_shown_and_stops_no_stop() {
    block_on(async {
        let mut run = run_quiet_pair(12).await;
        let host = &mut run.hosts[0];
        let ServedProcess::Running(process) = &host.process else { panic!("it runs") };
        let disk = host.around.disk.clone();
        let says = async |text: &str| {
            let trouble = process.shown_trouble().await;
            trouble.iter().any(|it| it.contains(text))
        };
        assert!(!says("cannot save").await);
        disk.hang_in(0, Duration::from_hours(1));
        let mut seconds = 0;
        while !says("cannot save findings and counters").await {
            pass_hung_second().await;
            seconds += 1;
            assert!(seconds < 60, "{:?}", process.shown_trouble().await);
        }
        assert!(seconds > 10 && says("state does not answer within 10 s").await, "{seconds}");
        disk.repair();
        sleep(Duration::from_secs(7)).await;
        assert!(!says("cannot save").await, "{:?}", process.shown_trouble().await);
        disk.hang_in(0, Duration::from_hours(1));
        while disk.hung_for().is_none() {
            pass_hung_second().await;
        }
        assert!(host.stop());
        let ServedProcess::Stopping(stopping) = &host.process else { panic!("it stops") };
        for _ in 0..20 {
            pass_hung_second().await;
        }
        assert!(stopping.is_finished());
    });
}

/// Two machines are often started by one command. What is known of the peer's alerts is dated by the engine's clock,
/// which says when an alert ended: here the wall clock is years ahead of it.
#[test]
fn two_that_start_in_one_millisecond_are_peers_by_the_clock_of_the_engine() {
    block_on(async {
        let run = run_quiet_pair(12).await;
        for host in &run.hosts {
            let ServedProcess::Running(process) = &host.process else { panic!("it runs") };
            let asked_at = process.at_peers.borrow().asked_at;
            let now = host.around.network.now();
            assert!((BEGAN..=now).contains(&asked_at), "{asked_at:?} at {now:?}");
        }
    });
}
