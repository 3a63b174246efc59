//! Recording what an aggregator's targets say: the aggregator passes it on, nothing is scraped twice.

use std::{pin::Pin, time::Duration};

use gaunt_schema::{Delivery, RecordingPreamble, UnixMs};
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};

use crate::{
    answer_source::{AggregatorClient, RemoteRecording},
    command::engine_preamble,
    record::{RecordOptions, Recorder, RecorderFollowHandle, SegmentStream},
};

/// The pause before an aggregator that ended is asked again.
const AGAIN: Duration = Duration::from_secs(1);

/// The pause while the disk takes what waits; the aggregator waits with us, and cuts us off if that takes too long.
const DRAIN: Duration = Duration::from_millis(5);

/// What the aggregator knows is waited for so long, a little less than the segment waits.
const PREAMBLE_WITHIN: Duration = Duration::from_secs(9);

/// Records until `end`, and asks again whenever the aggregator goes away meanwhile. Who cannot be reached at first is
/// an error.
pub(super) async fn run(
    aggregator: &AggregatorClient,
    options: RecordOptions,
    mut end: Pin<Box<dyn Future<Output = ()> + Send>>,
) -> anyhow::Result<Recorder> {
    let folder = options.folder.clone();
    let mut from = aggregator.open_recording().await?;
    let (mut stream, first) = read_header(&mut from).await?;
    let period = Duration::from_millis(u64::from(stream.period_ms().unwrap_or_default()));
    let recorder = Recorder::start_recording(RecordOptions { period, ..options })?;
    tracing::info!(folder = %folder.display(), from = aggregator.display_address(), "recording");
    record_entries(&recorder, first).await;
    let _preambles = ask_for_preambles(aggregator.clone(), recorder.follow_handle());
    loop {
        let ended = tokio::select! {
            () = &mut end => return Ok(recorder),
            ended = copy_stream(&mut from, &mut stream, &recorder) => ended,
        };
        if let Err(error) = ended {
            tracing::warn!("{error:#}; it is asked again");
        } else {
            tracing::warn!(
                from = aggregator.display_address(),
                "the aggregator ended it; it is asked again"
            );
        }
        let again = async {
            loop {
                sleep(AGAIN).await;
                match aggregator.open_recording().await {
                    Ok(from) => return from,
                    Err(error) => tracing::debug!(%error, "not yet"),
                }
            }
        };
        from = tokio::select! {
            () = &mut end => return Ok(recorder),
            found = again => found,
        };
        stream = SegmentStream::default();
        tracing::info!(from = aggregator.display_address(), "recording goes on after a gap");
    }
}

/// Asks the aggregator what it knows whenever a segment is to begin here: it says so to whoever begins to follow.
fn ask_for_preambles(aggregator: AggregatorClient, follow: RecorderFollowHandle) -> JoinSet<()> {
    follow.announce_preambles(engine_preamble::WAIT);
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        loop {
            follow.asked().await;
            let known = timeout(PREAMBLE_WITHIN, preamble_of_now(&aggregator)).await;
            let known = match known {
                Ok(Ok(known)) => known,
                Ok(Err(error)) => {
                    tracing::warn!("a segment begins with what was known before: {error:#}");
                    None
                }
                Err(_) => {
                    tracing::warn!(
                        "a segment begins with what was known before: the aggregator at {} did not say in time what it knows",
                        aggregator.display_address()
                    );
                    None
                }
            };
            match known {
                Some((at, preamble)) => follow.answer_preamble(at, Some(preamble)),
                None => follow.answer_preamble(UnixMs::default(), None),
            }
        }
    });
    tasks
}

/// What the aggregator knows now, and when that is; none if it says nothing of that kind.
async fn preamble_of_now(
    aggregator: &AggregatorClient,
) -> anyhow::Result<Option<(UnixMs, RecordingPreamble)>> {
    let mut from = aggregator.open_recording().await?;
    let mut stream = SegmentStream::default();
    while let Some(bytes) = from.next().await? {
        for (at, delivery) in stream.decode_arrived(bytes.as_ref())? {
            if let Delivery::Preamble(preamble) = delivery {
                return Ok(Some((at, preamble)));
            }
        }
    }
    Ok(None)
}

/// Reads until the header and with it the period are known.
async fn read_header(
    from: &mut RemoteRecording,
) -> anyhow::Result<(SegmentStream, TimedDeliveries)> {
    let (mut stream, mut entries) = (SegmentStream::default(), Vec::new());
    while stream.period_ms().is_none() {
        let Some(bytes) = from.next().await? else {
            anyhow::bail!("the aggregator ended the recording at once; ask it again later")
        };
        entries.extend(stream.decode_arrived(bytes.as_ref())?);
    }
    Ok((stream, entries))
}

type TimedDeliveries = Vec<(UnixMs, Delivery)>;

async fn copy_stream(
    from: &mut RemoteRecording,
    stream: &mut SegmentStream,
    recorder: &Recorder,
) -> anyhow::Result<()> {
    while let Some(bytes) = from.next().await? {
        record_entries(recorder, stream.decode_arrived(bytes.as_ref())?).await;
    }
    Ok(())
}

/// Gives entries with the instants at which the aggregator had them.
async fn record_entries(recorder: &Recorder, entries: TimedDeliveries) {
    for (at, delivery) in entries {
        while !recorder.has_capacity() {
            sleep(DRAIN).await;
        }
        recorder.record_delivery(at, &delivery);
    }
}
