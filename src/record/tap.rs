//! The tap: an inbox before the owner's own, past a recorder.

use std::time::Duration;

use gaunt_schema::{Clock, Delivery};
use tokio::{
    sync::mpsc,
    time::{MissedTickBehavior, interval},
};

use super::{Recorder, status::Teller};

/// Deliveries that may wait between the senders and the owner.
const PASSING: usize = 64;

/// How often the owner is told how the recording stands.
const TELLING: Duration = Duration::from_secs(1);

/// An inbox that passes everything on to another one, and to a recorder on the way. The other one is told how the
/// recording stands.
pub fn tap(
    recorder: Recorder,
    onward: mpsc::Sender<Delivery>,
    clock: Clock,
) -> mpsc::Sender<Delivery> {
    let (inbox, mut passing) = mpsc::channel::<Delivery>(PASSING);
    tokio::spawn(async move {
        let (mut teller, mut ticks) = (Teller::default(), interval(TELLING));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let passed = tokio::select! {
                delivery = passing.recv() => {
                    let Some(delivery) = delivery else { return };
                    recorder.give(clock(), &delivery);
                    delivery
                }
                _ = ticks.tick() => {
                    let status = recorder.status();
                    let news = status.and_then(|status| teller.news(status, clock()));
                    let Some(keeping) = news else { continue };
                    Delivery::Keeping(keeping)
                }
            };
            if onward.send(passed).await.is_err() {
                return;
            }
        }
    });
    inbox
}
