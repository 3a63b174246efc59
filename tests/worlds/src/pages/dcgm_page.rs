//! Writes the page of dcgm-exporter.

use std::fmt::Write as _;

use super::{
    dcgm_fields::{CLOCK_EVENTS_FIELD, DcgmField, FIELDS, UnitOf49, XID_FIELD, describe_xid},
    gpu_board::{GpuIdentity, MigInstance},
    gpu_sampler::GpuCollection,
    gpu_view::GpuView,
    job_labels::JobLabelValues,
};
use crate::{
    exporter_plan::{GpuExporter, GpuMetricSet},
    random::RandomKey,
};

/// How a site runs dcgm-exporter on one node.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a setting of its own")]
pub(super) struct DcgmSettings {
    /// Which version.
    pub(super) version: GpuExporter,
    /// Which fields are on its list.
    pub(super) set: GpuMetricSet,
    /// Name of the node's label: `Hostname`, or `hostname` in newer versions.
    pub(super) name_label: &'static str,
    /// The node's name, if it has such a label.
    pub(super) node: Option<String>,
    /// Whether series have the PCI address.
    pub(super) has_bus_id: bool,
    /// Whether GPUs without a pod have empty labels rather than none.
    pub(super) has_empty_pod_labels: bool,
    /// Whether it maps jobs to pods at all.
    pub(super) maps_pods: bool,
    /// Driver version.
    pub(super) driver: &'static str,
    /// Whether it serves profiling values.
    pub(super) has_profiling: bool,
    /// Share of values that are blank.
    pub(super) blank_share: f64,
    /// Key of the blank values.
    pub(super) key: RandomKey,
}

/// The labels of one GPU or instance: before and after those of its XID.
#[derive(Clone, Debug)]
struct SeriesLabels {
    gpu: usize,
    instance: Option<MigInstance>,
    /// Up to the driver's version.
    static_part: String,
    /// Those of its job.
    attributes: Vec<(&'static str, String)>,
    /// All of them, with braces.
    text: String,
}

/// What of the driver's state a page shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DcgmContent {
    /// All.
    Full,
    /// Only values of events: the driver does not answer any more.
    EventsOnly,
}

/// Writes pages of one node's dcgm-exporter.
#[derive(Clone, Debug)]
pub(super) struct DcgmPage {
    settings: DcgmSettings,
    series: Vec<SeriesLabels>,
}

impl DcgmPage {
    pub(super) fn new(settings: DcgmSettings) -> Self {
        Self { settings, series: Vec::new() }
    }

    /// Sets who holds the GPUs, by their position in the plan.
    pub(super) fn set_job_labels(&mut self, gpus: &[GpuIdentity], jobs: &[JobLabelValues]) {
        self.series.clear();
        for (index, gpu) in gpus.iter().enumerate() {
            let none = JobLabelValues::default();
            let job = jobs.get(gpu.position).unwrap_or(&none);
            if gpu.instances.is_empty() {
                self.series.push(self.label_series(index, gpu, None, job));
            }
            for instance in &gpu.instances {
                self.series.push(self.label_series(index, gpu, Some(*instance), job));
            }
        }
    }

    fn label_series(
        &self,
        gpu: usize,
        identity: &GpuIdentity,
        instance: Option<MigInstance>,
        job: &JobLabelValues,
    ) -> SeriesLabels {
        let settings = &self.settings;
        let GpuIdentity { number, uuid, pci_bus_id, board, .. } = identity;
        let mut text = format!("{{gpu=\"{number}\",UUID=\"GPU-{uuid}\"");
        if settings.has_bus_id {
            let _ = write!(text, ",pci_bus_id=\"{pci_bus_id}\"");
        }
        let _ = write!(text, ",device=\"nvidia{number}\",modelName=\"{}\"", board.name);
        if let Some(MigInstance { profile, number, .. }) = instance {
            let _ = write!(text, ",GPU_I_PROFILE=\"{profile}\",GPU_I_ID=\"{number}\"");
        }
        if let Some(node) = &settings.node {
            let _ = write!(text, ",{}=\"{node}\"", settings.name_label);
        }
        let driver_label = match settings.version {
            GpuExporter::Dcgm49 => "DCGM_FI_SYSTEM_DRIVER_VERSION",
            _ => "DCGM_FI_DRIVER_VERSION",
        };
        let _ = write!(text, ",{driver_label}=\"{}\"", settings.driver);
        let mut attributes = Vec::new();
        if settings.maps_pods && (job.pod.is_some() || settings.has_empty_pod_labels) {
            let [pod, namespace, container] = job.pod.clone().unwrap_or_default();
            attributes.extend([("container", container), ("namespace", namespace), ("pod", pod)]);
        }
        if !job.job.is_empty() {
            attributes.push(("hpc_job", job.job.clone()));
        }
        let mut series =
            SeriesLabels { gpu, instance, static_part: text, attributes, text: String::new() };
        series.text = series.with_attributes(&[]);
        series
    }

    /// Appends the page of a collection.
    pub(super) fn write_page(
        &self,
        gpus: &[GpuIdentity],
        sticky_xid: &[u32],
        collection: &GpuCollection,
        content: DcgmContent,
        out: &mut String,
    ) {
        let is_version_3 = self.settings.version == GpuExporter::Dcgm3;
        for field in FIELDS {
            if !field.is_in_list(self.settings.set, is_version_3)
                || (content == DcgmContent::EventsOnly && field.id != XID_FIELD)
            {
                continue;
            }
            let name = self.field_name(field);
            let mut has_header = false;
            for series in &self.series {
                let identity = &gpus[series.gpu];
                let Some(sample) = collection.gpus.get(identity.position) else { continue };
                let view = GpuView {
                    identity,
                    sample,
                    instance: series.instance,
                    sticky_xid: sticky_xid.get(identity.position).copied().unwrap_or(0),
                    has_profiling: self.settings.has_profiling,
                };
                // A lost GPU leaves its last XID behind.
                if !sample.state.is_present && field.id != XID_FIELD {
                    continue;
                }
                if self.is_blank(collection.number, field, identity.position) {
                    continue;
                }
                let Some(value) = (field.value)(&view) else { continue };
                if !has_header {
                    has_header = true;
                    self.write_header(name, field, out);
                }
                out.push_str("DCGM_FI_");
                out.push_str(name);
                if field.id == XID_FIELD && !is_version_3 {
                    out.push_str(&series.with_xid(view.xid()));
                } else {
                    out.push_str(&series.text);
                }
                out.push(' ');
                let is_49 = self.settings.version == GpuExporter::Dcgm49;
                let value = if is_49 { field.unit_of_49.convert(value) } else { value };
                value.write_fixed(out);
                out.push('\n');
            }
        }
    }

    fn field_name(&self, field: &DcgmField) -> &'static str {
        match self.settings.version {
            GpuExporter::Dcgm49 if !field.name_of_49.is_empty() => field.name_of_49,
            GpuExporter::Dcgm3 if field.id == CLOCK_EVENTS_FIELD => "DEV_CLOCK_THROTTLE_REASONS",
            _ => field.name,
        }
    }

    fn write_header(&self, name: &str, field: &DcgmField, out: &mut String) {
        let is_rate_of_49 = self.settings.version == GpuExporter::Dcgm49
            && field.id == super::dcgm_fields::BANDWIDTH_FIELD;
        let kind = if field.is_counter && !is_rate_of_49 { "counter" } else { "gauge" };
        let (old_unit, new_unit) = field.unit_of_49.texts();
        let (text, unit) = match field.help.split_once(old_unit) {
            Some((text, _))
                if self.settings.version == GpuExporter::Dcgm49 && unit_changes(field) =>
            {
                (text, new_unit)
            }
            _ => (field.help, ""),
        };
        for part in ["# HELP DCGM_FI_", name, " ", text, unit, "\n# TYPE DCGM_FI_", name, " ", kind]
        {
            out.push_str(part);
        }
        out.push('\n');
    }

    /// Whether DCGM has no value of a field at this collection.
    fn is_blank(&self, collection: usize, field: &DcgmField, gpu: usize) -> bool {
        let DcgmSettings { blank_share, key, .. } = self.settings;
        blank_share > 0.0
            && field.id != XID_FIELD
            && key
                .child_index(collection << 20 | gpu << 12 | usize::from(field.id))
                .chance(blank_share)
    }
}

fn unit_changes(field: &DcgmField) -> bool {
    field.unit_of_49 != UnitOf49::Same
}

impl SeriesLabels {
    /// All labels, with the attributes in the order of their names.
    fn with_attributes(&self, more: &[(&'static str, &str)]) -> String {
        let own = self.attributes.iter().map(|(name, value)| (*name, value.as_str()));
        let mut attributes: Vec<_> = own.chain(more.iter().copied()).collect();
        attributes.sort_unstable_by_key(|(name, _)| *name);
        let mut text = self.static_part.clone();
        for (name, value) in attributes {
            for part in [",", name, "=\"", value, "\""] {
                text.push_str(part);
            }
        }
        text.push('}');
        text
    }

    fn with_xid(&self, xid: u32) -> String {
        let code = xid.to_string();
        self.with_attributes(&[("err_code", &code), ("err_msg", describe_xid(xid))])
    }
}
