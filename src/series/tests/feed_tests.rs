//! Tests of the feed: pages come at their own instants, and an outage is said and loses nothing.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicI64, Ordering::Relaxed},
};

use gaunt_schema::{ClockFn, Delivery};
use tokio::sync::mpsc;

use super::{
    Duration, NAMES, SeriesReader, UnixMs, options_for,
    query_server::{QueryServer, ServerAnswer, json_answer, matrix_answer, queried_instants},
};
use crate::{SeriesClock, feed_lag, spawn_reading};

/// The time between two scrapes, in milliseconds.
const PERIOD: i64 = 1_000;

/// The samples of a target that is scraped at each full second up to the time of the query.
fn answer_until_query_time(request: &str) -> ServerAnswer {
    if request.contains("/label/") {
        return json_answer(NAMES);
    }
    let instants = || queried_instants(request, PERIOD).map(|at| at / PERIOD);
    let values: Vec<String> = instants().map(|at| format!("[{at},\"{}\"]", at % 100)).collect();
    let ups: Vec<String> = instants().map(|at| format!("[{at},\"1\"]")).collect();
    let target = r#""job":"dcgm","instance":"gpu1:9400""#;
    if request.contains("%22up%22") {
        return matrix_answer(&[(&format!(r#""__name__":"up",{target}"#), &ups.join(","))]);
    }
    if request.contains("scrape_duration") {
        return matrix_answer(&[]);
    }
    let labels = format!(r#""__name__":"DCGM_FI_DEV_GPU_UTIL","gpu":"0",{target}"#);
    matrix_answer(&[(&labels, &values.join(","))])
}

/// A clock that runs 60 times as fast as the present, so that a test takes a second.
fn fast_clock() -> ClockFn {
    let begun = std::time::Instant::now();
    Arc::new(move || UnixMs(1_731_400_000_000) + begun.elapsed() * 60)
}

#[tokio::test]
async fn pages_come_in_order_and_an_outage_loses_none() {
    let (is_away, requests) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicI64::new(0)));
    let server = {
        let (is_away, requests) = (is_away.clone(), requests.clone());
        QueryServer::start(move |request| {
            requests.fetch_add(1, Relaxed);
            if is_away.load(Relaxed) {
                ServerAnswer::new(502, "text/plain", "bad gateway")
            } else {
                answer_until_query_time(request)
            }
        })
        .await
    };
    let refresh = Duration::from_millis(100);
    let present = fast_clock();
    let from = present() - feed_lag(refresh);
    let clock = SeriesClock::new(present, feed_lag(refresh), from);
    let now = clock.to_clock_fn();
    let (inbox, mut deliveries) = mpsc::channel(64);
    let reader = SeriesReader::open(&options_for(&server.url)).await.unwrap();
    let _reading = spawn_reading(reader, from, refresh, inbox, clock);
    let (mut last, mut pages, mut outage) = (None, 0, None);
    while pages < 60 {
        match deliveries.recv().await.unwrap() {
            Delivery::Targets(targets) => assert_eq!(targets.len(), 1),
            Delivery::Sources(sources) => {
                let source = &sources[0];
                match (&source.trouble, outage) {
                    (Some(why), None) => {
                        assert!(why.contains("HTTP status 502: bad gateway"), "{why}");
                        assert!(source.failed_since.is_some());
                        // The clock waits for what is not read yet.
                        outage = Some((now(), last));
                        is_away.store(false, Relaxed);
                    }
                    (None, _) => assert_eq!(source.load.unwrap().queries, 3),
                    (Some(_), Some(_)) => {}
                }
            }
            Delivery::Batch(batch) => {
                assert!(batch.at <= now(), "a page comes no earlier than its instant");
                let next = last.map_or(batch.at.0, |last: UnixMs| last.0 + PERIOD);
                assert_eq!(batch.at.0, next, "each page once, in order");
                assert!(batch.outcome.is_ok(), "{batch:?}");
                last = Some(batch.at);
                pages += 1;
                if pages == 20 && outage.is_none() {
                    is_away.store(true, Relaxed);
                }
            }
            other => panic!("{other:?}"),
        }
    }
    let (stood_at, before) = outage.unwrap();
    assert!(
        stood_at.0 - before.unwrap().0 <= 2 * PERIOD,
        "the clock stood while the server was away"
    );
    assert!(requests.load(Relaxed) > 6);
}
