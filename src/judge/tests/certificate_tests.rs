//! Tests of certificates that expire, in virtual time.

use gaunt_schema::{
    CertificateLine, Device, Dialect, FindingKind, Report, Severity, UnixMs, catalogue::host,
};

use super::telemetry_tests::TargetFixture;

const DAY: i64 = 86_400;

fn page_with_expiry(expiry: Option<i64>) -> Report {
    let mut report = Report { node: Some("a".into()), ..Report::default() };
    let node = report.ensure_device(Device::new_node());
    report.push(node, host::LOAD, 1.0);
    if let Some(expiry) = expiry {
        report.push(node, host::CERTIFICATE_EXPIRY, expiry as f64);
    }
    report
}

/// Severity, entity and summary of the finding, if it is open.
fn open_finding(fixture: &TargetFixture) -> Option<(Severity, String, String)> {
    let open = fixture.judge.open_findings();
    let found = open.iter().find(|finding| finding.kind == FindingKind::CertificateExpiring)?;
    Some((found.severity, found.entity.to_string(), found.summary.clone()))
}

#[test]
fn certificate_of_an_exporter_is_a_finding_14_days_before_it_expires() {
    let mut fixture = TargetFixture::new(&[("a:9770", Dialect::Gaunt)]);
    fixture.run(30, |_, _| page_with_expiry(Some(20 * DAY)));
    assert_eq!(open_finding(&fixture), None);
    fixture.run(30, |_, _| page_with_expiry(Some(13 * DAY)));
    let (severity, entity, summary) = open_finding(&fixture).unwrap();
    assert_eq!((severity, entity.as_str()), (Severity::Warning, "a"));
    assert!(summary.contains("expires in"), "{summary}");
    fixture.run(30, |_, _| page_with_expiry(Some(2)));
    let (_, _, summary) = open_finding(&fixture).unwrap();
    assert!(summary.contains("expired"), "{summary}");
    // Renewed, or TLS is off.
    fixture.run(60, |_, _| page_with_expiry(Some(365 * DAY)));
    assert_eq!(open_finding(&fixture), None);
    fixture.run(30, |_, _| page_with_expiry(None));
    assert_eq!(open_finding(&fixture), None, "absent is not expired");
}

#[test]
fn own_certificates_are_one_finding_about_gaunt() {
    let mut fixture = TargetFixture::new(&[("a:9770", Dialect::Gaunt)]);
    let line = |file: &str, days: i64| CertificateLine {
        file: file.into(),
        expiry: UnixMs(days * DAY * 1_000),
    };
    fixture.cluster.set_own_certificates(vec![line("web.yml", 10), line("client.pem", 3)]);
    fixture.run(30, |_, _| page_with_expiry(None));
    let (severity, entity, summary) = open_finding(&fixture).unwrap();
    assert_eq!((severity, entity.as_str()), (Severity::Warning, "aggregator"));
    assert!(summary.starts_with("gaunt's certificate client.pem expires in"), "{summary}");
    fixture.cluster.set_own_certificates(vec![line("web.yml", 300)]);
    fixture.run(60, |_, _| page_with_expiry(None));
    assert_eq!(open_finding(&fixture), None);
}
