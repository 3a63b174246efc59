//! Tests of pages that arrive in parts, late, twice or never.

use gaunt_schema::Dialect;
use gaunt_store::{StoreSample, compress_request, decompress_request, encode_labels, push_series};

use super::*;

const START: i64 = 1_700_000_000_000;

/// Labels of the target.
const TARGET: [(&str, &str); 3] = [("instance", "gpu1:9400"), ("job", "dcgm"), ("cluster", "a")];

/// Adds one series with samples; none ends it.
fn push(out: &mut Vec<u8>, name: &str, own: &[(&str, &str)], samples: &[(i64, Option<f64>)]) {
    let mut labels: Vec<(&str, &str)> = TARGET.iter().chain(own).copied().collect();
    labels.push(("__name__", name));
    let mut encoded = Vec::new();
    encode_labels(&mut labels, &mut encoded);
    let sample = |(at, value): &(i64, Option<f64>)| match value {
        Some(value) => StoreSample { at: UnixMs(START + at), bits: value.to_bits() },
        None => StoreSample::stale_at(UnixMs(START + at)),
    };
    let samples: Vec<StoreSample> = samples.iter().map(sample).collect();
    push_series(&encoded, &samples, out);
}

/// A sender, and what it sends to.
struct Sender {
    assembly: PageAssembly,
}

impl Sender {
    fn new() -> Self {
        Self { assembly: PageAssembly::new("remote write".into()) }
    }

    /// Sends a request that arrives `now` ms after the start.
    fn send(&mut self, now: i64, fill: impl FnOnce(&mut Vec<u8>)) {
        let mut body = Vec::new();
        fill(&mut body);
        let body = decompress_request(&compress_request(&body).unwrap()).unwrap();
        let request = ReceivedRequest::parse(&body).unwrap();
        self.assembly.add_request(&request, UnixMs(START + now));
    }

    /// A whole scrape of this many GPUs in one request.
    fn send_scrape(&mut self, at: i64, gpus: u8) {
        self.send(at + 200, |out| {
            push(out, "up", &[], &[(at, Some(1.0))]);
            push(out, "scrape_duration_seconds", &[], &[(at, Some(0.25))]);
            for gpu in 0..gpus {
                push_gpu(out, gpu, at);
            }
        });
    }

    /// The pages so far: instant after the start, and number of GPUs; none for a target that is down.
    fn pages(&mut self) -> Vec<(i64, Option<usize>)> {
        let batches = self.assembly.take_due(UnixMs(i64::MAX / 2));
        let page = |batch: Batch| match batch.outcome {
            Ok(page) => {
                assert_eq!(page.dialect, Dialect::Dcgm);
                (batch.at.0 - START, Some(page.report.samples.len()))
            }
            Err(failure) => {
                assert!(matches!(failure, ScrapeFailure::ReportedDown(_)), "{failure:?}");
                (batch.at.0 - START, None)
            }
        };
        batches.into_iter().map(page).collect()
    }

    fn wait_until(&mut self, now: i64) {
        self.assembly.run_housekeeping(UnixMs(START + now));
    }
}

fn push_gpu(out: &mut Vec<u8>, gpu: u8, at: i64) {
    let gpu = gpu.to_string();
    push(out, "DCGM_FI_DEV_GPU_UTIL", &[("gpu", &gpu), ("Hostname", "gpu1")], &[(at, Some(97.0))]);
}

#[test]
fn page_is_whole_with_all_series_of_the_last_one() {
    let mut sender = Sender::new();
    for scrape in 0..2 {
        sender.send_scrape(scrape * 15_000, 3);
        assert_eq!(sender.pages(), [], "what the first pages lack is not known");
        sender.wait_until(scrape * 15_000 + 6_300);
        assert_eq!(sender.pages(), [(scrape * 15_000, Some(3))]);
    }
    sender.send(30_100, |out| {
        push(out, "up", &[], &[(30_000, Some(1.0))]);
        push_gpu(out, 2, 30_000);
    });
    sender.send(32_000, |out| push_gpu(out, 0, 30_000));
    sender.wait_until(34_000);
    assert_eq!(sender.pages(), []);
    sender.send(34_500, |out| push_gpu(out, 1, 30_000));
    assert_eq!(sender.pages(), [(30_000, Some(3))], "whole as soon as the last part is there");
    // A part is lost: the page is taken as it is, and the next one is whole without it.
    sender.send_scrape(45_000, 2);
    sender.wait_until(51_000);
    assert_eq!(sender.pages(), []);
    sender.wait_until(51_300);
    assert_eq!(sender.pages(), [(45_000, Some(2))]);
    sender.send_scrape(60_000, 2);
    assert_eq!(sender.pages(), [(60_000, Some(2))]);
    let samples = sender.assembly.samples();
    assert_eq!((samples.used, samples.late), (22, 0));
}

#[test]
fn target_that_is_down_is_a_failed_attempt_and_markers_are_no_values() {
    let mut sender = Sender::new();
    for scrape in 0..3 {
        sender.send_scrape(scrape * 15_000, 2);
        sender.wait_until(scrape * 15_000 + 7_000);
    }
    assert_eq!(sender.pages().len(), 3);
    // vmagent sends markers a millisecond later, Prometheus at the same instant.
    for (at, marker) in [(45_000, 45_001), (60_000, 60_000)] {
        sender.send(at + 300, |out| {
            push(out, "up", &[], &[(at, Some(0.0))]);
            for gpu in ["0", "1"] {
                let labels = [("gpu", gpu), ("Hostname", "gpu1")];
                push(out, "DCGM_FI_DEV_GPU_UTIL", &labels, &[(marker, None)]);
            }
        });
        assert_eq!(sender.pages(), [(at, None)]);
    }
    sender.send_scrape(75_000, 2);
    sender.wait_until(81_300);
    assert_eq!(sender.pages(), [(75_000, Some(2))], "it is back with all values");
    // A GPU ends: the next page does not wait for it.
    sender.send(76_000, |out| {
        let labels = [("gpu", "1"), ("Hostname", "gpu1")];
        push(out, "DCGM_FI_DEV_GPU_UTIL", &labels, &[(75_001, None)]);
    });
    sender.send_scrape(90_000, 1);
    assert_eq!(sender.pages(), [(90_000, Some(1))]);
}

#[test]
fn duplicates_late_old_and_future_samples_are_counted_and_dropped() {
    let mut sender = Sender::new();
    for scrape in 0..3 {
        sender.send_scrape(scrape * 15_000, 2);
        sender.wait_until(scrape * 15_000 + 7_000);
    }
    sender.pages();
    sender.send_scrape(30_000, 2);
    assert_eq!((sender.pages(), sender.assembly.samples().late), (vec![], 4));
    sender.send_scrape(22_000, 2);
    assert_eq!((sender.pages(), sender.assembly.samples().late), (vec![], 8));
    // Two samples of one instant in a request: the first counts.
    sender.send(45_100, |out| {
        push(out, "up", &[], &[(45_000, Some(1.0))]);
        push_gpu(out, 0, 45_000);
        push_gpu(out, 0, 45_000);
        push_gpu(out, 1, 45_000);
    });
    assert_eq!((sender.pages(), sender.assembly.samples().late), (vec![(45_000, Some(2))], 9));
    sender.send(46_000, |out| {
        push(out, "up", &[], &[(46_000 + 61_000, Some(1.0)), (46_000 - 901_000, Some(1.0))]);
        push(out, "go_goroutines", &[], &[(46_000, Some(1.0)), (46_001, Some(1.0))]);
    });
    let samples = sender.assembly.samples();
    assert_eq!((samples.future, samples.old, samples.unknown), (1, 1, 2));
    assert_eq!(sender.assembly.waiting_pages(), 0);
}

#[test]
fn samples_before_up_and_targets_without_it_are_left_out() {
    let mut sender = Sender::new();
    sender.send(0, |out| push_gpu(out, 0, 0));
    assert_eq!(sender.assembly.samples().without_target, 1);
    assert!(sender.assembly.announced_targets().is_empty());
    sender.send_scrape(15_000, 1);
    sender.wait_until(22_000);
    assert_eq!(sender.pages(), [(15_000, Some(1))]);
    let targets = sender.assembly.announced_targets();
    assert_eq!((targets.len(), targets[0].address.as_str()), (1, "gpu1:9400"));
}

#[test]
fn sample_with_an_instant_of_its_own_is_on_the_next_page() {
    let mut sender = Sender::new();
    sender.send_scrape(0, 1);
    sender.wait_until(7_000);
    sender.pages();
    sender.send(15_100, |out| {
        push(out, "up", &[], &[(15_000, Some(1.0))]);
        push_gpu(out, 0, 15_000);
        push_gpu(out, 1, 12_345);
    });
    sender.wait_until(22_000);
    assert_eq!(sender.pages(), [(15_000, Some(2))]);
}

#[test]
fn sender_that_catches_up_sends_pages_in_order_and_open_ones_are_bounded() {
    let mut sender = Sender::new();
    sender.send_scrape(0, 1);
    sender.wait_until(7_000);
    sender.pages();
    let instants = || (1..=100).map(|scrape| scrape * 5_000);
    sender.send(510_000, |out| {
        let samples = |value| instants().map(|at| (at, Some(value))).collect::<Vec<_>>();
        push(out, "up", &[], &samples(1.0));
        let labels = [("gpu", "0"), ("Hostname", "gpu1")];
        push(out, "DCGM_FI_DEV_GPU_UTIL", &labels, &samples(97.0));
    });
    sender.wait_until(517_000);
    let pages = sender.pages();
    assert!(pages.is_sorted() && pages.len() >= 32, "{pages:?}");
    assert_eq!(pages.last(), Some(&(500_000, Some(1))));
    // Samples that never get a scrape.
    sender.send(520_000, |out| {
        let samples: Vec<_> = (0..10_000).map(|at| (510_000 + at, Some(1.0))).collect();
        push(out, "DCGM_FI_DEV_GPU_UTIL", &[("gpu", "0"), ("Hostname", "gpu1")], &samples);
    });
    assert!(sender.assembly.waiting_pages() <= 33);
}

#[test]
fn targets_are_kept_while_nothing_arrives_and_forgotten_while_others_go_on() {
    let mut sender = Sender::new();
    sender.send_scrape(0, 1);
    sender.wait_until(3_600_000);
    assert_eq!(sender.assembly.announced_targets().len(), 1);
    sender.send(3_600_000, |out| {
        let samples = [StoreSample { at: UnixMs(START + 3_600_000), bits: 1.0_f64.to_bits() }];
        let mut labels = Vec::new();
        let other = &mut [("__name__", "up"), ("instance", "gpu2:9400"), ("job", "dcgm")];
        encode_labels(other, &mut labels);
        push_series(&labels, &samples, out);
    });
    sender.wait_until(3_600_500);
    let addresses = sender.assembly.announced_targets().into_iter().map(|it| it.address);
    assert_eq!(addresses.collect::<Vec<_>>(), [SanitizedText::new("gpu2:9400")]);
    assert_eq!(sender.assembly.series.len(), 1, "its series are forgotten");
}
