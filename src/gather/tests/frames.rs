//! Frames: who speaks them is told what is held, who breaks one is asked for text for a while, nobody else is disturbed.

use gaunt_schema::{
    Device, Report,
    catalogue::host,
    frame::{self, Holds, Told},
};

use super::{
    server::{bytes_of_type, of_type},
    *,
};

/// Batches of a server, in their order.
async fn asked(manner: Manner, frames: bool, batches: usize) -> Vec<Batch> {
    let sources = vec![Source::List(server(manner).await, "test".into())];
    let group = Group { sources, frames, ..Group::default() };
    let (inbox, mut deliveries) = mpsc::channel(64);
    let _gatherer = start(Plan { options: options(), groups: vec![group] }, inbox, owner::clock());
    let mut taken = Vec::new();
    let all = async {
        while taken.len() < batches {
            match deliveries.recv().await.expect("the gatherer runs") {
                Delivery::Batch(batch) if !matches!(batch.outcome, Err(Failure::Skipped)) => {
                    taken.push(batch);
                }
                _ => {}
            }
        }
    };
    timeout(PATIENCE, all).await.expect("a batch in every period");
    taken
}

/// What a node tells at a tick: as many processors as the number of the tick.
fn told(tick: u64) -> Told {
    let mut report = Report::default();
    let node = report.device(Device::node());
    report.push(node, host::CPUS, (tick & 0xffff) as f64);
    report.push(node, host::LOAD, 1.5);
    Told::of(&report, tick, None)
}

/// What the head of a request says that is held.
fn held(head: &str) -> Holds {
    let said = head.split_once("\r\nx-gaunt-frame: ").map(|(_, rest)| rest);
    said.and_then(|rest| rest.split('\r').next()).map(Holds::parse).unwrap_or_default()
}

fn wants_frames(head: &str) -> bool {
    head.contains("\r\naccept: application/vnd.gaunt.frame;version=1, text/plain;")
}

/// Speaks frames, and wants differences to be asked for from the second request on.
fn speaks(head: &str, number: u64) -> Vec<u8> {
    if !wants_frames(head) {
        return of_type("text/plain", "gaunt_node_cpus 9999\n").into_bytes();
    }
    let (holds, told) = (held(head), told(number));
    if number & 0xffff > 1 {
        let layout = Some(told.layout().hash());
        assert_eq!(holds, Holds { layout, tick: Some(number - 1) }, "{head}");
    }
    let base = holds.tick.map(self::told);
    let mut frame = Vec::new();
    told.write(holds, base.as_ref(), &mut frame);
    bytes_of_type(frame::CONTENT_TYPE, &frame)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_speaks_frames_is_asked_for_what_changed() {
    let batches = asked(Manner::HearsBytes(speaks), true, 4).await;
    let numbers: Vec<_> = batches.iter().map(|batch| cpus(page_of(batch))).collect();
    assert_eq!(numbers, [1.0, 2.0, 3.0, 4.0].map(Some));
    let bytes: Vec<_> = batches.iter().map(|batch| page_of(batch).bytes).collect();
    assert!(bytes[1] < bytes[0] && bytes[1] == bytes[2], "{bytes:?}");
    let batches = asked(Manner::HearsBytes(speaks), false, 2).await;
    assert!(batches.iter().all(|batch| cpus(page_of(batch)) == Some(9999.0)), "not asked for");
}

/// The second frame is torn in its middle; text is told to whoever wants it.
fn tears(head: &str, number: u64) -> Vec<u8> {
    if !wants_frames(head) {
        assert_eq!(held(head), Holds::default(), "{head}");
        assert!(head.contains("\r\naccept: text/plain;"), "{head}");
        return of_type("text/plain", "gaunt_node_cpus 77\n").into_bytes();
    }
    let mut frame = Vec::new();
    told(number).write(held(head), held(head).tick.map(told).as_ref(), &mut frame);
    if number & 0xffff == 2 {
        frame.truncate(frame.len() - 1);
    }
    bytes_of_type(frame::CONTENT_TYPE, &frame)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_torn_frame_costs_its_own_batch_and_text_comes_after_it() {
    let batches = asked(Manner::HearsBytes(tears), true, 4).await;
    assert_eq!(cpus(page_of(&batches[0])), Some(1.0));
    let failure = batches[1].outcome.as_ref().expect_err("it is torn");
    assert_eq!(failure.as_str(), "not_a_page");
    assert!(failure.to_string().contains("frame: it is torn: "), "{failure}");
    for batch in &batches[2..] {
        assert_eq!(cpus(page_of(batch)), Some(77.0));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_knows_no_frames_answers_with_text() {
    let page = Manner::Answers(of_type("text/plain; version=0.0.4", "gaunt_node_cpus 5\n"));
    for batch in asked(page, true, 2).await {
        assert_eq!(cpus(page_of(&batch)), Some(5.0));
    }
}
