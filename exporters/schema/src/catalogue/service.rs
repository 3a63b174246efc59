//! Metrics of model servers: their queue lengths and their throughput.

use super::{Metric, rows, switch_port};
use crate::{
    DeviceClass::Service,
    unit::{CounterWidth::Bits64, Unit},
};

rows! {
    from switch_port::END;
    INFO, "What serves the model: vllm, triton or tgi.",
        Metric::new_info_series("gaunt_service_info", Service, &["engine"]).with_rare_changes();
    RUNNING, "Requests in the batches that run at this moment.",
        Metric::new_gauge("gaunt_service_running_requests", Service, Unit::Count, 1.0).with_history();
    WAITING, "Requests that wait in the queue at this moment.",
        Metric::new_gauge("gaunt_service_waiting_requests", Service, Unit::Count, 1.0).with_history();
    CACHE_USED, "Share of the key-value cache that is in use.",
        Metric::new_gauge("gaunt_service_cache_used_ratio", Service, Unit::Ratio, 0.01).with_history();
    REQUESTS, "Requests answered, whatever the answer.",
        Metric::new_counter("gaunt_service_requests_total", Service, Unit::Count, Bits64).with_history();
    FAILURES, "Requests that failed or were aborted.",
        Metric::new_counter("gaunt_service_failed_requests_total", Service, Unit::Count, Bits64);
    PREEMPTIONS, "Requests that were stopped half-way because the cache was full.",
        Metric::new_counter("gaunt_service_preemptions_total", Service, Unit::Count, Bits64);
    PROMPT_TOKENS, "Tokens of prompts that were processed.",
        Metric::new_counter("gaunt_service_prompt_tokens_total", Service, Unit::Count, Bits64).with_history();
    GENERATED_TOKENS, "Tokens that were generated.",
        Metric::new_counter("gaunt_service_generated_tokens_total", Service, Unit::Count, Bits64).with_history();
    QUEUE_TIME, "Time that requests waited in the queue, summed over all of them.",
        Metric::new_counter("gaunt_service_queue_time_seconds_total", Service, Unit::Seconds, Bits64);
    REQUEST_TIME, "Time from request to answer, summed over all of them.",
        Metric::new_counter("gaunt_service_request_time_seconds_total", Service, Unit::Seconds, Bits64).with_history();
    COMPUTE_TIME, "Time in which requests were computed, summed over all of them.",
        Metric::new_counter("gaunt_service_compute_time_seconds_total", Service, Unit::Seconds, Bits64);
    FIRST_TOKEN_TIME, "Time from request to first token, summed over all first tokens.",
        Metric::new_counter("gaunt_service_first_token_time_seconds_total", Service, Unit::Seconds, Bits64).with_history();
    FIRST_TOKENS, "First tokens of an answer.",
        Metric::new_counter("gaunt_service_first_tokens_total", Service, Unit::Count, Bits64);
}
