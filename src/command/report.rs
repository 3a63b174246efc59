//! `gaunt report`: where GPU time and energy went, what it cost, and what of it was lost to which cause.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use gaunt_schema::{Delivery, UnixMs};

use super::{
    View,
    judge::{Recording, date_and_time},
    preamble, snapshot,
};
use crate::{
    answer::{Answer, Question, Usage},
    owner::{self, Owner},
    record,
};

mod count;
mod page;
mod price;

pub use count::{Report, Sum};
pub use price::{Price, Prices};

/// The longest time between two ticks of a running owner; so it is here.
const SLOWEST_TICK: Duration = Duration::from_secs(1);

/// Whose time is reported.
#[derive(Debug)]
pub enum Of {
    /// The last while, as an aggregator, or this process, knows it.
    Last(Box<View>, Duration),
    /// A whole recording.
    Recording(PathBuf, Box<owner::Options>),
}

/// What is wanted.
#[derive(Debug)]
pub struct Wanted {
    /// Whose time.
    pub of: Of,
    /// How it is written.
    pub form: snapshot::Form,
    /// How long to watch first where no aggregator has done so.
    pub watch: Duration,
    /// What boards cost.
    pub prices: Prices,
    /// CO2 of a kilowatt-hour in kilograms, if it is known.
    pub co2_kg_per_kwh: Option<f64>,
}

/// Counts and prints.
pub async fn run(wanted: Wanted) -> anyhow::Result<ExitCode> {
    let usage = match wanted.of {
        Of::Last(view, span) => last(*view, span, wanted.watch).await?,
        Of::Recording(folder, options) => recorded(&folder, *options)?,
    };
    let report = Report::of(&usage, &wanted.prices, wanted.co2_kg_per_kwh);
    let page = match wanted.form {
        snapshot::Form::Text => page::text(&report),
        snapshot::Form::Json | snapshot::Form::Columns => {
            serde_json::to_string_pretty(&report)? + "\n"
        }
        snapshot::Form::Csv => page::csv(&report),
    };
    snapshot::print(&page)?;
    Ok(ExitCode::SUCCESS)
}

async fn last(view: View, span: Duration, watch: Duration) -> anyhow::Result<Usage> {
    let view = view.chosen(true).await;
    let aggregator = view.aggregator();
    let usage = used(view, span, watch).await;
    usage.map_err(|error| super::explained(aggregator.as_ref(), error))
}

async fn used(view: View, span: Duration, watch: Duration) -> anyhow::Result<Usage> {
    let open = view.open().await?;
    if open.young {
        snapshot::watch(&open.source, watch).await?;
    }
    match open.source.ask(Question::Usage(span)).await? {
        Answer::Usage(usage) => Ok(usage.as_ref().clone()),
        Answer::Refused(refusal) => anyhow::bail!("{refusal}"),
        _ => anyhow::bail!("the aggregator gave another answer; is it of another version?"),
    }
}

/// Lives through a recording in virtual time and counts all of it.
fn recorded(folder: &Path, options: owner::Options) -> anyhow::Result<Usage> {
    if record::Recording::is_in(folder) {
        let recording = record::Recording::open(folder)?;
        let (span, period) = (recording.span(), recording.period());
        let options = owner::Options { usage: length(span), period, ..options };
        let owner = preamble::resume(&recording, span.0, options)?;
        return counted(recording.deliveries(span.0), span, owner);
    }
    let recording = Recording::open(folder)?;
    let (span, period) = (recording.span(), recording.period());
    let targets = std::iter::once(Ok((span.0, Delivery::Targets(recording.targets()))));
    let batches = recording.batches().map(|batch| batch.map(|b| (b.at, Delivery::Batch(b))));
    let options = owner::Options { usage: length(span), period, ..options };
    counted(targets.chain(batches), span, Owner::new(options))
}

/// All of a recording, with its last tick.
fn length((first, last): (UnixMs, UnixMs)) -> Duration {
    last.since(first) + SLOWEST_TICK
}

fn counted<E: std::error::Error + Send + Sync + 'static>(
    deliveries: impl Iterator<Item = Result<(UnixMs, Delivery), E>>,
    (first, last): (UnixMs, UnixMs),
    mut owner: Owner,
) -> anyhow::Result<Usage> {
    let span = length((first, last));
    let step = owner.period().min(SLOWEST_TICK);
    let mut tick = first;
    for delivery in deliveries {
        let (at, delivery) = delivery?;
        while tick < at {
            owner.tick(tick);
            tick = tick + step;
        }
        owner.accept(delivery);
    }
    owner.tick(tick);
    match owner.answer(&Question::Usage(span)) {
        Answer::Usage(usage) => Ok(usage.as_ref().clone()),
        _ => anyhow::bail!("the owner gave no usage"),
    }
}

/// From when to when, as a person reads it.
fn span(from: UnixMs, until: UnixMs) -> String {
    format!("{} to {}", date_and_time(from), date_and_time(until))
}
