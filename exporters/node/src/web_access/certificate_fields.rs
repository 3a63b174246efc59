//! The fields of an X.509 certificate that the TLS library does not give: its subject alternative names and its expiry.

use std::net::{Ipv4Addr, Ipv6Addr};

use gaunt_schema::UnixMs;

/// DER tags (X.690).
const SEQUENCE: u8 = 0x30;
const OBJECT_ID: u8 = 0x06;
const BOOLEAN: u8 = 0x01;
const OCTETS: u8 = 0x04;
const EXTENSIONS: u8 = 0xa3;
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

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

/// When a certificate expires (`notAfter`); none if it is malformed.
pub(super) fn read_expiry(certificate: &[u8]) -> Option<UnixMs> {
    read_validity(certificate).map(|(_, to)| to)
}

/// From when to when a certificate is valid (`notBefore`, `notAfter`); none if it is malformed.
pub(super) fn read_validity(certificate: &[u8]) -> Option<(UnixMs, UnixMs)> {
    let (_, mut fields) = read_issuer(certificate)?;
    let mut validity = DerReader(fields.expect_element(SEQUENCE)?);
    let mut next_time = || validity.next_element().and_then(|(tag, text)| read_time(tag, text));
    Some((next_time()?, next_time()?))
}

/// The names of the CA that signed a certificate and of its owner, in DER; none if it is malformed.
pub(super) fn read_issuer_and_subject(certificate: &[u8]) -> Option<(&[u8], &[u8])> {
    let (issuer, mut fields) = read_issuer(certificate)?;
    fields.expect_element(SEQUENCE)?;
    Some((issuer, fields.expect_element(SEQUENCE)?))
}

/// The issuer of a certificate, and the fields after it.
fn read_issuer(certificate: &[u8]) -> Option<(&[u8], DerReader<'_>)> {
    let signed = DerReader(certificate).expect_element(SEQUENCE)?;
    let mut fields = DerReader(DerReader(signed).expect_element(SEQUENCE)?);
    // The version is optional; then follow serial number and signature algorithm.
    let (first, _) = fields.next_element()?;
    let skipped = if first == VERSION { 2 } else { 1 };
    for _ in 0..skipped {
        fields.next_element()?;
    }
    Some((fields.expect_element(SEQUENCE)?, fields))
}

/// A time in UTC: two digits of the year mean 1950 to 2049 (RFC 5280, 4.1.2.5.1). Years before 1970 are its beginning, and those
/// after 2200, such as 9999 for no expiry, are 2200.
fn read_time(tag: u8, text: &[u8]) -> Option<UnixMs> {
    let digits = str::from_utf8(text).ok()?.strip_suffix('Z')?;
    if !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let (year, rest) = match (tag, digits.len()) {
        (UTC_TIME, 12) => {
            let year: i64 = digits[..2].parse().ok()?;
            (if year < 50 { 2_000 + year } else { 1_900 + year }, &digits[2..])
        }
        (GENERALIZED_TIME, 14) => (digits[..4].parse().ok()?, &digits[4..]),
        _ => return None,
    };
    let year = if year < 1970 { return Some(UnixMs(0)) } else { year.min(2200) };
    let part = |index: usize| rest[2 * index..2 * index + 2].parse::<i64>().ok();
    let day = UnixMs::from_date(year, part(0)?, part(1)?)?;
    Some(UnixMs(day.0 + ((part(2)? * 60 + part(3)?) * 60 + part(4)?) * 1_000))
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
    fn truncated_certificate_has_neither_names_nor_expiry() {
        let certificate = make_certificate();
        for length in 0..certificate.len() {
            assert!(read_alternative_names(&certificate[..length]).is_empty(), "{length}");
            assert_eq!(read_expiry(&certificate[..length]), None, "{length}");
        }
    }

    #[test]
    fn expiry_is_read_in_both_formats() {
        for (year, expected) in [
            (2026, "2026-12-09T00:00:00.000Z"),
            (2049, "2049-12-09T00:00:00.000Z"),
            (2050, "2050-12-09T00:00:00.000Z"),
            (9999, "2200-12-09T00:00:00.000Z"),
            (1960, "1970-01-01T00:00:00.000Z"),
        ] {
            let mut params = CertificateParams::new(Vec::new()).unwrap();
            params.not_after = rcgen::date_time_ymd(year, 12, 9);
            let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
            assert_eq!(read_expiry(certificate.der()).unwrap().to_rfc3339(), expected);
        }
        for text in ["261209000000", "26120900000aZ", "2612090000Z", "261409000000Z", ""] {
            assert_eq!(read_time(UTC_TIME, text.as_bytes()), None, "{text}");
        }
    }
}
