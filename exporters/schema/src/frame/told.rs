//! Reports become frames: sorted once for all reports that name the same, and written as what the client lacks.

use std::sync::Arc;

use super::{Holds, Layout, bytes::put_number, columns, head::Head, identity::Identity};
use crate::{
    Absent, Class, Device, Info, MetricId, Reading, Report, Safe, Shared, UnixMs,
    catalogue::host,
    text::write::{Entry, in_page_order, info_labels, node_label},
    unit::{Kind, Width},
};

/// What one node tells at one tick, ready to be written as a frame: as the text of the same report says it.
#[derive(Clone, Debug)]
pub struct Told {
    tick: u64,
    time: Option<UnixMs>,
    layout: Arc<Layout>,
    identity: Arc<[u8]>,
    readings: Vec<u64>,
    source: Arc<Source>,
}

/// What a report names, beside its readings, and where these go.
#[derive(Debug)]
struct Source {
    node: Option<Safe>,
    timed: bool,
    devices: Shared<Device>,
    infos: Shared<Info>,
    samples: Vec<(MetricId, u32)>,
    /// For each reading of the layout, its sample.
    order: Vec<u32>,
    /// A sample that is the node's clock and no reading.
    clock: Option<u32>,
}

/// The parts of a frame, for who has them without a report.
#[derive(Debug)]
pub struct Whole<'a> {
    /// The tick of these readings.
    pub tick: u64,
    /// The tick that the client holds, with its readings; then only what differs is written.
    pub base: Option<(u64, &'a [u64])>,
    /// The node's clock.
    pub time: Option<UnixMs>,
    /// Which devices there are.
    pub layout: &'a Layout,
    /// Whether the client lacks the layout.
    pub tells_layout: bool,
    /// Who the devices are; a client without a base needs it.
    pub identity: Option<&'a [u8]>,
    /// A reading for each place of the layout, as [`bits`] makes them.
    pub readings: &'a [u64],
}

/// A reading as frames hold it: the bits of a number, or of one that is none and holds the reason.
pub fn bits(reading: Reading) -> u64 {
    columns::bits(reading)
}

impl Whole<'_> {
    /// Appends the frame. `room` is room to work in.
    pub fn write(&self, room: &mut Vec<i64>, out: &mut Vec<u8>) {
        let begin = Head::begin(out);
        if self.tells_layout {
            put_number(self.layout.bytes().len() as u64, out);
            out.extend_from_slice(self.layout.bytes());
        }
        if let Some(identity) = self.identity {
            put_number(identity.len() as u64, out);
            out.extend_from_slice(identity);
        }
        let mut from = 0;
        for column in &self.layout.columns {
            let range = from..from + column.length as usize;
            from = range.end;
            let base = self.base.and_then(|(_, base)| base.get(range.clone()));
            let now = self.readings.get(range).unwrap_or_default();
            columns::write(now, base, room, out);
        }
        let head = Head {
            has_layout: self.tells_layout,
            has_identity: self.identity.is_some(),
            tick: self.tick,
            base: self.base.map(|(tick, _)| tick),
            layout: self.layout.hash(),
            time: self.time,
        };
        head.finish(begin, out);
    }
}

impl Told {
    /// What a report says, under the number of a tick that names no other readings of this server. Where it names the
    /// same as the one before, that one's layout stands.
    pub fn of(report: &Report, tick: u64, last: Option<&Self>) -> Self {
        let repeats = last.filter(|last| last.source.is_of(report));
        let Some(last) = repeats else { return Self::anew(report, tick) };
        let (layout, identity) = (last.layout.clone(), last.identity.clone());
        Self::fill(report, tick, layout, identity, last.source.clone())
    }

    fn anew(report: &Report, tick: u64) -> Self {
        let mut sorted = Sorted::default();
        sorted.take(report);
        let Sorted { devices, columns, order, infos, clock } = sorted;
        let layout = Arc::new(Layout::new(&devices, &columns));
        let infos = infos.into_iter().map(|(info, device)| {
            let (metric, labels) = match info {
                Some(at) => {
                    let info: &Info = &report.infos[at];
                    (info.metric, info_labels(report, info).collect())
                }
                None => (host::NODE_INFO, node_label(report).into_iter().collect()),
            };
            (metric.row().name, device, labels)
        });
        let identity = Identity::bytes(report.node.as_deref(), infos);
        let source = Source {
            node: report.node.clone(),
            timed: report.node_time.is_some(),
            devices: report.devices.clone(),
            infos: report.infos.clone(),
            samples: report.samples.iter().map(|s| (s.metric, s.device)).collect(),
            order,
            clock,
        };
        Self::fill(report, tick, layout, identity.into(), source.into())
    }

    fn fill(
        report: &Report,
        tick: u64,
        layout: Arc<Layout>,
        identity: Arc<[u8]>,
        source: Arc<Source>,
    ) -> Self {
        let mut readings = Vec::with_capacity(source.order.len());
        let mut order = source.order.iter();
        for column in &layout.columns {
            let kind = column.metric.map(|metric| metric.row().kind);
            let end = match kind {
                Some(Kind::Counter(width @ Width::Saturating(_))) => width.max(),
                _ => None,
            };
            for at in order.by_ref().take(column.length as usize) {
                let told = report.samples[*at as usize].reading;
                // A counter at its end says nothing, in whatever form.
                let stands = end.is_some() && told.value() == end;
                readings.push(columns::bits(if stands { Absent::Saturated.into() } else { told }));
            }
        }
        let clock = source.clock.and_then(|at| report.samples[at as usize].reading.value());
        let time = clock.map(UnixMs::from_seconds).or(report.node_time);
        Self { tick, time, layout, identity, readings, source }
    }

    /// The number of its tick.
    pub fn tick(&self) -> u64 {
        self.tick
    }

    /// Which devices there are, and what is measured on them.
    pub fn layout(&self) -> &Arc<Layout> {
        &self.layout
    }

    /// Who the devices are, as it goes over the wire.
    pub fn identity(&self) -> &Arc<[u8]> {
        &self.identity
    }

    /// The readings, a column after the other, as [`bits`] makes them.
    pub fn readings(&self) -> &[u64] {
        &self.readings
    }

    /// The sample of the report that each reading is of.
    pub fn order(&self) -> &[u32] {
        &self.source.order
    }

    /// Whether a client that holds this can be told what differs from `base`.
    pub fn follows(&self, holds: Holds, base: &Self) -> bool {
        let layout = self.layout.hash();
        holds == Holds { layout: Some(layout), tick: Some(base.tick) }
            && base.layout.hash() == layout
    }

    /// Appends a frame for a client that holds this: what differs from `base`, if that is what it holds.
    pub fn write(&self, holds: Holds, base: Option<&Self>, out: &mut Vec<u8>) {
        let base = base.filter(|base| self.follows(holds, base));
        let changed = base.is_none_or(|base| base.identity != self.identity);
        let frame = Whole {
            tick: self.tick,
            base: base.map(|base| (base.tick, &*base.readings)),
            time: self.time,
            layout: &self.layout,
            tells_layout: holds.layout != Some(self.layout.hash()),
            identity: changed.then_some(&*self.identity),
            readings: &self.readings,
        };
        frame.write(&mut Vec::new(), out);
    }
}

impl Source {
    /// Whether a report names the same.
    fn is_of(&self, report: &Report) -> bool {
        let same = |(known, sample): (&(MetricId, u32), &crate::Sample)| {
            *known == (sample.metric, sample.device) && sample.metric != host::NODE_TIME
        };
        self.node == report.node
            && self.timed == report.node_time.is_some()
            && self.samples.len() == report.samples.len()
            && self.samples.iter().zip(&report.samples).all(same)
            && self.devices == report.devices
            && self.infos == report.infos
    }
}

/// What a report names, in the order of a page.
#[derive(Debug, Default)]
struct Sorted {
    devices: Vec<Device>,
    columns: Vec<(MetricId, Vec<u32>)>,
    order: Vec<u32>,
    /// Info series by their places in the report, and the name of the node, which has none; with their devices.
    infos: Vec<(Option<usize>, u32)>,
    clock: Option<u32>,
}

impl Sorted {
    fn take(&mut self, report: &Report) {
        /// No place yet.
        const NONE: u32 = u32::MAX;
        let mut places = vec![NONE; report.devices.len()];
        let mut last = None;
        for (metric, device, entry) in in_page_order(report) {
            let metric = MetricId(metric);
            let known = match report.devices.get(device as usize) {
                Some(known) if fits(known, metric) => known.clone(),
                Some(_) => continue,
                None => Device::node(),
            };
            if let Entry::Sample(at) = entry {
                if last.replace((metric, device)) == Some((metric, device)) {
                    continue;
                }
                if metric == host::NODE_TIME && report.samples[at].reading.value().is_some() {
                    self.clock = Some(at as u32);
                    continue;
                }
            }
            let place = match places.get_mut(device as usize) {
                Some(place) if *place != NONE => *place,
                Some(place) => {
                    *place = self.place(known);
                    *place
                }
                None => self.place(known),
            };
            match entry {
                Entry::NodeTime => {}
                Entry::NodeName => self.infos.push((None, place)),
                Entry::Info(at) => self.infos.push((Some(at), place)),
                Entry::Sample(at) => {
                    match self.columns.last_mut() {
                        Some((last, devices)) if *last == metric => devices.push(place),
                        _ => self.columns.push((metric, vec![place])),
                    }
                    self.order.push(at as u32);
                }
            }
        }
    }

    fn place(&mut self, device: Device) -> u32 {
        let known = self.devices.iter().position(|known| *known == device);
        known.unwrap_or_else(|| {
            self.devices.push(device);
            self.devices.len() - 1
        }) as u32
    }
}

/// Whether a page could say that the metric is of the device.
fn fits(device: &Device, metric: MetricId) -> bool {
    let class = metric.row().class;
    class == device.class
        && class != Class::Fleet
        && device.key.len() == class.labels().len()
        && device.key.iter().all(|part| !part.is_empty())
}
