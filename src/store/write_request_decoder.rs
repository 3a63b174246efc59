//! Remote write 1.0 request, received: one pass over the body, without a copy of its texts.

use std::ops::Range;

use gaunt_schema::UnixMs;

use crate::write_request::{
    FIELD_1, FIELD_2, SAMPLE_INSTANT, SAMPLE_VALUE, STALE_MARKER, StoreSample,
};

/// The largest request before decompression, and after it: the limit of VictoriaMetrics, far above what senders use.
pub const MAX_REQUEST_BYTES: usize = 32 << 20;

/// The most samples and the most series of one request: both are in memory while it is read.
const MAX_REQUEST_ENTRIES: usize = 2_000_000;

/// The label that is the name of the metric.
const NAME_LABEL: &[u8] = b"__name__";

/// Why a request cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReceivedRequestError {
    /// The body is not compressed, or not whole.
    #[error(
        "the body is not raw snappy: {0}; send Prometheus remote write 1.0 (protobuf, compressed with snappy)"
    )]
    Snappy(String),
    /// The request is too large.
    #[error("the request has {0}, the limit is {1}; send smaller requests (max_samples_per_send)")]
    TooLarge(String, String),
    /// The body is not a request.
    #[error(
        "the body is no remote write 1.0 request: {what} at byte {at}; version 2.0 is not supported"
    )]
    Malformed {
        /// What is wrong.
        what: &'static str,
        /// Position in the decompressed body.
        at: usize,
    },
}

/// A request whose form was checked: all series and samples in the order of the body.
#[derive(Debug)]
pub struct ReceivedRequest<'a> {
    /// The series.
    pub series: Vec<ReceivedSeries<'a>>,
    samples: Vec<StoreSample>,
}

/// A series of a request.
#[derive(Clone, Debug)]
pub struct ReceivedSeries<'a> {
    /// The name of its metric; empty if it has none.
    pub name: &'a [u8],
    /// All its labels as encoded: equal bytes are the same series.
    pub label_bytes: &'a [u8],
    samples: Range<usize>,
}

/// Decompresses a body.
pub fn decompress_request(body: &[u8]) -> Result<Vec<u8>, ReceivedRequestError> {
    let snappy = |error: snap::Error| ReceivedRequestError::Snappy(error.to_string());
    let length = snap::raw::decompress_len(body).map_err(snappy)?;
    if length > MAX_REQUEST_BYTES {
        let (bytes, limit) = (format!("{length} bytes"), format!("{MAX_REQUEST_BYTES} bytes"));
        return Err(ReceivedRequestError::TooLarge(bytes, limit));
    }
    snap::raw::Decoder::new().decompress_vec(body).map_err(snappy)
}

impl<'a> ReceivedRequest<'a> {
    /// Parses a decompressed body; metadata, exemplars and histograms are left out.
    pub fn parse(body: &'a [u8]) -> Result<Self, ReceivedRequestError> {
        let mut request = Self { series: Vec::new(), samples: Vec::new() };
        let mut fields = FieldReader { body, at: 0, end: body.len() };
        while let Some(field) = fields.next_field()? {
            match field {
                WireField { tag: FIELD_1, span, .. } => request.push_series(body, span)?,
                WireField { number: 1, .. } => {
                    return Err(fields.malformed("a series of another type"));
                }
                _ => {}
            }
        }
        Ok(request)
    }

    fn push_series(
        &mut self,
        body: &'a [u8],
        span: Range<usize>,
    ) -> Result<(), ReceivedRequestError> {
        let mut fields = FieldReader { body, at: span.start, end: span.end };
        let (mut name, first_sample): (&[u8], usize) = (&[], self.samples.len());
        let mut labels_end = span.start;
        loop {
            let begins_at = fields.at;
            let Some(field) = fields.next_field()? else { break };
            match field.tag {
                FIELD_1 if begins_at != labels_end => {
                    return Err(fields.malformed("a label after a sample"));
                }
                FIELD_1 => {
                    labels_end = field.span.end;
                    let (label, value) = read_label(body, field.span)?;
                    if label == NAME_LABEL {
                        name = value;
                    }
                }
                FIELD_2 => self.samples.push(read_sample(body, field.span)?),
                _ if field.number <= 2 => {
                    return Err(fields.malformed("a label or sample of another type"));
                }
                _ => {}
            }
        }
        if self.samples.len() > MAX_REQUEST_ENTRIES || self.series.len() >= MAX_REQUEST_ENTRIES {
            let limit = MAX_REQUEST_ENTRIES.to_string();
            return Err(ReceivedRequestError::TooLarge("more series or samples".to_owned(), limit));
        }
        let label_bytes = &body[span.start..labels_end];
        self.series.push(ReceivedSeries {
            name,
            label_bytes,
            samples: first_sample..self.samples.len(),
        });
        Ok(())
    }

    /// The samples of a series: instant, and value; none for a marker that ends the series.
    pub fn samples_of(
        &self,
        series: &ReceivedSeries<'_>,
    ) -> impl ExactSizeIterator<Item = (UnixMs, Option<f64>)> {
        let samples = self.samples.get(series.samples.clone()).unwrap_or_default();
        samples.iter().map(|sample| {
            let is_marker = sample.bits == STALE_MARKER;
            (sample.at, (!is_marker).then(|| f64::from_bits(sample.bits)))
        })
    }
}

impl<'a> ReceivedSeries<'a> {
    /// Names and values of its labels, in the order of the body; those that are not UTF-8 are left out.
    pub fn labels(&self) -> impl Iterator<Item = (&'a str, &'a str)> {
        let body = self.label_bytes;
        let mut fields = FieldReader { body, at: 0, end: body.len() };
        std::iter::from_fn(move || fields.next_field().ok().flatten()).filter_map(move |field| {
            let (name, value) = read_label(body, field.span).ok()?;
            str::from_utf8(name).ok().zip(str::from_utf8(value).ok())
        })
    }
}

fn read_label(body: &[u8], span: Range<usize>) -> Result<(&[u8], &[u8]), ReceivedRequestError> {
    if let Some(label) = read_short_label(&body[span.clone()]) {
        return Ok(label);
    }
    let mut fields = FieldReader { body, at: span.start, end: span.end };
    let (mut name, mut value): (&[u8], &[u8]) = (&[], &[]);
    while let Some(field) = fields.next_field()? {
        match field.tag {
            FIELD_1 => name = &body[field.span],
            FIELD_2 => value = &body[field.span],
            _ if field.number <= 2 => return Err(fields.malformed("a label that is no text")),
            _ => {}
        }
    }
    Ok((name, value))
}

/// Reads a label in the form that all senders use: name, then value, both shorter than 128 bytes. Most of a body is such labels.
fn read_short_label(label: &[u8]) -> Option<(&[u8], &[u8])> {
    const SHORT: u8 = 0x80;
    let [FIELD_1, name_length, rest @ ..] = label else { return None };
    let (name, rest) = rest.split_at_checked(usize::from(*name_length))?;
    let [FIELD_2, value_length, value @ ..] = rest else { return None };
    let is_short = *name_length < SHORT && *value_length < SHORT;
    (is_short && value.len() == usize::from(*value_length)).then_some((name, value))
}

/// Reads a sample; fields that are zero may be absent.
fn read_sample(body: &[u8], span: Range<usize>) -> Result<StoreSample, ReceivedRequestError> {
    let mut fields = FieldReader { body, at: span.start, end: span.end };
    let mut sample = StoreSample::default();
    while let Some(field) = fields.next_field()? {
        match field.tag {
            SAMPLE_VALUE => sample.bits = field.number_value,
            SAMPLE_INSTANT => sample.at = UnixMs(field.number_value as i64),
            _ if field.number <= 2 => return Err(fields.malformed("a sample of another type")),
            _ => {}
        }
    }
    Ok(sample)
}

/// A field: its tag with type, its number, and its content.
struct WireField {
    tag: u8,
    number: u64,
    /// The content of a length-delimited field.
    span: Range<usize>,
    /// The value of a number.
    number_value: u64,
}

/// Reads the fields of one message.
struct FieldReader<'a> {
    body: &'a [u8],
    at: usize,
    end: usize,
}

impl FieldReader<'_> {
    fn malformed(&self, what: &'static str) -> ReceivedRequestError {
        ReceivedRequestError::Malformed { what, at: self.at }
    }

    fn next_field(&mut self) -> Result<Option<WireField>, ReceivedRequestError> {
        if self.at >= self.end {
            return Ok(None);
        }
        let key = self.read_varint()?;
        let (number, kind) = (key >> 3, key & 7);
        let tag = if key < 0x80 { key as u8 } else { 0 };
        let mut field = WireField { tag, number, span: self.at..self.at, number_value: 0 };
        match kind {
            0 => field.number_value = self.read_varint()?,
            1 => field.number_value = u64::from_le_bytes(self.read_bytes()?),
            2 => {
                let length = usize::try_from(self.read_varint()?).unwrap_or(usize::MAX);
                if length > self.end - self.at {
                    return Err(self.malformed("a field that is longer than the body"));
                }
                field.span = self.at..self.at + length;
                self.at += length;
            }
            5 => field.number_value = u64::from(u32::from_le_bytes(self.read_bytes()?)),
            _ => return Err(self.malformed("an unknown type of field")),
        }
        if number == 0 {
            return Err(self.malformed("a field without number"));
        }
        Ok(Some(field))
    }

    fn read_bytes<const LENGTH: usize>(&mut self) -> Result<[u8; LENGTH], ReceivedRequestError> {
        let bytes = self.body[self.at..self.end].first_chunk().copied();
        let bytes = bytes.ok_or_else(|| self.malformed("a number that is cut off"))?;
        self.at += LENGTH;
        Ok(bytes)
    }

    fn read_varint(&mut self) -> Result<u64, ReceivedRequestError> {
        // Nearly all are tags and short lengths.
        if let Some(byte) = self.body[self.at..self.end].first().filter(|byte| **byte < 0x80) {
            self.at += 1;
            return Ok(u64::from(*byte));
        }
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let [byte] = self.read_bytes()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(self.malformed("a number of more than 10 bytes"))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::write_request::{compress_request, encode_labels, push_series};

    fn encode_one(labels: &mut [(&str, &str)], samples: &[(i64, u64)]) -> Vec<u8> {
        let samples: Vec<StoreSample> =
            samples.iter().map(|(at, bits)| StoreSample { at: UnixMs(*at), bits: *bits }).collect();
        let (mut encoded, mut request) = (Vec::new(), Vec::new());
        encode_labels(labels, &mut encoded);
        push_series(&encoded, &samples, &mut request);
        request
    }

    #[test]
    fn request_of_our_own_encoder_is_read_back() {
        let mut body = encode_one(
            &mut [("__name__", "up"), ("instance", "gpu1:9400"), ("Zone", "b")],
            &[(1_700_000_000_123, 1.5_f64.to_bits()), (-1, STALE_MARKER)],
        );
        body.extend(encode_one(&mut [("job", "a")], &[]));
        let body = decompress_request(&compress_request(&body).unwrap()).unwrap();
        let request = ReceivedRequest::parse(&body).unwrap();
        let [first, second] = request.series.as_slice() else { panic!("{request:?}") };
        assert_eq!((first.name, second.name), (&b"up"[..], &b""[..]));
        let labels: Vec<_> = first.labels().collect();
        assert_eq!(labels, [("Zone", "b"), ("__name__", "up"), ("instance", "gpu1:9400")]);
        let samples: Vec<_> = request.samples_of(first).collect();
        assert_eq!(samples, [(UnixMs(1_700_000_000_123), Some(1.5)), (UnixMs(-1), None)]);
        assert_eq!(request.samples_of(second).len(), 0);
    }

    #[test]
    fn labels_of_every_length_and_order_are_read() {
        for length in [1, 127, 128, 300] {
            let text = "x".repeat(length);
            let body = encode_one(&mut [("__name__", "up"), ("a", &text), (&text, "b")], &[(5, 1)]);
            let request = ReceivedRequest::parse(&body).unwrap();
            let labels: Vec<_> = request.series[0].labels().collect();
            for label in [("a", text.as_str()), (&text, "b"), ("__name__", "up")] {
                assert!(labels.contains(&label), "{length}: {labels:?}");
            }
        }
        // The value before the name, and a field that is not known.
        let body = [0x0a, 11, 0x0a, 9, 0x12, 1, b'v', 0x0a, 1, b'n', 0x1a, 1, 9];
        let request = ReceivedRequest::parse(&body).unwrap();
        assert_eq!(request.series[0].labels().collect::<Vec<_>>(), [("n", "v")]);
    }

    #[test]
    fn zero_is_omitted_by_senders_and_other_fields_are_left_out() {
        // A series with an empty sample, an exemplar and a histogram; then metadata.
        let body = [0x0a, 8, 0x12, 0, 0x1a, 1, 9, 0x22, 1, 9, 0x1a, 2, 1, 2];
        let request = ReceivedRequest::parse(&body).unwrap();
        let samples: Vec<_> = request.samples_of(&request.series[0]).collect();
        assert_eq!(samples, [(UnixMs(0), Some(0.0))]);
        assert_eq!(request.series.len(), 1);
    }

    #[test]
    fn hostile_bodies_are_refused_with_what_is_wrong() {
        let whole = encode_one(&mut [("__name__", "up")], &[(5, 1)]);
        for cut in 1..whole.len() {
            assert!(ReceivedRequest::parse(&whole[..cut]).is_err(), "cut at {cut}");
        }
        for (body, what) in [
            (&[0x08, 1][..], "a series of another type"),
            (&[0x0a, 2, 0x08, 1], "a label or sample of another type"),
            (&[0x0a, 4, 0x0a, 2, 0x08, 1], "a label that is no text"),
            (&[0x0a, 4, 0x12, 2, 0x08, 1], "a sample of another type"),
            (&[0x0a, 4, 0x12, 0, 0x0a, 0], "a label after a sample"),
            (&[0x0b], "an unknown type"),
            (&[0x02, 0], "a field without number"),
            (
                &[0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1],
                "longer than the body",
            ),
            (&[0xff; 16], "more than 10 bytes"),
        ] {
            let error = ReceivedRequest::parse(body).unwrap_err().to_string();
            assert!(error.contains(what), "{body:?}: {error}");
        }
    }

    #[test]
    fn body_that_claims_to_be_large_is_refused_before_memory_is_taken() {
        // The header of a body of 4 GiB, and a body of 40 MiB of zeros in 2 MB.
        let error = decompress_request(&[0xff, 0xff, 0xff, 0xff, 0x0f]).unwrap_err();
        assert!(matches!(error, ReceivedRequestError::TooLarge(..)), "{error}");
        let bomb = compress_request(&vec![0; 40 << 20]).unwrap();
        assert!(
            decompress_request(&bomb).unwrap_err().to_string().contains("max_samples_per_send")
        );
        for body in [&b"go_goroutines 1\n"[..], &[], &[5], &[3, 8, 1]] {
            let error = decompress_request(body).unwrap_err();
            assert!(matches!(error, ReceivedRequestError::Snappy(_)), "{body:?}: {error}");
        }
        let many = [0x0a, 0].repeat(MAX_REQUEST_ENTRIES + 1);
        assert!(matches!(ReceivedRequest::parse(&many), Err(ReceivedRequestError::TooLarge(..))));
    }

    proptest! {
        #[test]
        fn no_body_is_read_beyond_its_end(body in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(request) = ReceivedRequest::parse(&body) {
                for series in &request.series {
                    prop_assert!(series.labels().count() + request.samples_of(series).len() <= body.len());
                }
            }
        }
    }
}
