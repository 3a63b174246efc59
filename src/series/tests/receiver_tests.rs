//! Tests of the receiver while the engine takes nothing.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering::Relaxed},
    },
    time::Duration,
};

use gaunt_schema::{ClockFn, Delivery, UnixMs};
use gaunt_store::{StoreSample, compress_request, encode_labels, push_series};
use tokio::{sync::mpsc, task::yield_now, time::timeout};

use crate::{RECEIVE_LAG, ReceiveRefusal, SeriesClock, WriteReceiver};

const START: UnixMs = UnixMs(1_731_400_000_000);

/// A scrape of one GPU at this instant.
fn scrape_request(at: UnixMs) -> Vec<u8> {
    let mut request = Vec::new();
    for (name, gpu) in [("up", None), ("DCGM_FI_DEV_GPU_UTIL", Some(("gpu", "0")))] {
        let target = [("__name__", name), ("instance", "gpu1:9400"), ("job", "dcgm")];
        let mut labels: Vec<(&str, &str)> = target.into_iter().chain(gpu).collect();
        let mut encoded = Vec::new();
        encode_labels(&mut labels, &mut encoded);
        push_series(&encoded, &[StoreSample { at, bits: 1.0_f64.to_bits() }], &mut request);
    }
    compress_request(&request).unwrap()
}

/// While the engine takes no page, requests wait, and those beyond the queue are to be sent again: nothing is lost.
#[tokio::test]
async fn requests_beyond_the_queue_are_refused_until_the_engine_goes_on() {
    let present = Arc::new(AtomicI64::new(START.0 + 500));
    let clock: ClockFn = {
        let present = present.clone();
        Arc::new(move || UnixMs(present.load(Relaxed)))
    };
    let (inbox, mut deliveries) = mpsc::channel(1);
    let clock = SeriesClock::new(clock, RECEIVE_LAG, START - RECEIVE_LAG);
    let receiver = WriteReceiver::start_thread(inbox, clock).unwrap();
    receiver.submit_request(scrape_request(START)).await.unwrap();
    // The page is due: its targets fill the inbox, and the thread waits with the page.
    present.store((START + RECEIVE_LAG).0 + 1_000, Relaxed);
    let second = START + Duration::from_secs(5);
    let mut waiting = Vec::new();
    let refusal = loop {
        let (receiver, body) = (receiver.clone(), scrape_request(second));
        let submitted = tokio::spawn(async move { receiver.submit_request(body).await });
        yield_now().await;
        if !submitted.is_finished() {
            waiting.push(submitted);
        } else if let Err(refusal) = submitted.await.unwrap() {
            break refusal;
        }
    };
    assert_eq!(refusal, ReceiveRefusal::Behind);
    // The engine goes on, and time with it.
    let mut pages = Vec::new();
    while pages.len() < 2 {
        match timeout(Duration::from_millis(20), deliveries.recv()).await {
            Ok(Some(Delivery::Batch(batch))) => {
                assert!(batch.outcome.is_ok(), "{batch:?}");
                pages.push(batch.at);
            }
            Ok(other) => assert!(other.is_some(), "the receiver has ended"),
            Err(_) => _ = present.fetch_add(1_000, Relaxed),
        }
    }
    assert_eq!(pages, [START, second], "each page once");
    for request in waiting {
        request.await.unwrap().unwrap();
    }
}
