//! Requests: series are split into bodies of bounded size.

use gaunt_schema::UnixMs;
use snap::raw::{Encoder, max_compress_len};

use crate::write_request::{self, StoreSample};

/// Size from which a request is closed, before compression: far below the limits of receivers (VictoriaMetrics 32 MiB),
/// and after it below the usual 1 MiB of a proxy.
const MAX_REQUEST: usize = 2 << 20;

/// One compressed request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RequestBatch {
    /// The body.
    pub(crate) body: Vec<u8>,
    /// Samples in it.
    pub(crate) samples: u32,
    /// Its oldest instant.
    pub(crate) oldest: UnixMs,
    /// Its newest instant.
    pub(crate) newest: UnixMs,
}

/// Splits series into requests.
#[derive(Debug)]
pub(crate) struct RequestSplitter {
    request: Vec<u8>,
    encoder: Encoder,
    /// Room for a compressed request; a body has no more bytes than it needs.
    compressed: Vec<u8>,
    samples: u32,
    span: Option<(UnixMs, UnixMs)>,
    batches: Vec<RequestBatch>,
}

impl Default for RequestSplitter {
    fn default() -> Self {
        Self {
            request: Vec::new(),
            encoder: Encoder::new(),
            compressed: Vec::new(),
            samples: 0,
            span: None,
            batches: Vec::new(),
        }
    }
}

impl RequestSplitter {
    /// Adds a series with the fields of its samples: how many they are, and their oldest and newest instant.
    pub(crate) fn push_encoded(
        &mut self,
        labels: &[u8],
        fields: &[u8],
        samples: usize,
        (oldest, newest): (UnixMs, UnixMs),
    ) {
        write_request::push_encoded_series(labels, fields, &mut self.request);
        self.samples += samples as u32;
        let span = self.span.unwrap_or((oldest, newest));
        self.span = Some((span.0.min(oldest), span.1.max(newest)));
        if self.request.len() >= MAX_REQUEST {
            self.close_request();
        }
    }

    /// Adds a series with its samples.
    pub(crate) fn push_series(&mut self, labels: &[u8], samples: &[StoreSample]) {
        let instants = || samples.iter().map(|sample| sample.at);
        let Some(span) = instants().min().zip(instants().max()) else { return };
        let fields = write_request::encode_samples(samples);
        self.push_encoded(labels, &fields, samples.len(), span);
    }

    /// The requests.
    pub(crate) fn finish(mut self) -> Vec<RequestBatch> {
        self.close_request();
        self.batches
    }

    fn close_request(&mut self) {
        let Some((oldest, newest)) = self.span.take() else { return };
        let room = max_compress_len(self.request.len());
        if self.compressed.len() < room {
            self.compressed.resize(room, 0);
        }
        match self.encoder.compress(&self.request, &mut self.compressed) {
            Ok(length) => {
                let (body, samples) = (self.compressed[..length].to_vec(), self.samples);
                self.batches.push(RequestBatch { body, samples, oldest, newest });
            }
            // Only for requests of 4 GiB.
            Err(error) => tracing::error!(%error, "cannot compress a request to the store"),
        }
        self.request.clear();
        self.samples = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::write_request::tests::decode_body;

    #[test]
    fn requests_are_split_by_size_and_none_is_lost() {
        let mut splitter = RequestSplitter::default();
        let mut labels = Vec::new();
        write_request::encode_labels(&mut [("__name__", &"n".repeat(1_000))], &mut labels);
        let sample = StoreSample { at: UnixMs(1), bits: 0 };
        for _ in 0..5_000 {
            splitter.push_series(&labels, &[sample]);
        }
        let batches = splitter.finish();
        assert_eq!(batches.len(), 3);
        assert!(batches.iter().all(|batch| batch.body.capacity() == batch.body.len()));
        let decoded = batches.iter().map(|batch| decode_body(&batch.body).series.len());
        assert_eq!(decoded.sum::<usize>(), 5_000);
        assert_eq!(batches.iter().map(|batch| batch.samples).sum::<u32>(), 5_000);
        assert!(RequestSplitter::default().finish().is_empty());
    }
}
