//! The past of a real Prometheus and a real VictoriaMetrics, judged like the pages that were scraped.

#![expect(clippy::unwrap_used, reason = "what fails in here fails the test that called it")]

use std::{
    fmt::Write as _,
    fs,
    io::{Read as _, Write as _},
    net::TcpStream,
    path::Path,
    process::Command,
    sync::LazyLock,
};

use crate::{
    binaries::program_path,
    foreign_recordings::judge_with,
    foreign_site::{BAD_CABLE, ForeignSite, START_MS, bad_link_activity, slow_clock_activity},
    test_process::{
        DEADLINE, RunToEnd as _, TestProcess, debian_program, free_port, get, run_gaunt,
        start_victoria, wait_for,
    },
};

/// Length of the recordings, in seconds.
pub(crate) const SECONDS: i64 = 480;

/// A sample: name and labels, milliseconds, value.
pub(crate) type Sample = (String, i64, String);

/// Records two halls: in the first a GPU is slow and a node ends, in the second a cable is bad.
fn record_halls(folder: &Path) -> [std::path::PathBuf; 2] {
    let halls = ["hall-1", "hall-2"].map(|hall| folder.join(hall));
    let slow = ForeignSite {
        nodes: vec!["r07-c12", "r07-c14", "r08-c01", "r08-c03"],
        gpus: 4,
        period: 15,
        job: Some("llm.sweep-0044"),
        profiled: false,
        model: "NVIDIA A100-SXM4-40GB",
    };
    slow.write_recording(&halls[0], SECONDS, |second, node, gpu| {
        slow_clock_activity(second, (node, gpu) == (3, 2))
    });
    // A node of the job ends at last: both of its exporters are down.
    for target in ["r07-c14-dcgm", "r07-c14-node"] {
        for entry in fs::read_dir(halls[0].join(target)).unwrap() {
            let path = entry.unwrap().path();
            let at: i64 = path.file_stem().unwrap().to_str().unwrap().parse().unwrap();
            if at >= START_MS + 400_000 {
                fs::write(path, "").unwrap();
            }
        }
    }
    ForeignSite::of_one_job().write_recording(&halls[1], SECONDS, |second, node, _| {
        bad_link_activity(second, (node == 2).then_some(BAD_CABLE))
    });
    halls
}

/// The samples that a Prometheus stores of these pages: with the labels of the target, where a label of the page that
/// the target has too is renamed.
fn stored_samples(halls: &[std::path::PathBuf]) -> Vec<Sample> {
    let mut samples = Vec::new();
    for hall in halls {
        let cluster = hall.file_name().unwrap().to_str().unwrap();
        for target in fs::read_dir(hall).unwrap() {
            let target = target.unwrap().path();
            let name = target.file_name().unwrap().to_str().unwrap();
            let job = name.rsplit('-').next().unwrap();
            let added = format!(
                "cluster=\"{cluster}\",instance=\"{name}\",job=\"{job}\",hpc_job=\"of the exporter\""
            );
            for page in fs::read_dir(&target).unwrap() {
                let page = page.unwrap().path();
                let at: i64 = page.file_stem().unwrap().to_str().unwrap().parse().unwrap();
                let text = fs::read_to_string(&page).unwrap();
                let up = if text.is_empty() { "0" } else { "1" };
                samples.push((format!("up{{{added}}}"), at, up.to_owned()));
                samples.push((
                    format!("scrape_duration_seconds{{{added}}}"),
                    at,
                    "0.02".to_owned(),
                ));
                for line in text.lines().filter(|line| !line.starts_with('#')) {
                    let (series, value) = line.rsplit_once(' ').unwrap();
                    let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
                    let labels = labels.strip_suffix('}').unwrap();
                    let labels = labels.replace("hpc_job=", "exported_hpc_job=");
                    let comma = if labels.is_empty() { "" } else { "," };
                    samples.push((
                        format!("{name}{{{labels}{comma}{added}}}"),
                        at,
                        value.to_owned(),
                    ));
                }
            }
        }
    }
    // Each series in order of time.
    samples.sort_unstable();
    samples
}

/// The halls, where they are, and what a Prometheus stores of them.
pub(crate) struct RecordedHalls {
    _folder: tempfile::TempDir,
    halls: [std::path::PathBuf; 2],
    pub(crate) samples: Vec<Sample>,
}

pub(crate) static HALLS: LazyLock<RecordedHalls> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    let halls = record_halls(folder.path());
    RecordedHalls { samples: stored_samples(&halls), halls, _folder: folder }
});

/// A server that is ended when it is dropped, with its folder.
pub(crate) struct PastServer {
    pub(crate) url: String,
    _process: TestProcess,
    _folder: tempfile::TempDir,
}

/// Starts a Prometheus with these samples in its past.
pub(crate) fn start_prometheus(samples: &[Sample]) -> PastServer {
    let folder = tempfile::tempdir().unwrap();
    let mut text = String::new();
    for (series, at, value) in samples {
        writeln!(text, "{series} {value} {}.{:03}", at / 1_000, at % 1_000).unwrap();
    }
    let (file, data) = (folder.path().join("samples"), folder.path().join("data"));
    fs::write(&file, text + "# EOF\n").unwrap();
    let blocks = debian_program("promtool")
        // Few blocks for samples of months: each is synchronised.
        .args(["tsdb", "create-blocks-from", "--max-block-duration=720h", "openmetrics"])
        .args([&file, &data])
        .run_to_end();
    assert!(blocks.status.success(), "{blocks:?}");
    let config = folder.path().join("prometheus.yml");
    fs::write(&config, "scrape_configs: []\n").unwrap();
    let address = format!("127.0.0.1:{}", free_port());
    let process = TestProcess::start_command(
        debian_program("prometheus")
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", data.display()))
            .arg("--storage.tsdb.retention.time=100y")
            .arg(format!("--web.listen-address={address}")),
    );
    wait_for("Prometheus", || get(&address, "/-/ready").filter(|(status, _)| *status == 200));
    PastServer { url: format!("http://{address}"), _process: process, _folder: folder }
}

/// Starts a VictoriaMetrics with these samples in its past, each of them twice as in a cluster with two copies.
pub(crate) fn start_victoria_metrics(samples: &[Sample]) -> PastServer {
    let folder = tempfile::tempdir().unwrap();
    let address = format!("127.0.0.1:{}", free_port());
    let process = start_victoria(folder.path(), &address, &["-retentionPeriod=100y"]);
    let mut text = String::new();
    for (series, at, value) in samples {
        writeln!(text, "{series} {value} {at}").unwrap();
    }
    for _ in 0..2 {
        assert_eq!(post(&address, "/api/v1/import/prometheus", &text), 204);
    }
    get(&address, "/internal/force_flush").unwrap();
    PastServer { url: format!("http://{address}"), _process: process, _folder: folder }
}

/// The status of one POST.
fn post(address: &str, path: &str, body: &str) -> u16 {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    let length = body.len();
    write!(
        stream,
        "POST {path} HTTP/1.0\r\nHost: {address}\r\nContent-Length: {length}\r\n\r\n{body}"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.split(' ').nth(1).unwrap().parse().unwrap()
}

/// The end of the recordings in the format of `--at`.
fn end_of_recordings() -> String {
    let end = gaunt_schema::UnixMs(START_MS + (SECONDS + 16) * 1_000);
    end.to_rfc3339()
}

/// Asserts that the past of a server has the findings of the pages.
fn check_same_findings(server: &PastServer) {
    let end = end_of_recordings();
    for (hall, expected) in HALLS.halls.iter().zip(["compute_straggler", "link_errors"]) {
        let scraped = judge_with(&["--from", hall.to_str().unwrap()]);
        assert!(scraped.iter().any(|finding| finding.0 == expected), "{scraped:?}");
        let cluster = hall.file_name().unwrap().to_str().unwrap();
        let matchers = format!("cluster=\"{cluster}\"");
        let past =
            ["--prometheus", &server.url, "--at", &end, "--span", "9m", "--match", &matchers];
        assert_eq!(judge_with(&past), scraped, "{cluster}");
    }
    let both = judge_with(&["--prometheus", &server.url, "--at", &end, "--span", "9m"]);
    for kind in ["compute_straggler", "link_errors", "target_down"] {
        assert!(both.iter().any(|finding| finding.0 == kind), "{kind}: {both:?}");
    }
}

#[test]
fn past_of_prometheus_has_the_findings_of_the_pages() {
    let server = start_prometheus(&HALLS.samples);
    check_same_findings(&server);
    // Its chunks were read, and no series was queried.
    let (_, metrics) = get(server.url.trim_start_matches("http://"), "/metrics").unwrap();
    let requests = |handler: &str| -> f64 {
        let of_handler = |line: &&str| {
            line.starts_with("prometheus_http_requests_total{") && line.contains(handler)
        };
        let counts = metrics.lines().filter(of_handler);
        counts.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum()
    };
    assert!(requests("handler=\"/api/v1/read\"") >= 9.0, "{metrics}");
    assert!(requests("handler=\"/api/v1/query\"") <= 0.0, "{metrics}");
    let end = end_of_recordings();
    let matchers = "cluster=\"hall-2\"";
    let past = ["--prometheus", &server.url, "--at", &end, "--span", "9m", "--match", matchers];
    check_recorded_and_explained(&past);
    check_words_of_errors(&server.url, &end);
}

/// The same span is recorded, and its findings are explained.
fn check_recorded_and_explained(past: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().join("recording").display().to_string();
    let recorded = run_gaunt(&[&["record", "--to", &to], past].concat());
    let said = String::from_utf8_lossy(&recorded.stderr);
    assert_eq!(recorded.status.code(), Some(0), "{said}");
    // Six targets each 15 s for 8 minutes, and their list.
    assert!(said.contains("recorded 193 deliveries"), "{said}");
    assert_eq!(judge_with(&["--from", &to]), judge_with(past));
    // Without a terminal a replay prints what is at its end; what it read is deleted.
    let temporary = folder.path().to_str().unwrap();
    let mut replay = Command::new(program_path("gaunt"));
    let replayed = replay.arg("replay").args(past).env("TMPDIR", temporary).run_to_end();
    let shown = String::from_utf8_lossy(&replayed.stdout);
    assert!(shown.contains("link_errors") && shown.contains("hgx03"), "{replayed:?}");
    let left: Vec<_> = fs::read_dir(temporary).unwrap().map(|it| it.unwrap().file_name()).collect();
    assert_eq!(left, ["recording"]);
    let explained = run_gaunt(&[&["explain", "link_errors"], past].concat());
    let text = String::from_utf8_lossy(&explained.stdout);
    assert!(text.contains("hgx03") && text.contains("symbol"), "{text}");
}

/// What cannot be read is named with the next step.
fn check_words_of_errors(url: &str, end: &str) {
    let error_of = |args: &[&str]| {
        let output = run_gaunt(args);
        assert_eq!(output.status.code(), Some(3), "{args:?}: {output:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let judge = |more: &[&str]| error_of(&[&["judge", "--prometheus", url], more].concat());
    let later = judge(&["--span", "5m"]);
    assert!(later.contains("has no series that gaunt reads: none of"), "{later}");
    let other = judge(&["--at", end, "--match", "cluster=\"hall-9\""]);
    assert!(other.contains("with cluster=\"hall-9\": none of"), "{other}");
    let open = judge(&["--at", end, "--match", "cluster=\"hall-9"]);
    assert!(open.contains("a quote is not closed"), "{open}");
    let operator = judge(&["--at", end, "--match", "cluster=*"]);
    assert!(
        operator.contains("HTTP status 400") && operator.contains("check --match"),
        "{operator}"
    );
    let future = judge(&["--at", "2199-01-01"]);
    assert!(future.contains("--at is in the future"), "{future}");
    let below = error_of(&["judge", "--prometheus", &format!("{url}/graph")]);
    assert!(below.contains("not a Prometheus API"), "{below}");
    let both = error_of(&["snapshot", "--prometheus", url, "--targets", "a"]);
    assert!(both.contains("cannot be used with"), "{both}");
    let neither = error_of(&["judge"]);
    assert!(neither.contains("--from") && neither.contains("--prometheus"), "{neither}");
}

#[test]
fn past_of_victoria_metrics_has_the_findings_of_the_pages() {
    check_same_findings(&start_victoria_metrics(&HALLS.samples));
}
