//! Events of a node, derived from its recent history: newest first, each with the recommended action.

use gaunt_schema::{
    DeviceClass, SanitizedText, Severity, UnixMs,
    catalogue::{gpu, gpu_health, gpu_parts, port},
};

use gaunt_api::{DeviceDetail, EvidenceItem, Finding, NodeDetail};

/// Maximum number of events shown.
const MOST: usize = 200;

/// Event on a node.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NodeEvent {
    /// Time of the event; none if it precedes the retained history.
    pub(crate) at: Option<UnixMs>,
    /// Severity.
    pub(crate) severity: Severity,
    /// Affected device.
    pub(crate) device: SanitizedText,
    /// Short description.
    pub(crate) what: SanitizedText,
    /// Recommended action.
    pub(crate) action: SanitizedText,
}

/// Throttle reasons that indicate a fault.
const HELD: [(gaunt_schema::MetricId, &str, &str); 4] = [
    (gpu::CLOCK_EVENT_HW_THERMAL, "HW thermal slowdown", "check fans, inlet air, thermal paste"),
    (gpu::CLOCK_EVENT_SW_THERMAL, "SW thermal slowdown", "check fans and inlet air"),
    (gpu::CLOCK_EVENT_HW_POWER_BRAKE, "HW power brake", "check power supplies"),
    (gpu::CLOCK_EVENT_HW_SLOWDOWN, "HW slowdown", "check GPU temperature and power"),
];

/// ECC errors, which have a counter and no history.
const ECC: [(gaunt_schema::MetricId, Severity, &str, &str); 2] = [
    (
        gpu_health::ECC_UNCORRECTED_VOLATILE,
        Severity::Critical,
        "uncorrected ECC error",
        "drain the node and reset the GPU",
    ),
    (
        gpu_health::ECC_CORRECTED_VOLATILE,
        Severity::Info,
        "corrected ECC error",
        "no action; check again if it repeats",
    ),
];

/// Port counters whose growth is an event.
const ERRORS: [(gaunt_schema::MetricId, &str, &str); 4] = [
    (port::LINK_DOWNED, "link went down", "check the cable and the switch port"),
    (port::LINK_ERROR_RECOVERY, "link error recovery", "clean or replace the cable"),
    (port::SYMBOL_ERRORS, "symbol errors", "clean or replace the cable"),
    (port::TRANSMIT_DISCARDS, "transmit discards", "check for congestion at this port"),
];

/// Returns all events in the node's history.
pub(crate) fn of(detail: &NodeDetail) -> Vec<NodeEvent> {
    let mut events = Vec::new();
    for device in &detail.devices {
        match device.class {
            DeviceClass::Xid => events.extend(xid_event(detail, device)),
            DeviceClass::Gpu => collect_gpu_events(detail, device, &mut events),
            DeviceClass::Port => collect_port_events(detail, device, &mut events),
            _ => {}
        }
    }
    events.sort_by(|a, b| b.at.cmp(&a.at).then(b.severity.cmp(&a.severity)));
    events.truncate(MOST);
    events
}

/// Returns the event of a reported XID, with the entry of NVIDIA's XID list.
fn xid_event(detail: &NodeDetail, device: &DeviceDetail) -> Option<NodeEvent> {
    let label = |name: &str| device.labels.get(name).map_or("?", |value| value.as_str());
    let info = device.info.get(gpu_parts::XID_INFO.catalogue_row().name);
    let info_text = |name: &str| info.and_then(|info| info.get(name)).map(SanitizedText::as_str);
    let code = label("xid").parse().unwrap_or(0);
    let xid_entry = gaunt_schema::xid::describe_xid(code);
    let count = device.last_value(gpu_parts::XID_ERRORS.catalogue_row().name);
    let recent = device.last_value(gpu_parts::XID_RECENT.catalogue_row().name);
    let last_seen =
        device.last_value(gpu_parts::XID_LAST_SEEN.catalogue_row().name).map(UnixMs::from_seconds);
    if count.is_none() && recent.is_none() && last_seen.is_none() {
        return None;
    }
    let times = count.filter(|count| *count > 1.5);
    let times = times.map_or_else(String::new, |count| format!(", {count:.0} times"));
    let meaning = info_text("meaning").unwrap_or(xid_entry.meaning);
    Some(NodeEvent {
        at: last_seen.or_else(|| finding_start(detail, label("gpu"), code)),
        severity: xid_entry.severity,
        device: SanitizedText::new(&format!("GPU {}", label("gpu"))),
        what: SanitizedText::new(&format!("XID {}: {meaning}{times}", label("xid"))),
        action: SanitizedText::new(info_text("action").unwrap_or(xid_entry.action)),
    })
}

/// Returns the start of the finding about an XID of a GPU: many exporters give no time of it.
fn finding_start(detail: &NodeDetail, gpu: &str, code: u32) -> Option<UnixMs> {
    let name = gpu_parts::XID_ERRORS.catalogue_row().name;
    let names_xid = |item: &EvidenceItem| {
        item.source.contains(name)
            && item.value.is_some_and(|value| (value - f64::from(code)).abs() < 0.5)
    };
    let is_about_xid = |finding: &&Finding| {
        finding.entity.gpu.as_deref() == Some(gpu) && finding.evidence.iter().any(names_xid)
    };
    detail.findings.iter().find(is_about_xid).map(|finding| finding.since)
}

fn collect_gpu_events(detail: &NodeDetail, device: &DeviceDetail, events: &mut Vec<NodeEvent>) {
    for (metric, what, action) in HELD {
        for (at, is_active) in
            detect_edges(detail, device.recent_points(&metric.series_key()), |value| value > 0.5)
        {
            let (severity, what) = if is_active {
                (Severity::Warning, what.to_owned())
            } else {
                (Severity::Info, format!("{what}: ended"))
            };
            let action = if is_active { action } else { "no action" };
            events.push(device_event(Some(at), severity, device, &what, action));
        }
    }
    for (metric, severity, what, action) in ECC {
        let Some(errors) = device.last_value(&metric.series_key()).filter(|errors| *errors > 0.0)
        else {
            continue;
        };
        let growing = device.rates.get(&metric.series_key()).is_some_and(|rate| *rate > 0.0);
        let end = if errors < 1.5 { "" } else { "s" };
        let what = format!("{errors:.0} {what}{end} since driver load");
        events.push(device_event(growing.then_some(detail.at), severity, device, &what, action));
    }
}

fn collect_port_events(detail: &NodeDetail, device: &DeviceDetail, events: &mut Vec<NodeEvent>) {
    for (at, up) in
        detect_edges(detail, device.recent_points(&port::STATE.series_key()), |state| state > 3.5)
    {
        events.push(if up {
            device_event(Some(at), Severity::Info, device, "port is active again", "no action")
        } else {
            let action = "check the cable and the switch port";
            device_event(Some(at), Severity::Critical, device, "port is no longer active", action)
        });
    }
    for (metric, what, action) in ERRORS {
        for (at, began) in
            detect_edges(detail, device.recent_points(&metric.series_key()), |rate| rate > 0.0)
        {
            if began {
                events.push(device_event(Some(at), Severity::Warning, device, what, action));
            }
        }
    }
}

fn device_event(
    at: Option<UnixMs>,
    severity: Severity,
    device: &DeviceDetail,
    what: &str,
    action: &str,
) -> NodeEvent {
    let (what, action) = (SanitizedText::new(what), SanitizedText::new(action));
    NodeEvent { at, severity, device: device.name.clone(), what, action }
}

/// Returns the instants at which a condition began or ended; unknown values begin and end nothing.
fn detect_edges(
    detail: &NodeDetail,
    points: &[Option<f32>],
    condition: impl Fn(f32) -> bool,
) -> Vec<(UnixMs, bool)> {
    let mut last = None;
    let mut found = Vec::new();
    for (at, value) in points.iter().enumerate() {
        let Some(is_active) = value.map(&condition) else { continue };
        if last.is_some_and(|last| last != is_active) {
            let age_ms = (points.len() - 1 - at) as u64 * detail.history_step_ms;
            found.push((detail.at - std::time::Duration::from_millis(age_ms), is_active));
        }
        last = Some(is_active);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample_answers;

    #[test]
    fn events_are_newest_first_with_their_action() {
        let events = of(&sample_answers::node_detail("gpu003"));
        assert!(events.is_sorted_by(|a, b| a.at >= b.at));
        let down = events.iter().find(|event| event.what.contains("no longer active")).unwrap();
        assert_eq!((down.device.as_str(), down.severity), ("mlx5_1/1", Severity::Critical));
        assert_eq!(
            sample_answers::AT.duration_since(down.at.unwrap()).as_secs(),
            78,
            "39 points of 2 s ago"
        );
        let xid = events.iter().find(|event| event.what.contains("XID 79")).unwrap();
        assert_eq!(xid.action.as_str(), "drain the node and reboot it");
    }

    #[test]
    fn xid_without_a_time_has_that_of_its_finding() {
        let mut detail = sample_answers::node_detail("gpu003");
        let xid = detail.devices.iter_mut().find(|it| it.class == DeviceClass::Xid).unwrap();
        xid.values.remove(&gpu_parts::XID_LAST_SEEN.series_key());
        let gpu = xid.labels["gpu"].clone();
        let xid_time = |detail: &NodeDetail| {
            of(detail).into_iter().find(|event| event.what.contains("XID 79")).unwrap().at
        };
        assert_eq!(xid_time(&detail), None);
        let mut finding = sample_answers::port_down_finding();
        finding.entity.gpu = Some(gpu);
        finding.evidence[0].source = gpu_parts::XID_ERRORS.catalogue_row().name.to_owned();
        finding.evidence[0].value = Some(79.0);
        detail.findings = vec![finding.clone()];
        assert_eq!(xid_time(&detail), Some(finding.since));
    }

    #[test]
    fn one_error_is_not_called_errors() {
        let mut detail = sample_answers::node_detail("gpu003");
        let key = gpu_health::ECC_CORRECTED_VOLATILE.series_key();
        for (device, errors) in
            detail.devices.iter_mut().filter(|it| it.class == DeviceClass::Gpu).zip([1.0, 2.0])
        {
            device.values.insert(key.clone(), gaunt_schema::Reading::Value(errors));
        }
        let events = of(&detail);
        for what in ["1 corrected ECC error since", "2 corrected ECC errors since"] {
            assert!(events.iter().any(|event| event.what.contains(what)), "{what}: {events:?}");
        }
    }

    #[test]
    fn unknown_values_are_no_events() {
        let mut detail = sample_answers::node_detail("gpu003");
        for device in &mut detail.devices {
            device.history.iter_mut().for_each(|series| series.points.fill(None));
            device.values.clear();
        }
        assert_eq!(of(&detail), []);
    }
}
