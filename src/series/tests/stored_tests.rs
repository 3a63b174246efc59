//! Tests of reading back what was written to a store.

use std::time::Duration;

use gaunt_schema::{
    DeviceClass, UnixMs,
    catalogue::{gpu, port},
};

use super::{
    FROM, UNTIL, options_for,
    query_server::{QueryServer, ServerAnswer, json_answer, matrix_answer},
};
use crate::{QueryError, QueryErrorSteps, StoredSeries};

/// Two nodes, of which the second has no metrics; a pair of writers, one of which lies.
fn store_answer(request: &str) -> ServerAnswer {
    let base = r#""cluster":"hall 1","job":"gaunt","writer":"a""#;
    if request.contains("/label/node/") {
        return json_answer(r#"{"status":"success","data":["gpu2","","gpu1"]}"#);
    }
    if request.contains("gaunt_lost_gpus") {
        let values = r#"[1731400015,"3"],[1731400030,"NaN"],[1731399000,"9"],[1731400045,"5.5"]"#;
        let twice = r#"[1731400015,"4"],[1999999999,"7"],[1731400030,"x"]"#;
        let other = base.replace("\"a\"", "\"b\"");
        return matrix_answer(&[(base, values), (&other, twice)]);
    }
    let power = format!(r#""__name__":"gaunt_gpu_power_watts",{base},"node":"gpu1","gpu":"3""#);
    let bytes = format!(
        r#""__name__":"gaunt_port_receive_bytes_total",{base},"node":"gpu1","device":"mlx5_0","port":"1""#
    );
    let unknown = format!(r#""__name__":"gaunt_made_up",{base},"node":"gpu1""#);
    let not_asked = power.replace("gpu1", "gpu9");
    matrix_answer(&[
        (&power, r#"[1731400015,"410.5"],[1731400045,"NaN"],[1731400059,"420"]"#),
        (&bytes, r#"[1731400015,"1000"],[1731400045,"4000"]"#),
        (&unknown, r#"[1731400015,"1"]"#),
        (&not_asked, r#"[1731400015,"1"]"#),
    ])
}

async fn open_store(url: &str) -> StoredSeries {
    let mut options = options_for(url);
    (options.timeout, options.next_steps) = (Duration::from_millis(300), QueryErrorSteps::STORE);
    StoredSeries::open(&options, "hall 1", Some("writer".to_owned())).await.unwrap()
}

#[tokio::test]
async fn stored_series_are_pages_and_samples_within_their_time() {
    let server = QueryServer::start(store_answer).await;
    let mut stored = open_store(&server.url).await;
    let lost = stored.read_verdict("gaunt_lost_gpus", FROM, UNTIL).await.unwrap();
    let lost: Vec<_> =
        lost.iter().map(|(at, gpus)| (at.0 / 1_000 - 1_731_400_000, *gpus)).collect();
    assert_eq!(lost, [(15, 3.0), (45, 5.5)]);
    let nodes = stored.list_nodes(FROM, UNTIL).await.unwrap();
    assert_eq!(nodes, ["gpu1", "gpu2"]);
    let window = stored.read_nodes(&nodes, FROM, UNTIL).await.unwrap();
    let names: Vec<_> = window.targets.iter().map(|target| target.node.as_deref()).collect();
    assert_eq!(names, [Some("gpu1")]);
    let pages: Vec<_> = window
        .batches
        .iter()
        .map(|batch| (batch.at.0 / 1_000, batch.outcome.as_ref().unwrap()))
        .collect();
    let instants: Vec<_> = pages.iter().map(|(at, _)| at - 1_731_400_000).collect();
    assert_eq!(instants, [15, 45, 59]);
    let first = &pages[0].1.report;
    let classes: Vec<_> = first.devices.iter().map(|device| device.class).collect();
    assert!(
        classes.contains(&DeviceClass::Gpu) && classes.contains(&DeviceClass::Port),
        "{classes:?}"
    );
    let values = |metric| {
        let read = pages.iter().map(|(_, page)| {
            let found = page.report.samples.iter().find(|sample| sample.metric == metric);
            found.and_then(|sample| sample.reading.value())
        });
        read.collect::<Vec<_>>()
    };
    assert_eq!(values(gpu::POWER), [Some(410.5), None, Some(420.0)]);
    assert_eq!(values(port::RECEIVE_BYTES), [Some(1_000.0), Some(4_000.0), None]);
    for request in server.requests() {
        assert!(
            request.contains("hall+1%22") && request.contains("job%3D%22gaunt%22"),
            "{request}"
        );
    }
}

#[tokio::test]
async fn store_that_is_silent_empty_or_lying_gives_an_error_or_nothing() {
    let error = |answer: fn(&str) -> ServerAnswer| async move {
        let server = QueryServer::start(answer).await;
        let mut stored = open_store(&server.url).await;
        stored.read_nodes(&["gpu1".to_owned()], FROM, UNTIL).await
    };
    let silent = error(|_| ServerAnswer::silent()).await.unwrap_err();
    assert!(matches!(silent, QueryError::Timeout { .. }) && silent.may_pass(), "{silent}");
    let page = error(|_| ServerAnswer::new(404, "text/html", "<html>")).await.unwrap_err();
    assert!(matches!(page, QueryError::NotPrometheus { .. }) && !page.may_pass(), "{page}");
    let cut = error(|_| ServerAnswer::cut("{\"status\":")).await.unwrap_err();
    assert!(cut.may_pass(), "{cut}");
    let partial = error(|_| {
        json_answer(
            r#"{"status":"success","isPartial":true,"data":{"resultType":"matrix","result":[]}}"#,
        )
    });
    let partial = partial.await.unwrap_err();
    assert!(matches!(partial, QueryError::Partial { .. }) && partial.may_pass(), "{partial}");
    // The server is one of [store]: no error names settings of another section, or flags that do not choose it.
    let refusals = [
        error(|_| ServerAnswer::new(401, "text/plain", "no")).await.unwrap_err(),
        error(|_| ServerAnswer::new(413, "text/plain", "no")).await.unwrap_err(),
        error(|_| ServerAnswer::new(400, "application/json", r#"{"status":"error","error":"no"}"#))
            .await
            .unwrap_err(),
        silent,
    ];
    for refusal in refusals.map(|refusal| refusal.to_string()) {
        assert!(refusal.contains("store") && !refusal.contains("prometheus"), "{refusal}");
        assert!(!refusal.contains("--match"), "{refusal}");
    }
    let empty = error(|_| matrix_answer(&[])).await.unwrap();
    assert!(empty.targets.is_empty() && empty.batches.is_empty());
    let far = error(|_| {
        let labels = r#""__name__":"gaunt_gpu_power_watts","node":"gpu1","gpu":"0","job":"gaunt""#;
        matrix_answer(&[(labels, r#"[-1e300,"1"],[1e300,"2"],[1731400100,"3"]"#)])
    });
    assert!(far.await.unwrap().batches.is_empty());
    let mut none = open_store("http://127.0.0.1:9").await;
    assert!(none.list_nodes(FROM, UnixMs(FROM.0 + 1)).await.unwrap_err().may_pass());
}
