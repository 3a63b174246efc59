//! Remote recording: records what an aggregator's targets report; the aggregator forwards it, nothing is scraped twice.

use std::time::Duration;

use gaunt_schema::{Delivery, RecordingPreamble, UnixMs};
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};

use crate::{
    answer_source::{AggregatorClient, RemoteRecording},
    command::engine_preamble,
};
use gaunt_engine::record::{RecordOptions, Recorder, RecorderFollowHandle, SegmentStream};
use gaunt_signals::ServiceSignals;

/// Pause before an aggregator that disconnected is asked again.
const AGAIN: Duration = Duration::from_secs(1);

/// Pause while the disk catches up; the aggregator waits too, and disconnects a follower that takes too long.
const DRAIN: Duration = Duration::from_millis(5);

/// Time limit for the aggregator's state, a little less than the segment waits.
const PREAMBLE_WITHIN: Duration = Duration::from_secs(9);

/// Records until a signal or the end of a time, and reconnects whenever the aggregator disconnects. An aggregator that is
/// unreachable at first is an error.
pub(super) async fn run(
    aggregator: &AggregatorClient,
    options: RecordOptions,
    until: (Option<Duration>, ServiceSignals),
) -> anyhow::Result<Recorder> {
    let folder = options.folder.clone();
    let mut remote = aggregator.open_recording().await?;
    let (mut stream, first) = read_header(&mut remote).await?;
    let period = Duration::from_millis(u64::from(stream.period_ms().unwrap_or_default()));
    let recorder = Recorder::start_recording(RecordOptions { period, ..options })?;
    let mut end = super::start_until_end(until);
    tracing::info!(folder = %folder.display(), from = aggregator.display_address(), "recording");
    let from = aggregator.display_address();
    super::print_status(&format!(
        "recording the targets of the aggregator at {from} to {}; Ctrl-C ends it",
        folder.display()
    ));
    record_entries(&recorder, first).await;
    let _preambles = ask_for_preambles(aggregator.clone(), recorder.follow_handle());
    loop {
        let result = tokio::select! {
            () = &mut end => return Ok(recorder),
            result = copy_stream(&mut remote, &mut stream, &recorder) => result,
        };
        if let Err(error) = result {
            tracing::warn!("{error:#}; reconnecting");
        } else {
            tracing::warn!(
                from = aggregator.display_address(),
                "the aggregator ended the recording; reconnecting"
            );
        }
        let reconnect = async {
            loop {
                sleep(AGAIN).await;
                match aggregator.open_recording().await {
                    Ok(remote) => return remote,
                    Err(error) => tracing::debug!(%error, "cannot reconnect yet"),
                }
            }
        };
        remote = tokio::select! {
            () = &mut end => return Ok(recorder),
            reconnected = reconnect => reconnected,
        };
        stream = SegmentStream::default();
        tracing::info!(from = aggregator.display_address(), "recording continues after a gap");
    }
}

/// Requests the aggregator's state whenever a segment begins here: the aggregator sends it to a new follower.
fn ask_for_preambles(aggregator: AggregatorClient, follow: RecorderFollowHandle) -> JoinSet<()> {
    follow.announce_preambles(engine_preamble::WAIT);
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        loop {
            follow.asked().await;
            let state = timeout(PREAMBLE_WITHIN, preamble_of_now(&aggregator)).await;
            let state = match state {
                Ok(Ok(state)) => state,
                Ok(Err(error)) => {
                    tracing::warn!("a segment starts with older state: {error:#}");
                    None
                }
                Err(_) => {
                    tracing::warn!(
                        "a segment starts with older state: the aggregator at {} did not send its \
                         state in time",
                        aggregator.display_address()
                    );
                    None
                }
            };
            match state {
                Some((at, preamble)) => follow.answer_preamble(at, Some(preamble)),
                None => follow.answer_preamble(UnixMs::default(), None),
            }
        }
    });
    tasks
}

/// The aggregator's current state and its time; none if it sends no preamble.
async fn preamble_of_now(
    aggregator: &AggregatorClient,
) -> anyhow::Result<Option<(UnixMs, RecordingPreamble)>> {
    let mut remote = aggregator.open_recording().await?;
    let mut stream = SegmentStream::default();
    while let Some(bytes) = remote.next().await? {
        for (at, delivery) in stream.decode_arrived(bytes.as_ref())? {
            if let Delivery::Preamble(preamble) = delivery {
                return Ok(Some((at, preamble)));
            }
        }
    }
    Ok(None)
}

/// Reads until the header, which contains the period, is complete.
async fn read_header(
    remote: &mut RemoteRecording,
) -> anyhow::Result<(SegmentStream, TimedDeliveries)> {
    let (mut stream, mut entries) = (SegmentStream::default(), Vec::new());
    while stream.period_ms().is_none() {
        let Some(bytes) = remote.next().await? else {
            anyhow::bail!("the aggregator ended the recording immediately; try again later")
        };
        entries.extend(stream.decode_arrived(bytes.as_ref())?);
    }
    Ok((stream, entries))
}

type TimedDeliveries = Vec<(UnixMs, Delivery)>;

async fn copy_stream(
    remote: &mut RemoteRecording,
    stream: &mut SegmentStream,
    recorder: &Recorder,
) -> anyhow::Result<()> {
    while let Some(bytes) = remote.next().await? {
        record_entries(recorder, stream.decode_arrived(bytes.as_ref())?).await;
    }
    Ok(())
}

/// Records entries with the times at which the aggregator received them.
async fn record_entries(recorder: &Recorder, entries: TimedDeliveries) {
    for (at, delivery) in entries {
        while !recorder.has_capacity() {
            sleep(DRAIN).await;
        }
        recorder.record_delivery(at, &delivery);
    }
}
