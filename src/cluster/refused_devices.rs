//! Devices beyond what one node may have: they are refused and counted, and the rest of their page is taken.

use std::collections::BTreeMap;

use gaunt_schema::{Class, Safe};

use super::inventory::most_devices;

/// Devices of a page that are refused, by class.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RefusedDevices(BTreeMap<Class, u32>);

impl RefusedDevices {
    /// One more is refused.
    pub(super) fn add(&mut self, class: Class) {
        *self.0.entry(class).or_default() += 1;
    }

    /// Each class with refused devices, and how many those are.
    pub fn iter(&self) -> impl Iterator<Item = (Class, u32)> {
        self.0.iter().map(|(class, devices)| (*class, *devices))
    }

    /// A sentence that names them, the limits and the next step; none if nothing is refused.
    pub(super) fn sentence(&self, address: &Safe) -> Option<Safe> {
        let parts = self.iter().map(|(class, devices)| {
            let most = most_devices(class);
            format!("{devices} of class {} (a node may have {most})", class.as_str())
        });
        let parts: Vec<String> = parts.collect();
        (!parts.is_empty()).then(|| {
            Safe::new(&format!(
                "{address}: its page names too many devices for one node; refused are {}, the rest of the page is \
                 taken. Look at the labels that its exporter gives them: one page must speak for one machine",
                parts.join(", ")
            ))
        })
    }
}
