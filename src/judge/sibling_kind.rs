//! Sibling kinds: which ports are of one kind, so that they can be expected to be alike.

use gaunt_cluster::DeviceEntry;
use gaunt_schema::{SanitizedText, catalogue::port};

/// What ports of one kind have in common: the type of their adapter, the link layer and the number of the port. Where
/// the type is unknown, the name of the device without the number at its end stands for it, so that an unknown type is
/// that of no port with a known one.
pub(super) type SiblingKind<'a> = (PortType<'a>, Option<&'a str>, &'a str);

/// The type of an adapter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum PortType<'a> {
    /// As reported.
    Known(&'a str),
    /// Unknown: the prefix of the device's name.
    Named(&'a str),
}

/// Returns the kind of a port.
pub(super) fn sibling_kind(entry: &DeviceEntry) -> SiblingKind<'_> {
    let info = |label| entry.info_label(port::INFO, label).map(SanitizedText::as_str);
    let key = |at: usize| entry.device.key.get(at).map_or("", SanitizedText::as_str);
    let prefix = || key(0).trim_end_matches(|c: char| c.is_ascii_digit());
    let adapter = info("hca_type").map_or_else(|| PortType::Named(prefix()), PortType::Known);
    (adapter, info("link_layer"), key(1))
}

/// Whether a port is known to be on Ethernet.
pub(super) fn is_ethernet(entry: &DeviceEntry) -> bool {
    entry.info_label(port::INFO, "link_layer").is_some_and(|layer| *layer == "Ethernet")
}
