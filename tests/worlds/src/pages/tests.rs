//! Pages are decoded without a rejected line, show the state, and behave as counters do.

use std::collections::{BTreeMap, HashMap};

use gaunt_schema::{
    Device, DeviceClass, Dialect, MetricId, Report, ScrapedPage,
    catalogue::{gpu, gpu_health as health, host, port},
    text::{PageLimits, decode_page},
};

use super::{
    ExporterPages, PageProgram,
    test_world::{JOB_S, NODES, PORTS, node_fault, plain_world, state_at},
};
use crate::{
    cluster_plan::LinkLayer,
    exporter_plan::{GpuExporter, GpuMetricSet, JobLabels},
    fault_plan::FaultKind,
    job_plan::PausePlan,
    random::RandomKey,
    world::World,
};

const EXPORTERS: [GpuExporter; 5] = [
    GpuExporter::GauntNode,
    GpuExporter::Dcgm3,
    GpuExporter::Dcgm48,
    GpuExporter::Dcgm49,
    GpuExporter::Amd,
];

const SETS: [GpuMetricSet; 3] = [GpuMetricSet::Minimal, GpuMetricSet::Default, GpuMetricSet::Full];

fn exporter_pages(world: &World) -> ExporterPages {
    ExporterPages::new(world, RandomKey::new(world.seed))
}

/// Observes all nodes each second up to an instant.
fn observe_until(pages: &mut ExporterPages, from_s: u32, to_s: u32) {
    for t_s in from_s..to_s {
        let state = state_at(f64::from(t_s));
        for node in 0..NODES {
            pages.observe(f64::from(t_s), node, &state);
        }
    }
}

fn decode_clean(text: &str) -> ScrapedPage {
    let page = decode_page(text.as_bytes(), &PageLimits::default()).unwrap();
    assert_eq!(page.rejected.total_count(), 0, "{:?}", page.rejected);
    page
}

#[track_caller]
fn assert_values(report: &Report, device: &Device, values: &[(MetricId, f64)]) {
    for (metric, expected) in values {
        let value = report.find_reading(device, *metric).and_then(gaunt_schema::Reading::value);
        let value = value.unwrap_or_else(|| panic!("{device} has no {}", metric.series_key()));
        let tolerance = 1e-6 * expected.abs().max(1e-3);
        assert!((value - expected).abs() <= tolerance, "{} {value}", metric.series_key());
    }
}

/// The value of the only line that begins with a name and contains some labels.
#[track_caller]
fn line_value(page: &str, name: &str, labels: &str) -> String {
    let is_wanted = |line: &&str| {
        line.strip_prefix(name).is_some_and(|rest| rest.starts_with('{') || rest.starts_with(' '))
            && line.contains(labels)
    };
    let mut lines = page.lines().filter(is_wanted);
    let line = lines.next().unwrap_or_else(|| panic!("no {name} with {labels}"));
    assert_eq!(lines.next(), None);
    line.rsplit_once(' ').unwrap().1.to_owned()
}

#[test]
fn all_pages_decode_without_rejected_lines() {
    for (exporter, set) in EXPORTERS.iter().flat_map(|exporter| SETS.map(|set| (*exporter, set))) {
        for (labels, link_layer) in [
            (JobLabels::None, LinkLayer::Ethernet),
            (JobLabels::HpcJob, LinkLayer::InfiniBand),
            (JobLabels::Pods, LinkLayer::Ethernet),
        ] {
            let mut world = plain_world(exporter, set);
            world.exporters.labels = labels;
            world.cluster.fabric.link_layer = link_layer;
            let names = &mut world.exporters.nodes[1];
            names.gpu_page_name = None;
            names.blank_share = 0.2;
            names.sticky_xid[2] = 63;
            world.cluster.nodes[1].gpus[5].has_mig = true;
            let mut pages = exporter_pages(&world);
            observe_until(&mut pages, 0, 150);
            for target in 0..pages.targets().len() {
                let mut state = state_at(150.0);
                state.gpus[1].is_present = false;
                state.gpus[1].last_xid = 79;
                state.ports[2].state = 1;
                let text = pages.scrape(150.0, target, &state).unwrap();
                let page = decode_clean(&text);
                let dialect = match pages.targets()[target].program {
                    PageProgram::NodeExporter => Dialect::NodeExporter,
                    PageProgram::Gpu(GpuExporter::GauntNode) => Dialect::Gaunt,
                    PageProgram::Gpu(GpuExporter::Amd) => Dialect::Amd,
                    PageProgram::Gpu(_) => Dialect::Dcgm,
                };
                assert_eq!(page.dialect, dialect);
                assert!(text.ends_with('\n'));
            }
        }
    }
}

#[test]
fn gpu_values_are_those_of_the_state() {
    for exporter in EXPORTERS {
        let mut pages = exporter_pages(&plain_world(exporter, GpuMetricSet::Full));
        observe_until(&mut pages, 0, 61);
        let text = pages.scrape(60.0, 0, &state_at(60.0)).unwrap();
        let report = decode_clean(&text).report;
        // The first GPU of the plan is number 3.
        let first = Device::new_gpu(3);
        let state = state_at(60.0).gpus[0].clone();
        assert_values(
            &report,
            &first,
            &[
                (gpu::POWER, 500.0),
                (gpu::TEMPERATURE, 60.0),
                (health::MEMORY_TEMPERATURE, 70.0),
                (health::PCIE_REPLAYS, state.pcie_replays.floor()),
            ],
        );
        if exporter == GpuExporter::Dcgm49 {
            continue;
        }
        assert_values(
            &report,
            &first,
            &[(gpu::UTILIZATION, 0.95), (gpu::GRAPHICS_ACTIVE, 0.9), (gpu::ENERGY, state.energy_j)],
        );
        if exporter == GpuExporter::Amd {
            continue;
        }
        let memory = (6e10_f64 / 1_048_576.0).round() * 1_048_576.0;
        assert_values(
            &report,
            &first,
            &[
                (gpu::SM_CLOCK, 1.755e9),
                (gpu::SM_ACTIVE, 0.6),
                (gpu::TENSOR_ACTIVE, 0.3),
                (gpu::DRAM_ACTIVE, 0.4),
                (gpu::PCIE_RECEIVE_RATE, 1e9),
                (gpu::NVLINK_TRANSMIT_RATE, 9e10),
                (gpu::MEMORY_USED, memory),
                (gpu::CLOCK_EVENT_SW_POWER_CAP, 1.0),
                (gpu::CLOCK_EVENT_HW_THERMAL, 0.0),
                (health::VIOLATION_POWER, state.power_violation_s),
            ],
        );
    }
}

#[test]
fn dcgm_49_has_other_names_and_units() {
    let mut pages = exporter_pages(&plain_world(GpuExporter::Dcgm49, GpuMetricSet::Full));
    observe_until(&mut pages, 0, 61);
    let page = pages.scrape(60.0, 0, &state_at(60.0)).unwrap();
    let gpu = "gpu=\"3\"";
    for (name, value) in [
        ("DCGM_FI_DEV_SM_CLOCK_HERTZ", "1755000000"),
        ("DCGM_FI_DEV_GPU_UTIL_RATIO", "0.950000"),
        ("DCGM_FI_DEV_BOARD_POWER_WATTS", "500.000000"),
        ("DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL", "50030000.000000"),
        ("DCGM_FI_DEV_GPU_POWER_THROTTLE_SECONDS_TOTAL", "20012.000000"),
        ("DCGM_FI_DEV_FB_USED_BYTES", "59999518720"),
        ("DCGM_FI_DEV_XID_ERROR", "0"),
        ("DCGM_FI_PROF_SM_UTIL_RATIO", "0.600000"),
        ("DCGM_FI_PROF_PCIE_RX_BYTES", "1000000000"),
    ] {
        assert_eq!(line_value(&page, name, gpu), value, "{name}");
    }
    assert!(page.contains("hostname=\"gpu000\",DCGM_FI_SYSTEM_DRIVER_VERSION=\"580.65.06\""));
    assert!(page.contains("# HELP DCGM_FI_DEV_SM_CLOCK_HERTZ SM clock frequency (in Hz).\n"));
    assert!(!page.contains("DCGM_FI_DEV_SM_CLOCK{"));
}

#[test]
fn dcgm_page_has_the_form_of_the_program() {
    let mut pages = exporter_pages(&plain_world(GpuExporter::Dcgm48, GpuMetricSet::Default));
    observe_until(&mut pages, 0, 61);
    let page = pages.scrape(60.0, 0, &state_at(60.0)).unwrap();
    let mut lines = page.lines();
    assert_eq!(lines.next(), Some("# HELP DCGM_FI_DEV_SM_CLOCK SM clock frequency (in MHz)."));
    assert_eq!(lines.next(), Some("# TYPE DCGM_FI_DEV_SM_CLOCK gauge"));
    let first = lines.next().unwrap();
    assert!(first.starts_with("DCGM_FI_DEV_SM_CLOCK{gpu=\"0\",UUID=\"GPU-"), "{first}");
    assert!(first.contains(
        ",pci_bus_id=\"00000000:61:00.0\",device=\"nvidia0\",modelName=\"NVIDIA H100 80GB HBM3\","
    ));
    assert!(page.contains("err_code=\"0\",err_msg=\"No Error\"} 0\n"));
    assert_eq!(line_value(&page, "DCGM_FI_DEV_POWER_USAGE", "gpu=\"3\""), "500.000000");
}

#[test]
fn host_values_are_those_of_the_state() {
    let mut pages = exporter_pages(&plain_world(GpuExporter::Dcgm48, GpuMetricSet::Default));
    let state = state_at(60.0);
    let page = pages.scrape(60.0, 1, &state).unwrap();
    let report = decode_clean(&page).report;
    assert_eq!(report.node.as_deref(), Some("gpu000.example.org"));
    let time = report.node_time.unwrap().to_seconds();
    assert!((time - super::RUN_START_S - 60.25).abs() < 0.01);
    assert_values(
        &report,
        &Device::new_node(),
        &[
            (host::CPUS, 96.0),
            (host::LOAD, 12.35),
            (host::CPU_PRESSURE, state.host.cpu_pressure_some_s),
            (host::IO_PRESSURE, state.host.io_pressure_some_s),
            (host::TASKS_RUNNABLE, 14.0),
        ],
    );
    let busy = report.find_reading(&Device::new_node(), host::CPU_BUSY).unwrap().value().unwrap();
    let expected: f64 = state.host.cpu_busy_s.iter().sum();
    assert!((busy / expected - 1.0).abs() < 1e-4);
    assert_values(
        &report,
        &Device::new_port("mlx5_1", "1"),
        &[
            (port::STATE, 4.0),
            (port::RATE, 5e10),
            (port::RECEIVE_BYTES, state.ports[1].receive_bytes),
            (port::TRANSMIT_WAIT, state.ports[1].transmit_wait_ticks),
            (port::CNP_HANDLED, state.ports[1].cnp_handled),
            (port::OUT_OF_SEQUENCE, state.ports[1].out_of_sequence % 4_294_967_296.0),
        ],
    );
}

/// The series of counters on a page with their values; a rate that is typed as a counter is none.
pub(super) fn counters_of_page(page: &str) -> BTreeMap<String, f64> {
    let mut counters = BTreeMap::new();
    let (mut family, mut is_counter) = ("", false);
    for line in page.lines() {
        if let Some(header) = line.strip_prefix("# TYPE ") {
            let (name, kind) = header.split_once(' ').unwrap();
            (family, is_counter) = (name, kind == "counter");
        } else if is_counter && line.starts_with(family) && !family.contains("NVLINK_BANDWIDTH") {
            let (series, value) = line.rsplit_once(' ').unwrap();
            counters.insert(series.to_owned(), value.parse().unwrap());
        }
    }
    counters
}

#[test]
fn counters_fall_only_at_wraps_and_restarts() {
    for exporter in EXPORTERS {
        let mut world = plain_world(exporter, GpuMetricSet::Full);
        world.exporters.labels = JobLabels::None;
        world.exporters.nodes[0].restarts_s = vec![400.0];
        let mut pages = exporter_pages(&world);
        let mut last: HashMap<(usize, String), f64> = HashMap::new();
        let mut own_resets = 0;
        for t_s in 0..800_u32 {
            observe_until(&mut pages, t_s, t_s + 1);
            if t_s % 15 != 0 {
                continue;
            }
            let now = f64::from(t_s);
            for target in 0..pages.targets().len() {
                let Some(page) = pages.scrape(now, target, &state_at(now)) else { continue };
                for (series, value) in counters_of_page(&page) {
                    let before = last.insert((target, series.clone()), value).unwrap_or(value);
                    if value >= before {
                        continue;
                    }
                    let is_wrap = before > 4e9 && value < before - 4e9;
                    let own = ["go_", "process_", "promhttp_", "gaunt_gpu_"];
                    let is_own = own.iter().any(|prefix| series.starts_with(prefix));
                    let is_reset = (400.0..430.0).contains(&now) && is_own;
                    own_resets += usize::from(is_reset);
                    assert!(is_wrap || is_reset, "{t_s} {series} {before} {value}");
                }
            }
        }
        assert!(own_resets > 0, "{exporter:?}");
    }
}

#[test]
fn narrow_counters_stop_at_their_ends() {
    let mut world = plain_world(GpuExporter::Dcgm3, GpuMetricSet::Minimal);
    world.exporters.nodes[0].is_wait_saturated[0] = true;
    let mut pages = exporter_pages(&world);
    let page = pages.scrape(3_000.0, 1, &state_at(3_000.0)).unwrap();
    let name = "node_infiniband_symbol_error_total";
    assert_eq!(line_value(&page, name, "device=\"mlx5_0\""), "65535");
    let name = "node_infiniband_port_transmit_wait_total";
    assert_eq!(line_value(&page, name, "device=\"mlx5_0\""), "4.294967295e+09");
    assert_ne!(line_value(&page, name, "device=\"mlx5_1\""), "4.294967295e+09");
}

#[test]
fn exporter_repeats_values_between_collections_and_in_stalls() {
    let mut world = plain_world(GpuExporter::Dcgm48, GpuMetricSet::Full);
    world.exporters.nodes[0].stalls =
        Some(PausePlan { first_s: 200.0, every_s: 1e6, lasts_s: 60.0, is_by_one_rank: false });
    let mut pages = exporter_pages(&world);
    let mut texts = Vec::new();
    for t_s in 0..300 {
        observe_until(&mut pages, t_s, t_s + 1);
        texts.push(pages.scrape(f64::from(t_s), 0, &state_at(f64::from(t_s))).unwrap());
    }
    assert_eq!(texts[150], texts[159]);
    assert_ne!(texts[150], texts[160]);
    assert_eq!(texts[200], texts[259]);
    assert_ne!(texts[259], texts[261]);
}

#[test]
fn job_labels_follow_the_jobs_late() {
    for (labels, label) in [(JobLabels::HpcJob, "hpc_job=\""), (JobLabels::Pods, "pod=\"")] {
        let mut world = plain_world(GpuExporter::Dcgm48, GpuMetricSet::Minimal);
        world.exporters.labels = labels;
        world.exporters.label_lag_s = 30.0;
        let mut pages = exporter_pages(&world);
        let mut is_labelled = |node: usize, t_s: f64| {
            let page = pages.scrape(t_s, 2 * node, &state_at(t_s)).unwrap();
            let report = decode_clean(&page).report;
            assert_eq!(page.contains(label) && !page.contains("pod=\"\""), {
                report.infos.iter().any(|info| info.metric == gpu::JOB_INFO)
            });
            report.infos.iter().any(|info| info.metric == gpu::JOB_INFO)
        };
        assert!(!is_labelled(0, JOB_S.0 + 29.0));
        assert!(is_labelled(0, JOB_S.0 + 31.0));
        assert!(!is_labelled(1, JOB_S.0 + 31.0));
        assert!(is_labelled(2, JOB_S.1 + 29.0));
        assert!(!is_labelled(2, JOB_S.1 + 31.0));
    }
}

#[test]
fn divided_gpu_has_series_of_its_instances_only() {
    for exporter in [GpuExporter::Dcgm3, GpuExporter::Dcgm49, GpuExporter::GauntNode] {
        let mut world = plain_world(exporter, GpuMetricSet::Full);
        world.cluster.nodes[0].gpus[0].has_mig = true;
        let mut pages = exporter_pages(&world);
        observe_until(&mut pages, 0, 61);
        let page = pages.scrape(60.0, 0, &state_at(60.0)).unwrap();
        let report = decode_clean(&page).report;
        if exporter == GpuExporter::GauntNode {
            assert!(report.devices.iter().any(|device| device.class == DeviceClass::Mig));
            continue;
        }
        let lines = page.lines().filter(|line| line.contains("{gpu=\"3\""));
        assert!(lines.clone().count() > 20);
        assert!(lines.clone().all(|line| line.contains("GPU_I_PROFILE=\"")));
        assert!(lines.clone().all(|line| !line.contains("GPU_UTIL")));
    }
}

#[test]
fn lost_gpu_leaves_its_xid_behind() {
    let mut pages = exporter_pages(&plain_world(GpuExporter::Dcgm48, GpuMetricSet::Default));
    observe_until(&mut pages, 0, 60);
    let mut state = state_at(70.0);
    state.gpus[0].is_present = false;
    state.gpus[0].last_xid = 79;
    let page = pages.scrape(70.0, 0, &state).unwrap();
    let lines: Vec<_> = page.lines().filter(|line| line.contains("{gpu=\"3\"")).collect();
    assert_eq!(lines.len(), 1);
    assert!(lines[0].contains("err_msg=\"GPU has fallen off the bus\"} 79"));
}

#[test]
fn killed_exporters_and_hung_drivers() {
    let mut world = plain_world(GpuExporter::Dcgm48, GpuMetricSet::Full);
    world.faults = vec![node_fault(FaultKind::ExporterDown, 100.0)];
    let mut pages = exporter_pages(&world);
    for target in 0..2 * NODES {
        assert!(pages.scrape(99.0, target, &state_at(99.0)).is_some());
        assert_eq!(pages.scrape(101.0, target, &state_at(101.0)).is_none(), target < 2);
    }
    for exporter in EXPORTERS {
        let mut world = plain_world(exporter, GpuMetricSet::Full);
        world.faults = vec![node_fault(FaultKind::DriverHung, 130.0)];
        for seed in 0..8 {
            let mut pages = ExporterPages::new(&world, RandomKey::new(seed));
            observe_until(&mut pages, 0, 130);
            let before = pages.scrape(129.0, 0, &state_at(129.0)).unwrap();
            observe_until(&mut pages, 130, 200);
            let after = pages.scrape(200.0, 0, &state_at(200.0)).unwrap();
            decode_clean(&after);
            if exporter == GpuExporter::GauntNode {
                assert!(after.contains("gaunt_collector_hung_workers{collector=\"nvml\"} 1"));
            } else {
                assert!(after == before || after.len() < before.len() / 4, "{exporter:?}");
            }
        }
    }
}

#[test]
fn lost_scrapes_have_their_share() {
    let mut world = plain_world(GpuExporter::Dcgm3, GpuMetricSet::Minimal);
    world.exporters.lost_scrapes = 0.04;
    let mut pages = exporter_pages(&world);
    let state = state_at(10.0);
    let scrapes = 5_000_u32;
    let lost = (0..scrapes).filter(|_| pages.scrape(10.0, 0, &state).is_none()).count();
    assert!((lost as f64 / f64::from(scrapes) - 0.04).abs() < 0.01, "{lost}");
}

#[test]
fn scrapes_come_once_a_period_with_jitter() {
    let pages = exporter_pages(&plain_world(GpuExporter::Dcgm3, GpuMetricSet::Minimal));
    for target in 0..pages.targets().len() {
        let (mut now, mut times) = (0.0, Vec::new());
        while now < 3_000.0 {
            now = pages.due_at(target, now);
            times.push(now);
        }
        let gaps: Vec<f64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(gaps.iter().all(|gap| (gap - 15.0).abs() <= 0.4 + 1e-9), "{gaps:?}");
        assert!((199..=202).contains(&times.len()));
    }
    let addresses: Vec<_> = pages.targets().iter().map(|target| target.address.as_str()).collect();
    assert_eq!(addresses[..2], ["10.0.0.0:9400", "10.0.0.0:9100"]);
}

#[test]
fn pages_have_realistic_sizes() {
    for (exporter, set, sizes) in [
        (GpuExporter::Dcgm3, GpuMetricSet::Minimal, 8_000..30_000),
        (GpuExporter::Dcgm48, GpuMetricSet::Default, 40_000..90_000),
        (GpuExporter::Dcgm49, GpuMetricSet::Full, 80_000..200_000),
        (GpuExporter::Amd, GpuMetricSet::Default, 30_000..120_000),
        (GpuExporter::GauntNode, GpuMetricSet::Full, 40_000..200_000),
    ] {
        let mut pages = exporter_pages(&plain_world(exporter, set));
        observe_until(&mut pages, 0, 61);
        for target in 0..pages.targets().len().min(2) {
            let size = pages.scrape(60.0, target, &state_at(60.0)).unwrap().len();
            let sizes = if target == 1 && exporter != GpuExporter::GauntNode {
                60_000..250_000
            } else {
                sizes.clone()
            };
            assert!(sizes.contains(&size), "{exporter:?} {set:?} {target} {size}");
        }
    }
    assert_eq!(PORTS, 4);
}

/// How long a page takes; run it in a release build.
#[test]
#[ignore = "measures time"]
fn pages_take_little_time() {
    for exporter in EXPORTERS {
        let mut pages = exporter_pages(&plain_world(exporter, GpuMetricSet::Full));
        observe_until(&mut pages, 0, 61);
        let states: Vec<_> =
            (0..200).map(|round| state_at(61.0 + 10.0 * f64::from(round))).collect();
        for target in 0..pages.targets().len().min(2) {
            let (start, mut bytes) = (std::time::Instant::now(), 0);
            for (round, state) in states.iter().enumerate() {
                bytes += pages.scrape(61.0 + 10.0 * round as f64, target, state).unwrap().len();
            }
            let micros = start.elapsed().as_secs_f64() * 1e6 / states.len() as f64;
            println!("{exporter:?} {target}: {micros:.0} us, {} bytes", bytes / states.len());
        }
    }
}
