//! A page becomes a report: the strict reader finds the samples, the dialects say what they mean.

use super::{
    Limits, Line, Reader, Sample,
    layout::{Layout, Mark},
    reason::Tally,
};
use crate::{
    Failure, Page, Safe,
    dialect::{Interpreter, Plan, Understood},
};

/// Reads a page in whoever's words it is. A line that cannot be taken is counted and spoils no other; a body without
/// a single sample is not a page.
pub fn decode(body: &[u8], limits: &Limits) -> Result<Page, Failure> {
    strict(body, limits, &mut Nowhere).map(|(page, _)| page)
}

/// A page, and the layout that the next one may repeat.
pub(super) struct Read {
    pub(super) page: Page,
    pub(super) layout: Option<Layout>,
}

/// Reads a page as [`decode`] does, and notes its layout.
pub(super) fn learn(body: &[u8], limits: &Limits) -> Result<Read, Failure> {
    let mut sketch = Sketch { marks: Vec::new(), refused: false };
    let (page, rest) = strict(body, limits, &mut sketch)?;
    let Rest { plan, xids } = rest;
    let understood = Understood { report: page.report.clone(), dialect: page.dialect, plan, xids };
    let layout =
        if sketch.refused { None } else { Layout::of(body, &sketch.marks, understood, limits) };
    Ok(Read { page, layout })
}

/// Who wants to know where the samples of a page stand.
trait Watch {
    /// A sample was taken.
    fn sample(&mut self, body: &[u8], sample: &Sample<'_, '_>, line: &[u8]);

    /// The reader refused a line.
    fn refused(&mut self);
}

/// Nobody.
struct Nowhere;

impl Watch for Nowhere {
    fn sample(&mut self, _: &[u8], _: &Sample<'_, '_>, _: &[u8]) {}

    fn refused(&mut self) {}
}

/// Where the samples stand, and whether a line was refused for its own sake: then the page has no layout.
struct Sketch {
    marks: Vec<Mark>,
    refused: bool,
}

impl Watch for Sketch {
    fn sample(&mut self, body: &[u8], sample: &Sample<'_, '_>, line: &[u8]) {
        let place = |part: &[u8]| part.as_ptr() as usize - body.as_ptr() as usize;
        let value = place(sample.digits.as_bytes());
        let (end, line_end) = (value + sample.digits.len(), place(line) + line.len());
        let stamp = sample.timestamp.and_then(|_| {
            let rest = body.get(end..line_end)?.strip_prefix(b" ")?;
            let blank = rest.iter().position(|byte| matches!(byte, b' ' | b'\t'));
            Some(end + 1 + blank.unwrap_or(rest.len()))
        });
        // A timestamp that stands otherwise than after one blank is not looked for again.
        self.refused |= stamp.is_some() != sample.timestamp.is_some();
        let name = place(sample.name.as_bytes()) + sample.name.len();
        self.marks.push(Mark { name, value, end, stamp, line: line_end });
    }

    fn refused(&mut self) {
        self.refused = true;
    }
}

/// Puts together a page whose lines were read by somebody else.
#[derive(Debug, Default)]
pub(super) struct Collector<'a> {
    interpreter: Interpreter<'a>,
    tally: Tally,
}

impl<'a> Collector<'a> {
    /// Takes one sample.
    pub(super) fn take(&mut self, sample: &Sample<'_, 'a>, line: u64) {
        if let Err(reason) = self.interpreter.take(sample) {
            self.tally.count(reason, line, sample.line);
        }
    }

    /// The page.
    pub(super) fn finish(self, bytes: usize) -> Page {
        let Understood { report, dialect, .. } = self.interpreter.finish();
        Page { report, dialect, bytes: bytes as u64, rejected: self.tally.finish() }
    }
}

/// What is understood of a page beside what it says.
struct Rest {
    plan: Option<Plan>,
    xids: usize,
}

fn strict(body: &[u8], limits: &Limits, watch: &mut impl Watch) -> Result<(Page, Rest), Failure> {
    if body.len() > limits.body_bytes {
        return Err(Failure::TooLarge(limits.body_bytes as u64));
    }
    let mut reader = Reader::new(body, limits);
    let mut interpreter = Interpreter::default();
    let mut tally = Tally::default();
    let mut samples = 0_u64;
    loop {
        let refused = match reader.next() {
            None => break,
            Some(Ok(Line::Sample(sample))) => {
                samples += 1;
                let taken = interpreter.take(&sample);
                watch.sample(body, &sample, sample.line);
                taken.err()
            }
            Some(Ok(_)) => None,
            Some(Err(reject)) => {
                watch.refused();
                Some(reject.reason)
            }
        };
        if let Some(reason) = refused {
            tally.count(reason, reader.line_number(), reader.line());
        }
    }
    let rejected = tally.finish();
    if samples == 0 {
        let why = match &rejected.first {
            Some(first) => Safe::new(&format!("no sample in it, {first}")),
            None => Safe::new("no sample in it"),
        };
        return Err(Failure::NotAPage(why));
    }
    let Understood { report, dialect, plan, xids } = interpreter.finish();
    Ok((Page { report, dialect, bytes: body.len() as u64, rejected }, Rest { plan, xids }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: &[u8]) -> Result<Page, Failure> {
        decode(body, &Limits::default())
    }

    #[test]
    fn a_body_without_a_sample_is_not_a_page() {
        let why = |body: &[u8]| match read(body) {
            Err(Failure::NotAPage(why)) => why.to_string(),
            other => panic!("{other:?}"),
        };
        assert_eq!(why(b""), "no sample in it");
        assert_eq!(why(b"# only a comment\n\n"), "no sample in it");
        let html = why(b"<html>\n<body>\x1b]52;c;x\x07</body>\n");
        assert_eq!(html, "no sample in it, line 1: bad_name: <html>");
        let escape = why(b"\x1b]52;c;x\x07\n");
        assert_eq!(escape, "no sample in it, line 1: bad_name: \u{fffd}]52;c;x\u{fffd}");
    }

    #[test]
    fn a_body_over_the_limit_is_not_read() {
        let limits = Limits { body_bytes: 8, ..Limits::default() };
        assert_eq!(decode(b"a 1\nb 2\n", &limits).unwrap().bytes, 8);
        assert_eq!(decode(b"a 1\nb 22\n", &limits).unwrap_err(), Failure::TooLarge(8));
    }

    #[test]
    fn half_a_page_is_taken_as_far_as_it_goes() {
        let page =
            read(b"gaunt_gpu_power_watts{gpu=\"0\"} 1\ngaunt_gpu_power_watts{gpu=\"1").unwrap();
        assert_eq!(page.report.samples.len(), 1);
        assert_eq!(page.rejected.by_reason, [("unclosed_label".into(), 1)]);
    }

    #[test]
    fn a_line_of_a_megabyte_disturbs_no_other() {
        let mut body = b"a 1\nb{c=\"".to_vec();
        body.resize(1 << 20, b'x');
        body.extend_from_slice(b"\"} 2\nd 3\n");
        let page = read(&body).unwrap();
        assert_eq!(page.rejected.by_reason, [("line_too_long".into(), 1)]);
        let shown = page.rejected.first.unwrap();
        assert!(shown.starts_with("line 2: line_too_long: b{c=\"xxx"), "{shown}");
        assert!(shown.chars().count() < 120, "{shown}");
    }

    #[test]
    fn reasons_are_counted_in_a_fixed_order() {
        let page = read(b"z 1\n9 1\nz 2\n8 1\ny x\n").unwrap();
        let counts = page.rejected.by_reason.iter().map(|(reason, n)| (reason.as_str(), *n));
        let expected = [("bad_name", 2), ("bad_value", 1), ("duplicate_series", 1)];
        assert_eq!(counts.collect::<Vec<_>>(), expected);
        assert_eq!(page.rejected.first.unwrap().as_str(), "line 2: bad_name: 9 1");
    }
}
