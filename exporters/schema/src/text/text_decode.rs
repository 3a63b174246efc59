//! Decodes a page to a report: the strict reader finds the samples, the dialects define their meaning.

use super::{
    PageLimits, PageLine, TextReader, TextSample,
    busiest_cpu::PageInSequence,
    page_template::{PageTemplate, SamplePosition},
    reject_reason::RejectionTally,
};
use crate::{
    FieldCounts, SanitizedText, ScrapeFailure, ScrapedPage,
    dialect::{DecodePlan, DecodedPage, PageDecoder},
};

/// Decodes a page in any dialect. A malformed line is counted and does not affect others; a body without a single
/// sample is not a page.
pub fn decode_page(body: &[u8], limits: &PageLimits) -> Result<ScrapedPage, ScrapeFailure> {
    decode_in_sequence(body, limits).map(|one| one.page)
}

/// Decodes a page, with what is compared with the page before it.
pub(super) fn decode_in_sequence(
    body: &[u8],
    limits: &PageLimits,
) -> Result<PageInSequence, ScrapeFailure> {
    let (page, LearnedPlan { cpu_idle, .. }) = decode_strictly(body, limits, &mut NoPositions)?;
    Ok(PageInSequence { page, cpu_idle })
}

/// A page, and the template that the next one may match.
pub(super) struct LearnedPage {
    pub(super) page: PageInSequence,
    pub(super) layout: Option<PageTemplate>,
}

/// Decodes a page as [`decode_page`] does, and records its template.
pub(super) fn learn_template(
    body: &[u8],
    limits: &PageLimits,
) -> Result<LearnedPage, ScrapeFailure> {
    let mut recorder = PositionRecorder { positions: Vec::new(), refused: false };
    let (page, rest) = decode_strictly(body, limits, &mut recorder)?;
    let LearnedPlan { plan, xids, cpu_idle } = rest;
    let (report, dialect) = (page.report.clone(), page.dialect);
    let fields = page.rejected.fields.clone();
    let understood = DecodedPage { report, dialect, fields, plan, xids, cpu_idle: Vec::new() };
    let layout = if recorder.refused {
        None
    } else {
        PageTemplate::of(body, &recorder.positions, understood, limits)
    };
    Ok(LearnedPage { page: PageInSequence { page, cpu_idle }, layout })
}

/// Receives the positions of the samples of a page.
trait PositionSink {
    /// A sample was accepted.
    fn record_sample(&mut self, body: &[u8], sample: &TextSample<'_, '_>, line: &[u8]);

    /// The reader rejected a line.
    fn record_refusal(&mut self);
}

/// Ignores all positions.
struct NoPositions;

impl PositionSink for NoPositions {
    fn record_sample(&mut self, _: &[u8], _: &TextSample<'_, '_>, _: &[u8]) {}

    fn record_refusal(&mut self) {}
}

/// The positions of the samples, and whether the reader itself rejected a line: then the page has no template.
struct PositionRecorder {
    positions: Vec<SamplePosition>,
    refused: bool,
}

impl PositionSink for PositionRecorder {
    fn record_sample(&mut self, body: &[u8], sample: &TextSample<'_, '_>, line: &[u8]) {
        let offset_in_body = |part: &[u8]| part.as_ptr() as usize - body.as_ptr() as usize;
        let value = offset_in_body(sample.digits.as_bytes());
        let (end, line_end) = (value + sample.digits.len(), offset_in_body(line) + line.len());
        let stamp = sample.timestamp.and_then(|_| {
            let rest = body.get(end..line_end)?.strip_prefix(b" ")?;
            let blank = rest.iter().position(|byte| matches!(byte, b' ' | b'\t'));
            Some(end + 1 + blank.unwrap_or(rest.len()))
        });
        // A timestamp that does not follow exactly one blank is not supported by templates.
        self.refused |= stamp.is_some() != sample.timestamp.is_some();
        let name = offset_in_body(sample.name.as_bytes()) + sample.name.len();
        self.positions.push(SamplePosition { name, value, end, stamp, line: line_end });
    }

    fn record_refusal(&mut self) {
        self.refused = true;
    }
}

/// Builds a page from lines that another parser reads, under the names of their exporter.
#[derive(Debug)]
pub(super) struct PageBuilder<'a> {
    interpreter: PageDecoder<'a>,
    tally: RejectionTally,
}

impl Default for PageBuilder<'_> {
    fn default() -> Self {
        Self { interpreter: PageDecoder::of_exact_names(), tally: RejectionTally::default() }
    }
}

impl<'a> PageBuilder<'a> {
    /// Adds one sample.
    pub(super) fn add_sample(&mut self, sample: &TextSample<'_, 'a>, line: u64) {
        if let Err(reason) = self.interpreter.decode_sample(sample) {
            self.tally.count_line(reason, line, sample.line);
        }
    }

    /// The page.
    pub(super) fn into_page(self, bytes: usize) -> PageInSequence {
        let DecodedPage { report, dialect, fields, cpu_idle, .. } =
            self.interpreter.into_decoded_page();
        let (bytes, rejected) = (bytes as u64, self.tally.into_counts(fields));
        PageInSequence { page: ScrapedPage { report, dialect, bytes, rejected }, cpu_idle }
    }
}

/// What is learned of a page in addition to its content.
struct LearnedPlan {
    plan: Option<DecodePlan>,
    xids: usize,
    cpu_idle: Vec<f64>,
}

fn decode_strictly(
    body: &[u8],
    limits: &PageLimits,
    position_sink: &mut impl PositionSink,
) -> Result<(ScrapedPage, LearnedPlan), ScrapeFailure> {
    if body.len() > limits.body_bytes {
        return Err(ScrapeFailure::TooLarge(limits.body_bytes as u64));
    }
    let mut interpreter = PageDecoder::default();
    let (mut samples, mut tally) = read_samples(body, limits, &mut interpreter, position_sink);
    let ambiguous = interpreter.take_ambiguous_names();
    if !ambiguous.is_empty() {
        interpreter = PageDecoder::of_page_with(ambiguous);
        (samples, tally) = read_samples(body, limits, &mut interpreter, &mut NoPositions);
    }
    if samples == 0 {
        let why = match &tally.into_counts(FieldCounts::default()).first {
            Some(first) => SanitizedText::new(&format!("no samples, {first}")),
            None => SanitizedText::new("no samples"),
        };
        return Err(ScrapeFailure::NotAPage(why));
    }
    let DecodedPage { report, dialect, fields, plan, xids, cpu_idle } =
        interpreter.into_decoded_page();
    let rejected = tally.into_counts(fields);
    Ok((
        ScrapedPage { report, dialect, bytes: body.len() as u64, rejected },
        LearnedPlan { plan, xids, cpu_idle },
    ))
}

/// Decodes all samples of a page: their number, and the lines that are rejected.
fn read_samples<'a>(
    body: &'a [u8],
    limits: &PageLimits,
    interpreter: &mut PageDecoder<'a>,
    position_sink: &mut impl PositionSink,
) -> (u64, RejectionTally) {
    let mut reader = TextReader::new(body, limits);
    let mut tally = RejectionTally::default();
    let mut samples = 0_u64;
    loop {
        let refused = match reader.next() {
            None => return (samples, tally),
            Some(Ok(PageLine::Sample(sample))) => {
                samples += 1;
                let result = interpreter.decode_sample(&sample);
                position_sink.record_sample(body, &sample, sample.line);
                result.err()
            }
            Some(Ok(_)) => None,
            Some(Err(reject)) => {
                position_sink.record_refusal();
                Some(reject.reason)
            }
        };
        if let Some(reason) = refused {
            tally.count_line(reason, reader.line_number(), reader.current_line());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode_body(body: &[u8]) -> Result<ScrapedPage, ScrapeFailure> {
        decode_page(body, &PageLimits::default())
    }

    #[test]
    fn body_without_sample_is_not_a_page() {
        let why = |body: &[u8]| match decode_body(body) {
            Err(ScrapeFailure::NotAPage(why)) => why.to_string(),
            other => panic!("{other:?}"),
        };
        assert_eq!(why(b""), "no samples");
        assert_eq!(why(b"# only a comment\n\n"), "no samples");
        let html = why(b"<html>\n<body>\x1b]52;c;x\x07</body>\n");
        assert_eq!(html, "no samples, line 1: bad_name: <html>");
        let escape = why(b"\x1b]52;c;x\x07\n");
        assert_eq!(escape, "no samples, line 1: bad_name: \u{fffd}]52;c;x\u{fffd}");
    }

    #[test]
    fn body_over_limit_is_not_read() {
        let limits = PageLimits { body_bytes: 8, ..PageLimits::default() };
        assert_eq!(decode_page(b"a 1\nb 2\n", &limits).unwrap().bytes, 8);
        assert_eq!(decode_page(b"a 1\nb 22\n", &limits).unwrap_err(), ScrapeFailure::TooLarge(8));
    }

    #[test]
    fn truncated_page_is_read_up_to_its_end() {
        let page =
            decode_body(b"gaunt_gpu_power_watts{gpu=\"0\"} 1\ngaunt_gpu_power_watts{gpu=\"1")
                .unwrap();
        assert_eq!(page.report.samples.len(), 1);
        assert_eq!(page.rejected.by_reason, [("unclosed_label".into(), 1)]);
    }

    #[test]
    fn megabyte_line_affects_only_itself() {
        let mut body = b"a 1\nb{c=\"".to_vec();
        body.resize(1 << 20, b'x');
        body.extend_from_slice(b"\"} 2\nd 3\n");
        let page = decode_body(&body).unwrap();
        assert_eq!(page.rejected.by_reason, [("line_too_long".into(), 1)]);
        let first_rejected = page.rejected.first.unwrap();
        assert!(first_rejected.starts_with("line 2: line_too_long: b{c=\"xxx"), "{first_rejected}");
        assert!(first_rejected.chars().count() < 120, "{first_rejected}");
    }

    #[test]
    fn reject_reasons_are_counted_in_fixed_order() {
        let page = decode_body(b"z 1\n9 1\nz 2\n8 1\ny x\n").unwrap();
        let counts =
            page.rejected.by_reason.iter().map(|(reason, count)| (reason.as_str(), *count));
        let expected = [("bad_name", 2), ("bad_value", 1), ("duplicate_series", 1)];
        assert_eq!(counts.collect::<Vec<_>>(), expected);
        assert_eq!(page.rejected.first.unwrap().as_str(), "line 2: bad_name: 9 1");
    }
}
