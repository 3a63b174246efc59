//! Tests of text and OpenMetrics: what is requested first, the content type of the response, and the fallback of a
//! target with invalid OpenMetrics.

use super::{misbehaving_server::typed_response, *};

/// The content type of OpenMetrics.
const OPEN: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Batches of a server that is asked for OpenMetrics first, or for text first.
async fn collect_batches(
    behaviour: ServerBehaviour,
    open_metrics: bool,
    batches: usize,
) -> Vec<Batch> {
    let sources = vec![DiscoverySource::List(start_server(behaviour).await, "test".into())];
    let group = TargetGroup { sources, open_metrics, ..TargetGroup::default() };
    let (inbox, mut deliveries) = mpsc::channel(64);
    let _manager = spawn_manager(
        ScrapePlan { options: test_options(), groups: vec![group] },
        inbox,
        test_clock(),
    );
    let mut collected = Vec::new();
    let collect = async {
        while collected.len() < batches {
            match deliveries.recv().await.expect("the gatherer runs") {
                Delivery::Batch(batch) if !matches!(batch.outcome, Err(ScrapeFailure::Skipped)) => {
                    collected.push(batch);
                }
                _ => {}
            }
        }
    };
    timeout(PATIENCE, collect).await.expect("a batch in every period");
    collected
}

/// The part of the page that shows in which format it came.
fn page_marker(batch: &Batch) -> u32 {
    cpu_count(page_of(batch)).expect("the page has it") as u32
}

/// A server with both formats, which responds with the preferred one.
fn negotiate_format(head: &str) -> String {
    let (_, accept) = head.split_once("\r\naccept: ").expect("it is asked for something");
    let entries = accept.lines().next().unwrap_or_default().split(',');
    let mut media_types = entries.map(|entry| entry.split(';').next().unwrap_or_default().trim());
    match media_types.find(|media| *media != "application/vnd.gaunt.frame").unwrap_or_default() {
        "application/openmetrics-text" => typed_response(
            OPEN,
            "# TYPE gaunt_node_cpus gauge\ngaunt_node_cpus 2 1520879607.789\n# EOF\n",
        ),
        "text/plain" => {
            typed_response("text/plain; version=0.0.4", "gaunt_node_cpus 1 1520879607789\n")
        }
        other => panic!("{other:?} is asked for"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn format_is_the_one_that_the_group_prefers() {
    assert_eq!(
        page_marker(&collect_batches(ServerBehaviour::Hears(negotiate_format), false, 1).await[0]),
        1
    );
    assert_eq!(
        page_marker(&collect_batches(ServerBehaviour::Hears(negotiate_format), true, 1).await[0]),
        2
    );
}

/// A server that always responds with OpenMetrics is parsed as such: half a page is rejected, where text would be
/// accepted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn page_with_openmetrics_content_type_is_parsed_as_openmetrics() {
    let complete = ServerBehaviour::Answers(typed_response(OPEN, "gaunt_node_cpus 3\n# EOF\n"));
    assert_eq!(page_marker(&collect_batches(complete, false, 1).await[0]), 3);
    let truncated = ServerBehaviour::Answers(typed_response(OPEN, "gaunt_node_cpus 3\n"));
    for batch in collect_batches(truncated, false, 2).await {
        let failure = batch.outcome.expect_err("half a page");
        assert!(failure.to_string().contains("no `# EOF` at the end"), "{failure}");
    }
}

/// A server whose client library gives a gauge and a counter one family name, as the Go client's own metrics do.
fn answer_faulty_openmetrics(head: &str) -> String {
    if head.contains("openmetrics") {
        let page = "# TYPE go_memstats_alloc_bytes gauge\ngo_memstats_alloc_bytes 1.8e+07\n\
                    # TYPE go_memstats_alloc_bytes counter\ngo_memstats_alloc_bytes_total 8.5e+08\n\
                    gaunt_node_cpus 4\n# EOF\n";
        return typed_response(OPEN, page);
    }
    typed_response("text/plain", "gaunt_node_cpus 5\n")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn target_with_invalid_openmetrics_is_asked_for_text_without_losing_a_page() {
    for batch in collect_batches(ServerBehaviour::Hears(answer_faulty_openmetrics), true, 3).await {
        assert_eq!(page_marker(&batch), 5);
    }
}
