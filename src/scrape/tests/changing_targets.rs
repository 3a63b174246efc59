//! Tests of targets that appear, disappear and change at runtime: files, reloads, discovery servers, other machines.

use std::fs;

use gaunt_schema::{ScrapeTarget, TargetSource};

use super::{misbehaving_server::read_request, *};

/// A scrape manager and its last deliveries.
struct ScrapeTestRun {
    manager: ScrapeManagerHandle,
    deliveries: mpsc::Receiver<Delivery>,
    targets: Vec<ScrapeTarget>,
    sources: Vec<TargetSource>,
}

impl ScrapeTestRun {
    fn start_groups(groups: Vec<TargetGroup>) -> Self {
        let (inbox, deliveries) = mpsc::channel(64);
        let manager =
            spawn_manager(ScrapePlan { options: test_options(), groups }, inbox, test_clock());
        Self { manager, deliveries, targets: Vec::new(), sources: Vec::new() }
    }

    /// Waits until the deliveries meet the condition.
    async fn wait_until(&mut self, what: &str, condition: impl Fn(&Self, Option<&Batch>) -> bool) {
        let waiting = async {
            while let Some(delivery) = self.deliveries.recv().await {
                let mut batch = None;
                match delivery {
                    Delivery::Targets(targets) => self.targets = targets,
                    Delivery::Sources(sources) => self.sources = sources,
                    Delivery::Batch(received) => batch = Some(received),
                    _ => {}
                }
                if condition(self, batch.as_ref()) {
                    return;
                }
            }
            panic!("the gatherer ended");
        };
        let in_time = timeout(PATIENCE, waiting).await.is_ok();
        assert!(
            in_time,
            "{what}: not in time, but {:?} of {:?}",
            self.target_addresses(),
            self.sources
        );
    }

    fn target_addresses(&self) -> Vec<&str> {
        self.targets.iter().map(|target| &*target.address).collect()
    }

    fn target_id(&self, address: &str) -> Option<gaunt_schema::TargetId> {
        self.targets.iter().find(|target| target.address == address).map(|target| target.id)
    }
}

fn group_with_sources(sources: Vec<DiscoverySource>) -> TargetGroup {
    TargetGroup { sources, ..TargetGroup::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changed_files_are_read_and_reloads_confirm_removals() {
    let folder = tempfile::tempdir().unwrap();
    let (sd, list) = (folder.path().join("sd.json"), folder.path().join("targets"));
    fs::write(&sd, r#"[{"targets": ["127.0.0.1:1"]}]"#).unwrap();
    fs::write(&list, "127.0.0.1:[11-20]\n").unwrap();
    let groups = vec![group_with_sources(vec![
        DiscoverySource::List("127.0.0.1:21".into(), "--targets".into()),
        DiscoverySource::Files(sd.clone()),
        DiscoverySource::TargetsFile(list.clone()),
    ])];
    let mut run = ScrapeTestRun::start_groups(groups.clone());
    run.wait_until("all three sources", |run, _| run.targets.len() == 12).await;
    let first = run.target_id("127.0.0.1:11").unwrap();
    fs::write(&sd, r#"[{"targets": ["127.0.0.1:1", "127.0.0.1:2"]}]"#).unwrap();
    run.wait_until("the file that grew", |run, _| run.targets.len() == 13).await;
    assert_eq!(run.target_id("127.0.0.1:11"), Some(first), "who stays keeps his number");
    fs::write(&list, "").unwrap();
    let has_trouble =
        |run: &ScrapeTestRun| run.sources.iter().any(|source| source.trouble.is_some());
    run.wait_until("the guard", |run, _| has_trouble(run)).await;
    assert_eq!(run.targets.len(), 13);
    let options = test_options();
    run.manager.reload_plan(ScrapePlan { options, groups: groups.clone() }).await;
    run.wait_until("what the operator confirmed", |run, _| run.targets.len() == 3).await;
    run.wait_until("no trouble", |run, _| !has_trouble(run)).await;
    // Another plan: targets that it does not list are gone, the others stay.
    let kept_id = run.target_id("127.0.0.1:21").unwrap();
    let groups = vec![group_with_sources(vec![DiscoverySource::List(
        "127.0.0.1:21,127.0.0.1:22".into(),
        "--targets".into(),
    )])];
    run.manager.reload_plan(ScrapePlan { options: super::test_options(), groups }).await;
    run.wait_until("the new plan", |run, _| {
        run.target_addresses() == ["127.0.0.1:21", "127.0.0.1:22"]
    })
    .await;
    assert_eq!(run.target_id("127.0.0.1:21"), Some(kept_id));
}

/// A server that returns these lists one after the other, then the last one for ever; the requests that it received
/// are sent back.
async fn serve_lists(responses: Vec<String>) -> (String, mpsc::Receiver<String>) {
    use tokio::io::AsyncWriteExt as _;

    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (requests, received) = mpsc::channel(64);
    tokio::spawn(async move {
        let mut responses = responses.into_iter().peekable();
        while let Ok((mut stream, _)) = listener.accept().await {
            while let Some(head) = read_request(&mut stream).await {
                let response = match responses.len() {
                    1 => responses.peek().unwrap().clone(),
                    _ => responses.next().unwrap(),
                };
                drop(requests.try_send(head));
                if stream.write_all(response.as_bytes()).await.is_err() {
                    break;
                }
            }
        }
    });
    (address, received)
}

fn json_response(body: &str) -> String {
    format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json; charset=utf-8\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn discovery_server_lists_targets_and_its_failures_change_nothing() {
    let two = json_response(
        r#"[{"targets": ["10.255.0.1:1"], "labels": {"node": "gpu1"}}, {"targets": ["127.0.0.1:2"]}]"#,
    );
    let html = "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 2\r\n\r\n[]";
    let redirect = "HTTP/1.1 302 Found\r\nlocation: http://10.0.0.1/\r\ncontent-length: 0\r\n\r\n";
    let (address, mut requests) = serve_lists(vec![
        two.clone(),
        html.to_owned(),
        redirect.to_owned(),
        json_response("[{\"targets\": [\"10.2"),
        json_response("[]"),
        json_response(r#"[{"targets": ["10.255.0.1:1", "127.0.0.1:2", "10.255.0.3:1"]}]"#),
    ])
    .await;
    let endpoint = parse_url(&format!("http://{address}/targets?site=a")).unwrap();
    let http = HttpDiscovery {
        endpoint,
        refresh: Duration::from_millis(50),
        access: ServerAccess::default(),
    };
    let mut run =
        ScrapeTestRun::start_groups(vec![group_with_sources(vec![DiscoverySource::Http(http)])]);
    run.wait_until("the first list", |run, _| {
        run.target_addresses() == ["10.255.0.1:1", "127.0.0.1:2"]
    })
    .await;
    assert_eq!(run.targets[0].node.as_deref(), Some("gpu1"));
    assert_eq!(run.targets[0].origin, format!("http://{address}/targets?site=a").as_str());
    for trouble in
        ["not application/json", "HTTP status 302", "incomplete JSON", "disappeared from its list"]
    {
        let shows_trouble = |run: &ScrapeTestRun, _: Option<&Batch>| {
            run.sources[0].trouble.as_ref().is_some_and(|why| why.contains(trouble))
        };
        run.wait_until(trouble, shows_trouble).await;
        assert_eq!(run.targets.len(), 2, "{trouble}");
    }
    run.wait_until("a list that is right", |run, _| run.targets.len() == 3).await;
    // Targets from another machine may not be on this machine.
    run
        .wait_until("the target that is this machine", |run, batch| {
            batch.is_some_and(|batch| {
                Some(batch.target) == run.target_id("127.0.0.1:2")
                    && matches!(&batch.outcome, Err(ScrapeFailure::Forbidden(why)) if why.contains("loopback, listed by another machine"))
            })
        })
        .await;
    let head = requests.recv().await.unwrap();
    assert!(head.starts_with("get /targets?site=a http/1.1\r\n"), "{head}");
    assert!(head.contains("\r\nx-prometheus-refresh-interval-seconds: 1\r\n"), "{head}");
}

fn page_of_swapped_machine(number: u64) -> String {
    // The machine behind this address is replaced after its third page.
    let uuid = if number & 0xff <= 3 { "GPU-a" } else { "GPU-b" };
    format!("gaunt_node_cpus 64\ngaunt_gpu_info{{gpu=\"0\",uuid=\"{uuid}\"}} 1\n")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_machine_at_an_address_is_another_target() {
    let address = start_server(ServerBehaviour::Makes(page_of_swapped_machine)).await;
    let mut run =
        ScrapeTestRun::start_groups(vec![group_with_sources(vec![DiscoverySource::List(
            address.clone(),
            "test".into(),
        )])]);
    run.wait_until("the target", |run, _| run.target_id(&address).is_some()).await;
    let first = run.target_id(&address).unwrap();
    let has_page = |batch: Option<&Batch>, id| {
        batch.is_some_and(|batch| batch.outcome.is_ok() && batch.target == id)
    };
    run.wait_until("its first page", |_, batch| has_page(batch, first)).await;
    run.wait_until("another number", |run, _| run.target_id(&address) != Some(first)).await;
    assert_eq!(run.targets.len(), 1);
    let second = run.target_id(&address).unwrap();
    run.wait_until("a page of the other machine", |_, batch| has_page(batch, second)).await;
}
