//! Recording inbox: an inbox in front of the engine's own that also feeds a recorder.

use std::time::Duration;

use gaunt_schema::{ClockFn, Delivery};
use tokio::{
    sync::mpsc,
    time::{MissedTickBehavior, interval},
};

use super::{Recorder, recorder_status::RecorderStatusReporter};

/// Deliveries that may be queued between the senders and the engine.
const PASSING: usize = 64;

/// How often the engine receives the status of the recording.
const STATUS_INTERVAL: Duration = Duration::from_secs(1);

/// Creates an inbox that forwards everything to another one and to a recorder. The other one also receives the status
/// of the recording.
pub fn spawn_recording_inbox(
    recorder: Recorder,
    onward: mpsc::Sender<Delivery>,
    clock: ClockFn,
) -> mpsc::Sender<Delivery> {
    let (inbox, mut passing) = mpsc::channel::<Delivery>(PASSING);
    tokio::spawn(async move {
        let (mut reporter, mut ticks) =
            (RecorderStatusReporter::default(), interval(STATUS_INTERVAL));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let passed = tokio::select! {
                // The status waits for no delivery, and comes once in an interval.
                biased;
                _ = ticks.tick() => {
                    let status = recorder.disk_status();
                    let changed = status.and_then(|status| reporter.changed_status(status, clock()));
                    let Some(status) = changed else { continue };
                    Delivery::RecordingStatus(status)
                }
                delivery = passing.recv() => {
                    let Some(delivery) = delivery else { return };
                    recorder.record_delivery(clock(), &delivery);
                    delivery
                }
            };
            if onward.send(passed).await.is_err() {
                return;
            }
        }
    });
    inbox
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use gaunt_schema::{Batch, ScrapeFailure, TargetId, UnixMs};

    use super::*;

    /// A stalled engine makes the senders wait; then all deliveries arrive in order.
    #[tokio::test]
    async fn inbox_is_bounded_and_forwards_all_queued_deliveries() {
        let recorder = Recorder::forward_only(Duration::from_secs(1)).unwrap();
        let (onward, mut taken) = mpsc::channel(1);
        let inbox = spawn_recording_inbox(recorder, onward, Arc::new(|| UnixMs(1)));
        let batch = |nth: u32| {
            let outcome = Err(ScrapeFailure::Skipped);
            Delivery::Batch(Batch {
                target: TargetId(nth),
                at: UnixMs(1),
                duration_ms: 1.0,
                outcome,
            })
        };
        // The task runs on this thread, which does not yield meanwhile.
        let queued = (0..1_000_000).take_while(|nth| inbox.try_send(batch(*nth)).is_ok()).count();
        assert_eq!(queued, PASSING);
        let sending = tokio::spawn(async move {
            for nth in queued as u32..10 * PASSING as u32 {
                inbox.send(batch(nth)).await.unwrap();
            }
        });
        for nth in 0..10 * PASSING as u32 {
            let Some(Delivery::Batch(batch)) = taken.recv().await else {
                panic!("{nth} is missing")
            };
            assert_eq!(batch.target, TargetId(nth));
        }
        sending.await.unwrap();
        assert!(taken.recv().await.is_none(), "it ends with its senders");
    }
}
