//! Any page in a foreign exporter's format. The report refers only to its own devices, has no duplicates,
//! and survives encoding and decoding unchanged.

use std::collections::HashSet;

use gaunt_schema::{
    MetricId, Reading, Report,
    text::{PageLimits, decode_page, write_text},
};

type ReportFact = (MetricId, Vec<String>, Result<u64, gaunt_schema::AbsenceReason>);

fn collect_facts(report: &Report) -> HashSet<ReportFact> {
    let fact = |sample: &gaunt_schema::MetricSample| {
        let device = &report.devices[sample.device as usize];
        assert_eq!(device.key.len(), device.class.key_label_names().len(), "{device:?}");
        assert_eq!(device.class, sample.metric.catalogue_row().class);
        let value = match sample.reading {
            Reading::Value(value) => Ok(value.to_bits()),
            Reading::Absent { absent } => Err(absent),
        };
        (sample.metric, device.key.iter().map(|key| key.as_str().to_owned()).collect(), value)
    };
    report.samples.iter().map(fact).collect()
}

/// The input is the page.
pub fn check_input(body: &[u8]) {
    let Ok(page) = decode_page(body, &PageLimits::default()) else { return };
    let report = page.report;
    let mut series = HashSet::new();
    for sample in &report.samples {
        assert!(series.insert((sample.metric, sample.device)), "{}", sample.metric.series_key());
    }
    for info in &report.infos {
        assert!((info.device as usize) < report.devices.len());
    }
    let mut devices = HashSet::new();
    assert!(report.devices.iter().all(|device| devices.insert(device)), "a device is listed twice");
    // Written in gaunt's format the page has the same content. A device without a name cannot be written as text.
    if report.devices.iter().any(|device| device.key.iter().any(|key| key.is_empty())) {
        return;
    }
    let facts = collect_facts(&report);
    let mut text = String::new();
    write_text(&report, &mut text);
    let again = decode_page(text.as_bytes(), &PageLimits::default())
        .map(|page| collect_facts(&page.report));
    if !facts.is_empty() {
        assert_eq!(again.expect("our own page"), facts);
    }
}
