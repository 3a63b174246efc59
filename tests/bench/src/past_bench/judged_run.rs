//! Judged runs of bench `past`: one recording as its pages are, and as it is asked for.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use gaunt_api::{Answer, Question};
use gaunt_engine::{Engine, EngineOptions};
use gaunt_schema::{
    Batch, Delivery, ScrapeFailure, ScrapeTarget, Severity, TargetId, UnixMs,
    text::{PageLimits, TemplateCache, TemplateState},
};
use gaunt_series::{SeriesOptions, SeriesReader, SpanSlices};
use tokio::runtime::Runtime;

use super::{
    PERIOD,
    past_fleet::{PERIOD_MS, PastFleet},
};

/// The findings of a run by id, which holds kind and blamed entity: the highest severity, and when it was first told.
pub(crate) type ToldFindings = BTreeMap<String, (Severity, UnixMs)>;

/// An engine in virtual time, and the findings that it told.
pub(crate) struct JudgedRun {
    engine: Engine,
    next_tick: Option<UnixMs>,
    pub(crate) told: ToldFindings,
}

impl JudgedRun {
    pub(crate) fn new() -> Self {
        let options = EngineOptions { period: PERIOD, ..EngineOptions::default() };
        Self { engine: Engine::new(options), next_tick: None, told: ToldFindings::new() }
    }

    pub(crate) fn deliver(&mut self, delivery: Delivery) {
        if let Delivery::Batch(batch) = &delivery {
            self.run_until(batch.at);
        }
        self.engine.ingest_delivery(delivery);
    }

    pub(crate) fn run_until(&mut self, at: UnixMs) {
        let mut tick = self.next_tick.unwrap_or(at);
        while tick < at {
            self.engine.run_tick(tick);
            if let Answer::Findings(list) = self.engine.answer_question(&Question::Findings) {
                for finding in list.findings.iter().filter(|it| it.severity >= Severity::Warning) {
                    let told = (finding.severity, tick);
                    let known = self.told.entry(finding.id.clone()).or_insert(told);
                    known.0 = known.0.max(finding.severity);
                }
            }
            tick = tick + PERIOD / 4;
        }
        self.next_tick = Some(tick);
    }
}

/// How the samples of a past are read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReadBy {
    Queries,
    RemoteRead,
}

/// The past that a selector has, judged out of a server: seconds, and the findings.
pub(crate) fn judge_past(
    runtime: &Runtime,
    (options, read_by): (SeriesOptions, ReadBy),
    selector: &str,
    from: UnixMs,
    until: UnixMs,
) -> anyhow::Result<(f64, ToldFindings)> {
    let (began, mut run) = (Instant::now(), JudgedRun::new());
    let options = SeriesOptions { selector: selector.to_owned(), ..options };
    runtime.block_on(async {
        let mut reader = SeriesReader::open(&options).await?;
        if read_by == ReadBy::RemoteRead {
            reader = reader.with_remote_read();
        }
        reader.discover_names(from, until).await?;
        let mut slices = SpanSlices::new(from, until);
        while let Some((at, end)) = slices.next_slice() {
            let window = reader.read_window(at, end).await?;
            slices.advance(window.load.samples);
            run.deliver(Delivery::Targets(window.targets));
            window.batches.into_iter().for_each(|batch| run.deliver(Delivery::Batch(batch)));
        }
        anyhow::Ok(())
    })?;
    run.run_until(until + Duration::from_secs(1));
    Ok((began.elapsed().as_secs_f64(), run.told))
}

/// The findings of the pages of the first nodes themselves.
pub(crate) fn judge_pages(
    fleet: &PastFleet,
    nodes: usize,
    from: UnixMs,
    until: UnixMs,
) -> ToldFindings {
    let (mut run, cache) = (JudgedRun::new(), TemplateCache::default());
    let mut states: Vec<TemplateState> = (0..nodes).map(|_| TemplateState::default()).collect();
    let target = |node: usize| ScrapeTarget {
        id: TargetId(node as u32),
        address: PastFleet::instance(node).as_str().into(),
        node: None,
        origin: "pages".into(),
    };
    run.deliver(Delivery::Targets((0..nodes).map(target).collect()));
    let mut at = UnixMs((from.0 / PERIOD_MS + 1) * PERIOD_MS);
    while at <= until {
        for (node, state) in states.iter_mut().enumerate() {
            let outcome = match fleet.write_page(node, at) {
                Some(page) => cache.decode_page(state, page.as_bytes(), &PageLimits::default()),
                None => Err(ScrapeFailure::ReportedDown("pages".into())),
            };
            let target = TargetId(node as u32);
            run.deliver(Delivery::Batch(Batch { target, at, duration_ms: 20.0, outcome }));
        }
        at = at + PERIOD;
    }
    run.run_until(until + Duration::from_secs(1));
    run.told
}
