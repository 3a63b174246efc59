//! Remote write 1.0 request: series and their samples in protobuf, compressed with snappy.
//!
//! Written by hand: the labels of a series are encoded once and are its key, so that a request costs a copy of them.

use gaunt_schema::UnixMs;

/// Value that ends a series: Prometheus's stale marker.
pub(crate) const STALE_MARKER: u64 = 0x7ff0_0000_0000_0002;

/// Field 1, length-delimited: series of a request, label of a series, name of a label.
pub(crate) const FIELD_1: u8 = 0x0a;

/// Field 2, length-delimited: sample of a series, value of a label.
pub(crate) const FIELD_2: u8 = 0x12;

/// Field 1 of a sample: its value as 64 bits.
pub(crate) const SAMPLE_VALUE: u8 = 0x09;

/// Field 2 of a sample: its instant as a varint.
pub(crate) const SAMPLE_INSTANT: u8 = 0x10;

/// A value at an instant.
#[derive(Clone, Copy, Debug, Default)]
pub struct StoreSample {
    /// The instant.
    pub at: UnixMs,
    /// The bits of the value: a stale marker is one particular NaN.
    pub bits: u64,
}

impl StoreSample {
    /// The marker that ends a series at this instant.
    pub fn stale_at(at: UnixMs) -> Self {
        Self { at, bits: STALE_MARKER }
    }
}

/// Encodes labels as the fields of a series, sorted by name as remote write demands; labels without value are left out.
pub fn encode_labels(labels: &mut [(&str, &str)], out: &mut Vec<u8>) {
    labels.sort_unstable_by_key(|(name, _)| *name);
    for (name, value) in labels.iter().filter(|(_, value)| !value.is_empty()) {
        let length = field_length(name.len()) + field_length(value.len());
        push_field(FIELD_1, length, out);
        push_field(FIELD_1, name.len(), out);
        out.extend_from_slice(name.as_bytes());
        push_field(FIELD_2, value.len(), out);
        out.extend_from_slice(value.as_bytes());
    }
}

/// The longest field of a sample: tag and length, tag and value, tag and instant.
pub(crate) const MAX_SAMPLE: usize = 2 + 1 + 8 + 1 + 10;

/// The field of a sample at an instant: only its value is to be filled in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SampleField {
    bytes: [u8; MAX_SAMPLE],
    length: usize,
}

impl SampleField {
    /// The field of samples at this instant.
    pub(crate) fn at_instant(at: UnixMs) -> Self {
        let mut field = Vec::with_capacity(MAX_SAMPLE);
        push_field(FIELD_2, 10 + varint_length(at.0 as u64), &mut field);
        field.push(SAMPLE_VALUE);
        field.extend_from_slice(&[0; 8]);
        field.push(SAMPLE_INSTANT);
        push_varint(at.0 as u64, &mut field);
        let length = field.len();
        field.resize(MAX_SAMPLE, 0);
        let mut bytes = [0; MAX_SAMPLE];
        bytes.copy_from_slice(&field);
        Self { bytes, length }
    }

    /// Writes the field with this value to the beginning of `out`; returns its length.
    pub(crate) fn write_value(&self, bits: u64, out: &mut [u8; MAX_SAMPLE]) -> usize {
        *out = self.bytes;
        out[3..11].copy_from_slice(&bits.to_le_bytes());
        self.length
    }
}

/// Appends a series to a request that is not compressed yet.
pub fn push_series(labels: &[u8], samples: &[StoreSample], out: &mut Vec<u8>) {
    push_encoded_series(labels, &encode_samples(samples), out);
}

/// The fields of samples.
pub(crate) fn encode_samples(samples: &[StoreSample]) -> Vec<u8> {
    let mut fields = Vec::with_capacity(samples.len() * MAX_SAMPLE);
    for sample in samples {
        let mut field = [0; MAX_SAMPLE];
        let length = SampleField::at_instant(sample.at).write_value(sample.bits, &mut field);
        fields.extend_from_slice(&field[..length]);
    }
    fields
}

/// Appends a series whose labels and samples are encoded.
pub(crate) fn push_encoded_series(labels: &[u8], samples: &[u8], out: &mut Vec<u8>) {
    push_field(FIELD_1, labels.len() + samples.len(), out);
    out.extend_from_slice(labels);
    out.extend_from_slice(samples);
}

/// Compresses a request.
pub fn compress_request(request: &[u8]) -> Result<Vec<u8>, snap::Error> {
    snap::raw::Encoder::new().compress_vec(request)
}

/// Length of a length-delimited field with its tag.
fn field_length(length: usize) -> usize {
    1 + varint_length(length as u64) + length
}

fn varint_length(value: u64) -> usize {
    (64 - (value | 1).leading_zeros() as usize).div_ceil(7)
}

fn push_field(tag: u8, length: usize, out: &mut Vec<u8>) {
    out.push(tag);
    push_varint(length as u64, out);
}

fn push_varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[cfg(test)]
pub(crate) mod tests {
    use prost::Message as _;

    use super::*;

    /// The request as prost reads it.
    #[derive(prost::Message)]
    pub(crate) struct DecodedRequest {
        #[prost(message, repeated, tag = "1")]
        pub(crate) series: Vec<DecodedSeries>,
    }

    #[derive(prost::Message)]
    pub(crate) struct DecodedSeries {
        #[prost(message, repeated, tag = "1")]
        pub(crate) labels: Vec<DecodedLabel>,
        #[prost(message, repeated, tag = "2")]
        pub(crate) samples: Vec<DecodedSample>,
    }

    #[derive(prost::Message)]
    pub(crate) struct DecodedLabel {
        #[prost(string, tag = "1")]
        pub(crate) name: String,
        #[prost(string, tag = "2")]
        pub(crate) value: String,
    }

    #[derive(prost::Message)]
    pub(crate) struct DecodedSample {
        #[prost(double, tag = "1")]
        pub(crate) value: f64,
        #[prost(int64, tag = "2")]
        pub(crate) at: i64,
    }

    /// Decodes a compressed body.
    pub(crate) fn decode_body(body: &[u8]) -> DecodedRequest {
        let request = snap::raw::Decoder::new().decompress_vec(body).unwrap();
        DecodedRequest::decode(&*request).unwrap()
    }

    #[test]
    fn request_is_read_by_prost_with_sorted_labels() {
        let long = "x".repeat(300);
        let (mut labels, mut request) = (Vec::new(), Vec::new());
        encode_labels(
            &mut [("node", "gpu1"), ("__name__", "gaunt_finding"), ("cluster", ""), ("id", &long)],
            &mut labels,
        );
        let samples = [(1_700_000_000_000, 1.5_f64.to_bits()), (i64::MAX, STALE_MARKER), (0, 0)]
            .map(|(at, bits)| StoreSample { at: UnixMs(at), bits });
        push_series(&labels, &samples, &mut request);
        push_series(&labels, &samples[..1], &mut request);
        let decoded = decode_body(&compress_request(&request).unwrap());
        let series = &decoded.series[0];
        let names: Vec<_> =
            series.labels.iter().map(|label| (&*label.name, label.value.len())).collect();
        assert_eq!(names, [("__name__", 13), ("id", 300), ("node", 4)]);
        let read: Vec<_> =
            series.samples.iter().map(|sample| (sample.at, sample.value.to_bits())).collect();
        assert_eq!(read, samples.map(|sample| (sample.at.0, sample.bits)));
        assert_eq!((decoded.series.len(), decoded.series[1].samples.len()), (2, 1));
    }

    #[test]
    fn varint_length_is_that_of_the_encoding() {
        for value in [0, 1, 127, 128, 16_383, 16_384, u64::MAX] {
            let mut out = Vec::new();
            push_varint(value, &mut out);
            assert_eq!(out.len(), varint_length(value), "{value}");
        }
    }
}
