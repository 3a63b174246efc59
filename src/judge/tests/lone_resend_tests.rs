//! Tests of ports that send packets again, where no other port of their job does.

mod many_port_tests;
mod missing_port_tests;
mod pausing_port_tests;

use gaunt_schema::{
    Delivery, Device, Dialect, NodeLocation, Report, Severity, SourceTopology, TopologyOrigin,
    catalogue::{gpu, host, port},
};

use super::telemetry_tests::{TargetFixture, node_report, push_active_port, push_reading};

const NODES: [&str; 4] = ["gpu001", "gpu002", "gpu003", "gpu004"];

/// The second in which packets begin to get lost.
const ONSET: i64 = 200;

/// Adds the GPUs of a job whose pace is this share of its usual one since the onset.
fn add_gpus(report: &mut Report, second: i64, pace: f64) {
    let slow = if second > ONSET { pace } else { 1.0 };
    for index in 0..4 {
        let device = report.ensure_device(Device::new_gpu(index));
        report.add_info(device, gpu::JOB_INFO, &[("job", "8812")]);
        report.add_info(device, gpu::INFO, &[("model", "H100")]);
        for (metric, value) in [
            (gpu::UTILIZATION, 0.99),
            (gpu::TENSOR_ACTIVE, 0.4 * slow),
            (gpu::POWER_LIMIT, 700.0),
            (gpu::POWER, 300.0 + 250.0 * slow),
        ] {
            push_reading(report, Device::new_gpu(index), metric, value);
        }
    }
}

/// What TCP loses on a node, before the onset and after it.
#[derive(Clone, Copy)]
struct Lost {
    /// The share of its segments that the node sends again.
    resent: [f64; 2],
    /// The share of the packets received that it drops after the onset.
    dropped: f64,
}

/// Next to nothing.
const FEW: Lost = Lost { resent: [1e-6, 1e-6], dropped: 0.0 };

/// A page of a job without RDMA, which is slower since the onset.
fn tcp_page(second: i64, node: usize, pace: f64, lost: Lost) -> Report {
    let mut report = node_report(NODES[node]);
    add_gpus(&mut report, second, pace);
    let (before, since) = (second.min(ONSET) as f64, (second - ONSET).max(0) as f64);
    let bytes = 1e9 * (before + since * pace);
    for (metric, value) in [
        (host::NETDEV_CARRIER, 1.0),
        (host::NETDEV_SPEED, 12.5e9),
        (host::NETDEV_TRANSMIT_BYTES, bytes),
        (host::NETDEV_RECEIVE_BYTES, bytes),
        (host::NETDEV_RECEIVE_PACKETS, bytes / 1e4),
    ] {
        push_reading(&mut report, Device::new_netdev("ens1"), metric, value);
        // Management, whose cable is sound.
        let less = if value > 1e3 { value / 1e3 } else { value };
        push_reading(&mut report, Device::new_netdev("eno1"), metric, less);
    }
    let dropped = 1e5 * lost.dropped * since * pace;
    push_reading(&mut report, Device::new_netdev("ens1"), host::NETDEV_RECEIVE_DROPS, dropped);
    let [earlier, later] = lost.resent;
    let again = 1e5 * (earlier * before + later * since * pace);
    push_reading(&mut report, Device::new_node(), host::TCP_SENT, bytes / 1e4);
    push_reading(&mut report, Device::new_node(), host::TCP_RESENT, again);
    report
}

/// What is told after a while, besides a slowdown that nothing explains.
fn told_without_rdma(pace: f64, lost: [Lost; 4]) -> Vec<(String, Severity)> {
    told_below(&[], pace, lost)
}

/// The same where nodes are below these leaves.
fn told_below(leaves: &[&str], pace: f64, lost: [Lost; 4]) -> Vec<(String, Severity)> {
    let mut fixture = TargetFixture::new(&NODES.map(|name| (name, Dialect::Gaunt)));
    let mut topology = SourceTopology::new("topology.conf".into(), TopologyOrigin::Scheduler);
    let location = |(node, leaf): (&str, &&str)| NodeLocation {
        node: node.into(),
        leaf: Some((*leaf).into()),
        ..NodeLocation::default()
    };
    topology.nodes = NODES.into_iter().zip(leaves).map(location).collect();
    fixture.cluster.ingest_delivery(Delivery::Topology(topology));
    fixture.run(ONSET + 150, |second, node| tcp_page(second, node, pace, lost[node]));
    let open = fixture.judge.open_findings().into_iter();
    let told = open.filter(|finding| !finding.id.starts_with("unexplained_slowdown"));
    told.map(|finding| (finding.id.clone(), finding.severity)).collect()
}

#[test]
fn only_node_of_a_slower_job_that_sends_segments_again_has_a_bad_link() {
    let (many, some) = ([1e-6, 2e-3], [1e-6, 5e-5]);
    let lone = |resent| [FEW, Lost { resent, ..FEW }, FEW, FEW];
    let bad_link = ("link_errors/gpu002/ens1".to_owned(), Severity::Warning);
    assert_eq!(told_without_rdma(0.7, lone(many)), [bad_link]);
    // The job is not slower.
    assert_eq!(told_without_rdma(1.0, lone(many)), []);
    // It always did.
    assert_eq!(told_without_rdma(0.7, lone([2e-3, 2e-3])), []);
    // Too few to matter.
    assert_eq!(told_without_rdma(0.7, lone(some)), []);
}

#[test]
fn node_that_drops_what_it_receives_is_blamed_before_the_one_that_sends_to_it() {
    let sender = Lost { resent: [1e-6, 3e-3], ..FEW };
    let receiver = Lost { dropped: 3e-4, ..FEW };
    let slow = ("host_blocks_network/gpu003".to_owned(), Severity::Warning);
    assert_eq!(told_without_rdma(0.7, [FEW, sender, receiver, FEW]), [slow]);
    assert_eq!(told_without_rdma(1.0, [FEW, sender, receiver, FEW]), []);
    // All of them drop a little, for another reason.
    assert_eq!(told_without_rdma(0.7, [receiver; 4]), []);
}

#[test]
fn nodes_that_all_send_more_again_share_a_queue() {
    let shared = ("leaf_congested/unnamed".to_owned(), Severity::Warning);
    let risen = Lost { resent: [1e-4, 2e-3], ..FEW };
    assert_eq!(told_without_rdma(0.7, [risen; 4]), [shared]);
    // They always did.
    let usual = Lost { resent: [1e-3, 2e-3], ..FEW };
    assert_eq!(told_without_rdma(0.7, [usual; 4]), []);
}

#[test]
fn nodes_below_one_leaf_that_send_more_again_than_those_below_others_share_its_queue() {
    let risen = Lost { resent: [1e-6, 2e-3], ..FEW };
    let leaf = ("leaf_congested/tor2".to_owned(), Severity::Warning);
    let told = |leaves: &[&str], lost| told_below(leaves, 0.7, lost);
    assert_eq!(told(&["tor1", "tor1", "tor2", "tor2"], [FEW, FEW, risen, risen]), [leaf]);
    // Below two leaves, or one that is not known, two of four nodes share nothing.
    assert_eq!(told(&["tor1", "tor2", "tor1", "tor2"], [FEW, FEW, risen, risen]), []);
    assert_eq!(told(&[], [FEW, FEW, risen, risen]), []);
}

/// A page of a job whose pace is this share of its usual one since the onset, with a total of packets sent again.
fn job_page(second: i64, node: usize, pace: f64, resends: f64, symbols: f64) -> Report {
    let mut report = node_report(NODES[node]);
    let since = (second - ONSET).max(0) as f64;
    add_gpus(&mut report, second, pace);
    let bytes = 5e9 * (second.min(ONSET) as f64 + since * pace);
    push_active_port(&mut report, bytes);
    for (metric, value) in
        [(port::PACKET_SEQUENCE_ERRORS, resends * since), (port::SYMBOL_ERRORS, symbols * since)]
    {
        push_reading(&mut report, Device::new_port("mlx5_0", "1"), metric, value);
    }
    report
}

/// The page as AWS's build of node_exporter has it for EFA: without the state and the rate of the link, and packets sent again
/// under another name.
fn efa_page(page: Report) -> Report {
    let mut efa = Report { samples: Vec::new(), ..page.clone() };
    for sample in page.samples {
        let metric = match sample.metric {
            port::STATE | port::PHYSICAL_STATE | port::RATE => continue,
            port::PACKET_SEQUENCE_ERRORS => port::RETRANSMIT_PACKETS,
            other => other,
        };
        efa.push(sample.device, metric, sample.reading);
    }
    efa
}

/// What is told of the ports after a while, and how severe it is.
fn told(pace: f64, resends: [f64; 4], symbols: [f64; 4]) -> Vec<(String, Severity)> {
    let mut fixture = TargetFixture::new(&NODES.map(|name| (name, Dialect::Gaunt)));
    fixture.run(ONSET + 150, |second, node| {
        job_page(second, node, pace, resends[node], symbols[node])
    });
    let open = fixture.judge.open_findings();
    open.iter().map(|finding| (finding.id.clone(), finding.severity)).collect()
}

#[test]
fn only_port_of_a_slower_job_that_sends_again_has_a_bad_link() {
    let lone = "link_errors/gpu002/mlx5_0/1".to_owned();
    assert_eq!(told(0.7, [0.0, 60.0, 0.0, 0.0], [0.0; 4]), [(lone, Severity::Warning)]);
}

#[test]
fn packets_that_cost_no_time_are_told_of_nobody() {
    assert_eq!(told(1.0, [0.0, 60.0, 0.0, 0.0], [0.0; 4]), []);
    // One packet in ten million.
    let found = told(0.7, [0.0, 0.6, 0.0, 0.0], [0.0; 4]);
    assert!(found.iter().all(|(id, _)| !id.starts_with("link_errors")), "{found:?}");
}

#[test]
fn ports_that_all_send_again_are_no_outlier() {
    let found = told(0.7, [60.0, 50.0, 20.0, 60.0], [0.0; 4]);
    assert!(found.iter().all(|(id, _)| !id.starts_with("link_errors")), "{found:?}");
}

#[test]
fn link_with_errors_is_blamed_before_the_sender_that_sends_to_it() {
    let found = told(0.7, [0.0, 60.0, 0.0, 0.0], [0.0, 0.0, 5.0, 0.0]);
    let ports: Vec<_> = found.iter().filter(|(id, _)| id.starts_with("link_errors")).collect();
    assert_eq!(ports, [&("link_errors/gpu003/mlx5_0/1".to_owned(), Severity::Critical)]);
}

#[test]
fn port_without_state_and_rate_that_sends_again_is_told_as_well() {
    let run = |resends: [f64; 4]| {
        let mut fixture = TargetFixture::new(&NODES.map(|name| (name, Dialect::NodeExporter)));
        fixture.run(ONSET + 150, |second, node| {
            efa_page(job_page(second, node, 0.7, resends[node], 0.0))
        });
        let open = fixture.judge.open_findings();
        open.iter().map(|finding| finding.id.clone()).collect::<Vec<_>>()
    };
    assert_eq!(run([0.0, 60.0, 0.0, 0.0]), ["link_errors/gpu002/mlx5_0/1"]);
    let found = run([60.0; 4]);
    assert!(found.iter().all(|id| !id.starts_with("link_errors")), "{found:?}");
}
