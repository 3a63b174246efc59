//! Round trips: a written report reads back equal, for any label values.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{PageLimits, decode_page, write_text};
use crate::{
    AbsenceReason, Device, DeviceClass, Dialect, InfoSeries, MetricId, Reading, Report,
    SanitizedText, UnixMs,
    catalogue::{CATALOGUE, host},
    unit::{CounterWidth, MetricKind},
};

/// A report keyed by device names instead of positions: order is not part of its content.
pub(crate) type ReportContent = (
    Option<UnixMs>,
    Option<SanitizedText>,
    BTreeMap<(MetricId, Device), String>,
    Vec<(MetricId, Device, Vec<(SanitizedText, SanitizedText)>)>,
);

pub(crate) fn report_content(report: &Report) -> ReportContent {
    let device = |index: u32| report.devices[index as usize].clone();
    let samples = report.samples.iter();
    let samples = samples
        .map(|sample| ((sample.metric, device(sample.device)), format!("{:?}", sample.reading)));
    let infos =
        report.infos.iter().map(|info| (info.metric, device(info.device), info.labels.to_vec()));
    let mut infos: Vec<_> = infos.collect();
    infos.sort();
    (report.node_time, report.node.clone(), samples.collect(), infos)
}

/// Any sanitized text that is not empty: an empty label is no label.
fn any_text() -> impl Strategy<Value = SanitizedText> {
    prop_oneof![any::<String>(), "[a-z\\\\\"\n,={} #é]{1,12}"]
        .prop_filter("empty", |text| !text.is_empty())
        .prop_map(|text| SanitizedText::new(&text))
}

fn any_reading(kind: MetricKind) -> impl Strategy<Value = Reading> {
    let value = any::<f64>().prop_filter("finite", |value| value.is_finite());
    let absent = (0..AbsenceReason::ALL.len()).prop_map(|index| AbsenceReason::ALL[index].into());
    prop_oneof![3 => value.prop_map(Reading::of), 1 => absent].prop_filter(
        "stands still",
        move |reading| match kind {
            MetricKind::Counter(width @ CounterWidth::Saturating(_)) => {
                reading.value() != width.max_value()
            }
            _ => true,
        },
    )
}

/// A line of a report, with the device's key.
fn any_line() -> impl Strategy<Value = (MetricId, Vec<SanitizedText>, Reading, Vec<SanitizedText>)>
{
    let readable = |index: &usize| CATALOGUE[*index].class != DeviceClass::Fleet;
    (0..CATALOGUE.len()).prop_filter("fleet", readable).prop_flat_map(|index| {
        let row = &CATALOGUE[index];
        let key = prop::collection::vec(any_text(), row.class.key_label_names().len());
        let labels = prop::collection::vec(any_text(), row.labels.len());
        (Just(MetricId(index as u16)), key, any_reading(row.kind), labels)
    })
}

pub(crate) fn any_report() -> impl Strategy<Value = Report> {
    let lines = prop::collection::vec(any_line(), 0..40);
    (lines, any_text(), prop::option::of(0_i64..4_000_000_000_000)).prop_map(
        |(lines, node, time)| {
            let mut report = Report { node_time: time.map(UnixMs), ..Report::default() };
            let node_device = report.ensure_device(Device::new_node());
            report.node = Some(node.clone());
            let node_label = vec![("node".into(), node)].into();
            report.infos.push(InfoSeries {
                metric: host::NODE_INFO,
                device: node_device,
                labels: node_label,
            });
            for (metric, key, reading, labels) in lines {
                let row = metric.catalogue_row();
                let device = Device { class: row.class, key: key.into() };
                if row.kind == MetricKind::Info {
                    let labels = row
                        .labels
                        .iter()
                        .map(|name| SanitizedText::new(name))
                        .zip(labels)
                        .collect();
                    let device = report.ensure_device(device);
                    if !report
                        .infos
                        .iter()
                        .any(|info| info.metric == metric && info.device == device)
                    {
                        report.infos.push(InfoSeries { metric, device, labels });
                    }
                } else if report.find_reading(&device, metric).is_none()
                    && (metric != host::NODE_TIME || reading.value().is_none() && time.is_none())
                {
                    let device = report.ensure_device(device);
                    report.push(device, metric, reading);
                }
            }
            report
        },
    )
}

proptest! {
    #[test]
    fn page_round_trips_to_its_report(report in any_report()) {
        let mut page = String::new();
        write_text(&report, &mut page);
        let read = decode_page(page.as_bytes(), &PageLimits::default()).unwrap();
        prop_assert_eq!(&read.rejected, &crate::RejectionCounts::default(), "{}", page);
        prop_assert_eq!(report_content(&read.report), report_content(&report), "{}", page);
        prop_assert_eq!(read.dialect, Dialect::Gaunt);

        let mut rewritten = String::new();
        write_text(&read.report, &mut rewritten);
        let reread = decode_page(rewritten.as_bytes(), &PageLimits::default()).unwrap();
        prop_assert_eq!(report_content(&reread.report), report_content(&report), "{}", rewritten);
    }

    #[test]
    fn bad_line_affects_only_itself(
        report in any_report(),
        bad_lines in prop::collection::vec((any::<prop::sample::Index>(), prop::collection::vec(any::<u8>(), 0..30)), 1..8),
    ) {
        let mut page = String::new();
        write_text(&report, &mut page);
        let mut lines: Vec<Vec<u8>> = page.lines().map(|line| line.as_bytes().to_vec()).collect();
        for (index, noise) in &bad_lines {
            // No name begins so, whatever follows.
            let noise = noise.iter().copied().filter(|byte| *byte != b'\n');
            let line = std::iter::once(b'!').chain(noise).collect();
            lines.insert(index.index(lines.len() + 1), line);
        }
        let read = decode_page(&lines.join(&b'\n'), &PageLimits::default()).unwrap();
        prop_assert_eq!(read.rejected.total_count(), bad_lines.len() as u64);
        prop_assert_eq!(report_content(&read.report), report_content(&report));
    }

    #[test]
    fn changed_bytes_of_real_page_never_panic(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..200),
    ) {
        let page = include_bytes!("../../../../tests/fixtures/scrapes/node_infiniband.prom");
        let mut page = page.to_vec();
        for (index, byte) in changes {
            let offset = index.index(page.len());
            page[offset] = byte;
        }
        let read = decode_page(&page, &PageLimits::default()).unwrap();
        prop_assert!(read.report.samples.len() <= 200 * 2 + 34);
    }

    #[test]
    fn arbitrary_bytes_never_panic(body in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = decode_page(&body, &PageLimits::default());
    }

    #[test]
    fn bytes_of_the_format_never_panic(body in "([a-z#{}=\",\\\\ \t\r\n0-9.+eé-]|gaunt_absent|node_cpu_seconds_total|# TYPE |# HELP ){0,60}") {
        let _ = decode_page(body.as_bytes(), &PageLimits::default());
    }
}
