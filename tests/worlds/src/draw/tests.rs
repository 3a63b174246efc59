//! Tests of the draw: same seeds, same worlds; truths that name existing things; the promised variety.

use std::collections::{BTreeMap, BTreeSet};

use gaunt_schema::EntityKind;

use super::*;
use crate::{
    cluster_plan::{LinkLayer, PortRole},
    exporter_plan::{GpuExporter, GpuMetricSet, JobLabels, TopologyPlan},
    job_plan::JobKind,
};

const ANY_FAULT: WorldCase<'_> =
    WorldCase::Fault { kind: None, loss: None, course: None, second: false };

fn fault_of(kind: FaultKind) -> WorldCase<'static> {
    WorldCase::Fault { kind: Some(kind), loss: None, course: None, second: false }
}

fn all_worlds(seeds: u64) -> impl Iterator<Item = World> {
    FAMILIES.iter().flat_map(move |family| {
        (0..seeds).map(|seed| draw_world(family.name, seed, ANY_FAULT).unwrap())
    })
}

#[test]
fn same_seed_gives_the_same_world() {
    for family in FAMILIES {
        let world = draw_world(family.name, 3, ANY_FAULT).unwrap();
        assert_eq!(world, draw_world(family.name, 3, ANY_FAULT).unwrap());
        let other = draw_world(family.name, 4, ANY_FAULT).unwrap();
        assert_ne!(world.cluster, other.cluster);
    }
    assert!(draw_world("no such family", 1, ANY_FAULT).is_err());
    assert!(draw_world("plain", 1, WorldCase::Quiet { case: Some("no such case") }).is_err());
}

#[test]
fn jobs_of_any_number_of_nodes_can_be_drawn() {
    for seed in 0..400 {
        let world = draw_world("big_clusters", seed, WorldCase::Quiet { case: Some("nothing") });
        assert!(world.is_ok(), "{seed}");
    }
}

#[test]
fn another_fault_strikes_the_same_cluster() {
    for family in FAMILIES {
        let calm = draw_world(family.name, 5, WorldCase::Quiet { case: Some("nothing") }).unwrap();
        for kind in feasible_kinds(family.name, 5).unwrap() {
            let world = draw_world(family.name, 5, fault_of(kind)).unwrap();
            assert_eq!((&world.cluster, &world.exporters), (&calm.cluster, &calm.exporters));
            assert_eq!(world.faults[0].kind, kind);
        }
    }
}

#[test]
fn every_family_has_every_feasible_kind() {
    for family in FAMILIES {
        let mut kinds = BTreeSet::new();
        for seed in 0..40 {
            kinds.extend(feasible_kinds(family.name, seed).unwrap());
        }
        let missing: Vec<FaultKind> =
            FAULT_KINDS.into_iter().filter(|kind| !kinds.contains(kind)).collect();
        let may_miss = |kind: &FaultKind| match kind {
            FaultKind::SlowReceiver => family.name == "ib_tree",
            FaultKind::StageImbalance => {
                matches!(family.name, "alternating_jobs" | "input_bound" | "tiny_clusters")
            }
            FaultKind::DataSkew => matches!(
                family.name,
                "alternating_jobs" | "input_bound" | "tiny_clusters" | "slow_cadence"
            ),
            FaultKind::IdleAllocated => family.name == "alternating_jobs",
            _ => false,
        };
        let wrong: Vec<_> = missing.iter().filter(|kind| !may_miss(kind)).collect();
        assert!(wrong.is_empty(), "{}: {wrong:?}", family.name);
    }
}

#[test]
fn truths_name_existing_things() {
    for world in all_worlds(30) {
        let truths = world_truths(&world, &[]);
        assert_eq!(truths.len(), world.faults.len());
        let names: BTreeSet<&str> =
            world.exporters.nodes.iter().map(|node| node.name.as_str()).collect();
        for (truth, fault) in truths.iter().zip(&world.faults) {
            let blamed = &truth.truth.blamed;
            if let Some(node) = &blamed.node {
                assert!(names.contains(node.as_str()), "{blamed}");
            }
            for victim in &truth.truth.victims {
                assert!(names.contains(victim.node.as_ref().unwrap().as_str()));
            }
            let plan = &world.exporters.nodes[fault.node];
            if let Some(device) = &blamed.device {
                assert!(plan.ports.iter().any(|port| port.device == device.as_str()));
            }
            if let Some(gpu) = &blamed.gpu {
                assert!(plan.gpu_numbers.iter().any(|number| number.to_string() == gpu.as_str()));
            }
            let is_switch = matches!(blamed.kind, EntityKind::Leaf | EntityKind::Rail);
            assert_eq!(is_switch, truth.members.len() >= 3, "{blamed}");
            let limit_s = truth.truth.limit.as_secs_f64();
            assert!(fault.onset_s + limit_s < world.duration_s, "{fault:?}");
            assert!(limit_s >= 5.0);
            if let Some(ends) = truth.truth.ends {
                assert!(ends > truth.truth.onset);
            }
        }
    }
}

#[test]
fn faults_that_never_show_have_no_truth() {
    let world = draw_world("plain", 1, fault_of(FaultKind::GpuClockLow)).unwrap();
    assert!(world_truths(&world, &[None]).is_empty());
    let fault = &world.faults[0];
    let at_once = world_truths(&world, &[Some(fault.onset_s)]);
    let later = world_truths(&world, &[Some(fault.onset_s + 20.0)]);
    let more = later[0].truth.limit.as_secs_f64() - at_once[0].truth.limit.as_secs_f64();
    assert!(more >= 20.0, "{more}");
}

#[test]
fn faults_have_a_healthy_past() {
    let mut early = 0;
    for world in all_worlds(40) {
        for fault in &world.faults {
            if fault.onset_s < 0.0 {
                early += 1;
                continue;
            }
            assert!(fault.onset_s >= 180.0);
            assert!(fault.onset_s >= 12.0 * world.exporters.scrape_s);
            assert!(fault.onset_s >= 12.0 * world.exporters.collect_s);
            let job = fault.job.map(|job| &world.cluster.jobs[job]);
            assert!(job.is_none_or(|job| job.runs_s.end > world.duration_s));
        }
    }
    assert!(early > 5, "{early}");
}

#[test]
fn clusters_are_consistent() {
    for world in all_worlds(40) {
        let ClusterPlan { nodes, jobs, fabric, .. } = &world.cluster;
        assert!(!nodes.is_empty() && nodes.len() <= 32 && !jobs.is_empty());
        assert_eq!(nodes.len(), world.exporters.nodes.len());
        for (node, plan) in nodes.iter().zip(&world.exporters.nodes) {
            assert_eq!(node.ports.len(), plan.ports.len());
            assert_eq!(node.ports.len(), plan.is_wait_saturated.len());
            assert_eq!(node.gpus.len(), plan.gpu_numbers.len());
            assert_eq!(node.gpus.len(), plan.sticky_xid.len());
            let devices: BTreeSet<&str> =
                plan.ports.iter().map(|port| port.device.as_str()).collect();
            assert_eq!(devices.len(), plan.ports.len(), "{:?}", plan.ports);
            let netdevs = plan.ports.iter().filter_map(|port| port.netdev.as_deref());
            let count = netdevs.clone().count();
            assert_eq!(netdevs.collect::<BTreeSet<_>>().len(), count, "{:?}", plan.ports);
            for port in &node.ports {
                let is_rail = matches!(port.role, PortRole::Collective { .. });
                assert_eq!(is_rail, port.leaf.is_some());
                assert!(port.leaf.is_none_or(|leaf| leaf < fabric.leaves));
            }
        }
        let names: BTreeSet<&str> =
            world.exporters.nodes.iter().map(|node| node.name.as_str()).collect();
        let addresses: BTreeSet<&str> =
            world.exporters.nodes.iter().map(|node| node.address.as_str()).collect();
        assert_eq!((names.len(), addresses.len()), (nodes.len(), nodes.len()));
        for job in jobs {
            assert!(!job.nodes.is_empty() && !job.gpus.is_empty());
            assert!(job.nodes.iter().all(|node| *node < nodes.len()));
            assert!(job.gpus.end <= nodes[0].gpus.len());
            assert_eq!(job.step.stage_work.len(), job.step.pipeline_stages);
            let step = &job.step;
            let exposed = step.network_collective * (1.0 - step.overlap);
            let sum = step.compute + step.host + step.host_copy + step.node_collective + exposed;
            assert!((0.99..1.2).contains(&sum), "{step:?}");
            let trains = matches!(job.kind, JobKind::Train | JobKind::Alternate);
            let is_divided =
                |node: &usize| nodes[*node].gpus[job.gpus.clone()].iter().any(|g| g.has_mig);
            assert!(!(trains && job.nodes.iter().any(is_divided)));
        }
        for (index, job) in jobs.iter().enumerate() {
            for other in &jobs[..index] {
                let meet = job.nodes.iter().any(|node| other.nodes.contains(node));
                let share = job.gpus.start < other.gpus.end && other.gpus.start < job.gpus.end;
                assert!(!(meet && share), "two jobs hold one GPU");
            }
        }
    }
}

#[test]
fn families_force_what_they_promise() {
    let world = |family, seed| draw_world(family, seed, ANY_FAULT).unwrap();
    for seed in 0..30 {
        let tree = world("ib_tree", seed);
        assert_eq!(tree.cluster.fabric.link_layer, LinkLayer::InfiniBand);
        assert_eq!(tree.exporters.topology, TopologyPlan::SlurmTree);
        assert!(topology_text(&tree).unwrap().contains("SwitchName="));
        let (quiet, loud) = (world("roce_quiet", seed), world("roce_loud", seed));
        assert!(quiet.cluster.fabric.mark_gain < loud.cluster.fabric.mark_gain / 5.0);
        assert!(!world("roce_lossy", seed).cluster.fabric.has_pfc);
        assert!(world("slow_cadence", seed).exporters.scrape_s >= 30.0);
        assert!(world("fast_cadence", seed).exporters.scrape_s <= 2.0);
        assert!(world("long_gauges", seed).exporters.gauge_window_s >= 10.0);
        let minimal = world("minimal_metrics", seed);
        assert_eq!(minimal.exporters.gpu_metrics, GpuMetricSet::Minimal);
        assert!(!world("bare_hosts", seed).exporters.host_metrics.has_pressure);
        assert_eq!(world("new_names", seed).exporters.gpu_exporter, GpuExporter::Dcgm49);
        assert_eq!(world("amd", seed).exporters.gpu_exporter, GpuExporter::Amd);
        assert_eq!(world("gaunt_node", seed).exporters.gpu_exporter, GpuExporter::GauntNode);
        assert!(world("tiny_clusters", seed).cluster.nodes.len() <= 3);
        assert!(world("big_clusters", seed).cluster.nodes.len() >= 24);
        let joins = world("host_joins", seed).exporters;
        let is_odd =
            joins.nodes.iter().any(|n| n.gpu_page_name.as_ref() != Some(&n.host_page_name));
        assert!(is_odd || joins.gpu_exporter == GpuExporter::GauntNode);
        let alternating = world("alternating_jobs", seed).cluster.jobs;
        assert!(alternating[0].kind == JobKind::Alternate || alternating[0].nodes.len() == 1);
    }
    let splits = |split| FAMILIES.iter().filter(|family| family.split == split).count();
    assert!(splits(FamilySplit::Tune) >= 12 && splits(FamilySplit::Test) >= 6);
}

#[test]
fn draw_covers_what_it_promises() {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let mut total = 0;
    for world in all_worlds(60) {
        total += 1;
        let mut count = |what, holds: bool| *counts.entry(what).or_default() += usize::from(holds);
        count("two faults", world.faults.len() == 2);
        let fault = &world.faults[0];
        count("steady", fault.course == FaultCourse::Steady);
        count("intermittent", matches!(fault.course, FaultCourse::Intermittent { .. }));
        count("growing", matches!(fault.course, FaultCourse::Growing { .. }));
        count("healed", matches!(fault.course, FaultCourse::Healed { .. }));
        count("below 10 %", fault.loss > 0.0 && fault.loss < 0.1);
        count("above 40 %", fault.loss > 0.4 && fault.loss < 1.0);
        count("labels", world.exporters.labels == JobLabels::HpcJob);
        count("pods", world.exporters.labels == JobLabels::Pods);
        count("no labels", world.exporters.labels == JobLabels::None);
        count("job list", job_list_json(&world).is_some());
        count("topology", topology_text(&world).is_some());
        let ports = || world.cluster.nodes.iter().flat_map(|node| &node.ports);
        count("storage", ports().any(|port| port.role == PortRole::Storage));
        count("unused", ports().any(|port| port.is_never_up));
        count("serving", world.cluster.jobs.iter().any(|job| job.kind == JobKind::Serve));
        count("stages", world.cluster.jobs.iter().any(|job| job.step.pipeline_stages > 1));
        count("restart", world.exporters.nodes.iter().any(|node| !node.restarts_s.is_empty()));
        count("culprit on pages", is_culprit_on_pages(&world, fault));
        count("culprit on no page", !is_culprit_on_pages(&world, fault));
        count("lost scrapes", world.exporters.lost_scrapes > 0.0);
        let hosts = || world.cluster.nodes.iter().map(|node| &node.host);
        count("chores", hosts().any(|host| !host.chores.is_empty()));
    }
    let share = |what: &str| counts[what] as f64 / total as f64;
    assert!((0.03..0.11).contains(&share("two faults")), "{counts:?}");
    assert!((0.55..0.85).contains(&share("steady")), "{counts:?}");
    for (what, count) in &counts {
        if *what == "culprit on no page" {
            assert!((1..total / 10).contains(count), "{counts:?}");
            continue;
        }
        assert!(*count as f64 > 0.02 * total as f64, "{what}: {counts:?}");
    }
}

#[test]
fn quiet_cases_have_no_fault_and_their_event() {
    assert!(quiet_cases().count() >= 24);
    assert_eq!(quiet_cases().collect::<BTreeSet<_>>().len(), quiet_cases().count());
    for family in FAMILIES {
        let calm = draw_world(family.name, 2, WorldCase::Quiet { case: Some("nothing") }).unwrap();
        for name in quiet_cases() {
            let case = WorldCase::Quiet { case: Some(name) };
            let world = draw_world(family.name, 2, case).unwrap();
            assert!(world.faults.is_empty() && world_truths(&world, &[]).is_empty());
            assert_eq!(world.quiet_case, Some(name));
            let is_changed = (&world.cluster, &world.exporters) != (&calm.cluster, &calm.exporters);
            let may_be_same = matches!(
                name,
                "nothing"
                    | "loud_marks"
                    | "uneven_stages"
                    | "mixed_limits"
                    | "storage_traffic"
                    | "accumulation_silence"
                    | "old_xid"
                    | "saturated_counters"
            );
            assert!(is_changed || may_be_same, "{} {name}", family.name);
            assert!(world.duration_s > 480.0);
        }
    }
}

#[test]
fn job_names_follow_the_scheduler() {
    let quiet = |case| draw_world("plain", 7, WorldCase::Quiet { case: Some(case) }).unwrap();
    let numbers = |world: &World| {
        let all = 0..world.cluster.jobs.len();
        all.map(|job| job_number(&world.cluster, world.seed, job)).collect::<Vec<_>>()
    };
    let elastic = quiet("elastic_job");
    let (first, last) = (numbers(&elastic)[0].clone(), numbers(&elastic).pop().unwrap());
    assert_eq!(first, last);
    let flip = quiet("label_flip");
    assert_ne!(numbers(&flip)[0], numbers(&flip).pop().unwrap());
    let unique: BTreeSet<String> = numbers(&flip).into_iter().collect();
    assert_eq!(unique.len(), flip.cluster.jobs.len());
    let pods = [job_pod(&flip.cluster, 7, 0, 0), job_pod(&flip.cluster, 7, 0, 1)];
    assert_ne!(pods[0].pod, pods[1].pod);
    assert_eq!(pods[0].owner, pods[1].owner);
}

/// Prints how large the runs are: `cargo test -p gaunt-worlds -- --ignored --nocapture sizes_of_runs`.
#[test]
#[ignore = "prints"]
fn sizes_of_runs() {
    for family in FAMILIES {
        let mut rows: Vec<(f64, f64)> = Vec::new();
        for seed in 0..40 {
            let world = draw_world(family.name, seed, ANY_FAULT).unwrap();
            let gpus: usize = world.cluster.nodes.iter().map(|node| node.gpus.len()).sum();
            let scrapes = world.duration_s / world.exporters.scrape_s;
            rows.push((scrapes * gpus as f64, world.duration_s));
        }
        rows.sort_by(|a, b| a.0.total_cmp(&b.0));
        let longest_s = rows.iter().map(|row| row.1).fold(0.0, f64::max);
        println!(
            "{:20} GPU samples median {:8.0} most {:8.0}; longest run {longest_s:6.0} s",
            family.name, rows[20].0, rows[39].0
        );
    }
}
