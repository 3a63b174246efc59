//! Tests of pairing in virtual time: nodes join, measure on a simulated network, and leave.

use super::*;
use gaunt_api::{ProbeSuspect, SuspectKind};

/// Nodes below leaves, with one port on one rail, and the throughput of each pair.
struct PairingTestRun {
    scheduler: PairingScheduler,
    nodes: Vec<(SanitizedText, SanitizedText)>,
    carries: fn(&str, &str) -> f64,
    now: i64,
}

impl PairingTestRun {
    fn new(leaves: usize, each: usize, carries: fn(&str, &str) -> f64) -> Self {
        let nodes = (0..leaves * each)
            .map(|number| {
                let leaf = format!("leaf{}", number / each);
                (SanitizedText::new(&format!("node{number:02}")), SanitizedText::new(&leaf))
            })
            .collect();
        Self { scheduler: PairingScheduler::default(), nodes, carries, now: 1_000_000 }
    }

    fn send_request(&mut self, request: PairingRequest) -> PairingReply {
        let nodes = self.nodes.clone();
        let ports = |name: &SanitizedText| {
            let known = nodes.iter().find(|(node, _)| node == name);
            let port = |leaf: &SanitizedText| PairingPort {
                device: SanitizedText::new("mlx5_0"),
                port: SanitizedText::new("1"),
                rail: Some(SanitizedText::new("rail0")),
                leaf: Some(leaf.clone()),
                gpu: Some(3),
            };
            known.map(|(_, leaf)| port(leaf)).into_iter().collect()
        };
        self.scheduler.handle_request(UnixMs(self.now), request, ports)
    }

    fn report_free(&mut self, node: &str) -> PairingReply {
        let (node, host) = (SanitizedText::new(node), SanitizedText::new("10.0.0.1"));
        self.send_request(PairingRequest::Free(PairingCandidate {
            node,
            host,
            tools: vec![PairTool::Nccl],
        }))
    }

    /// All nodes poll for this many seconds; an assigned pair measures at once.
    fn run(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.now += 1_000;
            for (node, _) in self.nodes.clone() {
                let PairingReply::Meet(one) = self.report_free(&node) else { continue };
                let PairingReply::Meet(other) = self.report_free(&one.peer.clone()) else {
                    panic!("the other side is not invited")
                };
                let rate = (self.carries)(&node, &one.peer);
                for assignment in [one, other] {
                    let reply = self.report_ended(&assignment, Some(rate));
                    assert_eq!(reply, PairingReply::Noted);
                }
            }
        }
    }

    fn report_ended(
        &mut self,
        assignment: &PairingAssignment,
        bytes_per_second: Option<f64>,
    ) -> PairingReply {
        let outcome = PairingOutcome { bytes_per_second, says: SanitizedText::new("as it was") };
        let PairingAssignment { meeting, rank, .. } = *assignment;
        self.send_request(PairingRequest::Ended { meeting, rank, outcome })
    }

    fn suspect_names(&self) -> Vec<(SuspectKind, String)> {
        let matrix = self.scheduler.build_matrix(UnixMs(self.now));
        let suspects = matrix.rails.into_iter().flat_map(|rail| rail.suspects);
        suspects.map(|ProbeSuspect { kind, name, .. }| (kind, name.to_string())).collect()
    }
}

#[test]
fn scheduler_measures_every_port_and_path_and_then_pauses() {
    let mut run = PairingTestRun::new(3, 4, |_, _| 48e9);
    run.run(120);
    let matrix = run.scheduler.build_matrix(UnixMs(run.now));
    let pairs = &matrix.rails[0].pairs;
    for (node, _) in &run.nodes {
        let own = pairs.iter().filter(|pair| pair.from.node == *node || pair.to.node == *node);
        let within = own.filter(|pair| pair.from.leaf == pair.to.leaf).count();
        assert!(within >= 2, "{node} was measured {within} times within its leaf");
    }
    let mut paths: Vec<_> = pairs
        .iter()
        .filter(|pair| pair.from.leaf != pair.to.leaf)
        .map(|pair| {
            if pair.from.leaf < pair.to.leaf {
                (&pair.from.leaf, &pair.to.leaf)
            } else {
                (&pair.to.leaf, &pair.from.leaf)
            }
        })
        .collect();
    paths.sort();
    paths.dedup();
    assert_eq!(paths.len(), 3);
    assert_eq!((matrix.measuring, matrix.free, run.suspect_names()), (0, 12, Vec::new()));
    let made = matrix.ended[0];
    run.run(60);
    let soon = run.scheduler.build_matrix(UnixMs(run.now)).ended[0];
    assert_eq!(soon, made, "what was measured is left alone for a while");
    run.run(REST as u64 / 1_000);
    assert!(run.scheduler.build_matrix(UnixMs(run.now)).ended[0] > made);
}

/// The number of the leaf below which a node is.
fn leaf_of_node(name: &str) -> usize {
    name[4..].parse::<usize>().unwrap() / 4
}

#[test]
fn slow_port_is_distinguished_from_slow_uplink_and_slow_path() {
    let port =
        |one: &str, other: &str| if one == "node05" || other == "node05" { 20e9 } else { 48e9 };
    let mut run = PairingTestRun::new(3, 4, port);
    run.run(120);
    assert_eq!(run.suspect_names(), [(SuspectKind::Port, "node05 mlx5_0/1".to_owned())]);
    let suspects = run.scheduler.suspects_since(UnixMs(0));
    let SuspectPart::Port(end) = &suspects[0].part else { panic!("{suspects:?}") };
    assert_eq!(
        (end.node.as_str(), end.device.as_str(), end.port.as_str()),
        ("node05", "mlx5_0", "1")
    );

    let uplink = |one: &str, other: &str| {
        let (one, other) = (leaf_of_node(one), leaf_of_node(other));
        if one != other && (one == 1 || other == 1) { 12e9 } else { 48e9 }
    };
    let mut run = PairingTestRun::new(4, 4, uplink);
    run.run(200);
    assert_eq!(run.suspect_names(), [(SuspectKind::Uplink, "leaf1".to_owned())]);
    let suspects = run.scheduler.suspects_since(UnixMs(0));
    assert_eq!(suspects[0].part, SuspectPart::Uplink("leaf1".into()));
    assert_eq!(run.scheduler.suspects_since(UnixMs(run.now + 1)), [], "all that is too long ago");

    let way = |one: &str, other: &str| {
        let (one, other) = (leaf_of_node(one), leaf_of_node(other));
        if one.min(other) == 0 && one.max(other) == 2 { 12e9 } else { 48e9 }
    };
    let mut run = PairingTestRun::new(4, 4, way);
    run.run(200);
    assert_eq!(run.suspect_names(), [(SuspectKind::Path, "leaf0 - leaf2".to_owned())]);
    assert_eq!(run.scheduler.suspects_since(UnixMs(0)), [], "it is neither leaf's");

    let whole = |one: &str, other: &str| {
        if leaf_of_node(one) == 3 || leaf_of_node(other) == 3 { 15e9 } else { 48e9 }
    };
    let mut run = PairingTestRun::new(4, 4, whole);
    run.run(200);
    assert_eq!(run.suspect_names(), [(SuspectKind::Leaf, "leaf3".to_owned())]);
}

#[test]
fn leaf_has_one_token() {
    let mut run = PairingTestRun::new(2, 6, |_, _| 48e9);
    let names: Vec<SanitizedText> = run.nodes.iter().map(|(node, _)| node.clone()).collect();
    let mut invited = 0;
    for node in &names {
        invited += usize::from(matches!(run.report_free(node), PairingReply::Meet(_)));
    }
    // Within the first leaf; the second one measures on its own. No pair may cross.
    assert!(invited >= 2, "{invited}");
    assert_eq!(run.scheduler.build_matrix(UnixMs(run.now)).measuring, 2);
}

#[test]
fn rank_one_joins_with_the_key_of_rank_zero() {
    let mut run = PairingTestRun::new(1, 2, |_, _| 48e9);
    assert_eq!(run.report_free("node00"), PairingReply::Wait { millis: WAIT + WAIT_EACH });
    let PairingReply::Meet(first) = run.report_free("node01") else { panic!("two are free") };
    assert_eq!((first.rank, first.peer.as_str(), first.gpu), (0, "node00", Some(3)));
    // A lost reply is repeated.
    assert_eq!(run.report_free("node01"), PairingReply::Meet(first.clone()));
    let PairingReply::Meet(second) = run.report_free("node00") else { panic!("it is invited") };
    assert_eq!((second.rank, second.meeting), (1, first.meeting));
    let meeting = first.meeting;
    assert_eq!(
        run.send_request(PairingRequest::Coming { meeting }),
        PairingReply::Wait { millis: SOON }
    );
    let key = SanitizedText::new("00ff");
    assert_eq!(
        run.send_request(PairingRequest::Ready { meeting, key: key.clone() }),
        PairingReply::Noted
    );
    assert_eq!(run.send_request(PairingRequest::Coming { meeting }), PairingReply::Key { key });
    assert_eq!(run.report_ended(&first, Some(47e9)), PairingReply::Noted);
    assert_eq!(run.report_ended(&second, Some(46e9)), PairingReply::Noted);
    let matrix = run.scheduler.build_matrix(UnixMs(run.now));
    assert_eq!(matrix.rails[0].pairs[0].bytes_per_second, Some(46e9));
    assert!(matches!(run.report_ended(&second, None), PairingReply::Over { .. }));
}

#[test]
fn side_that_fails_dies_or_restarts_frees_the_other() {
    let mut run = PairingTestRun::new(1, 2, |_, _| 48e9);
    run.report_free("node00");
    let PairingReply::Meet(first) = run.report_free("node01") else { panic!("two are free") };
    assert_eq!(run.report_ended(&first, None), PairingReply::Noted);
    let pair = &run.scheduler.build_matrix(UnixMs(run.now)).rails[0].pairs[0];
    assert_eq!(pair.failure.as_ref().unwrap().as_str(), "node01: as it was");
    assert_eq!(pair.bytes_per_second, None);

    run.now += REST;
    run.report_free("node00");
    let PairingReply::Meet(first) = run.report_free("node01") else { panic!("they have rested") };
    let key = SanitizedText::new("00");
    run.send_request(PairingRequest::Ready { meeting: first.meeting, key });
    // It was killed and restarted, while the other side still waits.
    assert!(matches!(run.report_free("node01"), PairingReply::Wait { .. }));
    assert!(matches!(
        run.send_request(PairingRequest::Coming { meeting: first.meeting }),
        PairingReply::Over { .. }
    ));

    run.now += REST;
    run.report_free("node00");
    let PairingReply::Meet(late) = run.report_free("node01") else { panic!("they have rested") };
    run.now += LIFE;
    assert!(matches!(run.report_ended(&late, Some(1e9)), PairingReply::Over { .. }));
    let matrix = run.scheduler.build_matrix(UnixMs(run.now));
    assert_eq!((matrix.measuring, matrix.ended), (0, [3, 3]));
}

#[test]
fn unknown_node_is_rejected_with_the_reason() {
    let mut run = PairingTestRun::new(1, 2, |_, _| 48e9);
    let PairingReply::Over { why } = run.report_free("stranger") else { panic!("nobody knows it") };
    assert!(why.contains("no RDMA port of stranger is known; set --node"), "{why}");
}
