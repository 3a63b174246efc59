//! Tests of the reader against servers that answer well, badly or not at all.

use std::time::Duration;

use gaunt_schema::{Dialect, ScrapeFailure, UnixMs};

use crate::{QueryError, SeriesOptions, SeriesReader, SeriesWindow};

mod feed_tests;
mod query_server;
mod rare_tests;
mod receiver_tests;
mod remote_read_tests;
mod stored_tests;

use query_server::{QueryServer, ServerAnswer, json_answer, matrix_answer};

const FROM: UnixMs = UnixMs(1_731_400_000_000);
const UNTIL: UnixMs = UnixMs(1_731_400_060_000);

const NAMES: &str = r#"{"status":"success","data":["DCGM_FI_DEV_GPU_UTIL","go_goroutines","node_uname_info","up"]}"#;

/// The options for a server, with a short deadline.
fn options_for(url: &str) -> SeriesOptions {
    let timeout = Duration::from_secs(20);
    SeriesOptions { timeout, ..SeriesOptions::with_url(url.to_owned()) }
}

/// Reads the window from a server with this behaviour.
async fn read_with(
    options: impl FnOnce(&mut SeriesOptions),
    answer: impl Fn(&str) -> ServerAnswer + Send + Sync + 'static,
) -> Result<SeriesWindow, QueryError> {
    let server = QueryServer::start(answer).await;
    let mut series = options_for(&server.url);
    options(&mut series);
    SeriesReader::open(&series).await?.read_window(FROM, UNTIL).await
}

/// The message of the error from a server that answers everything like this, with its address as URL.
async fn error_of(answer: fn() -> ServerAnswer) -> String {
    let server = QueryServer::start(move |_| answer()).await;
    let reader = SeriesReader::open(&options_for(&server.url)).await;
    let error = reader.unwrap().read_window(FROM, UNTIL).await.unwrap_err();
    error.to_string().replace(&server.url, "URL")
}

/// A healthy server with one dcgm-exporter that is scraped at 15 s and 30 s, and down at 45 s.
fn healthy_answer(request: &str) -> ServerAnswer {
    let target = r#""job":"dcgm","instance":"gpu1:9400","pod":"exporter""#;
    if request.contains("/label/") {
        return json_answer(NAMES);
    }
    if request.contains("%22up%22") {
        let values = r#"[1731400015,"1"],[1731400030,"1"],[1731400045,"0"]"#;
        return matrix_answer(&[(&format!(r#""__name__":"up",{target}"#), values)]);
    }
    if request.contains("scrape_duration") {
        let labels = format!(r#""__name__":"scrape_duration_seconds",{target}"#);
        return matrix_answer(&[(&labels, r#"[1731400015,"0.25"],[1731400030,"x"]"#)]);
    }
    let labels = |gpu: u8| {
        format!(
            r#""__name__":"DCGM_FI_DEV_GPU_UTIL","gpu":"{gpu}","Hostname":"gpu1","exported_pod":"train",{target}"#
        )
    };
    matrix_answer(&[
        // Each sample twice, as from two copies; the second GPU has ended at 30 s.
        (&labels(1), r#"[1731400015,"50"],[1731400015,"50"],[1731400030,"60"],[1731400030,"60"]"#),
        (&labels(0), r#"[1731400000,"1"],[1731400015,"97"],[1731400030,"NaN"],[1731400099,"2"]"#),
    ])
}

#[tokio::test]
async fn pages_of_a_window_are_those_that_were_scraped() {
    let window = read_with(|_| {}, healthy_answer).await.unwrap();
    assert_eq!(window.targets.len(), 1);
    assert_eq!(window.targets[0].address.as_str(), "gpu1:9400");
    let [first, second, third] = window.batches.as_slice() else { panic!("{window:?}") };
    let page = |batch: &gaunt_schema::Batch| {
        let page = batch.outcome.clone().unwrap();
        (page.dialect, page.report.node.clone().unwrap().to_string(), page.report.samples.len())
    };
    assert_eq!(
        (first.at, first.duration_ms.to_string()),
        (UnixMs(1_731_400_015_000), "250".into())
    );
    assert_eq!(page(first), (Dialect::Dcgm, "gpu1".to_owned(), 2));
    assert_eq!(second.at, UnixMs(1_731_400_030_000));
    assert_eq!(
        page(second),
        (Dialect::Dcgm, "gpu1".to_owned(), 1),
        "what has ended is gone, not 0"
    );
    let Err(ScrapeFailure::ReportedDown(server)) = &third.outcome else { panic!("{third:?}") };
    assert!(server.starts_with("http://127.0.0.1:"));
    assert_eq!(window.scrape_period(), Duration::from_secs(15));
    assert_eq!((window.load.queries, window.load.samples), (3, 3 + 2 + 8));
}

#[tokio::test]
async fn answer_that_is_no_prometheus_names_the_address_that_is_expected() {
    let html = || ServerAnswer::new(200, "text/html", "<html>Grafana</html>");
    assert_eq!(
        error_of(html).await,
        "URL: not a Prometheus API: a web page came instead of JSON; the address must be the one below which \
         /api/v1/query is, such as http://HOST:9090 or http://HOST/prometheus"
    );
    let missing = || ServerAnswer::new(404, "text/plain", "404 page not found\n");
    let error = error_of(missing).await;
    assert!(error.starts_with("URL: not a Prometheus API: HTTP status 404: 404 page"), "{error}");
    let redirect = || ServerAnswer::new(302, "text/html", "<a href=/login>Found</a>");
    assert!(error_of(redirect).await.contains("HTTP status 302; "));
    let path = || ServerAnswer::new(400, "text/plain", "unsupported path requested: \"/x\"");
    assert!(error_of(path).await.contains("not a Prometheus API: HTTP status 400: unsupported"));
    let other =
        || json_answer(r#"{"status":"success","data":{"resultType":"vector","result":[]}}"#);
    let error = error_of(other).await;
    assert!(error.contains("the answer cannot be read"), "{error}");
}

#[tokio::test]
async fn refusals_name_the_next_step() {
    let unauthorized = || ServerAnswer::new(401, "text/plain", "no org id");
    assert_eq!(
        error_of(unauthorized).await,
        "URL: HTTP status 401: no org id; set bearer_file, basic or tenant in [prometheus]"
    );
    let limited = || {
        ServerAnswer::new(
            429,
            "application/json",
            r#"{"status":"error","error":"slow down\u001b[2J"}"#,
        )
    };
    let error = error_of(limited).await;
    assert!(
        error.contains("HTTP status 429: slow down") && error.contains("again later"),
        "{error}"
    );
    let refused = || {
        let text = r#"{"status":"error","errorType":"bad_data","error":"parse error: unexpected"}"#;
        ServerAnswer::new(400, "application/json", text)
    };
    let error = error_of(refused).await;
    assert!(error.contains("HTTP status 400: parse error: unexpected; check --match"), "{error}");
    let partial = || json_answer(r#"{"status":"success","isPartial":true,"data":[]}"#);
    assert!(error_of(partial).await.contains("the answer is partial; none of it is used"));
    let warned = || json_answer(r#"{"status":"success","data":[],"warnings":["store a is away"]}"#);
    assert!(error_of(warned).await.contains("the answer is partial: store a is away; "));
}

#[tokio::test]
async fn broken_answers_are_refused_whole() {
    let half = || ServerAnswer::cut(r#"{"status":"success","data":["DCGM_FI_DEV_GPU_UTIL"#);
    assert!(error_of(half).await.contains("the connection ended in the middle of it"));
    let invalid = || json_answer(r#"{"status":"success","data":["DCGM_FI"#);
    assert!(error_of(invalid).await.contains("cannot be read: incomplete JSON"));
    let gzip = || ServerAnswer { encoding: Some("gzip"), ..json_answer("no gzip") };
    assert!(error_of(gzip).await.contains("gzip compression is damaged"));
    let failed = || json_answer(r#"{"status":"error","error":"storage is closed"}"#);
    assert!(error_of(failed).await.contains("its status is an error: storage is closed"));
    let nothing = || ServerAnswer::cut("");
    assert!(error_of(nothing).await.starts_with("URL: "));
}

#[tokio::test]
async fn silent_server_is_given_up_after_the_deadline() {
    let slow = |_: &str| ServerAnswer::silent();
    let error = read_with(|options| options.timeout = Duration::from_millis(200), slow).await;
    let error = error.unwrap_err().to_string();
    assert!(error.contains("no answer within 200ms; narrow the query with --match"), "{error}");
    let closed = options_for("http://127.0.0.1:1");
    let mut reader = SeriesReader::open(&closed).await.unwrap();
    let error = reader.read_window(FROM, UNTIL).await.unwrap_err().to_string();
    assert!(error.contains("Connection refused"), "{error}");
}

#[tokio::test]
async fn empty_results_say_what_was_looked_for() {
    let none = |_: &str| json_answer(r#"{"status":"success","data":["go_goroutines"]}"#);
    let matched = |options: &mut SeriesOptions| options.selector = "cluster=\"x\"".to_owned();
    let error = read_with(matched, none).await.unwrap_err().to_string();
    assert!(
        error.contains("has no series that gaunt reads with cluster=\"x\": none of "),
        "{error}"
    );
    assert!(error.contains("DCGM_FI_DEV_GPU_UTIL") && error.contains("check --match"), "{error}");
    assert!(error.contains("After a start of the server, wait for its first scrape"), "{error}");
    let no_up = |request: &str| {
        if request.contains("/label/") { json_answer(NAMES) } else { matrix_answer(&[]) }
    };
    let error = read_with(|_| {}, no_up).await.unwrap_err().to_string();
    assert!(error.contains("has no sample of up in this time"), "{error}");
    assert!(error.contains("After a start of the server, wait for its first scrape"), "{error}");
}

#[tokio::test]
async fn query_beyond_a_limit_of_the_server_is_split() {
    let limited = |request: &str| {
        let is_both = request.contains("DCGM_FI_DEV_GPU_UTIL%7Cnode_uname_info");
        if is_both {
            let text = r#"{"status":"error","errorType":"execution","error":"query processing would load too many samples into memory"}"#;
            return ServerAnswer::new(422, "application/json", text);
        }
        healthy_answer(request)
    };
    let window = read_with(|_| {}, limited).await.unwrap();
    assert_eq!(window.batches.len(), 3);
    assert_eq!(window.load.queries, 5, "up, durations, both names, and one after the other");
    let never = |request: &str| {
        if request.contains("DCGM_FI") {
            return ServerAnswer::new(503, "text/plain", "query timed out");
        }
        healthy_answer(request)
    };
    let error = read_with(|_| {}, never).await.unwrap_err().to_string();
    assert!(error.contains("one query is too large: query timed out; narrow it"), "{error}");
}

#[tokio::test]
async fn large_answers_and_many_samples_are_refused() {
    let error = read_with(|options| options.max_body = 100, healthy_answer).await.unwrap_err();
    assert!(error.to_string().contains("larger than the limit of 100 bytes"), "{error}");
    let error = read_with(|options| options.max_samples = 4, healthy_answer).await.unwrap_err();
    assert!(error.to_string().contains("more than 4 samples in one refresh"), "{error}");
    let bomb = |request: &str| {
        let zeros = vec![b' '; 1 << 20];
        let answer = healthy_answer(request);
        ServerAnswer { encoding: Some("gzip"), body: query_server::gzip_bytes(&zeros), ..answer }
    };
    let error = read_with(|options| options.max_body = 1 << 16, bomb).await.unwrap_err();
    assert!(error.to_string().contains("larger than the limit of 65536 bytes"), "{error}");
}

/// Instants, values and labels that no server should send: nothing of them becomes a sample.
#[tokio::test]
async fn lying_server_gets_no_sample_in() {
    let lying = |request: &str| {
        if request.contains("/label/") {
            return json_answer(NAMES);
        }
        let target = r#""job":"dcgm","instance":"gpu1:9400""#;
        let up = format!(r#""__name__":"up",{target}"#);
        let instants =
            r#"[-1e300,"1"],[1e300,"1"],[1731400015,"1"],[1731400015,"1"],[1731400030,"maybe"]"#;
        if request.contains("%22up%22") {
            return matrix_answer(&[(&up, instants)]);
        }
        let name = r#""__name__":"DCGM_FI_DEV_GPU_UTIL""#;
        matrix_answer(&[
            (&format!(r#"{name},"gpu":"0",{target}"#), r#"[1731400015,"1 2"],[1e300,"5"]"#),
            (&format!(r#"{name},"gpu x":"0",{target}"#), r#"[1731400015,"5"]"#),
            (&format!(r#""__name__":"a b","gpu":"0",{target}"#), r#"[1731400015,"5"]"#),
            (&format!(r#"{name},"gpu":"1","instance":"other""#), r#"[1731400015,"5"]"#),
            (&format!(r#"{name},"gpu":"2\n\"}} 7",{target}"#), r#"[1731400015,"5"]"#),
        ])
    };
    let window = read_with(|_| {}, lying).await.unwrap();
    let [batch] = window.batches.as_slice() else { panic!("{:?}", window.batches) };
    let page = batch.outcome.as_ref().unwrap();
    let gpus: Vec<String> =
        page.report.devices.iter().map(|device| format!("{:?}", device.key)).collect();
    assert_eq!(gpus.len(), 1, "only the last series is one: {gpus:?}");
    assert!(gpus[0].contains('7'), "{gpus:?}");
}

#[tokio::test]
async fn tenant_and_matchers_are_sent() {
    let server = QueryServer::start(healthy_answer).await;
    let mut options = options_for(&format!("{}/prometheus/api/v1/", server.url));
    options.tenant = Some((crate::TENANT_HEADER.to_owned(), "team-a".to_owned()));
    options.selector = "cluster=\"hall-1\"".to_owned();
    SeriesReader::open(&options).await.unwrap().read_window(FROM, UNTIL).await.unwrap();
    for request in server.requests() {
        assert!(request.to_ascii_lowercase().contains("x-scope-orgid: team-a"), "{request}");
        assert!(request.contains("cluster%3D%22hall-1%22"), "{request}");
        assert!(request.contains(" /prometheus/api/v1/"), "{request}");
    }
    for invalid in ["gpu1:9090", "http://u:p@a", "ftp://a", "http://a?x=1", ""] {
        let error = SeriesReader::open(&options_for(invalid)).await.unwrap_err();
        assert!(matches!(error, QueryError::Address(_)), "{invalid}: {error}");
        assert!(!error.to_string().contains("u:p"), "{error}");
    }
}
