//! Pages of gaunt-node: their formats, names of other exporters besides gaunt's, and settings that change.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says where")]

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    path::Path,
    process::Command,
};

use flate2::read::GzDecoder;
use gaunt_schema::{Device, catalogue::gpu, text};
use rustix::process::Signal;

use crate::{
    binaries::{fake_driver, program_path},
    node_program::{expect_reading, fixture_path},
    prometheus_scrape,
    test_process::{DEADLINE, TestProcess, check_with_promtool, free_port, wait_for},
};

mod disabled_collectors;
mod golden_page;
mod node_exporter_parity;

/// gaunt-node over the fixture trees, with eight GPUs of the fake driver.
fn eight_gpu_command() -> Command {
    let mut command = node_command(&fixture_path("sysroot/sys"));
    command.env("GAUNT_FAKE_DRIVER", fixture_path("scenarios/eight.toml"));
    command
}

/// gaunt-node over a device tree, on a port that it chooses.
fn node_command(sys: &Path) -> Command {
    let mut command = Command::new(program_path("gaunt-node"));
    command
        .args(["--listen", "127.0.0.1:0", "--node", "gpu-0417", "--sys-root"])
        .arg(sys)
        .arg("--proc-root")
        .arg(fixture_path("sysroot/proc"))
        .arg("--nvml-library")
        .arg(fake_driver());
    command
}

/// Head and body of one GET with these headers, each line with its end; none while the server does not answer.
fn fetch_response(address: &str, path: &str, headers: &str) -> Option<(String, Vec<u8>)> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n{headers}\r\n").ok()?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).ok()?;
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n")?;
    let body = answer.split_off(end + 4);
    Some((String::from_utf8(answer).unwrap(), body))
}

/// A text page that contains `wanted`.
fn wait_for_page(address: &str, wanted: &str) -> String {
    wait_for(wanted, || {
        let (_, body) = fetch_response(address, "/metrics", "")?;
        String::from_utf8(body).ok().filter(|page| page.contains(wanted))
    })
}

#[test]
fn page_has_the_form_that_the_client_accepts() {
    let node = TestProcess::start_command(&mut eight_gpu_command());
    let address = node.served_address();
    wait_for_page(&address, "gaunt_gpu_power_watts{gpu=\"7\"}");
    let accept = "Accept: application/openmetrics-text;version=1.0.0,text/plain;q=0.5\r\n";
    for (headers, form, gzip) in [
        ("", text::ExpositionFormat::Text, false),
        ("Accept: text/plain\r\nAccept-Encoding: br\r\n", text::ExpositionFormat::Text, false),
        ("Accept-Encoding: gzip, deflate\r\n", text::ExpositionFormat::Text, true),
        (accept, text::ExpositionFormat::OpenMetrics, false),
        (&format!("{accept}accept-encoding: gzip\r\n"), text::ExpositionFormat::OpenMetrics, true),
    ] {
        let (head, body) = fetch_response(&address, "/metrics", headers).unwrap();
        let content = format!("content-type: {}\r\n", form.content_type());
        assert!(head.contains(&content), "{headers}: {head}");
        assert!(head.contains("vary: accept, accept-encoding, x-gaunt-frame\r\n"), "{head}");
        assert_eq!(head.contains("content-encoding: gzip\r\n"), gzip, "{headers}: {head}");
        let mut page = String::new();
        if gzip {
            GzDecoder::new(&*body).read_to_string(&mut page).unwrap();
            assert!(body.len() * 3 < page.len(), "{} of {} bytes", body.len(), page.len());
        } else {
            page = String::from_utf8(body).unwrap();
        }
        assert!(page.contains("\ngaunt_gpu_power_watts{gpu=\"7\"} 620.078\n"), "{headers}: {page}");
        let has_eof = page.ends_with("\n# EOF\n");
        assert_eq!(has_eof, form == text::ExpositionFormat::OpenMetrics, "{headers}: {page}");
    }
}

#[test]
fn promtool_has_nothing_to_say_about_a_native_page() {
    let node = TestProcess::start_command(&mut eight_gpu_command());
    check_with_promtool(&wait_for_page(&node.served_address(), "gaunt_gpu_power_watts{gpu=\"7\"}"));
}

/// The metrics of Grafana dashboard 12239 for GPU 1, with dcgm-exporter's values for the scenario.
const DASHBOARD: [(&str, f64); 6] = [
    ("DCGM_FI_DEV_GPU_TEMP", 62.0),
    ("DCGM_FI_DEV_POWER_USAGE", 613.412),
    ("DCGM_FI_DEV_SM_CLOCK", 1965.0),
    ("DCGM_FI_DEV_GPU_UTIL", 91.0),
    ("DCGM_FI_DEV_FB_USED", 62464.0),
    ("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", 0.41),
];

/// The metrics that public rules and efficiency dashboards need in addition.
const RULES: [(&str, f64); 38] = [
    ("DCGM_FI_DEV_XID_ERRORS", 0.0),
    ("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", 101.0),
    ("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", 201.0),
    ("DCGM_FI_DEV_ECC_SBE_AGG_TOTAL", 301.0),
    ("DCGM_FI_DEV_ECC_DBE_AGG_TOTAL", 401.0),
    ("DCGM_FI_DEV_ROW_REMAP_FAILURE", 0.0),
    ("DCGM_FI_DEV_ROW_REMAP_PENDING", 1.0),
    ("DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", 21.0),
    ("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", 31.0),
    ("DCGM_FI_DEV_RETIRED_SBE", 1.0),
    ("DCGM_FI_DEV_RETIRED_DBE", 11.0),
    ("DCGM_FI_DEV_RETIRED_PENDING", 1.0),
    ("DCGM_FI_DEV_MEMORY_TEMP", 71.0),
    ("DCGM_FI_DEV_MEM_CLOCK", 2601.0),
    ("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", 1001.0),
    ("DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", 3.0),
    ("DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL", 2.0),
    ("DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL", 1.0),
    ("DCGM_FI_DEV_POWER_VIOLATION", 1_500_000_001.0),
    ("DCGM_FI_DEV_THERMAL_VIOLATION", 2_500_000_001.0),
    ("DCGM_FI_DEV_ENC_UTIL", 1.0),
    ("DCGM_FI_DEV_DEC_UTIL", 11.0),
    ("DCGM_FI_DEV_FB_RESERVED", 600.0),
    ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", 0.81),
    ("DCGM_FI_PROF_SM_ACTIVE", 0.61),
    ("DCGM_FI_PROF_SM_OCCUPANCY", 0.26),
    ("DCGM_FI_PROF_DRAM_ACTIVE", 0.36),
    ("DCGM_FI_PROF_PIPE_FP16_ACTIVE", 0.04),
    ("DCGM_FI_PROF_PCIE_TX_BYTES", 1_049_624_576.0),
    ("DCGM_FI_PROF_PCIE_RX_BYTES", 2_098_200_576.0),
    ("DCGM_FI_PROF_NVLINK_TX_BYTES", 41_944_088_576.0),
    ("DCGM_FI_PROF_NVLINK_RX_BYTES", 31_458_328_576.0),
    ("DCGM_FI_DEV_MEM_COPY_UTIL", 41.0),
    ("DCGM_FI_DEV_FB_FREE", 18855.0),
    ("DCGM_FI_DEV_FB_TOTAL", 81920.0),
    ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", 9_876_544_210_001.0),
    ("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", 2.0),
    ("DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", 2.0),
];

#[test]
fn prometheus_reads_open_metrics_and_the_names_of_other_exporters() {
    let native = TestProcess::start_command(&mut eight_gpu_command());
    let compat = TestProcess::start_command(eight_gpu_command().args(["--compat", "dcgm,node"]));
    let (native, compat) = (native.served_address(), compat.served_address());
    for address in [&native, &compat] {
        wait_for_page(address, "gaunt_gpu_power_watts{gpu=\"7\"}");
    }
    let job = |name, address| {
        format!("- {{job_name: {name}, static_configs: [{{targets: ['{address}']}}]}}\n")
    };
    let jobs = [job("native", &native), job("compat", &compat)].concat();
    let (prometheus, _running) = prometheus_scrape::start_prometheus(&jobs);
    wait_for("both targets are up", || {
        (prometheus_scrape::query_instant(&prometheus, "up == 1").len() == 2).then_some(())
    });
    let value =
        |expression: &str| prometheus_scrape::query_value(&prometheus, expression).to_string();
    // Prometheus requests OpenMetrics and rejects the whole page if a line of it is wrong.
    let lines = |address| {
        wait_for_page(address, "").lines().filter(|l| !l.starts_with('#')).count().to_string()
    };
    assert_eq!(value("scrape_samples_scraped{job=\"native\"}"), lines(&native));
    assert_eq!(value("scrape_samples_scraped{job=\"compat\"}"), lines(&compat));
    assert_eq!(value("gaunt_gpu_power_watts{job=\"native\",gpu=\"1\"}"), "613.412");

    // As the dashboard queries: by scrape target and GPU.
    for (name, expected) in DASHBOARD.iter().chain(&RULES) {
        let query = format!("{name}{{instance=~\"{compat}\", gpu=~\"1\"}}");
        assert_eq!(value(&query), expected.to_string(), "{name}");
        assert_eq!(value(&format!("count({name})")), "8", "{name}: of the compatible page alone");
    }
    let found = prometheus_scrape::query_instant(&prometheus, "DCGM_FI_DEV_GPU_UTIL{gpu=\"1\"}");
    let mut labels = found[0].0.clone();
    labels.retain(|name, _| !["__name__", "instance", "job"].contains(&name.as_str()));
    let labels: Vec<_> = labels.iter().map(|(name, value)| (&**name, &**value)).collect();
    assert_eq!(
        labels,
        [
            ("DCGM_FI_DRIVER_VERSION", "570.124.06"),
            ("Hostname", "gpu-0417"),
            ("UUID", "GPU-5f0c1d2e-0000-4000-8000-000000000001"),
            ("device", "nvidia1"),
            ("gpu", "1"),
            ("hostname", "gpu-0417"),
            ("modelName", "NVIDIA H100 80GB HBM3"),
            ("pci_bus_id", "00000000:3B:00.0"),
        ]
    );
    let (_, metadata) = fetch_response(&prometheus, "/api/v1/metadata", "").unwrap();
    let metadata = String::from_utf8(metadata).unwrap();
    assert!(metadata.contains("\"gaunt_gpu_energy_joules\":[{\"type\":\"counter\""), "{metadata}");
    assert!(metadata.contains("\"unit\":\"joules\""), "{metadata}");
}

#[test]
fn gaunt_reads_a_compatible_page_as_it_reads_a_native_one() {
    let node = TestProcess::start_command(eight_gpu_command().args(["--compat", "dcgm,node"]));
    let page = wait_for_page(&node.served_address(), "gaunt_gpu_power_watts{gpu=\"7\"}");
    assert!(page.contains("\nDCGM_FI_DEV_POWER_USAGE{gpu=\"7\","), "{page}");
    assert!(page.contains("\nnode_infiniband_state_id{device=\"mlx5_0\""), "{page}");
    let page = text::decode_page(page.as_bytes(), &text::PageLimits::default()).unwrap();
    assert_eq!(page.rejected.total_count(), 0, "{:?}", page.rejected);
    let gpu_infos = page.report.infos.iter().filter(|info| info.metric == gpu::INFO).count();
    assert_eq!((gpu_infos, page.report.node.as_deref()), (8, Some("gpu-0417")));
    assert_eq!(
        expect_reading(&page.report, &Device::new_gpu(1), gpu::POWER).value(),
        Some(613.412)
    );
}

#[test]
fn settings_are_reloaded_and_invalid_ones_change_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("node.toml");
    let write = |text: &str| fs::write(&config, text).unwrap();
    let (first, second) = (free_port(), free_port());
    write(&format!("listen = \"127.0.0.1:{first}\"\nnode = \"a\"\n"));
    let mut command = Command::new(program_path("gaunt-node"));
    command.args(["--nvml-library", "libgaunt-absent.so.1", "--config"]).arg(&config);
    let node = TestProcess::start_command(&mut command);
    let address = node.served_address();
    assert!(
        !wait_for_page(&address, "gaunt_node_info{node=\"a\"").contains("# TYPE node_infiniband")
    );

    write("nodes = \"b\"\n");
    node.send_signal(Signal::HUP);
    let refused = node.line_with("settings not reloaded, the previous settings stay in effect");
    assert!(refused.contains("node.toml:1: unknown field \"nodes\"; known: "), "{refused}");
    let page = wait_for_page(&address, "gaunt_collector_success{collector=\"settings\"} 0");
    assert!(page.contains("gaunt_node_info{node=\"a\""), "{page}");
    let message = "message=\"not reloaded, the previous settings stay in effect: ";
    assert!(
        page.contains(message) && page.contains(r#"node.toml:1: unknown field \"nodes\""#),
        "{page}"
    );

    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken_address = listener.local_addr().unwrap();
    write(&format!("listen = \"{taken_address}\"\nnode = \"b\"\n"));
    node.send_signal(Signal::HUP);
    let refused = node.line_with("settings not reloaded");
    assert!(
        refused.contains(&format!("cannot listen on {taken_address}: address in use")),
        "{refused}"
    );
    wait_for_page(&address, "gaunt_node_info{node=\"a\"");

    write(&format!("listen = \"127.0.0.1:{second}\"\nnode = \"b\"\ncompat = [\"dcgm\"]\n"));
    node.send_signal(Signal::HUP);
    node.line_with("settings reloaded");
    let second = format!("127.0.0.1:{second}");
    wait_for_page(&second, "gaunt_node_info{node=\"b\"");
    wait_for_page(&second, "gaunt_collector_success{collector=\"settings\"} 1");
    wait_for("the old address is free", || TcpListener::bind(("127.0.0.1", first)).ok().map(drop));
    assert!(node.terminate_and_wait().success());
}
