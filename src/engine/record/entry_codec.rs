//! Entry codec: encodes and decodes one entry of a block, a delivery with its time.

use std::sync::Arc;

use gaunt_schema::{
    Batch, Delivery, Dialect, JobList, RecordingPreamble, RejectionCounts, SanitizedText,
    ScrapeFailure, ScrapeTarget, ScrapedPage, SourceTopology, TargetId, TargetSource, UnixMs, text,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// Kind, length of the head, length of the body.
const PREFIX: usize = 9;

const TARGETS: u8 = 1;
const PAGE: u8 = 2;
const FAILURE: u8 = 3;
const TOPOLOGY: u8 = 4;
const JOBS: u8 = 5;
const SOURCES: u8 = 6;
const PREAMBLE: u8 = 7;
/// The history points of the preamble before it.
const PAST: u8 = 8;

/// Fields of a page that are not in its text.
#[derive(Debug, Serialize, Deserialize)]
struct PageHead {
    at: UnixMs,
    target: TargetId,
    duration_ms: f64,
    dialect: Dialect,
    bytes: u64,
    #[serde(default, skip_serializing_if = "is_clean")]
    rejected: RejectionCounts,
    node: Option<SanitizedText>,
    node_time: Option<UnixMs>,
}

fn is_clean(rejected: &RejectionCounts) -> bool {
    *rejected == RejectionCounts::default()
}

#[derive(Debug, Serialize, Deserialize)]
struct FailureHead {
    at: UnixMs,
    target: TargetId,
    duration_ms: f64,
    failure: ScrapeFailure,
}

/// Fields of a preamble beside its two texts, which are its body.
#[derive(Debug, Serialize, Deserialize)]
struct PreambleHead {
    at: UnixMs,
    version: u32,
    #[serde(default)]
    since: Option<UnixMs>,
    /// Bytes of the first text.
    findings: usize,
}

/// Fields beside the history points, which are its body: a separate entry, so that readers can skip it.
#[derive(Debug, Serialize, Deserialize)]
struct PastHead {
    at: UnixMs,
}

#[derive(Debug, Serialize, Deserialize)]
struct TimedEntry<T> {
    at: UnixMs,
    told: T,
}

/// Appends a delivery that arrived at `at`.
pub(super) fn encode_delivery(delivery: &Delivery, at: UnixMs, out: &mut Vec<u8>) {
    match delivery {
        Delivery::Targets(targets) => {
            encode_entry(TARGETS, &TimedEntry { at, told: targets }, &[], out);
        }
        Delivery::Sources(sources) => {
            encode_entry(SOURCES, &TimedEntry { at, told: sources }, &[], out);
        }
        Delivery::Topology(topology) => {
            encode_entry(TOPOLOGY, &TimedEntry { at, told: topology }, &[], out);
        }
        Delivery::Jobs(jobs) => encode_entry(JOBS, &TimedEntry { at, told: jobs }, &[], out),
        Delivery::Preamble(preamble) => {
            let RecordingPreamble { version, since, findings, usual, past } = preamble;
            let (version, since) = (*version, *since);
            let head = PreambleHead { at, version, since, findings: findings.len() };
            encode_entry(PREAMBLE, &head, [findings.as_ref(), usual].concat().as_bytes(), out);
            if !past.is_empty() {
                encode_entry(PAST, &PastHead { at }, past, out);
            }
        }
        // The status of this recording and of files is not part of what is recorded.
        Delivery::RecordingStatus(_) | Delivery::SiteFiles(_) => {}
        Delivery::Batch(batch) => {
            let Batch { target, at, duration_ms, .. } = *batch;
            match &batch.outcome {
                Ok(page) => {
                    let mut body = String::new();
                    text::write_text(&page.report, &mut body);
                    let head = PageHead {
                        at,
                        target,
                        duration_ms,
                        dialect: page.dialect,
                        bytes: page.bytes,
                        rejected: page.rejected.clone(),
                        node: page.report.node.clone(),
                        node_time: page.report.node_time,
                    };
                    encode_entry(PAGE, &head, body.as_bytes(), out);
                }
                Err(failure) => {
                    let failure = failure.clone();
                    encode_entry(
                        FAILURE,
                        &FailureHead { at, target, duration_ms, failure },
                        &[],
                        out,
                    );
                }
            }
        }
    }
}

fn encode_entry(kind: u8, head: &impl Serialize, body: &[u8], out: &mut Vec<u8>) {
    let head = serde_json::to_vec(head).expect("plain structs become JSON");
    out.push(kind);
    out.extend_from_slice(&(head.len() as u32).to_le_bytes());
    out.extend_from_slice(&(body.len() as u32).to_le_bytes());
    out.extend_from_slice(&head);
    out.extend_from_slice(body);
}

/// The last preamble at or before `until` in a payload, or else the first; pages are skipped.
pub(super) fn find_preamble(
    mut payload: &[u8],
    until: UnixMs,
) -> Option<(UnixMs, RecordingPreamble)> {
    let mut found: Option<(UnixMs, RecordingPreamble)> = None;
    while let Some((kind, head, body)) = split_entry(&mut payload) {
        if kind != PREAMBLE {
            continue;
        }
        let read = decode_delivery(kind, head, body, &text::PageLimits::default());
        if let Some((at, Delivery::Preamble(preamble))) = read
            && (at <= until || found.is_none())
        {
            found = Some((at, with_past(preamble, &mut payload)));
        }
    }
    found
}

/// A preamble with the history points that follow it, if any.
fn with_past(preamble: RecordingPreamble, payload: &mut &[u8]) -> RecordingPreamble {
    let mut rest = *payload;
    match split_entry(&mut rest) {
        Some((PAST, _, past)) => {
            *payload = rest;
            RecordingPreamble { past: past.into(), ..preamble }
        }
        _ => preamble,
    }
}

/// Splits the first entry off a payload, into kind, head and body.
fn split_entry<'a>(payload: &mut &'a [u8]) -> Option<(u8, &'a [u8], &'a [u8])> {
    let prefix = payload.get(..PREFIX)?;
    let length =
        |at: usize| Some(u32::from_le_bytes(prefix.get(at..at + 4)?.try_into().ok()?) as usize);
    let (head, body) = (length(1)?, length(5)?);
    let end = PREFIX.checked_add(head)?.checked_add(body)?;
    let (kind, entry) = (prefix[0], payload.get(PREFIX..end)?);
    *payload = &payload[end..];
    let (head, body) = entry.split_at(head);
    Some((kind, head, body))
}

/// Decodes the first standing delivery of a payload, which stays valid until another one replaces it, and advances.
pub(super) fn decode_standing(payload: &mut &[u8]) -> Option<(UnixMs, Delivery)> {
    loop {
        let (kind, head, body) = split_entry(payload)?;
        if matches!(kind, TARGETS | SOURCES | TOPOLOGY | JOBS) {
            return decode_delivery(kind, head, body, &text::PageLimits::default());
        }
    }
}

/// Decodes the first entry of a payload and advances. Kinds written by a newer gaunt are skipped; none at the end, or
/// if the payload is not a list of entries.
pub(super) fn decode_entry(
    payload: &mut &[u8],
    limits: &text::PageLimits,
) -> Option<(UnixMs, Delivery)> {
    loop {
        let (kind, head, body) = split_entry(payload)?;
        if (TARGETS..=PREAMBLE).contains(&kind) {
            return Some(match decode_delivery(kind, head, body, limits)? {
                (at, Delivery::Preamble(preamble)) => {
                    (at, Delivery::Preamble(with_past(preamble, payload)))
                }
                other => other,
            });
        }
    }
}

fn decode_delivery(
    kind: u8,
    head: &[u8],
    body: &[u8],
    limits: &text::PageLimits,
) -> Option<(UnixMs, Delivery)> {
    fn decode_timed<T: DeserializeOwned>(head: &[u8]) -> Option<(UnixMs, T)> {
        let TimedEntry { at, told: content } = serde_json::from_slice(head).ok()?;
        Some((at, content))
    }
    Some(match kind {
        TARGETS => decode_timed::<Vec<ScrapeTarget>>(head)
            .map(|(at, content)| (at, Delivery::Targets(content)))?,
        SOURCES => decode_timed::<Vec<TargetSource>>(head)
            .map(|(at, content)| (at, Delivery::Sources(content)))?,
        TOPOLOGY => decode_timed::<SourceTopology>(head)
            .map(|(at, content)| (at, Delivery::Topology(content)))?,
        JOBS => decode_timed::<JobList>(head).map(|(at, content)| (at, Delivery::Jobs(content)))?,
        PAGE => {
            let head: PageHead = serde_json::from_slice(head).ok()?;
            let outcome = decode_page(&head, body, limits);
            let PageHead { at, target, duration_ms, .. } = head;
            (at, Delivery::Batch(Batch { target, at, duration_ms, outcome }))
        }
        PREAMBLE => {
            let PreambleHead { at, version, since, findings } =
                serde_json::from_slice(head).ok()?;
            let (findings, usual) = std::str::from_utf8(body).ok()?.split_at_checked(findings)?;
            let (findings, usual) = (findings.into(), usual.into());
            let past = Arc::default();
            (at, Delivery::Preamble(RecordingPreamble { version, since, findings, usual, past }))
        }
        _ => {
            let FailureHead { at, target, duration_ms, failure } =
                serde_json::from_slice(head).ok()?;
            (at, Delivery::Batch(Batch { target, at, duration_ms, outcome: Err(failure) }))
        }
    })
}

/// Decodes a page: in gaunt's own format, or as its head specifies. A page without samples in an unknown format has no
/// text.
fn decode_page(
    head: &PageHead,
    body: &[u8],
    limits: &text::PageLimits,
) -> Result<ScrapedPage, ScrapeFailure> {
    let mut page = if body.is_empty() {
        let report = gaunt_schema::Report::default();
        ScrapedPage {
            report,
            dialect: head.dialect,
            bytes: 0,
            rejected: RejectionCounts::default(),
        }
    } else {
        text::decode_page(body, limits)?
    };
    page.report.node.clone_from(&head.node);
    page.report.node_time = head.node_time;
    page.dialect = head.dialect;
    page.bytes = head.bytes;
    page.rejected.clone_from(&head.rejected);
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: UnixMs = UnixMs(1_760_017_311_000);

    fn all_entries(payload: &[u8]) -> Vec<(UnixMs, Delivery)> {
        let mut rest = payload;
        let limits = text::PageLimits::default();
        std::iter::from_fn(|| decode_entry(&mut rest, &limits)).collect()
    }

    /// Without compression, so that Miri runs it.
    #[test]
    fn entries_are_read_back_and_a_payload_that_is_cut_off_gives_those_before_the_cut() {
        let target = TargetId(3);
        let page = b"# TYPE gaunt_gpu_power_watts gauge\ngaunt_gpu_power_watts{gpu=\"0\"} 400\n";
        let outcomes = [
            Err(ScrapeFailure::Status(503)),
            text::decode_page(page, &text::PageLimits::default()),
        ];
        let batches = outcomes
            .map(|outcome| Delivery::Batch(Batch { target, at: AT, duration_ms: 1.5, outcome }));
        let preamble = RecordingPreamble {
            version: 1,
            since: Some(AT),
            findings: "{\"open\":[]}".into(),
            usual: "{}".into(),
            past: [1, 2, 3].as_slice().into(),
        };
        let [failed, read] = batches;
        let given = [failed, Delivery::Preamble(preamble.clone()), read];
        let (mut payload, mut ends) = (Vec::new(), vec![0]);
        for delivery in &given {
            encode_delivery(delivery, AT, &mut payload);
            ends.push(payload.len());
        }
        let told = |entries: &[(UnixMs, Delivery)]| format!("{entries:?}");
        let whole = given.map(|delivery| (AT, delivery));
        assert_eq!(told(&all_entries(&payload)), told(&whole));
        assert_eq!(find_preamble(&payload, AT), Some((AT, preamble)));
        for cut in (0..payload.len()).step_by(7) {
            let before = ends.iter().filter(|end| **end <= cut).count() - 1;
            let read = all_entries(&payload[..cut]);
            // A preamble whose history is cut off is read without it.
            assert!((before..=before + 1).contains(&read.len()), "{cut}: {}", read.len());
        }
    }
}
