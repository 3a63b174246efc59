//! The identity part: the node's own name and the info series of its devices. It is sent only when it changes.

use super::{
    FrameError,
    bytes::{ByteDecoder, encode_number, encode_text},
    frame_layout::{FrameLayout, UNKNOWN, find_metric},
};
use crate::{
    CowList, InfoSeries, SanitizedText,
    sanitized_text::{SharedTexts, TextInterner},
    unit::MetricKind,
};

/// The identity of a node and its devices.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct NodeIdentity {
    pub(super) node: Option<SanitizedText>,
    pub(super) infos: CowList<InfoSeries>,
}

impl NodeIdentity {
    /// Encodes the identity; devices are given by their positions on the wire.
    pub(super) fn encode_identity<'a>(
        node: Option<&str>,
        infos: impl ExactSizeIterator<Item = (&'a str, u32, Vec<(&'a str, &'a str)>)>,
    ) -> Vec<u8> {
        let mut out = vec![u8::from(node.is_some())];
        if let Some(node) = node {
            encode_text(node, &mut out);
        }
        encode_number(infos.len() as u64, &mut out);
        for (metric, device, labels) in infos {
            encode_text(metric, &mut out);
            encode_number(u64::from(device), &mut out);
            encode_number(labels.len() as u64, &mut out);
            for (name, value) in labels {
                encode_text(name, &mut out);
                encode_text(value, &mut out);
            }
        }
        out
    }

    pub(super) fn decode_identity(
        mut bytes: ByteDecoder<'_>,
        layout: &FrameLayout,
        shared_texts: &SharedTexts,
    ) -> Result<Self, FrameError> {
        let node = match bytes.decode_byte()? {
            0 => None,
            _ => Some(SanitizedText::new(&bytes.decode_text()?)),
        };
        let count = bytes.decode_count()?;
        let (mut infos, mut texts) = (Vec::new(), TextInterner::default());
        for _ in 0..count {
            let metric = find_metric(&bytes.decode_text()?, "");
            let position = bytes.decode_number_below(layout.positions.len() as u64)?;
            let device = layout.positions[position as usize];
            let mut labels = Vec::new();
            for _ in 0..bytes.decode_count()? {
                labels.push((
                    texts.intern_text(&bytes.decode_text()?),
                    texts.intern_text(&bytes.decode_text()?),
                ));
            }
            // They stay as long as the node does.
            labels.shrink_to_fit();
            let metric = metric.filter(|metric| metric.catalogue_row().kind == MetricKind::Info);
            if let Some(metric) = metric.filter(|_| device != UNKNOWN) {
                infos.push(InfoSeries { metric, device, labels: labels.into() });
            }
        }
        bytes.expect_end()?;
        infos.shrink_to_fit();
        let labels = infos.iter_mut().flat_map(|info: &mut InfoSeries| &mut info.labels);
        shared_texts.share_repeated(&texts, labels.flat_map(|(name, value)| [name, value]));
        Ok(Self { node, infos: infos.into() })
    }
}
