//! A server's own certificates: whether clients can accept them now, by what the certificates say of themselves.

use gaunt_schema::UnixMs;
use tokio_rustls::rustls::pki_types::CertificateDer;

use super::certificate_fields::{
    read_alternative_names, read_expiry, read_issuer_and_subject, read_validity,
};

/// The most names in a description.
const SHOWN_NAMES: usize = 4;

/// The certificates of a server: its own, then that of the CA that signed it, and so on.
#[derive(Clone, Debug)]
pub struct CertificateList(pub(super) Vec<CertificateDer<'static>>);

/// Why clients reject a chain, and the next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFault {
    /// What is wrong.
    pub what: String,
    /// What to do.
    pub next: &'static str,
}

impl CertificateList {
    /// When the first of them expires; none if none of them can be read.
    pub fn first_expiry(&self) -> Option<UnixMs> {
        self.0.iter().filter_map(|certificate| read_expiry(certificate)).min()
    }

    /// The names of the server and when its chain expires, as a sentence.
    pub fn describe(&self) -> String {
        let names = self.server_names();
        let further = match names.len().saturating_sub(SHOWN_NAMES) {
            0 => String::new(),
            further => format!(" and {further} more"),
        };
        let shown = names.iter().take(SHOWN_NAMES).map(String::as_str).collect::<Vec<_>>();
        let until = self
            .first_expiry()
            .map_or_else(String::new, |expiry| format!(" until {}", &expiry.to_rfc3339()[..10]));
        format!("its certificate is for {}{further}{until}", shown.join(", "))
    }

    /// What is wrong with the chain at this time: dates, order or names. Which CA clients trust, only they know.
    pub fn find_fault(&self, now: UnixMs) -> Option<CertificateFault> {
        let count = self.0.len();
        for (index, certificate) in self.0.iter().enumerate() {
            let Some((from, to)) = read_validity(certificate) else { continue };
            let place = match count {
                1 => "its certificate".to_owned(),
                _ => format!("certificate {} of {count}", index + 1),
            };
            if now > to {
                return Some(CertificateFault {
                    what: format!("{place} expired on {}", &to.to_rfc3339()[..10]),
                    next: "renew it, such as with `gaunt certs --renew`; check the clock with `timedatectl`",
                });
            }
            if now < from {
                return Some(CertificateFault {
                    what: format!("{place} is valid from {} on", from.to_rfc3339()),
                    next: "check the clock with `timedatectl`",
                });
            }
        }
        if let Some(index) = self.find_gap() {
            return Some(CertificateFault {
                what: format!("certificate {} of {count} is not signed by the next one", index + 1),
                next: "put the server's own certificate first in cert_file, after it each CA that signed the one before",
            });
        }
        self.server_names().is_empty().then(|| CertificateFault {
            what: "its certificate has no name (subjectAltName)".to_owned(),
            next: "create one with the names by which clients connect: `gaunt certs --server NAME --name ADDRESS`",
        })
    }

    /// The first certificate whose issuer is not the next one.
    fn find_gap(&self) -> Option<usize> {
        let pairs = self.0.iter().zip(self.0.iter().skip(1));
        pairs.into_iter().position(|(signed, signer)| {
            let issuer = read_issuer_and_subject(signed).map(|(issuer, _)| issuer);
            let subject = read_issuer_and_subject(signer).map(|(_, subject)| subject);
            issuer != subject
        })
    }

    fn server_names(&self) -> Vec<String> {
        self.0.first().map_or_else(Vec::new, |certificate| read_alternative_names(certificate))
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

    use super::*;

    fn now() -> UnixMs {
        UnixMs::from_date(2027, 1, 1).unwrap()
    }

    fn make_params(names: &[&str], years: (i32, i32)) -> CertificateParams {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.not_before = rcgen::date_time_ymd(years.0, 1, 1);
        params.not_after = rcgen::date_time_ymd(years.1, 1, 1);
        params
    }

    /// A server's certificate and its CA's, each valid in these years.
    fn make_chain(names: &[&str], years: (i32, i32), authority: (i32, i32)) -> CertificateList {
        let mut params = make_params(&[], authority);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "test CA");
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let mut server = make_params(names, years);
        server.distinguished_name.push(DnType::CommonName, "server");
        let server = server.signed_by(&KeyPair::generate().unwrap(), &authority).unwrap();
        CertificateList(vec![server.der().clone(), authority.der().clone()])
    }

    #[test]
    fn fault_of_a_chain_is_named_with_its_next_step() {
        let names = ["gpu001", "10.0.0.1", "a", "b", "c"];
        let good = make_chain(&names, (2026, 2028), (2020, 2030));
        assert_eq!(good.find_fault(now()), None);
        assert_eq!(
            good.describe(),
            "its certificate is for gpu001, 10.0.0.1, a, b and 1 more until 2028-01-01"
        );
        let mut swapped = good.clone();
        swapped.0.reverse();
        let foreign = make_chain(&["gpu001"], (2026, 2028), (2020, 2030));
        let alone = CertificateList(vec![good.0[0].clone()]);
        assert_eq!(alone.find_fault(now()), None, "the CA may be at the client alone");
        let expired =
            CertificateList(vec![make_chain(&["x"], (2020, 2026), (2020, 2030)).0[0].clone()]);
        for (chain, what, next) in [
            (expired, "its certificate expired on 2026-01-01", "gaunt certs --renew"),
            (
                make_chain(&["x"], (2020, 2026), (2020, 2030)),
                "certificate 1 of 2 expired on 2026-01-01",
                "gaunt certs --renew",
            ),
            (
                make_chain(&["x"], (2026, 2028), (2020, 2026)),
                "certificate 2 of 2 expired on 2026-01-01",
                "gaunt certs --renew",
            ),
            (
                make_chain(&["x"], (2028, 2030), (2020, 2030)),
                "certificate 1 of 2 is valid from 2028-01-01T00:00:00.000Z on",
                "timedatectl",
            ),
            (swapped, "certificate 1 of 2 is not signed by the next one", "certificate first"),
            (
                CertificateList(vec![good.0[0].clone(), foreign.0[0].clone()]),
                "certificate 1 of 2 is not signed by the next one",
                "each CA that signed the one before",
            ),
            (
                make_chain(&[], (2026, 2028), (2020, 2030)),
                "its certificate has no name (subjectAltName)",
                "gaunt certs --server NAME",
            ),
        ] {
            let fault = chain.find_fault(now()).unwrap();
            assert_eq!(fault.what, what);
            assert!(fault.next.contains(next), "{fault:?}");
        }
    }
}
