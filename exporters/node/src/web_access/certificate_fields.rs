//! The fields of an X.509 certificate that the TLS library does not give: its subject alternative names.

use std::net::{Ipv4Addr, Ipv6Addr};

/// DER tags (X.690).
const SEQUENCE: u8 = 0x30;
const OBJECT_ID: u8 = 0x06;
const BOOLEAN: u8 = 0x01;
const OCTETS: u8 = 0x04;
const EXTENSIONS: u8 = 0xa3;

/// The object identifier of the extension subjectAltName: 2.5.29.17.
const ALTERNATIVE_NAMES: [u8; 3] = [0x55, 0x1d, 0x11];

/// The most names that are read.
const MAX_NAMES: usize = 1_000;

/// Reads elements of DER one after the other.
struct DerReader<'a>(&'a [u8]);

impl<'a> DerReader<'a> {
    /// The next element's tag and content; none at the end or if it is malformed.
    fn next_element(&mut self) -> Option<(u8, &'a [u8])> {
        let (&tag, rest) = self.0.split_first()?;
        let (&first, mut rest) = rest.split_first()?;
        let mut length = usize::from(first);
        if first >= 0x80 {
            let digits = usize::from(first & 0x7f);
            if !(1..=4).contains(&digits) {
                return None;
            }
            let (bytes, after) = rest.split_at_checked(digits)?;
            length = bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte));
            rest = after;
        }
        let (content, after) = rest.split_at_checked(length)?;
        self.0 = after;
        Some((tag, content))
    }

    /// The content of the next element, which must have this tag.
    fn expect_element(&mut self, tag: u8) -> Option<&'a [u8]> {
        self.next_element().filter(|(found, _)| *found == tag).map(|(_, content)| content)
    }
}

/// The names of a certificate: DNS names, email addresses, IP addresses and URIs, as text.
pub(super) fn read_alternative_names(certificate: &[u8]) -> Vec<String> {
    find_alternative_names(certificate).unwrap_or_default()
}

fn find_alternative_names(certificate: &[u8]) -> Option<Vec<String>> {
    let signed = DerReader(certificate).expect_element(SEQUENCE)?;
    let mut fields = DerReader(DerReader(signed).expect_element(SEQUENCE)?);
    let (_, extensions) =
        std::iter::from_fn(|| fields.next_element()).find(|(tag, _)| *tag == EXTENSIONS)?;
    let mut extensions = DerReader(DerReader(extensions).expect_element(SEQUENCE)?);
    while let Some(extension) = extensions.expect_element(SEQUENCE) {
        let mut extension = DerReader(extension);
        if extension.expect_element(OBJECT_ID)? != ALTERNATIVE_NAMES {
            continue;
        }
        let (tag, mut content) = extension.next_element()?;
        if tag == BOOLEAN {
            content = extension.expect_element(OCTETS)?;
        }
        let mut names = DerReader(DerReader(content).expect_element(SEQUENCE)?);
        let names = std::iter::from_fn(|| names.next_element()).take(MAX_NAMES);
        return Some(names.filter_map(|(tag, content)| read_name(tag, content)).collect());
    }
    None
}

/// A general name: [1] email, [2] DNS, [6] URI, [7] IP.
fn read_name(tag: u8, content: &[u8]) -> Option<String> {
    match tag {
        0x81 | 0x82 | 0x86 => str::from_utf8(content).ok().map(str::to_owned),
        0x87 => {
            let v4 = <[u8; 4]>::try_from(content).map(|bytes| Ipv4Addr::from(bytes).to_string());
            let v6 =
                || <[u8; 16]>::try_from(content).map(|bytes| Ipv6Addr::from(bytes).to_string());
            v4.or_else(|_| v6()).ok()
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, SanType};

    use super::*;

    fn make_certificate() -> Vec<u8> {
        let mut params = CertificateParams::new(vec!["gpu-1.example".to_owned()]).unwrap();
        params.subject_alt_names.extend([
            SanType::IpAddress([10, 0, 0, 1].into()),
            SanType::URI("spiffe://example/gaunt".try_into().unwrap()),
            SanType::Rfc822Name("ops@example".try_into().unwrap()),
        ]);
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec()
    }

    #[test]
    fn alternative_names_of_each_type_are_read() {
        assert_eq!(
            read_alternative_names(&make_certificate()),
            ["gpu-1.example", "10.0.0.1", "spiffe://example/gaunt", "ops@example"]
        );
    }

    #[test]
    fn truncated_certificate_has_no_names() {
        let certificate = make_certificate();
        for length in 0..certificate.len() {
            assert!(read_alternative_names(&certificate[..length]).is_empty(), "{length}");
        }
    }
}
