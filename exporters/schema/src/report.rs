//! A report: everything that one node reports about itself at one instant.

use crate::{CowList, Device, MetricId, Reading, SanitizedText, UnixMs};

/// All data of one node at one instant, before the judge evaluates it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// The instant of sampling by the node's own clock, if the page has it.
    pub node_time: Option<UnixMs>,
    /// The node's own name, if the page has it.
    pub node: Option<SanitizedText>,
    /// The devices that the samples and infos point to, each once, in order of appearance.
    pub devices: CowList<Device>,
    /// The info series: identities of devices, jobs.
    pub infos: CowList<InfoSeries>,
    /// The readings.
    pub samples: Vec<MetricSample>,
    /// Samples of other programs of the node, passed on uninterpreted.
    pub extra: Vec<ExtraSample>,
}

/// One sample of another program.
#[derive(Clone, Debug, PartialEq)]
pub struct ExtraSample {
    /// The metric: a valid name that is not in the catalogue.
    pub name: SanitizedText,
    /// Label names and values.
    pub labels: Vec<(SanitizedText, SanitizedText)>,
    /// A finite number.
    pub value: f64,
}

/// One reading of one metric of one device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MetricSample {
    /// What was measured.
    pub metric: MetricId,
    /// Which device, as a position in [`Report::devices`].
    pub device: u32,
    /// The value, or why there is none.
    pub reading: Reading,
}

/// The labels of one `*_info` series, without those that name the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InfoSeries {
    /// Which info series.
    pub metric: MetricId,
    /// Which device, as a position in [`Report::devices`].
    pub device: u32,
    /// Label names and values, in the order of the page.
    pub labels: CowList<(SanitizedText, SanitizedText)>,
}

impl Report {
    /// The position of `device`, added if it is new.
    pub fn ensure_device(&mut self, device: Device) -> u32 {
        let index = self.devices.iter().position(|other| *other == device);
        index.unwrap_or_else(|| {
            self.devices.push(device);
            self.devices.len() - 1
        }) as u32
    }

    /// Adds one reading of the device at position `device`.
    pub fn push(&mut self, device: u32, metric: MetricId, reading: impl Into<Reading>) {
        self.samples.push(MetricSample { metric, device, reading: reading.into() });
    }

    /// Adds the labels of an info series of the device at position `device`.
    pub fn add_info(&mut self, device: u32, metric: MetricId, labels: &[(&str, &str)]) {
        let labels = labels.iter().map(|(name, value)| ((*name).into(), (*value).into()));
        self.infos.push(InfoSeries { metric, device, labels: labels.collect() });
    }

    /// The reading of `metric` on `device`, if the report has one.
    pub fn find_reading(&self, device: &Device, metric: MetricId) -> Option<Reading> {
        let index = self.devices.iter().position(|other| other == device)? as u32;
        let sample =
            self.samples.iter().find(|sample| sample.device == index && sample.metric == metric)?;
        Some(sample.reading)
    }
}
