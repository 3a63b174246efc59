//! Recording what an aggregator's targets say: the aggregator passes it on, nothing is scraped twice.

use std::{pin::Pin, time::Duration};

use tokio::time::sleep;

use crate::{
    record::{Options, Recorder, Stream},
    source::{Aggregator, Recorded},
};

/// The pause before an aggregator that ended is asked again.
const AGAIN: Duration = Duration::from_secs(1);

/// The pause while the disk takes what waits; the aggregator waits with us, and cuts us off if that takes too long.
const DRAIN: Duration = Duration::from_millis(5);

/// Records until `end`, and asks again whenever the aggregator goes away meanwhile. Who cannot be reached at first is
/// an error.
pub(super) async fn run(
    aggregator: &Aggregator,
    options: Options,
    mut end: Pin<Box<dyn Future<Output = ()> + Send>>,
) -> anyhow::Result<Recorder> {
    let folder = options.folder.clone();
    let mut from = aggregator.recording().await?;
    let (mut stream, first) = begin(&mut from).await?;
    let period = Duration::from_millis(u64::from(stream.period_ms().unwrap_or_default()));
    let recorder = Recorder::start(Options { period, ..options })?;
    tracing::info!(folder = %folder.display(), from = aggregator.address(), "recording");
    give(&recorder, first).await;
    loop {
        let ended = tokio::select! {
            () = &mut end => return Ok(recorder),
            ended = pass(&mut from, &mut stream, &recorder) => ended,
        };
        if let Err(error) = ended {
            tracing::warn!("{error:#}; it is asked again");
        } else {
            tracing::warn!(
                from = aggregator.address(),
                "the aggregator ended it; it is asked again"
            );
        }
        let again = async {
            loop {
                sleep(AGAIN).await;
                match aggregator.recording().await {
                    Ok(from) => return from,
                    Err(error) => tracing::debug!(%error, "not yet"),
                }
            }
        };
        from = tokio::select! {
            () = &mut end => return Ok(recorder),
            found = again => found,
        };
        stream = Stream::default();
        tracing::info!(from = aggregator.address(), "recording goes on after a gap");
    }
}

/// Reads until the header and with it the period are known.
async fn begin(from: &mut Recorded) -> anyhow::Result<(Stream, Entries)> {
    let (mut stream, mut entries) = (Stream::default(), Vec::new());
    while stream.period_ms().is_none() {
        let Some(bytes) = from.next().await? else {
            anyhow::bail!("the aggregator ended the recording at once; ask it again later")
        };
        entries.extend(stream.take(bytes.as_ref())?);
    }
    Ok((stream, entries))
}

type Entries = Vec<(gaunt_schema::UnixMs, gaunt_schema::Delivery)>;

async fn pass(from: &mut Recorded, stream: &mut Stream, recorder: &Recorder) -> anyhow::Result<()> {
    while let Some(bytes) = from.next().await? {
        give(recorder, stream.take(bytes.as_ref())?).await;
    }
    Ok(())
}

/// Gives entries with the instants at which the aggregator had them.
async fn give(recorder: &Recorder, entries: Entries) {
    for (at, delivery) in entries {
        while !recorder.has_room() {
            sleep(DRAIN).await;
        }
        recorder.give(at, &delivery);
    }
}
