//! Model servers: vLLM, Triton and text-generation-inference. Only the target, not the page, names the server.

#![cfg_attr(
    not(test),
    expect(clippy::wildcard_imports, reason = "a table names most rows of a class")
)]

use super::{
    decode_plan::BlankValues,
    dialect_table::{
        DialectTable, IdentityLabels, MappingTarget, NameMapping, same_unit, sum_series,
    },
};
use crate::{
    DeviceClass, Dialect, MetricId,
    catalogue::{
        UnitScale::Per,
        gpu,
        service::{self, *},
    },
};

const fn micros_unit(name: &'static str, metric: MetricId) -> NameMapping {
    NameMapping { name, when: None, to: MappingTarget::Sum(metric, Per(1e6)) }
}

/// vLLM. Several engines of a server are added up: the queue is the server's. The cache usage is that of the first
/// engine.
pub(super) const VLLM: DialectTable = DialectTable {
    dialect: Dialect::Vllm,
    mappings: &[
        sum_series("vllm:num_requests_running", RUNNING),
        sum_series("vllm:num_requests_waiting", WAITING),
        same_unit("vllm:kv_cache_usage_perc", CACHE_USED),
        same_unit("vllm:gpu_cache_usage_perc", CACHE_USED),
        sum_series("vllm:request_success_total", REQUESTS),
        sum_series("vllm:num_preemptions_total", PREEMPTIONS),
        sum_series("vllm:prompt_tokens_total", PROMPT_TOKENS),
        sum_series("vllm:generation_tokens_total", GENERATED_TOKENS),
        sum_series("vllm:request_queue_time_seconds_sum", QUEUE_TIME),
        sum_series("vllm:e2e_request_latency_seconds_sum", REQUEST_TIME),
        sum_series("vllm:request_inference_time_seconds_sum", COMPUTE_TIME),
        sum_series("vllm:time_to_first_token_seconds_sum", FIRST_TOKEN_TIME),
        sum_series("vllm:time_to_first_token_seconds_count", FIRST_TOKENS),
    ],
    keys: &[(DeviceClass::Service, &["", "model_name"])],
    identity: &[IdentityLabels {
        class: DeviceClass::Service,
        info: service::INFO,
        labels: &[("engine", "=vllm")],
    }],
    node: &[],
    parts: &[],
    blank: BlankValues::Never,
};

/// Triton. Versions and instances of a model are added up. Its own GPU metrics are read too, by UUID.
pub(super) const TRITON: DialectTable = DialectTable {
    dialect: Dialect::Triton,
    mappings: &[
        sum_series("nv_inference_pending_request_count", WAITING),
        sum_series("nv_inference_request_success", REQUESTS),
        sum_series("nv_inference_request_failure", FAILURES),
        micros_unit("nv_inference_queue_duration_us", QUEUE_TIME),
        micros_unit("nv_inference_request_duration_us", REQUEST_TIME),
        micros_unit("nv_inference_compute_infer_duration_us", COMPUTE_TIME),
        same_unit("nv_gpu_utilization", gpu::UTILIZATION),
        same_unit("nv_gpu_memory_used_bytes", gpu::MEMORY_USED),
        same_unit("nv_gpu_memory_total_bytes", gpu::MEMORY_TOTAL),
        same_unit("nv_gpu_power_usage", gpu::POWER),
        same_unit("nv_gpu_power_limit", gpu::POWER_LIMIT),
        same_unit("nv_energy_consumption", gpu::ENERGY),
    ],
    keys: &[(DeviceClass::Service, &["", "model"]), (DeviceClass::Gpu, &["gpu_uuid"])],
    identity: &[
        IdentityLabels {
            class: DeviceClass::Service,
            info: service::INFO,
            labels: &[("engine", "=triton")],
        },
        IdentityLabels {
            class: DeviceClass::Gpu,
            info: gpu::INFO,
            labels: &[("uuid", "gpu_uuid")],
        },
    ],
    node: &[],
    parts: &[],
    blank: BlankValues::Never,
};

/// text-generation-inference. It serves one model and does not name it.
pub(super) const TGI: DialectTable = DialectTable {
    dialect: Dialect::Tgi,
    mappings: &[
        same_unit("tgi_queue_size", WAITING),
        same_unit("tgi_batch_current_size", RUNNING),
        sum_series("tgi_request_count", REQUESTS),
        sum_series("tgi_request_failure", FAILURES),
        sum_series("tgi_request_input_length_sum", PROMPT_TOKENS),
        sum_series("tgi_request_generated_tokens_sum", GENERATED_TOKENS),
        sum_series("tgi_request_queue_duration_sum", QUEUE_TIME),
        sum_series("tgi_request_duration_sum", REQUEST_TIME),
        sum_series("tgi_request_inference_duration_sum", COMPUTE_TIME),
    ],
    keys: &[(DeviceClass::Service, &["", ""])],
    identity: &[IdentityLabels {
        class: DeviceClass::Service,
        info: service::INFO,
        labels: &[("engine", "=tgi")],
    }],
    node: &[],
    parts: &[],
    blank: BlankValues::Never,
};
