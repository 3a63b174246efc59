//! Decoders of a body: identity, gzip, zstd; each decodes piece by piece into a given buffer.

use std::fmt;

use flate2::{Decompress, FlushDecompress, Status};
use gaunt_schema::{SanitizedText, ScrapeFailure};
use hyper::header::HeaderValue;
use zstd::stream::raw::{DParameter, Decoder, InBuffer, Operation as _, OutBuffer};

/// Maximum window size of DEFLATE, in bits.
const WINDOW_BITS: u8 = 15;

/// Maximum window size of zstd, in bits: 8 MiB, which every encoder uses at most by default. A sender may ask for 512
/// MB.
const ZSTD_WINDOW_BITS: u32 = 23;

/// The content encoding of a body.
pub(super) enum ContentDecoder {
    /// Not encoded.
    Identity,
    /// RFC 1952, one member or several.
    Gzip(DecoderStream<Decompress>),
    /// RFC 8878, one frame or several.
    Zstd(DecoderStream<Decoder<'static>>),
}

/// A decoder and its state.
pub(super) struct DecoderStream<D> {
    decoder: Box<D>,
    /// Whether a member or frame has ended and no other has begun.
    done: bool,
    /// Whether the last step filled its output buffer: there may be more output without further input.
    held_back: bool,
}

impl<D> DecoderStream<D> {
    fn new(decoder: D) -> Self {
        Self { decoder: Box::new(decoder), done: false, held_back: false }
    }
}

impl fmt::Debug for ContentDecoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Identity => "Identity",
            Self::Gzip(_) => "Gzip",
            Self::Zstd(_) => "Zstd",
        })
    }
}

impl ContentDecoder {
    /// The decoder for a header.
    pub(super) fn of(header: Option<&HeaderValue>) -> Result<Self, ScrapeFailure> {
        let name =
            header.map(|value| String::from_utf8_lossy(value.as_bytes()).to_ascii_lowercase());
        match name.as_deref().map(str::trim) {
            None | Some("" | "identity") => Ok(Self::Identity),
            Some("gzip" | "x-gzip") => {
                Ok(Self::Gzip(DecoderStream::new(Decompress::new_gzip(WINDOW_BITS))))
            }
            Some("zstd") => {
                new_zstd_decoder().map(|decoder| Self::Zstd(DecoderStream::new(decoder)))
            }
            Some(other) => {
                let why = format!("it is encoded as {other}, which was not requested");
                Err(ScrapeFailure::NotAPage(SanitizedText::new(&why)))
            }
        }
    }

    /// Decodes from `input` into `output`; returns how much was read and written.
    pub(super) fn decode_step(
        &mut self,
        input: &[u8],
        output: &mut [u8],
    ) -> Result<(usize, usize), ScrapeFailure> {
        match self {
            Self::Identity => {
                let length = input.len().min(output.len());
                output[..length].copy_from_slice(&input[..length]);
                Ok((length, length))
            }
            Self::Gzip(stream) => stream.decode_gzip(input, output),
            Self::Zstd(stream) => stream.decode_zstd(input, output),
        }
    }

    /// Whether there may be output that did not fit.
    pub(super) fn has_pending_output(&self) -> bool {
        match self {
            Self::Identity => false,
            Self::Gzip(stream) => stream.held_back,
            Self::Zstd(stream) => stream.held_back,
        }
    }

    /// Whether the body may end here.
    pub(super) fn is_done(&self) -> bool {
        match self {
            Self::Identity => true,
            Self::Gzip(stream) => stream.done,
            Self::Zstd(stream) => stream.done,
        }
    }
}

impl DecoderStream<Decompress> {
    fn decode_gzip(
        &mut self,
        input: &[u8],
        output: &mut [u8],
    ) -> Result<(usize, usize), ScrapeFailure> {
        if self.done && !input.is_empty() {
            *self = Self::new(Decompress::new_gzip(WINDOW_BITS));
        }
        let (before_in, before_out) = (self.decoder.total_in(), self.decoder.total_out());
        let status = self.decoder.decompress(input, output, FlushDecompress::None);
        let status = status.map_err(|error| undecodable("gzip", &error))?;
        let read = (self.decoder.total_in() - before_in) as usize;
        let written = (self.decoder.total_out() - before_out) as usize;
        self.done = status == Status::StreamEnd;
        self.held_back = !self.done && written == output.len();
        if read == 0 && written == 0 && !input.is_empty() && !output.is_empty() && !self.done {
            return Err(decode_failure("gzip", "the decoder makes no progress"));
        }
        Ok((read, written))
    }
}

impl DecoderStream<Decoder<'static>> {
    fn decode_zstd(
        &mut self,
        input: &[u8],
        output: &mut [u8],
    ) -> Result<(usize, usize), ScrapeFailure> {
        let (mut input_buffer, mut output_buffer) =
            (InBuffer::around(input), OutBuffer::around(output));
        let next_size = self
            .decoder
            .run(&mut input_buffer, &mut output_buffer)
            .map_err(|error| undecodable("zstd", &error))?;
        let (read, written) = (input_buffer.pos(), output_buffer.pos());
        if read > 0 || written > 0 {
            self.done = next_size == 0;
        }
        self.held_back = !self.done && written == output.len();
        if read == 0 && written == 0 && !input.is_empty() && !output.is_empty() {
            return Err(decode_failure("zstd", "the decoder makes no progress"));
        }
        Ok((read, written))
    }
}

fn new_zstd_decoder() -> Result<Decoder<'static>, ScrapeFailure> {
    let mut decoder = Decoder::new().map_err(|error| undecodable("zstd", &error))?;
    decoder
        .set_parameter(DParameter::WindowLogMax(ZSTD_WINDOW_BITS))
        .map_err(|error| undecodable("zstd", &error))?;
    Ok(decoder)
}

fn undecodable(coding: &str, error: &dyn fmt::Display) -> ScrapeFailure {
    tracing::debug!(coding, %error, "cannot decode a page");
    decode_failure(coding, "it is damaged, or its compression parameters are not allowed")
}

fn decode_failure(coding: &str, why: &str) -> ScrapeFailure {
    ScrapeFailure::NotAPage(SanitizedText::new(&format!("invalid {coding}: {why}")))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use proptest::prelude::*;

    use super::*;

    pub(super) fn gzip_bytes(plain: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::new(6));
        encoder.write_all(plain).unwrap();
        encoder.finish().unwrap()
    }

    fn decoder_named(name: &'static str) -> ContentDecoder {
        ContentDecoder::of(Some(&HeaderValue::from_static(name))).unwrap()
    }

    fn encode_as(name: &str, plain: &[u8]) -> Vec<u8> {
        match name {
            "gzip" => gzip_bytes(plain),
            "zstd" => zstd::encode_all(plain, 3).unwrap(),
            _ => plain.to_vec(),
        }
    }

    /// Decodes pieces of so many bytes into buffers of so many bytes.
    fn decode_in_pieces(
        decoder: &mut ContentDecoder,
        encoded: &[u8],
        piece: usize,
        output_size: usize,
    ) -> Result<Vec<u8>, ScrapeFailure> {
        let mut plain = Vec::new();
        for mut input in encoded.chunks(piece.max(1)) {
            let mut buffer = vec![0; output_size.max(1)];
            loop {
                let (read, written) = decoder.decode_step(input, &mut buffer)?;
                plain.extend_from_slice(&buffer[..written]);
                input = &input[read..];
                if input.is_empty() && !decoder.has_pending_output() {
                    break;
                }
            }
        }
        Ok(plain)
    }

    proptest! {
        #[test]
        fn encoded_body_is_decoded_in_pieces_of_any_size(
            plain in prop::collection::vec(0_u8..4, 0..5_000),
            piece in 1_usize..400,
            output_size in 1_usize..400,
            name in prop::sample::select(vec!["identity", "gzip", "zstd"]),
        ) {
            let mut decoder = decoder_named(name);
            let encoded = encode_as(name, &plain);
            prop_assert_eq!(
                decode_in_pieces(&mut decoder, &encoded, piece, output_size).unwrap(),
                plain
            );
            prop_assert!(decoder.is_done());
        }

        #[test]
        fn decoding_ends_for_any_input(
            encoded in prop::collection::vec(any::<u8>(), 0..300),
            name in prop::sample::select(vec!["gzip", "zstd"]),
        ) {
            // It may fail or be truncated; it must end.
            drop(decode_in_pieces(&mut decoder_named(name), &encoded, 7, 16));
        }
    }

    #[test]
    fn several_members_are_one_body_and_half_of_one_is_incomplete() {
        for name in ["gzip", "zstd"] {
            let two_members = [encode_as(name, b"a 1\n"), encode_as(name, b"b 2\n")].concat();
            let mut decoder = decoder_named(name);
            assert_eq!(decode_in_pieces(&mut decoder, &two_members, 5, 3).unwrap(), b"a 1\nb 2\n");
            assert!(decoder.is_done());
            let mut decoder = decoder_named(name);
            drop(decode_in_pieces(
                &mut decoder,
                &two_members[..two_members.len() - 3],
                1_000,
                1_000,
            ));
            assert!(!decoder.is_done(), "{name}");
        }
    }

    #[test]
    fn window_of_half_a_gigabyte_is_refused() {
        // A frame header that asks for 2^29 bytes: magic number, descriptor, window of exponent 19.
        let frame = [0x28, 0xb5, 0x2f, 0xfd, 0x00, 19 << 3, 0x01, 0x00, 0x00];
        let failure = decode_in_pieces(&mut decoder_named("zstd"), &frame, 100, 100).unwrap_err();
        assert!(failure.to_string().contains("invalid zstd: "), "{failure}");
    }

    #[test]
    fn unsupported_encoding_is_named_in_the_error() {
        let failure =
            ContentDecoder::of(Some(&HeaderValue::from_static("br"))).unwrap_err().to_string();
        assert_eq!(failure, "not an exposition page: it is encoded as br, which was not requested");
        assert!(matches!(decoder_named("GZIP"), ContentDecoder::Gzip(_)));
    }
}
