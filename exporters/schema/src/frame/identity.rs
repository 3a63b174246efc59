//! The identity: the node's own name, and who its devices are. It is told anew only when it changes.

use super::{
    Fault,
    bytes::{Bytes, put_number, put_text},
    layout::{Layout, UNKNOWN, metric},
};
use crate::{Info, Safe, Shared, safe::Texts, unit::Kind};

/// Who a node and its devices are.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Identity {
    pub(super) node: Option<Safe>,
    pub(super) infos: Shared<Info>,
}

impl Identity {
    /// As it goes over the wire, its devices by their positions there.
    pub(super) fn bytes<'a>(
        node: Option<&str>,
        infos: impl ExactSizeIterator<Item = (&'a str, u32, Vec<(&'a str, &'a str)>)>,
    ) -> Vec<u8> {
        let mut out = vec![u8::from(node.is_some())];
        if let Some(node) = node {
            put_text(node, &mut out);
        }
        put_number(infos.len() as u64, &mut out);
        for (metric, device, labels) in infos {
            put_text(metric, &mut out);
            put_number(u64::from(device), &mut out);
            put_number(labels.len() as u64, &mut out);
            for (name, value) in labels {
                put_text(name, &mut out);
                put_text(value, &mut out);
            }
        }
        out
    }

    pub(super) fn read(mut bytes: Bytes<'_>, layout: &Layout) -> Result<Self, Fault> {
        let node = match bytes.byte()? {
            0 => None,
            _ => Some(Safe::new(&bytes.text()?)),
        };
        let count = bytes.count()?;
        let (mut infos, mut texts) = (Vec::new(), Texts::default());
        for _ in 0..count {
            let metric = metric(&bytes.text()?, "");
            let at = bytes.number_below(layout.places.len() as u64)?;
            let device = layout.places[at as usize];
            let mut labels = Vec::new();
            for _ in 0..bytes.count()? {
                labels.push((texts.safe(&bytes.text()?), texts.safe(&bytes.text()?)));
            }
            let metric = metric.filter(|metric| metric.row().kind == Kind::Info);
            if let Some(metric) = metric.filter(|_| device != UNKNOWN) {
                infos.push(Info { metric, device, labels: labels.into() });
            }
        }
        bytes.end()?;
        Ok(Self { node, infos: infos.into() })
    }
}
