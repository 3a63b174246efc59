//! A report while it is put together: every device once, every metric of a device once.

use std::hash::BuildHasher;

use foldhash::fast::RandomState;
use hashbrown::{HashMap, HashSet, HashTable};

use crate::{
    Class, Device, MetricId, Reading, Report,
    device::MAX_KEY_LABELS,
    text::{Reason, Sample},
};

/// A device as the page writes it, and its position in the report.
#[derive(Debug)]
struct Known<'a> {
    class: Class,
    raw: [&'a str; MAX_KEY_LABELS],
    at: u32,
}

/// The report, and what finds its devices and samples again.
#[derive(Debug, Default)]
pub(super) struct Assembly<'a> {
    /// The report as far as it goes.
    pub(super) report: Report,
    /// Whether the page has a sample in our own words.
    pub(super) own: bool,
    known: HashTable<Known<'a>>,
    /// Two raw texts may become one safe text; then they are one device.
    devices: HashMap<Device, u32, RandomState>,
    seen: HashSet<(MetricId, u32), RandomState>,
    state: RandomState,
}

impl<'a> Assembly<'a> {
    /// The position of the device of `class` that the labels name, added if it is new; nothing if a label is missing.
    pub(super) fn device_of(&mut self, class: Class, sample: &Sample<'_, 'a>) -> Option<u32> {
        let names = class.labels();
        let mut raw = [""; MAX_KEY_LABELS];
        for (raw, name) in raw.iter_mut().zip(names) {
            *raw = sample.label(name)?.raw;
        }
        let hash = self.state.hash_one((class, raw));
        let found = self.known.find(hash, |known| known.class == class && known.raw == raw);
        if let Some(known) = found {
            return Some(known.at);
        }
        let value = |name: &&str| sample.label(name).map(|label| label.value().as_ref().into());
        let key = names.iter().filter_map(value).collect();
        let at = self.device(Device { class, key });
        let state = &self.state;
        self.known.insert_unique(hash, Known { class, raw, at }, |known| {
            state.hash_one((known.class, known.raw))
        });
        Some(at)
    }

    /// The position of `device`, added if it is new.
    pub(super) fn device(&mut self, device: Device) -> u32 {
        let next = self.report.devices.len() as u32;
        let devices = &mut self.report.devices;
        *self.devices.entry(device).or_insert_with_key(|device| {
            devices.push(device.clone());
            next
        })
    }

    /// Adds a reading, unless the device has one of this metric.
    pub(super) fn push(
        &mut self,
        device: u32,
        metric: MetricId,
        reading: impl Into<Reading>,
    ) -> Result<(), Reason> {
        if !self.seen.insert((metric, device)) {
            return Err(Reason::SameDevice);
        }
        self.report.push(device, metric, reading);
        Ok(())
    }

    /// Adds a reading that another exporter's name stands for. gaunt-node may have said the same in those words as
    /// well; its own stand first and count.
    pub(super) fn push_foreign(
        &mut self,
        device: u32,
        metric: MetricId,
        reading: impl Into<Reading>,
    ) -> Result<(), Reason> {
        if self.own && self.seen.contains(&(metric, device)) {
            return Ok(());
        }
        self.push(device, metric, reading)
    }
}

/// Whether the report has this info series of the device at position `device`.
pub(super) fn has_info(report: &Report, device: u32, metric: MetricId) -> bool {
    report.infos.iter().any(|info| info.device == device && info.metric == metric)
}
