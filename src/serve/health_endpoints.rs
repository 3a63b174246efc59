//! Health endpoints for probes, and an index page for people.

use axum::{
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Response},
};

use super::api_responses::unavailable_response;
use crate::answer_source::AnswerSource;
use gaunt_api::{Answer, Question, TargetState};

const INDEX: &str = "\
gaunt aggregator

/metrics                      fleet metrics for Prometheus
/node/NAME/metrics            metrics of one node, as last scraped
/sd/http                      targets for Prometheus's HTTP service discovery; ?through=aggregator lists the pages above
/api/gaunt/v1/overview        summary of the fleet, JSON
/api/gaunt/v1/nodes           every node, worst first, JSON
/api/gaunt/v1/nodes/NAME      one node in full, JSON
/api/gaunt/v1/gpus            GPUs as columns: ?filter=job=8812 and power>300W sort power desc limit 20
/api/gaunt/v1/jobs            jobs as columns; /jobs/NUMBER is one job with its GPUs
/api/gaunt/v1/ports           RDMA ports as columns
/api/gaunt/v1/fabric          matrix of leaves and rails
/api/gaunt/v1/findings        open findings, worst first, JSON
/api/gaunt/v1/findings/ID     one finding, open or closed, with all its evidence
                              POST …/ID/acknowledge acknowledges it, DELETE withdraws that
/api/gaunt/v1/closed          closed findings, newest first, JSON
/api/gaunt/v1/gpu_time        GPU states by job, and lost GPU time by job and cause
/api/gaunt/v1/targets         targets and the result of their last scrape, JSON
/api/gaunt/v1/table/SUBJECT   nodes, findings or targets as columns
/api/gaunt/v1/history         one metric over time: ?metric=power&filter=node=NAME and gpu=0
/api/gaunt/v1/usage           GPU time and energy by job, model and state: ?last=15m
/api/gaunt/v1/alerts          alerts of findings in Alertmanager
/api/gaunt/v1/coverage        checks of the telemetry, as in `gaunt doctor`
/api/gaunt/v1/probe           measurements of probes between nodes, and suspects
/api/gaunt/v1/stream          any answer above and its changes, as a stream: ?ask=overview
/api/gaunt/v1/recording       pages of all targets, for `gaunt record --aggregator`
/api/gaunt/v1/openapi.json    OpenAPI description of this API
/healthz                      200 while the process lives
/readyz                       200 once every target was tried
";

pub(super) async fn handle_index() -> &'static str {
    INDEX
}

pub(super) async fn handle_not_found() -> (StatusCode, &'static str) {
    (StatusCode::NOT_FOUND, "not found; / lists all paths\n")
}

pub(super) async fn handle_healthz() -> &'static str {
    "alive\n"
}

/// Ready once every target was tried: before that, a missing node means nothing.
pub(super) async fn handle_readyz(State(source): State<AnswerSource>) -> Response {
    match source.ask_question(Question::Targets).await {
        Ok(Answer::Targets(list)) => {
            let total = list.targets.len();
            let pending =
                list.targets.iter().filter(|line| line.state == TargetState::Pending).count();
            if pending > 0 {
                let why = format!("not ready: {pending} of {total} targets not tried yet\n");
                (StatusCode::SERVICE_UNAVAILABLE, why).into_response()
            } else if total == 0 {
                (StatusCode::SERVICE_UNAVAILABLE, "not ready: no targets announced yet\n")
                    .into_response()
            } else {
                // A stopped recording is no reason to route elsewhere: it is only reported.
                let recording_trouble =
                    list.keeping.as_ref().and_then(|status| status.trouble.as_ref());
                let recording_trouble =
                    recording_trouble.map_or_else(String::new, |trouble| format!("{trouble}\n"));
                format!("ready: {total} of {total} targets tried\n{recording_trouble}")
                    .into_response()
            }
        }
        Ok(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        Err(error) => unavailable_response(&error),
    }
}

#[cfg(test)]
mod tests {
    use axum::body::to_bytes;
    use gaunt_schema::{Batch, Delivery, ScrapeFailure, ScrapeTarget, TargetId};

    use super::*;

    async fn ask_readyz(source: &AnswerSource) -> (u16, String) {
        let response = handle_readyz(State(source.clone())).await;
        let status = response.status().as_u16();
        let body = to_bytes(response.into_body(), 1024).await.unwrap();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    /// The response once the engine has ingested its inbox: questions overtake deliveries.
    async fn await_readyz(source: &AnswerSource, expected: (u16, &str)) {
        let end = std::time::Instant::now() + std::time::Duration::from_secs(10);
        loop {
            let last = ask_readyz(source).await;
            if (last.0, last.1.as_str()) == expected {
                return;
            }
            assert!(std::time::Instant::now() < end, "{last:?} instead of {expected:?}");
            tokio::task::yield_now().await;
        }
    }

    #[test]
    fn index_lists_every_path_of_the_api() {
        for (path, ..) in gaunt_api::PATHS {
            let name = path.split('/').next().unwrap();
            assert!(INDEX.contains(&format!("/api/gaunt/v1/{name}")), "{name}");
        }
    }

    #[tokio::test]
    async fn server_is_ready_once_every_target_was_tried() {
        let clock = gaunt_engine::monotonic_clock();
        let engine = gaunt_engine::spawn_new(gaunt_engine::EngineOptions::default(), clock.clone());
        let source = AnswerSource::Engine(engine.clone());
        await_readyz(&source, (503, "not ready: no targets announced yet\n")).await;
        let target = ScrapeTarget {
            id: TargetId(0),
            address: "a:1".into(),
            node: None,
            origin: "test".into(),
        };
        engine.delivery_sender().send(Delivery::Targets(vec![target])).await.unwrap();
        await_readyz(&source, (503, "not ready: 1 of 1 targets not tried yet\n")).await;
        let batch = Batch {
            target: TargetId(0),
            at: clock(),
            duration_ms: 1.0,
            outcome: Err(ScrapeFailure::Status(500)),
        };
        engine.delivery_sender().send(Delivery::Batch(batch)).await.unwrap();
        await_readyz(&source, (200, "ready: 1 of 1 targets tried\n")).await;
    }
}
