//! What an operator's site tells an aggregator beside pages: topology, a scheduler's jobs, and probes that are paired.

use std::{path::Path, sync::LazyLock};

use gaunt_engine::Engine;
use gaunt_schema::{
    Delivery, SanitizedText, SourceTopology,
    probe_pairing::{
        PairTool, PairingAssignment, PairingCandidate, PairingOutcome, PairingReply, PairingRequest,
    },
};
use gaunt_site::{SiteError, parse_jobs, parse_topology};
use tokio::sync::mpsc;

use crate::simulated_fleet::{NODES, SimulatedNode};

/// Ticks between two deliveries of topology and jobs, and of one job.
const DELIVER_EVERY: u64 = 20;
const JOB: u64 = 60;

/// Ticks of a measurement, and the share of them that fail.
const MEASURED_FOR: u64 = 4;
const FAILS_EVERY: u64 = 7;

const TOPOLOGY: &str = "
[[nodes]]
names = \"gpu[01-03]\"
rack = \"r1\"
ports = { mlx5_0 = \"leaf-1\" }
[rails]
\"0\" = [\"mlx5_0\"]
[[switches]]
names = \"leaf-1\"
above = \"spine-[1-2]\"
";

/// The site as one process of an aggregator hears of it.
#[derive(Debug, Default)]
pub(crate) struct SimulatedSite {
    ticks: u64,
    /// The pairing of each node, and the tick at which it ends.
    pairings: [Option<(PairingAssignment, u64)>; NODES],
}

impl SimulatedSite {
    /// A second: lists of topology and jobs now and then, and a request of each probe. Returns what does not hold.
    pub(crate) fn tick(
        &mut self,
        engine: &mut Engine,
        inbox: &mpsc::Sender<Delivery>,
    ) -> Vec<String> {
        self.ticks += 1;
        let mut broken = Vec::new();
        if self.ticks % DELIVER_EVERY == 1 {
            static PARSED: LazyLock<Result<SourceTopology, SiteError>> =
                LazyLock::new(|| parse_topology(Path::new("topology.toml"), TOPOLOGY));
            let jobs = parse_jobs(Path::new("squeue.json"), &self.list_jobs());
            let topology = PARSED.as_ref().map(|topology| Delivery::Topology(topology.clone()));
            let topology = topology.map_err(ToString::to_string);
            let jobs = jobs.map(Delivery::Jobs).map_err(|error| error.to_string());
            for delivery in [topology, jobs] {
                match delivery {
                    // A full inbox is that of another second.
                    Ok(delivery) => drop(inbox.try_send(delivery)),
                    Err(why) => broken.push(format!("a file of the site is refused: {why}")),
                }
            }
        }
        for node in 0..NODES {
            self.request(node, engine);
        }
        let meetings = |rank| {
            let pairings = self.pairings.iter().flatten();
            let of_rank = pairings.filter(move |(assignment, _)| assignment.rank == rank);
            let mut meetings: Vec<u64> =
                of_rank.map(|(assignment, _)| assignment.meeting).collect();
            meetings.sort_unstable();
            meetings
        };
        for rank in [0, 1] {
            if meetings(rank).windows(2).any(|pair| pair[0] == pair[1]) {
                broken.push(format!("two probes have rank {rank} of one pairing"));
            }
        }
        broken
    }

    fn list_jobs(&self) -> String {
        let id = 7_000 + self.ticks / JOB;
        format!(
            r#"{{"jobs":[{{"job_id":{id},"name":"train","user_name":"sam","account":"physics","partition":"gpu",
                "job_state":["RUNNING"],"nodes":"gpu01","gres_detail":["gpu:h100:2(IDX:0-1)"],
                "start_time":{{"set":true,"infinite":false,"number":1699990000}},
                "job_resources":{{"nodes":{{"count":1,"list":"gpu01","whole":false}}}}}}]}}"#
        )
    }

    /// The next request of a node's probe.
    fn request(&mut self, node: usize, engine: &mut Engine) {
        let Some((assignment, ends)) = self.pairings[node].clone() else {
            let name = SanitizedText::new(&SimulatedNode::name_of(node));
            let tools = vec![PairTool::Nccl, PairTool::Perftest];
            let candidate = PairingCandidate { node: name.clone(), host: name, tools };
            if let PairingReply::Meet(assignment) =
                engine.handle_pairing_request(PairingRequest::Free(candidate))
            {
                self.pairings[node] = Some((assignment, self.ticks + MEASURED_FOR));
            }
            return;
        };
        let meeting = assignment.meeting;
        let request = if self.ticks >= ends {
            let is_failed = meeting.is_multiple_of(FAILS_EVERY);
            let outcome = PairingOutcome {
                bytes_per_second: (!is_failed).then_some(40e9),
                says: SanitizedText::new(if is_failed { "no route" } else { "measured" }),
            };
            PairingRequest::Ended { meeting, rank: assignment.rank, outcome }
        } else if assignment.rank == 0 {
            PairingRequest::Ready { meeting, key: SanitizedText::new("10.0.0.1:7") }
        } else {
            PairingRequest::Coming { meeting }
        };
        let is_last = matches!(request, PairingRequest::Ended { .. });
        let is_over = matches!(engine.handle_pairing_request(request), PairingReply::Over { .. });
        if is_last || is_over {
            self.pairings[node] = None;
        }
    }
}
