//! Tests of remote read: chunks give the pages of queries, and a server that is slow, lies or ends costs one request.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use super::{
    Duration, FROM, QueryError, SeriesReader, SeriesWindow, UNTIL, healthy_answer, options_for,
    query_server::{QueryServer, ServerAnswer, json_answer},
};
use crate::{
    SeriesOptions,
    remote_read::{MAX_FRAME, encode_frame},
};

/// Labels and samples of a series: seconds after the start of the window, and values.
type Series = (Vec<(&'static str, &'static str)>, Vec<(i64, f64)>);

/// A series of the exporter.
fn series(
    name: &'static str,
    own: &[(&'static str, &'static str)],
    values: &[(i64, f64)],
) -> Series {
    let target =
        [("__name__", name), ("job", "dcgm"), ("instance", "gpu1:9400"), ("pod", "exporter")];
    (target.iter().chain(own).copied().collect(), values.to_vec())
}

fn frame(all: &[Series]) -> Vec<u8> {
    let at = |(second, value): &(i64, f64)| (FROM.0 + second * 1_000, *value);
    let samples: Vec<Vec<(i64, f64)>> =
        all.iter().map(|(_, values)| values.iter().map(at).collect()).collect();
    let all: Vec<_> = all
        .iter()
        .zip(&samples)
        .map(|((labels, _), it)| (labels.as_slice(), it.as_slice()))
        .collect();
    encode_frame(&all)
}

fn utilization(gpu: &'static str, values: &[(i64, f64)]) -> Series {
    let own = [("gpu", gpu), ("Hostname", "gpu1"), ("exported_pod", "train")];
    series("DCGM_FI_DEV_GPU_UTIL", &own, values)
}

/// The frames of the healthy server for what is read first, second and third: `up`, durations, and the metrics.
fn healthy_frames(number: usize) -> Vec<Vec<u8>> {
    match number {
        0 => vec![frame(&[series("up", &[], &[(15, 1.0), (30, 1.0), (45, 0.0)])])],
        1 => vec![frame(&[series("scrape_duration_seconds", &[], &[(15, 0.25)])])],
        _ => vec![
            frame(&[utilization("1", &[(15, 50.0), (30, 60.0)])]),
            // A chunk is sent whole, and a series may come in parts.
            frame(&[utilization("0", &[(0, 1.0), (15, 97.0), (30, f64::NAN), (99, 2.0)])]),
        ],
    }
}

fn streamed(frames: &[Vec<u8>]) -> ServerAnswer {
    let form = "application/x-streamed-protobuf; proto=prometheus.ChunkedReadResponse";
    ServerAnswer { body: frames.concat(), ..ServerAnswer::new(200, form, "") }
}

/// Reads the window from a server that is healthy when it is queried, and answers remote read by its number like this.
async fn read_with(
    options: impl FnOnce(&mut SeriesOptions),
    answer: impl Fn(usize) -> ServerAnswer + Send + Sync + 'static,
) -> (Result<SeriesWindow, QueryError>, usize) {
    let reads = Arc::new(AtomicUsize::new(0));
    let counted = reads.clone();
    let server = QueryServer::start(move |request: &str| {
        if request.contains("/api/v1/read ") {
            answer(counted.fetch_add(1, Relaxed))
        } else {
            healthy_answer(request)
        }
    })
    .await;
    let mut series = options_for(&server.url);
    options(&mut series);
    let reader = SeriesReader::open(&series).await.unwrap();
    let window = reader.with_remote_read().read_window(FROM, UNTIL).await;
    (window, reads.load(Relaxed))
}

/// What was scraped, without the address of the server.
fn shown(window: &SeriesWindow) -> Vec<String> {
    let batch = |batch: &gaunt_schema::Batch| match &batch.outcome {
        Ok(page) => format!("{} {:?} {:?}", batch.at.0, page.report, batch.duration_ms),
        Err(_) => format!("{} down", batch.at.0),
    };
    window.batches.iter().map(batch).collect()
}

/// What queries give.
async fn queried() -> Vec<String> {
    let missing = |_| ServerAnswer::new(404, "text/plain", "no");
    shown(&read_with(|_| {}, missing).await.0.unwrap())
}

#[tokio::test]
async fn chunks_give_the_pages_of_queries() {
    let (window, reads) = read_with(|_| {}, |number| streamed(&healthy_frames(number))).await;
    let window = window.unwrap();
    assert_eq!(shown(&window), queried().await);
    assert_eq!((window.batches.len(), reads), (3, 3));
    assert_eq!((window.load.queries, window.load.samples), (3, 3 + 1 + 4));
}

/// Remote read that is missing, cut off, no stream of frames or damaged costs one request, and the server is queried: no
/// series is lost or there twice.
#[tokio::test]
async fn remote_read_that_fails_is_replaced_by_queries() {
    let expected = queried().await;
    let garbage = || ServerAnswer { body: b"no frame at all".to_vec(), ..streamed(&[]) };
    let first = [
        garbage(),
        ServerAnswer { is_cut: true, ..garbage() },
        ServerAnswer::new(404, "text/plain", "no"),
        json_answer("{}"),
    ];
    for answer in first {
        let (window, reads) = read_with(|_| {}, move |_| answer.clone()).await;
        let window = window.unwrap();
        assert_eq!((shown(&window), window.load.queries, reads), (expected.clone(), 4, 1));
    }
    // After some series were read.
    let damages: [fn(&mut ServerAnswer); 4] = [
        |answer| answer.is_cut = true,
        |answer| answer.body.truncate(answer.body.len() - 1),
        |answer| *answer.body.last_mut().unwrap() ^= 1,
        |answer| prost::encoding::encode_varint(MAX_FRAME as u64 + 1, &mut answer.body),
    ];
    for damage in damages {
        let answer = move |number| {
            let mut answer = streamed(&healthy_frames(number));
            if number == 2 {
                damage(&mut answer);
            }
            answer
        };
        let (window, reads) = read_with(|_| {}, answer).await;
        let window = window.unwrap();
        assert_eq!((shown(&window), window.load.queries, reads), (expected.clone(), 4, 3));
    }
}

#[tokio::test]
async fn silent_remote_read_is_given_up_after_the_deadline() {
    let server = QueryServer::start(|request: &str| {
        let is_list = request.contains("/label/");
        if is_list { healthy_answer(request) } else { ServerAnswer::silent() }
    })
    .await;
    let timeout = Duration::from_millis(200);
    let options = SeriesOptions { timeout, ..options_for(&server.url) };
    let mut reader = SeriesReader::open(&options).await.unwrap().with_remote_read();
    // On a busy machine the list of names may be late too.
    let error = reader.read_window(FROM, UNTIL).await.unwrap_err().to_string();
    assert!(error.contains("no answer within 200ms"), "{error}");
}

/// Labels, instants and values that no server should send: nothing of them becomes a sample.
#[tokio::test]
async fn lying_chunks_get_no_sample_in() {
    let lies = |number: usize| match number {
        0 => vec![frame(&[series("up", &[], &[(-9_000_000_000_000, 1.0), (15, 1.0), (61, 1.0)])])],
        1 => vec![],
        _ => vec![frame(&[
            utilization("0", &[(-1, 5.0), (15, f64::NAN), (9_000_000_000_000, 5.0)]),
            series("DCGM_FI_DEV_GPU_UTIL", &[("gpu x", "0")], &[(15, 5.0)]),
            (vec![("__name__", "DCGM_FI_DEV_GPU_UTIL"), ("instance", "other")], vec![(15, 5.0)]),
            (vec![], vec![(15, 5.0)]),
            utilization("2\n\"} 7", &[(15, 5.0)]),
        ])],
    };
    let (window, _) = read_with(|_| {}, move |number| streamed(&lies(number))).await;
    let window = window.unwrap();
    let [batch] = window.batches.as_slice() else { panic!("{:?}", window.batches) };
    let devices = &batch.outcome.as_ref().unwrap().report.devices;
    let gpus: Vec<String> = devices.iter().map(|device| format!("{:?}", device.key)).collect();
    assert!(gpus.len() == 1 && gpus[0].contains('7'), "only the last series is one: {gpus:?}");
}

/// A frame of 16 MiB can hold 67 million samples: they are not decoded beyond the budget.
#[tokio::test]
async fn chunks_beyond_the_budget_end_the_window() {
    let many = |number: usize| {
        let values: Vec<(i64, f64)> = (1..=50).map(|second| (second, 1.0)).collect();
        let all: Vec<Series> = (0..100).map(|_| utilization("0", &values)).collect();
        if number == 2 { vec![frame(&all), vec![0xff; 9]] } else { healthy_frames(number) }
    };
    let small = |options: &mut SeriesOptions| options.max_samples = 1_000;
    let (window, reads) = read_with(small, move |number| streamed(&many(number))).await;
    let error = window.unwrap_err();
    assert!(matches!(error, QueryError::OverBudget { .. }), "{error}");
    assert!(error.to_string().contains("more than 1000 samples"), "{error}");
    assert_eq!(reads, 3, "the load on the server is bounded: no query follows");
}
