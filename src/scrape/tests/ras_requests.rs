//! Tests of requests for the status of NCCL's RAS: only scrapes of the targets that are asked have the header.

use std::sync::atomic::{AtomicBool, Ordering};

use gaunt_schema::ras_connection;

use super::{misbehaving_server::typed_response, *};

/// A server whose page has one CPU if the status is requested as well, else two.
fn count_request(head: &str) -> String {
    let is_requested = head.contains(&format!("\r\n{}: ", ras_connection::REQUEST_HEADER));
    let cpus = if is_requested { 1 } else { 2 };
    typed_response("text/plain; version=0.0.4", &format!("gaunt_node_cpus {cpus}\n"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scrape_requests_the_status_while_it_is_wanted() {
    let server = start_server(ServerBehaviour::Hears(count_request)).await;
    let is_wanted = Arc::new(AtomicBool::new(false));
    let asked = is_wanted.clone();
    let (inbox, mut deliveries) = mpsc::channel(64);
    let _manager = spawn_manager_with_requests(
        plan_with_lists([server], test_options()),
        inbox,
        test_clock(),
        Arc::new(move |_| asked.load(Ordering::Relaxed)),
    );
    let collect = async {
        // Each answer changes what is wanted next.
        for (cpus, next) in [(2.0, true), (1.0, false), (2.0, false)] {
            loop {
                let Some(Delivery::Batch(batch)) = deliveries.recv().await else { continue };
                if batch.outcome.is_ok() && cpu_count(page_of(&batch)) == Some(cpus) {
                    is_wanted.store(next, Ordering::Relaxed);
                    break;
                }
            }
        }
    };
    timeout(PATIENCE, collect).await.expect("each scrape follows what is wanted");
}
