//! A page becomes a report: the strict reader finds the samples, the dialects say what they mean.

use super::{Limits, Line, Reader, reason::Tally};
use crate::{Failure, Page, Safe, dialect::Interpreter};

/// Reads a page in whoever's words it is. A line that cannot be taken is counted and spoils no other; a body without
/// a single sample is not a page.
pub fn decode(body: &[u8], limits: &Limits) -> Result<Page, Failure> {
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
                interpreter.take(&sample).err()
            }
            Some(Ok(_)) => None,
            Some(Err(reject)) => Some(reject.reason),
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
    let (report, dialect) = interpreter.finish();
    Ok(Page { report, dialect, bytes: body.len() as u64, rejected })
}
