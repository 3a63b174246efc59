//! Tests of the window: labels, four samples a request, absent series, and steps whose order differs.

use super::*;
use crate::write_request::tests::{DecodedSeries, decode_body};

fn new_window() -> SeriesWindow {
    SeriesWindow::new(vec![("cluster".into(), "hall-1".into())], STEPS, 1_000)
}

fn push_step(window: &mut SeriesWindow, at: i64, names: &[&str]) {
    for name in names {
        window.push_sample(name, &[("job", "8812"), ("node", "gpu1")], at as f64);
    }
    assert_eq!(window.pushed_count(), names.len());
    window.finish_step(UnixMs(at), None);
}

fn series_by_name(batches: &[RequestBatch], name: &str) -> Vec<(i64, u64)> {
    let all: Vec<DecodedSeries> =
        batches.iter().flat_map(|batch| decode_body(&batch.body).series).collect();
    let is_named = |series: &&DecodedSeries| series.labels[0].value == name;
    let found = all.iter().find(is_named).map(|series| &series.samples);
    let samples = found.into_iter().flatten();
    samples.map(|sample| (sample.at, sample.value.to_bits())).collect()
}

#[test]
fn series_has_the_labels_of_a_scrape() {
    let mut window = new_window();
    push_step(&mut window, 1_000, &["gaunt_job_lost_gpus"]);
    let request = decode_body(&window.take_requests()[0].body);
    let labels: Vec<_> = request.series[0]
        .labels
        .iter()
        .map(|label| (label.name.as_str(), label.value.as_str()))
        .collect();
    let expected = [
        ("__name__", "gaunt_job_lost_gpus"),
        ("cluster", "hall-1"),
        ("exported_job", "8812"),
        ("job", "gaunt"),
        ("node", "gpu1"),
    ];
    assert_eq!(labels, expected, "no instance: two aggregators write one series");
}

#[test]
fn request_has_four_samples_of_a_series_in_order() {
    let mut window = new_window();
    for step in 1..=4 {
        assert_eq!(window.is_last_step(), step == 4);
        push_step(&mut window, step * 15_000, &["a", "b"]);
    }
    let batches = window.take_requests();
    assert_eq!((batches.len(), batches[0].samples), (1, 8));
    assert_eq!((batches[0].oldest, batches[0].newest), (UnixMs(15_000), UnixMs(60_000)));
    let instants = series_by_name(&batches, "a").into_iter().map(|(at, _)| at);
    assert_eq!(instants.collect::<Vec<_>>(), [15_000, 30_000, 45_000, 60_000]);
    assert!(window.take_requests().is_empty() && !window.is_last_step());
}

/// One missed step is a gap; two end the series, once, and it may begin again.
#[test]
fn absent_series_ends_after_two_steps() {
    let mut window = new_window();
    push_step(&mut window, 1_000, &["a", "b"]);
    push_step(&mut window, 2_000, &["a"]);
    push_step(&mut window, 3_000, &["a", "b"]);
    push_step(&mut window, 4_000, &["a"]);
    let first = series_by_name(&window.take_requests(), "b");
    assert_eq!(first.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [1_000, 3_000]);
    push_step(&mut window, 5_000, &["a"]);
    push_step(&mut window, 6_000, &["a"]);
    assert_eq!(series_by_name(&window.take_requests(), "b"), [(5_000, STALE_MARKER)]);
    assert_eq!(window.series_count(), 1, "an ended series is forgotten");
    push_step(&mut window, 7_000, &["c", "a", "b"]);
    let requests = window.take_requests();
    for name in ["a", "b", "c"] {
        assert_eq!(series_by_name(&requests, name), [(7_000, 7_000_f64.to_bits())], "{name}");
    }
}

/// The order of series is only a prediction: whatever order steps have, each sample is that of its series.
#[test]
fn samples_belong_to_their_series_in_any_order() {
    let mut window = new_window();
    let names = ["a", "b", "c", "d", "e", "f"];
    let orders: [&[usize]; 4] =
        [&[0, 1, 2, 3, 4, 5], &[5, 3, 1, 0], &[2, 0, 1, 4, 5, 3], &[0, 1, 2, 3, 4, 5]];
    for (step, order) in orders.into_iter().enumerate() {
        for index in order {
            window.push_sample(names[*index], &[("node", "n")], *index as f64);
            window.push_sample(names[*index], &[("node", "n")], 99.0);
        }
        window.finish_step(UnixMs(step as i64), None);
    }
    let requests = window.take_requests();
    for (index, name) in names.iter().enumerate() {
        let samples = series_by_name(&requests, name);
        let expected: Vec<(i64, u64)> = (0..4)
            .filter(|step| orders[*step].contains(&index))
            .map(|step| (step as i64, (index as f64).to_bits()))
            .collect();
        assert_eq!(samples, expected, "{name}");
    }
}

#[test]
fn series_over_the_limits_are_left_out_and_counted() {
    let names: Vec<String> = (0..40).map(|index| format!("label_{index}")).collect();
    let labels: Vec<_> = names.iter().map(|name| (name.as_str(), "x")).collect();
    let mut window = SeriesWindow::new(Vec::new(), STEPS, 2);
    for name in ["a", "b", "c", "a"] {
        window.push_sample(name, &[], 1.0);
    }
    window.push_sample("d", &labels, 1.0);
    assert_eq!((window.series_count(), window.pushed_count(), window.take_left_out()), (2, 2, 2));
}
