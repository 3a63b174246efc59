//! Encodes reports as frames: it sorts once for all reports of the same shape, and sends only what the client lacks.

use std::sync::Arc;

use super::{
    ClientState, FrameLayout, bytes::encode_number, column_encoding, frame_header::FrameHeader,
    frame_identity::NodeIdentity,
};
use crate::{
    AbsenceReason, CowList, Device, DeviceClass, InfoSeries, MetricId, Reading, Report,
    SanitizedText, UnixMs,
    catalogue::host,
    text::page_writer::{PageEntry, in_page_order, info_labels, node_label},
    unit::{CounterWidth, MetricKind},
};

/// The report of one node at one tick, ready to be encoded; it has the content of the text form.
#[derive(Clone, Debug)]
pub struct FrameEncoder {
    tick: u64,
    time: Option<UnixMs>,
    layout: Arc<FrameLayout>,
    identity: Arc<[u8]>,
    readings: Vec<u64>,
    source: Arc<ReportShape>,
}

/// The devices and metrics of a report without its readings, and the order of these.
#[derive(Debug)]
struct ReportShape {
    node: Option<SanitizedText>,
    has_time: bool,
    devices: CowList<Device>,
    infos: CowList<InfoSeries>,
    samples: Vec<(MetricId, u32)>,
    /// For each reading of the layout, its sample.
    order: Vec<u32>,
    /// The sample that is the node's clock and no reading.
    clock: Option<u32>,
}

/// The parts of a frame, for callers that have them without a report.
#[derive(Debug)]
pub struct FrameParts<'a> {
    /// The tick of these readings.
    pub tick: u64,
    /// The tick that the client has, with its readings; then only differences are written.
    pub base: Option<(u64, &'a [u64])>,
    /// The node's clock.
    pub time: Option<UnixMs>,
    /// The devices and metrics.
    pub layout: &'a FrameLayout,
    /// Whether the client lacks the layout.
    pub sends_layout: bool,
    /// The identity of the devices; a client without a base needs it.
    pub identity: Option<&'a [u8]>,
    /// One reading per position of the layout, as [`encode_reading`] makes them.
    pub readings: &'a [u64],
}

/// A reading in 64 bits: a number, or a NaN that holds the reason.
pub fn encode_reading(reading: Reading) -> u64 {
    column_encoding::encode_reading(reading)
}

impl FrameParts<'_> {
    /// Appends the frame. `steps` is a scratch buffer.
    pub fn encode_frame(&self, steps: &mut Vec<i64>, out: &mut Vec<u8>) {
        let start = FrameHeader::reserve_header(out);
        if self.sends_layout {
            encode_number(self.layout.encoded_bytes().len() as u64, out);
            out.extend_from_slice(self.layout.encoded_bytes());
        }
        if let Some(identity) = self.identity {
            encode_number(identity.len() as u64, out);
            out.extend_from_slice(identity);
        }
        let mut from = 0;
        for column in &self.layout.columns {
            let range = from..from + column.length as usize;
            from = range.end;
            let base = self.base.and_then(|(_, base)| base.get(range.clone()));
            let now = self.readings.get(range).unwrap_or_default();
            column_encoding::encode_column(now, base, steps, out);
        }
        let head = FrameHeader {
            has_layout: self.sends_layout,
            has_identity: self.identity.is_some(),
            tick: self.tick,
            base_tick: self.base.map(|(tick, _)| tick),
            layout: self.layout.content_hash(),
            time: self.time,
        };
        head.encode_header(start, out);
    }
}

impl FrameEncoder {
    /// Prepares a report under a tick number that is unique on this server. If its shape equals that of the previous
    /// one, the layout is reused.
    pub fn of(report: &Report, tick: u64, last: Option<&Self>) -> Self {
        let repeats = last.filter(|last| last.source.is_same_shape(report));
        let Some(last) = repeats else { return Self::from_report(report, tick) };
        let (layout, identity) = (last.layout.clone(), last.identity.clone());
        Self::fill_readings(report, tick, layout, identity, last.source.clone())
    }

    fn from_report(report: &Report, tick: u64) -> Self {
        let mut sorted = SortedReport::default();
        sorted.sort_report(report);
        let SortedReport { devices, columns, order, infos, clock } = sorted;
        let layout = Arc::new(FrameLayout::new(&devices, &columns));
        let infos = infos.into_iter().map(|(info, device)| {
            let (metric, labels) = match info {
                Some(index) => {
                    let info: &InfoSeries = &report.infos[index];
                    (info.metric, info_labels(report, info).collect())
                }
                None => (host::NODE_INFO, node_label(report).into_iter().collect()),
            };
            (metric.catalogue_row().name, device, labels)
        });
        let identity = NodeIdentity::encode_identity(report.node.as_deref(), infos);
        let source = ReportShape {
            node: report.node.clone(),
            has_time: report.node_time.is_some(),
            devices: report.devices.clone(),
            infos: report.infos.clone(),
            samples: report.samples.iter().map(|sample| (sample.metric, sample.device)).collect(),
            order,
            clock,
        };
        Self::fill_readings(report, tick, layout, identity.into(), source.into())
    }

    fn fill_readings(
        report: &Report,
        tick: u64,
        layout: Arc<FrameLayout>,
        identity: Arc<[u8]>,
        source: Arc<ReportShape>,
    ) -> Self {
        let mut readings = Vec::with_capacity(source.order.len());
        let mut order = source.order.iter();
        for column in &layout.columns {
            let kind = column.metric.map(|metric| metric.catalogue_row().kind);
            let end = match kind {
                Some(MetricKind::Counter(width @ CounterWidth::Saturating(_))) => width.max_value(),
                _ => None,
            };
            for index in order.by_ref().take(column.length as usize) {
                let reading = report.samples[*index as usize].reading;
                // A saturated counter has no value, in either form.
                let is_saturated = end.is_some() && reading.value() == end;
                readings.push(column_encoding::encode_reading(if is_saturated {
                    AbsenceReason::Saturated.into()
                } else {
                    reading
                }));
            }
        }
        let clock = source.clock.and_then(|index| report.samples[index as usize].reading.value());
        let time = clock.map(UnixMs::from_seconds).or(report.node_time);
        Self { tick, time, layout, identity, readings, source }
    }

    /// The tick number.
    pub fn tick(&self) -> u64 {
        self.tick
    }

    /// The devices, and what is measured on them.
    pub fn layout(&self) -> &Arc<FrameLayout> {
        &self.layout
    }

    /// The identity as encoded on the wire.
    pub fn identity_bytes(&self) -> &Arc<[u8]> {
        &self.identity
    }

    /// The readings, column by column, as [`encode_reading`] makes them.
    pub fn reading_bits(&self) -> &[u64] {
        &self.readings
    }

    /// The sample of the report for each reading.
    pub fn sample_order(&self) -> &[u32] {
        &self.source.order
    }

    /// Whether a client in this state can receive the difference to `base`.
    pub fn can_diff_from(&self, client_state: ClientState, base: &Self) -> bool {
        let layout = self.layout.content_hash();
        client_state == ClientState { layout: Some(layout), tick: Some(base.tick) }
            && base.layout.content_hash() == layout
    }

    /// Appends a frame for a client in this state: the difference to `base` if the client has it, else a whole frame.
    pub fn encode_frame(&self, client_state: ClientState, base: Option<&Self>, out: &mut Vec<u8>) {
        let base = base.filter(|base| self.can_diff_from(client_state, base));
        let changed = base.is_none_or(|base| base.identity != self.identity);
        let frame = FrameParts {
            tick: self.tick,
            base: base.map(|base| (base.tick, &*base.readings)),
            time: self.time,
            layout: &self.layout,
            sends_layout: client_state.layout != Some(self.layout.content_hash()),
            identity: changed.then_some(&*self.identity),
            readings: &self.readings,
        };
        frame.encode_frame(&mut Vec::new(), out);
    }
}

impl ReportShape {
    /// Whether a report has the same devices and metrics.
    fn is_same_shape(&self, report: &Report) -> bool {
        let is_same = |(series, sample): (&(MetricId, u32), &crate::MetricSample)| {
            *series == (sample.metric, sample.device) && sample.metric != host::NODE_TIME
        };
        self.node == report.node
            && self.has_time == report.node_time.is_some()
            && self.samples.len() == report.samples.len()
            && self.samples.iter().zip(&report.samples).all(is_same)
            && self.devices == report.devices
            && self.infos == report.infos
    }
}

/// The devices and metrics of a report, in page order.
#[derive(Debug, Default)]
struct SortedReport {
    devices: Vec<Device>,
    columns: Vec<(MetricId, Vec<u32>)>,
    order: Vec<u32>,
    /// Info series by their positions in the report, and the node's name, which has no position; with their devices.
    infos: Vec<(Option<usize>, u32)>,
    clock: Option<u32>,
}

impl SortedReport {
    fn sort_report(&mut self, report: &Report) {
        /// No position yet.
        const NONE: u32 = u32::MAX;
        let mut positions = vec![NONE; report.devices.len()];
        let mut last = None;
        for (metric, device, entry) in in_page_order(report) {
            let metric = MetricId(metric);
            let entry_device = match report.devices.get(device as usize) {
                Some(device) if is_valid_sample(device, metric) => device.clone(),
                Some(_) => continue,
                None => Device::new_node(),
            };
            if let PageEntry::Sample(index) = entry {
                if last.replace((metric, device)) == Some((metric, device)) {
                    continue;
                }
                if metric == host::NODE_TIME && report.samples[index].reading.value().is_some() {
                    self.clock = Some(index as u32);
                    continue;
                }
            }
            let position = match positions.get_mut(device as usize) {
                Some(position) if *position != NONE => *position,
                Some(position) => {
                    *position = self.ensure_device(entry_device);
                    *position
                }
                None => self.ensure_device(entry_device),
            };
            match entry {
                PageEntry::NodeTime => {}
                PageEntry::NodeName => self.infos.push((None, position)),
                PageEntry::Info(index) => self.infos.push((Some(index), position)),
                PageEntry::Sample(index) => {
                    match self.columns.last_mut() {
                        Some((last, devices)) if *last == metric => devices.push(position),
                        _ => self.columns.push((metric, vec![position])),
                    }
                    self.order.push(index as u32);
                }
            }
        }
    }

    fn ensure_device(&mut self, device: Device) -> u32 {
        let position = self.devices.iter().position(|position| *position == device);
        position.unwrap_or_else(|| {
            self.devices.push(device);
            self.devices.len() - 1
        }) as u32
    }
}

/// Whether the text form could carry this metric of the device.
fn is_valid_sample(device: &Device, metric: MetricId) -> bool {
    let class = metric.catalogue_row().class;
    class == device.class
        && class != DeviceClass::Fleet
        && device.key.len() == class.key_label_names().len()
        && device.key.iter().all(|part| !part.is_empty())
}
