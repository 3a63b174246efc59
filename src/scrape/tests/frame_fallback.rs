//! Tests of frames: servers with frames receive the client state, a broken one is asked for text for a while, others
//! are not affected.

use gaunt_schema::{
    Device, Report,
    catalogue::host,
    frame::{self, ClientState, FrameEncoder},
};

use super::{
    misbehaving_server::{typed_bytes_response, typed_response},
    *,
};

/// Batches of a server, in order.
async fn collect_batches(behaviour: ServerBehaviour, frames: bool, batches: usize) -> Vec<Batch> {
    let sources = vec![DiscoverySource::List(start_server(behaviour).await, "test".into())];
    let group = TargetGroup { sources, frames, ..TargetGroup::default() };
    let (inbox, mut deliveries) = mpsc::channel(64);
    let _manager = spawn_manager(
        ScrapePlan { options: test_options(), groups: vec![group] },
        inbox,
        test_clock(),
    );
    let mut collected = Vec::new();
    let collect = async {
        while collected.len() < batches {
            match deliveries.recv().await.expect("the gatherer runs") {
                Delivery::Batch(batch) if !matches!(batch.outcome, Err(ScrapeFailure::Skipped)) => {
                    collected.push(batch);
                }
                _ => {}
            }
        }
    };
    timeout(PATIENCE, collect).await.expect("a batch in every period");
    collected
}

/// The report of a node at a tick: its CPU count is the number of the tick.
fn encoder_at_tick(tick: u64) -> FrameEncoder {
    let mut report = Report::default();
    let node = report.ensure_device(Device::new_node());
    report.push(node, host::CPUS, (tick & 0xffff) as f64);
    report.push(node, host::LOAD, 1.5);
    FrameEncoder::of(&report, tick, None)
}

/// The client state in a request head.
fn parse_client_state(head: &str) -> ClientState {
    let header = head.split_once("\r\nx-gaunt-frame: ").map(|(_, rest)| rest);
    header.and_then(|rest| rest.split('\r').next()).map(ClientState::parse).unwrap_or_default()
}

fn wants_frames(head: &str) -> bool {
    head.contains("\r\naccept: application/vnd.gaunt.frame;version=1, text/plain;")
}

/// Responds with frames, and expects the client state for differences from the second request on.
fn answer_frames(head: &str, number: u64) -> Vec<u8> {
    if !wants_frames(head) {
        return typed_response("text/plain", "gaunt_node_cpus 9999\n").into_bytes();
    }
    let (client_state, encoder) = (parse_client_state(head), encoder_at_tick(number));
    if number & 0xffff > 1 {
        let layout = Some(encoder.layout().content_hash());
        assert_eq!(client_state, ClientState { layout, tick: Some(number - 1) }, "{head}");
    }
    let base = client_state.tick.map(self::encoder_at_tick);
    let mut frame = Vec::new();
    encoder.encode_frame(client_state, base.as_ref(), &mut frame);
    typed_bytes_response(frame::CONTENT_TYPE, &frame)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_with_frames_is_asked_for_differences() {
    let batches = collect_batches(ServerBehaviour::HearsBytes(answer_frames), true, 4).await;
    let numbers: Vec<_> = batches.iter().map(|batch| cpu_count(page_of(batch))).collect();
    assert_eq!(numbers, [1.0, 2.0, 3.0, 4.0].map(Some));
    let bytes: Vec<_> = batches.iter().map(|batch| page_of(batch).bytes).collect();
    assert!(bytes[1] < bytes[0] && bytes[1] == bytes[2], "{bytes:?}");
    let batches = collect_batches(ServerBehaviour::HearsBytes(answer_frames), false, 2).await;
    assert!(batches.iter().all(|batch| cpu_count(page_of(batch)) == Some(9999.0)), "not asked for");
}

/// The second frame is truncated; requests for text get text.
fn answer_torn_frame(head: &str, number: u64) -> Vec<u8> {
    if !wants_frames(head) {
        assert_eq!(parse_client_state(head), ClientState::default(), "{head}");
        assert!(head.contains("\r\naccept: text/plain;"), "{head}");
        return typed_response("text/plain", "gaunt_node_cpus 77\n").into_bytes();
    }
    let mut frame = Vec::new();
    encoder_at_tick(number).encode_frame(
        parse_client_state(head),
        parse_client_state(head).tick.map(encoder_at_tick).as_ref(),
        &mut frame,
    );
    if number & 0xffff == 2 {
        frame.truncate(frame.len() - 1);
    }
    typed_bytes_response(frame::CONTENT_TYPE, &frame)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn truncated_frame_fails_its_own_batch_and_text_is_requested_next() {
    let batches = collect_batches(ServerBehaviour::HearsBytes(answer_torn_frame), true, 4).await;
    assert_eq!(cpu_count(page_of(&batches[0])), Some(1.0));
    let failure = batches[1].outcome.as_ref().expect_err("it is torn");
    assert_eq!(failure.as_str(), "not_a_page");
    assert!(failure.to_string().contains("frame: length mismatch: "), "{failure}");
    for batch in &batches[2..] {
        assert_eq!(cpu_count(page_of(batch)), Some(77.0));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_without_frames_answers_with_text() {
    let page = ServerBehaviour::Answers(typed_response(
        "text/plain; version=0.0.4",
        "gaunt_node_cpus 5\n",
    ));
    for batch in collect_batches(page, true, 2).await {
        assert_eq!(cpu_count(page_of(&batch)), Some(5.0));
    }
}
