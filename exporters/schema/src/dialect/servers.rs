//! Model servers: vLLM, Triton and text-generation-inference. A page does not say where its server is; its target does.

#![cfg_attr(
    not(test),
    expect(clippy::wildcard_imports, reason = "a table names most rows of a class")
)]

use super::{
    plan::Blank,
    table::{Identity, Table, To, Word, same, sum},
};
use crate::{
    Class, Dialect, MetricId,
    catalogue::{
        Scale::Per,
        gpu,
        service::{self, *},
    },
};

const fn micros(name: &'static str, metric: MetricId) -> Word {
    Word { name, when: None, to: To::Sum(metric, Per(1e6)) }
}

/// vLLM. Its engines, where it has several, are added up: a queue is that of the server. The share of the cache is that
/// of the first engine.
pub(super) const VLLM: Table = Table {
    dialect: Dialect::Vllm,
    words: &[
        sum("vllm:num_requests_running", RUNNING),
        sum("vllm:num_requests_waiting", WAITING),
        same("vllm:kv_cache_usage_perc", CACHE_USED),
        same("vllm:gpu_cache_usage_perc", CACHE_USED),
        sum("vllm:request_success_total", REQUESTS),
        sum("vllm:num_preemptions_total", PREEMPTIONS),
        sum("vllm:prompt_tokens_total", PROMPT_TOKENS),
        sum("vllm:generation_tokens_total", GENERATED_TOKENS),
        sum("vllm:request_queue_time_seconds_sum", QUEUE_TIME),
        sum("vllm:e2e_request_latency_seconds_sum", REQUEST_TIME),
        sum("vllm:request_inference_time_seconds_sum", COMPUTE_TIME),
        sum("vllm:time_to_first_token_seconds_sum", FIRST_TOKEN_TIME),
        sum("vllm:time_to_first_token_seconds_count", FIRST_TOKENS),
    ],
    keys: &[(Class::Service, &["", "model_name"])],
    identity: &[Identity {
        class: Class::Service,
        info: service::INFO,
        labels: &[("engine", "=vllm")],
    }],
    node: &[],
    parts: &[],
    blank: Blank::Never,
};

/// Triton. Versions and instances of a model are added up. Its own words for GPUs are taken as well, by UUID.
pub(super) const TRITON: Table = Table {
    dialect: Dialect::Triton,
    words: &[
        sum("nv_inference_pending_request_count", WAITING),
        sum("nv_inference_request_success", REQUESTS),
        sum("nv_inference_request_failure", FAILURES),
        micros("nv_inference_queue_duration_us", QUEUE_TIME),
        micros("nv_inference_request_duration_us", REQUEST_TIME),
        micros("nv_inference_compute_infer_duration_us", COMPUTE_TIME),
        same("nv_gpu_utilization", gpu::UTILIZATION),
        same("nv_gpu_memory_used_bytes", gpu::MEMORY_USED),
        same("nv_gpu_memory_total_bytes", gpu::MEMORY_TOTAL),
        same("nv_gpu_power_usage", gpu::POWER),
        same("nv_gpu_power_limit", gpu::POWER_LIMIT),
        same("nv_energy_consumption", gpu::ENERGY),
    ],
    keys: &[(Class::Service, &["", "model"]), (Class::Gpu, &["gpu_uuid"])],
    identity: &[
        Identity { class: Class::Service, info: service::INFO, labels: &[("engine", "=triton")] },
        Identity { class: Class::Gpu, info: gpu::INFO, labels: &[("uuid", "gpu_uuid")] },
    ],
    node: &[],
    parts: &[],
    blank: Blank::Never,
};

/// text-generation-inference. It serves one model and does not name it.
pub(super) const TGI: Table = Table {
    dialect: Dialect::Tgi,
    words: &[
        same("tgi_queue_size", WAITING),
        same("tgi_batch_current_size", RUNNING),
        sum("tgi_request_count", REQUESTS),
        sum("tgi_request_failure", FAILURES),
        sum("tgi_request_input_length_sum", PROMPT_TOKENS),
        sum("tgi_request_generated_tokens_sum", GENERATED_TOKENS),
        sum("tgi_request_queue_duration_sum", QUEUE_TIME),
        sum("tgi_request_duration_sum", REQUEST_TIME),
        sum("tgi_request_inference_duration_sum", COMPUTE_TIME),
    ],
    keys: &[(Class::Service, &["", ""])],
    identity: &[Identity {
        class: Class::Service,
        info: service::INFO,
        labels: &[("engine", "=tgi")],
    }],
    node: &[],
    parts: &[],
    blank: Blank::Never,
};
