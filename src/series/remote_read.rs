//! Remote read: raw samples of a span as a stream of compressed chunks.
//!
//! Source: Prometheus' `prompb/remote.proto` and `storage/remote/chunked.go`: each frame is its length as a varint, a CRC-32C
//! of its data in four bytes, and a `ChunkedReadResponse`. VictoriaMetrics and Thanos' query do not answer it.

use std::borrow::Cow;

use gaunt_schema::UnixMs;
use prost::Message;

#[cfg(test)]
use crate::xor_chunk::encode_xor_chunk;
use crate::{
    query_answer::{AnswerText, AnsweredLabels, AnsweredMatrix, AnsweredSeries},
    selector::{Matcher, MatcherKind, literal_pattern},
    xor_chunk::decode_xor_chunk,
};

/// The content type of a stream of chunks.
pub(crate) const STREAMED: &str = "application/x-streamed-protobuf";

/// The encoding of chunks of numbers.
const XOR: i32 = 1;

/// The largest frame; a Prometheus writes 1 MiB unless it is told otherwise.
pub(crate) const MAX_FRAME: usize = 16 << 20;

/// `ReadRequest`.
#[derive(Clone, PartialEq, Message)]
struct ReadRequest {
    #[prost(message, repeated, tag = "1")]
    queries: Vec<ReadQuery>,
    /// 1: streamed chunks.
    #[prost(int32, repeated, tag = "2")]
    accepted_response_types: Vec<i32>,
}

/// `Query`; the span includes both ends.
#[derive(Clone, PartialEq, Message)]
struct ReadQuery {
    #[prost(int64, tag = "1")]
    start_ms: i64,
    #[prost(int64, tag = "2")]
    end_ms: i64,
    #[prost(message, repeated, tag = "3")]
    matchers: Vec<ReadMatcher>,
}

/// `LabelMatcher`.
#[derive(Clone, PartialEq, Message)]
struct ReadMatcher {
    /// 0 `=`, 1 `!=`, 2 `=~`, 3 `!~`.
    #[prost(int32, tag = "1")]
    kind: i32,
    #[prost(string, tag = "2")]
    name: String,
    #[prost(string, tag = "3")]
    value: String,
}

/// `ChunkedReadResponse`.
#[derive(Clone, PartialEq, Message)]
struct ChunkedResponse {
    #[prost(message, repeated, tag = "1")]
    series: Vec<ChunkedSeries>,
}

/// `ChunkedSeries`. A series with many chunks comes in several.
#[derive(Clone, PartialEq, Message)]
struct ChunkedSeries {
    #[prost(message, repeated, tag = "1")]
    labels: Vec<ReadLabel>,
    #[prost(message, repeated, tag = "2")]
    chunks: Vec<ReadChunk>,
}

/// `Label`.
#[derive(Clone, PartialEq, Message)]
struct ReadLabel {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    value: String,
}

/// `Chunk`.
#[derive(Clone, PartialEq, Message)]
struct ReadChunk {
    #[prost(int32, tag = "3")]
    encoding: i32,
    #[prost(bytes = "vec", tag = "4")]
    data: Vec<u8>,
}

/// Which series are read, and of which span.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadSelection<'a> {
    /// The names of the metrics.
    pub(crate) names: &'a [&'a str],
    /// The instances of their targets; all if empty.
    pub(crate) instances: &'a [&'a str],
    /// The operator's matchers.
    pub(crate) matchers: &'a [Matcher],
    /// The samples are later than this,
    pub(crate) from: UnixMs,
    /// and not later than this.
    pub(crate) until: UnixMs,
}

/// The body of a request, not compressed yet.
pub(crate) fn encode_read_request(selection: &ReadSelection<'_>) -> Vec<u8> {
    let like = |name: &str, values: &[&str]| ReadMatcher {
        kind: 2,
        name: name.to_owned(),
        value: literal_pattern(values),
    };
    let mut matchers = vec![like("__name__", selection.names)];
    if !selection.instances.is_empty() {
        matchers.push(like("instance", selection.instances));
    }
    matchers.extend(selection.matchers.iter().map(|(name, kind, value)| ReadMatcher {
        kind: match kind {
            MatcherKind::Equal => 0,
            MatcherKind::NotEqual => 1,
            MatcherKind::Like => 2,
            MatcherKind::NotLike => 3,
        },
        name: name.clone(),
        value: value.clone(),
    }));
    let (start_ms, end_ms) = (selection.from.0.saturating_add(1), selection.until.0);
    let query = ReadQuery { start_ms, end_ms, matchers };
    ReadRequest { queries: vec![query], accepted_response_types: vec![1] }.encode_to_vec()
}

/// Takes the first whole frame out of what has arrived: its data; none if it is not whole yet.
pub(crate) fn take_frame(
    arrived: &mut Vec<u8>,
    limit: usize,
) -> Result<Option<Vec<u8>>, &'static str> {
    let mut length = 0_usize;
    let mut head = None;
    for (index, byte) in arrived.iter().take(5).enumerate() {
        length |= usize::from(byte & 0x7f) << (7 * index);
        if *byte < 0x80 {
            head = Some(index + 1);
            break;
        }
    }
    let Some(head) = head else {
        return if arrived.len() >= 5 { Err("a frame without a length") } else { Ok(None) };
    };
    if length > limit {
        return Err("a frame is larger than the limit");
    }
    let Some(data) = arrived.get(head + 4..head + 4 + length) else { return Ok(None) };
    let checksum: Vec<u8> = arrived[head..head + 4].to_vec();
    if checksum != crc32c(data).to_be_bytes() {
        return Err("the checksum of a frame is wrong");
    }
    let data = data.to_vec();
    arrived.drain(..head + 4 + length);
    Ok(Some(data))
}

/// Why a frame is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameError {
    /// It has another form.
    Malformed(&'static str),
    /// It has more samples than the budget: a byte of a chunk can hold four.
    OverBudget,
}

/// Decodes the data of a frame, and calls `add` with its series; returns the number of samples within the span. No more than
/// `budget` are decoded.
pub(crate) fn decode_frame(
    data: &[u8],
    selection: &ReadSelection<'_>,
    budget: u64,
    add: &mut dyn FnMut(&AnsweredMatrix<'_>),
) -> Result<u64, FrameError> {
    let response = ChunkedResponse::decode(data).map_err(|_| FrameError::Malformed(NO_RESPONSE))?;
    let mut result = Vec::with_capacity(response.series.len());
    let mut samples = 0;
    for series in &response.series {
        let mut values = Vec::new();
        for chunk in series.chunks.iter().filter(|chunk| chunk.encoding == XOR) {
            let decoded =
                decode_xor_chunk(&chunk.data).ok_or(FrameError::Malformed("a chunk is damaged"))?;
            // A chunk is sent whole.
            let within = |(at, _): &(i64, f64)| *at > selection.from.0 && *at <= selection.until.0;
            let texts = decoded
                .into_iter()
                .filter(within)
                .map(|(at, value)| (at as f64 / 1e3, AnswerText(Cow::Owned(render_value(value)))));
            let before = values.len();
            values.extend(texts);
            samples += (values.len() - before) as u64;
            if samples > budget {
                return Err(FrameError::OverBudget);
            }
        }
        let borrow = |label: &'_ ReadLabel| (label.name.clone().into(), label.value.clone().into());
        let labels = series.labels.iter().map(borrow).collect();
        result.push(AnsweredSeries { metric: AnsweredLabels(labels), values });
    }
    add(&AnsweredMatrix { result_type: AnswerText::default(), result });
    Ok(samples)
}

const NO_RESPONSE: &str = "a frame is no ChunkedReadResponse";

/// The text of a value as on a page.
fn render_value(value: f64) -> String {
    if value.is_infinite() {
        return if value > 0.0 { "+Inf".to_owned() } else { "-Inf".to_owned() };
    }
    if value.abs() < 1e17 { value.to_string() } else { format!("{value:e}") }
}

/// CRC-32 with Castagnoli's polynomial, reflected: that of iSCSI.
fn crc32c(data: &[u8]) -> u32 {
    const TABLE: [u32; 256] = {
        let mut table = [0; 256];
        let mut index = 0;
        while index < 256 {
            let (mut value, mut bit) = (index as u32, 0);
            while bit < 8 {
                value = if value & 1 == 1 { (value >> 1) ^ 0x82f6_3b78 } else { value >> 1 };
                bit += 1;
            }
            table[index] = value;
            index += 1;
        }
        table
    };
    let step = |crc: u32, byte: &u8| (crc >> 8) ^ TABLE[((crc as u8) ^ byte) as usize];
    !data.iter().fold(!0, step)
}

/// Labels and samples of a series.
#[cfg(test)]
type FrameSeries<'a> = (&'a [(&'a str, &'a str)], &'a [(i64, f64)]);

/// A frame with these series, as a Prometheus sends it.
#[cfg(test)]
pub(crate) fn encode_frame(series: &[FrameSeries<'_>]) -> Vec<u8> {
    let label = |(name, value): &(&str, &str)| ReadLabel {
        name: (*name).to_owned(),
        value: (*value).to_owned(),
    };
    let chunked = |(labels, samples): &FrameSeries<'_>| ChunkedSeries {
        labels: labels.iter().map(label).collect(),
        chunks: vec![ReadChunk { encoding: XOR, data: encode_xor_chunk(samples) }],
    };
    let data = ChunkedResponse { series: series.iter().map(chunked).collect() }.encode_to_vec();
    let mut frame = Vec::new();
    prost::encoding::encode_varint(data.len() as u64, &mut frame);
    frame.extend(crc32c(&data).to_be_bytes());
    frame.extend(data);
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_is_written_as_on_a_page() {
        let texts = [97.0, 0.1, -3.5, 4e18, f64::INFINITY, f64::NEG_INFINITY].map(render_value);
        assert_eq!(texts, ["97", "0.1", "-3.5", "4e18", "+Inf", "-Inf"]);
    }

    #[test]
    fn frames_are_taken_whole_and_checked() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283, "the check value of the standard");
        let data = vec![7_u8; 300];
        let mut frame = vec![0xac, 0x02];
        frame.extend(crc32c(&data).to_be_bytes());
        frame.extend(&data);
        for end in 0..frame.len() {
            let mut arrived = frame[..end].to_vec();
            assert_eq!(take_frame(&mut arrived, 1_000), Ok(None), "{end}");
            assert_eq!(arrived.len(), end);
        }
        let mut arrived = [frame.clone(), frame.clone()].concat();
        for _ in 0..2 {
            assert_eq!(take_frame(&mut arrived, 1_000), Ok(Some(data.clone())));
        }
        assert_eq!(take_frame(&mut arrived, 1_000), Ok(None));
        take_frame(&mut frame.clone(), 299).unwrap_err();
        take_frame(&mut vec![0xff; 9], 299).unwrap_err();
        frame[9] ^= 1;
        assert_eq!(take_frame(&mut frame, 1_000), Err("the checksum of a frame is wrong"));
    }
}
