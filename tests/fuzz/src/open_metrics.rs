//! Any bytes as an OpenMetrics page: it is rejected or parsed; a strict text parser that ignores metric
//! families finds the same samples.

use gaunt_schema::{
    ScrapeFailure,
    text::{PageLimits, decode_open_metrics, decode_page},
};

/// The input is the page.
pub fn check_input(body: &[u8]) {
    let limits = PageLimits { samples: 100, line_bytes: 4_000, ..PageLimits::default() };
    match decode_open_metrics(body, &limits) {
        Ok(page) => {
            let as_text = decode_page(body, &limits);
            let samples = as_text.map(|page| page.report.samples.len()).unwrap_or_default();
            assert!(samples <= page.report.samples.len());
        }
        Err(ScrapeFailure::NotAPage(why)) => assert!(why.starts_with("not OpenMetrics: ")),
        Err(ScrapeFailure::TooLarge(_)) => {}
        Err(other) => panic!("{other:?}"),
    }
}
