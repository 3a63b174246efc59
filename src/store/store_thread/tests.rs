//! Tests against a server that answers as a script says: every class of answer, an order that holds, a backlog.

use std::sync::{Arc, Mutex};

use gaunt_engine::system_disk::system_disk;
use gaunt_schema::UnixMs;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};

use super::*;
use crate::{
    remote_write::{parse_store_url, tenant_headers},
    series_window::{STEPS, SeriesWindow},
    store_step::StoreStep,
    write_request::tests::decode_body,
};

/// Oldest instants of the bodies that were received, in order.
type ReceivedInstants = Arc<Mutex<Vec<i64>>>;

/// An answer that never comes.
const SILENCE: &str = "silence";

/// Starts a server with these answers, one a connection; after them it answers 204.
async fn start_store(answers: &'static [&'static str]) -> (String, ReceivedInstants) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/api/v1/write?token=secret", listener.local_addr().unwrap());
    let received = ReceivedInstants::default();
    let instants = received.clone();
    tokio::spawn(async move {
        let (mut answers, mut held) = (answers.iter(), Vec::new());
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = Vec::new();
            let body = loop {
                let mut part = [0; 4_096];
                let count = stream.read(&mut part).await.unwrap();
                assert!(count > 0, "the request ends early");
                request.extend_from_slice(&part[..count]);
                let Some(end) = request.windows(4).position(|four| four == b"\r\n\r\n") else {
                    continue;
                };
                let headers = String::from_utf8_lossy(&request[..end]).to_lowercase();
                assert!(headers.contains("x-prometheus-remote-write-version: 0.1.0"), "{headers}");
                assert!(headers.contains("content-encoding: snappy"), "{headers}");
                assert!(headers.contains("x-scope-orgid: hall-1"), "{headers}");
                let length = headers.split("content-length: ").nth(1).unwrap();
                let length: usize = length.lines().next().unwrap().parse().unwrap();
                if request.len() >= end + 4 + length {
                    break request[end + 4..].to_vec();
                }
            };
            let first = decode_body(&body).series[0].samples[0].at;
            instants.lock().unwrap().push(first);
            let answer = answers.next().copied().unwrap_or("204 No Content\r\n");
            if answer == SILENCE {
                // The connection stays open.
                held.push(stream);
                continue;
            }
            if !answer.is_empty() && !answer.contains("\r\n") {
                stream.write_all(format!("HTTP/1.1 {answer}").as_bytes()).await.unwrap();
                continue;
            }
            if !answer.is_empty() {
                let text = format!("HTTP/1.1 {answer}connection: close\r\n\r\n");
                stream.write_all(text.as_bytes()).await.unwrap();
            }
        }
    });
    (url, received)
}

/// Starts the thread's loop in this runtime, with short pauses.
async fn start_thread(
    url: &str,
    backlog: Backlog,
) -> (StepSender, watch::Receiver<StoreStatus>, JoinSet<()>) {
    start_with_deadline(url, backlog, DEADLINE).await
}

/// The same with this time for one request.
async fn start_with_deadline(
    url: &str,
    backlog: Backlog,
    deadline: Duration,
) -> (StepSender, watch::Receiver<StoreStatus>, JoinSet<()>) {
    let mut tasks = JoinSet::new();
    let tenant = ("X-Scope-OrgID".to_owned(), "hall-1".to_owned());
    let headers = tenant_headers(Some(&tenant)).unwrap();
    let credentials = ServerAccess::default().watch_credentials(&mut tasks).await;
    let url = parse_store_url(url).unwrap();
    let client = RemoteWriteClient::new(url, headers, credentials, deadline);
    let (steps, receiver) = mpsc::channel(2);
    let (status_sender, status) = watch::channel(StoreStatus::default());
    let thread = StoreThread::new(Box::new(client), backlog, Duration::from_millis(1));
    tasks.spawn(thread.run(receiver, status_sender));
    let window = Some(SeriesWindow::new(Vec::new(), STEPS, 1_000));
    (StepSender { steps, window }, status, tasks)
}

/// Hands steps to the thread, waiting for room.
struct StepSender {
    steps: mpsc::Sender<StepOutput>,
    window: Option<SeriesWindow>,
}

impl StepSender {
    /// Sends the steps with these numbers; each has one sample.
    async fn send_steps(&mut self, numbers: std::ops::RangeInclusive<i64>) {
        for number in numbers {
            let window = self.window.take().unwrap();
            let at = UnixMs(number * 15_000);
            let mut step = StoreStep { at, window, screens: None, is_recorded: true };
            step.push_sample("gaunt_lost_gpus", &[], number as f64);
            let encoded = step.encode();
            self.window = Some(encoded.window);
            self.steps.send(encoded.output).await.unwrap();
        }
    }
}

#[tokio::test]
async fn request_is_sent_again_until_it_is_accepted_and_the_order_holds() {
    // No answer at all, an error with half a body, demands to wait, a redirect; then the store is there.
    let (url, received) = start_store(&[
        "",
        "503 Busy\r\ncontent-length: 100\r\n",
        "429 Too Many\r\nretry-after: 0\r\n",
        "500 Error\r\n",
        "308 Moved\r\nlocation: /elsewhere\r\n",
    ])
    .await;
    let (mut steps, mut status, _tasks) =
        start_thread(&url, Backlog::open(system_disk(), None, 1 << 20).unwrap()).await;
    steps.send_steps(1..=8).await;
    let done = status.wait_for(|status| status.sent_samples == 8).await.unwrap().clone();
    assert_eq!(*received.lock().unwrap(), [15_000, 15_000, 15_000, 15_000, 15_000, 15_000, 75_000]);
    assert_eq!((done.failed_attempts, done.waiting_bytes, done.oldest), (5, 0, None));
    assert_eq!(done.failure, None);
    assert!(!done.address.contains("secret"), "{}", done.address);
}

/// A store that takes the request and says nothing: it is asked again after the deadline, and so is one that ends within
/// its headers.
#[tokio::test]
async fn request_without_an_answer_is_sent_again_after_its_deadline() {
    let (url, received) = start_store(&[SILENCE, "204 No Con"]).await;
    let backlog = Backlog::open(system_disk(), None, 1 << 20).unwrap();
    let (mut steps, mut status, _tasks) =
        start_with_deadline(&url, backlog, Duration::from_secs(1)).await;
    steps.send_steps(1..=4).await;
    let silent = status.wait_for(|status| status.failed_attempts == 1).await.unwrap().clone();
    assert!(silent.failure.unwrap().contains("no answer within 1s"));
    status.wait_for(|status| status.sent_samples == 4).await.unwrap();
    assert!(received.lock().unwrap().len() >= 3, "{received:?}");
}

#[tokio::test]
async fn refused_samples_are_counted_and_never_sent_again() {
    let (url, received) = start_store(&[
        "400 Bad Request\r\nconnection: close\r\ncontent-length: 11\r\n\r\nout of \x1bbou",
        "401 Unauthorized\r\n",
        "413 Too Large\r\n",
        "422 Unprocessable\r\n",
        "202 Accepted\r\n",
    ])
    .await;
    let (mut steps, mut status, _tasks) =
        start_thread(&url, Backlog::open(system_disk(), None, 1 << 20).unwrap()).await;
    steps.send_steps(1..=4).await;
    let refused =
        status.wait_for(|status| status.refused_samples.get(&400) == Some(&4)).await.unwrap();
    let why = refused.failure.clone().unwrap();
    assert!(why.contains("HTTP status 400: out of "), "{why}");
    assert!(!why.contains('\u{1b}'), "it may reach a terminal");
    drop(refused);
    steps.send_steps(5..=24).await;
    let done = status.wait_for(|status| status.sent_samples == 4).await.unwrap().clone();
    assert_eq!(done.refused_samples, [(400, 4), (401, 4), (413, 4), (422, 4)].into());
    assert_eq!((done.other_replica_samples, done.failed_attempts), (4, 0));
    assert_eq!(done.failure, None, "the store accepts samples again");
    assert_eq!(received.lock().unwrap().len(), 6, "none was sent twice");
}

/// Steps of an hour while nothing listens; another run then sends all of them in order, those of the open window too.
#[tokio::test]
async fn backlog_of_an_hour_arrives_in_order_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let path = Some(folder.path().to_path_buf());
    let backlog = Backlog::open(system_disk(), path.clone(), 1 << 20).unwrap();
    let (mut steps, mut status, tasks) = start_thread("http://127.0.0.1:1/write", backlog).await;
    steps.send_steps(1..=242).await;
    status.wait_for(|status| status.oldest == Some(UnixMs(15_000))).await.unwrap();
    // All steps are taken when the channel is empty and one more was taken.
    let capacity = steps.steps.max_capacity();
    while steps.steps.capacity() < capacity {
        tokio::task::yield_now().await;
    }
    drop((steps, tasks));

    let (url, received) = start_store(&[]).await;
    let (_steps, mut status, _tasks) =
        start_thread(&url, Backlog::open(system_disk(), path, 1 << 20).unwrap()).await;
    let done = status.wait_for(|status| status.sent_samples == 242).await.unwrap().clone();
    assert_eq!(done.failed_attempts, 0);
    let received = received.lock().unwrap();
    assert!(received.is_sorted() && received.len() == 61, "{received:?}");
}
