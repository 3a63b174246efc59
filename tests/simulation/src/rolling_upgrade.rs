//! A rolling upgrade of a pair: the exporters of 100 nodes restart as another version, then one aggregator after the other.

use std::{collections::BTreeMap, time::Duration};

use gaunt_api::{FindingAction, FindingCommand};
use gaunt_schema::{LifeState, Severity, UnixMs};
use tokio::time::sleep;

use crate::{
    BEGAN,
    seeded_random::SeededRandom,
    simulated_fleet::SimulatedNode,
    simulated_host::{HostFaults, SimulatedHost},
    simulated_network::SimulatedNetwork,
    simulated_pair::SimulatedPair,
};

/// The number of nodes.
const FLEET: usize = 100;

/// Nodes whose port is down, and one that is off, before the upgrade begins.
const PORTS_DOWN: [usize; 2] = [6, 99];
const OFF: usize = 17;

/// The second at which the faults begin, and at which the user acknowledges one of them.
const FAULTS_BEGIN: u64 = 6;
const ACKNOWLEDGED: u64 = 24;

/// The first second of the upgrade; so many exporters are replaced in each, and each is away for so long.
const UPGRADE_BEGINS: u64 = 26;
const NODES_PER_SECOND: u64 = 10;
const EXPORTER_AWAY: Duration = Duration::from_secs(1);

/// When each aggregator is replaced, for how many seconds it is away, and the end.
const AGGREGATORS: [u64; 2] = [38, 48];
const AGGREGATOR_AWAY: u64 = 4;
const END: u64 = 60;

/// What users know of the open findings: when each opened, and who handles it.
type KnownFindings = BTreeMap<String, (UnixMs, Option<String>)>;

struct RollingUpgrade {
    network: SimulatedNetwork,
    hosts: Vec<SimulatedHost>,
    pair: SimulatedPair,
    random: SeededRandom,
}

impl RollingUpgrade {
    fn new() -> Self {
        let booted = BEGAN - Duration::from_hours(10);
        let nodes = (0..FLEET).map(|index| SimulatedNode::new(index, booted, 0)).collect();
        let network = SimulatedNetwork::new(nodes, BEGAN, SeededRandom::new(1), None);
        let faults = HostFaults {
            has_disk_faults: false,
            has_power_cuts: false,
            has_settings_faults: false,
            clock_steps: &[0],
            density: 1,
        };
        let hosts = (0..2).map(|seed| SimulatedHost::new(&network, faults, seed, None).unwrap());
        let hosts = hosts.collect();
        Self { network, hosts, pair: SimulatedPair::default(), random: SeededRandom::new(2) }
    }

    /// A second of both aggregators; returns what does not hold.
    async fn step(&mut self, second: u64) -> Vec<String> {
        sleep(Duration::from_secs(1)).await;
        let mut broken = Vec::new();
        let [first, other] = &mut self.hosts[..] else { return broken };
        broken.extend(first.start_if_due(second, other.aggregator.as_ref()));
        broken.extend(other.start_if_due(second, first.aggregator.as_ref()));
        for host in &mut self.hosts {
            broken.extend(host.step(second, &mut self.random));
        }
        self.pair.exchange(&mut self.hosts, second, false, &mut self.random);
        broken
    }

    /// Restarts the exporters whose turn it is as version 2.
    fn upgrade_nodes(&self, second: u64) {
        let Some(since) = second.checked_sub(UPGRADE_BEGINS) else { return };
        let first = (since * NODES_PER_SECOND) as usize;
        for node in (first..first + NODES_PER_SECOND as usize).filter(|node| *node < FLEET) {
            self.network.change_node(node, |node, now| {
                node.version = 2;
                if node.is_on(now) {
                    node.stop_exporter(now, EXPORTER_AWAY);
                }
            });
        }
    }

    /// The open findings that each running aggregator lists, from warnings on.
    fn open_findings(&self) -> impl Iterator<Item = KnownFindings> {
        self.hosts.iter().filter_map(|host| host.aggregator.as_ref()).map(|aggregator| {
            let list = aggregator.findings();
            let open = list.findings.iter().filter(|finding| {
                finding.severity >= Severity::Warning && finding.life.state != LifeState::Closed
            });
            open.map(|finding| {
                let handled_by = finding.acknowledged.as_ref().map(|it| it.by.to_string());
                (finding.id.clone(), (finding.life.opened, handled_by))
            })
            .collect()
        })
    }
}

/// Three thousand scrapes of either aggregator take some seconds of a processor.
#[tokio::test(start_paused = true)]
async fn rolling_upgrade_loses_no_finding() {
    let mut run = RollingUpgrade::new();
    let mut known: Vec<KnownFindings> = Vec::new();
    for second in 0..END {
        if second == FAULTS_BEGIN {
            for node in PORTS_DOWN {
                run.network.change_node(node, |node, _| node.is_port_down = true);
            }
            run.network.change_node(OFF, |node, now| node.reboot(now, Duration::from_hours(1)));
        }
        run.upgrade_nodes(second);
        for (host, at) in run.hosts.iter_mut().zip(AGGREGATORS) {
            if second == at {
                host.stop(second, AGGREGATOR_AWAY);
            }
        }
        let broken = run.step(second).await;
        assert!(broken.is_empty(), "at {second} s {broken:?}");
        if second == ACKNOWLEDGED {
            let ids = run.open_findings().next().unwrap();
            assert_eq!(ids.len(), PORTS_DOWN.len() + 1, "{ids:?}");
            let action = FindingAction {
                finding: ids.keys().next().unwrap().clone(),
                by: "sam".into(),
                command: FindingCommand::Acknowledge { note: "seen".into() },
                seen: None,
            };
            assert!(run.hosts[0].aggregator.as_mut().unwrap().act(&action));
        }
        if second == ACKNOWLEDGED + 1 {
            known = run.open_findings().collect();
            let handled = |list: &KnownFindings| list.values().filter(|it| it.1.is_some()).count();
            assert!(known.len() == 2 && known.iter().all(|list| handled(list) == 1), "{known:?}");
        }
        if second > ACKNOWLEDGED + 1 {
            for mut open in run.open_findings() {
                // An exporter that is away for two scrapes is a finding of its own.
                open.retain(|id, _| !id.starts_with("target_down/") || known[0].contains_key(id));
                assert!(known.contains(&open), "at {second} s {open:?}, known {known:?}");
            }
        }
    }
    for host in &run.hosts {
        let nodes = host.aggregator.as_ref().unwrap().overview().nodes;
        assert_eq!(nodes.live as usize, FLEET - 1, "{nodes:?}");
    }
}
