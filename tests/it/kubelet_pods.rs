//! Pod names from a fake kubelet that serves gRPC over HTTP/2 on a unix socket as the real one does.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says where")]

use std::{
    convert::Infallible,
    fs,
    os::unix::net::UnixListener as Listener,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use gaunt_schema::{
    Device, DeviceClass, Reading, Report,
    catalogue::{gpu, gpu_parts as parts},
};
use http_body_util::{BodyExt, Full, combinators::BoxBody};
use hyper::{
    HeaderMap, Request, Response,
    body::{Bytes, Incoming},
    header::HeaderValue,
    server::conn::http2,
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tokio::{net::UnixListener, runtime, sync::watch};

use crate::{
    gpu_sampling::{FakeDriverSampler, info_labels, read_scenario},
    node_program::{collector_message, collector_success, expect_reading, wait_until},
};

/// The answer of the kubelet.
#[derive(Clone)]
enum KubeletAnswer {
    /// Each container's namespace, pod, name and devices.
    Pods(Vec<(&'static str, &'static str, &'static str, Vec<&'static str>)>),
    /// An error: its status and message.
    Refusal(&'static str, &'static str),
    /// Nothing until another answer is set.
    NoAnswer,
}

/// Besides devices the kubelet reports memory, CPUs and dynamic resources.
#[derive(Clone, PartialEq, Message)]
struct PodContainer {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, repeated, tag = "2")]
    devices: Vec<PodDevices>,
    #[prost(int64, repeated, tag = "3")]
    cpu_ids: Vec<i64>,
    #[prost(message, repeated, tag = "5")]
    dynamic_resources: Vec<PodDevices>,
}

#[derive(Clone, PartialEq, Message)]
struct PodDevices {
    #[prost(string, tag = "1")]
    resource: String,
    #[prost(string, repeated, tag = "2")]
    ids: Vec<String>,
    #[prost(message, optional, tag = "3")]
    topology: Option<NumaTopology>,
}

#[derive(Clone, PartialEq, Message)]
struct NumaTopology {
    #[prost(int64, repeated, tag = "1")]
    nodes: Vec<i64>,
}

#[derive(Clone, PartialEq, Message)]
struct KubeletPod {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    namespace: String,
    #[prost(message, repeated, tag = "3")]
    containers: Vec<PodContainer>,
}

#[derive(Clone, PartialEq, Message)]
struct PodList {
    #[prost(message, repeated, tag = "1")]
    pods: Vec<KubeletPod>,
}

fn pod_list(pods: Vec<(&str, &str, &str, Vec<&str>)>) -> PodList {
    let pod = |(namespace, name, container, ids): (&str, &str, &str, Vec<&str>)| {
        let devices = PodDevices {
            resource: "nvidia.com/gpu".to_owned(),
            ids: ids.into_iter().map(str::to_owned).collect(),
            topology: Some(NumaTopology { nodes: vec![1] }),
        };
        let container = PodContainer {
            name: container.to_owned(),
            devices: vec![devices.clone()],
            cpu_ids: vec![4, 5, 6],
            dynamic_resources: vec![devices],
        };
        let containers =
            vec![container, PodContainer { name: "sidecar".to_owned(), ..PodContainer::default() }];
        KubeletPod { name: name.to_owned(), namespace: namespace.to_owned(), containers }
    };
    PodList { pods: pods.into_iter().map(pod).collect() }
}

/// A kubelet that runs for the duration of its test.
struct FakeKubelet {
    socket: PathBuf,
    answer_sender: watch::Sender<KubeletAnswer>,
    /// The number of requests so far.
    requests: Arc<AtomicUsize>,
}

impl FakeKubelet {
    fn start_kubelet(folder: &Path, first: KubeletAnswer) -> Self {
        let socket = folder.join("kubelet.sock");
        let listener = Listener::bind(&socket).unwrap();
        listener.set_nonblocking(true).unwrap();
        let (answer_sender, answer_receiver) = watch::channel(first);
        let requests = Arc::new(AtomicUsize::new(0));
        let request_count = Arc::clone(&requests);
        thread::spawn(move || {
            let runtime = runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = UnixListener::from_std(listener).unwrap();
                while let Ok((stream, _)) = listener.accept().await {
                    let answers = answer_receiver.clone();
                    let request_count = Arc::clone(&request_count);
                    let answer = service_fn(move |request| {
                        request_count.fetch_add(1, Ordering::Relaxed);
                        handle_request(request, answers.clone())
                    });
                    let server = http2::Builder::new(TokioExecutor::new());
                    tokio::spawn(server.serve_connection(TokioIo::new(stream), answer));
                }
            });
        });
        Self { socket, answer_sender, requests }
    }

    fn set_answer(&self, answer: KubeletAnswer) {
        self.answer_sender.send_replace(answer);
    }
}

async fn handle_request(
    request: Request<Incoming>,
    mut answers: watch::Receiver<KubeletAnswer>,
) -> Result<Response<BoxBody<Bytes, Infallible>>, hyper::Error> {
    assert_eq!(request.uri().path(), "/v1.PodResourcesLister/List");
    assert_eq!(
        (request.method().as_str(), &request.headers()["te"]),
        ("POST", &HeaderValue::from_static("trailers"))
    );
    assert_eq!(request.headers()["content-type"], "application/grpc");
    // An empty message, prefixed by the compression flag and its length.
    assert_eq!(*request.into_body().collect().await?.to_bytes(), [0; 5]);
    let is_answer = |answer: &KubeletAnswer| !matches!(answer, KubeletAnswer::NoAnswer);
    let answer = answers.wait_for(is_answer).await.map(|answer| KubeletAnswer::clone(&answer));
    let mut status = HeaderMap::new();
    let body = match answer {
        // The test has ended.
        Ok(KubeletAnswer::NoAnswer) | Err(_) => std::future::pending().await,
        Ok(KubeletAnswer::Refusal(code, message)) => {
            status.insert("grpc-message", HeaderValue::from_static(message));
            status.insert("grpc-status", HeaderValue::from_static(code));
            let mut refusal = Response::new(Full::default().boxed());
            refusal.headers_mut().extend(status);
            return Ok(refusal);
        }
        Ok(KubeletAnswer::Pods(pods)) => {
            let message = pod_list(pods).encode_to_vec();
            let mut body = vec![0];
            body.extend((message.len() as u32).to_be_bytes());
            body.extend(message);
            body
        }
    };
    status.insert("grpc-status", HeaderValue::from_static("0"));
    let body = Full::from(body).with_trailers(async move { Some(Ok(status)) });
    let mut answer = Response::new(body.boxed());
    answer.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
    Ok(answer)
}

const UID: &str = "8b1e2f6c-0d3a-4c55-9e0b-7a6f5d4c3b2a";

/// A node with two GPUs, the second with two MIG instances, and a pod's process on the second.
fn start_node(socket: impl FnOnce(&Path) -> PathBuf) -> FakeDriverSampler {
    FakeDriverSampler::start_scenario(&read_scenario("full.toml"), |options, folder| {
        let process = folder.join("proc/4712");
        fs::create_dir_all(&process).unwrap();
        let id = "4f5a1c9e2b7d8f6031aa4f5a1c9e2b7d8f6031aa4f5a1c9e2b7d8f6031aabbcc";
        fs::write(process.join("cgroup"), format!("0::/kubepods/burstable/pod{UID}/{id}\n"))
            .unwrap();
        fs::write(process.join("comm"), "trainer\n").unwrap();
        options.proc_root = folder.join("proc");
        options.kubelet = socket(folder);
    })
}

fn job_labels(report: &Report, number: u32) -> Option<Vec<String>> {
    let device = Device::new_gpu(number);
    let index = report.devices.iter().position(|other| *other == device)? as u32;
    let has =
        |info: &gaunt_schema::InfoSeries| info.device == index && info.metric == gpu::JOB_INFO;
    report.infos.iter().any(has).then(|| info_labels(report, &device, gpu::JOB_INFO))
}

#[test]
fn pods_have_names_where_the_kubelet_lists_them() {
    let mut kubelet = None;
    let node = start_node(|folder| {
        let pods = vec![
            ("ml", "llama-0", "trainer", vec!["GPU-b0"]),
            ("ml", "sweep-3", "main", vec!["MIG-c0"]),
            ("web", "chat-1", "server", vec!["MIG-c1", "rdma0"]),
        ];
        kubelet.insert(FakeKubelet::start_kubelet(folder, KubeletAnswer::Pods(pods))).socket.clone()
    });
    let report = node.wait_for_report("the names", |report| {
        job_labels(report, 0).is_some() && job_labels(report, 1).is_some()
    });
    let expected =
        ["job=ml/llama-0", "namespace=ml", "pod=llama-0", "container=trainer", "source=kubernetes"];
    assert_eq!(
        job_labels(&report, 0).unwrap(),
        expected,
        "a pod holds it, though nobody runs on it"
    );
    let mig = |number| {
        info_labels(&report, &Device::new_gpu_part(DeviceClass::Mig, 1, number), parts::MIG_INFO)
    };
    assert_eq!(mig(0)[4..], ["namespace=ml", "pod=sweep-3", "container=main"]);
    assert_eq!(mig(1)[4..], ["namespace=web", "pod=chat-1", "container=server"]);
    // Two pods share the second GPU, and it is unknown which of them owns the process.
    assert_eq!(job_labels(&report, 1).unwrap()[0], "name=ml/sweep-3, web/chat-1");
    assert_eq!(
        collector_message(&report, "kubelet"),
        "pods with GPUs: 3; allocated GPUs and MIG instances: 3"
    );

    let both = vec![("web", "chat-1", "server", vec!["MIG-c0", "MIG-c1"])];
    kubelet.unwrap().set_answer(KubeletAnswer::Pods(both));
    let named =
        |report: &Report| job_labels(report, 1).is_some_and(|job| job[0] == "job=web/chat-1");
    let report = node.wait_for_report("the new pods", named);
    let uid = format!("pod_uid={UID}");
    let pod_labels = ["namespace=web", "pod=chat-1", "container=server", &uid, "source=kubernetes"];
    assert_eq!(job_labels(&report, 1).unwrap()[1..], pod_labels);
    let process = Device::new_gpu_part(DeviceClass::Process, 1, 4712);
    let labels = info_labels(&report, &process, parts::PROCESS_INFO);
    assert_eq!((&*labels[0], &labels[1..]), ("name=trainer", &pod_labels.map(str::to_owned)[..]));
    assert_eq!(job_labels(&report, 0), None, "given back");
}

#[test]
fn hung_kubelet_costs_only_the_pod_names() {
    let mut kubelet = None;
    let node = start_node(|folder| {
        kubelet.insert(FakeKubelet::start_kubelet(folder, KubeletAnswer::NoAnswer)).socket.clone()
    });
    let flagged = node
        .wait_for_report("the flag", |report| collector_success(report, "kubelet") == Some(0.0));
    let message = collector_message(&flagged, "kubelet");
    assert!(
        message.contains("kubelet.sock: no answer within 3 s; pods are shown by UID"),
        "{message}"
    );
    let uid = format!("job={UID}");
    let is_complete = |report: &Report| {
        job_labels(report, 1).is_some_and(|job| job[0] == uid)
            && collector_success(report, "nvml") == Some(1.0)
    };
    let first = node.wait_for_report("the rest", is_complete);
    assert_eq!(expect_reading(&first, &Device::new_gpu(0), gpu::POWER), Reading::of(300.0));
    // Reports keep their period while the next request hangs too: five of them.
    let kubelet = kubelet.unwrap();
    wait_until("the next request", || kubelet.requests.load(Ordering::Relaxed) >= 2);
    let hanging_since = node.latest_report().node_time.unwrap();
    let later = node.wait_for_report("more ticks", |report| {
        report.node_time.unwrap().duration_since(hanging_since) >= Duration::from_secs(1)
    });
    assert_eq!(collector_success(&later, "kubelet"), Some(0.0));
    kubelet.set_answer(KubeletAnswer::Pods(vec![("ml", "llama-0", "trainer", vec!["GPU-b0"])]));
    node.wait_for_report("its return", |report| {
        collector_success(report, "kubelet") == Some(1.0) && job_labels(report, 0).is_some()
    });
}

#[test]
fn missing_or_refusing_kubelet_is_reported_with_the_reason() {
    let absent = start_node(|folder| folder.join("kubelet.sock"));
    let refusal = KubeletAnswer::Refusal("12", "unknown service v1.PodResourcesLister");
    let mut kubelet = None;
    let refused = start_node(|folder| {
        kubelet.insert(FakeKubelet::start_kubelet(folder, refusal)).socket.clone()
    });
    // Another server listens, and closes connections that are not HTTP/2.
    let not_http = start_node(|folder| {
        let socket = folder.join("kubelet.sock");
        let listener = Listener::bind(&socket).unwrap();
        thread::spawn(move || {
            for stream in listener.incoming() {
                drop(std::io::Write::write_all(&mut stream.unwrap(), b"220 mail ready\r\n"));
            }
        });
        socket
    });

    let report =
        absent.wait_for_report("a word", |report| collector_success(report, "kubelet").is_some());
    assert_eq!(
        collector_success(&report, "kubelet"),
        Some(1.0),
        "that there is none is no failure"
    );
    let message = collector_message(&report, "kubelet");
    assert!(
        message.starts_with("no kubelet: ") && message.ends_with("kubelet.sock does not exist"),
        "{message}"
    );

    let report = refused
        .wait_for_report("the refusal", |report| collector_success(report, "kubelet") == Some(0.0));
    let message = collector_message(&report, "kubelet");
    let expected =
        "rejected: unknown service v1.PodResourcesLister (gRPC status 12); pods are shown by UID";
    assert!(message.contains(expected), "{message}");

    let report = not_http
        .wait_for_report("the break", |report| collector_success(report, "kubelet") == Some(0.0));
    let message = collector_message(&report, "kubelet");
    assert!(message.contains("kubelet.sock: the connection broke: "), "{message}");
}
