//! Tests of the receiver over HTTP in virtual time: senders that stall use up the memory for bodies, and give it back.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, SocketAddr},
};

use axum::http::HeaderName;
use gaunt_api::AccessRole;
use gaunt_engine::{Engine, EngineOptions, spawn_stepped};
use gaunt_schema::UnixMs;
use gaunt_series::{RECEIVE_LAG, SeriesClock};
use gaunt_store::{StoreSample, compress_request, encode_labels, push_series};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex},
    sync::mpsc,
    task::spawn_blocking,
    time::{Instant, sleep},
};

use super::*;
use crate::{
    answer_source::AnswerSource,
    serve::{AggregatorServer, RoleOptions, TrustedProxy},
};

const START: UnixMs = UnixMs(1_700_000_000_000);

/// The address of all senders: a proxy that names their user.
const PROXY: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));

/// Starts a server that receives, and takes connections from this channel. The engine's ends live as long as the test.
fn start_server() -> mpsc::Sender<(Box<dyn gaunt_node::server_stream::NetworkStream>, SocketAddr)> {
    let (connections, accepted) = mpsc::channel(8);
    let (inbox, mut deliveries) = mpsc::channel(64);
    let clock = SeriesClock::new(Arc::new(|| START), RECEIVE_LAG, START - RECEIVE_LAG);
    let receiver = WriteReceiver::start_thread(inbox, clock).unwrap();
    let (engine, instants) = spawn_stepped(Engine::new(EngineOptions::default()), START);
    let proxy = TrustedProxy {
        addresses: vec![PROXY],
        user_header: HeaderName::from_static("x-user"),
        role: AccessRole::Write,
        users: BTreeMap::new(),
    };
    let roles = RoleOptions { proxy: Some(proxy), ..RoleOptions::default() };
    let server = AggregatorServer::on_simulated(accepted)
        .with_roles(watch::channel(Arc::new(roles)).1)
        .with_receiver(receiver);
    tokio::spawn(async move {
        tokio::spawn(async move { while deliveries.recv().await.is_some() {} });
        server.run(AnswerSource::Engine(engine), std::future::pending()).await;
        drop(instants);
    });
    connections
}

/// Connects, and sends the head of a request with a body of this length, then this much of it.
async fn send_request(
    connections: &mpsc::Sender<(Box<dyn gaunt_node::server_stream::NetworkStream>, SocketAddr)>,
    length: usize,
    body: &[u8],
) -> DuplexStream {
    let (mut stream, theirs) = duplex(1 << 16);
    let peer = SocketAddr::from((PROXY, 40_000));
    assert!(connections.send((Box::new(theirs), peer)).await.is_ok());
    let head = format!(
        "POST {RECEIVE_PATH} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nX-User: agent\r\n\
         Content-Encoding: snappy\r\nContent-Length: {length}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(body).await.unwrap();
    stream
}

async fn read_answer(mut stream: DuplexStream) -> String {
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer.to_lowercase()
}

/// One sample of one series.
fn small_request() -> Vec<u8> {
    let (mut labels, mut request) = (Vec::new(), Vec::new());
    encode_labels(&mut [("__name__", "up"), ("instance", "a:1"), ("job", "a")], &mut labels);
    push_series(&labels, &[StoreSample { at: START, bits: 1.0_f64.to_bits() }], &mut request);
    compress_request(&request).unwrap()
}

/// Senders that stop in the middle of large bodies use up the memory for bodies: others are told to wait, and lose nothing.
/// After their time the memory is free again.
#[tokio::test(start_paused = true)]
async fn senders_that_stall_make_others_wait_for_a_bounded_time() {
    let connections = start_server();
    let whole = small_request();
    let began = Instant::now();
    let mut stalled = Vec::new();
    for _ in 0..4 {
        stalled.push(send_request(&connections, MAX_REQUEST_BYTES - 1, b"abc").await);
    }
    // The clock moves once nothing else is to be done: all of them are accepted.
    sleep(Duration::from_secs(1)).await;
    for _ in 0..3 {
        let stream = send_request(&connections, whole.len(), &whole).await;
        let answer = read_answer(stream).await;
        assert!(answer.starts_with("http/1.1 429 "), "{answer}");
        assert!(answer.contains("\r\nretry-after: 5\r\n"), "{answer}");
        assert!(answer.ends_with("send this one again later\n"), "{answer}");
    }
    assert!(began.elapsed() < BODY_TIMEOUT, "no answer waits for the senders that stall");
    for stream in stalled {
        let answer = read_answer(stream).await;
        assert!(answer.starts_with("http/1.1 503 "), "{answer}");
        assert!(answer.contains("\r\nretry-after: 5\r\n"), "{answer}");
        assert!(answer.contains("did not arrive within 8s; check the network"), "{answer}");
    }
    assert!(began.elapsed() < BODY_TIMEOUT + Duration::from_secs(1), "{:?}", began.elapsed());
    // The clock stands still while the receiver's thread reads.
    let (held, released) = std::sync::mpsc::channel::<()>();
    let holding = spawn_blocking(move || released.recv());
    let answer = read_answer(send_request(&connections, whole.len(), &whole).await).await;
    assert!(answer.starts_with("http/1.1 204 "), "{answer}");
    drop(held);
    assert!(holding.await.unwrap().is_err());
}
