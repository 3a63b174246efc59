//! Tests of series that change rarely: asked for less often, and on every page.

use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering::Relaxed},
};

use gaunt_schema::{
    Batch, UnixMs,
    catalogue::{gpu, gpu_health},
};

use super::{
    Duration, SeriesReader, options_for,
    query_server::{QueryServer, ServerAnswer, json_answer, matrix_answer, queried_instants},
};
use crate::{SeriesWindow, series_reader::WindowLoad};

const NAMES: &str =
    r#"{"status":"success","data":["DCGM_FI_DEV_GPU_UTIL","DCGM_FI_DEV_ROW_REMAP_PENDING"]}"#;

/// The scrape interval, in milliseconds.
const PERIOD: i64 = 15_000;

/// Two GPUs, of which the second is gone after an instant. The rows of the first that wait for a reset rise with the time.
fn answer(request: &str, gone_at: i64) -> ServerAnswer {
    if request.contains("/label/") {
        return json_answer(NAMES);
    }
    let values = |until: i64, value: &dyn Fn(i64) -> i64| {
        let instants = queried_instants(request, PERIOD).filter(|at| *at <= until);
        let values = instants.map(|at| format!("[{},\"{}\"]", at / 1_000, value(at)));
        values.collect::<Vec<_>>().join(",")
    };
    let target = r#""job":"dcgm","instance":"gpu1:9400""#;
    if request.contains("%22up%22") {
        return matrix_answer(&[(
            &format!(r#""__name__":"up",{target}"#),
            &values(i64::MAX, &|_| 1),
        )]);
    }
    if request.contains("scrape_duration") {
        return matrix_answer(&[]);
    }
    let is_rare = request.contains("REMAP_PENDING");
    let name = if is_rare { "DCGM_FI_DEV_ROW_REMAP_PENDING" } else { "DCGM_FI_DEV_GPU_UTIL" };
    let labels =
        |gpu: u8| format!(r#""__name__":"{name}","gpu":"{gpu}","Hostname":"gpu1",{target}"#);
    let value: &dyn Fn(i64) -> i64 = if is_rare { &|at| at / 1_000 % 1_000 } else { &|_| 50 };
    let first = (labels(0), values(i64::MAX, value));
    let second = (labels(1), values(gone_at, &|_| 7));
    let present = [&first, &second].into_iter().filter(|(_, values)| !values.is_empty());
    let present: Vec<_> = present.map(|(labels, values)| (&**labels, &**values)).collect();
    matrix_answer(&present)
}

/// Utilization and rows that wait for a reset, by GPU.
fn readings(batch: &Batch) -> Vec<(String, Option<f64>, Option<f64>)> {
    let report = &batch.outcome.as_ref().unwrap().report;
    let value = |device: usize, metric| {
        let mut samples = report.samples.iter();
        let sample = samples.find(|it| it.device as usize == device && it.metric == metric);
        sample.and_then(|sample| sample.reading.value())
    };
    let gpus = report
        .devices
        .iter()
        .enumerate()
        .filter(|(_, it)| it.class == gaunt_schema::DeviceClass::Gpu);
    let rows = gpus.map(|(index, device)| {
        let rows = value(index, gpu_health::REMAP_PENDING);
        (device.key[0].to_string(), value(index, gpu::UTILIZATION), rows)
    });
    rows.collect()
}

#[tokio::test]
async fn rare_series_are_on_every_page_and_asked_for_each_five_minutes_or_beside_others() {
    let gone_at = Arc::new(AtomicI64::new(i64::MAX));
    let server = {
        let gone_at = gone_at.clone();
        QueryServer::start(move |request| answer(request, gone_at.load(Relaxed))).await
    };
    let mut reader = SeriesReader::open(&options_for(&server.url))
        .await
        .unwrap()
        .with_rare_refresh(Duration::from_mins(5));
    let start = 1_731_400_000_000 / PERIOD * PERIOD;
    let mut read = async |from: i64, until: i64| -> SeriesWindow {
        reader.read_window(UnixMs(start + from), UnixMs(start + until)).await.unwrap()
    };
    let row = |gpu: &str, rows: i64| (gpu.to_owned(), Some(0.5), Some(rows as f64));
    let rare_at = |at: i64| (start + at) / 1_000 % 1_000;

    // At first everything is asked for.
    let window = read(0, 15_000).await;
    assert_eq!(window.load.queries, 4);
    let second = ("1".to_owned(), Some(0.07), Some(7.0));
    assert_eq!(readings(&window.batches[0]), [row("0", rare_at(15_000)), second.clone()]);
    // Then a page has the last values, and their queries are not sent.
    let WindowLoad { queries, samples, .. } = read(15_000, 30_000).await.load;
    assert_eq!((queries, samples), (3, 3));
    let window = read(30_000, 60_000).await;
    assert_eq!(window.load.queries, 3);
    let pages: Vec<_> = window.batches.iter().map(readings).collect();
    assert_eq!(pages, [(); 2].map(|()| vec![row("0", rare_at(15_000)), second.clone()]));
    // A GPU that is gone has no reading left, and what remains is asked for again.
    gone_at.store(start + 75_000, Relaxed);
    let window = read(60_000, 90_000).await;
    assert_eq!(window.load.queries, 4);
    let pages: Vec<_> = window.batches.iter().map(readings).collect();
    assert_eq!(pages, [vec![row("0", rare_at(75_000)), second], vec![row("0", rare_at(90_000))]]);
    let window = read(90_000, 105_000).await;
    assert_eq!(
        (window.load.queries, readings(&window.batches[0])),
        (3, vec![row("0", rare_at(90_000))])
    );
    // After five minutes it is asked for again.
    let window = read(390_000, 405_000).await;
    assert_eq!(
        (window.load.queries, readings(&window.batches[0])),
        (4, vec![row("0", rare_at(405_000))])
    );
}
