//! Preambles of recordings: what an owner knows goes into every recording of its targets, and is read back from there.

use std::{sync::Arc, time::Duration};

use gaunt_schema::{Clock, PREAMBLE_VERSION, Preamble, UnixMs};
use serde::{Serialize, de::DeserializeOwned};
use tokio::{
    task::{JoinSet, spawn_blocking},
    time::{MissedTickBehavior, interval},
};

use crate::{
    owner::{self, Handle, Owner, Remembered, Usual},
    record::{Follow, Recording},
};

/// The time between two preambles: a segment begins with the last one.
const EVERY: Duration = Duration::from_secs(10);

/// Begins to give what the owner knows to its recorder, at once when somebody begins to follow. Dropping it ends that.
pub(super) fn start(owner: Handle, follow: Follow, clock: Clock) -> JoinSet<()> {
    follow.promise_preambles();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut ticks = interval(EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut last = WrittenUsual::default();
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                () = follow.arrival() => {}
            }
            if !follow.is_wanted() {
                continue;
            }
            let Ok(remembered) = owner.remember().await else { return };
            let at = clock();
            let written = spawn_blocking(move || {
                let preamble = last.write(&remembered);
                (last, preamble)
            });
            // It ended with a panic at worst, which the log has.
            let Ok((kept, preamble)) = written.await else { return };
            last = kept;
            match preamble {
                Ok(preamble) => follow.give_preamble(at, preamble),
                Err(error) => {
                    tracing::error!(%error, "recordings begin without what is known");
                }
            }
        }
    });
    tasks
}

/// What is usual as it was last written: it is much and changes slowly.
#[derive(Debug, Default)]
struct WrittenUsual(Option<(Arc<Usual>, Arc<str>)>);

impl WrittenUsual {
    fn write(&mut self, remembered: &Remembered) -> serde_json::Result<Preamble> {
        let usual = match (remembered.usual(), &self.0) {
            (None, _) => Arc::default(),
            (Some(usual), Some((last, text))) if Arc::ptr_eq(usual, last) => text.clone(),
            (Some(usual), _) => {
                let text = json(&**usual)?;
                self.0 = Some((usual.clone(), text.clone()));
                text
            }
        };
        Ok(Preamble { version: PREAMBLE_VERSION, findings: json(remembered)?, usual })
    }
}

fn json(what: &impl Serialize) -> serde_json::Result<Arc<str>> {
    serde_json::to_string(what).map(Into::into)
}

/// An owner that lives through a recording from this instant on: it knows what was known then, if the recording says.
pub(super) fn resume(
    recording: &Recording,
    at: UnixMs,
    options: owner::Options,
) -> anyhow::Result<Owner> {
    let Some(preamble) = recording.preamble(at)? else { return Ok(Owner::new(options)) };
    match remembered(&preamble) {
        Ok(remembered) => Ok(Owner::resuming_recorded(options, remembered)),
        Err(why) => {
            tracing::error!("what was known before the recording is not read: {why}");
            Ok(Owner::new(options))
        }
    }
}

/// What a preamble says, or why it is not read.
fn remembered(preamble: &Preamble) -> Result<Remembered, String> {
    if preamble.version != PREAMBLE_VERSION {
        return Err(format!(
            "its preamble is of version {} and this gaunt reads {PREAMBLE_VERSION}; use the gaunt that recorded it",
            preamble.version
        ));
    }
    fn part<T: DeserializeOwned>(text: &str, what: &str) -> Result<T, String> {
        serde_json::from_str(text).map_err(|_| {
            format!("its {what} are not written as this gaunt writes them; use the gaunt that recorded it")
        })
    }
    let findings: Remembered = part(&preamble.findings, "findings")?;
    if preamble.usual.is_empty() {
        return Ok(findings);
    }
    Ok(findings.with_usual(part(&preamble.usual, "baselines")?))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use gaunt_schema::{Batch, Delivery, LifeState, Target, TargetId, text};
    use gaunt_sim::{Fleet, Scenario};

    use super::*;
    use crate::{
        answer::{Answer, Question},
        record::{self, Recorder},
    };

    const START: UnixMs = UnixMs(1_760_017_311_000);
    const PERIOD: Duration = Duration::from_secs(1);
    const NODES: usize = 4;

    /// When the recording begins and when it ends, in seconds after the owner.
    const BEGINS: i64 = 240;
    const ENDS: i64 = 300;

    fn at(second: i64) -> UnixMs {
        UnixMs(START.0 + second * 1_000)
    }

    /// What a fleet delivers in each second, its targets first.
    fn deliveries(scenario: &str) -> Vec<(UnixMs, Vec<Delivery>)> {
        let mut fleet = Fleet::new(Scenario::named(scenario).unwrap(), NODES, 7, START);
        let target = |node: usize| Target {
            id: TargetId(node as u32),
            address: format!("10.0.0.{node}:9770").into(),
            node: None,
            origin: "test".into(),
        };
        let mut all = vec![(START, vec![Delivery::Targets((0..NODES).map(target).collect())])];
        for second in 1..=ENDS {
            let at = at(second);
            fleet.advance(at);
            let pages = (0..NODES).map(|node| {
                let mut page = String::new();
                text::write(&fleet.report(node), &mut page);
                let outcome = text::decode(page.as_bytes(), &text::Limits::default());
                let target = TargetId(node as u32);
                Delivery::Batch(Batch { target, at, duration_ms: 1.5, outcome })
            });
            all.push((at, pages.collect()));
        }
        all
    }

    /// The ids of the open findings that cost somebody something.
    fn open(owner: &mut Owner) -> BTreeSet<String> {
        let Answer::Findings(list) = owner.answer(&Question::Findings) else { panic!("no list") };
        let open = list.findings.iter().filter(|one| one.life.state != LifeState::Closed);
        open.map(|finding| finding.id.clone()).collect()
    }

    #[test]
    fn recording_made_during_an_incident_has_its_findings_from_the_first_page_on() {
        for scenario in ["port_down", "data_starved", "slow_gpu"] {
            let folder = tempfile::tempdir().unwrap();
            let options =
                owner::Options { period: PERIOD, says_usual: true, ..owner::Options::default() };
            let mut owner = Owner::new(options.clone());
            let recorder = Recorder::start(record::Options {
                folder: folder.path().to_owned(),
                max_size: record::MAX_SIZE,
                max_age: record::MAX_AGE,
                period: PERIOD,
            })
            .unwrap();
            let mut stood = BTreeSet::new();
            for (at, all) in deliveries(scenario) {
                let records = at >= self::at(BEGINS);
                for delivery in all {
                    if records || matches!(delivery, Delivery::Targets(_)) {
                        recorder.give(at, &delivery);
                    }
                    owner.accept(delivery);
                }
                owner.tick(at);
                if at == self::at(BEGINS - 1) {
                    stood = open(&mut owner);
                    let known = owner.remember().unwrap();
                    let preamble = WrittenUsual::default().write(&known).unwrap();
                    assert!(!preamble.usual.is_empty(), "what is usual is said");
                    recorder.follow().give_preamble(at, preamble);
                }
            }
            drop(recorder);
            assert!(!stood.is_empty(), "{scenario}: nothing is found at all");
            let recording = Recording::open(folder.path()).unwrap();
            let (first, last) = recording.span();
            assert_eq!((first, last), (at(BEGINS), at(ENDS)), "{scenario}: from its first page on");
            let mut replayed = resume(&recording, first, options).unwrap();
            let mut tick = first;
            for one in recording.deliveries(first) {
                let (at, delivery) = one.unwrap();
                while tick < at {
                    replayed.tick(tick);
                    assert!(open(&mut replayed).is_superset(&stood), "{scenario} at {tick:?}");
                    tick = tick + PERIOD;
                }
                replayed.accept(delivery);
            }
            assert!(tick > first, "{scenario}: something was replayed");
        }
    }

    #[test]
    fn preamble_of_another_version_is_refused_with_the_next_step() {
        let newer = Preamble { version: 9, ..Preamble::default() };
        let why = remembered(&newer).unwrap_err();
        assert!(why.contains("of version 9 and this gaunt reads 1; use the gaunt that"), "{why}");
        let broken = Preamble { version: PREAMBLE_VERSION, findings: "[".into(), ..newer };
        let why = remembered(&broken).unwrap_err();
        assert_eq!(
            why,
            "its findings are not written as this gaunt writes them; use the gaunt that recorded it"
        );
    }
}
