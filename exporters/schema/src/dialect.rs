//! Dialects: the exporter formats that gaunt reads, and how their names map to the catalogue.

mod absence;
#[cfg(test)]
mod accelerator_page_tests;
mod all_smi;
mod amd_exporter;
mod amd_smi_exporter;
#[cfg(test)]
mod captured_pages;
mod custom_handler;
mod dcgm_exporter;
mod dcgm_holders;
mod dcgm_instances;
mod dcgm_new_names;
#[cfg(test)]
mod dcgm_page_tests;
mod dcgm_ratio_unit;
mod dcgm_shared_values;
#[cfg(test)]
mod dcgm_sharing_tests;
mod dcgm_values;
mod decode_plan;
mod dialect_reference;
mod dialect_table;
#[cfg(test)]
mod exporter_page_tests;
mod first_host;
mod gaudi_exporter;
mod gpu_holders;
mod infiniband_exporter;
#[cfg(test)]
mod label_tests;
mod model_servers;
mod nccl_inspector;
mod neuron_monitor;
mod node_exporter;
mod node_exporter_table;
mod node_filesystems;
mod nvidia_smi;
mod page_decoder;
mod rdma_exporter;
mod read_names;
mod report_builder;
mod snmp_exporter;
#[cfg(test)]
mod source_table_tests;
mod total_suffix;
mod tpu_device_plugin;
mod ufm_telemetry;

use serde::{Deserialize, Serialize};

pub use self::gpu_holders::{is_exporter_pod, pod_template_hash};
pub(crate) use self::{
    dcgm_new_names::dcgm_4_9_field,
    decode_plan::{DecodeOp, DecodePlan, MAX_COMPARED_CPUS, ShownXid, SideValues},
    page_decoder::{DecodedPage, PageDecoder, is_known_name},
};
pub use self::{
    dialect_reference::{DialectMetric, dialect_metrics},
    read_names::{ReadName, read_names},
};

/// The tables of all exporters that have one.
static TABLES: [dialect_table::DialectTable; 19] = [
    all_smi::TABLE,
    amd_exporter::TABLE,
    amd_exporter::PREFIXED_TABLE,
    amd_smi_exporter::TABLE,
    gaudi_exporter::TABLE,
    infiniband_exporter::TABLE,
    nccl_inspector::TABLE,
    neuron_monitor::TABLE,
    node_exporter_table::TABLE,
    node_exporter_table::CARDS,
    node_exporter_table::DRIVER_CARDS,
    nvidia_smi::TABLE,
    rdma_exporter::TABLE,
    model_servers::TGI,
    model_servers::TRITON,
    model_servers::VLLM,
    snmp_exporter::TABLE,
    tpu_device_plugin::TABLE,
    ufm_telemetry::TABLE,
];

/// The handlers of all exporters that have some.
static CUSTOM_HANDLERS: [&[custom_handler::CustomHandler]; 5] = [
    &infiniband_exporter::SPECIAL,
    &nccl_inspector::SPECIAL,
    &node_filesystems::SPECIAL,
    &rdma_exporter::SPECIAL,
    &snmp_exporter::SPECIAL,
];

/// An exporter format that gaunt decodes. Where two report the same value, the better source comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Dialect {
    /// gaunt's own exporters.
    Gaunt,
    /// NVIDIA's dcgm-exporter.
    Dcgm,
    /// AMD's device-metrics-exporter and amd_smi_exporter.
    Amd,
    /// Habana's exporter of Gaudi accelerators.
    Gaudi,
    /// neuron-monitor's Prometheus script, for AWS Trainium and Inferentia.
    Neuron,
    /// GKE's TPU device plugin.
    Tpu,
    /// rdma_exporter, which covers more of network cards than node_exporter does.
    Rdma,
    /// Prometheus's node_exporter, including its textfile metrics.
    NodeExporter,
    /// nvidia_gpu_exporter, which runs nvidia-smi.
    NvidiaSmi,
    /// all-smi.
    AllSmi,
    /// infiniband_exporter, which queries all switches of a fabric.
    Infiniband,
    /// UFM Telemetry, which reads all ports of a fabric.
    Ufm,
    /// snmp_exporter with the interface tables of a switch.
    Snmp,
    /// A vLLM server.
    Vllm,
    /// A Triton server.
    Triton,
    /// A text-generation-inference server.
    Tgi,
    /// NCCL's inspector.
    Nccl,
    /// No name on the page is known.
    Unknown,
}

impl Dialect {
    /// Every dialect, the better source first.
    pub const ALL: [Self; 18] = [
        Self::Gaunt,
        Self::Dcgm,
        Self::Amd,
        Self::Gaudi,
        Self::Neuron,
        Self::Tpu,
        Self::Rdma,
        Self::NodeExporter,
        Self::NvidiaSmi,
        Self::AllSmi,
        Self::Infiniband,
        Self::Ufm,
        Self::Snmp,
        Self::Vllm,
        Self::Triton,
        Self::Tgi,
        Self::Nccl,
        Self::Unknown,
    ];

    /// Whether such an exporter samples at its own interval and repeats its values in between.
    pub const fn has_own_interval(self) -> bool {
        matches!(
            self,
            Self::Dcgm
                | Self::Amd
                | Self::Gaudi
                | Self::Neuron
                | Self::Tpu
                | Self::NvidiaSmi
                | Self::AllSmi
                | Self::Infiniband
                | Self::Ufm
        )
    }

    /// Whether it is a model server, of which a node may have several.
    pub const fn is_model_server(self) -> bool {
        matches!(self, Self::Vllm | Self::Triton | Self::Tgi)
    }

    /// The name in answers and labels.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Gaunt => "gaunt",
            Self::Dcgm => "dcgm",
            Self::Amd => "amd",
            Self::Gaudi => "gaudi",
            Self::Neuron => "neuron",
            Self::Tpu => "tpu",
            Self::Rdma => "rdma",
            Self::NodeExporter => "node_exporter",
            Self::NvidiaSmi => "nvidia_smi",
            Self::AllSmi => "all_smi",
            Self::Infiniband => "infiniband",
            Self::Ufm => "ufm",
            Self::Snmp => "snmp",
            Self::Vllm => "vllm",
            Self::Triton => "triton",
            Self::Tgi => "tgi",
            Self::Nccl => "nccl",
            Self::Unknown => "unknown",
        }
    }
}
