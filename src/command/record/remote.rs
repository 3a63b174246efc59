//! Recording what an aggregator's targets say: the aggregator passes it on, nothing is scraped twice.

use std::{pin::Pin, time::Duration};

use gaunt_schema::{Delivery, Preamble, UnixMs};
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};

use crate::{
    command::preamble,
    record::{Follow, Options, Recorder, Stream},
    source::{Aggregator, Recorded},
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
    let _preambles = ask_for_preambles(aggregator.clone(), recorder.follow());
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

/// Asks the aggregator what it knows whenever a segment is to begin here: it says so to whoever begins to follow.
fn ask_for_preambles(aggregator: Aggregator, follow: Follow) -> JoinSet<()> {
    follow.promise_preambles(preamble::WAIT);
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
                        aggregator.address()
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
async fn preamble_of_now(aggregator: &Aggregator) -> anyhow::Result<Option<(UnixMs, Preamble)>> {
    let mut from = aggregator.recording().await?;
    let mut stream = Stream::default();
    while let Some(bytes) = from.next().await? {
        for (at, delivery) in stream.take(bytes.as_ref())? {
            if let Delivery::Preamble(preamble) = delivery {
                return Ok(Some((at, preamble)));
            }
        }
    }
    Ok(None)
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

type Entries = Vec<(UnixMs, Delivery)>;

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
