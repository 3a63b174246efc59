//! Tests of the collector on folders of logs, with its clock in the test.

use std::{fs::File, io::Write as _};

use gaunt_schema::Reading;

use super::{collective_window::WINDOW, *};

/// A folder of logs on the host `ash.example.org`, and its collector.
struct LogFixture {
    folder: tempfile::TempDir,
    collector: InspectorLogCollector,
    processes: watch::Sender<Arc<ProcessGpus>>,
    now: Instant,
}

impl LogFixture {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let kernel = folder.path().join("proc/sys/kernel");
        fs::create_dir_all(&kernel).unwrap();
        fs::write(kernel.join("hostname"), "ash.example.org\n").unwrap();
        fs::create_dir(folder.path().join("logs")).unwrap();
        let options =
            SamplerOptions { proc_root: folder.path().join("proc"), ..SamplerOptions::default() };
        let (processes, receiver) = watch::channel(Arc::default());
        let collector = InspectorLogCollector::new(&folder.path().join("logs"), &options, receiver);
        Self { folder, collector, processes, now: Instant::now() }
    }

    fn append(&self, name: &str, text: &str) {
        let path = self.folder.path().join("logs").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let mut file = File::options().append(true).create(true).open(path).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }

    /// Makes these processes run on these GPUs.
    fn place_processes(&self, places: &[(u32, u32)]) {
        let mut report = Report::default();
        for (pid, gpu) in places {
            report.ensure_device(Device::new_gpu_part(DeviceClass::Process, *gpu, *pid));
        }
        self.processes.send_replace(Arc::new(ProcessGpus::of_report(&report)));
    }

    /// The collectives after so much time, as `GPU|collective|rank|job|seconds`, and the outcome as text.
    fn collect_after(&mut self, time: Duration) -> (Vec<String>, String) {
        self.now += time;
        let mut report = Report::default();
        let outcome = match self.collector.collect_at(self.now, &mut report) {
            Ok(CollectOutcome::Found) => String::new(),
            Ok(CollectOutcome::FoundThat { message, .. } | CollectOutcome::Nothing(message)) => {
                message
            }
            Ok(CollectOutcome::Pending(message)) => message,
            Err(error) => error.to_string(),
        };
        let show = |index: usize| {
            let device = &report.devices[index];
            let info = report.infos.iter().find(|info| info.device == index as u32).unwrap();
            let label = |name: &str| {
                let found = info.labels.iter().find(|(label, _)| label == name);
                found.map(|(_, value)| value.to_string()).unwrap_or_default()
            };
            let seconds =
                report.find_reading(device, collective::DURATION).and_then(Reading::value);
            let (rank, job) = (label("rank"), label("job"));
            format!("{}|{}|{rank}|{job}|{}", device.key[0], device.key[1], seconds.unwrap())
        };
        ((0..report.devices.len()).map(show).collect(), outcome)
    }
}

/// A dump of format v4.3 with operations that take so many microseconds.
fn dump(pid: u32, rank: u32, microseconds: &[u32]) -> String {
    let count = microseconds.len();
    let head = format!(
        r#"{{"header":{{"id":"0x7f","comm_name":"dp","rank":{rank},"n_ranks":4,"nnodes":2}},"metadata":{{"inspector_output_format_version":"v4.3","hostname":"ash","pid":{pid}}},"dump_stats":{{"coll_records":{count},"p2p_records":0}}}}"#
    );
    let operations = microseconds.iter().map(|it| {
        format!(
            r#"{{"coll_perf":{{"coll":"AllReduce","coll_algo":"RING","coll_proto":"LL","coll_sn":1,"coll_msg_size_bytes":4194304,"coll_exec_time_us":{it},"coll_timing_source":"kernel_gpu","coll_algobw_gbs":2.0,"coll_busbw_gbs":3.0}}}}"#
        )
    });
    let lines: Vec<String> = std::iter::once(head).chain(operations).collect();
    lines.join("\n") + "\n"
}

#[test]
fn operations_of_a_window_are_averaged_and_named_for_the_gpu_of_their_process() {
    let mut fixture = LogFixture::new();
    fixture.place_processes(&[(40, 6), (41, 7)]);
    fixture.append("nccl-inspector-8812/ash-pid40.log", &dump(40, 2, &[4_000, 6_000]));
    fixture.append("nccl-inspector-8812/ash-pid41.log", &dump(41, 3, &[1_000]));
    let second = Duration::from_secs(1);
    assert_eq!(fixture.collect_after(second), (Vec::new(), String::new()), "the window goes on");
    fixture.append("nccl-inspector-8812/ash-pid41.log", &dump(41, 3, &[2_000]));
    let expected = [
        "6|dp 0x7f AllReduce 4-5MB RING_LL 4|2|8812|0.005",
        "7|dp 0x7f AllReduce 4-5MB RING_LL 4|3|8812|0.0015",
    ];
    let (collectives, outcome) = fixture.collect_after(WINDOW);
    assert_eq!((collectives.as_slice(), outcome.as_str()), (&expected.map(String::from)[..], ""));
    // They stay until another window has operations, and not for ever.
    assert_eq!(fixture.collect_after(WINDOW).0, expected);
    assert_eq!(fixture.collect_after(inspector_file::VALID).0, [""; 0]);
}

#[test]
fn processes_without_a_single_gpu_are_left_out_and_told() {
    let mut fixture = LogFixture::new();
    fixture.place_processes(&[(40, 6), (41, 0), (41, 1)]);
    for (pid, rank) in [(40, 0), (41, 1), (42, 2)] {
        fixture.append(&format!("ash-pid{pid}.log"), &dump(pid, rank, &[500]));
    }
    fixture.collect_after(Duration::ZERO);
    let (collectives, outcome) = fixture.collect_after(WINDOW);
    assert_eq!(collectives, ["6|dp 0x7f AllReduce 4-5MB RING_LL 4|0||0.0005"]);
    let expected = "collectives are left out of 2 processes that run on no known GPU or on several (process 41)";
    assert_eq!(outcome, expected);
}

#[test]
fn logs_of_other_hosts_and_broken_ones_are_told() {
    let mut fixture = LogFixture::new();
    fixture.append("pod-7-pid1.log", &dump(1, 0, &[500]));
    fixture.append("job.log", "NCCL INFO\n");
    let (_, outcome) = fixture.collect_after(Duration::ZERO);
    assert!(outcome.contains("; logs of other host names are not read"), "{outcome}");
    fixture.append("ash-pid40.log", "no record\n");
    fixture.append("ash-pid40.log", &dump(40, 0, &[500]));
    fixture.place_processes(&[(40, 6)]);
    let (_, outcome) = fixture.collect_after(SEARCH_EVERY);
    assert!(outcome.starts_with("ash-pid40.log: not a record of NCCL's inspector"), "{outcome}");
    assert_eq!(fixture.collect_after(WINDOW).0.len(), 1, "the rest of it is read");
    fs::remove_dir_all(fixture.folder.path().join("logs")).unwrap();
    let (_, outcome) = fixture.collect_after(SEARCH_EVERY);
    assert!(outcome.contains("check that it exists"), "{outcome}");
}
