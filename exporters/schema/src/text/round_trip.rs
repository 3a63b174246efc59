//! What is written reads back as the same report, whatever the labels hold.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{Limits, decode, write};
use crate::{
    Absent, Class, Device, Dialect, Info, MetricId, Reading, Report, Safe, UnixMs,
    catalogue::{CATALOGUE, host},
    unit::{Kind, Width},
};

/// A report with its devices named instead of numbered: order is not part of what it says.
pub(crate) type Said = (
    Option<UnixMs>,
    Option<Safe>,
    BTreeMap<(MetricId, Device), String>,
    Vec<(MetricId, Device, Vec<(Safe, Safe)>)>,
);

pub(crate) fn said(report: &Report) -> Said {
    let device = |at: u32| report.devices[at as usize].clone();
    let samples = report.samples.iter();
    let samples = samples.map(|s| ((s.metric, device(s.device)), format!("{:?}", s.reading)));
    let infos = report.infos.iter().map(|i| (i.metric, device(i.device), i.labels.to_vec()));
    let mut infos: Vec<_> = infos.collect();
    infos.sort();
    (report.node_time, report.node.clone(), samples.collect(), infos)
}

/// Any text, made safe, that is not empty: an empty label is no label.
fn text() -> impl Strategy<Value = Safe> {
    prop_oneof![any::<String>(), "[a-z\\\\\"\n,={} #é]{1,12}"]
        .prop_filter("empty", |text| !text.is_empty())
        .prop_map(|text| Safe::new(&text))
}

fn reading(kind: Kind) -> impl Strategy<Value = Reading> {
    let value = any::<f64>().prop_filter("finite", |value| value.is_finite());
    let absent = (0..Absent::ALL.len()).prop_map(|at| Absent::ALL[at].into());
    prop_oneof![3 => value.prop_map(Reading::of), 1 => absent].prop_filter(
        "stands still",
        move |r| match kind {
            Kind::Counter(width @ Width::Saturating(_)) => r.value() != width.max(),
            _ => true,
        },
    )
}

/// A line of a report, with the device's key.
fn line() -> impl Strategy<Value = (MetricId, Vec<Safe>, Reading, Vec<Safe>)> {
    let readable = |at: &usize| CATALOGUE[*at].class != Class::Fleet;
    (0..CATALOGUE.len()).prop_filter("fleet", readable).prop_flat_map(|at| {
        let row = &CATALOGUE[at];
        let key = prop::collection::vec(text(), row.class.labels().len());
        let labels = prop::collection::vec(text(), row.labels.len());
        (Just(MetricId(at as u16)), key, reading(row.kind), labels)
    })
}

pub(crate) fn report() -> impl Strategy<Value = Report> {
    let lines = prop::collection::vec(line(), 0..40);
    (lines, text(), prop::option::of(0_i64..4_000_000_000_000)).prop_map(|(lines, node, time)| {
        let mut report = Report { node_time: time.map(UnixMs), ..Report::default() };
        let home = report.device(Device::node());
        report.node = Some(node.clone());
        let own = vec![("node".into(), node)].into();
        report.infos.push(Info { metric: host::NODE_INFO, device: home, labels: own });
        for (metric, key, reading, labels) in lines {
            let row = metric.row();
            let device = Device { class: row.class, key: key.into() };
            if row.kind == Kind::Info {
                let labels = row.labels.iter().map(|name| Safe::new(name)).zip(labels).collect();
                let device = report.device(device);
                if !report.infos.iter().any(|i| i.metric == metric && i.device == device) {
                    report.infos.push(Info { metric, device, labels });
                }
            } else if report.reading(&device, metric).is_none()
                && (metric != host::NODE_TIME || reading.value().is_none() && time.is_none())
            {
                let device = report.device(device);
                report.push(device, metric, reading);
            }
        }
        report
    })
}

proptest! {
    #[test]
    fn a_page_reads_back_as_its_report(report in report()) {
        let mut page = String::new();
        write(&report, &mut page);
        let read = decode(page.as_bytes(), &Limits::default()).unwrap();
        prop_assert_eq!(&read.rejected, &crate::Rejected::default(), "{}", page);
        prop_assert_eq!(said(&read.report), said(&report), "{}", page);
        prop_assert_eq!(read.dialect, Dialect::Gaunt);

        let mut again = String::new();
        write(&read.report, &mut again);
        let reread = decode(again.as_bytes(), &Limits::default()).unwrap();
        prop_assert_eq!(said(&reread.report), said(&report), "{}", again);
    }

    #[test]
    fn a_bad_line_spoils_no_other(
        report in report(),
        bad in prop::collection::vec((any::<prop::sample::Index>(), prop::collection::vec(any::<u8>(), 0..30)), 1..8),
    ) {
        let mut page = String::new();
        write(&report, &mut page);
        let mut lines: Vec<Vec<u8>> = page.lines().map(|line| line.as_bytes().to_vec()).collect();
        for (place, noise) in &bad {
            // No name begins so, whatever follows.
            let noise = noise.iter().copied().filter(|byte| *byte != b'\n');
            let line = std::iter::once(b'!').chain(noise).collect();
            lines.insert(place.index(lines.len() + 1), line);
        }
        let read = decode(&lines.join(&b'\n'), &Limits::default()).unwrap();
        prop_assert_eq!(read.rejected.total(), bad.len() as u64);
        prop_assert_eq!(said(&read.report), said(&report));
    }

    #[test]
    fn a_real_page_with_any_bytes_changed_never_panics(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..200),
    ) {
        let page = include_bytes!("../../../../tests/fixtures/scrapes/node_infiniband.prom");
        let mut page = page.to_vec();
        for (place, byte) in changes {
            let at = place.index(page.len());
            page[at] = byte;
        }
        let read = decode(&page, &Limits::default()).unwrap();
        prop_assert!(read.report.samples.len() <= 200 * 2 + 34);
    }

    #[test]
    fn arbitrary_bytes_never_panic(body in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = decode(&body, &Limits::default());
    }

    #[test]
    fn bytes_of_the_format_never_panic(body in "([a-z#{}=\",\\\\ \t\r\n0-9.+eé-]|gaunt_absent|node_cpu_seconds_total|# TYPE |# HELP ){0,60}") {
        let _ = decode(body.as_bytes(), &Limits::default());
    }
}
