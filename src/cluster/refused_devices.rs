//! Devices above the limit of one node: they are refused and counted, and the rest of their page is ingested.

use std::collections::BTreeMap;

use gaunt_schema::{DeviceClass, SanitizedText};

use super::device_inventory::max_devices;

/// Refused devices of a page, by class.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RefusedDevices(BTreeMap<DeviceClass, u32>);

impl RefusedDevices {
    /// Counts a refused device.
    pub(super) fn count_device(&mut self, class: DeviceClass) {
        *self.0.entry(class).or_default() += 1;
    }

    /// Each class with refused devices, and their number.
    pub fn iter(&self) -> impl Iterator<Item = (DeviceClass, u32)> {
        self.0.iter().map(|(class, devices)| (*class, *devices))
    }

    /// A sentence with the classes, the limits and the next step; none if nothing is refused.
    pub(super) fn render_sentence(&self, address: &SanitizedText) -> Option<SanitizedText> {
        let parts = self.iter().map(|(class, devices)| {
            let limit = max_devices(class);
            format!("{devices} of class {} (limit {limit})", class.as_str())
        });
        let parts: Vec<String> = parts.collect();
        (!parts.is_empty()).then(|| {
            SanitizedText::new(&format!(
                "{address}: too many devices for one node: {} rejected, the rest of its page is \
                 used. Check the labels of its exporter: one page must report one machine",
                parts.join(", ")
            ))
        })
    }
}
