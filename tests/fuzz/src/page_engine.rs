//! An engine whose nodes all serve one page, for whatever asks it: answers, and the screens that are drawn of them.

use std::time::Duration;

use gaunt_engine::{Engine, EngineOptions};
use gaunt_schema::{
    Batch, Delivery, ScrapeTarget, TargetId, UnixMs,
    text::{PageLimits, decode_open_metrics, decode_page},
};

/// When the first page comes.
const START: UnixMs = UnixMs(1_760_017_310_999);

/// Nodes that serve the page, and for how many seconds.
const NODES: u32 = 2;
const SECONDS: u64 = 4;

/// The page with another last digit on each line: its values change.
fn change_digits(page: &[u8], step: u8) -> Vec<u8> {
    let mut changed = page.to_vec();
    for at in 1..changed.len() {
        if changed[at] == b'\n' && changed[at - 1].is_ascii_digit() {
            changed[at - 1] = b'0' + (changed[at - 1] - b'0' + step) % 10;
        }
    }
    changed
}

/// An engine some seconds after nodes began to serve a page, and its time.
pub fn engine_of_page(page: &[u8]) -> (Engine, UnixMs) {
    let mut engine = Engine::new(EngineOptions::default());
    engine.run_tick(START);
    let target = |number: u32| ScrapeTarget {
        id: TargetId(number),
        address: format!("10.0.0.{number}:9770").as_str().into(),
        node: None,
        origin: "fuzz".into(),
    };
    engine.ingest_delivery(Delivery::Targets((0..NODES).map(target).collect()));
    let mut now = START;
    for second in 1..=SECONDS {
        now = START + Duration::from_secs(second);
        for number in 0..NODES {
            let body = change_digits(page, (second as u8) * 3 + number as u8);
            let limits = PageLimits::default();
            let outcome = match number {
                0 => decode_open_metrics(&body, &limits),
                _ => decode_page(&body, &limits),
            };
            let batch = Batch { target: TargetId(number), at: now, duration_ms: 1.0, outcome };
            engine.ingest_delivery(Delivery::Batch(batch));
        }
        engine.run_tick(now);
    }
    (engine, now)
}
